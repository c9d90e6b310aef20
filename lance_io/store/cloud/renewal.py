"""What expires, renewed ahead of its end, while those who use it go on with the present one."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from lance_io.errors import AccessDenied, LanceError
from lance_io.store.counters import RENEWALS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

T = TypeVar("T")

MARGIN_S: Final = 5.0  # a request is on its way for a while, and in line before that
AHEAD_S: Final = 300.0  # before its end something is renewed
AGAIN_S: Final = 60.0  # between two renewals ahead of time: there is what never holds for long
AGAIN_FAILED_S: Final = 5.0  # and after one that failed
REMEMBERED: Final = 4  # that were the last: a store may still speak of one when another is used
CLOSE_S: Final = 1.0  # what is under way has so much time left when a store is closed


class Once:
    """Work that many may wait for and the first one begins; whoever is cancelled leaves it to the others.

    work  gives a result, or its error as a result: each who waits is told with an error of its own
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._work = work
        self._task: asyncio.Task[Any] | None = None

    def begin(self) -> asyncio.Task[Any]:
        """Have it under way."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())
        return self._task

    async def result(self) -> Any:
        """Wait until it has ended, begun by this or before."""
        task = self.begin()
        await asyncio.wait([task])
        return ConnectionError("the connections of this store were closed") if task.cancelled() else task.result()

    async def close(self) -> None:
        """Let it end, if that is soon: it may be a program that runs."""
        task, self._task = self._task, None
        if task is not None and not (await asyncio.wait([task], timeout=CLOSE_S))[0]:
            task.cancel()
            await asyncio.wait([task])


class Generations:
    """Credentials that a store refuses are asked for again: once for all whose requests it refuses meanwhile.

    ask_again  drops those that there are, and gets some where they came from: whether these are others. False also
               where they were given. Raises our errors: nobody gives any
    store      whose they are, for metrics

    generation  how often that was done
    """

    def __init__(self, ask_again: Callable[[], Awaitable[bool]], store: str) -> None:
        self.generation = 0
        self._store = store
        self._changed = 0  # the generation in which there were others
        self._ask_again = ask_again
        self._asking = Once(self._ask)

    async def renewed(self, refused: int) -> bool:
        """The store refused the credentials of a generation: whether there are others by now. Raises our errors."""
        if refused == self.generation:
            error = await self._asking.result()
            if isinstance(error, LanceError):  # told to each who waits, with a key of their own
                raise type(error)(error.message).asked_as(error)
            if error is not None:
                raise AccessDenied(f"no other credentials ({type(error).__name__}: {error})")
        return self._changed > refused

    async def _ask(self) -> Exception | None:
        error = None
        try:
            is_other = await self._ask_again()
        except Exception as raised:
            is_other, error = False, raised
        self.generation += 1
        if is_other:
            self._changed = self.generation
        RENEWALS.add(self._store, "failed" if error is not None else "renewed" if is_other else "refused")
        return error

    async def close(self) -> None:
        """End what is under way; whoever asks later begins it anew."""
        await self._asking.close()


class Renewal(Generic[T]):
    """A token or the like. Nobody waits as long as it holds for another `MARGIN_S`.

    Its renewal is one task, whoever asks, and its error is told when what is there has expired, too.

    fetch    gives a new one, and when that expires, in seconds since 1970; None: never
    failed   makes an error of ours of what `fetch` raised
    store    whose they are, for metrics, which count what follows something: neither what is there at first, nor what
             is asked for in place of something that was refused (`Generations`)
    ahead_s  how long before its end it is renewed
    """

    ahead_s = AHEAD_S

    def __init__(
        self,
        fetch: Callable[[], Awaitable[tuple[T, float | None]]],
        failed: Callable[[Exception], LanceError],
        store: str,
    ) -> None:
        self._fetch = fetch
        self._store = store
        self._failed = failed
        self._renewing = Once(self._renew)
        self._found: tuple[T, float | None] | None = None
        self._former: deque[T] = deque(maxlen=REMEMBERED)
        self._not_before_s = float("-inf")  # by the loop's clock

    async def get(self) -> T:
        """The one of this moment. Raises our error where there is none that holds."""
        if self._rest_s() <= MARGIN_S:
            error = await self._renewing.result()
            if error is not None and self._rest_s() <= 0:
                raise self._failed(error) from None
        else:
            self._renew_ahead()
        assert self._found is not None
        return self._found[0]

    def at_hand(self) -> T | None:
        """The same without waiting, or None where it has to be waited for; begins its renewal when it is time."""
        if self._rest_s() <= MARGIN_S:
            return None
        self._renew_ahead()
        assert self._found is not None
        return self._found[0]

    def forget(self, refused: T) -> None:
        """Somebody takes this one no more, before its end: whoever asks next waits for another."""
        if self._found is not None and self._found[0] == refused:
            self._former.append(refused)
            self._found = None

    @property
    def latest(self) -> T | None:
        """The last one, whether it still holds or not."""
        return None if self._found is None else self._found[0]

    @property
    def recent(self) -> tuple[T, ...]:
        """The last ones, which no message may show: requests with former ones may still be under way."""
        former = tuple(self._former)
        return former if self._found is None else (*former, self._found[0])

    @property
    def expires_s(self) -> float | None:
        """When it expires, in seconds since 1970; None: never, or there is none."""
        return None if self._found is None else self._found[1]

    def _rest_s(self) -> float:
        """For how long it holds."""
        if self._found is None:
            return float("-inf")
        return float("inf") if self._found[1] is None else self._found[1] - time.time()

    def _renew_ahead(self) -> None:
        if self._rest_s() < self.ahead_s and asyncio.get_running_loop().time() >= self._not_before_s:
            self._renewing.begin()

    async def _renew(self) -> Exception | None:
        before = self._found
        error = None
        try:
            self._found = await self._fetch()
        except Exception as raised:  # of any provider, and what they raise is not one family
            error = raised
        is_new = self._found != before
        if is_new and before is not None:
            self._former.append(before[0])
        if before is not None and (is_new or error is not None):
            RENEWALS.add(self._store, "failed" if error is not None else "renewed")
        self._not_before_s = asyncio.get_running_loop().time() + (AGAIN_S if is_new else AGAIN_FAILED_S)
        return error

    async def close(self) -> None:
        """End what is under way; whoever asks later begins it anew."""
        await self._renewing.close()
