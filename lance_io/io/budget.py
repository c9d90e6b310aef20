"""Bounds prefetching: admits requests ahead of their consumer. Pure: no clock, no thread of its own, no await.

Tickets wait in a heap, most urgent first. A ticket is admitted if

    1. it is the head of the heap and fits into the rest of the budget,
    2. or nothing is admitted at all (a ticket may be larger than the whole budget),
    3. or a consumer waits for it (`demand`): at any position in the heap, even over budget.

Rule 3 excludes deadlocks: a consumer blocks only on a ticket that it demands, that ticket is admitted, and admitted
tickets depend on the store alone. It also keeps the bound: everything admitted over budget has a consumer that takes
it at once, so at most `budget + (consumers + 1) x largest request` is held. The common alternative, to admit tickets
that are merely *more urgent* than the held ones, deadlocks as soon as the consumer's order differs.

After the head did not fit, only demanded tickets are admitted until `refill_bytes` are free again: requests that are
admitted together can share reads, requests that are admitted one by one cannot.
"""

from __future__ import annotations

import heapq
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from lance_io.limits import IO_BUFFER_PROCESS_BYTES
from lance_io.runtime import memory_limit_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

Priority: TypeAlias = tuple[int, ...]


class Ticket:
    """One request in a budget.

    priority   smaller is more urgent; ties are in order of submission
    num_bytes  upper bound of its bytes; exact once the reads are planned
    item       any object of the budget's owner
    """

    __slots__ = ("demanded", "item", "num_bytes", "priority", "state")

    def __init__(self, priority: Priority, num_bytes: int = 0, item: Any = None) -> None:
        self.priority = priority
        self.num_bytes = num_bytes
        self.item = item
        self.demanded = False
        self.state: Literal["new", "waiting", "admitted", "released"] = "new"


class Pool:
    """A bound on bytes that several budgets share; thread-safe.

    capacity_bytes  the bound; demanded and single requests may exceed it, as in a `Budget`
    within          returns the parent pool; None for none
    """

    def __init__(self, capacity_bytes: int, within: Callable[[], Pool] | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self._within = within
        self._lock = threading.Lock()
        self._avail_bytes = capacity_bytes
        self._blocked: weakref.WeakSet[Budget] = weakref.WeakSet()
        self._has_waiters = False

    @property
    def avail_bytes(self) -> int:
        """Bytes that are free; negative if over the bound."""
        return self._avail_bytes if self._within is None else min(self._avail_bytes, self._within().avail_bytes)

    def charge(self, delta_bytes: int) -> None:
        """Take bytes, or return them if negative. A return notifies the budgets that wait for room."""
        if self._within is not None:
            self._within().charge(delta_bytes)
        with self._lock:
            self._avail_bytes -= delta_bytes
            if delta_bytes >= 0 or not self._has_waiters:
                return
            blocked = list(self._blocked)
            self._blocked.clear()
            self._has_waiters = False
        for budget in blocked:
            budget.on_room()

    def wait_for_room(self, budget: Budget) -> None:
        """Arrange one call of `budget.on_room()` when bytes are returned. Does not block."""
        if self._within is not None:
            self._within().wait_for_room(budget)
        with self._lock:
            self._blocked.add(budget)
            self._has_waiters = True


class Budget:
    """Bounds the bytes that one scan has in flight, or fetched and not yet consumed.

    capacity_bytes  the bound; 0 admits everything at once
    refill_bytes    after the bound was hit, prefetching resumes when this much is free (at most half the capacity)
    pool            a bound shared with other budgets, None for none
    on_room         called, from any thread, when the pool may have room for waiting tickets; then call `admit` again
    """

    def __init__(
        self,
        capacity_bytes: int,
        *,
        refill_bytes: int = 0,
        pool: Pool | None = None,
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.refill_bytes = min(refill_bytes, capacity_bytes // 2)
        self.on_room = on_room
        self.held_bytes = 0
        self._pool = pool
        self._num_admitted = 0
        self._is_filling = True
        self._waiting: list[tuple[Priority, int, Ticket]] = []
        self._num_submitted = 0
        self._demanded: list[Ticket] = []

    def submit(self, ticket: Ticket) -> None:
        """Add a ticket that waits for `admit`."""
        ticket.state = "waiting"
        self._num_submitted += 1
        heapq.heappush(self._waiting, (ticket.priority, self._num_submitted, ticket))
        if ticket.demanded:
            self._demanded.append(ticket)

    def demand(self, ticket: Ticket) -> bool:
        """Mark a ticket as needed now. True if it was waiting here, so that the next `admit` returns it."""
        ticket.demanded = True
        if ticket.state != "waiting":
            return False
        self._demanded.append(ticket)
        return True

    def admit(self, charge: Callable[[Any], int] | None = None) -> list[Ticket]:
        """Tickets that are admitted now, most urgent first; their bytes are held from here on.

        charge  returns an upper bound of the bytes that a ticket's item adds to those of earlier tickets. Called in
                the order of admission; the last call may be for a ticket that has to wait. None: use `num_bytes`
        """
        admitted = []
        for ticket in self._demanded:
            if ticket.state == "waiting":
                self._admit(_charge_ticket(ticket, charge))
                admitted.append(ticket)
        self._demanded.clear()
        while (head := self._head()) is not None and self._has_room(_charge_ticket(head, charge).num_bytes):
            heapq.heappop(self._waiting)
            self._admit(head)
            admitted.append(head)
        admitted.sort(key=lambda ticket: ticket.priority)
        return admitted

    def resize(self, ticket: Ticket, num_bytes: int) -> None:
        """Set the bytes that an admitted ticket holds."""
        if ticket.state == "admitted":
            self._charge(num_bytes - ticket.num_bytes)
            ticket.num_bytes = num_bytes

    @property
    def has_waiting(self) -> bool:
        """Whether `admit` may return tickets, now or after a release."""
        return bool(self._waiting)

    def release(self, ticket: Ticket) -> None:
        """Return the bytes of a ticket that was consumed or is no longer needed. Idempotent."""
        if ticket.state == "admitted":
            self._num_admitted -= 1
            self._charge(-ticket.num_bytes)
        ticket.state = "released"  # if it waits in the heap, it is skipped there
        ticket.item = None  # the item refers to the ticket: break the cycle

    def _head(self) -> Ticket | None:
        while self._waiting:
            ticket = self._waiting[0][2]
            if ticket.state == "waiting":
                return ticket
            heapq.heappop(self._waiting)
        self._is_filling = True
        return None

    def _has_room(self, num_bytes: int) -> bool:
        if self.capacity_bytes == 0 or self._num_admitted == 0:
            return True
        free_bytes = self.capacity_bytes - self.held_bytes
        if not self._is_filling and free_bytes < self.refill_bytes:
            return False
        self._is_filling = num_bytes <= free_bytes
        if self._is_filling and self._pool is not None and num_bytes > self._pool.avail_bytes:
            self._pool.wait_for_room(self)
            return num_bytes <= self._pool.avail_bytes  # room may have appeared in between
        return self._is_filling

    def _admit(self, ticket: Ticket) -> None:
        ticket.state = "admitted"
        self._num_admitted += 1
        self._charge(ticket.num_bytes)

    def _charge(self, delta_bytes: int) -> None:
        self.held_bytes += delta_bytes
        if self._pool is not None and delta_bytes:
            self._pool.charge(delta_bytes)


def _charge_ticket(ticket: Ticket, charge: Callable[[Any], int] | None) -> Ticket:
    if charge is not None:
        ticket.num_bytes = charge(ticket.item)
    return ticket


def process_bytes(memory_bytes: int | None) -> int:
    """Bound on the bytes of all scans of a process with this much memory: at most a quarter of it."""
    return IO_BUFFER_PROCESS_BYTES if memory_bytes is None else min(IO_BUFFER_PROCESS_BYTES, memory_bytes // 4)


class _Process:
    """The pool that the scans of this process share."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool


process: Final = _Process(Pool(process_bytes(memory_limit_bytes())))


def share_process_pool(memory_bytes: int) -> None:
    """Set the bound of this process, given the memory that it may use. Call it only while scans hold nothing."""
    process.pool = Pool(process_bytes(memory_bytes))


def process_pool() -> Pool:
    """The pool that all scans of this process share."""
    return process.pool


def _after_fork() -> None:
    """In a forked child: start with an empty pool, since the parent's scans hold nothing here."""
    process.pool = Pool(process.pool.capacity_bytes)


os.register_at_fork(after_in_child=_after_fork)
