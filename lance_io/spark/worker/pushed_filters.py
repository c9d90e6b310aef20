"""Spark's predicates in the language of filters (`lance_io.filters`).

A predicate is used in one of three ways:

    exact     the filter keeps exactly the rows that Spark would keep: Spark does not look at it again
    superset  the filter keeps these rows, and perhaps others, which Spark drops
    left      only Spark applies it

Predicates come as JSON: `{"op": name, "args": [...]}`, `{"col": path}`, `{"lit": text, "type": name}`, null for parts
that have no form. Exact are only comparisons whose meaning is the same in both: logic of three values, texts by their
bytes, numbers and times of equal types. Floats differ: Spark knows one NaN, above all numbers and equal to itself, and
one zero; filters order floats by their bits. So bounds are chosen that have both zeros on one side, and NaN is named.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa

from lance_io.spark.types import extension_name, is_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Use: TypeAlias = Literal["exact", "superset", "left"]
Node: TypeAlias = Any  # of JSON

_FLIPPED: Final = {"=": "=", "<>": "<>", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SQL: Final = {"=": "=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_TEXT: Final = {"STARTS_WITH": "starts_with", "ENDS_WITH": "ends_with", "CONTAINS": "contains"}
_INTEGERS: Final = frozenset({"tinyint", "smallint", "int", "bigint"})
_FLOATS: Final = {"float": pa.float32(), "double": pa.float64()}
_MICROS_MIN: Final = -62_104_060_800_000_000  # of years 2 to 9998: filters are compiled with times that Python has
_MICROS_END: Final = 253_370_764_800_000_000
DEPTH_MAX: Final = 100  # of a predicate: deeper ones are left to Spark


@dataclass(frozen=True, slots=True)
class Pushed:
    """What became of predicates.

    uses  of each
    text  the filter, None if there is nothing to filter by
    """

    uses: list[Use]
    text: str | None


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a predicate: its name as SQL, and its field."""

    sql: str
    field: pa.Field[Any]


class PushedFilters:
    """Translates predicates about the columns of a scan.

    schema   of the scan
    columns  paths of its columns in the table, None if they have their own names
    """

    def __init__(self, schema: pa.Schema, columns: Sequence[tuple[str, ...]] | None = None) -> None:
        self._schema = schema
        self._paths = {".".join(path): path for path in columns or ()}

    def push(self, predicates: Sequence[Node]) -> Pushed:
        """Translate predicates that all hold."""
        uses: list[Use] = []
        texts = []
        for node in predicates:
            exact = self._exact(node)
            text = exact or self._superset(node)
            uses.append("exact" if exact else "superset" if text else "left")
            if text:
                texts.append(text)
        return Pushed(uses, " AND ".join(texts) or None)

    def _superset(self, node: Node, depth: int = 0) -> str | None:
        """A filter that keeps at least the rows of a predicate; None for none."""
        if depth > DEPTH_MAX or not node or "op" not in node:
            return None
        exact = self._exact(node, depth)
        if exact or node["op"] not in ("AND", "OR"):
            return exact
        parts = [self._superset(part, depth + 1) for part in node["args"]]
        known = [part for part in parts if part]
        if node["op"] == "OR" and len(known) < len(parts):
            return None
        return _joined(node["op"], known) if known else None

    def _exact(self, node: Node, depth: int = 0) -> str | None:
        """A filter that is true, false and null exactly where a predicate is; None if there is none."""
        if depth > DEPTH_MAX or not node or "op" not in node:
            return None
        name, arguments = node["op"], node["args"]
        if name in ("AND", "OR", "NOT"):
            parts = [self._exact(part, depth + 1) for part in arguments]
            known = [part for part in parts if part]
            if len(known) < len(parts):
                return None
            return f"(NOT {known[0]})" if name == "NOT" else _joined(name, known)
        if name in ("ALWAYS_TRUE", "ALWAYS_FALSE"):
            return "(1 = 1)" if name == "ALWAYS_TRUE" else "(1 = 0)"
        return self._leaf(name, arguments)

    def _leaf(self, name: str, arguments: Sequence[Node]) -> str | None:
        if name in _FLIPPED and len(arguments) == 2:
            left, right = self._column(arguments[0]), self._column(arguments[1])
            if left is not None and right is not None:
                return _compare_columns(name, left, right)
            if left is not None:
                return _compare(name, left, arguments[1])
            return None if right is None else _compare(_FLIPPED[name], right, arguments[0])
        column = self._column(arguments[0]) if arguments else None
        if column is None:
            return None
        if name in ("IS_NULL", "IS_NOT_NULL") and len(arguments) == 1:
            return f"({column.sql} IS {'NOT ' if name == 'IS_NOT_NULL' else ''}NULL)"
        if name == "IN":
            return _is_in(column, arguments[1:])
        if name in _TEXT and len(arguments) == 2 and _is_plain_text(column.field):
            text = _literal(column, arguments[1])
            return None if text is None else f"{_TEXT[name]}({column.sql}, {text})"
        return None

    def _column(self, node: Node) -> _Column | None:
        """The column that a node names; None if it is none, or leads through anything but structs."""
        if not node or "col" not in node:
            return None
        path: list[str] = node["col"]
        index = self._schema.get_field_index(path[0])
        if index < 0:
            return None
        field = self._schema.field(index)
        for name in path[1:]:
            if isinstance(field.type, pa.BaseExtensionType) or not pa.types.is_struct(field.type):
                return None
            member = field.type.get_field_index(name)
            if member < 0:
                return None
            field = field.type.field(member)
        stored = (*self._paths.get(path[0], (path[0],)), *path[1:])
        return _Column(".".join(f"`{name.replace('`', '``')}`" for name in stored), field)


def _joined(operator: str, texts: Sequence[str]) -> str:
    return "(" + f" {operator} ".join(texts) + ")"


# -- comparisons -------------------------------------------------------------------------------------------------------


def _compare(name: str, column: _Column, node: Node) -> str | None:
    """A comparison of a column with a literal."""
    if not node or "lit" not in node:
        return None
    if node["lit"] is None:
        return f"({column.sql} IS NULL)" if name == "<=>" else None
    if name == "<=>":
        equal = _compare("=", column, node)
        return None if equal is None else f"({column.sql} IS NOT NULL AND {equal})"
    if column.field.type in _FLOATS.values():
        return _compare_float(name, column, node)
    text = _literal(column, node)
    return None if text is None else f"({column.sql} {_SQL[name]} {text})"


def _compare_columns(name: str, left: _Column, right: _Column) -> str | None:
    """A comparison of two columns whose values are compared alike on both sides."""
    if left.field.type != right.field.type or name == "<=>" or not _is_ordered_alike(left.field):
        return None
    return f"({left.sql} {_SQL[name]} {right.sql})"


def _is_ordered_alike(field: pa.Field[Any]) -> bool:
    dtype = field.type
    kinds = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_date32, pa.types.is_decimal128)
    return _is_plain_text(field) or _is_plain_time(dtype) or any(kind(dtype) for kind in kinds)


def _is_in(column: _Column, nodes: Sequence[Node]) -> str | None:
    if not nodes:
        return None
    if column.field.type in _FLOATS.values():
        equal = [_compare("=", column, node) for node in nodes]
        known = [text for text in equal if text]
        return _joined("OR", known) if len(known) == len(equal) else None
    texts = ["NULL" if node and "lit" in node and node["lit"] is None else _literal(column, node) for node in nodes]
    known = [text for text in texts if text]
    return f"({column.sql} IN ({', '.join(known)}))" if len(known) == len(texts) else None


def _compare_float(name: str, column: _Column, node: Node) -> str | None:
    """A comparison as Spark makes it: NaN is above all numbers, and both zeros are equal."""
    if _FLOATS.get(node["type"]) != column.field.type:
        return None
    value, sql = float(node["lit"]), column.sql
    if math.isinf(value):
        return None
    if name == "<>":
        return f"(NOT {_compare_float('=', column, node)})"
    if math.isnan(value):
        return {"=": f"isnan({sql})", ">=": f"isnan({sql})", "<": f"(NOT isnan({sql}))"}.get(name)
    if node["type"] == "float":  # the shortest text of a float is that of another double
        value = float(pa.scalar(value, pa.float32()).as_py())
    lowest, highest = ("-0.0", "0.0") if value == 0 else (repr(value), repr(value))
    match name:
        case "=":
            return f"({sql} >= {lowest} AND {sql} <= {highest})"
        case "<":
            return f"({sql} < {lowest} AND NOT isnan({sql}))"
        case "<=":
            return f"({sql} <= {highest} AND NOT isnan({sql}))"
        case ">":
            return f"({sql} > {highest} OR isnan({sql}))"
    return f"({sql} >= {lowest} OR isnan({sql}))"


# -- literals ----------------------------------------------------------------------------------------------------------


def _literal(column: _Column, node: Node) -> str | None:
    """A literal that is not null, in the type of a column; None if the column has values of another kind."""
    if not node or node.get("lit") is None:
        return None
    text, kind, field = str(node["lit"]), str(node["type"]), column.field
    for fits, convert in _LITERALS:
        if fits(field, kind):
            return convert(text, field)
    return None


def _is_plain_text(field: pa.Field[Any]) -> bool:
    return is_text(field.type) and extension_name(field) is None


def _is_plain_time(dtype: pa.DataType) -> bool:
    """Whether Spark sees a time as it is stored: it knows microseconds only."""
    return bool(pa.types.is_timestamp(dtype)) and dtype.unit == "us"


def _integer(text: str, field: pa.Field[Any]) -> str | None:
    """An integer that the column can hold: beside it, another is an error."""
    dtype, value = field.type, int(text)
    is_signed = pa.types.is_signed_integer(dtype)
    lowest = -(1 << (dtype.bit_width - 1)) if is_signed else 0
    highest = (1 << (dtype.bit_width - is_signed)) - 1
    return str(value) if lowest <= value <= highest else None


def _date(text: str, _: pa.Field[Any]) -> str | None:
    try:
        return f"date '{(date(1970, 1, 1) + timedelta(days=int(text))).isoformat()}'"
    except OverflowError:
        return None


def _time(text: str, field: pa.Field[Any]) -> str | None:
    """A time by its microseconds; beside a zone in UTC, which is the same moment in every zone."""
    if not _MICROS_MIN <= int(text) < _MICROS_END:
        return None
    zone = "None" if field.type.tz is None else 'Some("UTC")'
    return f"arrow_cast({int(text)}, 'Timestamp(Microsecond, {zone})')"


def _decimal(text: str, field: pa.Field[Any]) -> str:
    return f"decimal({field.type.precision},{field.type.scale}) '{text}'"


_LITERALS: Final[Sequence[tuple[Callable[[pa.Field[Any], str], bool], Callable[[str, pa.Field[Any]], str | None]]]] = (
    (
        lambda field, kind: (
            kind in _INTEGERS and bool(pa.types.is_integer(field.type)) and not pa.types.is_uint64(field.type)
        ),
        _integer,
    ),
    (
        lambda field, kind: kind == "string" and _is_plain_text(field),
        lambda text, _: "'" + text.replace("'", "''") + "'",
    ),
    (lambda field, kind: kind == "boolean" and bool(pa.types.is_boolean(field.type)), lambda text, _: text),
    (lambda field, kind: kind == "date" and bool(pa.types.is_date32(field.type)), _date),
    (
        lambda field, kind: (
            _is_plain_time(field.type) and kind == ("timestamp_ntz" if field.type.tz is None else "timestamp")
        ),
        _time,
    ),
    (
        lambda field, kind: (
            bool(pa.types.is_decimal128(field.type)) and kind == f"decimal({field.type.precision},{field.type.scale})"
        ),
        _decimal,
    ),
)
