"""Many callers at once, each asking again as soon as it has its answer, and how long each answer took."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

AsyncTake = Callable[[T], Awaitable[Any]]


async def waits_of(take: AsyncTake[T], picks: Iterator[T], callers: int, for_s: float | None = None) -> list[float]:
    """Seconds that each take waited; until `picks` are used up, or no take begins after `for_s` seconds."""
    waits: list[float] = []
    clock = time.perf_counter
    ends = float("inf") if for_s is None else clock() + for_s

    async def call() -> None:
        for rows in picks:
            began = clock()
            if began >= ends:
                return
            await take(rows)
            waits.append(clock() - began)

    await asyncio.gather(*(call() for _ in range(callers)))
    return waits


def percentile(waits: list[float], percent: float) -> float:
    """The smallest wait that so many percent do not exceed."""
    ordered = sorted(waits)
    return ordered[max(0, -(-len(ordered) * percent // 100).__int__() - 1)]


def told(waits: list[float], wall_s: float) -> dict[str, float]:
    """What is reported of them."""
    return {
        "takes": len(waits),
        "takes_per_s": len(waits) / wall_s,
        "p50_s": percentile(waits, 50),
        "p99_s": percentile(waits, 99),
        "longest_s": max(waits),
    }
