"""Decodes whole pages of version 2.0, many per kernel call, for scans of small files.

whole_values   a page of values of one width, strings, or strings with a dictionary
whole_lists    a page of lists of values of one width whose items are in one page
whole_ranges   the byte ranges of such pages
decode_whole   the rows of such pages
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io import _kernels
from lance_io.encodings.v2_0.array import WithNulls
from lance_io.encodings.v2_0.dictionary import DictionaryValues
from lance_io.encodings.v2_0.variable import Coded, Variable
from lance_io.spans import Ranges, int64s

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_io._kernels import WholeArray
    from lance_io.encodings.v2_0.array import ArrayEncoding
    from lance_io.encodings.v2_0.buffers import StoredBuffer
    from lance_io.encodings.v2_0.located import ValuesKind
    from lance_io.encodings.v2_0.variable import Ends
    from lance_io.spans import Fetched

    FileRange = tuple[int, int]
    Coding = tuple[int, int, bool]
    Described = tuple[int, bytes, int, bool, int, Coding | None, tuple[int, Coding] | None, None]


def whole_values(
    values: ArrayEncoding, kind: ValuesKind, num_rows: int, around: bytes
) -> tuple[Described, list[FileRange]] | None:
    """A page of values as arguments of `WholeArray`: all but the ranges, and the ranges.

    None for a dictionary that is stored differently than by known writers.
    """
    ends, items, ranges = None, None, []
    if isinstance(values, Variable):
        ends = _coding(values.ends)
        ranges = _variable_ranges(values)
    elif isinstance(values, DictionaryValues):
        strings: Any = values.items
        if not isinstance(strings, Variable) or isinstance(strings, Coded):
            return None
        if strings.ends.buffer.scheme or strings.data.scheme:
            return None
        items = strings.num_values, _coding(strings.ends)
        ranges = [(kind.base_bytes, kind.base_bytes + num_rows), *_variable_ranges(strings)]
    else:
        ranges = _fixed_ranges(values, kind, 0, num_rows)
    has_bitmap = kind.present_at is not None
    return (num_rows, around, kind.row_bits, has_bitmap, kind.num_bitmaps, ends, items, None), ranges


def whole_lists(
    ends: Ends, values: ArrayEncoding, kind: ValuesKind, first_slot: int, around: bytes
) -> WholeArray | None:
    """A page of lists; None if its ends are compressed.

    values      that contain its items
    first_slot  position of its first item in them
    """
    if ends.buffer.scheme:
        return None
    ranges = [_all_of(ends.buffer), *_fixed_ranges(values, kind, first_slot, first_slot + ends.end_max)]
    has_bitmap, lists = kind.present_at is not None, (_coding(ends), first_slot)
    return _kernels.WholeArray(
        ends.num_values, around, kind.row_bits, has_bitmap, kind.num_bitmaps, None, None, lists, ranges
    )


def _coding(ends: Ends) -> tuple[int, int, bool]:
    return ends.adjustment, ends.end_max, ends.wide


def _all_of(buffer: StoredBuffer) -> FileRange:
    return buffer.offset_bytes, buffer.offset_bytes + buffer.plain_bytes


def _variable_ranges(values: Variable) -> list[FileRange]:
    return [_all_of(values.ends.buffer), _all_of(values.data)]


def _fixed_ranges(values: ArrayEncoding, kind: ValuesKind, start: int, end: int) -> list[FileRange]:
    """Ranges of the values `start` to `end`, and of their validity bitmap."""

    def bits(base: int) -> FileRange:
        return base + start // 8, base + (end + 7) // 8

    present = [] if kind.present_at is None else [bits(kind.present_at)]
    assert isinstance(values, WithNulls) == bool(present), "the bitmap belongs to the values"
    if kind.row_bits == 1:
        return [*present, bits(kind.base_bytes)]
    width = kind.row_bits // 8
    return [*present, (kind.base_bytes + start * width, kind.base_bytes + end * width)]


def whole_ranges(pages: Sequence[Any]) -> Ranges:
    """All byte ranges of pages that have a `whole`."""
    starts, ends = _kernels.whole_ranges([page.whole for page in pages])
    return Ranges(int64s(starts), int64s(ends))


def decode_whole(files: Sequence[tuple[Sequence[Any], Fetched]]) -> list[pa.Array]:
    """All rows of such pages, one array each. A `DamagedError` carries the index of the page among all pages.

    files  per file: pages, and the fetched `whole_ranges`
    """
    leaves = _kernels.scan_arrays(
        [([page.whole for page in pages], fetched.buffer, fetched.offsets) for pages, fetched in files]
    )
    all_pages = [page for pages, _ in files for page in pages]
    return [page.build(leaf) for page, leaf in zip(all_pages, leaves, strict=True)]
