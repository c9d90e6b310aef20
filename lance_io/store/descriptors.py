"""The limit of a process's file descriptors (`ulimit -n`), most of which belong to the program, and how stores obey it.

Connections take at most half of them. All local stores together cache open files in at most a quarter. If they run out
anyway, idle cached files are closed and the call is repeated; if all files are in use, the call waits for a read to
end. A read holds nothing that another read waits for.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from itertools import count
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

SHARE: Final = 4  # cached open files take at most 1/SHARE of the process's descriptors
SOCKETS_SHARE: Final = 0.5  # of the descriptors for all connections together; the rest are for the program itself
KEPT_MIN: Final = 8
UNBOUNDED: Final = 1 << 30
READ_SECONDS_MAX: Final = 60.0  # maximal wait for reads of other threads to end
OTHER_SECONDS_MAX: Final = 1.0  # the same if no read is known: one may have just opened its file


def descriptors_max(soft: int | None = None) -> int:
    """How many file descriptors the process may have; a large number if there is no limit.

    soft  the soft limit; None asks the system, each time: programs change it
    """
    if soft is None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNBOUNDED if soft == resource.RLIM_INFINITY else soft


def is_out_of_descriptors(error: BaseException) -> bool:
    """Whether the process, or the system, has no descriptor left."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


class KeepsFiles(Protocol):
    """Something that caches open files after they have been read.

    turn  sequence number of the latest opening of a file, among all of these
    """

    turn: int

    def drop_oldest(self, num_files: int) -> int:
        """Close up to `num_files` files; returns the number that were closed."""

    def clear(self) -> None:
        """Close all files."""


class Descriptors:
    """State that the open files of all stores share; safe from any thread, and after a fork.

    kept_max  files that they may cache together, as of the latest opening of a file
    open      `id`s of the open files
    waiting   threads that wait for a descriptor
    """

    def __init__(self) -> None:
        self.holders: WeakSet[KeepsFiles] = WeakSet()
        self.open: set[int] = set()
        self.turns = count()
        self.refresh()
        self.start_over()

    def start_over(self) -> None:
        """In a forked child: a thread that is gone may hold the lock, and no thread waits."""
        self.lock = threading.Lock()
        self.waiting: list[SimpleQueue[None]] = []

    def refresh(self) -> None:
        """Refresh the limit; a program may change it."""
        self.kept_max = max(KEPT_MIN, descriptors_max() // SHARE)

    def close_idle(self, num_files: int | None = None) -> None:
        """Close `num_files` cached files (None: all), first those of the store whose latest opening is oldest."""
        with self.lock:
            holders = list(self.holders)
        for holder in sorted(holders, key=lambda keeper: keeper.turn):
            if num_files is None:
                holder.clear()
            elif (num_files := num_files - holder.drop_oldest(num_files)) <= 0:
                return


DESCRIPTORS: Final = Descriptors()
os.register_at_fork(after_in_child=DESCRIPTORS.start_over)


def with_descriptors(call: Callable[[], T], *, may_wait: bool = True) -> T:
    """Make a system call that opens something; at the limit, closes cached files and repeats it.

    may_wait  wait for reads of other threads to end; only for callers that hold no open file themselves
    """
    try:
        return call()
    except OSError as error:
        if not is_out_of_descriptors(error):
            raise
    ended: SimpleQueue[None] = SimpleQueue()
    DESCRIPTORS.waiting.append(ended)  # from now on files are closed right after they have been read
    try:
        while True:
            DESCRIPTORS.close_idle()
            try:
                return call()
            except OSError as error:
                if not (may_wait and is_out_of_descriptors(error)):
                    raise  # keeping the error here would keep open the files of its frames
            try:
                ended.get(timeout=READ_SECONDS_MAX if DESCRIPTORS.open else OTHER_SECONDS_MAX)
            except Empty:
                may_wait = False
    finally:
        DESCRIPTORS.waiting.remove(ended)


# -- connections -----------------------------------------------------------------------------------------------------

_sockets_lock = threading.Lock()
_num_sockets = 0


def sockets_max() -> int:
    """How many connections all pools of this process may have together."""
    return max(1, int(descriptors_max() * SOCKETS_SHARE))


def may_open_socket() -> bool:
    """Whether one more connection may be opened."""
    return _num_sockets < sockets_max()


def count_sockets(number: int) -> None:
    """Add `number` (which may be negative) to the connections; those that are being opened count too."""
    global _num_sockets
    with _sockets_lock:
        _num_sockets += number


def num_sockets() -> int:
    """Number of connections of this process."""
    return _num_sockets


def _after_fork() -> None:
    global _sockets_lock, _num_sockets
    _sockets_lock = threading.Lock()
    _num_sockets = 0


os.register_at_fork(after_in_child=_after_fork)
