"""Cuts a sequence of row ids into segments that take few bytes (spec: table, 6.1). Pure.

    ids ──consecutive ids──> stretches ──neighbours with small gaps──> blocks ──shortest path──> segments

The cost of a block in each form is known beforehand, so the best forms of all blocks are a shortest path: each block
either continues the segment of the previous one, where the order and the gap allow it, or begins a segment.

RANGE    one stretch
HOLES    ascending, and the missing ids
BITMAP   ascending, a bit for each id from the first to the last
ARRAY    any ids, one by one
SORTED   the same for ascending ids, in parts that each take two bytes an id
"""

from __future__ import annotations

from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    U64Array = npt.NDArray[np.uint64]
    FloatArray = npt.NDArray[np.float64]
    Cut = tuple[int, int, "Form"]


class Form(IntEnum):
    """How a segment stores its ids."""

    RANGE = 0
    HOLES = 1
    BITMAP = 2
    ARRAY = 3
    SORTED = 4


_BEGIN_BYTES: Final = (12, 25, 17, 15, 15)  # of a segment of each form, with ids of 3 bytes
_GAP_MAX: Final = 160  # with more missing ids another segment is cheaper, for holes and for a bitmap
_STRETCH_MIN: Final = 320  # a longer stretch may be worth its own segment
_STRETCHES_PER_BLOCK: Final = 256
_NARROW: Final = 1 << 16  # ids with a smaller span are offsets of two bytes
_WIDE: Final = 1 << 32
_AROUND: Final = 16
_PARTS_MAX: Final = 4096  # processed one by one in Python
_HOLES_SHARE: Final = _BEGIN_BYTES[Form.HOLES] / _NARROW  # amortized cost of new segments that keep ids narrow
_SORTED_SHARE: Final = _BEGIN_BYTES[Form.SORTED] / _NARROW
_NEVER: Final = float("inf")
_U64_MAX: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True, eq=False)
class _Blocks:
    """Runs of ids that always share a segment.

    starts   of each block, as an index into the ids
    joins    whether its ids follow those of the previous block with a small gap
    rises    whether they follow with any gap
    gaps     number of missing ids in between, where they rise
    inside   bytes that each block takes, by form
    """

    starts: npt.NDArray[np.int64]
    joins: npt.NDArray[np.bool_]
    rises: npt.NDArray[np.bool_]
    gaps: FloatArray
    inside: tuple[FloatArray, ...]


def cut_segments(ids: U64Array) -> list[Cut]:
    """Start, end (indices into the ids) and form of each segment of a sequence."""
    if not len(ids):
        return []
    if int(ids.max()) == _U64_MAX:  # the end of its range would not fit
        return [(0, len(ids), Form.ARRAY)]
    cuts = []
    for start, end, form in _shortest(_blocks(ids), len(ids)):
        cuts += _narrow_parts(ids, start, end, form)
    return cuts


# -- blocks ------------------------------------------------------------------------------------------------------------


def _blocks(ids: U64Array) -> _Blocks:
    steps = ids[1:] - ids[:-1]  # wraps around where ids descend
    ascends = ids[1:] > ids[:-1]
    stretches = np.r_[0, np.flatnonzero(~(ascends & (steps == 1))) + 1]
    lengths = np.diff(np.r_[stretches, len(ids)])
    rises = np.zeros(len(stretches), dtype=bool)
    rises[1:] = ascends[stretches[1:] - 1]
    gaps = np.zeros(len(stretches), dtype=np.float64)
    gaps[1:] = np.where(rises[1:], steps[stretches[1:] - 1] - np.uint64(1), np.uint64(0))
    follows = rises & (gaps <= _GAP_MAX)
    is_long = lengths >= _STRETCH_MIN
    begins = ~follows | is_long | (np.arange(len(stretches)) % _STRETCHES_PER_BLOCK == 0)
    begins[1:] |= is_long[:-1]
    widths = _widths(ids)
    begins = _join_single(begins, lengths, follows, widths[stretches])
    firsts = np.flatnonzero(begins)
    joins, climbs = (np.logical_and.reduceat(begins | flags, firsts) for flags in (follows, rises))
    num_ids = np.add.reduceat(lengths, firsts).astype(np.float64)
    holes = np.add.reduceat(np.where(begins, 0, gaps), firsts)
    span = num_ids + holes
    jumps = np.add.reduceat(np.where(begins, 0, np.minimum(gaps, _NARROW)), firsts)  # a wider gap begins a segment
    is_stretch = np.diff(np.r_[firsts, len(stretches)]) == 1
    return _Blocks(
        starts=stretches[firsts],
        joins=follows[firsts],
        rises=rises[firsts],
        gaps=gaps[firsts],
        inside=(
            np.where(is_stretch, 0.0, _NEVER),
            np.where(joins, 2 * holes + _HOLES_SHARE * span, _NEVER),
            np.where(joins, span / 8, _NEVER),
            np.add.reduceat(widths, stretches[firsts]).astype(np.float64),
            np.where(climbs, 2 * num_ids + _SORTED_SHARE * (num_ids + jumps), _NEVER),
        ),
    )


def _join_single(
    begins: npt.NDArray[np.bool_], lengths: npt.NDArray[Any], follows: npt.NDArray[np.bool_], widths: npt.NDArray[Any]
) -> npt.NDArray[np.bool_]:
    """The same blocks, with isolated (or nearly isolated) ids joined: they are cheapest in one array."""
    alone = begins & ~follows & ((lengths == 1) | (lengths * widths <= 4))
    alone[:-1] &= begins[1:] & ~follows[1:]
    joined = begins.copy()
    joined[1:] &= ~(alone[1:] & alone[:-1])
    return joined


def _width(span: int) -> int:
    return 2 if span < _NARROW else 4 if span < _WIDE else 8


def _widths(ids: U64Array) -> npt.NDArray[np.int64]:
    """Bytes that each id takes in an array with its neighbours."""
    size = max(_AROUND, len(ids) // _PARTS_MAX)
    lows, highs = _bounds(ids, size)
    spans = highs - lows
    return np.repeat(2 + 2 * (spans >= _NARROW) + 4 * (spans >= _WIDE), size)[: len(ids)]


def _bounds(ids: U64Array, size: int) -> tuple[U64Array, U64Array]:
    """The least and the greatest of every `size` ids."""
    firsts = np.arange(0, len(ids), size)
    return np.minimum.reduceat(ids, firsts), np.maximum.reduceat(ids, firsts)


# -- the shortest path -------------------------------------------------------------------------------------------------


def _shortest(blocks: _Blocks, num_ids: int) -> list[Cut]:
    """The segments that take the fewest bytes."""
    begin_range, begin_holes, begin_bitmap, begin_array, begin_sorted = map(float, _BEGIN_BYTES)
    best, holes, bitmap, array, ordered = 0.0, _NEVER, _NEVER, _NEVER, _NEVER
    forms, begun = bytearray(), bytearray()  # the best form up to each block; the forms that begin there, as bits
    columns = (blocks.joins, blocks.rises, blocks.gaps, *blocks.inside)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for joins, rises, gap, in_range, in_holes, in_bitmap, in_array, in_sorted in rows:
        new = 1 << Form.RANGE
        single = best + begin_range + in_range
        holes = holes + 2 * gap if joins else _NEVER
        if best + begin_holes < holes:
            holes, new = best + begin_holes, new | 1 << Form.HOLES
        bitmap = bitmap + gap / 8 if joins else _NEVER
        if best + begin_bitmap < bitmap:
            bitmap, new = best + begin_bitmap, new | 1 << Form.BITMAP
        if best + begin_array < array:
            array, new = best + begin_array, new | 1 << Form.ARRAY
        ordered = ordered + _SORTED_SHARE * min(gap, _NARROW) if rises else _NEVER
        if best + begin_sorted < ordered:
            ordered, new = best + begin_sorted, new | 1 << Form.SORTED
        holes, bitmap, array, ordered = holes + in_holes, bitmap + in_bitmap, array + in_array, ordered + in_sorted
        best, form = single, Form.RANGE.value
        if array < best:
            best, form = array, Form.ARRAY.value
        if bitmap < best:
            best, form = bitmap, Form.BITMAP.value
        if holes < best:
            best, form = holes, Form.HOLES.value
        if ordered < best:
            best, form = ordered, Form.SORTED.value
        forms.append(form)
        begun.append(new)
    return _trace(blocks.starts.tolist(), forms, begun, num_ids)


def _trace(starts: Sequence[int], forms: bytearray, begun: bytearray, num_ids: int) -> list[Cut]:
    cuts: list[Cut] = []
    end, at = num_ids, len(forms) - 1
    while at >= 0:
        form = forms[at]
        while not begun[at] >> form & 1:
            at -= 1
        cuts.append((starts[at], end, Form(form)))
        end, at = starts[at], at - 1
    return cuts[::-1]


# -- narrow numbers ----------------------------------------------------------------------------------------------------


def _narrow_parts(ids: U64Array, start: int, end: int, form: Form) -> list[Cut]:
    """The segment, or several with numbers of two bytes each, if those are smaller together."""
    whole = [(start, end, form)]
    if form is Form.RANGE or form is Form.BITMAP:
        return whole
    part = ids[start:end]
    width = _width(int(part.max()) - int(part.min()))
    if width == 2:
        return whole
    if form is Form.ARRAY:
        return _narrow_arrays(part, start, width)
    windows = (part - part[0]) >> np.uint64(16)
    firsts = np.r_[0, np.flatnonzero(windows[1:] != windows[:-1]) + 1]
    numbers = len(part) if form is Form.SORTED else int(part[-1] - part[0]) + 1 - len(part)
    if (width - 2) * numbers <= _BEGIN_BYTES[form] * (len(firsts) - 1):
        return whole
    bounds = [*(firsts + start).tolist(), end]
    return [(first, last, form) for first, last in pairwise(bounds)]


def _narrow_arrays(part: U64Array, start: int, width: int) -> list[Cut]:
    """The same for ids in any order: neighbours with close values form a segment if there are enough of them."""
    size = 1 + len(part) // _PARTS_MAX
    close: list[_Piece] = []
    for at, (low, high) in enumerate(zip(*(bounds.tolist() for bounds in _bounds(part, size)), strict=True)):
        piece = (at * size, min(len(part), (at + 1) * size), low, high)
        both = _joined(close[-1], piece) if close else piece
        if both[3] - both[2] < _NARROW:
            close[-1:] = [both]
        else:
            close.append(piece)
    pieces: list[_Piece] = []
    for piece in close:  # joins the previous piece if that takes fewer bytes
        both = _joined(pieces[-1], piece) if pieces else piece
        if pieces and _piece_bytes(both) < _piece_bytes(pieces[-1]) + _piece_bytes(piece):
            pieces.pop()
            piece = both
        pieces.append(piece)
    if sum(map(_piece_bytes, pieces)) >= _BEGIN_BYTES[Form.ARRAY] + width * len(part):
        return [(start, start + len(part), Form.ARRAY)]
    return [(start + first, start + last, Form.ARRAY) for first, last, _, _ in pieces]


_Piece = tuple[int, int, int, int]  # first and last id as indices, the least and the greatest


def _joined(left: _Piece, right: _Piece) -> _Piece:
    return left[0], right[1], min(left[2], right[2]), max(left[3], right[3])


def _piece_bytes(piece: _Piece) -> int:
    first, last, low, high = piece
    return _BEGIN_BYTES[Form.ARRAY] + _width(high - low) * (last - first)
