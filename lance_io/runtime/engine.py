"""The engine's thread and loop: started by the first call, dropped after a fork, shut down at exit."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lance_io.runtime.pool import LastingPool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

Closer: TypeAlias = "Callable[[], Awaitable[None]]"

DEFAULT_THREADS: Final = 8  # of the loop's own executor
CLOSE_SECONDS_MAX: Final = 1.0  # interpreter exit waits at most this long for sessions to close


class Engine:
    """A loop and the thread that runs it; with `loop` given, that loop is used and no thread is started."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = loop or asyncio.new_event_loop()
        if loop is None:  # the default executor resolves host names
            self.loop.set_default_executor(LastingPool(DEFAULT_THREADS, "lance_io-engine"))
        self.closers: dict[object, Callable[[], Closer | None]] = {}
        self.closing = False  # no new calls
        self._stopped = False
        self._last_task: asyncio.Task[None] | None = None
        self.thread: threading.Thread | None = None
        if loop is None:
            self.thread = threading.Thread(target=self._serve, name="lance_io-engine", daemon=True)
            self.thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._stopped:
            # A SystemExit raised inside a call also leaves the loop, but it is the result of that call.
            with suppress(KeyboardInterrupt, SystemExit):
                self.loop.run_forever()
        self.loop.close()

    @property
    def is_current(self) -> bool:
        """Whether this thread runs the engine's loop."""
        if self.thread is not None:
            return threading.get_ident() == self.thread.ident
        with suppress(RuntimeError):
            return asyncio.get_running_loop() is self.loop
        return False

    def shut_down(self) -> None:
        """Cancel running calls, call the registered closers, end the thread; all within `CLOSE_SECONDS_MAX`."""
        thread = self.thread
        if thread is None or not thread.is_alive() or self.closing:
            return
        self.closing = True

        async def finish() -> None:
            calls = asyncio.all_tasks() - {asyncio.current_task(), self._last_task}
            for call in calls - _closing:  # tasks that close something are awaited, not cancelled
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            closers = [closer for closer in (find() for find in self.closers.values()) if closer is not None]
            await asyncio.gather(*(closer() for closer in closers), return_exceptions=True)
            await self.loop.shutdown_asyncgens()

        async def finish_in_time() -> None:
            try:
                await asyncio.wait_for(finish(), CLOSE_SECONDS_MAX)
            except TimeoutError:
                pass  # the process ends anyway; the other side sees its connections close
            finally:
                self._stopped = True
                self.loop.stop()

        def begin() -> None:
            self._last_task = self.loop.create_task(finish_in_time())

        self.loop.call_soon_threadsafe(begin)
        thread.join(2 * CLOSE_SECONDS_MAX)
        self.closers.clear()  # a weak reference that dies while modules are torn down prints an error


_lock = threading.Lock()
_engine: Engine | None = None
_exit_registered = False


def current_engine() -> Engine:
    """The engine of this process; starts it on first use."""
    global _engine, _exit_registered
    engine = _engine
    if engine is not None:
        return engine
    with _lock:
        if _engine is None:
            if not _exit_registered:
                atexit.register(_shut_down)
                _exit_registered = True
            _engine = Engine()
        return _engine


def _shut_down() -> None:
    """At interpreter exit."""
    engine = _engine
    if engine is not None:
        engine.shut_down()


def _forget_engine() -> None:
    """In a forked child, which has no engine thread. Closes nothing: sockets and locks belong to the parent."""
    global _lock, _engine
    engine, _engine = _engine, None
    _lock = threading.Lock()
    if engine is not None:
        _never_finalize((engine, asyncio.all_tasks(engine.loop)))


def _never_finalize(inherited: object) -> None:
    """Leak objects that the parent still uses: finalizing them here would run `finally` blocks on its sockets."""
    import ctypes  # only a forked child needs it

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


os.register_at_fork(after_in_child=_forget_engine)


def on_engine_thread() -> bool:
    """Whether this is the engine's own thread, where waiting for the engine would deadlock."""
    return _engine is not None and _engine.is_current


def engine_loop() -> asyncio.AbstractEventLoop:
    """The engine's loop; starts it on first use."""
    return current_engine().loop


@contextmanager
def use_loop(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Use `loop` as the engine's loop inside the block: for tests that need everything on one loop, without threads."""
    global _engine
    before, _engine = _engine, Engine(loop)
    try:
        yield
    finally:
        _engine = before


def on_engine_close(closer: Closer) -> Callable[[], None]:
    """Register a closer: `await closer()` runs on the engine's loop when the engine shuts down.

    Returns a function that removes the registration. A bound method is held weakly, so that it does not keep its object
    alive. A forked child starts without registrations.
    """
    engine, token = current_engine(), object()

    def forget(_: object = None) -> None:
        engine.closers.pop(token, None)

    if hasattr(closer, "__self__"):
        engine.closers[token] = weakref.WeakMethod(closer, forget)
    else:
        engine.closers[token] = lambda: closer
    return forget


_closing: set[asyncio.Task[None]] = set()


def close_soon(loop: asyncio.AbstractEventLoop, close: Callable[[], Coroutine[Any, Any, None]]) -> bool:
    """Run `close()` as a task of a loop, from any thread or finalizer. False if the loop is not running."""

    def begin() -> None:
        task = loop.create_task(close())
        _closing.add(task)  # a loop holds its tasks weakly
        task.add_done_callback(_closing.discard)

    with suppress(RuntimeError):  # its own thread may close it at the same time
        if loop.is_running():
            loop.call_soon_threadsafe(begin)
            return True
    return False
