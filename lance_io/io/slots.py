"""How many requests one store gets at once from this whole process, whoever sends them.

A scheduler that finds no slot free stands in line and is given the next one; it stands there once, however many
reads it has waiting, so several operations on one bucket take turns. All scans together have half of the slots. Where
sessions have priorities, theirs are lines of their own, one before the other.
"""

from __future__ import annotations

import heapq
import os
import threading
import weakref
from itertools import count
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from lance_io.store.api import ObjectReads
    from lance_io.store.profile import StoreProfile


class Taker(Protocol):
    """What stands in line for a slot."""

    def slot_granted(self) -> bool:
        """Called from any thread: the caller owns one slot now and gives it back with `Slots.release`.

        False when it cannot take it any more.
        """


class SlotSource(Protocol):
    """Where a scheduler gets its slots, one for each request."""

    def acquire(self, taker: Taker) -> bool:
        """Take a slot. If none is free, `taker` gets in line, where it must not stand yet, and False is returned."""

    def acquire_all(self, num_slots: int) -> bool:
        """Take so many slots, if they are free and nobody stands in line for one; otherwise none."""

    def release(self, num_slots: int = 1) -> None:
        """Give slots back."""


class Slots:
    """A counter of requests in flight with a line of those who wait; thread-safe.

    limit  most requests in flight at once
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._in_use = 0
        self._line: list[tuple[int, int, Taker]] = []  # a heap: priority, order of coming
        self._coming = count()
        self._lock = threading.Lock()

    @property
    def in_use(self) -> int:
        """Requests in flight now."""
        return self._in_use

    def acquire(self, taker: Taker, priority: int = 0) -> bool:
        """Take a slot. If none is free, `taker` gets in line, where it must not stand yet, and False is returned.

        priority  its line; smaller numbers go first
        """
        with self._lock:
            if self._in_use < self._limit and not self._line:
                self._in_use += 1
                return True
            heapq.heappush(self._line, (priority, next(self._coming), taker))
            return False

    def acquire_all(self, num_slots: int) -> bool:
        """See `SlotSource`."""
        with self._lock:
            if self._line or self._in_use + num_slots > self._limit:
                return False
            self._in_use += num_slots
            return True

    def release(self, num_slots: int = 1) -> None:
        """Give slots back: to the first in line, who keep them in use, or else to everybody."""
        while num_slots:
            with self._lock:
                if not self._line:
                    self._in_use -= num_slots
                    return
                _, _, taker = heapq.heappop(self._line)
            if taker.slot_granted():
                num_slots -= 1


class SlotChain:
    """Slots that are taken one after the other, those that most share last: who waits for the first holds no other.

    priority  its line in each of them
    """

    def __init__(self, *links: Slots, priority: int = 0) -> None:
        self.links = links
        self.priority = priority

    def acquire(self, taker: Taker) -> bool:
        """See `SlotSource`."""
        return _Waiting(self, taker).go_on()

    def acquire_all(self, num_slots: int) -> bool:
        """See `SlotSource`."""
        for number, link in enumerate(self.links):
            if not link.acquire_all(num_slots):
                for taken in reversed(self.links[:number]):
                    taken.release(num_slots)
                return False
        return True

    def release(self, num_slots: int = 1) -> None:
        """See `SlotSource`."""
        for link in reversed(self.links):
            link.release(num_slots)


class _Waiting:
    """A taker on its way through a chain."""

    def __init__(self, chain: SlotChain, taker: Taker) -> None:
        self._chain = chain
        self._taker = taker
        self._num_taken = 0

    def go_on(self) -> bool:
        """Take the next slots; False when it stands in line for one."""
        links = self._chain.links
        while self._num_taken < len(links):
            if not links[self._num_taken].acquire(self, self._chain.priority):
                return False
            self._num_taken += 1
        return True

    def slot_granted(self) -> bool:
        """See `Taker`."""
        granted = self._num_taken
        self._num_taken += 1
        if not self.go_on() or self._taker.slot_granted():
            return True
        for number, link in enumerate(self._chain.links):
            if number != granted:  # that one its owner passes on
                link.release()
        return False


_all_slots: weakref.WeakValueDictionary[str, Slots] = weakref.WeakValueDictionary()
_scan_slots: weakref.WeakValueDictionary[str, Slots] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def slots_of(store: ObjectReads) -> Slots:
    """The slots of a store's identity, with the limit of its profile when they are first asked for."""
    with _lock:
        slots = _all_slots.get(store.identity)
        if slots is None:
            slots = _all_slots[store.identity] = Slots(store.profile.requests_max)
        return slots


def scan_slots_of(store: ObjectReads) -> Slots:
    """What all scans of a store have together: half of its slots, so that a take finds some free."""
    with _lock:
        slots = _scan_slots.get(store.identity)
        if slots is None:
            slots = _scan_slots[store.identity] = Slots(scan_requests_max(store.profile))
        return slots


def scan_requests_max(profile: StoreProfile) -> int:
    """Requests that scans have in flight at most."""
    return max(1, profile.requests_max // 2)


def _after_fork() -> None:
    global _all_slots, _scan_slots, _lock
    _all_slots = weakref.WeakValueDictionary()
    _scan_slots = weakref.WeakValueDictionary()
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class Growth:
    """How many reads one operation has in flight: a take all it needs, a scan more and more while more are wanted.

    A scan starts with what fills a usual network and doubles for each round trip in which the limit held reads back:
    each read that ends then makes room for two. Once a read had to be made again, because it failed or was refused, one
    more for each round trip is added instead. Pure: no clock, no loop.

    start    reads in flight at first
    maximum  and at most
    """

    def __init__(self, start: int, maximum: int) -> None:
        self.limit = max(1, min(start, maximum))
        self._maximum = maximum
        self._doubles = True
        self._num_ended = 0  # since the limit was raised by one

    def ended(self, *, held_back: bool) -> None:
        """A read is over.

        held_back  others wait for nothing but the limit
        """
        if not held_back or self.limit >= self._maximum:
            return
        self._num_ended += 1
        if self._doubles or self._num_ended >= self.limit:
            self.limit += 1
            self._num_ended = 0

    def failed(self) -> None:
        """A read is made again, and not because it was late only."""
        self._doubles = False
