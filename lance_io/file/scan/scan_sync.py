"""Scans in the caller's thread, over a store whose bytes are at hand: pieces are read and decoded on the CPU pool.

Small files after one another are read and decoded as a whole, without pieces (`small_files.py`).
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from lance_io import limits
from lance_io.file.file_requests import read_file_sync, read_files_sync
from lance_io.file.file_steps import side_by_side
from lance_io.file.scan.batches import Collector, Cutter, ScanBatch, whole_span
from lance_io.file.scan.decoded_parts import Allowance, Later, held_bytes
from lance_io.file.scan.page_slices import goes_behind, goes_with, read_group, read_groups
from lance_io.file.scan.pool_jobs import HeldBytes, JobQueue, PoolJob
from lance_io.file.scan.readahead import (
    DEFAULT_READAHEAD,
    KEPT_FILES_MAX,
    Readahead,
    file_pieces,
    group_bytes,
    in_row_order,
)
from lance_io.file.scan.templates.small_files import SmallFiles, small_runs
from lance_io.io.spares import spares
from lance_io.io.stats import sinks_now

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    import pyarrow as pa

    from lance_io.file.open.file_source import ReadContext
    from lance_io.file.open.leaf_projection import LeafColumns, Projection
    from lance_io.file.scan.batches import JoinedBatch
    from lance_io.file.scan.page_slices import Piece
    from lance_io.file.scan.readahead import Span
    from lance_io.file.scan.slow_start import Pace

TURNS_MIN: Final = 4  # jobs that each of those under way is followed by: with few large ones a core idles at the end
OPENED_MAX: Final = 64  # files that are opened together


class _Job(PoolJob["list[Any]"]):
    """Small pieces of one file, or those of some files: an array for each, in order, or `Later`.

    groups       pieces that are read and decoded together, each of one file
    group_bytes, group_expected  what will be read for the last group, and what that is decoded to
    """

    __slots__ = ("_arrays", "_places", "_rows_before", "group_bytes", "group_expected", "groups")

    def __init__(self, work: Callable[[_Job], list[Any]]) -> None:
        super().__init__(work)
        self.groups: list[list[Piece]] = []
        self.group_bytes = self.group_expected = 0
        self._rows_before = 0  # the last group
        self._places: deque[tuple[int, int, Piece]] = deque()  # (span, leaf, piece) that are to be popped
        self._arrays: deque[Any] | None = None

    def add(self, place: tuple[int, int, Piece]) -> None:
        """One more piece, with its span and leaf."""
        piece = place[2]
        if self.groups and self.groups[-1][0].file is piece.file:
            self.groups[-1].append(piece)
        else:
            self._rows_before = self.num_rows
            self.groups.append([piece])
            self.group_bytes = self.group_expected = 0
        self.num_bytes += piece.num_bytes
        self.expected_bytes += piece.expected_bytes
        self.group_expected += piece.expected_bytes
        self.group_bytes += piece.num_bytes
        self._places.append(place)

    @property
    def num_rows(self) -> int:
        """Rows of all groups."""
        if not self.groups:
            return 0
        group = self.groups[-1]
        return self._rows_before + group[-1].row_end - group[0].row_start

    @property
    def first(self) -> tuple[int, Piece]:
        """The next piece, and the span it belongs to."""
        index, _, piece = self._places[0]
        return index, piece

    def pop(self) -> tuple[int, Piece, Any]:
        """The next piece, decoded, or its parts; nothing of it is kept."""
        _, leaf_id, piece = self._places.popleft()
        return leaf_id, piece, self._decoded().popleft()

    def has_next(self, index: int, leaf_ids: Sequence[int], start: int, end: int) -> bool:
        """Whether the next pieces are these rows of a span, one for each of these leaves in order."""
        places = self._places
        if len(places) < len(leaf_ids):
            return False
        for (span, leaf_id, piece), wanted in zip(places, leaf_ids, strict=False):
            if span != index or leaf_id != wanted or piece.row_start != start or piece.row_end != end:
                return False
        return True

    def pop_together(self, count: int, num_rows: int) -> tuple[list[Piece], list[pa.Array]] | None:
        """The next pieces, decoded; None, and nothing is popped, if some have not as many rows."""
        arrays, places = self._decoded(), self._places
        found = list(islice(arrays, count))
        if any([type(array) is Later or len(array) != num_rows for array in found]):
            return None
        for _ in found:
            arrays.popleft()
        return [places.popleft()[2] for _ in found], found

    def _decoded(self) -> deque[Any]:
        if self._arrays is None:
            self._arrays = deque(self.result())
        return self._arrays

    def __bool__(self) -> bool:
        return bool(self._places)


class _Ahead:
    """Pieces of some spans in order, with a bounded number of them being decoded.

    start  bounds the scan that they are of, too; None for no such bound
    first  the number of the first span in it
    """

    def __init__(
        self,
        context: ReadContext,
        projection: Projection,
        spans: Sequence[Span],
        ahead: Readahead = DEFAULT_READAHEAD,
        start: Pace | None = None,
        first: int = 0,
    ) -> None:
        spares().trim()
        self._context = context
        self._projection = projection
        self._sinks = sinks_now(
            context.store.identity, context.shared
        )  # the pool's threads know nothing of the caller's blocks
        self._held = HeldBytes(context.io_buffer_bytes, context.pool, self._sinks)
        self._jobs: JobQueue[_Job] = JobQueue(self._held)
        self.part_room = self._held.part_room()
        self._ahead = ahead
        self._start = start
        self._first = first
        self._files_per_job = max(1, len(spans) // (TURNS_MIN * ahead.pieces))
        self._leaf_ids = list(projection.leaves)
        self._keeps = len(spans) <= KEPT_FILES_MAX
        self._source = self._pieces(spans)
        self._next = next(self._source, None)
        self._group_bytes = (
            group_bytes(self._held.num_cpus) if self._files_per_job == 1 else limits.SCAN_JOB_BYTES
        )  # other threads have files
        if ahead.gate is not None:
            ahead.gate.listener = self._fill
        try:
            self._fill()
        except BaseException:  # some jobs may have begun
            self.close()
            raise

    def _pieces(self, spans: Sequence[Span]) -> Iterator[tuple[int, int, Piece]]:
        """All pieces, each with its span and leaf."""
        first = 0
        while first < len(spans):
            some = spans[first : first + self._num_together(spans, first)]
            for index, found in enumerate(self._pieces_of(some, first), first):
                for leaf_id, piece in in_row_order(found):
                    yield index, leaf_id, piece
            first += len(some)

    def _num_together(self, spans: Sequence[Span], first: int) -> int:
        """Of how many spans the files are opened together: no more than go into one job."""
        if self._files_per_job == 1 or self._ahead.spans is not None or self._ahead.is_asked_for:
            return 1
        num_rows = num_bytes = 0
        for at in range(first, min(len(spans), first + min(self._files_per_job, OPENED_MAX))):
            if at > first and not self._reaches(at):
                return at - first
            source, start, end = spans[at]
            num_rows += end - start
            num_bytes += sum([file.size_bytes for file in source.files])  # small ones are read whole
            if num_rows > limits.SCAN_JOB_ROWS or num_bytes > limits.SCAN_FILES_BYTES:
                return max(1, at - first)
        return min(len(spans) - first, self._files_per_job, OPENED_MAX)

    def _pieces_of(self, spans: Sequence[Span], first: int) -> list[list[tuple[int, Piece]]]:
        """The pieces of some spans from the one numbered `first` on, whose files are opened together."""
        steps, found = [], []
        for index, span in enumerate(spans, first):
            source, start, end = span
            places = self._projection.locate(source, keep=self._keeps) if start < end else []
            borders = None if self._start is None else self._start.borders(self._first + index)
            pieces_of = partial(file_pieces, self._context, span=span, keep=self._keeps, borders=borders)
            steps += [(here.ref, pieces_of(here=here)) for here in places]
            found.append(len(places))
        if len(steps) == 1:
            pieces = [read_file_sync(steps[0][1], self._context, steps[0][0].key, sinks=self._sinks)]
        else:
            pieces = read_files_sync(side_by_side(steps), self._context, sinks=self._sinks)
        rest = iter(pieces)
        return [[one for of_file in islice(rest, count) for one in of_file] for count in found]

    def _decode(self, job: _Job) -> list[Any]:
        """Read and decode the pieces of a job; runs in any thread."""
        context, gap_bytes, sinks = self._context, self._context.store.profile.scan_gap_bytes, self._sinks
        allowance = Allowance(limits.SCAN_DECODED_BYTES, partial(self._held.claim, job), is_counted=True)
        try:
            if len(job.groups) == 1:
                (group,) = job.groups
                steps, key = read_group(group, allowance), group[0].file.key
                arrays = read_file_sync(steps, context, key, gap_bytes=gap_bytes, sinks=sinks, is_charged=True)
            else:
                several = read_groups(job.groups, allowance)
                arrays = read_files_sync(several, context, gap_bytes=gap_bytes, sinks=sinks, is_charged=True)
            pieces = [piece for group in job.groups for piece in group]
            self._held.keep(job, [held_bytes(*one) for one in zip(pieces, arrays, strict=True)])
        finally:
            self._held.give_back(job)
        return arrays

    def _fill(self, *, is_needed: bool = False) -> None:
        while len(self._jobs) < self._ahead.pieces and (self._begins_job or (is_needed and not self._jobs)):
            job = _Job(self._decode)
            while not job or self._goes_into(job):
                assert self._next is not None, "looked at above"
                job.add(self._next)
                self._next = next(self._source, None)
            self._jobs.begin(job)

    @property
    def _begins_job(self) -> bool:
        """Whether the next piece may be begun: there is one, and it is needed now or has a place and room."""
        if self._next is None:
            return False
        index, _, piece = self._next
        if not self._jobs:
            return self._ahead.gate is None or self._reaches(index, piece.row_start)
        if not (self._is_near(index, self._jobs[0]) and self._reaches(index, piece.row_start)):
            return False
        return self._held.has_turn(piece.num_bytes, piece.expected_bytes, len(self._jobs))

    def _goes_into(self, job: _Job) -> bool:
        """Whether the next piece is worth doing in one job with those before it, and may be begun."""
        if self._next is None or self._ahead.is_asked_for:
            return False
        index, _, piece = self._next
        if not self._reaches(index, piece.row_start):
            return False
        if not self._held.has_room(job.num_bytes + piece.num_bytes, job.expected_bytes + piece.expected_bytes):
            return False
        first = job.groups[-1][0]
        if piece.file is first.file:
            return goes_with(piece, first, job.group_bytes, self._group_bytes, job.group_expected)
        oldest = self._jobs[0] if self._jobs else job
        has_place = len(job.groups) < self._files_per_job and self._is_near(index, oldest)
        return has_place and goes_behind(piece, job.num_rows, job.num_bytes, job.expected_bytes)

    def _reaches(self, index: int, row: int | None = None) -> bool:
        return self._start is None or self._start.reaches(self._first + index, row)

    def _is_near(self, index: int, oldest: _Job) -> bool:
        return self._ahead.spans is None or index - oldest.first[0] <= self._ahead.spans

    def before(self, span_index: int, row: int) -> bool:
        """True when the next piece belongs to the span and starts before the row."""
        if not self._jobs:  # the gate was closed before it
            if self._next is None or self._next[0] != span_index or self._next[2].row_start >= row:
                return False
            self._fill(is_needed=True)
        index, piece = self._jobs[0].first
        return index == span_index and piece.row_start < row

    def pop_span(self, index: int, start: int, end: int) -> tuple[list[Piece], list[pa.Array]] | None:
        """All of a span's rows, if these are the next piece of each leaf; None otherwise."""
        leaf_ids = self._leaf_ids
        if not self._jobs or not leaf_ids or not self._jobs[0].has_next(index, leaf_ids, start, end):
            return None
        job = self._need_first()
        found = job.pop_together(len(leaf_ids), end - start)
        if found is None:
            return None
        self._held.use_together(job, leaf_ids)
        self._go_on(job)
        return found

    def pop(self) -> tuple[int, Piece, Any]:
        """The next piece, decoded, or its parts."""
        job = self._need_first()
        found = job.pop()
        self._held.use(job, found[0])
        self._go_on(job)
        return found

    def _go_on(self, job: _Job) -> None:
        if not job:
            self._jobs.popleft()  # all that the first one gave has been used
            self._fill()

    def gave(self, num_rows: int) -> None:
        """A batch of so many rows was taken: a slow start goes on."""
        if self._start is not None:
            self._start.gave(num_rows)
            self._fill()

    def _need_first(self) -> _Job:
        """The first job, whose result is wanted now: with one processor nobody but the caller does it."""
        job = self._jobs[0]
        if self._jobs.is_alone:
            job.take_back()
        return job

    def go_ahead(self) -> None:
        """The caller goes away; see `JobQueue`."""
        if self._jobs.is_alone:
            self._jobs.go_ahead()

    def close(self) -> None:
        """See `JobQueue`."""
        if self._ahead.gate is not None:
            self._ahead.gate.listener = None
        self._jobs.close()


def scan_sync(
    context: ReadContext,
    projection: Projection,
    spans: Sequence[Span],
    batch_rows: int | None,
    ahead: Readahead,
) -> Generator[ScanBatch | JoinedBatch, None, None]:
    """See `TableReader.scan_joined`."""
    start = ahead.pace(spans, context.store.profile)
    for first, end, leaves in small_runs(context, projection, spans, ahead):
        yield from _scan_run(context, projection, spans[first:end], first, leaves, batch_rows, ahead, start)


def _scan_run(
    context: ReadContext,
    projection: Projection,
    spans: Sequence[Span],
    first: int,
    leaves: LeafColumns | None,
    batch_rows: int | None,
    ahead: Readahead,
    start: Pace | None,
) -> Generator[ScanBatch | JoinedBatch, None, None]:
    """The batches of some spans; `first` is the number of the first one, `leaves` what all have if they are small."""
    if leaves is not None:
        done = yield from SmallFiles(context, projection, spans, first, leaves, ahead, start).batches()
        spans, first = spans[done:], first + done
    if spans:
        yield from _scan_pieces(context, projection, spans, first, batch_rows, ahead, start)


def _scan_pieces(
    context: ReadContext,
    projection: Projection,
    spans: Sequence[Span],
    first: int,
    batch_rows: int | None,
    ahead: Readahead,
    start: Pace | None,
) -> Generator[ScanBatch, None, None]:
    """The batches of some spans; `first` is the number of the first one."""
    pieces = _Ahead(context, projection, spans, ahead, start, first)
    try:
        for index, (_, begin, end) in enumerate(spans):
            if batch_rows is None or end - begin <= batch_rows:
                whole = pieces.pop_span(index, begin, end)
                if whole is not None:  # a small file, as it was decoded
                    pieces.gave(end - begin)
                    pieces.go_ahead()
                    yield whole_span(projection, first + index, begin, end - begin, *whole)
                    continue
            cutter = Cutter(projection, first + index, begin, end, batch_rows, pieces.part_room)
            try:
                while cutter.position < end:
                    while pieces.before(index, cutter.needs_rows_before):
                        cutter.add(*pieces.pop())
                    batch = cutter.cut()
                    pieces.gave(batch.num_rows)
                    pieces.go_ahead()
                    if cutter.has_parts:
                        cutter.begin_ahead()
                    yield batch
            finally:
                if cutter.has_parts:
                    cutter.close()
    finally:
        pieces.close()


def read_sync(context: ReadContext, projection: Projection, spans: Sequence[Span]) -> list[pa.ChunkedArray]:
    """See `TableReader.read_sync`."""
    collector = Collector(projection)
    ahead = _Ahead(context, projection, spans)
    try:
        for index, (_, start, end) in enumerate(spans):
            leaves: dict[int, list[tuple[Piece, Any]]] = {}
            while ahead.before(index, end):
                leaf_id, piece, array = ahead.pop()
                leaves.setdefault(leaf_id, []).append((piece, array))
            collector.add(index, start, end, leaves)
    finally:
        ahead.close()
    return collector.columns()
