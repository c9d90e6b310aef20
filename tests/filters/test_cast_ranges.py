"""Casts of values that another type does not have: refused as in pylance, null by `try_cast`, never another value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_io
from lance_io.filters.expressions.casts import sql_cast

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pa.table(
    {
        "k": [0, 1, 2, 3],
        "x": pa.array([1, 200, -5, None], pa.int64()),
        "big": pa.array([1, 1 << 40, -(1 << 40), None], pa.int64()),
        "f": pa.array([1.5, 300.7, float("nan"), None]),
        "u": pa.array([1, 255, 128, None], pa.uint8()),
        "t": ["1", "300", "x", None],
        "s": pa.array([0, 10**15, -(10**15), None], pa.timestamp("s")),
        "z": pa.array([0, 10**15, -(10**15), None], pa.timestamp("s", "UTC")),
        "d": pa.array([0, 2 * 10**9, -2 * 10**9, None], pa.int32()).cast(pa.date32()),
        "span": pa.array([0, 10**15, -(10**15), None], pa.duration("s")),
    }
)
REFUSED = [
    "cast(x as tinyint)",
    "cast(big as int)",
    "cast(x as tinyint unsigned)",
    "cast(f as tinyint)",
    "cast(f as bigint)",
    "cast(u as tinyint)",
    "cast(t as tinyint)",
    "cast(x as decimal(4, 2))",
    "arrow_cast(x, 'UInt64')",
    "cast(s as timestamp)",
    "cast(s as timestamp(9))",
    "cast(s as date)",
    "cast(z as date)",
    "cast(d as timestamp)",
    "cast(d as timestamp(9))",
    "arrow_cast(s, 'Time64(Nanosecond)')",
    "arrow_cast(z, 'Timestamp(Nanosecond, None)')",
    "arrow_cast(span, 'Duration(Nanosecond)')",
]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("casts") / "t")
    lance.write_dataset(ROWS, path)
    return path


@pytest.mark.parametrize("text", REFUSED)
def test_what_does_not_fit_is_refused(uri: str, text: str) -> None:
    """In filters and columns; rows that fit are cast."""
    for one in (lance, lance_io):
        table = one.dataset(uri)
        with pytest.raises((ValueError, OSError)):
            table.to_table(filter=f"({text}) is not null")
        with pytest.raises((ValueError, OSError)):
            table.to_table(columns={"r": text})
    first = [one.dataset(uri).to_table(columns={"r": text}, limit=1)["r"].to_pylist() for one in (lance_io, lance)]
    assert first[0] == first[1]


def test_try_cast_makes_it_null(uri: str) -> None:
    table = lance_io.dataset(uri)
    for text, kept in {
        "try_cast(x as tinyint)": [0, 2],
        "try_cast(s as timestamp(9))": [0],
        "try_cast(s as date)": [0],
        "try_cast(d as timestamp(9))": [0],
    }.items():
        assert table.to_table(filter=f"{text} is not null", columns=["k"])["k"].to_pylist() == kept, text


UPDATES = [("u", "x"), ("u", "f"), ("u", "t"), ("n", "s"), ("n", "d"), ("day", "s"), ("nanos", "span")]


@pytest.mark.parametrize(("column", "text"), UPDATES)
def test_updates_refuse_it_and_leave_the_table(tmp_path: Path, column: str, text: str) -> None:
    kinds: dict[str, Any] = {"n": pa.timestamp("ns"), "day": pa.date32(), "nanos": pa.duration("ns")}
    rows = ROWS
    for name, dtype in kinds.items():
        rows = rows.append_column(name, pa.nulls(4, dtype))
    for one in (lance_io, lance):
        uri = str(tmp_path / one.__name__)
        table = lance.write_dataset(rows, uri)
        with pytest.raises((ValueError, OSError)):
            one.dataset(uri).update({column: text})
        assert (table.latest_version, lance.dataset(uri).to_table().drop(["f"])) == (1, rows.drop(["f"]))
    uri = str(tmp_path / "lance_io")
    lance_io.dataset(uri).update({column: text}, where="k = 0")
    lance.dataset(str(tmp_path / "lance")).update({column: text}, where="k = 0")
    found = [lance.dataset(str(tmp_path / name)).to_table().sort_by("k")[column] for name in ("lance_io", "lance")]
    assert found[0] == found[1]


MOMENTS = [
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    pa.date32(),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
]


def scaled(value: int, source: pa.DataType, to: pa.DataType) -> int:
    """A plain count of units, rounded down for days; towards zero for other units, as Arrow has it."""
    units = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
    in_ns = value * (86_400 * 10**9 if pa.types.is_date32(source) else units[source.unit])
    if pa.types.is_date32(to):
        return in_ns // (86_400 * 10**9)
    return in_ns // units[to.unit] if in_ns >= 0 else -(-in_ns // units[to.unit])


@pytest.mark.parametrize("source", MOMENTS, ids=str)
@pytest.mark.parametrize("to", MOMENTS, ids=str)
def test_moments_are_those_of_plain_integers_or_refused(source: pa.DataType, to: pa.DataType) -> None:
    """At the borders of either type, and at random."""
    if pa.types.is_duration(source) != pa.types.is_duration(to):
        return
    rng = np.random.default_rng(1)
    bits = {t: 32 if pa.types.is_date32(t) else 64 for t in (source, to)}
    end = 1 << bits[source] - 1
    borders = [scaled(one, to, source) for one in (-(1 << bits[to] - 1), (1 << bits[to] - 1) - 1)]
    near = [border + step for border in borders for step in (-2, -1, 0, 1, 2)]
    drawn = [
        int(one) >> int(shift) for one, shift in zip(rng.integers(-end, end, 40), rng.integers(0, 40, 40), strict=True)
    ]
    numbers = pa.int32() if bits[source] == 32 else pa.int64()
    for value in [*near, *drawn, -end, end - 1, 0]:
        if not -end <= value < end:
            continue
        expected = scaled(value, source, to)
        array = pa.array([value, None], numbers).cast(source)
        if -(1 << bits[to] - 1) <= expected < 1 << bits[to] - 1:
            found = pc.cast(sql_cast(array, to, lenient=False), pa.int32() if bits[to] == 32 else pa.int64())
            assert found.to_pylist() == [expected, None], value
        else:
            with pytest.raises(pa.ArrowInvalid):
                sql_cast(array, to, lenient=False)
            assert sql_cast(array, to, lenient=True).null_count == 2
