"""Scans of runs of small files in the caller's thread. A pool job reads all bytes of several files, decodes those that
match a template together (`file_templates.py`), and the others one by one.

Files are not cached, and their pages have no objects: the rows of a job become one array per leaf.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lance_io import limits
from lance_io.file.file_requests import read_file_sync, read_whole_files
from lance_io.file.open.leaf_projection import FileColumns
from lance_io.file.scan.batches import Cutter
from lance_io.file.scan.decoded_parts import Allowance, held_bytes
from lance_io.file.scan.page_slices import read_group
from lance_io.file.scan.pool_jobs import HeldBytes, JobQueue, PoolJob
from lance_io.file.scan.readahead import file_pieces
from lance_io.file.scan.templates.file_run import FileRun, rows_max
from lance_io.file.scan.templates.file_templates import FileTemplates
from lance_io.gil import MANY, yielding
from lance_io.io.stats import sinks_now
from lance_io.levels.arrays import memory_bytes
from lance_io.limits import KIB

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from lance_io.file.open.file_source import FileRef, ReadContext
    from lance_io.file.open.leaf_projection import LeafColumns, Projection
    from lance_io.file.scan.batches import JoinedBatch, ScanBatch
    from lance_io.file.scan.readahead import Readahead, Span
    from lance_io.store.profile import StoreProfile

    Batch = ScanBatch | JoinedBatch

FILES_MAX: Final = 256  # per job, which is uninterruptible: 15 us per file
JOBS_PER_THREAD: Final = 4  # jobs per running job at least: with few large jobs, cores idle at the end of the scan
FILES_MIN: Final = 16  # per job, if there are enough files: the overhead of a job equals five files
RUN_PAGES_MIN: Final = 24  # fewer pages are read one by one as quickly, and their decoding starts sooner
ENDS_TO_SIZE: Final = 2  # a file of version 0.1 may have this many times the bytes that the manifest gives,
ENDS_BYTES: Final = 64 * KIB  # plus these: page tables, and statistics of batches
LEAVES_MAX: Final = 8192  # per file: 10 us per leaf in an uninterruptible call
LEAF_BYTES_MAX: Final = 16 * KIB  # average per leaf of a file: larger pages are worth a job each


def small_runs(
    context: ReadContext, projection: Projection, spans: Sequence[Span], ahead: Readahead
) -> Iterator[tuple[int, int, LeafColumns | None]]:
    """Split spans into runs: first, end, and the common leaves of a run of small files with the same columns.

    The leaves are None for other files and for short runs, and for all spans if the caller sets the readahead, which
    counts pages.
    """
    if ahead.is_explicit or ahead.spans is not None:
        yield 0, len(spans), None
        return
    small = _SmallFileSelector(projection, context.store.profile)
    first, leaves = 0, None
    runs: list[tuple[int, int, LeafColumns | None]] = []
    for at in iter(range(len(spans) + 1)) if len(spans) < MANY else yielding(range(len(spans) + 1)):
        span_leaves = small.leaves_of(spans[at]) if at < len(spans) else None
        if at and (span_leaves is not leaves or at == len(spans)):
            is_worth = leaves is not None and (at - first) * len(leaves.columns) >= RUN_PAGES_MIN
            run = first, at, leaves if is_worth else None
            if runs and runs[-1][2] is None is run[2]:
                run = runs.pop()[0], at, None
            runs.append(run)
            first = at
        leaves = span_leaves
    yield from runs


def size_of(ref: FileRef) -> int:
    """Approximate size of a file in bytes; 0 if unknown."""
    return ref.size_bytes or ref.about_bytes


class _SmallFileSelector:
    """Selects files to read whole: small ones, and wide ones of which all columns are wanted.

    Where requests cost something, metadata is kept and bytes take time: larger files are read whole only for all of
    their columns, and files of unknown size are not.
    """

    def __init__(self, projection: Projection, profile: StoreProfile) -> None:
        self._projection = projection
        self._whole_bytes = profile.whole_file_bytes
        self._is_costly = profile.costs is not None
        self._part_bytes = profile.tail_bytes if self._is_costly else profile.whole_file_bytes
        self._field_ids: tuple[int, ...] | None = None  # of the previous file
        self._column_indices: tuple[int, ...] | None = None
        self._leaves: LeafColumns | None = None  # its projected leaves, None if templates do not apply
        self._bytes_max = 0
        self._rows_max = 0

    def leaves_of(self, span: Span) -> LeafColumns | None:
        """The projected leaves of a span's file; None if the file is not to be read whole."""
        source, start, end = span
        if start or end != source.num_rows or not end or len(source.files) != 1:
            return None
        ref = source.files[0]
        if ref.field_ids != self._field_ids or ref.column_indices != self._column_indices:
            self._update(ref)
        if source.num_rows > self._rows_max:
            return None
        num_bytes = ref.size_bytes if self._is_costly else size_of(ref)
        return self._leaves if 0 < num_bytes <= self._bytes_max else None

    def _update(self, ref: FileRef) -> None:
        self._field_ids, self._column_indices = ref.field_ids, ref.column_indices
        leaves = self._projection.leaf_columns(ref)
        count = len(leaves.columns)
        self._leaves = leaves if 0 < count <= LEAVES_MAX and FileTemplates.of(leaves).is_effective else None
        self._rows_max = rows_max(leaves)
        is_whole = count == len(ref.columns)
        many_bytes = max(self._whole_bytes, count * LEAF_BYTES_MAX) if is_whole else self._part_bytes
        self._bytes_max = min(limits.SCAN_PIECE_BYTES, many_bytes)


class _Job(PoolJob["deque[Batch | Cutter | int]"]):
    """The files of some spans, `first` to `end`."""

    __slots__ = ("end", "first")

    def __init__(self, work: Any, first: int, end: int, num_bytes: int) -> None:
        super().__init__(work, num_bytes, num_bytes)
        self.first = first
        self.end = end


class SmallFiles(FileRun):
    """A scan of a run of small files."""

    def __post_init__(self) -> None:
        super().__post_init__()
        context, pieces = self.context, self.ahead.pieces
        # Captured here: the pool's threads do not see the caller's context.
        self._sinks = sinks_now(context.store.identity, context.shared)
        self._held = HeldBytes(context.io_buffer_bytes, context.pool, self._sinks)
        fewest = min(FILES_MIN, -(-len(self.spans) // pieces))
        self._files_max = min(FILES_MAX, max(fewest, len(self.spans) // (JOBS_PER_THREAD * pieces)))
        self._jobs: JobQueue[_Job] = JobQueue(self._held)

    def batches(self) -> Generator[Batch | int, None, None]:
        """Batches of the spans in order, or the index of a span among these that the general scan must read.

        It ends before the last span, after `num_begun`, if most files match no template.
        """
        try:
            self._fill()
            while self._jobs:
                job = self._jobs[0]
                if self._jobs.is_single_core:
                    job.cancel()
                batches = job.result()
                while batches:
                    batch = batches.popleft()
                    self._held.use(job, 0)
                    if self.pace is not None:
                        self.pace.consumed(self.num_rows(batch))
                    if not batches:
                        self._jobs.popleft()
                    if not batches or self.pace is not None:
                        self._fill()
                    if self._jobs.is_single_core:
                        self._jobs.submit_all()
                    if isinstance(batch, Cutter):
                        yield from batch.all()
                    else:
                        yield batch
        finally:
            self._jobs.close()

    def _fill(self) -> None:
        while len(self._jobs) < self.ahead.pieces and self.num_begun < len(self.spans) and self.templates.is_effective:
            if self._jobs and not self.allows(self.num_begun):
                return
            job = self._next_job()
            if self._jobs and not self._held.has_room(job.num_bytes):
                return
            self.num_begun = job.end
            self._jobs.begin(job)

    def _next_job(self) -> _Job:
        """A job of the next files. The manifest has the sizes of all of them, or of none."""
        first = self.num_begun
        end, num_bytes, num_rows, is_sized = first, 0, 0, False
        while end < min(len(self.spans), first + self._files_max):
            source = self.spans[end][0]
            ref = source.files[0]
            own_bytes, own_sized = size_of(ref), ref.size_bytes > 0
            is_full = num_bytes + own_bytes > limits.SCAN_FILES_BYTES or num_rows + source.num_rows > self.rows_max
            if end > first and (is_full or own_sized != is_sized or not self.allows(end)):
                break
            num_bytes, num_rows, is_sized = num_bytes + own_bytes, num_rows + source.num_rows, own_sized
            end += 1
        return _Job(self._read, first, end, num_bytes)

    # -- on any thread ---------------------------------------------------------------------------------------------

    def _read(self, job: _Job) -> deque[Batch | Cutter | int]:
        try:
            batches = deque(self._batches_of(job))
            self._held.keep(job, list(map(_held_bytes, batches)))
        finally:
            self._held.release_job(job)
        return batches

    def _batches_of(self, job: _Job) -> Iterator[Batch | Cutter | int]:
        sources = [source for source, _, _ in self.spans[job.first : job.end]]
        refs = [source.files[0] for source in sources]
        bytes_max = max(map(size_of, refs))
        if not refs[0].size_bytes:  # then no size is known
            bytes_max = ENDS_TO_SIZE * bytes_max + ENDS_BYTES
        read = read_whole_files(refs, self.context, self._sinks, bytes_max)
        files: list[tuple[Any, int]] = [
            (data if len(data) == size else b"", source.num_rows)  # larger than expected: general reader
            for (data, size), source in zip(read, sources, strict=True)
        ]
        allowance = Allowance(limits.SCAN_DECODED_BYTES, partial(self._held.claim, job))
        return self.decode(job.first, files, allowance, lambda index, _, left: self._read_alone(index, left))

    def _read_alone(self, index: int, allowance: Allowance) -> Iterator[ScanBatch | Cutter | int]:
        """The batches of a span by the general reader, or a `Cutter` if parts are deferred.

        The index of the span if it decodes to much that cannot be deferred.
        """
        context, span = self.context, self.spans[index]
        file_columns = FileColumns(span[0].files[0], self.leaves)
        key, opening = file_columns.ref.key, file_pieces(context, file_columns, span, keep=False)
        pieces = read_file_sync(opening, context, key, sinks=self._sinks)
        group = [piece for _, piece in pieces]
        if self.needs_general(group, allowance):
            yield index
            return
        gap_bytes = context.store.profile.scan_gap_bytes
        steps = read_group(group, allowance)
        arrays = read_file_sync(steps, context, key, gap_bytes=gap_bytes, sinks=self._sinks, is_charged=True)
        for piece, array in zip(group, arrays, strict=True):
            held_bytes(piece, array)  # checks the sizes of its rows
        room = self._held.part_room()
        cutter = Cutter(self.projection, self.first + index, 0, span[0].num_rows, None, room)
        for (leaf_id, piece), array in zip(pieces, arrays, strict=True):
            cutter.add(leaf_id, piece, array)
        if cutter.has_parts:
            yield cutter
        else:
            yield from cutter.all()


def _held_bytes(batch: Batch | Cutter | int) -> int:
    if isinstance(batch, int):
        return 0
    return batch.held_bytes if isinstance(batch, Cutter) else sum(map(memory_bytes, batch.arrays))
