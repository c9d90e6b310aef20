"""Scans of small files after one another, in the caller's thread: a job of the pool reads all bytes of some, and
decodes those that look like files seen before together (`file_templates.py`), the others one by one.

Nothing is kept of a file, and no object exists for its pages: what its rows become is one array for each leaf and job.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lance_io import limits
from lance_io.file.file_requests import read_file_sync, read_whole_files
from lance_io.file.open.leaf_projection import FileColumns
from lance_io.file.scan.batches import Cutter, JoinedBatch
from lance_io.file.scan.decoded_parts import Allowance, held_bytes
from lance_io.file.scan.page_slices import read_group
from lance_io.file.scan.pool_jobs import HeldBytes, JobQueue, PoolJob
from lance_io.file.scan.readahead import file_pieces
from lance_io.file.scan.templates.file_templates import FileTemplates
from lance_io.io.spares import spares
from lance_io.io.stats import sinks_now
from lance_io.levels.arrays import memory_bytes
from lance_io.levels.row_bytes import fixed_bits
from lance_io.limits import KIB
from lance_io.turns import MANY, in_turns

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    import pyarrow as pa

    from lance_io.file.open.file_source import FileRef, ReadContext
    from lance_io.file.open.leaf_projection import LeafColumns, Projection
    from lance_io.file.scan.batches import ScanBatch
    from lance_io.file.scan.readahead import Readahead, Span
    from lance_io.file.scan.slow_start import Pace

    Batch = ScanBatch | JoinedBatch

FILES_MAX: Final = 256  # of a job: 15 us each, and nothing interrupts it
JOBS_PER_THREAD: Final = 4  # that each job under way is followed by: with few large ones a core idles at the end
FILES_MIN: Final = 16  # of a job, where there are enough for all under way: a job by itself costs as much as five
RUN_PAGES_MIN: Final = 24  # fewer are as quickly read one by one, and begin to be decoded sooner
ENDS_TO_SIZE: Final = 2  # so many times the bytes that a manifest knows of may be in a file of version 0.1,
ENDS_BYTES: Final = 64 * KIB  # and so many more: tables of pages, and statistics of batches
LEAVES_MAX: Final = 8192  # of a file: 10 us each in a call that nothing interrupts
LEAF_BYTES_MAX: Final = 16 * KIB  # of a file, on average: larger pages are worth a job each


def small_runs(
    context: ReadContext, projection: Projection, spans: Sequence[Span], ahead: Readahead
) -> Iterator[tuple[int, int, LeafColumns | None]]:
    """The spans in runs: the first, the end, and what all of them have that are small files with the same columns.

    None instead for others, and for runs that are not worth it. Who says how far to read ahead gets that, page by page.
    """
    if ahead.is_asked_for or ahead.spans is not None:
        yield 0, len(spans), None
        return
    small = _Small(projection, context.store.profile.whole_file_bytes)
    first, leaves = 0, None
    runs: list[tuple[int, int, LeafColumns | None]] = []
    for at in iter(range(len(spans) + 1)) if len(spans) < MANY else in_turns(range(len(spans) + 1)):
        here = small.leaves_of(spans[at]) if at < len(spans) else None
        if at and (here is not leaves or at == len(spans)):
            is_worth = leaves is not None and (at - first) * len(leaves.columns) >= RUN_PAGES_MIN
            run = first, at, leaves if is_worth else None
            if runs and runs[-1][2] is None is run[2]:
                run = runs.pop()[0], at, None
            runs.append(run)
            first = at
        leaves = here
    yield from runs


def size_of(ref: FileRef) -> int:
    """Bytes of a file, about; 0 where nobody knows."""
    return ref.size_bytes or ref.about_bytes


def rows_max(leaves: LeafColumns) -> int:
    """Rows that are decoded in one job: of values that no bytes stand for there may be any number."""
    row_bits = sum([fixed_bits(path.leaf_type) or 0 for path in leaves.paths])
    return min(limits.SCAN_JOB_ROWS, 8 * limits.SCAN_DECODED_BYTES // max(1, row_bits))


class _Small:
    """Which files are worth reading as a whole: small ones, and those of which all of their many columns are wanted."""

    def __init__(self, projection: Projection, whole_bytes: int) -> None:
        self._projection = projection
        self._whole_bytes = whole_bytes
        self._field_ids: tuple[int, ...] | None = None  # of the last file
        self._column_indices: tuple[int, ...] | None = None
        self._leaves: LeafColumns | None = None  # what is read of it, if it may be known
        self._bytes_max = 0
        self._rows_max = 0

    def leaves_of(self, span: Span) -> LeafColumns | None:
        """What is read of the file of a span; None if that is no such file."""
        source, start, end = span
        if start or end != source.num_rows or not end or len(source.files) != 1:
            return None
        ref = source.files[0]
        if ref.field_ids != self._field_ids or ref.column_indices != self._column_indices:
            self._look_at(ref)
        if source.num_rows > self._rows_max:
            return None
        return self._leaves if 0 < size_of(ref) <= self._bytes_max else None

    def _look_at(self, ref: FileRef) -> None:
        self._field_ids, self._column_indices = ref.field_ids, ref.column_indices
        leaves = self._projection.leaf_columns(ref)
        count = len(leaves.columns)
        self._leaves = leaves if 0 < count <= LEAVES_MAX and FileTemplates.of(leaves).is_worth_asking else None
        self._rows_max = rows_max(leaves)
        many_bytes = count * LEAF_BYTES_MAX if count == len(ref.columns) else 0
        self._bytes_max = min(limits.SCAN_PIECE_BYTES, max(self._whole_bytes, many_bytes))


class _Job(PoolJob["deque[Batch | Cutter]"]):
    """The files of some spans, `first` to `end`."""

    __slots__ = ("end", "first")

    def __init__(self, work: Any, first: int, end: int, num_bytes: int) -> None:
        super().__init__(work, num_bytes, num_bytes)
        self.first = first
        self.end = end


class SmallFiles:
    """A scan of spans that are all of a small file each.

    first   the number of the first span
    leaves  what all of the files have
    start   bounds the scan, too
    """

    def __init__(
        self,
        context: ReadContext,
        projection: Projection,
        spans: Sequence[Span],
        first: int,
        leaves: LeafColumns,
        ahead: Readahead,
        start: Pace | None = None,
    ) -> None:
        spares().trim()
        self._context = context
        self._projection = projection
        self._spans = spans
        self._first = first
        self._leaves = leaves
        self._known = FileTemplates.of(leaves)
        self._rows_max = rows_max(leaves)
        self._sinks = sinks_now(
            context.store.identity, context.shared
        )  # the pool's threads know nothing of the caller's blocks
        self._held = HeldBytes(context.io_buffer_bytes, context.pool, self._sinks)
        self._ahead = ahead.pieces
        self._start = start
        fewest = min(FILES_MIN, -(-len(spans) // ahead.pieces))
        self._files_max = min(FILES_MAX, max(fewest, len(spans) // (JOBS_PER_THREAD * ahead.pieces)))
        self._next = 0
        self._jobs: JobQueue[_Job] = JobQueue(self._held)

    def batches(self) -> Generator[Batch, None, int]:
        """Those of all spans, or of the first while most files turn out to be known; gives how many spans these are.

        Where most have to be read in general, whoever goes on with the others does that for several together.
        """
        try:
            self._fill()
            while self._jobs:
                job = self._jobs[0]
                if self._jobs.is_alone:
                    job.take_back()
                found = job.result()
                while found:
                    batch = found.popleft()
                    self._held.use(job, 0)
                    if self._start is not None:
                        self._start.gave(batch.end - batch.position if isinstance(batch, Cutter) else batch.num_rows)
                    if not found:
                        self._jobs.popleft()
                    if not found or self._start is not None:
                        self._fill()
                    if self._jobs.is_alone:
                        self._jobs.go_ahead()
                    if isinstance(batch, Cutter):
                        yield from batch.all()
                    else:
                        yield batch
            return self._next
        finally:
            self._jobs.close()

    def _fill(self) -> None:
        while len(self._jobs) < self._ahead and self._next < len(self._spans) and self._known.is_worth_asking:
            if self._jobs and not self._reaches(self._next):
                return
            job = self._following()
            if self._jobs and not self._held.has_room(job.num_bytes):
                return
            self._next = job.end
            self._jobs.begin(job)

    def _following(self) -> _Job:
        """The next files, as many as are worth a job; the sizes of all are known, or those of none."""
        first = self._next
        end, num_bytes, num_rows, is_sized = first, 0, 0, False
        while end < min(len(self._spans), first + self._files_max):
            source = self._spans[end][0]
            ref = source.files[0]
            own_bytes, own_sized = size_of(ref), ref.size_bytes > 0
            is_full = num_bytes + own_bytes > limits.SCAN_FILES_BYTES or num_rows + source.num_rows > self._rows_max
            if end > first and (is_full or own_sized != is_sized or not self._reaches(end)):
                break
            num_bytes, num_rows, is_sized = num_bytes + own_bytes, num_rows + source.num_rows, own_sized
            end += 1
        return _Job(self._read, first, end, num_bytes)

    def _reaches(self, index: int) -> bool:
        return self._start is None or self._start.reaches(self._first + index)

    # -- on any thread ---------------------------------------------------------------------------------------------

    def _read(self, job: _Job) -> deque[Batch | Cutter]:
        try:
            found = deque(self._batches_of(job))
            self._held.keep(job, list(map(_held_bytes, found)))
        finally:
            self._held.give_back(job)
        return found

    def _batches_of(self, job: _Job) -> Iterator[Batch | Cutter]:
        sources = [source for source, _, _ in self._spans[job.first : job.end]]
        refs = [source.files[0] for source in sources]
        bytes_max = max(map(size_of, refs))
        if not refs[0].size_bytes:  # nor are the sizes of the others known
            bytes_max = ENDS_TO_SIZE * bytes_max + ENDS_BYTES
        read = read_whole_files(refs, self._context, self._sinks, bytes_max)
        files: list[tuple[Any, int]] = [
            (data if len(data) == size else b"", source.num_rows)  # what is larger than expected is read in general
            for (data, size), source in zip(read, sources, strict=True)
        ]
        allowance = Allowance(limits.SCAN_DECODED_BYTES, partial(self._held.claim, job))
        at, known, identity = 0, self._known, self._context.store.identity
        while at < len(files):
            before = known.state
            count, arrays = known.read(files[at:])
            if count:
                yield self._joined(job.first + at, [num_rows for _, num_rows in files[at : at + count]], arrays)
                at += count
            elif not known.add(refs[at], identity, files[at][0], before):
                known.record_miss()
                yield from self._read_alone(job.first + at, allowance)
                at += 1

    def _joined(self, index: int, row_counts: list[int], arrays: list[pa.Array]) -> JoinedBatch:
        projection, num_rows = self._projection, sum(row_counts)
        if not (projection.is_flat and self._leaves.is_all):
            by_leaf = dict(zip(self._leaves.leaf_ids, arrays, strict=True))
            numbers = range(len(projection.fields))
            arrays = [projection.assemble_field(number, by_leaf, num_rows) for number in numbers]
        return JoinedBatch(self._first + index, row_counts, num_rows, arrays)

    def _read_alone(self, index: int, allowance: Allowance) -> Iterator[ScanBatch | Cutter]:
        """The batches of a span, as those of any file; what cuts them, where parts are decoded only then."""
        context, span = self._context, self._spans[index]
        here = FileColumns(span[0].files[0], self._leaves)
        pieces = read_file_sync(file_pieces(context, here, span, keep=False), context, here.ref.key, sinks=self._sinks)
        group = [piece for _, piece in pieces]
        gap_bytes = context.store.profile.scan_gap_bytes
        steps, key = read_group(group, allowance), here.ref.key
        arrays = read_file_sync(steps, context, key, gap_bytes=gap_bytes, sinks=self._sinks, is_charged=True)
        for one, array in zip(group, arrays, strict=True):
            held_bytes(one, array)  # which looks at its rows
        room = self._held.part_room()
        cutter = Cutter(self._projection, self._first + index, 0, span[0].num_rows, None, room)
        for (leaf_id, piece), array in zip(pieces, arrays, strict=True):
            cutter.add(leaf_id, piece, array)
        if cutter.has_parts:
            yield cutter
        else:
            yield from cutter.all()


def _held_bytes(found: Batch | Cutter) -> int:
    return found.held_bytes if isinstance(found, Cutter) else sum(map(memory_bytes, found.arrays))
