"""`drop_columns`, `alter_columns` and `add_columns`: changes of columns; rows keep their fragments.

drop, rename, nullability    a new schema, no data is written
columns without values       the same: columns in no file are null; also SQL expressions that are null in each row
casts, columns with values   one new file for each fragment, with these columns only (`rewrite_columns.py`)
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_io.changes.columns.cast_columns import can_cast, cast_within
from lance_io.changes.columns.column_functions import columns_by_function
from lance_io.changes.columns.new_columns import add_new_columns, check_no_columns, columns_by_sql, with_fields
from lance_io.changes.columns.new_members import check_no_blobs, packed_with_gaps, paths_to, quoted, written_together
from lance_io.changes.columns.rewrite_columns import (
    column_files,
    compute_here,
    file_losing_start,
    structs_at_start,
    without_dead_files,
    write_columns,
)
from lance_io.changes.columns.schema_edits import alter_fields, drop_fields, parse_alterations, replace_types
from lance_io.changes.columns.type_texts import debug_type
from lance_io.changes.edits.change_plans import change
from lance_io.commit.commit_files import CommitFiles
from lance_io.errors import OperationError, SchemaError, UnsupportedError, UsageError
from lance_io.format.schema import split_path
from lance_io.format.version import V0_1
from lance_io.plans.plan import RollBackOnError
from lance_io.plans.streams import Each
from lance_io.reads.memory_limit import ScanBounds, limit_of
from lance_io.reads.scan.execute import projected_batches, scan_batches
from lance_io.reads.scan.scan_options import scan_options
from lance_io.reads.version.column_lists import fields_along, project, project_taken
from lance_io.reads.version.index_entries import load_indices
from lance_io.reads.version.system_columns import ROW_ADDRESS
from lance_io.table.transaction.field_ids import first_free_id
from lance_io.table.transaction.operations import Merge, Project

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lance_io.changes.columns.new_columns import NewColumns
    from lance_io.changes.columns.schema_edits import Alteration
    from lance_io.format.schema import Field, Schema
    from lance_io.plans.plan import Plan
    from lance_io.plans.streams import Stream
    from lance_io.reads.metadata.file_listing import Progress
    from lance_io.reads.version.state import DatasetState


def drop_columns(state: DatasetState, columns: Sequence[str]) -> Plan[DatasetState]:
    """Remove columns, or members of structs, from the schema; their values stay in the files.

    Warns if pylance cannot read the remaining members of a packed struct; its own `drop_columns` has the same effect.
    Raises `UsageError` for a missing column, and for dropping all columns.
    """
    schema, version = drop_fields(state.schema, columns), state.manifest.data_version
    packed = packed_with_gaps(state.schema, schema, version) if state.manifest.fragments else []
    if packed:
        warnings.warn(
            f"Column {', '.join(packed)}: files of version {version.name} hold all members of a packed struct together "
            "and still have the dropped ones. lance_io reads the remaining members; pylance reads wrong values for "
            "them, or fails, until the rows are rewritten, for example by an update",
            UserWarning,
            stacklevel=3,
        )
    return (yield from change(state, Project(schema, preserves_nullability=True)))


def alter_columns(
    state: DatasetState, alterations: Iterable[Any], memory_limit: int | None = None, progress: Progress | None = None
) -> Plan[DatasetState]:
    """Rename columns, allow or forbid nulls, cast them.

    memory_limit  bytes, None for the limit of the table
    progress      called with the number of cast rows
    Raises `OperationError` for a missing column, for nulls in a column that forbids them and for an invalid name;
    `UsageError` and `TypeError` for an invalid alteration.
    """
    limit_bytes = limit_of(state, memory_limit)
    parsed = parse_alterations(state.schema, alterations)
    schema = alter_fields(state.schema, parsed)
    stricter = [alteration for alteration in parsed if alteration.forbids_nulls]
    for alteration in stricter:
        yield from _check_nulls(state, alteration)
    casts = [alteration for alteration in parsed if alteration.is_cast]
    if casts:
        if stricter:
            raise OperationError(f'Column "{stricter[0].path}": apply the cast first, then forbid nulls')
        return (yield from _cast_columns(state, schema, casts, limit_bytes, progress))
    changes_nulls = any(alteration.nullable not in (None, alteration.field.nullable) for alteration in parsed)
    if any(alteration.data_type is not None for alteration in parsed) and not changes_nulls:  # a cast to the same type
        fragments = tuple(state.manifest.fragments)
        return (yield from change(state, Merge(fragments, schema, preserves_nullability=not stricter)))
    return (yield from change(state, Project(schema, preserves_nullability=not stricter)))


def _cast_columns(
    state: DatasetState, renamed: Schema, casts: Sequence[Alteration], limit_bytes: int, progress: Progress | None
) -> Plan[DatasetState]:
    """Write columns with another type and new ids; the old values stay in their files.

    renamed  the schema with all other alterations
    """
    for alteration in casts:
        if not can_cast(alteration.field.arrow_type, alteration.data_type):
            raise OperationError(
                f'Invalid user input: Cannot cast column "{alteration.path}" from '
                f"{debug_type(alteration.field.arrow_type)} to {debug_type(alteration.data_type)}"
            )
    yield from _check_not_indexed(state, casts)
    schema, replaced = replace_types(renamed, casts, first_free_id(state.manifest.message))
    version = state.manifest.data_version
    cast_ids = [alteration.field.id for alteration in casts]
    ids = written_together(state.schema, cast_ids, version)
    check_no_blobs(state.schema, ids.difference(cast_ids), [alteration.path for alteration in casts])
    before, after = state.schema.prune(ids), schema.prune(written_together(schema, replaced, version))
    written = frozenset(field.id for field in after.walk())
    omitted_struct_ids = structs_at_start(state.manifest.fragments, written, schema)
    parents = written - replaced - omitted_struct_ids
    if (file := file_losing_start(state.manifest.fragments, parents, schema)) is not None:
        raise OperationError(
            f"Cannot cast items or members of the first column of the data file {file.path}: the file has version 0.1 "
            "and would be unreadable without it. Cast the whole column, or not all members at once"
        )
    state.check_commits()
    files = column_files(state, after, omitted_struct_ids=omitted_struct_ids)
    projection = project_taken(state.schema, [*map(quoted, paths_to(state.schema, ids)), ROW_ADDRESS])
    read = {field.name: field for field in before.fields}

    def cast(batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            cast_within(batch.column(old.name), old, new)
            for old, new in zip((read[field.name] for field in before.fields), after.fields, strict=True)
        ]
        names = [field.name for field in after.fields]
        return pa.RecordBatch.from_arrays([*arrays, batch.column(ROW_ADDRESS)], [*names, ROW_ADDRESS])

    types = [*projection.arrow_schema.types, *after.to_arrow().types]
    options = ScanBounds(None, limit_bytes).options(types)

    def values_of(fragment_id: int) -> Stream:
        return projected_batches(state, scan_options(fragments=(fragment_id,), **options), projection)

    def write() -> Plan[DatasetState]:
        try:
            fragments = yield from write_columns(state, files, values_of, compute_here(cast), None, progress)
        except (pa.ArrowInvalid, SchemaError) as error:
            raise OperationError(f"Cast error: {error}", path=state.location.uri) from error
        kept = tuple(without_dead_files(fragment, schema) for fragment in fragments)
        operation = Merge(kept, schema, preserves_nullability=True)
        commit_files = CommitFiles()
        return (
            yield from change(state, operation, files=commit_files, alongside=[files.publish_for_commit(commit_files)])
        )

    after_cast: DatasetState = yield RollBackOnError(write(), files.roll_back)
    return after_cast


def _check_not_indexed(state: DatasetState, casts: Sequence[Alteration]) -> Plan[None]:
    for index in (yield from load_indices(state)):
        for alteration in casts:
            if alteration.field.id in index.fields:
                raise OperationError(
                    f"Column `{alteration.path}` has the index {index.name}. Drop the index(es) with drop_index() "
                    "before altering the column"
                )


def _steps_to(state: DatasetState, alteration: Alteration) -> list[Field]:
    """The fields from the top down to the altered one."""
    return fields_along(state.schema, tuple(split_path(alteration.path)), through_lists=True)


def _check_nulls(state: DatasetState, alteration: Alteration) -> Plan[None]:
    steps = _steps_to(state, alteration)
    if any(step.logical_type != "struct" for step in steps[:-1]):
        raise UnsupportedError(f'Column "{alteration.path}": checking items of lists for nulls is not supported')
    options = scan_options(columns=[], filter=f"{quoted(steps)} is null", limit=1, with_row_address=True)
    num_nulls: list[int] = []
    schema = project(state.schema, [], with_row_address=True).arrow_schema
    yield Each(scan_batches(state, options, schema), lambda batch: num_nulls.append(batch.num_rows))
    if sum(num_nulls):
        raise OperationError(f'Column "{alteration.path}" contains NULL values and cannot be made non-nullable')


def add_columns(
    state: DatasetState,
    transforms: Any,
    read_columns: Sequence[str] | None,
    bounds: ScanBounds,
    progress: Progress | None = None,
) -> Plan[DatasetState]:
    """Add columns: without values for a `pa.Field`, a list of fields or a schema; else from SQL or a function.

    progress  called with the number of written rows
    Raises `TypeError` for other `transforms`.
    """
    if isinstance(transforms, pa.Field):
        transforms = [transforms]
    if isinstance(transforms, list):
        if not transforms:
            raise UsageError("add_columns: the list is empty, expected fields, a schema or a dict of SQL expressions")
        transforms = pa.schema(transforms)
    if isinstance(transforms, pa.Schema):
        return (yield from add_empty_columns(state, transforms))
    if isinstance(transforms, dict) and not transforms:
        check_no_columns(state)
        unchanged = Merge(tuple(state.manifest.fragments), state.schema, preserves_nullability=True)
        return (yield from change(state, unchanged))
    new = yield from make_columns(state, transforms, read_columns, bounds)
    if new.are_null and state.manifest.data_version != V0_1:
        return (yield from add_empty_columns(state, new.fields))
    return (yield from add_new_columns(state, new, progress))


def make_columns(
    state: DatasetState, transforms: Any, read_columns: Sequence[str] | None, bounds: ScanBounds
) -> Plan[NewColumns]:
    """Columns computed by SQL expressions or a function. Raises `TypeError` for other `transforms`."""
    if isinstance(transforms, dict):
        return (yield from columns_by_sql(state, transforms, bounds))
    if callable(transforms):
        return (yield from columns_by_function(state, transforms, read_columns, bounds))
    raise TypeError(
        "transforms must be a BatchUDF, dict, map function, or ReaderLike value, or fields without values, found "
        f"{type(transforms)}"
    )


def are_rows(transforms: Any) -> bool:
    """Whether `transforms` are rows of data, and not fields, expressions or a function."""
    if transforms is None or isinstance(transforms, (str, bytes, int, float, dict, pa.Field, pa.Schema)):
        return False
    if isinstance(transforms, list) and all(isinstance(field, pa.Field) for field in transforms):
        return False
    return not callable(transforms)


def add_empty_columns(state: DatasetState, given: pa.Schema) -> Plan[DatasetState]:
    """Add columns that are null in all rows; writes no data.

    Raises `OperationError` for a column that exists, that is not nullable, or that has an invalid name.
    """
    version = state.manifest.data_version
    if version == V0_1:
        raise OperationError("Cannot add all-null columns to legacy dataset version.")
    for field in given:
        if not field.nullable:
            raise OperationError(f"All-null columns must be nullable, but field '{field.name}' is not.")
    schema, _ = with_fields(state, given)
    fragments = tuple(state.manifest.fragments)
    return (yield from change(state, Merge(fragments, schema, preserves_nullability=True)))
