"""Bounds the concurrent requests of this process to one store.

A scheduler that finds no free slot joins a queue and gets the next one. It joins the queue once for all its waiting
reads, so that operations on one bucket alternate. All scans together have half of the slots. Each priority of a session
has its own queue; smaller priorities go first.
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
    """Waits in a queue for a slot."""

    def slot_granted(self) -> bool:
        """Called from any thread: the taker now owns a slot and returns it with `Slots.release`.

        False if the taker no longer needs it.
        """


class SlotSource(Protocol):
    """Provides slots, one for each request."""

    def acquire(self, taker: Taker) -> bool:
        """Take a slot; whether one was free. If not, `taker` joins the queue. It must not be in the queue already."""

    def acquire_all(self, num_slots: int) -> bool:
        """Take `num_slots` slots if all are free and no taker waits, else none; whether they were taken."""

    def release(self, num_slots: int = 1) -> None:
        """Return slots."""


class Slots:
    """A counting semaphore for requests in flight, with a queue of waiting takers; thread-safe.

    limit  maximum number of requests in flight
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._in_use = 0
        self._queue: list[tuple[int, int, Taker]] = []  # a heap: priority, arrival number
        self._arrivals = count()
        self._lock = threading.Lock()

    @property
    def in_use(self) -> int:
        """Requests in flight now."""
        return self._in_use

    def acquire(self, taker: Taker, priority: int = 0) -> bool:
        """See `SlotSource`.

        priority  smaller numbers go first
        """
        with self._lock:
            if self._in_use < self._limit and not self._queue:
                self._in_use += 1
                return True
            heapq.heappush(self._queue, (priority, next(self._arrivals), taker))
            return False

    def acquire_all(self, num_slots: int) -> bool:
        """See `SlotSource`."""
        with self._lock:
            if self._queue or self._in_use + num_slots > self._limit:
                return False
            self._in_use += num_slots
            return True

    def release(self, num_slots: int = 1) -> None:
        """Return slots: pass them on to the first takers in the queue, and free the rest."""
        while num_slots:
            with self._lock:
                if not self._queue:
                    self._in_use -= num_slots
                    return
                _, _, taker = heapq.heappop(self._queue)
            if taker.slot_granted():
                num_slots -= 1


class SlotChain:
    """Several slots per request, taken in order, the most shared last: a taker that waits for the first holds no other.

    priority  priority in each of the queues
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
        """Take the remaining slots; False if it waits in a queue for one."""
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
            if number != granted:  # the caller passes the granted slot on
                link.release()
        return False


_all_slots: weakref.WeakValueDictionary[str, Slots] = weakref.WeakValueDictionary()
_scan_slots: weakref.WeakValueDictionary[str, Slots] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def slots_of(store: ObjectReads) -> Slots:
    """The slots of a store's identity. The first call sets their limit, by the store's profile."""
    with _lock:
        slots = _all_slots.get(store.identity)
        if slots is None:
            slots = _all_slots[store.identity] = Slots(store.profile.requests_max)
        return slots


def scan_slots_of(store: ObjectReads) -> Slots:
    """The slots for all scans of a store: half of its slots, so that takes find free ones."""
    with _lock:
        slots = _scan_slots.get(store.identity)
        if slots is None:
            slots = _scan_slots[store.identity] = Slots(scan_requests_max(store.profile))
        return slots


def scan_requests_max(profile: StoreProfile) -> int:
    """Maximum number of requests that scans have in flight."""
    return max(1, profile.requests_max // 2)


def _after_fork() -> None:
    global _all_slots, _scan_slots, _lock
    _all_slots = weakref.WeakValueDictionary()
    _scan_slots = weakref.WeakValueDictionary()
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class Growth:
    """The limit of concurrent reads of one operation: constant for a take, growing for a scan (slow start).

    A scan starts with a limit that fills a usual network. The limit doubles with each round trip in which it held reads
    back: each read that ends makes room for two. After the first retry of a failed or refused read it grows by one per
    round trip instead. Pure: no clock, no loop.

    start    initial limit
    maximum  upper bound of the limit
    """

    def __init__(self, start: int, maximum: int) -> None:
        self.limit = max(1, min(start, maximum))
        self._maximum = maximum
        self._doubles = True
        self._num_ended = 0  # since the limit was raised by one

    def ended(self, *, held_back: bool) -> None:
        """Record the end of a read.

        held_back  whether other reads wait only because of the limit
        """
        if not held_back or self.limit >= self._maximum:
            return
        self._num_ended += 1
        if self._doubles or self._num_ended >= self.limit:
            self.limit += 1
            self._num_ended = 0

    def failed(self) -> None:
        """Record the retry of a read that failed; not of one that was only late."""
        self._doubles = False
