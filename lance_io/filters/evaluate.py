"""A bound expression tree over a record batch, computed by `pyarrow.compute`.

Where the reference reader differs from Arrow's kernels, this follows the reference reader:

    floats        IEEE total order: NaN equals NaN; it lies above all numbers if its sign bit is clear, else below all.
                  Against a literal -0.0 equals 0.0; between two columns -0.0 lies below 0.0.
    and, or       an operand that can fail (a cast, a function) is computed only for rows that the others leave open;
                  others are computed by cost, the dear ones only for these rows, too, if they are few
    in            SQL: null if the operand is null, or if the list has a null and no other item matches
    sqrt          of a negative number is a NaN with the sign bit set
    float as int  an unsafe cast cuts the fraction; NaN and values out of range are `pyarrow.ArrowInvalid`
"""

from __future__ import annotations

from functools import lru_cache, reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_io.filters.expressions.casts import sql_cast
from lance_io.filters.expressions.coercion import cast
from lance_io.filters.expressions.expression_tree import (
    And,
    Call,
    Cast,
    Column,
    Comparison,
    Function,
    In,
    InList,
    InLiterals,
    IsNull,
    Literal,
    Not,
    Or,
    SqlCast,
    cannot_fail,
    columns,
)
from lance_io.filters.value_order import BITS, compare_nested, total_order
from lance_io.format.schema import first_member
from lance_io.levels.arrays import scalar
from lance_io.levels.portable import compact_batch, taken
from lance_io.levels.row_bytes import fixed_bits

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.filters.elementwise import Value
    from lance_io.filters.expressions.expression_tree import CompareOp, Expr

_KERNELS = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_BELOW_OUTSIDE = frozenset(("sqrt", "acosh", "atanh"))  # others have the NaN above all numbers
_NULL = pa.nulls(1, pa.bool_())[0]  # `pa.scalar` would import pandas, and so would `True` as an argument of a kernel
_TRUE = scalar(True, pa.bool_())
_UNDECIDED_MAX = 0.25  # share of rows up to which looking them up costs less than computing a dear operand for all
_FEW_VALUES = 3  # up to this many, comparing value by value is faster than Arrow's hash table


def evaluate(expr: Expr, batch: pa.RecordBatch) -> Value:
    """The value of a bound tree: an array of `batch.num_rows` items, or a scalar if no column is involved.

    Raises pa.ArrowInvalid where a row cannot be computed (division by zero, a failing cast).
    """
    match expr:
        case Column(path):
            return _column(path, batch)
        case Literal(value):
            return value
        case Comparison(op, left, right):
            return compare(op, evaluate(left, batch), evaluate(right, batch))
        case And(args):
            return _connected(args, batch, pc.and_kleene, decided=False)
        case Or(args):
            return _connected(args, batch, pc.or_kleene, decided=True)
        case Not(arg):
            return pc.invert(evaluate(arg, batch))
        case IsNull(arg, nan_is_null):
            return pc.is_null(evaluate(arg, batch), nan_is_null=nan_is_null)
        case In(arg, values, has_null):
            return contained(evaluate(arg, batch), values, has_null)
        case Cast(arg, to, safe):
            return convert(evaluate(arg, batch), to, safe)
        case Call(function, args, options):
            values = [evaluate(arg, batch) for arg in args]
            if function in _BELOW_OUTSIDE:
                return _below_outside(function, *values)
            return pc.call_function(function, values, options)
        case SqlCast(arg, to, lenient):
            return sql_cast(evaluate(arg, batch), to, lenient=lenient)
        case Function(_, args, implementation):
            assert implementation is not None
            if implementation.lazy:
                return _chosen(args, batch) if implementation.lazy == "nvl2" else _first_valid(args, batch)
            return implementation.run([evaluate(arg, batch) for arg in args], batch.num_rows)
        case InList() | InLiterals():
            raise AssertionError("binding leaves no InList behind")


def _connected(
    args: tuple[Expr, ...], batch: pa.RecordBatch, connect: Callable[[Value, Value], Value], *, decided: bool
) -> Value:
    """Operands joined by `and` or `or`. Those that can fail come last, and only for rows still undecided.

    decided  the value of an operand that decides the result
    """
    result: Value | None = None
    for can_fail, is_dear, arg in sorted([(_can_fail(arg), _is_dear(arg, batch), arg) for arg in args], key=_cost):
        if result is None:
            result = evaluate(arg, batch)
            continue
        if isinstance(result, pa.Scalar) or not (can_fail or is_dear):
            value = evaluate(arg, batch)
        else:
            undecided = pc.if_else(pc.is_null(result), _TRUE, pc.invert(result) if decided else result)
            is_narrow = can_fail or undecided.true_count <= _UNDECIDED_MAX * len(undecided)
            value = _where(undecided, arg, batch) if is_narrow else evaluate(arg, batch)
        result = connect(result, value)
    assert result is not None
    return result


def _cost(operand: tuple[bool, bool, Expr]) -> tuple[bool, bool]:
    return operand[:2]


def _is_dear(expr: Expr, batch: pa.RecordBatch) -> bool:
    """Whether an operand reads columns whose values have no fixed width."""
    return any([not _is_fixed(batch.column(column.path[0]).type) for column in columns(expr)])


@lru_cache(256)
def _is_fixed(dtype: pa.DataType) -> bool:
    return fixed_bits(dtype) is not None


def _can_fail(expr: Expr) -> bool:
    return not cannot_fail(expr)


def _where(wanted: pa.BooleanArray, expr: Expr, batch: pa.RecordBatch) -> Value:
    """The values of an expression in the `wanted` rows, null in the others."""
    if wanted.true_count == len(wanted):
        return evaluate(expr, batch)
    value = evaluate(expr, compact_batch(batch).filter(wanted))
    if isinstance(value, pa.Scalar):
        return value
    chosen = wanted.to_numpy(zero_copy_only=False)
    return taken(value, pa.array(np.cumsum(chosen) - 1, mask=~chosen))


def _first_valid(args: tuple[Expr, ...], batch: pa.RecordBatch) -> Value:
    """For each row the first operand that is not null. Operands that can fail run only for rows still null."""
    result = evaluate(args[0], batch)
    for arg in args[1:]:
        if isinstance(result, pa.Scalar):
            result = result if result.is_valid else evaluate(arg, batch)
        elif result.null_count:
            result = pc.coalesce(
                result, _where(result.is_null(), arg, batch) if _can_fail(arg) else evaluate(arg, batch)
            )
    return result


def _chosen(args: tuple[Expr, ...], batch: pa.RecordBatch) -> Value:
    """The second operand for rows in which the first is not null, the third for the others."""
    tested, given, otherwise = args
    present = pc.is_valid(evaluate(tested, batch))
    if isinstance(present, pa.Scalar):
        return evaluate(given if present.as_py() else otherwise, batch)
    values = [
        _where(rows, arg, batch) if _can_fail(arg) else evaluate(arg, batch)
        for rows, arg in ((present, given), (pc.invert(present), otherwise))
    ]
    return pc.if_else(present, *values)


def _column(path: tuple[str | int, ...], batch: pa.RecordBatch) -> pa.Array:
    array = batch.column(path[0])
    for name in path[1:]:
        # by position: a name would be parsed as a dotted path
        array = pc.struct_field(array, [name if isinstance(name, int) else first_member(array.type, name)])
    return array


def compare(op: CompareOp, left: Value, right: Value) -> Value:
    """Compare two values of one type, floats by total order."""
    if pa.types.is_nested(left.type):
        return compare_nested(op, left, right)
    if left.type in BITS and right.type in BITS and not _is_ordinary(op, left, right):
        same_zero = isinstance(left, pa.Scalar) or isinstance(right, pa.Scalar)
        left, right = _order_keys(left, same_zero), _order_keys(right, same_zero)
    return _KERNELS[op](left, right)


@lru_cache(256)
def can_compare(op: CompareOp, dtype: pa.DataType) -> bool:
    """Whether `compare` handles values of this type."""
    try:
        compare(op, pa.nulls(0, dtype), pa.nulls(0, dtype))
    except pa.ArrowNotImplementedError:
        return False
    return True


def _is_ordinary(op: CompareOp, left: Value, right: Value) -> bool:
    """Whether Arrow's own comparison equals total order: one side is a literal, and no side has a NaN."""
    literal, other = (left, right) if isinstance(left, pa.Scalar) else (right, left)
    if not isinstance(literal, pa.Scalar) or (literal.is_valid and literal.as_py() != literal.as_py()):
        return False
    # A number equals a NaN in neither order, so only `<` and the like must look for NaNs.
    return op in ("=", "!=") or not _has_nan(_as_array(other))


def _has_nan(floats: pa.Array) -> bool:
    """Whether the buffer has a NaN. One under a null counts too: that costs time only."""
    data = floats.buffers()[1]
    if data is None:
        return False
    values = np.frombuffer(data, dtype=floats.type.to_pandas_dtype())
    return bool(np.isnan(values[floats.offset : floats.offset + len(floats)]).any())


def _order_keys(value: Value, same_zero: bool) -> Value:
    keys = total_order(_as_array(value), same_zero=same_zero)
    return keys[0] if isinstance(value, pa.Scalar) else keys


def contained(value: Value, values: pa.Array, has_null: bool) -> Value:
    """Membership with SQL nulls; `values` has the operand's type, no nulls, and for floats both zeros or none."""
    if 0 < len(values) <= _FEW_VALUES:
        is_member = reduce(pc.or_, [compare("=", value, wanted) for wanted in values])
    else:
        is_member = pc.is_in(value, value_set=values)
        if len(values) == 0 and not has_null:
            return is_member  # nothing is in an empty list, not even null
        if isinstance(value, pa.Scalar) or value.null_count:
            is_member = pc.if_else(pc.is_valid(value), is_member, _NULL)
    return pc.if_else(is_member, True, _NULL) if has_null else is_member


def convert(value: Value, to: pa.DataType, safe: bool) -> Value:
    """Cast. Raises pa.ArrowInvalid if a safe cast would lose something, or a number does not fit in an integer."""
    if not safe and pa.types.is_integer(to):
        if pa.types.is_floating(value.type):
            value = pc.trunc(value)
        safe = pa.types.is_floating(value.type) or pa.types.is_integer(value.type)
    return cast(value, to, safe=safe)


def _below_outside(function: str, value: Value) -> Value:
    """A function that returns the processor's NaN, below all numbers, for arguments outside of its domain."""
    result = pc.call_function(function, [value])
    outside = pc.is_nan(result)
    if pa.types.is_floating(value.type):
        outside = pc.and_not(outside, pc.is_nan(value))
    return pc.if_else(outside, pa.scalar(-float("nan"), result.type), result)


def _as_array(value: Value) -> pa.Array:
    return pa.repeat(value, 1) if isinstance(value, pa.Scalar) else value
