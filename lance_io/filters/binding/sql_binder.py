"""Binds trees of SQL text, by the rules of `binder` and these:

names        an unquoted name that no column has matches without regard to case
comparison   directly below the top (inside `and` and `or` only) a literal must fit the column beside it; deeper
             inside, and beside a computed value, both sides are widened, and text is parsed as the other side's type
functions    arguments are checked against the kinds in `function_registry`
constants    are computed once; an expression that constants decide is not computed: `null + x`, `null = x`; see
             `simplify`
null tests   of an expression that cannot be null are decided without computing it; see `nullability`
casts        an integer or decimal that is cast and then compared with a literal is compared without the cast, if the
             literal fits its type: then the cast cannot overflow
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io.errors import BindError, EvaluationError
from lance_io.filters.binding.arguments import Arguments, bind_cast
from lance_io.filters.binding.binder import Binder, as_type, decode
from lance_io.filters.binding.nullability import may_be_null
from lance_io.filters.binding.simplify import fold, simplify, without_truth
from lance_io.filters.evaluate import can_compare
from lance_io.filters.expressions.casts import sql_cast
from lance_io.filters.expressions.coercion import common_type, fit_literal, fit_literals, with_both_zeros
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
    children,
    describe,
)
from lance_io.filters.expressions.sql_types import decimal_of, is_string, kind
from lance_io.filters.functions.function_registry import FUNCTIONS, decimal_arithmetic
from lance_io.format.schema import first_member
from lance_io.levels.arrays import from_scalars

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lance_io.filters.expressions.expression_tree import Expr
    from lance_io.filters.functions.function_registry import SqlFunction

    Operand = tuple[Expr, pa.DataType]

_BOOL, _INT, _FLOAT, _TEXT, _STAMP = pa.bool_(), pa.int64(), pa.float64(), pa.string(), pa.timestamp("us")
_NANOS = pa.timestamp("ns")
_DISTINCT = ("is_distinct", "is_not_distinct")
_ARITHMETIC = ("add", "subtract", "multiply", "divide")


class SqlBinder(Binder):
    """Binds expressions from text against one schema (see the module's table).

    has_sides  the columns are structs, one for each table of a pair of rows; their members are the real columns
    """

    def __init__(self, schema: pa.Schema, *, has_sides: bool = False) -> None:
        super().__init__(schema)
        self._schema = schema
        self._has_sides = has_sides
        self._before_cast: dict[int, tuple[Expr, Operand]] = {}  # by `id` of a bound cast: the cast and its operand

    def bind_top(self, expr: Expr) -> Operand:
        """The bound tree of a whole filter or computed column, and its type. Raises BindError."""
        match expr:
            case And(args):
                return simplify(And(tuple(self._condition(arg, *self.bind_top(arg), "and") for arg in args))), _BOOL
            case Or(args):
                return simplify(Or(tuple(self._condition(arg, *self.bind_top(arg), "or") for arg in args))), _BOOL
            case Comparison():
                return self._compare(expr, strict=True), _BOOL
            case InList():
                return self._in_list(expr, strict=True), _BOOL
            case InLiterals():
                return self._in_literals(expr, strict=True), _BOOL
            case Call(function, (left, right)) if function in _ARITHMETIC:
                return self.bind(Call(function, (self._beside(left, right), self._beside(right, left))))
            case Function("%", (left, right)):
                return self.bind(Function("%", (self._beside(left, right), self._beside(right, left))))
            case Function(name, (left, right)) if name in _DISTINCT:
                return self._distinct(expr, strict=True)
            case _:
                return self.bind(expr)

    def bind(self, expr: Expr) -> Operand:
        """Like `Binder.bind`, for all nodes."""
        match expr:
            case Column():
                column = self.resolved(expr)
                stored = self._resolve(column.path)[1]
                return (column, pa.large_binary()) if isinstance(stored, pa.JsonType) else super().bind(column)
            case Comparison():
                return self._compare(expr, strict=False), _BOOL
            case InList():
                return self._in_list(expr, strict=False), _BOOL
            case InLiterals():
                return self._in_literals(expr, strict=False), _BOOL
            case SqlCast(arg, to, lenient):
                operand = self.bind(arg)
                bound = bind_cast(*operand, to, lenient)
                if bound is not operand[0]:
                    self._before_cast[id(bound)] = bound, operand
                return bound, to
            case And() | Or():
                bound, dtype = super().bind(expr)
                return simplify(bound) if isinstance(bound, And | Or) else bound, dtype
            case Not() | IsNull():
                bound, dtype = super().bind(expr)
                return fold(self._drop_needless_null_test(bound)), dtype
            case Function(name, (_, _)) if name in _DISTINCT:
                return self._distinct(expr, strict=False)
            case Function():
                return self._function(expr)
            case Call():
                bound, dtype = self._sql_call(expr)
                if expr.function in _ARITHMETIC and any(map(_is_null, children(bound))):
                    return Literal(pa.scalar(None, dtype)), dtype
                return fold(bound), dtype
            case _:
                return super().bind(expr)

    def _drop_needless_null_test(self, bound: Expr) -> Expr:
        """False in place of a null test of an expression without nulls, which is not computed and cannot fail."""
        if isinstance(bound, IsNull) and not bound.nan_is_null and not may_be_null(bound.arg, self._schema):
            return Literal(pa.scalar(False))
        return bound

    def resolved(self, column: Column) -> Column:
        """A column by its exact name. Raises BindError if there is none."""
        return self._resolve(self._match_path(column.path) if column.any_case else column.path)[0]

    def _match_path(self, path: tuple[str | int, ...]) -> tuple[str | int, ...]:
        """The path with the schema's spelling: column names match in any case, names of struct members exactly."""
        first = _match_case(path[0], self._types)
        side = self._types.get(str(first))
        if not self._has_sides or len(path) < 2 or side is None or not pt.is_struct(side):
            return (first, *path[1:])
        return (first, _match_case(path[1], [field.name for field in side]), *path[2:])

    def _boolean(self, expr: Expr, where: str) -> Expr:
        return self._condition(expr, *self.bind(expr), where)

    def _condition(self, expr: Expr, bound: Expr, dtype: pa.DataType, where: str) -> Expr:
        if isinstance(bound, Function) and bound.name == "regexp_match":
            return Not(IsNull(bound))
        if pt.is_null(dtype):
            return Literal(pa.scalar(None, _BOOL))
        if dtype != _BOOL:
            raise BindError(f"operand {describe(expr)} of `{where}` does not return a boolean, it returns {dtype}")
        return bound

    # -- comparisons -------------------------------------------------------------------------------------------------

    def _compare(self, expr: Comparison, *, strict: bool) -> Expr:
        return self._compare_operands(expr, self.bind(expr.left), self.bind(expr.right), strict=strict)

    def _compare_operands(self, expr: Comparison, left: Operand, right: Operand, *, strict: bool) -> Expr:
        left, right = decode(*left), decode(*right)
        left, right = self._meet(expr, expr.left, expr.right, left, right, strict=strict)
        if pt.is_null(left[1]) or _is_null(left[0]) or _is_null(right[0]):
            return Literal(pa.scalar(None, _BOOL))
        if not can_compare(expr.op, left[1]):
            raise BindError(f"{describe(expr)}: values of type {left[1]} cannot be compared")
        return without_truth(fold(Comparison(expr.op, left[0], right[0])))

    def _meet(
        self, source: Expr, left_source: Expr, right_source: Expr, left: Operand, right: Operand, *, strict: bool
    ) -> tuple[Operand, Operand]:
        """Two compared operands, widened to one type. strict: a literal must fit the column beside it."""
        if strict and isinstance(left_source, Column) and isinstance(right_source, Literal):
            return left, _fit_literal(right_source, left[1], left_source)
        if strict and isinstance(right_source, Column) and isinstance(left_source, Literal):
            return _fit_literal(left_source, right[1], right_source), right
        left, right = self._uncast(left, right)
        right, left = self._uncast(right, left)
        return self._unify(left, right, source)

    def _uncast(self, operand: Operand, literal: Operand) -> tuple[Operand, Operand]:
        """The operand without its cast, and the literal as a value of its type; see `casts` in the module's table."""
        while isinstance(literal[0], Literal) and id(operand[0]) in self._before_cast:
            inner = self._before_cast[id(operand[0])][1]
            if not (_is_exact(inner[1]) and _is_exact(operand[1])):
                break
            cast = fit_literal(literal[0].value, operand[1])
            fitted = None if cast is None else fit_literal(cast, inner[1])
            if fitted is None:
                break
            operand, literal = inner, (Literal(fitted), inner[1])
        return operand, literal

    def _distinct(self, expr: Function, *, strict: bool) -> Operand:
        left, right = expr.args
        bound = decode(*self.bind(left)), decode(*self.bind(right))
        return self._apply(expr, FUNCTIONS[expr.name], [*self._meet(expr, left, right, *bound, strict=strict)])

    def _unify(self, left: Operand, right: Operand, source: Expr) -> tuple[Operand, Operand]:
        """Two operands with a common type."""
        common = common_type(left[1], right[1], exact=True)
        if common is not None:
            return as_type(*left, common), as_type(*right, common)
        for text, other, swapped in ((left, right, False), (right, left, True)):
            if is_string(text[1]) and kind(other[1]) in ("number", "calendar", "time"):
                parsed = bind_cast(*text, other[1], lenient=False), other[1]
                return (other, parsed) if swapped else (parsed, other)
        raise BindError(
            f"{describe(source)}: Cannot infer common argument type for comparison operation {left[1]} and {right[1]}"
        )

    def _in_list(self, expr: InList, *, strict: bool) -> Expr:
        bound, dtype = decode(*self.bind(expr.arg))
        strict = strict and isinstance(expr.arg, Column) and len(expr.arg.path) == 1
        items = [self.bind(item) for item in expr.items]
        if not strict:
            (bound, dtype), items = self._uncast_all((bound, dtype), items)
        values: list[pa.Scalar | None] = []
        for item, (constant, _) in zip(expr.items, items, strict=True):
            if strict and isinstance(item, Literal):
                values.append(_fit_literal(item, dtype, expr.arg)[0].value)
            else:
                fits = isinstance(constant, Literal) and _same_kind(constant.value.type, dtype)
                values.append(fit_literal(constant.value, dtype) if fits and isinstance(constant, Literal) else None)
        if pt.is_null(dtype) or pt.is_nested(dtype):
            values = [None] * len(items)
        tests = [
            self._compare_operands(Comparison("=", expr.arg, source), (bound, dtype), item, strict=False)
            for source, item, value in zip(expr.items, items, values, strict=True)
            if value is None
        ]
        if len(tests) < len(values):
            known = [value for value in values if value is not None and value.is_valid]
            wanted = with_both_zeros(from_scalars(known, dtype))
            tests.append(fold(In(bound, wanted, has_null=len(known) + len(tests) < len(values))))
        return fold(Or(tuple(tests))) if len(tests) > 1 else tests[0]

    def _in_literals(self, expr: InLiterals, *, strict: bool) -> Expr:
        """Like `_in_list` of the same literals; calls it if one of them does not fit."""
        bound, dtype = decode(*self.bind(expr.arg))
        if pt.is_null(dtype) or pt.is_nested(dtype) or id(bound) in self._before_cast:
            return self._in_list(expr.as_list(), strict=strict)
        fitted = []
        for group in expr.groups:
            try:
                values = group.values if group.to is None else sql_cast(group.values, group.to, lenient=False)
            except pa.ArrowInvalid:
                return self._in_list(expr.as_list(), strict=strict)
            fits = fit_literals(values, dtype) if _same_kind(values.type, dtype) else None
            if fits is None:
                return self._in_list(expr.as_list(), strict=strict)
            fitted.append(fits)
        wanted = with_both_zeros(pa.concat_arrays(fitted) if fitted else pa.array([], dtype))
        return fold(In(bound, wanted, has_null=expr.has_null))

    def _uncast_all(self, operand: Operand, literals: list[Operand]) -> tuple[Operand, list[Operand]]:
        """`_uncast` beside several literals: all of them are null or fit, or nothing changes."""
        pairs = [self._uncast(operand, literal) for literal in literals if not _is_null(literal[0])]
        if len({id(inner[0]) for inner, _ in pairs}) != 1:
            return operand, literals
        inner, uncast = pairs[0][0], iter(pairs)
        null = Literal(pa.scalar(None, inner[1])), inner[1]
        return inner, [null if _is_null(literal[0]) else next(uncast)[1] for literal in literals]

    # -- casts and functions -----------------------------------------------------------------------------------------

    def _sql_call(self, expr: Call) -> Operand:
        operands = [decode(*self.bind(arg)) for arg in expr.args]
        types = [dtype for _, dtype in operands]
        if expr.function == "negate" and (pt.is_unsigned_integer(types[0]) or kind(types[0]) not in ("number", "null")):
            raise BindError(f"{describe(expr)}: Negation only supports signed numbers, found {types[0]}")
        if expr.function in ("add", "subtract") and any(map(pt.is_interval, types)):
            return self._shift_time(expr, operands)
        if expr.function in ("add", "subtract") and any(map(pt.is_date, types)):
            return self._days(expr, operands)
        if expr.function not in _ARITHMETIC:
            return self._call(expr, operands)
        return self._decimal_call(expr.function, expr, operands) or self._call(expr, _with_single_floats(operands))

    def _decimal_call(self, name: str, expr: Call | Function, operands: list[Operand]) -> Operand | None:
        """Arithmetic with a decimal, or of unsigned and signed 64-bit integers, which works in decimals; else None."""
        types = [dtype for _, dtype in operands]
        if not all(pt.is_integer(dtype) or pt.is_decimal(dtype) for dtype in types) or len(types) != 2:
            return None
        if not any(map(pt.is_decimal, [*types, common_type(*types, exact=True)])):
            return None
        common: pa.DataType | None = None  # integers beside a decimal get as many digits as they need
        if not any(map(pt.is_decimal, types)):
            common = decimal_of(pa.uint64())
        elif all(map(pt.is_decimal, types)) and types[0].bit_width != types[1].bit_width:
            common = common_type(*types)
        pairs = [(operand, common or decimal_of(operand[1])) for operand in operands]
        converted = [(bind_cast(*operand, to, lenient=False), to) for operand, to in pairs]
        return self._apply(Function(name, expr.args), decimal_arithmetic(name), converted)

    def _result_type(self, call: Call, source: Expr, operands: Sequence[Operand]) -> pa.DataType:
        unknown = [(Column(()), dtype) for _, dtype in operands]  # division by zero must fail later, with the rows
        return super()._result_type(call, source, unknown)

    def _shift_time(self, expr: Call, operands: list[Operand]) -> Operand:
        """`time + interval`, `interval + time`, `time - interval`."""
        left, right = (dtype for _, dtype in operands)
        if expr.function == "add" and pt.is_interval(left):
            operands = operands[::-1]
        if not (kind(operands[0][1]) == "calendar" and pt.is_interval(operands[1][1])):
            raise BindError(f"Cannot coerce arithmetic expression {left} {expr.function} {right} to valid types")
        name = "+" if expr.function == "add" else "-"
        return self._apply(Function(name, expr.args), FUNCTIONS[name], operands)

    def _days(self, expr: Call, operands: list[Operand]) -> Operand:
        """`date + 1`, `date - 1`, `date - date`: days are integers. A date minus a timestamp is a duration."""
        left, right = (dtype for _, dtype in operands)
        days = tuple(_days_of(*operand) for operand in operands)
        if pt.is_date(left) and pt.is_date(right) and expr.function == "subtract":
            return Cast(Call("subtract", days), _INT), _INT
        if kind(left) == kind(right) == "calendar" and expr.function == "subtract":
            return self._call(expr, [(bind_cast(*operand, _NANOS, lenient=False), _NANOS) for operand in operands])
        if pt.is_integer(right) or (pt.is_integer(left) and expr.function == "add"):
            return Cast(Call(expr.function, days), pa.date32()), pa.date32()
        raise BindError(f"Cannot coerce arithmetic expression {left} {expr.function} {right} to valid types")

    def _beside(self, literal: Expr, column: Expr) -> Expr:
        """A literal operand as a value of the other operand's type, if that is a column and the literal fits."""
        if isinstance(literal, Literal) and isinstance(column, Column):
            dtype = self.bind(column)[1]
            if kind(dtype) == "number" == kind(literal.value.type):
                fitted = fit_literal(literal.value, dtype)
                return literal if fitted is None else Literal(fitted)
        return literal

    def _function(self, expr: Function) -> Operand:
        if expr.name == "get_field":
            return self._member(expr)
        function = FUNCTIONS.get(expr.name)
        if function is None:
            close = difflib.get_close_matches(expr.name, FUNCTIONS, 1)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            raise BindError(f"Invalid function '{expr.name}'.{hint}")
        least, most = function.num_arguments
        if len(expr.args) < least or (most is not None and len(expr.args) > most):
            wanted = f"{least}" if least == most else f"{least} to {most}" if most is not None else f"at least {least}"
            raise BindError(f"Function '{expr.name}' expects {wanted} arguments but received {len(expr.args)}")
        operands = [self.bind(arg) for arg in expr.args]
        if expr.name == "between":
            operands = self._range(expr, [decode(*operand) for operand in operands])
            if _is_null(operands[0][0]):
                return Literal(pa.scalar(None, _BOOL)), _BOOL
            value, low, high = (bound for bound, _ in operands)
            if any(fold(Comparison(">", *pair)) == Literal(pa.scalar(True)) for pair in ((low, value), (value, high))):
                return Literal(pa.scalar(False)), _BOOL
        if expr.name == "%":
            operands = [decode(*operand) for operand in operands]
            if any(_is_null(bound) for bound, _ in operands):
                dtype = self._remainder(expr, function, [(Column(()), dtype) for _, dtype in operands])[1]
                return Literal(pa.scalar(None, dtype)), dtype
            return self._remainder(expr, function, operands)
        return self._apply(expr, function, operands)

    def _remainder(self, expr: Function, function: SqlFunction, operands: list[Operand]) -> Operand:
        decimals = self._decimal_call("remainder", expr, operands)
        return decimals or self._apply(expr, function, _with_single_floats(operands))

    def _range(self, expr: Function, operands: list[Operand]) -> list[Operand]:
        """A value and its bounds, with one type."""
        value, low, high = operands
        value, (low, high) = self._uncast_all(value, [low, high])
        value, low = self._unify(value, low, expr)
        value, high = self._unify(value, high, expr)
        return [value, self._unify(low, value, expr)[0], high]

    def _apply(self, expr: Function, function: SqlFunction, operands: list[Operand]) -> Operand:
        """The call of a function with bound operands; decodes them if the function does not take them undecoded.

        Functions that only pick or move items keep the items' type, as in the reference reader.
        """
        try:
            return self._bind_call(expr, function, operands)
        except BindError:
            plain = [decode(*operand) for operand in operands]
            if [dtype for _, dtype in plain] == [dtype for _, dtype in operands]:
                raise
        return self._bind_call(expr, function, plain)

    def _bind_call(self, expr: Function, function: SqlFunction, operands: list[Operand]) -> Operand:
        operands = Arguments(expr, function).convert(operands)
        if function.lazy == "coalesce" and isinstance(operands[0][0], Literal) and operands[0][0].value.is_valid:
            return operands[0]
        bound = Function(expr.name, tuple(bound for bound, _ in operands), function)
        values = [operand.value if isinstance(operand, Literal) else pa.nulls(0, dtype) for operand, dtype in operands]
        try:
            sample = function.run(values, 0)
        except pa.ArrowInvalid as error:
            if not all(isinstance(arg, Literal) for arg in bound.args):
                raise EvaluationError(f"{describe(expr)} cannot be computed: {error}") from error
            sample = function.run([pa.nulls(0, dtype) for _, dtype in operands], 0)  # the error comes with the rows
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError, TypeError) as error:
            types = ", ".join(str(dtype) for _, dtype in operands)
            raise BindError(f"{describe(expr)}: {expr.name} does not take ({types}): {error}") from error
        if isinstance(sample, pa.Scalar):
            return Literal(sample), sample.type
        return bound, sample.type

    def _member(self, expr: Function) -> Operand:
        bound, dtype = self.bind(expr.args[0])
        name = expr.args[1].value.as_py() if isinstance(expr.args[1], Literal) else ""
        index = first_member(dtype, name) if pt.is_struct(dtype) else -1
        if index < 0:
            raise BindError(f"No field named {name} in {describe(expr.args[0])}, which is {dtype}")
        return Call("struct_field", (bound,), pc.StructFieldOptions([index])), dtype.field(index).type


def _with_single_floats(operands: list[Operand]) -> list[Operand]:
    """Decimals beside a 32-bit float as 32-bit floats: the arithmetic has the width of the float."""
    if not any(pt.is_float32(dtype) for _, dtype in operands):
        return operands
    single = pa.float32()
    return [
        (bind_cast(*operand, single, lenient=False), single) if pt.is_decimal(operand[1]) else operand
        for operand in operands
    ]


def _days_of(bound: Expr, dtype: pa.DataType) -> Expr:
    """A date as days since 1970, or a number of days, both i32."""
    return Cast(Cast(bound, pa.date32()) if pt.is_date(dtype) else bound, pa.int32())


def _same_kind(literal: pa.DataType, column: pa.DataType) -> bool:
    return pt.is_null(literal) or (kind(literal) == kind(column) and is_string(literal) == is_string(column))


def _fit_literal(literal: Literal, to: pa.DataType, column: Expr) -> tuple[Literal, pa.DataType]:
    """A literal as a value of a column's type. Raises BindError if the cast would change it."""
    fitted = fit_literal(literal.value, to) if _same_kind(literal.value.type, to) else None
    if fitted is None:
        raise BindError(
            f"Received literal {describe(literal)} and could not convert to literal of type {to} "
            f"to compare it with {describe(column)}"
        )
    return Literal(fitted), to


def _is_null(bound: Expr) -> bool:
    return isinstance(bound, Literal) and not bound.value.is_valid


def _is_exact(dtype: pa.DataType) -> bool:
    """Whether a comparison may convert its literal instead of values of this type."""
    return bool(pt.is_integer(dtype) or pt.is_decimal(dtype))


def _match_case(name: str | int, known: Collection[str]) -> str | int:
    """A known name that equals `name` in any case; `name` itself if it is known or no name matches."""
    if not isinstance(name, str) or name in known:
        return name
    return next((other for other in known if other.lower() == name.lower()), name)
