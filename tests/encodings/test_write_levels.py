"""Blocks of levels: the bytes against plain packing, the choice against all sizes, and back through our decoder."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io import _kernels
from lance_io.codecs.tree import Flat, InlineBitpacking, OutOfLineBitpacking, Rle, decode_codec
from lance_io.encodings.v2_1.page import RULES_2_1, RULES_2_2
from lance_io.encodings.v2_1.write_levels import encode_level_block, encode_level_blocks
from tests.reference import codecs as reference

ALTERNATING = [0, 1] * 512


def block_bytes(codec: object, levels: list[int]) -> bytes:
    """One block, by the specification."""
    if isinstance(codec, InlineBitpacking):
        return reference.inline_packed(levels, 16, max(levels, default=0).bit_length())
    if isinstance(codec, OutOfLineBitpacking):
        tail = len(levels) % 1024
        packs = codec.packed_bits * (1024 - tail) < (16 - codec.packed_bits) * tail
        return reference.out_of_line_packed(levels, 16, codec.packed_bits, pack_tail=packs)
    if isinstance(codec, Rle):
        runs = reference.runs(levels)
        values = reference.ints([value for value, _ in runs], 16)
        return len(values).to_bytes(8, "little") + values + bytes(length for _, length in runs)
    assert codec == Flat(16)
    return reference.ints(levels, 16)


def possible(blocks: list[list[int]], with_rle: bool) -> list[object]:
    """Every codec that could describe these blocks."""
    width = max((max(block, default=0) for block in blocks), default=0).bit_length()
    codecs: list[object] = [Flat(16)]
    if all(len(block) <= 1024 for block in blocks):
        codecs.append(InlineBitpacking(16))
    if 0 < width < 16:
        codecs.append(OutOfLineBitpacking(16, width))
    if with_rle:
        codecs.append(Rle(Flat(16), Flat(8)))
    return codecs


def padded(size: int) -> int:
    """As chunks pad their buffers."""
    return size + -size % 8


BLOCKS = st.lists(
    st.builds(
        lambda pattern, repeats, rest: (pattern * repeats)[:2100] + rest,
        st.lists(st.integers(0, 3) | st.integers(0, 9) | st.just((1 << 16) - 1), max_size=12),
        st.sampled_from([1, 3, 100, 300]),
        st.lists(st.integers(0, 5), max_size=3),
    ),
    max_size=4,
)


@settings(max_examples=150, deadline=None)
@given(blocks=BLOCKS, rules=st.sampled_from([RULES_2_1, RULES_2_2]))
def test_blocks_are_the_smallest_and_decode(blocks, rules) -> None:
    bounds = np.cumsum([0] + [len(block) for block in blocks], dtype=np.int64)
    levels = np.array([level for block in blocks for level in block], dtype=np.uint16)
    found = encode_level_blocks(levels, bounds, rules)
    codec = decode_codec(found.codec)
    data = bytes(found.data)
    assert found.offsets[0] == 0
    assert found.offsets[-1] == len(data)
    for block, start, end in zip(blocks, found.offsets, found.offsets[1:], strict=False):
        assert data[start:end] == block_bytes(codec, block)
        decoded = np.frombuffer(_kernels.decode_levels(codec.program(), data[start:end], len(block)), np.uint16)
        assert decoded.tolist() == block
    sizes = [
        sum(padded(len(block_bytes(each, block))) for block in blocks) for each in possible(blocks, rules is RULES_2_2)
    ]
    assert sum(map(padded, np.diff(found.offsets).tolist())) == min(sizes)


@pytest.mark.parametrize(
    ("levels", "rules", "codec"),
    [
        ([0, 1, 0], RULES_2_1, "flat(16)"),
        ([0, 0, 1, 0] * 30, RULES_2_1, "bitpacking(16 -> 1)"),
        (ALTERNATING * 2, RULES_2_1, "bitpacking(16 -> 1)"),
        (ALTERNATING * 2, RULES_2_2, "bitpacking(16 -> 1)"),
        ([0] * 1000 + [1] * 1000, RULES_2_2, "rle(16)"),
        ([0] * 1000 + [1] * 1000, RULES_2_1, "bitpacking(16 -> 1)"),
    ],
)
def test_choices(levels: list[int], rules, codec: str) -> None:
    assert str(decode_codec(encode_level_block(np.array(levels, np.uint16), rules).codec)) == codec


def test_bounds_are_checked() -> None:
    levels = np.zeros(5, np.uint16)
    for bounds in ([], [0, 4], [1, 5], [0, 3, 2, 5]):
        with pytest.raises(ValueError, match="bounds"):
            encode_level_blocks(levels, np.array(bounds, dtype=np.int64), RULES_2_1)
