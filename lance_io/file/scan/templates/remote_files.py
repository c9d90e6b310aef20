"""Scans of runs of small files on the engine's loop: one request for each file, and one kernel call for files that look
alike (`file_templates.py`).

    request whole files ahead, within the scan's buffer -> some together -> decode them on the CPU pool -> batches

A file that matches no template is decoded by itself, from the same bytes. One that does not look right, or whose values
take much more memory than its bytes, is left to the general scan: it asks for its bytes again, and reports damage.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from lance_io import limits
from lance_io.errors import ResourceLimitError
from lance_io.file.file_requests import truncation_error
from lance_io.file.file_steps import Tail
from lance_io.file.open.leaf_projection import FileColumns
from lance_io.file.open.open_file import open_ending
from lance_io.file.scan.batches import Cutter
from lance_io.file.scan.decoded_parts import Allowance, held_bytes
from lance_io.file.scan.page_slices import column_pieces, read_group
from lance_io.file.scan.templates.file_run import FileRun
from lance_io.format.error_context import FILE_ERRORS
from lance_io.levels.arrays import memory_bytes
from lance_io.limits import IO_BUFFER_BYTES, SCAN_PIECE_BYTES
from lance_io.records import dataclass
from lance_io.runtime import cpu_pool
from lance_io.spans import Ranges
from lance_io.store.failures import InvalidRange, ShortRead

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from lance_io.file.file_steps import FileSteps
    from lance_io.file.scan.batches import JoinedBatch, ScanBatch
    from lance_io.file.scan.page_slices import Piece
    from lance_io.io.scheduler import Handle

    Part: TypeAlias = JoinedBatch | ScanBatch

T = TypeVar("T")
FILES_AHEAD_MAX: Final = 512  # requested and not decoded: as many as a store takes requests
JOB_BYTES: Final = limits.SCAN_GROUP_BYTES  # of files that are decoded together,
JOBS_AHEAD: Final = 4  # so many times within the scan's buffer at least
JOB_FILES_MAX: Final = 256  # 15 us for each, in a call that nothing interrupts


@dataclass(slots=True, eq=False)
class _Job:
    """The files of some spans, `first` to `end`.

    handles     of their bytes
    num_bytes   of all of them
    task        decodes them; None before that is allowed
    kept_bytes  decoded bytes that the pool counts
    """

    first: int
    end: int
    handles: list[Handle]
    num_bytes: int
    task: asyncio.Task[deque[Part | int]] | None = None
    kept_bytes: int = 0

    def cancel(self) -> None:
        """Stop reading."""
        if self.task is not None:
            self.task.cancel()
        for handle in self.handles:
            handle.cancel()


class RemoteFiles(FileRun):
    """A scan of a run of small files."""

    def __post_init__(self) -> None:
        super().__post_init__()
        context = self.context
        self._scheduler = context.scheduler(self.ahead.merge)
        self._ahead_bytes = context.io_buffer_bytes or IO_BUFFER_BYTES
        self._job_bytes = min(JOB_BYTES, self._ahead_bytes // JOBS_AHEAD)
        self._jobs: deque[_Job] = deque()
        self._requested_bytes = self._requested_files = 0
        self._in_use_bytes = 0

    async def batches(self) -> AsyncGenerator[Part | int, None]:
        """Batches of the spans in order, or the index of a span among these that the general scan must read.

        It ends before the last span if most files match no template.
        """
        try:
            self._request_ahead()
            while self._jobs:
                self._decode_ahead()
                job = self._jobs[0]
                for handle in job.handles:
                    handle.demand()
                assert job.task is not None, "the first one may always decode"
                parts = await job.task
                while parts:  # a consumed batch is not held here
                    part = parts.popleft()
                    self._use(_decoded_bytes(part), job)
                    if self.pace is not None:
                        self.pace.consumed(self.num_rows(part))
                    yield part
                self._jobs.popleft()
                self._request_ahead()
        finally:
            await self._close()

    def _use(self, num_bytes: int, job: _Job) -> None:
        """The consumer advances to a batch of a job, which releases the one before."""
        before, self._in_use_bytes = self._in_use_bytes, num_bytes
        job.kept_bytes -= num_bytes
        self.context.pool.charge(-before)

    # -- requests ------------------------------------------------------------------------------------------------------

    def _request_ahead(self) -> None:
        while self.num_begun < len(self.spans) and self.templates.is_effective:
            size = self.spans[self.num_begun][0].files[0].size_bytes
            is_full = self._requested_bytes + size > self._ahead_bytes or self._requested_files >= FILES_AHEAD_MAX
            if self._jobs and (is_full or not self.allows(self.num_begun)):
                return
            self._jobs.append(self._next_job())

    def _next_job(self) -> _Job:
        """Requests the next files that are decoded together."""
        first = at = self.num_begun
        num_rows = num_bytes = 0
        handles: list[Handle] = []
        while at < min(len(self.spans), first + JOB_FILES_MAX):
            source = self.spans[at][0]
            ref = source.files[0]
            is_full = num_bytes + ref.size_bytes > self._job_bytes or num_rows + source.num_rows > self.rows_max
            if at > first and (is_full or not self.allows(at)):
                break
            num_bytes, num_rows = num_bytes + ref.size_bytes, num_rows + source.num_rows
            reads = self._scheduler.file(ref.key, size_bytes=ref.size_bytes, priority=self.first + at)
            handles.append(reads.submit(Ranges.of((0, ref.size_bytes), keep=True)))
            at += 1
        self.num_begun = at
        self._requested_bytes += num_bytes
        self._requested_files += len(handles)
        return _Job(first, at, handles, num_bytes)

    # -- decoding ------------------------------------------------------------------------------------------------------

    def _decode_ahead(self) -> None:
        for number, job in zip(range(self.ahead.pieces), self._jobs, strict=False):
            if job.task is None and (not number or self.context.pool.avail_bytes > 0):
                job.task = asyncio.ensure_future(self._decode(job))

    async def _decode(self, job: _Job) -> deque[Part | int]:
        for handle in job.handles:
            await handle.arrived()
        sources = [source for source, _, _ in self.spans[job.first : job.end]]
        files: list[tuple[Any, int]] = []
        for handle, source in zip(job.handles, sources, strict=True):
            ref = source.files[0]
            try:
                files.append(((await handle).piece(0, ref.size_bytes), source.num_rows))
            except (ShortRead, InvalidRange) as error:
                raise truncation_error(ref.key, error) from error
        self._requested_bytes -= job.num_bytes
        self._requested_files -= len(files)
        parts = await asyncio.wrap_future(cpu_pool().submit(partial(self._decoded, job, files)))
        job.kept_bytes = sum(
            [memory_bytes(array) for part in parts if not isinstance(part, int) for array in part.arrays]
        )
        self.context.pool.charge(job.kept_bytes)
        return parts

    def _decoded(self, job: _Job, files: list[tuple[Any, int]]) -> deque[Part | int]:
        """In a thread of the pool."""
        allowance = Allowance(limits.SCAN_DECODED_BYTES)
        return deque(self.decode(job.first, files, allowance, self._read_alone))  # type: ignore[arg-type]  # no cutters

    def _read_alone(self, index: int, data: memoryview, allowance: Allowance) -> Sequence[ScanBatch | int]:
        """The batches of a file without a template, or its index if the general scan must read it."""
        context, (source, _, end) = self.context, self.spans[index]
        ref = source.files[0]
        try:
            opened = open_ending((context.store.identity, ref.key, ref.size_bytes), data, 0, context.value_bytes_max)
            if opened is None:
                return [index]
            columns, whole = opened[0].view(FileColumns(ref, self.leaves), keep=False).columns, Tail(0, data)
            pieces = _at_hand(column_pieces(opened[0], columns, 0, end, whole, SCAN_PIECE_BYTES, context.cache))
            entries: list[tuple[int, Piece]] = []
            for leaf_id, column in zip(self.leaves.leaf_ids, pieces, strict=True):
                entries += [(leaf_id, piece) for piece in column]
            group = [piece for _, piece in entries]
            if self.needs_general(group, allowance):
                return [index]
            arrays = _at_hand(read_group(group, allowance))
            cutter = Cutter(self.projection, self.first + index, 0, end, None)
            for (leaf_id, piece), array in zip(entries, arrays, strict=True):
                held_bytes(piece, array)  # checks the sizes of its rows
                cutter.add(leaf_id, piece, array)
            return [index] if cutter.has_parts else list(cutter.all())
        except (*FILE_ERRORS, ResourceLimitError, _NotAtHandError):
            return [index]

    async def _close(self) -> None:
        jobs, self._jobs = list(self._jobs), deque()
        for job in jobs:
            job.cancel()
        tasks = [job.task for job in jobs if job.task is not None]
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self.context.pool.charge(-self._in_use_bytes - sum([job.kept_bytes for job in jobs]))
            self._in_use_bytes = 0
            await self._scheduler.aclose()


class _NotAtHandError(Exception):
    """A computation asks for bytes beyond those of the file."""


def _at_hand(steps: FileSteps[T]) -> T:
    """The result of a computation whose bytes are all there."""
    try:
        next(steps)
    except StopIteration as done:
        result: T = done.value
        return result
    steps.close()
    raise _NotAtHandError


def _decoded_bytes(part: Part | int) -> int:
    return 0 if isinstance(part, int) else sum(map(memory_bytes, part.arrays))
