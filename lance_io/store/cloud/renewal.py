"""Credentials renewed before they expire, while requests continue with the current ones."""

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

MARGIN_S: Final = 5.0  # minimum remaining lifetime: a request waits in line and then takes a while
AHEAD_S: Final = 300.0  # renewal starts this long before expiry
AGAIN_S: Final = 60.0  # minimum time between early renewals, as some credentials are always short-lived
AGAIN_FAILED_S: Final = 5.0  # the same after a failed renewal
REMEMBERED: Final = 4  # former credentials to hide in messages: answers may still quote one
CLOSE_S: Final = 1.0  # grace period for work in progress when a store is closed


class SingleFlight:
    """Work that the first waiter starts and all waiters share; cancelling a waiter does not cancel the work.

    work  returns a result, or its error as a result, so that each waiter raises its own copy
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._work = work
        self._task: asyncio.Task[Any] | None = None

    def begin(self) -> asyncio.Task[Any]:
        """Start the work unless it runs; returns its task."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())
        return self._task

    async def result(self) -> Any:
        """Wait for the running work, or start it."""
        task = self.begin()
        await asyncio.wait([task])
        return ConnectionError("the connections of this store were closed") if task.cancelled() else task.result()

    async def close(self) -> None:
        """Wait up to `CLOSE_S` for running work (which may be a program), then cancel it."""
        task, self._task = self._task, None
        if task is not None and not (await asyncio.wait([task], timeout=CLOSE_S))[0]:
            task.cancel()
            await asyncio.wait([task])


class Generations:
    """Refetches refused credentials, once for all requests that are refused meanwhile.

    refetch  drops the credentials and fetches new ones from their source; returns whether they differ, False for fixed
             credentials; raises our errors if there are none
    store    name of the store, for metrics

    generation  number of refetches
    """

    def __init__(self, refetch: Callable[[], Awaitable[bool]], store: str) -> None:
        self.generation = 0
        self._store = store
        self._changed = 0  # generation of the last change
        self._refetch = refetch
        self._asking = SingleFlight(self._ask)

    async def renewed(self, refused: int) -> bool:
        """Refetch refused credentials of a generation; returns whether there are newer ones. Raises our errors."""
        if refused == self.generation:
            error = await self._asking.result()
            if isinstance(error, LanceError):  # a copy per waiter, each with its own key
                raise type(error)(error.message).copy_request_info(error)
            if error is not None:
                raise AccessDenied(f"no other credentials ({type(error).__name__}: {error})")
        return self._changed > refused

    async def _ask(self) -> Exception | None:
        error = None
        try:
            is_other = await self._refetch()
        except Exception as raised:
            is_other, error = False, raised
        self.generation += 1
        if is_other:
            self._changed = self.generation
        RENEWALS.add(self._store, "failed" if error is not None else "renewed" if is_other else "refused")
        return error

    async def close(self) -> None:
        """End work in progress; later calls start it again."""
        await self._asking.close()


class Renewal(Generic[T]):
    """A token or other credentials. Requests wait only if it expires within `MARGIN_S`.

    One task renews it for all callers. Its error is raised only once the current value has expired, too.

    fetch      returns a new value and its expiry in seconds since 1970; None for no expiry
    map_error  maps an error of `fetch` to one of ours
    store      name of the store, for metrics; they count renewals only, neither first fetches nor refetches of refused
               credentials (`Generations`)
    ahead_s    how long before expiry it is renewed
    """

    ahead_s = AHEAD_S

    def __init__(
        self,
        fetch: Callable[[], Awaitable[tuple[T, float | None]]],
        map_error: Callable[[Exception], LanceError],
        store: str,
    ) -> None:
        self._fetch = fetch
        self._store = store
        self._map_error = map_error
        self._renewing = SingleFlight(self._renew)
        self._current: tuple[T, float | None] | None = None
        self._former: deque[T] = deque(maxlen=REMEMBERED)
        self._not_before_s = float("-inf")  # by the loop's clock

    async def get(self) -> T:
        """The current value. Raises our error if there is no valid one."""
        if self._remaining_s() <= MARGIN_S:
            error = await self._renewing.result()
            if error is not None and self._remaining_s() <= 0:
                raise self._map_error(error) from None
        else:
            self._renew_ahead()
        assert self._current is not None
        return self._current[0]

    def get_nowait(self) -> T | None:
        """The current value without waiting, or None if a caller must wait; starts the renewal when due."""
        if self._remaining_s() <= MARGIN_S:
            return None
        self._renew_ahead()
        assert self._current is not None
        return self._current[0]

    def forget(self, refused: T) -> None:
        """Drop a value that was refused before its expiry; the next caller waits for a new one."""
        if self._current is not None and self._current[0] == refused:
            self._former.append(refused)
            self._current = None

    @property
    def latest(self) -> T | None:
        """The last value, valid or expired."""
        return None if self._current is None else self._current[0]

    @property
    def recent(self) -> tuple[T, ...]:
        """The last values, to hide in messages: requests with former ones may still be in flight."""
        former = tuple(self._former)
        return former if self._current is None else (*former, self._current[0])

    @property
    def expires_s(self) -> float | None:
        """Expiry in seconds since 1970. None if the value does not expire, or no value was fetched."""
        return None if self._current is None else self._current[1]

    def _remaining_s(self) -> float:
        """Remaining lifetime in seconds."""
        if self._current is None:
            return float("-inf")
        return float("inf") if self._current[1] is None else self._current[1] - time.time()

    def _renew_ahead(self) -> None:
        if self._remaining_s() < self.ahead_s and asyncio.get_running_loop().time() >= self._not_before_s:
            self._renewing.begin()

    async def _renew(self) -> Exception | None:
        before = self._current
        error = None
        try:
            self._current = await self._fetch()
        except Exception as raised:  # providers raise anything
            error = raised
        is_new = self._current != before
        if is_new and before is not None:
            self._former.append(before[0])
        if before is not None and (is_new or error is not None):
            RENEWALS.add(self._store, "failed" if error is not None else "renewed")
        self._not_before_s = asyncio.get_running_loop().time() + (AGAIN_S if is_new else AGAIN_FAILED_S)
        return error

    async def close(self) -> None:
        """End work in progress; later calls start it again."""
        await self._renewing.close()
