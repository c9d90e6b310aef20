"""Runs one coroutine on the engine: from plain code (`run`), from any loop (`wrap`), in the background (`begin`)."""

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
    """A coroutine that runs on the engine; `notify` is called on the engine's thread at its end."""

    def __init__(self, engine: Engine, coro: Coroutine[Any, Any, T], notify: Callable[[], None]) -> None:
        self._engine = engine
        self._coro: Coroutine[Any, Any, T] | None = coro
        self._notify = notify
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[T] | None = None
        self._cancelled = False

    def start(self) -> None:
        """Submit it to the engine. If an exception interrupts this, the caller must cancel."""
        try:
            if self._engine.closing:
                raise RuntimeError("the interpreter is shutting down, and the lance_io engine with it")
            self._engine.loop.call_soon_threadsafe(self._start)
        except RuntimeError:  # also if the loop was closed from outside
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
        """Cancel from any thread; no effect after its end.

        before  called on the engine first
        """

        def cancel_here() -> None:
            if before is not None:
                before()
            self._cancelled = True
            if self._task is not None:
                self._task.cancel()

        with suppress(RuntimeError):  # the loop is closed, so the call has ended
            self._engine.loop.call_soon_threadsafe(cancel_here)

    def result(self) -> T:
        """The result, or the error with its traceback on the engine."""
        task, self._task = self._task, None  # a raised error must not refer to the task that holds the error
        assert task is not None
        if task.cancelled():  # not by the caller: a cancelled caller does not get here
            raise RuntimeError("the lance_io engine shut down, or cancelled this call, before it had a result")
        return task.result()

    def failure(self) -> BaseException | None:
        """Its error, None if it succeeded. Call it after the end."""
        task, self._task = self._task, None
        return asyncio.CancelledError() if task is None or task.cancelled() else task.exception()


def run(coro: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the engine and wait for its result, also in a thread that runs another loop.

    Context variables are those of the caller. Ctrl-C, or any exception raised into the waiting thread, cancels the
    coroutine and is raised. Raises `RuntimeError` on the engine's own thread, where waiting would deadlock.
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
        call.cancel()  # leave no orphan request running
        raise
    return call.result()


async def wrap(coro: Coroutine[Any, Any, T], *, given_up: Callable[[], None] | None = None) -> T:
    """Run a coroutine on the engine and await its result from a coroutine on any loop.

    Cancelling the caller cancels the coroutine. On the engine's own loop the coroutine is awaited directly.

    given_up  called on the engine before the coroutine is cancelled, which may not have started. If given, a cancelled
              caller returns only after the coroutine has ended
    """
    engine, loop = current_engine(), asyncio.get_running_loop()
    if loop is engine.loop:
        return await coro
    ended: asyncio.Future[None] = loop.create_future()

    def notify() -> None:
        with suppress(RuntimeError):  # the caller's loop has been closed
            loop.call_soon_threadsafe(set_done, ended)

    call = _Call(engine, coro, notify)
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
    """Raise `RuntimeError` on the engine's own thread, where waiting for the engine would deadlock."""
    if on_engine_thread():
        raise RuntimeError(
            "this is the synchronous API, called from the engine's own thread (inside an async callback); "
            "await the asynchronous API there instead"
        )


def begin(coro: Coroutine[Any, Any, Any], ended: Callable[[BaseException | None], None]) -> Callable[[], None]:
    """Run a coroutine on the engine in the background.

    ended  called on the engine's thread at its end, with its error or None

    Returns a function that cancels it, from any thread. Raises `RuntimeError` if the engine is shutting down.
    """
    call: _Call[Any] = _Call(current_engine(), coro, lambda: ended(call.failure()))
    call.start()
    return call.cancel


async def to_the_end(work: Awaitable[T]) -> T:
    """Run `work` to its end, even if the caller is cancelled repeatedly; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                continue  # cancelled again: still wait for the end
        if not task.cancelled():
            task.exception()  # mark it as retrieved
        raise


def set_done(future: asyncio.Future[None], *_: object) -> None:
    """Set a future done unless it is; a callback that ignores its other arguments."""
    if not future.done():
        future.set_result(None)


async def wait_until_done(future: Future[Any]) -> None:
    """Wait until a future of another thread or loop is done. The caller looks at its result or error.

    Cancelling this does not cancel the future, and causes no warning about an error that was never retrieved.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    future.add_done_callback(partial(_wake, loop, done))
    await done


def _wake(loop: asyncio.AbstractEventLoop, done: asyncio.Future[None], _: Future[Any]) -> None:
    with suppress(RuntimeError):  # the loop has been closed
        loop.call_soon_threadsafe(set_done, done)
