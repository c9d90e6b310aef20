"""Cache of open files of the local store."""

from __future__ import annotations

import os
import stat
import threading
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from lance_io.errors import NotFound, StoreError
from lance_io.store.descriptors import DESCRIPTORS, Descriptors, with_descriptors
from lance_io.store.local.system_calls import error_of

if TYPE_CHECKING:
    from collections.abc import Callable

_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # non-blocking: opening a named pipe must not hang


class OpenFile:
    """A file descriptor, closed when the last reference is gone; `pread` needs no position, so readers share it.

    may_wait    see `with_descriptors`
    size_bytes  the file's length when it was opened
    """

    __slots__ = ("fd", "identity", "size_bytes")

    def __init__(self, key: str, *, may_wait: bool = True) -> None:
        self.fd = -1
        try:
            self.fd = with_descriptors(partial(os.open, key, _FLAGS), may_wait=may_wait)
            DESCRIPTORS.open.add(id(self))
            status = os.fstat(self.fd)
        except (OSError, ValueError) as error:
            raise error_of(key, error) from error
        if stat.S_ISDIR(status.st_mode):
            raise NotFound("this is a folder, not a file", path=key)
        if not stat.S_ISREG(status.st_mode):
            raise StoreError("this is not a regular file", path=key)
        self.identity = (status.st_dev, status.st_ino)
        self.size_bytes = status.st_size

    def __del__(self, close: Callable[[int], None] = os.close, descriptors: Descriptors = DESCRIPTORS) -> None:
        # its globals are bound as defaults: the module may be gone at exit. It may run anywhere, so it must not lock
        if self.fd >= 0:
            close(self.fd)
            for ended in tuple(descriptors.waiting):
                ended.put(None)
            descriptors.open.discard(id(self))  # last: a waiter that sees no open file has been notified


class OpenFiles:
    """The most recently used open files of a store, at most `files_max`; safe from any thread.

    Each use looks the name up again (a `stat`, a third of an `open`), so that a replaced or deleted file is never read
    under its old name.

    turn  sequence number of the latest opening of a file, among all stores
    """

    def __init__(self, files_max: int) -> None:
        self._files_max = files_max
        self._lock = threading.Lock()
        self._files: OrderedDict[str, OpenFile] = OrderedDict()
        self.turn = 0
        with DESCRIPTORS.lock:
            DESCRIPTORS.holders.add(self)

    def get(self, key: str, *, may_wait: bool = True) -> OpenFile:
        """The open file with a name. Hold a reference while reading: the cache may drop it at any time."""
        with self._lock:
            file = self._files.get(key)
            if file is not None:
                self._files.move_to_end(key)
        if file is not None:
            try:
                status = os.stat(key)
            except (OSError, ValueError) as error:
                self.drop(key)
                raise error_of(key, error) from error
            if (status.st_dev, status.st_ino) == file.identity:
                return file
        file = OpenFile(key, may_wait=may_wait)
        _disable_readahead(file.fd)
        self._keep(key, file)
        return file

    def _keep(self, key: str, file: OpenFile) -> None:
        dropped = None
        with self._lock:
            if DESCRIPTORS.waiting:
                return
            self._files[key] = file
            self._files.move_to_end(key)
            self.turn = next(DESCRIPTORS.turns)
            if len(self._files) > self._files_max:
                dropped = self._files.popitem(last=False)
        del dropped  # closes outside the lock
        DESCRIPTORS.refresh()
        if len(DESCRIPTORS.open) > DESCRIPTORS.kept_max:
            DESCRIPTORS.close_idle(DESCRIPTORS.kept_max // 8 + 1)

    def drop(self, *keys: str) -> None:
        """Drop files from the cache."""
        with self._lock:
            dropped = [self._files.pop(key, None) for key in keys]
        del dropped  # closes outside the lock

    def drop_oldest(self, num_files: int) -> int:
        """Drop up to `num_files` files; returns the number that were dropped."""
        with self._lock:
            dropped = [self._files.popitem(last=False) for _ in range(min(num_files, len(self._files)))]
        return len(dropped)

    def clear(self) -> None:
        """Drop all files; those in use close when their readers are done."""
        with self._lock:
            self._files, dropped = OrderedDict(), self._files
        del dropped


def _disable_readahead(fd: int) -> None:
    """Disable readahead of the system: ranges are planned, and the bytes between them are seldom needed."""
    if hasattr(os, "posix_fadvise"):  # not on all systems
        with suppress(OSError):  # some file systems do not support it
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
