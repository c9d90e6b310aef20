"""Which elements of lists an expression reads: `l[18]` needs one item of a list, not all of them.

`elements` finds the numbers of the items that are read of each column, or None where all of the column is read.
`with_item_numbers` makes the expression read lists of just these items.
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
    """The list elements that an expression reads, by column path; None for a column of which it reads more.

    Elements are counted from 1, as in SQL.
    """
    result: dict[tuple[str, ...], set[int] | None] = {}
    pending = [expr]
    while pending:
        node = pending.pop()
        element = _element(node)
        if element is not None:
            path, number = element
            numbers = result.setdefault(path, set())
            if numbers is not None:
                numbers.add(number)
            continue
        if isinstance(node, Column):
            result[_names(node)] = None
        pending.extend(children(node))
    return result


def _element(node: Expr) -> tuple[tuple[str, ...], int] | None:
    """The list path and element number that a node reads; None for other nodes and elements counted from the end."""
    if not isinstance(node, Function) or node.name not in ELEMENT_NAMES or len(node.args) != 2:
        return None
    column, index = node.args
    if not isinstance(column, Column) or not isinstance(index, Literal) or not pt.is_integer(index.value.type):
        return None
    number = index.value.as_py()
    return (_names(column), number) if number is not None and 0 <= number <= NUMBER_MAX else None


def _names(column: Column) -> tuple[str, ...]:
    return tuple(str(part) for part in column.path)


def with_item_numbers(expr: Expr, numbers: Mapping[tuple[str, ...], Mapping[int, int]]) -> Expr:
    """The same expression over lists with other items; `numbers` maps path and element number to the new number."""
    element = _element(expr)
    if element is not None and element[0] in numbers:
        assert isinstance(expr, Function), "an element"
        path, number = element
        return replace(expr, args=(expr.args[0], Literal(pa.scalar(numbers[path][number], pa.int64()))))

    def of(child: Expr) -> Expr:
        return with_item_numbers(child, numbers)

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
