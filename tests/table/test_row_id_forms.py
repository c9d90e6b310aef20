"""Row ids take few bytes: no more than in the best segments of all, and than in pylance's, which reads them."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import lance_io
from lance_io.fragment import RowIdMeta
from lance_io.proto import rowids_pb2
from lance_io.table.manifest.row_ids import decode_row_ids, encode_row_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PIECES = st.one_of(
    st.tuples(st.just("stretch"), st.integers(1, 400)),
    st.tuples(st.just("every other"), st.integers(1, 200)),
    st.tuples(st.just("holes"), st.integers(10, 400)),
    st.tuples(st.just("sparse"), st.integers(1, 30)),
    st.tuples(st.just("shuffled"), st.integers(1, 60)),
)


def ids_of(pieces: Sequence[tuple[str, int]], starts: Sequence[int]) -> list[int]:
    ids: dict[int, None] = {}
    for (kind, size), start in zip(pieces, starts, strict=False):
        values = np.arange(start, start + size)
        match kind:
            case "every other":
                values = start + 2 * np.arange(size)
            case "holes":
                values = np.delete(values, slice(3, None, 17))
            case "sparse":
                values = start + 1_000 * np.arange(size)
            case "shuffled":
                values = np.random.default_rng(size).permutation(values)
            case _:
                pass
        ids |= dict.fromkeys(values.tolist())
    return list(ids)


SEQUENCES = st.builds(
    ids_of,
    st.lists(PIECES, min_size=1, max_size=8),
    st.lists(st.one_of(st.integers(0, 3_000), st.integers(0, 1 << 40)), min_size=8, max_size=8),
)


@given(SEQUENCES)
def test_any_sequence_is_what_it_was_here_and_in_pylance(ids: list[int]) -> None:
    data = encode_row_ids(np.array(ids, np.uint64))
    assert decode_row_ids(data, len(ids)).tolist() == ids
    there = lance.fragment.RowIdMeta.from_json(RowIdMeta(data).json())
    assert list(lance.fragment.RowIdSequence.from_inline_metadata(there)) == ids


@pytest.mark.parametrize("ids", [[], [0], [(1 << 64) - 1], [(1 << 64) - 1, 3], [(1 << 64) - 2], [5, 5, 6], [7, 6, 5]])
def test_the_least_and_the_greatest_ids(ids: list[int]) -> None:
    assert decode_row_ids(encode_row_ids(np.array(ids, np.uint64)), len(ids)).tolist() == ids


def array_bytes(ids: Sequence[int], numbers: Sequence[int]) -> rowids_pb2.EncodedU64Array:
    array = rowids_pb2.EncodedU64Array()
    base, span = min(numbers), max(numbers) - min(numbers)
    if span < 1 << 16:
        array.u16_array.base, array.u16_array.offsets = base, b"x" * (2 * len(numbers))
    elif span < 1 << 32:
        array.u32_array.base, array.u32_array.offsets = base, b"x" * (4 * len(numbers))
    else:
        array.u64_array.values = b"x" * (8 * len(ids))
    return array


def segments_of(ids: list[int]) -> Iterator[rowids_pb2.U64Segment]:
    """Every form in which one segment can say some ids; contents do not matter for its size."""
    one = rowids_pb2.U64Segment
    yield one(array=array_bytes(ids, ids))
    if any(last <= first for first, last in pairwise(ids)):
        return
    start, end = ids[0], ids[-1] + 1
    missing = sorted(set(range(start, end)) - set(ids)) if end - start < 10_000 else None
    if missing == []:
        yield one(range=one.Range(start=start, end=end))
    elif missing is not None:
        yield one(range_with_holes=one.RangeWithHoles(start=start, end=end, holes=array_bytes(missing, missing)))
        bitmap = b"x" * ((end - start + 7) // 8)
        yield one(range_with_bitmap=one.RangeWithBitmap(start=start, end=end, bitmap=bitmap))


def size_of(ids: list[int]) -> int:
    """Bytes of the smallest segment of some ids, with the tag and the length before it."""
    num_bytes = min(segment.ByteSize() for segment in segments_of(ids))
    return rowids_pb2.RowIdSequence(segments=[rowids_pb2.U64Segment()]).ByteSize() + num_bytes + (num_bytes > 127)


def smallest(ids: list[int], joints: Sequence[int]) -> int:
    """Bytes of the best of all ways to cut a sequence at some of these places."""
    best = 1 << 60
    for count in range(len(joints) + 1):
        for places in combinations(joints, count):
            bounds = [0, *places, len(ids)]
            best = min(best, sum(size_of(ids[a:b]) for a, b in pairwise(bounds)))
    return best


@given(st.lists(st.tuples(PIECES, st.integers(0, 3_000)), min_size=1, max_size=4))
@example([(("stretch", 3), 0), (("sparse", 7), 0), (("sparse", 7), 0)])
def test_the_segments_are_nearly_the_best_of_all(given_pieces: list[tuple[tuple[str, int], int]]) -> None:
    parts = [ids_of([piece], [start + 100_000 * at]) for at, (piece, start) in enumerate(given_pieces)]
    parts = [parts[at] for at in np.random.default_rng(len(parts)).permutation(len(parts))]
    ids = [one for part in parts for one in part]
    joints = np.cumsum([len(part) for part in parts])[:-1].tolist()
    assert len(encode_row_ids(np.array(ids, np.uint64))) <= 1.05 * smallest(ids, joints) + 4 * len(parts)


KINDS: dict[str, Any] = {
    "one in two, then all": [*range(0, 20_000, 2), *range(20_000, 40_000)],
    "sources of a compaction": [*range(5, 30_000, 3), *range(0, 30_000, 3), *range(1, 30_000, 3)],
    "one in a hundred is missing": np.delete(np.arange(200_000), np.arange(0, 200_000, 100)),
    "one in a thousand": range(0, 2_000_000, 1_000),
    "any order": np.random.default_rng(1).permutation(20_000),
    "fours in any order": (4 * np.random.default_rng(1).permutation(5_000)[:, None] + np.arange(4)).ravel(),
    "fragments in any order each": np.concatenate(
        [300_000 * k + np.random.default_rng(k).permutation(900) for k in (3, 1, 2)]
    ),
    "few from each of three places": [*range(200_000, 207_000, 1_000), *range(100_000, 107_000, 1_000), 0, 1, 2],
    "long stretches": [first + at for first in range(0, 400_000, 400) for at in range(399)],
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_kind_is_larger_than_as_one_segment(kind: str) -> None:
    ids = np.array(list(KINDS[kind]), np.uint64)
    ours = encode_row_ids(ids)
    theirs = RowIdMeta.from_json(lance.fragment.RowIdSequence(pa.array(ids)).to_inline_metadata().json()).data
    assert theirs is not None and len(ours) <= len(theirs)
    assert decode_row_ids(ours, len(ids)).tolist() == ids.tolist()


# -- tables -----------------------------------------------------------------------------------------------------------


def row_id_bytes(uri: Path) -> int:
    return sum(len(fragment.row_ids or b"") for fragment in lance_io.dataset(uri)._state.manifest.fragments)


def manifest_bytes(uri: Path) -> int:
    newest = f"{(1 << 64) - 1 - lance.dataset(uri).version:020}.manifest"
    return (uri / "_versions" / newest).stat().st_size


def test_compaction_keeps_the_form_of_row_ids(tmp_path: Path) -> None:
    num_rows = 40_000
    sizes = {}
    for library in (lance, lance_io):
        uri = tmp_path / library.__name__
        table = pa.table({"a": range(num_rows), "b": [0] * num_rows})
        dataset = library.write_dataset(table, uri, enable_stable_row_ids=True, max_rows_per_file=10_000)
        dataset.update({"b": "1"}, where="a % 2 = 0")
        dataset.delete("a % 3 = 0")
        dataset.optimize.compact_files()
        sizes[library] = row_id_bytes(uri), manifest_bytes(uri)
        found = lance.dataset(uri).scanner(columns=["a"], with_row_id=True).to_table()
        assert found["a"].to_pylist() == found["_rowid"].to_pylist()
        assert sorted(found["a"].to_pylist()) == [one for one in range(num_rows) if one % 3]
    assert all(ours <= 1.05 * theirs for ours, theirs in zip(sizes[lance_io], sizes[lance], strict=True)), sizes


def operate(library: Any, uri: str, seed: int, num_steps: int) -> Iterator[None]:
    """Changes that are drawn, the same for both libraries."""
    rng = np.random.default_rng(seed)
    end, library_table = 3_000, pa.table({"a": range(3_000), "b": [0] * 3_000})
    library.write_dataset(library_table, uri, enable_stable_row_ids=seed % 2 == 0)
    for step in range(num_steps):
        kind, modulus, count = int(rng.integers(0, 7)), int(rng.integers(2, 9)), int(rng.integers(1, 800))
        rest = int(rng.integers(0, modulus))
        dataset = library.dataset(uri)
        match kind:
            case 0:
                rows = pa.table({"a": range(end, end + count), "b": [step] * count})
                library.write_dataset(rows, uri, mode="append")
                end += count
            case 1:
                dataset.update({"b": str(step)}, where=f"a % {modulus} = {rest}")
            case 2:
                dataset.delete(f"a % {7 * modulus} = {rest}")
            case 3:
                keys = rng.permutation(end + 20)[:count]
                rows = pa.table({"a": keys, "b": np.full(count, step)})
                merge = dataset.merge_insert("a").when_matched_update_all().when_not_matched_insert_all()
                merge.execute(rows.to_reader())
                end += 20
            case 4:
                dataset.optimize.compact_files(target_rows_per_fragment=2_000)
            case 5:
                dataset.update_config({f"k{modulus}": str(rest)})
            case _:
                dataset.update({"b": str(step)}, where=f"a between {count} and {2 * count}")
        yield


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_manifests_after_many_changes_are_as_small_as_those_of_pylance(tmp_path: Path, seed: int) -> None:
    uris = [tmp_path / library.__name__ for library in (lance, lance_io)]
    steps = [operate(library, str(uri), seed, 50) for library, uri in zip((lance, lance_io), uris, strict=True)]
    for number, _ in enumerate(zip(*steps, strict=True)):
        theirs, ours = (manifest_bytes(uri) for uri in uris)
        assert ours <= 1.05 * theirs, f"{ours} bytes and {theirs} after {number} changes"
    tables = [lance.dataset(uri).scanner(with_row_id=seed % 2 == 0).to_table().sort_by("a") for uri in uris]
    assert tables[0].select(["a", "b"]) == tables[1].select(["a", "b"])
