"""The engine of a worker process, shared by all of its tasks, and the opening of tables.

Spark reuses its Python workers for later tasks and queries. So the next task finds the session's connections, file
metadata, page indices and deletion vectors in the cache. Importing this module creates nothing: Spark forks its workers
from a process that has imported it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from lance_io import runtime
from lance_io.dataset import distributed
from lance_io.io.budget import share_process_pool
from lance_io.limits import IO_BUFFER_BYTES, METADATA_CACHE_BYTES
from lance_io.spark.consumed import find_connection
from lance_io.spark.task_context import executor_workers, this_task
from lance_io.store.profile import CLOUD

if TYPE_CHECKING:
    from lance_io.dataset.distributed import TablePlace, TableVersion
    from lance_io.spark.options import ReadOptions, TargetOptions

REQUESTS_MIN: Final = 16  # per worker process, for any number of workers on the machine

_fitted_pid = 0


def fit_to_task() -> None:
    """Limit the engine of this process to the resources of its task. Does nothing outside of Spark's workers.

    It uses the processors of one task (`spark.task.cpus`) and one task's share of the executor's memory.
    """
    global _fitted_pid
    task = this_task()
    if task is None:
        return
    runtime.use_cpus(task.cpus())
    if _fitted_pid == os.getpid():
        return
    _fitted_pid = os.getpid()
    share_process_pool(memory_bytes() // executor_workers())
    find_connection()


def memory_bytes() -> int:
    """Memory of the machine, or the container's limit."""
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(installed, runtime.memory_limit_bytes() or installed)


def io_buffer_bytes(options: ReadOptions) -> int:
    """Bytes that one scan may prefetch: the option, or this worker's share."""
    return options.io_buffer_bytes or IO_BUFFER_BYTES // executor_workers()


def storage_options(options: TargetOptions) -> dict[str, str]:
    """Options to open the table with; `requests_max` defaults to this worker's share."""
    texts = options.storage_options
    workers = executor_workers()
    if workers > 1 and "://" in options.path and "requests_max" not in texts:
        texts["requests_max"] = str(max(REQUESTS_MIN, CLOUD.requests_max // workers))
    return texts


def table_place(options: TargetOptions) -> TablePlace:
    """The table that the options name, with this worker's share of the executor's metadata cache."""
    cache_bytes = METADATA_CACHE_BYTES // executor_workers()
    return distributed.TablePlace.of_process(options.path, storage_options(options), cache_bytes)


def open_version(options: ReadOptions, ref: Any = None) -> TableVersion:
    """Open the version that the options name, or version number `ref`. Raises like `TableVersion.open`."""
    if ref is None:
        ref = options.version if options.version is not None else options.tag
    return distributed.TableVersion.open(table_place(options), ref, at=options.timestamp_as_of)


def named_version(options: ReadOptions, named: bytes) -> TableVersion:
    """Open a version serialized by `TableVersion.to_bytes` in another process."""
    return distributed.TableVersion.from_bytes(table_place(options), named)
