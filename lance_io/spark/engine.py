"""One engine per worker process: what all tasks of a process share, and how tables are reached and opened in it.

Spark reuses its Python workers for later tasks and queries. What a session holds (connections, metadata of files, page
indexes, deletion vectors) is therefore still there in the next task. Nothing is made at import: Spark forks its workers
from a process that has imported this.
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

REQUESTS_MIN: Final = 16  # per worker process, however many share the machine

_fitted_pid = 0


def fit_to_task() -> None:
    """Fit the engine of this process to the task that it has been given; nothing outside of Spark's workers.

    It takes the processors of one task (`spark.task.cpus`), and of the memory its share: the executor's others are for
    the tasks beside it.
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
    """What the machine has, or the container may use."""
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(installed, runtime.memory_limit_bytes() or installed)


def io_buffer_bytes(options: ReadOptions) -> int:
    """Bytes that one scan may have read ahead: as asked for, or this worker's share."""
    return options.io_buffer_bytes or IO_BUFFER_BYTES // executor_workers()


def storage_options(options: TargetOptions) -> dict[str, str]:
    """What the table is opened with, with this worker's share of the requests where nobody asked for a number."""
    found = options.storage_options
    workers = executor_workers()
    if workers > 1 and "://" in options.path and "requests_max" not in found:
        found["requests_max"] = str(max(REQUESTS_MIN, CLOUD.requests_max // workers))
    return found


def table_place(options: TargetOptions) -> TablePlace:
    """The table that the options name, with this worker's share of what its executor may use."""
    cache_bytes = METADATA_CACHE_BYTES // executor_workers()
    return distributed.TablePlace.of_process(options.path, storage_options(options), cache_bytes)


def open_version(options: ReadOptions, ref: Any = None) -> TableVersion:
    """The version that the options name, or `ref`, a number. Raises as `TableVersion.open`."""
    if ref is None:
        ref = options.version if options.version is not None else options.tag
    return distributed.TableVersion.open(table_place(options), ref, at=options.timestamp_as_of)


def named_version(options: ReadOptions, named: bytes) -> TableVersion:
    """The version that `TableVersion.to_bytes` has named in another process."""
    return distributed.TableVersion.from_bytes(table_place(options), named)
