"""Requests that run a plan in the background of a stream, on a loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from lance_io.plans.plan import drive_async, drive_sync
from lance_io.records import dataclass

if TYPE_CHECKING:
    from lance_io.plans.plan import Plan

T = TypeVar("T")


class Started(Generic[T]):
    """A started plan. `Finish` takes its result, once."""

    __slots__ = ("_plan", "_task")

    def __init__(self, plan: Plan[T], task: asyncio.Task[T] | None) -> None:
        self._plan = plan
        self._task = task

    @property
    def is_done(self) -> bool:
        """Whether its result is available, or will be computed by the caller."""
        return self._task is None or self._task.done()

    def result_sync(self) -> T:
        """Compute its result now."""
        return drive_sync(self._plan)

    async def result_async(self) -> T:
        """Wait for its result, which is not kept."""
        assert self._task is not None, "started on a loop"
        result = await self._task
        self._task = None
        return result

    def close(self) -> None:
        """Drop the plan without its result."""
        self._plan.close()

    async def aclose(self) -> None:
        """Cancel the plan, and wait until it has released its resources."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


@dataclass(frozen=True, slots=True, eq=False)
class Start(Generic[T]):
    """Start a plan; answered by a `Started` for `Finish`. Without a loop the plan runs in `Finish`."""

    plan: Plan[T]

    def answer_sync(self) -> Started[T]:
        """See `Request`."""
        return Started(self.plan, None)

    async def answer_async(self) -> Started[T]:
        """See `Request`."""
        return Started(self.plan, asyncio.ensure_future(drive_async(self.plan)))


@dataclass(frozen=True, slots=True, eq=False)
class Finish(Generic[T]):
    """The result of a started plan, or its error."""

    started: Started[T]

    def answer_sync(self) -> T:
        """See `Request`."""
        return self.started.result_sync()

    async def answer_async(self) -> T:
        """See `Request`."""
        return await self.started.result_async()
