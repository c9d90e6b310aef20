"""Streams, which are plans that yield items while they run, and the two drivers that iterate over them.

A stream yields requests as a plan does, and `Items`. It opens its sources by requests: `Open` is answered by an
iterator (asynchronous on a loop), `Next` by an item of it; `Start` runs a plan in the background (`beside.py`). Ending
the iteration early closes all of these.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import aclosing, closing
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, TypeVar

from lance_io.errors import ForkedRuntimeError, UsageError
from lance_io.plans.beside import Finish, Start
from lance_io.plans.plan import check_stopped, drive_async, drive_sync, this_thread
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from types import FrameType

    from lance_io.plans.plan import Plan

P = ParamSpec("P")
T = TypeVar("T")
_condition_lock = threading.Lock()  # guards the creation of conditions


def _start_over() -> None:
    global _condition_lock
    _condition_lock = threading.Lock()


os.register_at_fork(after_in_child=_start_over)


@dataclass(slots=True, eq=False, repr=False)
class Items:
    """Some items of a stream, taken lazily from an iterable."""

    values: Iterable[Any]


Stream: TypeAlias = Generator[Any, Any, None]
"""A computation that yields requests and is sent their answers, and also yields `Items`."""


@dataclass(frozen=True, slots=True, eq=False)
class Open:
    """Open an iterator to read from: a generator without a loop, an asynchronous generator on one."""

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
    """The next item of an opened iterator; None at its end."""

    items: Any

    def answer_sync(self) -> Any:
        """See `Request`."""
        return next(self.items, None)

    async def answer_async(self) -> Any:
        """See `Request`."""
        return await anext(self.items, None)


@dataclass(frozen=True, slots=True, eq=False)
class Close:
    """Close an opened iterator."""

    items: Any

    def answer_sync(self) -> None:
        """See `Request`."""
        self.items.close()

    async def answer_async(self) -> None:
        """See `Request`."""
        await self.items.aclose()


@dataclass(frozen=True, slots=True, eq=False)
class Each:
    """Call a function with each item of a stream."""

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
    """Run a plan for each item of a stream, before the next item is produced."""

    stream: Stream
    plan_of: Callable[[Any], Plan[None]]

    def answer_sync(self) -> None:
        """See `Request`."""
        with closing(iterate_sync(self.stream)) as items:
            for item in items:
                plan = self.plan_of(item)
                del item  # free it before the next is produced
                drive_sync(plan)

    async def answer_async(self) -> None:
        """See `Request`."""
        async with aclosing(iterate_async(self.stream)) as items:
            async for item in items:
                plan = self.plan_of(item)
                del item
                await drive_async(plan)


_OWNING: Final = frozenset({Open, Close, Start, Finish})


def _note(opened: dict[int, Any], request: Any, answer: Any) -> None:
    """Record the objects that a stream must close at its end, by identity."""
    kind = type(request)
    if kind is Open or kind is Start:
        opened[id(answer)] = answer
    else:
        opened.pop(id(request.items if kind is Close else request.started), None)


def iterate_sync(stream: Stream) -> Generator[Any, None, None]:
    """The items of a stream, produced lazily in this thread."""
    opened: dict[int, Any] = {}
    try:
        request = next(stream)
        while True:
            if type(request) is Items:
                values, request = request.values, None
                yield from values
                del values  # free them before the next are produced
                request = next(stream)
                continue
            if this_thread.stop is not None:
                check_stopped()
            try:
                answer = request.answer_sync()
            except Exception as error:
                request = stream.throw(error)
                continue
            if type(request) in _OWNING:
                _note(opened, request, answer)
            request = stream.send(answer)
            answer = None  # free the data before the next read
    except StopIteration:
        return
    finally:
        stream.close()
        for items in reversed([*opened.values()]):  # later ones may read from earlier ones
            items.close()


async def iterate_async(stream: Stream) -> AsyncGenerator[Any, None]:
    """The items of a stream, produced lazily on the running loop."""
    opened: dict[int, Any] = {}
    try:
        request = next(stream)
        while True:
            if type(request) is Items:
                values, request = request.values, None
                for item in values:
                    yield item
                    del item
                del values
                request = next(stream)
                continue
            try:
                answer = await request.answer_async()
            except Exception as error:
                request = stream.throw(error)
                continue
            if type(request) in _OWNING:
                _note(opened, request, answer)
            request = stream.send(answer)
            answer = None
    except StopIteration:
        return
    finally:
        stream.close()
        for items in reversed([*opened.values()]):
            await items.aclose()


# -- shared iterators ------------------------------------------------------------------------------------------------


class _Failure:
    """The error that ended shared items.

    caller  the thread or task that got the error
    """

    __slots__ = ("_caller", "_text")

    def __init__(self, error: BaseException, caller: object) -> None:
        text = str(error)
        self._text = type(error).__name__ + (f": {text}" if text else "")
        self._caller = weakref.ref(caller)

    def check(self, caller: object) -> None:
        """Raise `UsageError` for any other caller."""
        if self._caller() is not caller:
            raise UsageError(f"these items ended early, by an error in another call; iterate again: {self._text}")


class SharedItems(Generator[T, None, None]):
    """A generator that threads can share: while one thread uses it, others wait, also in `close`.

    Raises `UsageError` after an error that another thread got, and `ForkedRuntimeError` in a child that was forked
    while a thread took an item.
    """

    __slots__ = ("__weakref__", "_failed", "_freed", "_items", "_next", "_num_waiting", "_pid")

    def __init__(self, items: Iterator[T]) -> None:
        self._failed: list[_Failure] = []  # at most one
        self._items: Any = _record_failure(items, self._failed)
        self._next: Callable[[], T] = self._items.__next__
        self._freed: threading.Condition | None = None  # notified when the generator is free; for waiting threads
        self._num_waiting = 0
        self._pid = os.getpid()

    def __next__(self) -> T:
        # No lock is taken: the generator itself refuses a second caller, and a lock costs half of a small batch.
        try:
            return self._next()
        except StopIteration:
            self._check_complete()
            raise
        except ValueError as error:
            if not _is_busy(error):
                raise
            item: T = self._call_when_free(self._next)
            return item
        finally:
            if self._num_waiting:
                self._wake()

    def _call_when_free(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call a method of the generator as soon as no other thread uses it."""
        if self._items.gi_running and self._pid != os.getpid():
            raise ForkedRuntimeError(
                "a thread of the parent was taking an item of this iterator at os.fork; start a new one in the child"
            )
        with _condition_lock:
            freed = self._freed = self._freed or threading.Condition()
        while True:
            if _is_running_here(self._items.gi_frame):
                return call(*args)  # refused: this thread cannot wait for itself
            with freed:
                self._num_waiting += 1  # before the check, so that a thread that leaves the generator later notifies us
                try:
                    while self._items.gi_running:
                        freed.wait()
                finally:
                    self._num_waiting -= 1
            try:
                return call(*args)
            except StopIteration:
                self._check_complete()
                raise
            except ValueError as error:
                if not _is_busy(error):
                    raise

    def _wake(self) -> None:
        freed = self._freed
        if freed is not None:
            with freed:
                freed.notify()

    def _check_complete(self) -> None:
        if self._failed:
            self._failed[0].check(threading.current_thread())

    def send(self, value: Any) -> T:
        """The next item; `value` must be None."""
        if value is not None:
            raise TypeError("these items take no values")
        return next(self)

    def throw(self, *error: Any) -> T:
        """Raise an error inside the generator."""
        try:
            item: T = self._call_when_free(self._items.throw, *error)
            return item
        finally:
            if self._num_waiting:
                self._wake()

    def close(self) -> None:
        """Close the generator."""
        try:
            self._call_when_free(self._items.close)
        finally:
            if self._num_waiting:
                self._wake()


def _record_failure(items: Iterator[T], failed: list[_Failure]) -> Generator[T, None, None]:
    """The items; records an error before another thread can use the generator."""
    try:
        yield from items
    except GeneratorExit:
        raise
    except BaseException as error:
        failed.append(_Failure(error, threading.current_thread()))
        raise


def _is_running_here(frame: FrameType | None) -> bool:
    """Whether a frame is on the stack of this thread."""
    current: FrameType | None = sys._getframe()
    while current is not None and current is not frame:
        current = current.f_back
    return current is not None


def _is_busy(error: ValueError) -> bool:
    """Whether a generator refused a call because it is running: then no frame of its own raised the error."""
    trace = error.__traceback__
    return type(error) is ValueError and trace is not None and trace.tb_next is None


class SharedAsyncItems(AsyncGenerator[T, None]):
    """An asynchronous generator that tasks of one event loop can share; items go out in the order of the calls.

    Raises `UsageError` after an error or cancellation in another task, and on another loop.
    """

    __slots__ = ("__weakref__", "_failed", "_items", "_lock", "_loop")

    def __init__(self, items: AsyncIterator[T]) -> None:
        self._items: Any = items
        self._failed: _Failure | None = None
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __anext__(self) -> T:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                raise UsageError("these items are given on another event loop; start a new iteration on this one")
            self._loop = loop
        async with self._lock:
            if self._failed is not None:
                self._failed.check(asyncio.current_task())
            try:
                item: T = await anext(self._items)
                return item
            except StopAsyncIteration:
                raise
            except BaseException as error:
                self._failed = _Failure(error, asyncio.current_task())
                raise

    async def asend(self, value: Any) -> T:
        """The next item; `value` must be None."""
        if value is not None:
            raise TypeError("these items take no values")
        return await anext(self)

    async def athrow(self, *error: Any) -> T:
        """Raise an error inside the generator."""
        async with self._lock:
            item: T = await self._items.athrow(*error)
            return item

    async def aclose(self) -> None:
        """Close the generator."""
        async with self._lock:
            await self._items.aclose()


def shared(make: Callable[P, Iterator[T]]) -> Callable[P, SharedItems[T]]:
    """Wrap a generator function so that threads can share its generators."""

    @wraps(make)
    def begin(*args: P.args, **options: P.kwargs) -> SharedItems[T]:
        return SharedItems(make(*args, **options))

    return begin


def shared_async(make: Callable[P, AsyncIterator[T]]) -> Callable[P, SharedAsyncItems[T]]:
    """Wrap an asynchronous generator function so that tasks can share its generators."""

    @wraps(make)
    def begin(*args: P.args, **options: P.kwargs) -> SharedAsyncItems[T]:
        return SharedAsyncItems(make(*args, **options))

    return begin
