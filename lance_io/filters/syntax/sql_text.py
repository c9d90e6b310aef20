"""Rebuilds a parsed text filter as our own expression tree, node type by node type.

Any other node type is refused, with its position in the text, so that a filter never selects rows that it does not
describe. Binding to a schema comes later; a tree depends on nothing but the text, and is cached.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from lance_io.caller_text import utf8
from lance_io.errors import BindError
from lance_io.filters.expressions.expression_tree import (
    And,
    Call,
    Column,
    Comparison,
    Function,
    InList,
    InLiterals,
    IsNull,
    Literal,
    Not,
    Or,
    SqlCast,
)
from lance_io.filters.expressions.sql_types import sql_type
from lance_io.filters.syntax.sql_dialect import CUT, parse_syntax
from lance_io.levels.arrays import scalar

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.filters.expressions.expression_tree import CompareOp, Expr

DEPTH_MAX = 100  # nesting of the tree; binding takes up to six stack frames per level of the interpreter's thousand
_CACHED_TEXTS_MAX = 256
_CACHED_CHARS_MAX = 4096

_COMPARISONS: dict[type[exp.Expr], CompareOp] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "add", exp.Sub: "subtract", exp.Mul: "multiply", exp.Div: "divide"}
_OPERATORS: dict[type[exp.Expr], str] = {exp.Mod: "%", exp.DPipe: "||", exp.Like: "like", exp.ILike: "ilike"}
_WITHOUT_BRACKETS = frozenset({"current_date", "current_time", "current_timestamp"})  # functions that look like columns
_FALSE = Literal(scalar(False, pa.bool_()))
_NULL = Literal(pa.nulls(1)[0])


def from_text(text: str) -> Expr:
    """The expression as an unbound tree.

    Raises BindError if the text is not an expression, or not one that filters support.
    """
    return _parse_cached(text) if len(text) <= _CACHED_CHARS_MAX else _parse(text)


def _parse(text: str) -> Expr:
    utf8(text, "an SQL expression", BindError)
    return _TreeBuilder(text).build(parse_syntax(text), 0)


_parse_cached = lru_cache(maxsize=_CACHED_TEXTS_MAX)(_parse)


class _TreeBuilder:
    """Converts sqlglot's tree of one text to ours."""

    def __init__(self, text: str) -> None:
        self._text = text

    def build(self, node: exp.Expr, depth: int) -> Expr:
        """The node as our tree; `depth` counts the nodes around it."""
        if depth > DEPTH_MAX:
            raise BindError(f"the filter is nested deeper than {DEPTH_MAX} levels; write it flatter")
        if type(node) in _COMPARISONS:
            return Comparison(_COMPARISONS[type(node)], *self._both(node, depth))
        if type(node) in _ARITHMETIC:
            return Call(_ARITHMETIC[type(node)], self._both(node, depth))
        if type(node) in _OPERATORS:
            arguments = Function(_OPERATORS[type(node)], self._both(node, depth))
            return Not(arguments) if node.args.get("negate") else arguments
        build = _BUILDERS.get(type(node))
        if build is None:
            raise self._refuse(node)
        return build(self, node, depth + 1)

    def _both(self, node: exp.Expr, depth: int) -> tuple[Expr, Expr]:
        return self.build(node.this, depth + 1), self.build(node.expression, depth + 1)

    def _refuse(self, node: exp.Expr, why: str = "is not supported in filters") -> BindError:
        starts = [child.meta["start"] for child in node.walk() if "start" in child.meta]
        where = f" at character {min(starts) + 1}" if starts else ""
        return BindError(f"sql parser error: {type(node).__name__}{where} {why}: {self._text[:200]!r}")

    # -- literals --------------------------------------------------------------------------------------------------

    def _literal(self, node: exp.Expr, depth: int) -> Expr:
        if node.is_string:
            return Literal(scalar(node.name, pa.string()))
        return Literal(self._number(node, node.name))

    def _number(self, node: exp.Expr, digits: str) -> pa.Scalar:
        if digits.lstrip("-").isdigit():
            number = int(digits) if len(digits) <= 20 else 1 << 64
            if -(1 << 63) <= number < 1 << 63:
                return scalar(number, pa.int64())
            if 0 <= number < 1 << 64:
                return scalar(number, pa.uint64())
        try:
            return scalar(float(digits), pa.float64())
        except ValueError:
            raise self._refuse(node, f"is no number, {digits!r}") from None

    def _hexadecimal(self, node: exp.Expr, depth: int) -> Expr:
        try:
            return Literal(scalar(bytes.fromhex(node.name), pa.binary()))
        except ValueError:
            raise self._refuse(node, "must have pairs of hexadecimal digits") from None

    def _negative(self, node: exp.Expr, depth: int) -> Expr:
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return Literal(self._number(inner, f"-{inner.name}"))
        return Call("negate", (self.build(inner, depth),))

    def _boolean(self, node: exp.Expr, depth: int) -> Expr:
        return Literal(scalar(bool(node.this), pa.bool_()))

    def _null(self, node: exp.Expr, depth: int) -> Expr:
        return _NULL

    def _array(self, node: exp.Expr, depth: int) -> Expr:
        return Function("make_array", tuple(self.build(item, depth) for item in node.expressions))

    # -- names -----------------------------------------------------------------------------------------------------

    def _column(self, node: exp.Expr, depth: int) -> Expr:
        name, quoted = node.this.name, bool(node.this.args.get("quoted"))
        if not quoted and name.lower() in _WITHOUT_BRACKETS:
            return Function(name.lower(), ())
        return Column((name,), any_case=not quoted)

    def _dot(self, node: exp.Expr, depth: int) -> Expr:
        return _member(self.build(node.this, depth), node.expression.name)

    def _bracket(self, node: exp.Expr, depth: int) -> Expr:
        source, index = self.build(node.this, depth), node.expressions[0]
        if isinstance(index, exp.Literal) and index.is_string:
            return _member(source, index.name)
        return Function("array_element", (source, self.build(index, depth)))

    def _function(self, node: exp.Expr, depth: int) -> Expr:
        name = node.name.lower()
        arguments = tuple(self.build(argument, depth) for argument in node.expressions)
        if name != "get_field":
            return Function(name, arguments)
        if len(arguments) < 2 or not all(
            isinstance(key.value, pa.StringScalar) for key in map(_as_literal, arguments[1:])
        ):
            raise self._refuse(node, "takes a struct and the names of fields")
        member = arguments[0]
        for key in arguments[1:]:
            member = _member(member, _as_literal(key).value.as_py())
        return member

    def _cast(self, node: exp.Expr, depth: int) -> Expr:
        return SqlCast(self.build(node.this, depth), sql_type(node.args["to"].name), isinstance(node, exp.TryCast))

    # -- conditions ------------------------------------------------------------------------------------------------

    def _chain(self, node: exp.Expr, depth: int) -> Expr:
        """`a and b and c`: one node, however long."""
        kind, parts = type(node), []
        while isinstance(node, kind):
            parts.append(node.expression)
            node = node.this
        operands = [self.build(part, depth) for part in [node, *reversed(parts)]]
        ours = And if kind is exp.And else Or
        return ours(
            tuple(part for operand in operands for part in (operand.args if isinstance(operand, ours) else (operand,)))
        )

    def _not(self, node: exp.Expr, depth: int) -> Expr:
        return Not(self.build(node.this, depth))

    def _paren(self, node: exp.Expr, depth: int) -> Expr:
        return self.build(node.this, depth)

    def _is(self, node: exp.Expr, depth: int) -> Expr:
        value = self.build(node.this, depth)
        if isinstance(node.expression, exp.Null):
            return IsNull(value)
        return Function("coalesce", (value if node.expression.this else Not(value), _FALSE))

    def _distinct(self, node: exp.Expr, depth: int) -> Expr:
        name = "is_distinct" if isinstance(node, exp.NullSafeNEQ) else "is_not_distinct"
        return Function(name, self._both(node, depth))

    def _in(self, node: exp.Expr, depth: int) -> Expr:
        if CUT in node.meta:
            return InLiterals(self.build(node.this, depth), *node.meta[CUT].literals())
        return InList(self.build(node.this, depth), tuple(self.build(item, depth) for item in node.expressions))

    def _between(self, node: exp.Expr, depth: int) -> Expr:
        value, low, high = (self.build(node.args[name], depth) for name in ("this", "low", "high"))
        if isinstance(value, Column):  # a literal must fit the column beside it
            return And((Comparison(">=", value, low), Comparison("<=", value, high)))
        return Function("between", (value, low, high))  # nested calls must not repeat the value at each level

    def _escape(self, node: exp.Expr, depth: int) -> Expr:
        if node.expression.name != "\\":
            raise self._refuse(node, "takes no other character than a backslash")
        return self.build(node.this, depth)


def _as_literal(expr: Expr) -> Literal:
    return expr if isinstance(expr, Literal) else _NULL


def _member(source: Expr, name: str) -> Expr:
    """A field of a struct."""
    if isinstance(source, Column):
        return Column((*source.path, name), source.any_case)
    return Function("get_field", (source, Literal(scalar(name, pa.string()))))


_BUILDERS: dict[type[exp.Expr], Callable[[_TreeBuilder, exp.Expr, int], Expr]] = {
    exp.Literal: _TreeBuilder._literal,
    exp.HexString: _TreeBuilder._hexadecimal,
    exp.Neg: _TreeBuilder._negative,
    exp.Boolean: _TreeBuilder._boolean,
    exp.Null: _TreeBuilder._null,
    exp.Array: _TreeBuilder._array,
    exp.Column: _TreeBuilder._column,
    exp.Dot: _TreeBuilder._dot,
    exp.Bracket: _TreeBuilder._bracket,
    exp.Anonymous: _TreeBuilder._function,
    exp.Cast: _TreeBuilder._cast,
    exp.TryCast: _TreeBuilder._cast,
    exp.And: _TreeBuilder._chain,
    exp.Or: _TreeBuilder._chain,
    exp.Not: _TreeBuilder._not,
    exp.Paren: _TreeBuilder._paren,
    exp.Is: _TreeBuilder._is,
    exp.NullSafeEQ: _TreeBuilder._distinct,
    exp.NullSafeNEQ: _TreeBuilder._distinct,
    exp.In: _TreeBuilder._in,
    exp.Between: _TreeBuilder._between,
    exp.Escape: _TreeBuilder._escape,
}
