"""Structs that are marked as packed, in tables of version 0.1: it packs none, and pylance does not look at the mark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from tests.interop.comparing import LIBRARIES

if TYPE_CHECKING:
    from pathlib import Path

MEMBERS = pa.struct([("a", pa.int32()), ("s", pa.string()), ("n", pa.struct([("b", pa.list_(pa.float64()))]))])


def rows(mark: str, start: int = 0) -> pa.Table:
    """A marked struct with members that no packed struct could have; pylance reads none inside a list."""
    values = [
        {"a": i, "s": None if i % 3 == 0 else f"text {i}", "n": {"b": [i / 2] * (i % 3)}}
        for i in range(start, start + 50)
    ]
    marked = pa.field("p", MEMBERS, metadata={mark: "true"})
    columns = [pa.array(range(start, start + 50)), pa.array(values, MEMBERS)]
    return pa.table(columns, schema=pa.schema([pa.field("i", pa.int64()), marked]))


@pytest.mark.parametrize("mark", ["lance-encoding:packed", "packed"])
@pytest.mark.parametrize("writer", LIBRARIES)
def test_a_mark_changes_nothing(writer: Any, mark: str, tmp_path: Path) -> None:
    place = str(tmp_path / "t.lance")
    options = {"data_storage_version": "legacy", "max_rows_per_group": 16, "max_rows_per_file": 32}
    writer.write_dataset(rows(mark), place, **options)
    for library in LIBRARIES:
        library.write_dataset(rows(mark, 50), place, mode="append", **options)
    lance.dataset(place).delete("i = 7")
    ours, theirs = lance_io.dataset(place), lance.dataset(place)
    assert ours.schema == theirs.schema and ours.schema.field("p").metadata == {mark.encode(): b"true"}
    assert ours.to_table() == theirs.to_table()
    assert ours.take([0, 9, 60, 120]) == theirs.take([0, 9, 60, 120])
    for wanted in ({"columns": ["p.s", "i"]}, {"filter": "p.a > 60"}, {"columns": ["p.n.b"], "limit": 9, "offset": 40}):
        assert ours.to_table(**wanted) == theirs.to_table(**wanted)
    lance.dataset(place).optimize.compact_files()
    assert lance_io.dataset(place).to_table() == lance.dataset(place).to_table()


def test_the_same_rows_in_two_versions_are_told_apart(tmp_path: Path) -> None:
    """Tables of equal schemas, of which one packs."""
    kind = pa.struct([("a", pa.int32()), ("b", pa.float64())])
    marked = pa.field("p", kind, metadata={"packed": "true"})
    table = pa.table([pa.array([{"a": i, "b": i / 2} for i in range(9)], kind)], schema=pa.schema([marked]))
    for version in ("0.1", "2.0", "2.1", "0.1"):
        place = str(tmp_path / version)
        lance_io.write_dataset(table, place, data_storage_version=version, mode="overwrite")
        for library in LIBRARIES:
            assert library.dataset(place).to_table().to_pylist() == table.to_pylist()
            assert library.dataset(place).take([3, 4])["p"].to_pylist() == table["p"].to_pylist()[3:5]
