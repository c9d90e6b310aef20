"""Random predicates as Spark hands them over, and which rows pass: by a plain reading of Spark's rules.

NaN equals NaN and is above all numbers; -0.0 equals 0.0; texts compare by their bytes; logic has three values.
"""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from random import Random

Node = dict[str, Any]

TEXTS: Final = [
    "",
    "a",
    "A",
    "ab",
    "a'b",
    "`a`",
    '"q"',
    "\\",
    "%",
    "_",
    "é",
    "𝄞",
    "\uffff",
    "a" * 3000,
    "line\nbreak",
    ";",
]
INTEGERS: Final = [0, 1, -1, 5, 100, -128, 127]
LONGS: Final = [*INTEGERS, 2**31, -(2**63), 2**63 - 1]
DATES: Final = [-719162, -141428, -141427, -1, 0, 19000, 2932896]  # from year 1 to 9999, with both sides of 1582-10-15
MICROS: Final = [-62135596800000000, -12219292800000001, -1, 0, 1, 1700000000123456, 253402300799999999]
FLOATS: Final = [0.0, -0.0, 1.0, -1.0, 0.1, 1e30, -1e30, math.nan, math.inf, -math.inf, 5e-324, 3.5]
DECIMALS: Final = ["0.00", "-1.10", "99999999999999999999999999999999999.999", "1.125", "-0.001"]


def columns() -> dict[str, tuple[pa.DataType, str, list[Any]]]:
    """The columns of the table: stored type, Spark's name for it, and values to draw from, as in literals."""
    texts = {"text": (pa.string(), TEXTS), "large": (pa.large_string(), TEXTS), "odd `name` x": (pa.string(), TEXTS)}
    return {
        **{name: (dtype, "string", values) for name, (dtype, values) in texts.items()},
        "i8": (pa.int8(), "tinyint", INTEGERS),
        "u8": (pa.uint8(), "smallint", [0, 1, 5, 100, 127, 255]),
        "i64": (pa.int64(), "bigint", LONGS),
        "flag": (pa.bool_(), "boolean", [True, False]),
        "day": (pa.date32(), "date", DATES),
        "local": (pa.timestamp("us"), "timestamp_ntz", MICROS),
        "moment": (pa.timestamp("us", "Europe/Berlin"), "timestamp", MICROS),
        "double": (pa.float64(), "double", FLOATS),
        "float": (pa.float32(), "float", [value for value in FLOATS if value != 5e-324]),
        "amount": (pa.decimal128(38, 3), "decimal(38,3)", [Decimal(text) for text in DECIMALS]),
        "ms": (pa.timestamp("ms"), "timestamp_ntz", [0, 1000, 1700000000123000]),
    }


def make_table(random: Random, num_rows: int) -> pa.Table:
    """A table of the columns, and of two inside a struct that may be null; a third of the values are null."""
    data: dict[str, Any] = {"id": pa.array(range(num_rows), pa.int64())}
    for name, (dtype, _, values) in columns().items():
        drawn = [None if random.random() < 0.3 else random.choice(values) for _ in range(num_rows)]
        data[name] = stored(drawn, dtype)
    members = [data["i64"], data["text"]]
    nulls = pa.array([random.random() < 0.3 for _ in range(num_rows)])
    data["point"] = pa.StructArray.from_arrays(members, ["x", "y z"], mask=nulls)
    return pa.table(data)


def stored(values: list[Any], dtype: pa.DataType) -> pa.Array:
    """Values as in literals, as an array of the stored type."""
    if pa.types.is_date(dtype):
        return pa.array(values, pa.int32()).cast(dtype)
    if pa.types.is_timestamp(dtype):
        return (
            pa.array(values, pa.int64()).cast(pa.timestamp("us")).cast(pa.timestamp(dtype.unit)).cast(dtype)
            if (dtype.tz is None)
            else pa.array(values, pa.int64()).cast(pa.timestamp("us", "UTC")).cast(dtype)
        )
    return pa.array(values, dtype)


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows; times as microseconds, because Python has no year 10000 in another zone."""
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            micros = table[field.name].cast(pa.timestamp("us", field.type.tz)).cast(pa.int64())
            table = table.set_column(index, field.name, micros)
    return table.to_pylist()


class Draw:
    """Draws predicates."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.columns = columns()

    def predicate(self, depth: int = 3) -> Node:
        """Any predicate."""
        kind = self.random.choice(["AND", "OR", "NOT", "leaf", "leaf", "leaf"]) if depth else "leaf"
        if kind == "leaf":
            return self.leaf()
        size = 1 if kind == "NOT" else 2
        return {"op": kind, "args": [self.predicate(depth - 1) for _ in range(size)]}

    def leaf(self) -> Node:
        """A comparison, a test for null, a membership or a search in a text."""
        name = self.random.choice([*self.columns, "x", "y z"])
        path = ["point", name] if name in ("x", "y z") else [name]
        of = {"x": "i64", "y z": "text"}.get(name, name)
        _, kind, values = self.columns[of]
        column = {"col": path}

        def literal() -> Node:
            value = None if self.random.random() < 0.1 else self.random.choice(values)
            return {"lit": literal_text(value), "type": kind}

        choice = self.random.randrange(10)
        if choice == 0:
            return {"op": self.random.choice(["IS_NULL", "IS_NOT_NULL"]), "args": [column]}
        if choice == 1:
            return {"op": "IN", "args": [column, *(literal() for _ in range(self.random.randrange(1, 4)))]}
        if kind == "string" and choice < 5:
            search = self.random.choice(["STARTS_WITH", "ENDS_WITH", "CONTAINS"])
            return {"op": search, "args": [column, literal()]}
        pair = [column, literal()]
        self.random.shuffle(pair)
        return {"op": self.random.choice(["=", "<>", "<=>", "<", "<=", ">", ">="]), "args": pair}


def sql_text(node: Node) -> str:
    """A predicate as Spark's SQL."""
    if "col" in node:
        return ".".join(f"`{name.replace('`', '``')}`" for name in node["col"])
    if "lit" in node:
        return _sql_literal(node["lit"], node["type"])
    name, arguments = node["op"], [sql_text(part) for part in node["args"]]
    if name == "NOT":
        return f"(NOT {arguments[0]})"
    if name in ("IS_NULL", "IS_NOT_NULL"):
        return f"({arguments[0]} {name.replace('_', ' ')})"
    if name == "IN":
        return f"({arguments[0]} IN ({', '.join(arguments[1:])}))"
    searches = {"STARTS_WITH": "startswith", "ENDS_WITH": "endswith", "CONTAINS": "contains"}
    if name in searches:
        return f"{searches[name]}({', '.join(arguments)})"
    return f"({f' {name} '.join(arguments)})"


def _sql_literal(text: str | None, kind: str) -> str:
    if text is None:
        return f"cast(null as {kind})"
    if kind == "string":
        return "decode(X'" + text.encode().hex() + "', 'utf-8')"
    if kind == "date":
        return f"date_from_unix_date({text})"
    if kind.startswith("timestamp"):
        return f"cast(timestamp_micros({text}) as {kind})"
    return f"cast('{text}' as {kind})"


def literal_text(value: Any) -> str | None:
    """A value as Java writes it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        special = {math.inf: "Infinity", -math.inf: "-Infinity"}
        return "NaN" if math.isnan(value) else special.get(value, repr(value).upper())
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def passes(node: Node, row: dict[str, Any]) -> bool | None:
    """Whether a row passes; None for null."""
    name, arguments = node["op"], node.get("args", [])
    if name in ("AND", "OR"):
        values = [passes(part, row) for part in arguments]
        decided = name == "OR"
        if decided in values:
            return decided
        return None if None in values else not decided
    if name == "NOT":
        value = passes(arguments[0], row)
        return None if value is None else not value
    values = [_value(part, row) for part in arguments]
    return _leaf_passes(name, values)


def _leaf_passes(name: str, values: list[Any]) -> bool | None:
    first = values[0]
    if name in ("IS_NULL", "IS_NOT_NULL"):
        return (first is None) == (name == "IS_NULL")
    if name == "<=>":
        return values[0] == values[1]
    if name == "IN":
        if first is None:
            return None
        return True if first in values[1:] else None if None in values[1:] else False
    second = values[1]
    if first is None or second is None:
        return None
    compared = {"=": first == second, "<>": first != second}
    if name in compared:
        return compared[name]
    searches = {"STARTS_WITH": bytes.startswith, "ENDS_WITH": bytes.endswith, "CONTAINS": bytes.__contains__}
    if name in searches:
        return bool(searches[name](first, second))
    return {"<": first < second, "<=": first <= second, ">": first > second, ">=": first >= second}[name]


def _value(node: Node, row: dict[str, Any]) -> Any:
    """A column's or literal's value in a form that Python orders as Spark does."""
    if "col" in node:
        value: Any = row
        for name in node["col"]:
            value = None if value is None else value[name]
        return _comparable(value)
    text, kind = node["lit"], node["type"]
    if text is None:
        return None
    if kind == "boolean":
        return text == "true"
    if kind in ("float", "double"):
        value = float(text)
        return _comparable(pa.scalar(value, pa.float32()).as_py() if kind == "float" else value)
    if kind.startswith("decimal"):
        return Decimal(text)
    return text.encode() if kind == "string" else int(text)


def _comparable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value + 0.0)
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else value
