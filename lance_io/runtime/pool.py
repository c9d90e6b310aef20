"""Threads for decoding: kernels release the GIL, and the engine's loop must not wait for them."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

from lance_io.limits import from_environment

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
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


def cpu_pool() -> ThreadPoolExecutor:
    """The pool for work on the CPU, one thread per processor; a forked child gets its own."""
    global _pool
    pool = _pool
    if pool is not None:
        return pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(cpu_count(), thread_name_prefix="lance_io-cpu")
        return _pool


def _forget_pool() -> None:
    """In a forked child: its threads are not there, and its lock may be held by one of them."""
    global _lock, _pool
    _lock = threading.Lock()
    _pool = None


os.register_at_fork(after_in_child=_forget_pool)
