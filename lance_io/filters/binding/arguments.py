"""Arguments of a function call: checked against the kinds in `function_registry`, and converted to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt

from lance_io.errors import BindError
from lance_io.filters.binding.binder import as_type, fold_types
from lance_io.filters.expressions.casts import sql_cast
from lance_io.filters.expressions.coercion import cast, common_type
from lance_io.filters.expressions.expression_tree import Cast, Literal, SqlCast, describe
from lance_io.filters.expressions.sql_types import is_list, is_string, is_text, kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.filters.expressions.expression_tree import Expr, Function
    from lance_io.filters.functions.function_registry import SqlFunction

    Operand = tuple[Expr, pa.DataType]

_BOOL, _INT, _FLOAT, _TEXT, _STAMP = pa.bool_(), pa.int64(), pa.float64(), pa.string(), pa.timestamp("us")
_NULLS = {
    "text": _TEXT,
    "bytes": _TEXT,
    "shown": _TEXT,
    "int": _INT,
    "steps": _INT,
    "float": _FLOAT,
    "real": _FLOAT,
    "reals": _FLOAT,
    "exact": _FLOAT,
    "number": _FLOAT,
    "when": _STAMP,
    "clock": _STAMP,
    "json": pa.large_binary(),
    "vector": pa.list_(_FLOAT),
}
"""Types for null arguments, by kind; other kinds take lists."""

_SHOWN = {
    "word": "a text literal",
    "when": "a date or timestamp",
    "clock": "a date, timestamp or time",
    "list": "a list",
    "vector": "a list of numbers",
    "span": "an interval literal",
    "json": "a JSON column",
}


def bind_cast(bound: Expr, dtype: pa.DataType, to: pa.DataType, lenient: bool) -> Expr:
    """An operand converted like `cast`; a literal right away. Raises BindError where there is no conversion."""
    if dtype == to:
        return bound
    try:
        if isinstance(bound, Literal):
            return Literal(sql_cast(bound.value, to, lenient=lenient))
        sql_cast(pa.nulls(0, dtype), to, lenient=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BindError(f"cannot cast {describe(bound)} from {dtype} to {to}: {error}") from error
    return SqlCast(bound, to, lenient)


class Arguments:
    """Converts the arguments of one function call to the kinds that the function takes."""

    def __init__(self, expr: Function, function: SqlFunction) -> None:
        self._expr = expr
        self._function = function
        self._is_wide = False  # whether an operand is a 64-bit float or becomes one

    def convert(self, operands: list[Operand]) -> list[Operand]:
        kinds = [self._function.kind(i) for i in range(len(operands))]
        if self._expr.name == "||" and not any(is_string(dtype) or pt.is_null(dtype) for _, dtype in operands):
            raise BindError(f"{describe(self._expr)}: one side of || must be text, found {operands[0][1]}")
        self._is_wide = any(pt.is_float64(dtype) or pt.is_decimal(dtype) for _, dtype in operands)
        converted = [self._convert_operand(operand, kind) for operand, kind in zip(operands, kinds, strict=True)]
        self._common(converted, [i for i, kind in enumerate(kinds) if kind == "same"])
        texts = [i for i, kind in enumerate(kinds) if kind in ("text", "shown")]
        if len({converted[i][1] for i in texts}) > 1:
            for i in texts:
                converted[i] = as_type(*converted[i], pa.large_string())
        if "item" in kinds:
            self._items(converted, kinds.index("list"), [i for i, kind in enumerate(kinds) if kind == "item"])
        if "lists" in kinds:
            self._lists(converted)
        return converted

    def _convert_operand(self, operand: Operand, wanted: str) -> Operand:
        bound, dtype = operand
        match wanted:
            case "text" if is_string(dtype):
                return operand
            case "bytes" if is_text(dtype):
                return as_type(bound, dtype, pa.binary()) if pt.is_fixed_size_binary(dtype) else operand
            case "shown":
                return operand if is_string(dtype) else (self._cast(operand, _TEXT), _TEXT)
            case "int" if pt.is_integer(dtype):
                return as_type(bound, dtype, _INT)
            case "float" if kind(dtype) == "number":
                return as_type(bound, dtype, _FLOAT)
            case "real" if kind(dtype) == "number":
                return operand if pt.is_float32(dtype) else as_type(bound, dtype, _FLOAT)
            case "exact" if pt.is_decimal(dtype):
                return operand
            case "exact" if kind(dtype) == "number":
                return self._convert_operand(operand, "real")
            case "reals" if kind(dtype) == "number":
                return as_type(bound, dtype, _FLOAT if self._is_wide else pa.float32())
            case "number" if kind(dtype) == "number":
                return operand
            case "clock" if kind(dtype) == "time":
                return operand
            case "when" | "clock" if kind(dtype) == "calendar":
                return operand
            case "when" | "clock" if is_string(dtype):
                return self._cast(operand, _STAMP), _STAMP
            case "list" | "lists" if is_list(dtype):
                return _list_of(operand, dtype.value_type)
            case "vector" if is_list(dtype) and _are_numbers(dtype.value_type):
                return _list_of(operand, _FLOAT, safe=False)
            case "word" if isinstance(bound, Literal) and (is_string(dtype) or pt.is_null(dtype)):
                return operand
            case "json" if pt.is_large_binary(dtype):
                return operand
            case "span" if isinstance(bound, Literal) and (is_string(dtype) or pt.is_interval(dtype)):
                return operand
            case "steps" if kind(dtype) == "calendar" or pt.is_interval(dtype):
                return operand
            case "steps" if pt.is_integer(dtype):
                return as_type(bound, dtype, _INT)
            case "any" | "same" | "item":
                return operand
        if pt.is_null(dtype) and wanted not in ("word", "span"):
            return as_type(bound, dtype, _NULLS.get(wanted, pa.list_(pa.null())))
        raise BindError(
            f"Function '{self._expr.name}' requires {_SHOWN.get(wanted, wanted)}, but received {dtype} "
            f"for {describe(bound)}; a cast may help"
        )

    def _cast(self, operand: Operand, to: pa.DataType) -> Expr:
        return bind_cast(*operand, to, lenient=False)

    def _common(self, operands: list[Operand], positions: Sequence[int]) -> None:
        if positions:
            common = fold_types([operands[i] for i in positions], self._expr, exact=True)
            if pt.is_null(common) and self._expr.name not in ("make_array", "make_list"):
                common = _TEXT  # kernels take null texts; null items of lists take on any type
            for i in positions:
                operands[i] = as_type(*operands[i], common)

    def _items(self, operands: list[Operand], at_list: int, at_items: list[int]) -> None:
        common = operands[at_list][1].value_type
        for i in at_items:
            both = common_type(common, operands[i][1])
            if both is None:
                raise BindError(f"{describe(self._expr)}: a list of {common} has no items of type {operands[i][1]}")
            common = both
        if pt.is_null(common):
            common = _BOOL
        for i in at_items:
            operands[i] = as_type(*operands[i], common)
        operands[at_list] = _list_of(operands[at_list], common)

    def _lists(self, operands: list[Operand]) -> None:
        common: pa.DataType | None = pa.null()
        for _, dtype in operands:
            both = common_type(common, dtype.value_type)
            if both is None and is_string(dtype.value_type) != is_string(common):  # text is parsed as numbers
                both = common if is_string(dtype.value_type) else dtype.value_type
            if both is None:
                raise BindError(
                    f"{describe(self._expr)}: lists of {common} and of {dtype.value_type} do not go together"
                )
            common = both
        for i, operand in enumerate(operands):
            operands[i] = _list_of(operand, _BOOL if common is None or pt.is_null(common) else common)


def _are_numbers(items: pa.DataType) -> bool:
    return kind(items) == "number" or is_string(items) or bool(pt.is_null(items))


def _list_of(operand: Operand, items: pa.DataType, *, safe: bool = True) -> Operand:
    """Lists with items of this type. Fixed-size lists, which hold items for nulls too, become plain lists."""
    bound, dtype = operand
    to = pa.large_list(items) if pt.is_large_list(dtype) else pa.list_(items)
    if dtype.value_type == items and not pt.is_fixed_size_list(dtype):
        return operand
    return (Literal(cast(bound.value, to, safe=safe)) if isinstance(bound, Literal) else Cast(bound, to, safe)), to
