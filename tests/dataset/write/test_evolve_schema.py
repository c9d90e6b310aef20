"""Columns that are added, altered and dropped: the same call of both libraries gives the same table."""

from __future__ import annotations

import datetime
import shutil
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import lance
import lance.file
import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset
from lance_io.errors import CommitConflictError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Change = Callable[[Any], Any]

N = 8
ROWS = pa.table(
    {
        "a": [1, 2, None, 4, 5, 6, 7, 8],
        "b": list("xyzwvuts"),
        "st": [{"x": i, "y": "q"} if i != 2 else None for i in range(N)],
        "l": [[i, None] if i else None for i in range(N)],
        "Camel": range(N),
    }
)
DAY = datetime.datetime(2020, 1, 1, 3, 4, 5, 678901)
TYPED = pa.table(
    {
        "i32": pa.array([1, 2, None, -4, 300, 6, 7, 8], pa.int32()),
        "u8": pa.array(range(N), pa.uint8()),
        "i64": pa.array([1 << 40] * N),
        "f64": pa.array([1.5, 2.25, None, 1e300, -0.0, float("nan"), 1e-300, 3.0]),
        "f16": pa.array([1.5] * N, pa.float32()).cast(pa.float16()),
        "s": ["a", "b", None, "a", "b", None, "x", "y"],
        "ls": pa.array(["a"] * N, pa.large_string()),
        "ds": pa.array(["a", "b"] * 4).dictionary_encode(),
        "b": [b"a"] * N,
        "d32": [datetime.date(2020, 1, i + 1) for i in range(N)],
        "d64": pa.array([datetime.date(2020, 1, 1)] * N, pa.date64()),
        "ts": pa.array([DAY] * N, pa.timestamp("us")),
        "tz": pa.array([DAY] * N, pa.timestamp("us", "Europe/Berlin")),
        "dec": pa.array([Decimal("1.255"), Decimal("-1.255"), None, Decimal("0.004")] * 2, pa.decimal128(10, 3)),
        "bo": [True] * N,
        "v": pa.array([[1.5, 2.5]] * N, pa.list_(pa.float32(), 2)),
        "l": pa.array([[1, 2], None, [], [3]] * 2, pa.list_(pa.int32())),
        "st": pa.array([{"x": 1, "y": "q"}, None] * 4, pa.struct([("x", pa.int32()), ("y", pa.string())])),
        "lst": pa.array([[{"x": 1}], None] * 4, pa.list_(pa.struct([("x", pa.int32())]))),
    }
)
TYPES = (
    *(pa.int8(), pa.int16(), pa.int64(), pa.uint32(), pa.float16(), pa.float32(), pa.float64(), pa.string()),
    *(pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.binary(), pa.large_binary(), pa.date32()),
    *(pa.date64(), pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("ms", "UTC"), pa.decimal128(12, 2)),
    *(pa.decimal128(5, 3), pa.bool_(), pa.list_(pa.float64(), 2), pa.list_(pa.float32(), 3), pa.list_(pa.float32())),
    *(pa.list_(pa.int64()), pa.large_list(pa.int32()), pa.time32("s"), pa.duration("s")),
)


def drop(*columns: Any) -> Change:
    return lambda table: table.drop_columns([*columns])


def alter(*alterations: dict[str, Any]) -> Change:
    return lambda table: table.alter_columns(*alterations)


def add(transforms: Any, **options: Any) -> Change:
    return lambda table: table.add_columns(transforms, **options)


CHANGES: dict[str, Change] = {
    "drop one": drop("a"),
    "drop two": drop("a", "b"),
    "drop none": drop(),
    "drop twice": drop("a", "a"),
    "drop quoted": drop("`b`"),
    "drop a member": drop("st.x"),
    "drop all members": drop("st.x", "st.y"),
    "drop items": drop("l.item"),
    "drop a struct and its member": drop("st", "st.x"),
    "drop and add again": lambda table: (table.drop_columns(["Camel"]), table.add_columns({"Camel": "a"})),
    "rename": alter({"path": "a", "name": "z"}),
    "swap names": alter({"path": "a", "name": "b"}, {"path": "b", "name": "a"}),
    "rename twice": alter({"path": "a", "name": "z"}, {"path": "a", "name": "y"}),
    "cast what has metadata": lambda table: (
        table.update_field_metadata({"a": {"k": "1"}, "st.x": {"k": "2"}, "st.y": {"k": "3"}, "l": {"k": "4"}}),
        alter({"path": "a", "data_type": pa.int32(), "name": "z"}, {"path": "st.x", "data_type": pa.int32()})(table),
        alter({"path": "l", "data_type": pa.large_list(pa.int64())})(table),
    ),
    "rename a member": alter({"path": "st.x", "name": "w"}),
    "rename items": alter({"path": "l.item", "name": "element"}),
    "forbid nulls": alter({"path": "b", "nullable": False}),
    "forbid nulls and rename": alter({"path": "Camel", "nullable": False, "name": "c"}),
    "allow nulls": lambda table: (
        alter({"path": "b", "nullable": False})(table),
        alter({"path": "b", "nullable": True})(table),
    ),
    "alter nothing": alter(),
    "add a field": add(pa.field("n", pa.int32())),
    "add two fields": add([pa.field("n", pa.int32()), pa.field("m", pa.string())]),
    "add a schema": add(pa.schema([pa.field("n", pa.struct([("q", pa.int32())]))], metadata={"k": "v"})),
    "add an empty schema": add(pa.schema([])),
    "add a field with metadata": add(pa.field("n", pa.int32(), metadata={"k": "v"})),
    "add vectors": add(pa.field("v", pa.list_(pa.float32(), 4))),
    "add a member": add(pa.field("st", pa.struct([("z", pa.int64())]))),
    "add another case": add(pa.field("A", pa.int32())),
    "add computed": add({"c": "a * 2"}),
    "add computed in small batches": add({"c": "a * 2"}, batch_size=1),
    "add two computed": add({"c": "a", "d": "concat(b, '!')"}),
    "add a literal": add({"c": "5"}),
    "add a text": add({"c": "'t'"}),
    "add null": add({"c": "null"}),
    "add a condition": add({"c": "a is null and not (b is null)"}),
    "add a comparison": add({"c": "a > 3"}),
    "add a struct": add({"c": "st"}),
    "add a list": add({"c": "l"}),
    "add of a member": add({"c": "st.x + 1"}),
    "add a computed member": add({"st": "named_struct('z', a)"}),
    "add no expression": add({}),
    "add, then cast": lambda table: (add({"c": "a"})(table), alter({"path": "c", "data_type": pa.int32()})(table)),
    "cast a member": alter({"path": "st.x", "data_type": pa.int32()}),
    "cast items": alter({"path": "l.item", "data_type": pa.int16()}),
    "cast and rename": alter({"path": "a", "data_type": pa.int32(), "name": "z"}, {"path": "b", "name": "y"}),
    "cast two": alter({"path": "a", "data_type": pa.int32()}, {"path": "b", "data_type": pa.large_string()}),
}
OF_2_0 = ["drop a member", "drop items", "rename items", "add a struct", "add a list", "cast and rename", "cast items"]
REFUSED: dict[str, Change] = {
    "drop what is not there": drop("zz"),
    "drop a member that is not there": drop("st.zz"),
    "drop another case": drop("A"),
    "drop all": drop("a", "b", "st", "l", "Camel"),
    "drop a text": lambda table: table.drop_columns("a"),
    "rename to another's name": alter({"path": "a", "name": "b"}),
    "rename to a path": alter({"path": "a", "name": "x.y"}),
    "rename what is not there": alter({"path": "zz", "name": "q"}),
    "no change": alter({"path": "a"}),
    "no path": alter({"name": "q"}),
    "unknown key": alter({"path": "a", "bogus": 1}),
    "name that is no text": alter({"path": "a", "name": 5}),
    "type that is none": alter({"path": "a", "data_type": "int32"}),
    "forbid nulls that are there": alter({"path": "a", "nullable": False}),
    "forbid nulls of a member": alter({"path": "st.y", "nullable": False}),
    "cast and forbid nulls": alter({"path": "a", "data_type": pa.int32(), "nullable": False}),
    "cast a struct": alter({"path": "st", "data_type": pa.int32()}),
    "add what is there": add(pa.field("a", pa.int32())),
    "add a member that is there": add(pa.field("st", pa.struct([("x", pa.int64()), ("z", pa.int64())]))),
    "add a list that is there": add(pa.field("l", pa.list_(pa.int64()))),
    "add without nulls": add(pa.field("n", pa.int32(), nullable=False)),
    "add a path": add(pa.field("x.y", pa.int32())),
    "add one name twice": add([pa.field("n", pa.int32()), pa.field("n", pa.int32())]),
    "add nothing": add([]),
    "add a number": add(5),
    "add computed that is there": add({"a": "1"}),
    "add of what is not there": add({"c": "zz"}),
    "add of another new one": add({"c": "d", "d": "a"}),
    "add a row id": add({"c": "_rowid"}),
    "add no text": add({"c": 1}),
    "add what cannot be computed": add({"c": "1 / 0"}),
}


def facts(uri: str) -> dict[str, Any]:
    """What pylance sees in the newest version."""
    table = lance.dataset(uri)
    operation = table.read_transaction(table.version).operation
    shown = [*table.schema.names, "_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version"]
    return {
        "version": table.version,
        "schema": table.schema,
        "schema metadata": table.schema.metadata,
        "metadata": [field.metadata for field in table.schema],
        "ids": [(field.name(), field.id()) for field in table.lance_schema.fields()],
        "rows": repr(table.to_table(columns=shown).to_pydict()),
        "files": [[(one.fields, one.column_indices) for one in each.metadata.files] for each in table.get_fragments()],
        "operation": type(operation).__name__,
        "preserving": getattr(operation, "preserves_nullability", None),
    }


def pair(path: Path, rows: pa.Table = ROWS, **options: Any) -> tuple[str, str]:
    """The same table twice: two fragments, which have deleted rows at their beginning, in the middle and at the end."""
    theirs, ours = path / "theirs", path / "ours"
    table = lance.write_dataset(rows, str(theirs), max_rows_per_file=4, **options)
    table.delete(f"{'u8' if rows is TYPED else 'Camel'} in (0, 4, 5, 7)")
    shutil.copytree(theirs, ours)
    return str(theirs), str(ours)


def without_null_structs(rows: pa.Table) -> pa.Table:
    """Structs that are there, of null members, where none were: 2.0 has no others."""
    structs = rows["st"].combine_chunks()
    there = pa.StructArray.from_arrays(structs.flatten(), fields=list(structs.type))
    return rows.set_column(rows.schema.get_field_index("st"), "st", there)


@pytest.mark.parametrize(("name", "version"), [(name, None) for name in CHANGES] + [(name, "2.0") for name in OF_2_0])
def test_changes_are_those_of_pylance(tmp_path: Path, name: str, version: str | None) -> None:
    rows = ROWS if version is None else without_null_structs(ROWS)
    theirs, ours = pair(tmp_path, rows, enable_stable_row_ids=True, data_storage_version=version)
    CHANGES[name](lance.dataset(theirs))
    table = lance_io.dataset(ours)
    CHANGES[name](table)
    assert facts(ours) == facts(theirs)
    assert table.to_table().equals(lance.dataset(ours).to_table())
    lance.write_dataset(table.to_table(), ours, mode="append")
    assert lance_io.dataset(ours).count_rows() == 2 * table.count_rows()


@pytest.mark.parametrize("name", REFUSED)
def test_what_pylance_refuses_is_refused_in_the_same_way(tmp_path: Path, name: str) -> None:
    theirs, ours = pair(tmp_path)
    with pytest.raises(Exception) as refused:
        REFUSED[name](lance.dataset(theirs))
    before = {one for one in (tmp_path / "ours" / "data").iterdir()}
    with pytest.raises(refused.type):
        REFUSED[name](lance_io.dataset(ours))
    assert lance_io.dataset(ours).version == 2
    assert {one for one in (tmp_path / "ours" / "data").iterdir()} == before, "a file of a failed change stayed"


@pytest.mark.parametrize("name", ["", "_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version"])
def test_names_that_make_a_table_unreadable_are_refused(tmp_path: Path, name: str) -> None:
    _, ours = pair(tmp_path)
    table = lance_io.dataset(ours)
    for change in (alter({"path": "a", "name": name}), add(pa.field(name, pa.int32())), add({name: "a"})):
        with pytest.raises(OSError, match=r"reserved|needs a name"):
            change(table)
    assert table.version == 2


@pytest.mark.parametrize("column", [name for name in TYPED.column_names if name not in ("st", "lst")])
def test_casts_are_those_of_pylance(tmp_path: Path, column: str) -> None:
    theirs, ours = pair(tmp_path, TYPED)
    for to in TYPES:
        if to == TYPED.schema.field(column).type:
            continue  # pylance writes the same values again
        change = alter({"path": column, "data_type": to})
        outcomes = []
        for library, uri in ((lance, theirs), (lance_io, ours)):
            table = library.dataset(uri)
            table.checkout_version(2).restore()
            try:
                change(library.dataset(uri))
            except OSError:
                outcomes.append("refused")
                continue
            found = lance.dataset(uri)
            outcomes.append((found.schema.field(column), repr(found.to_table(columns=[column])[column].to_pylist())))
        assert outcomes[0] == outcomes[1], to


def test_deleted_rows_have_a_value_where_there_may_be_no_null(tmp_path: Path) -> None:
    _, ours = pair(tmp_path)
    lance_io.dataset(ours).add_columns({"c": "5", "d": "Camel"})
    table = lance.dataset(ours)
    assert not table.schema.field("c").nullable
    written = [
        lance.file.LanceFileReader(f"{ours}/data/{one.metadata.files[-1].path}").read_all().to_table().to_pydict()
        for one in table.get_fragments()
    ]
    assert written == [{"c": [5] * 4, "d": [1, 1, 2, 3]}, {"c": [5] * 4, "d": [6] * 4}]


def test_an_indexed_column_is_not_cast(tmp_path: Path) -> None:
    theirs, ours = pair(tmp_path)
    for uri in (theirs, ours):
        lance.dataset(uri).create_scalar_index("Camel", "BTREE")
    for library, uri in ((lance, theirs), (lance_io, ours)):
        with pytest.raises(OSError, match="drop_index"):
            library.dataset(uri).alter_columns({"path": "Camel", "data_type": pa.int32()})
    lance_io.dataset(ours).alter_columns({"path": "a", "data_type": pa.int32()})
    assert lance.dataset(ours).schema.field("a").type == pa.int32()


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_files_of_every_version(tmp_path: Path, version: str) -> None:
    theirs, ours = pair(tmp_path, ROWS.drop_columns(["st"]), data_storage_version=version)
    for library, uri in ((lance, theirs), (lance_io, ours)):
        table = library.dataset(uri)
        table.add_columns({"c": "a * 2"})
        table.alter_columns({"path": "c", "data_type": pa.int16()})
        table.drop_columns(["b"])
    assert facts(ours) == facts(theirs)


def test_tables_of_version_0_1(tmp_path: Path) -> None:
    theirs, ours = pair(tmp_path, ROWS.select(["a", "b", "Camel"]), data_storage_version="legacy")
    for library, uri in ((lance, theirs), (lance_io, ours)):
        table = library.dataset(uri)
        with pytest.raises(OSError, match="legacy"):
            table.add_columns(pa.field("n", pa.int32()))
        table.alter_columns({"path": "a", "name": "z"})
        table.drop_columns(["b"])
        table.add_columns({"c": "z"})
        table.alter_columns({"path": "z", "data_type": pa.int32()})
    assert facts(ours) == facts(theirs)


def test_columns_whose_ids_are_not_given_again(tmp_path: Path) -> None:
    """Dropped with the whole file: without a mark pylance gives the id again, with one it does not."""
    theirs, ours = pair(tmp_path)
    for library, uri in ((lance, theirs), (lance_io, ours)):
        table = library.dataset(uri)
        table.add_columns({"c": "a"})
        table.drop_columns(["c"])
        table.add_columns({"d": "a"})
    assert facts(ours) == facts(theirs)


@pytest.mark.parametrize("library", [lance, lance_io])
def test_a_stale_handle_is_a_conflict_where_it_is_one_in_pylance(tmp_path: Path, library: Any) -> None:
    _, ours = pair(tmp_path)
    stale, other = lance_io.dataset(ours), library.dataset(ours)
    other.insert(ROWS)
    with pytest.raises(CommitConflictError):
        stale.add_columns({"c": "a"})
    stale.drop_columns(["b"])
    assert stale.count_rows() == 4 + N
    assert "b" not in lance.dataset(ours).schema.names


async def test_the_asynchronous_methods(tmp_path: Path) -> None:
    theirs, ours = pair(tmp_path)
    table = await AsyncDataset.open(ours)
    await table.add_columns({"c": "a * 2"})
    await table.alter_columns({"path": "c", "name": "d"})
    await table.drop_columns(["b"])
    other = lance.dataset(theirs)
    other.add_columns({"c": "a * 2"})
    other.alter_columns({"path": "c", "name": "d"})
    other.drop_columns(["b"])
    assert facts(ours) == facts(theirs)
