"""SPARK: `format("lance_io")`, by a small JAR or in plain Python, a catalog, and helpers for the driver program.

    options, option_values    options: texts by name, checked
    types, nested_arrays      the mapping between Spark and Arrow types
    source                    the class that Spark discovers through the package `pyspark_lance_io`
    engine                    resources shared by the tasks of a process, and opening of tables
    task_context, consumed    the properties of a task, and whether Spark has consumed a task's batches
    worker_tuning             settings of Spark's processes, changed only on request
    read/                     schema and partitions of a read, and the batches of a partition
    write/                    writes in two phases: files by tasks, one version by the driver
    stream/                   streams into a table, and out of its versions
    helpers                   functions for the driver program
    sessions                  the JAR `lance_io.jar` for a session, and its catalog
    ops                       procedures of the catalog as functions
    worker/                   the process that reads and writes for the JAR, which is built from `jvm/`

From the dataset package it uses only `dataset.distributed`, the API for distributed engines. Importing this package
loads neither pyspark nor pyarrow; `pyspark_lance_io` loads only pyspark's base class, because Spark starts several
processes that all import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.lazy_names import lazy_names

if TYPE_CHECKING:
    from lance_io.spark.helpers import cleanup_job, count, plan, read_table, register, write_table
    from lance_io.spark.read.read_plan import ReadPlan
    from lance_io.spark.sessions import configure, enable
    from lance_io.spark.source import LanceDataSource

_HOMES = {
    "LanceDataSource": "lance_io.spark.source",
    "ReadPlan": "lance_io.spark.read.read_plan",
    "cleanup_job": "lance_io.spark.helpers",
    "configure": "lance_io.spark.sessions",
    "count": "lance_io.spark.helpers",
    "enable": "lance_io.spark.sessions",
    "plan": "lance_io.spark.helpers",
    "read_table": "lance_io.spark.helpers",
    "register": "lance_io.spark.helpers",
    "write_table": "lance_io.spark.helpers",
}

__all__ = [
    "LanceDataSource",
    "ReadPlan",
    "cleanup_job",
    "configure",
    "count",
    "enable",
    "plan",
    "read_table",
    "register",
    "write_table",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
