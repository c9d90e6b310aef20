"""Simplifies conditions before any row is computed, by the rules of pylance's planner.

fold                literals in place of expressions of literals
false and x         false; `true or x` is true
a or (a and x)      a; `a and (a or x)` too, also with other conditions between
a = true            a; `a = false` is `not a`
a = 1 or a = 2 ...  a in (1, 2, ...), from five comparisons on

Dropped conditions are not computed, so they cannot fail either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow.types import is_nested

from lance_io.filters.evaluate import evaluate
from lance_io.filters.expressions.coercion import with_both_zeros
from lance_io.filters.expressions.expression_tree import (
    And,
    Call,
    Column,
    Comparison,
    Function,
    In,
    Literal,
    Not,
    Or,
    children,
    describe,
)
from lance_io.levels.arrays import from_scalars

if TYPE_CHECKING:
    from lance_io.filters.expressions.expression_tree import CompareOp, Expr

_NO_ROWS: Final = pa.RecordBatch.from_arrays([], names=[])
_GATHERED_MIN: Final = 5
_MIRRORED: Final[dict[CompareOp, CompareOp]] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def fold(bound: Expr) -> Expr:
    """A literal in place of an expression of literals. One that fails stays, to fail when rows are computed."""
    if not all(isinstance(child, Literal) for child in children(bound)):
        return bound
    try:
        value = evaluate(bound, _NO_ROWS)
    except pa.ArrowInvalid:
        return bound
    return Literal(value) if isinstance(value, pa.Scalar) else bound


def simplify(bound: And | Or) -> Expr:
    """Conditions without needless ones (see the module's table)."""
    decisive = isinstance(bound, Or)
    for arg in bound.args:
        if isinstance(arg, Literal) and arg.value.is_valid and arg.value.as_py() is decisive:
            return arg
    kept = _absorb(bound)
    if decisive and len(kept) >= _GATHERED_MIN:
        kept = _gather(kept)
    return kept[0] if len(kept) == 1 else type(bound)(kept)


def _gather(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Alternatives with one IN in place of many comparisons of a column with literals."""
    positions: dict[tuple[Column, pa.DataType], list[int]] = {}
    values: dict[int, pa.Scalar] = {}
    for position, arg in enumerate(map(_mirrored, args)):
        match arg:
            case Comparison("=", Column() as column, Literal(value)) if value.is_valid and not is_nested(value.type):
                positions.setdefault((column, value.type), []).append(position)
                values[position] = value
    changed = dict(enumerate(args))
    for (column, dtype), equalities in positions.items():
        if len(equalities) >= _GATHERED_MIN:
            wanted = with_both_zeros(from_scalars([values[position] for position in equalities], dtype))
            changed[equalities[0]] = In(column, wanted, has_null=False)
            for position in equalities[1:]:
                del changed[position]
    return tuple(changed.values())


def without_truth(bound: Expr) -> Expr:
    """`a` in place of `a = true`, `not a` in place of `a = false`."""
    mirrored = _mirrored(bound)
    if not (isinstance(mirrored, Comparison) and mirrored.op in ("=", "!=") and isinstance(mirrored.right, Literal)):
        return bound
    value = mirrored.right.value
    if not (pa.types.is_boolean(value.type) and value.is_valid):
        return bound
    return mirrored.left if value.as_py() is (mirrored.op == "=") else Not(mirrored.left)


def _absorb(bound: And | Or) -> tuple[Expr, ...]:
    """The conditions without those of the other kind that contain one of them."""
    other = And if isinstance(bound, Or) else Or
    if not any(isinstance(arg, other) for arg in bound.args):
        return bound.args
    alone: dict[str, list[Expr]] = {}  # by text, to avoid comparing every pair
    for arg in bound.args:
        if not isinstance(arg, other) and _is_stable(arg):
            alone.setdefault(describe(_mirrored(arg)), []).append(_mirrored(arg))

    def is_alone(condition: Expr) -> bool:
        return condition in alone.get(describe(condition), ())

    return tuple(
        arg
        for arg in bound.args
        if not (isinstance(arg, other) and any(is_alone(_mirrored(part)) for part in arg.args))
    )


def _mirrored(condition: Expr) -> Expr:
    """`1 = a` as `a = 1`."""
    if isinstance(condition, Comparison) and isinstance(condition.left, Literal):
        return Comparison(_MIRRORED[condition.op], condition.right, condition.left)
    return condition


def _is_stable(expr: Expr) -> bool:
    """Whether computing it twice gives the same value: functions without arguments may be random."""
    is_drawn = isinstance(expr, Call | Function) and not expr.args
    return not is_drawn and all(map(_is_stable, children(expr)))
