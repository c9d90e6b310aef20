"""SPARK: `format("lance_io")`, a data source in plain Python, and helpers for the driver program.

    options, option_values    texts by name, checked
    types, nested_arrays      which Spark type stands for which Arrow type
    source                    the class that Spark finds through the package `pyspark_lance_io`
    engine                    what the tasks of one process share, and how tables are reached and opened in it
    task_context, consumed    what Spark tells a task, and whether it wants more of it
    worker_tuning             settings of Spark's processes, changed where the user asks for it only
    read/                     what a read gives, how it is cut, and what a task does: batches of one partition
    write/                    writes in two phases: files by tasks, one version by the driver
    stream/                   streams into a table, and out of its versions
    helpers                   for the driver program

Of the dataset room it uses `dataset.distributed` and nothing else, which is what any distributed engine needs.
Importing this room loads neither pyspark nor pyarrow; `pyspark_lance_io` loads pyspark's base class and no more,
because Spark starts several processes that all import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.lazy_names import lazy_names

if TYPE_CHECKING:
    from lance_io.spark.helpers import cleanup_job, count, plan, read_table, register, write_table
    from lance_io.spark.read.read_plan import ReadPlan
    from lance_io.spark.source import LanceDataSource

_HOMES = {
    "LanceDataSource": "lance_io.spark.source",
    "ReadPlan": "lance_io.spark.read.read_plan",
    "cleanup_job": "lance_io.spark.helpers",
    "count": "lance_io.spark.helpers",
    "plan": "lance_io.spark.helpers",
    "read_table": "lance_io.spark.helpers",
    "register": "lance_io.spark.helpers",
    "write_table": "lance_io.spark.helpers",
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

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
