"""Whether the values of a bound expression may be null, decided without looking at rows.

The rules are those of pylance's planner, so that a computed column has the same field there. An operator may be null if
an operand may be null; most functions may return null for any arguments. The planner also drops needless tests (`n is
null` over a column without nulls); the binder does the same, by these rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lance_io.filters.expressions.expression_tree import (
    And,
    Call,
    Cast,
    Column,
    Comparison,
    Function,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    SqlCast,
    children,
)

if TYPE_CHECKING:
    from lance_io.filters.expressions.expression_tree import Expr

_NULL_BY_OPERANDS: Final = frozenset(
    """
    + - % || add subtract multiply divide remainder like ilike is_distinct is_not_distinct between
    regexp_like starts_with strpos instr position round date_part datepart date_trunc datetrunc arrow_cast map_values
    array_remove list_remove array_remove_n list_remove_n array_remove_all list_remove_all
    """.split()
)
_CONDITIONS: Final = frozenset("like ilike is_distinct is_not_distinct between regexp_like starts_with".split())
_FIRST_VALID: Final = frozenset(("coalesce", "nvl", "ifnull"))


def may_be_null(expression: Expr, schema: pa.Schema) -> bool:
    """Whether a row may be null.

    expression  bound against the schema
    schema      of the dataset; names that it lacks, such as pseudo columns, may be null
    """
    match expression:
        case Column(path):
            return _column_may_be_null(path, schema)
        case Literal(value):
            return not value.is_valid
        case IsNull():
            return False
        case In(arg, _, has_null):
            return has_null or may_be_null(arg, schema)
        case SqlCast(arg, _, lenient):
            return lenient or may_be_null(arg, schema)
        case And() | Or() | Not() | Comparison() | Cast() | Call():
            return any(may_be_null(arg, schema) for arg in children(expression))
        case Function(name, args):
            return _function_may_be_null(name, args, schema)
        case _:
            return True


def _function_may_be_null(name: str, args: tuple[Expr, ...], schema: pa.Schema) -> bool:
    if name in _FIRST_VALID:
        if any(_is_condition(arg, schema) for arg in args):  # the planner rewrites: `(a is not null and a) or ...`
            return may_be_null(args[0], schema)
        return all(may_be_null(arg, schema) for arg in args)
    if name == "nvl2":
        tested, valid, otherwise = args
        if not may_be_null(tested, schema):
            return may_be_null(valid, schema)
        return may_be_null(valid, schema) or may_be_null(otherwise, schema)
    return name not in _NULL_BY_OPERANDS or any(may_be_null(arg, schema) for arg in args)


def _is_condition(expression: Expr, schema: pa.Schema) -> bool:
    match expression:
        case Literal(value):
            return bool(pa.types.is_boolean(value.type))
        case Column(path):
            fields = _fields_of(path, schema)
            return bool(fields) and pa.types.is_boolean(fields[-1].type)
        case Cast(_, to) | SqlCast(_, to):
            return bool(pa.types.is_boolean(to))
        case Function(name):
            return name in _CONDITIONS
        case _:
            return not isinstance(expression, Call)


def _column_may_be_null(path: tuple[str | int, ...], schema: pa.Schema) -> bool:
    fields = _fields_of(path, schema)
    return not fields or any(field.nullable for field in fields)


def _fields_of(path: tuple[str | int, ...], schema: pa.Schema) -> list[pa.Field]:
    """The fields from the top down; none where the schema has no such column."""
    fields: list[pa.Field] = []
    inside: pa.Schema | pa.DataType = schema
    for part in path:
        if not isinstance(inside, pa.Schema) and not pa.types.is_struct(inside):
            return []
        index = part if isinstance(part, int) else inside.get_field_index(part)
        if index < 0:
            return []
        fields.append(inside.field(index))
        dtype = fields[-1].type
        inside = dtype.storage_type if isinstance(dtype, pa.BaseExtensionType) else dtype
    return fields
