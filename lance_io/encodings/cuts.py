"""Cuts large pages, so that a scan reads and decodes them in several pieces.

    mini-block             at the borders of chunks, from the chunk table (one round)
    full-zip, fixed width  anywhere: row i is at i * stride
    full-zip, variable     at any row, from the repetition index (one round)
    arrays of version 2.0  anywhere if values have one width, else at any value or list, from all ends (one round)
    all others             nowhere: they hold levels and single values, not data

Pieces do not overlap in the file, with one exception: if the writer let a row of lists cross the border of two chunks,
the chunk with the end of that row belongs to two pieces. Borders without such rows are preferred.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lance_io.encodings.api import ArrayLayout
from lance_io.encodings.v2_1.blob import BlobPage
from lance_io.encodings.v2_1.fullzip import FullZipIndex, FullZipPage
from lance_io.encodings.v2_1.miniblock import MiniBlockIndex, MiniBlockPage
from lance_io.spans import int64s, uint8s

if TYPE_CHECKING:
    from lance_io.encodings.api import PageIndex, PageLayout
    from lance_io.spans import IntArray, Steps

CLEAN_BORDER_SHARE: Final = 4  # a border that splits no row may be 1/4 of a piece away from the ideal border


@dataclass(frozen=True, slots=True, eq=False)
class PageCuts:
    """How some slots of a page are cut.

    index   needed to read the pieces, or None
    slots   i64[pieces + 1], ascending: piece i is slots `slots[i]` to `slots[i + 1]`
    sizes   i64[pieces], approximate data bytes of each piece
    """

    index: PageIndex | None
    slots: IntArray
    sizes: IntArray


def cut_page(
    page: PageLayout, start: int, end: int, piece_bytes: int, known: PageIndex | None = None
) -> Steps[PageCuts | None]:
    """Cut slots `start` to `end` of a page into pieces of about `piece_bytes`; None if the page cannot be cut.

    known  the page's index, if it was read before

    Raises FormatError when the page's index contradicts the format.
    """
    if isinstance(page, BlobPage):
        return (yield from cut_page(page.inner, start, end, piece_bytes, known))
    if isinstance(page, MiniBlockPage):
        ranges = page.index_ranges()
        assert ranges is not None, "mini-block pages have a chunk table"
        chunks = known if isinstance(known, MiniBlockIndex) else page.load_index((yield ranges))
        cuts = _cut_chunks(chunks, start, end, piece_bytes)
        is_complete = cuts.slots[0] == start and cuts.slots[-1] == end  # else damaged: reading reports it
        return cuts if is_complete else None
    if isinstance(page, FullZipPage) and page.has_index:
        index = known if isinstance(known, FullZipIndex) else page.load_index((yield page.source.ranges([1], "index")))
        return _cut_entries(index, page.source.buffer_sizes[0], start, end, piece_bytes)
    if isinstance(page, FullZipPage):
        slots = np.arange(start, end + 1, dtype=np.int64)
        return cut_evenly(None, slots, slots * page.stride_bytes, piece_bytes)
    if isinstance(page, ArrayLayout):
        return (yield from page.cut(start, end, piece_bytes, known))
    return None


def _cut_chunks(index: MiniBlockIndex, start: int, end: int, piece_bytes: int) -> PageCuts:
    starts = int64s(index.item_starts if index.row_starts is None else index.row_starts)
    first = int(starts.searchsorted(start, side="right")) - 1
    last = int(starts.searchsorted(end, side="left"))
    slots = starts[first : last + 1].clip(start, end)
    offsets = int64s(index.byte_offsets)[first : last + 1]
    splits_row = None
    if index.preamble is not None:
        splits_row = np.append(uint8s(index.preamble)[first : last + 1], 0)[: len(slots)].astype(bool)
    return cut_evenly(index, slots, offsets, piece_bytes, splits_row)


def _cut_entries(index: FullZipIndex, data_bytes: int, start: int, end: int, piece_bytes: int) -> PageCuts:
    entries = np.frombuffer(index.entries, dtype=f"<u{index.width_bytes}")[start : end + 1]
    # reading rows reports damaged entries; here they only must not produce wrong ranges
    offsets = np.maximum.accumulate(np.minimum(entries, np.uint64(data_bytes)).astype(np.int64))
    return cut_evenly(index, np.arange(start, end + 1, dtype=np.int64), offsets, piece_bytes)


def cut_evenly(
    index: PageIndex | None,
    slots: IntArray,
    offsets: IntArray,
    piece_bytes: int,
    splits_row: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None,
) -> PageCuts:
    """Choose evenly spaced cuts among the possible borders.

    slots, offsets  i64[n + 1], ascending: the possible borders as slots, and as byte offsets
    splits_row      bool[n + 1], True for borders in the middle of a row
    """
    total = int(offsets[-1] - offsets[0])
    count = max(1, total // max(1, piece_bytes))
    targets = offsets[0] + total * np.arange(1, count, dtype=np.int64) // count
    borders = offsets.searchsorted(targets, side="left")
    if splits_row is not None and not splits_row.all():
        clean = np.flatnonzero(~splits_row)
        nearest = clean[offsets[clean].searchsorted(targets, side="left").clip(0, len(clean) - 1)]
        is_near = np.abs(offsets[nearest] - targets) <= piece_bytes // CLEAN_BORDER_SHARE
        borders = np.where(is_near, nearest, borders)
    borders = np.unique(np.concatenate(([0], borders, [len(slots) - 1])))
    borders = borders[np.append(np.diff(slots[borders]) > 0, True)]  # an empty piece joins the next one
    return PageCuts(index, slots[borders], np.diff(offsets[borders]))
