"""Running a plan for a dataset: in this thread where the store answers at once, else on the engine's loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from lance_io import runtime
from lance_io.plans.plan import drive_async, drive_sync

if TYPE_CHECKING:
    from lance_io.dataset.version.state import DatasetState
    from lance_io.plans.plan import Plan

T = TypeVar("T")


def run(state: DatasetState, plan: Plan[T], timeout: Any = None) -> T:
    """Run a plan and wait for it; with a timeout on the engine, which can cancel what it does."""
    if timeout is None and state.answers_sync:
        return drive_sync(plan)
    return runtime.run(runtime.within(runtime.seconds(timeout), drive_async(plan)))


async def run_async(plan: Plan[T], timeout: Any = None) -> T:
    """`run` on any loop."""
    return await runtime.wrap(
        drive_async(plan) if timeout is None else runtime.within(runtime.seconds(timeout), drive_async(plan))
    )
