"""Work on the engine that pulls its input from the caller: rows to be written come from the caller's own iterator.

User code runs where it was called from, never on the engine: a synchronous iterator is advanced in the calling
thread, an asynchronous one on the calling loop. The engine asks for one item at a time, so no more than one waits.
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
    """The caller's items, on the engine: an async iterator for one consumer.

    Also what the caller's side serves: it waits for `wished`, gives an item, and lets the engine go on.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.wished: asyncio.Future[None] = self._loop.create_future()
        self._given: asyncio.Future[Any] | None = None
        self._ended = False

    def __aiter__(self) -> Feed[T]:
        return self

    async def __anext__(self) -> T:
        if self._ended:
            raise StopAsyncIteration
        self._given = self._loop.create_future()
        if not self.wished.done():  # a consumer that was cancelled may ask again
            self.wished.set_result(None)
        item = await self._given
        if item is _END:
            self._ended = True
            raise StopAsyncIteration
        result: T = item
        return result

    def give(self, item: Any) -> None:
        """The item that was wished for."""
        self.wished = self._loop.create_future()
        if self._given is not None and not self._given.done():
            self._given.set_result(item)


class _Work(Generic[T, R]):
    """A coroutine on the engine as an async generator of wishes; its result is left in `result`."""

    def __init__(self, make: Callable[[AsyncIterator[T]], Coroutine[Any, Any, R]]) -> None:
        self._make = make
        self.item: Any = _END  # set by the caller before it lets the generator go on
        self.result: Any = _NO_RESULT
        self.over: Future[None] | None = None  # until the coroutine has ended, once it has begun

    async def wishes(self) -> AsyncGenerator[None, None]:
        self.over = Future()
        feed: Feed[T] = Feed()
        work = asyncio.ensure_future(self._make(feed))
        try:
            while True:
                await asyncio.wait((work, feed.wished), return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    self.result = work.result()
                    return
                yield
                item, self.item = self.item, _END
                feed.give(item)
        finally:
            work.cancel()
            while not work.done():
                with suppress(asyncio.CancelledError):  # again, as when the loop ends: others wait for `over`
                    await asyncio.wait((work,))
            self.over.set_result(None)


def run_fed(items: Iterator[T], make: Callable[[AsyncIterator[T]], Coroutine[Any, Any, R]]) -> R:
    """Run `make(feed)` on the engine and wait for its result; `feed` gives what `items` gives in this thread.

    An error of `items`, or Ctrl-C, cancels the coroutine, waits for it to end and is passed on.
    """
    work = _Work(make)
    with iterate(work.wishes, ahead=0) as wishes:
        for _ in wishes:
            work.item = next(items, _END)
    result: R = work.result
    return result


async def wrap_fed(items: AsyncIterator[T], make: Callable[[AsyncIterator[T]], Coroutine[Any, Any, R]]) -> R:
    """`run_fed` from a coroutine on any loop, where `items` is advanced."""
    work = _Work(make)
    wishes = stream(work.wishes, ahead=0)
    try:
        async for _ in wishes:
            work.item = await anext(items, _END)
    finally:
        await wishes.aclose()
        if work.over is not None:  # what it holds has to be released before the caller goes on
            await asyncio.wrap_future(work.over)
    result: R = work.result
    return result
