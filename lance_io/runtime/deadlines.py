"""Deadlines of calls: parses `timeout=`, and bounds coroutines by it."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from datetime import timedelta
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar

from lance_io.errors import DeadlineExceeded, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Coroutine

T = TypeVar("T")


def seconds(timeout: Any) -> float | None:
    """Parse a `timeout=` into seconds; None for no bound.

    timeout  number of seconds or `timedelta`. Raises `TypeError` for anything else, `UsageError` unless it is positive
    """
    if timeout is None:
        return None
    if isinstance(timeout, timedelta):
        timeout = timeout.total_seconds()
    if isinstance(timeout, bool) or not isinstance(timeout, Real):
        raise TypeError(f"timeout must be a number of seconds or a timedelta, found {timeout!r}")
    timeout_s = float(timeout)
    if math.isnan(timeout_s) or timeout_s <= 0:
        raise UsageError(f"timeout must be positive, found {timeout!r}; leave it out for no bound")
    return None if math.isinf(timeout_s) else timeout_s


async def within(timeout_s: float | None, coro: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine; if it has not ended after `timeout_s`, cancel it and raise `DeadlineExceeded`."""
    if timeout_s is None:
        return await coro
    async with _until(asyncio.get_running_loop().time() + timeout_s, timeout_s):
        return await coro


async def within_each(timeout_s: float, items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """The items of a generator, with one deadline for all of them: `timeout_s` after the first request."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    try:
        while True:
            async with _until(deadline, timeout_s):
                try:
                    item = await anext(items)
                except StopAsyncIteration:
                    return
            yield item
    finally:
        await items.aclose()


@asynccontextmanager
async def _until(deadline: float, timeout_s: float) -> AsyncIterator[None]:
    scope = asyncio.timeout_at(deadline)
    try:
        async with scope:
            yield
    except TimeoutError as error:
        if not scope.expired():  # the store's own
            raise
        raise DeadlineExceeded(
            f"the call did not end within the {timeout_s:g} s that its `timeout=` allowed; its resources are free",
            retryable=True,
        ) from error
