"""Pools of threads that work for as long as any thread of the program runs.

`concurrent.futures` ends its pools when the main thread has come to its end, although other threads of the program
may go on for hours; these are refused then ("cannot schedule new futures after interpreter shutdown"). Pools of this
module end later, when all threads of the program have.
"""

from __future__ import annotations

import atexit
import importlib
import os
import threading
import weakref
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

T = TypeVar("T")
_Work: TypeAlias = "tuple[Future[Any], Callable[[], Any]]"


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
