"""Methods of datasets and fragments that add or replace columns.

New values come from rows of the caller, or are computed from the table's own rows. The caller's rows
are read in the caller's thread or loop, while the plan that uses them may run on the engine's loop.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

from lance_io.changes.columns.batch_udf import BatchUDF
from lance_io.changes.columns.evolve_schema import add_columns as plan_columns
from lance_io.changes.columns.evolve_schema import are_rows, make_columns
from lance_io.changes.columns.join_columns import columns_by_join, update_fragment_columns
from lance_io.changes.columns.left_join import JoinKeys, LeftJoin
from lance_io.changes.columns.new_columns import add_new_columns, columns_from_rows, fragment_with_columns
from lance_io.changes.write.input_data import async_rows_of, rows_of
from lance_io.changes.write.run_write import run_change_with_rows, run_change_with_rows_async
from lance_io.errors import OperationError, UsageError
from lance_io.io import call_metrics
from lance_io.reads.memory_limit import ScanBounds, limit_of
from lance_io.reads.metadata.describe import fragment_metadata
from lance_io.reads.metadata.lance_schema import LanceSchema
from lance_io.reads.run_plan import run, run_change

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from lance_io.changes.write.input_data import AsyncRows, Rows
    from lance_io.format.schema import Schema
    from lance_io.plans.plan import Plan
    from lance_io.reads.metadata.file_listing import Progress
    from lance_io.reads.metadata.fragment_metadata import FragmentMetadata
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.fragment import Fragment

    # The fragment with its new columns, and the schema that the table has after a commit of these columns
    NewFragment = tuple[FragmentMetadata, LanceSchema]

T = TypeVar("T")


def _run_with_rows(
    state: DatasetState, data: Any, schema: pa.Schema | None, make_plan: Callable[..., Plan[T]], *arguments: Any
) -> T:
    """Run the plan that `make_plan` returns for the state, the rows of `data` and the arguments; returns its result."""
    rows = rows_of(data, schema)

    def work() -> T:
        return run_change_with_rows(
            rows, lambda plan_rows: make_plan(state, plan_rows, *arguments), answers_sync=state.answers_sync
        )

    return call_metrics.watch_call(make_plan, work) if call_metrics.watchers else work()


async def _run_with_rows_async(
    state: DatasetState, data: Any, schema: pa.Schema | None, make_plan: Callable[..., Plan[T]], *arguments: Any
) -> T:
    rows = await async_rows_of(data, schema)

    async def work() -> T:
        return await run_change_with_rows_async(
            rows, lambda plan_rows: make_plan(state, plan_rows, *arguments), answers_sync=state.answers_sync
        )

    if call_metrics.watchers:
        with call_metrics.count_call(make_plan):
            return await work()
    return await work()


# -- datasets ----------------------------------------------------------------------------------------------------------


def add_columns(
    state: DatasetState,
    transforms: Any,
    read_columns: list[str] | None,
    schema: Any,
    batch_size: int | None,
    memory_limit: int | None,
    progress: Progress | None,
) -> DatasetState:
    """Add columns; see `LanceDataset.add_columns`."""
    bounds = ScanBounds(batch_size, limit_of(state, memory_limit))
    if are_rows(transforms):
        return _run_with_rows(state, transforms, schema, _add_columns_from_rows, bounds, progress)
    return run(state, plan_columns(state, transforms, read_columns, bounds, progress))


async def add_columns_async(
    state: DatasetState,
    transforms: Any,
    read_columns: list[str] | None,
    schema: Any,
    batch_size: int | None,
    memory_limit: int | None,
    progress: Progress | None,
) -> DatasetState:
    """`add_columns` for async callers."""
    bounds = ScanBounds(batch_size, limit_of(state, memory_limit))
    if are_rows(transforms):
        return await _run_with_rows_async(state, transforms, schema, _add_columns_from_rows, bounds, progress)
    plan = plan_columns(state, transforms, read_columns, bounds, progress)
    return await run_change(plan, answers_sync=state.answers_sync)


def _add_columns_from_rows(
    state: DatasetState, rows: Rows | AsyncRows, bounds: ScanBounds, progress: Progress | None
) -> Plan[DatasetState]:
    return (yield from add_new_columns(state, columns_from_rows(state, rows, bounds), progress))


def merge(
    state: DatasetState,
    data: Any,
    left_on: str,
    right_on: str | None,
    schema: pa.Schema | None,
    memory_limit: int | None,
    progress: Progress | None,
) -> DatasetState:
    """Add the columns of other rows, joined by a key; see `LanceDataset.merge`."""
    keys = JoinKeys(left_on, right_on or left_on)
    return _run_with_rows(state, data, schema, _merge, keys, limit_of(state, memory_limit), progress)


async def merge_async(
    state: DatasetState,
    data: Any,
    left_on: str,
    right_on: str | None,
    schema: pa.Schema | None,
    memory_limit: int | None,
    progress: Progress | None,
) -> DatasetState:
    """`merge` for async callers."""
    keys = JoinKeys(left_on, right_on or left_on)
    return await _run_with_rows_async(state, data, schema, _merge, keys, limit_of(state, memory_limit), progress)


def _merge(
    state: DatasetState, rows: Rows | AsyncRows, keys: JoinKeys, limit_bytes: int, progress: Progress | None
) -> Plan[DatasetState]:
    with closing(LeftJoin(state, state.all_fragment_indexes, rows, keys, limit_bytes)) as join:
        new_columns = yield from columns_by_join(state, join)
        return (yield from add_new_columns(state, new_columns, progress))


# -- fragments ---------------------------------------------------------------------------------------------------------


def _raise_usage_errors(plan: Plan[T]) -> Plan[T]:
    """Run the plan; raise `UsageError` for its `OperationError`, as pylance does in the methods of fragments."""
    try:
        return (yield from plan)
    except OperationError as error:
        if type(error) is not OperationError:  # a subclass, such as a conflict, is no wrong argument
            raise
        raise UsageError(error.message) from error


def merge_fragment_columns(
    state: DatasetState,
    fragment_index: int,
    transforms: Any,
    read_columns: list[str] | None,
    schema: pa.Schema | None,
    batch_size: int | None,
    memory_limit: int | None,
    progress: Progress | None,
) -> NewFragment:
    """Write new columns of one fragment, without a commit; see `LanceFragment.merge_columns`."""
    bounds = ScanBounds(batch_size, limit_of(state, memory_limit))
    if are_rows(transforms):
        return _run_with_rows(state, transforms, schema, _write_given_columns, fragment_index, bounds, progress)
    return run(state, _write_computed_columns(state, fragment_index, transforms, read_columns, bounds, progress))


async def merge_fragment_columns_async(
    state: DatasetState,
    fragment_index: int,
    transforms: Any,
    read_columns: list[str] | None,
    schema: pa.Schema | None,
    batch_size: int | None,
    memory_limit: int | None,
    progress: Progress | None,
) -> NewFragment:
    """`merge_fragment_columns` for async callers."""
    bounds = ScanBounds(batch_size, limit_of(state, memory_limit))
    if are_rows(transforms):
        return await _run_with_rows_async(
            state, transforms, schema, _write_given_columns, fragment_index, bounds, progress
        )
    plan = _write_computed_columns(state, fragment_index, transforms, read_columns, bounds, progress)
    return await run_change(plan, answers_sync=state.answers_sync)


def _write_given_columns(
    state: DatasetState, rows: Rows | AsyncRows, fragment_index: int, bounds: ScanBounds, progress: Progress | None
) -> Plan[NewFragment]:
    new_columns = columns_from_rows(state, rows, bounds)
    fragment, schema = yield from _raise_usage_errors(
        fragment_with_columns(state, fragment_index, new_columns, progress)
    )
    return fragment_metadata(fragment), LanceSchema(schema)


def _write_computed_columns(
    state: DatasetState,
    fragment_index: int,
    transforms: Any,
    read_columns: list[str] | None,
    bounds: ScanBounds,
    progress: Progress | None,
) -> Plan[NewFragment]:
    if isinstance(transforms, BatchUDF) and transforms.checkpoint_file is not None:
        raise UsageError(
            "A checkpoint file cannot be used when applying a UDF with LanceFragment.merge_columns. "
            "You must apply your own checkpointing for fragment-level operations."
        )
    new_columns = yield from make_columns(state, transforms, read_columns, bounds)
    fragment, schema = yield from _raise_usage_errors(
        fragment_with_columns(state, fragment_index, new_columns, progress)
    )
    return fragment_metadata(fragment), LanceSchema(schema)


def merge_fragment(
    state: DatasetState,
    fragment_index: int,
    data: Any,
    left_on: str,
    right_on: str | None,
    schema: pa.Schema | None,
    memory_limit: int | None,
    progress: Progress | None,
) -> NewFragment:
    """Write the columns of other rows, joined by a key, for one fragment; see `LanceFragment.merge`."""
    keys = JoinKeys(left_on, right_on or left_on)
    return _run_with_rows(
        state, data, schema, _merge_fragment, fragment_index, keys, limit_of(state, memory_limit), progress
    )


async def merge_fragment_async(
    state: DatasetState,
    fragment_index: int,
    data: Any,
    left_on: str,
    right_on: str | None,
    schema: pa.Schema | None,
    memory_limit: int | None,
    progress: Progress | None,
) -> NewFragment:
    """`merge_fragment` for async callers."""
    keys = JoinKeys(left_on, right_on or left_on)
    return await _run_with_rows_async(
        state, data, schema, _merge_fragment, fragment_index, keys, limit_of(state, memory_limit), progress
    )


def _merge_fragment(
    state: DatasetState,
    rows: Rows | AsyncRows,
    fragment_index: int,
    keys: JoinKeys,
    limit_bytes: int,
    progress: Progress | None,
) -> Plan[NewFragment]:
    def join_and_write() -> Plan[tuple[Fragment, Schema]]:
        with closing(LeftJoin(state, [fragment_index], rows, keys, limit_bytes)) as join:
            new_columns = yield from columns_by_join(state, join)
            return (yield from fragment_with_columns(state, fragment_index, new_columns, progress))

    fragment, schema = yield from _raise_usage_errors(join_and_write())
    return fragment_metadata(fragment), LanceSchema(schema)


def update_columns(
    state: DatasetState,
    fragment_index: int,
    data: Any,
    left_on: str,
    right_on: str | None,
    schema: pa.Schema | None,
    memory_limit: int | None,
    progress: Progress | None,
) -> tuple[FragmentMetadata, list[int], bytes]:
    """Replace values of one fragment by those of other rows, joined by a key; see `LanceFragment.update_columns`.

    Returns the fragment, the ids of the columns, and a Roaring bitmap of the offsets of rows with new values.
    """
    keys = JoinKeys(left_on, right_on or left_on)
    return _run_with_rows(
        state, data, schema, _update_columns, fragment_index, keys, limit_of(state, memory_limit), progress
    )


async def update_columns_async(
    state: DatasetState,
    fragment_index: int,
    data: Any,
    left_on: str,
    right_on: str | None,
    schema: pa.Schema | None,
    memory_limit: int | None,
    progress: Progress | None,
) -> tuple[FragmentMetadata, list[int], bytes]:
    """`update_columns` for async callers."""
    keys = JoinKeys(left_on, right_on or left_on)
    return await _run_with_rows_async(
        state, data, schema, _update_columns, fragment_index, keys, limit_of(state, memory_limit), progress
    )


def _update_columns(
    state: DatasetState,
    rows: Rows | AsyncRows,
    fragment_index: int,
    keys: JoinKeys,
    limit_bytes: int,
    progress: Progress | None,
) -> Plan[tuple[FragmentMetadata, list[int], bytes]]:
    def join_and_write() -> Plan[tuple[Fragment, list[int], bytes]]:
        with closing(LeftJoin(state, [fragment_index], rows, keys, limit_bytes)) as join:
            return (yield from update_fragment_columns(state, fragment_index, join, progress))

    fragment, field_ids, offset_bitmap = yield from _raise_usage_errors(join_and_write())
    return fragment_metadata(fragment), field_ids, offset_bitmap
