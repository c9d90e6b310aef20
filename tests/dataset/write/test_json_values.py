"""JSON columns in changes: what may become their values, at any depth, in every file version, on both faces."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset
from lance_io.errors import BindError, OperationError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

VERSIONS = ["0.1", "2.0", "2.1", "2.2"]
J, OTHER = ['{"a":1}', None, "[1]"], ['{"k":1}', None, "[3]"]
TEXT = ["{}", "[1]", "null"]


def documents(texts: Sequence[str | None], storage: pa.DataType | None = None) -> pa.Array:
    dtype = pa.json_() if storage is None else pa.json_(storage)
    return pa.ExtensionArray.from_storage(dtype, pa.array(texts, dtype.storage_type))


def nested(kind: str, items: pa.Array) -> pa.Array:
    """One item in each row."""
    ends = pa.array(range(len(items) + 1), pa.int32())
    match kind:
        case "list":
            return pa.ListArray.from_arrays(ends, items)
        case "large list":
            return pa.LargeListArray.from_arrays(ends.cast(pa.int64()), items)
        case "struct":
            return pa.StructArray.from_arrays([items, pa.array(range(len(items)), pa.int64())], ["j", "n"])
        case "structs in lists":
            return pa.ListArray.from_arrays(ends, nested("struct", items))
        case "map":
            return pa.MapArray.from_arrays(ends, pa.array([f"k{i}" for i in range(len(items))]), items)
        case _:
            return items


def table(version: str) -> pa.Table:
    large = pa.array(TEXT, pa.large_string())
    columns: dict[str, Any] = {"id": [1, 2, 3], "j": documents(J), "other": documents(OTHER), "text": TEXT}
    columns |= {"large": large, "coded": large.cast(pa.string()).dictionary_encode(), "raw": pa.array([b"\0"] * 3)}
    if version != "0.1":
        columns |= {
            "list": pa.array([[0], [], [1]]).cast(pa.list_(pa.int8())),
            "jl": nested("list", documents(J)),
            "tl": pa.array([["{}"], None, ["[1]", None]]),
            "js": nested("struct", documents(J)),
        }
    return pa.table(columns)


def update(uri: str, values: dict[str, str], face: str) -> None:
    if face == "sync":
        lance_io.dataset(uri).update(values)
        return

    async def run() -> None:
        dataset = await AsyncDataset.open(uri)
        await dataset.update(values)

    asyncio.run(run())


RIGHT: dict[tuple[str, str], list[Any]] = {
    ("j", "'{\"b\": 2.50}'"): ['{"b":2.5}'] * 3,
    ("j", "''"): ["null"] * 3,
    ("j", "null"): [None] * 3,
    ("j", "other"): OTHER,
    ("j", "j"): J,
    ("j", "text"): TEXT,
    ("j", "large"): TEXT,
    ("j", "coded"): TEXT,
    ("j", "concat('[', id, ']')"): ["[1]", "[2]", "[3]"],
    ("j", "nullif(text, '{}')"): [None, "[1]", "null"],
    ("j", "coalesce(other, j)"): OTHER,
    ("j", "json_get(other, 'k')"): ["1", None, None],
    ("j", "json_extract(other, '$.k')"): ["1", None, None],
    ("text", "json_extract(j, '$.a')"): ["1", None, None],
}
NESTED: dict[tuple[str, str], list[Any]] = {
    ("j", "js.j"): J,
    ("j", "jl[1]"): J,
    ("js", "js"): [{"j": one, "n": n} for n, one in enumerate(J)],
    ("js", "named_struct('j', other, 'n', 5)"): [{"j": one, "n": 5} for one in OTHER],
    ("js", "named_struct('j', text, 'n', id)"): [{"j": one, "n": n} for n, one in enumerate(TEXT, 1)],
    ("js", "named_struct('j', '[5]', 'n', 5)"): [{"j": "[5]", "n": 5}] * 3,
    ("js", "named_struct('j', null, 'n', 1)"): [{"j": None, "n": 1}] * 3,
    ("jl", "null"): [None] * 3,
    ("jl", "jl"): [[one] for one in J],
    ("jl", "tl"): [["{}"], None, ["[1]", None]],
    ("jl", "make_array(other, j)"): [[one, two] for one, two in zip(OTHER, J, strict=True)],
    ("jl", "array_append(jl, other)"): [[one, two] for one, two in zip(J, OTHER, strict=True)],
}
OURS: dict[tuple[str, str], list[Any]] = {  # pylance fails, or stores the bytes of documents as text
    ("text", "j"): J,
    ("text", "json_get(other, 'k')"): ["1", None, None],
}
OURS_NESTED: dict[tuple[str, str], list[Any]] = {
    ("js", "named_struct('j', '[ 5]', 'n', 5)"): [{"j": "[5]", "n": 5}] * 3,
    ("coded", "other"): OTHER,
    ("jl", "['[5]']"): [["[5]"]] * 3,
    ("jl", "[text]"): [[one] for one in TEXT],
    ("jl", "make_array(null)"): [[None]] * 3,
}


@pytest.mark.parametrize("version", VERSIONS)
def test_values_of_an_update(tmp_path: Path, version: str) -> None:
    cases = RIGHT | OURS if version == "0.1" else RIGHT | NESTED | OURS | OURS_NESTED
    if version > "2.0":  # which stores no nulls of structs
        cases = cases | {("js", "null"): [None] * 3}
    for number, ((column, expression), right) in enumerate(cases.items()):
        ours, theirs = str(tmp_path / f"ours{number}"), str(tmp_path / f"theirs{number}")
        lance_io.write_dataset(table(version), ours, data_storage_version=version)
        update(ours, {column: expression}, "async" if number % 2 else "sync")
        assert lance_io.dataset(ours).to_table()[column].to_pylist() == right, (column, expression)
        assert lance.dataset(ours).to_table()[column].to_pylist() == right, (column, expression)
        if version == "2.2" and (column, expression) in RIGHT | NESTED:
            lance.write_dataset(table(version), theirs, data_storage_version=version)
            lance.dataset(theirs).update({column: expression})
            assert lance.dataset(theirs).to_table()[column].to_pylist() == right, (column, expression)


def test_some_rows_get_a_document(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance_io.write_dataset(table("2.2"), uri)
    lance_io.dataset(uri).update({"j": "'[9]'", "text": "other"}, where="json_get_int(j, 'a') = 1")
    found = lance_io.dataset(uri).to_table(columns=["id", "j", "text"]).sort_by("id")
    assert found["j"].to_pylist() == ["[9]", *J[1:]]
    assert found["text"].to_pylist() == [OTHER[0], *TEXT[1:]]


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"j": "5"}, BindError),
        ({"j": "id"}, BindError),
        ({"j": "true"}, BindError),
        ({"j": "1.5"}, BindError),
        ({"j": "json_get_int(j, 'a')"}, BindError),
        ({"j": "X'00'"}, BindError),
        ({"j": "raw"}, OperationError),
        ({"j": "'{bad'"}, BindError),
        ({"j": "concat('{', text)"}, OperationError),
        ({"jl": "list"}, BindError),
        ({"js": "named_struct('j', id, 'n', 1)"}, BindError),
        ({"js": "named_struct('k', j, 'n', 1)"}, BindError),
    ],
)
def test_what_is_no_document(tmp_path: Path, values: dict[str, str], error: type[Exception]) -> None:
    uri = str(tmp_path / "t")
    before = lance_io.write_dataset(table("2.2"), uri)
    with pytest.raises(error, match="JSON"):
        lance_io.dataset(uri).update(values)
    assert lance_io.dataset(uri).version == before.version


def rows(kind: str, ids: list[int], items: pa.Array) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "x": nested(kind, items), "y": [10 * i for i in ids]})


KINDS = ["top", "list", "large list", "struct", "structs in lists", "map"]


def upsert(dataset: Any, source: pa.Table) -> None:
    dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(source)


def patch(dataset: Any, source: pa.Table) -> None:
    dataset.merge_insert("id").when_matched_update_all().execute(source.select(["id", "x"]))


def join(dataset: Any, source: pa.Table) -> None:
    dataset.merge(source.select(["id", "x"]).rename_columns(["id", "x2"]), "id")


def add(dataset: Any, source: pa.Table) -> None:
    dataset.add_columns(source.select(["x"]).rename_columns(["x2"]).to_reader())


def replace(dataset: Any, source: pa.Table) -> None:
    """New values for a fragment's column, committed."""
    library = lance if isinstance(dataset, lance.LanceDataset) else lance_io
    (fragment,) = dataset.get_fragments()
    changed, fields = fragment.update_columns(source.select(["id", "x"]), left_on="id")
    operation = library.LanceOperation.Update(updated_fragments=[changed], fields_modified=fields)
    library.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", [upsert, patch, join, add, replace], ids=lambda one: one.__name__)
def test_changes_with_rows(tmp_path: Path, kind: str, change: Callable[[Any, pa.Table], None]) -> None:
    source = rows(kind, [1, 2, 4], documents(['{"v":3}', '{"v": 4}', None]))
    found = []
    for library, uri in ((lance_io, str(tmp_path / "ours")), (lance, str(tmp_path / "theirs"))):
        lance.write_dataset(rows(kind, [1, 2, 3], documents(['{"v":1}', None, '{"v":5}'])), uri)
        change(library.dataset(uri), source)
        found.append(lance_io.dataset(uri).to_table())
    assert found[0].schema == found[1].schema
    assert found[0].sort_by("id").to_pylist() == found[1].sort_by("id").to_pylist()


@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_conditions_of_a_merge_see_documents(tmp_path: Path, version: str) -> None:
    uri = str(tmp_path / "t")
    target = pa.table(
        {"id": [1, 2, 3], "j": documents(['{"v":1}', '{"v":9}', None]), "l": nested("list", documents(J))}
    )
    source = pa.table(
        {"id": [1, 2], "j": documents(['{"v":3}', '{"v":4}']), "l": nested("list", documents(["[]", "{}"]))}
    )
    lance_io.write_dataset(target, uri, data_storage_version=version)
    condition = "json_get_int(source.j, 'v') > json_get_int(target.j, 'v') and json_extract(source.l[1], '$') = '[]'"
    lance_io.dataset(uri).merge_insert("id").when_matched_update_all(condition).execute(source)
    found = lance_io.dataset(uri).to_table().sort_by("id")
    assert found["j"].to_pylist() == ['{"v":3}', '{"v":9}', None]
    bad = source.set_column(1, "j", documents(["{bad", "{}"]))
    with pytest.raises(OperationError, match="condition on the source cannot be computed"):
        lance_io.dataset(uri).merge_insert("id").when_matched_update_all(condition).execute(bad)
    lance_io.dataset(uri).merge_insert("id").when_not_matched_by_source_delete("json_get_int(j, 'v') is null").execute(
        source
    )
    assert sorted(lance_io.dataset(uri).to_table()["id"].to_pylist()) == [1, 2]


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_texts_that_pylance_stored_as_documents(tmp_path: Path, version: str) -> None:
    """What its updates make of text inside of others. It shows them as they are, and panics at those behind blanks."""
    uri = str(tmp_path / "t")
    texts = ["[ 5]", '"a"', "7", "null", "true", "-1", "", None, '{"v":"\\u00e9"}', ' {"v": [1, 2.50]}', " 7"]
    given = pa.concat_tables([table(version).slice(0, 1)] * len(texts))
    given = given.set_column(0, "id", pa.array(range(len(texts))))
    given = given.set_column(given.column_names.index("text"), "text", pa.array(texts))
    lance.write_dataset(given, uri, data_storage_version=version)
    lance.dataset(uri).update(
        {"js": "named_struct('j', text, 'n', id)", "jl": "make_array(text, text)"}, where="id > 2"
    )
    lance.dataset(uri).update({"js": "named_struct('j', text, 'n', id)"}, where="id <= 1")
    ours = lance_io.dataset(uri)
    shown = {row["id"]: row for row in ours.to_table().to_pylist()}
    right = ["null" if text == "" else text for text in texts]
    assert [shown[i]["js"]["j"] for i in range(len(texts)) if i != 2] == right[:2] + right[3:]
    assert [shown[i]["jl"] for i in range(3, len(texts))] == [[text, text] for text in right[3:]]
    theirs = lance.dataset(uri).to_table(filter="id < 9")
    assert ours.to_table(filter="id < 9") == theirs
    rows = [row for row in range(11) if ours.take([row])["id"].to_pylist()[0] in (0, 8, 10)]
    assert {row["j"] for row in ours.take(rows)["js"].to_pylist()} == {texts[0], texts[8], texts[10]}
    lengths = ours.to_table(columns={"id": "id", "length": "json_array_length(js.j, '$.v')"}).to_pylist()
    assert {row["id"]: row["length"] for row in lengths if row["length"]} == {9: 2}

    ours.update({"text": "js.j"}, where="id != 2")  # rows that are written anew have documents
    again = {row["id"]: row for row in lance.dataset(uri).to_table().to_pylist()}
    assert [again[i]["text"] for i in (0, 8, 9, 10)] == ["[5]", '{"v":"é"}', '{"v":[1,2.5]}', "7"]
    assert [again[i]["js"]["j"] for i in (0, 8, 9, 10)] == ["[5]", '{"v":"é"}', '{"v":[1,2.5]}', "7"]


SPACED = ['{"v":1}', None, ' {"b": 1.50}']


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("kind", KINDS[1:])
def test_texts_that_pylance_left_as_they_came(tmp_path: Path, version: str, kind: str) -> None:
    """It writes JSON inside of others as text where that comes as a view, and cannot read it."""
    if (kind, version) == ("map", "2.1"):
        pytest.skip("no maps in 2.1")
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(kind, [1, 2, 3], documents(SPACED, pa.string_view())), uri, data_storage_version=version)
    dataset = lance_io.dataset(uri)
    right = rows(kind, [1, 2, 3], documents(SPACED))
    assert dataset.to_table().to_pylist() == right.to_pylist()
    assert dataset.schema == right.schema
    assert dataset.take([2]).to_pylist() == right.slice(2).to_pylist()

    dataset.insert(rows(kind, [4], documents(["[1]"])))
    upsert(dataset, rows(kind, [2, 9], documents(["[2]", "[9]"])))
    dataset.update({"y": "7"}, where="id = 1")
    dataset.optimize.compact_files()
    found = {row["id"]: (row["x"], row["y"]) for row in lance_io.dataset(uri).to_table().to_pylist()}
    new = {row["id"]: row["x"] for row in rows(kind, [2, 9], documents(["[2]", "[9]"])).to_pylist()}
    assert found[3] == (right["x"].to_pylist()[2], 30)
    assert found[1] == (right["x"].to_pylist()[0], 7)
    assert found[4] == (rows(kind, [4], documents(["[1]"]))["x"].to_pylist()[0], 40)
    assert {key: found[key][0] for key in new} == new
    with pytest.raises(SchemaError, match="encode JSON"):
        dataset.insert(rows(kind, [5], documents(["{bad"])))
