"""Fixed-size lists of structs: how their items are called, whether they may be null, and what else is said of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from pathlib import Path

MEMBERS = pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())])
ITEMS = {
    "as pyarrow calls it": pa.field("item", MEMBERS),
    "another name": pa.field("element", MEMBERS),
    "not null": pa.field("element", MEMBERS, nullable=False),
    "with metadata": pa.field("element", MEMBERS, metadata={"k": "v"}),
}
WAYS = {
    "top": lambda dtype: dtype,
    "in a struct": lambda dtype: pa.struct([pa.field("v", dtype, nullable=False)]),
    "in another": lambda dtype: pa.list_(pa.field("outer", pa.struct([pa.field("v", dtype)])), 2),
}


def values(way: str, item: str, number: int) -> Any:
    one = [{"a": number, "b": None}, {"a": -number, "b": f"t{number}"}]
    match way:
        case "top":
            return None if number % 5 == 2 and item != "not null" else one  # of which pylance takes no null list
        case "in a struct":
            return {"v": one}
        case _:
            return [{"v": one}, {"v": one}]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("item", ITEMS)
def test_the_schema_is_that_of_pylance(tmp_path: Path, item: str, way: str) -> None:
    schema = pa.schema([pa.field("x", WAYS[way](pa.list_(ITEMS[item], 2))), pa.field("id", pa.int64())])
    rows = [{"x": values(way, item, number), "id": number} for number in range(20)]
    found = []
    for library in (lance, lance_io):
        uri = str(tmp_path / library.__name__)
        library.write_dataset(pa.Table.from_pylist(rows, schema), uri, max_rows_per_file=8)
        dataset = lance_io.dataset(uri)
        dataset.insert(pa.Table.from_pylist(rows[:3], schema))
        merge = dataset.merge_insert("id").when_matched_update_all()
        merge.execute(pa.Table.from_pylist(rows[8:12], schema))
        dataset.update({"id": "id + 100"}, where="id < 3")
        dataset.optimize.compact_files()
        for reader in (lance, lance_io):
            read = reader.dataset(uri)
            assert read.schema.equals(schema, check_metadata=True)
            x, ids = (read.to_table(columns=[name])[name].to_pylist() for name in ("x", "id"))  # pylance: one by one
            assert dict(zip(ids, x, strict=True)) == {
                number + 100 * (number < 3): values(way, item, number) for number in range(20)
            }
        found.append(lance_io.dataset(uri).lance_schema)
    assert repr(found[0]) == repr(found[1])
