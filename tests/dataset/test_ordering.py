"""`order_by` puts the values of every type in the order that pylance puts them in."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

import lance
import lance.arrow
import pyarrow as pa
import pytest
from lance.dataset import ColumnOrdering

import lance_io

if TYPE_CHECKING:
    from pathlib import Path

NAN: Final = float("nan")
FLOATS: Final = [1.0, None, NAN, -0.0, 0.0, -NAN, float("inf")]
TEXTS: Final = ["b", "a", None, "c", "b", "", "é"]
DAYS: Final = [dt.datetime(year, 1, 1) if year else None for year in (1960, None, 2020, 1970, 1971, 1971, None)]
PAIRS: Final = [[1.0, 2.0], None, [NAN, 0.0], [0.0, 0.0], [-0.0, 0.0], [1.0, None], [None, 1.0]]
STRUCTS: Final = [(1, None), None, (None, 2), (1, 1), (0, 9), (None, None), (1, 0)]
BOOLS: Final = pa.bool8().wrap_array(pa.array([5, None, 0, 1, -1, 0, 5], pa.int8()))
IDS: Final = pa.uuid().wrap_array(
    pa.array([one and one * 16 for one in (b"b", None, b"\xff", b"a", b"\0", b"a", b"b")], pa.binary(16))
)
JSON: Final = pa.json_().wrap_array(pa.array(["[1,2]", "null", '"x"', '{"a":1}', "3.5", None, "-7"]))
FAR: Final = [2**41 + 1, None, 2**41, -(2**41), 0, 1, 2**41]  # seconds: beyond the year 9999, and before the year 1
DAY_NUMBERS: Final = [2**25, 5, -(2**25), 2**25 + 1, 0, 2**25, 7]
COLUMNS: Final = {
    "flags": pa.array([True, None, False, True, False, None, True]),
    "unsigned": pa.array([2**63 + 1, None, 0, 2**64 - 1, 5, 6, 7], pa.uint64()),
    "halves": pa.array(FLOATS, pa.float16()),
    "singles": pa.array(FLOATS, pa.float32()),
    "doubles": pa.array(FLOATS),
    "decimals": pa.array([1, 2, None, -3, 4, 5, 0], pa.decimal256(50, 2)),
    "times": pa.array(DAYS),
    "spans": pa.array([5, 3, None, -3, 9, 1, 5], pa.duration("s")),
    "texts": pa.array(TEXTS),
    "bytes": pa.array([b"\xff", b"", None, b"a", b"b", b"ab", b"a"]),
    "few texts": pa.array(TEXTS).dictionary_encode(),
    "lists": pa.array([[1, 2], None, [], [1], [None], [1, None], [0, 5]]),
    "lists of texts": pa.array([["b"], ["a", "c"], None, [], ["b", "a"], [None], [""]]),
    "lists of structs": pa.array([[{"x": 1}], [{"x": None}], None, [], [None], [{"x": 0}], [{"x": 1}, {"x": 2}]]),
    "pairs": pa.array(PAIRS, pa.list_(pa.float32(), 2)),
    "structs": pa.array([one and dict(zip("xy", one, strict=True)) for one in STRUCTS]),
    "maps": pa.array(
        [[("a", 1)], None, [], [("b", 1)], [("a", None)], [("a", 0)], [("a", 1)]], pa.map_(pa.string(), pa.int32())
    ),
    "uuids": IDS,
    "bytes as booleans": BOOLS,
    "tensors": pa.fixed_shape_tensor(pa.float32(), [2]).wrap_array(pa.array(PAIRS, pa.list_(pa.float32(), 2))),
    "structs of extensions": pa.StructArray.from_arrays([BOOLS, IDS], names=["flag", "id"]),
    "lists of booleans": pa.ListArray.from_arrays(pa.array([0, 1, 2, 3, 4, 5, 6, 7], pa.int32()), BOOLS),
    "nanoseconds": pa.array([[2], None, [1], [3, 1], [3], [], [None]], pa.list_(pa.time64("ns"))),
    "JSON": JSON,
    "structs of JSON": pa.StructArray.from_arrays([JSON], names=["j"]),
    "lists of JSON": pa.ListArray.from_arrays(pa.array([0, 1, 2, 3, 4, 5, 6, 7], pa.int32()), JSON),
    "far away": pa.array([{"t": one} for one in FAR], pa.struct([("t", pa.timestamp("s"))])),
    "far days": pa.array([[(one, one)] for one in DAY_NUMBERS], pa.map_(pa.date32(), pa.duration("s"))),
}


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ordering") / "t.lance"
    lance.write_dataset(pa.table({"row": range(7), **COLUMNS}), path, max_rows_per_file=4)
    return path


@pytest.mark.parametrize("column", COLUMNS)
def test_every_type_is_sorted_as_in_pylance(column: str, uri: Path) -> None:
    theirs, ours = lance.dataset(uri), lance_io.dataset(uri)
    for ascending in (True, False):
        for nulls_first in (True, False):
            keys = [ColumnOrdering(column, ascending, nulls_first), "row"]
            expected = theirs.to_table(["row", column], order_by=keys)["row"].to_pylist()
            assert ours.to_table(["row", column], order_by=keys)["row"].to_pylist() == expected
            first = ours.to_table(["row"], order_by=keys, limit=3, offset=1)["row"].to_pylist()
            assert first == expected[1:4]


def test_a_sorted_scan_without_columns_counts_its_rows(uri: Path) -> None:
    for options in ({}, {"offset": 2}, {"limit": 3}, {"filter": "row > 2"}):
        tables = [one.dataset(uri).to_table([], order_by=["texts"], **options) for one in (lance, lance_io)]
        assert tables[0].num_rows == tables[1].num_rows > 0


def test_rows_with_types_of_python_are_sorted(tmp_path: Path) -> None:
    floats = lance.arrow.bfloat16_array([3.0, None, 1.0, 2.0, 5.0, 4.0])
    table = pa.table({"row": range(6), "x": floats, "in": pa.StructArray.from_arrays([floats], ["x"])})
    lance.write_dataset(table, tmp_path, max_rows_per_file=2)
    found, expected = (
        one.dataset(tmp_path).to_table(order_by=[ColumnOrdering("row", False)]) for one in (lance_io, lance)
    )
    assert found["row"].to_pylist() == [5, 4, 3, 2, 1, 0]
    assert found.to_pylist() == expected.to_pylist()
