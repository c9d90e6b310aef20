"""No change gives two columns, or two members of one struct, the same name: no path would lead to the second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset
from lance_io.errors import OperationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PAIR = pa.struct([("a", pa.int64()), ("b", pa.int64())])
TWINS = pa.struct([("a", pa.int64()), ("a", pa.int64())])
ROWS = pa.table(
    {
        "k": [1],
        "s": pa.array([{"a": 1, "b": 2}], PAIR),
        "l": pa.array([[{"a": 1, "b": 2}]], pa.list_(PAIR)),
        "ll": pa.array([[[{"a": 1, "b": 2}]]], pa.list_(pa.large_list(PAIR))),
        "o": pa.array([{"s": {"a": 1, "b": 2}, "x": 3}], pa.struct([("s", PAIR), ("x", pa.int64())])),
    }
)
MAPS = pa.table({"m": pa.array([[("x", {"a": 1, "b": 2})]], pa.map_(pa.string(), PAIR))})
PATHS = [("s.b", "a"), ("l.item.b", "a"), ("ll.item.item.b", "a"), ("o.s.b", "a"), ("o.x", "s"), ("k", "s")]


def refuse(uri: str, change: Callable[[], Any]) -> None:
    before, rows = lance.dataset(uri), lance_io.dataset(uri).to_table()
    files = {one.path for fragment in before.get_fragments() for one in fragment.data_files()}
    with pytest.raises(OperationError, match='Duplicate field name "'):
        change()
    after = lance.dataset(uri)
    assert (after.version, after.lance_schema.fields()) == (before.version, before.lance_schema.fields())
    assert lance_io.dataset(uri).to_table().equals(rows)
    assert {one.path for fragment in after.get_fragments() for one in fragment.data_files()} == files


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
def test_a_rename_to_the_name_of_a_sibling_is_refused(tmp_path: Path, version: str) -> None:
    uri = str(tmp_path / "t")
    table = lance_io.write_dataset(ROWS, uri, data_storage_version=version)
    for path, name in PATHS:
        refuse(uri, lambda path=path, name=name: table.alter_columns({"path": path, "name": name}))
    cast = {"path": "s.b", "name": "a", "data_type": pa.int32()}
    refuse(uri, lambda: table.alter_columns(cast))
    refuse(uri, lambda: table.alter_columns({"path": "s.a", "name": "c"}, {"path": "s.b", "name": "c"}))
    table.alter_columns({"path": "s.a", "name": "b"}, {"path": "s.b", "name": "a"}, {"path": "o.x", "name": "X"})
    table.alter_columns({"path": "s.b", "name": "b"}, {"path": "l.item.b", "name": "B"})
    assert lance.dataset(uri).to_table()["s"].to_pylist() == [{"b": 1, "a": 2}]


def test_members_of_maps(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table = lance_io.write_dataset(MAPS, uri)
    for path, name in (("m.entries.key", "value"), ("m.entries.value", "key"), ("m.entries.value.b", "a")):
        refuse(uri, lambda path=path, name=name: table.alter_columns({"path": path, "name": name}))
    table.alter_columns({"path": "m.entries.value.b", "name": "c"})
    assert lance.dataset(uri).to_table()["m"].to_pylist() == [[("x", {"a": 1, "c": 2})]]


async def test_both_faces(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance_io.write_dataset(ROWS, uri)
    table = await AsyncDataset.open(uri)
    for path, name in PATHS:
        with pytest.raises(OperationError, match='Duplicate field name "'):
            await table.alter_columns({"path": path, "name": name})
    assert (table.version, lance.dataset(uri).version) == (1, 1)


@pytest.mark.filterwarnings("ignore:Passing a pyarrow.Schema:DeprecationWarning")
def test_transactions_that_bring_a_schema(tmp_path: Path) -> None:
    """A Project with ids, and a Merge by names: a member that is added to its namesake."""
    uri, other = str(tmp_path / "t"), str(tmp_path / "other")
    lance_io.write_dataset(ROWS.select(["s"]), uri)
    operation, commit = lance_io.LanceOperation, lance_io.LanceDataset.commit
    twins = lance_io.write_dataset(pa.table({"s": pa.array([None], TWINS)}), other).lance_schema
    refuse(uri, lambda: commit(uri, operation.Project(twins), read_version=1))
    fragments = [one.metadata for one in lance_io.dataset(uri).get_fragments()]
    schema = pa.schema([("s", pa.struct([*PAIR, ("a", pa.string())]))])
    refuse(uri, lambda: commit(uri, operation.Merge(fragments, schema), read_version=1))


@pytest.mark.parametrize("library", [lance_io, lance])
def test_members_that_share_a_name_already(tmp_path: Path, library: Any) -> None:
    """Any change is possible but to give it to a third; renaming sets them apart."""
    uri = str(tmp_path / "t")
    rows = pa.table({"s": pa.StructArray.from_arrays([pa.array([i]) for i in range(3)], ["a", "a", "b"]), "k": [1]})
    library.write_dataset(rows, uri)
    table = lance_io.dataset(uri)
    table.add_columns({"n": "k"})
    table.alter_columns({"path": "k", "name": "z"}, {"path": "s.b", "name": "c"})
    refuse(uri, lambda: table.alter_columns({"path": "s.c", "name": "a"}))
    refuse(uri, lambda: table.alter_columns({"path": "s.a", "name": "c"}))
    table.alter_columns({"path": "s.a", "name": "first"})
    assert lance_io.dataset(uri).to_table()["s"].to_pylist() == [{"first": 0, "a": 1, "c": 2}]


VECTORS = pa.table(
    {
        "v": pa.array([[{"a": 1, "b": 2}] * 2, None], pa.list_(PAIR, 2)),
        "o": pa.array([{"v": [{"a": 1, "b": 2}] * 2}, {"v": None}], pa.struct([("v", pa.list_(PAIR, 2))])),
    }
)


@pytest.mark.parametrize(("path", "top"), [("v.item", "v"), ("o.v.item", "o")])
def test_members_of_structs_in_vectors_are_changed_as_by_pylance(tmp_path: Path, path: str, top: str) -> None:
    changes: list[Callable[[Any], Any]] = [
        lambda table: table.alter_columns({"path": f"{path}.a", "name": "c"}),
        lambda table: table.alter_columns({"path": f"{path}.a", "name": "b"}, {"path": f"{path}.b", "name": "a"}),
        lambda table: table.alter_columns({"path": f"{path}.b", "data_type": pa.int32()}),
        lambda table: table.alter_columns({"path": f"{path}.b", "nullable": True}),
        lambda table: table.drop_columns([f"{path}.a"]),
    ]
    for number, change in enumerate(changes):
        found = []
        for one in (lance_io, lance):
            uri = str(tmp_path / f"{one.__name__}{number}")
            lance_io.write_dataset(VECTORS, uri)
            change(one.dataset(uri))
            table = lance_io.dataset(uri)  # pylance does not read such columns beside others
            assert table.take([0, 1]) == table.to_table()
            found.append((table.schema, table.to_table()[top].to_pylist()))
        assert found[0] == found[1], number
    uri = str(tmp_path / "refused")
    table = lance_io.write_dataset(VECTORS, uri)
    with pytest.raises(OperationError, match='Duplicate field name "'):
        table.alter_columns({"path": f"{path}.a", "name": "b"})
    assert lance_io.dataset(uri).to_table() == VECTORS
    with pytest.raises(OperationError, match="does not exist"):
        table.alter_columns({"path": f"{path}.nope", "name": "b"})
