"""Plans, the two drivers that run them, and requests that combine plans.

A `Plan` is a generator that yields requests and is sent their answers; errors of a request are raised at its `yield`.
A request can be answered in the caller's thread (`answer_sync`: memory and local disk, so that a local commit never
crosses to the engine thread) and on an event loop (`answer_async`: any store).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, cast

from lance_io.gil import start_yielding, yield_gil
from lance_io.records import dataclass
from lance_io.runtime import begin_driving, cpu_pool, driven_in_thread, load_modules, to_the_end, wait_until_done

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator
    from concurrent.futures import Executor

T = TypeVar("T")
R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)


class Request(Protocol[T_co]):
    """A request of a plan."""

    def answer_sync(self) -> T_co:
        """Answer in this thread, without a loop."""

    async def answer_async(self) -> T_co:
        """Answer on the running loop."""


Plan: TypeAlias = Generator[Request[Any], Any, T]
"""A computation that yields requests and is sent their answers."""


def drive_sync(plan: Generator[Any, Any, T], answer: Callable[[Any], Any] | None = None) -> T:
    """Run a plan in this thread.

    answer  answers its requests; None to call their `answer_sync`
    """
    try:
        request = next(plan)
        while True:
            if this_thread.stop is not None:
                this_thread.stop.check()
                yield_gil()
            try:
                result = request.answer_sync() if answer is None else answer(request)
            except Exception as error:
                request = plan.throw(error)
            else:
                request = plan.send(result)
                result = None  # free the data before the next read
    except StopIteration as done:
        return cast("T", done.value)
    finally:
        plan.close()


class Stopped(BaseException):
    """The task that waits for the work of this thread was cancelled."""


class _Stop:
    """A flag that stops the plans of one thread."""

    def __init__(self) -> None:
        self.is_asked = False
        self._woken = threading.Event()

    def ask(self) -> None:
        """Request the stop, from any thread, and wake the thread if it is in `wait`."""
        self.is_asked = True
        self._woken.set()

    def check(self) -> None:
        """Raise `Stopped` after `ask`."""
        if self.is_asked:
            raise Stopped

    def wait(self, seconds: float | None, future: Future[Any] | None = None) -> None:
        """Wait for a future, at most `seconds`. Raises `Stopped`."""
        woken = self._woken = threading.Event()  # a new event: the future of an earlier wait may set the old one
        if future is not None:
            future.add_done_callback(lambda _: woken.set())
        if not self.is_asked:  # `ask` sets the event last
            woken.wait(seconds)
        self.check()


class _ThisThread(threading.local):
    """stop: flag that stops the plans of this thread; None if they cannot be stopped."""

    stop: _Stop | None = None


this_thread = _ThisThread()


def check_stopped() -> None:
    """Raise `Stopped` if this thread should stop; else release the GIL for the loop beside it, if due.

    Does nothing if this thread cannot be stopped (`this_thread.stop` is None).
    """
    if this_thread.stop is not None:
        this_thread.stop.check()
        yield_gil()


@contextmanager
def stoppable(offer: Callable[[Callable[[], None]], object]) -> Iterator[None]:
    """Let the plans that this thread drives in the block be stopped, from any thread.

    offer  called with a function that stops them at their next request, which raises `Stopped`
    """
    before, stop = this_thread.stop, _Stop()
    this_thread.stop = stop
    offer(stop.ask)
    try:
        yield
    finally:
        this_thread.stop = before


async def drive_in_thread(work: Callable[[], T]) -> T:
    """Run `work`, which drives plans over synchronous stores, in a thread beside the running loop.

    Cancelling this stops the plans at their next request, and returns after they have ended, including roll-backs.
    """
    stop = _Stop()

    def stoppable() -> T:
        start_yielding()
        this_thread.stop = stop
        try:
            return work()
        finally:
            this_thread.stop = None

    under_way = driven_in_thread(stoppable)
    try:
        return await asyncio.shield(under_way)
    except asyncio.CancelledError:
        stop.ask()
        await to_the_end(_ended(under_way))
        raise


def begin_in_thread(work: Callable[[], object], ended: Callable[[BaseException | None], None]) -> Callable[[], None]:
    """Run `work`, which drives plans over synchronous stores, in a background thread.

    ended  called at its end, with its error or None

    Returns a function that stops the plans at their next request, from any thread.
    """
    stop = _Stop()

    def run() -> None:
        start_yielding()
        this_thread.stop = stop
        failure: BaseException | None = None
        try:
            work()
        except BaseException as error:
            failure = error
        finally:
            this_thread.stop = None
        ended(failure)

    begin_driving(run)
    return stop.ask


async def _ended(future: asyncio.Future[Any]) -> None:
    await asyncio.wait({future})
    if not future.cancelled():
        future.exception()  # mark it as retrieved


@contextmanager
def _to_the_end() -> Iterator[None]:
    """Let plans in the block run to their end, even if this thread should stop."""
    stop, this_thread.stop = this_thread.stop, None
    try:
        yield
    finally:
        this_thread.stop = stop


async def drive_async(plan: Generator[Any, Any, T], answer: Callable[[Any], Awaitable[Any]] | None = None) -> T:
    """Run a plan on the running loop.

    answer  as for `drive_sync`; after a `LargeAnswer` the plan continues in the CPU pool
    """
    try:
        request = next(plan)
        while True:
            try:
                result = await (request.answer_async() if answer is None else answer(request))
            except Exception as error:
                request = plan.throw(error)
                continue
            if type(result) is LargeAnswer:
                request = await in_pool(plan, result.answer)
                if type(request) is Finished:
                    return cast("T", request.value)
            else:
                request = plan.send(result)
            result = None
    except StopIteration as done:
        return cast("T", done.value)
    finally:
        with suppress(ValueError):  # the call was cancelled while the plan runs in the pool; it ends there by itself
            plan.close()


class LargeAnswer:
    """An answer that takes long to process, so that the plan continues in the CPU pool instead of on the loop."""

    __slots__ = ("answer",)

    def __init__(self, answer: Any) -> None:
        self.answer = answer


class Finished:
    """The result of a plan that another thread has continued.

    A future cannot hold `StopIteration`. Another exception would refer to the frames that it passed, one of which waits
    for the future that holds the exception: all data read and decoded there would stay in memory until the garbage
    collector finds the cycle.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def advance(plan: Generator[Any, Any, Any], answer: Any) -> Any:
    """`plan.send` for a pool thread: returns the next request, or the result as `Finished`."""
    try:
        return plan.send(answer)
    except StopIteration as done:
        return Finished(done.value)


async def in_pool(plan: Generator[Any, Any, Any], answer: Any) -> Any:
    """`advance` on the CPU pool."""
    return await asyncio.wrap_future(cpu_pool().submit(advance, plan, answer))


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for some seconds."""

    seconds: float

    def answer_sync(self) -> None:
        """See `Request`."""
        if this_thread.stop is None:
            time.sleep(self.seconds)
        else:
            this_thread.stop.wait(self.seconds)

    async def answer_async(self) -> None:
        """See `Request`."""
        await asyncio.sleep(self.seconds)


@dataclass(frozen=True, slots=True)
class Wait(Generic[T]):
    """The result of work in progress elsewhere. Cancelling the wait does not cancel the work.

    seconds  raises `TimeoutError` after this time; None for no bound
    """

    future: Future[T]
    seconds: float | None = None

    def answer_sync(self) -> T:
        """See `Request`."""
        if this_thread.stop is None:
            return self.future.result(self.seconds)
        this_thread.stop.wait(self.seconds, self.future)
        return self.future.result(0)

    async def answer_async(self) -> T:
        """See `Request`."""
        # Not `wait_for`: that of 3.11 swallows a cancellation that arrives together with the result.
        async with asyncio.timeout(self.seconds):
            await wait_until_done(self.future)
        return self.future.result()


@dataclass(frozen=True, slots=True)
class Import:
    """Modules that take long to import. On a loop a thread imports them; without a loop their first use does."""

    modules: tuple[str, ...]

    def answer_sync(self) -> None:
        """See `Request`."""

    async def answer_async(self) -> None:
        """See `Request`."""
        await load_modules(*self.modules)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A user's function that may block. All calls over the same `threads` of size 1 run in one thread."""

    function: Callable[[], T]
    threads: Executor

    def answer_sync(self) -> T:
        """See `Request`."""
        return self.function()

    async def answer_async(self) -> T:
        """See `Request`."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, self.function)


@dataclass(frozen=True, slots=True)
class Together(Generic[T]):
    """Independent plans: concurrent on a loop, else one after the other. The answers are in the order of the plans.

    A plan may `Wait` for the result of an earlier one.

    After a failure the other plans are cancelled. The failure is raised when all have ended, so that a clean-up meets
    no write in flight.
    """

    plans: Sequence[Plan[T]]

    def answer_sync(self) -> list[T]:
        """See `Request`."""
        answers = []
        for index, plan in enumerate(self.plans):
            try:
                answers.append(drive_sync(plan))
            except BaseException:
                for other in self.plans[index + 1 :]:
                    other.close()
                raise
        return answers

    async def answer_async(self) -> list[T]:
        """See `Request`."""
        if len(self.plans) == 1:
            return [await drive_async(self.plans[0])]
        tasks = [asyncio.ensure_future(drive_async(plan)) for plan in self.plans]
        try:
            return list(await asyncio.gather(*tasks))
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise


@dataclass(frozen=True, slots=True)
class Shielded(Generic[T]):
    """A plan that runs to its end even if its caller is cancelled; the cancellation is raised afterwards."""

    plan: Plan[T]

    def answer_sync(self) -> T:
        """See `Request`."""
        with _to_the_end():
            return drive_sync(self.plan)

    async def answer_async(self) -> T:
        """See `Request`."""
        return await to_the_end(drive_async(self.plan))


@dataclass(frozen=True, slots=True, eq=False)
class RollBackOnError(Generic[T]):
    """A plan with a roll-back, which runs to its end if the plan fails or is cancelled.

    roll_back  returns the plan of the roll-back, given the error, which is raised afterwards
    """

    plan: Plan[T]
    roll_back: Callable[[BaseException], Plan[None]]

    def answer_sync(self) -> T:
        """See `Request`."""
        try:
            return drive_sync(self.plan)
        except BaseException as error:
            with _to_the_end():
                drive_sync(self.roll_back(error))
            raise

    async def answer_async(self) -> T:
        """See `Request`."""
        try:
            return await drive_async(self.plan)
        except BaseException as error:
            await to_the_end(drive_async(self.roll_back(error)))
            raise


@dataclass(frozen=True, slots=True, eq=False)
class Invoke(Generic[T]):
    """A call of a function that is a coroutine function on a loop, and a plain function without one."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()

    def answer_sync(self) -> T:
        """See `Request`."""
        answer: T = self.function(*self.arguments)
        return answer

    async def answer_async(self) -> T:
        """See `Request`."""
        answer: T = await self.function(*self.arguments)
        return answer


def beside(first: Plan[T], rest: Callable[[Plan[T]], Plan[R]]) -> Plan[R]:
    """Run `first` concurrently with the plan that `rest` returns, given a plan that waits for the result of `first`.

    Returns the result of `rest`. Without a loop `first` runs before it.
    """
    result: Future[T] = Future()

    def run_first() -> Plan[None]:
        result.set_result((yield from first))

    plans: list[Plan[Any]] = [run_first(), rest(ask(Wait(result)))]
    _, answer = yield Together(plans)
    return cast("R", answer)


def ask(request: Request[T]) -> Plan[T]:
    """A plan of one request."""
    answer: T = yield request
    return answer
