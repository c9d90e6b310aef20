"""Runs an async generator on the engine for a consumer in plain code (`iterate`) or on any loop (`stream`).

A pump on the engine runs the generator and posts its items to the consumer, which requests one at a time. That bounds
how far the generator runs ahead (backpressure), with one crossing of threads per item.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import queue
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from lance_io.errors import ForkedRuntimeError, UsageError
from lance_io.runtime.calls import set_done
from lance_io.runtime.engine import current_engine, engine_loop, on_engine_thread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

T = TypeVar("T")

STREAM_CLOSE_SECONDS_MAX: Final = 5.0  # `close` of an iterator may run in a garbage collection, so its wait is bounded


class _End:
    """The last message of a pump: its source is exhausted or failed."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException | None) -> None:
        self.error = error

    def raise_stop(self, stop: type[Exception]) -> None:
        error, self.error = self.error, None
        try:
            raise stop if error is None else error
        finally:
            del error


_END: Final = object()


class _Pump(Generic[T]):
    """Runs an async generator on the engine, at most `ahead` finished items ahead of the consumer's requests."""

    def __init__(
        self,
        make: Callable[[], AsyncIterator[T]],
        ahead: int,
        post: Callable[[Any], None],
        has_room: Callable[[], bool],
    ) -> None:
        if ahead < 0:
            raise UsageError(f"ahead must not be negative, got {ahead}")
        self._engine = current_engine()
        self._make = make
        self._post = post  # called on the engine's thread with each item, finally with an _End
        self._context = contextvars.copy_context()
        self._ahead = ahead
        self._has_room = has_room
        self._allowed = ahead  # items that may still be produced
        self._more: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self.pid = os.getpid()
        self.ended = threading.Event()

    def ask(self) -> None:
        """Allow one more item; the first call starts the source. From any thread."""
        if self.pid != os.getpid():
            raise ForkedRuntimeError(
                "this iterator was started before os.fork and cannot go on in the child; start a new one there"
            )
        self._engine.loop.call_soon_threadsafe(self._allow)

    def stop(self) -> None:
        """Cancel the source; `ended` is set once it has closed. From any thread, any number of times."""
        if self.pid == os.getpid():
            with suppress(RuntimeError):  # the loop is closed, and with it the source
                self._engine.loop.call_soon_threadsafe(self._stop)

    def wait_closed(self) -> None:
        """Wait until the source has closed, unless this is the thread that must close it."""
        if self.pid == os.getpid() and not self._engine.is_current and not self._engine.closing:
            self.ended.wait(STREAM_CLOSE_SECONDS_MAX)

    def _allow(self) -> None:
        self._allowed += 1
        if self._more is not None:
            set_done(self._more)
        if self._task is None and not self.ended.is_set():
            self._task = self._engine.loop.create_task(self._work(), context=self._context)
            self._task.add_done_callback(self._finish)

    def _stop(self) -> None:
        if self._task is None:
            self.ended.set()  # never started
        else:
            self._task.cancel()

    async def _work(self) -> None:
        source = self._make()
        try:
            while True:
                while self._allowed <= (0 if self._has_room() else self._ahead):
                    self._more = self._engine.loop.create_future()
                    await self._more
                item = await anext(source, _END)
                if item is _END:
                    return
                self._allowed -= 1
                self._post(item)
                del item
        finally:
            await _aclose(source)

    def _finish(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            error: BaseException | None = RuntimeError("this stream was closed, or the lance_io engine shut down")
        else:
            error = task.exception()
        self.ended.set()
        self._post(_End(error))


def _always() -> bool:
    return True


def iterate(
    make: Callable[[], AsyncIterator[T]], ahead: int = 1, has_room: Callable[[], bool] = _always
) -> EngineIterator[T]:
    """Iterate in plain code over an async generator that runs on the engine.

    make      returns the async generator; called on the engine at the first request
    ahead     number of finished items that may wait while the caller processes one; 0 produces each on request
    has_room  called on the engine before it produces an item ahead of a request
    """
    return EngineIterator(make, ahead, has_room)


async def _aclose(source: object) -> None:
    """Close an async generator; other async iterators need no closing."""
    aclose = getattr(source, "aclose", None)
    if aclose is not None:
        await aclose()


class EngineIterator(Generic[T]):
    """The result of `iterate`.

    `close` (or leaving a `with` block) closes the generator and waits for that; dropping the iterator closes it without
    waiting. An error of the source is raised in place of its item. Raises `ForkedRuntimeError` in a child forked after
    the iteration began.
    """

    def __init__(self, make: Callable[[], AsyncIterator[T]], ahead: int, has_room: Callable[[], bool]) -> None:
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._pump: _Pump[T] | None = _Pump(make, ahead, self._items.put, has_room)

    def __iter__(self) -> EngineIterator[T]:
        return self

    def __next__(self) -> T:
        pump = self._pump
        if pump is None:
            raise StopIteration
        if on_engine_thread():
            raise RuntimeError("a synchronous iterator cannot be advanced on the engine's own thread; use `async for`")
        try:
            pump.ask()
            item = self._items.get()
        except BaseException:
            self._drop()
            raise
        if isinstance(item, _End):
            self._pump = None
            item.raise_stop(StopIteration)
        result: T = item
        return result

    def stop(self) -> None:
        """End the iteration, from any thread: a caller that waits for an item gets a `RuntimeError`."""
        pump = self._pump
        if pump is not None:
            pump.stop()
            self._items.put(_End(RuntimeError("this stream was stopped")))

    def close(self) -> None:
        """Close the source and wait until it has closed. Idempotent."""
        pump = self._pump
        self._drop()
        if pump is not None:
            pump.wait_closed()

    def _drop(self) -> None:
        pump, self._pump = self._pump, None
        if pump is not None:
            pump.stop()

    def __enter__(self) -> EngineIterator[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_pump"):
            self._drop()


async def stream(
    make: Callable[[], AsyncIterator[T]], ahead: int = 1, has_room: Callable[[], bool] = _always
) -> AsyncGenerator[T, None]:
    """Iterate on any loop over an async generator that runs on the engine; parameters as for `iterate`.

    Closing the result (or cancelling its consumer) closes the source. On the engine's own loop the source is iterated
    directly, without running ahead.
    """
    loop = asyncio.get_running_loop()
    if loop is engine_loop():
        source = make()
        try:
            async for item in source:
                yield item
        finally:
            await _aclose(source)
        return
    inbox = _Inbox(loop)
    pump = _Pump(make, ahead, inbox.post, has_room)
    try:
        while True:
            pump.ask()
            item = await inbox.take()
            if isinstance(item, _End):
                item.raise_stop(StopAsyncIteration)
            yield item
            del item
    except StopAsyncIteration:
        return
    finally:
        pump.stop()


class _Inbox:
    """Messages from the engine's thread to one consumer on another loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._messages: deque[Any] = deque()
        self._arrived: asyncio.Future[None] | None = None

    def post(self, message: Any) -> None:
        """Called from the engine's thread."""
        self._messages.append(message)
        with suppress(RuntimeError):  # the consumer's loop has been closed
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._arrived is not None:
            set_done(self._arrived)

    async def take(self) -> Any:
        """The next message, on the consumer's loop."""
        while not self._messages:
            self._arrived = self._loop.create_future()
            await self._arrived
        return self._messages.popleft()
