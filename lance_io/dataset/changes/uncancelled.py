"""Waiting for a change to end, whatever becomes of who waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from lance_io.plans.plan import drive_async
from lance_io.runtime.feeding import wrap_fed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lance_io.plans.plan import Plan

T = TypeVar("T")


async def finished(plan: Plan[T]) -> T:
    """Run a change on the engine and await its result.

    Cancelling the caller cancels the change, and comes back when that has ended: a commit that is past the point of no
    return is then visible, and nothing is written or removed any more.
    """
    return await wrap_fed(_nothing(), lambda _: drive_async(plan))


async def _nothing() -> AsyncIterator[Any]:
    """A change that takes no rows asks for none."""
    for item in list[Any]():
        yield item
