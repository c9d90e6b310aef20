"""Long text filters: lists of literals that the parser does not see are those that it would have seen."""

from __future__ import annotations

import datetime
import random
from dataclasses import fields, is_dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset
from lance_io.errors import BindError
from lance_io.filters.compiled import compile_filter
from lance_io.filters.expressions.expression_tree import In, InList, InLiterals
from lance_io.filters.syntax import literal_lists
from lance_io.filters.syntax.sql_dialect import check_all_used
from lance_io.filters.syntax.sql_text import _parse

if TYPE_CHECKING:
    from pathlib import Path

LITERALS = [
    *("1", "-1", "007", "0", "9223372036854775807", "-9223372036854775808", "9223372036854775808"),
    *("18446744073709551616", "99999999999999999999", "999999999999999999999", "1.5", "-0.0", "1e3", "1E-2", "2.5e+1"),
    *(
        "1.",
        ".5",
        "3L",
        "- 4",
        "+1",
        "'a'",
        "''",
        "'it''s'",
        "'in (1, 2'",
        "'--'",
        "'/*'",
        '"q"',
        '"say ""x"""',
        "'é\n'",
    ),
    *("X'7831'", "x''", "x'0'", "N'a'", "null", "NULL", "nullx", "true", "date '2024-01-02'", "DATE'2024-01-02'"),
    *(
        "timestamp '2024-01-02 03:04:05'",
        "timestamp(3) '2024-01-02'",
        "timestamp(5) '2024-01-02'",
        "decimal(4,2) '1.50'",
    ),
    *("decimal(99,2) '1'", "time '1:00'", "b", "b + 1", "(1)", "'a' 'b'", "1 2", "", "[1]", "--5", "1--2\n"),
]
SIMPLE = ["1", "-1", "007", "0", "9223372036854775808", "'a'", "'it''s'", '"q"', "null", "1.5", "date '2024-01-02'"]
BLANKS = [
    "",
    "",
    "",
    " ",
    "\n",
    "\t ",
    "\r\n",
    "-- c ' in (1)\n",
    "/* , */",
    "/**/",
    "/* '; */",
    "/* /* */ */",
    "\u00a0",
]
BEFORE = [
    "a",
    "`in`",
    "`x``in (1)`",
    "lower(s)",
    "l[1]",
    "'s'",
    "n.in",
    "not a",
    "1 = a and b",
    '"q"',
    "x",
    "ain",
    "-b",
]
BETWEEN = [" in ", " IN", "\nin\n", " not in ", " in/**/", " = ", "in ", " in --\n", ".in "]
BEHIND = [
    "",
    "",
    " and b = 1",
    " or s in ('y')",
    ";",
    "; x in (1)",
    " limit 1",
    " order",
    " -- in (1",
    " /*",
    " '",
    "\n`",
    "{#",
]


def plain(expr: Any) -> Any:
    """A tree with all lists literal by literal, each in the same order."""
    if isinstance(expr, InLiterals):
        expr = expr.as_list()
    if isinstance(expr, tuple):
        return tuple(map(plain, expr))
    if not is_dataclass(expr) or isinstance(expr, type):
        return expr
    changed = {field.name: plain(getattr(expr, field.name)) for field in fields(expr)}
    if isinstance(expr, InList):
        changed["items"] = tuple(sorted(set(map(repr, changed["items"]))))
    return replace(expr, **changed)


def drawn(generator: random.Random) -> str:
    pick = generator.choice
    parts = []
    for _ in range(generator.choice([1, 1, 2, 3])):
        known = generator.random() < 0.6
        literals = SIMPLE if known else LITERALS
        blanks = BLANKS[:10] if known else BLANKS
        items = [f"{pick(blanks)}{pick(literals)}{pick(blanks)}" for _ in range(generator.randint(1, 4))]
        parts.append(f"{pick(BEFORE)}{pick(BETWEEN[:4] if known else BETWEEN)}({','.join(items)})")
    return pick([" and ", " or ", "\nOR "]).join(parts) + pick(BEHIND)


def outcome(text: str) -> Any:
    """The tree of a text, or its error with the place in it; and whether something behind it is refused."""
    try:
        check_all_used(text)
        found: list[Any] = ["used"]
    except BindError as error:
        found = [error.message]
    try:
        return [*found, repr(plain(_parse(text)))]
    except BindError as error:
        return [*found, error.message]


def test_what_is_cut_out_is_what_the_parser_would_read(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = random.Random(42)
    texts = [drawn(generator) for _ in range(600)]
    expected = [outcome(text) for text in texts]
    monkeypatch.setattr(literal_lists, "CUT_CHARS_MIN", 0)
    num_cut = 0
    for text, known in zip(texts, expected, strict=True):
        num_cut += bool(literal_lists.cut_lists(text)[1])
        assert outcome(text) == known, text
    assert num_cut > len(texts) // 3, "hardly anything was cut"


KEYS = [f"key '{number}" for number in range(1000)]
TABLE = pa.table(
    {
        "i": pa.array([*range(0, 5000, 500), None], pa.int32()),
        "u": pa.array([0, 1, 2, 3, 4, 5, 6, 7, 8, (1 << 64) - 1, None], pa.uint64()),
        "f": pa.array([0.0, -0.0, 1.5, float("nan"), 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, None], pa.float32()),
        "s": [*KEYS[::100], None],
        "b": pa.array([bytes([number]) * 2 for number in range(10)] + [None], pa.binary()),
        "d": pa.array([datetime.date(2024, 1, 1 + day) for day in range(10)] + [None]),
        "ts": pa.array([datetime.datetime(2024, 1, 1, hour) for hour in range(10)] + [None], pa.timestamp("us")),
        "c": pa.array([Decimal(number) / 4 for number in range(10)] + [None], pa.decimal128(6, 2)),
        "n": pa.array([{"x": number} for number in range(10)] + [None], pa.struct([("x", pa.int64())])),
        "t": pa.array([str(number) for number in range(10)] + [None]).dictionary_encode(),
        "l": [[number] for number in range(10)] + [None],
    }
)
WHOLE = ", ".join(str(number) for number in range(0, 6000, 10))
TEXTS = ",".join("'" + key.replace("'", "''") + "'" for key in KEYS[::2])
DAYS = ", ".join(f"date '2024-01-{1 + number % 9:02}'" for number in range(600))
FILTERS = {
    "integers": f"i in ({WHOLE})",
    "with null": f"not (i in ({WHOLE}, null))",
    "too large for the column": f"i in ({WHOLE}, 3000000000)",
    "too large, inside": f"not (i in ({WHOLE}, 3000000000))",
    "unsigned": f"u in ({WHOLE}, 18446744073709551615)",
    "floats": f"f in ({WHOLE}, 1.5, 0)",
    "floats in integers": f"i in ({WHOLE}, 1.5)",
    "texts": f"s in ({TEXTS})",
    "texts, not": f"s not in ({TEXTS})",
    "texts in integers": f"i in ({TEXTS})",
    "of a dictionary": "t in (" + ", ".join(f"'{number}'" for number in range(1, 400, 2)) + ")",
    "of a function": f"lower(s) in ({TEXTS})",
    "of a member": f"n.x in ({WHOLE})",
    "of an item": f"l[1] in ({WHOLE})",
    "of a cast": f"cast(i as bigint) in ({WHOLE})",
    "of a list": f"l in ({WHOLE})",
    "bytes": "b in (" + ", ".join(f"X'{number:02x}{number:02x}'" for number in range(1, 200, 2)) + ")",
    "days": f"d in ({DAYS})",
    "days, and one that is none": f"d in ({DAYS}, date '2024-13-01')",
    "moments": "ts in (" + ", ".join(f"timestamp '2024-01-01 {n % 24:02}:00:00'" for n in range(1, 300, 2)) + ")",
    "days among moments": f"ts in ({DAYS})",
    "decimals": "c in (" + ", ".join(f"decimal(6,2) '{number / 4}'" for number in range(1, 300, 2)) + ")",
    "integers in decimals": f"c in ({WHOLE})",
    "two lists": f"i in ({WHOLE}) and s in ({TEXTS}) or u in ({WHOLE}) /* ' */ and f > 1",
    "null alone": "i in (" + ", ".join(["null"] * 100) + ")",
    "unknown column": f"zz in ({WHOLE})",
    "alternatives": " or ".join(f"i = {number}" for number in range(0, 4000, 7)),
    "alternatives of floats": " or ".join(f"{number}.5 = f" for number in range(300)) + " or f = 0.0",
    "alternatives of two": " or ".join(f"i = {number} or s = 'key ''{number}'" for number in range(0, 3000, 100)),
    "mixed alternatives": " or ".join(
        f"(i = {number} and u > 2) or i = {number + 500}" for number in range(0, 900, 50)
    ),
}


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("long") / "t"
    lance.write_dataset(TABLE, place)
    return str(place)


def rows(library: Any, uri: str, text: str) -> Any:
    try:
        return library.dataset(uri).to_table(columns=["i"], filter=text, with_row_id=True)["_rowid"].to_pylist()
    except (OSError, ValueError):
        return "refused"


@pytest.mark.parametrize("name", FILTERS)
def test_long_filters_are_those_of_pylance(uri: str, name: str) -> None:
    assert rows(lance_io, uri, FILTERS[name]) == rows(lance, uri, FILTERS[name])


@pytest.mark.parametrize("name", FILTERS)
def test_cut_or_not_is_the_same(uri: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rows(lance_io, uri, FILTERS[name])
    monkeypatch.setattr(literal_lists, "CUT_CHARS_MIN", 1 << 30)
    assert rows(lance_io, uri, FILTERS[name] + " ") == found


def test_many_alternatives_are_one_list() -> None:
    schema = pa.schema([("i", pa.int64())])
    assert isinstance(compile_filter(FILTERS["alternatives"], schema).expression, In)


async def test_changes_by_sixty_thousand_keys(tmp_path: Path) -> None:
    """More than a mebibyte of text, also behind which something would be ignored."""
    uri, number = str(tmp_path / "t"), 60_000
    keys = [f"user-{key:012}" for key in range(number + 10)]
    lance_io.write_dataset(pa.table({"s": keys, "i": range(len(keys))}), uri)
    listed = ", ".join(f"'{key}'" for key in keys[5 : number + 5])
    assert len(listed) > 1 << 20
    table = await AsyncDataset.open(uri)
    with pytest.raises(BindError, match="limit"):
        await table.delete(f"s in ({listed}) limit 5")
    await table.update({"i": "-1"}, where=f"s not in ({listed})")
    await table.delete(f"s in ({listed})")
    left = lance.dataset(uri).to_table()
    assert sorted(left["s"].to_pylist()) == [*keys[:5], *keys[-5:]]
    assert set(left["i"].to_pylist()) == {-1}


def test_brackets_stay_bounded_beside_lists(uri: str) -> None:
    table = lance_io.dataset(uri)
    assert table.count_rows("(" * 47 + f"i in ({WHOLE})" + ")" * 47) == 10
    with pytest.raises(BindError, match="nested 49 levels deep"):
        table.count_rows("(" * 48 + f"i in ({WHOLE})" + ")" * 48)
    with pytest.raises(BindError, match=f"line 2, column {len(WHOLE) + 13}"):
        table.count_rows(f"u > 1 and\ni in ({WHOLE}) and )")
