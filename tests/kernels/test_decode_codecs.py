"""Every value codec of mini-block chunks and blocks, against tests/reference/codecs.py, whole and in part."""

from __future__ import annotations

import random
from typing import Any

import lz4.block
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io import _kernels
from tests.kernels.pages import bools, decode_miniblock, longs, strings, uints, wanted
from tests.reference import codecs as ref

LANES = [(bits, width) for bits in (8, 16, 32, 64) for width in range(bits + 1)]
SYMBOLS = [b"the ", b"lance", b"a", b"columnar", b" ", b"ab", b"file"]


def some_rows(count: int, seed: int) -> list[list[tuple[int, int]]]:
    """Selections: all, one row, scattered single rows, ranges."""
    rng = random.Random(seed)
    single = sorted(rng.sample(range(count), min(count, 9)))
    cuts = sorted(rng.sample(range(count + 1), min(count, 6) // 2 * 2))
    ranges = list(zip(cuts[::2], cuts[1::2], strict=True))
    return [[(0, count)], [(single[0], single[0] + 1)], [(row, row + 1) for row in single], ranges]


def check_fixed(
    codec: bytes, bits: int, chunks: list[list[bytes]], values: list[list[int]], wide: bool = False
) -> None:
    """Decode chunks of fixed-width values, each a list of buffers, under several selections."""
    program = ref.miniblock([1], codec, num_buffers=len(chunks[0]), wide=wide)
    encoded = [ref.chunk(buffers, wide=wide) for buffers in chunks]
    flat = [value for chunk in values for value in chunk]
    for rows in some_rows(len(flat), seed=bits + len(flat)):
        num_items, [data], [layer] = decode_miniblock(program, encoded, list(map(len, values)), rows)
        assert uints(data, bits) == wanted(flat, rows)
        assert layer == (num_items, None, 0, None) and num_items == len(wanted(flat, rows))


def randoms(count: int, width: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.getrandbits(width) if width else 0 for _ in range(count)]


@pytest.mark.parametrize(("bits", "width"), LANES)
def test_inline_bitpacking(bits: int, width: int) -> None:
    values = [randoms(1024, width, 1), randoms(77, width, 2)]
    check_fixed(ref.inline_bitpacking(bits), bits, [[ref.inline_packed(part, bits, width)] for part in values], values)


@pytest.mark.parametrize("pack_tail", [False, True])
@pytest.mark.parametrize("width", [0, 1, 5, 11, 16])
@pytest.mark.parametrize("count", [1, 1023, 1024, 1025, 2500])
def test_out_of_line_levels(count: int, width: int, pack_tail: bool) -> None:
    values = randoms(count, width, 3)
    block = ref.out_of_line_packed(values, 16, width, pack_tail=pack_tail)
    assert longs(_kernels.decode_levels(ref.out_of_line(16, width), block, count), "<u2") == values


def test_levels_of_other_codecs() -> None:
    values = [0] * 300 + [1, 2, 3] * 5
    run_values, lengths = ref.rle_encoded(values, 16)
    run_block = ref.ints([len(run_values)], 64) + run_values + lengths
    blocks = {
        ref.flat(16): ref.ints(values, 16),
        ref.inline_bitpacking(16): ref.inline_packed(values, 16, 2),
        ref.rle(16): run_block,
        ref.general("zstd", ref.rle(16)): ref.ints([len(run_block)], 64) + zstandard.compress(run_block),
    }
    for codec, block in blocks.items():
        assert longs(_kernels.decode_levels(codec, block, len(values)), "<u2") == values


@pytest.mark.parametrize("bits", [8, 16, 24, 32, 64, 128, 256, 2400])
def test_flat(bits: int) -> None:
    values = [randoms(64, bits, 4), randoms(7, bits, 5)]
    check_fixed(ref.flat(bits), bits, [[ref.ints(part, bits)] for part in values], values)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_rle(bits: int, wide: bool) -> None:
    rng = random.Random(6)
    values = [[v for v in randoms(60, bits, seed) for _ in range(rng.choice([1, 2, 7, 8, 9, 300]))] for seed in (7, 8)]
    check_fixed(ref.rle(bits), bits, [list(ref.rle_encoded(part, bits)) for part in values], values, wide)


def test_rle_last_run_may_overshoot() -> None:
    program = ref.miniblock([1], ref.rle(8), num_buffers=2)
    _, [data], _ = decode_miniblock(program, [ref.chunk([b"\1\2", b"\2\xff"])], [5])
    assert bytes(data) == b"\1\1\2\2\2"


@pytest.mark.parametrize("scheme", ["lz4", "zstd", "zstd bare"])
@pytest.mark.parametrize("bits", [32, 64])
def test_general_byte_stream_split(bits: int, scheme: str) -> None:
    values = [randoms(512, bits // 2, 9), randoms(33, bits, 10)]
    planes = [ref.byte_planes(part, bits) for part in values]
    codec = ref.general(scheme.split()[0], ref.byte_stream_split(bits))
    check_fixed(codec, bits, [[compress(scheme, plane)] for plane in planes], values)


def compress(scheme: str, data: bytes) -> bytes:
    """The frames of 8.5."""
    match scheme:
        case "lz4":
            return ref.ints([len(data)], 32) + lz4.block.compress(data, store_size=False)
        case "zstd":
            return ref.ints([len(data)], 64) + zstandard.compress(data)
        case _:  # without a content size, as a streaming writer leaves it
            return zstandard.ZstdCompressor(write_content_size=False).compress(data)


@pytest.mark.parametrize("scheme", ["lz4", "zstd"])
def test_general_rle_leaves_lengths_alone(scheme: str) -> None:
    values = [[v for v in randoms(50, 64, 11) for _ in range(9)]]
    run_values, lengths = ref.rle_encoded(values[0], 64)
    check_fixed(ref.general(scheme, ref.rle(64)), 64, [[compress(scheme, run_values), lengths]], values)


TEXTS = st.lists(st.lists(st.sampled_from([*SYMBOLS, b"\xff", b"zz", b""]), max_size=12).map(b"".join), max_size=40)


@settings(max_examples=60, deadline=None)
@given(TEXTS, TEXTS, st.sampled_from([32, 64]), st.sampled_from(["plain", "fsst", "fsst off", "zstd", "lz4 fsst"]))
def test_variable_values(first: list[bytes], second: list[bytes], offset_bits: int, kind: str) -> None:
    chunks = [first, second]
    values = first + second
    coded = [[ref.fsst_coded(v, SYMBOLS) for v in part] if kind.endswith("fsst") else part for part in chunks]
    table = ref.symbol_table(SYMBOLS, coded=kind != "fsst off")
    codec = ref.variable(offset_bits) if "fsst" not in kind else ref.fsst(table, offset_bits)
    buffers = [ref.variable_values(part, offset_bits) for part in coded]
    if (scheme := kind.split()[0]) in ("zstd", "lz4"):
        codec, buffers = ref.general(scheme, codec), [compress(scheme, buffer) for buffer in buffers]
    encoded = [ref.chunk([buffer]) for buffer in buffers]
    for rows in some_rows(len(values), seed=12) if values else []:
        _, found, _ = decode_miniblock(ref.miniblock([1], codec), encoded, [len(first), len(second)], rows)
        assert strings(*found, offset_bits=offset_bits) == wanted(values, rows)


def test_fsst_values_longer_than_the_decoders_window() -> None:
    values = [b"columnar" * 20000, b"", bytes(range(256)) * 300, b"a" * 9000]
    buffer = ref.variable_values([ref.fsst_coded(value, SYMBOLS) for value in values])
    program = ref.miniblock([1], ref.fsst(ref.symbol_table(SYMBOLS)), wide=True)
    _, found, _ = decode_miniblock(program, [ref.chunk([buffer], wide=True)], [4])
    assert strings(*found) == values


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=50), min_size=1, max_size=4), st.integers(1, 9), st.data())
def test_bits_restart_in_every_chunk(chunks: list[list[bool]], items: int, data: Any) -> None:
    """Lists of bools with validity: three bitmaps that are cut anywhere and packed again."""
    rows = [[bits[at % len(bits)] for at in range(items * len(bits))] for bits in chunks]
    buffers = [[ref.bitmap([not bit for bit in bits]), ref.bitmap(bits)] for bits in rows]
    program = ref.miniblock([1], ref.fixed_size_list(items, True, ref.flat(1)), num_buffers=2)
    count = sum(map(len, chunks))
    flat = [bit for bits in rows for bit in bits]
    start = data.draw(st.integers(0, count - 1))
    end = data.draw(st.integers(start + 1, count))
    _, [validity, values], _ = decode_miniblock(
        program, [ref.chunk(pair) for pair in buffers], list(map(len, chunks)), [(start, end)]
    )
    expected = flat[start * items : end * items]
    assert bools(values, len(expected)) == expected
    assert bools(validity, len(expected)) == [not bit for bit in expected]


def test_nested_fixed_size_lists() -> None:
    outer = [True, False, True, True, True, False]
    inner = [index % 3 != 0 for index in range(18)]
    codec = ref.fixed_size_list(2, True, ref.fixed_size_list(3, True, ref.flat(16)))
    chunk = ref.chunk([ref.bitmap(outer), ref.bitmap(inner), ref.ints(range(18), 16)])
    program = ref.miniblock([1], codec, num_buffers=3)
    _, [a, b, items], _ = decode_miniblock(program, [chunk], [3], [(1, 3)])
    assert (bools(a, 4), bools(b, 12), longs(items, "<u2")) == (outer[2:], inner[6:], list(range(6, 18)))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=3), st.integers(0, 2**31))
def test_nullable_items(counts: list[int], seed: int) -> None:
    """The bitmap that one nullable layer gives, over chunks of any size and rows cut anywhere."""
    rng = random.Random(seed)
    levels = [[rng.choice([0, 0, 0, 1]) for _ in range(count)] for count in counts]
    program = ref.miniblock([3], ref.flat(8), definition=ref.inline_bitpacking(16))
    chunks = [
        ref.chunk([bytes(part)], num_levels=len(part), definition=ref.inline_packed(part, 16, 1)) for part in levels
    ]
    flat = [level for part in levels for level in part]
    for rows in some_rows(len(flat), seed):
        expected = wanted(flat, rows)
        _, [data], [(length, validity, null_count, _)] = decode_miniblock(program, chunks, counts, rows)
        assert (bytes(data), length, null_count) == (bytes(expected), len(expected), sum(expected))
        assert (validity is None) == (null_count == 0)
        if validity is not None:
            assert bools(validity, length) == [level == 0 for level in expected]


@pytest.mark.parametrize("index_bits", [8, 16, 32, 64])
@pytest.mark.parametrize("offset_bits", [32, 64])
@pytest.mark.parametrize("longest", [b"", b"longer than sixteen bytes", b"x" * 300])
def test_variable_dictionaries(index_bits: int, offset_bits: int, longest: bytes) -> None:
    items = [b"", b"short", b"exactly sixteen!", longest, b"last"]
    block = ref.variable_block(items, offset_bits)
    codec = ref.general("lz4", ref.variable(offset_bits))
    dictionary = _kernels.decode_dictionary(codec, compress("lz4", block), len(items))
    assert strings(*dictionary, offset_bits=offset_bits) == items
    indices = [random.Random(at).randrange(len(items)) for at in range(1500)]
    program = ref.miniblock([1], ref.flat(index_bits), dictionary=b"\x02" if offset_bits == 32 else b"\x03")
    chunk = ref.chunk([ref.ints(indices, index_bits)])
    for rows in some_rows(len(indices), seed=13):
        _, found, _ = decode_miniblock(program, [chunk], [1500], rows, dictionary=(dictionary[0], dictionary[1]))
        assert strings(*found, offset_bits=offset_bits) == [items[index] for index in wanted(indices, rows)]


@pytest.mark.parametrize("bits", [24, 64, 128, 256])
def test_fixed_dictionaries(bits: int) -> None:
    items = randoms(20, bits, 14)
    [data] = _kernels.decode_dictionary(ref.flat(bits), ref.ints(items, bits), 20)
    indices = [at * 7 % 20 for at in range(300)]
    program = ref.miniblock([1], ref.flat(32), dictionary=b"\x01" + bits.to_bytes(4, "little"))
    _, [found], _ = decode_miniblock(program, [ref.chunk([ref.ints(indices, 32)])], [300], dictionary=(None, data))
    assert uints(found, bits) == [items[index] for index in indices]


def test_dictionary_blocks_of_other_codecs() -> None:
    items = randoms(1500, 20, 15)
    packed = ref.out_of_line_packed(items, 64, 20, pack_tail=True)
    run_values, lengths = ref.rle_encoded(items, 64)
    blocks = {
        ref.out_of_line(64, 20): packed,
        ref.rle(64): ref.ints([len(run_values)], 64) + run_values + lengths,
        ref.general("zstd", ref.flat(64)): compress("zstd", ref.ints(items, 64)),
    }
    for codec, block in blocks.items():
        [data] = _kernels.decode_dictionary(codec, block, len(items))
        assert longs(data, "<u8") == items
