"""The two drivers of file computations.

    drive_sync, take_sync  in the caller's thread, over a store whose bytes are at hand (local disk, memory): no loop
    drive_async, take_async    on the engine's loop, over the scheduler

`drive*` runs a computation on one file, `take_*` one on several files at once.

They run the same generators, and both count what they read in `lance_io.io.stats`. A store's short read becomes a
`FormatError`: the manifest or the file's own metadata promised bytes that the object does not have.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError as FutureCancelled
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from lance_io.errors import FormatError, LanceError
from lance_io.file.file_steps import Apart, FetchedSuffix, FilesSteps, FileSteps, Suffix, Wait, merged, side_by_side
from lance_io.io.await_future import wait_until_done
from lance_io.io.cache import ClaimAbandoned
from lance_io.io.spares import SPARES_BYTES, spares
from lance_io.io.stats import count_round
from lance_io.limits import KIB, MIB, TAKE_FILES_AT_ONCE
from lance_io.runtime import cpu_pool, set_done
from lance_io.spans import Fetched, Ranges, no_ranges
from lance_io.store.api import InvalidRange, ShortRead

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from lance_io.file.file_steps import Request
    from lance_io.file.open.file_source import FileRef, ReadContext
    from lance_io.io.scheduler import FileReads, Handle, ReadScheduler
    from lance_io.io.stats import Sinks

T = TypeVar("T")
INLINE_DECODE_BYTES_MAX: Final = 64 * KIB  # decoded on the loop: about 50 microseconds; more goes to the CPU pool
READ_AT_ONCE_BYTES_MAX: Final = 16 * MIB  # of several files in one call, which nothing interrupts; a few milliseconds
UNCHARGED_BYTES_MAX: Final = MIB  # a smaller synchronous read is gone before another could be kept from starting
SCRATCH_BYTES_MAX: Final = 32 * MIB  # read buffers above this belong to no thread
LINE_BYTES: Final = 64  # what aligning each of several files may cost in a shared buffer


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


def truncated(key: str, error: Exception) -> FormatError:
    """A read past the end of the object, as what it means to whoever opened the table."""
    return FormatError(f"the file ends before the bytes that its metadata names ({error}). It is cut off", path=key)


def drive_sync(
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
    store: Any = context.store  # offers `SyncReads`
    if gap_bytes is None:
        gap_bytes = store.profile.take_gap_bytes
    if sinks is None:
        sinks = context.sinks_now()
    charged_bytes = 0
    try:
        request = next(steps)
        while True:
            if type(request) is Ranges:
                num_bytes = request.num_bytes
                if num_bytes > UNCHARGED_BYTES_MAX and not is_charged:
                    context.pool.charge(num_bytes - charged_bytes)
                    charged_bytes = num_bytes
                num_ranges = len(request.starts)
                scratch = None if request.keep else _scratch.of(num_bytes + gap_bytes * num_ranges)
                fetched = store.read_sync(key, request, gap_bytes, scratch)
                bytes_read = fetched.bytes_read
                held_bytes = 0 if is_charged else bytes_read
                count_round(sinks, num_ranges, num_bytes, fetched.num_reads, bytes_read, held_bytes)
                request = steps.send(fetched)
            elif type(request) is Suffix:
                tail, file_bytes = store.suffix_sync(key, request.num_bytes)
                count_round(sinks, 1, len(tail), 1, len(tail), len(tail))
                request = steps.send(FetchedSuffix(tail, file_bytes))
            else:
                _wait_sync(request)  # type: ignore[arg-type]
                request = steps.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    except (ShortRead, InvalidRange) as error:
        raise truncated(key, error) from error
    finally:
        if charged_bytes:
            context.pool.charge(-charged_bytes)
        steps.close()


def _wait_sync(wait: Wait) -> None:
    with suppress(ClaimAbandoned, FutureCancelled, LanceError):  # whoever waits looks again, and fails by itself
        wait.future.result()


async def drive_async(steps: FileSteps[T], reads: FileReads, key: str, priority: int = 0) -> T:
    """Run a computation on the file `key` to its end, reading through the scheduler. Runs on the engine's loop."""
    try:
        request = next(steps)
        while True:
            if type(request) is Ranges:
                answer: Any = await reads.submit(request, priority)
                if request.num_bytes > INLINE_DECODE_BYTES_MAX:
                    request = await in_pool(steps, answer)
                    del answer
                    if type(request) is Finished:
                        return request.value  # type: ignore[no-any-return]
                    continue
            elif type(request) is Suffix:
                buffer, size, _ = await reads.suffix(request.num_bytes)
                answer = FetchedSuffix(buffer, size)
            else:
                await _wait(request)  # type: ignore[arg-type]
                answer = None
            request = steps.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result
    except (ShortRead, InvalidRange) as error:
        raise truncated(key, error) from error
    finally:
        with suppress(ValueError):  # still running in the pool when the call was cancelled; it ends by itself there
            steps.close()


def take_sync(steps: FilesSteps[T], context: ReadContext) -> T:
    """Run a computation on several files to its end, reading in this thread."""
    store: Any = context.store
    gap_bytes = store.profile.take_gap_bytes
    sinks, pool = context.sinks_now(), context.pool
    charged_bytes = 0

    def scratch_of(num_bytes: int) -> Any | None:
        if SCRATCH_BYTES_MAX < num_bytes <= SPARES_BYTES:
            return spares().of(SPARES_BYTES)  # all of it, so that it serves the next one, too, however large that is
        return _scratch.of(num_bytes)

    def answers_of(requests: list[tuple[FileRef, Request]], num_ranges: int, num_bytes: int) -> list[Any]:
        wanted = [(ref.key, request) for ref, request in requests if type(request) is Ranges]
        is_data = all(ranges.purpose == "data" for _, ranges in wanted)  # what is remembered has memory of its own
        scratch = scratch_of(num_bytes + gap_bytes * num_ranges + LINE_BYTES * len(wanted)) if is_data else None
        if len(requests) == 1:
            return [answer(requests[0], scratch)]
        if num_bytes > READ_AT_ONCE_BYTES_MAX:
            return list(cpu_pool().map(answer, requests))
        if len(wanted) < len(requests):
            return [answer(one) for one in requests]
        try:
            found: list[Any] = store.read_many_sync(wanted, gap_bytes, scratch)
            return found
        except (ShortRead, InvalidRange) as error:
            raise truncated(str(error.path), error) from error

    def answer(wanted: tuple[FileRef, Request], scratch: Any = None) -> Any:
        ref, request = wanted
        try:
            if type(request) is Ranges:
                return store.read_sync(ref.key, request, gap_bytes, scratch)
            if type(request) is Suffix:
                return FetchedSuffix(*store.suffix_sync(ref.key, request.num_bytes))
            _wait_sync(request)  # type: ignore[arg-type]
            return None
        except (ShortRead, InvalidRange) as error:
            raise truncated(ref.key, error) from error

    try:
        requests = next(steps)
        while True:
            if isinstance(requests, Apart):
                requests = steps.send(take_sync(side_by_side(requests.steps), context))
                continue
            num_ranges, num_bytes = _sums(requests)
            if num_bytes > UNCHARGED_BYTES_MAX:
                pool.charge(num_bytes)
                charged_bytes += num_bytes
            answers = answers_of(requests, num_ranges, num_bytes)
            _count_answers(sinks, answers, num_ranges, num_bytes)
            requests = steps.send(answers)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        if charged_bytes:
            pool.charge(-charged_bytes)
        steps.close()


def _sums(requests: list[tuple[FileRef, Request]]) -> tuple[int, int]:
    """Ranges and bytes of one round."""
    ranges = [request for _, request in requests if type(request) is Ranges]
    whole = merged(ranges) if ranges else no_ranges()
    return len(whole), whole.num_bytes


def _count_answers(sinks: Sinks, answers: list[Any], num_ranges: int, bytes_wanted: int) -> None:
    """Count what one round brought; `num_ranges` and `bytes_wanted` are of its ranges."""
    num_reads = bytes_read = 0
    for found in answers:
        if type(found) is Fetched:
            num_reads += found.num_reads
            bytes_read += found.bytes_read
        elif found is not None:  # the end of a file
            num_bytes = len(found.buffer)
            num_ranges, bytes_wanted = num_ranges + 1, bytes_wanted + num_bytes
            num_reads, bytes_read = num_reads + 1, bytes_read + num_bytes
    count_round(sinks, num_ranges, bytes_wanted, num_reads, bytes_read, bytes_read)


async def take_async(steps: FilesSteps[T], context: ReadContext) -> T:
    """Run a computation on several files to its end, reading through the scheduler. Runs on the engine's loop."""
    try:
        async with context.scheduler() as scheduler:
            requests = next(steps)
            while True:
                if isinstance(requests, Apart):
                    requests = steps.send(await _Apart(scheduler, requests.steps).run())
                    continue
                answers = await _answers(scheduler, requests)
                if sum([one.num_bytes for _, one in requests if type(one) is Ranges]) > INLINE_DECODE_BYTES_MAX:
                    found = await in_pool(steps, answers)
                    if type(found) is Finished:
                        return found.value  # type: ignore[no-any-return]
                    requests = found
                else:
                    requests = steps.send(answers)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        with suppress(ValueError):  # still running in the pool when the call was cancelled; it ends by itself there
            steps.close()


async def _answers(scheduler: ReadScheduler, requests: list[tuple[FileRef, Request]]) -> list[Any]:
    """The answers to one round. All ranges are submitted before the first is awaited; what fails cancels the rest."""
    handles: list[Handle] = []
    answers: list[Any] = []
    try:
        for ref, request in requests:
            assert type(request) is Ranges, "files are opened by computations of their own"
            handle = scheduler.file(ref.key, size_bytes=ref.size_bytes or None).submit(request)
            handle.demand()  # all of them are held in the end, whatever the budget says: none waits for another
            handles.append(handle)
        for (ref, _), handle in zip(requests, handles, strict=True):
            try:
                answers.append(await handle)
            except (ShortRead, InvalidRange) as error:
                raise truncated(ref.key, error) from error
    finally:
        for handle in handles[len(answers) :]:
            handle.cancel()
    return answers


class _Apart:
    """Computations on several files, each of which goes on as soon as its own answer is there.

    What has come in one turn of the loop is gone through together, on the CPU pool if it is much. There is no task for
    a file, but where its size is not known or somebody else is loading it.
    """

    def __init__(self, scheduler: ReadScheduler, steps: Sequence[tuple[FileRef, FileSteps[Any]]]) -> None:
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
        work = self._suffix(at, request.num_bytes) if type(request) is Suffix else _wait(request)  # type: ignore[arg-type]
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
            raise truncated(self._reads[at].key, error) from error

    async def _go_on(self, answers: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        num_bytes = sum([len(one.buffer) for _, one in answers if one is not None])
        if num_bytes > INLINE_DECODE_BYTES_MAX:
            return await asyncio.wrap_future(cpu_pool().submit(self._advance, answers))
        return self._advance(answers)

    def _advance(self, answers: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        return [(at, advance(self._steps[at][1], answer)) for at, answer in answers]


async def _wait(wait: Wait) -> None:
    await wait_until_done(wait.future)  # however it ended: whoever waits looks again, and fails by itself


class Finished:
    """What a computation came to, where another thread let it go on.

    `StopIteration` cannot leave a thread through a future. And an exception would hold the frames that it came through,
    one of which waits for the future that holds the exception: all that was read and decoded there would stay until the
    garbage collector finds the cycle.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def advance(steps: Generator[Any, Any, Any], answer: Any) -> Any:
    """`steps.send` for a pool thread: gives the next request, or the result as `Finished`."""
    try:
        return steps.send(answer)
    except StopIteration as done:
        return Finished(done.value)


async def in_pool(steps: Generator[Any, Any, Any], answer: Any) -> Any:
    """`advance` on the CPU pool: decoding large pages must not hold up the loop."""
    return await asyncio.wrap_future(cpu_pool().submit(advance, steps, answer))
