"""Times of a day from texts, `timestamp(6) '...'` and `array[...]`, beside pylance."""

from __future__ import annotations

import datetime
import random
import shutil
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset

if TYPE_CHECKING:
    from pathlib import Path

KINDS = {
    "Time32(Second)": pa.time32("s"),
    "Time32(Millisecond)": pa.time32("ms"),
    "Time64(Microsecond)": pa.time64("us"),
    "Time64(Nanosecond)": pa.time64("ns"),
}
DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
TEXTS = (
    "12:00:00|12:00|7:05|07:05:09.5|07:05:09.123456789|07:05:09.1234567899|12:00 AM|12:30:00.25 pm|1:00 Pm|25530|+5|007"
    "||noon|24:00|12:60|1:2:3|12|12:00:00Z| 12:00|12:00 |1:00pm|13:00 PM|0:30 AM|12:00:00.|12:00:00+01:00|1.5|12:00:61"
    "|2020-01-01 12:00:00|99999999999999999999|12:00:60"
).split("|")
NOON = datetime.time(12)


def rows(kind: pa.DataType) -> pa.Table:
    times = pa.array([datetime.time(1), datetime.time(2), NOON], pa.time64("us")).cast(kind)
    return pa.table({"t": times, "s": ["12:00:00", None, "23:59:59.999999999"]})


def ticks(library: Any, uri: str, name: str, number: int) -> Any:
    """What a text is as a time, in its unit; "refused" for an error."""
    scan = {"columns": {"x": f"arrow_cast(s, '{name}')"}, "filter": f"i = {number}"}
    try:
        found = library.dataset(uri).to_table(**scan)["x"].combine_chunks()
    except Exception as error:
        assert isinstance(error, (OSError, ValueError)), error
        return "refused"
    return found.cast(pa.int32() if found.type.bit_width == 32 else pa.int64())[0].as_py()


def drawn(generator: random.Random) -> str:
    hour = generator.choice([f"{generator.randint(0, 25):02}", str(generator.randint(0, 13))])
    text = f"{hour}:{generator.randint(0, 61):02}"
    if generator.random() < 0.7:
        text += f":{generator.randint(0, 60):02}"
        if generator.random() < 0.5:
            text += "." + str(generator.randint(0, 10 ** generator.choice([1, 3, 6, 9, 10]) - 1))
    return text + (generator.choice([" AM", " PM", " pm", " Am", "am"]) if generator.random() < 0.3 else "")


@pytest.mark.parametrize("name", KINDS)
def test_texts_are_read_as_pylance_reads_them(tmp_path: Path, name: str) -> None:
    """But for what no day has: the second after its end, and negative numbers."""
    generator, day = random.Random(name), DAY[KINDS[name].unit]
    texts = [*TEXTS, *(drawn(generator) for _ in range(12)), "23:59:60", "-1", str(day), str(day - 1)]
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"s": texts, "i": range(len(texts))}), uri)
    for number, text in enumerate(texts):
        expected = ticks(lance, uri, name, number)
        if expected != "refused" and not 0 <= expected < day:
            expected = "refused"
        assert ticks(lance_io, uri, name, number) == expected, text


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
@pytest.mark.parametrize("name", KINDS)
def test_updates(tmp_path: Path, name: str, version: str) -> None:
    found = []
    for library in (lance, lance_io):
        uri = str(tmp_path / library.__name__)
        library.write_dataset(rows(KINDS[name]), uri, data_storage_version=version)
        library.dataset(uri).update({"t": "s"}, where=f"t = arrow_cast('12:00:00', '{name}')")
        library.dataset(uri).update({"t": "'12:00:00'"}, where="not (t <> '01:00')")
        with pytest.raises((OSError, ValueError)):
            library.dataset(uri).update({"t": "'25:00:00'"})
        found.append(lance.dataset(uri).to_table().sort_by("s"))
    assert found[0] == found[1]
    width = pa.int32() if KINDS[name].bit_width == 32 else pa.int64()
    assert found[1]["t"].cast(width).to_pylist() == [
        DAY[KINDS[name].unit] * n // 86_400 - (n == 86_400) for n in (43_200, 86_400, 7_200)
    ]


async def test_both_faces(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance_io.write_dataset(rows(pa.time64("us")), uri)
    table = await AsyncDataset.open(uri)
    await table.update({"t": "'12:00:00'"}, where="s is null")
    assert await table.count_rows("not (t <> '12:00:00')") == 2
    computed = await table.to_table(columns={"x": "arrow_cast(s, 'Time32(Second)')"})
    assert computed["x"].to_pylist() == [NOON, datetime.time(23, 59, 59), None]
    await table.add_columns({"n": "arrow_cast(s, 'Time64(Nanosecond)')"})
    assert lance.dataset(uri).to_table()["n"].cast(pa.int64()).to_pylist() == [DAY["ns"] // 2, DAY["ns"] - 1, None]


TABLE = pa.table(
    {
        "t": pa.array([NOON, None], pa.time64("us")),
        "s": ["12:00:00", "9:00"],
        "st": pa.array([{"t": NOON}, None], pa.struct([("t", pa.time32("s"))])),
        "ts": pa.array([datetime.datetime(2020, 1, 1), None], pa.timestamp("us")),
        "d": pa.array([datetime.date(2020, 1, 2), None]),
        "z": ["2020-01-01T23:00:00-05:00", None],
        "l": [["x", "w"], None],
        "n": [[1, 2], []],
        "array": [1, 2],
    }
)
FILTERS = """
    not (t = '12:00:00')
    not (t <> '12:00:00')
    t = s
    t < s
    st.t in ('12:00:00')
    not (t in ('12:00', '13:00'))
    not (t between '11:00:00' and '13:00:00')
    t = '12:00:00'
    t in ('12:00:00')
    not (t = 'noon')
    ts = timestamp(6) '2020-01-01 00:00:00'
    ts = TIMESTAMP(0) '2020-01-01'
    ts in (timestamp(9)'2020-01-01', timestamp '2020-01-02')
    ts between datetime(3) '2019-01-01' and datetime(3) '2021-01-01'
    ts = timestamp(5) '2020-01-01'
    ts = timestamp(6)
    ts = timestamp(6, 1) '2020-01-01'
    ts = timestamp(6) with time zone '2020-01-01'
    d = arrow_cast(z, 'Date32')
    l = array['x', 'w']
    l = ARRAY ['x', 'w']
    array_contains(ARRAY['x', null], 'x')
    array_has_any(l, Array['x', 'q'])
    array_has_any(l, ARRAY[])
    ARRAY['x', 'w'][1] = 'x'
    array_length(ARRAY[ARRAY[1], ARRAY[2]]) = 2
    array_has(ARRAY[array, 2], 1)
    array = 1 and n = array[1, 2]
    `array` = 2
    array['x'
    array(1, 2) = n
""".strip().splitlines()


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("literals") / "t"
    lance.write_dataset(TABLE, place)
    return str(place)


@pytest.mark.parametrize("text", [one.strip() for one in FILTERS])
def test_filters_are_those_of_pylance(uri: str, text: str) -> None:
    try:
        expected = lance.dataset(uri).to_table(filter=text, with_row_id=True)["_rowid"].to_pylist()
    except (OSError, ValueError):
        with pytest.raises((OSError, ValueError)):
            lance_io.dataset(uri).to_table(filter=text)
    else:
        assert lance_io.dataset(uri).to_table(filter=text, with_row_id=True)["_rowid"].to_pylist() == expected


def test_changes_by_such_texts(uri: str, tmp_path: Path) -> None:
    shutil.copytree(uri, tmp_path / "t")
    table = lance_io.dataset(tmp_path / "t")
    table.update({"ts": "timestamp(3) '2021-02-03 04:05:06'", "l": "array['q', null]"}, where="array = 2")
    table.delete("ts = timestamp(6) '2020-01-01'")
    left = lance.dataset(tmp_path / "t").to_table(columns=["ts", "l"]).to_pylist()
    assert left == [{"ts": datetime.datetime(2021, 2, 3, 4, 5, 6), "l": ["q", None]}]
