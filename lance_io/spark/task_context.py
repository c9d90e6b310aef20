"""Properties of a Spark task: settings of its session, and its query.

Tasks get settings of the session as local properties. Planners do not get them, nor do processes outside of Spark's
workers.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lance_io.errors import UsageError
from lance_io.redaction import get_logger
from lance_io.runtime import processors
from lance_io.spark.options import NO_CATALOG

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark import TaskContext

    from lance_io.spark.options import TargetOptions

_logger = get_logger(__name__)

DAEMON: Final = "pyspark.daemon"  # forks planners and workers, and is their main module

CREDENTIAL: Final = re.compile(r"(?i)secret|password|token|credential|(access|account|private|sas)_?key")
_REDACTED: Final = {  # Spark's settings with patterns of secret options, and their defaults
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key",
    "spark.sql.redaction.options.regex": "(?i)url",
}

_warned_pid = 0
_logged_pid = 0


def is_forked_by_daemon() -> bool:
    """Whether Spark's daemon has forked this process."""
    return getattr(sys.modules["__main__"].__spec__, "name", "") == DAEMON


def this_task() -> TaskContext | None:
    """The context of this worker's task; None outside of Spark's workers."""
    from pyspark import TaskContext

    return TaskContext.get() if is_forked_by_daemon() else None


def property_of_task(name: str) -> str | None:
    """A local property of the task, such as a setting of the session; None if there is none."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def executor_workers() -> int:
    """The number of tasks that share the executor, each in its own worker; 1 outside of tasks.

    Without `spark.executor.cores` a task does not get the number of the executor's cores. The master implies it: the
    number in the master's name, one on YARN and Kubernetes, else (standalone) all of the machine or container.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return 1
    text = property_of_task("resource.executor.cores") or ""
    cores = int(text) if text.isdecimal() else _cores_by_master(property_of_task("spark.master") or "")
    return max(1, cores // max(1, context.cpus()))


def _cores_by_master(master: str) -> int:
    named = re.fullmatch(r"local(?:\[(\d+)(?:,.*)?\]|-cluster\[\s*\d+\s*,\s*(\d+)\s*,.*\])", master)
    if named is not None:
        return int(named[1] or named[2])
    return 1 if master == "local" or master.startswith(("yarn", "k8s")) else processors()


def warn_of_credentials(options: TargetOptions) -> None:
    """Warn once per process if Spark shows credentials of the options.

    Spark shows the options of `CREATE TEMP VIEW` in plans and event logs, except those that its settings declare
    secret. Only tasks can read these settings.
    """
    if options.storage and this_task() is not None:
        warn_of_shown(options, [property_of_task(name) or default for name, default in _REDACTED.items()])


def warn_of_shown(options: TargetOptions, patterns: Iterable[str]) -> None:
    """Warn once per process if Spark shows credentials of the options; `patterns` as for `shown_credentials`."""
    global _warned_pid
    if not options.storage or _warned_pid == os.getpid():
        return
    _warned_pid = os.getpid()
    shown = ", ".join(name for name in shown_credentials(options.storage, patterns))
    if shown:
        _logger.warning(
            "Spark shows these storage options in its plans and event logs when they are given in SQL: %s. Let "
            "spark.redaction.regex cover them, as '(?i)secret|password|token|access[._]?key' does, or leave them "
            "to the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN) or the instance",
            shown,
        )


def log_missing_jar() -> None:
    """Log that a read goes without the JAR, once in a process."""
    global _logged_pid
    if _logged_pid == os.getpid():
        return
    _logged_pid = os.getpid()
    _logger.warning(
        "This session lacks the JAR of lance_io: each query reads all columns and rows of its load, knows no catalog, "
        "index or size, and takes about 100 ms more for each task. lance_io.spark.configure or enable adds the JAR"
    )


def shown_credentials(storage: Mapping[str, str], patterns: Iterable[str]) -> list[str]:
    """The names of the credentials in storage options that Spark does not hide.

    patterns  Java regular expressions from its settings; a pattern that Python cannot compile covers nothing
    """
    hidden = []
    for pattern in patterns:
        with suppress(re.error):
            hidden.append(re.compile(pattern))
    return sorted(
        name
        for name, text in storage.items()
        if CREDENTIAL.search(name)
        and not any(pattern.search(f"storage.{name}") or pattern.search(text) for pattern in hidden)
    )


def refuse_catalog_table() -> None:
    """Raise `UsageError` in a task of a write that creates a table of Spark's own catalog.

    Such a table keeps no options, so it could not be read. The planner sees no difference to `save(path)`. But Spark
    runs such a write as an execution nested in the one that created the table, and drops the table if the write fails.
    Other writes are not nested, except in batches of streams.
    """
    execution, root = property_of_task("spark.sql.execution.id"), property_of_task("spark.sql.execution.root.id")
    if execution == root or None in (execution, root) or property_of_task("sql.streaming.queryId") is not None:
        return
    raise UsageError(
        "nothing was written: saveAsTable, writeTo(...).create() and CREATE TABLE ... AS SELECT do not work with "
        f"lance_io, even with a path. {NO_CATALOG}"
    )
