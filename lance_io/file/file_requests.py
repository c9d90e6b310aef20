"""File computations as requests of plans, and the code that answers the requests of such a computation.

    ReadFile, ReadFiles   a computation on one file, or on several at once

In the caller's thread the store answers directly (local disk, memory); on the engine's loop the scheduler does. Both
count their reads in `lance_io.io.stats`. A store's short read becomes a `FormatError`: the manifest or the file's own
metadata promises bytes that the object lacks.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError as FutureCancelled
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import numpy as np

from lance_io._kernels import measure_ranges
from lance_io.errors import FormatError, LanceError
from lance_io.file.file_steps import (
    FetchedSuffix,
    FilesSteps,
    FileSteps,
    Independent,
    ReadJoined,
    Suffix,
    Wait,
    side_by_side,
)
from lance_io.io.buffer_pool import POOL_BYTES, buffer_pool
from lance_io.io.cache import ClaimAbandoned
from lance_io.io.stats import count_round, sinks_now
from lance_io.limits import KIB, MIB, TAKE_FILES_AT_ONCE
from lance_io.plans.plan import Finished, LargeAnswer, advance, drive_async, drive_sync
from lance_io.records import dataclass
from lance_io.runtime import cpu_pool, set_done, wait_until_done
from lance_io.spans import Fetched, Ranges
from lance_io.store.bounds import LINE_BYTES, joined_bytes_max
from lance_io.store.failures import InvalidRange, ShortRead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.file.file_steps import AnyFile, FilesRequest, Request
    from lance_io.file.open.file_source import ReadContext
    from lance_io.io.scheduler import FileReads, Handle, ReadScheduler
    from lance_io.io.stats import Sinks

T = TypeVar("T")
INLINE_DECODE_BYTES_MAX: Final = 64 * KIB  # decoded on the loop: about 50 microseconds; more goes to the CPU pool
READ_AT_ONCE_BYTES_MAX: Final = 16 * MIB  # of several files in one uninterruptible call; a few milliseconds
READ_PART_BYTES: Final = 2 * MIB  # of files that are used in groups: small enough to stay in the processor's cache
UNCHARGED_BYTES_MAX: Final = MIB  # a smaller synchronous read ends before the budget could delay another one
SCRATCH_BYTES_MAX: Final = 32 * MIB  # larger read buffers are not kept per thread


class _Scratch(threading.local):
    """Per-thread read buffer. Reads reuse it, because fresh memory costs a page fault per 4 KiB."""

    buffer: Any = None

    def get(self, num_bytes: int) -> Any | None:
        if num_bytes < 64 * KIB or num_bytes > SCRATCH_BYTES_MAX:
            return None
        if self.buffer is None or len(self.buffer) < num_bytes:
            self.buffer = np.empty(max(num_bytes, 2 * MIB), dtype=np.uint8)
        return self.buffer


_scratch = _Scratch()


def truncation_error(key: str, error: Exception) -> FormatError:
    """The error of a read past the end of the object, in terms of the table format."""
    return FormatError(f"the file ends before the bytes that its metadata names ({error}). It is cut off", path=key)


@dataclass(frozen=True, slots=True, eq=False)
class ReadFile(Generic[T]):
    """A computation on the file `key`, as a request of a plan.

    size_bytes  of the file, None if unknown
    """

    context: ReadContext
    key: str
    steps: FileSteps[T]
    size_bytes: int | None = None

    def answer_sync(self) -> T:
        """See `Request`."""
        return read_file_sync(self.steps, self.context, self.key)

    async def answer_async(self) -> T:
        """See `Request`."""
        return await read_file_async(self.steps, self.context.scheduler().file(self.key, size_bytes=self.size_bytes))


@dataclass(frozen=True, slots=True, eq=False)
class ReadFiles(Generic[T]):
    """A computation on several files, as a request of a plan."""

    context: ReadContext
    steps: FilesSteps[T]

    def answer_sync(self) -> T:
        """See `Request`."""
        return read_files_sync(self.steps, self.context)

    async def answer_async(self) -> T:
        """See `Request`."""
        async with self.context.scheduler() as scheduler:
            return await drive_async(self.steps, partial(_answer_async, scheduler))


# -- in the caller's thread -------------------------------------------------------------------------------------------


def read_file_sync(
    steps: FileSteps[T],
    context: ReadContext,
    key: str,
    *,
    gap_bytes: int | None = None,
    sinks: Sinks | None = None,
    is_charged: bool = False,
) -> T:
    """Run a computation on the file `key` to its end, reading in this thread.

    gap_bytes   ranges closer than this are merged into one read; None for the store's gap for takes
    sinks       statistics that count its reads; None for those of the context and of the caller's enclosing blocks
    is_charged  whether the caller has charged the reads to a budget; otherwise large reads are charged to the context's
    """
    reads = _SyncReads(context, gap_bytes, sinks, is_charged=is_charged)
    try:
        return drive_sync(steps, partial(reads.answer_file, key))
    finally:
        reads.end()


def read_files_sync(
    steps: FilesSteps[T],
    context: ReadContext,
    *,
    gap_bytes: int | None = None,
    sinks: Sinks | None = None,
    is_charged: bool = False,
) -> T:
    """Run a computation on several files to its end, reading in this thread. Parameters as for `read_file_sync`."""
    reads = _SyncReads(context, gap_bytes, sinks, is_charged=is_charged)
    try:
        return drive_sync(steps, reads.answer)
    finally:
        reads.end()


class _SyncReads:
    """Answers the requests of one computation, reading in this thread. Parameters as for `read_file_sync`."""

    __slots__ = ("_charged_bytes", "_context", "_gap_bytes", "_is_charged", "_sinks", "_store")

    def __init__(self, context: ReadContext, gap_bytes: int | None, sinks: Sinks | None, *, is_charged: bool) -> None:
        self._context = context
        self._store: Any = context.store  # offers `SyncReads`
        self._gap_bytes: int = self._store.profile.take_gap_bytes if gap_bytes is None else gap_bytes
        self._sinks = sinks_now(context.store.identity, context.shared) if sinks is None else sinks
        self._is_charged = is_charged
        self._charged_bytes = 0

    def end(self, kept_bytes: int = 0) -> None:
        """Return the charged bytes to the budget of the context, all but `kept_bytes`."""
        if self._charged_bytes > kept_bytes:
            self._context.pool.charge(kept_bytes - self._charged_bytes)
            self._charged_bytes = kept_bytes

    def _charge(self, num_bytes: int, replaced_bytes: int = 0) -> None:
        """Charge the next read; `replaced_bytes` of earlier reads are no longer held."""
        if num_bytes > UNCHARGED_BYTES_MAX and not self._is_charged:
            self._context.pool.charge(num_bytes - replaced_bytes)
            self._charged_bytes += num_bytes - replaced_bytes

    # -- one file ------------------------------------------------------------------------------------------------------

    def answer_file(self, key: str, request: Request) -> Any:
        """Answer one round of a computation on one file. The computation holds no bytes of earlier rounds."""
        if type(request) is Ranges:
            num_bytes, num_ranges = request.num_bytes, len(request.starts)
            self._charge(num_bytes, self._charged_bytes)
            scratch = None if request.keep else _scratch.get(num_bytes + self._gap_bytes * num_ranges)
            (fetched,) = self._read([(key, request)], scratch)
            bytes_read = fetched.bytes_read
            held_bytes = 0 if self._is_charged else bytes_read
            count_round(self._sinks, num_ranges, num_bytes, fetched.num_reads, bytes_read, held_bytes)
            return fetched
        if type(request) is Suffix:
            (end,) = self._suffixes([key], request.num_bytes)
            num_bytes = len(end.buffer)
            count_round(self._sinks, 1, num_bytes, 1, num_bytes, num_bytes)
            return end
        return _wait_sync(request)  # type: ignore[arg-type]

    # -- several files -------------------------------------------------------------------------------------------------

    def answer(self, request: FilesRequest) -> Any:
        """Answer one round of a computation on several files."""
        if isinstance(request, Independent):
            charged_bytes = self._charged_bytes
            try:
                return drive_sync(side_by_side(request.steps), self.answer)
            finally:
                self.end(charged_bytes)  # its bytes are used up
        if isinstance(request, ReadJoined):
            return self._answer_joined(request)
        all_ranges = [asked for _, asked in request if type(asked) is Ranges]
        num_ranges = sum([len(ranges.starts) for ranges in all_ranges])
        num_bytes = sum([measure_ranges(ranges.starts, ranges.ends, None)[0] for ranges in all_ranges])
        self._charge(num_bytes)
        answers = self._answer_round(request, num_ranges, num_bytes)
        self._count(answers, num_ranges, num_bytes)
        return answers

    def _answer_round(self, requests: list[tuple[AnyFile, Request]], num_ranges: int, num_bytes: int) -> list[Any]:
        wanted = [(ref.key, request) for ref, request in requests if type(request) is Ranges]
        is_data = all(
            [ranges.purpose == "data" for _, ranges in wanted]
        )  # metadata is cached, so it needs its own memory
        memory_bytes = num_bytes + self._gap_bytes * num_ranges + LINE_BYTES * len(wanted)
        scratch = _scratch_buffer(memory_bytes) if is_data else None
        if len(requests) > 1 and num_bytes > READ_AT_ONCE_BYTES_MAX:
            return list(cpu_pool().map(self._answer_single, requests))
        if len(wanted) == len(requests):
            return self._read(wanted, scratch)
        if not wanted and (ends := _common_suffix(requests)) is not None:
            return self._suffixes([ref.key for ref, _ in requests], ends.num_bytes)
        return [self._answer_single(request) for request in requests]

    def _answer_single(self, asked: tuple[AnyFile, Request]) -> Any:
        """Answer a request on its own, on any thread."""
        ref, request = asked
        if type(request) is Ranges:
            return self._read([(ref.key, request)])[0]
        if type(request) is Suffix:
            return self._suffixes([ref.key], request.num_bytes)[0]
        return _wait_sync(request)  # type: ignore[arg-type]

    def _answer_joined(self, request: ReadJoined) -> Fetched | list[None]:
        ranges, files = request.ranges, request.files
        num_bytes = ranges.num_bytes
        self._charge(num_bytes)
        memory_bytes = joined_bytes_max(ranges, len(files), self._gap_bytes)
        if len(files) > 1 and memory_bytes > POOL_BYTES:
            self._count(self._read_in_groups(request), len(ranges), num_bytes)
            return [None] * len(files)
        keys, scratch = [file.key for file in files], _scratch_buffer(memory_bytes)
        try:
            fetched: Fetched = self._store.read_joined_sync(keys, ranges, request.bounds, self._gap_bytes, scratch)
        except (ShortRead, InvalidRange) as error:
            raise _truncated(keys, error) from error
        self._count([fetched], len(ranges), num_bytes)
        return fetched

    def _read_in_groups(self, request: ReadJoined) -> list[Fetched]:
        """Read and use the files group by group in reused memory; returns the read counts per file, without bytes."""

        def read_part(part: tuple[int, int, int]) -> list[Fetched]:
            first, end, num_bytes = part
            wanted = [(request.files[at].key, request.of_file(at)) for at in range(first, end)]
            parts = self._read(wanted, _scratch.get(num_bytes))
            for at, fetched in enumerate(parts, first):
                request.use(at, fetched)
            return [Fetched(b"", each.offsets, each.num_reads, each.bytes_read) for each in parts]

        return [each for parts in cpu_pool().map(read_part, _file_groups(request, self._gap_bytes)) for each in parts]

    # -- the store -----------------------------------------------------------------------------------------------------

    def _read(self, wanted: list[tuple[str, Ranges]], scratch: Any = None) -> list[Fetched]:
        try:
            return self._store.read_sync(wanted, self._gap_bytes, scratch)  # type: ignore[no-any-return]
        except (ShortRead, InvalidRange) as error:
            raise _truncated([key for key, _ in wanted], error) from error

    def _suffixes(self, keys: list[str], num_bytes: int) -> list[FetchedSuffix]:
        try:
            return [FetchedSuffix(*end) for end in self._store.suffix_sync(keys, num_bytes)]
        except (ShortRead, InvalidRange) as error:
            raise _truncated(keys, error) from error

    def _count(self, answers: list[Any], num_ranges: int, bytes_wanted: int) -> None:
        """Count the reads of one round; `num_ranges` and `bytes_wanted` are those of its ranges."""
        num_reads = bytes_read = 0
        for answer in answers:
            if type(answer) is Fetched:
                num_reads += answer.num_reads
                bytes_read += answer.bytes_read
            elif answer is not None:  # the end of a file
                num_bytes = len(answer.buffer)
                num_ranges, bytes_wanted = num_ranges + 1, bytes_wanted + num_bytes
                num_reads, bytes_read = num_reads + 1, bytes_read + num_bytes
        held_bytes = 0 if self._is_charged else bytes_read
        count_round(self._sinks, num_ranges, bytes_wanted, num_reads, bytes_read, held_bytes)


def _scratch_buffer(num_bytes: int) -> Any | None:
    """Reusable memory for one round of several files, None if the store should allocate."""
    if SCRATCH_BYTES_MAX < num_bytes <= POOL_BYTES:
        return buffer_pool().allocate(POOL_BYTES)  # the full size, so that later rounds of any size can reuse it
    return _scratch.get(num_bytes)


def _truncated(keys: Sequence[str], error: ShortRead | InvalidRange) -> FormatError:
    """The error for a read of several objects; names the object that failed."""
    return truncation_error(keys[0] if len(keys) == 1 else str(error.path), error)


def _wait_sync(wait: Wait) -> None:
    with suppress(ClaimAbandoned, FutureCancelled, LanceError):  # waiters retry the cache and raise their own error
        wait.future.result()


def read_whole_files(
    refs: Sequence[AnyFile], context: ReadContext, sinks: Sinks, bytes_max: int
) -> list[tuple[Any, int]]:
    """All bytes of some small files and their sizes, in one round. Reads in this thread; the caller has charged them.

    sinks      statistics that count the reads
    bytes_max  only the last `bytes_max` bytes of a larger file are read
    """
    store: Any = context.store
    keys, ends = [ref.key for ref in refs], list[tuple[Any, int]]()
    try:
        ends += store.suffix_sync(keys, bytes_max)
    except (ShortRead, InvalidRange) as error:
        raise _truncated(keys, error) from error
    num_bytes = sum([len(data) for data, _ in ends])
    count_round(sinks, len(refs), num_bytes, len(refs), num_bytes)
    return ends


def _common_suffix(requests: Sequence[tuple[AnyFile, Request]]) -> Suffix | None:
    """The suffix request that all files have in common, None if they differ."""
    first = requests[0][1]
    is_alike = isinstance(first, Suffix) and all([request == first for _, request in requests])
    return first if is_alike else None  # type: ignore[return-value]


def _max_bytes_read(ranges: Ranges, gap_bytes: int) -> int:
    """Upper bound of the bytes read for ranges of a file; ranges closer than the gap are merged."""
    if not len(ranges):
        return 0
    span = int(ranges.ends.max()) - int(ranges.starts.min())
    return min(span, ranges.num_bytes + gap_bytes * len(ranges))


def _file_groups(request: ReadJoined, gap_bytes: int) -> list[tuple[int, int, int]]:
    """Groups of files to read at once: first file, end, and the upper bound of bytes read of them."""
    parts = []
    first, num_bytes = 0, 0
    for at in range(len(request.files)):
        num_bytes += _max_bytes_read(request.of_file(at), gap_bytes) + LINE_BYTES
        if num_bytes >= READ_PART_BYTES or at + 1 == len(request.files):
            parts.append((first, at + 1, num_bytes))
            first, num_bytes = at + 1, 0
    return parts


# -- on the engine's loop ---------------------------------------------------------------------------------------------


async def read_file_async(steps: FileSteps[T], reads: FileReads, priority: int = 0) -> T:
    """Run a computation on a file to its end, reading through the scheduler. Runs on the engine's loop."""

    async def answer(request: Request) -> Any:
        if type(request) is Ranges:
            try:
                fetched = await reads.submit(request, priority)
            except (ShortRead, InvalidRange) as error:
                raise truncation_error(reads.key, error) from error
            return LargeAnswer(fetched) if request.num_bytes > INLINE_DECODE_BYTES_MAX else fetched
        if type(request) is Suffix:
            buffer, size, _ = await reads.suffix(request.num_bytes)
            return FetchedSuffix(buffer, size)
        return await _wait_async(request)  # type: ignore[arg-type]

    return await drive_async(steps, answer)


async def _wait_async(wait: Wait) -> None:
    await wait_until_done(wait.future)  # ignores its outcome: waiters retry the cache and raise their own error


async def _answer_async(scheduler: ReadScheduler, asked: FilesRequest) -> Any:
    """Answer one round. Submits all ranges before awaiting the first; a failure cancels the rest."""
    if isinstance(asked, Independent):
        return await _IndependentSteps(scheduler, asked.steps).run()
    requests: Sequence[tuple[AnyFile, Request]]
    if isinstance(asked, ReadJoined):
        requests = [(file, asked.of_file(at)) for at, file in enumerate(asked.files)]
    else:
        requests = asked
    handles: list[Handle] = []
    answers: list[Any] = []
    num_bytes = 0
    try:
        for ref, request in requests:
            assert type(request) is Ranges, "files are opened by computations of their own"
            handle = scheduler.file(ref.key, size_bytes=ref.size_bytes or None).submit(request)
            handle.demand()  # the round holds all of them at its end, so none may wait for the budget
            handles.append(handle)
            num_bytes += request.num_bytes
        for (ref, _), handle in zip(requests, handles, strict=True):
            try:
                answers.append(await handle)
            except (ShortRead, InvalidRange) as error:
                raise truncation_error(ref.key, error) from error
    finally:
        for handle in handles[len(answers) :]:
            handle.cancel()
    return LargeAnswer(answers) if num_bytes > INLINE_DECODE_BYTES_MAX else answers


class _IndependentSteps:
    """Computations on several files, each of which resumes as soon as its own answer arrives.

    Answers that arrive in one turn of the loop are processed together, on the CPU pool if they are large. A file needs
    a task only if its size is unknown or another computation is loading it.
    """

    def __init__(self, scheduler: ReadScheduler, steps: Sequence[tuple[AnyFile, FileSteps[Any]]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._steps = steps
        self._reads = [scheduler.file(ref.key, size_bytes=ref.size_bytes or None) for ref, _ in steps]
        self._pending: dict[int, Handle | asyncio.Task[Any]] = {}
        self._arrived: list[int] = []
        self._waiter: asyncio.Future[None] | None = None
        self._suffixes = asyncio.Semaphore(TAKE_FILES_AT_ONCE)

    async def run(self) -> list[Any]:
        """Run all of them to their ends; a failure ends the others."""
        results: list[Any] = [None] * len(self._steps)
        try:
            moved = self._advance([(at, None) for at in range(len(self._steps))])
            while True:
                for at, request in moved:
                    if type(request) is Finished:
                        results[at] = request.value
                    else:
                        self._request(at, request)
                if not self._pending:
                    return results
                if not self._arrived:
                    self._waiter = self._loop.create_future()
                    await self._waiter
                arrived, self._arrived = self._arrived, []
                moved = await self._resume([(at, await self._answer(at)) for at in arrived])
        finally:
            for pending in self._pending.values():
                pending.cancel()
            for _, steps in self._steps:
                with suppress(ValueError):  # still running in the pool, where it ends by itself
                    steps.close()

    def _request(self, at: int, request: Request) -> None:
        on_end = partial(self._on_arrival, at)
        if type(request) is Ranges:
            handle = self._pending[at] = self._reads[at].submit(request)
            handle.demand()
            handle.on_end(on_end)
            return
        work = self._suffix(at, request.num_bytes) if type(request) is Suffix else _wait_async(request)  # type: ignore[arg-type]
        task = self._pending[at] = self._loop.create_task(work)
        task.add_done_callback(on_end)

    async def _suffix(self, at: int, num_bytes: int) -> FetchedSuffix:
        """The end of a file of unknown size."""
        async with self._suffixes:
            buffer, size, _ = await self._reads[at].suffix(num_bytes)
        return FetchedSuffix(buffer, size)

    def _on_arrival(self, at: int, task: asyncio.Task[Any] | None = None) -> None:
        if task is not None and not task.cancelled():
            task.exception()  # marks it as retrieved: if another task fails first, this error is dropped
        self._arrived.append(at)
        if self._waiter is not None:
            set_done(self._waiter)

    async def _answer(self, at: int) -> Any:
        """The answer that has arrived; does not wait."""
        try:
            return await self._pending.pop(at)
        except (ShortRead, InvalidRange) as error:
            raise truncation_error(self._reads[at].key, error) from error

    async def _resume(self, answers: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        num_bytes = sum([len(answer.buffer) for _, answer in answers if answer is not None])
        if num_bytes > INLINE_DECODE_BYTES_MAX:
            return await asyncio.wrap_future(cpu_pool().submit(self._advance, answers))
        return self._advance(answers)

    def _advance(self, answers: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        return [(at, advance(self._steps[at][1], answer)) for at, answer in answers]
