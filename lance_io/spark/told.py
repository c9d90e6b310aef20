"""What Spark tells a task: its number, its processors, the settings of its session, and what it is part of.

Settings of the session reach tasks as properties; planners are told nothing. Outside of Spark's workers nobody says
anything.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from lance_io.errors import UsageError
from lance_io.spark.options import NO_CATALOG

if TYPE_CHECKING:
    from pyspark import TaskContext

DAEMON: Final = "pyspark.daemon"  # what forks planners and workers, and runs as their main module


def is_daemons() -> bool:
    """Whether Spark's daemon has forked this process."""
    return getattr(sys.modules["__main__"].__spec__, "name", "") == DAEMON


def this_task() -> TaskContext | None:
    """What Spark says of this worker's task; None outside of its workers."""
    from pyspark import TaskContext

    return TaskContext.get() if is_daemons() else None


def task_number() -> int | None:
    """The number that the task of this worker has in its stage; None outside of Spark's workers."""
    task = this_task()
    return None if task is None else task.partitionId()


def property_of_task(name: str) -> str | None:
    """A property that travels with the task, such as a setting of the session; None where there is none."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def refuse_catalog_table() -> None:
    """Raise `UsageError` in a task of a write that makes a table of Spark's own catalog.

    Such a table keeps no options, so nobody could read it. What the planner is told is the same as for `save(path)`.
    Yet Spark runs such a write as an execution of its own inside the one that made the table, which it drops again
    when the write fails. Others do not run inside of one, but for those that a batch of a stream begins.
    """
    execution, root = property_of_task("spark.sql.execution.id"), property_of_task("spark.sql.execution.root.id")
    if execution == root or None in (execution, root) or property_of_task("sql.streaming.queryId") is not None:
        return
    raise UsageError(
        "nothing was written: saveAsTable, writeTo(...).create() and CREATE TABLE ... AS SELECT do not work with "
        f"lance_io, not with a path either. {NO_CATALOG}"
    )
