"""Statistics, dictionaries, FSST and packed rows, against plain Python."""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io import _kernels
from lance_io.codecs import tree
from tests.kernels.pages import longs, strings, uints
from tests.kernels.test_encode_miniblock import decoded

MINE = settings(max_examples=40, deadline=None)


@MINE
@given(st.lists(st.integers(0, 255), min_size=1, max_size=3000), st.sampled_from([8, 16, 32, 64]))
def test_measures_groups_and_changes(values: list[int], bits: int) -> None:
    raw = np.array(values, dtype=f"<u{bits // 8}")
    runs, packed, constant = _kernels.measure_words(raw, bits, len(values))
    groups = [values[at : at + 1024] for at in range(0, len(values), 1024)]
    assert packed == sum(bits // 8 + 128 * max(group).bit_length() for group in groups)
    assert constant == (len(set(values)) == 1)
    assert runs == sum(-(-len(list(run)) // 255) for _, run in itertools.groupby(values))


def test_runs_end_with_4096_values() -> None:
    assert _kernels.measure_words(bytes(8 * 10_000), 64, 10_000)[0] == 17 + 17 + -(-(10_000 - 8192) // 255)


def first_seen(values: list) -> tuple[list[int], list]:
    items = list(dict.fromkeys(values))
    return [items.index(value) for value in values], items


@MINE
@given(st.lists(st.binary(max_size=20), min_size=1, max_size=300), st.sampled_from([32, 64]))
def test_distinct_strings(values: list[bytes], bits: int) -> None:
    values = [*values, *values[::2]]
    offsets = np.cumsum([0, *map(len, values)]).astype(f"<i{bits // 8}")
    found = _kernels.distinct_variable(offsets, b"".join(values), bits == 64, len(values), 10_000, 1 << 30)
    indices, items = first_seen(values)
    assert found is not None
    assert longs(found[0], "<i4") == indices
    assert strings(found[1], found[2], bits) == items


@pytest.mark.parametrize("bits", [64, 128])
def test_distinct_words(bits: int) -> None:
    dice = np.random.default_rng(bits)
    values = [bytes(v) for v in dice.integers(0, 256, (700, bits // 8), dtype=np.uint8)]
    values = [values[i] for i in dice.integers(0, 700, 6000)]
    found = _kernels.distinct_fixed(b"".join(values), bits, 6000, 1000, 1 << 20)
    indices, items = first_seen(values)
    assert found is not None and longs(found[0], "<i4") == indices and bytes(found[1]) == b"".join(items)


def test_dictionaries_keep_within_their_budget() -> None:
    raw = np.arange(900, dtype="<u8")
    assert _kernels.distinct_fixed(raw, 64, 900, 899, 1 << 20) is None
    assert _kernels.distinct_fixed(raw, 64, 900, 900, 7199) is None
    assert _kernels.distinct_fixed(raw, 64, 900, 900, 7200) is not None


@MINE
@given(st.lists(st.text(alphabet="abc de\0é", max_size=40), min_size=1, max_size=500), st.sampled_from([32, 64]))
def test_fsst_codes_decode(texts: list[str], bits: int) -> None:
    values = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, values)]).astype(f"<i{bits // 8}")
    table, ends, codes = _kernels.encode_fsst(offsets, b"".join(values), bits == 64, len(values))
    codec = tree.Fsst(bytes(table), tree.Variable(bits))
    found = decoded(codec, [(ends, 0), (codes, 0)], len(values), wide=True)
    assert strings(*found, offset_bits=bits) == values


def test_fsst_makes_text_smaller() -> None:
    data = b"the quick brown fox jumps over the lazy dog " * 2000
    offsets = np.arange(0, len(data) + 1, 44).astype("<i4")
    _, _, codes = _kernels.encode_fsst(offsets, data, False, len(offsets) - 1)
    assert codes.nbytes < len(data) / 4


@pytest.mark.parametrize("count", [4096 * 5, 4096 * 10, 4096 * 20, 30_000])
def test_numbered_texts_are_sampled_without_a_step(count: int) -> None:
    """Every tenth of them ends in the same digit; a frame and eight digits are eight codes at most."""
    values = [b"/data/train/img_%08d.jpg" % number for number in range(count)]
    offsets = np.arange(0, 28 * (count + 1), 28).astype("<i4")
    table, ends, codes = _kernels.encode_fsst(offsets, b"".join(values), False, count)
    assert codes.nbytes <= 6 * count
    assert fsst_texts(bytes(table), longs(ends, "<i4")[:500], bytes(codes)) == values[:499]


def test_few_long_texts_among_short_ones_are_sampled() -> None:
    """They hold the bytes, though hardly any value drawn at random is one of them."""
    words = " ".join(f"word{number % 50} and" for number in range(2000)).encode()
    values = [words if number % 1500 == 700 else b"" for number in range(60_000)]
    offsets = np.cumsum([0, *map(len, values)]).astype("<i4")
    _, _, codes = _kernels.encode_fsst(offsets, b"".join(values), False, len(values))
    assert codes.nbytes < offsets[-1] / 5


def test_same_values_make_the_same_codes() -> None:
    """Nothing is drawn anew: files of the same rows are equal."""
    data = b"".join(b"%d apples, %d pears; " % (number * 7919 % 1000, number % 13) for number in range(9000))
    offsets = np.append(np.arange(0, len(data), 20), len(data)).astype("<i4")
    first, again = (_kernels.encode_fsst(offsets, data, False, len(offsets) - 1) for _ in range(2))
    assert [*map(bytes, first)] == [*map(bytes, again)]


def fsst_texts(table: bytes, ends: list[int], codes: bytes) -> list[bytes]:
    """Values of codes by the table's own description (spec: 8.3)."""
    symbols = [table[8 + 8 * i : 8 + 8 * i + table[8 + 8 * table[0] + i]] for i in range(table[0])]

    def text(coded: bytes) -> bytes:
        found, at = bytearray(), iter(coded)
        for code in at:
            found += bytes([next(at)]) if code == 255 else symbols[code]
        return bytes(found)

    return [text(codes[start:end]) for start, end in itertools.pairwise(ends)]


WORDS = [b"Lance", b"columns", b"\xff", b"", b"a", b"\0\0\0", "é".encode(), b"0123456789"]
WIDE = "größer als größer, länger als lang; ".encode() * 900
FSST_VALUES = {
    "some blocks": [WORDS[i % 7] * (i % 23) for i in range(9000)],
    "every byte": [bytes([i % 256, 65, 66, i // 7 % 256]) for i in range(5000)],
    "every byte but one": [bytes([i % 255]) * (i % 9) for i in range(5000)],
    "fills a block": [b"ab" * 10, b"c" * 32767, b"d"],
    "larger than a block": [b"ab" * 10, b"c" * 32768, b"d"],
    "much larger than a block": [b"abc" * 30_000, b"", b"abc" * 5],
    "as long as stretches": [
        WIDE[at : at + size] for at, size in enumerate((8190, 8191, 8192, 8193, 0, 16_383, 20_000))
    ],
    "cut or not": [WIDE[at : at + 250 + at % 12] for at in range(2000)],
    "nearly all empty": [b"", b"only this one"] + [b""] * 70_000,
    "all empty": [b""] * 3,
}


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", FSST_VALUES)
def test_fsst_codes_of_values_of_all_kinds(name: str, bits: int) -> None:
    values = FSST_VALUES[name]
    first = b"in front"
    offsets = np.cumsum([len(first), *map(len, values)]).astype(f"<i{bits // 8}")
    found = _kernels.encode_fsst(offsets, first + b"".join(values) + b"behind", bits == 64, len(values))
    table, ends, codes = bytes(found[0]), longs(found[1], f"<i{bits // 8}"), bytes(found[2])
    assert ends[0] == 0 and ends[-1] == len(codes)
    assert fsst_texts(table, ends, codes) == values


def greedy_codes(table: bytes, value: bytes) -> int:
    """Bytes of a value's codes where the longest symbol is always taken."""
    symbols = {table[8 + 8 * i : 8 + 8 * i + table[8 + 8 * table[0] + i]] for i in range(table[0])}
    at = num_bytes = 0
    while at < len(value):
        length = next((length for length in range(8, 0, -1) if value[at : at + length] in symbols), None)
        at += length or 1
        num_bytes += 1 if length else 2
    return num_bytes


@pytest.mark.parametrize("size", [300, 5000, 20_000, 100_000])
def test_long_values_are_cut_rarely(size: int) -> None:
    """Each is coded as if by itself, but for a symbol at the end of each stretch of 8 KiB."""
    dice = np.random.default_rng(size)
    words = [bytes(dice.integers(97, 123, length, dtype=np.uint8)) for length in dice.integers(2, 9, 300)]
    text = b" ".join([words[i] for i in dice.integers(0, 300, 40_000)])[:200_000]
    values = [text[at : at + size] for at in range(0, len(text), size)]
    offsets = np.cumsum([0, *map(len, values)]).astype("<i4")
    table, ends, codes = _kernels.encode_fsst(offsets, text, False, len(values))
    assert fsst_texts(bytes(table), longs(ends, "<i4"), bytes(codes)) == values
    num_cuts = len(text) // 8000 + 1
    assert abs(codes.nbytes - sum(greedy_codes(bytes(table), value) for value in values)) <= 4 * num_cuts


def test_rows_are_packed_in_order() -> None:
    rows = _kernels.pack_rows([(struct.pack("<2i", 1, 3), 4), (struct.pack("<2d", 2.0, 4.0), 8)], 2)
    assert bytes(rows).hex() == "010000000000000000000040030000000000000000001040"  # spec: 11, j


@pytest.mark.parametrize("count", [5, 1024, 1025, 2047, 4096])
def test_packed_blocks_decode(count: int) -> None:
    raw = np.arange(count, dtype="<u8") * 5
    width, block = _kernels.pack_block(raw, 64, count)
    codec = tree.InlineBitpacking(64) if count <= 1024 else tree.OutOfLineBitpacking(64, width)
    assert uints(_kernels.decode_dictionary(codec.program(), block, count)[0], 64) == raw.tolist()
