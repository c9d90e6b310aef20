"""Rows wanted of one file: which pages hold them, the indexes of those pages, and pages that are read by themselves.

The parts of a take that concern one file; `take.py` runs them for all files of a take at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_io.encodings.api import PageIndex, RowSelection
from lance_io.errors import FormatError, LanceError, UnsupportedError
from lance_io.file.steps import FileSteps, Tail, Wait, served_by, together
from lance_io.format.places import REFUSALS, placed
from lance_io.io.cache import Found, Mine

if TYPE_CHECKING:
    from lance_io.encodings.api import PageLayout
    from lance_io.file.opened import Column, OpenedFile
    from lance_io.io.cache import Claim, SearchCache
    from lance_io.spans import Fetched, IntArray, Steps


@dataclass(slots=True, eq=False)
class ColumnRows:
    """Rows wanted of one column.

    numbers  pages that hold them, ascending
    rows     i64[n], page-relative, ascending within a page
    counts   rows per page
    """

    column: Column
    numbers: list[int]
    rows: IntArray
    counts: list[int]

    @property
    def keys(self) -> list[tuple[Any, ...]]:
        """Cache keys of the pages' indexes."""
        keys = self.column.keys
        return [keys[number] for number in self.numbers]

    def of_page(self, at: int) -> RowSelection:
        """The rows of the page `numbers[at]`."""
        start = sum(self.counts[:at])
        rows = self.rows[start : start + self.counts[at]]
        return RowSelection.of_rows(rows).scaled(self.column.path.slots_per_row)


def located(
    error: FormatError | UnsupportedError, file: OpenedFile, column: Column, number: int | None = None
) -> FormatError | UnsupportedError:
    """The error, told where it was found."""
    return placed(error, column.where if number is None else f"{column.where}, page {number}", file.key)


def typed_column(file: OpenedFile, index: int, dtype: pa.DataType) -> Column:
    """A column of a file, checked to have the type and nesting that the table declares."""
    column = file.column(index)
    try:
        column.expect_type(dtype)
    except FormatError as error:
        error.path = file.key
        raise
    return column


def check_rows(file: OpenedFile, rows: IntArray) -> None:
    if len(rows) and not (rows[0] >= 0 and rows[-1] < file.num_rows):
        raise FormatError(f"row {int(rows[-1])} wanted; the file has {file.num_rows} rows", path=file.key)


def split_rows(column: Column, rows: IntArray) -> ColumnRows:
    """The rows by page."""
    count = len(rows)
    if not count:
        return ColumnRows(column, [], rows, [])
    starts = column.row_starts
    if len(starts) == 2:
        return ColumnRows(column, [0], rows, [count])
    if count == 1:
        number = int(starts.searchsorted(rows[0], side="right")) - 1
        return ColumnRows(column, [number], rows - starts[number], [1])
    cuts = rows.searchsorted(starts)
    counts = np.diff(cuts)
    touched = np.flatnonzero(counts)
    relative = rows - np.repeat(starts[touched], counts[touched])
    return ColumnRows(column, touched.tolist(), relative, counts[touched].tolist())


def read_column(
    file: OpenedFile, wanted: ColumnRows, indexes: list[PageIndex | None], tail: Tail | None
) -> Steps[pa.Array]:
    column = wanted.column
    if not wanted.numbers:
        return pa.array([], column.path.nodes[0].arrow_type)
    parts = [_read_page(file, wanted, at, index, tail) for at, index in enumerate(indexes)]
    arrays = yield from together(parts)
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _read_page(
    file: OpenedFile, wanted: ColumnRows, at: int, index: PageIndex | None, tail: Tail | None
) -> Steps[pa.Array]:
    steps = wanted.column.pages[wanted.numbers[at]].read(index, wanted.of_page(at))
    try:
        return (yield from (steps if tail is None else served_by(tail, steps)))
    except REFUSALS as error:
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


def load_indexes(
    cache: SearchCache,
    file: OpenedFile,
    wanted: list[ColumnRows],
    found: list[list[PageIndex | None]],
    tail: Tail | None,
) -> FileSteps[None]:
    """Fill the gaps in `found`, the indexes that the cache had: one round of reading."""
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
    except REFUSALS as error:
        raise located(error, file, one.wanted.column, one.wanted.numbers[one.at]) from error.__cause__
