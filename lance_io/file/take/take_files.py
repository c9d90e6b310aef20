"""Random access over all files of a take at once.

    open     files that the cache does not hold, and the page indexes that it lacks: one round or two for each file,
             which waits for no other
    read     the chunks or values that hold the rows, of all files, in one round (two for large full-zip pages)
    decode   mini-block and plain full-zip pages of all columns and files in one kernel call, others page by page

A computation on several files yields a list of (file, request) and is sent the list of answers: one round; or
computations on single files that go on by themselves (`file_requests.py` has both drivers). The cost of a take is that
of its pages, not of its crossings.
"""

from __future__ import annotations

from itertools import groupby, pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import pyarrow as pa

from lance_io import _kernels
from lance_io._kernels import DamagedError
from lance_io.encodings.rounds import fetch, together
from lance_io.encodings.v2_1.page import damage_error
from lance_io.errors import FormatError
from lance_io.file.file_steps import (
    FilesSteps,
    FileSteps,
    Independent,
    ReadJoined,
    Tail,
    served_by,
    side_by_side,
)
from lance_io.file.open.open_file import known_files, open_cached
from lance_io.file.open.projected_pages import is_array, stride_of
from lance_io.file.take.page_rows import (
    ColumnRows,
    check_rows,
    every_page,
    load_indexes,
    locate_error,
    read_column,
    rows_of,
)
from lance_io.format.error_context import at_pages
from lance_io.levels.retype import concat
from lance_io.limits import MIB, TAKE_FILES_AT_ONCE
from lance_io.runtime import cpu_count
from lance_io.spans import Fetched, IntArray, Ranges, int64s, no_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lance_io._kernels import PageRows
    from lance_io.encodings.decode_room import DecodeRoom
    from lance_io.file.open.file_source import FragmentSource, ReadContext
    from lance_io.file.open.leaf_projection import FileColumns, Projection
    from lance_io.file.open.projected_pages import AlikePages, FileView, TableFile
    from lance_io.format.error_context import Refused
    from lance_io.io.cache import SearchCache
    from lance_io.levels.layout import BatchLayout

    Pick = tuple[FragmentSource, IntArray]
    Items = Mapping[int, IntArray]

T = TypeVar("T")
Taken: TypeAlias = "list[pa.Array] | pa.RecordBatch"
"""The fields of a projection."""
Builder: TypeAlias = "Callable[[_kernels.Leaf], pa.Array]"
WARMED_SHARE: Final = 0.75  # of the cache
_NO_ITEMS: Final[Mapping[int, IntArray]] = MappingProxyType({})
IN_PLACE_BYTES_MIN: Final = 4 * MIB  # copying less is cheaper than looking at every page by itself


class FileTake:
    """One file of a take: which columns and rows of it, and what has been found out about it.

    split    the rows by column and page
    pages    numbers of the pages that hold them, see `FileView`
    indexes  of these pages
    row_bytes  what a row takes in memory, about
    joined   of each column the number among those that are decoded together; None for the others
    alone    places of the columns that are decoded by themselves
    arrays   what came of these, by leaf id
    items    of which leaves only items of lists are wanted, by id: `ColumnRows.items`
    """

    __slots__ = (
        "alone",
        "arrays",
        "file",
        "here",
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

    def __init__(self, here: FileColumns, rows: IntArray, items: Items = _NO_ITEMS) -> None:
        self.here = here
        self.ref = here.ref
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
        """The file is open: rows by column and page."""
        self.file, self.tail = file, tail
        view = self.view = file.view(self.here)
        self.row_bytes = view.row_bytes_of(self.items) if self.items else view.row_bytes
        check_rows(file, self.rows)
        self.split = self.view.split(self.rows)
        self.pages = self.split.pages

    def part(self, start: int, end: int) -> FileTake:
        """Some of the rows, of the same open file."""
        items = {leaf_id: of_leaf[start:end] for leaf_id, of_leaf in self.items.items()}
        part = FileTake(self.here, self.rows[start:end], items)
        part.begin(self.file, self.tail)
        known = dict(zip(self.pages, self.indexes, strict=True))
        part.indexes = [known[page] for page in part.pages]
        return part

    @property
    def is_plain(self) -> bool:
        """Whether nothing is wanted of it but what is decoded together, and all that must be read."""
        return not self.alone and self.tail is None

    def rows_of(self, at: int) -> ColumnRows:
        """The rows of one column."""
        items = self.items.get(self.here.leaf_ids[at]) if self.items else None
        return rows_of(self.view.columns[at], at, self.split, self.indexes, items)

    def join_key(self, at: int) -> str | None:
        """`Column.join_key` of the pages wanted of one column; None where it is not known yet where their rows are."""
        if self.here.leaf_ids[at] in self.items:
            return None
        first, numbers, _, _ = self.split.of_column(at)
        key = self.view.columns[at].join_key(numbers)
        is_known = key is None or not is_array(self.first_page(at))
        return key if is_known or self.is_located(first, first + len(numbers)) else None

    def is_located(self, first: int, end: int) -> bool:
        """Whether kernels can read the pages `first` to `end` of `indexes`."""
        return all([getattr(index, "page", None) is not None for index in self.indexes[first:end]])

    def has_located(self, alike: AlikePages) -> bool:
        """Whether kernels can read the pages of all columns whose pages are decoded together."""
        if self.is_located(0, len(self.indexes)):
            return True
        columns = [self.split.of_column(at) for at, key in enumerate(alike.join_keys) if key is not None]
        return all([self.is_located(first, first + len(numbers)) for first, numbers, _, _ in columns])

    def first_page(self, at: int) -> Any:
        """The first page wanted of one column."""
        return self.view.columns[at].pages[self.split.of_column(at)[1][0]]

    def open(self, context: ReadContext) -> FileSteps[None]:
        """Open the file and find the indexes of its pages."""
        self.begin(*(yield from open_cached(context, self.ref, self.here.columns)))
        self.indexes = context.cache.get_many([self.view.keys[page] for page in self.pages])
        if None in self.indexes:
            yield from self.load_indexes(context.cache)

    def load_indexes(self, cache: SearchCache) -> FileSteps[None]:
        """Find those that are missing."""
        wanted = [self.rows_of(at) for at in range(len(self.view.columns))]
        yield from load_indexes(cache, self.file, wanted, self.tail)
        self.indexes = [index for one in wanted for index in one.indexes]

    def joined_pages(self) -> list[Any]:
        """What the pages are read with, those of joined columns at least."""
        if not self.alone:
            return [index.page for index in self.indexes]
        return [getattr(index, "page", None) for index in self.indexes]

    def read(
        self, cache: SearchCache, ranges: Ranges | None, room: DecodeRoom | None
    ) -> FileSteps[tuple[Fetched | None, list[pa.Array]]]:
        """The data round: `ranges` for the pages that are decoded together, and the columns that are not."""
        alone = [read_column(self.file, self.rows_of(at), self.tail, cache, room) for at in self.alone]
        if ranges is None:
            return None, (yield from together(alone))
        fetched, *arrays = yield from together([served_by(self.tail, fetch(ranges)), *alone])
        return fetched, arrays


_Run: TypeAlias = list[tuple[FileTake, int]]
"""Parts of one leaf, one behind the other: a file and the place among its columns."""


def take(
    context: ReadContext, projection: Projection, picks: Sequence[Pick], layout: BatchLayout | None = None
) -> FilesSteps[Taken]:
    """Rows of fragments, one array per projected field, fragments one after the other.

    picks   (fragment, i64[n] physical offsets, ascending, each once)
    layout  of a batch of just these fields: where they can be had at once as such, they are
    """
    by_pick = yield from prepare_files(context, projection, picks)
    return (yield from read_prepared(context, projection, by_pick, [len(rows) for _, rows in picks], layout))


def prepare_files(
    context: ReadContext, projection: Projection, picks: Sequence[Pick], items: Sequence[Items] | None = None
) -> FilesSteps[list[list[FileTake]]]:
    """The files of each fragment, open, with the indexes of the pages wanted: all of a take but for its data round.

    items  of each fragment, see `FileTake`; None where all is wanted of all rows
    """
    wanted = [_NO_ITEMS] * len(picks) if items is None else items
    by_pick = [
        [FileTake(one, rows, of_pick) for one in projection.locate(source)]
        for (source, rows), of_pick in zip(picks, wanted, strict=True)
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
    """The data round of a take, and what comes of it.

    by_pick   as `prepare_files` gives them
    num_rows  wanted of each fragment
    room      for what the rows become; None for any size. Raises `PieceTooLargeError` where it does not do
    """
    jobs = [job for jobs in by_pick for job in jobs]
    leaves = _Leaves(projection, by_pick, num_rows)
    joined = _Joined(jobs, leaves.builders, room)
    fetched = yield from _read(context, jobs, joined, room)
    decoded = joined.decode(fetched, layout if leaves.is_joined else None)
    return leaves.assemble(decoded) if type(decoded) is list else decoded


def warm(context: ReadContext, projection: Projection, sources: Sequence[FragmentSource]) -> FilesSteps[None]:
    """Put into the cache what takes of these columns need before they ask for rows.

    Files are read side by side, some at a time, until the cache is about full: more would only push out the first.
    """
    cache = context.cache
    for start in range(0, len(sources), TAKE_FILES_AT_ONCE):
        parts = [one for source in sources[start : start + TAKE_FILES_AT_ONCE] for one in projection.locate(source)]
        yield Independent([(here.ref, _warm_file(context, here)) for here in parts])
        if cache.stats.bytes > WARMED_SHARE * cache.capacity_bytes:
            return


def _warm_file(context: ReadContext, here: FileColumns) -> FileSteps[None]:
    file, tail = yield from open_cached(context, here.ref, here.columns)
    yield from load_indexes(context.cache, file, every_page(file.view(here)), tail, is_ahead=True)


def _prepare(context: ReadContext, jobs: list[FileTake]) -> FilesSteps[None]:
    """Have every file open, and the indexes of the pages wanted: from the cache, else file by file."""
    cache = context.cache
    known = known_files(context, [job.ref for job in jobs])
    ready, todo = [], []
    for job, file in zip(jobs, known, strict=True):
        if file is None or file.missing(job.here.columns):
            todo.append((job.ref, job.open(context)))
        else:
            job.begin(file, None)
            ready.append(job)
    found = cache.get_many([job.view.keys[page] for job in ready for page in job.pages])
    at = 0
    for job in ready:
        end = at + len(job.pages)
        job.indexes = found[at:end]
        at = end
        if None in job.indexes:
            todo.append((job.ref, job.load_indexes(cache)))
    if todo:
        yield Independent(todo)


def _read(
    context: ReadContext, jobs: list[FileTake], joined: _Joined, room: DecodeRoom | None
) -> FilesSteps[Fetched | Sequence[Fetched | None]]:
    """The data round. Most files are asked for nothing but the ranges of joined pages.

    What was fetched of these: of all files together, or of each; None where nothing was, or where it has been decoded.
    """
    if all([job.is_plain for job in jobs]):
        return (yield from _read_plain(jobs, joined))
    wanted = joined.plan()
    for ranges in wanted:
        if ranges is not None:
            ranges.keep = True  # what is read by itself may take more rounds, and this is decoded after the last one
    cache = context.cache
    results = yield from side_by_side(
        [(job.ref, job.read(cache, one, room)) for job, one in zip(jobs, wanted, strict=True)]
    )
    for job, (_, arrays) in zip(jobs, results, strict=True):
        job.arrays = {job.here.leaf_ids[at]: array for at, array in zip(job.alone, arrays, strict=True)}
    return [fetched for fetched, _ in results]


def _read_plain(jobs: list[FileTake], joined: _Joined) -> FilesSteps[Fetched | Sequence[Fetched | None]]:
    """The same where nothing else is wanted of any file, and all that must be read."""
    ranges, bounds = joined.plan_together()
    wanted = [at for at, (first, end) in enumerate(pairwise(bounds)) if first < end]
    refs = [jobs[at].ref for at in wanted]
    found: list[Fetched | None] = [None] * len(jobs)
    if not wanted:
        return found
    if len(wanted) == 1:
        found[wanted[0]] = (yield [(refs[0], ranges)])[0]
        return found
    fetched: Fetched | list[Fetched | None] = yield ReadJoined(
        refs, ranges, list(dict.fromkeys(bounds)), lambda at, one: joined.decode_file(wanted[at], one)
    )
    if isinstance(fetched, Fetched):
        return fetched
    for at, one in zip(wanted, fetched, strict=True):
        found[at] = one
    return found


# -- pages that are decoded together --------------------------------------------------------------------------------


class _Joined:
    """Mini-block and plain full-zip pages of any files, by column: planned in one kernel call and decoded in one.

    builders  what makes the array of each column
    room      for what they become, see `read_prepared`
    """

    def __init__(self, jobs: list[FileTake], builders: list[Builder], room: DecodeRoom | None) -> None:
        self._jobs = jobs
        self._builders = builders
        self._room = room
        self._plan: _kernels.PagesPlan

    def plan_together(self) -> tuple[Ranges, list[int]]:
        """The byte ranges to fetch, file by file, and where those of each begin and end."""
        if not self._builders:
            return no_ranges(), [0] * (len(self._jobs) + 1)
        files = [(job.split, job.joined_pages(), job.joined) for job in self._jobs]
        self._plan = _kernels.PagesPlan(files, len(self._builders))
        starts, ends, bounds = self._plan.ranges()
        return Ranges(int64s(starts), int64s(ends)), bounds

    def plan(self) -> list[Ranges | None]:
        """The byte ranges to fetch of each file; None when it has no joined pages."""
        ranges, bounds = self.plan_together()
        return [ranges.part(first, end) if first < end else None for first, end in pairwise(bounds)]

    def decode_file(self, at: int, fetched: Fetched) -> None:
        """Decode the pages of one file ahead of `decode`, which then asks for all files to be. Raises FormatError."""
        try:
            self._plan.decode_file(at, fetched.buffer, fetched.offsets, self._bytes_max())
        except DamagedError as error:
            raise self._locate(error) from None

    def decode(self, fetched: Fetched | Sequence[Fetched | None], layout: BatchLayout | None) -> Taken:
        """One array per column, or a batch of them. Raises FormatError naming file, column and page.

        fetched  what `plan` asked for; for each file, None for those of which nothing was, and for those that are
                 decoded
        layout   of the batch
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

    def _locate(self, error: DamagedError) -> Refused:
        found: Refused = damage_error(error)
        if len(error.args) < 2:
            return found
        file, page = error.args[1]
        job = self._jobs[file]
        column, number = job.view.page(job.pages[page])
        return locate_error(found, job.file, column, number, job.rows)


def _buffers(fetched: Fetched | Sequence[Fetched | None]) -> tuple[Any, IntArray] | list[tuple[Any, IntArray] | None]:
    """What was fetched, as `PagesPlan.decode` takes it."""
    if isinstance(fetched, Fetched):
        return fetched.buffer, fetched.offsets
    return [None if one is None else (one.buffer, one.offsets) for one in fetched]


# -- leaves to fields ------------------------------------------------------------------------------------------------


def _owner(jobs: list[FileTake], leaf_id: int) -> FileTake | None:
    """Which file of a fragment has a leaf; the last, if several claim it."""
    for job in reversed(jobs):
        if leaf_id in job.here.places:
            return job
    return None


def _is_read_in_place(num_rows: int, stride_bytes: int) -> bool:
    """Whether so many values that lie in the file as in memory had better not be copied."""
    return num_rows * stride_bytes > IN_PLACE_BYTES_MIN


class _Leaves:
    """Which decoded arrays make up each leaf of each field.

    Usually each fragment has one file with all leaves, whose pages are alike: then every file is read in the same way.
    Otherwise it is decided leaf by leaf. A field whose leaves are in every fragment is put together once, for all rows;
    another one fragment by fragment, because a leaf that a fragment lacks reads as null there.

    builders  what makes the arrays of the columns that are decoded together
    """

    def __init__(self, projection: Projection, by_pick: list[list[FileTake]], num_rows: list[int]) -> None:
        self.projection = projection
        self.num_rows = num_rows
        self._by_pick = by_pick
        self._alike = self._find_alike()
        if self._alike is not None:
            self.builders = self._alike.builders
            for (job,) in by_pick:
                job.joined, job.alone = self._alike.joined, self._alike.alone
            return
        builders: list[Builder] = []
        self.builders = builders
        self._parts: dict[tuple[int, int], list[int | tuple[FileTake, int]]] = {}
        self._whole = [all(self._is_everywhere(path.leaf.id) for path in paths) for paths in projection.paths]
        for jobs in by_pick:
            for job in jobs:
                job.joined, job.alone = [None] * len(job.here.columns), []
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
        """Whether every leaf is one column of those that are decoded together, in the order of the projection."""
        return self._alike is not None and not self._alike.alone

    def _find_alike(self) -> AlikePages | None:
        """What all files have in common in the usual case, else None."""
        first = None
        for jobs in self._by_pick:
            if len(jobs) != 1 or not jobs[0].here.is_all or not jobs[0].pages or jobs[0].items:
                return None
            alike = jobs[0].view.alike(jobs[0].pages)
            if alike is None or (first is not None and alike.join_keys != first.join_keys):
                return None
            if alike.needs_located and not jobs[0].has_located(alike):
                return None
            first = first or alike
        if first is None or _is_read_in_place(sum(self.num_rows), first.stride_bytes):
            return None
        return first

    def _is_everywhere(self, leaf_id: int) -> bool:
        return all(_owner(jobs, leaf_id) is not None for jobs in self._by_pick)

    def _collect(
        self, leaf_id: int, owners: Sequence[FileTake | None], builders: list[Builder]
    ) -> list[int | tuple[FileTake, int]]:
        """Decide what of a leaf is decoded together. Parts are numbers of joined columns, or places of single ones."""
        found = [(job, job.here.places[leaf_id]) for job in owners if job is not None and leaf_id in job.here.places]
        parts: list[int | tuple[FileTake, int]] = []
        for key, run in groupby(found, lambda one: one[0].join_key(one[1])):
            here = list(run)
            page = None if key is None else here[0][0].first_page(here[0][1])
            stride_bytes = 0 if page is None else stride_of(page)
            if page is not None and not _is_read_in_place(sum([len(job.rows) for job, _ in here]), stride_bytes):
                for job, at in here:
                    job.joined[at] = len(builders)
                parts.append(len(builders))
                builders.append(page.build)
                continue
            for job, at in here:
                parts.append((job, leaf_id))
                job.alone.append(at)
        return parts

    def assemble(self, columns: list[pa.Array]) -> list[pa.Array]:
        """The field arrays. `columns` are the joined ones, decoded."""
        num_rows = sum(self.num_rows)
        if self._alike is not None:
            if self.projection.is_flat and self.is_joined:
                return columns
            leaves = self._alike_leaves(self._alike, columns)
            return [self._assemble(at, -1, leaves, num_rows) for at in range(len(self.projection.paths))]
        result = []
        for at, is_whole in enumerate(self._whole):
            if is_whole:
                result.append(self._field(at, -1, num_rows, columns))
                continue
            chunks = [self._field(at, number, count, columns) for number, count in enumerate(self.num_rows)]
            result.append(concat(chunks) if chunks else pa.array([], self.projection.fields[at].arrow_type))
        return result

    def _alike_leaves(self, alike: AlikePages, columns: list[pa.Array]) -> dict[int, pa.Array]:
        leaves = {}
        for leaf_id, number in zip(self.projection.leaves, alike.joined, strict=True):
            if number is None:
                leaves[leaf_id] = concat([job.arrays[leaf_id] for (job,) in self._by_pick])
            else:
                leaves[leaf_id] = columns[number]
        return leaves

    def _field(self, at: int, number: int, num_rows: int, columns: list[pa.Array]) -> pa.Array:
        """A field's rows of the fragment `number`, or of all (-1)."""
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
            raise at_pages(error, self._pages(at, number)) from None

    def _pages(self, at: int, number: int) -> list[tuple[str, str, int]]:
        """The pages of a field: of the fragment `number`, or of all (-1)."""
        found = []
        for jobs in self._by_pick if number < 0 else [self._by_pick[number]]:
            for path in self.projection.paths[at]:
                job = _owner(jobs, path.leaf.id)
                if job is not None:
                    wanted = job.rows_of(job.here.places[path.leaf.id])
                    found += [(job.ref.key, wanted.column.where, page) for page in wanted.numbers]
        return found
