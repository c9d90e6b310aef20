"""Casts of columns that are refused: the texts are pylance's, and no value is wrapped around."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset

if TYPE_CHECKING:
    from pathlib import Path

INTEGERS = [pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLAT = [pa.float16(), pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary(3)]
FLAT += [pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.null()]
FLAT += [pa.timestamp("s"), pa.timestamp("us", "Europe/Berlin"), pa.duration("ms"), pa.month_day_nano_interval()]
FLAT += [pa.decimal128(5, -2), pa.decimal256(50, 3), pa.decimal32(3, 1), pa.uuid(), pa.dictionary(pa.int8(), pa.utf8())]
ITEM = pa.field("item", pa.int8(), nullable=False, metadata={"k": 'v"'})
NESTED = [pa.list_(pa.string()), pa.list_(pa.field("element", pa.int8())), pa.large_list(ITEM), pa.list_(pa.int8(), 3)]
NESTED += [pa.list_view(pa.int8()), pa.struct([]), pa.struct([ITEM, pa.field('b"', pa.list_(pa.time32("s")))])]
NESTED += [pa.map_(pa.string(), pa.list_(pa.int8())), pa.map_(pa.int8(), pa.float32(), keys_sorted=True)]


def refused(library: Any, uri: str, rows: pa.Table, to: pa.DataType) -> str:
    dataset = library.write_dataset(rows, uri, mode="overwrite")
    version = dataset.version
    with pytest.raises(OSError) as raised:
        dataset.alter_columns({"path": "x", "data_type": to})
    assert lance.dataset(uri).version == version
    text = re.sub(r", /home/.*", "", str(raised.value), flags=re.S)
    return text.removeprefix("LanceError(Arrow): ").removeprefix(f"{uri}: ")


def test_types_are_named_as_by_pylance(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    rows = pa.table({"x": [True, None]})
    for to in (*INTEGERS, *FLAT, *NESTED):
        texts = [refused(library, uri, rows, to) for library in (lance_io, lance)]
        assert texts[0] == texts[1] and texts[0].startswith(
            'Invalid user input: Cannot cast column "x" from Boolean to '
        )


@pytest.mark.parametrize("version", ["2.0", "2.2"])
async def test_integers_that_do_not_fit_are_named_as_by_pylance(tmp_path: Path, version: str) -> None:
    uri = str(tmp_path / "t")
    for values, dtype in (
        ([None, 1, 1024, -7, 5000], pa.int64()),
        ([-1, 1 << 40], pa.int64()),
        ([1, (1 << 64) - 1, 1 << 63], pa.uint64()),
        ([[1], None, [2, 1024]], pa.list_(pa.int64())),
    ):
        rows = pa.table({"x": pa.array(values, dtype)})
        is_list = pa.types.is_list(dtype)
        for to in INTEGERS:
            least, most = (
                (0, (1 << to.bit_width) - 1)
                if str(to)[0] == "u"
                else (-(1 << to.bit_width - 1), (1 << to.bit_width - 1) - 1)
            )
            flat = [
                one for value in values if value is not None for one in (value if isinstance(value, list) else [value])
            ]
            if all(least <= one <= most for one in flat):
                continue
            wanted = pa.list_(to) if is_list else to
            texts = [refused(library, uri, rows, wanted) for library in (lance_io, lance)]
            assert texts[0] == texts[1] and texts[0].startswith("Cast error: Can't cast value ")
    table = await AsyncDataset.open(uri)
    with pytest.raises(OSError, match=r"Can't cast value 1024 to type Int8"):
        await table.alter_columns({"path": "x", "data_type": pa.list_(pa.int8())})


BIG = 1 << 55
MOMENTS = [
    (pa.array([None, 10**15, 1], pa.timestamp("s")), pa.timestamp("ns")),
    (pa.array([-(10**15), None], pa.timestamp("s", "UTC")), pa.timestamp("us")),
    (pa.array([1 << 30], pa.date32()), pa.timestamp("ns")),
    (pa.array([BIG], pa.timestamp("s")), pa.date32()),
    (pa.array([86_400_000 << 33], pa.date64()), pa.date32()),
    (pa.array([BIG], pa.timestamp("s")), pa.date64()),
    (pa.array([BIG], pa.timestamp("s")), pa.time64("ns")),
]


@pytest.mark.parametrize(("values", "to"), MOMENTS, ids=[f"{one.type} to {to}" for one, to in MOMENTS])
def test_moments_are_not_wrapped_around(tmp_path: Path, values: pa.Array, to: pa.DataType) -> None:
    """Where pylance converts them nevertheless, its values are wrong."""
    uri = str(tmp_path / "t")
    assert refused(lance_io, uri, pa.table({"x": values}), to).startswith("Cast error: Overflow happened on: ")


@pytest.mark.parametrize(
    ("least", "most", "dtype", "to"),
    [
        (-(1 << 63) // 10**9 + 1, (1 << 63) // 10**9, pa.timestamp("s"), pa.timestamp("ns")),
        (-106_751, 106_751, pa.date32(), pa.timestamp("ns")),
        (-(1 << 31), (1 << 31) - 1, pa.date32(), pa.date64()),
    ],
)
def test_the_first_and_the_last_moment_that_fit(tmp_path: Path, least: int, most: int, dtype: Any, to: Any) -> None:
    found = []
    for library in (lance_io, lance):
        rows = pa.table({"x": pa.array([least, None, most, 0], dtype)})
        table = library.write_dataset(rows, str(tmp_path / library.__name__))
        table.alter_columns({"path": "x", "data_type": to})
        found.append(table.to_table())
    assert found[0] == found[1]
