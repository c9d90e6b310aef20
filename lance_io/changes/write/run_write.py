"""Drivers of writes: pull the caller's rows and run the plan that writes them.

Rows are pulled in the caller's thread, or on its loop. For callers on a loop, plain iterators are pulled in a thread.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from lance_io.changes.write.group_version import GroupAppend
from lance_io.changes.write.input_data import AsyncRows, Rows, async_rows_of, in_plain_types, rows_of
from lance_io.changes.write.write_arguments import TABLE_KEYWORDS, Write, check_known
from lance_io.changes.write.write_rows import write_rows
from lance_io.io import call_metrics
from lance_io.lazy_names import lazy_module
from lance_io.plans.plan import drive_async, drive_in_thread, drive_sync
from lance_io.runtime import check_not_on_engine, in_thread, load_modules
from lance_io.runtime.feeding import run_fed, wrap_fed
from lance_io.store.provided_options import gather_provider
from lance_io.store.url import load_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import pyarrow as pa

    from lance_io.changes.write import group_append as groups
    from lance_io.changes.write.group_append import PulledRows
    from lance_io.changes.write.write_arguments import Destination
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
else:
    groups = lazy_module("lance_io.changes.write.group_append")

T = TypeVar("T")


def write_table(
    data_obj: Any, uri: Destination | None = None, schema: pa.Schema | None = None, mode: str = "create", **options: Any
) -> DatasetState:
    """Write rows to a table; returns the version that holds them. Keywords as for `write_dataset`."""
    return run_table_write(_table_write(uri, mode, options), data_obj, schema)


async def write_table_async(
    data_obj: Any, uri: Destination | None = None, schema: pa.Schema | None = None, mode: str = "create", **options: Any
) -> DatasetState:
    """`write_table`, awaitable; `data_obj` may also be an asynchronous iterable of record batches."""
    options = gather_provider(options)
    await load_client(uri, options.get("storage_options"))
    write = _table_write(uri, mode, options)
    if not write.options.group_commit:
        return await run_write_async(write, data_obj, schema, write_rows)
    await load_modules(groups.__name__)
    if call_metrics.watchers:
        with call_metrics.count_call(groups.append_in_group):
            return await _append_grouped_async(write, data_obj, schema)
    return await _append_grouped_async(write, data_obj, schema)


async def _append_grouped_async(write: Write, data: Any, schema: pa.Schema | None) -> DatasetState:
    rows = await async_rows_of(data, schema)
    source = rows if isinstance(rows, AsyncRows) or rows.is_held else _pull_on_this_loop(rows)
    pulled = groups.PulledRows()
    try:
        await drive_async(pulled.pull(source))
        if pulled.is_complete:
            return await drive_async(groups.append_in_group(_grouped(write, rows, pulled)))
    finally:
        pulled.release()
    return await _run_rows_async(write, _chain(pulled, source), write_rows)


def run_table_write(write: Write, data: Any, schema: pa.Schema | None) -> DatasetState:
    """Write rows to a table, alone or in a group commit; returns the version that holds them."""
    if not write.options.group_commit:
        return run_write(write, data, schema, write_rows)
    if not write.target.answers_sync:
        check_not_on_engine()
    if call_metrics.watchers:
        return call_metrics.watch_call(groups.append_in_group, partial(_append_grouped, write, data, schema))
    return _append_grouped(write, data, schema)


def _append_grouped(write: Write, data: Any, schema: pa.Schema | None) -> DatasetState:
    rows = rows_of(data, schema)
    pulled = groups.PulledRows()
    try:
        drive_sync(pulled.pull(rows))
        if pulled.is_complete:
            return drive_sync(groups.append_in_group(_grouped(write, rows, pulled)))
    finally:
        pulled.release()
    rest = Rows(rows.schema, chain(pulled.batches, rows.batches), rows.num_rows, rows.is_held)
    return _run_rows(write, rest, write_rows)


def _grouped(write: Write, rows: Rows | AsyncRows, pulled: PulledRows) -> GroupAppend:
    return GroupAppend(write.target, rows.schema, pulled.batches, pulled.num_bytes, write.options)


def _chain(pulled: PulledRows, rows: Rows | AsyncRows) -> Rows | AsyncRows:
    """The pulled batches, followed by the rest."""
    if isinstance(rows, Rows):
        return Rows(rows.schema, chain(pulled.batches, rows.batches), rows.num_rows, rows.is_held)
    rest = rows.batches

    async def batches() -> AsyncIterator[pa.RecordBatch]:
        for batch in pulled.batches:
            yield batch
        async for batch in rest:
            yield batch

    return AsyncRows(rows.schema, batches(), rows.num_rows)


def _table_write(uri: Destination | None, mode: str, options: dict[str, Any]) -> Write:
    check_known(options, TABLE_KEYWORDS, "write_dataset")
    return Write.of({"uri": uri, "mode": mode, **options})


def run_write(write: Write, data: Any, schema: pa.Schema | None, make: Callable[..., Plan[T]]) -> T:
    """Run the plan `make(target, rows, options)`."""
    if call_metrics.watchers:
        return call_metrics.watch_call(make, partial(_run_write, write, data, schema, make))
    return _run_write(write, data, schema, make)


def _run_write(write: Write, data: Any, schema: pa.Schema | None, make: Callable[..., Plan[T]]) -> T:
    return _run_rows(write, rows_of(data, schema), make)


def _run_rows(write: Write, rows: Rows, make: Callable[..., Plan[T]]) -> T:
    return run_with_rows(
        rows, lambda fed: make(write.target, fed, write.options), answers_sync=write.target.answers_sync
    )


def run_change_with_rows(rows: Rows, make: Callable[[Rows | AsyncRows], Plan[T]], *, answers_sync: bool) -> T:
    """`run_with_rows` for a plan that selects some of the rows, which needs plain layouts."""
    return run_with_rows(in_plain_types(rows), make, answers_sync=answers_sync)


async def run_change_with_rows_async(
    rows: Rows | AsyncRows, make: Callable[[Rows | AsyncRows], Plan[T]], *, answers_sync: bool
) -> T:
    """`run_change_with_rows` on any loop."""
    return await run_with_rows_async(in_plain_types(rows), make, answers_sync=answers_sync)


def run_with_rows(rows: Rows, make: Callable[[Rows | AsyncRows], Plan[T]], *, answers_sync: bool) -> T:
    """Run the plan `make(rows)`; the rows are pulled in this thread.

    answers_sync  whether the store runs requests in the caller's thread
    """
    if answers_sync:
        return drive_sync(make(rows))
    return run_fed(rows.batches, lambda feed: drive_async(make(_feed_rows(rows, feed))))


async def run_write_async(write: Write, data: Any, schema: pa.Schema | None, make: Callable[..., Plan[T]]) -> T:
    """`run_write` on any loop."""
    if call_metrics.watchers:
        with call_metrics.count_call(make):
            return await _run_write_async(write, data, schema, make)
    return await _run_write_async(write, data, schema, make)


async def _run_write_async(write: Write, data: Any, schema: pa.Schema | None, make: Callable[..., Plan[T]]) -> T:
    return await _run_rows_async(write, await async_rows_of(data, schema), make)


async def _run_rows_async(write: Write, rows: Rows | AsyncRows, make: Callable[..., Plan[T]]) -> T:
    answers_sync = write.target.answers_sync
    return await run_with_rows_async(
        rows, lambda fed: make(write.target, fed, write.options), answers_sync=answers_sync
    )


async def run_with_rows_async(
    rows: Rows | AsyncRows, make: Callable[[Rows | AsyncRows], Plan[T]], *, answers_sync: bool
) -> T:
    """`run_with_rows` on any loop; asynchronous rows are pulled on it."""
    if isinstance(rows, Rows) and rows.is_held and answers_sync:  # other sources may block for any time
        return await drive_in_thread(partial(drive_sync, make(rows)))
    source = _pull_on_this_loop(rows) if isinstance(rows, Rows) else rows
    return await wrap_fed(source.batches, lambda feed: drive_async(make(_feed_rows(rows, feed))))


def _feed_rows(rows: Rows | AsyncRows, feed: AsyncIterator[pa.RecordBatch]) -> AsyncRows:
    return AsyncRows(rows.schema, feed, rows.num_rows)


def _pull_on_this_loop(rows: Rows) -> AsyncRows:
    """Batches of a plain iterator, pulled in a thread: it may read files or wait for a database."""

    async def batches() -> AsyncIterator[pa.RecordBatch]:
        while (batch := await in_thread(next, rows.batches, None)) is not None:
            yield batch

    return AsyncRows(rows.schema, batches(), rows.num_rows)
