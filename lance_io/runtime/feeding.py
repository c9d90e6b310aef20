"""Runs work on the engine that pulls its input, such as rows to write, from an iterator of the caller.

User code runs on the caller's side, never on the engine: a synchronous iterator is advanced in the calling thread, an
asynchronous one on the calling loop. The engine requests one item at a time, so that at most one item waits.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from lance_io.runtime.streams import iterate, stream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator

T = TypeVar("T")
R = TypeVar("R")

_END: Final = object()
_NO_RESULT: Final = object()


class Feed(Generic[T]):
    """The caller's items on the engine: an async iterator for one consumer.

    The caller's side waits for `requested`, and passes an item by `put`.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.requested: asyncio.Future[None] = self._loop.create_future()
        self._item: asyncio.Future[Any] | None = None
        self._ended = False

    def __aiter__(self) -> Feed[T]:
        return self

    async def __anext__(self) -> T:
        if self._ended:
            raise StopAsyncIteration
        self._item = self._loop.create_future()
        if not self.requested.done():  # a consumer that was cancelled may ask again
            self.requested.set_result(None)
        item = await self._item
        if item is _END:
            self._ended = True
            raise StopAsyncIteration
        result: T = item
        return result

    def put(self, item: Any) -> None:
        """Pass the requested item to the consumer."""
        self.requested = self._loop.create_future()
        if self._item is not None and not self._item.done():
            self._item.set_result(item)


class _Work(Generic[T, R]):
    """A coroutine on the engine as an async generator of requests for items; stores its result in `result`."""

    def __init__(self, make: Callable[[AsyncIterator[T]], Coroutine[Any, Any, R]]) -> None:
        self._make = make
        self.item: Any = _END  # set by the caller before it resumes the generator
        self.result: Any = _NO_RESULT
        self.ended: Future[None] | None = None  # done when the coroutine has ended; None before its start

    async def requests(self) -> AsyncGenerator[None, None]:
        self.ended = Future()
        feed: Feed[T] = Feed()
        work = asyncio.ensure_future(self._make(feed))
        try:
            while True:
                await asyncio.wait((work, feed.requested), return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    self.result = work.result()
                    return
                yield
                item, self.item = self.item, _END
                feed.put(item)
        finally:
            work.cancel()
            while not work.done():
                with suppress(asyncio.CancelledError):  # cancelled again, as when the loop ends: `wrap_fed` waits
                    await asyncio.wait((work,))
            self.ended.set_result(None)


def run_fed(items: Iterator[T], make: Callable[[AsyncIterator[T]], Coroutine[Any, Any, R]]) -> R:
    """Run `make(feed)` on the engine and wait for its result; `feed` iterates over `items` in this thread.

    An error of `items`, or Ctrl-C, cancels the coroutine, waits for its end and is raised.
    """
    work = _Work(make)
    with iterate(work.requests, ahead=0) as requests:
        for _ in requests:
            work.item = next(items, _END)
    result: R = work.result
    return result


async def wrap_fed(items: AsyncIterator[T], make: Callable[[AsyncIterator[T]], Coroutine[Any, Any, R]]) -> R:
    """`run_fed` from a coroutine on any loop, where `items` is advanced."""
    work = _Work(make)
    requests = stream(work.requests, ahead=0)
    try:
        async for _ in requests:
            work.item = await anext(items, _END)
    finally:
        await requests.aclose()
        if work.ended is not None:  # it must release its resources before the caller goes on
            await asyncio.wrap_future(work.ended)
    result: R = work.result
    return result
