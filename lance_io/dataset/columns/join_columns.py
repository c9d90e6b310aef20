"""New columns, and new values of columns, from a table that is joined by a key: a left join (spec: operations, 3.4).

The caller's table is held in memory, with one row for each key: the last of those that have it. A null key is equal
to a null key, and NaN to NaN; 0.0 and -0.0 differ.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_io.dataset.columns.new_columns import NewColumns, check_may_have_values, open_columns
from lance_io.dataset.columns.rewrite_columns import column_files, compute_here, write_fragment_columns
from lance_io.dataset.version.column_lists import project_taken
from lance_io.dataset.version.system_columns import ROW_ADDRESS, ROW_ID
from lance_io.dataset.write.data_files import NextBatch
from lance_io.errors import OperationError, SchemaError, UsageError
from lance_io.levels.arrays import values_of as values_of_array
from lance_io.plans.plan import RollBackOnError
from lance_io.plans.streams import Items, Next
from lance_io.table.manifest.roaring import encode_roaring
from lance_io.table.transaction.draft import TOMBSTONE

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_io.dataset.version.state import DatasetState
    from lance_io.dataset.write.input_data import AsyncRows, Rows
    from lance_io.plans.plan import Plan
    from lance_io.plans.streams import Stream
    from lance_io.table.manifest.fragment import DataFile, Fragment
    from lance_io.table.manifest.row_ids import U64Array

_COMPARED_AS: Final = {pa.float16(): pa.float32(), pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


class KeyedTable:
    """A table with one row for each key.

    keys    of its rows, of a type that is no dictionary
    values  the other columns
    """

    def __init__(self, table: pa.Table, key: str) -> None:
        self.key_type = table.schema.field(key).type
        keys = _comparable(table.column(key).combine_chunks())
        self.values = table.drop_columns([key])
        self._num_rows = len(keys)
        self._by_object: dict[Any, int] | None = None
        if pa.types.is_nested(keys.type):  # Arrow hashes no nested values
            self._by_object = {_hashable(value): row for row, value in enumerate(keys.to_pylist())}
        else:
            self._keys_from_end = keys.take(pa.array(range(len(keys) - 1, -1, -1), pa.int64()))

    def find(self, keys: pa.Array) -> pa.Array:
        """The row of each key, null for one that is not there."""
        keys = _comparable(keys)
        if self._by_object is not None:
            return pa.array([self._by_object.get(_hashable(value)) for value in keys.to_pylist()], pa.int64())
        from_end = pc.index_in(keys, value_set=self._keys_from_end).cast(pa.int64())
        return pc.subtract(pa.scalar(self._num_rows - 1, pa.int64()), from_end)

    def take(self, rows: pa.Array) -> pa.RecordBatch:
        """The values of rows, null where there is none."""
        found = self.values.take(rows).combine_chunks()
        batches = found.to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=self.values.schema)


def _comparable(keys: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(keys.type):
        keys = keys.dictionary_decode()
    wanted = _COMPARED_AS.get(keys.type)
    return keys if wanted is None else keys.cast(wanted)


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, _hashable(member)) for name, member in value.items())
    if isinstance(value, list):
        return tuple(_hashable(item) for item in value)
    if isinstance(value, float):
        return ("nan",) if value != value else value.hex()  # as Arrow compares: NaN to NaN, 0.0 not to -0.0
    return value


def check_keys(state: DatasetState, rows: Rows | AsyncRows, left_on: str, right_on: str) -> None:
    """Check the key of the caller's table.

    left_on, right_on  the key's column in the dataset, and there
    Raises `OperationError` for a column that is not there, for keys of another type than the dataset's, and for a table
    that has nothing but keys.
    """
    known = (*state.schema.names, ROW_ID, ROW_ADDRESS)
    if left_on not in known:
        raise OperationError(f"Column {left_on} does not exist in the left side dataset")
    left = project_taken(state.schema, [left_on]).arrow_schema.field(0)
    if right_on not in rows.schema.names:
        raise OperationError(f"Column {right_on} does not exist in the right side dataset")
    right = rows.schema.field(right_on)
    if left.type != right.type:
        raise OperationError(f"Index column type mismatch: expected {right.type}, got {left.type}")
    if len(rows.schema) == 1:
        raise OperationError(f"the right side has no column but {right_on}, so that there is nothing to add")


def read_keyed(rows: Rows | AsyncRows, right_on: str) -> Plan[KeyedTable]:
    """Read the caller's table. Raises `OperationError` for a table without rows."""
    batches = []
    while (batch := (yield NextBatch(rows))) is not None:
        batches.append(batch)
    table = pa.Table.from_batches(batches, rows.schema)
    if not table.num_rows:
        raise OperationError("HashJoiner: No data: the right side has no rows")
    return KeyedTable(table, right_on)


def columns_by_join(state: DatasetState, rows: Rows | AsyncRows, left_on: str, right_on: str) -> Plan[NewColumns]:
    """The columns of the caller's table but its key, for the rows that have the key; null for all others.

    Raises as `check_keys`, and `OperationError` for columns that the dataset has already.
    """
    check_keys(state, rows, left_on, right_on)
    for name in rows.schema.names:
        if name != right_on and name in state.schema.names:
            raise OperationError(f"Column {name} exists in both sides of the dataset")
    table = yield from read_keyed(rows, right_on)
    fields = table.values.schema

    def join(batch: pa.RecordBatch) -> pa.RecordBatch:
        found = table.take(table.find(batch.column(0)))
        for field in fields:
            if not field.nullable and found.column(field.name).null_count:
                raise OperationError(
                    f"Column '{field.name}' is declared as non-nullable but contains null values: rows without a match"
                )
        return found.append_column(ROW_ADDRESS, batch.column(ROW_ADDRESS))

    def values_of(fragment_id: int) -> Stream:
        found = yield open_columns(state, fragment_id, [left_on], None)
        while (batch := (yield Next(found))) is not None:
            yield Items([batch])

    return NewColumns(fields, values_of, compute_here(join))


# -- new values for columns that are there -----------------------------------------------------------------------------


def update_fragment_columns(
    state: DatasetState, place: int, rows: Rows | AsyncRows, left_on: str, right_on: str
) -> Plan[tuple[Fragment, list[int], bytes]]:
    """Write columns of one fragment anew, with the caller's values in the rows that have the key.

    place  of the fragment in the manifest

    Gives the fragment, whose older files do not have the columns any more, the ids of the columns, and the rows that
    have new values as a Roaring bitmap of their offsets. Nothing is committed.
    Raises `UsageError` for a column that the table does not have, or has with another type, and as `check_keys`.
    """
    check_may_have_values(state)
    check_keys(state, rows, left_on, right_on)
    names = [name for name in rows.schema.names if name != right_on]
    for name in names:
        if name not in state.schema.names:
            raise UsageError(f"Column {name} in right side fragment does not exist in left side fragment")
    schema = state.schema.prune([field.id for field in state.schema.fields if field.name in names])
    for field in schema.to_arrow():
        found = rows.schema.field(field.name).type
        if field.type != found:
            raise UsageError(f"Column {field.name} is of type {field.type}, the right side gives it as {found}")
    table = yield from read_keyed(rows, right_on)
    join = _Update(table, schema.names, left_on)
    read = list(dict.fromkeys([*schema.names, left_on]))

    def values_of(fragment_id: int) -> Stream:
        found = yield open_columns(state, fragment_id, read, None)
        while (batch := (yield Next(found))) is not None:
            yield Items([batch])

    files = column_files(state, schema)

    def write() -> Plan[Fragment]:
        try:
            changed = yield from write_fragment_columns(state, place, files, values_of, compute_here(join.update))
        except SchemaError as error:
            raise OperationError(error.message, path=state.location.uri) from error
        yield from files.publish()
        return changed

    changed: Fragment = yield RollBackOnError(write(), files.roll_back)
    written = changed.files[-1].fields
    older = (_without_columns(file, frozenset(written)) for file in changed.files[:-1])
    after = replace(changed, files=(*(file for file in older if file is not None), changed.files[-1]))
    return after, list(written), encode_roaring(join.offsets())


def _without_columns(file: DataFile, ids: frozenset[int]) -> DataFile | None:
    """A file of which some columns are dead; None when no other one is in it."""
    fields = tuple(TOMBSTONE if field_id in ids else field_id for field_id in file.fields)
    return replace(file, fields=fields) if set(fields) != {TOMBSTONE} else None


class _Update:
    """Old values, or the table's where it has the key."""

    def __init__(self, table: KeyedTable, names: list[str], left_on: str) -> None:
        self._table = table
        self._names = names
        self._left_on = left_on
        self._changed: list[U64Array] = []

    def update(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """New values of a batch's columns, and `_rowaddr`."""
        rows = self._table.find(batch.column(self._left_on))
        found = self._table.take(rows)
        addresses = batch.column(ROW_ADDRESS)
        is_found = pc.is_valid(rows).to_numpy(zero_copy_only=False)
        self._changed.append(values_of_array(addresses)[is_found])
        either = pa.array(np.arange(len(rows)) + np.where(is_found, len(rows), 0))
        columns = [pa.concat_arrays([batch.column(name), found.column(name)]).take(either) for name in self._names]
        return pa.RecordBatch.from_arrays([*columns, addresses], [*self._names, ROW_ADDRESS])

    def offsets(self) -> npt.NDArray[np.uint32]:
        """Of the rows that have new values, ascending."""
        found = np.concatenate([*self._changed, np.empty(0, np.uint64)])
        return (found & np.uint64(0xFFFF_FFFF)).astype(np.uint32)
