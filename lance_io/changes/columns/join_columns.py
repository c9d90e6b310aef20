"""New columns, and new values of columns, from a table joined by key (`left_join.py`)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_io.changes.columns.left_join import put_rows, rows_at
from lance_io.changes.columns.new_columns import NewColumns, check_nulls, open_columns
from lance_io.changes.columns.rewrite_columns import column_files, file_losing_start, write_fragment_columns
from lance_io.changes.edits.row_progress import RowProgress
from lance_io.changes.operations.schema_fit import schema_of, stores_alike
from lance_io.codecs.roaring import encode_roaring
from lance_io.errors import OperationError, SchemaError, UsageError
from lance_io.levels.arrays import values_of as values_of_array
from lance_io.levels.retype import as_type, is_alike
from lance_io.plans.plan import RollBackOnError
from lance_io.plans.streams import Items, Next
from lance_io.reads.version.system_columns import ROW_ADDRESS, SYSTEM_COLUMNS

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_io.changes.columns.left_join import LeftJoin
    from lance_io.plans.plan import Plan
    from lance_io.plans.streams import Stream
    from lance_io.reads.metadata.file_listing import Progress
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.fragment import Fragment
    from lance_io.table.manifest.row_ids import U64Array


def columns_by_join(state: DatasetState, join: LeftJoin) -> Plan[NewColumns]:
    """The columns of the caller's table without its key: values for rows with a match, null for others.

    join  not prepared; the caller closes it

    Raises `OperationError` for columns that the dataset has already, and for a caller's table without rows.
    """
    for name in join.fields.names:
        if name in state.schema.names:
            raise OperationError(f"Column {name} exists in both sides of the dataset")
    yield from join.prepare()
    fields = join.fields

    def joined(batch: pa.RecordBatch) -> pa.RecordBatch:
        matched, values = join.find(batch)
        new = rows_at(values, matched, batch.num_rows)
        for field in fields:
            if not field.nullable and new.column(field.name).null_count:
                raise OperationError(
                    f"Column '{field.name}' is declared as non-nullable but contains null values: rows without a match"
                )
        check_nulls(state, new)
        return new.append_column(ROW_ADDRESS, batch.column(ROW_ADDRESS))

    options = join.options([])

    def values_of(fragment_id: int) -> Stream:
        scan = yield open_columns(state, fragment_id, join.columns, options)
        while (batch := (yield Next(scan))) is not None:
            yield Items([batch])

    return NewColumns(fields, join.bounds, values_of, partial(join.work, joined))


# -- new values for existing columns -----------------------------------------------------------------------------------


def update_fragment_columns(
    state: DatasetState, fragment_index: int, join: LeftJoin, progress: Progress | None
) -> Plan[tuple[Fragment, list[int], bytes]]:
    """Rewrite columns of one fragment, with the caller's values in rows with a match. Does not commit.

    fragment_index  index of the fragment in the manifest
    join            for this fragment, not prepared; the caller closes it
    progress        called with the number of written rows

    Returns the fragment, whose older files have tombstones for the columns, the ids of the columns, and a Roaring
    bitmap of the offsets of rows with new values.
    Raises `UsageError` for a column that the table does not have, or has with another type, `OperationError` for a
    caller's table without rows.
    """
    names = join.fields.names
    for name in names:
        if name in SYSTEM_COLUMNS:
            raise UsageError(f"Invalid user input: Column {name} is a reserved metadata column and cannot be updated")
        if name not in state.schema.names:
            raise UsageError(f"Column {name} in right side fragment does not exist in left side fragment")
    schema = state.schema.prune([field.id for field in state.schema.fields if field.name in names])
    for own, field in zip(schema.fields, schema.to_arrow(), strict=True):
        given = join.fields.field(field.name)
        if not (is_alike(field.type, given.type) or stores_alike(schema_of(pa.schema([given])).fields[0], own)):
            raise UsageError(f"Column {field.name} has type {field.type}, but {given.type} in the right side")
    written = frozenset(field.id for field in schema.walk())
    if (file := file_losing_start([state.manifest.fragments[fragment_index]], written, state.schema)) is not None:
        raise UsageError(
            f"Column {schema.names[0]} is the first of the data file {file.path}, which has version 0.1 and would be "
            "unreadable without it. Update rows instead"
        )
    yield from join.prepare()
    update = _Update(state, join, schema.names)
    read = list(dict.fromkeys([*schema.names, *join.columns]))
    options = join.options(schema.to_arrow().types)

    def values_of(fragment_id: int) -> Stream:
        scan = yield open_columns(state, fragment_id, read, options)
        while (batch := (yield Next(scan))) is not None:
            yield Items([batch])

    files = column_files(state, schema)

    then = partial(join.work, update.new_values)
    row_progress = RowProgress(progress, int(state.physical_rows[fragment_index]))

    def write() -> Plan[Fragment]:
        try:
            changed = yield from write_fragment_columns(state, fragment_index, files, values_of, then, row_progress)
        except SchemaError as error:
            raise OperationError(error.message, path=state.location.uri) from error
        yield from files.publish_last_file()
        return changed

    changed: Fragment = yield RollBackOnError(write(), files.roll_back)
    return changed, list(changed.files[-1].fields), encode_roaring(update.offsets())


class _Update:
    """New values of columns: the caller's for rows with a match, else the old ones."""

    def __init__(self, state: DatasetState, join: LeftJoin, names: list[str]) -> None:
        self._state = state
        self._join = join
        self._names = names
        self._changed: list[U64Array] = []

    def new_values(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """New values of a batch's columns, and `_rowaddr`."""
        matched, values = self._join.find(batch)
        addresses = batch.column(ROW_ADDRESS)
        self._changed.append(values_of_array(addresses)[matched])
        known = [batch.column(name) for name in self._names]
        given = [as_type(values.column(name), own.type) for name, own in zip(self._names, known, strict=True)]
        changed = pa.RecordBatch.from_arrays(put_rows(known, matched, given, self._names), self._names)
        check_nulls(self._state, changed)
        return changed.append_column(ROW_ADDRESS, addresses)

    def offsets(self) -> npt.NDArray[np.uint32]:
        """Offsets of the rows with new values, ascending."""
        addresses = np.concatenate([*self._changed, np.empty(0, np.uint64)])
        return (addresses & np.uint64(0xFFFF_FFFF)).astype(np.uint32)
