"""Random access over all files of a take at once.

    open     opens files and loads page indexes that are not cached: one or two rounds per file, independent of others
    read     fetches the chunks or values of the rows from all files in one round (two for large full-zip pages)
    decode   decodes mini-block and plain full-zip pages of all columns and files in one kernel call, others one by one

A computation on several files yields a list of (file, request) and receives the list of answers, which is one round;
or it yields independent computations on single files (`file_requests.py` has both drivers). The cost of a take depends
on its pages, not on kernel calls.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby, pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import pyarrow as pa

from lance_io import _kernels
from lance_io._kernels import DamagedError
from lance_io.encodings.rounds import fetch, together
from lance_io.encodings.v2_1.page import damage_error
from lance_io.errors import FormatError, LanceError
from lance_io.file.file_steps import (
    FilesSteps,
    FileSteps,
    Independent,
    ReadJoined,
    Tail,
    serve_from_tail,
    side_by_side,
)
from lance_io.file.open.open_file import known_files, open_cached
from lance_io.file.open.projected_pages import is_array, stride_of
from lance_io.file.take.page_rows import (
    ColumnRows,
    check_rows,
    every_page,
    keep_indexes,
    load_indexes,
    locate_error,
    read_column,
    rows_of,
)
from lance_io.format.error_context import add_page_locations
from lance_io.levels.retype import concat
from lance_io.limits import MIB, TAKE_FILES_AT_ONCE
from lance_io.runtime import cpu_count
from lance_io.spans import Fetched, IntArray, Ranges, int64s, no_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lance_io._kernels import PageRows
    from lance_io.encodings.decode_room import DecodeRoom
    from lance_io.file.open.file_source import FileRef, FragmentSource, ReadContext
    from lance_io.file.open.leaf_projection import FileColumns, Projection
    from lance_io.file.open.projected_pages import FileView, JoinablePages, TableFile
    from lance_io.file.take.page_rows import Windows, WindowsOf
    from lance_io.format.error_context import FileError
    from lance_io.io.cache import SearchCache
    from lance_io.levels.layout import BatchLayout

    Pick = tuple[FragmentSource, IntArray]
    Items = Mapping[int, IntArray]

T = TypeVar("T")
Taken: TypeAlias = "list[pa.Array] | pa.RecordBatch"
"""The field arrays of a projection."""
Builder: TypeAlias = "Callable[[_kernels.Leaf], pa.Array]"
WARMED_SHARE: Final = 0.75  # of the cache's capacity, at which warming stops
_NO_ITEMS: Final[Mapping[int, IntArray]] = MappingProxyType({})
IN_PLACE_BYTES_MIN: Final = 4 * MIB  # copying fewer bytes is cheaper than decoding pages one by one


class FileTake:
    """One file of a take: the columns and rows to read, and the state of the take.

    split      the rows by column and page
    pages      numbers of the pages that hold them, see `FileView`
    indexes    indexes of these pages
    row_bytes  approximate memory of a row
    joined     per column: its number among the joined columns, which decode together; None for the others
    alone      positions of the columns that are decoded alone
    arrays     decoded arrays of these, by leaf id
    items      `ColumnRows.items` by leaf id, for leaves of which only list items are wanted
    """

    __slots__ = (
        "alone",
        "arrays",
        "file",
        "file_columns",
        "indexes",
        "items",
        "joined",
        "pages",
        "ref",
        "row_bytes",
        "rows",
        "split",
        "tail",
        "view",
    )

    def __init__(self, file_columns: FileColumns, rows: IntArray, items: Items = _NO_ITEMS) -> None:
        self.file_columns = file_columns
        self.ref = file_columns.ref
        self.rows = rows
        self.items = items
        self.file: TableFile
        self.view: FileView
        self.tail: Tail | None = None
        self.split: PageRows
        self.pages: list[int]
        self.indexes: list[Any]
        self.joined: list[int | None]
        self.alone: list[int] = []
        self.arrays: dict[int, pa.Array] = {}

    def begin(self, file: TableFile, tail: Tail | None) -> None:
        """Attach the opened file, and group the rows by column and page."""
        self.file, self.tail = file, tail
        view = self.view = file.view(self.file_columns)
        self.row_bytes = view.row_bytes_of(self.items) if self.items else view.row_bytes
        check_rows(file, self.rows)
        self.split = self.view.split(self.rows)
        self.pages = self.split.pages

    def part(self, start: int, end: int) -> FileTake:
        """A take of rows `start` to `end` of these, from the same open file."""
        items = {leaf_id: leaf_items[start:end] for leaf_id, leaf_items in self.items.items()}
        part = FileTake(self.file_columns, self.rows[start:end], items)
        part.begin(self.file, self.tail)
        known = dict(zip(self.pages, self.indexes, strict=True))
        part.indexes = [known[page] for page in part.pages]
        return part

    def rows_of(self, at: int) -> ColumnRows:
        """The rows of one column."""
        items = self.items.get(self.file_columns.leaf_ids[at]) if self.items else None
        return rows_of(self.view.columns[at], at, self.split, self.indexes, items)

    def join_key(self, at: int) -> str | None:
        """`Column.join_key` of the wanted pages of a column; None if their indexes do not locate the rows yet."""
        if self.file_columns.leaf_ids[at] in self.items:
            return None
        first, numbers, _, _ = self.split.of_column(at)
        key = self.view.columns[at].join_key(numbers)
        is_known = key is None or not is_array(self.first_page(at))
        return key if is_known or self.is_located(first, first + len(numbers)) else None

    def is_located(self, first: int, end: int) -> bool:
        """Whether kernels can read the pages `first` to `end` of `indexes`."""
        return all([getattr(index, "page", None) is not None for index in self.indexes[first:end]])

    def has_located(self, joinable: JoinablePages) -> bool:
        """Whether kernels can read the pages of all joined columns."""
        if self.is_located(0, len(self.indexes)):
            return True
        columns = [self.split.of_column(at) for at, key in enumerate(joinable.join_keys) if key is not None]
        return all([self.is_located(first, first + len(numbers)) for first, numbers, _, _ in columns])

    def first_page(self, at: int) -> Any:
        """The first wanted page of a column."""
        return self.view.columns[at].pages[self.split.of_column(at)[1][0]]

    def open(self, context: ReadContext) -> FileSteps[None]:
        """Open the file and load the indexes of the wanted pages."""
        file, tail = yield from open_cached(context, self.ref, self.file_columns.columns)
        self.begin(file, tail if context.ends is None else context.ends.kept(self.ref.key, tail))
        self.indexes = context.cache.get_many([self.view.keys[page] for page in self.pages])
        if None in self.indexes:
            yield from self.load_indexes(context.cache)

    def load_indexes(self, cache: SearchCache, windows_of: WindowsOf | None = None) -> FileSteps[Windows | None]:
        """Load the missing indexes. See `page_rows.load_indexes`."""
        wanted = [self.rows_of(at) for at in range(len(self.view.columns))]
        windows = yield from load_indexes(cache, self.file, wanted, self.tail, windows_of=windows_of)
        self.indexes = [index for column_rows in wanted for index in column_rows.indexes]
        return windows

    def joined_pages(self) -> list[Any]:
        """The kernels' pages of joined columns, and None for others."""
        return [getattr(index, "page", None) for index in self.indexes]

    def read(
        self, cache: SearchCache, ranges: Ranges | None, room: DecodeRoom | None
    ) -> FileSteps[tuple[Fetched | None, list[pa.Array]]]:
        """The data round: fetch the `ranges` of joined columns, and read the other columns."""
        alone = [read_column(self.file, self.rows_of(at), self.tail, cache, room) for at in self.alone]
        if ranges is None:
            return None, (yield from together(alone))
        fetched, *arrays = yield from together([serve_from_tail(self.tail, fetch(ranges)), *alone])
        return fetched, arrays


_Run: TypeAlias = list[tuple[FileTake, int]]
"""Consecutive parts of one leaf: a file and the position among its columns."""


def take(
    context: ReadContext, projection: Projection, picks: Sequence[Pick], layout: BatchLayout | None = None
) -> FilesSteps[Taken]:
    """Rows of fragments, one array per projected field, fragments one after the other.

    picks   (fragment, i64[n] physical offsets, ascending, each once)
    layout  of a batch of exactly these fields: returns a batch instead if one kernel call can build it
    """
    by_pick = yield from prepare_files(context, projection, picks)
    return (yield from read_prepared(context, projection, by_pick, [len(rows) for _, rows in picks], layout))


def prepare_files(
    context: ReadContext, projection: Projection, picks: Sequence[Pick], items: Sequence[Items] | None = None
) -> FilesSteps[list[list[FileTake]]]:
    """Everything of a take before its data round: opens the files of each fragment and loads page indexes.

    items  per fragment, see `FileTake`; None for whole rows
    """
    wanted = [_NO_ITEMS] * len(picks) if items is None else items
    by_pick = [
        [FileTake(file_columns, rows, pick_items) for file_columns in projection.locate(source)]
        for (source, rows), pick_items in zip(picks, wanted, strict=True)
    ]
    yield from _prepare(context, [job for jobs in by_pick for job in jobs])
    return by_pick


def read_prepared(
    context: ReadContext,
    projection: Projection,
    by_pick: list[list[FileTake]],
    num_rows: list[int],
    layout: BatchLayout | None,
    room: DecodeRoom | None = None,
) -> FilesSteps[Taken]:
    """The data round of a take, and decoding.

    by_pick   the result of `prepare_files`
    num_rows  number of wanted rows of each fragment
    room      memory for the decoded rows; None for any size. Raises `PieceTooLargeError` if they exceed it
    """
    jobs = [job for jobs in by_pick for job in jobs]
    leaves = _Leaves(projection, by_pick, num_rows)
    joined = _Joined(jobs, leaves.builders, room)
    fetched: Fetched | Sequence[Fetched | None]
    if all([not job.alone and job.tail is None for job in jobs]):
        fetched = yield from _read_plain(jobs, joined)
    else:
        fetched = yield from _read(context, jobs, joined, room)
    decoded = joined.decode(fetched, layout if leaves.is_joined else None)
    return leaves.assemble(decoded) if type(decoded) is list else decoded


def warm(context: ReadContext, projection: Projection, sources: Sequence[FragmentSource]) -> FilesSteps[None]:
    """Cache files and page indexes that takes of these columns need.

    Reads `TAKE_FILES_AT_ONCE` files concurrently until the cache is nearly full: more would evict the first ones.
    """
    cache = context.cache
    for start in range(0, len(sources), TAKE_FILES_AT_ONCE):
        group = sources[start : start + TAKE_FILES_AT_ONCE]
        parts = [file_columns for source in group for file_columns in projection.locate(source)]
        yield Independent([(file_columns.ref, _warm_file(context, file_columns)) for file_columns in parts])
        if cache.stats.bytes > WARMED_SHARE * cache.capacity_bytes:
            return


def open_files(context: ReadContext, projection: Projection, sources: Sequence[FragmentSource]) -> FilesSteps[None]:
    """Open the files that takes of these columns need, in one round; errors are left to the take.

    Page indexes that come with the ends of files are kept.
    """
    parts = [file_columns for source in sources for file_columns in projection.locate(source)]
    known = known_files(context, [part.ref for part in parts])
    missing = [part for part, file in zip(parts, known, strict=True) if file is None]
    if missing:
        yield Independent([(part.ref, _try_to_open(context, part)) for part in missing])


def _try_to_open(context: ReadContext, file_columns: FileColumns) -> FileSteps[None]:
    with suppress(LanceError):
        file, tail = yield from open_cached(context, file_columns.ref, file_columns.columns)
        if tail is not None:
            yield from keep_indexes(context.cache, file, every_page(file.view(file_columns)), tail)


def _warm_file(context: ReadContext, file_columns: FileColumns) -> FileSteps[None]:
    file, tail = yield from open_cached(context, file_columns.ref, file_columns.columns)
    yield from load_indexes(context.cache, file, every_page(file.view(file_columns)), tail, is_ahead=True)


def _prepare(context: ReadContext, jobs: list[FileTake]) -> FilesSteps[None]:
    """Open every file and load the indexes of the wanted pages: from the cache, otherwise file by file."""
    cache = context.cache
    known = known_files(context, [job.ref for job in jobs])
    ready = []
    todo: list[tuple[FileRef, FileSteps[Any]]] = []
    for job, file in zip(jobs, known, strict=True):
        if file is None or file.missing(job.file_columns.columns):
            todo.append((job.ref, job.open(context)))
        else:
            job.begin(file, None if context.ends is None else context.ends.find(job.ref.key))
            ready.append(job)
    indexes = cache.get_many([job.view.keys[page] for job in ready for page in job.pages])
    at = 0
    for job in ready:
        end = at + len(job.pages)
        job.indexes = indexes[at:end]
        at = end
        if None in job.indexes:
            todo.append((job.ref, job.load_indexes(cache)))
    if todo:
        yield Independent(todo)


def _read(
    context: ReadContext, jobs: list[FileTake], joined: _Joined, room: DecodeRoom | None
) -> FilesSteps[Sequence[Fetched | None]]:
    """The data round if some columns are read alone, or a tail serves bytes.

    Returns the fetched bytes of joined pages per file, None for a file without ranges.
    """
    wanted = joined.plan()
    for ranges in wanted:
        if ranges is not None:
            ranges.keep = True  # other columns may take more rounds, and these bytes are decoded after the last round
    cache = context.cache
    results = yield from side_by_side(
        [(job.ref, job.read(cache, ranges, room)) for job, ranges in zip(jobs, wanted, strict=True)]
    )
    for job, (_, arrays) in zip(jobs, results, strict=True):
        job.arrays = {job.file_columns.leaf_ids[at]: array for at, array in zip(job.alone, arrays, strict=True)}
    return [fetched for fetched, _ in results]


def _read_plain(jobs: list[FileTake], joined: _Joined) -> FilesSteps[Fetched | Sequence[Fetched | None]]:
    """The data round if all columns of all files are joined and all bytes must be read, as of most files.

    Returns the fetched bytes of joined pages: of all files together, or per file, None for a file without ranges and
    for a file that is decoded already.
    """
    ranges, bounds = joined.plan_together()
    wanted = [at for at, (first, end) in enumerate(pairwise(bounds)) if first < end]
    refs = [jobs[at].ref for at in wanted]
    by_file: list[Fetched | None] = [None] * len(jobs)
    if not wanted:
        return by_file
    if len(wanted) == 1:
        by_file[wanted[0]] = (yield [(refs[0], ranges)])[0]
        return by_file
    fetched: Fetched | list[Fetched | None] = yield ReadJoined(
        refs, ranges, list(dict.fromkeys(bounds)), lambda at, file_bytes: joined.decode_file(wanted[at], file_bytes)
    )
    if isinstance(fetched, Fetched):
        return fetched
    for at, file_bytes in zip(wanted, fetched, strict=True):
        by_file[at] = file_bytes
    return by_file


# -- joined pages: decoded together ---------------------------------------------------------------------------------


class _Joined:
    """Mini-block and plain full-zip pages of all files, by column. One kernel call plans them and one decodes them.

    builders  array builder of each column
    room      memory for the decoded rows, see `read_prepared`
    """

    def __init__(self, jobs: list[FileTake], builders: list[Builder], room: DecodeRoom | None) -> None:
        self._jobs = jobs
        self._builders = builders
        self._room = room
        self._plan: _kernels.PagesPlan

    def plan_together(self) -> tuple[Ranges, list[int]]:
        """The byte ranges to fetch, file by file, and the bounds of each file's ranges."""
        if not self._builders:
            return no_ranges(), [0] * (len(self._jobs) + 1)
        files = [
            (job.split, job.joined_pages() if job.alone else [index.page for index in job.indexes], job.joined)
            for job in self._jobs
        ]
        self._plan = _kernels.PagesPlan(files, len(self._builders))
        starts, ends, bounds = self._plan.ranges()
        return Ranges(int64s(starts), int64s(ends)), bounds

    def plan(self) -> list[Ranges | None]:
        """The byte ranges to fetch of each file; None for a file without joined pages."""
        ranges, bounds = self.plan_together()
        return [ranges.part(first, end) if first < end else None for first, end in pairwise(bounds)]

    def decode_file(self, at: int, fetched: Fetched) -> None:
        """Decode the pages of one file before `decode`, which then requires this of all files. Raises FormatError."""
        try:
            self._plan.decode_file(at, fetched.buffer, fetched.offsets, self._bytes_max())
        except DamagedError as error:
            raise self._locate(error) from None

    def decode(self, fetched: Fetched | Sequence[Fetched | None], layout: BatchLayout | None) -> Taken:
        """One array per column, or a batch of them. Raises FormatError naming file, column and page.

        fetched  the planned ranges of all files together, or per file; None for a file without ranges and for a file
                 that is decoded already
        layout   layout of the batch, None for arrays
        """
        if not self._builders:
            return []
        try:
            layouts = None if layout is None else layout.columns
            leaves = self._plan.decode(_buffers(fetched), cpu_count, layouts, self._bytes_max())
        except DamagedError as error:
            raise self._locate(error) from None
        if not isinstance(leaves, list):
            assert layout is not None
            return layout.batch(leaves)
        return [build(leaf) for build, leaf in zip(self._builders, leaves, strict=True)]

    def _bytes_max(self) -> int | None:
        return None if self._room is None else self._room.left_bytes

    def _locate(self, error: DamagedError) -> FileError:
        refused: FileError = damage_error(error)
        if len(error.args) < 2:
            return refused
        file, page = error.args[1]
        job = self._jobs[file]
        column, number = job.view.page(job.pages[page])
        return locate_error(refused, job.file, column, number, job.rows)


def _buffers(fetched: Fetched | Sequence[Fetched | None]) -> tuple[Any, IntArray] | list[tuple[Any, IntArray] | None]:
    """The fetched bytes in the form that `PagesPlan.decode` takes."""
    if isinstance(fetched, Fetched):
        return fetched.buffer, fetched.offsets
    return [None if of_file is None else (of_file.buffer, of_file.offsets) for of_file in fetched]


# -- leaves to fields ------------------------------------------------------------------------------------------------


def _owner(jobs: list[FileTake], leaf_id: int) -> FileTake | None:
    """The file of a fragment that has a leaf; the last one if several claim it."""
    for job in reversed(jobs):
        if leaf_id in job.file_columns.positions:
            return job
    return None


def _is_read_in_place(num_rows: int, stride_bytes: int) -> bool:
    """Whether avoiding a copy of `num_rows` values, which are stored as in memory, is worth decoding pages alone."""
    return num_rows * stride_bytes > IN_PLACE_BYTES_MIN


class _Leaves:
    """The decoded arrays that make up each leaf of each field.

    Usually each fragment has one file with all leaves and their pages are joinable: then all files are read the same
    way. Otherwise this class decides leaf by leaf. A field whose leaves are in every fragment is assembled once for all
    rows; other fields are assembled per fragment, because a leaf that a fragment lacks reads as null there.

    builders  array builders of the joined columns
    """

    def __init__(self, projection: Projection, by_pick: list[list[FileTake]], num_rows: list[int]) -> None:
        self.projection = projection
        self.num_rows = num_rows
        self._by_pick = by_pick
        self._joinable = self._find_joinable()
        if self._joinable is not None:
            self.builders = self._joinable.builders
            for (job,) in by_pick:
                job.joined, job.alone = self._joinable.joined, self._joinable.alone
            return
        builders: list[Builder] = []
        self.builders = builders
        self._parts: dict[tuple[int, int], list[int | tuple[FileTake, int]]] = {}
        self._whole = [all(self._is_everywhere(path.leaf.id) for path in paths) for paths in projection.paths]
        for jobs in by_pick:
            for job in jobs:
                job.joined, job.alone = [None] * len(job.file_columns.columns), []
        for paths, is_whole in zip(projection.paths, self._whole, strict=True):
            for path in paths:
                leaf_id = path.leaf.id
                owners = [_owner(jobs, leaf_id) for jobs in by_pick]
                if is_whole:
                    self._parts[leaf_id, -1] = self._collect(leaf_id, owners, builders)
                else:
                    for number, owner in enumerate(owners):
                        self._parts[leaf_id, number] = self._collect(leaf_id, [owner], builders)

    @property
    def is_joined(self) -> bool:
        """Whether every leaf is one joined column, in the order of the projection."""
        return self._joinable is not None and not self._joinable.alone

    def _find_joinable(self) -> JoinablePages | None:
        """The join state that all files have in common (the usual case), otherwise None."""
        first = None
        for jobs in self._by_pick:
            if len(jobs) != 1 or not jobs[0].file_columns.is_all or not jobs[0].pages or jobs[0].items:
                return None
            joinable = jobs[0].view.joinable(jobs[0].pages)
            if joinable is None or (first is not None and joinable.join_keys != first.join_keys):
                return None
            if joinable.needs_located and not jobs[0].has_located(joinable):
                return None
            first = first or joinable
        if first is None or _is_read_in_place(sum(self.num_rows), first.stride_bytes):
            return None
        return first

    def _is_everywhere(self, leaf_id: int) -> bool:
        return all(_owner(jobs, leaf_id) is not None for jobs in self._by_pick)

    def _collect(
        self, leaf_id: int, owners: Sequence[FileTake | None], builders: list[Builder]
    ) -> list[int | tuple[FileTake, int]]:
        """Choose the joined parts of a leaf. A part is the number of a joined column, or a file and the leaf's id."""
        owned = [
            (job, job.file_columns.positions[leaf_id])
            for job in owners
            if job is not None and leaf_id in job.file_columns.positions
        ]
        parts: list[int | tuple[FileTake, int]] = []
        for key, run in groupby(owned, lambda part: part[0].join_key(part[1])):
            group = list(run)
            page = None if key is None else group[0][0].first_page(group[0][1])
            stride_bytes = 0 if page is None else stride_of(page)
            if page is not None and not _is_read_in_place(sum([len(job.rows) for job, _ in group]), stride_bytes):
                for job, at in group:
                    job.joined[at] = len(builders)
                parts.append(len(builders))
                builders.append(page.build)
                continue
            for job, at in group:
                parts.append((job, leaf_id))
                job.alone.append(at)
        return parts

    def assemble(self, columns: list[pa.Array]) -> list[pa.Array]:
        """The field arrays, from the decoded arrays of the joined columns."""
        num_rows = sum(self.num_rows)
        if self._joinable is not None:
            if self.projection.is_flat and self.is_joined:
                return columns
            leaves = self._joined_leaves(self._joinable, columns)
            return [self._assemble(at, -1, leaves, num_rows) for at in range(len(self.projection.paths))]
        result = []
        for at, is_whole in enumerate(self._whole):
            if is_whole:
                result.append(self._field(at, -1, num_rows, columns))
                continue
            chunks = [self._field(at, number, count, columns) for number, count in enumerate(self.num_rows)]
            result.append(concat(chunks) if chunks else pa.array([], self.projection.fields[at].arrow_type))
        return result

    def _joined_leaves(self, joinable: JoinablePages, columns: list[pa.Array]) -> dict[int, pa.Array]:
        leaves = {}
        for leaf_id, number in zip(self.projection.leaves, joinable.joined, strict=True):
            if number is None:
                leaves[leaf_id] = concat([job.arrays[leaf_id] for (job,) in self._by_pick])
            else:
                leaves[leaf_id] = columns[number]
        return leaves

    def _field(self, at: int, number: int, num_rows: int, columns: list[pa.Array]) -> pa.Array:
        """A field's rows of the fragment `number`, or of all fragments (-1)."""
        leaves = {}
        for path in self.projection.paths[at]:
            leaf_id = path.leaf.id
            if parts := self._parts.get((leaf_id, number)):
                arrays = [columns[part] if isinstance(part, int) else part[0].arrays[part[1]] for part in parts]
                leaves[leaf_id] = concat(arrays)
        return self._assemble(at, number, leaves, num_rows)

    def _assemble(self, at: int, number: int, leaves: Mapping[int, pa.Array], num_rows: int) -> pa.Array:
        try:
            return self.projection.assemble_field(at, leaves, num_rows)
        except FormatError as error:
            raise add_page_locations(error, self._pages(at, number)) from None

    def _pages(self, at: int, number: int) -> list[tuple[str, str, int]]:
        """The pages of a field: of the fragment `number`, or of all fragments (-1)."""
        pages = []
        for jobs in self._by_pick if number < 0 else [self._by_pick[number]]:
            for path in self.projection.paths[at]:
                job = _owner(jobs, path.leaf.id)
                if job is not None:
                    wanted = job.rows_of(job.file_columns.positions[path.leaf.id])
                    pages += [(job.ref.key, wanted.column.where, page) for page in wanted.numbers]
        return pages
