"""Sockets that a process may have open: half of its descriptors, the rest are for the program itself."""

from __future__ import annotations

import errno
import os
import threading
from typing import Final

SHARE: Final = 0.5
UNKNOWN_MAX: Final = 512  # where the system does not say

_lock = threading.Lock()
_num_open = 0


def is_out_of_descriptors(error: BaseException) -> bool:
    """Whether the process, or the system, has no descriptor left."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def sockets_max() -> int:
    """How many connections all pools of this process may have together."""
    try:
        import resource
    except ImportError:
        return UNKNOWN_MAX
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else max(1, int(soft * SHARE))


def may_open() -> bool:
    """Whether there may be one more."""
    return _num_open < sockets_max()


def count_sockets(number: int) -> None:
    """So many more, or less; those that are being opened count too."""
    global _num_open
    with _lock:
        _num_open += number


def num_sockets() -> int:
    """How many there are."""
    return _num_open


def _after_fork() -> None:
    global _lock, _num_open
    _lock = threading.Lock()
    _num_open = 0


os.register_at_fork(after_in_child=_after_fork)
