"""Threads for decoding, whose kernels release the GIL, and for what may block: no loop must wait for either."""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from lance_io.limits import from_environment
from lance_io.runtime.threads import LastingPool

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")
BLOCKING_MAX: Final = 32  # threads that may wait for somebody at once

_lock = threading.Lock()
_pool: LastingPool | None = None
_blocking: LastingPool | None = None
_driving: LastingPool | None = None
_share: int | None = None


def cpu_count() -> int:
    """How many processors this process may use, at least 1; or what LANCE_CPU_THREADS or `use_cpus` say."""
    if (told := _share or from_environment("LANCE_CPU_THREADS", None)) is not None:
        return told
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def use_cpus(share: int | None) -> None:
    """Take no more than a share of the processors from now on; not while anything is under way.

    share  processors, at least 1; None for all. What LANCE_CPU_THREADS says goes before it
    """
    global _pool, _share
    if share is not None:
        share = from_environment("LANCE_CPU_THREADS", share)
    if share == _share:
        return
    with _lock:
        pool, _pool, _share = _pool, None, share
    if pool is not None:
        pool.shutdown(wait=False)  # what it has been given is still done


def cpu_pool() -> LastingPool:
    """The pool for work on the CPU, one thread per processor; a forked child gets its own."""
    global _pool
    pool = _pool
    if pool is not None:
        return pool
    with _lock:
        if _pool is None:
            _pool = LastingPool(cpu_count(), "lance_io-cpu")
        return _pool


def _blocking_pool() -> LastingPool:
    """The pool for calls that may block."""
    global _blocking
    with _lock:
        if _blocking is None:
            _blocking = LastingPool(BLOCKING_MAX, "lance_io-blocking")
        return _blocking


def _driving_pool() -> LastingPool:
    """The pool for plans over stores that answer at once.

    Not that for calls that may block: plans wait for each other, and what they wait for may need one of its threads.
    """
    global _driving
    with _lock:
        if _driving is None:
            _driving = LastingPool(BLOCKING_MAX, "lance_io-plans")
        return _driving


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`asyncio.to_thread`, which works until the last thread of the program has ended."""
    call = partial(copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_blocking_pool(), call)


def driven_in_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """What drives plans over stores that answer at once: under way, or in line for a thread."""
    return asyncio.get_running_loop().run_in_executor(_driving_pool(), partial(copy_context().run, function))


def begin_driving(function: Callable[[], object]) -> None:
    """The same for what nobody waits for, from any thread. Raises `RuntimeError` when the process is shutting down."""
    _driving_pool().submit(copy_context().run, function)


_loaded: set[str] = set()  # what is only being imported is in `sys.modules`, too


async def load_modules(*modules: str) -> None:
    """Have modules imported by a thread if they are not yet: no loop may lose the time that takes.

    Raises `ModuleNotFoundError` where one is missing.
    """
    for module in modules:
        if module not in _loaded:
            await in_thread(importlib.import_module, module)
            _loaded.add(module)


def load_modules_sync(*modules: str) -> None:
    """The same for plain code, so that no Ctrl-C ends an import half way: another thread does it, and this one waits.

    Python's own import may stay locked for good when some packages (pandas 3) are imported again after that: the next
    import in any other thread waits for ever.
    """
    for module in modules:
        if module not in _loaded:
            if threading.current_thread() is threading.main_thread():
                _blocking_pool().submit(importlib.import_module, module).result()
            else:  # only the main thread is interrupted
                importlib.import_module(module)
            _loaded.add(module)


def _forget_pool() -> None:
    """In a forked child: its threads are not there, and its lock may be held by one of them."""
    global _lock, _pool, _blocking, _driving
    _lock = threading.Lock()
    _pool = _blocking = _driving = None


os.register_at_fork(after_in_child=_forget_pool)
