"""The asyncio part: many small byte ranges in, few store requests out, most urgent first.

    submit --> pending --(one turn of the loop)--> waiting for budget --> planned --> queue of reads --> in flight
                   metadata goes straight to planned ------------------^

- Everything submitted before the loop's next turn is looked at together; what the budget admits together is planned
  together, so columns of one file share reads. A *scan* merges whatever it has admitted of a file; a *take* merges
  requests of equal priority (one batch of rows), so that no batch waits for bytes of a later one.
- The unit of admission is the request, the unit of concurrency the read. A read needs one of the scheduler's own
  slots and one of its store's, which all schedulers of the process share; the shared one is taken last.
- Awaiting a handle *demands* it: it is admitted even over budget (`budget.py` says why). So await a handle only when
  its data is the next thing needed; a `gather` over handles demands all of them and turns the budget off.
- A request ends when its last piece is in, at its first error, or when its handle is cancelled, closed or dropped.
  Reads that nobody else holds are cancelled with it, and its bytes return to the budget.

Every method of these classes is called on one loop, the one that the first `submit` ran on; a handle may be dropped
on any thread.
"""

from __future__ import annotations

import asyncio
import heapq
import weakref
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from lance_io.io import stats as io_stats
from lance_io.io.budget import Budget, Ticket, process_pool
from lance_io.io.charges import Charges, charge_apart
from lance_io.io.growth import Growth
from lance_io.io.handles import FileReads, Handle
from lance_io.io.reads import CallRead, Merging, Request, plan_jobs, plan_ranges
from lance_io.io.slots import SlotChain, scan_requests_max, scan_slots_of, slots_of
from lance_io.io.stats import IoStats
from lance_io.limits import IO_BUFFER_BYTES
from lance_io.spans import Fetched, no_ranges
from lance_io.store.stats import on_retry
from lance_io.store.throttle import Flow, flow

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from lance_io.io.budget import Pool, Priority
    from lance_io.io.reads import Read
    from lance_io.io.sharing import IoScheduler
    from lance_io.io.slots import SlotSource
    from lance_io.io.stats import Sinks
    from lance_io.spans import Ranges
    from lance_io.store.api import ObjectMeta, ObjectReads, StartedRead

__all__ = ["FileReads", "Handle", "Merge", "ReadScheduler"]

Merge = Literal["take", "scan"]

_METADATA: Priority = (-1,)  # before every (operation, file, row)


class ReadScheduler:
    """Reads for one operation (a scan, a take) on one store, within a budget of bytes read ahead.

    store           where to read
    merge           "scan" or "take", unless a file says otherwise: which requests share reads, and which numbers of
                    the store's profile hold
    budget_bytes    bound on what is in flight or fetched and not yet taken; 0 for none
    requests_max    reads of this scheduler in flight at once; None for the profile's: `requests_max` for a take, which
                    needs everything at once; a scan, where order counts, begins with `requests_start` and grows to
                    half of that (`growth.py`)
    gap_bytes_max   ranges closer than this share a read; None for the profile's
    read_bytes_max  longest read; None for the profile's
    operation       first part of every priority: smaller goes first
    pool            bound shared with other schedulers; None for that of `shared`
    shared          what the session has in common; None for the process's bound and the store's slots

    What is read counts in `stats`, in those of `shared`, and in the `io_stats` blocks that it was submitted in.
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
        profile, take = store.profile, merge == "take"
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
        if requests_max is not None:
            self._growth = Growth(requests_max, requests_max)
        elif take:
            self._growth = Growth(profile.requests_max, profile.requests_max)
        else:
            self._growth = Growth(profile.requests_start, scan_requests_max(profile))
        self._flow = Flow()
        self._takes_plans = hasattr(store, "read_ranges")
        self._starts_reads = hasattr(store, "start_range")
        self._sinks = io_stats.sinks(self.stats, store.identity)
        links = (slots_of(store),) if take else (scan_slots_of(store), slots_of(store))
        self._slots: SlotSource = links[0] if take else SlotChain(*links)
        if shared is not None:
            self._sinks += (shared.stats,)
            self._slots = shared.slots(links)
            pool = pool or shared.pool
        self._budget = Budget(
            budget_bytes,
            refill_bytes=self._mergings[merge].read_bytes_max,
            pool=pool or process_pool(),
            on_room=partial(_room_elsewhere, weakref.ref(self)),  # no cycle: a scheduler goes with its last user
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn_due = False
        self._pending: list[Request] = []
        self._live: set[Request] = set()
        self._queue: list[tuple[Priority, int, Read]] = []
        self._num_queued = 0
        self._in_flight: set[Read] = set()
        self._in_line = False  # for a slot of the store
        self._granted = 0  # slots given while in line
        self._held_bytes = 0  # as last told to the statistics
        self._closed: str | None = None  # what was closed

    def file(
        self, key: str, *, size_bytes: int | None = None, priority: int = 0, merge: Merge | None = None
    ) -> FileReads:
        """The face for reading one object.

        size_bytes  its length, when it is known (not None, not 0): ranges behind the end are refused without a request
        priority    files go in this order, before the order of their rows
        merge       which of its requests share reads; None for what the scheduler was made for
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
        """End every request with an error and cancel what is in flight. Nothing can be submitted any more.

        what  was closed, for the error
        """
        self._closed = what
        for request in list(self._live):
            self._fail(request, RuntimeError(f"{what} was closed before this read was done"))

    async def aclose(self, what: str = "the scheduler") -> None:
        """`close`, and wait until the reads in flight have ended."""
        self.close(what)
        tasks = [read.task for read in self._in_flight if read.task is not None]
        if tasks:
            await asyncio.wait(tasks)
        if self._in_flight:  # those without a task are over in the loop's next turn
            await asyncio.sleep(0)

    async def __aenter__(self) -> ReadScheduler:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # -- requests come and go -----------------------------------------------------------------------------------

    def _submit(self, key: str, wanted: Ranges, num_bytes: int, merging: Merging, priority: Priority) -> Handle:
        self._bind()
        sinks = self._sinks + io_stats.scopes()
        if wanted.purpose == "metadata":
            request = Request(key, wanted, num_bytes, merging, _METADATA, None, sinks)
        else:
            request = Request(key, wanted, num_bytes, merging, priority, Ticket(priority), sinks)
        io_stats.count_wanted(sinks, len(wanted), num_bytes)
        if num_bytes == 0:
            request.answer = Fetched(b"", wanted.starts * 0)
            request.ended = request.left = True  # without a request there is nothing to give back
        else:
            if request.ticket is not None:
                request.ticket.item = request
            self._live.add(request)
            self._pending.append(request)
            self._turn_soon()
        return Handle(self, request)

    async def _call(self, key: str, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        self._bind()
        sinks = self._sinks + io_stats.scopes()
        request = Request(key, no_ranges("metadata"), 0, self._mergings[self._merge], _METADATA, None, sinks)
        read = CallRead(request, call)
        request.reads.append(read)
        self._live.add(request)
        self._enqueue(read)
        self._dispatch()
        result = await Handle(self, request)
        io_stats.count_wanted(sinks, 1, read.num_bytes)
        return result

    def _bind(self) -> None:
        loop = asyncio.get_running_loop()
        if self._closed is not None:
            raise RuntimeError(f"{self._closed} was closed")
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError("a ReadScheduler belongs to the event loop that it was first used on")

    def _demand(self, request: Request) -> None:
        if request.ticket is not None and self._budget.demand(request.ticket):
            self._turn_soon()

    def _leave(self, request: Request) -> None:
        """Nobody wants this request any more: its bytes were taken, or never will be."""
        if request.left:
            return
        request.left = True
        self._live.discard(request)
        lingering_bytes = 0
        reads, request.reads = request.reads, []
        for read in reads:
            read.holders.remove(request)
            if read.holders:
                if read.payer is request:
                    self._hand_over(read, read.holders[0])
            elif read.state == "in flight":
                self._give_up(read)
                request.lingering += 1  # its bytes may still come; they count until it has ended
                lingering_bytes += read.num_bytes
        if request.ticket is not None:
            if lingering_bytes:
                self._budget.resize(request.ticket, lingering_bytes)
            else:
                self._budget.release(request.ticket)
            self._note_held()
            if self._budget.has_waiting:
                self._turn_soon()

    def _hand_over(self, read: Read, payer: Request) -> None:
        """Another holder of a shared read carries its bytes from now on."""
        before, read.payer = read.payer.ticket, payer
        if before is not None and payer.ticket is not None:
            self._budget.move(read.num_bytes, before, payer.ticket)

    def _fail(self, request: Request, error: BaseException) -> None:
        if not request.ended:
            request.error = error
            request.end()
        self._leave(request)

    def _dropped(self, request: Request) -> None:
        """The handle was finalized un-awaited, on any thread and possibly inside any of these methods."""
        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._leave, request)
        except RuntimeError:  # the loop is closed: no other thread uses this scheduler, nothing is in flight
            self._leave(request)

    # -- one turn: admit, plan, dispatch --------------------------------------------------------------------------

    def _turn_soon(self) -> None:
        if not self._turn_due and self._loop is not None:
            self._turn_due = True
            with suppress(RuntimeError):  # a closed loop takes no more turns
                self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        pending, self._pending = self._pending, []
        wanted = [request for request in pending if not request.left]
        for request in wanted:
            if request.ticket is not None:
                self._budget.submit(request.ticket)
        self._plan([request for request in wanted if request.ticket is None])
        while tickets := self._budget.admit(charge_apart if self._takes_plans else Charges()):
            self._note_held()
            self._plan([ticket.item for ticket in tickets])
        self._note_held()
        self._dispatch()

    def _plan(self, requests: list[Request]) -> None:
        """Turn admitted requests into queued reads; they pay for those instead of for their upper bounds."""
        groups: dict[object, list[Request]] = {}
        for request in requests:
            groups.setdefault(request.group, []).append(request)
        for group_requests in groups.values():
            try:
                reads = (plan_jobs if self._takes_plans else plan_ranges)(group_requests)
            except BaseException as error:  # whatever it is, those who wait have to hear of it
                for request in group_requests:
                    self._fail(request, error)
                continue
            paid = dict.fromkeys(group_requests, 0)
            for read in reads:
                paid[read.payer] += read.num_bytes
                self._enqueue(read)
            for request, num_bytes in paid.items():
                if request.ticket is not None:
                    self._budget.resize(request.ticket, num_bytes)

    def _note_held(self) -> None:
        held_bytes = self._budget.held_bytes
        if held_bytes != self._held_bytes:
            io_stats.count_held(self._sinks, held_bytes - self._held_bytes)
            self._held_bytes = held_bytes

    # -- reads -------------------------------------------------------------------------------------------------

    def _enqueue(self, read: Read) -> None:
        self._num_queued += 1
        heapq.heappush(self._queue, (read.priority, self._num_queued, read))

    def _dispatch(self) -> None:
        """Send queued reads while there are slots; metadata does not wait for the scheduler's own."""
        while self._queue:
            read = self._queue[0][2]
            if not read.holders:
                heapq.heappop(self._queue)
            elif len(self._in_flight) >= self._growth.limit and not read.is_urgent:
                return
            elif not self._take_slot():
                return
            else:
                heapq.heappop(self._queue)
                self._start(read)

    def _take_slot(self) -> bool:
        if self._granted:
            self._granted -= 1
            return True
        if self._in_line:
            return False
        self._in_line = not self._slots.acquire(self)
        return not self._in_line

    def slot_granted(self) -> bool:
        """A slot of the store came free while this scheduler stood in line (`slots.Taker`); from any thread."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._use_grant)
        except RuntimeError:
            return False
        return True

    def _use_grant(self) -> None:
        self._in_line = False
        self._granted += 1
        self._dispatch()
        while self._granted:
            self._granted -= 1
            self._slots.release()

    def _start(self, read: Read) -> None:
        assert self._loop is not None
        read.state = "in flight"
        self._in_flight.add(read)
        io_stats.begin_read(read.sinks)
        told = partial(_made_again, read.sinks, self._growth)
        store: Any = self.store
        try:
            if self._starts_reads and read.start(store, partial(self._started_ended, read), self._flow, told):
                return
        except Exception as error:  # whatever it is, those who wait have to hear of it
            self._loop.call_soon(self._ended, read, None, error)
            return
        context = copy_context()
        context.run(on_retry.set, told)
        context.run(flow.set, self._flow)
        read.task = self._loop.create_task(read.fetch(store), context=context)
        read.task.add_done_callback(partial(self._task_ended, read))

    def _give_up(self, read: Read) -> None:
        """Cancel a read in flight; it is over in a later turn of the loop."""
        if read.task is not None:
            read.task.cancel()
        elif read.started is not None and self._loop is not None:
            read.started.cancel()
            self._loop.call_soon(self._ended, read, None, asyncio.CancelledError())

    def _task_ended(self, read: Read, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self._ended(read, None, asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self._ended(read, None, error)
        else:
            self._ended(read, task.result(), None)

    def _started_ended(self, read: Read, started: StartedRead) -> None:
        try:
            result = started.result()
        except BaseException as error:
            self._ended(read, None, error)
        else:
            self._ended(read, result, None)

    def _ended(self, read: Read, result: Any, error: BaseException | None) -> None:
        self._growth.ended(held_back=bool(self._queue) and len(self._in_flight) >= self._growth.limit)
        self._in_flight.discard(read)
        self._slots.release()
        read.state, read.task, read.started = "ended", None, None
        num_bytes = 0
        if not read.holders:  # nobody is left to hear of it
            self._ended_unwanted(read)
        elif isinstance(error, asyncio.CancelledError):
            self._fail_all(read, RuntimeError("the read was cancelled: its event loop is shutting down"))
        elif error is not None:
            self._fail_all(read, error)
        else:
            num_bytes = self._deliver(read, result)
        self._dispatch()
        io_stats.end_read(read.sinks, num_bytes)  # after the next ones have begun: they are the same round

    def _deliver(self, read: Read, result: Any) -> int:
        planned_bytes = read.num_bytes
        try:
            complete = read.deliver(result)
        except BaseException as error:  # not what was asked for: those who wait have to hear of it
            self._fail_all(read, error)
            return 0
        ticket = read.payer.ticket
        if ticket is not None and read.num_bytes != planned_bytes:
            self._budget.resize(ticket, ticket.num_bytes + read.num_bytes - planned_bytes)
            self._turn_soon()
        for request in complete:
            request.end()
        return read.num_bytes

    def _fail_all(self, read: Read, error: BaseException) -> None:
        for request in list(read.holders):
            self._fail(request, error)

    def _ended_unwanted(self, read: Read) -> None:
        """A cancelled read has ended: only now its bytes are free."""
        payer = read.payer
        payer.lingering -= 1
        if payer.ticket is None:
            return
        if payer.lingering:
            self._budget.resize(payer.ticket, payer.ticket.num_bytes - read.num_bytes)
        else:
            self._budget.release(payer.ticket)
        self._note_held()
        self._turn_soon()


class OpenSchedulers:
    """The schedulers that one owner has at work, to be closed together. For one loop, as they are.

    owner  what it is, for errors
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._live: weakref.WeakSet[ReadScheduler] = weakref.WeakSet()
        self._closed = False

    def add(self, scheduler: ReadScheduler) -> None:
        """Another one. Raises `RuntimeError` once they were closed."""
        self.check()
        self._live.add(scheduler)

    def check(self) -> None:
        """Raise `RuntimeError` once they were closed."""
        if self._closed:
            raise RuntimeError(f"{self._owner} was closed")

    async def aclose(self) -> None:
        """Close all of them, wait until their reads in flight have ended, and refuse new ones."""
        self._closed = True
        await asyncio.gather(*(scheduler.aclose(self._owner) for scheduler in list(self._live)))


def _made_again(sinks: Sinks, growth: Growth, late: bool) -> None:
    """A read is made again (`store.stats.on_retry`)."""
    io_stats.count_retry(sinks)
    if not late:
        growth.failed()


def _room_elsewhere(reference: weakref.ref[ReadScheduler]) -> None:
    """Another scan gave bytes back to the pool that a scheduler waits for, on any thread."""
    scheduler = reference()
    if scheduler is not None and scheduler._loop is not None:
        with suppress(RuntimeError):  # a closed loop
            scheduler._loop.call_soon_threadsafe(scheduler._turn_soon)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
