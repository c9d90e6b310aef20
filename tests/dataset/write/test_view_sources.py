"""Rows that come in layouts from which Arrow cannot take rows: views are taken by every change, others are refused.

A change with views makes the table that the same change with plain text and bytes makes, which pylance reads.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_io
from lance_io import AsyncDataset
from lance_io.errors import BindError, LanceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LONG = "long enough to lie outside of the view"
TEXT, BYTES = pa.string_view(), pa.binary_view()
BASE = {
    "text": pa.array(["a", "b", None]),
    "bytes": pa.array([b"a", b"b", None]),
    "list": pa.array([["x"], [], None], pa.list_(pa.string())),
    "large list": pa.array([[b"x"], [], None], pa.large_list(pa.binary())),
    "struct": pa.array([{"m": "x", "n": 1}, None, {"m": None, "n": 3}]),
    "structs in lists": pa.array([[{"m": "x"}], [], None]),
    "map": pa.array([[("k", b"v")], [], None], pa.map_(pa.string(), pa.binary())),
    "json in lists": pa.ListArray.from_arrays(
        pa.array([0, 1, 1, 2], pa.int32()), pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}", None]))
    ),
    "opaque": pa.ExtensionArray.from_storage(pa.opaque(pa.string(), "t", "v"), pa.array(["a", None, "c"])),
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int16()), pa.array(["a", "b"])),
}


def _map_of_views(rows: list[Any]) -> pa.Array:
    ends = pa.array([0, 1, 2], pa.int32())
    keys, items = zip(*(row[0] for row in rows), strict=True)
    return pa.MapArray.from_arrays(ends, pa.array(keys, TEXT), pa.array(items, BYTES))


VIEWS = {
    "text": pa.array([LONG, "b"], TEXT),
    "bytes": pa.array([None, LONG.encode()], BYTES),
    "list": pa.array([["q", None, LONG], None], pa.list_(TEXT)),
    "large list": pa.array([None, [b"q", LONG.encode()]], pa.large_list(BYTES)),
    "struct": pa.array([{"m": LONG, "n": None}, None], pa.struct([("m", TEXT), ("n", pa.int64())])),
    "structs in lists": pa.array([None, [{"m": "q"}, None, {"m": LONG}]], pa.list_(pa.struct([("m", TEXT)]))),
    "map": _map_of_views([[(LONG, None)], [("k", LONG.encode())]]),
    "json in lists": pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()),
        pa.ExtensionArray.from_storage(pa.json_(TEXT), pa.array(["[1]", None], TEXT)),
    ),
    "opaque": pa.ExtensionArray.from_storage(pa.opaque(TEXT, "t", "v"), pa.array([LONG, None], TEXT)),
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int16()), pa.array(["a", LONG], TEXT)),
}


def plain(kind: str) -> pa.Array:
    """The same values, laid out as the table's."""
    dtype = BASE[kind].type
    if isinstance(dtype, pa.DictionaryType):
        return pa.DictionaryArray.from_arrays(VIEWS[kind].indices, pa.array(["a", LONG]))
    if isinstance(dtype, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(dtype, pa.array(VIEWS[kind].to_pylist(), dtype.storage_type))
    if kind == "json in lists":
        items = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["[1]", None]))
        return pa.ListArray.from_arrays(VIEWS[kind].offsets, items)
    return pa.array(VIEWS[kind].to_pylist(), dtype)


def upsert(dataset: Any, rows: pa.Table) -> None:
    dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)


def patch(dataset: Any, rows: pa.Table) -> None:
    dataset.merge_insert("id").when_matched_update_all().execute(rows.select(["id", "x"]))


def condition(dataset: Any, rows: pa.Table) -> None:
    dataset.merge_insert("id").when_matched_update_all("source.x is not null and target.y < 3").execute(rows)


def join(dataset: Any, rows: pa.Table) -> None:
    dataset.merge(rows.select(["id", "x"]).rename_columns(["id", "new"]), "id")


def pieces(dataset: Any, rows: pa.Table) -> None:
    """The same from several batches of a stream."""
    given = rows.select(["id", "x"]).rename_columns(["id", "new"])
    dataset.merge(pa.RecordBatchReader.from_batches(given.schema, given.to_batches(1)), "id")


def add(dataset: Any, rows: pa.Table) -> None:
    column = pa.chunked_array([*rows["x"].chunks, rows["x"].chunk(0).slice(0, 1)])
    dataset.add_columns(pa.table({"new": column}).to_reader())


def compute(dataset: Any, rows: pa.Table) -> None:
    values = pa.concat_tables([rows, rows.slice(0, 1)]).to_batches(1)

    def made(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"new": values[batch["id"][0].as_py() - 1].column("x")})

    dataset.add_columns(made, read_columns=["id"], batch_size=1)


def fragment(dataset: Any, rows: pa.Table) -> None:
    given = rows.select(["id", "x"]).rename_columns(["id", "new"])
    changed, schema = dataset.get_fragments()[0].merge(given, "id")
    lance_io.LanceDataset.commit(dataset.uri, lance_io.LanceOperation.Merge([changed], schema), read_version=1)


def replace(dataset: Any, rows: pa.Table) -> None:
    changed, fields = dataset.get_fragments()[0].update_columns(rows.select(["id", "x"]), left_on="id")
    operation = lance_io.LanceOperation.Update(updated_fragments=[changed], fields_modified=fields)
    lance_io.LanceDataset.commit(dataset.uri, operation, read_version=1)


CHANGES = [upsert, patch, condition, join, pieces, add, compute, fragment, replace]


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_changes_take_views(tmp_path: Path, change: Callable[[Any, pa.Table], None], version: str) -> None:
    for kind, base in BASE.items():
        if version == "2.0" and kind in (
            "map",
            "struct",
            "structs in lists",
        ):  # which it has no place for, nor for nulls of structs
            continue
        found = []
        for name, values in (("views", VIEWS[kind]), ("plain", plain(kind))):
            uri = str(tmp_path / f"{kind} {name}")
            table = pa.table({"id": [1, 2, 3], "x": base, "y": [1, 2, 3]})
            dataset = lance_io.write_dataset(table, uri, data_storage_version=version)
            change(dataset, pa.table({"id": [2, 4], "x": values, "y": [20, 40]}))
            found.append(lance_io.dataset(uri).to_table())
            if kind != "opaque":
                assert lance.dataset(uri).to_table().to_pylist() == found[-1].to_pylist()
        assert found[0].schema == found[1].schema, kind
        assert found[0].to_pylist() == found[1].to_pylist(), kind


@pytest.mark.parametrize("kind", ["text", "bytes", "list", "struct"])
def test_streams_on_a_loop(tmp_path: Path, kind: str) -> None:
    """Batches of an asynchronous iterable, and a table, by both faces' changes."""
    uri = str(tmp_path / "t")
    lance_io.write_dataset(pa.table({"id": [1, 2, 3], "x": BASE[kind]}), uri)
    rows = pa.table({"id": [2, 4], "x": VIEWS[kind]})

    async def batches() -> Any:
        for batch in rows.to_batches(1):
            yield batch

    async def change() -> None:
        dataset = await AsyncDataset.open(uri)
        merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        await merge.execute(batches(), schema=rows.schema)
        await dataset.merge(rows.rename_columns(["id", "new"]), "id")

    asyncio.run(change())
    found = {row["id"]: row for row in lance_io.dataset(uri).to_table().to_pylist()}
    new = VIEWS[kind].to_pylist()
    assert [found[i]["x"] for i in (1, 2, 4)] == [BASE[kind][0].as_py(), *new]
    assert [found[i]["new"] for i in (1, 2, 3, 4)] == [None, new[0], None, new[1]]


@pytest.mark.parametrize("kind", ["text", "bytes", "dictionary"])
def test_views_as_keys(tmp_path: Path, kind: str) -> None:
    uri = str(tmp_path / "t")
    lance_io.write_dataset(pa.table({"x": BASE[kind], "y": [1, 2, 3]}), uri)
    key = pa.DictionaryArray.from_arrays(pa.array([0], pa.int16()), pa.array(["b"], TEXT))
    keys = {"text": pa.array(["b"], TEXT), "bytes": pa.array([b"b"], BYTES), "dictionary": key}
    rows = pa.table({"x": keys[kind], "y": [20]})
    lance_io.dataset(uri).merge_insert("x").when_matched_update_all().execute(rows)
    lance_io.dataset(uri).merge(rows.rename_columns(["x", "z"]), "x")
    found = sorted(lance_io.dataset(uri).to_table(columns=["y", "z"]).to_pylist(), key=lambda row: row["y"])
    assert found == [{"y": 1, "z": None}, {"y": 3, "z": None}, {"y": 20, "z": 20}]


def test_operands_of_filters(tmp_path: Path) -> None:
    rows = pa.table({"s": ["a", LONG, None, "b"], "b": [b"a", None, b"b", LONG.encode()], "n": [1, 2, 3, None]})
    dataset = lance_io.write_dataset(rows, str(tmp_path / "t"))
    text, data, number = pc.field("s"), pc.field("b"), pc.field("n")
    few = pa.array([LONG, "b"], TEXT)
    coded = pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.uint8()), few)
    cases: list[tuple[pc.Expression, list[int]]] = [
        (text.isin(few), [1, 3]),
        (text.isin(coded), [1, 3]),
        (text.isin(pc.run_end_encode(pa.array([LONG, LONG, "b"]))), [1, 3]),
        (text == few[0], [1]),
        (text == coded[0], [3]),
        (text > few[1], [1]),
        (data.isin(pa.array([b"b", LONG.encode()], BYTES)), [2, 3]),
        (data == pa.scalar(LONG.encode(), BYTES), [3]),
        (number.isin(pc.run_end_encode(pa.array([1, 1, 3]))), [0, 2]),
        (number >= pc.run_end_encode(pa.array([2]))[0], [1, 2]),
    ]
    for expression, right in cases:
        assert dataset.to_table(filter=expression) == rows.take(pa.array(right, pa.int64())), str(expression)
    with pytest.raises(BindError, match="list"):
        dataset.to_table(filter=text.isin(pa.array([["a"]], pa.list_view(pa.string()))))


REFUSED = {
    "list view": pa.array([["q"], None], pa.list_view(pa.string())),
    "large list view": pa.array([["q"], None], pa.large_list_view(TEXT)),
    "runs": pc.run_end_encode(pa.array(["q", None])),
    "runs in lists": pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), pc.run_end_encode(pa.array(["q", None]))
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_no_table_holds_is_refused_by_one_sentence(tmp_path: Path, kind: str) -> None:
    uri = str(tmp_path / "t")
    base = BASE["text"] if kind == "runs" else BASE["list"]
    dataset = lance_io.write_dataset(pa.table({"id": [1, 2, 3], "x": base, "y": [1, 2, 3]}), uri)
    rows = pa.table({"id": [2, 4], "x": REFUSED[kind], "y": [20, 40]})
    changes = [*CHANGES, lambda dataset, rows: dataset.insert(rows)]
    changes.append(lambda dataset, rows: lance_io.write_dataset(rows, uri, mode="overwrite"))
    for change in changes:
        if change is compute or change is pieces:
            continue
        with pytest.raises(LanceError, match=r"list_view|run_end_encoded") as caught:
            change(dataset, rows)
        assert "\n" not in str(caught.value)
    assert lance_io.dataset(uri).version == 1
