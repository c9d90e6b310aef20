"""Expressions over columns of every type give the values that pylance computes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_io

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TICKS: Final = [0, 1, -1, 999, 86_400, 90_061, -90_061, 1_234_567_890_123, None]
MOMENTS: Final = [
    *(dt.datetime(2024, 1, 1), dt.datetime(2024, 7, 1, 12, 30, 15), None, dt.datetime(1969, 12, 31, 23)),
    *(dt.datetime(2024, 3, 10, 7, 30), dt.datetime(2024, 11, 3, 1, 30), dt.datetime(2024, 7, 1, 16, 30, 15)),
    *(dt.datetime(2024, 1, 1, 2), dt.datetime(2023, 12, 31, 19)),
]
ZONES: Final = {"east": "+02:00", "west": "-05:30", "york": "America/New_York", "utc": "UTC"}
PAIRS: Final = [[1, 2], None, [3, 4], [None, 1], [5, 6], [1, 1], None, [2, 2], [0, 0]]
HALVES: Final = [0.1, 1.0, -0.0, 65504.0, 2.5, 100.0, float("inf"), None, 0.5]


def _columns() -> dict[str, pa.Array]:
    columns: dict[str, Any] = {"row": pa.array(range(9)), "naive": pa.array(MOMENTS, pa.timestamp("us"))}
    for unit in ("s", "ms", "us", "ns"):
        columns[f"span_{unit}"] = pa.array(TICKS, pa.duration(unit))
        columns[f"time_{unit}"] = pa.array(TICKS if unit != "s" else [one and one % 10**9 for one in TICKS])
        columns[f"time_{unit}"] = columns[f"time_{unit}"].cast(pa.timestamp(unit))
    for name, zone in ZONES.items():
        columns[name] = columns["naive"].cast(pa.timestamp("us", zone))
    columns |= {
        "text": pc.strftime(columns["naive"].cast(pa.timestamp("s")), "%Y-%m-%dT%H:%M:%S"),
        "clock_s": pa.array([0, 1, 86_399, 3_600, None, 1, 2, 3, 4], pa.time32("s")),
        "clock_ns": pa.array([0, 1, 86_399 * 10**9, 3_600 * 10**9 + 500, None, 10**6, 2, 3, 4], pa.time64("ns")),
        "day_ms": pa.array([0, 1, -1, 20_000, None, 1, 2, 3, 4], pa.date32()).cast(pa.date64()),
        "i": pa.array(TICKS),
        "f": pa.array([0.0, 1.5, -2.5, 1e9, None, 1e-5, 3.999, -0.4, 5.0]),
        "money": pa.array([Decimal("1.25"), Decimal("-1.50"), None, *[Decimal("7.99")] * 6], pa.decimal128(10, 2)),
        "half": pa.array(HALVES, pa.float16()),
        "few": pa.array(HALVES, pa.float16()).dictionary_encode(),
        "large": pa.array(["a", "b", None, "", "é", "zz", "1", "2", "3"], pa.large_string()),
        "nothing": pa.nulls(9),
        "pairs": pa.array(PAIRS, pa.list_(pa.int32(), 2)),
        "points": pa.array(PAIRS, pa.list_(pa.float32(), 2)),
    }
    return columns


UNITS: Final = ("s", "ms", "us", "ns")
PARTS: Final = ("hour", "minute", "second", "millisecond", "microsecond", "nanosecond", "epoch")
LISTS: Final = """
    array_has({0}, 1) ; array_has_any({0}, [1, 2]) ; array_has_all({0}, [1]) ; array_length({0}) ; cardinality({0}) ;
    array_position({0}, 2) ; array_positions({0}, 1) ; array_remove_all({0}, 1) ; array_replace({0}, 1, 5) ;
    array_concat({0}, {0}) ; array_distinct({0}) ; array_sort({0}) ; array_min({0}) ; array_reverse({0}) ;
    array_pop_back({0}) ; array_slice({0}, 1, 1) ; array_resize({0}, 3) ; array_union({0}, [1]) ; flatten({0}) ;
    array_to_string({0}, ',') ; {0}[1] ; {0}[-1] ; array_distance({0}, [1, 2]) ; array_distance({0}, {0}) ;
    cosine_distance({0}, [1, 2]) ; inner_product({0}, [1, 2]) ; array_normalize({0})
"""
EXPRESSIONS: Final = {
    "spans": [f"cast(span_{unit} as {to})" for unit in UNITS for to in ("string", "bigint", "double")],
    "times": [f"date_part('{part}', time_{unit})" for unit in UNITS for part in PARTS]
    + [f"to_char(time_{unit}, '%d %H:%M:%S|%.f|%3f|%.6f|%f')" for unit in UNITS]
    + [f"cast(time_{unit} as {to})" for unit in UNITS for to in ("string", "double", "decimal(30,2)")],
    "clocks": [f"date_part('{part}', {name})" for name in ("clock_s", "clock_ns") for part in PARTS]
    + [f"{call}" for name in ("clock_s", "clock_ns") for call in (f"cast({name} as string)", f"to_char({name}, '%H')")],
    "zones": [f"cast({zone} as {to})" for zone in ZONES for to in ("string", "timestamp", "date", "bigint")]
    + [f"{call}({zone})" for zone in ZONES for call in ("to_timestamp", "to_timestamp_millis", "to_local_time")]
    + [f"coalesce({zone}, naive)" for zone in ("east", "west", "utc")]
    + [f"to_char({zone}, '%H:%M:%S')" for zone in ZONES],
    "numbers": [f"cast({name} as timestamp(0))" for name in ("i", "f", "money")]
    + ["cast(i as binary)", "cast(day_ms as string)"],
    "halves": [f"few {test}" for test in ("= 1", "> 0.1", "in (1, 2.5)", "is distinct from 1")]
    + [f"cast({name} as {to})" for name in ("half", "few") for to in ("boolean", "double")],
    "large texts": ["large || 'a'", "concat(large, large)"],
    "nulls": ["nothing is distinct from nothing", "nothing is not distinct from null"],
    "lists": [one.strip().format(name) for name in ("pairs", "points") for one in LISTS.split(";")],
}
LITERALS: Final = """
    timestamp '2024-01-01 02:00:00' ; timestamp '2024-07-01 12:30:15' ; timestamp '2024-07-01 12:30:15Z' ;
    date '2024-01-01' ; naive ; east ; utc ; cast(naive as timestamp(0)) ; to_timestamp('2024-01-01T02:00:00')
"""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[lance.LanceDataset, lance_io.LanceDataset]:
    path = tmp_path_factory.mktemp("types") / "t.lance"
    return lance.write_dataset(pa.table(_columns()), path), lance_io.dataset(path)


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> tuple[lance.LanceDataset, lance_io.LanceDataset]:
    """Without the types beside which pylance takes no expressions of pyarrow."""
    path = tmp_path_factory.mktemp("moments") / "t.lance"
    return lance.write_dataset(pa.table(_columns()).select(["row", "naive", "text", *ZONES]), path), lance_io.dataset(
        path
    )


def _plain(values: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    return [repr(one) if isinstance(one, float) else one for one in values.to_pylist()]


@pytest.mark.parametrize("group", EXPRESSIONS)
def test_columns_computed_from_every_type(group: str, both: tuple[Any, Any]) -> None:
    for text in EXPRESSIONS[group]:
        theirs, ours = (one.to_table({"value": text, "row": "row"})["value"] for one in both)
        assert (text, _plain(ours)) == (text, _plain(theirs))
        if pa.types.is_temporal(theirs.type):
            assert (text, ours.type) == (text, theirs.type)


def _rows(table: Any, condition: Any) -> list[int] | str:
    try:
        found: list[int] = table.to_table(["row"], filter=condition)["row"].to_pylist()
    except (ValueError, TypeError):
        return "refused"
    return found


@pytest.mark.parametrize("zone", ZONES)
def test_times_of_a_zone_beside_others(zone: str, moments: tuple[Any, Any]) -> None:
    """A time without a zone is one on the clocks of the zone beside it, and refused if they show it twice or never."""
    texts = [one.strip() for one in LITERALS.split(";")]
    conditions: list[Any] = [f"{zone} {op} {one}" for op in ("=", "<", ">=") for one in texts]
    conditions += [f"not ({one} >= {zone})" for one in (*texts, "'2024-07-01T12:30:15'", "text")]
    conditions += [
        f"{zone} in (timestamp '2024-01-01 02:00:00', timestamp '2024-07-01 12:30:15')",
        f"{zone} between timestamp '2024-01-01 02:00:00' and timestamp '2024-07-01 12:30:15'",
        f"{zone} = cast({zone} as string)",
        f"nullif({zone}, naive) is null",
    ]
    field, literals = pc.field(zone), [*MOMENTS[:2], MOMENTS[7], MOMENTS[1].replace(tzinfo=dt.UTC), dt.date(2024, 7, 1)]
    tests: list[Callable[[Any], pc.Expression]] = [
        lambda literal: field == literal,
        lambda literal: pc.scalar(literal) >= field,
        lambda literal: field.isin([literal]),
    ]
    conditions += [test(literal) for test in tests for literal in literals]
    conditions += [field == pc.field("naive"), pc.coalesce(field, pc.field("naive")) <= pc.field("naive")]
    found = {str(one): [_rows(table, one) for table in moments] for one in conditions}
    assert {text: rows for text, rows in found.items() if rows[0] not in ("refused", rows[1])} == {}


NESTED: Final[dict[str, tuple[list[Any], pa.DataType]]] = {
    "maps": ([[("a", 1)], None, [], [("b", 2)], [("a", None)], [("a", 1), ("b", 2)]], pa.map_(pa.string(), pa.int64())),
    "clocks": ([[1], [2], None, [], [None], [1, 2]], pa.list_(pa.time64("ns"))),
    "moments": ([[2**41], [2**41 + 1], None, [], [None], [0]], pa.list_(pa.timestamp("s"))),
    "days": ([{"d": 2**25}, {"d": 1}, None, {"d": None}, {"d": -(2**25)}, {"d": 0}], pa.struct([("d", pa.date32())])),
    "spans": ([[2**50] * 2, [1, 2], None, [2, 1], [None, 1], [2**50, 3]], pa.list_(pa.duration("s"), 2)),
}


@pytest.mark.parametrize("kind", NESTED)
def test_nested_values_compare_as_in_pylance(kind: str, tmp_path: Path) -> None:
    values, dtype = NESTED[kind]
    pairs = [(a, b) for a in values for b in values]
    left, right = (pa.array([pair[side] for pair in pairs], dtype) for side in (0, 1))
    lance.write_dataset(pa.table({"row": range(36), "m": left, "n": right}), tmp_path, max_rows_per_file=10)
    theirs, ours = lance.dataset(tmp_path), lance_io.dataset(tmp_path)
    for test in ("=", "!=", "<", "<=", ">", ">=", "is distinct from", "is not distinct from"):
        assert (test, _rows(ours, f"m {test} n")) == (test, _rows(theirs, f"m {test} n"))
    assert _rows(ours, "m in (n)") == _rows(theirs, "m in (n)") == _rows(ours, "m = n") != "refused"
