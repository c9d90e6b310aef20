"""Row id and version sequences: every segment kind, pylance's tables, hostile counts, and the index."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io.errors import FormatError
from lance_io.proto import rowids_pb2
from lance_io.table.manifest.deletion_file import decode_deletions
from lance_io.table.manifest.manifest import Manifest, decode_manifest
from lance_io.table.manifest.paths import deletion_file_location
from lance_io.table.manifest.row_ids import RowIdIndex, build_row_id_index, decode_row_ids, decode_row_versions

if TYPE_CHECKING:
    from pathlib import Path

U64_MAX = (1 << 64) - 1


def array(values: list[int], width: int) -> rowids_pb2.EncodedU64Array:
    if width == 8:
        content = np.array(values, dtype="<u8").tobytes()
        return rowids_pb2.EncodedU64Array(u64_array=rowids_pb2.EncodedU64Array.U64Array(values=content))
    base = min(values, default=0)
    content = np.array([value - base for value in values], dtype=f"<u{width}").tobytes()
    if width == 2:
        return rowids_pb2.EncodedU64Array(u16_array=rowids_pb2.EncodedU64Array.U16Array(base=base, offsets=content))
    return rowids_pb2.EncodedU64Array(u32_array=rowids_pb2.EncodedU64Array.U32Array(base=base, offsets=content))


def segment(kind: str, values: list[int], width: int) -> rowids_pb2.U64Segment:
    """The values in a segment of a kind that can hold them; the plain reference for decoding."""
    made = rowids_pb2.U64Segment()
    start, end = (min(values), max(values) + 1) if values else (0, 0)
    if kind == "array":
        made.array.CopyFrom(array(values, width))
    elif kind == "sorted_array":
        made.sorted_array.CopyFrom(array(sorted(values), width))
    elif kind == "range":
        made.range.start, made.range.end = start, start + len(values)
    elif kind == "range_with_holes":
        made.range_with_holes.start, made.range_with_holes.end = start, end
        holes = [value for value in range(start, end) if value not in values]
        made.range_with_holes.holes.CopyFrom(array(holes, width))
    else:
        bits = bytearray((end - start + 7) // 8)
        for value in values:
            bits[(value - start) // 8] |= 1 << (value - start) % 8
        bitmap = made.range_with_bitmap
        bitmap.start, bitmap.end, bitmap.bitmap = start, end, bytes(bits)
    return made


def expected(kind: str, values: list[int]) -> list[int]:
    if kind == "range":
        return list(range(min(values, default=0), min(values, default=0) + len(values)))
    return values if kind == "array" else sorted(values)


KINDS = ["array", "sorted_array", "range", "range_with_holes", "range_with_bitmap"]
SEGMENTS = st.tuples(
    st.sampled_from(KINDS),
    st.integers(0, U64_MAX - 3000),
    st.lists(st.integers(0, 2000), unique=True, max_size=40),
    st.sampled_from([2, 4, 8]),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(SEGMENTS, max_size=6))
def test_any_sequence_of_segments(parts):
    sequence, wanted = rowids_pb2.RowIdSequence(), []
    for kind, base, offsets, width in parts:
        values = [base + offset for offset in offsets]
        sequence.segments.append(segment(kind, values, width))
        wanted += expected(kind, values)
    decoded = decode_row_ids(sequence.SerializeToString(), len(wanted))
    assert decoded.tolist() == wanted
    assert decoded.dtype == np.uint64


def newest(root: Path) -> Manifest:
    found = (decode_manifest(path.read_bytes()) for path in (root / "_versions").glob("*.manifest"))
    return max(found, key=lambda each: each.version)


def sequences(root: Path) -> tuple[list[int], list[int], list[int], RowIdIndex]:
    """Row ids and the two versions of every row that is left, in order, and the index."""
    manifest = newest(root)
    ids, created, updated, parts = [], [], [], []
    for fragment in manifest.fragments:
        rows = fragment.physical_rows or 0
        deleted = None
        if fragment.deletion_file is not None:
            place = deletion_file_location(fragment.id, fragment.deletion_file, manifest.base_paths)
            deleted = decode_deletions((root / place.relative).read_bytes(), fragment.deletion_file, rows)
        gone = [] if deleted is None else deleted
        assert fragment.row_ids is not None
        sequence = decode_row_ids(fragment.row_ids, rows)
        parts.append((fragment.id, sequence, deleted))
        ids += np.delete(sequence, gone).tolist()
        created += np.delete(decode_row_versions(fragment.created_at_versions, rows), gone).tolist()
        updated += np.delete(decode_row_versions(fragment.last_updated_at_versions, rows), gone).tolist()
    return ids, created, updated, build_row_id_index(parts)


def history(dataset: lance.LanceDataset):
    """A life in steps; yields after each."""
    yield
    dataset.insert(pa.table({"a": range(200, 210), "b": [0] * 10}))
    yield
    dataset.delete("a % 50 = 7")
    yield
    dataset.update({"b": "a + 1"}, where="a % 40 = 2")
    yield
    source = pa.table({"a": [5, 1000, 1001], "b": [1, 2, 3]})
    dataset.merge_insert("a").when_matched_update_all().when_not_matched_insert_all().execute(source)
    yield
    dataset.delete("a % 3 = 1")
    dataset.optimize.compact_files(materialize_deletions_threshold=0.0)
    yield
    dataset.insert(pa.table({"a": range(2000, 2400), "b": [0] * 400}))
    dataset.delete("a > 2000 and a % 97 <> 1")
    dataset.optimize.compact_files(materialize_deletions_threshold=0.0)
    yield


def test_ids_versions_and_addresses_through_a_tables_life(tmp_path):
    root = tmp_path / "t"
    data = pa.table({"a": range(200), "b": [0] * 200})
    dataset = lance.write_dataset(data, str(root), enable_stable_row_ids=True, max_rows_per_file=90)
    columns = ["_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version"]
    kinds = set()
    for _ in history(dataset):
        theirs = dataset.to_table(columns=columns).to_pydict()
        ids, created, updated, index = sequences(root)
        assert ids == theirs["_rowid"]
        assert created == theirs["_row_created_at_version"]
        assert updated == theirs["_row_last_updated_at_version"]
        wanted = np.array([*reversed(ids), 10**9], dtype=np.uint64)
        addresses, found = index.lookup(wanted)
        assert addresses.tolist() == [*reversed(theirs["_rowaddr"]), 0]
        assert found.tolist() == [True] * len(ids) + [False]
        for fragment in newest(root).fragments:
            message = rowids_pb2.RowIdSequence.FromString(fragment.row_ids or b"")
            kinds |= {each.WhichOneof("segment") for each in message.segments}
    assert {"range", "range_with_bitmap", "sorted_array"} <= kinds


def test_without_a_sequence_every_row_is_of_version_one():
    assert decode_row_versions(None, 3).tolist() == [1, 1, 1]


def single(made: rowids_pb2.U64Segment) -> bytes:
    return rowids_pb2.RowIdSequence(segments=[made]).SerializeToString()


def raw_range(start: int, end: int) -> bytes:
    made = rowids_pb2.U64Segment()
    made.range.start, made.range.end = start, end
    return single(made)


def holes(start: int, end: int, missing: list[int]) -> bytes:
    made = rowids_pb2.U64Segment()
    made.range_with_holes.start, made.range_with_holes.end = start, end
    made.range_with_holes.holes.CopyFrom(array(missing, 8))
    return single(made)


def bitmap(start: int, end: int, content: bytes) -> bytes:
    made = rowids_pb2.U64Segment()
    made.range_with_bitmap.start, made.range_with_bitmap.end = start, end
    made.range_with_bitmap.bitmap = content
    return single(made)


def overflowing() -> bytes:
    made = rowids_pb2.U64Segment()
    made.array.u16_array.base = U64_MAX
    made.array.u16_array.offsets = b"\1\0" * 4
    return single(made)


@pytest.mark.parametrize("width", [2, 4])
def test_ids_have_64_bits(width):
    """The last one of them is there; what passes it is not taken for the first."""
    for base, is_refused in ((U64_MAX - 4, False), (U64_MAX - 3, True)):
        made = rowids_pb2.U64Segment()
        part = made.array.u16_array if width == 2 else made.array.u32_array
        part.base, part.offsets = base, b"".join(number.to_bytes(width, "little") for number in (1, 2, 3, 4))
        if is_refused:
            with pytest.raises(FormatError, match="pass 64 bits"):
                decode_row_ids(single(made), 4)
        else:
            assert decode_row_ids(single(made), 4).tolist() == [base + number for number in (1, 2, 3, 4)]


def odd() -> bytes:
    made = rowids_pb2.U64Segment()
    made.array.u32_array.offsets = b"\1\0\0"
    return single(made)


def unsorted() -> bytes:
    made = rowids_pb2.U64Segment()
    made.sorted_array.CopyFrom(array([4, 3, 2, 1], 8))
    return single(made)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (raw_range(0, U64_MAX), "more than the 4 ids"),
        (raw_range(0, 3), "3 ids for 4 rows"),
        (raw_range(5, 1), "range from 5 to 1"),
        (holes(0, U64_MAX, [1]), "more than the 4 ids"),
        (holes(0, 5, [7]), "holes are not ascending"),
        (holes(0, 6, [2, 2]), "holes are not ascending"),
        (holes(0, 1, [0, 1]), "2 holes in a range of 1"),
        (bitmap(0, 9, b"\x0f"), "bitmap of 1 bytes"),
        (bitmap(0, 5, b"\xe1"), "behind the end"),
        (overflowing(), "pass 64 bits"),
        (odd(), "multiple of 4"),
        (unsorted(), "not sorted"),
        (single(rowids_pb2.U64Segment()), "no known kind"),
        (b"\xff", "protobuf"),
    ],
)
def test_sequences_that_cannot_be_are_refused(data, words):
    with pytest.raises(FormatError, match=words):
        decode_row_ids(data, 4)


def test_versions_must_cover_the_rows():
    run = rowids_pb2.RowDatasetVersionRun(version=3)
    run.span.range.end = 1 << 60
    with pytest.raises(FormatError, match="versions for 4 rows"):
        decode_row_versions(rowids_pb2.RowDatasetVersionSequence(runs=[run]).SerializeToString(), 4)


def test_an_id_may_belong_to_one_row_only():
    ids = np.array([3, 1, 3], dtype=np.uint64)
    with pytest.raises(FormatError, match="row id 3 belongs"):
        build_row_id_index([(0, ids, None)])
    index = build_row_id_index([(7, ids, np.array([2]))])
    assert index.lookup(np.array([1, 2, 3], dtype=np.uint64))[0].tolist() == [(7 << 32) + 1, 0, 7 << 32]
    assert index.nbytes == 32
    assert build_row_id_index([]).lookup(ids)[1].tolist() == [False] * 3


def test_very_many_short_ranges_decode_quickly():
    starts = random.Random(5).sample(range(10**6), 20_000)
    parts = [segment("range", [start, start + 1], 8) for start in starts]
    decoded = decode_row_ids(rowids_pb2.RowIdSequence(segments=parts).SerializeToString(), 40_000)
    assert decoded.tolist() == [value for start in starts for value in (start, start + 1)]


def test_damage_gives_ids_or_the_named_error():
    parts = [segment(kind, list(range(100, 160, 2)), 2) for kind in KINDS]
    data = rowids_pb2.RowIdSequence(segments=parts).SerializeToString()
    flips = random.Random(6)
    for _ in range(3000):
        damaged = bytearray(data)
        damaged[flips.randrange(len(data))] ^= 1 << flips.randrange(8)
        try:
            assert len(decode_row_ids(bytes(damaged), 150)) == 150
        except FormatError:
            continue
