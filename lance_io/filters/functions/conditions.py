"""Functions that choose and compare values of any type, or decide by nulls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lance_io.filters.evaluate import compare
from lance_io.filters.functions.function_registry import SqlFunctions

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.filters.elementwise import Value


def _null_if(value: Value, unwanted: Value) -> Value:
    return pc.if_else(pc.fill_null(compare("=", value, unwanted), False), pa.scalar(None, value.type), value)


def _value_if_not_null(tested: Value, given: Value, otherwise: Value) -> Value:
    return pc.if_else(pc.is_valid(tested), given, otherwise)


def _between(value: Value, low: Value, high: Value) -> Value:
    return pc.and_kleene(compare(">=", value, low), compare("<=", value, high))


def _distinct(left: Value, right: Value) -> Value:
    if pa.types.is_null(left.type):
        return pa.array([False] * len(left if isinstance(left, pa.Array) else right))
    equal = compare("=", left, right)
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.invert(pc.or_(pc.fill_null(equal, False), both_null))


def _alike(left: Value, right: Value) -> Value:
    return pc.invert(_distinct(left, right))


def _extreme(op: str) -> Callable[..., Value]:
    def choose(*values: Value) -> Value:
        chosen = values[0]
        for value in values[1:]:
            better = pc.fill_null(compare(op, value, chosen), False)  # type: ignore[arg-type]
            chosen = pc.if_else(pc.or_(better, pc.is_null(chosen)), value, chosen)
        return chosen

    return choose


FUNCTIONS = SqlFunctions()
FUNCTIONS.define("coalesce", "same same*", pc.coalesce, lazy="coalesce")
FUNCTIONS.define("nvl ifnull", "same same", pc.coalesce, lazy="coalesce")
FUNCTIONS.define("nvl2", "any same same", _value_if_not_null, lazy="nvl2")
FUNCTIONS.define("nullif", "same same", _null_if)
FUNCTIONS.define("between", "same same same", _between)
FUNCTIONS.define("is_distinct", "same same", _distinct)
FUNCTIONS.define("is_not_distinct", "same same", _alike)
FUNCTIONS.define("greatest", "same same*", _extreme(">"))
FUNCTIONS.define("least", "same same*", _extreme("<"))
