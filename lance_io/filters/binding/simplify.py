"""What conditions come to before any row is looked at, by the rules that pylance's planner has.

fold                literals in place of expressions of literals
false and x         false; `true or x` is true
a or (a and x)      a; `a and (a or x)` too, whatever stands between
a = true            a; `a = false` is `not a`

What is left out is not computed, so that it cannot fail either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lance_io.filters.binding.expression_tree import And, Call, Comparison, Function, Literal, Not, Or, children
from lance_io.filters.evaluate import evaluate

if TYPE_CHECKING:
    from lance_io.filters.binding.expression_tree import CompareOp, Expr

_NO_ROWS: Final = pa.RecordBatch.from_arrays([], names=[])
_MIRRORED: Final[dict[CompareOp, CompareOp]] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def fold(bound: Expr) -> Expr:
    """A literal in place of an expression of literals; what cannot be computed is left to fail with the rows."""
    if not all(isinstance(child, Literal) for child in children(bound)):
        return bound
    try:
        value = evaluate(bound, _NO_ROWS)
    except pa.ArrowInvalid:
        return bound
    return Literal(value) if isinstance(value, pa.Scalar) else bound


def simplify(bound: And | Or) -> Expr:
    """Conditions without those that do not matter (see the module's table)."""
    decisive = isinstance(bound, Or)
    for arg in bound.args:
        if isinstance(arg, Literal) and arg.value.is_valid and arg.value.as_py() is decisive:
            return arg
    kept = _absorb(bound)
    return kept[0] if len(kept) == 1 else type(bound)(kept)


def without_truth(bound: Expr) -> Expr:
    """A condition in place of its comparison with true or false."""
    mirrored = _mirrored(bound)
    if not (isinstance(mirrored, Comparison) and mirrored.op in ("=", "!=") and isinstance(mirrored.right, Literal)):
        return bound
    value = mirrored.right.value
    if not (pa.types.is_boolean(value.type) and value.is_valid):
        return bound
    return mirrored.left if value.as_py() is (mirrored.op == "=") else Not(mirrored.left)


def _absorb(bound: And | Or) -> tuple[Expr, ...]:
    """The conditions but those of the other kind that name one of them."""
    other = And if isinstance(bound, Or) else Or
    if not any(isinstance(arg, other) for arg in bound.args):
        return bound.args
    alone = [_mirrored(arg) for arg in bound.args if not isinstance(arg, other) and _is_stable(arg)]
    return tuple(
        arg for arg in bound.args if not (isinstance(arg, other) and any(_mirrored(part) in alone for part in arg.args))
    )


def _mirrored(condition: Expr) -> Expr:
    """`1 = a` as `a = 1`."""
    if isinstance(condition, Comparison) and isinstance(condition.left, Literal):
        return Comparison(_MIRRORED[condition.op], condition.right, condition.left)
    return condition


def _is_stable(expr: Expr) -> bool:
    """Whether it gives the same twice: a function without arguments may draw."""
    is_drawn = isinstance(expr, Call | Function) and not expr.args
    return not is_drawn and all(map(_is_stable, children(expr)))
