"""Keys of rows: tables against dictionaries of Python, hashes against equality, Bloom filters against pylance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_io._kernels import KeyTable, SliceFilter, add_to_bloom, hash_fixed, hash_variable
from lance_io.proto import transaction_pb2

if TYPE_CHECKING:
    from pathlib import Path

SEED = (0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210)
WORDS = ["", "a", "b", "aa", "a\0", "x" * 7, "x" * 8, "x" * 9, "x" * 300, "é"]


def words(found: Any) -> list[int]:
    return np.frombuffer(found, np.int64).tolist()


@pytest.mark.parametrize("width", [8, 16])
@pytest.mark.parametrize("num_keys", [0, 1, 7, 1000])
def test_rows_are_found_as_in_a_dictionary(width: int, num_keys: int) -> None:
    random = np.random.default_rng(width + num_keys)
    shape = (5000, width // 8)
    pool = random.integers(0, 1 << 64, (max(1, num_keys), width // 8), dtype=np.uint64)
    keys = pool[random.integers(0, max(1, num_keys // 2), 400 if num_keys else 0)]
    asked = np.concatenate([pool, random.integers(0, 1 << 64, shape, dtype=np.uint64)])
    expected: dict[bytes, list[int]] = {}
    for row, key in enumerate(keys):
        expected.setdefault(key.tobytes(), []).append(row)
    table = KeyTable(SEED, keys.tobytes(), width)
    assert table.has_repeats == any(len(rows) > 1 for rows in expected.values())
    there, firsts = table.find(asked.tobytes(), 2)
    known = [place for place, key in enumerate(asked) if key.tobytes() in expected]
    assert words(there) == known
    assert words(firsts) == [expected[asked[place].tobytes()][0] for place in known]
    assert words(table.groups()) == [expected[key.tobytes()][0] for key in keys]
    places, rows = table.rows_of(firsts)
    pairs = [(number, row) for number, place in enumerate(known) for row in expected[asked[place].tobytes()]]
    assert list(zip(words(places), words(rows), strict=True)) == pairs


def test_hashes_differ_as_their_values_do() -> None:
    texts = pa.array(WORDS * 2)
    _, offsets, data = texts.buffers()
    first = np.frombuffer(hash_variable(SEED, None, offsets, data, False, len(texts)), np.uint64).reshape(-1, 2)
    assert len({row.tobytes() for row in first}) == len(WORDS)
    assert (first[: len(WORDS)] == first[len(WORDS) :]).all()
    wide = texts.cast(pa.large_string())
    again = hash_variable(SEED, None, wide.buffers()[1], wide.buffers()[2], True, len(texts))
    assert bytes(again) == first.tobytes()
    other = hash_variable((1, 2), None, offsets, data, False, len(texts))
    assert bytes(other) != first.tobytes()
    chained = hash_variable(SEED, first.tobytes(), offsets, data, False, len(texts))
    assert len({row.tobytes() for row in np.frombuffer(chained, np.uint64).reshape(-1, 2)}) == len(WORDS)
    assert bytes(chained) != first.tobytes()


def test_hashes_of_fixed_values_are_those_of_their_bytes() -> None:
    values = np.arange(1000, dtype=np.uint32)
    offsets = np.arange(0, 4001, 4, dtype=np.int32)
    assert bytes(hash_fixed(SEED, None, values, 4, 1000)) == bytes(
        hash_variable(SEED, None, offsets, values.tobytes(), False, 1000)
    )


def test_a_filter_passes_all_that_are_among_its_slices_and_few_others() -> None:
    def given(texts: list[str], wide: bool) -> tuple[Any, Any, bool, int]:
        array = pa.array(texts, pa.large_string() if wide else pa.string())
        return array.buffers()[1], array.buffers()[2] or b"", wide, len(array)

    known = [*WORDS, *(f"known {number}" for number in range(1000))]
    others = [f"other {number}" for number in range(100_000)]
    for wide in (False, True):
        there = SliceFilter(SEED, *given(known, wide))
        assert words(there.passing(*given(known, not wide), 2)) == list(range(len(known)))
        assert len(words(there.passing(*given(others, wide), 2))) < 15_000
        assert words(SliceFilter(SEED, *given([], wide)).passing(*given(others, wide), 1)) == []


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="no keys"):
        KeyTable(SEED, b"123456789", 8)
    with pytest.raises(ValueError, match="8 or 16"):
        KeyTable(SEED, b"1234", 4)
    with pytest.raises(ValueError, match="not within"):
        hash_fixed(SEED, None, b"123", 4, 1)
    with pytest.raises(ValueError, match="do not fit"):
        hash_fixed(SEED, b"123", b"1234", 4, 1)
    with pytest.raises(ValueError, match="ascend"):
        hash_variable(SEED, None, np.array([0, 5], np.int32), b"123", False, 1)
    with pytest.raises(ValueError, match="not among"):
        KeyTable(SEED, b"12345678", 8).rows_of(np.array([3]))
    with pytest.raises(ValueError, match="no blocks"):
        add_to_bloom(bytearray(31), np.array([0, 0], np.int32), b"", False, 1)


@pytest.mark.parametrize("length", [0, 1, 3, 4, 7, 8, 9, 31, 32, 33, 63, 64, 100])
def test_bloom_filters_are_those_that_pylance_writes(tmp_path: Path, length: int) -> None:
    key = pa.field("k", pa.string(), False, {"lance-schema:unenforced-primary-key": "true"})
    text = "".join(chr(97 + place % 26) for place in range(length))
    rows = pa.table({"k": [text, text + "!"]}, schema=pa.schema([key]))
    table = lance.write_dataset(rows.slice(0, 0), str(tmp_path / "t"))
    table.merge_insert().when_matched_update_all().when_not_matched_insert_all().execute(rows)
    (file,) = (tmp_path / "t" / "_transactions").glob("1-*.txn")
    expected = transaction_pb2.Transaction.FromString(file.read_bytes()).update.inserted_rows.bloom
    bitmap = bytearray(len(expected.bitmap))
    _, offsets, data = rows["k"].combine_chunks().buffers()
    add_to_bloom(bitmap, offsets, data, False, 2)
    assert bytes(bitmap) == expected.bitmap
