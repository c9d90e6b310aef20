"""One coroutine, one result: from plain code (`run`), any loop (`wrap`), for nobody (`begin`); waiting for others."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lance_io.runtime.engine import current_engine, on_engine_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from concurrent.futures import Future

    from lance_io.runtime.engine import Engine

T = TypeVar("T")


class _Call(Generic[T]):
    """A coroutine on its way through the engine; `notify` is called on the engine's thread once it has ended."""

    def __init__(self, engine: Engine, coro: Coroutine[Any, Any, T], notify: Callable[[], None]) -> None:
        self._engine = engine
        self._coro: Coroutine[Any, Any, T] | None = coro
        self._notify = notify
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[T] | None = None
        self._cancelled = False

    def start(self) -> None:
        """Hand it to the engine. Whoever is interrupted in here has to cancel."""
        try:
            if self._engine.closing:
                raise RuntimeError("the interpreter is shutting down, and the lance_io engine with it")
            self._engine.loop.call_soon_threadsafe(self._start)
        except RuntimeError:  # or a loop that was closed from outside
            if self._coro is not None:
                self._coro.close()
            raise

    def _start(self) -> None:
        coro, self._coro = self._coro, None
        assert coro is not None
        if self._cancelled:
            coro.close()
            self._notify()
            return
        self._task = self._engine.loop.create_task(coro, context=self._context)
        self._task.add_done_callback(lambda _: self._notify())

    def cancel(self, before: Callable[[], None] | None = None) -> None:
        """Cancel from any thread; harmless when it has ended.

        before  called on the engine first
        """

        def cancel_here() -> None:
            if before is not None:
                before()
            self._cancelled = True
            if self._task is not None:
                self._task.cancel()

        with suppress(RuntimeError):  # the loop is closed: so is the call
            self._engine.loop.call_soon_threadsafe(cancel_here)

    def result(self) -> T:
        """The result, or the error with the traceback it had on the engine."""
        task, self._task = self._task, None  # a raised error must not hold the task that holds the error
        assert task is not None
        if task.cancelled():  # not by the caller, who would not be here
            raise RuntimeError("the lance_io engine shut down, or cancelled this call, before it had a result")
        return task.result()

    def failure(self) -> BaseException | None:
        """What it failed with, now that it has ended."""
        task, self._task = self._task, None
        return asyncio.CancelledError() if task is None or task.cancelled() else task.exception()


def run(coro: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the engine and wait for its result, whatever loop the calling thread may be running.

    Context variables are those of the caller. Ctrl-C, or any exception raised into the waiting thread, cancels the
    coroutine and is passed on. Raises `RuntimeError` on the engine's own thread, where waiting would never end.
    """
    engine = current_engine()
    try:
        check_not_on_engine()
    except RuntimeError:
        coro.close()
        raise
    ended = threading.Lock()
    ended.acquire()
    call = _Call(engine, coro, ended.release)
    try:
        call.start()
        ended.acquire()
    except BaseException:
        call.cancel()  # no orphan request keeps running
        raise
    return call.result()


async def wrap(coro: Coroutine[Any, Any, T], *, given_up: Callable[[], None] | None = None) -> T:
    """Run a coroutine on the engine and await its result from a coroutine on any loop.

    Cancelling the caller cancels the coroutine. On the engine's own loop it is simply awaited.

    given_up  called on the engine before the coroutine is cancelled, which may not have begun; a caller that is
              cancelled comes back only when that has ended
    """
    engine, loop = current_engine(), asyncio.get_running_loop()
    if loop is engine.loop:
        return await coro
    ended: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        with suppress(RuntimeError):  # the caller's loop has been closed: nobody waits any more
            loop.call_soon_threadsafe(set_done, ended)

    call = _Call(engine, coro, tell)
    call.start()
    try:
        await (ended if given_up is None else asyncio.shield(ended))
    except BaseException as error:
        call.cancel(given_up)
        if given_up is not None and isinstance(error, asyncio.CancelledError):
            await asyncio.wait({ended})
        raise
    return call.result()


def check_not_on_engine() -> None:
    """Raise `RuntimeError` on the engine's own thread, where waiting for what the engine does would never end."""
    if on_engine_thread():
        raise RuntimeError(
            "this is the synchronous API, called from the engine's own thread (inside an async callback); "
            "await the asynchronous API there instead"
        )


def begin(coro: Coroutine[Any, Any, Any], ended: Callable[[BaseException | None], None]) -> Callable[[], None]:
    """Run a coroutine on the engine; nobody waits for it.

    ended  called on the engine's thread when it has ended, with what it failed with

    Gives what cancels it, from any thread. Raises `RuntimeError` where the engine is shutting down.
    """
    call: _Call[Any] = _Call(current_engine(), coro, lambda: ended(call.failure()))
    call.start()
    return call.cancel


async def to_the_end(work: Awaitable[T]) -> T:
    """Run something to its end, even if who waits for it is cancelled, again and again: it is told afterwards."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                continue  # told again; the outcome is what they need to wait for
        if not task.cancelled():
            task.exception()  # it has been looked at
        raise


def set_done(future: asyncio.Future[None], *_: object) -> None:
    """Wake who awaits the future, if that is still to be done; a callback, whatever it is called with."""
    if not future.done():
        future.set_result(None)


async def wait_until_done(future: Future[Any]) -> None:
    """Return when a future of another thread or loop is done, with whatever result or error: the caller looks at that.

    Cancelling this leaves the future alone, and an error that it ends with later is nobody's unseen one.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    future.add_done_callback(partial(_wake, loop, done))
    await done


def _wake(loop: asyncio.AbstractEventLoop, done: asyncio.Future[None], _: Future[Any]) -> None:
    with suppress(RuntimeError):  # the loop has been closed: nobody waits there any more
        loop.call_soon_threadsafe(set_done, done)
