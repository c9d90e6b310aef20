"""Running writes: rows that somebody hands over become files, and perhaps a version.

Rows are pulled where the caller is: in its thread, or on its loop; plain iterators, for a loop, in a thread.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from lance_io.dataset.write.input_data import AsyncRows, Rows, async_rows_of, rows_of
from lance_io.dataset.write.write_arguments import TABLE_KEYWORDS, Write, check_known
from lance_io.dataset.write.write_rows import write_rows
from lance_io.io import call_metrics
from lance_io.plans.plan import drive_async, drive_in_thread, drive_sync
from lance_io.runtime import in_thread
from lance_io.runtime.feeding import run_fed, wrap_fed
from lance_io.store.url import load_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import pyarrow as pa

    from lance_io.dataset.version.state import DatasetState
    from lance_io.dataset.write.write_arguments import Destination
    from lance_io.plans.plan import Plan

T = TypeVar("T")


def write_table(
    data_obj: Any, uri: Destination | None = None, schema: pa.Schema | None = None, mode: str = "create", **options: Any
) -> DatasetState:
    """Write rows to a table; gives the version that holds them. Keywords as for `write_dataset`."""
    return run_write(_table_write(uri, mode, options), data_obj, schema, write_rows)


async def write_table_async(
    data_obj: Any, uri: Destination | None = None, schema: pa.Schema | None = None, mode: str = "create", **options: Any
) -> DatasetState:
    """`write_table` on any loop; `data_obj` may also be an asynchronous iterable of record batches."""
    await load_client(uri)
    return await run_write_async(_table_write(uri, mode, options), data_obj, schema, write_rows)


def _table_write(uri: Destination | None, mode: str, options: dict[str, Any]) -> Write:
    check_known(options, TABLE_KEYWORDS, "write_dataset")
    return Write.of({"uri": uri, "mode": mode, **options})


def run_write(write: Write, data: Any, schema: pa.Schema | None, make: Callable[..., Plan[T]]) -> T:
    """Run the plan that `make` gives for target, rows and options."""
    if call_metrics.watchers:
        return call_metrics.watch_call(make, partial(_run_write, write, data, schema, make))
    return _run_write(write, data, schema, make)


def _run_write(write: Write, data: Any, schema: pa.Schema | None, make: Callable[..., Plan[T]]) -> T:
    rows = rows_of(data, schema)
    if write.target.answers_sync:
        return drive_sync(make(write.target, rows, write.options))
    return run_fed(rows.batches, lambda feed: drive_async(make(write.target, _feed_rows(rows, feed), write.options)))


async def run_write_async(write: Write, data: Any, schema: pa.Schema | None, make: Callable[..., Plan[T]]) -> T:
    """`run_write` on any loop."""
    if call_metrics.watchers:
        with call_metrics.count_call(make):
            return await _run_write_async(write, data, schema, make)
    return await _run_write_async(write, data, schema, make)


async def _run_write_async(write: Write, data: Any, schema: pa.Schema | None, make: Callable[..., Plan[T]]) -> T:
    rows = await async_rows_of(data, schema)
    if isinstance(rows, Rows) and rows.is_held and write.target.answers_sync:  # others may wait for anybody
        return await drive_in_thread(partial(drive_sync, make(write.target, rows, write.options)))
    batches = _on_this_loop(rows) if isinstance(rows, Rows) else rows.batches
    return await wrap_fed(batches, lambda feed: drive_async(make(write.target, _feed_rows(rows, feed), write.options)))


def _feed_rows(rows: Rows | AsyncRows, feed: AsyncIterator[pa.RecordBatch]) -> AsyncRows:
    return AsyncRows(rows.schema, feed, rows.num_rows)


async def _on_this_loop(rows: Rows) -> AsyncIterator[pa.RecordBatch]:
    """Batches of plain iterators, made in a thread: they may read files or wait for databases."""
    while (batch := await in_thread(next, rows.batches, None)) is not None:
        yield batch
