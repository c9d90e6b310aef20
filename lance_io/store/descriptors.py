"""The bound on a process's file descriptors (`ulimit -n`), most of them the user's, and what stores do about it.

Connections take half of them at most. All local stores together keep at most a quarter for files that may be read
again. Where they run out all the same, those that nobody reads from are closed and the call is made again; where all
are being read from, it waits for a read to end. A read holds nothing that another would wait for.
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

SHARE: Final = 4  # one in so many descriptors of the process is ours to keep
SOCKETS_SHARE: Final = 0.5  # of the descriptors for all connections together; the rest are for the program itself
KEPT_MIN: Final = 8
UNBOUNDED: Final = 1 << 30
READ_SECONDS_MAX: Final = 60.0  # to wait for reads of other threads to end
OTHER_SECONDS_MAX: Final = 1.0  # the same where none is known: one may have just opened its file


def descriptors_max(soft: int | None = None) -> int:
    """How many file descriptors the process may have; a large number where there is no bound.

    soft  the limit as the system says it; None asks the system, each time: programs change it
    """
    if soft is None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNBOUNDED if soft == resource.RLIM_INFINITY else soft


def is_out_of_descriptors(error: BaseException) -> bool:
    """Whether the process, or the system, has no descriptor left."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


class KeepsFiles(Protocol):
    """Something that keeps files open after they have been read.

    turn  when a file was opened last, among all of these
    """

    turn: int

    def drop_oldest(self, num_files: int) -> int:
        """Forget so many files, or all; gives how many."""

    def clear(self) -> None:
        """Forget all files."""


class Descriptors:
    """What the open files of all stores share; safe from any thread, and after a fork.

    kept_max  files that they may keep open together, as of the last time that one was opened
    open      which files are open, by `id`
    waiting   threads that wait for one of them
    """

    def __init__(self) -> None:
        self.holders: WeakSet[KeepsFiles] = WeakSet()
        self.open: set[int] = set()
        self.turns = count()
        self.look()
        self.start_over()

    def start_over(self) -> None:
        """In a forked child: the lock may be held by a thread that is not there, as those that wait are not."""
        self.lock = threading.Lock()
        self.waiting: list[SimpleQueue[None]] = []

    def look(self) -> None:
        """Ask for the limit; a program may change it."""
        self.kept_max = max(KEPT_MIN, descriptors_max() // SHARE)

    def close_idle(self, num_files: int | None = None) -> None:
        """Keep that many files less (None: no file), those of the stores first that opened one longest ago."""
        with self.lock:
            holders = list(self.holders)
        for holder in sorted(holders, key=lambda one: one.turn):
            if num_files is None:
                holder.clear()
            elif (num_files := num_files - holder.drop_oldest(num_files)) <= 0:
                return


DESCRIPTORS: Final = Descriptors()
os.register_at_fork(after_in_child=DESCRIPTORS.start_over)


def with_descriptors(call: Callable[[], T], *, may_wait: bool = True) -> T:
    """Make a system call that opens something; once more without the files that are kept, if there are too many.

    may_wait  wait for reads of other threads to end; only for callers that hold no open file themselves
    """
    try:
        return call()
    except OSError as error:
        if not is_out_of_descriptors(error):
            raise
    ended: SimpleQueue[None] = SimpleQueue()
    DESCRIPTORS.waiting.append(ended)  # from now on files are closed when they have been read
    try:
        while True:
            DESCRIPTORS.close_idle()
            try:
                return call()
            except OSError as error:
                if not (may_wait and is_out_of_descriptors(error)):
                    raise  # an error that is kept here would keep open what its frames hold
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
    """Whether there may be one connection more."""
    return _num_sockets < sockets_max()


def count_sockets(number: int) -> None:
    """So many connections more, or less; those that are being opened count too."""
    global _num_sockets
    with _sockets_lock:
        _num_sockets += number


def num_sockets() -> int:
    """How many there are."""
    return _num_sockets


def _after_fork() -> None:
    global _sockets_lock, _num_sockets
    _sockets_lock = threading.Lock()
    _num_sockets = 0


os.register_at_fork(after_in_child=_after_fork)
