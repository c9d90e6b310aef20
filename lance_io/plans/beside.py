"""Plans that run beside the stream that asks for them, where there is something to wait for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from lance_io.plans.plan import drive_async, drive_sync
from lance_io.records import dataclass

if TYPE_CHECKING:
    from lance_io.plans.plan import Plan

T = TypeVar("T")


class Started(Generic[T]):
    """A plan that was started: what `Finish` takes, once."""

    __slots__ = ("_plan", "_task")

    def __init__(self, plan: Plan[T], task: asyncio.Task[T] | None) -> None:
        self._plan = plan
        self._task = task

    @property
    def is_done(self) -> bool:
        """Whether its result is there, or is made when it is asked for."""
        return self._task is None or self._task.done()

    def result_sync(self) -> T:
        """Its result, made now."""
        return drive_sync(self._plan)

    async def result_async(self) -> T:
        """Its result, when it is there; not kept."""
        assert self._task is not None, "started on a loop"
        result = await self._task
        self._task = None
        return result

    def close(self) -> None:
        """No result is wanted."""
        self._plan.close()

    async def aclose(self) -> None:
        """No result is wanted: end it, and wait until it has let go of what it held."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


@dataclass(frozen=True, slots=True, eq=False)
class Start(Generic[T]):
    """Begin a plan; answered by what `Finish` takes. Without a loop it is run when its result is asked for."""

    plan: Plan[T]

    def answer_sync(self) -> Started[T]:
        """See `Request`."""
        return Started(self.plan, None)

    async def answer_async(self) -> Started[T]:
        """See `Request`."""
        return Started(self.plan, asyncio.ensure_future(drive_async(self.plan)))


@dataclass(frozen=True, slots=True, eq=False)
class Finish(Generic[T]):
    """The result of a plan that was started, or its error."""

    started: Started[T]

    def answer_sync(self) -> T:
        """See `Request`."""
        return self.started.result_sync()

    async def answer_async(self) -> T:
        """See `Request`."""
        return await self.started.result_async()
