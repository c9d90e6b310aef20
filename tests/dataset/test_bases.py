"""What opening a table, taking a row and a scan load, and what users get all the same."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pyarrow.dataset
import pytest

import lance_io
from lance_io.dataset import bases
from lance_io.dataset.lance_dataset import SyncDataset

if TYPE_CHECKING:
    from pathlib import Path

_OPEN_AND_TAKE = """
import sys
import lance_io
table = lance_io.dataset(sys.argv[1])
assert table.schema.names == ["i", "j"]
assert table.take([2]).num_rows == 1
assert table.count_rows() == 3
assert table.to_table().num_rows == len([*table.to_batches(batch_size=1)]) == 3 and table.head(1).num_rows == 1
heavy = {"pandas", "pyarrow.dataset", "pyarrow._dataset", "pyarrow.compute", "aiobotocore", "botocore", "aiohttp"}
loaded = heavy & sys.modules.keys()
assert not loaded, loaded
import pyarrow as pa
import pyarrow.dataset
assert isinstance(table, pyarrow.dataset.Dataset)
assert isinstance(table.scanner(), pyarrow.dataset.Scanner)
assert isinstance(table.get_fragments()[0], pyarrow.dataset.Fragment)
assert table.to_pandas()["i"].tolist() == [1, 2, 3]
"""


_TAKE_ASYNC = """
import asyncio, sys
from lance_io import AsyncDataset

async def take():
    async with AsyncDataset.open(sys.argv[1]) as table:
        return (await table.take([2])).num_rows

assert asyncio.run(take()) == 1
heavy = {"pandas", "pyarrow.dataset", "pyarrow._dataset", "aiobotocore", "botocore", "aiohttp"}
loaded = heavy & sys.modules.keys()
assert not loaded, loaded
"""

_NOTHING_REPLACED = """
import sys
import pyarrow as pa, pyarrow.compute, pyarrow.dataset, pyarrow.lib, pandas, numpy, asyncio, threading
watched = [one for name, one in sys.modules.items() if name.split(".")[0] in ("pyarrow", "numpy", "pandas", "asyncio")]
written = []

class Watch(type(pa)):
    def __setattr__(self, name, value):
        if not name.startswith("__"):
            written.append((self.__name__, name))
        super().__setattr__(name, value)

modules = pa, pa.lib, pa.compute, pa.dataset, pandas, numpy, asyncio, threading
before = {one.__name__: dict(vars(one)) for one in modules}
pa.lib.__class__ = pa.compute.__class__ = pa.__class__ = Watch
import lance_io
table = lance_io.dataset(sys.argv[1])
assert table.take([2]).num_rows == 1 and table.to_table(filter="i > 1").num_rows == 2
assert sum(batch.num_rows for batch in table.to_batches()) == 3
lance_io.write_dataset(table.to_table(["i"]), sys.argv[1] + "2").delete("i = 1")

async def again():
    async with lance_io.AsyncDataset.open(sys.argv[1]) as other:
        return await other.to_table(filter="i > 1")

asyncio.run(again())
assert not written, written
for name, values in before.items():
    now = vars(sys.modules[name])
    changed = [key for key, value in values.items() if now.get(key) is not value]
    assert not changed, (name, changed)
"""


def ran_in_new_process(program: str, folder: Path, *arguments: str) -> None:
    uri = folder / "small.lance"
    lance.write_dataset(pa.table({"i": [1, 2, 3], "j": pa.array(["1", "[]", None], pa.json_())}), str(uri))
    ran = subprocess.run(
        [sys.executable, "-c", program, str(uri), *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr


def test_opening_taking_and_scanning_load_no_cloud_clients_and_no_pandas(tmp_path: Path) -> None:
    """`pyarrow._dataset` loads pandas where that is installed, as `pyarrow.array` does, too."""
    ran_in_new_process(_OPEN_AND_TAKE, tmp_path)


_OPENED_BEFORE = """
import copy, pickle, sys
import lance_io
opened = lance_io.dataset(sys.argv[1])
there = opened.checkout_version(1)
copies = copy.copy(opened), pickle.loads(pickle.dumps(opened)), lance_io.AsyncDataset.of(opened).to_sync()
assert "pyarrow._dataset" not in sys.modules
sent = pickle.dumps(opened)
for one in (opened, there, *copies):
    assert isinstance(one, lance_io.LanceDataset) and issubclass(one.__class__, lance_io.LanceDataset)
    assert not isinstance(one, (str, lance_io.LanceScanner))
import duckdb, polars, pyarrow.dataset
assert isinstance(pickle.loads(sent), pyarrow.dataset.Dataset) and opened == opened != there
assert duckdb.sql("select sum(i) from opened where i > 1").fetchall() == [(5,)]
assert polars.scan_pyarrow_dataset(opened).select("i").collect()["i"].to_list() == [1, 2, 3]
lance_io.write_dataset(opened, sys.argv[1] + "2").insert(opened.to_table())
assert lance_io.dataset(sys.argv[1] + "2").count_rows() == 6
later = lance_io.dataset(sys.argv[1])
assert type(later) is lance_io.LanceDataset and isinstance(later, pyarrow.dataset.Dataset)
try:  # which would read a dataset of C++
    pyarrow.dataset.Scanner.from_dataset(opened)
except TypeError:
    pass
else:
    raise AssertionError("pyarrow took it for one of its own")
"""


def test_a_dataset_opened_before_pyarrows_module_was_loaded_is_one_all_the_same(tmp_path: Path) -> None:
    ran_in_new_process(_OPENED_BEFORE, tmp_path)


def test_all_that_pyarrow_datasets_have_is_our_own() -> None:
    """So that a dataset has the same methods before and after the module is loaded, and none of them meets C++."""
    theirs = {name for name in vars(pyarrow.dataset.Dataset) if not name.startswith("__")}
    ours = {name for one in SyncDataset.__mro__ for name in vars(one)}
    assert len(theirs) > 15
    assert theirs <= ours, theirs - ours
    added_by_python = {*vars(type("Empty", (), {})), "__qualname__", "__annotations__"}  # the last when it is asked for
    assert vars(lance_io.LanceDataset).keys() <= added_by_python


def test_an_awaited_take_loads_neither_pandas_nor_datasets_of_pyarrow(tmp_path: Path) -> None:
    ran_in_new_process(_TAKE_ASYNC, tmp_path)


_SCANNED = """
import sys, threading
import lance_io

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in ("pyarrow._dataset", "pandas"):
            found[name] = threading.current_thread()

found = {}
sys.meta_path.insert(0, Finder())
table = lance_io.dataset(sys.argv[1])
assert (table.scanner().to_table() if sys.argv[2] == "scanner" else table.to_table(filter="i > 1")).num_rows
assert {"pyarrow._dataset"} <= found.keys() and threading.main_thread() not in found.values(), found
"""


@pytest.mark.parametrize("scan", ["scanner", "filter"])
def test_ctrl_c_in_a_first_scan_does_not_end_the_import_of_pandas_half_way(scan: str, tmp_path: Path) -> None:
    ran_in_new_process(_SCANNED, tmp_path, scan)


def test_nothing_of_other_packages_is_replaced(tmp_path: Path) -> None:
    """Not even for a moment: assignments to their modules are watched."""
    ran_in_new_process(_NOTHING_REPLACED, tmp_path)


def test_classes_are_those_of_pyarrow() -> None:
    assert issubclass(lance_io.LanceDataset, pyarrow.dataset.Dataset)
    assert issubclass(lance_io.LanceScanner, pyarrow.dataset.Scanner)
    assert issubclass(lance_io.LanceFragment, pyarrow.dataset.Fragment)
    assert (bases.Dataset, bases.Fragment, bases.Scanner) == (
        pyarrow.dataset.Dataset,
        pyarrow.dataset.Fragment,
        pyarrow.dataset.Scanner,
    )
