"""The part of a take that concerns one file: locates rows in pages, loads page indexes, reads pages one by one.

`take_files.py` runs these steps for all files of a take at once.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io._kernels import DamagedError
from lance_io.encodings.api import ArrayLayout, NoIndex, PageIndex, RowSelection
from lance_io.encodings.decoded_size import announced_bytes
from lance_io.encodings.rounds import together
from lance_io.encodings.v2_1.fullzip import FullZipPage
from lance_io.encodings.v2_1.miniblock import MiniBlockPage, decode_indexes, index_ranges
from lance_io.encodings.v2_1.page import damage_error
from lance_io.errors import FormatError, LanceError
from lance_io.file.file_steps import FileSteps, Tail, Wait, fetch_each, serve_from_tail
from lance_io.format.error_context import FILE_ERRORS, FileError, add_location, add_row_location
from lance_io.io.cache import CacheHit, LoadOwner
from lance_io.lazy_names import lazy_module
from lance_io.levels.arrays import memory_bytes
from lance_io.levels.join import join_arrays
from lance_io.records import dataclass
from lance_io.spans import distinct, int64s

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from lance_io._kernels import PageRows
    from lance_io.encodings import item_reads
    from lance_io.encodings.api import PageLayout
    from lance_io.encodings.decode_room import DecodeRoom
    from lance_io.encodings.item_reads import ItemSelection
    from lance_io.file.open.column_pages import Column
    from lance_io.file.open.projected_pages import FileView, TableFile
    from lance_io.io.cache import Claim, SearchCache
    from lance_io.levels import item_lists
    from lance_io.spans import Fetched, IntArray, Ranges, Steps

    Windows: TypeAlias = tuple[Ranges, Fetched]
    WindowsOf: TypeAlias = Callable[["Sequence[ColumnRows]"], Ranges | None]
else:
    item_reads = lazy_module("lance_io.encodings.item_reads")  # few takes read items
    item_lists = lazy_module("lance_io.levels.item_lists")


_READ: Final = "read"  # cache marker: rows of a page have been read without building its index
_READ_BYTES: Final = 128


@dataclass(slots=True, eq=False)
class ColumnRows:
    """Wanted rows of one column.

    numbers  pages that hold them, ascending
    rows     i64[n], page-relative, ascending within a page
    counts   rows per page
    indexes  indexes of these pages, None where not loaded yet
    items    i64[n, k], wanted items of the outermost list of each row, ascending; rows may then repeat, each time with
             later items. None for whole rows
    """

    column: Column
    numbers: Sequence[int]
    rows: IntArray
    counts: list[int]
    indexes: list[PageIndex | None]
    items: IntArray | None = None

    def file_rows(self, at: int) -> IntArray:
        """The rows of the page `numbers[at]`, as row numbers of the file."""
        start = sum(self.counts[:at])
        rows: IntArray = self.rows[start : start + self.counts[at]] + self.column.row_starts[self.numbers[at]]
        return rows

    def of_page(self, at: int) -> RowSelection:
        """The rows of the page `numbers[at]`."""
        start = sum(self.counts[:at])
        rows = self.rows[start : start + self.counts[at]]
        return RowSelection.of_rows(rows).scale(self.column.path.slots_per_row)

    def items_of_page(self, at: int) -> ItemSelection:
        """The wanted items of the page `numbers[at]`."""
        assert self.items is not None, "items are wanted"
        start = sum(self.counts[:at])
        of_page = slice(start, start + self.counts[at])
        items = self.items[of_page]
        return item_reads.ItemSelection(self.rows[of_page].repeat(items.shape[1]), np.ascontiguousarray(items).ravel())


def locate_error(
    error: FileError, file: TableFile, column: Column, number: int | None = None, rows: IntArray | None = None
) -> FileError:
    """Add column, page, rows and file to an error.

    rows  i64[n], ascending: the rows of the file that were read
    """
    if rows is not None and number is not None:
        of_page = rows[slice(*rows.searchsorted(column.row_starts[number : number + 2]).tolist())]
        if len(of_page):
            add_row_location(error, int(of_page[0]), int(of_page[-1]))
    return add_location(error, column.where if number is None else f"{column.where}, page {number}", file.key)


def check_rows(file: TableFile, rows: IntArray) -> None:
    if len(rows) and not (rows[0] >= 0 and rows[-1] < file.num_rows):
        raise FormatError(f"row {int(rows[-1])} wanted; the file has {file.num_rows} rows", path=file.key)


def rows_of(
    column: Column, at: int, rows: PageRows, indexes: list[PageIndex | None], items: IntArray | None
) -> ColumnRows:
    """The rows of one column.

    at       position of the column among those that are read
    indexes  page indexes of all these columns
    items    see `ColumnRows`
    """
    first, numbers, counts, relative = rows.of_column(at)
    return ColumnRows(column, numbers, int64s(relative), counts, indexes[first : first + len(numbers)], items)


def every_page(view: FileView) -> list[ColumnRows]:
    """All pages of the columns without any rows, for loading their indexes."""
    none = np.empty(0, dtype=np.int64)
    return [_pages(ColumnRows(column, (), none, [], []), range(len(column.pages))) for column in view.columns]


def _pages(wanted: ColumnRows, numbers: Sequence[int]) -> ColumnRows:
    """Some pages of a column without any rows."""
    return ColumnRows(wanted.column, numbers, wanted.rows[:0], [0] * len(numbers), [None] * len(numbers))


def read_column(
    file: TableFile, wanted: ColumnRows, tail: Tail | None, cache: SearchCache, room: DecodeRoom | None
) -> Steps[pa.Array]:
    """The rows of a column whose pages are decoded one by one.

    room  memory for the decoded rows; None for any size. Raises `PieceTooLargeError` if they exceed it
    """
    column = wanted.column
    if not wanted.numbers:
        return pa.array([], column.path.nodes[0].arrow_type)
    parts = [_read_page(file, wanted, at, tail, cache, room) for at in range(len(wanted.numbers))]
    arrays = yield from together(parts)
    return join_arrays(arrays)


def _read_page(
    file: TableFile, wanted: ColumnRows, at: int, tail: Tail | None, cache: SearchCache, room: DecodeRoom | None
) -> Steps[pa.Array]:
    if wanted.items is None:
        steps = _read_rows(wanted, at, wanted.of_page(at), cache, room)
    else:
        steps = _read_items(wanted, at, wanted.items_of_page(at), cache)
    try:
        array = yield from (steps if tail is None else serve_from_tail(tail, steps))
        if room is not None:
            room.use(memory_bytes(array))
        return array
    except FILE_ERRORS as error:
        raise locate_error(error, file, wanted.column, wanted.numbers[at], wanted.file_rows(at)) from error.__cause__


def _read_rows(
    wanted: ColumnRows, at: int, rows: RowSelection, cache: SearchCache, room: DecodeRoom | None = None
) -> Steps[pa.Array]:
    page, index = wanted.column.pages[wanted.numbers[at]], wanted.indexes[at]
    if index is None and isinstance(page, ArrayLayout):
        return _read_indexed(page, wanted, at, rows, cache)
    if room is not None and isinstance(page, FullZipPage):
        return page.read(index, rows, lambda fetched, lengths: room.expect(announced_bytes(page, fetched, lengths)))
    return page.read(index, rows)


def _read_indexed(
    page: ArrayLayout, wanted: ColumnRows, at: int, rows: RowSelection, cache: SearchCache
) -> Steps[pa.Array]:
    """Read rows of a page and build its index on the way; a large index only at the second read of the page."""
    array, index = yield from page.read_indexed(rows, was_read=_is_again(wanted, at, cache))
    _note_read(wanted, at, index, cache)
    return array


def _is_again(wanted: ColumnRows, at: int, cache: SearchCache) -> bool:
    """Whether the cache has a marker of an earlier read of the page."""
    return cache.get((*wanted.column.keys[wanted.numbers[at]], _READ)) is not None


def _note_read(wanted: ColumnRows, at: int, index: PageIndex | None, cache: SearchCache) -> None:
    """Cache the index of a page that has been read, or a marker if there is no index yet."""
    key = wanted.column.keys[wanted.numbers[at]]
    if index is None:
        cache.put((*key, _READ), _READ, _READ_BYTES)
    else:
        cache.put(key, index, index.nbytes)


def _read_items(wanted: ColumnRows, at: int, selection: ItemSelection, cache: SearchCache) -> Steps[pa.Array]:
    """Items of rows of a page, as lists of exactly these. If the page cannot read single items, reads whole lists."""
    page, index, path = wanted.column.pages[wanted.numbers[at]], wanted.indexes[at], wanted.column.path
    if item_reads.reads_items(page):
        if index is None and isinstance(page, ArrayLayout):
            index = yield from page.find_index(was_read=_is_again(wanted, at, cache))
            _note_read(wanted, at, index, cache)
        items = yield from item_reads.read_items(page, index, selection)
    else:
        rows = distinct(selection.rows)
        lists = yield from _read_rows(wanted, at, RowSelection.of_rows(rows).scale(path.slots_per_row), cache)
        items = item_lists.pick_along(path, lists, rows.searchsorted(selection.rows), selection.items)
    return item_lists.as_lists(path, items, wanted.counts[at])


# -- page indexes --------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _MissingIndex:
    """A page whose index `wanted.indexes[at]` is not cached.

    number  number of the page in its column
    key     cache key of its index
    ranges  bytes of its index; None for mini-block pages, whose indexes are loaded together
    """

    wanted: ColumnRows
    at: int
    number: int
    key: tuple[Any, ...]
    page: PageLayout
    ranges: Ranges | None


def load_indexes(
    cache: SearchCache,
    file: TableFile,
    wanted: list[ColumnRows],
    tail: Tail | None,
    *,
    is_ahead: bool = False,
    windows_of: WindowsOf | None = None,
) -> FileSteps[Windows | None]:
    """Load the indexes that `wanted` lacks, in one round.

    is_ahead    whether to load also those of pages of version 2.0, which reading rows builds on the way
    windows_of  more ranges to request in this round, by the wanted rows
    Returns these ranges and their bytes; None if it requested none.
    """
    todo = _missing_indexes(cache, wanted, is_ahead)
    windows = None
    while todo:
        claims = cache.claim_many([missing.key for missing in todo])
        owned = [(missing, claim) for missing, claim in zip(todo, claims, strict=True) if type(claim) is LoadOwner]
        if owned:
            ranges = None if windows_of is None or windows is not None else windows_of(wanted)
            fetched = yield from _load(cache, file, owned, tail, ranges)
            windows = windows if ranges is None or fetched is None else (ranges, fetched)
        if len(owned) == len(todo):
            break
        todo = yield from _resolve_claims(todo, claims)
    return windows


def keep_indexes(cache: SearchCache, file: TableFile, columns: list[ColumnRows], tail: Tail) -> FileSteps[None]:
    """Load the indexes that the tail brought along: no request. Errors are left to who needs such an index.

    columns  from `every_page`
    """
    held: dict[int, list[int]] = {}
    for missing in _missing_indexes(cache, columns, is_ahead=False):
        if _is_held(missing, tail):
            held.setdefault(id(missing.wanted), []).append(missing.number)
    with suppress(LanceError):
        yield from load_indexes(cache, file, [_pages(each, held.get(id(each), [])) for each in columns], tail)


def _is_held(missing: _MissingIndex, tail: Tail) -> bool:
    if missing.ranges is None:
        return _index_start(missing.page) >= tail.start
    return len(missing.ranges) > 0 and int(missing.ranges.starts.min()) >= tail.start


def _missing_indexes(cache: SearchCache, wanted: list[ColumnRows], is_ahead: bool) -> list[_MissingIndex]:
    """The indexes that must be read. Creates the indexes that need no bytes."""
    missing = []
    for column_rows in wanted:
        pages, keys = column_rows.column.pages, column_rows.column.keys
        for at, index in enumerate(column_rows.indexes):
            if index is not None:
                continue
            number = column_rows.numbers[at]
            page, key = pages[number], keys[number]
            ranges = None if type(page) is MiniBlockPage else page.index_ranges()
            if ranges is not None and not is_ahead and isinstance(page, ArrayLayout):
                continue
            if type(page) is MiniBlockPage or ranges is not None:
                missing.append(_MissingIndex(column_rows, at, number, key, page, ranges))
                continue
            plain_index = column_rows.indexes[at] = _plain_index(page)
            cache.put(key, plain_index, plain_index.nbytes)
    return missing


def _plain_index(page: PageLayout) -> PageIndex:
    """The index of a page whose index needs no bytes."""
    if isinstance(page, ArrayLayout):
        return page.locate(None)
    return page.plain_index() if isinstance(page, FullZipPage) and page.join_key is not None else NoIndex()


def _resolve_claims(todo: list[_MissingIndex], claims: list[Claim]) -> FileSteps[list[_MissingIndex]]:
    """Apply cache hits and wait for loads of others. Returns the pages that must be claimed again."""
    left = []
    for missing, claim in zip(todo, claims, strict=True):
        if isinstance(claim, CacheHit):
            missing.wanted.indexes[missing.at] = claim.value
        elif not isinstance(claim, LoadOwner):
            yield Wait(claim.future)
            left.append(missing)
    return left


def _load(
    cache: SearchCache,
    file: TableFile,
    owned: list[tuple[_MissingIndex, LoadOwner]],
    tail: Tail | None,
    windows: Ranges | None,
) -> Steps[Fetched | None]:
    groups = _group([missing for missing, _ in owned], tail)
    wanted = [_ranges(group) for group in groups]
    if windows is not None:
        wanted.append(windows)
    try:
        fetched = yield from fetch_each(wanted, tail)
        for group, part in zip(groups, fetched, strict=False):  # the windows are behind the groups
            _load_group(file, group, part)
    except LanceError as error:
        for _, claim in owned:
            claim.abandon(error)
        raise
    loaded: list[tuple[LoadOwner, Any, int]] = []
    for missing, claim in owned:
        value: Any = missing.wanted.indexes[missing.at]
        loaded.append((claim, value, value.nbytes))
    cache.fulfil_many(loaded)
    return None if windows is None else fetched[-1]


def _group(missing: list[_MissingIndex], tail: Tail | None) -> list[list[_MissingIndex]]:
    """Group pages whose indexes are loaded together: mini-block pages inside the tail, and those outside."""
    groups: list[list[_MissingIndex]] = []
    near: list[_MissingIndex] = []
    far: list[_MissingIndex] = []
    for page in missing:
        if page.ranges is not None:
            groups.append([page])
        elif tail is not None and _index_start(page.page) >= tail.start:
            near.append(page)
        else:
            far.append(page)
    return [*groups, *(group for group in (near, far) if group)]


def _index_start(page: Any) -> int:
    offsets: tuple[int, ...] = page.source.buffer_offsets
    return min(offsets[0], *offsets[2:]) if len(offsets) > 2 else offsets[0]


def _ranges(group: list[_MissingIndex]) -> Ranges:
    pages: list[Any] = [missing.page for missing in group]
    ranges = group[0].ranges
    return index_ranges(pages) if ranges is None else ranges


def _load_group(file: TableFile, group: list[_MissingIndex], fetched: Fetched) -> None:
    """Decode the indexes of a group. Raises FormatError naming the column and page of a damaged one."""
    try:
        if group[0].ranges is not None:
            values: Sequence[PageIndex] = [group[0].page.load_index(fetched)]
        else:
            pages: list[Any] = [missing.page for missing in group]
            values = decode_indexes(pages, fetched)
    except DamagedError as error:
        at = error.args[1] if len(error.args) > 1 else 0
        raise locate_error(damage_error(error), file, group[at].wanted.column, group[at].number) from None
    except FILE_ERRORS as error:
        raise locate_error(error, file, group[0].wanted.column, group[0].number) from error.__cause__
    for missing, value in zip(group, values, strict=True):
        missing.wanted.indexes[missing.at] = value
