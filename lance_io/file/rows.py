"""Selected rows of one file, as computations.

`take` is what both drivers run for random access: open the file, load the page indexes that the cache lacks (one
round), read the chunks or values that hold the rows (one round, two for large full-zip pages).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_io.encodings.api import PageIndex, RowSelection
from lance_io.encodings.v2_1.miniblock import read_rows
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
class ColumnRows:
    """Rows wanted of one column.

    numbers  pages that hold them, ascending
    rows     i64[n], page-relative, ascending within a page
    cuts     i64[pages + 1], where the rows of each page begin in `rows`
    """

    column: Column
    numbers: list[int]
    rows: IntArray
    cuts: IntArray

    @property
    def pages(self) -> list[PageLayout]:
        """Layouts of the pages."""
        pages = self.column.pages
        return [pages[number] for number in self.numbers]

    @property
    def keys(self) -> list[tuple[Any, ...]]:
        """Cache keys of the pages' indexes."""
        keys = self.column.keys
        return [keys[number] for number in self.numbers]

    def of_page(self, at: int) -> RowSelection:
        """The rows of the page `numbers[at]`."""
        rows = self.rows[self.cuts[at] : self.cuts[at + 1]]
        return RowSelection.of_rows(rows).scaled(self.column.path.slots_per_row)


def located(error: FormatError, file: OpenedFile, column: Column, number: int | None = None) -> FormatError:
    """The error, told where it was found."""
    error.path = file.key
    return error.within(column.where if number is None else f"{column.where}, page {number}")


def take(
    context: ReadContext, ref: FileRef, columns: Sequence[int], types: Sequence[pa.DataType], rows: IntArray
) -> FileSteps[list[pa.Array]]:
    """Rows of some columns of a file, one array per column.

    types  leaf type that the table declares for each column
    rows   i64[n], ascending, each once
    """
    file, tail = yield from opened(context, ref, columns)
    _check_rows(file, rows)
    wanted = [_split_rows(typed_column(file, index, dtype), rows) for index, dtype in zip(columns, types, strict=True)]
    indexes = yield from _indexes(context.cache, file, wanted, tail)
    return (yield from together([_read_column(file, w, i, tail) for w, i in zip(wanted, indexes, strict=True)]))


def typed_column(file: OpenedFile, index: int, dtype: pa.DataType) -> Column:
    """A column of a file, checked to have the leaf type that the table declares."""
    column = file.column(index)
    try:
        column.expect_type(dtype)
    except FormatError as error:
        error.path = file.key
        raise
    return column


def _check_rows(file: OpenedFile, rows: IntArray) -> None:
    if len(rows) and not (rows[0] >= 0 and rows[-1] < file.num_rows):
        raise FormatError(f"row {int(rows[-1])} wanted; the file has {file.num_rows} rows", path=file.key)


_NO_CUTS = np.zeros(1, dtype=np.int64)


def _split_rows(column: Column, rows: IntArray) -> ColumnRows:
    """The rows by page."""
    count = len(rows)
    if not count:
        return ColumnRows(column, [], rows, _NO_CUTS)
    starts = column.row_starts
    if len(starts) == 2:
        return ColumnRows(column, [0], rows, np.array([0, count], dtype=np.int64))
    if count == 1:
        number = int(starts.searchsorted(rows[0], side="right")) - 1
        return ColumnRows(column, [number], rows - starts[number], np.array([0, 1], dtype=np.int64))
    cuts = rows.searchsorted(starts)
    counts = np.diff(cuts)
    touched = np.flatnonzero(counts)
    relative = rows - np.repeat(starts[touched], counts[touched])
    return ColumnRows(column, touched.tolist(), relative, np.append(cuts[touched], count))


def _read_column(
    file: OpenedFile, wanted: ColumnRows, indexes: list[PageIndex | None], tail: Tail | None
) -> Steps[pa.Array]:
    column = wanted.column
    if not wanted.numbers:
        return pa.array([], column.path.nodes[0].arrow_type)
    if column.is_joined:
        steps = read_rows(column.pages[0], indexes, wanted.rows, wanted.cuts)  # type: ignore[arg-type]  # is_joined
        try:
            return (yield from (steps if tail is None else served_by(tail, steps)))
        except FormatError as error:
            raise located(error, file, column) from error.__cause__
    parts = [_read_page(file, wanted, at, index, tail) for at, index in enumerate(indexes)]
    arrays = yield from together(parts)
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _read_page(
    file: OpenedFile, wanted: ColumnRows, at: int, index: PageIndex | None, tail: Tail | None
) -> Steps[pa.Array]:
    steps = wanted.pages[at].read(index, wanted.of_page(at))
    try:
        return (yield from (steps if tail is None else served_by(tail, steps)))
    except FormatError as error:
        raise located(error, file, wanted.column, wanted.numbers[at]) from error.__cause__


# -- page indexes --------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Missing:
    """A page whose index is not in the cache: `found[column][at]` is its place in the result."""

    wanted: ColumnRows
    at: int
    place: list[PageIndex | None]

    @property
    def page(self) -> PageLayout:
        return self.wanted.column.pages[self.wanted.numbers[self.at]]

    @property
    def key(self) -> tuple[Any, ...]:
        return self.wanted.column.keys[self.wanted.numbers[self.at]]


def _indexes(
    cache: SearchCache, file: OpenedFile, wanted: list[ColumnRows], tail: Tail | None
) -> FileSteps[list[list[PageIndex | None]]]:
    """The index of every page, from the cache or by one round of reading."""
    found = [cache.get_many(one.keys) for one in wanted]
    todo = [
        _Missing(one, at, place)
        for one, place in zip(wanted, found, strict=True)
        if None in place
        for at, index in enumerate(place)
        if index is None
    ]
    todo = [one for one in todo if one.page.index_ranges() is not None]
    while todo:
        claims = cache.claim_many([one.key for one in todo])
        mine = [(one, claim) for one, claim in zip(todo, claims, strict=True) if isinstance(claim, Mine)]
        if mine:
            yield from _load(file, mine, tail)
        todo = yield from _settle(todo, claims)
    return found


def _settle(todo: list[_Missing], claims: list[Claim]) -> FileSteps[list[_Missing]]:
    """Take what was found, wait for what others load; what is left must be claimed again."""
    left = []
    for one, claim in zip(todo, claims, strict=True):
        if isinstance(claim, Found):
            one.place[one.at] = claim.value
        elif not isinstance(claim, Mine):
            yield Wait(claim.future)
            left.append(one)
    return left


def _load(file: OpenedFile, mine: list[tuple[_Missing, Mine]], tail: Tail | None) -> Steps[None]:
    try:
        values = yield from together([served_by(tail, _load_index(file, one)) for one, _ in mine])
    except LanceError as error:
        for _, claim in mine:
            claim.abandon(error)
        raise
    for (one, claim), value in zip(mine, values, strict=True):
        one.place[one.at] = value
        claim.fulfil(value, value.nbytes)


def _load_index(file: OpenedFile, one: _Missing) -> Steps[PageIndex]:
    ranges = one.page.index_ranges()
    assert ranges is not None, "asked only for pages that have one"
    fetched: Fetched = yield ranges
    try:
        return one.page.load_index(fetched)
    except FormatError as error:
        raise located(error, file, one.wanted.column, one.wanted.numbers[one.at]) from error.__cause__
