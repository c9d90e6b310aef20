"""Plans that give items while they run, and the two drivers that iterate over them.

A stream yields requests as a plan does, and `Items`. What it reads from, it asks for: `Open` is answered by an iterator
(asynchronous on a loop), `Next` by an item of that. Whoever ends the iteration early closes what was opened.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from lance_io.plans.plan import check_stopped, drive_async, drive_sync
from lance_io.records import dataclass

if TYPE_CHECKING:
    from lance_io.plans.plan import Plan

T = TypeVar("T")


class Items:
    """Some items that a stream gives, taken from an iterable as they are asked for."""

    __slots__ = ("values",)

    def __init__(self, values: Iterable[Any]) -> None:
        self.values = values


Stream: TypeAlias = Generator[Any, Any, None]
"""A computation that yields requests, and is sent their answers, and `Items`."""


@dataclass(frozen=True, slots=True, eq=False)
class Open:
    """An iterator to read from: a generator without a loop, an asynchronous one with it."""

    make_sync: Callable[[], Generator[Any, None, None]]
    make_async: Callable[[], AsyncGenerator[Any, None]]

    def answer_sync(self) -> Generator[Any, None, None]:
        """See `Request`."""
        return self.make_sync()

    async def answer_async(self) -> AsyncGenerator[Any, None]:
        """See `Request`."""
        return self.make_async()


@dataclass(frozen=True, slots=True, eq=False)
class Next:
    """The next item of what was opened; None at its end."""

    items: Any

    def answer_sync(self) -> Any:
        """See `Request`."""
        return next(self.items, None)

    async def answer_async(self) -> Any:
        """See `Request`."""
        return await anext(self.items, None)


@dataclass(frozen=True, slots=True, eq=False)
class Close:
    """No more is wanted of what was opened."""

    items: Any

    def answer_sync(self) -> None:
        """See `Request`."""
        self.items.close()

    async def answer_async(self) -> None:
        """See `Request`."""
        await self.items.aclose()


@dataclass(frozen=True, slots=True, eq=False)
class Each:
    """All items of a stream, each given to a function as it comes."""

    stream: Stream
    take: Callable[[Any], object]

    def answer_sync(self) -> None:
        """See `Request`."""
        for item in iterate_sync(self.stream):
            self.take(item)

    async def answer_async(self) -> None:
        """See `Request`."""
        async for item in iterate_async(self.stream):
            self.take(item)


@dataclass(frozen=True, slots=True, eq=False)
class EachInPlan:
    """All items of a stream, of each of which a plan is made and run before the next one is asked for."""

    stream: Stream
    plan_of: Callable[[Any], Plan[None]]

    def answer_sync(self) -> None:
        """See `Request`."""
        with closing(iterate_sync(self.stream)) as items:
            for item in items:
                drive_sync(self.plan_of(item))

    async def answer_async(self) -> None:
        """See `Request`."""
        async with aclosing(iterate_async(self.stream)) as items:
            async for item in items:
                await drive_async(self.plan_of(item))


def iterate_sync(stream: Stream) -> Generator[Any, None, None]:
    """The items of a stream, made in this thread as they are asked for."""
    opened = []
    try:
        request = next(stream)
        while True:
            if type(request) is Items:
                yield from request.values
                request = next(stream)
                continue
            check_stopped()
            try:
                answer = request.answer_sync()
            except Exception as error:
                request = stream.throw(error)
                continue
            if type(request) is Open:
                opened.append(answer)
            request = stream.send(answer)
            answer = None  # what was read is not held while the next is
    except StopIteration:
        return
    finally:
        stream.close()
        for items in opened:
            items.close()


async def iterate_async(stream: Stream) -> AsyncGenerator[Any, None]:
    """The items of a stream, made on the running loop as they are asked for."""
    opened = []
    try:
        request = next(stream)
        while True:
            if type(request) is Items:
                for item in request.values:
                    yield item
                request = next(stream)
                continue
            try:
                answer = await request.answer_async()
            except Exception as error:
                request = stream.throw(error)
                continue
            if type(request) is Open:
                opened.append(answer)
            request = stream.send(answer)
            answer = None
    except StopIteration:
        return
    finally:
        stream.close()
        for items in opened:
            await items.aclose()
