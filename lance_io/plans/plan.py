"""Plans and the two drivers that run them, and how plans are put together.

A `Plan` is a generator that yields requests and is sent their answers; failures are thrown in where they were asked
for. A request can be answered in the caller's thread (`answer_sync`: memory and local disk, so that a local commit
never crosses to the engine thread) and on an event loop (`answer_async`: any store).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, cast

from lance_io.records import dataclass
from lance_io.runtime import begin_driving, cpu_pool, driven_in_thread, load_modules, to_the_end, wait_until_done
from lance_io.turns import begin_turns, give_way

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator
    from concurrent.futures import Executor

T = TypeVar("T")
R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)


class Request(Protocol[T_co]):
    """What a plan asks for."""

    def answer_sync(self) -> T_co:
        """Answer in this thread, without a loop."""

    async def answer_async(self) -> T_co:
        """Answer on the running loop."""


Plan: TypeAlias = Generator[Request[Any], Any, T]
"""A computation that yields what it wants done and is sent the answers."""


def drive_sync(plan: Generator[Any, Any, T], answer: Callable[[Any], Any] | None = None) -> T:
    """Run a plan in this thread.

    answer  answers its requests, which need not know how to then; None for requests that do
    """
    try:
        request = next(plan)
        while True:
            if this_thread.stop is not None:
                this_thread.stop.check()
                give_way()
            try:
                found = request.answer_sync() if answer is None else answer(request)
            except Exception as error:
                request = plan.throw(error)
            else:
                request = plan.send(found)
                found = None  # what was read is not held while the next is
    except StopIteration as done:
        return cast("T", done.value)
    finally:
        plan.close()


class Stopped(BaseException):
    """Whoever waits for what this thread does was cancelled."""


class _Stop:
    """Says to what one thread does that it is to stop."""

    def __init__(self) -> None:
        self.is_asked = False
        self._woken = threading.Event()

    def ask(self) -> None:
        """Stop, from any thread; who waits here is woken."""
        self.is_asked = True
        self._woken.set()

    def check(self) -> None:
        """Raise `Stopped` once it was asked for."""
        if self.is_asked:
            raise Stopped

    def wait(self, seconds: float | None, future: Future[Any] | None = None) -> None:
        """Wait for so long at most, for a future or nothing. Raises `Stopped`."""
        woken = self._woken = threading.Event()  # a future that was waited for before sets another one
        if future is not None:
            future.add_done_callback(lambda _: woken.set())
        if not self.is_asked:  # `ask` sets the event last
            woken.wait(seconds)
        self.check()


class _ThisThread(threading.local):
    """Of this thread: what says that its plans are to stop, where they may."""

    stop: _Stop | None = None


this_thread = _ThisThread()


def check_stopped() -> None:
    """Raise `Stopped` where what this thread does is to stop; where it is not, let the loop beside it have its turn.

    Without anything that may stop it (`this_thread.stop`) there is nothing to do.
    """
    if this_thread.stop is not None:
        this_thread.stop.check()
        give_way()


async def drive_in_thread(work: Callable[[], T]) -> T:
    """Do something that drives plans over stores that answer at once in a thread, beside the running loop.

    Cancelling this stops plans at their next request, and comes back when that has ended, rolled back where plans are.
    """
    stop = _Stop()

    def stoppable() -> T:
        begin_turns()
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
    """Do something that drives plans over stores that answer at once in a thread, which nobody waits for.

    ended  called when it has ended, with what it failed with

    Gives what stops plans at their next request, from any thread.
    """
    stop = _Stop()

    def run() -> None:
        begin_turns()
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
        future.exception()  # it has been looked at


@contextmanager
def _to_the_end() -> Iterator[None]:
    """What is driven in the block does not stop before it has ended."""
    stop, this_thread.stop = this_thread.stop, None
    try:
        yield
    finally:
        this_thread.stop = stop


async def drive_async(plan: Generator[Any, Any, T], answer: Callable[[Any], Awaitable[Any]] | None = None) -> T:
    """Run a plan on the running loop.

    answer  as for `drive_sync`; where it gives `LargeAnswer`, the plan goes on in the CPU pool
    """
    try:
        request = next(plan)
        while True:
            try:
                found = await (request.answer_async() if answer is None else answer(request))
            except Exception as error:
                request = plan.throw(error)
                continue
            if type(found) is LargeAnswer:
                request = await in_pool(plan, found.answer)
                if type(request) is Finished:
                    return cast("T", request.value)
            else:
                request = plan.send(found)
            found = None
    except StopIteration as done:
        return cast("T", done.value)
    finally:
        with suppress(ValueError):  # still running in the pool when the call was cancelled; it ends by itself there
            plan.close()


class LargeAnswer:
    """An answer that takes long to go through: that must not hold up the loop."""

    __slots__ = ("answer",)

    def __init__(self, answer: Any) -> None:
        self.answer = answer


class Finished:
    """What a plan came to, where another thread let it go on.

    `StopIteration` cannot leave a thread through a future. And an exception would hold the frames that it came through,
    one of which waits for the future that holds the exception: all that was read and decoded there would stay until the
    garbage collector finds the cycle.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def advance(plan: Generator[Any, Any, Any], answer: Any) -> Any:
    """`plan.send` for a pool thread: gives the next request, or the result as `Finished`."""
    try:
        return plan.send(answer)
    except StopIteration as done:
        return Finished(done.value)


async def in_pool(plan: Generator[Any, Any, Any], answer: Any) -> Any:
    """`advance` on the CPU pool."""
    return await asyncio.wrap_future(cpu_pool().submit(advance, plan, answer))


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

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
    """The result of work that somebody else has under way; cancelling who waits leaves it to others.

    seconds  how long to wait at most; then `TimeoutError`
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
        # Not `wait_for`: that of 3.11 swallows a cancellation that comes at the moment of the result.
        async with asyncio.timeout(self.seconds):
            await wait_until_done(self.future)
        return self.future.result()


@dataclass(frozen=True, slots=True)
class Import:
    """Modules that take long to import: for a loop a thread does it. Without one whoever uses them does."""

    modules: tuple[str, ...]

    def answer_sync(self) -> None:
        """See `Request`."""

    async def answer_async(self) -> None:
        """See `Request`."""
        await load_modules(*self.modules)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A function of somebody else's that may block; all calls over one `threads` of size 1 are in one thread."""

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
    """Independent plans, concurrently where there is a loop, else in their order; answers in their order.

    A plan may `Wait` for what one before it makes.

    The first failure is raised when all others have ended, which are cancelled: whoever cleans up behind them must
    not meet a write that is still under way.
    """

    plans: Sequence[Plan[T]]

    def answer_sync(self) -> list[T]:
        """See `Request`."""
        answers = []
        for place, plan in enumerate(self.plans):
            try:
                answers.append(drive_sync(plan))
            except BaseException:
                for other in self.plans[place + 1 :]:
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
    """A plan that runs to its end even when whoever waits for it is cancelled; then they learn of it afterwards."""

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
    """A plan that is rolled back when it fails or is cancelled, by another one that runs to its end.

    roll_back  makes that, of the failure, which goes on afterwards
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
    """A call of what is a plain function where there is no loop, and a coroutine function where there is one."""

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
    """Run a plan, and beside it the one that `rest` makes of a plan that waits for the result of the first.

    Gives the result of `rest`. Where nothing runs concurrently `first` runs first.
    """
    result: Future[T] = Future()

    def tell() -> Plan[None]:
        result.set_result((yield from first))

    plans: list[Plan[Any]] = [tell(), rest(ask(Wait(result)))]
    _, answer = yield Together(plans)
    return cast("R", answer)


def ask(request: Request[T]) -> Plan[T]:
    """A plan of one request."""
    answer: T = yield request
    return answer
