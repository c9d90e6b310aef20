"""Threads for decoding, whose kernels release the GIL, and for what may block: no loop must wait for either.

`concurrent.futures` ends its pools when the main thread has come to its end, although other threads of the program
may go on for hours; these are refused then ("cannot schedule new futures after interpreter shutdown"). A `LastingPool`
ends later, when all threads of the program have.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib
import os
import threading
import weakref
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, TypeVar

from lance_io.limits import from_environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

P = ParamSpec("P")
T = TypeVar("T")
_Work: TypeAlias = "tuple[Future[Any], Callable[[], Any]]"
_CPU_THREADS: Final = "lance_io-cpu"  # how their names begin
BLOCKING_MAX: Final = 32  # threads that may wait for somebody at once


# -- pools that last ---------------------------------------------------------------------------------------------------


def _pools_of_python() -> ModuleType:
    """`concurrent.futures.thread`, also where it is first imported after the main thread has come to its end.

    It registers there what ends its pools with the main thread; Python refuses that when it is too late for it. Then
    they are as ended as if they had been imported before. That others of the program import it fails no longer, either.
    """
    try:
        return importlib.import_module("concurrent.futures.thread")
    except RuntimeError:
        if threading.main_thread().is_alive():
            raise
    register: Any = vars(threading)["_register_atexit"]
    vars(threading)["_register_atexit"] = lambda *_, **__: None
    try:
        pools = importlib.import_module("concurrent.futures.thread")
    finally:
        vars(threading)["_register_atexit"] = register
    vars(pools)["_shutdown"] = True
    return pools


if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor
else:
    ThreadPoolExecutor = _pools_of_python().ThreadPoolExecutor


class LastingPool(ThreadPoolExecutor):
    """A `ThreadPoolExecutor` of at most `num_threads`, started as they are needed; also a loop's default executor.

    name  that its threads' names begin with
    """

    def __init__(self, num_threads: int, name: str) -> None:
        super().__init__(num_threads, thread_name_prefix=name)
        self._num_threads_max, self._name = num_threads, name
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started: list[threading.Thread] = []
        self._guard = threading.Lock()
        self._is_over = False
        _remember(self)
        weakref.finalize(self, self._work.put, None).atexit = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Have a function called in one of the threads. Raises `RuntimeError` when the pool was shut down."""
        future: Future[T] = Future()
        with self._guard:
            if self._is_over:
                raise RuntimeError("this pool of threads was shut down")
            if not self._idle.acquire(blocking=False):
                self._start_one()
            self._work.put((future, lambda: fn(*args, **kwargs)))  # last: Ctrl-C may end this anywhere
        return future

    def _start_one(self) -> None:
        self._started = [thread for thread in self._started if thread.ident is not None]  # not those that Ctrl-C ended
        if len(self._started) < self._num_threads_max:
            name = f"{self._name}_{len(self._started)}"
            thread = threading.Thread(target=_serve, args=(self._work, self._idle), name=name, daemon=True)
            self._started.append(thread)
            try:
                thread.start()
            except RuntimeError as error:  # there is no memory for its stack, or no more are allowed
                self._started.remove(thread)
                if "shutdown" in str(error):
                    raise
                if not self._started:  # else those that are there do it
                    raise MemoryError(f"no thread can be started for what is to be done: {error}") from error

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take nothing more; what was taken is done, unless it is cancelled."""
        with self._guard:
            is_first, self._is_over = not self._is_over, True
        if is_first:
            if cancel_futures:
                _cancel(self._work)
            self._work.put(None)
        if wait:
            for thread in self._started:
                if thread.ident is not None:
                    thread.join()


_pools: weakref.WeakSet[LastingPool] | None = None


def _remember(pool: LastingPool) -> None:
    global _pools
    if _pools is None:
        _pools = weakref.WeakSet()
        atexit.register(_end, _pools)
    _pools.add(pool)


def _forget_pools() -> None:
    """In a forked child: their threads are not there, and their locks may be held by one of them."""
    global _pools
    if _pools is not None:
        atexit.unregister(_end)
        _pools = None


os.register_at_fork(after_in_child=_forget_pools)


def _serve(work: SimpleQueue[_Work | None], idle: threading.Semaphore) -> None:
    while (item := work.get()) is not None:
        future, call = item
        if future.set_running_or_notify_cancel():
            try:
                result = call()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
                del result
        del item, future, call  # a thread that waits holds nothing
        idle.release()
    work.put(None)  # to the next one


def _cancel(work: SimpleQueue[_Work | None]) -> None:
    with suppress(Empty):
        while (item := work.get_nowait()) is not None:
            item[0].cancel()


def _end(pools: weakref.WeakSet[LastingPool]) -> None:
    """At interpreter exit, when only daemon threads are left: none may come back into an interpreter that is gone."""
    for pool in list(pools):
        pool.shutdown(cancel_futures=True)


# -- the pools of this process -----------------------------------------------------------------------------------------

_lock = threading.Lock()
_pool: LastingPool | None = None
_blocking: LastingPool | None = None
_driving: LastingPool | None = None
_share: int | None = None


def cpu_count() -> int:
    """How many processors this process may use, at least 1; or what LANCE_CPU_THREADS or `use_cpus` say."""
    if _share is not None:
        return _share
    if os.environ.get("LANCE_CPU_THREADS") and (number := from_environment("LANCE_CPU_THREADS", None)) is not None:
        return number
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
            _pool = LastingPool(cpu_count(), _CPU_THREADS)
        return _pool


def in_cpu_pool() -> bool:
    """Whether this thread is one of the CPU pool's, whose others have work of their own."""
    return threading.current_thread().name.startswith(_CPU_THREADS)


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
