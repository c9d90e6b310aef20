"""One engine per worker process: the session that all tasks of a process share, and how a table is opened in it.

Spark reuses its Python workers for later tasks and queries. What a session holds (connections, metadata of files, page
indexes, deletion vectors) is therefore still there in the next task. Nothing is made at import: Spark forks its workers
from a process that has imported this.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lance_io import runtime
from lance_io.dataset.version.session import Session
from lance_io.errors import LanceError, NotFound
from lance_io.io.budget import share_process_pool
from lance_io.limits import IO_BUFFER_BYTES, METADATA_CACHE_BYTES
from lance_io.plans.plan import drive_async, drive_sync
from lance_io.spark.consumed import find_connection
from lance_io.spark.task_context import executor_workers, this_task
from lance_io.store.api import CLOUD, offers_sync_reads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from lance_io.dataset.version.state import DatasetState
    from lance_io.plans.plan import Plan
    from lance_io.spark.options import ReadOptions, TargetOptions
    from lance_io.store.api import ObjectStore
    from lance_io.store.url import Location

T = TypeVar("T")

REQUESTS_MIN: Final = 16  # per worker process, however many share the machine

_session: Session | None = None
_session_pid = 0
_fitted_pid = 0


def process_session() -> Session:
    """The session of this process; a forked child has its own."""
    global _session, _session_pid
    if _session is None or _session_pid != os.getpid():
        _session = Session(metadata_cache_size_bytes=METADATA_CACHE_BYTES // executor_workers())
        _session_pid = os.getpid()
    return _session


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


def run(store: ObjectStore, plan: Plan[T]) -> T:
    """Run a plan and wait for it: in this thread where the store answers at once, else on the engine."""
    return drive_sync(plan) if offers_sync_reads(store) else runtime.run(drive_async(plan))


def open_table(options: ReadOptions, ref: Any = None) -> DatasetState:
    """The version that the options name, or `ref`, a number or `(branch, number)`.

    Raises what opening a table raises, and `NotFound` when no version is as old as `timestampAsOf`; of a version that a
    cleanup has removed, it says that.
    """
    from lance_io.dataset.version.object_keys import branch_location
    from lance_io.dataset.version.open_version import (
        open_options,  # planners open tables, tasks get what they need of them
        open_steps,
    )
    from lance_io.dataset.version.versions import manifest_times

    if ref is None:
        ref = options.version if options.version is not None else options.tag
    opening = open_options(options.path, ref, storage_options=storage_options(options), session=process_session())
    store = opening.location.store
    if ref is None and options.timestamp_as_of is not None:
        times = run(store, manifest_times(opening.location))
        return open_table(options, _newest_at(times, options.timestamp_as_of, opening.location.uri))
    branch, version = ref if isinstance(ref, tuple) else (None, ref)
    if not isinstance(version, int):
        return run(store, open_steps(opening))
    with cleanups_told(branch_location(opening.location, branch), version):
        return run(store, open_steps(opening))


@contextmanager
def cleanups_told(location: Location, version: int) -> Iterator[None]:
    """Where something is not found in the block, and the version neither, say that a cleanup has removed it.

    A cleanup removes manifests before files: of a version whose files it has removed, the manifest is gone.
    """
    try:
        yield
    except NotFound as error:
        from lance_io.dataset.version.versions import removed_by_cleanup

        try:
            told = run(location.store, removed_by_cleanup(location, version))
        except LanceError:  # the table itself is gone, or nobody can tell
            raise error from None
        if told is None:
            raise
        advice = "Load the table again; cleanups should keep versions for longer than queries use them"
        raise NotFound(f"{told}. {advice}", path=location.uri) from error


def _newest_at(times: Mapping[int, datetime], moment: datetime, uri: str) -> int:
    """The newest version that was committed at or before a moment, in UTC unless it has a zone."""
    at = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)  # Spark does not tell the session's zone
    found = [version for version, time in times.items() if time <= at]
    if not found:
        raise NotFound(f"no version is as old as {at.isoformat()}; the first is of {min(times.values())}", path=uri)
    return max(found)
