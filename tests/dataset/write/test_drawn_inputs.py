"""Drawn types and documents in changes: views and sure members at any depth, JSON of any form.

What a change makes is compared with a plain model of rows by their id.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.levels.plain_types import plain_type
from tests.seeds import seed_of

if TYPE_CHECKING:
    from pathlib import Path

LEAVES = [pa.string_view(), pa.binary_view(), pa.string(), pa.int32(), pa.float64(), pa.bool_()]


def draw_type(draw: random.Random, depth: int) -> pa.DataType:
    """A type with views in it, mostly."""
    kind = draw.choice(["leaf"] if not depth else ["leaf", "list", "large list", "struct", "map"])
    if kind == "leaf":
        return draw.choice(LEAVES)
    member = pa.field("item", draw_type(draw, depth - 1), nullable=draw.random() < 0.6)
    match kind:
        case "list":
            return pa.list_(member)
        case "large list":
            return pa.large_list(member)
        case "struct":
            other = pa.field("other", draw_type(draw, depth - 1), nullable=draw.random() < 0.6)
            return pa.struct([member.with_name("one"), other])
        case _:
            return pa.map_(draw.choice([pa.string_view(), pa.string()]), member.with_name("value"))


def draw_value(draw: random.Random, dtype: pa.DataType, *, nullable: bool) -> Any:
    if nullable and draw.random() < 0.25:
        return None
    if pa.types.is_struct(dtype):
        return {one.name: draw_value(draw, one.type, nullable=one.nullable) for one in dtype}
    if pa.types.is_map(dtype):
        item = dtype.item_field
        return [(f"k{i}", draw_value(draw, item.type, nullable=item.nullable)) for i in range(draw.randrange(3))]
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        item = dtype.value_field
        return [draw_value(draw, item.type, nullable=item.nullable) for _ in range(draw.randrange(4))]
    if pa.types.is_binary(dtype) or pa.types.is_binary_view(dtype):
        return draw.randbytes(draw.choice([0, 3, 12, 13, 40]))
    if pa.types.is_integer(dtype):
        return draw.randrange(-1000, 1000)
    if pa.types.is_boolean(dtype):
        return draw.random() < 0.5
    if pa.types.is_floating(dtype):
        return draw.randrange(-8, 8) / 4
    return "".join(draw.choices("abé✓", k=draw.choice([0, 2, 12, 13, 30])))


def draw_rows(draw: random.Random, ids: list[int], fields: list[pa.Field[Any]]) -> pa.Table:
    """Columns of these types; their memory is a slice of a larger one."""
    columns = []
    for field in fields:
        values = [draw_value(draw, field.type, nullable=field.nullable) for _ in range(len(ids) + 2)]
        columns.append(pa.array(values, field.type).slice(1, len(ids)))
    schema = pa.schema([pa.field("id", pa.int64()), *fields])
    return pa.Table.from_arrays([pa.array(ids, pa.int64()), *columns], schema=schema)


def by_id(table: pa.Table) -> dict[int, dict[str, Any]]:
    return {row["id"]: row for row in table.to_pylist()}


@pytest.mark.parametrize("number", range(12))
def test_rows_of_drawn_types(tmp_path: Path, number: int) -> None:
    draw = random.Random(seed_of(f"drawn inputs {number}"))
    fields = [pa.field(f"c{i}", draw_type(draw, 3), nullable=draw.random() < 0.7) for i in range(4)]
    plain = [field.with_type(plain_type(field.type)) for field in fields]
    uri = str(tmp_path / "t")
    old, new = draw_rows(draw, list(range(20)), plain), draw_rows(draw, list(range(10, 30)), fields)
    dataset = lance_io.write_dataset(old, uri, max_rows_per_file=draw.choice([7, 100]))
    expected = by_id(old) | by_id(new)
    dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(new)
    assert by_id(lance_io.dataset(uri).to_table()) == expected

    names = draw.sample([field.name for field in fields], 2)
    newer = draw_rows(draw, list(range(0, 40, 2)), fields).select(["id", *names])
    lance_io.dataset(uri).merge_insert("id").when_matched_update_all().execute(newer)
    expected |= {i: {**expected[i], **row} for i, row in by_id(newer).items() if i in expected}
    assert by_id(lance_io.dataset(uri).to_table()) == expected

    given = draw_rows(draw, list(range(30)), [field.with_nullable(True) for field in fields[:1]])
    lance_io.dataset(uri).merge(given.slice(3).rename_columns(["id", "new"]), "id")
    added = {i: row["c0"] for i, row in by_id(given).items() if i >= 3}
    expected = {i: {**row, "new": added.get(i)} for i, row in expected.items()}
    found = lance_io.dataset(uri).to_table()
    assert by_id(found) == expected
    assert lance.dataset(uri).to_table().to_pylist() == found.to_pylist()


def draw_document(draw: random.Random, depth: int = 3) -> Any:
    kind = draw.choice(["object", "array", "text", "number", "other"] if depth else ["text", "number", "other"])
    match kind:
        case "object":
            return {f"k{i}": draw_document(draw, depth - 1) for i in range(draw.randrange(3))}
        case "array":
            return [draw_document(draw, depth - 1) for _ in range(draw.randrange(4))]
        case "text":
            return "".join(draw.choices('a"\\é ✓{', k=draw.randrange(6)))
        case "number":
            return draw.choice([0, -1, 300, 70_000, 1 << 40, 0.5, -2.25])
        case _:
            return draw.choice([None, True, False])


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_drawn_documents(tmp_path: Path, version: str) -> None:
    """Text that becomes a document, by an update of ours or of pylance's, which leaves it inside of others as it is."""
    draw = random.Random(seed_of(f"drawn documents {version}"))
    documents = [draw_document(draw) for _ in range(60)]
    texts = [json.dumps(one, ensure_ascii=draw.random() < 0.5, indent=draw.choice([None, 1])) for one in documents]
    column = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"] * 60))
    member = pa.StructArray.from_arrays([column], ["j"])
    rows = pa.table({"id": range(60), "text": texts, "j": column, "s": member})
    uri = str(tmp_path / "t")
    lance_io.write_dataset(rows, uri, data_storage_version=version)
    lance.dataset(uri).update({"s": "named_struct('j', text)"}, where="id < 40")
    lance_io.dataset(uri).update({"j": "text"}, where="id % 2 = 0")
    lance_io.dataset(uri).update({"s": "named_struct('j', text)"}, where="id >= 40")
    for row in lance_io.dataset(uri).to_table().to_pylist():
        assert json.loads(row["s"]["j"]) == documents[row["id"]]
        assert json.loads(row["j"]) == (documents[row["id"]] if row["id"] % 2 == 0 else {})
    lance_io.dataset(uri).update({"j": "s.j", "text": "s.j"})
    for row in lance.dataset(uri).to_table().to_pylist():
        assert [json.loads(one) for one in (row["j"], row["text"], row["s"]["j"])] == [documents[row["id"]]] * 3
