"""Which rows a dynamic overwrite replaces, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

from lance_io.dataset.distributed import TablePlace, TableVersion
from lance_io.errors import UsageError
from lance_io.spark.worker.writing.dynamic_keys import Keys, replaced_rows
from lance_io.spark.worker.writing.table_properties import columns_of_schema, overwrite_columns

if TYPE_CHECKING:
    from pathlib import Path


def test_keys_are_compared_as_they_are_stored(tmp_path: Path) -> None:
    """Years after 9999, NaN, both zeros, nulls; several columns; keys that came in two streams."""
    rows = pa.table(
        {
            "at": pa.array([1 << 61, 5, None, 1 << 61, 7], pa.timestamp("us")),
            "f": pa.array([0.0, float("nan"), 1.0, -0.0, None]),
        }
    )
    lance.write_dataset(rows, tmp_path / "t", max_rows_per_file=3)
    version = TableVersion.open(TablePlace.of_process(str(tmp_path / "t"), {}))
    for names, chosen, expected in (
        (["at"], [0, 2], {0: [0, 2], 1: [0]}),
        (["at"], [4], {1: [1]}),
        (["f"], [1, 3], {0: [0, 1], 1: [0]}),
        (["at", "f"], [3, 4], {0: [0], 1: [0, 1]}),
    ):
        keys = Keys()
        for row in chosen:
            one_row = Keys()
            one_row.add(rows.select(names).take([row]))
            keys.add_stream(one_row.to_stream() or b"")
        assert {key: rows.tolist() for key, rows in replaced_rows(version, names, keys).items()} == expected, names


def test_values_of_dictionaries_are_compared(tmp_path: Path) -> None:
    """Each task may have other dictionaries than the table."""
    words = pa.array(["a", "b", "a", None]).dictionary_encode()
    lance.write_dataset(pa.table({"w": words}), tmp_path / "t")
    version = TableVersion.open(TablePlace.of_process(str(tmp_path / "t"), {}))
    keys = Keys()
    for values in (["z", "a"], [None], ["q"]):
        keys.add(pa.table({"w": pa.array(values, pa.string()).dictionary_encode()}))
    assert {key: rows.tolist() for key, rows in replaced_rows(version, ["w"], keys).items()} == {0: [0, 2, 3]}


def test_columns_with_parts_are_refused() -> None:
    """Their values are not compared; an old table may still name one of them."""
    plain = [pa.int8(), pa.uint64(), pa.float64(), pa.decimal128(38, 2), pa.bool_(), pa.date32(), pa.time64("us")]
    plain += [pa.large_string(), pa.binary(4), pa.timestamp("ns", "UTC"), pa.dictionary(pa.int8(), pa.string())]
    parts = [pa.struct([("a", pa.int32())]), pa.list_(pa.int32()), pa.list_(pa.float32(), 2), pa.float16()]
    parts += [pa.map_(pa.string(), pa.int32()), pa.dictionary(pa.int8(), pa.float16())]
    fields = [pa.field(f"c{number}", dtype) for number, dtype in enumerate([*plain, *parts])]
    blob = pa.field("blob", pa.large_binary(), metadata={b"lance-encoding:blob": b"true"})
    columns = columns_of_schema(pa.schema([*fields, blob]))
    assert [name for name, refused in columns.items() if refused is None] == [f"c{n}" for n in range(len(plain))]
    for field in (*fields[len(plain) :], blob):
        with pytest.raises(UsageError, match=f"column {field.name} is "):
            overwrite_columns({"lance.overwrite.columns": field.name}, columns)
    with pytest.raises(UsageError, match=r"no column c11\.a"):
        overwrite_columns({"lance.overwrite.columns": "c11.a"}, columns)
