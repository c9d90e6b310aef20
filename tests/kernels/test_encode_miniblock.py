"""Chunks as the kernels cut and write them, against plain Python and the decoding kernels."""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io import _kernels
from lance_io.codecs import tree
from tests.kernels.pages import chunk_table, decode_miniblock, longs, strings, uints

MINE = settings(max_examples=40, deadline=None)


def encode(codec: tree.Codec, buffers, count: int, *, target: int = 4096, wide: bool = False):
    """Chunks and the number of values in each."""
    program = codec.program()
    plan = _kernels.plan_miniblock(program, buffers, count, target, None, 0, count, 65535)
    assert plan is not None
    made = _kernels.encode_miniblock(program, wide, buffers, plan[0], target, None, [], plan[1])
    assert made is not None
    words, data, num_buffers, _, _ = made
    offsets, starts = chunk_table(words, wide, count, data.nbytes)
    at = longs(offsets)
    chunks = [bytes(data)[a:b] for a, b in itertools.pairwise(at)]
    return chunks, np.diff(longs(starts)).tolist(), num_buffers


def decoded(codec: tree.Codec, buffers, count: int, **how):
    chunks, counts, num_buffers = encode(codec, buffers, count, **how)
    program = struct.pack("<BB", how.get("wide", False), num_buffers) + b"\x01\x01" + codec.program() + b"\x00"
    return decode_miniblock(program, chunks, counts)[1]


def test_flat_golden_bytes() -> None:
    chunks, counts, _ = encode(tree.Flat(32), [(struct.pack("<3i", 10, 0, 30), 0)], 3)
    assert counts == [3]
    assert chunks[0].hex(" ") == "00 00 0c 00 fe fe fe fe 0a 00 00 00 00 00 00 00 1e 00 00 00 fe fe fe fe"


@pytest.mark.parametrize(
    ("bits", "values"), [(1, 4096), (8, 4096), (16, 2048), (24, 2048), (32, 1024), (64, 512), (128, 256)]
)
def test_flat_chunks_are_about_4_to_8_kib(bits: int, values: int) -> None:
    _, counts, _ = encode(tree.Flat(bits), [(bytes(bits * (values + 5) // 8 + 1), 0)], values + 5)
    assert counts == [values, 5]


def packed_by_formula(values: list[int], bits: int, width: int) -> list[int]:
    """FastLanes groups straight from the specification, bit by bit."""
    lanes, order = 1024 // bits, [0, 4, 2, 6, 1, 5, 3, 7]
    words = [0] * (1024 * width // bits)
    for lane in range(lanes):
        stream = 0
        for row in range(bits):
            index = order[row // 8] * 16 + (row % 8) * 128 + lane
            stream |= values[index] << (row * width)
        for word in range(width):
            words[word * lanes + lane] = stream >> (word * bits) & ((1 << bits) - 1)
    return words


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_packing_follows_the_formula(bits: int) -> None:
    dice = np.random.default_rng(bits)
    for width in sorted({0, 1, 3, bits // 2, bits - 1, bits}):
        values = (
            [int(v) for v in dice.integers(0, 1 << width, 1024, dtype=np.uint64, endpoint=False)]
            if width < 64
            else [int(v) for v in dice.integers(0, 2**64 - 1, 1024, dtype=np.uint64)]
        )
        values[0] = (1 << width) - 1
        raw = np.array(values, dtype=f"<u{bits // 8}")
        chunks, counts, _ = encode(tree.InlineBitpacking(bits), [(raw, 0)], 1024)
        assert counts == [1024]
        found = uints(chunks[0][8 : 8 + bits // 8 + 128 * width], bits)
        assert found == [width, *packed_by_formula(values, bits, width)]


@pytest.mark.parametrize("count", [1, 3, 1023, 1024, 1025, 5000])
def test_packed_words_decode(count: int) -> None:
    raw = (np.arange(count, dtype="<u4") * 37) % 1000
    assert uints(decoded(tree.InlineBitpacking(32), [(raw, 0)], count)[0], 32) == raw.tolist()


@MINE
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 700)), min_size=1, max_size=30),
    st.sampled_from([8, 16, 32, 64]),
)
def test_runs_decode_and_never_cross_chunks(runs: list[tuple[int, int]], bits: int) -> None:
    values = [value for value, length in runs for _ in range(length)]
    raw = np.array(values, dtype=f"<u{bits // 8}")
    codec = tree.Rle(tree.Flat(bits), tree.Flat(8))
    assert uints(decoded(codec, [(raw, 0)], len(values))[0], bits) == values
    chunks, counts, _ = encode(codec, [(raw, 0)], len(values))
    for chunk, count in zip(chunks, counts, strict=True):
        value_bytes, length_bytes = struct.unpack_from("<HH", chunk, 2)
        assert value_bytes == length_bytes * bits // 8
        lengths = chunk[8 + -(-value_bytes // 8) * 8 :][:length_bytes]
        assert sum(lengths) == count and min(lengths) > 0


@pytest.mark.parametrize("bits", [32, 64])
def test_byte_planes_decode(bits: int) -> None:
    raw = np.random.default_rng(1).integers(0, 2**31, 3000).astype(f"<u{bits // 8}")
    codec = tree.General("zstd", tree.ByteStreamSplit(tree.Flat(bits)))
    assert uints(decoded(codec, [(raw, 0)], 3000)[0], bits) == raw.tolist()


@MINE
@given(
    st.lists(st.binary(max_size=60), min_size=1, max_size=400),
    st.sampled_from([32, 64]),
    st.integers(0, 5000),
    st.integers(0, 9),
)
def test_strings_decode(values: list[bytes], bits: int, target: int, skipped: int) -> None:
    """Offsets may begin anywhere in the data."""
    offsets = np.cumsum([skipped, *map(len, values)]).astype(f"<i{bits // 8}")
    data = b"?" * skipped + b"".join(values) + b"behind"
    for codec in (tree.Variable(bits), tree.General("lz4", tree.Variable(bits))):
        found = decoded(codec, [(offsets, 0), (data, 0)], len(values), target=target, wide=True)
        assert strings(*found, offset_bits=bits) == values


def test_chunks_of_strings_are_the_largest_power_of_two_within_the_target() -> None:
    offsets = (np.arange(1001) * 20).astype("<i4")
    _, counts, _ = encode(tree.Variable(32), [(offsets, 0), (bytes(20_000), 0)], 1000)
    assert counts == [128] * 7 + [104]  # 129 offsets and 2560 bytes; twice that is too much


@MINE
@given(st.lists(st.booleans(), min_size=1, max_size=9000), st.integers(0, 7))
def test_bitmaps_may_begin_inside_a_byte(bits: list[bool], skipped: int) -> None:
    raw = np.packbits([True] * skipped + bits + [True], bitorder="little")
    found = np.unpackbits(
        np.frombuffer(decoded(tree.Flat(1), [(raw, skipped)], len(bits))[0], np.uint8), bitorder="little"
    )
    assert found[: len(bits)].tolist() == bits


@MINE
@given(st.lists(st.integers(0, 2), min_size=1, max_size=3000), st.data())
def test_levels_go_with_their_values(definition: list[int], data) -> None:
    """Level 2 owns no value; invisible levels behind a chunk's last value begin the next chunk."""
    visible = [level <= 1 for level in definition]
    count = sum(visible)
    if not count:
        return
    limit = data.draw(st.integers(1, 3000))
    levels = np.array(definition, dtype=np.uint16)
    plan = _kernels.plan_miniblock(
        tree.Flat(64).program(), [(bytes(8 * count), 0)], count, 4096, levels, 1, len(levels), limit
    )
    if plan is None:
        return
    items, bounds = longs(plan[0]), longs(plan[1])
    assert (items[0], items[-1], bounds[0], bounds[-1]) == (0, count, 0, len(levels))
    for k, (start, end) in enumerate(itertools.pairwise(bounds)):
        num_values = items[k + 1] - items[k]
        assert sum(visible[start:end]) == num_values
        assert end - start <= limit
        if k + 2 < len(items):
            assert num_values >= 2 and num_values & (num_values - 1) == 0
            assert visible[end - 1]


@MINE
@given(st.lists(st.integers(1, 9), min_size=1, max_size=60), st.data())
def test_repetition_index_counts_rows_that_end(rows: list[int], data) -> None:
    levels = [1 if k == 0 else 0 for row in rows for k in range(row)]
    cuts = data.draw(st.sets(st.integers(1, len(levels)), max_size=12)) | {len(levels)}
    bounds = [0, *sorted(cuts)]
    index = longs(_kernels.repetition_index(np.array(levels, dtype=np.uint16), np.array(bounds), 1), "<u8")
    ends = np.cumsum(rows).tolist()
    starts = [0, *ends[:-1]]
    expected = []
    for a, b in itertools.pairwise(bounds):
        expected.append(sum(a < end <= b for end in ends))
        expected.append(0 if b in ends else b - max(a, max(s for s in starts if s < b)))
    assert index == expected


def test_chunk_levels_beyond_the_limit_are_refused() -> None:
    levels = np.array([0, *[2] * 500, 0], dtype=np.uint16)
    assert _kernels.plan_miniblock(tree.Flat(32).program(), [(bytes(8), 0)], 2, 4096, levels, 1, 502, 100) is None


def test_sizes_that_do_not_fit_together_are_refused() -> None:
    flat = tree.Flat(64).program()
    with pytest.raises(ValueError, match="do not fit"):
        _kernels.plan_miniblock(flat, [(bytes(8), 0)], 2, 4096, None, 0, 2, 100)
    with pytest.raises(ValueError, match="do not go with"):
        _kernels.plan_miniblock(flat, [(bytes(16), 0)], 2, 4096, None, 0, 3, 100)
    with pytest.raises(ValueError, match="ascend"):
        bad = np.array([0, 9, 3], dtype="<i4")
        _kernels.plan_miniblock(tree.Variable(32).program(), [(bad, 0), (bytes(9), 0)], 2, 4096, None, 0, 2, 100)
    with pytest.raises(ValueError, match="bounds"):
        _kernels.encode_miniblock(flat, False, [(bytes(16), 0)], np.array([1, 2]), 4096, None, [], np.array([0, 2]))
