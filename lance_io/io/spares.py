"""Memory for large answers, used again as soon as nobody holds it: fresh memory costs a page fault for each 4 KiB.

The C library gives most of what was freed back to the system, and a take of 40 MB spent half of its processor time on
getting it again. What is in use is known from the references to it: those of decoded rows that lie in it count, too.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np

from lance_io.limits import KIB, MIB

if TYPE_CHECKING:
    from numpy.typing import NDArray

SPARE_BYTES_MIN: Final = 64 * KIB  # less comes from memory that the C library keeps
SPARES_BYTES: Final = 64 * MIB
IDLE_S: Final = 1.0  # memory that nobody has asked for meanwhile is not kept from a scan
_LOOKS_MAX: Final = 4  # what was given first is free first
_alone: Final = deque([object()])
_UNUSED: Final = sys.getrefcount(_alone[0])  # of what is referred to by its queue only, and by the question


class Spares:
    """Keeps some memory; thread-safe.

    capacity_bytes  how much at most, in use or not
    """

    def __init__(self, capacity_bytes: int = SPARES_BYTES) -> None:
        self._capacity_bytes = capacity_bytes
        self._num_bytes = 0
        self._asked_s = 0.0
        self._by_size: dict[int, deque[NDArray[np.uint8]]] = {}
        self._lock = threading.Lock()

    @property
    def num_bytes(self) -> int:
        """What is kept, in use or not."""
        return self._num_bytes

    def of(self, num_bytes: int) -> NDArray[np.uint8]:
        """Writable memory of that length, with anything in it."""
        if not SPARE_BYTES_MIN <= num_bytes <= self._capacity_bytes:
            return np.empty(num_bytes, dtype=np.uint8)
        size_bytes = _round_up(num_bytes)
        with self._lock:
            self._asked_s = time.monotonic()
            kept = self._by_size.setdefault(size_bytes, deque())
            for _ in range(min(_LOOKS_MAX, len(kept))):
                kept.rotate(-1)
                if sys.getrefcount(kept[-1]) == _UNUSED:
                    return kept[-1][:num_bytes]
            block = np.empty(size_bytes, dtype=np.uint8)
            if self._make_room(size_bytes):
                kept.append(block)
                self._num_bytes += size_bytes
            return block[:num_bytes]

    def trim(self) -> None:
        """Let go of what is unused, unless memory was asked for a moment ago: for whoever needs much memory now."""
        with self._lock:
            if time.monotonic() - self._asked_s < IDLE_S:
                return
            for size_bytes, kept in self._by_size.items():
                used = [block for block in kept if sys.getrefcount(block) > _UNUSED + 1]  # the loop refers to it, too
                self._num_bytes -= size_bytes * (len(kept) - len(used))
                kept.clear()
                kept.extend(used)

    def _make_room(self, size_bytes: int) -> bool:
        """Let go of what is unused and of other sizes."""
        for other, kept in self._by_size.items():
            while kept and other != size_bytes and self._num_bytes + size_bytes > self._capacity_bytes:
                if sys.getrefcount(kept[0]) != _UNUSED:
                    break
                kept.popleft()
                self._num_bytes -= other
        return self._num_bytes + size_bytes <= self._capacity_bytes


def _round_up(num_bytes: int) -> int:
    """A size that others have, too: at most a quarter more."""
    step = 1 << max(0, num_bytes.bit_length() - 3)
    return -(-num_bytes // step) * step


_spares = Spares()


def spares() -> Spares:
    """Those of this process."""
    return _spares


def _after_fork() -> None:
    """In a forked child: the lock may be held by a thread of the parent's."""
    global _spares
    _spares = Spares()


os.register_at_fork(after_in_child=_after_fork)
