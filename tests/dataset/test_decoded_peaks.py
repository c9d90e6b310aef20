"""How much memory scans take of values that compress well: each in a process of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lance_io
from lance_io.limits import MIB
from tests.products import thinned

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKOUT = Path(__file__).resolve().parents[2]
VALUES = 640
PEAK_MIB = 384  # all of them are 640

PROGRAM = """
import asyncio, sys
import lance_io

uri, how = sys.argv[1:3]


def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


async def on_a_loop():
    ds = await lance_io.AsyncDataset.open(uri)
    async for batch in ds.to_batches(["m"], limit=1):
        assert batch.num_rows == 1
    before, rows = peak(), 0
    async for batch in ds.to_batches():
        rows += batch.num_rows
        del batch
    await ds.aclose()
    return before, rows


def now():
    ds = lance_io.dataset(uri)
    assert len(list(ds.to_batches(["m"], limit=1))) == 1
    before, rows = peak(), 0
    if how == "count":
        return before, ds.count_rows("m is not null")
    options = {
        "now": {},
        "few": {"batch_size": 8},
        "early": {"filter": "m is not null"},
        "late": {"filter": "k < 8"},
        "few late": {"filter": "k < 8", "batch_size": 8},
    }
    for batch in ds.to_batches(**options[how]):
        rows += batch.num_rows
        del batch
    return before, rows


before, rows = asyncio.run(on_a_loop()) if how == "loop" else now()
print(rows, (peak() - before) >> 20)
"""


def write(uri: str, num_values: int, version: str, rows_max: int) -> str:
    """A table of values of 1 MiB that take next to nothing."""
    large = pa.field("m", pa.large_binary(), metadata={"lance-encoding:compression": "zstd"})
    schema = pa.schema([large, ("k", pa.int64())])
    rows = (
        pa.record_batch([pa.array([bytes(MIB)] * 8, pa.large_binary()), pa.array(range(8), pa.int64())], schema=schema)
        for _ in range(num_values // 8)
    )
    lance_io.write_dataset(rows, uri, schema=schema, data_storage_version=version, max_rows_per_file=rows_max)
    return uri


FILES = ["2.0", "2.1", "2.2", "2.1, 16 files"]
SCANS = ["now", "few", "early", "late", "few late", "count", "loop"]


@pytest.fixture(scope="module", params=FILES)
def compressed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Values of 1 MiB in a file of some kilobytes, or in some."""
    version, _, several = request.param.partition(", ")
    return write(
        str(tmp_path_factory.mktemp("peaks") / "t.lance"), VALUES, version, VALUES // 16 if several else VALUES
    )


@pytest.mark.parametrize(("compressed", "how"), thinned(FILES, SCANS), indirect=["compressed"])
def test_scans_hold_a_few_batches_of_what_is_decoded(compressed: str, how: str) -> None:
    command = [sys.executable, "-c", PROGRAM, compressed, how]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=CHECKOUT)
    rows, grown = map(int, done.stdout.split())
    assert rows == VALUES
    assert grown <= PEAK_MIB


BLOBS = """
import asyncio, sys
import lance_io

uri, how = sys.argv[1:3]
options = {"blob_handling": "all_binary", "filter": "k >= 0" if how == "late" else None}


def memory(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(name))


async def on_a_loop():
    async with lance_io.AsyncDataset.open(uri) as ds:
        return sum([batch.num_rows async for batch in ds.to_batches(**options)])


ds = lance_io.dataset(uri)
assert ds.scanner(limit=1, **options).to_table().num_rows == 1
before = memory("VmRSS")
rows = asyncio.run(on_a_loop()) if how == "loop" else sum(batch.num_rows for batch in ds.to_batches(**options))
print(rows, (memory("VmHWM") - before) >> 20)
"""


@pytest.fixture(scope="module", params=["2.1", "2.2"])
def blobs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """600 blobs of 1 MiB: in the data file, or an object outside of the table, all the same."""
    folder = tmp_path_factory.mktemp("blobs")
    (folder / "outside").write_bytes(bytes(MIB))
    if request.param == "2.1":
        kind = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        value = pa.array([bytes(MIB)] * 8, pa.large_binary())
    else:
        kind = lance_io.blob_field("b")
        value = lance_io.blob_array([f"file://{folder}/outside"] * 8)
    schema = pa.schema([kind, pa.field("k", pa.int64())])
    rows = (pa.record_batch([value, pa.array(range(8), pa.int64())], schema=schema) for _ in range(75))
    options = {} if request.param == "2.1" else {"allow_external_blob_outside_bases": True}
    lance_io.write_dataset(rows, folder / "t", schema=schema, data_storage_version=request.param, **options)
    return str(folder / "t")


@pytest.mark.parametrize("how", ["now", "late", "loop"])
def test_scans_hold_a_few_batches_of_blobs_as_bytes(blobs: str, how: str) -> None:
    command = [sys.executable, "-c", BLOBS, blobs, how]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=CHECKOUT)
    rows, grown = map(int, done.stdout.split())
    assert rows == 600
    assert grown <= 320


TAKEN_BLOBS = """
import asyncio, sys
import lance_io
from lance_io.file import LanceFileReader

uri, how, name = sys.argv[1:4]


def memory(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(name))


async def on_a_loop():
    async with lance_io.AsyncDataset.open(uri) as ds:
        return (await ds.get_fragment(0).take(rows, [name]))[name].nbytes


ds = lance_io.dataset(uri)
rows = range(ds.count_rows())
(data_file,) = ds.get_fragment(0).data_files()
reader = LanceFileReader(f"{uri}/data/{data_file.path}", columns=[name])
ds.take([0])
before = memory("VmRSS")
if how == "take":
    given = ds.get_fragment(0).take(rows, [name])[name].nbytes
elif how == "loop":
    given = asyncio.run(on_a_loop())
elif how == "file":
    given = reader.take_rows([*rows]).to_table()[name].nbytes
elif how == "bytes":
    given = sum(len(value) for _, value in ds.read_blobs(name, indices=rows))
else:
    found = ds.read_blob_ranges(name, [(row, 0, 1 << 20) for row in rows], selector="indices")
    given = sum(len(value) for *_, value in found)
print(given >> 20, (memory("VmHWM") - before) >> 20)
"""


@pytest.fixture(scope="module")
def two_sizes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Blobs of the first kind: 240 of 1 MiB, and one of 240 MiB."""
    uri = str(tmp_path_factory.mktemp("taken") / "t")
    blob = {"lance-encoding:blob": "true"}
    schema = pa.schema(
        [pa.field("many", pa.large_binary(), metadata=blob), pa.field("one", pa.large_binary(), metadata=blob)]
    )

    def rows() -> Iterator[pa.RecordBatch]:
        for row in range(240):
            values = [[bytes([row]) * MIB], [bytes(240 * MIB) if row == 120 else None]]
            yield pa.record_batch([pa.array(one, pa.large_binary()) for one in values], schema=schema)

    lance_io.write_dataset(rows(), uri, schema=schema, data_storage_version="2.1")
    return uri


@pytest.mark.parametrize(("how", "name"), thinned(["take", "loop", "file"], ["many", "one"]))
def test_takes_of_blobs_hold_what_they_give(two_sizes: str, how: str, name: str) -> None:
    """Once, and what is read at a time."""
    command = [sys.executable, "-c", TAKEN_BLOBS, two_sizes, how, name]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=CHECKOUT)
    given, grown = map(int, done.stdout.split())
    assert given == 240
    assert grown <= given + 128


@pytest.mark.parametrize("how", ["bytes", "ranges"])
def test_blobs_that_are_read_are_held_once(two_sizes: str, how: str) -> None:
    command = [sys.executable, "-c", TAKEN_BLOBS, two_sizes, how, "many"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=CHECKOUT)
    given, grown = map(int, done.stdout.split())
    assert given == 240
    assert grown <= given + 128


OTHERS = """
import sys
import duckdb, lance_io
import pyarrow as pa

uri, how = sys.argv[1:3]
MIB = 1 << 20
limit = {"memory_limit": 64 * MIB}
value = pa.array([bytes(MIB)] * 8, pa.large_binary())


def memory(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(name))


ds = lance_io.dataset(uri)
ds.take([0])
before = memory("VmRSS")
if how == "cast":
    ds.alter_columns({"path": "m", "data_type": pa.binary()}, **limit)
elif how == "add":
    schema = pa.schema([("n", pa.large_binary())])
    rows = (pa.record_batch([value], schema) for _ in range(80))
    ds.add_columns(pa.RecordBatchReader.from_batches(schema, rows), **limit)
elif how == "merge":
    schema = pa.schema([("k", pa.int64()), ("n", pa.large_binary())])
    rows = pa.record_batch([pa.array(range(8), pa.int64()), value], schema)
    ds.merge(pa.RecordBatchReader.from_batches(schema, [rows]), "k", **limit)
else:
    duckdb.sql("SELECT sum(octet_length(m)) FROM ds").fetchall()
print(ds.count_rows(), (memory("VmHWM") - before) >> 20)
"""


@pytest.mark.parametrize("compressed", ["2.2"], indirect=True)
@pytest.mark.parametrize(("how", "peak_mib"), [("cast", 322), ("add", 322), ("merge", 322), ("duckdb", 384)])
def test_changes_and_engines_hold_a_few_batches(compressed: str, how: str, peak_mib: int, tmp_path: Path) -> None:
    """Changes hold their `memory_limit`, 256 MiB and two values; DuckDB holds vectors of its own."""
    uri = str(shutil.copytree(compressed, tmp_path / "t"))
    done = subprocess.run([sys.executable, "-c", OTHERS, uri, how], capture_output=True, text=True, cwd=CHECKOUT)
    assert done.returncode == 0, done.stderr
    rows, grown = map(int, done.stdout.split()[-2:])  # behind DuckDB's bar
    assert rows == VALUES
    assert grown <= peak_mib


SLOW_ITERATORS = """
import sys
import lance_io
from lance_io.io.budget import process_pool
from lance_io.runtime import cpu_count, cpu_pool


def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS"))


def settle():
    for _ in range(8 * cpu_count()):  # what was begun ahead is done
        cpu_pool().submit(lambda: None).result()


ds = lance_io.dataset(sys.argv[1])
for batch in ds.to_batches():
    pass
del batch
settle()
before, avail = resident(), process_pool().avail_bytes
begun = [iter(ds.to_batches()) for _ in range(12)]
for _ in range(3):
    for one in begun:
        assert next(one).num_rows
    settle()
    print(avail - process_pool().avail_bytes, resident() - before)
"""


@pytest.mark.parametrize(("version", "num_values"), thinned(["2.0", "2.1"], [640, 1200]))
def test_what_slow_iterators_hold_is_counted(tmp_path: Path, version: str, num_values: int) -> None:
    """Few rows are taken, and more of them scanned: in both ways memory is near what the pool counts."""
    uri = write(str(tmp_path / "t.lance"), num_values, version, num_values)
    command = [sys.executable, "-c", SLOW_ITERATORS, uri]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=CHECKOUT)
    for line in done.stdout.splitlines():
        counted, grown = map(int, line.split())
        assert counted >= 12 * MIB
        assert grown <= 1.15 * counted + 64 * MIB
