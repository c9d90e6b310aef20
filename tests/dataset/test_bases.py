"""What opening a table and taking a row load, and what users get all the same."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pyarrow.dataset

import lance_io
from lance_io.dataset import bases

if TYPE_CHECKING:
    from pathlib import Path

_OPEN_AND_TAKE = """
import sys
import lance_io
table = lance_io.dataset(sys.argv[1])
assert table.schema.names == ["i", "j"]
assert table.take([2]).num_rows == 1
assert table.count_rows() == 3
loaded = {"pandas", "pyarrow.dataset", "pyarrow.compute", "aiobotocore", "botocore", "aiohttp"} & sys.modules.keys()
assert not loaded, loaded
import pyarrow as pa
import pyarrow.dataset
assert isinstance(table, pyarrow.dataset.Dataset)
assert isinstance(table.scanner(), pyarrow.dataset.Scanner)
assert isinstance(table.get_fragments()[0], pyarrow.dataset.Fragment)
assert pa.scalar(True).as_py() is True and pa.lib.scalar is pa.scalar
assert table.to_pandas()["i"].tolist() == [1, 2, 3]
"""


def test_opening_and_taking_load_neither_pandas_nor_cloud_clients(tmp_path: Path) -> None:
    uri = tmp_path / "small.lance"
    lance.write_dataset(pa.table({"i": [1, 2, 3], "j": pa.array(["1", "[]", None], pa.json_())}), str(uri))
    ran = subprocess.run(
        [sys.executable, "-c", _OPEN_AND_TAKE, str(uri)], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr


def test_classes_are_those_of_pyarrow() -> None:
    assert issubclass(lance_io.LanceDataset, pyarrow.dataset.Dataset)
    assert issubclass(lance_io.LanceScanner, pyarrow.dataset.Scanner)
    assert issubclass(lance_io.LanceFragment, pyarrow.dataset.Fragment)
    assert (bases.Dataset, bases.Fragment, bases.Scanner) == (
        pyarrow.dataset.Dataset,
        pyarrow.dataset.Fragment,
        pyarrow.dataset.Scanner,
    )
