"""Computations on files as requests of plans, and what answers the requests of such a computation.

    ReadFile, ReadFiles   a computation on one file, or on several at once

In the caller's thread the store answers, which has bytes at hand (local disk, memory); on the engine's loop the
scheduler. Both count what they read in `lance_io.io.stats`. A store's short read becomes a `FormatError`: the manifest
or the file's own metadata promised bytes that the object does not have.
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
from lance_io.io.cache import ClaimAbandoned
from lance_io.io.spares import SPARES_BYTES, spares
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

    from lance_io.file.file_steps import AnyFile, AskedOfFiles, Request
    from lance_io.file.open.file_source import ReadContext
    from lance_io.io.scheduler import FileReads, Handle, ReadScheduler
    from lance_io.io.stats import Sinks

T = TypeVar("T")
INLINE_DECODE_BYTES_MAX: Final = 64 * KIB  # decoded on the loop: about 50 microseconds; more goes to the CPU pool
READ_AT_ONCE_BYTES_MAX: Final = 16 * MIB  # of several files in one call, which nothing interrupts; a few milliseconds
READ_PART_BYTES: Final = 2 * MIB  # of files that are used one by one: what was read is in the processor's cache then
UNCHARGED_BYTES_MAX: Final = MIB  # a smaller synchronous read is gone before another could be kept from starting
SCRATCH_BYTES_MAX: Final = 32 * MIB  # read buffers above this belong to no thread


class _Scratch(threading.local):
    """Per thread: memory that reads reuse, because fresh memory costs a page fault per 4 KiB."""

    buffer: Any = None

    def of(self, num_bytes: int) -> Any | None:
        if num_bytes < 64 * KIB or num_bytes > SCRATCH_BYTES_MAX:
            return None
        if self.buffer is None or len(self.buffer) < num_bytes:
            self.buffer = np.empty(max(num_bytes, 2 * MIB), dtype=np.uint8)
        return self.buffer


_scratch = _Scratch()


def truncation_error(key: str, error: Exception) -> FormatError:
    """A read past the end of the object, as what it means to whoever opened the table."""
    return FormatError(f"the file ends before the bytes that its metadata names ({error}). It is cut off", path=key)


@dataclass(frozen=True, slots=True, eq=False)
class ReadFile(Generic[T]):
    """A computation on the file `key`, as a request of a plan.

    size_bytes  of the file, None where that is not known
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

    gap_bytes   ranges that lie closer are read as one; None for what the store's takes have
    sinks       statistics that its reads count in; None for those of the context and of the blocks around the caller
    is_charged  the caller has charged what is read to a budget; otherwise large reads are charged to the context's
    """
    reads = _SyncAnswers(context, gap_bytes, sinks, is_charged=is_charged)
    try:
        return drive_sync(steps, partial(reads.answer_of_file, key))
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
    """Run a computation on several files to its end, reading in this thread; the rest is as for `read_file_sync`."""
    reads = _SyncAnswers(context, gap_bytes, sinks, is_charged=is_charged)
    try:
        return drive_sync(steps, reads.answer)
    finally:
        reads.end()


class _SyncAnswers:
    """Answers what one computation asks for, reading in this thread. Parameters as for `read_file_sync`."""

    __slots__ = ("_charged_bytes", "_context", "_gap_bytes", "_is_charged", "_sinks", "_store")

    def __init__(self, context: ReadContext, gap_bytes: int | None, sinks: Sinks | None, *, is_charged: bool) -> None:
        self._context = context
        self._store: Any = context.store  # offers `SyncReads`
        self._gap_bytes: int = self._store.profile.take_gap_bytes if gap_bytes is None else gap_bytes
        self._sinks = sinks_now(context.store.identity, context.shared) if sinks is None else sinks
        self._is_charged = is_charged
        self._charged_bytes = 0

    def end(self) -> None:
        """Give back what was charged to the budget of the context."""
        if self._charged_bytes:
            self._context.pool.charge(-self._charged_bytes)

    def _charge(self, num_bytes: int, replaced_bytes: int = 0) -> None:
        """Charge what is read next, in place of what is not held any more."""
        if num_bytes > UNCHARGED_BYTES_MAX and not self._is_charged:
            self._context.pool.charge(num_bytes - replaced_bytes)
            self._charged_bytes += num_bytes - replaced_bytes

    # -- one file ------------------------------------------------------------------------------------------------------

    def answer_of_file(self, key: str, request: Request) -> Any:
        """The answer to one round of a computation on one file, which holds nothing of the rounds before."""
        if type(request) is Ranges:
            num_bytes, num_ranges = request.num_bytes, len(request.starts)
            self._charge(num_bytes, self._charged_bytes)
            scratch = None if request.keep else _scratch.of(num_bytes + self._gap_bytes * num_ranges)
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

    def answer(self, request: AskedOfFiles) -> Any:
        """The answers to one round of a computation on several files."""
        if isinstance(request, Independent):
            return read_files_sync(
                side_by_side(request.steps),
                self._context,
                gap_bytes=self._gap_bytes,
                sinks=self._sinks,
                is_charged=self._is_charged,
            )
        if isinstance(request, ReadJoined):
            return self._answer_joined(request)
        ranges = [asked for _, asked in request if type(asked) is Ranges]
        num_ranges = sum([len(of_file.starts) for of_file in ranges])
        num_bytes = sum([measure_ranges(of_file.starts, of_file.ends, None)[0] for of_file in ranges])
        self._charge(num_bytes)
        answers = self._answers_of(request, num_ranges, num_bytes)
        self._count(answers, num_ranges, num_bytes)
        return answers

    def _answers_of(self, requests: list[tuple[AnyFile, Request]], num_ranges: int, num_bytes: int) -> list[Any]:
        wanted = [(ref.key, request) for ref, request in requests if type(request) is Ranges]
        is_data = all([ranges.purpose == "data" for _, ranges in wanted])  # what is remembered has memory of its own
        memory_bytes = num_bytes + self._gap_bytes * num_ranges + LINE_BYTES * len(wanted)
        scratch = _scratch_of(memory_bytes) if is_data else None
        if len(requests) > 1 and num_bytes > READ_AT_ONCE_BYTES_MAX:
            return list(cpu_pool().map(self._answer_alone, requests))
        if len(wanted) == len(requests):
            return self._read(wanted, scratch)
        if not wanted and (ends := _alike_suffixes(requests)) is not None:
            return self._suffixes([ref.key for ref, _ in requests], ends.num_bytes)
        return [self._answer_alone(request) for request in requests]

    def _answer_alone(self, asked: tuple[AnyFile, Request]) -> Any:
        """The answer to a request that is not read with others: on any thread."""
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
        if len(files) > 1 and memory_bytes > SPARES_BYTES:
            self._count(self._use_each(request), len(ranges), num_bytes)
            return [None] * len(files)
        keys, scratch = [file.key for file in files], _scratch_of(memory_bytes)
        try:
            fetched: Fetched = self._store.read_joined_sync(keys, ranges, request.bounds, self._gap_bytes, scratch)
        except (ShortRead, InvalidRange) as error:
            raise _truncated(keys, error) from error
        self._count([fetched], len(ranges), num_bytes)
        return fetched

    def _use_each(self, request: ReadJoined) -> list[Fetched]:
        """What was read of each file, without the bytes: these were used part by part, in memory that is used again."""

        def read_part(part: tuple[int, int, int]) -> list[Fetched]:
            first, end, num_bytes = part
            wanted = [(request.files[at].key, request.of_file(at)) for at in range(first, end)]
            parts = self._read(wanted, _scratch.of(num_bytes))
            for at, fetched in enumerate(parts, first):
                request.use(at, fetched)
            return [Fetched(b"", each.offsets, each.num_reads, each.bytes_read) for each in parts]

        return [each for parts in cpu_pool().map(read_part, _parts(request, self._gap_bytes)) for each in parts]

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
        """Count what one round brought; `num_ranges` and `bytes_wanted` are those of its ranges."""
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


def _scratch_of(num_bytes: int) -> Any | None:
    """Memory for what one round of several files brings, None where that has memory of its own."""
    if SCRATCH_BYTES_MAX < num_bytes <= SPARES_BYTES:
        return spares().of(SPARES_BYTES)  # all of it, so that it serves the next one, too, however large that is
    return _scratch.of(num_bytes)


def _truncated(keys: Sequence[str], error: ShortRead | InvalidRange) -> FormatError:
    """The error for a read of several objects, which names the one that failed."""
    return truncation_error(keys[0] if len(keys) == 1 else str(error.path), error)


def _wait_sync(wait: Wait) -> None:
    with suppress(ClaimAbandoned, FutureCancelled, LanceError):  # whoever waits looks again, and fails by itself
        wait.future.result()


def read_whole_files(
    refs: Sequence[AnyFile], context: ReadContext, sinks: Sinks, bytes_max: int
) -> list[tuple[Any, int]]:
    """All bytes of some small files and their sizes, one round, read in this thread and charged by the caller.

    sinks      statistics that the reads count in
    bytes_max  of a larger file the last bytes are read, as many as this
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


def _alike_suffixes(requests: Sequence[tuple[AnyFile, Request]]) -> Suffix | None:
    """What is asked of all of several files, if that is one length of their ends."""
    first = requests[0][1]
    is_alike = isinstance(first, Suffix) and all([request == first for _, request in requests])
    return first if is_alike else None  # type: ignore[return-value]


def _bytes_spanned(ranges: Ranges, gap_bytes: int) -> int:
    """The most that is read for some ranges of a file, where those that are closer than the gap are read as one."""
    if not len(ranges):
        return 0
    span = int(ranges.ends.max()) - int(ranges.starts.min())
    return min(span, ranges.num_bytes + gap_bytes * len(ranges))


def _parts(request: ReadJoined, gap_bytes: int) -> list[tuple[int, int, int]]:
    """Files that are worth reading in one go: the first, the end, and the most bytes that are read of them."""
    parts = []
    first, num_bytes = 0, 0
    for at in range(len(request.files)):
        num_bytes += _bytes_spanned(request.of_file(at), gap_bytes) + LINE_BYTES
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
    await wait_until_done(wait.future)  # however it ended: whoever waits looks again, and fails by itself


async def _answer_async(scheduler: ReadScheduler, asked: AskedOfFiles) -> Any:
    """The answers to one round. All ranges are submitted before the first is awaited; what fails cancels the rest."""
    if isinstance(asked, Independent):
        return await _IndependentFiles(scheduler, asked.steps).run()
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
            handle.demand()  # all of them are held in the end, whatever the budget says: none waits for another
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


class _IndependentFiles:
    """Computations on several files, each of which goes on as soon as its own answer is there.

    What has come in one turn of the loop is gone through together, on the CPU pool if it is much. There is no task for
    a file, but where its size is not known or somebody else is loading it.
    """

    def __init__(self, scheduler: ReadScheduler, steps: Sequence[tuple[AnyFile, FileSteps[Any]]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._steps = steps
        self._reads = [scheduler.file(ref.key, size_bytes=ref.size_bytes or None) for ref, _ in steps]
        self._asked: dict[int, Handle | asyncio.Task[Any]] = {}
        self._arrived: list[int] = []
        self._waiter: asyncio.Future[None] | None = None
        self._suffixes = asyncio.Semaphore(TAKE_FILES_AT_ONCE)

    async def run(self) -> list[Any]:
        """Run all of them to their ends; what fails ends the others."""
        results: list[Any] = [None] * len(self._steps)
        try:
            moved = self._advance([(at, None) for at in range(len(self._steps))])
            while True:
                for at, request in moved:
                    if type(request) is Finished:
                        results[at] = request.value
                    else:
                        self._ask(at, request)
                if not self._asked:
                    return results
                if not self._arrived:
                    self._waiter = self._loop.create_future()
                    await self._waiter
                arrived, self._arrived = self._arrived, []
                moved = await self._go_on([(at, await self._answer(at)) for at in arrived])
        finally:
            for asked in self._asked.values():
                asked.cancel()
            for _, steps in self._steps:
                with suppress(ValueError):  # still running in the pool; it ends by itself there
                    steps.close()

    def _ask(self, at: int, request: Request) -> None:
        on_end = partial(self._on_arrival, at)
        if type(request) is Ranges:
            handle = self._asked[at] = self._reads[at].submit(request)
            handle.demand()
            handle.on_end(on_end)
            return
        work = self._suffix(at, request.num_bytes) if type(request) is Suffix else _wait_async(request)  # type: ignore[arg-type]
        task = self._asked[at] = self._loop.create_task(work)
        task.add_done_callback(on_end)

    async def _suffix(self, at: int, num_bytes: int) -> FetchedSuffix:
        """The end of a file whose size nobody knows."""
        async with self._suffixes:
            buffer, size, _ = await self._reads[at].suffix(num_bytes)
        return FetchedSuffix(buffer, size)

    def _on_arrival(self, at: int, task: asyncio.Task[Any] | None = None) -> None:
        if task is not None and not task.cancelled():
            task.exception()  # where another one fails first, nobody else looks at it
        self._arrived.append(at)
        if self._waiter is not None:
            set_done(self._waiter)

    async def _answer(self, at: int) -> Any:
        """What has arrived; this does not wait."""
        try:
            return await self._asked.pop(at)
        except (ShortRead, InvalidRange) as error:
            raise truncation_error(self._reads[at].key, error) from error

    async def _go_on(self, answers: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        num_bytes = sum([len(one.buffer) for _, one in answers if one is not None])
        if num_bytes > INLINE_DECODE_BYTES_MAX:
            return await asyncio.wrap_future(cpu_pool().submit(self._advance, answers))
        return self._advance(answers)

    def _advance(self, answers: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        return [(at, advance(self._steps[at][1], answer)) for at, answer in answers]
