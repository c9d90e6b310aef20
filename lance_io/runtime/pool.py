"""Thread pools for decoding, whose kernels release the GIL, and for blocking calls: no loop must wait for either.

`concurrent.futures` ends its pools when the main thread ends, although other threads of the program may run for hours;
their calls fail then ("cannot schedule new futures after interpreter shutdown"). A `LastingPool` ends later, after all
threads of the program.
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
_CPU_THREADS: Final = "lance_io-cpu"  # prefix of the names of CPU threads
BLOCKING_MAX: Final = 32  # maximum number of threads that block


# -- pools that last ---------------------------------------------------------------------------------------------------


def _pools_of_python() -> ModuleType:
    """Import `concurrent.futures.thread`, also if the first import comes after the end of the main thread.

    The module registers a function that ends its pools with the main thread; Python refuses that after its end. This
    function then sets the state that an earlier import would have, so that other imports in the program work, too.
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
    """A `ThreadPoolExecutor` that starts up to `num_threads` threads on demand; also a loop's default executor.

    name  prefix of the names of its threads
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
        """Call a function in one of the threads. Raises `RuntimeError` if the pool was shut down."""
        future: Future[T] = Future()
        with self._guard:
            if self._is_over:
                raise RuntimeError("this pool of threads was shut down")
            if not self._idle.acquire(blocking=False):
                self._start_one()
            self._work.put((future, lambda: fn(*args, **kwargs)))  # last: Ctrl-C may end this anywhere
        return future

    def _start_one(self) -> None:
        self._started = [thread for thread in self._started if thread.ident is not None]  # Ctrl-C may prevent a start
        if len(self._started) < self._num_threads_max:
            name = f"{self._name}_{len(self._started)}"
            thread = threading.Thread(target=_serve, args=(self._work, self._idle), name=name, daemon=True)
            self._started.append(thread)
            try:
                thread.start()
            except RuntimeError as error:  # there is no memory for its stack, or no more threads are allowed
                self._started.remove(thread)
                if "shutdown" in str(error):
                    raise
                if not self._started:  # else the running threads do the work
                    raise MemoryError(f"no thread can be started for the work: {error}") from error

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Refuse new calls; submitted ones are run, or cancelled if `cancel_futures`."""
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
    """In a forked child: the threads do not exist here, and may have held locks at the fork."""
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
        del item, future, call  # an idle thread keeps no data alive
        idle.release()
    work.put(None)  # pass the end on to the next thread


def _cancel(work: SimpleQueue[_Work | None]) -> None:
    with suppress(Empty):
        while (item := work.get_nowait()) is not None:
            item[0].cancel()


def _end(pools: weakref.WeakSet[LastingPool]) -> None:
    """At interpreter exit, when only daemon threads are left: none may run Python code after the interpreter's end."""
    for pool in list(pools):
        pool.shutdown(cancel_futures=True)


# -- the pools of this process -----------------------------------------------------------------------------------------

_lock = threading.Lock()
_pool: LastingPool | None = None
_blocking: LastingPool | None = None
_driving: LastingPool | None = None
_share: int | None = None


def cpu_count() -> int:
    """Number of processors that this process may use, at least 1; `use_cpus` and LANCE_CPU_THREADS override it."""
    if _share is not None:
        return _share
    if os.environ.get("LANCE_CPU_THREADS") and (number := from_environment("LANCE_CPU_THREADS", None)) is not None:
        return number
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def use_cpus(share: int | None) -> None:
    """Use only a share of the processors from now on. Call it only while no work is under way.

    share  number of processors, at least 1; None for all. LANCE_CPU_THREADS overrides it
    """
    global _pool, _share
    if share is not None:
        share = from_environment("LANCE_CPU_THREADS", share)
    if share == _share:
        return
    with _lock:
        pool, _pool, _share = _pool, None, share
    if pool is not None:
        pool.shutdown(wait=False)  # submitted work is still done


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
    """Whether this thread belongs to the CPU pool, whose other threads are busy with their own work."""
    return threading.current_thread().name.startswith(_CPU_THREADS)


def _blocking_pool() -> LastingPool:
    """The pool for calls that may block."""
    global _blocking
    with _lock:
        if _blocking is None:
            _blocking = LastingPool(BLOCKING_MAX, "lance_io-blocking")
        return _blocking


def _driving_pool() -> LastingPool:
    """The pool for plans over synchronous stores.

    Separate from the pool for blocking calls: plans wait for each other, and the awaited one may need a thread of that
    pool.
    """
    global _driving
    with _lock:
        if _driving is None:
            _driving = LastingPool(BLOCKING_MAX, "lance_io-plans")
        return _driving


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`asyncio.to_thread` that works until the last thread of the program has ended."""
    call = partial(copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_blocking_pool(), call)


def driven_in_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """Run a function that drives plans over synchronous stores in a thread of their pool."""
    return asyncio.get_running_loop().run_in_executor(_driving_pool(), partial(copy_context().run, function))


def begin_driving(function: Callable[[], object]) -> None:
    """`driven_in_thread` in the background, from any thread. Raises `RuntimeError` if the process is shutting down."""
    _driving_pool().submit(copy_context().run, function)


_loaded: set[str] = set()  # `sys.modules` also has modules whose import is still running


async def load_modules(*modules: str) -> None:
    """Import modules in a thread, so that the loop is not blocked.

    Raises `ModuleNotFoundError` if one is missing.
    """
    for module in modules:
        if module not in _loaded:
            await in_thread(importlib.import_module, module)
            _loaded.add(module)


def load_modules_sync(*modules: str) -> None:
    """Import modules from plain code. The main thread lets another thread do it, so that Ctrl-C cannot interrupt it.

    After an interrupted import of some packages (pandas 3), importing them again can deadlock Python's import lock: the
    next import in any other thread waits forever.
    """
    for module in modules:
        if module not in _loaded:
            if threading.current_thread() is threading.main_thread():
                _blocking_pool().submit(importlib.import_module, module).result()
            else:  # Ctrl-C interrupts only the main thread
                importlib.import_module(module)
            _loaded.add(module)


def _forget_pool() -> None:
    """In a forked child: the threads do not exist here, and one may have held the lock at the fork."""
    global _lock, _pool, _blocking, _driving
    _lock = threading.Lock()
    _pool = _blocking = _driving = None


os.register_at_fork(after_in_child=_forget_pool)
