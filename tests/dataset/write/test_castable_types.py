"""Casts of columns that pylance allows: the same types and values here, and its texts where a value does not fit."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.changes.columns.cast_columns import can_cast

if TYPE_CHECKING:
    from pathlib import Path

CLOCK = [datetime.time(1, 2, 3, 456789), None, datetime.time(0), datetime.time(23, 59, 59, 999999)]
CLOCKS = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
CODES = pa.dictionary(pa.int16(), pa.int32())


def vector(item: pa.DataType, size: int = 2) -> pa.DataType:
    return pa.list_(item, size)


def clock(dtype: pa.DataType) -> pa.Array:
    return pa.array(CLOCK, pa.time64("us")).cast(dtype, safe=False)


CASTS: list[tuple[pa.Array, pa.DataType]] = [
    *((clock(one), other) for one in CLOCKS for other in CLOCKS if one != other),
    (pa.array([1, None, -5], pa.duration("s")), pa.duration("ns")),
    (pa.array([1_500_000_001, None, -5], pa.duration("ns")), pa.duration("us")),
    (pa.array([Decimal("1.25"), None, Decimal("-99.99")], pa.decimal128(10, 2)), pa.decimal256(40, 2)),
    (pa.array([Decimal("1.2567"), None], pa.decimal128(20, 4)), pa.decimal256(40, 2)),
    (pa.array([Decimal("1.25"), None], pa.decimal256(40, 2)), pa.decimal128(20, 4)),
    *((pa.array([1, None, 2, 1], one), CODES) for one in (pa.int8(), pa.uint8(), pa.int32(), pa.uint64())),
    *((pa.array([1, None, 2, 1], pa.int32()).dictionary_encode().cast(CODES), one) for one in (pa.int8(), pa.uint64())),
    (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64())), vector(pa.int32())),
    (pa.array([[1, 2], [3, None]], pa.large_list(pa.int32())), vector(pa.uint8())),
    (pa.array([[1.5, 2], None], pa.list_(pa.float32())), vector(pa.float64())),
    (pa.array([[1, 2], None, [3, 4]], vector(pa.int32())), pa.list_(pa.int64())),
    (pa.array([[1, 2], None, [3, 4]], vector(pa.int32())), pa.large_list(pa.int32())),
    (pa.array([[1, 2], None, [3, 4]], vector(pa.int32())), vector(pa.uint8())),
    (pa.array([[1.0, 2.0], None], vector(pa.float64())), pa.list_(pa.float32())),
]
MISFITS: list[tuple[pa.Array, pa.DataType]] = [
    (pa.array([1 << 40], pa.int64()), CODES),
    (pa.array([1, 300, -1], pa.int32()).dictionary_encode().cast(CODES), pa.int8()),
    (pa.array([[1, 2], [3]], pa.list_(pa.int64())), vector(pa.int32())),
    (pa.array([[1, 2], None, []], pa.list_(pa.float32())), vector(pa.float32())),
    (pa.array([[1, 300]], vector(pa.int32())), vector(pa.uint8())),
]
TYPES = [
    *(pa.bool_(), pa.int8(), pa.uint64(), pa.float32(), pa.string(), pa.binary(), pa.date32(), pa.timestamp("s")),
    *(*CLOCKS, pa.duration("s"), pa.duration("ns"), pa.decimal128(10, 2), pa.decimal256(40, 2)),
    *(CODES, pa.dictionary(pa.int8(), pa.string())),
    *(pa.list_(pa.int64()), pa.large_list(pa.int32()), pa.list_(pa.string()), pa.list_(pa.float32())),
    *(vector(pa.float32()), vector(pa.float64()), vector(pa.float32(), 3), vector(pa.int32())),
    *(pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64())])),
]


@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_values_are_those_of_pylance(tmp_path: Path, version: str) -> None:
    for number, (array, to) in enumerate(CASTS):
        found = []
        for library in (lance, lance_io):
            uri = str(tmp_path / f"{number} {library.__name__}")
            rows = pa.table({"x": array, "k": range(len(array))})
            lance.write_dataset(rows, uri, data_storage_version=version, mode="overwrite")
            library.dataset(uri).alter_columns({"path": "x", "data_type": to})
            found.append(lance.dataset(uri).to_table())
            assert lance_io.dataset(uri).to_table().to_pylist() == found[-1].to_pylist()
        assert found[0].equals(found[1]), (array.type, to)


def refused(library: Any, uri: str, array: pa.Array, to: pa.DataType) -> str:
    lance.write_dataset(pa.table({"x": array}), uri)
    with pytest.raises(OSError) as raised:
        library.dataset(uri).alter_columns({"path": "x", "data_type": to})
    text = re.sub(r", /home/.*", "", str(raised.value), flags=re.S)
    return text.removeprefix("LanceError(Arrow): ").removeprefix(f"{uri}: ")


@pytest.mark.parametrize(("array", "to"), MISFITS)
def test_values_that_do_not_fit(tmp_path: Path, array: pa.Array, to: pa.DataType) -> None:
    texts = [refused(library, str(tmp_path / library.__name__), array, to) for library in (lance, lance_io)]
    assert texts[0] == texts[1]


def test_the_same_types_can_be_cast(tmp_path: Path) -> None:
    """Every pair, of columns without rows."""
    uri = str(tmp_path / "t")
    schema = pa.schema([pa.field(f"c{number}", dtype) for number, dtype in enumerate(TYPES)])
    wrong = []
    for number, dtype in enumerate(TYPES):
        for to in TYPES:
            lance.write_dataset(schema.empty_table(), uri, mode="overwrite")
            try:
                lance.dataset(uri).alter_columns({"path": f"c{number}", "data_type": to})
                is_allowed = True
            except OSError as error:
                assert "Cannot cast" in str(error)
                is_allowed = False
            if dtype != to and can_cast(dtype, to) != is_allowed:  # of a struct, pylance refuses its own type
                wrong.append((dtype, to, is_allowed))
    assert wrong == []
