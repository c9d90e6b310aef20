"""Deletion files of both kinds, against pylance, pyroaring and pyarrow, and with damage."""

from __future__ import annotations

import io
import random
import struct
import tracemalloc
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from lance_io.codecs.roaring import decode_roaring, encode_roaring
from lance_io.errors import FormatError
from lance_io.table.manifest.arrow_ipc import read_u32_column
from lance_io.table.manifest.deletion_file import decode_deletions, deletion_kind, encode_deletions
from lance_io.table.manifest.fragment import DeletionFile
from lance_io.table.manifest.manifest import decode_manifest
from lance_io.table.manifest.paths import deletion_file_location

ROW_ID = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])


def ipc_file(values: list[int] | pa.Array, schema: pa.Schema = ROW_ID, batches: int = 1, **options: object) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for _ in range(batches):
            writer.write_batch(pa.record_batch([pa.array(values, schema.field(0).type)], schema=schema))
    return sink.getvalue()


def deletion(kind: str, count: int | None = None) -> DeletionFile:
    return DeletionFile(kind, 1, 2, count, None)


@pytest.mark.parametrize(("count", "kind"), [(1, "arrow"), (5, "arrow"), (4999, "arrow"), (5000, "bitmap")])
def test_files_of_pylance(tmp_path, count, kind):
    root = tmp_path / "t"
    dataset = lance.write_dataset(pa.table({"a": range(20_000)}), str(root))
    dataset.delete(f"a * 7 % 20000 < {count}")
    manifest = max(
        (decode_manifest(path.read_bytes()) for path in (root / "_versions").glob("*.manifest")),
        key=lambda each: each.version,
    )
    [fragment] = manifest.fragments
    file = fragment.deletion_file
    assert file is not None
    place = deletion_file_location(fragment.id, file, manifest.base_paths)
    assert (file.kind, file.num_deleted_rows, place.base) == (kind, count, None)
    offsets = decode_deletions((root / place.relative).read_bytes(), file, fragment.physical_rows)
    kept = dataset.to_table(with_row_address=True).column("_rowaddr").to_numpy()
    assert np.array_equal(offsets, np.setdiff1d(np.arange(20_000), kept))
    assert offsets.dtype == np.uint32


@settings(max_examples=60, deadline=None)
@given(
    values=st.sets(st.integers(0, 300_000), max_size=50),
    runs=st.lists(st.tuples(st.integers(0, 300_000), st.integers(1, 70_000)), max_size=3),
    optimise=st.booleans(),
)
def test_roaring_agrees_with_the_library(values, runs, optimise):
    bitmap = BitMap(values)
    for start, length in runs:
        bitmap.add_range(start, start + length)
    if optimise:
        bitmap.run_optimize()
    assert np.array_equal(decode_roaring(bitmap.serialize()), np.array(bitmap.to_array(), dtype=np.uint32))


@pytest.mark.parametrize("counts", [[4095], [4096], [4097], [4097, 4096, 4095], [1, 40_000, 4096]])
def test_containers_change_their_form_where_those_of_the_library_do(counts):
    """Each count of values with one high half, without runs."""
    dice = np.random.default_rng(7)
    parts = [np.sort(dice.choice(1 << 16, count, replace=False)) + (at << 16) for at, count in enumerate(counts)]
    values = np.concatenate(parts).astype(np.uint32)
    theirs = BitMap(values.tolist()).serialize()
    assert np.array_equal(decode_roaring(theirs), values)
    assert encode_roaring(values) == theirs


def test_roaring_bounds_what_it_allocates():
    full = BitMap(range(0, 1 << 22))
    full.run_optimize()
    data = full.serialize()
    tracemalloc.start()
    with pytest.raises(FormatError, match="at most 1000"):
        decode_roaring(data, num_values_max=1000)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("count", [0, 1, 7, 5000])
def test_arrow_files_in_any_compression(compression, count):
    values = random.Random(3).sample(range(10_000), count)
    data = ipc_file(values, compression=compression)
    assert decode_deletions(data, deletion("arrow", count or None), 10_000).tolist() == sorted(values)


OTHER = [
    (pa.schema([pa.field("row_id", pa.int32(), nullable=False)]), 1),
    (pa.schema([pa.field("row_id", pa.uint32())]), 1),
    (pa.schema([pa.field("rowid", pa.uint32(), nullable=False)]), 1),
    (ROW_ID, 2),
    (ROW_ID, 0),
]


@pytest.mark.parametrize(("schema", "batches"), OTHER)
def test_arrow_files_of_another_shape_are_refused(schema, batches):
    with pytest.raises(FormatError, match="expected one batch of one column"):
        read_u32_column(ipc_file([1, 2], schema, batches), "row_id", num_rows_max=10)


def test_arrow_streams_are_refused():
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, ROW_ID) as writer:
        writer.write_batch(pa.record_batch([pa.array([1], pa.uint32())], schema=ROW_ID))
    with pytest.raises(FormatError, match="Arrow IPC file"):
        read_u32_column(sink.getvalue(), "row_id", num_rows_max=10)


def test_an_announced_size_is_checked_before_memory_is_taken():
    data = ipc_file([7] * 4000, compression="zstd")
    prefix = struct.pack("<q", 16_000)
    at = data.index(prefix)
    for size in (1 << 50, 15_999, -2, 0):
        damaged = data[:at] + struct.pack("<q", size) + data[at + 8 :]
        with pytest.raises(FormatError, match="decompressed, expected 16000"):
            read_u32_column(damaged, "row_id", num_rows_max=4000)
    with pytest.raises(FormatError, match="at most 3999"):
        read_u32_column(data, "row_id", num_rows_max=3999)


@pytest.mark.parametrize(
    ("kind", "data", "rows", "count", "words"),
    [
        ("arrow", ipc_file([1, 9]), 9, 2, "row 9 is deleted in a fragment of 9 rows"),
        ("bitmap", BitMap([1, 9]).serialize(), 9, 2, "row 9 is deleted in a fragment of 9 rows"),
        ("arrow", ipc_file([1, 1]), 9, 2, "1 deleted rows, but the manifest says 2"),
        ("bitmap", BitMap([1]).serialize(), 9, 2, "1 deleted rows, but the manifest says 2"),
        ("bitmap", b"", 9, None, "cut off"),
        ("bitmap", b"\0\0\0\0", 9, None, "cookie"),
    ],
)
def test_contradictions_are_refused(kind, data, rows, count, words):
    with pytest.raises(FormatError, match=words):
        decode_deletions(data, deletion(kind, count), rows)


def runs_and_arrays() -> bytes:
    bitmap = BitMap([1, 5, *range(70_000, 80_000), *range(140_000, 170_000, 2)])
    bitmap.run_optimize()
    return bitmap.serialize()


@pytest.mark.parametrize("kind", ["arrow", "bitmap"])
def test_damage_gives_rows_or_the_named_error(kind):
    files = [runs_and_arrays(), BitMap(range(0, 900, 3)).serialize()]
    if kind == "arrow":
        files = [ipc_file(list(range(0, 600, 3)), compression=each) for each in (None, "lz4", "zstd")]
    flips = random.Random(4)
    for data in files:
        for length in range(0, len(data), max(1, len(data) // 150)):
            with pytest.raises(FormatError):
                decode_deletions(data[:length], deletion(kind), 170_000)
        for _ in range(1200):
            damaged = bytearray(data)
            damaged[flips.randrange(len(data))] ^= 1 << flips.randrange(8)
            try:
                offsets = decode_deletions(bytes(damaged), deletion(kind), 170_000)
            except FormatError:
                continue
            assert (np.diff(offsets.astype(np.int64)) > 0).all()
            assert len(offsets) == 0 or offsets[-1] < 170_000


def test_the_peers_files_all_decode():
    root = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "peer-datasets" / "generated"
    files = [path for path in root.glob("*/data.lance/_deletions/*") if path.suffix in (".arrow", ".bin")]
    assert len(files) > 5
    for path in files:
        kind = "arrow" if path.suffix == ".arrow" else "bitmap"
        assert len(decode_deletions(path.read_bytes(), deletion(kind), None)) > 0


@given(st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 200_000), max_size=300), st.booleans())
def test_bitmaps_are_those_of_another_library(values: list[int], dense: bool) -> None:
    if dense:
        values = [*values, *range(65_000, 75_000)]
    ours = encode_roaring(np.unique(np.array(values, dtype=np.uint32)))
    assert list(BitMap.deserialize(ours)) == sorted(set(values))


@pytest.mark.parametrize("count", [1, 5, 5000, 5001, 9000])
def test_pylance_reads_our_deletion_files(tmp_path: Path, count: int) -> None:
    """One fragment of 10,000 rows whose deletion file is replaced by ours with the same name and rows."""
    offsets = np.sort(np.random.default_rng(count).choice(10_000, count, replace=False)).astype(np.uint32)
    table = lance.write_dataset(pa.table({"a": pa.array(range(10_000), pa.int64())}), tmp_path / "t")
    table.delete(f"a in ({', '.join(map(str, offsets))})")
    (path,) = (tmp_path / "t" / "_deletions").iterdir()
    kind = "arrow" if path.suffix == ".arrow" else "bitmap"
    path.write_bytes(encode_deletions(offsets, kind))
    left = lance.dataset(tmp_path / "t").to_table()["a"].to_numpy()
    assert left.tolist() == np.setdiff1d(np.arange(10_000), offsets).tolist()
    for other in ("arrow", "bitmap"):
        read = decode_deletions(encode_deletions(offsets, other), deletion(other, count), 10_000)
        assert read.tolist() == offsets.tolist()


def test_few_deleted_rows_are_arrow_and_many_a_bitmap() -> None:
    assert [deletion_kind(count) for count in (1, 5000, 5001)] == ["arrow", "arrow", "bitmap"]
