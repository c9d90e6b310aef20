"""Key look-up: the rows of given keys, in the order of the keys, by an index (`LanceDataset.get`).

    keys -> distinct values of the column's type -> a scan of `column IN (...)` by its index, with the column itself
         -> rows in the order of the keys; a key's rows in the order of the table

Fragments that no segment covers are scanned. Because the rows bring their keys, no row of another key is returned:
there is an error about the index that names it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io.errors import FormatError, UsageError
from lance_io.filters.compiled import Predicate
from lance_io.filters.expressions.coercion import with_both_zeros
from lance_io.filters.expressions.expression_tree import Cast, Column, In
from lance_io.index.details import FILES
from lance_io.levels.arrays import numbers, shown_value
from lance_io.plans.plan import Import
from lance_io.plans.streams import Each
from lance_io.reads.index.table_indices import KEY_KINDS, key_indices
from lance_io.reads.rows.rebatch import to_table
from lance_io.reads.scan.ordering import rows_in_order
from lance_io.reads.scan.scan_options import ScanOptions
from lance_io.reads.scan.scan_plan import plan_scan
from lance_io.reads.scan.stream import ScanRun
from lance_io.reads.version.column_lists import (
    COMPILER,
    OutputColumn,
    Projection,
    as_list,
    column_path,
    columns_key,
    fields_along,
    project_taken,
)
from lance_io.reads.version.index_entries import details_of, load_indices
from lance_io.reads.version.index_errors import in_index

if TYPE_CHECKING:
    from lance_io.filters.expressions.expression_tree import Expr
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.table_indices import TableIndex
    from lance_io.reads.version.column_lists import Selection
    from lance_io.reads.version.state import DatasetState

_KEY: Final = "key of the row"  # a name with blanks cannot clash: outputs are selected by position
_MISSING: Final = ("skip", "null", "raise")


class MissingKey(UsageError, KeyError):
    """A key that no row has, looked up with `on_missing="raise"`."""

    __str__ = UsageError.__str__


def get_rows(
    state: DatasetState, column: str, keys: Any, columns: Selection, on_missing: str = "skip"
) -> Plan[pa.Table]:
    """The rows of keys; see `LanceDataset.get`."""
    if on_missing not in _MISSING:
        raise UsageError(f"on_missing must be one of {', '.join(_MISSING)}, found {on_missing!r}")
    yield Import(COMPILER)
    path = column_path(state.schema, column)
    field = fields_along(state.schema, path)[-1]
    usable = yield from key_indices(state, path)
    if not usable and not (yield from _has_index(state, field.id)):
        raise UsageError(
            f"column {column!r} has no BTREE or BITMAP index, which a look-up of keys needs: build it with "
            f"create_scalar_index({column!r}, 'BTREE')",
            path=state.location.uri,
        )
    wanted = _cast(keys, field.arrow_type, column)
    distinct = wanted if len(wanted) == 1 and not wanted.null_count else wanted.unique().drop_null()
    projection = _projection(state, columns, path, on_missing)
    table = yield from _rows_with_keys(state, path, distinct, projection)
    if usable:
        _check_keys(state, table.column(-1), distinct, usable[0])
    if distinct is wanted and table.num_rows:  # the rows of one key, in the order of the table
        return table.select(range(table.num_columns - 1))
    return _in_order(table, wanted, column, on_missing)


def _has_index(state: DatasetState, field_id: int) -> Plan[bool]:
    """Whether a column has an index that may cover no fragment, so that all rows are scanned."""
    entries = [entry for entry in (yield from load_indices(state)) if entry.fields == (field_id,)]
    known = [details for entry in entries if (details := details_of(entry)) is not None]
    return any(details.kind in KEY_KINDS and details.json_path is None for details in known)


def _cast(keys: Any, dtype: pa.DataType, column: str) -> pa.Array:
    """Keys as an array of the column's type. Raises `UsageError` if that loses anything."""
    if isinstance(keys, (str, bytes)) or not (hasattr(keys, "__iter__") or hasattr(keys, "__array__")):
        raise TypeError(f"keys must be a list or an array of values of column {column!r}, got {type(keys)}")
    try:
        if isinstance(keys, (pa.Array, pa.ChunkedArray)):
            given = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
        else:
            listed = keys if hasattr(keys, "__array__") else [*keys]
            if not len(listed):
                return pa.array([], dtype)
            given = pa.array(listed)
        if pt.is_floating(dtype) and pt.is_integer(given.type):
            return given.cast(dtype)
        if given.type != dtype and not _is_kin(given.type, dtype):
            raise UsageError(f"keys of type {given.type} for column {column!r} of type {dtype}")
        return given.cast(dtype)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise UsageError(f"keys that do not fit column {column!r} of type {dtype}: {error}") from error


def _is_kin(given: pa.DataType, dtype: pa.DataType) -> bool:
    """Whether keys of a type can be values of another one; a cast decides about each."""
    if pt.is_null(given):
        return True
    kinds = (
        lambda t: pt.is_integer(t) or pt.is_floating(t) or pt.is_decimal(t),
        lambda t: pt.is_string(t) or pt.is_large_string(t),
        lambda t: pt.is_binary(t) or pt.is_large_binary(t) or pt.is_fixed_size_binary(t),
        lambda t: pt.is_date(t) or pt.is_timestamp(t),
        pt.is_time,
        pt.is_duration,
    )
    return any(kind(given) and kind(dtype) for kind in kinds)


def _projection(state: DatasetState, columns: Selection, path: tuple[str, ...], on_missing: str) -> Projection:
    """The output columns, and the key behind them."""
    cache_key = ("get", columns_key(columns), path, on_missing)
    projection: Projection | None = state.prepared.get(cache_key)
    if projection is None:
        projection = _new_projection(state, columns, path, on_missing)
        state.prepared.put(cache_key, projection)
    return projection


def _new_projection(state: DatasetState, columns: Selection, path: tuple[str, ...], on_missing: str) -> Projection:
    projection = project_taken(state.schema, as_list(columns))
    projection = state.shown(projection, None)
    outputs = projection.outputs
    if on_missing == "null":
        outputs = tuple(replace(output, field=output.field.with_nullable(True)) for output in outputs)
    field = pa.field(_KEY, state.field_at(path).arrow_type)
    return replace(projection, outputs=(*outputs, OutputColumn(_KEY, path, field)))


def _rows_with_keys(
    state: DatasetState, path: tuple[str, ...], distinct: pa.Array, projection: Projection
) -> Plan[pa.Table]:
    if not len(distinct):
        return to_table([], projection.arrow_schema)
    operand: Expr = Column(path)
    values = distinct
    if pt.is_float16(distinct.type):
        values, operand = distinct.cast(pa.float32()), Cast(operand, pa.float32())
    predicate = Predicate(In(operand, with_both_zeros(values), has_null=False))
    options = ScanOptions(filter=predicate, late_materialization=False)
    plan = yield from plan_scan(state, options, projection, ahead=True)
    items: list[tuple[int, pa.RecordBatch]] = []
    yield Each(ScanRun(state, plan, options, None).batches(), items.append)
    return to_table([batch for _, batch in items], projection.arrow_schema)


def _check_keys(state: DatasetState, keys: pa.ChunkedArray, wanted: pa.Array, index: TableIndex) -> None:
    """Raise `FormatError` if there is a row of another key than those wanted: the index that names it is damaged."""
    if len(wanted) == 1 and len(keys) == 1 and keys[0] == wanted[0]:
        return
    known = pc.is_in(_comparable(keys.combine_chunks()), value_set=_comparable(wanted))
    if pc.all(known, min_count=0).as_py():
        return
    other = shown_value(keys.filter(pc.invert(known))[0])
    part = index.parts[0]
    key = state.object_keys.index_key(part.uuid, part.base_id, FILES[part.details.kind][-1])
    raise in_index(FormatError(f"a row has the key {other!r}, which was not looked up"), index.name, key)


def _in_order(table: pa.Table, wanted: pa.Array, column: str, on_missing: str) -> pa.Table:
    """The rows of each key in the order of the keys."""
    distinct = _comparable(wanted).unique()
    numbers_of_rows = pc.index_in(_comparable(table.column(-1).combine_chunks()), value_set=distinct.drop_null())
    numbers_of_keys = pc.index_in(_comparable(wanted), value_set=distinct.drop_null())
    of_rows = numbers_of_rows.to_numpy(zero_copy_only=False).astype(np.int64)
    of_keys = numbers_of_keys.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    order = np.argsort(of_rows, kind="stable")
    counts = np.bincount(of_rows, minlength=len(distinct)) if len(distinct) else np.zeros(1, np.int64)
    starts = np.cumsum(counts) - counts
    key_counts = np.where(of_keys < 0, 0, counts[of_keys])
    if on_missing == "raise" and not key_counts.all():
        missing = shown_value(wanted[int(np.flatnonzero(key_counts == 0)[0])])
        raise MissingKey(f"no row has the key {missing!r} in column {column!r}")
    shown = np.maximum(key_counts, 1) if on_missing == "null" else key_counts
    within = np.arange(int(shown.sum())) - np.repeat(np.cumsum(shown) - shown, shown)
    is_missing = np.repeat(key_counts == 0, shown)
    slots = np.where(is_missing, 0, np.repeat(starts[of_keys], shown) + within)
    rows = order[slots] if len(order) else np.zeros(len(slots), np.int64)
    table = table.select(range(table.num_columns - 1))
    if is_missing.any():
        return table.take(numbers(rows.astype(np.int64), is_missing))
    return rows_in_order(table, numbers(rows.astype(np.int64)))


def _comparable(values: pa.Array) -> pa.Array:
    """Values that Arrow looks up: half floats wider, and one zero."""
    if pt.is_float16(values.type):
        values = values.cast(pa.float32())
    return pc.add(values, pa.scalar(0.0, values.type)) if pt.is_floating(values.type) else values
