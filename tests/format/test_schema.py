"""Schemas: protobuf to Arrow and back, compared with what pylance says about the same table."""

from __future__ import annotations

import math
import uuid
from typing import Any

import lance
import lance.arrow
import pyarrow as pa
import pytest

from lance_io.errors import BindError, FormatError, UnsupportedError
from lance_io.format.logical_types import primitive_type
from lance_io.format.schema import Field, Schema, split_path
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.format.schema_messages import SCHEMA_DEPTH_MAX, SCHEMA_FIELDS_MAX, decode_schema, encode_schema
from lance_io.proto import file_pb2
from lance_io.table.manifest.manifest import decode_manifest

PRIMITIVES: list[tuple[pa.DataType, str]] = [
    (pa.null(), "null"),
    (pa.bool_(), "bool"),
    *[(pa.type_for_alias(name), name) for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")],
    (pa.uint64(), "uint64"),
    (pa.float16(), "halffloat"),
    (pa.float32(), "float"),
    (pa.float64(), "double"),
    (pa.decimal128(38, 10), "decimal:128:38:10"),
    (pa.decimal256(76, -3), "decimal:256:76:-3"),
    (pa.string(), "string"),
    (pa.large_string(), "large_string"),
    (pa.binary(), "binary"),
    (pa.large_binary(), "large_binary"),
    (pa.binary(7), "fixed_size_binary:7"),
    (pa.date32(), "date32:day"),
    (pa.date64(), "date64:ms"),
    (pa.time32("s"), "time32:s"),
    (pa.time32("ms"), "time32:ms"),
    (pa.time64("us"), "time64:us"),
    (pa.time64("ns"), "time64:ns"),
    (pa.timestamp("s"), "timestamp:s:-"),
    (pa.timestamp("ns", "+05:30"), "timestamp:ns:+05:30"),
    (pa.timestamp("ms", "Europe/Berlin"), "timestamp:ms:Europe/Berlin"),
    (pa.duration("us"), "duration:us"),
    (pa.list_(pa.float32(), 8), "fixed_size_list:float:8"),
    (pa.list_(pa.timestamp("us", "UTC"), 2), "fixed_size_list:timestamp:us:UTC:2"),
    (pa.list_(pa.list_(pa.int16(), 2), 3), "fixed_size_list:fixed_size_list:int16:2:3"),
    (pa.dictionary(pa.int32(), pa.string()), "dict:string:int32:false"),
    (pa.dictionary(pa.uint16(), pa.int64()), "dict:int64:uint16:false"),
]
STRUCT = pa.struct([pa.field("a", pa.int32(), nullable=False, metadata={"q": "r"}), pa.field("b", pa.string())])
NESTED: list[pa.DataType] = [
    STRUCT,
    pa.struct([]),
    pa.list_(pa.int8()),
    pa.large_list(pa.field("element", STRUCT, nullable=False)),
    pa.list_(pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    pa.map_(pa.string(), pa.field("value", pa.list_(pa.int64()), nullable=False)),
    pa.list_(STRUCT, 2),
    pa.list_(pa.uuid()),
    pa.struct([pa.field("id", pa.uuid()), pa.field("doc", pa.json_())]),
    pa.fixed_shape_tensor(pa.int32(), [2, 3]),
    pa.bool8(),
    pa.json_(),
    pa.opaque(pa.binary(), "kind", "vendor"),
    pa.list_(lance.arrow.BFloat16Type()),
    pa.list_(lance.arrow.BFloat16Type(), 4),
]


def no_rows(schema: pa.Schema) -> pa.RecordBatchReader:
    """An empty stream; pyarrow cannot make an empty array of a nested extension type."""
    return pa.RecordBatchReader.from_batches(schema, [])


def table_schema(schema: pa.Schema, path: Any, version: str = "2.2") -> tuple[Schema, pa.Schema]:
    """The schema in the manifest that pylance writes for an empty table, ours and as pylance shows it."""
    dataset = lance.write_dataset(no_rows(schema), str(path), data_storage_version=version)
    [manifest] = (path / "_versions").glob("*.manifest")
    return decode_manifest(manifest.read_bytes()).schema, dataset.schema


def test_every_primitive_is_named_as_pylance_names_it(tmp_path):
    arrow = pa.schema([pa.field(f"c{i}", kind, nullable=i % 2 == 0) for i, (kind, _) in enumerate(PRIMITIVES)])
    ours, shown = table_schema(arrow, tmp_path)
    assert [each.logical_type for each in ours.fields] == [text for _, text in PRIMITIVES]
    assert ours.to_arrow().equals(shown, check_metadata=True)
    assert ours.to_storage().equals(arrow)
    assert [each.arrow_type for each in ours.fields] == [kind for kind, _ in PRIMITIVES]
    assert schema_from_arrow(arrow) == ours


@pytest.mark.parametrize("kind", NESTED, ids=str)
def test_nested_and_extension_types_come_back_as_from_pylance(tmp_path, kind):
    arrow = pa.schema([pa.field("first", pa.int8()), pa.field("c", kind, metadata={"k": "v"})], {"table": "t"})
    ours, shown = table_schema(arrow, tmp_path)
    assert ours.to_arrow().equals(shown, check_metadata=True)
    assert schema_from_arrow(arrow) == ours


def test_messages_are_written_as_pylance_writes_them(tmp_path):
    arrow = pa.schema([pa.field(f"c{i}", kind) for i, kind in enumerate(NESTED)])
    lance.write_dataset(no_rows(arrow), str(tmp_path))
    [path] = (tmp_path / "_versions").glob("*.manifest")
    theirs = decode_manifest(path.read_bytes()).message.fields
    ours = encode_schema(schema_from_arrow(arrow))
    for each in ours:
        each.ClearField("dictionary")  # an empty message, which pylance leaves out of a table without rows
    assert ours == list(theirs)


def test_messages_are_made_anew_each_time():
    arrow = pa.schema([pa.field(f"c{i}", kind, metadata={"k": "v"}) for i, kind in enumerate(NESTED)])
    schema, equal = schema_from_arrow(arrow), schema_from_arrow(arrow, 1)
    first = encode_schema(schema)
    second = encode_schema(schema)
    assert first == second and [one.id + 1 for one in first] == [one.id for one in encode_schema(equal)]
    second[0].name, second[0].metadata["k"] = "another", b"w"
    assert first == encode_schema(schema) != second


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_column_fields_are_those_that_pylance_lists(tmp_path, version):
    packed = pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.int16())])
    kinds = [pa.struct([pa.field("e", pa.struct([])), pa.field("l", pa.list_(STRUCT))]), pa.list_(pa.int8(), 3)]
    arrow = pa.schema(
        [
            *[pa.field(f"c{i}", kind) for i, kind in enumerate(kinds)],
            pa.field("p", packed, metadata={"packed": "TRUE"}),
            pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
            pa.field("d", pa.dictionary(pa.int8(), pa.string())),
        ]
    )
    row = {"c0": {"e": {}, "l": []}, "c1": [1, 2, 3], "p": {"x": 1, "y": 2}, "blob": b"b", "d": "s"}
    dataset = lance.write_dataset(pa.Table.from_pylist([row], arrow), str(tmp_path), data_storage_version=version)
    [manifest] = (tmp_path / "_versions").glob("*.manifest")
    schema = decode_manifest(manifest.read_bytes()).schema
    [file] = dataset.get_fragments()[0].metadata.files
    assert [each.id for each in schema.leaves()] == file.fields
    assert schema.to_arrow().equals(dataset.schema, check_metadata=True)
    seen = dataset.to_table(columns=["blob"]).schema.field("blob")
    assert schema.field("blob").describe_blobs().to_arrow().equals(seen, check_metadata=True)


def test_arrow_views_are_stored_as_plain_strings():
    schema = schema_from_arrow(pa.schema([("s", pa.string_view()), ("b", pa.binary_view())]))
    assert [each.logical_type for each in schema.fields] == ["string", "binary"]


@pytest.mark.parametrize(
    "kind",
    [pa.decimal32(5, 1), pa.list_view(pa.int8()), pa.list_(pa.list_(pa.int8()), 2), pa.month_day_nano_interval()],
    ids=str,
)
def test_types_that_cannot_be_stored_are_named(kind):
    with pytest.raises(UnsupportedError, match="cannot be stored"):
        schema_from_arrow(pa.schema([("c", kind)]))


UNKNOWN = [
    *["", "int128", "timestamp:us", "timestamp:years:-", "decimal:64:3:2", "decimal:128:3", "duration:days"],
    *["fixed_size_binary", "fixed_size_binary:x", "fixed_size_list:float:", "fixed_size_list::4", "dict:string:int32"],
    *["dict:string:string:false", "dict:dict:string:int8:false:int8:false", "date32", "list", "fixed_size_binary:٣"],
    "fixed_size_list:list:3",
]


@pytest.mark.parametrize("text", UNKNOWN)
def test_unknown_types_are_unsupported(text):
    with pytest.raises(UnsupportedError, match="unknown logical type"):
        primitive_type(text)


@pytest.mark.parametrize(
    "text",
    [
        *["decimal:128:39:0", "decimal:256:5:500", "fixed_size_list:int8:0", "fixed_size_binary:-1"],
        *["fixed_size_binary:4294967296", "fixed_size_list:fixed_size_list:int8:65536:65536"],
    ],
)
def test_impossible_numbers_are_damage(text):
    with pytest.raises(FormatError, match="type '"):
        primitive_type(text)


def message(field_id: int, parent: int = -1, name: str | None = None, kind: str = "struct") -> file_pb2.Field:
    return file_pb2.Field(id=field_id, parent_id=parent, name=name or f"f{field_id}", logical_type=kind, nullable=True)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([message(0, 0)], "which must appear earlier"),
        ([message(1, 2), message(2)], "which must appear earlier"),
        ([message(0), message(0, name="other")], "used by"),
        ([message(0, name="a"), message(1, name="a")], "called 'a'"),
        ([message(-1)], "expected 0 or more"),
        ([message(0, kind="int8"), message(1, 0, kind="int8")], "has 1 members, expected none"),
        ([message(0, kind="list")], "has 0 members"),
        ([message(0, kind="list.struct"), message(1, 0, kind="int8")], "expected struct"),
        ([message(0, kind="map"), message(1, 0, kind="int8")], "single member"),
        ([message(0, name="a\0b")], "NUL"),
        ([message(i, i - 1) for i in range(SCHEMA_DEPTH_MAX + 1)], "levels deep"),
        ([file_pb2.Field(parent_id=-1, name="n", logical_type="null")], "may not hold nulls"),
    ],
)
def test_schemas_that_contradict_themselves_are_refused(fields, words):
    with pytest.raises(FormatError, match=words):
        decode_schema(fields, {})


def test_the_deepest_schema_still_becomes_an_arrow_schema():
    fields = [message(i, i - 1) for i in range(SCHEMA_DEPTH_MAX)]
    schema = decode_schema(fields, {})
    assert schema.fields[0].depth == SCHEMA_DEPTH_MAX
    assert schema.to_arrow().names == ["f0"]
    items = "fixed_size_list:" * 5000 + "int8" + ":1" * 5000
    with pytest.raises(UnsupportedError, match="nested more than"):
        decode_schema([message(0, kind=items)], {})


@pytest.mark.parametrize(
    ("dimensions", "error"),
    [
        ([1] * 32, None),
        ([1] * 33, UnsupportedError),
        ([(1 << 31) - 1], None),
        ([1 << 31], FormatError),
        ([1, (1 << 31) - 1], None),
        ([2, 1 << 30], FormatError),
        ([2, (1 << 30) - 1], None),
    ],
)
def test_vectors_have_limits(dimensions, error):
    kind = "fixed_size_list:" * len(dimensions) + "int8" + "".join(f":{one}" for one in dimensions)
    if error is not None:
        with pytest.raises(error):
            decode_schema([message(0, kind=kind)], {})
        return
    dtype, sizes = decode_schema([message(0, kind=kind)], {}).fields[0].arrow_type, []
    while pa.types.is_fixed_size_list(dtype):
        sizes, dtype = [*sizes, dtype.list_size], dtype.value_type
    assert math.prod(sizes) == math.prod(dimensions) and len(sizes) == len(dimensions)


@pytest.mark.parametrize(("num_fields", "is_refused"), [(5, False), (6, True)])
def test_schemas_have_a_limit(monkeypatch, num_fields, is_refused):
    assert SCHEMA_FIELDS_MAX == 1 << 20
    monkeypatch.setattr("lance_io.format.schema_messages.SCHEMA_FIELDS_MAX", 5)
    fields = [message(number, kind="int8") for number in range(num_fields)]
    if not is_refused:
        assert len(decode_schema(fields, {}).fields) == num_fields
        return
    with pytest.raises(FormatError, match="schema of 6 fields, at most 5"):
        decode_schema(fields, {})


def test_an_extension_that_refuses_its_storage_is_damage():
    field = Field(0, "u", "int8", metadata={"ARROW:extension:name": b"arrow.uuid", "ARROW:extension:metadata": b""})
    assert field.to_storage().type == pa.int8()
    with pytest.raises(FormatError, match="extension type"):
        field.to_arrow()


ARROW = pa.schema(
    [
        pa.field("s", pa.struct([("x", pa.int8()), ("odd.name", pa.struct([("z", pa.int8()), ("w", pa.int8())]))])),
        pa.field("l", pa.list_(STRUCT)),
        pa.field("i", pa.int64()),
    ]
)


@pytest.mark.parametrize("around", [pa.list_, pa.large_list, lambda item: pa.map_(pa.string(), item)])
def test_items_of_lists_and_maps_are_no_columns(around: Any) -> None:
    schema = schema_from_arrow(pa.schema([pa.field("s", STRUCT), pa.field("l", around(pa.int8()))]))
    assert [[member.name for member in field.members] for field in schema.fields] == [["a", "b"], []]


def test_projection_keeps_the_asked_order_and_only_the_asked_members():
    schema = schema_from_arrow(ARROW)
    pruned = schema.project(["i", "s.`odd.name`.w", "l.item.b", "s.x"])
    assert pruned.names == ["i", "s", "l"]
    assert pruned.to_arrow().field("s").type == pa.struct(
        [("odd.name", pa.struct([("w", pa.int8())])), ("x", pa.int8())]
    )
    assert pruned.to_arrow().field("l").type == pa.list_(pa.struct([pa.field("b", pa.string())]))
    assert schema.project(["s.x", "s"]).fields == (schema.field("s"),)
    assert schema.prune({schema.find("s.x").id, schema.field("i").id}).names == ["s", "i"]
    assert [each.name for each in schema.resolve("s.`odd.name`.z")] == ["s", "odd.name", "z"]
    assert schema.max_field_id == 9


@pytest.mark.parametrize("path", ["m.entries.key", "m.entries.value.y", "p.a"])
def test_parts_that_are_read_with_others_are_refused_alone(path):
    pair = pa.struct([("x", pa.int8()), ("y", pa.int8())])
    packed = pa.field("p", pa.struct([("a", pa.int8()), ("b", pa.int8())]), metadata={"packed": "true"})
    schema = schema_from_arrow(pa.schema([pa.field("m", pa.map_(pa.string(), pair)), packed]))
    with pytest.raises(BindError, match=r"read together|read as a whole"):
        schema.project([path])
    assert schema.project(["p.b", "p.a", "m.entries.value", "m.entries.key"]).fields == schema.fields[::-1]
    (entries,) = schema.project(["m.entries.value.y", "m.entries.value.x", "m.entries.key"]).fields[0].children
    assert [child.name for child in entries.children] == ["key", "value"]
    assert [child.name for child in entries.children[1].children] == ["y", "x"]


@pytest.mark.parametrize("path", ["zz", "S", "s.X", "s.odd.name", "i.x", "s.", ".s", "`s", "`s`x", ""])
def test_unknown_paths_are_named(path):
    with pytest.raises(BindError, match="No field named"):
        schema_from_arrow(ARROW).find(path)


def test_paths_split_at_dots_outside_of_backticks():
    assert split_path("a.b c") == ["a", "b c"]
    assert split_path("`a.b`.c.```d`") == ["a.b", "c", "`d"]


def test_a_registered_extension_survives_values(tmp_path):
    ids = pa.array([uuid.uuid4().bytes], pa.uuid())
    lance.write_dataset(pa.table({"u": ids}), str(tmp_path))
    [path] = (tmp_path / "_versions").glob("*.manifest")
    field = decode_manifest(path.read_bytes()).schema.field("u")
    assert field.extension_name == "arrow.uuid"
    assert pa.ExtensionArray.from_storage(field.to_arrow().type, ids.storage.cast(field.arrow_type)).equals(ids)
