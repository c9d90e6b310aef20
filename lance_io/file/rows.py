"""Selected rows of one file, and whole pages of it, as computations.

`take` is what both drivers run for random access: open the file, load the page indexes that the cache lacks (one
round), read the chunks or values that hold the rows (one round, two for large full-zip pages). A `Piece` is the unit of
a scan: one page, or the part of it that the scan wants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_io.encodings.api import PageIndex, RowSelection
from lance_io.errors import FormatError, LanceError
from lance_io.file.opening import opened
from lance_io.file.steps import FileSteps, Tail, Wait, served_by, together
from lance_io.io.cache import Found, Mine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.encodings.api import PageLayout
    from lance_io.file.opened import Column, OpenedFile
    from lance_io.file.source import FileRef, ReadContext
    from lance_io.io.cache import Claim, SearchCache
    from lance_io.spans import Fetched, IntArray, Steps


@dataclass(slots=True, eq=False)
class PageRows:
    """Rows wanted of one page."""

    column: Column
    number: int
    rows: RowSelection

    @property
    def page(self) -> PageLayout:
        """The page's layout."""
        return self.column.pages[self.number]

    def located(self, error: FormatError, key: str) -> FormatError:
        """The error, told where it was found."""
        error.path = key
        return error.within(f"{self.column.where}, page {self.number}")


def take(context: ReadContext, ref: FileRef, columns: Sequence[int], rows: IntArray) -> FileSteps[list[pa.Array]]:
    """Rows of some columns of a file, one array per column.

    rows  i64[n], ascending, each once
    """
    file, tail = yield from opened(context, ref, columns)
    _check_rows(file, rows)
    parts: list[PageRows] = []
    counts = []
    for index in columns:
        wanted = _split_rows(file.column(index), rows)
        counts.append(len(wanted))
        parts += wanted
    indexes = yield from _indexes(context.cache, context.store.identity, file, parts, tail)
    arrays = yield from together([_read_part(file, p, i, tail) for p, i in zip(parts, indexes, strict=True)])
    return _by_column(file, columns, arrays, counts)


def _check_rows(file: OpenedFile, rows: IntArray) -> None:
    if len(rows) and not (rows[0] >= 0 and rows[-1] < file.num_rows):
        raise FormatError(f"row {int(rows[-1])} wanted; the file has {file.num_rows} rows", path=file.key)


def _split_rows(column: Column, rows: IntArray) -> list[PageRows]:
    """The rows by page, page-relative."""
    slots = column.path.slots_per_row
    if len(column.pages) == 1:
        return [PageRows(column, 0, RowSelection.of_rows(rows).scaled(slots))] if len(rows) else []
    starts = column.row_starts
    if len(rows) == 1:
        number = int(starts.searchsorted(rows[0], side="right")) - 1
        return [PageRows(column, number, RowSelection.of_rows(rows - starts[number]).scaled(slots))]
    cuts = rows.searchsorted(starts)
    return [
        PageRows(column, number, RowSelection.of_rows(rows[low:high] - starts[number]).scaled(slots))
        for number, (low, high) in enumerate(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))
        if low < high
    ]


def _by_column(file: OpenedFile, columns: Sequence[int], arrays: list[pa.Array], counts: list[int]) -> list[pa.Array]:
    result = []
    position = 0
    for index, count in zip(columns, counts, strict=True):
        if count == 1:
            result.append(arrays[position])
        elif count == 0:
            result.append(pa.array([], file.column(index).path.nodes[0].arrow_type))
        else:
            result.append(pa.concat_arrays(arrays[position : position + count]))
        position += count
    return result


def _read_part(file: OpenedFile, part: PageRows, index: PageIndex | None, tail: Tail | None) -> Steps[pa.Array]:
    steps = part.page.read(index, part.rows)
    try:
        return (yield from (steps if tail is None else served_by(tail, steps)))
    except FormatError as error:
        raise part.located(error, file.key) from error.__cause__


# -- page indexes --------------------------------------------------------------------------------------------------


def _indexes(
    cache: SearchCache, store: str, file: OpenedFile, parts: list[PageRows], tail: Tail | None
) -> FileSteps[list[PageIndex | None]]:
    """The index of every page, from the cache or by one round of reading."""
    keys: list[tuple[Any, ...]] = [(store, file.key, file.size_bytes, p.column.index, p.number) for p in parts]
    found: list[PageIndex | None] = [cache.get(key) for key in keys]
    todo = [i for i, value in enumerate(found) if value is None and _needs_index(parts[i].page)]
    while todo:
        claims = cache.claim_many([keys[i] for i in todo])
        mine = [(i, claim) for i, claim in zip(todo, claims, strict=True) if isinstance(claim, Mine)]
        if mine:
            loaded = yield from _load([(file, parts[i], claim) for i, claim in mine], tail)
            for (i, _), value in zip(mine, loaded, strict=True):
                found[i] = value
        todo = yield from _settle(todo, claims, found)
    return found


def _needs_index(page: PageLayout) -> bool:
    return page.index_ranges() is not None


def _settle(todo: list[int], claims: list[Claim], found: list[PageIndex | None]) -> FileSteps[list[int]]:
    """Take what was found, wait for what others load; what is left must be claimed again."""
    left = []
    for i, claim in zip(todo, claims, strict=True):
        if isinstance(claim, Found):
            found[i] = claim.value
        elif not isinstance(claim, Mine):
            yield Wait(claim.future)
            left.append(i)
    return left


def _load(wanted: list[tuple[OpenedFile, PageRows, Mine]], tail: Tail | None) -> Steps[list[PageIndex]]:
    try:
        steps = [served_by(tail, _load_index(file, part)) for file, part, _ in wanted]
        values = yield from together(steps)
    except LanceError as error:
        for _, _, claim in wanted:
            claim.abandon(error)
        raise
    for (_, _, claim), value in zip(wanted, values, strict=True):
        claim.fulfil(value, value.nbytes)
    return values


def _load_index(file: OpenedFile, part: PageRows) -> Steps[PageIndex]:
    ranges = part.page.index_ranges()
    assert ranges is not None, "asked only for pages that have one"
    fetched: Fetched = yield ranges
    try:
        return part.page.load_index(fetched)
    except FormatError as error:
        raise part.located(error, file.key) from error.__cause__


# -- scans -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Piece:
    """Unit of a scan: some rows of one page.

    row_start, row_end  rows of the file
    num_bytes           what will be read for it, about
    """

    file: OpenedFile
    column: Column
    number: int
    row_start: int
    row_end: int
    num_bytes: int
    tail: Tail | None

    def steps(self) -> Steps[pa.Array]:
        """Read and decode it: one round for a whole page, two for a part of one (nothing is cached)."""
        page = self.column.pages[self.number]
        first = int(self.column.row_starts[self.number])
        whole = self.row_end - self.row_start == int(self.column.row_starts[self.number + 1]) - first
        steps = page.scan() if whole else _read_span(page, self._selection(first))
        try:
            return (yield from (steps if self.tail is None else served_by(self.tail, steps)))
        except FormatError as error:
            part = PageRows(self.column, self.number, RowSelection.span(0, 0))
            raise part.located(error, self.file.key) from error.__cause__

    def _selection(self, first: int) -> RowSelection:
        span = RowSelection.span(self.row_start - first, self.row_end - first)
        return span.scaled(self.column.path.slots_per_row)


def _read_span(page: PageLayout, rows: RowSelection) -> Steps[pa.Array]:
    ranges = page.index_ranges()
    index = None
    if ranges is not None:
        fetched = yield ranges
        index = page.load_index(fetched)
    return (yield from page.read(index, rows))


def pieces(file: OpenedFile, column_index: int, row_start: int, row_end: int, tail: Tail | None) -> list[Piece]:
    """The pieces of one column that hold rows `row_start` to `row_end` of the file, in row order."""
    column = file.column(column_index)
    starts = column.row_starts
    if row_end > file.num_rows:
        raise FormatError(f"rows up to {row_end} wanted; the file has {file.num_rows}", path=file.key)
    first = int(np.searchsorted(starts, row_start, side="right")) - 1
    result = []
    for number in range(max(first, 0), len(column.pages)):
        low, high = int(starts[number]), int(starts[number + 1])
        if low >= row_end:
            break
        a, b = max(low, row_start), min(high, row_end)
        if a < b:
            size = column.info.pages[number].data_bytes
            share = size if b - a == high - low else size * (b - a) // (high - low)
            result.append(Piece(file, column, number, a, b, share, tail))
    return result
