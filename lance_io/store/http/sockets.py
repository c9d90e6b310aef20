"""Sockets that a process may have open: half of its descriptors, the rest are for the program itself."""

from __future__ import annotations

import os
import threading
from typing import Final

from lance_io.store.descriptors import descriptors_max

SHARE: Final = 0.5

_lock = threading.Lock()
_num_open = 0


def sockets_max() -> int:
    """How many connections all pools of this process may have together."""
    return max(1, int(descriptors_max() * SHARE))


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
