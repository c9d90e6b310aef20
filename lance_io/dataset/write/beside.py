"""One computation beside another whose result it needs only later: a listing beside the encoding of rows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lance_io.dataset.steps import drive, drive_now

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.dataset.steps import Plan

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, eq=False)
class Beside(Generic[T, R]):
    """Run `first`, and beside it the plan that `rest` makes of a promise for its result.

    Where nothing runs concurrently `first` runs first. Its failure cancels the other, and is the one that is raised.
    """

    first: Plan[T]
    rest: Callable[[Promise[T]], Plan[R]]

    def now(self) -> R:
        """See `Ask`."""
        value = drive_now(self.first)
        return drive_now(self.rest(Promise(value=value)))

    async def later(self) -> R:
        """See `Ask`."""
        first = asyncio.ensure_future(drive(self.first))
        rest = asyncio.ensure_future(drive(self.rest(Promise(task=first))))
        try:
            await asyncio.wait((first, rest), return_when=asyncio.FIRST_EXCEPTION)
            if first.done() and not first.cancelled() and (error := first.exception()) is not None:
                raise error
            return await rest
        finally:
            for task in (first, rest):
                task.cancel()
            await asyncio.gather(first, rest, return_exceptions=True)


class Promise(Generic[T]):
    """The result of a computation under way, or one that is there."""

    def __init__(self, *, task: asyncio.Task[T] | None = None, value: Any = None) -> None:
        self._task = task
        self._value = value

    def result(self) -> Plan[T]:
        """Wait for it. Raises its error."""
        if self._task is None:
            found: T = self._value
        else:
            found = yield _Waited(self._task)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class _Waited(Generic[T]):
    """The result of a task of this loop; cancelling who waits leaves it running."""

    task: asyncio.Task[T]

    def now(self) -> T:
        raise AssertionError("a task is waited for on its loop only")

    async def later(self) -> T:
        return await asyncio.shield(self.task)
