"""SPARK: `format("lance_io")`, a data source in plain Python, and helpers for the driver program.

    options, optionvalues     texts by name, checked
    types                     which Spark type stands for which Arrow type
    readcast, writecast, nesting   batches converted to Spark's types, and to the table's
    source                    the class that Spark finds through the package `pyspark_lance_io`
    columns, planning         what a read gives, and how it is cut into tasks of about the same bytes
    carrying, engine          what travels to the tasks, and the engine that those of one process share
    told, taken               what Spark tells a task, and whether it wants more of it
    reader                    what a task does: batches of one partition
    writer, jobs, taskfiles, committing, history   writes in two phases: files by tasks, one version by the driver
    streamsink, streamsource, versionrows          streams into a table, and out of its versions
    helpers, writehelpers     for the driver program

Importing this room loads neither pyspark nor pyarrow; `pyspark_lance_io` loads pyspark's base class and no more,
because Spark starts several processes that all import it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lance_io.spark.helpers import count, plan, read_table, register
    from lance_io.spark.read.partitions import ReadPlan
    from lance_io.spark.source import LanceDataSource
    from lance_io.spark.write.write_helpers import cleanup_job, write_table

_HOMES = {
    "LanceDataSource": "source",
    "ReadPlan": "read.partitions",
    "cleanup_job": "write.write_helpers",
    "count": "helpers",
    "plan": "helpers",
    "read_table": "helpers",
    "register": "helpers",
    "write_table": "write.write_helpers",
}

__all__ = [
    "LanceDataSource",
    "ReadPlan",
    "cleanup_job",
    "count",
    "plan",
    "read_table",
    "register",
    "write_table",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
