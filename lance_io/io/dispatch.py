"""Dispatches requests: plans them together, queues their reads, and sends reads as slots become free.

    one turn of the loop   budgets admit requests submitted since the last turn; admitted requests are planned together
    the queue              reads in order of their priority; among equal priorities operations alternate
    in flight              each read has a slot; a range that is already under way is not sent again (single flight)

A scan has its own dispatcher. All takes on one store share one: callers that request adjacent ranges in the same turn
of the loop share GETs, and a caller that requests a range under way waits for that read.

All methods are called on one loop.
"""

from __future__ import annotations

import asyncio
import heapq
import weakref
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from lance_io.io import stats as io_stats
from lance_io.io.budget import Budget
from lance_io.io.estimates import Charges, charge_apart
from lance_io.io.reads import RangeRead, plan_jobs, plan_ranges
from lance_io.store.counters import on_cached, on_retry
from lance_io.store.offers import Flow, flow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Future

    from lance_io.io.budget import Pool, Priority
    from lance_io.io.reads import Read, Request
    from lance_io.io.slots import Growth, SlotSource
    from lance_io.io.stats import Sinks
    from lance_io.store.api import ObjectReads
    from lance_io.store.offers import FindsRanges, StartedRead, StartReads, WantedRange


class Operation:
    """A scan or a take, as the dispatcher sees it.

    sinks         the statistics that count its reads
    budget_bytes  bound on bytes in flight, or fetched and not yet consumed; 0 for none
    refill_bytes  see `Budget`
    pool          the bound that it shares with others
    reads_once    whether it is a scan, whose bytes are rarely read again

    live          requests that are not consumed, cancelled or failed
    ending        cancelled reads that have not ended
    flow          groups its requests in the store's queue
    last_turn     number of its last read in the queue's order
    dispatcher    None before its first request
    """

    __slots__ = ("__weakref__", "_held_bytes", "budget", "dispatcher", "ending", "flow", "last_turn", "live", "sinks")

    def __init__(
        self, sinks: Sinks, budget_bytes: int, refill_bytes: int, pool: Pool, *, reads_once: bool = False
    ) -> None:
        self.sinks = sinks
        on_room = partial(_room_elsewhere, weakref.ref(self))  # a weak reference: no cycle
        self.budget = Budget(budget_bytes, refill_bytes=refill_bytes, pool=pool, on_room=on_room)
        self.flow = Flow(reads_once=reads_once)
        self.live: set[Request] = set()
        self.ending: set[Read] = set()
        self.last_turn = 0
        self.dispatcher: Dispatcher | None = None  # that of the loop of its first request
        self._held_bytes = 0  # as last reported to the statistics

    def note_held(self) -> None:
        """Report the held bytes to the statistics."""
        held_bytes = self.budget.held_bytes
        if held_bytes != self._held_bytes:
            io_stats.count_held(self.sinks, held_bytes - self._held_bytes)
            self._held_bytes = held_bytes


def _room_elsewhere(reference: weakref.ref[Operation]) -> None:
    """Called on any thread when bytes were returned to the pool that an operation waits for."""
    operation = reference()
    if operation is not None and operation.dispatcher is not None:
        with suppress(RuntimeError):  # a closed loop
            operation.dispatcher.loop.call_soon_threadsafe(operation.dispatcher.admit_soon, operation)


class Dispatcher:
    """See the module.

    store   the store to read
    growth  limit of concurrent reads
    slots   source of slots; each read needs one
    shared  the scheduler of the session; kept alive as long as this dispatcher
    """

    def __init__(self, store: ObjectReads, growth: Growth, slots: SlotSource, shared: object = None) -> None:
        self.store = store
        self.growth = growth
        self.loop = asyncio.get_running_loop()
        self._shared = shared
        self.in_flight: set[Read] = set()
        self._slots = slots
        self._takes_plans = hasattr(store, "read_ranges")
        self._starts_reads = hasattr(store, "start_ranges")
        self._finds_ranges = hasattr(store, "find_ranges")
        self._turn_due = False
        self._pending: list[Request] = []
        self._due: dict[Operation, None] = {}  # operations whose budgets may admit requests
        self._fresh: list[Read] = []  # planned, not in the queue yet
        self._to_look_up: list[RangeRead] = []  # planned, to look up in the store's disk cache first
        self._queue: list[tuple[Priority, int, int, Read]] = []
        self._num_queued = 0
        self._last_turn = 0  # turn of the read that left the queue last
        self._under_way: dict[tuple[str, int, int], RangeRead] = {}  # queued or in flight
        self._in_line = False  # waiting for a slot of the store
        self._granted = 0  # slots granted while waiting

    # -- requests come and go -----------------------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """Add a new request, to process in the next turn."""
        self._pending.append(request)
        self._turn_soon()

    def send(self, read: Read) -> None:
        """Send a read that needs no planning."""
        read.queued_s = self.loop.time()
        self._fresh.append(read)
        self._dispatch()

    def admit_soon(self, operation: Operation) -> None:
        """Call `admit` on the budget of an operation in the next turn."""
        self._due[operation] = None
        self._turn_soon()

    def demand(self, request: Request) -> None:
        """Mark a request as needed now."""
        if request.ticket is not None and request.operation.budget.demand(request.ticket):
            self.admit_soon(request.operation)

    def leave(self, request: Request) -> None:
        """Release a request that was consumed or is no longer needed."""
        if request.left:
            return
        request.left = True
        operation = request.operation
        operation.live.discard(request)
        lingering_bytes = 0
        reads, request.reads = request.reads, []
        for read in reads:
            read.holders.remove(request)
            if read.holders:
                if read.payer is request:
                    _hand_over(read, read.holders[0])
            elif read.state == "in flight":
                self._give_up(read)
                request.lingering += 1  # its bytes may still arrive; they count until the read has ended
                lingering_bytes += read.num_bytes
            elif read.state == "queued":
                self._forget(read)  # it is not sent, and no request would pay for it if others joined
        if request.ticket is not None:
            if lingering_bytes:
                operation.budget.resize(request.ticket, lingering_bytes)
            else:
                operation.budget.release(request.ticket)
            operation.note_held()
            if operation.budget.has_waiting:
                self.admit_soon(operation)

    def fail(self, request: Request, error: BaseException) -> None:
        """End a request with an error."""
        if not request.ended:
            request.error = error
            request.end()
        self.leave(request)

    def dropped(self, request: Request) -> None:
        """Called when a handle is finalized un-awaited: on any thread, possibly inside any of these methods."""
        try:
            self.loop.call_soon_threadsafe(self.leave, request)
        except RuntimeError:  # the loop is closed: no other thread uses this dispatcher, and no read is in flight
            self.leave(request)

    # -- one turn: admit, plan, dispatch --------------------------------------------------------------------------

    def _turn_soon(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        pending, self._pending = self._pending, []
        due, self._due = self._due, {}
        metadata = []
        for request in pending:
            if request.left:
                continue
            if request.ticket is None:
                metadata.append(request)
            else:
                request.operation.budget.submit(request.ticket)
                due[request.operation] = None
        if metadata:
            self._plan(metadata)
        operations: Iterable[Operation] = due
        while admitted := self._admit(operations):
            self._plan(admitted)
            served = dict.fromkeys([request.operation for request in admitted])
            operations = [operation for operation in served if operation.budget.has_waiting]
        for operation in due:
            operation.note_held()
        if self._to_look_up:
            self._look_up()
        self._dispatch()

    def _admit(self, operations: Iterable[Operation]) -> list[Request]:
        """The requests that the budgets of some operations admit now."""
        admitted: list[Request] = []
        for operation in operations:
            tickets = operation.budget.admit(charge_apart if self._takes_plans else Charges())
            if tickets:
                operation.note_held()
                admitted += [ticket.item for ticket in tickets]
        return admitted

    def _plan(self, requests: list[Request]) -> None:
        """Plan the reads of admitted requests; from now on they pay for these instead of their upper bounds."""
        now_s = self.loop.time()
        groups: dict[object, list[Request]] = {}
        for request in requests:
            groups.setdefault(request.group, []).append(request)
        for group_requests in groups.values():
            try:
                reads = (plan_jobs if self._takes_plans else plan_ranges)(group_requests)
            except BaseException as error:  # of any class: the waiters must get it
                for request in group_requests:
                    self.fail(request, error)
                continue
            paid = dict.fromkeys(group_requests, 0)
            # A store that finds ranges takes no plans: all its reads are ranges.
            fresh: list[Any] = self._to_look_up if self._may_be_cached(group_requests[0]) else self._fresh
            for read in reads:
                if type(read) is RangeRead:
                    same = self._under_way.setdefault(read.key_range, read)
                    if same is not read and same.is_ahead_of(read):
                        same.join(read)
                        continue
                paid[read.payer] += read.num_bytes
                read.queued_s = now_s
                fresh.append(read)
            for request, num_bytes in paid.items():
                if request.ticket is not None:
                    request.operation.budget.resize(request.ticket, num_bytes)

    # -- a disk cache -------------------------------------------------------------------------------------------

    def _may_be_cached(self, request: Request) -> bool:
        if not self._finds_ranges:
            return False
        store: FindsRanges = self.store  # type: ignore[assignment]  # checked before
        return store.may_be_cached(request.key, request.operation.flow)

    def _look_up(self) -> None:
        """Look up reads in the disk cache, all at once; this needs no slots."""
        store: FindsRanges = self.store  # type: ignore[assignment]  # checked before
        reads, self._to_look_up = [read for read in self._to_look_up if read.holders], []
        wanted = [read.wanted() for read in reads]
        store.find_ranges(wanted).add_done_callback(partial(self._on_lookup, wanted))

    def _on_lookup(self, wanted: Sequence[WantedRange], future: Future[list[memoryview | None]]) -> None:
        """Called in a thread of the cache."""
        with suppress(RuntimeError):  # a closed loop
            self.loop.call_soon_threadsafe(self._deliver_lookup, wanted, future)

    def _deliver_lookup(self, wanted: Sequence[WantedRange], future: Future[list[memoryview | None]]) -> None:
        """Send the misses to the store first, then deliver the hits."""
        now_s = self.loop.time()
        hits: list[tuple[RangeRead, memoryview | None]] = []
        error = future.exception()
        for request, data in zip(wanted, [None] * len(wanted) if error else future.result(), strict=True):
            read: RangeRead = request.tag
            if not read.holders:
                continue
            if error is not None:
                self._forget(read)
                self._fail_all(read, error)
            elif data is None:
                read.queued_s = now_s
                self._fresh.append(read)
            else:
                hits.append((read, None if data is request.memory else data))
        self._dispatch()
        counted = []
        for read, data in hits:
            self._forget(read)
            read.state = "ended"
            if read.holders:  # they may have left since, if another read has failed
                counted.append((read.sinks, self._deliver(read, data)))
        io_stats.count_cached(counted)

    # -- reads -------------------------------------------------------------------------------------------------

    def _enqueue(self, read: Read) -> None:
        self._num_queued += 1
        operation = read.payer.operation
        operation.last_turn = turn = max(self._last_turn, operation.last_turn) + 1
        heapq.heappush(self._queue, (read.priority, turn, self._num_queued, read))

    def _dispatch(self) -> None:
        """Send reads while there are slots; metadata ignores the operation's own limit."""
        fresh, self._fresh = [read for read in self._fresh if read.holders], []
        if fresh and self._all_may_go(fresh):
            fresh.sort(key=attrgetter("priority"))
            self._start(fresh)
            return
        for read in fresh:
            self._enqueue(read)
        going: list[Read] = []
        while self._queue:
            _, turn, _, read = self._queue[0]
            if not read.holders:
                heapq.heappop(self._queue)
                continue
            if len(self.in_flight) + len(going) >= self.growth.limit and not read.is_urgent:
                break
            if not self._take_slot():
                break
            heapq.heappop(self._queue)
            self._last_turn = max(self._last_turn, turn)
            going.append(read)
        if going:
            self._start(going)

    def _all_may_go(self, fresh: list[Read]) -> bool:
        """Take slots for all these reads if none has to queue; whether they were taken."""
        if self._queue or self._in_line or self._granted or len(self.in_flight) + len(fresh) > self.growth.limit:
            return False
        return self._slots.acquire_all(len(fresh))

    def _take_slot(self) -> bool:
        if self._granted:
            self._granted -= 1
            return True
        if self._in_line:
            return False
        self._in_line = not self._slots.acquire(self)
        return not self._in_line

    def slot_granted(self) -> bool:
        """See `slots.Taker`: the dispatcher gets a slot that it waited for; called from any thread."""
        try:
            self.loop.call_soon_threadsafe(self._use_grant)
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

    def _start(self, reads: list[Read]) -> None:
        """Send reads; each has its slot."""
        now_s = self.loop.time()
        for read in reads:
            read.state = "in flight"
            read.queue_s = now_s - read.queued_s
        self.in_flight.update(reads)
        io_stats.begin_reads([read.sinks for read in reads])
        ranges = []
        for read in reads:
            if self._starts_reads and type(read) is RangeRead:
                ranges.append(read)
            else:
                self._start_task(read)
        if ranges:
            self._start_ranges(ranges)

    def _start_ranges(self, reads: list[RangeRead]) -> None:
        store: StartReads = self.store  # type: ignore[assignment]  # checked before
        try:
            started = store.start_ranges([read.wanted() for read in reads], self._ranges_ended, self._count_retry)
        except Exception as error:  # of any class: the waiters must get it
            for read in reads:
                self.loop.call_soon(self._ended, read, None, error)
            return
        for read, handle in zip(reads, started, strict=True):
            read.started = handle

    def _start_task(self, read: Read) -> None:
        context = copy_context()
        context.run(on_retry.set, partial(self._count_retry, read))
        context.run(on_cached.set, read.note_cached)
        context.run(flow.set, read.payer.operation.flow)
        read.task = self.loop.create_task(read.fetch(self.store), context=context)
        read.task.add_done_callback(partial(self._task_ended, read))

    def _count_retry(self, read: Read, late: bool) -> None:
        """Count the retry of a read (`store.counters.on_retry`)."""
        io_stats.count_retry(read.sinks)
        if not late:
            self.growth.failed()

    def _forget(self, read: Read) -> None:
        """Let no further requests join a read."""
        if type(read) is RangeRead and self._under_way.get(read.key_range) is read:
            del self._under_way[read.key_range]

    def _give_up(self, read: Read) -> None:
        """Cancel a read in flight; it ends in a later turn of the loop."""
        self._forget(read)
        read.state = "given up"
        read.payer.operation.ending.add(read)
        if read.task is not None:
            read.task.cancel()
        elif read.started is not None:
            read.started.cancel()
            with suppress(RuntimeError):  # a closed loop
                self.loop.call_soon(self._ended, read, None, asyncio.CancelledError())

    def _task_ended(self, read: Read, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self._ended(read, None, asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self._ended(read, None, error)
        else:
            self._ended(read, task.result(), None)

    def _ranges_ended(self, ended: Sequence[StartedRead]) -> None:
        ends: list[tuple[Read, Any, BaseException | None]] = []
        for started in ended:
            read: RangeRead = started.tag
            read.queue_s += started.queue_s
            try:
                ends.append((read, started.result(), None))
            except BaseException as error:
                ends.append((read, None, error))
        self._all_ended(ends)

    def _ended(self, read: Read, result: Any, error: BaseException | None) -> None:
        self._all_ended([(read, result, error)])

    def _all_ended(self, ends: Sequence[tuple[Read, Any, BaseException | None]]) -> None:
        """Process ended reads, each with its result or an error."""
        held_back = bool(self._queue) and len(self.in_flight) >= self.growth.limit
        given_up = []
        for read, _, _ in ends:
            self._forget(read)
            self.growth.ended(held_back=held_back)
            self.in_flight.discard(read)
            if read.state == "given up":
                given_up.append(read)
            # A holder that leaves from now on, because another read fails, need not wait for this one.
            read.state, read.task, read.started = "ended", None, None
        self._slots.release(len(ends))
        counted = []
        for read, result, error in ends:
            num_bytes = 0
            if not read.holders:
                pass
            elif isinstance(error, asyncio.CancelledError):
                self._fail_all(read, RuntimeError("the read was cancelled: its event loop is shutting down"))
            elif error is not None:
                self._fail_all(read, error)
            else:
                num_bytes = self._deliver(read, result)
            counted.append((read.sinks, num_bytes, read.queue_s, read.is_cached))
        for read in given_up:
            self._ended_unwanted(read)
        self._dispatch()  # first: reads that start now belong to the same round
        io_stats.end_reads(counted)

    def _deliver(self, read: Read, result: Any) -> int:
        planned_bytes = read.num_bytes
        try:
            complete = read.deliver(result)
        except BaseException as error:  # wrong data: the waiters must get the error
            self._fail_all(read, error)
            return 0
        payer = read.payer
        if payer.ticket is not None and read.num_bytes != planned_bytes:
            payer.operation.budget.resize(payer.ticket, payer.ticket.num_bytes + read.num_bytes - planned_bytes)
            self.admit_soon(payer.operation)
        for request in complete:
            request.end()
        return read.num_bytes

    def _fail_all(self, read: Read, error: BaseException) -> None:
        for request in list(read.holders):
            self.fail(request, error)

    def _ended_unwanted(self, read: Read) -> None:
        """Return the bytes of a cancelled read, which has ended only now."""
        payer = read.payer
        payer.operation.ending.discard(read)
        payer.lingering -= 1
        if payer.ticket is None:
            return
        operation = payer.operation
        if payer.lingering:
            operation.budget.resize(payer.ticket, payer.ticket.num_bytes - read.num_bytes)
        else:
            operation.budget.release(payer.ticket)
        operation.note_held()
        self.admit_soon(operation)


def _hand_over(read: Read, payer: Request) -> None:
    """Charge the bytes of a shared read to another holder."""
    before, read.payer = read.payer, payer
    if before.ticket is not None and payer.ticket is not None:
        before.operation.budget.resize(before.ticket, before.ticket.num_bytes - read.num_bytes)
        payer.operation.budget.resize(payer.ticket, payer.ticket.num_bytes + read.num_bytes)


_of_takes: weakref.WeakValueDictionary[tuple[int, int, int], Dispatcher] = weakref.WeakValueDictionary()


def dispatcher_of_takes(store: ObjectReads, shared: object, make: Callable[[], Dispatcher]) -> Dispatcher:
    """The dispatcher of all takes on a store and the running loop; exists as long as such a take.

    shared  the scheduler of the session; each has its own dispatcher
    make    called for the first take
    """
    # The dispatcher keeps the three objects alive, so that their ids stay unique.
    ids = id(asyncio.get_running_loop()), id(store), id(shared)
    dispatcher = _of_takes.get(ids)
    if dispatcher is None:
        dispatcher = _of_takes[ids] = make()
    return dispatcher
