"""Key look-up: the rows of given keys, in the order of the keys, by an index (`LanceDataset.get`).

    keys -> distinct values of the column's type -> rows with these values, with the column itself
         -> rows in the order of the keys; a key's rows in the order of the table

An index that covers every fragment gives the rows by itself (`indexed_keys`). Otherwise a scan of `column IN (...)`
finds them: by the index where it covers, and fragments that no segment covers are read. Because the rows bring their
keys, no row of another key is returned: there is an error about the index that names it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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
from lance_io.limits import KIB, MIB
from lance_io.plans.plan import Import
from lance_io.plans.streams import Each
from lance_io.reads.index.table_indices import KEY_KINDS, key_indices
from lance_io.reads.keys.indexed_keys import take_keys
from lance_io.reads.rows.rebatch import to_table
from lance_io.reads.rows.value_widths import width_bytes
from lance_io.reads.scan.index_scan import index_rows_max
from lance_io.reads.scan.ordering import rows_in_order
from lance_io.reads.scan.scan_options import ScanOptions
from lance_io.reads.scan.scan_plan import plan_scan
from lance_io.reads.scan.stream import ScanRun
from lance_io.reads.takes.take_rows import prepare
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
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from lance_io.filters.expressions.expression_tree import Expr
    from lance_io.format.schema import Field
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.table_indices import TableIndex
    from lance_io.reads.takes.take_rows import PreparedTake
    from lance_io.reads.version.column_lists import Selection
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray

    BoolArray = npt.NDArray[np.bool_]

_KEY: Final = "key of the row"  # a name with blanks cannot clash: outputs are selected by position
_MISSING: Final = ("skip", "null", "raise")
SHARED_BYTES_MAX: Final = 64 * KIB  # of the rows of several callers that may hold each other's
LOOKED_UP_BYTES_MIN: Final = 64 * MIB  # of index pages that a look-up may decode in any table
_ROW_BYTES: Final = 8  # of a row number in a page


class MissingKey(UsageError, KeyError):
    """A key that no row has, looked up with `on_missing="raise"`."""

    __str__ = UsageError.__str__


@dataclass(frozen=True, slots=True, eq=False)
class KeyColumns:
    """The consequences of a key column and of output columns for look-ups in one version.

    path        of the key column
    field       the key column
    indices     its indices, the best one first
    projection  the output columns, and the key behind them
    take        reads these columns where the first index gives the rows by itself; None if a scan has to find them
    rows_max    see `take_keys`
    """

    path: tuple[str, ...]
    field: Field
    indices: tuple[TableIndex, ...]
    projection: Projection
    take: PreparedTake | None
    rows_max: int


def get_rows(
    state: DatasetState, column: str, keys: Any, columns: Selection, on_missing: str = "skip"
) -> Plan[pa.Table]:
    """The rows of keys; see `LanceDataset.get`."""
    known = yield from _key_columns(state, column, columns, on_missing)
    wanted = _cast(keys, known.field.arrow_type, column)
    distinct = wanted if len(wanted) == 1 and not wanted.null_count else wanted.unique().drop_null()
    table = yield from _rows_with_keys(state, known, distinct)
    if distinct is wanted and table.num_rows:  # the rows of one key, in the order of the table
        return table.select(range(table.num_columns - 1))
    return _in_order(table, wanted, column, on_missing)


def get_rows_of_callers(
    state: DatasetState, column: str, keys_of_callers: Sequence[Any], columns: Selection, on_missing: str
) -> Plan[list[pa.Table | Exception]]:
    """The rows of the keys of several callers, found together; for wrong or missing keys the error of their caller.

    Other parameters as for `get_rows`; raises its errors that concern all callers.
    """
    if len(keys_of_callers) == 1:
        return [(yield from get_rows(state, column, keys_of_callers[0], columns, on_missing))]
    known = yield from _key_columns(state, column, columns, on_missing)
    wanted = [_cast_or_error(keys, known.field.arrow_type, column) for keys in keys_of_callers]
    lists = [keys for keys in wanted if not isinstance(keys, Exception)]
    joined = pa.concat_arrays(lists) if lists else pa.array([], known.field.arrow_type)
    table = yield from _rows_with_keys(state, known, joined.unique().drop_null())
    rows = iter(_rows_of_each(table, joined, [len(keys) for keys in lists], column, on_missing))
    return [keys if isinstance(keys, Exception) else next(rows) for keys in wanted]


def _key_columns(state: DatasetState, column: str, columns: Selection, on_missing: str) -> Plan[KeyColumns]:
    """The consequences of the columns of a look-up, cached. Raises the errors of `LanceDataset.get` about them."""
    if on_missing not in _MISSING:
        raise UsageError(f"on_missing must be one of {', '.join(_MISSING)}, found {on_missing!r}")
    cache_key = ("get", column, columns_key(as_list(columns)), on_missing)
    known: KeyColumns | None = state.prepared.get(cache_key)
    if known is None:
        yield Import(COMPILER)
        known = yield from _new_key_columns(state, column, columns, on_missing)
        state.prepared.put(cache_key, known)
    return known


def _new_key_columns(state: DatasetState, column: str, columns: Selection, on_missing: str) -> Plan[KeyColumns]:
    path = column_path(state.schema, column)
    field = fields_along(state.schema, path)[-1]
    usable = yield from key_indices(state, path)
    if not usable and not (yield from _has_index(state, field.id)):
        raise UsageError(
            f"column {column!r} has no BTREE or BITMAP index, which a look-up of keys needs: build it with "
            f"create_scalar_index({column!r}, 'BTREE')",
            path=state.location.uri,
        )
    projection = _new_projection(state, columns, path, on_missing)
    is_whole = bool(usable) and usable[0].covered.issuperset(state.fragment_ids)
    is_taken = is_whole and not pt.is_floating(field.arrow_type)  # floats have two zeros
    take = prepare(state, projection) if is_taken else None
    rows_max = index_rows_max(int(state.physical_rows.sum()))
    rows_max = max(rows_max, int(LOOKED_UP_BYTES_MIN / (_ROW_BYTES + width_bytes(field.arrow_type))))
    return KeyColumns(path, field, tuple(usable), projection, take, rows_max)


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
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, UnicodeError) as error:
        raise UsageError(f"keys that do not fit column {column!r} of type {dtype}: {error}") from error


def _cast_or_error(keys: Any, dtype: pa.DataType, column: str) -> pa.Array | Exception:
    """Keys as an array, or the error that they do not fit."""
    try:
        return _cast(keys, dtype, column)
    except Exception as error:  # of any kind: it is about the keys of one caller
        return error.with_traceback(None)


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


def _new_projection(state: DatasetState, columns: Selection, path: tuple[str, ...], on_missing: str) -> Projection:
    projection = project_taken(state.schema, as_list(columns))
    projection = state.shown(projection, None)
    outputs = projection.outputs
    if on_missing == "null":
        outputs = tuple(replace(output, field=output.field.with_nullable(True)) for output in outputs)
    field = pa.field(_KEY, state.field_at(path).arrow_type)
    return replace(projection, outputs=(*outputs, OutputColumn(_KEY, path, field)))


def _rows_with_keys(state: DatasetState, known: KeyColumns, distinct: pa.Array) -> Plan[pa.Table]:
    """The rows that have one of some keys, in the order of the table. Raises `FormatError` for a row of another key."""
    if not len(distinct):
        return to_table([], known.projection.arrow_schema)
    table = None
    if known.take is not None:
        table = yield from take_keys(state, known.indices[0], distinct, known.take, known.rows_max)
    if table is None:
        table = yield from _scanned(state, known, distinct)
    if known.indices:
        _check_keys(state, table.column(-1), distinct, known.indices[0])
    return table


def _scanned(state: DatasetState, known: KeyColumns, distinct: pa.Array) -> Plan[pa.Table]:
    operand: Expr = Column(known.path)
    values = distinct
    if pt.is_float16(distinct.type):
        values, operand = distinct.cast(pa.float32()), Cast(operand, pa.float32())
    predicate = Predicate(In(operand, with_both_zeros(values), has_null=False))
    is_large = known.take is not None  # mostly: more rows than an index gives
    options = ScanOptions(filter=predicate, late_materialization=None if is_large else False)
    plan = yield from plan_scan(state, options, known.projection, ahead=True)
    items: list[tuple[int, pa.RecordBatch]] = []
    yield Each(ScanRun(state, plan, options, None).batches(), items.append)
    return to_table([batch for _, batch in items], known.projection.arrow_schema)


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


class _Order(NamedTuple):
    """The rows of a result.

    rows        i64[n], positions in the table
    is_missing  bool[n], rows of nulls instead
    counts      i64[keys], rows of the result for each key
    absent      positions of the keys that no row has, or that are null
    """

    rows: IntArray
    is_missing: BoolArray
    counts: IntArray
    absent: IntArray

    @classmethod
    def of(cls, keys_of_rows: pa.ChunkedArray, wanted: pa.Array, *, fills: bool) -> _Order:
        """The rows of each key in the order of the keys. fills: a key without rows gives one of nulls."""
        distinct = _comparable(wanted).unique().drop_null()
        numbers_of_rows = pc.index_in(_comparable(keys_of_rows.combine_chunks()), value_set=distinct)
        numbers_of_keys = pc.index_in(_comparable(wanted), value_set=distinct)
        of_rows = numbers_of_rows.to_numpy(zero_copy_only=False).astype(np.int64)
        of_keys = numbers_of_keys.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        order = np.argsort(of_rows, kind="stable")
        counts = np.bincount(of_rows, minlength=len(distinct)) if len(distinct) else np.zeros(1, np.int64)
        starts = np.cumsum(counts) - counts
        key_counts = np.where(of_keys < 0, 0, counts[of_keys])
        shown = np.maximum(key_counts, 1) if fills else key_counts
        within = np.arange(int(shown.sum())) - np.repeat(np.cumsum(shown) - shown, shown)
        is_missing = np.repeat(key_counts == 0, shown)
        slots = np.where(is_missing, 0, np.repeat(starts[of_keys], shown) + within)
        rows = order[slots] if len(order) else np.zeros(len(slots), np.int64)
        return cls(rows.astype(np.int64), is_missing, shown, np.flatnonzero(key_counts == 0))

    def take(self, table: pa.Table, start: int = 0, end: int | None = None) -> pa.Table:
        """Some of the rows of the result, all by default, from the output columns of the table."""
        rows, is_missing = self.rows[start:end], self.is_missing[start:end]
        if table.num_columns and is_missing.any():
            return table.take(numbers(rows, is_missing))
        return rows_in_order(table, numbers(rows))


def _in_order(table: pa.Table, wanted: pa.Array, column: str, on_missing: str) -> pa.Table:
    """The rows of each key in the order of the keys. Raises `MissingKey`."""
    order = _Order.of(table.column(-1), wanted, fills=on_missing == "null")
    if on_missing == "raise" and len(order.absent):
        raise _missing_key(wanted, order.absent[0], column)
    return order.take(table.select(range(table.num_columns - 1)))


def _rows_of_each(
    table: pa.Table, wanted: pa.Array, lengths: Sequence[int], column: str, on_missing: str
) -> Iterator[pa.Table | Exception]:
    """The rows of callers with so many keys each. Few bytes are shared, others are copied: no caller holds them all."""
    order = _Order.of(table.column(-1), wanted, fills=on_missing == "null")
    outputs = table.select(range(table.num_columns - 1))
    whole = order.take(outputs) if outputs.get_total_buffer_size() <= SHARED_BYTES_MAX else None
    ends = np.concatenate(([0], np.cumsum(order.counts)))
    first = 0
    for length in lengths:
        absent = order.absent[np.searchsorted(order.absent, first) :][:1]
        start, end = int(ends[first]), int(ends[first + length])
        if on_missing == "raise" and len(absent) and absent[0] < first + length:
            yield _missing_key(wanted, absent[0], column)
        else:
            yield order.take(outputs, start, end) if whole is None else whole.slice(start, end - start)
        first += length


def _missing_key(wanted: pa.Array, position: Any, column: str) -> MissingKey:
    return MissingKey(f"no row has the key {shown_value(wanted[int(position)])!r} in column {column!r}")


def _comparable(values: pa.Array) -> pa.Array:
    """Values that Arrow looks up: half floats wider, and one zero."""
    if pt.is_float16(values.type):
        values = values.cast(pa.float32())
    return pc.add(values, pa.scalar(0.0, values.type)) if pt.is_floating(values.type) else values
