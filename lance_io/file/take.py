"""Random access over all files of a take at once.

    open     files that the cache does not hold are opened side by side
    find     the page indexes that the cache lacks, of all files, in one round
    read     the chunks or values that hold the rows, of all files, in one round (two for large full-zip pages)
    decode   mini-block and plain full-zip pages of all columns and files in one kernel call, others page by page

A computation on several files yields a list of (file, request) and is sent the list of answers: one round
(`drive.py` has both drivers). The cost of a take is that of its pages, not of its crossings.
"""

from __future__ import annotations

from itertools import chain, groupby, pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from lance_io import _kernels
from lance_io._kernels import DamagedError
from lance_io.encodings.v2_1.fullzip import FullZipPage
from lance_io.errors import FormatError
from lance_io.file.opening import known_files, opened
from lance_io.file.rows import ColumnRows, check_rows, every_page, load_indexes, located, read_column, rows_of
from lance_io.file.steps import Answer, FilesSteps, FileSteps, Request, Tail, Wait, fetch, served_by, together
from lance_io.format.places import at_pages
from lance_io.levels.retype import concat
from lance_io.limits import MIB, TAKE_FILES_AT_ONCE
from lance_io.runtime import cpu_count
from lance_io.spans import Fetched, IntArray, Ranges, int64s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.file.opened import FileView, OpenedFile
    from lance_io.file.projection import FileColumns, Projection
    from lance_io.file.source import FileRef, FragmentSource, ReadContext

    Pick = tuple[FragmentSource, IntArray]

T = TypeVar("T")
WARMED_SHARE: Final = 0.75  # of the cache
IN_PLACE_BYTES_MIN: Final = 4 * MIB  # copying less is cheaper than looking at every page by itself


def side_by_side(steps: Sequence[tuple[FileRef, FileSteps[T]]]) -> FilesSteps[list[T]]:
    """Run computations on several files in lock step: what all of them ask for is one round."""
    results: list[Any] = [None] * len(steps)
    live: list[tuple[int, Request]] = []

    def advance(at: int, answer: Answer) -> None:
        try:
            live.append((at, steps[at][1].send(answer)))
        except StopIteration as done:
            results[at] = done.value

    try:
        for at in range(len(steps)):
            advance(at, None)
        while live:
            # What is waited for may be a load of ours: those that can go on go first.
            waiting = [one for one in live if type(one[1]) is Wait]
            ready = [one for one in live if type(one[1]) is not Wait]
            ready, live = (ready, waiting) if ready else (waiting, [])
            answers = yield [(steps[at][0], request) for at, request in ready]
            for (at, _), answer in zip(ready, answers, strict=True):
                advance(at, answer)
        return results
    finally:
        for _, step in steps:
            step.close()


class _FileTake:
    """One file of a take: which columns and rows of it, and what has been found out about it."""

    __slots__ = ("alone", "arrays", "file", "here", "num_rows", "number", "ref", "rows", "tail", "view", "wanted")

    def __init__(self, number: int, here: FileColumns, rows: IntArray) -> None:
        self.number = number
        self.here = here
        self.ref = here.ref
        self.rows = rows
        self.num_rows = len(rows)
        self.file: OpenedFile
        self.view: FileView
        self.tail: Tail | None = None
        self.wanted: list[ColumnRows]
        self.alone: list[int] = []  # places in `wanted` that are decoded by themselves
        self.arrays: dict[int, pa.Array] = {}  # what came of them, by leaf id

    def begin(self, file: OpenedFile, tail: Tail | None) -> None:
        """The file is open: rows by column and page."""
        self.file, self.tail = file, tail
        self.view = file.view(self.here)
        check_rows(file, self.rows)
        self.wanted = rows_of(self.view, self.rows)

    @property
    def is_plain(self) -> bool:
        """Whether nothing is wanted of it but what is decoded together, and all that must be read."""
        return not self.alone and self.tail is None

    @property
    def join_keys(self) -> list[str | None]:
        """`Column.join_key` of the pages wanted of each column."""
        if self.view.keys is not None and self.num_rows:
            return self.view.join_keys
        return [one.column.join_key(one.numbers) for one in self.wanted]

    @property
    def keys(self) -> list[tuple[Any, ...]]:
        """Cache keys of the indexes of all pages."""
        if self.view.keys is not None and self.num_rows:
            return self.view.keys
        return [one.column.keys[number] for one in self.wanted for number in one.numbers]

    def read(self, ranges: Ranges | None) -> FileSteps[tuple[Fetched | None, list[pa.Array]]]:
        """The data round: `ranges` for the pages that are decoded together, and the columns that are not."""
        alone = [read_column(self.file, self.wanted[at], self.tail) for at in self.alone]
        if ranges is None:
            return None, (yield from together(alone))
        fetched, *arrays = yield from together([served_by(self.tail, fetch(ranges)), *alone])
        return fetched, arrays


_Run: TypeAlias = list[tuple[_FileTake, int]]
"""Parts of one leaf, one behind the other: a file and the place in its `wanted`."""


def take(context: ReadContext, projection: Projection, picks: Sequence[Pick]) -> FilesSteps[list[pa.Array]]:
    """Rows of fragments, one array per projected field, fragments one after the other.

    picks  (fragment, i64[n] physical offsets, ascending, each once)
    """
    by_pick: list[list[_FileTake]] = []
    jobs: list[_FileTake] = []
    for source, rows in picks:
        here = [_FileTake(len(jobs) + at, one, rows) for at, one in enumerate(projection.locate(source))]
        by_pick.append(here)
        jobs += here
    yield from _open(context, jobs)
    yield from _find_indexes(context, jobs)
    leaves = _Leaves(projection, by_pick, [len(rows) for _, rows in picks])
    fetched = yield from _read(jobs, leaves.joined.plan(len(jobs)))
    return leaves.assemble(leaves.joined.decode(fetched))


def warm(context: ReadContext, projection: Projection, sources: Sequence[FragmentSource]) -> FilesSteps[None]:
    """Put into the cache what takes of these columns need before they ask for rows.

    Files are read side by side, some at a time, until the cache is about full: more would only push out the first.
    """
    cache, none = context.cache, np.empty(0, dtype=np.int64)
    for start in range(0, len(sources), TAKE_FILES_AT_ONCE):
        parts = [one for source in sources[start : start + TAKE_FILES_AT_ONCE] for one in projection.locate(source)]
        jobs = [_FileTake(at, one, none) for at, one in enumerate(parts)]
        yield from _open(context, jobs)
        for job in jobs:
            job.wanted = every_page(job.view)
        yield from side_by_side([(job.ref, load_indexes(cache, job.file, job.wanted, job.tail)) for job in jobs])
        if cache.stats.bytes > WARMED_SHARE * cache.capacity_bytes:
            return


def _open(context: ReadContext, jobs: list[_FileTake]) -> FilesSteps[None]:
    """Have every file open, and the rows split by its pages."""
    known = known_files(context, [job.ref for job in jobs])
    closed = []
    for job, file in zip(jobs, known, strict=True):
        if file is None or file.missing(job.here.columns):
            closed.append(job)
        else:
            job.begin(file, None)
    if closed:
        found = yield from side_by_side([(job.ref, opened(context, job.ref, job.here.columns)) for job in closed])
        for job, (file, tail) in zip(closed, found, strict=True):
            job.begin(file, tail)


def _find_indexes(context: ReadContext, jobs: list[_FileTake]) -> FilesSteps[None]:
    """The index of every page, from the cache or by one round of reading."""
    cache = context.cache
    found = cache.get_many([key for job in jobs for key in job.keys])
    at = 0
    for job in jobs:
        for one in job.wanted:
            end = at + len(one.numbers)
            one.indexes = found[at:end]
            at = end
    if None in found:
        incomplete = [job for job in jobs if any(None in one.indexes for one in job.wanted)]
        yield from side_by_side([(job.ref, load_indexes(cache, job.file, job.wanted, job.tail)) for job in incomplete])


def _read(jobs: list[_FileTake], wanted: list[Ranges | None]) -> FilesSteps[list[Fetched | None]]:
    """The data round. Most files are asked for nothing but the ranges of joined pages.

    wanted  those ranges, by file; what was fetched of them is the result
    """
    plain: list[tuple[FileRef, Request]] = [
        (job.ref, ranges) for job, ranges in zip(jobs, wanted, strict=True) if ranges is not None and job.is_plain
    ]
    if plain and len(plain) == len(jobs):
        return (yield plain)
    results = yield from side_by_side([(job.ref, job.read(one)) for job, one in zip(jobs, wanted, strict=True)])
    for job, (_, arrays) in zip(jobs, results, strict=True):
        job.arrays = {job.here.leaf_ids[at]: array for at, array in zip(job.alone, arrays, strict=True)}
    return [fetched for fetched, _ in results]


# -- pages that are decoded together --------------------------------------------------------------------------------


class _Joined:
    """Mini-block and plain full-zip pages of any files, by column: planned in one kernel call and decoded in one."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []  # the parts of each column
        self._heads: list[Any] = []  # first page of each column
        self._indexes: list[Any] = []  # of the pages of all columns; those with a join key have a `page`
        self._columns: list[int] = []  # pages of each column
        self._plan: _kernels.PagesPlan

    def add(self, run: _Run, page: Any) -> int:
        """A new column: parts with the same join key. Returns its number.

        page  the first page of the first part
        """
        indexes = [index for job, at in run for index in job.wanted[at].indexes]
        self._indexes += indexes
        self._columns.append(len(indexes))
        self._heads.append(page)
        self._runs.append(run)
        return len(self._runs) - 1

    def plan(self, num_files: int) -> list[Ranges | None]:
        """The byte ranges to fetch of each file; None when it has no joined pages."""
        if not self._columns:
            return [None] * num_files
        parts = [(job.number, job.wanted[at]) for run in self._runs for job, at in run]
        pages = [index.page for index in self._indexes]
        rows = [wanted.rows for _, wanted in parts]
        counts = [count for _, wanted in parts for count in wanted.counts]
        sources = [number for number, wanted in parts for _ in wanted.counts]
        self._plan = _kernels.PagesPlan(pages, rows, counts, sources, self._columns, num_files)
        all_starts, all_ends, bounds = self._plan.ranges()
        starts, ends = int64s(all_starts), int64s(all_ends)
        return [Ranges(starts[first:end], ends[first:end]) if first < end else None for first, end in pairwise(bounds)]

    def decode(self, fetched: list[Fetched | None]) -> list[pa.Array]:
        """One array per column. Raises FormatError naming file, column and page.

        fetched  what `plan` asked for
        """
        if not self._columns:
            return []
        try:
            buffers = [None if one is None else (one.buffer, one.offsets) for one in fetched]
            leaves = self._plan.decode(buffers, cpu_count())
        except DamagedError as error:
            raise self._located(error) from None
        return [page.build(leaf) for page, leaf in zip(self._heads, leaves, strict=True)]

    def _located(self, error: DamagedError) -> FormatError:
        if len(error.args) < 2:
            return FormatError(str(error))
        text, page = error.args
        for job, at in chain.from_iterable(self._runs):
            wanted = job.wanted[at]
            if page < len(wanted.numbers):
                found = located(FormatError(text), job.file, wanted.column, wanted.numbers[page])
                assert isinstance(found, FormatError)
                return found
            page -= len(wanted.numbers)
        raise AssertionError("a kernel named a page that it was not given")


# -- leaves to fields ------------------------------------------------------------------------------------------------


def _owner(jobs: list[_FileTake], leaf_id: int) -> _FileTake | None:
    """Which file of a fragment has a leaf; the last, if several claim it."""
    for job in reversed(jobs):
        if leaf_id in job.here.places:
            return job
    return None


def _is_read_in_place(run: _Run, page: Any) -> bool:
    """Whether a leaf has so many values that lie in the file as in memory that they had better not be copied.

    page  the first one
    """
    if type(page) is not FullZipPage:
        return False
    return sum([job.num_rows for job, _ in run]) * page.stride_bytes > IN_PLACE_BYTES_MIN


class _Leaves:
    """Which decoded arrays make up each leaf of each field.

    A field whose leaves are in every fragment is put together once, for all rows; another one fragment by fragment,
    because a leaf that a fragment lacks reads as null there.
    """

    def __init__(self, projection: Projection, by_pick: list[list[_FileTake]], num_rows: list[int]) -> None:
        self.projection = projection
        self.num_rows = num_rows
        self.joined = _Joined()
        self._by_pick = by_pick
        self._join_keys = [job.join_keys for jobs in by_pick for job in jobs]  # by number of the file
        # of fragments that have one file each, as usual: these
        self._only = [jobs[0] for jobs in by_pick] if all([len(jobs) == 1 for jobs in by_pick]) else None
        self._parts: dict[tuple[int, int], list[int | tuple[_FileTake, int]]] = {}
        if self._only is not None and all([job.here.is_all for job in self._only]):
            self._whole = [True] * len(projection.paths)
        else:
            self._whole = [all(self._is_everywhere(path.leaf.id) for path in paths) for paths in projection.paths]
        for paths, is_whole in zip(projection.paths, self._whole, strict=True):
            for path in paths:
                leaf_id = path.leaf.id
                if is_whole:
                    self._parts[leaf_id, -1] = self._collect(leaf_id, self._owners(leaf_id))
                else:
                    for number, owner in enumerate(self._owners(leaf_id)):
                        self._parts[leaf_id, number] = self._collect(leaf_id, [owner])

    def _is_everywhere(self, leaf_id: int) -> bool:
        return all(_owner(jobs, leaf_id) is not None for jobs in self._by_pick)

    def _owners(self, leaf_id: int) -> Sequence[_FileTake | None]:
        """The file of each fragment that may have a leaf."""
        return [_owner(jobs, leaf_id) for jobs in self._by_pick] if self._only is None else self._only

    def _collect(self, leaf_id: int, owners: Sequence[_FileTake | None]) -> list[int | tuple[_FileTake, int]]:
        """Decide what of a leaf is decoded together. Parts are numbers of joined columns, or places of single ones."""
        found = [(job, job.here.places[leaf_id]) for job in owners if job is not None and leaf_id in job.here.places]
        parts: list[int | tuple[_FileTake, int]] = []
        keys = self._join_keys
        if len({keys[job.number][at] for job, at in found}) == 1:
            runs = [found]
        else:
            runs = [list(run) for _, run in groupby(found, lambda one: keys[one[0].number][one[1]])]
        for run in runs:
            job, at = run[0]
            if keys[job.number][at] is not None:
                first = job.wanted[at]
                page = first.column.pages[first.numbers[0]]
                if not _is_read_in_place(run, page):
                    parts.append(self.joined.add(run, page))
                    continue
            for job, at in run:
                parts.append((job, leaf_id))
                job.alone.append(at)
        return parts

    def assemble(self, columns: list[pa.Array]) -> list[pa.Array]:
        """The field arrays. `columns` are the joined ones, decoded."""
        num_rows = sum(self.num_rows)
        result = []
        for at, is_whole in enumerate(self._whole):
            if is_whole:
                result.append(self._field(at, -1, num_rows, columns))
                continue
            chunks = [self._field(at, number, count, columns) for number, count in enumerate(self.num_rows)]
            result.append(concat(chunks) if chunks else pa.array([], self.projection.fields[at].arrow_type))
        return result

    def _field(self, at: int, number: int, num_rows: int, columns: list[pa.Array]) -> pa.Array:
        """A field's rows of the fragment `number`, or of all (-1)."""
        leaves = {}
        for path in self.projection.paths[at]:
            leaf_id = path.leaf.id
            if parts := self._parts.get((leaf_id, number)):
                arrays = [columns[part] if isinstance(part, int) else part[0].arrays[part[1]] for part in parts]
                leaves[leaf_id] = arrays[0] if len(arrays) == 1 else concat(arrays)
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
                    wanted = job.wanted[job.here.places[path.leaf.id]]
                    found += [(job.ref.key, wanted.column.where, page) for page in wanted.numbers]
        return found
