"""The asyncio scheduler: merges many small byte ranges into few store requests, most urgent first.

    submit --> pending --(one turn of the loop)--> waiting for budget --> planned --> queue of reads --> in flight
                   metadata goes straight to planned ------------------^

- All requests submitted before the loop's next turn are processed together; those that the budget admits together are
  planned together, so that columns of one file share reads. A *scan* merges all admitted requests for a file; a *take*
  merges requests of equal priority (one batch of rows), so that no batch waits for bytes of a later one, and requests
  of other takes on the store.
- The unit of admission is the request, the unit of concurrency the read. A read needs one of the operation's own
  slots and one of its store's, which all schedulers of the process share; the shared one is taken last.
- Awaiting a handle *demands* it: it is admitted even over budget (`budget.py` says why). So await a handle only when
  its data is needed next; a `gather` over handles demands all of them and disables the budget.
- A request ends when its last piece arrives, at its first error, or when its handle is cancelled, closed or dropped.
  Reads without other holders are cancelled with it, and its bytes return to the budget.

This module is the interface for one operation; `dispatch.py` does the work. All methods are called on one loop, that of
the first `submit`; a handle may be dropped on any thread.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from lance_io._kernels import measure_ranges
from lance_io.errors import FormatError
from lance_io.io import stats as io_stats
from lance_io.io.budget import Ticket, process_pool
from lance_io.io.dispatch import Dispatcher, Operation, dispatcher_of_takes
from lance_io.io.reads import CallRead, Merging, Request
from lance_io.io.slots import Growth, SlotChain, scan_requests_max, scan_slots_of, slots_of
from lance_io.io.stats import IoStats
from lance_io.limits import IO_BUFFER_BYTES
from lance_io.runtime import in_thread
from lance_io.spans import Fetched, no_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterator

    from lance_io.io.budget import Pool, Priority
    from lance_io.io.shared_limits import IoScheduler
    from lance_io.io.slots import SlotSource
    from lance_io.spans import Ranges
    from lance_io.store.api import ObjectMeta, ObjectReads

__all__ = ["FileReads", "Handle", "Merge", "ReadScheduler"]

Merge = Literal["take", "scan"]

_METADATA: Priority = (-1,)  # before every (operation, file, row)


class ReadScheduler:
    """Reads of one operation (a scan, a take) on one store, within a budget of prefetched bytes.

    store           the store to read
    merge           "scan" or "take", unless a file overrides it: which requests share reads, and which limits of the
                    store's profile apply
    budget_bytes    bound on bytes in flight, or fetched and not yet consumed; 0 for none
    requests_max    maximum number of reads in flight; None for the profile's: a take, which needs everything at once,
                    has `requests_max`; a scan, where order counts, starts with `requests_start` and grows to half of
                    `requests_max` (`Growth` in `slots.py`)
    gap_bytes_max   ranges closer than this share a read; None for the profile's
    read_bytes_max  maximum length of a read; None for the profile's
    operation       first part of every priority: smaller goes first
    pool            bound shared with other schedulers; None for that of `shared`
    shared          the scheduler of the session; None for the process's bound and the store's slots

    Reads count in `stats`, in those of `shared`, and in the `io_stats` blocks around their submission.
    """

    def __init__(
        self,
        store: ObjectReads,
        *,
        merge: Merge = "scan",
        budget_bytes: int = IO_BUFFER_BYTES,
        requests_max: int | None = None,
        gap_bytes_max: int | None = None,
        read_bytes_max: int | None = None,
        operation: int = 0,
        pool: Pool | None = None,
        shared: IoScheduler | None = None,
    ) -> None:
        profile = store.profile
        self.store = store
        self.stats = IoStats()
        self._merge = merge
        self._operation = operation
        self._mergings = {
            "take": Merging(
                "take", _or(gap_bytes_max, profile.take_gap_bytes), _or(read_bytes_max, profile.take_read_bytes_max)
            ),
            "scan": Merging(
                "scan", _or(gap_bytes_max, profile.scan_gap_bytes), _or(read_bytes_max, profile.scan_read_bytes_max)
            ),
        }
        self._requests_max = requests_max
        self._shared = shared
        sinks = io_stats.sinks(self.stats, store.identity)
        if shared is not None:
            sinks += (shared.stats,)
            pool = pool or shared.pool
        refill_bytes = self._mergings[merge].read_bytes_max
        self._own = Operation(sinks, budget_bytes, refill_bytes, pool or process_pool(), reads_once=merge == "scan")
        self._closed: str | None = None  # name of the closed object, for errors

    def file(
        self, key: str, *, size_bytes: int | None = None, priority: int = 0, merge: Merge | None = None
    ) -> FileReads:
        """Reads of one object.

        size_bytes  its length, None or 0 if unknown: ranges past the end are refused without a request
        priority    files are read in this order, before the order of their rows
        merge       which of its requests share reads; None for the mode of the scheduler
        """
        merging = self._mergings[merge or self._merge]
        return FileReads(self, key, size_bytes or None, merging, (self._operation, priority))

    async def suffix(self, key: str, num_bytes: int) -> tuple[Any, int, str | None]:
        """`store.get_suffix`, as metadata: ahead of the queue, outside the budget, counted."""
        result: tuple[Any, int, str | None] = await self._call(key, lambda: self.store.get_suffix(key, num_bytes))
        return result

    async def whole(self, key: str) -> tuple[Any, ObjectMeta]:
        """`store.get`, as metadata: ahead of the queue, outside the budget, counted."""
        result: tuple[Any, ObjectMeta] = await self._call(key, lambda: self.store.get(key))
        return result

    def close(self, what: str = "the scheduler") -> None:
        """End every request with an error, cancel reads in flight, and refuse new requests.

        what  the closed object, for the error
        """
        self._closed = what
        own = self._own
        if own.dispatcher is not None:
            for request in list(own.live):
                own.dispatcher.fail(request, RuntimeError(f"{what} was closed before this read was done"))

    async def aclose(self, what: str = "the scheduler") -> None:
        """`close`, and wait until the reads in flight have ended, except those that other operations share."""
        self.close(what)
        tasks = [read.task for read in self._own.ending if read.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    async def __aenter__(self) -> ReadScheduler:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # -- requests come and go -----------------------------------------------------------------------------------

    def _submit(self, key: str, wanted: Ranges, num_bytes: int, merging: Merging, priority: Priority) -> Handle:
        dispatcher, operation = self._bind(), self._own
        sinks = operation.sinks + io_stats.scopes()
        if wanted.purpose == "metadata":
            request = Request(operation, key, wanted, num_bytes, merging, _METADATA, None, sinks)
        else:
            request = Request(operation, key, wanted, num_bytes, merging, priority, Ticket(priority), sinks)
        io_stats.count_wanted(sinks, len(wanted), num_bytes)
        if num_bytes == 0:
            request.answer = Fetched(b"", wanted.starts * 0)
            request.ended = request.left = True  # no read, so no bytes to return
        else:
            if request.ticket is not None:
                request.ticket.item = request
            operation.live.add(request)
            dispatcher.submit(request)
        return Handle(dispatcher, request)

    async def _call(self, key: str, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        dispatcher, operation = self._bind(), self._own
        sinks = operation.sinks + io_stats.scopes()
        merging = self._mergings[self._merge]
        request = Request(operation, key, no_ranges("metadata"), 0, merging, _METADATA, None, sinks)
        read = CallRead(request, call)
        request.reads.append(read)
        operation.live.add(request)
        dispatcher.send(read)
        result = await Handle(dispatcher, request)
        io_stats.count_wanted(sinks, 1, read.num_bytes)
        return result

    def _bind(self) -> Dispatcher:
        if self._closed is not None:
            raise RuntimeError(f"{self._closed} was closed")
        loop = asyncio.get_running_loop()
        dispatcher = self._own.dispatcher
        if dispatcher is None:
            dispatcher = self._own.dispatcher = self._find_dispatcher()
        elif dispatcher.loop is not loop:
            raise RuntimeError("a ReadScheduler belongs to the event loop that it was first used on")
        return dispatcher

    def _find_dispatcher(self) -> Dispatcher:
        if self._merge == "take" and self._requests_max is None and not hasattr(self.store, "read_ranges"):
            return dispatcher_of_takes(self.store, self._shared, self._make_dispatcher)
        return self._make_dispatcher()

    def _make_dispatcher(self) -> Dispatcher:
        store, profile, shared = self.store, self.store.profile, self._shared
        is_take = self._merge == "take"
        links = (slots_of(store),) if is_take else (scan_slots_of(store), slots_of(store))
        slots: SlotSource = shared.slots(links) if shared is not None else links[0] if is_take else SlotChain(*links)
        if self._requests_max is not None:
            growth = Growth(self._requests_max, self._requests_max)
        elif is_take:
            growth = Growth(profile.requests_max, profile.requests_max)
        else:
            growth = Growth(profile.requests_start, scan_requests_max(profile))
        return Dispatcher(store, growth, slots, shared)


class OpenSchedulers:
    """The live schedulers of one owner, for closing them together. For one loop, like the schedulers.

    Closing also waits for reads without a scheduler, in threads.

    owner  its name, for errors
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._live: weakref.WeakSet[ReadScheduler] = weakref.WeakSet()
        self._closed = False
        self._num_beside = 0
        self._none_beside = threading.Condition()

    def add(self, scheduler: ReadScheduler) -> None:
        """Add a scheduler. Raises `RuntimeError` after `aclose`."""
        self.check()
        self._live.add(scheduler)

    def check(self) -> None:
        """Raise `RuntimeError` after `aclose`."""
        if self._closed:
            raise RuntimeError(f"{self._owner} was closed")

    @contextmanager
    def beside(self) -> Iterator[None]:
        """A block that reads without a scheduler, on any loop. Raises `RuntimeError` if `aclose` was called before."""
        with self._none_beside:
            self.check()
            self._num_beside += 1
        try:
            yield
        finally:
            with self._none_beside:
                self._num_beside -= 1
                self._none_beside.notify_all()
        self.check()

    async def aclose(self) -> None:
        """Close all schedulers, wait until their reads in flight have ended, and refuse new ones."""
        with self._none_beside:
            self._closed = True
        await asyncio.gather(*(scheduler.aclose(self._owner) for scheduler in list(self._live)))
        if self._num_beside:
            await in_thread(self._wait_for_others)

    def _wait_for_others(self) -> None:
        with self._none_beside:
            self._none_beside.wait_for(lambda: not self._num_beside)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


class FileReads:
    """Reads of one object through a scheduler; created by `ReadScheduler.file`."""

    __slots__ = ("_merging", "_prefix", "_scheduler", "key", "size_bytes")

    def __init__(
        self, scheduler: ReadScheduler, key: str, size_bytes: int | None, merging: Merging, prefix: Priority
    ) -> None:
        self._scheduler = scheduler
        self._merging = merging
        self._prefix = prefix
        self.key = key
        self.size_bytes = size_bytes

    def submit(self, wanted: Ranges, priority: int = 0) -> Handle:
        """Submit ranges without waiting.

        wanted    byte ranges of the object in any order; `purpose` "metadata" goes before everything else
        priority  usually the first row that needs them: smaller is more urgent

        Raises `FormatError` for an invalid range or one that ends past the end of the file.
        """
        num_bytes = check_ranges(wanted, self.size_bytes, self.key)
        return self._scheduler._submit(self.key, wanted, num_bytes, self._merging, (*self._prefix, priority))

    async def suffix(self, num_bytes: int) -> tuple[Any, int, str | None]:
        """The last `num_bytes` of the object, its size in bytes, its etag; see `ReadScheduler.suffix`."""
        return await self._scheduler.suffix(self.key, num_bytes)


class Handle:
    """A pending answer. `await handle` returns it once, as `Fetched` in the order of the submitted ranges.

    Awaiting demands it: never await, gather or wrap it in a task before its data is needed next. Awaiting raises the
    first error of its reads. Cancelling the awaiting task, `cancel`, or dropping the handle un-awaited returns its
    bytes and cancels reads without other holders.
    """

    __slots__ = ("__weakref__", "_dispatcher", "_request")

    def __init__(self, dispatcher: Dispatcher, request: Request) -> None:
        self._dispatcher = dispatcher
        self._request = request

    @property
    def done(self) -> bool:
        """True if the answer or an error is set, so that awaiting would not block."""
        return self._request.ended

    def __await__(self) -> Generator[Any, None, Any]:
        request = self._request
        try:
            if not request.ended:
                self._dispatcher.demand(request)
                yield from request.waiting()
            if request.error is not None:
                raise request.error
            if request.answer is None:
                raise RuntimeError("a read's handle returns its answer only once, and it has been taken")
            answer, request.answer = request.answer, None
            return answer
        finally:
            self._dispatcher.leave(request)

    def demand(self) -> None:
        """Demand the answer, as awaiting does, without waiting."""
        if not self._request.ended:
            self._dispatcher.demand(self._request)

    def on_end(self, callback: Callable[[], object]) -> None:
        """Call `callback` on the loop when the answer or an error is set."""
        if self._request.ended:
            self._dispatcher.loop.call_soon(callback)
        else:
            self._request.waiting().add_done_callback(lambda _: callback())

    async def arrived(self) -> None:
        """Wait until the answer or an error is set, without demanding it."""
        if not self._request.ended:
            await self._request.waiting()

    def cancel(self) -> None:
        """Cancel the request; awaiting it raises a `RuntimeError`. No effect after the answer was taken."""
        if not self._request.left:
            self._dispatcher.fail(self._request, RuntimeError("this read was cancelled"))

    close = cancel

    def __del__(self) -> None:
        if not self._request.left:
            self._dispatcher.dropped(self._request)


def check_ranges(wanted: Ranges, size_bytes: int | None, path: str) -> int:
    """The sum of the lengths; `FormatError` unless every range has `0 <= start <= end <= size_bytes` (None: any)."""
    num_bytes, _, _, bad = measure_ranges(wanted.starts, wanted.ends, size_bytes)
    if bad is None:
        return num_bytes
    start, end = int(wanted.starts[bad]), int(wanted.ends[bad])
    if 0 <= start <= end:
        raise FormatError(
            f"expected bytes {start} to {end}, but the file has {size_bytes}; it is damaged or cut short", path=path
        )
    raise FormatError(f"expected a range of bytes, found {start} to {end}; the file is damaged", path=path)
