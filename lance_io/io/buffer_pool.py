"""A pool of large result buffers. Buffers that nothing refers to are reused: fresh memory costs a page fault per 4 KiB.

The C library returns most freed memory to the system; a take of 40 MB spent half of its processor time on getting it
back. Reference counts show which buffers are in use. Decoded rows that lie in a buffer refer to it, so it stays in use.
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

POOLED_BYTES_MIN: Final = 64 * KIB  # the C library keeps the memory of smaller blocks
POOL_BYTES: Final = 64 * MIB
IDLE_S: Final = 1.0  # `trim` frees the unused blocks of a pool that was idle for this time
_PROBES_MAX: Final = 4  # blocks to look at, oldest first: the oldest usually becomes free first
_sample_queue: Final = deque([object()])
_UNUSED: Final = sys.getrefcount(_sample_queue[0])  # count of an object that only its queue and the call refer to


class BufferPool:
    """Keeps blocks of memory for reuse; thread-safe.

    capacity_bytes  upper bound of the kept memory, in use or not
    """

    def __init__(self, capacity_bytes: int = POOL_BYTES) -> None:
        self._capacity_bytes = capacity_bytes
        self._num_bytes = 0
        self._used_at_s = 0.0
        self._by_size: dict[int, deque[NDArray[np.uint8]]] = {}
        self._lock = threading.Lock()

    @property
    def num_bytes(self) -> int:
        """Size of the kept memory, in use or not."""
        return self._num_bytes

    def allocate(self, num_bytes: int) -> NDArray[np.uint8]:
        """Writable memory of that length, not initialised."""
        if not POOLED_BYTES_MIN <= num_bytes <= self._capacity_bytes:
            return np.empty(num_bytes, dtype=np.uint8)
        size_bytes = _round_up(num_bytes)
        with self._lock:
            self._used_at_s = time.monotonic()
            kept = self._by_size.setdefault(size_bytes, deque())
            for _ in range(min(_PROBES_MAX, len(kept))):
                kept.rotate(-1)
                if sys.getrefcount(kept[-1]) == _UNUSED:
                    return kept[-1][:num_bytes]
            block = np.empty(size_bytes, dtype=np.uint8)
            if self._make_room(size_bytes):
                kept.append(block)
                self._num_bytes += size_bytes
            return block[:num_bytes]

    def trim(self) -> None:
        """Free unused blocks, unless the pool was used a moment ago. Called before work that needs much memory."""
        with self._lock:
            if time.monotonic() - self._used_at_s < IDLE_S:
                return
            for size_bytes, kept in self._by_size.items():
                used = [block for block in kept if sys.getrefcount(block) > _UNUSED + 1]  # the loop refers to it, too
                self._num_bytes -= size_bytes * (len(kept) - len(used))
                kept.clear()
                kept.extend(used)

    def _make_room(self, size_bytes: int) -> bool:
        """Free unused blocks of other sizes; whether that makes enough room."""
        for other, kept in self._by_size.items():
            while kept and other != size_bytes and self._num_bytes + size_bytes > self._capacity_bytes:
                if sys.getrefcount(kept[0]) != _UNUSED:
                    break
                kept.popleft()
                self._num_bytes -= other
        return self._num_bytes + size_bytes <= self._capacity_bytes


def _round_up(num_bytes: int) -> int:
    """The size class of a request: at most a quarter larger."""
    step = 1 << max(0, num_bytes.bit_length() - 3)
    return -(-num_bytes // step) * step


_pool = BufferPool()


def buffer_pool() -> BufferPool:
    """The pool of this process."""
    return _pool


def _after_fork() -> None:
    """In a forked child: a thread of the parent may hold the lock."""
    global _pool
    _pool = BufferPool()


os.register_at_fork(after_in_child=_after_fork)
