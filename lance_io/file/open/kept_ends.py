"""Ends of files that a scan reads to open them, kept for the columns that it reads later.

The first read of a file brings its end: metadata, page indexes, and mostly rows of its last columns. A scan of a
filter's columns opens the files; the other columns of rows that pass are read after that, by reads of their own. On a
store with latency these take their bytes from here, as far as they are here.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from lance_io.file.file_steps import Tail
from lance_io.limits import MIB

if TYPE_CHECKING:
    from lance_io.io.budget import Pool

KEPT_BYTES_MAX: Final = 16 * MIB  # of one scan; the oldest go first


class KeptEnds:
    """The ends of files of one scan; thread-safe.

    pool          the memory budget that counts their bytes, until `close`
    served_bytes  that later reads took from here instead of the store
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._tails: OrderedDict[str, Tail] = OrderedDict()
        self._num_bytes = 0
        self._is_closed = False
        self.served_bytes = 0

    def kept(self, key: str, tail: Tail | None) -> Tail | None:
        """The end of a file, and keep it if opening has just read it.

        tail  from `open_cached`
        """
        if tail is None:
            return self.find(key)
        self._keep(key, tail)
        return tail

    def _keep(self, key: str, tail: Tail) -> None:
        num_bytes = memoryview(tail.buffer).nbytes
        with self._lock:
            if self._is_closed or key in self._tails or num_bytes > KEPT_BYTES_MAX:
                return
            before = self._num_bytes
            self._tails[key] = Tail(tail.start, tail.buffer, self._record)
            self._num_bytes += num_bytes
            while self._num_bytes > KEPT_BYTES_MAX:
                _, oldest = self._tails.popitem(last=False)
                self._num_bytes -= memoryview(oldest.buffer).nbytes
            added_bytes = self._num_bytes - before
        self._pool.charge(added_bytes)

    def find(self, key: str) -> Tail | None:
        """The end of a file, if it is kept."""
        return self._tails.get(key)

    def close(self) -> None:
        """Drop all of them."""
        with self._lock:
            self._is_closed = True
            self._tails.clear()
            released_bytes, self._num_bytes = self._num_bytes, 0
        self._pool.charge(-released_bytes)

    def _record(self, num_bytes: int) -> None:
        self.served_bytes += num_bytes
