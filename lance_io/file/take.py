"""Random access over all files of a take at once.

    open     files that the cache does not hold are opened side by side
    find     the page indexes that the cache lacks, of all files, in one round
    read     the chunks or values that hold the rows, of all files, in one round (two for large full-zip pages)
    decode   mini-block pages of all columns and files in one kernel call, other layouts page by page

A computation on several files yields a list of (file, request) and is sent the list of answers: one round
(`drive.py` has both drivers). The cost of a take is that of its pages, not of its crossings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from lance_io import _kernels
from lance_io._kernels import DamagedError
from lance_io.errors import FormatError
from lance_io.file.opening import opened
from lance_io.file.rows import (
    ColumnRows,
    check_rows,
    load_indexes,
    located,
    read_column,
    split_rows,
    typed_column,
)
from lance_io.file.steps import Answer, FilesSteps, FileSteps, Request, Tail, Wait, served_by, together
from lance_io.levels.retype import concat
from lance_io.spans import Fetched, IntArray, Ranges, Steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.encodings.api import PageIndex
    from lance_io.encodings.v2_1.miniblock import MiniBlockIndex, MiniBlockPage
    from lance_io.file.opened import OpenedFile
    from lance_io.file.projection import FileColumns, Projection
    from lance_io.file.source import FileRef, FragmentSource, ReadContext

    Pick = tuple[FragmentSource, IntArray]

T = TypeVar("T")


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

    def __init__(self, number: int, here: FileColumns, rows: IntArray) -> None:
        self.number = number
        self.here = here
        self.ref = here.ref
        self.rows = rows
        self.file: OpenedFile
        self.tail: Tail | None = None
        self.wanted: list[ColumnRows] = []
        self.indexes: list[list[PageIndex | None]] = []
        self.alone: list[int] = []  # places in `wanted` that are decoded by themselves
        self.arrays: dict[int, pa.Array] = {}  # what came of them, by leaf id

    def split(self) -> None:
        """Rows by column and page."""
        check_rows(self.file, self.rows)
        pairs = zip(self.here.columns, self.here.types, strict=True)
        self.wanted = [split_rows(typed_column(self.file, index, dtype), self.rows) for index, dtype in pairs]

    def read(self, ranges: Ranges | None) -> FileSteps[tuple[Fetched | None, list[pa.Array]]]:
        """The data round: `ranges` for the pages that are decoded together, and the columns that are not."""
        alone = [read_column(self.file, self.wanted[at], self.indexes[at], self.tail) for at in self.alone]
        if ranges is None:
            return None, (yield from together(alone))
        if not alone and self.tail is None:
            return (yield ranges), []
        fetched, *arrays = yield from together([served_by(self.tail, _fetch(ranges)), *alone])
        return fetched, arrays


def _fetch(ranges: Ranges) -> Steps[Any]:
    return (yield ranges)


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
    plan = leaves.joined.plan(len(jobs))
    results = yield from side_by_side([(job.ref, job.read(plan.of_file(job.number))) for job in jobs])
    for job, (fetched, arrays) in zip(jobs, results, strict=True):
        plan.answer(job.number, fetched)
        job.arrays = {job.here.leaf_ids[at]: array for at, array in zip(job.alone, arrays, strict=True)}
    return leaves.assemble(plan.decode())


def _open(context: ReadContext, jobs: list[_FileTake]) -> FilesSteps[None]:
    """Have every file open, and the rows split by its pages."""
    files = [(job.ref, opened(context, job.ref, job.here.columns)) for job in jobs]
    for job, (file, tail) in zip(jobs, (yield from side_by_side(files)), strict=True):
        job.file, job.tail = file, tail
        job.split()


def _find_indexes(context: ReadContext, jobs: list[_FileTake]) -> FilesSteps[None]:
    """The index of every page, from the cache or by one round of reading."""
    cache = context.cache
    keys = [key for job in jobs for one in job.wanted for key in one.keys]
    found = cache.get_many(keys)
    at = 0
    for job in jobs:
        for one in job.wanted:
            end = at + len(one.numbers)
            job.indexes.append(found[at:end])
            at = end
    if None in found:
        incomplete = [job for job in jobs if any(None in indexes for indexes in job.indexes)]
        yield from side_by_side(
            [(job.ref, load_indexes(cache, job.file, job.wanted, job.indexes, job.tail)) for job in incomplete]
        )


# -- pages that are decoded together --------------------------------------------------------------------------------


class _Joined:
    """Mini-block pages of any files, column by column, as the kernels take them."""

    def __init__(self) -> None:
        self.pages: list[tuple[Any, ...]] = []
        self.rows: list[IntArray] = []
        self.counts: list[int] = []  # rows per page
        self.sources: list[int] = []  # number of the file of each page
        self.columns = [0]  # where the pages of each column begin
        self.heads: list[tuple[MiniBlockPage, MiniBlockIndex, int]] = []  # first page, its index, rows per column
        self.places: list[tuple[_FileTake, ColumnRows]] = []  # whose rows each entry of `rows` are

    def begin(self) -> int:
        """A new column. Returns its number."""
        self.columns.append(self.columns[-1])
        return len(self.columns) - 2

    def add(self, job: _FileTake, at: int) -> None:
        """Rows of one file for the newest column."""
        wanted, indexes = job.wanted[at], job.indexes[at]
        pages = [index.page for index in indexes]  # type: ignore[union-attr]  # joined columns have mini-block pages
        if len(self.heads) < len(self.columns) - 1:
            self.heads.append((wanted.column.pages[wanted.numbers[0]], indexes[0], 0))  # type: ignore[arg-type]
        page, index, num_rows = self.heads[-1]
        self.heads[-1] = page, index, num_rows + len(wanted.rows)
        self.pages += pages
        self.rows.append(wanted.rows)
        self.counts += wanted.counts
        self.sources += [job.number] * len(pages)
        self.columns[-1] += len(pages)
        self.places.append((job, wanted))

    def plan(self, num_files: int) -> _JoinedPlan:
        """Which ranges of which file to ask for."""
        return _JoinedPlan(self, num_files)


_EMPTY = np.zeros(0, dtype=np.int64)


class _JoinedPlan:
    """The byte ranges of joined pages, by file, and their decoding."""

    def __init__(self, joined: _Joined, num_files: int) -> None:
        self._joined = joined
        self._sources = np.array(joined.sources, dtype=np.int64)
        self._rows = np.concatenate(joined.rows) if joined.rows else _EMPTY
        self._cuts = np.zeros(len(joined.counts) + 1, dtype=np.int64)
        np.cumsum(joined.counts, out=self._cuts[1:])
        planned = _kernels.plan_pages(joined.pages, self._rows, self._cuts)
        self._chunk_ids, self._range_firsts, starts, ends, self._chunk_cuts, self._range_cuts = planned
        self._starts = np.frombuffer(memoryview(starts), dtype=np.int64)
        self._ends = np.frombuffer(memoryview(ends), dtype=np.int64)
        self._of_file: list[Any] = self._by_file(num_files)
        self._offsets = np.empty(len(self._starts), dtype=np.int64)
        self._buffers: list[Any] = [b""] * num_files

    def _by_file(self, num_files: int) -> list[Any]:
        """What selects the ranges of each file."""
        if num_files == 1:
            return [slice(None)]
        cuts: IntArray = np.frombuffer(memoryview(self._range_cuts), dtype=np.int64)
        per_page = cuts[1:] - cuts[:-1]
        owners = np.repeat(self._sources, per_page)
        return [np.flatnonzero(owners == number) for number in range(num_files)]

    def of_file(self, number: int) -> Ranges | None:
        """The ranges of one file; None when it has no joined pages."""
        chosen = self._of_file[number]
        starts = self._starts[chosen]
        return Ranges(starts, self._ends[chosen]) if len(starts) else None

    def answer(self, number: int, fetched: Fetched | None) -> None:
        """What was fetched of one file."""
        if fetched is not None:
            self._buffers[number] = fetched.buffer
            self._offsets[self._of_file[number]] = fetched.offsets

    def decode(self) -> list[pa.Array]:
        """One array per column. Raises FormatError naming file, column and page."""
        joined = self._joined
        if not joined.pages:
            return []
        columns = np.array(joined.columns, dtype=np.int64)
        try:
            leaves = _kernels.decode_pages(
                joined.pages,
                columns,
                self._buffers,
                self._sources,
                self._offsets,
                self._range_firsts,
                self._range_cuts,
                self._chunk_ids,
                self._chunk_cuts,
                self._rows,
                self._cuts,
            )
        except DamagedError as error:
            raise self._located(error) from None
        heads = zip(joined.heads, leaves, strict=True)
        return [page.build(index, leaf, num_rows) for (page, index, num_rows), leaf in heads]

    def _located(self, error: DamagedError) -> FormatError:
        if len(error.args) < 2:
            return FormatError(str(error))
        text, page = error.args
        for job, wanted in self._joined.places:
            if page < len(wanted.numbers):
                found = located(FormatError(text), job.file, wanted.column, wanted.numbers[page])
                assert isinstance(found, FormatError)
                return found
            page -= len(wanted.numbers)
        raise AssertionError("a kernel named a page that it was not given")


# -- leaves to fields ------------------------------------------------------------------------------------------------


class _Leaves:
    """Which decoded arrays make up each leaf of each field.

    A field whose leaves are in every fragment is put together once, for all rows; another one fragment by fragment,
    because a leaf that a fragment lacks reads as null there.
    """

    def __init__(self, projection: Projection, by_pick: list[list[_FileTake]], num_rows: list[int]) -> None:
        self.projection = projection
        self.num_rows = num_rows
        self.joined = _Joined()
        self._by_pick = [
            {leaf: (job, at) for job in jobs for at, leaf in enumerate(job.here.leaf_ids)} for jobs in by_pick
        ]
        self._parts: dict[tuple[int, int], list[int | tuple[_FileTake, int]]] = {}
        self._whole = [
            all(p.leaf.id in owners for p in paths for owners in self._by_pick) for paths in projection.paths
        ]
        for paths, is_whole in zip(projection.paths, self._whole, strict=True):
            for path in paths:
                self._collect(path.leaf.id, is_whole=is_whole)

    def _collect(self, leaf_id: int, *, is_whole: bool) -> None:
        """Decide what of a leaf is decoded together. Parts are numbers of joined columns, or places of single ones."""
        parts: list[int | tuple[_FileTake, int]] = []
        last: str | None = None  # join key of the newest part
        for number, owners in enumerate(self._by_pick):
            if not is_whole:
                parts, last = [], None
            if leaf_id in owners:
                job, at = owners[leaf_id]
                wanted = job.wanted[at]
                key = wanted.column.join_key(wanted.numbers)
                if key is None:
                    parts.append((job, leaf_id))
                    job.alone.append(at)
                    last = None
                else:
                    if last != key:
                        parts.append(self.joined.begin())
                    self.joined.add(job, at)
                    last = key
            if not is_whole:
                self._parts[leaf_id, number] = parts
        if is_whole:
            self._parts[leaf_id, -1] = parts

    def assemble(self, columns: list[pa.Array]) -> list[pa.Array]:
        """The field arrays. `columns` are the joined ones, decoded."""
        result = []
        for at, (paths, is_whole) in enumerate(zip(self.projection.paths, self._whole, strict=True)):
            chunks = []
            for number, num_rows in [(-1, sum(self.num_rows))] if is_whole else list(enumerate(self.num_rows)):
                leaves = {}
                for path in paths:
                    parts = self._parts.get((path.leaf.id, number))
                    if parts:
                        leaves[path.leaf.id] = concat([self._array(part, columns) for part in parts])
                chunks.append(self.projection.assemble_field(at, leaves, num_rows))
            result.append(concat(chunks) if chunks else pa.array([], self.projection.fields[at].arrow_type))
        return result

    def _array(self, part: int | tuple[_FileTake, int], columns: list[pa.Array]) -> pa.Array:
        if isinstance(part, int):
            return columns[part]
        job, leaf_id = part
        return job.arrays[leaf_id]
