"""Support for `os.fork`: a lock that another thread held stays locked in the child for ever.

Objects with locks, pools or sockets register here; in a forked child each of them starts over. Nothing inherited is
closed there, because closing a TLS socket or a client in the child would speak on the parent's connection.
"""

from __future__ import annotations

import os
import sys
import weakref
from typing import Final, Protocol


class ForkAware(Protocol):
    """Something that must reset itself in a forked child."""

    def start_over(self) -> None:
        """Make new locks, drop pools and connections. Runs in the child before anything else does."""


_registered: weakref.WeakSet[ForkAware] = weakref.WeakSet()


def survive_fork(thing: ForkAware) -> None:
    """Call `thing.start_over()` in every forked child for as long as `thing` lives."""
    _registered.add(thing)


_RUNTIMES: Final = ("obstore",)  # packages whose threads do not survive a fork
_inherited: set[str] = set()


def loaded_before_fork(package: str) -> bool:
    """Whether the parent process had imported a package of `_RUNTIMES` before the fork."""
    return package in _inherited


def _in_child() -> None:
    _inherited.update(name for name in _RUNTIMES if name in sys.modules)
    for thing in list(_registered):
        thing.start_over()


os.register_at_fork(after_in_child=_in_child)


def never_finalize(inherited: object) -> None:
    """Leak an object of the parent: its finalizers would close or flush a resource that the parent still uses."""
    import ctypes  # only a forked child needs it

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))
