"""Takes of many bytes come in pieces: the same rows as pylance's, and hardly more memory than what they give."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset
from lance_io.file.take import take_pieces
from lance_io.io.stats import io_stats
from lance_io.levels.row_sizes import cut_by_size, row_sizes
from lance_io.limits import KIB, MIB
from lance_io.reads.takes import ordered_pieces

if TYPE_CHECKING:
    from pathlib import Path

NUM_ROWS = 600


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a few rows of `everything`."""
    monkeypatch.setattr(take_pieces, "WHOLE_BYTES", 8 * KIB)
    monkeypatch.setattr(take_pieces, "PIECE_BYTES", 8 * KIB)
    monkeypatch.setattr(ordered_pieces, "WHOLE_BYTES", 8 * KIB)
    monkeypatch.setattr(ordered_pieces, "CHUNK_BYTES", 8 * KIB)


def everything() -> pa.Table:
    """Columns of many types, with nulls; texts of up to 600 bytes."""
    numbers = range(NUM_ROWS)
    texts = [None if row % 7 == 3 else f"{row}-" * (row % 120) for row in numbers]
    return pa.table(
        {
            "id": pa.array(numbers),
            "text": pa.array(texts, pa.string()),
            "bytes": pa.array([None if one is None else one.encode() for one in texts], pa.large_binary()),
            "vector": pa.array([[row, row + 0.5] for row in numbers], pa.list_(pa.float32(), 2)),
            "list": pa.array([[text] * (row % 4) for row, text in enumerate(texts)], pa.list_(pa.string())),
            "struct": pa.array([{"a": row, "b": text} for row, text in enumerate(texts)]),
            "word": pa.array([f"w{row % 9}" for row in numbers]).dictionary_encode(),
            "flag": pa.array([row % 3 == 0 for row in numbers]),
        }
    )


@pytest.mark.parametrize("version", ["2.0", "2.1", "0.1"])
@pytest.mark.parametrize("order", ["ascending", "reversed", "repeated", "shuffled"])
def test_pieces_give_the_rows_that_pylance_gives(small_pieces: None, tmp_path: Path, version: str, order: str) -> None:
    data_version = "legacy" if version == "0.1" else version
    rows = everything() if version != "0.1" else everything().drop_columns(["list"])
    lance.write_dataset(rows, tmp_path / "t", max_rows_per_file=250, data_storage_version=data_version)
    ds, peer = lance_io.dataset(tmp_path / "t"), lance.dataset(tmp_path / "t")
    for table in (ds, peer):
        table.delete("id % 50 = 11") if table is ds else table.checkout_latest()
    left = ds.count_rows()
    indices = {
        "ascending": list(range(left)),
        "reversed": list(range(left))[::-1],
        "repeated": [5, 5, left - 1] * 60 + list(range(0, left, 3)),
        "shuffled": np.random.default_rng(3).permutation(left).tolist(),
    }[order]
    taken = ds.take(indices)
    assert taken.column("text").num_chunks > 1
    assert _plain(taken) == _plain(peer.take(indices))
    system = ds.take(indices, columns=["text", "_rowid", "_rowaddr"])
    assert system.to_pydict() == peer.take(indices, columns=["text", "_rowid", "_rowaddr"]).to_pydict()
    computed = ds.take(indices, columns={"t": "upper(text)"})
    assert computed.to_pydict() == peer.take(indices, columns={"t": "upper(text)"}).to_pydict()


def _plain(table: pa.Table) -> Any:
    return table.to_pydict()


async def test_the_async_face_gives_the_same_pieces(small_pieces: None, tmp_path: Path) -> None:
    lance_io.write_dataset(everything(), tmp_path / "t")
    ds = lance_io.dataset(tmp_path / "t")
    indices = list(range(NUM_ROWS))[::-1]
    taken = await AsyncDataset.of(ds).take(indices)
    assert taken.column("text").num_chunks > 1
    assert taken.to_pydict() == everything().take(indices).to_pydict()


@pytest.mark.parametrize("dtype", [pa.string(), pa.binary(), pa.large_string()])
def test_rows_named_many_times_come_in_chunks(small_pieces: None, tmp_path: Path, dtype: pa.DataType) -> None:
    """One text so often that no array of 32-bit offsets would hold it, were a chunk two GiB."""
    lance_io.write_dataset(pa.table({"s": pa.array(["a" * 1000, "b"], dtype)}), tmp_path / "t")
    taken = lance_io.dataset(tmp_path / "t").take([1] + [0] * 100, columns=["s"])
    assert taken.column("s").num_chunks > 5
    assert max(chunk.nbytes for chunk in taken.column("s").chunks) <= 8 * KIB
    assert taken.column("s").to_pylist() == pa.array(["b"] + ["a" * 1000] * 100, dtype).to_pylist()


def test_little_is_taken_in_one_round_and_one_piece(tmp_path: Path) -> None:
    lance_io.write_dataset(everything(), tmp_path / "t")
    ds = lance_io.dataset(tmp_path / "t")
    assert ds.take(list(range(NUM_ROWS))[::-1]).column("text").num_chunks == 1


_TAKE = """
import json, sys
import numpy as np, pyarrow, lance_io
def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) << 10
ds = lance_io.dataset(sys.argv[1])
rows = np.arange(ds.count_rows())
if sys.argv[2] == "shuffled":
    rows = np.random.default_rng(0).permutation(rows)
ds.take([0, 2, 1])
before = status("VmRSS")
taken = ds.take(rows)
print(json.dumps([status("VmHWM") - before, taken.nbytes]))
"""


@pytest.mark.parametrize(("compression", "order"), [(None, "shuffled"), ("zstd", "ascending")])
def test_a_take_needs_what_it_gives_and_a_bound(tmp_path: Path, compression: str | None, order: str) -> None:
    """240 MB of texts: joined and put in order as a whole they were there twice."""
    metadata = None if compression is None else {"lance-encoding:compression": compression}
    schema = pa.schema([pa.field("s", pa.string(), metadata=metadata)])
    batches = (pa.record_batch([[f"{row}" + "text " * 100_000] * 4], schema=schema) for row in range(120))
    lance_io.write_dataset(pa.RecordBatchReader.from_batches(schema, batches), tmp_path / "t")
    command = [sys.executable, "-c", _TAKE, str(tmp_path / "t"), order]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    grown, given = json.loads(done.stdout)
    assert given > 230_000_000
    assert grown <= given + 128 * MIB


# -- values that say how large they are once they are fetched ----------------------------------------------------------

ZSTD = {"lance-encoding:compression": "zstd"}
LARGE_MIB = 60
FEW_ROWS = 100


def _large_values(tmp_path: Path, version: str, num_files: int) -> str:
    """Four texts of some ten MiB that are a few kB in files, in one page or in one each."""
    schema = pa.schema([pa.field("s", pa.large_string(), metadata=ZSTD)])
    rows = [f"{row:8}" * (LARGE_MIB * MIB // 8) for row in range(4)]
    uri = str(tmp_path / "t")
    table = pa.table({"s": pa.array(rows, pa.large_string())}, schema=schema)
    lance.write_dataset(table, uri, max_rows_per_file=4 // num_files, data_storage_version=version)
    return uri


@pytest.mark.parametrize(
    ("version", "num_files", "order"), [("2.1", 4, "ascending"), ("2.1", 1, "shuffled"), ("2.0", 4, "ascending")]
)
def test_few_values_that_compress_well_are_not_decoded_at_once(
    tmp_path: Path, version: str, num_files: int, order: str
) -> None:
    program = _TAKE.replace("ds.take([0, 2, 1])", "ds.take([0])")  # which leaves room for no more
    command = [sys.executable, "-c", program, _large_values(tmp_path, version, num_files), order]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    grown, given = json.loads(done.stdout)
    assert given >= 4 * LARGE_MIB * MIB
    assert grown <= given + 128 * MIB


def _growing_texts() -> pa.Table:
    """Long values among short ones, in a column each of text, lists, structs and a dictionary."""
    numbers = range(FEW_ROWS)
    texts = [None if row % 11 == 5 else f"{row:4}" * (4000 if row % 47 == 30 else 100) for row in numbers]
    rows = {
        "text": pa.array(texts, pa.string()),
        "bytes": pa.array([None if one is None else one.encode() for one in texts], pa.large_binary()),
        "list": pa.array([[text, None][: row % 3] for row, text in enumerate(texts)], pa.list_(pa.string())),
        "struct": pa.array([{"a": row, "b": text} for row, text in enumerate(texts)]),
        "few": pa.array([texts[row % 5] for row in numbers]),
    }
    fields = [pa.field(name, array.type, metadata=ZSTD) for name, array in rows.items()]
    return pa.table(rows, schema=pa.schema(fields))


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("rows_per_file", [FEW_ROWS, 9])
def test_a_piece_that_becomes_too_much_is_read_in_smaller_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, rows_per_file: int
) -> None:
    """Whatever size was expected of them, rows are pylance's."""
    texts = _growing_texts()
    lance.write_dataset(texts, tmp_path / "t", max_rows_per_file=rows_per_file, data_storage_version=version)
    for whole_bytes, piece_bytes in ((8 * KIB, 8 * KIB), (KIB, 64 * KIB), (64 * KIB, MIB)):
        monkeypatch.setattr(take_pieces, "WHOLE_BYTES", whole_bytes)
        monkeypatch.setattr(take_pieces, "PIECE_BYTES", piece_bytes)
        ds = lance_io.dataset(tmp_path / "t")
        for name in texts.schema.names:
            for indices in (list(range(FEW_ROWS)), list(range(0, FEW_ROWS, 5))[::-1], [30, 30]):
                taken = ds.take(indices, columns=[name])
                assert taken.column(name).to_pylist() == texts.column(name).take(pa.array(indices)).to_pylist()


async def test_the_async_face_reads_smaller_pieces_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(take_pieces, "WHOLE_BYTES", 32 * KIB)
    texts = _growing_texts()
    for rows_per_file in (FEW_ROWS, 9):
        uri = tmp_path / str(rows_per_file)
        lance_io.write_dataset(texts, uri, max_rows_per_file=rows_per_file)
        async with AsyncDataset.open(uri) as ds:
            taken = await ds.take(list(range(FEW_ROWS)))
        assert taken.column("text").num_chunks > 1
        assert taken.to_pydict() == texts.to_pydict()


def test_rounds_of_a_take_that_turns_out_large(tmp_path: Path) -> None:
    """None more for values of some kB; one for each value, and one in vain, for those of which two are too much."""
    schema = pa.schema([pa.field("s", pa.large_string(), metadata=ZSTD)])

    def rounds(value_bytes: int) -> int:
        rows = (pa.record_batch([[f"{row:8}" * (value_bytes // 8)]], schema) for row in range(3))
        uri = tmp_path / str(value_bytes)
        lance_io.write_dataset(rows, uri, schema=schema, max_rows_per_file=1, data_storage_version="2.1")
        ds = lance_io.dataset(uri)
        ds.take([0, 1, 2])  # files are open, indexes there
        with io_stats() as stats:
            ds.take([0, 1, 2])
        return stats.rounds

    assert [rounds(4 * KIB), rounds(32 * MIB)] == [1, 4]


# -- sizes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", everything().schema.names)
def test_sizes_of_rows_are_those_of_the_rows_alone(name: str) -> None:
    array = everything().column(name).combine_chunks()
    for part in (array, array.slice(100, 50), array.slice(3, 0)):
        sizes = row_sizes([part], len(part))
        assert len(sizes) == len(part)
        if pa.types.is_dictionary(part.type) or pa.types.is_boolean(part.type):
            continue
        copied = part.take(pa.array(range(len(part)), pa.int64()))  # without the rows around
        assert abs(int(sizes.sum()) - copied.nbytes) <= len(part) + 16  # bits of nulls, one offset more


def test_ranges_have_the_size_or_one_row() -> None:
    sizes = np.array([3, 3, 3, 50, 1, 1, 0, 9])
    assert list(cut_by_size(sizes, 9)) == [(0, 3), (3, 4), (4, 7), (7, 8)]
    assert list(cut_by_size(sizes[:0], 9)) == []
