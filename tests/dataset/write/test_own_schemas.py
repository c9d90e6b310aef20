"""Rows of the table's own schema in every change: `not null` members at any depth, and extension types.

What a change makes is compared with a plain model of rows by their id, and read by pylance as well.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset
from lance_io.arrow import BFloat16Type
from lance_io.errors import LanceError
from lance_io.levels.retype import batch_as

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def sure(name: str, dtype: pa.DataType) -> pa.Field[Any]:
    return pa.field(name, dtype, nullable=False)


POINT = pa.struct([sure("a", pa.int64())])
PLAIN: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "struct": (pa.struct([sure("a", pa.int64()), pa.field("b", pa.string())]), lambda i: {"a": i, "b": None}),
    "struct in struct": (pa.struct([sure("s", POINT)]), lambda i: {"s": {"a": i}}),
    "items": (pa.list_(sure("item", pa.int64())), lambda i: [i] * (i % 3)),
    "named items": (pa.list_(sure("element", pa.int64())), lambda i: [i]),
    "large": (pa.large_list(sure("item", pa.string())), lambda i: [str(i)]),
    "structs": (pa.list_(sure("item", POINT)), lambda i: [{"a": i}] * (i % 3)),
    "lists": (pa.list_(sure("item", pa.list_(sure("item", pa.int32())))), lambda i: [[i], []]),
    "list in struct": (pa.struct([sure("l", pa.list_(sure("item", POINT)))]), lambda i: {"l": [{"a": i}]}),
    "vector": (pa.list_(sure("item", pa.float32()), 2), lambda i: [float(i), 1.0]),
    "vectors": (pa.list_(sure("item", pa.list_(sure("item", pa.float32()), 2))), lambda i: [[float(i), 1.0]]),
    "codes": (pa.list_(sure("item", pa.dictionary(pa.int32(), pa.string()))), lambda i: ["a", str(i)]),
}
NEW: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {  # of files of version 2.2
    "map": (pa.map_(pa.string(), sure("value", pa.int64())), lambda i: [("k", i)]),
    "map of structs": (pa.map_(pa.string(), pa.field("value", POINT)), lambda i: [("k", {"a": i})]),
    "map of lists": (pa.map_(pa.string(), pa.list_(sure("item", POINT))), lambda i: [("k", [{"a": i}])]),
    "named map": (pa.map_(sure("kk", pa.string()), sure("vv", pa.int64())), lambda i: [("k", i)]),
    "maps": (pa.list_(sure("item", pa.map_(pa.string(), sure("value", pa.int64())))), lambda i: [[("k", i)]]),
}
OURS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {  # which pylance does not read beside others
    "vector of structs": (pa.list_(pa.field("item", POINT), 2), lambda i: [{"a": i}, {"a": 1}]),
    "sure vector of structs": (pa.list_(sure("item", POINT), 2), lambda i: [{"a": i}, {"a": 1}]),
}


class Line(pa.ExtensionType):
    """As GeoArrow has it."""

    def __init__(self) -> None:
        point = pa.struct([sure("x", pa.float64()), sure("y", pa.float64())])
        super().__init__(pa.list_(sure("vertices", point)), "test.linestring")

    def __arrow_ext_serialize__(self) -> bytes:
        return b'{"crs":"EPSG:4326"}'

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, _serialized: bytes) -> Line:
        return cls()


class Label(pa.ExtensionType):
    """Over a dictionary."""

    def __init__(self) -> None:
        super().__init__(pa.dictionary(pa.int32(), pa.string()), "test.label")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, _serialized: bytes) -> Label:
        return cls()


@pytest.fixture
def registered() -> Iterator[None]:
    extensions: list[pa.ExtensionType] = [Line(), Label()]
    for one in extensions:
        pa.register_extension_type(one)
    yield
    for one in extensions:
        pa.unregister_extension_type(one.extension_name)


EXTENSIONS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "uuid": (pa.uuid(), lambda i: uuid.UUID(int=i).bytes),
    "tensor": (pa.fixed_shape_tensor(pa.float32(), [1, 2]), lambda i: [float(i), 1.0]),
    "opaque": (pa.opaque(pa.binary(), "t", "v"), lambda i: b"%d" % i),
    "bool8": (pa.bool8(), lambda i: i % 2),
    "line": (Line(), lambda i: [{"x": float(i), "y": 1.0}]),
    "label": (Label(), lambda i: f"l{i}"),
    "bfloat16": (BFloat16Type(), lambda i: bytes([0, i])),
}


def column(dtype: pa.DataType, values: list[Any]) -> pa.Array:
    if isinstance(dtype, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(dtype, column(dtype.storage_type, values))
    if pa.types.is_dictionary(dtype):
        return pa.array(values, dtype.value_type).dictionary_encode()
    if pa.types.is_list(dtype) and pa.types.is_dictionary(dtype.value_type):
        ends = pa.array(range(0, 2 * len(values) + 1, 2), pa.int32())
        items = column(dtype.value_type, [item for value in values for item in value])
        return pa.ListArray.from_arrays(ends, items, type=dtype)
    return pa.array(values, dtype)


def nested(array: pa.Array, kind: str) -> pa.Array:
    ends = pa.array(range(len(array) + 1), pa.int32())
    match kind:
        case "list":
            return pa.ListArray.from_arrays(ends, array, type=pa.list_(sure("item", array.type)))
        case "struct":
            return pa.StructArray.from_arrays([array], fields=[sure("m", array.type)])
        case "map":
            return pa.MapArray.from_arrays(ends, pa.array(["k"] * len(array)), array)
        case _:
            return array


def rows(columns: dict[str, Any], ids: list[int], *, depths: tuple[str, ...] = ("",)) -> pa.Table:
    found: dict[str, Any] = {"id": pa.array(ids, pa.int64()), "y": pa.array(ids, pa.int64())}
    for name, (dtype, value) in columns.items():
        for depth in depths:
            found[f"{name} {depth}".strip()] = nested(column(dtype, [value(i) for i in ids]), depth)
    fields = [pa.field(name, one.type, nullable=name in ("id", "y")) for name, one in found.items()]
    return pa.Table.from_arrays(list(found.values()), schema=pa.schema(fields))


def by_id(table: pa.Table) -> dict[int, dict[str, Any]]:
    return {row["id"]: row for row in table.to_pylist()}


# -- changes, and what they make of rows by their id ------------------------------------------------------------------


def append(dataset: Any, source: pa.Table) -> None:
    dataset.insert(source)


def append_and_compact(dataset: Any, source: pa.Table) -> None:
    dataset.insert(source)
    dataset.optimize.compact_files()


def upsert(dataset: Any, source: pa.Table) -> None:
    dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(source)


def patch(dataset: Any, source: pa.Table) -> None:
    names = [name for name in source.column_names if name != "y"]
    dataset.merge_insert("id").when_matched_update_all().execute(source.select(names))


def replace(dataset: Any, source: pa.Table) -> None:
    names = [name for name in source.column_names if name != "y"]
    changed, fields = dataset.get_fragments()[0].update_columns(source.select(names), left_on="id")
    operation = lance_io.LanceOperation.Update(updated_fragments=[changed], fields_modified=fields)
    lance_io.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)


def update(dataset: Any, source: pa.Table) -> None:
    same = {name: f"`{name}`" for name in source.column_names if name != "id"}
    dataset.update(same, where="id > 1")


def upsert_on_a_loop(dataset: Any, source: pa.Table) -> None:
    async def run() -> None:
        opened = await AsyncDataset.open(dataset.uri)
        merge = opened.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        await merge.execute(source)

    asyncio.run(run())


def model(change: Any, old: pa.Table, new: pa.Table) -> dict[int, dict[str, Any]]:
    found, given = by_id(old), by_id(new)
    if change is update:
        return found
    if change in (patch, replace):
        kept = {i: {**given[i], "y": found[i]["y"]} for i in given if i in found}
        return found | kept
    return found | given


CHANGES = [append, append_and_compact, upsert, patch, replace, update, upsert_on_a_loop]


def check(tmp_path: Path, change: Any, old: pa.Table, new: pa.Table, version: str, *, is_shared: bool = True) -> None:
    uri = str(tmp_path / "t")
    dataset = lance_io.write_dataset(old, uri, data_storage_version=version)
    schema = dataset.schema
    change(dataset, new)
    found = lance_io.dataset(uri).to_table()
    assert found.schema == schema
    assert by_id(found) == model(change, old, new)
    if is_shared:
        names = [name for name in found.column_names if "bfloat16" not in name]
        assert by_id(lance.dataset(uri).to_table(columns=names)) == by_id(found.select(names))


def _ids(change: Any) -> list[int]:
    return [4, 5] if change in (append, append_and_compact) else [2, 3, 5]


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
def test_sure_members(tmp_path: Path, change: Any, version: str) -> None:
    columns = PLAIN | NEW if version == "2.2" else PLAIN
    check(tmp_path, change, rows(columns, [1, 2, 3]), rows(columns, _ids(change)), version)


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
def test_sure_members_of_vectors_of_structs(tmp_path: Path, change: Any) -> None:
    check(tmp_path, change, rows(OURS, [1, 2, 3]), rows(OURS, _ids(change)), "2.2", is_shared=False)


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
def test_the_schema_that_the_table_shows(tmp_path: Path, change: Any) -> None:
    """It differs from that of the rows in what it says of the items of vectors."""
    columns = PLAIN | NEW
    old, new = rows(columns, [1, 2, 3]), rows(columns, _ids(change))
    shown = lance_io.write_dataset(old, str(tmp_path / "shown")).schema
    check(tmp_path, change, old, as_schema(new, shown), "2.2")


def as_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([batch_as(batch.columns, schema, retype=True) for batch in table.to_batches()])


def test_batches_with_the_schema_that_the_table_shows(tmp_path: Path) -> None:
    """Given with it, batches of other nullability are fitted to it: a cast by Arrow would end the process for some."""
    columns = PLAIN | NEW
    old, new = rows(columns, [1, 2, 3]), rows(columns, [4, 5])
    relaxed = as_schema(new, pa.schema([pa.field(one.name, without_demands(one.type)) for one in new.schema]))
    shown = lance_io.write_dataset(old, str(tmp_path / "t")).schema
    for given in (new, relaxed):
        lance_io.write_dataset(old, str(tmp_path / "t"), mode="overwrite")
        lance_io.write_dataset(iter(given.to_batches()), str(tmp_path / "t"), mode="append", schema=shown)
        assert by_id(lance_io.dataset(str(tmp_path / "t")).to_table()) == by_id(old) | by_id(new)


def without_demands(dtype: pa.DataType) -> pa.DataType:
    """The type with everything nullable."""
    if pa.types.is_struct(dtype):
        return pa.struct([pa.field(one.name, without_demands(one.type)) for one in dtype])
    if pa.types.is_map(dtype):
        return pa.map_(dtype.key_type, without_demands(dtype.item_type))
    if pa.types.is_fixed_size_list(dtype):
        return pa.list_(without_demands(dtype.value_type), dtype.list_size)
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        item = pa.field(dtype.value_field.name, without_demands(dtype.value_type))
        return pa.large_list(item) if pa.types.is_large_list(dtype) else pa.list_(item)
    return dtype


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
def test_rows_that_do_not_say_that_they_are_sure(tmp_path: Path, change: Any) -> None:
    columns = PLAIN | NEW
    old, new = rows(columns, [1, 2, 3]), rows(columns, _ids(change))
    schema = pa.schema([pa.field(one.name, without_demands(one.type)) for one in new.schema])
    check(tmp_path, change, old, as_schema(new, schema), "2.2")


NULLS = {
    "struct": {"a": None, "b": None},
    "items": [None],
    "structs": [{"a": None}],
    "lists": [[None]],
    "list in struct": {"l": [{"a": None}]},
    "map": [("k", None)],
    "map of structs": [("k", {"a": None})],
}


@pytest.mark.parametrize("name", NULLS)
def test_nulls_where_none_may_be_are_refused(tmp_path: Path, name: str) -> None:
    columns = {name: (PLAIN | NEW)[name]}
    for change in (append, upsert, patch, replace, upsert_on_a_loop):
        uri = str(tmp_path / change.__name__)
        dataset = lance_io.write_dataset(rows(columns, [1, 2, 3]), uri)
        values = pa.array([NULLS[name]], without_demands(columns[name][0]))
        with pytest.raises(LanceError, match="null values"):
            change(dataset, pa.table({"id": [2], "y": [2], name: values}))
        assert lance_io.dataset(uri).version == 1
        assert by_id(lance_io.dataset(uri).to_table()) == by_id(rows(columns, [1, 2, 3]))


# -- extension types --------------------------------------------------------------------------------------------------

DEPTHS = ("", "list", "struct", "map")


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("version", ["2.0", "2.2"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
def test_extension_types(tmp_path: Path, change: Any, version: str) -> None:
    depths = DEPTHS if version == "2.2" else DEPTHS[:3]
    old = rows(EXTENSIONS, [1, 2, 3], depths=depths)
    check(tmp_path, change, old, rows(EXTENSIONS, _ids(change), depths=depths), version)


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
def test_extension_types_that_nobody_registered(tmp_path: Path, change: Any) -> None:
    """Their names and parameters are metadata of fields, at any depth."""
    pa.register_extension_type(line := Line())
    pa.register_extension_type(label := Label())
    columns = {name: EXTENSIONS[name] for name in ("line", "label")}
    try:
        tables = [rows(columns, ids, depths=DEPTHS) for ids in ([1, 2, 3], _ids(change))]
        uris = [str(tmp_path / name) for name in ("old", "new")]
        for table, uri in zip(tables, uris, strict=True):
            lance_io.write_dataset(table, uri)
    finally:
        pa.unregister_extension_type(line.extension_name)
        pa.unregister_extension_type(label.extension_name)
    old, new = (lance_io.dataset(uri).to_table() for uri in uris)
    assert old.schema.field("line").metadata[b"ARROW:extension:name"] == b"test.linestring"
    check(tmp_path, change, old, new, "2.2")


@pytest.mark.usefixtures("registered")
def test_columns_of_extension_types_are_added(tmp_path: Path) -> None:
    old, new = rows(EXTENSIONS, [1, 2, 3], depths=DEPTHS), rows(EXTENSIONS, [11, 12, 13], depths=DEPTHS)
    names = [name for name in new.column_names if name not in ("id", "y")]
    given = new.select(names).rename_columns([f"new {name}" for name in names])
    batch = given.combine_chunks().to_batches()[0]
    changes = [
        lambda dataset: dataset.add_columns(given.to_reader()),
        lambda dataset: dataset.add_columns(lambda one: batch.slice(0, one.num_rows), read_columns=["id"]),
        lambda dataset: dataset.merge(given.add_column(0, "id", old["id"]), "id"),
    ]
    for number, add in enumerate(changes):
        uri = str(tmp_path / str(number))
        add(lance_io.write_dataset(old, uri))
        found = lance_io.dataset(uri).to_table()
        assert found.select(old.column_names).to_pylist() == old.to_pylist()
        assert found.select(given.column_names).to_pylist() == given.to_pylist()
        shared = [name for name in found.column_names if "bfloat16" not in name]
        assert lance.dataset(uri).to_table(columns=shared).to_pylist() == found.select(shared).to_pylist()


def test_values_of_extension_types_by_updates(tmp_path: Path) -> None:
    first, second = (rows(EXTENSIONS, ids) for ids in ([1, 2, 3], [4, 5, 6]))
    names = [name for name in first.column_names if name not in ("id", "y", "line", "label")]
    table = first.select(["id", *names])
    nullable = pa.schema([field.with_nullable(True) for field in table.schema])
    table = pa.Table.from_arrays(table.columns, schema=nullable)
    for name in names:
        table = table.append_column(f"other {name}", second[name])
    for value, right in (("`other {}`", second), ("null", None)):
        uri = str(tmp_path / str(value == "null"))
        lance_io.write_dataset(table, uri)
        lance_io.dataset(uri).update({name: value.format(name) for name in names})
        found = lance_io.dataset(uri).to_table(columns=names)
        assert found.to_pylist() == ([dict.fromkeys(names)] * 3 if right is None else right.select(names).to_pylist())
        shared = [name for name in names if "bfloat16" not in name]
        assert lance.dataset(uri).to_table(columns=shared).to_pylist() == found.select(shared).to_pylist()


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
def test_rows_of_extension_types_that_nobody_registered(tmp_path: Path, change: Any) -> None:
    """Rows come with the types, which Arrow does not give back."""
    columns = {name: EXTENSIONS[name] for name in ("line", "label")}
    old, new = (rows(columns, ids, depths=DEPTHS) for ids in ([1, 2, 3], _ids(change)))
    check(tmp_path, change, old, new, "2.2")
