"""The conditions of a filter of which all must hold, and those of them that are computed first.

    id = 5 and text like '%lance%'      `id = 5` of all rows; then `text` of the rows that it leaves

The choice depends on the form of the conditions and on the sizes of their columns alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lance_io.filters.binding.binder import PSEUDO_COLUMNS
from lance_io.filters.expressions.expression_tree import And, Comparison, In, IsNull, Or, cannot_fail, columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lance_io.filters.expressions.expression_tree import Expr

TOGETHER_FACTOR: Final = 2.0  # conditions on at most this many times the bytes of the cheapest one join it
LATER_FACTOR: Final = 4.0  # columns of later conditions have at least this many times the bytes of the first ones


def conjuncts(expression: Expr) -> list[Expr]:
    """The conditions, in the order of the text."""
    if not isinstance(expression, And):
        return [expression]
    return [part for arg in expression.args for part in conjuncts(arg)]


def first_conditions(parts: Sequence[Expr], size_of: Callable[[str], float]) -> list[Expr]:
    """The conditions that are computed first; empty if all belong together.

    parts    of the filter
    size_of  stored bytes of a value of a top-level column, about

    A condition that can fail is never among them: only rows that no other condition excludes may make the filter fail.
    """
    sizes = [sum(map(size_of, stored_names([part]))) for part in parts]
    cheap = [size for part, size in zip(parts, sizes, strict=True) if cannot_fail(part) and is_selective(part)]
    if not cheap:
        return []
    bound = TOGETHER_FACTOR * min(cheap)
    first = [part for part, size in zip(parts, sizes, strict=True) if cannot_fail(part) and size <= bound]
    early = stored_names(first)
    later_bytes = sum([size_of(name) for name in stored_names(parts) if name not in early])
    return first if later_bytes >= LATER_FACTOR * max(1.0, sum(map(size_of, early))) else []


def stored_names(parts: Iterable[Expr]) -> set[str]:
    """The stored top-level columns that some conditions read."""
    return {str(column.path[0]) for part in parts for column in columns(part)} - {*PSEUDO_COLUMNS}


def is_selective(part: Expr) -> bool:
    """Whether a condition of this form mostly excludes many rows."""
    match part:
        case Comparison(op):
            return op != "!="
        case In() | IsNull():
            return True
        case And(args):
            return any(map(is_selective, args))
        case Or(args):
            return all(map(is_selective, args))
        case _:
            return False
