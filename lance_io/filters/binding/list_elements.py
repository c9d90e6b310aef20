"""Which elements of lists an expression reads: `l[18]` needs one item of a list, not all of them.

`elements` finds, of each column, the numbers of the items that are read, or None where all of the column is; with
`at_places` the expression reads lists that hold just these items.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.types as pt

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
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.filters.expressions.expression_tree import Expr

ELEMENT_NAMES: Final = ("array_element", "array_extract", "list_element", "list_extract")
NUMBER_MAX: Final = (1 << 63) - 1


def elements(expr: Expr) -> dict[tuple[str, ...], set[int] | None]:
    """By path of the columns that an expression reads: the elements that it reads, counted from 1 on as in SQL; None
    for a column of which it reads more.
    """
    found: dict[tuple[str, ...], set[int] | None] = {}
    pending = [expr]
    while pending:
        node = pending.pop()
        element = _element(node)
        if element is not None:
            path, number = element
            numbers = found.setdefault(path, set())
            if numbers is not None:
                numbers.add(number)
            continue
        if isinstance(node, Column):
            found[_names(node)] = None
        pending.extend(children(node))
    return found


def _element(node: Expr) -> tuple[tuple[str, ...], int] | None:
    """The path of a list, and which of its elements a node is; those counted from the end are none."""
    if not isinstance(node, Function) or node.name not in ELEMENT_NAMES or len(node.args) != 2:
        return None
    column, index = node.args
    if not isinstance(column, Column) or not isinstance(index, Literal) or not pt.is_integer(index.value.type):
        return None
    number = index.value.as_py()
    return (_names(column), number) if number is not None and 0 <= number <= NUMBER_MAX else None


def _names(column: Column) -> tuple[str, ...]:
    return tuple(str(part) for part in column.path)


def at_places(expr: Expr, places: Mapping[tuple[str, ...], Mapping[int, int]]) -> Expr:
    """The same expression over lists that hold other items: by path and number of an element, its number there."""
    element = _element(expr)
    if element is not None and element[0] in places:
        assert isinstance(expr, Function), "an element"
        path, number = element
        return replace(expr, args=(expr.args[0], Literal(pa.scalar(places[path][number], pa.int64()))))

    def of(child: Expr) -> Expr:
        return at_places(child, places)

    match expr:
        case Comparison():
            return replace(expr, left=of(expr.left), right=of(expr.right))
        case And() | Or() | Call() | Function():
            return replace(expr, args=tuple(map(of, expr.args)))
        case InList():
            return replace(expr, arg=of(expr.arg), items=tuple(map(of, expr.items)))
        case Not() | IsNull() | In() | InLiterals() | Cast() | SqlCast():
            return replace(expr, arg=of(expr.arg))
        case _:
            return expr
