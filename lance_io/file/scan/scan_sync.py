"""Scans in the caller's thread, for stores without latency: the CPU pool reads and decodes the pieces.

Runs of small files are read and decoded whole, without pieces (`small_files.py`).
"""

from __future__ import annotations

from collections import deque
from contextlib import closing
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from lance_io import limits
from lance_io.file.file_requests import read_file_sync, read_files_sync
from lance_io.file.file_steps import side_by_side
from lance_io.file.scan.batches import Collector, Cutter, ScanBatch, whole_span
from lance_io.file.scan.decoded_parts import Allowance, DeferredParts, held_bytes
from lance_io.file.scan.page_slices import fits_group, fits_job, read_group, read_groups
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
from lance_io.io.buffer_pool import buffer_pool
from lance_io.io.stats import sinks_now
from lance_io.levels.row_bytes import fixed_bits
from lance_io.limits import KIB

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    import pyarrow as pa

    from lance_io.file.open.file_source import ReadContext
    from lance_io.file.open.leaf_projection import LeafColumns, Projection
    from lance_io.file.scan.batches import JoinedBatch
    from lance_io.file.scan.page_slices import Piece
    from lance_io.file.scan.readahead import Span
    from lance_io.file.scan.slow_start import Pace

TURNS_MIN: Final = 4  # jobs per running job at least: with few large jobs, cores idle at the end of the scan
OPENED_MAX: Final = 64  # files to open together
LEARNED_BYTES_MIN: Final = 256 * KIB  # of pieces that say something of those that follow
GROWTH_MARGIN: Final = 1.25  # of their decoded sizes


class _Job(PoolJob["list[Any]"]):
    """Reads and decodes small pieces of one or several files. Its result: an array or `DeferredParts` per piece.

    groups          groups of pieces that are read and decoded together, each of one file
    entries         (span, leaf, piece) not popped yet
    group_bytes     bytes to read for the last group
    group_expected  its expected decoded bytes
    """

    __slots__ = ("_arrays", "_rows_before", "entries", "group_bytes", "group_expected", "groups")

    def __init__(self, work: Callable[[_Job], list[Any]]) -> None:
        super().__init__(work)
        self.groups: list[list[Piece]] = []
        self.group_bytes = self.group_expected = 0
        self._rows_before = 0  # rows before the last group
        self.entries: deque[tuple[int, int, Piece]] = deque()
        self._arrays: deque[Any] | None = None

    def add(self, entry: tuple[int, int, Piece]) -> None:
        """Add a piece, with its span and leaf."""
        piece = entry[2]
        if self.groups and self.groups[-1][0].file is piece.file:
            self.groups[-1].append(piece)
        else:
            self._rows_before = self.num_rows
            self.groups.append([piece])
            self.group_bytes = self.group_expected = 0
        expected_bytes = piece.expected_bytes
        self.num_bytes += piece.num_bytes
        self.expected_bytes += expected_bytes
        self.group_expected += expected_bytes
        self.group_bytes += piece.num_bytes
        self.entries.append(entry)

    def add_file(self, entries: Sequence[tuple[int, int, Piece]], num_bytes: int, expected_bytes: int) -> None:
        """Add pieces of the same rows of a further file, with the sums of their bytes."""
        self._rows_before = self.num_rows
        self.groups.append([piece for _, _, piece in entries])
        self.num_bytes += num_bytes
        self.expected_bytes += expected_bytes
        self.group_bytes, self.group_expected = num_bytes, expected_bytes
        self.entries.extend(entries)

    @property
    def num_rows(self) -> int:
        """Rows of all groups."""
        if not self.groups:
            return 0
        group = self.groups[-1]
        return self._rows_before + group[-1].row_end - group[0].row_start

    @property
    def first(self) -> tuple[int, Piece]:
        """The next piece and its span."""
        index, _, piece = self.entries[0]
        return index, piece

    def pop(self) -> tuple[int, Piece, Any]:
        """Remove and return the next leaf, piece, and decoded array or deferred parts."""
        arrays = self._decoded()  # the job needs its entries until then
        _, leaf_id, piece = self.entries.popleft()
        return leaf_id, piece, arrays.popleft()

    def has_next(self, index: int, leaf_ids: Sequence[int], start: int, end: int) -> bool:
        """Whether the next pieces are exactly these rows of a span, one piece per leaf in this order."""
        entries = self.entries
        if len(entries) < len(leaf_ids):
            return False
        for (span, leaf_id, piece), wanted in zip(entries, leaf_ids, strict=False):
            if span != index or leaf_id != wanted or piece.row_start != start or piece.row_end != end:
                return False
        return True

    def pop_together(self, count: int, num_rows: int) -> tuple[list[Piece], list[pa.Array]] | None:
        """Remove and return the next `count` decoded pieces; None without removing any if one lacks rows."""
        arrays, entries = self._decoded(), self.entries
        first = list(islice(arrays, count))
        if any([type(array) is DeferredParts or len(array) != num_rows for array in first]):
            return None
        for _ in first:
            arrays.popleft()
        return [entries.popleft()[2] for _ in first], first

    def _decoded(self) -> deque[Any]:
        if self._arrays is None:
            self._arrays = deque(self.result())
        return self._arrays

    def __bool__(self) -> bool:
        return bool(self.entries)


class _PieceQueue:
    """Queue of the pieces of some spans in order; reads and decodes a limited number ahead.

    pace   row limit of the scan that they belong to; None for no such limit
    first  index of the first span in that scan
    """

    def __init__(
        self,
        context: ReadContext,
        projection: Projection,
        spans: Sequence[Span],
        ahead: Readahead = DEFAULT_READAHEAD,
        pace: Pace | None = None,
        first: int = 0,
    ) -> None:
        buffer_pool().trim()
        self._context = context
        self._projection = projection
        # Captured here: the pool's threads do not see the caller's context.
        self._sinks = sinks_now(context.store.identity, context.shared)
        self._held = HeldBytes(context.io_buffer_bytes, context.pool, self._sinks)
        self._jobs: JobQueue[_Job] = JobQueue(self._held)
        self.part_room = self._held.part_room()
        self._ahead = ahead
        self._pace = pace
        self._first = first
        self._files_per_job = max(1, len(spans) // (TURNS_MIN * ahead.pieces))
        self._leaf_ids = list(projection.leaves)
        self._keeps = len(spans) <= KEPT_FILES_MAX
        self._growth: dict[int, float] = {}  # decoded bytes per stored byte of the last pieces, by leaf
        self._source = self._pieces(spans)
        self._waiting: deque[tuple[int, int, Piece]] = deque()  # the next pieces, all of one span
        self._file_bytes: tuple[int, int] | None = None  # see `_bytes_of_file`
        self._next = self._next_piece()
        # With several files per job, other threads have files of their own.
        self._group_bytes = group_bytes(self._held.num_cpus) if self._files_per_job == 1 else limits.SCAN_JOB_BYTES
        if ahead.gate is not None:
            ahead.gate.listener = self._fill
        try:
            self._fill()
        except BaseException:  # some jobs may have started
            self.close()
            raise

    def _pieces(self, spans: Sequence[Span]) -> Iterator[list[tuple[int, int, Piece]]]:
        """The pieces of each span that has some, in row order, each with its span and leaf."""
        first = 0
        while first < len(spans):
            some = spans[first : first + self._num_together(spans, first)]
            for index, pieces in enumerate(self._pieces_of(some, first), first):
                if pieces:
                    yield [(index, leaf_id, piece) for leaf_id, piece in in_row_order(pieces)]
            first += len(some)

    def _next_piece(self) -> tuple[int, int, Piece] | None:
        """Go on to the next piece, whose decoded size is expected to be that of pieces of its leaf before."""
        waiting = self._waiting
        self._file_bytes = None
        if waiting:
            waiting.popleft()
        if not waiting:
            waiting.extend(next(self._source, ()))
            self._file_bytes = self._bytes_of_file()
        if not waiting:
            return None
        entry = waiting[0]
        if self._file_bytes is None and (growth := self._growth.get(entry[1])) is not None:
            entry[2].expect(growth)
        return entry

    def _next_file(self) -> tuple[int, int, Piece] | None:
        """Go on to the first piece after all that wait."""
        self._waiting.clear()
        return self._next_piece()

    def _bytes_of_file(self) -> tuple[int, int] | None:
        """Stored and expected bytes of the waiting pieces, if they are the same rows of one file, all whole pages.

        None for other pieces, and if the expected size of a page is not known: its layout is parsed when it is needed.
        """
        first: Piece | None = None
        num_bytes = expected_bytes = 0
        for _, leaf_id, piece in self._waiting:
            first = first or piece
            is_same = piece.file is first.file and piece.row_start == first.row_start
            if not is_same or not piece.is_whole or piece.known_bytes < 0:
                return None
            if self._growth and (growth := self._growth.get(leaf_id)) is not None:
                piece.expect(growth)
            num_bytes += piece.num_bytes
            expected_bytes += piece.known_bytes
        return num_bytes, expected_bytes

    def _learn(self, entries: Iterable[tuple[int, int, Piece]], arrays: Sequence[Any], sizes: Sequence[int]) -> None:
        """Remember how much decoded pieces grew; in any thread."""
        for (_, leaf_id, piece), array, size in zip(entries, arrays, sizes, strict=True):
            is_large = piece.num_bytes >= LEARNED_BYTES_MIN and type(array) is not DeferredParts
            if is_large and fixed_bits(array.type) is None:  # otherwise metadata say how much it is
                growth = GROWTH_MARGIN * size / piece.num_bytes
                self._growth[leaf_id] = max(growth, (growth + self._growth.get(leaf_id, growth)) / 2)

    def _num_together(self, spans: Sequence[Span], first: int) -> int:
        """Number of spans whose files are opened together: at most as many as fit one job."""
        if self._files_per_job == 1 or self._ahead.spans is not None or self._ahead.is_explicit:
            return 1
        num_rows = num_bytes = 0
        for at in range(first, min(len(spans), first + min(self._files_per_job, OPENED_MAX))):
            if at > first and not self._allows(at):
                return at - first
            source, start, end = spans[at]
            num_rows += end - start
            num_bytes += sum([file.size_bytes for file in source.files])  # small files are read whole
            if num_rows > limits.SCAN_JOB_ROWS or num_bytes > limits.SCAN_FILES_BYTES:
                return max(1, at - first)
        return min(len(spans) - first, self._files_per_job, OPENED_MAX)

    def _pieces_of(self, spans: Sequence[Span], first: int) -> list[list[tuple[int, Piece]]]:
        """The pieces of spans from index `first` on; opens their files together."""
        steps, file_counts = [], []
        for index, span in enumerate(spans, first):
            source, start, end = span
            files = self._projection.locate(source, keep=self._keeps) if start < end else []
            borders = None if self._pace is None else self._pace.borders(self._first + index)
            pieces_of = partial(file_pieces, self._context, span=span, keep=self._keeps, borders=borders)
            steps += [(file_columns.ref, pieces_of(file_columns=file_columns)) for file_columns in files]
            file_counts.append(len(files))
        if len(steps) == 1:
            pieces = [read_file_sync(steps[0][1], self._context, steps[0][0].key, sinks=self._sinks)]
        else:
            pieces = read_files_sync(side_by_side(steps), self._context, sinks=self._sinks)
        rest = iter(pieces)
        return [[piece for one_file in islice(rest, count) for piece in one_file] for count in file_counts]

    def _decode(self, job: _Job) -> list[Any]:
        """Read and decode the pieces of a job, in any thread."""
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
            entries = list(job.entries)
            sizes = [held_bytes(piece, array) for (_, _, piece), array in zip(entries, arrays, strict=True)]
            self._learn(entries, arrays, sizes)
            self._held.keep(job, sizes)
        finally:
            self._held.release_job(job)
        return arrays

    def _fill(self, *, is_needed: bool = False) -> None:
        while len(self._jobs) < self._ahead.pieces and (self._may_start_job or (is_needed and not self._jobs)):
            job = _Job(self._decode)
            while not job or self._fits(job):
                assert self._next is not None, "checked above"
                if self._file_bytes is not None and self._fits_file(job, self._next, *self._file_bytes):
                    job.add_file(self._waiting, *self._file_bytes)
                    self._next = self._next_file()
                else:
                    job.add(self._next)
                    self._next = self._next_piece()
            self._jobs.begin(job)

    @property
    def _may_start_job(self) -> bool:
        """Whether a job may start with the next piece: it is needed now, or within all limits."""
        if self._next is None:
            return False
        index, _, piece = self._next
        if not self._jobs:
            return self._ahead.gate is None or self._allows(index, piece.row_start)
        if not (self._is_near(index, self._jobs[0]) and self._allows(index, piece.row_start)):
            return False
        return self._held.has_room_for_job(piece.num_bytes, piece.expected_bytes, len(self._jobs))

    def _fits(self, job: _Job) -> bool:
        """Whether to add the next piece to the job, within all limits."""
        if self._next is None or self._ahead.is_explicit:
            return False
        index, _, piece = self._next
        if not self._allows(index, piece.row_start):
            return False
        if not self._held.has_room(job.num_bytes + piece.num_bytes, job.expected_bytes + piece.expected_bytes):
            return False
        first = job.groups[-1][0]
        if piece.file is first.file:
            return fits_group(piece, first, job.group_bytes, self._group_bytes, job.group_expected)
        oldest = self._jobs[0] if self._jobs else job
        has_place = len(job.groups) < self._files_per_job and self._is_near(index, oldest)
        return has_place and fits_job(piece, job.num_rows, job.num_bytes, job.expected_bytes)

    def _fits_file(self, job: _Job, entry: tuple[int, int, Piece], num_bytes: int, expected_bytes: int) -> bool:
        """Whether all waiting pieces, of which `entry` is the first and fits, can be added at once.

        This is the case if the sums of their bytes are within the limits that `_fits` checks piece by piece.

        num_bytes, expected_bytes  these sums, see `_bytes_of_file`
        """
        index, _, piece = entry
        if self._ahead.is_explicit or not self._allows(index, piece.row_start):
            return False
        if job.groups and job.groups[-1][0].file is piece.file:
            return False
        if num_bytes > self._group_bytes or expected_bytes > max(self._group_bytes, limits.SCAN_DECODED_BYTES):
            return False
        return self._held.has_room(job.num_bytes + num_bytes, job.expected_bytes + expected_bytes)

    def _allows(self, index: int, row: int | None = None) -> bool:
        return self._pace is None or self._pace.allows(self._first + index, row)

    def _is_near(self, index: int, oldest: _Job) -> bool:
        return self._ahead.spans is None or index - oldest.first[0] <= self._ahead.spans

    def has_piece_before(self, span_index: int, row: int) -> bool:
        """Whether the next piece belongs to the span and starts before the row."""
        if not self._jobs:  # the gate did not allow the next piece
            if self._next is None or self._next[0] != span_index or self._next[2].row_start >= row:
                return False
            self._fill(is_needed=True)
        index, piece = self._jobs[0].first
        return index == span_index and piece.row_start < row

    def pop_span(self, index: int, start: int, end: int) -> tuple[list[Piece], list[pa.Array]] | None:
        """All rows of a span, if each leaf has them in its next piece; otherwise None."""
        leaf_ids = self._leaf_ids
        if not self._jobs or not leaf_ids or not self._jobs[0].has_next(index, leaf_ids, start, end):
            return None
        job = self._need_first()
        popped = job.pop_together(len(leaf_ids), end - start)
        if popped is None:
            return None
        self._held.use_together(job, leaf_ids)
        self._advance(job)
        return popped

    def pop(self) -> tuple[int, Piece, Any]:
        """Remove and return the next leaf, piece, and decoded array or deferred parts."""
        job = self._need_first()
        popped = job.pop()
        self._held.use(job, popped[0])
        self._advance(job)
        return popped

    def _advance(self, job: _Job) -> None:
        if not job:
            self._jobs.popleft()  # all of its pieces have been used
            self._fill()

    def consumed(self, num_rows: int) -> None:
        """The consumer took `num_rows` rows, which raises the limit of a slow start."""
        if self._pace is not None:
            self._pace.consumed(num_rows)
            self._fill()

    def _need_first(self) -> _Job:
        """The first job, whose result is needed now; on a single core this thread runs it."""
        job = self._jobs[0]
        if self._jobs.is_single_core:
            job.cancel()
        return job

    def submit_all(self) -> None:
        """See `JobQueue`; without effect with several cores, where jobs are submitted at once."""
        if self._jobs.is_single_core:
            self._jobs.submit_all()

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
    pace = ahead.pace(spans, context.store.profile)
    for first, end, leaves in small_runs(context, projection, spans, ahead):
        yield from _scan_run(context, projection, spans[first:end], first, leaves, batch_rows, ahead, pace)


def _scan_run(
    context: ReadContext,
    projection: Projection,
    spans: Sequence[Span],
    first: int,
    leaves: LeafColumns | None,
    batch_rows: int | None,
    ahead: Readahead,
    pace: Pace | None,
) -> Generator[ScanBatch | JoinedBatch, None, None]:
    """The batches of some spans. `first` is the index of the first span, `leaves` those of all if they are small."""
    if leaves is not None:
        small = SmallFiles(context, projection, spans, first, leaves, ahead, pace)
        with closing(small.batches()) as parts:
            for part in parts:
                if isinstance(part, int):
                    alone = spans[part : part + 1]
                    yield from _scan_pieces(context, projection, alone, first + part, batch_rows, ahead, None)
                else:
                    yield part
        spans, first = spans[small.num_begun :], first + small.num_begun
    if spans:
        yield from _scan_pieces(context, projection, spans, first, batch_rows, ahead, pace)


def _scan_pieces(
    context: ReadContext,
    projection: Projection,
    spans: Sequence[Span],
    first: int,
    batch_rows: int | None,
    ahead: Readahead,
    pace: Pace | None,
) -> Generator[ScanBatch, None, None]:
    """The batches of some spans; `first` is the index of the first one."""
    pieces = _PieceQueue(context, projection, spans, ahead, pace, first)
    try:
        for index, (_, begin, end) in enumerate(spans):
            if batch_rows is None or end - begin <= batch_rows:
                whole = pieces.pop_span(index, begin, end)
                if whole is not None:  # a small file, zero-copy
                    pieces.consumed(end - begin)
                    pieces.submit_all()
                    yield whole_span(projection, first + index, begin, end - begin, *whole)
                    continue
            cutter = Cutter(projection, first + index, begin, end, batch_rows, pieces.part_room)
            try:
                while cutter.position < end:
                    while pieces.has_piece_before(index, cutter.needs_rows_before):
                        cutter.add(*pieces.pop())
                    batch = cutter.cut()
                    pieces.consumed(batch.num_rows)
                    pieces.submit_all()
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
    ahead = _PieceQueue(context, projection, spans)
    try:
        for index, (_, start, end) in enumerate(spans):
            leaves: dict[int, list[tuple[Piece, Any]]] = {}
            while ahead.has_piece_before(index, end):
                leaf_id, piece, array = ahead.pop()
                leaves.setdefault(leaf_id, []).append((piece, array))
            collector.add(index, start, end, leaves)
    finally:
        ahead.close()
    return collector.columns()
