"""Random predicates as SQL, of kinds that Spark itself changes before a source sees them.

CHAR is padded, collations compare by other rules, times are of the session's zone, numbers of two types are cast.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from random import Random

CREATE: Final = (
    "create table {} (id bigint, code char(4), name varchar(6), text string, moment timestamp, local timestamp_ntz, "
    "day date, amount decimal(38,3), small tinyint, number int, ratio float, score double)"
)
WORDS: Final = ["", "a", "A", "ab", "AB", "ab  ", "a b", "abcd", "é", "É", "e\u0301", "ß", " ", "ı", "%", "_"]
TIMES: Final = [
    *("0001-12-31 00:00:00", "1582-10-04 23:59:59.999999", "1582-10-15 00:00:00", "1883-11-18 12:03:58"),
    *("1969-12-31 23:59:59.999999", "1970-01-01 00:00:00", "2026-03-08 02:30:00", "2026-11-01 01:30:00"),
    *("2026-11-30 11:15:00.000001", "9997-12-31 23:59:59"),
]
DAYS: Final = ["0001-01-01", "1582-10-04", "1582-10-15", "1969-12-31", "2026-03-08", "2026-11-30", "9999-12-31"]
AMOUNTS: Final = ["0", "0.001", "-1.1", "1.10", "1", "99999999999999999999999999999999999.999"]
FLOATS: Final = ["0.0", "-0.0", "0.1", "1.5", "-1e30", "1e30", "'NaN'", "'Infinity'", "'-Infinity'"]
NUMBERS: Final = ["0", "1", "-1", "5", "127", "-128", "300", "2147483647", "3000000000", "0.5", "1.0", "1e2"]
OPERATORS: Final = ["=", "<>", "<=>", "<", "<=", ">", ">="]
COLLATIONS: Final = [
    "UTF8_BINARY",
    "UTF8_LCASE",
    "UNICODE",
    "UNICODE_CI",
    "UNICODE_CI_AI",
    "UTF8_BINARY_RTRIM",
    "de_CI_AI",
]
SETTINGS: Final = [  # ANSI, zone, and whether Spark pads CHAR when it reads
    ("true", "UTC", "true"),
    ("false", "America/St_Johns", "true"),
    ("true", "Asia/Kolkata", "false"),
    ("false", "Pacific/Apia", "true"),
    ("true", "Europe/Berlin", "true"),
]


def make_rows(random: Random, num_rows: int, schema: pa.Schema) -> pa.Table:
    """Rows for a table of that statement; a quarter of the values are null, and CHAR comes padded or not."""
    draws: dict[str, list[Any]] = {
        "code": [word for word in WORDS if len(word) <= 4],
        "name": WORDS,
        "text": WORDS,
        "moment": [datetime.fromisoformat(text) for text in TIMES],
        "local": [datetime.fromisoformat(text) for text in TIMES],
        "day": [date.fromisoformat(text) for text in DAYS],
        "amount": [Decimal(text) for text in AMOUNTS],
        "small": [0, 1, -1, 5, 127, -128],
        "number": [0, 1, -1, 5, 300, 2147483647],
        "ratio": [float(text.strip("'")) for text in FLOATS],
        "score": [float(text.strip("'")) for text in FLOATS],
    }
    columns = {"id": pa.array(range(num_rows))}
    for name, values in draws.items():
        drawn = [None if random.random() < 0.25 else random.choice(values) for _ in range(num_rows)]
        columns[name] = pa.array(drawn, schema.field(name).type)
    return pa.table(columns, schema=schema)


class SqlDraw:
    """Draws predicates."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def predicate(self, depth: int = 2) -> str:
        """Any predicate."""
        kind = self.random.choice(["AND", "OR", "NOT", "leaf", "leaf", "leaf"]) if depth else "leaf"
        if kind == "NOT":
            return f"(NOT {self.predicate(depth - 1)})"
        if kind != "leaf":
            return f"({self.predicate(depth - 1)} {kind} {self.predicate(depth - 1)})"
        return self.random.choice([self.padded, self.collated, self.timed, self.cast])()

    def _compared(self, left: str, right: str) -> str:
        return f"({left} {self.random.choice(OPERATORS)} {right})"

    def _word(self) -> str:
        return "'" + self.random.choice(WORDS) + "'"

    def padded(self) -> str:
        """Of CHAR and VARCHAR."""
        column = self.random.choice(["code", "code", "name"])
        match self.random.randrange(7):
            case 0:
                return f"({column} IN ({self._word()}, {self._word()}))"
            case 1:
                pattern = self.random.choice(["a%", "%b", "%b%", "ab", "a_"])
                return f"({column} LIKE '{pattern}')"
            case 2:
                return f"{self.random.choice(['startswith', 'endswith', 'contains'])}({column}, {self._word()})"
            case 3:
                return self._compared(column, self.random.choice(["name", "text", "code"]))
            case 4:
                return self._compared(f"length({column})", self.random.choice(["0", "1", "4"]))
            case 5:
                return f"({column} IS {self.random.choice(['', 'NOT '])}NULL)"
        return self._compared(*self.random.sample([column, self._word()], 2))

    def collated(self) -> str:
        """Of texts under a collation."""
        column = f"{self.random.choice(['text', 'name'])} COLLATE {self.random.choice(COLLATIONS)}"
        match self.random.randrange(4):
            case 0:
                return f"({column} IN ({self._word()}, {self._word()}))"
            case 1:
                return f"{self.random.choice(['startswith', 'endswith', 'contains'])}({column}, {self._word()})"
            case 2:
                return self._compared("text", f"{self._word()} COLLATE {self.random.choice(COLLATIONS)}")
        return self._compared(column, self._word())

    def timed(self) -> str:
        """Of days and times, by the session's zone."""
        draw, time = self.random.choice, f"'{self.random.choice(TIMES)}'"
        columns = [
            "moment",
            "local",
            "day",
            "cast(moment AS date)",
            "cast(local AS timestamp)",
            "cast(day AS timestamp)",
        ]
        values = [f"TIMESTAMP {time}", f"TIMESTAMP_NTZ {time}", f"DATE '{draw(DAYS)}'", f"cast({time} AS timestamp)"]
        match self.random.randrange(5):
            case 0:
                return self._compared(draw(["hour(moment)", "hour(local)"]), draw(["0", "11", "23"]))
            case 1:
                return f"(moment IN (TIMESTAMP '{draw(TIMES)}', TIMESTAMP {time}))"
            case 2:
                return f"(moment BETWEEN TIMESTAMP '{draw(TIMES)}' AND TIMESTAMP {time})"
            case 3:
                return self._compared(draw(columns), draw(columns))
        return self._compared(draw(columns), draw(values))

    def cast(self) -> str:
        """Of numbers and literals of other types."""
        draw = self.random.choice
        if draw([True, False]):
            column, value = draw(["ratio", "score"]), draw(FLOATS)
            dtype = draw(["float", "double"])
            return self._compared(column, f"cast({value} AS {dtype})" if "'" in value or draw([True, False]) else value)
        if draw([True, False]):
            return self._compared("amount", draw([*AMOUNTS, *NUMBERS]))
        column = draw(["small", "number", "ratio", "score", "try_cast(text AS int)"])
        if draw([True, False]):
            return f"({column} IN ({draw(NUMBERS)}, {draw(NUMBERS)}))"
        return self._compared(column, draw([*NUMBERS, "small", "number", "amount"]))
