"""Checks an expression tree against a schema and makes its types explicit.

    columns      must exist; positions become names; dictionaries are decoded and half floats widened; inside lists,
                 maps and structs only where an operation needs their values
    comparison   a literal takes the type of the column beside it, never the other way round; two columns, or a
                 computed side, are widened to a common type
    arithmetic   operands are widened; integers wrap on overflow and division by zero is an evaluation error
    conditions   null counts as false
    the whole    must be boolean

Any mismatch is a `BindError`, before a byte of data is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io.errors import BindError, UnsupportedError
from lance_io.filters.evaluate import can_compare, contained, convert
from lance_io.filters.expressions.coercion import cast, common_type, fit_literal, fit_values, narrowest, with_both_zeros
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
    describe,
    dotted,
)
from lance_io.filters.expressions.sql_types import decimal_of, is_string, kind
from lance_io.format.schema import first_member
from lance_io.levels.lists import with_inner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.filters.expressions.expression_tree import Expr

PSEUDO_COLUMNS = {
    "_rowid": pa.uint64(),
    "_rowaddr": pa.uint64(),
    "_rowoffset": pa.uint64(),
    "_row_created_at_version": pa.uint64(),
    "_row_last_updated_at_version": pa.uint64(),
}
"""Columns that every dataset has without storing them."""

_BOOL = pa.bool_()
_ARITHMETIC = frozenset({"add", "subtract", "multiply", "divide", "remainder", "modulo"})
_SAME_TYPE_FROM = {
    "coalesce": 0,
    "max_element_wise": 0,
    "min_element_wise": 0,
    "choose": 1,
    "case_when": 1,
    "if_else": 1,
}
"""Functions whose operands, from this position on, are widened to a common type."""


def bind_filter(expr: Expr, schema: pa.Schema) -> Expr:
    """The tree of a filter with columns resolved and casts made explicit.

    schema  of the dataset; pseudo columns are added unless a column has the same name
    Raises BindError for unknown columns, incompatible types, and a result that is not boolean.
    """
    bound, dtype = Binder(schema).bind(expr)
    if dtype != _BOOL:
        raise BindError(f"the filter {describe(expr)} does not return a boolean, it returns {dtype}")
    return bound


class Binder:
    """Binds expressions against one schema (see the module's table)."""

    def __init__(self, schema: pa.Schema) -> None:
        self._names = schema.names
        self._types = {**PSEUDO_COLUMNS, **dict(zip(schema.names, schema.types, strict=True))}

    def bind(self, expr: Expr) -> tuple[Expr, pa.DataType]:
        """The bound tree and the type of its values. Raises BindError."""
        match expr:
            case Column(path):
                return _decode_column(*self._resolve(path))
            case Literal(value):
                return expr, value.type
            case Comparison():
                return self._comparison(expr), _BOOL
            case And(args):
                return And(tuple(self._boolean(arg, "and") for arg in args)), _BOOL
            case Or(args):
                return Or(tuple(self._boolean(arg, "or") for arg in args)), _BOOL
            case Not(arg):
                return Not(self._boolean(arg, "not")), _BOOL
            case IsNull(arg, nan_is_null):
                return self._is_null(arg, nan_is_null), _BOOL
            case In():
                return self._in(expr), _BOOL
            case Cast(arg, to, safe):
                return self._cast(arg, to, safe), to
            case Call():
                return self._call(expr, [self.bind(arg) for arg in expr.args])
            case InList() | InLiterals() | SqlCast() | Function():
                raise AssertionError("only text has such nodes, and `sql_binder` binds text")

    def resolved(self, column: Column) -> Column:
        """A column by its exact name. Raises BindError if there is none."""
        return self._resolve(column.path)[0]

    def _resolve(self, path: tuple[str | int, ...]) -> tuple[Column, pa.DataType]:
        name = path[0]
        if not isinstance(name, str) or name not in self._types:
            valid = ", ".join(self._names)
            raise BindError(f"No field named {dotted(path[:1])}. Valid fields are {valid}.")
        names, here = [name], self._types[name]
        for part in path[1:]:
            if not pt.is_struct(here):
                raise BindError(f"No field named {dotted(path)}: {dotted(tuple(names))} is {here}, not a struct.")
            index = part if isinstance(part, int) else first_member(here, part)
            if not 0 <= index < here.num_fields:
                valid = ", ".join(field.name for field in here)
                raise BindError(f"No field named {dotted(path)}. Valid fields of {dotted(tuple(names))} are {valid}.")
            names.append(here.field(index).name)
            here = here.field(index).type
        return Column(tuple(names)), here

    def _boolean(self, expr: Expr, where: str) -> Expr:
        bound, dtype = self.bind(expr)
        if pt.is_null(dtype):
            return Literal(pa.scalar(None, _BOOL))
        if dtype != _BOOL:
            raise BindError(f"operand {describe(expr)} of `{where}` does not return a boolean, it returns {dtype}")
        return bound

    def _comparison(self, expr: Comparison) -> Expr:
        (left, left_type), (right, right_type) = (
            decode(*self.bind(expr.left)),
            decode(*self.bind(expr.right)),
        )
        if isinstance(right, Literal) and not isinstance(left, Literal):
            left, right, common = _unify_with_literal(expr.left, left, left_type, right)
        elif isinstance(left, Literal) and not isinstance(right, Literal):
            right, left, common = _unify_with_literal(expr.right, right, right_type, left)
        else:
            common = fold_types([(left, left_type), (right, right_type)], expr, exact=True)
            left, right = as_type(left, left_type, common)[0], as_type(right, right_type, common)[0]
        if pt.is_null(common):
            return Literal(pa.scalar(None, _BOOL))
        # Lists and structs have an order in text filters only.
        if pt.is_nested(common) or not can_compare(expr.op, common):
            raise BindError(f"{describe(expr)}: values of type {common} cannot be compared")
        return Comparison(expr.op, left, right)

    def _is_null(self, arg: Expr, nan_is_null: bool) -> Expr:
        if isinstance(arg, Column):  # decoding leaves nulls unchanged
            column, dtype = self._resolve(self.resolved(arg).path)
            if not (nan_is_null and pt.is_floating(dtype)):
                return IsNull(column)
        bound, dtype = self.bind(arg)
        return IsNull(bound, nan_is_null and bool(pt.is_floating(dtype)))

    def _in(self, expr: In) -> Expr:
        bound, dtype = decode(*self.bind(expr.arg))
        if pt.is_nested(dtype):
            raise BindError(f"{describe(expr)}: cannot look for values in {dtype}")
        try:
            values = fit_values(expr.values, dtype)
            if values is not None:
                contained(pa.nulls(0, dtype), values, expr.has_null)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise BindError(f"{describe(expr)}: {error}") from error
        if values is None:
            raise BindError(f"{describe(expr)}: cannot look for {expr.values.type} values in {dtype}")
        return In(bound, with_both_zeros(values), expr.has_null)

    def _cast(self, arg: Expr, to: pa.DataType, safe: bool) -> Expr:
        bound, dtype = self.bind(arg)
        if pt.is_floating(dtype) and is_string(to):
            raise UnsupportedError(f"cannot cast {describe(arg)} to {to}: readers differ in how they write floats")
        try:
            convert(pa.nulls(0, dtype), to, safe)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise BindError(f"cannot cast {describe(arg)} from {dtype} to {to}: {error}") from error
        return Cast(bound, to, safe)

    def _call(self, expr: Call, operands: list[tuple[Expr, pa.DataType]]) -> tuple[Expr, pa.DataType]:
        function = expr.function
        operands = [decode(*operand) for operand in operands]
        if function in _ARITHMETIC:
            operands = _arithmetic(operands)
            if function == "divide" and not any(pt.is_floating(dtype) for _, dtype in operands):
                function = "divide_checked"  # the smallest integer divided by -1 is an error, like division by zero
        elif function == "power":
            operands = [as_type(bound, dtype, pa.float64()) for bound, dtype in operands]
        elif function in _SAME_TYPE_FROM:
            head = _SAME_TYPE_FROM[function]
            tail = _adapt(operands[head:])
            common = fold_types(tail, expr, exact=False)
            operands = operands[:head] + [as_type(bound, dtype, common) for bound, dtype in tail]
        if function == "if_else" and operands:
            condition = self._boolean(expr.args[0], "if_else")
            operands[0] = Call("coalesce", (condition, Literal(pa.scalar(False)))), _BOOL
        bound_call = Call(function, tuple(bound for bound, _ in operands), expr.options)
        return bound_call, self._result_type(bound_call, expr, operands)

    def _result_type(self, call: Call, source: Expr, operands: Sequence[tuple[Expr, pa.DataType]]) -> pa.DataType:
        """The type of a function's result, found by calling it on no rows."""
        return _type_on_no_rows(call, source, operands)


def _decode_column(column: Column, stored: pa.DataType) -> tuple[Expr, pa.DataType]:
    """A column with values that kernels take: dictionaries decoded, half floats widened, extensions unwrapped."""
    if isinstance(stored, pa.BaseExtensionType):
        bound, dtype = _decode_column(column, stored.storage_type)
        return (Cast(column, dtype), dtype) if isinstance(bound, Column) else (bound, dtype)
    if pt.is_dictionary(stored):
        return _widen(Cast(column, stored.value_type), stored.value_type)
    return _widen(column, stored)


def _widen(bound: Expr, stored: pa.DataType) -> tuple[Expr, pa.DataType]:
    """Values of a type without kernels, cast to a type that has them."""
    wide = _wide(stored)
    return (bound, stored) if wide == stored else (Cast(bound, wide), wide)


def _wide(t: pa.DataType) -> pa.DataType:
    if pt.is_float16(t):
        return pa.float32()
    if pt.is_string_view(t):
        return pa.large_string()
    return pa.large_binary() if pt.is_binary_view(t) else t


def decode(bound: Expr, dtype: pa.DataType) -> tuple[Expr, pa.DataType]:
    """An operand with dictionaries decoded and half floats widened, also inside lists, maps and structs.

    `_decode_column` leaves those inside a column alone: items, fields and whole lists keep their types until an
    operation needs their values.
    """
    return as_type(bound, dtype, _without_codes(dtype))


def _without_codes(t: pa.DataType) -> pa.DataType:
    if pt.is_dictionary(t):
        return _without_codes(t.value_type)
    wide = _wide(t)
    return with_inner(wide, _without_codes) if pt.is_nested(wide) else wide


def _unify_with_literal(
    source: Expr, bound: Expr, dtype: pa.DataType, literal: Literal
) -> tuple[Expr, Expr, pa.DataType]:
    """The two sides of a comparison with a literal: the literal fitted to the other side, or else both widened.

    source, bound, dtype  the other side before and after binding, and its type
    """
    fitted = fit_literal(literal.value, dtype)
    if fitted is not None:
        return bound, Literal(fitted), dtype
    of_literal = literal.value.type
    strict = kind(dtype) == "number" and not pt.is_decimal(of_literal)
    common = common_type(dtype, of_literal, exact=True)
    if common is None or (strict and isinstance(source, Column)):
        raise BindError(
            f"Received literal {describe(literal)} and could not convert to literal of type {dtype} "
            f"to compare it with {describe(source)}"
        )
    return as_type(bound, dtype, common)[0], as_type(literal, of_literal, common)[0], common


def _adapt(operands: Sequence[tuple[Expr, pa.DataType]]) -> list[tuple[Expr, pa.DataType]]:
    """Operands with adaptable literals narrowed where another operand has another type."""
    if len({dtype for _, dtype in operands}) == 1:
        return list(operands)
    others = [dtype for bound, dtype in operands if not isinstance(bound, Literal)]
    adapted: list[tuple[Expr, pa.DataType]] = []
    for bound, dtype in operands:
        if isinstance(bound, Literal) and bound.adaptable:
            bound = Literal(_beside(bound.value, others), adaptable=True)
            dtype = bound.value.type
        adapted.append((bound, dtype))
    return adapted


def _beside(value: pa.Scalar, others: Sequence[pa.DataType]) -> pa.Scalar:
    single = value.is_valid and pt.is_float64(value.type) and pa.float32() in others and pa.float64() not in others
    if single and value.cast(pa.float32(), safe=False).as_py() == value.as_py():
        return value.cast(pa.float32(), safe=False)
    return narrowest(value)


def _arithmetic(operands: Sequence[tuple[Expr, pa.DataType]]) -> list[tuple[Expr, pa.DataType]]:
    """Operands widened to one numeric type; other operands, and two decimals, are left to the kernel."""
    adapted = _adapt(operands)
    types = [dtype for _, dtype in adapted]
    if not all(kind(dtype) == "number" or pt.is_null(dtype) for dtype in types):
        return adapted
    if any(pt.is_decimal(dtype) for dtype in types) and not any(pt.is_floating(dtype) for dtype in types):
        return [
            as_type(bound, dtype, dtype if pt.is_null(dtype) else _decimal_operand(bound, dtype))
            for bound, dtype in adapted
        ]
    common = types[0]
    for dtype in types[1:]:
        common = common_type(common, dtype) or common
    return [as_type(bound, dtype, common) for bound, dtype in adapted]


def _decimal_operand(bound: Expr, dtype: pa.DataType) -> pa.DataType:
    """The narrowest decimal type for an integer operand, which leaves the result the most digits."""
    if isinstance(bound, Literal) and bound.value.is_valid and pt.is_integer(dtype):
        return pa.decimal128(max(len(str(abs(bound.value.as_py()))), 1), 0)
    return decimal_of(dtype)


def fold_types(operands: Sequence[tuple[Expr, pa.DataType]], source: Expr, *, exact: bool) -> pa.DataType:
    """The common type of all operands. Raises BindError if they have none."""
    common: pa.DataType = pa.null()
    for _, dtype in operands:
        both = common_type(common, dtype, exact=exact)
        if both is None:
            raise BindError(f"{describe(source)} mixes {common} and {dtype}; cast one of them")
        common = both
    return common


def as_type(bound: Expr, dtype: pa.DataType, to: pa.DataType) -> tuple[Expr, pa.DataType]:
    """An operand widened: a literal is converted right away, anything else by a cast node."""
    if dtype == to:
        return bound, to
    safe = not pt.is_floating(to)  # a large integer becomes the nearest float
    if isinstance(bound, Literal):
        fitted = fit_literal(bound.value, to)
        return Literal(cast(bound.value, to, safe=safe) if fitted is None else fitted), to
    return Cast(bound, to, safe), to


def _type_on_no_rows(call: Call, source: Expr, operands: Sequence[tuple[Expr, pa.DataType]]) -> pa.DataType:
    """The type of a function's result, found by calling it on no rows."""
    samples = [bound.value if isinstance(bound, Literal) else pa.nulls(0, dtype) for bound, dtype in operands]
    try:
        return pc.call_function(call.function, samples, call.options).type
    except (pa.ArrowException, TypeError, ValueError) as error:
        types = ", ".join(str(dtype) for _, dtype in operands)
        raise BindError(f"{describe(source)}: {call.function} does not take ({types}): {error}") from error
