"""Writes repetition and definition levels as blocks, for chunks of mini-block pages and for pages without values.

A page describes the compression of its levels once and applies it block by block: per chunk, or once per page. All
codecs of levels are measured on the actual blocks, padded to 8 bytes. The smallest wins; on a tie, the one with the
lowest cost for readers. Full-zip pages have no such blocks: their levels are in the control words.
Specification: structural encodings 2.1, sections 3.3, 8.0 and 10.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io import _kernels
from lance_io.proto import encodings21_pb2 as pb
from lance_io.records import dataclass
from lance_io.spans import int64s

if TYPE_CHECKING:
    from lance_io._kernels import Buffer
    from lance_io.encodings.v2_1.page import VersionRules
    from lance_io.levels.leafpage import Levels
    from lance_io.spans import IntArray

LEVEL_BITS: Final = 16
_OUT_OF_LINE: Final = 4
_INLINE: Final = 5
_RLE: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class LevelBlocks:
    """The compressed levels of a page, of one kind (repetition or definition).

    codec    their codec in the page's message
    data     all blocks, back to back, without padding
    offsets  i64[blocks + 1], start of each block in `data`, in bytes
    """

    codec: pb.CompressiveEncoding
    data: Buffer
    offsets: IntArray


def encode_level_blocks(levels: Levels, bounds: IntArray, rules: VersionRules) -> LevelBlocks:
    """Compress levels block by block.

    levels  u16[n], of the whole page
    bounds  i64[blocks + 1], ascending from 0 to n: block i is `levels[bounds[i]:bounds[i + 1]]`
    rules   of the file version: runs are written from 2.2 on

    The caller limits the blocks: the limits of levels (3.3) and bytes (4.10) per chunk are not checked here.
    """
    op, width, data, offsets = _kernels.encode_levels(levels, bounds, rules.constant_values)
    return LevelBlocks(_codec(op, width), data, int64s(offsets))


def encode_level_block(levels: Levels, rules: VersionRules) -> LevelBlocks:
    """As `encode_level_blocks`, for a page with a single block."""
    return encode_level_blocks(levels, np.array([0, len(levels)], dtype=np.int64), rules)


def _codec(op: int, width: int) -> pb.CompressiveEncoding:
    flat = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=width))
    if op == _OUT_OF_LINE:
        return _message(out_of_line_bitpacking=pb.OutOfLineBitpacking(uncompressed_bits_per_value=16, values=flat))
    if op == _INLINE:
        return _message(inline_bitpacking=pb.InlineBitpacking(uncompressed_bits_per_value=LEVEL_BITS))
    if op == _RLE:
        lengths = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=8))
        return _message(rle=pb.Rle(values=flat, run_lengths=lengths))
    return flat


def _message(**codec: Any) -> pb.CompressiveEncoding:
    return pb.CompressiveEncoding(**codec)
