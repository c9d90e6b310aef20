"""New columns with values: their sources, and writing them.

    SQL expressions                computed by a scan
    a function                     called with batches of a scan, in another thread (`column_functions.py`)
    a caller's record batches      one row for each row of a scan, in its order
    a table, by key                a left join (`join_columns.py`)

Each source is a `NewColumns`: it returns batches of a fragment, from which the columns are computed, with the address
of each row. The columns are written to one more data file for each fragment (`rewrite_columns.py`) and committed with
a Merge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lance_io.changes.columns.new_members import check_no_blobs, paths_to, quoted, with_members, written_together
from lance_io.changes.columns.rewrite_columns import column_files, write_columns, write_fragment_columns
from lance_io.changes.columns.schema_edits import add_fields
from lance_io.changes.edits.change_plans import change
from lance_io.changes.edits.row_progress import RowProgress
from lance_io.changes.operations.schema_fit import check_version
from lance_io.changes.write.data_files import NextBatch, data_file_name
from lance_io.commit.commit_files import CommitFiles
from lance_io.errors import BindError, EvaluationError, OperationError, SchemaError
from lance_io.format.version import V0_1
from lance_io.lazy_names import lazy_module
from lance_io.levels.join import join_batches
from lance_io.plans.cpu_requests import Compute
from lance_io.plans.plan import Import, RollBackOnError
from lance_io.plans.streams import Items, Next, Open, iterate_async, iterate_sync
from lance_io.reads.scan.execute import projected_batches
from lance_io.reads.scan.scan_options import scan_options
from lance_io.reads.version.column_lists import COMPILER, project, project_taken
from lance_io.reads.version.system_columns import ROW_ADDRESS, SYSTEM_COLUMNS
from lance_io.table.transaction.field_ids import first_free_id
from lance_io.table.transaction.operations import Merge

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from lance_io import filters
    from lance_io.changes.columns.rewrite_columns import ComputeColumns, FinishedFragments
    from lance_io.changes.write.input_data import AsyncRows, Rows
    from lance_io.format.schema import Schema
    from lance_io.plans.plan import Plan, Request
    from lance_io.plans.streams import Stream
    from lance_io.reads.memory_limit import ScanBounds
    from lance_io.reads.metadata.file_listing import Progress
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.fragment import Fragment
else:
    filters = lazy_module("lance_io.filters")

_NULL_TYPES: Final = (
    pa.types.is_null,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_list,
    pa.types.is_fixed_size_binary,
    pa.types.is_fixed_size_list,
)
"""Types of new columns with nulls that tables of file version 0.1 accept."""
_JOINED_SHARE: Final = 32  # 1/32 of the memory limit: the caller's rows in a joined batch


@dataclass(frozen=True, slots=True, eq=False)
class NewColumns:
    """New columns of a table, with values.

    fields     the columns; an existing struct has only its new members
    bounds     limits of scans of the table
    values_of  record batches of a fragment, given its id, in the order of its rows: input of `then`, and `_rowaddr`
    then       computes the columns of a batch; None if `values_of` returns them
    finish     final check after the values of all fragments
    finished   opens a store of finished fragments
    are_null   whether their expressions are null in all rows
    """

    fields: pa.Schema
    bounds: ScanBounds
    values_of: Callable[[int], Stream]
    then: ComputeColumns | None = None
    finish: Callable[[], Plan[None]] | None = None
    finished: Callable[[Schema], Plan[FinishedFragments]] | None = None
    are_null: bool = False


def add_new_columns(state: DatasetState, new: NewColumns, progress: Progress | None = None) -> Plan[DatasetState]:
    """Write the columns of all fragments, and commit.

    progress  called with the number of written rows
    Raises `OperationError` for an existing column, and for values that cannot be written.
    """
    state.check_commits()
    schema, added = with_fields(state, new.fields)
    files = column_files(state, schema.prune(written_together(schema, added, state.manifest.data_version)))
    new = _with_known(state, schema, added, new)

    def write(finished: FinishedFragments | None) -> Plan[DatasetState]:
        try:
            changed = yield from write_columns(state, files, new.values_of, new.then, finished, progress)
            if new.finish is not None:
                yield from new.finish()
        except (EvaluationError, SchemaError) as error:
            raise OperationError(error.message, path=state.location.uri) from error
        keeps = all(field.nullable for field in new.fields)
        operation = Merge(changed, schema, preserves_nullability=keeps)
        commit_files = CommitFiles()
        return (
            yield from change(state, operation, files=commit_files, alongside=[files.publish_for_commit(commit_files)])
        )

    if new.finished is None:
        after: DatasetState = yield RollBackOnError(write(None), files.roll_back)
        return after
    finished = yield from new.finished(files.schema)
    try:
        after = yield RollBackOnError(write(finished), files.roll_back)
        yield from finished.forget()
    finally:
        finished.close()
    return after


def fragment_with_columns(
    state: DatasetState,
    fragment_index: int,
    new: NewColumns,
    progress: Progress | None = None,
    new_name: Callable[[], str] = data_file_name,
) -> Plan[tuple[Fragment, Schema]]:
    """Write the columns of one fragment; does not commit. Returns the fragment, and the table's schema with them.

    fragment_index  index of the fragment in the manifest
    progress        called with the number of written rows
    new_name        returns the name of its new file
    Raises as `add_new_columns`.
    """
    if not len(new.fields):
        check_no_columns(state)
        return state.manifest.fragments[fragment_index], state.schema
    schema, added = with_fields(state, new.fields)
    written_schema = schema.prune(written_together(schema, added, state.manifest.data_version))
    files = column_files(state, written_schema, new_name=new_name)
    new = _with_known(state, schema, added, new)
    row_progress = RowProgress(progress, int(state.physical_rows[fragment_index]))

    def write() -> Plan[tuple[Fragment, Schema]]:
        try:
            changed = yield from write_fragment_columns(
                state, fragment_index, files, new.values_of, new.then, row_progress
            )
            if new.finish is not None:
                yield from new.finish()
        except (EvaluationError, SchemaError) as error:
            raise OperationError(error.message, path=state.location.uri) from error
        yield from files.publish_last_file()
        return changed, schema

    written: tuple[Fragment, Schema] = yield RollBackOnError(write(), files.roll_back)
    return written


def _with_known(state: DatasetState, schema: Schema, added: frozenset[int], new: NewColumns) -> NewColumns:
    """Add the existing fields that must be written together with new members of their columns (`new_members.py`)."""
    before, version = state.schema, state.manifest.data_version
    ids = written_together(schema, added, version).intersection(field.id for field in before.walk())
    if not ids:
        return new
    known_paths = paths_to(before, ids)
    paths = [quoted(steps) for steps in known_paths]
    check_no_blobs(before, ids, paths)
    names = {steps[0].name for steps in known_paths}
    options = new.bounds.options(project_taken(before, paths).arrow_schema.types)

    def values_of(fragment_id: int) -> Stream:
        given = yield Open(
            lambda: iterate_sync(new.values_of(fragment_id)), lambda: iterate_async(new.values_of(fragment_id))
        )
        known = _Resliced((yield open_columns(state, fragment_id, paths, options)))
        while (batch := (yield Next(given))) is not None:
            if new.then is not None:
                batch = yield new.then(batch)
            while batch.num_rows:
                beside = yield from known.take(batch.num_rows)
                part, batch = batch.slice(0, beside.num_rows), batch.slice(beside.num_rows)
                yield Items([(yield _joining(part, beside, names))])

    return replace(new, values_of=values_of, then=None)


def _joining(given: pa.RecordBatch, known: pa.RecordBatch, names: set[str]) -> Request[Any]:
    return Compute(partial(_join, given, known, names), lambda: given.nbytes + known.nbytes)


def _join(given: pa.RecordBatch, known: pa.RecordBatch, names: set[str]) -> pa.RecordBatch:
    """New columns; those called `names` have new members of the columns of `known`, which has the same rows."""
    if not given.column(ROW_ADDRESS).equals(known.column(ROW_ADDRESS)):
        raise AssertionError("new values have another order than the rows of the table")
    arrays = [
        with_members(known.column(name), array, name) if name in names else array
        for name, array in zip(given.schema.names, given.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, given.schema.names)


class _Resliced:
    """Batches of a scan in slices of other lengths. scan: the open scan."""

    def __init__(self, scan: Any) -> None:
        self._scan = scan
        self._rest: pa.RecordBatch | None = None

    def take(self, num_rows: int) -> Generator[Any, Any, pa.RecordBatch]:
        """The next rows, from 1 to `num_rows`."""
        while self._rest is None or not self._rest.num_rows:
            self._rest = yield Next(self._scan)
            if self._rest is None:
                raise AssertionError("there are new values for more rows than the fragment has")
        part = self._rest.slice(0, num_rows)
        self._rest = self._rest.slice(part.num_rows)
        return part


def check_no_columns(state: DatasetState) -> None:
    """Raise `OperationError` for a table of file version 0.1 with fragments, as pylance does when adding no columns."""
    if state.manifest.data_version == V0_1 and state.manifest.fragments:
        raise OperationError("Invalid argument error: must either specify a row count or at least one column")


def with_fields(state: DatasetState, given: pa.Schema) -> tuple[Schema, frozenset[int]]:
    """The table's schema with new columns, and the ids of these. Raises `OperationError`."""
    version = state.manifest.data_version
    if version == V0_1:
        for field in given:
            if pa.types.is_struct(field.type) and field.name in state.schema.names:
                raise _no_members_error(field.name)
    try:
        schema, added = add_fields(state.schema, given, version, first_free_id(state.manifest.message))
        check_version(schema, version)
    except SchemaError as error:
        raise OperationError(error.message) from error
    if version == V0_1:
        _check_no_members(state.schema, schema)
    return schema, added


def _check_no_members(before: Schema, after: Schema) -> None:
    """Raise `OperationError` for a new member of a struct in tables of version 0.1, as pylance does."""
    known = {field.id: field for field in before.walk()}
    for field in after.walk():
        if field.id in known and len(field.children) > len(known[field.id].children):
            raise _no_members_error(field.name)


def _no_members_error(name: str) -> OperationError:
    return OperationError(f"Column {name} is a struct col, add sub column is not supported in Lance file version 0.1")


def check_nulls(state: DatasetState, batch: pa.RecordBatch) -> None:
    """Raise `OperationError` for nulls in new values that files of the table's version would lose, as pylance does.

    Only nulls of whole values count. Nulls of lists and of values of fixed size do not: they become empty and zero.
    """
    if state.manifest.data_version != V0_1:
        return
    for field, array in zip(batch.schema, batch.columns, strict=True):
        if array.null_count and _loses_nulls(field.type):
            raise OperationError(
                f"Column '{field.name}' has null values of type: {field.type}, but storing nulls for this data type "
                "is not supported by the table's file version 0.1. The nulls are in the new data, or belong to rows "
                "without a match"
            )


def _loses_nulls(dtype: pa.DataType) -> bool:
    if isinstance(dtype, pa.BaseExtensionType):
        dtype = dtype.storage_type
    return not any(is_such(dtype) for is_such in _NULL_TYPES)


def columns_by_sql(state: DatasetState, columns: Mapping[str, str], bounds: ScanBounds) -> Plan[NewColumns]:
    """Columns computed by SQL expressions.

    columns  expressions by the name of the new column; they cannot refer to each other
    Raises `BindError` for an expression that does not fit, `TypeError` for one that is no string.
    """
    yield Import(COMPILER)
    for text in columns.values():
        filters.check_change(text)
    outputs = project(state.schema, dict(columns)).outputs
    for output in outputs:
        for path in output.sources:
            if path[0] in SYSTEM_COLUMNS:
                raise BindError(f"No field named {path[0]}. Valid fields are {', '.join(state.schema.names)}.")
    projection = project(state.schema, dict(columns), with_row_address=True)
    read = dict.fromkeys(path[0] for output in outputs for path in output.sources)
    types = [*projection.arrow_schema.types, *(state.arrow_schema.field(name).type for name in read)]
    options = bounds.options(types)

    def values_of(fragment_id: int) -> Stream:
        return projected_batches(state, scan_options(fragments=(fragment_id,), **options), projection)

    fields = pa.schema([output.field.remove_metadata() for output in outputs])
    are_null = all(output.computed is not None and output.computed.is_null for output in outputs)
    return NewColumns(fields, bounds, values_of, are_null=are_null and pa.null() not in fields.types)


def columns_from_rows(state: DatasetState, rows: Rows | AsyncRows, bounds: ScanBounds) -> NewColumns:
    """Columns from the caller's rows: a row for each row of the table, in the order of a scan."""
    given = _CallerRows(rows, bounds.limit_bytes // _JOINED_SHARE)
    options = bounds.options(rows.schema.types)

    def values_of(fragment_id: int) -> Stream:
        scan = yield open_columns(state, fragment_id, [], options)
        while (batch := (yield Next(scan))) is not None:
            addresses = batch.column(ROW_ADDRESS)
            while len(addresses):
                values = yield from given.take(len(addresses))
                check_nulls(state, values)
                yield Items([values.append_column(ROW_ADDRESS, addresses.slice(0, values.num_rows))])
                addresses = addresses.slice(values.num_rows)

    return NewColumns(rows.schema, bounds, values_of, finish=given.finish)


def open_columns(state: DatasetState, fragment_id: int, columns: Sequence[Any], options: Mapping[str, Any]) -> Open:
    """Open a scan of columns of a fragment; adds `_rowaddr` as the last column unless it is one of them.

    options  options of the scan, from `ScanBounds.options`
    """
    names = [*columns] if ROW_ADDRESS in columns else [*columns, ROW_ADDRESS]
    scan = scan_options(fragments=(fragment_id,), **options)

    def batches() -> Stream:
        return projected_batches(state, scan, project_taken(state.schema, names))

    return Open(lambda: iterate_sync(batches()), lambda: iterate_async(batches()))


class _CallerRows:
    """The caller's rows in slices of other lengths.

    bytes_max  limit for joining the caller's batches; larger ones are not joined
    """

    def __init__(self, rows: Rows | AsyncRows, bytes_max: int) -> None:
        self._rows = rows
        self._bytes_max = bytes_max
        self._rest: pa.RecordBatch | None = None

    def take(self, num_rows: int) -> Generator[Any, Any, pa.RecordBatch]:
        """The next rows, from 1 to `num_rows`. Raises `OperationError` if there are none."""
        parts: list[pa.RecordBatch] = []
        missing, num_bytes = num_rows, 0
        while missing and num_bytes < self._bytes_max:
            if self._rest is not None and self._rest.num_rows:
                part = self._rest.slice(0, missing)
                part_bytes = part.nbytes
                if parts and part_bytes > self._bytes_max:
                    break
                self._rest = self._rest.slice(part.num_rows)
                parts.append(part)
                missing, num_bytes = missing - part.num_rows, num_bytes + part_bytes
                continue
            batch = yield NextBatch(self._rows)
            if batch is None:
                raise OperationError(
                    "Stream ended before producing values for all rows in dataset: give one row for each row that is "
                    "not deleted"
                )
            self._rest = batch
        return join_batches(parts)

    def finish(self) -> Plan[None]:
        """Raise `OperationError` if there are more rows."""
        while self._rest is None or not self._rest.num_rows:
            batch = yield NextBatch(self._rows)
            if batch is None:
                return
            self._rest = batch
        raise OperationError("Stream produced more values than expected for dataset")
