"""Text that is not UTF-8 is refused where it would be written: pylance cannot read a column that holds it.

Arrow's arrays of strings may hold any bytes, and pylance writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import SchemaError
from lance_io.file import AsyncFileWriter, LanceFileWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BAD = b"caf\xe9"  # in Latin-1
GOOD = "café".encode()
VERSIONS = ("0.1", "2.0", "2.1", "2.2")


def texts(*values: bytes | None, wide: bool = False) -> pa.Array:
    """An array of strings of any bytes."""
    held = pa.array(values, pa.large_binary() if wide else pa.binary())
    return held.view(pa.large_string() if wide else pa.string())


def structs(members: pa.Array, mask: list[bool] | None = None) -> pa.Array:
    return pa.StructArray.from_arrays([members], ["m"], mask=None if mask is None else pa.array(mask))


def lists(items: pa.Array, offsets: list[int | None]) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items)


def dictionary(entries: pa.Array, indices: list[int | None]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), entries)


# columns, the one value of which that is wrong, and in which row of four
COLUMNS: dict[str, tuple[Callable[[bytes], pa.Array], str, int]] = {
    "string": (lambda value: texts(b"a", None, value, b"b"), "c", 2),
    "large_string": (lambda value: texts(b"a", b"bb", b"c", value, wide=True), "c", 3),
    "cut character": (lambda value: texts(b"a", value[:-1] + GOOD[-2:-1], GOOD[-1:], b""), "c", 1),
    "struct": (lambda value: structs(texts(b"a", value, b"b", None)), "c.m", 1),
    "list": (lambda value: lists(texts(b"a", b"b", b"c", value, b"d"), [0, 2, 2, 4, 5]), "c.item", 2),
    "list of structs": (lambda value: lists(structs(texts(b"a", b"b", value)), [0, 1, 2, 2, 3]), "c.item.m", 3),
    "struct of lists": (lambda value: structs(lists(texts(b"a", value), [0, 1, 2, 2, 2])), "c.m.item", 1),
    "dictionary": (lambda value: dictionary(texts(b"a", value), [0, 0, 0, 1]), "c", 3),
    "part of an array": (lambda value: texts(BAD, b"a", b"b", value, b"c", BAD).slice(1, 4), "c", 2),
    "map": (
        lambda value: pa.MapArray.from_arrays(
            pa.array([0, 1, 2, 2, 3], pa.int32()), texts(b"k", b"k", b"k"), texts(b"a", value, b"c")
        ),
        "c.value",
        1,
    ),
}
FROM_2_2 = ("map",)


def table_of(column: pa.Array) -> pa.Table:
    return pa.table({"id": pa.array(range(len(column)), pa.int64()), "c": column})


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def of_version(version: str) -> list[str]:
    return [name for name in COLUMNS if version == "2.2" or name not in FROM_2_2]


CASES = [(version, name) for version in VERSIONS for name in of_version(version)]


@pytest.mark.parametrize(("version", "name"), CASES)
def test_every_column(version: str, name: str, tmp_path: Path) -> None:
    make, path, row = COLUMNS[name]
    with pytest.raises(SchemaError, match=rf"Column `{path}`, row {row}: b'.*' is not UTF-8"):
        lance_io.write_dataset(table_of(make(BAD)), tmp_path / "t.lance", data_storage_version=version)
    assert names(tmp_path) == []
    made = table_of(make(GOOD[:-2] + b"e"))
    if name != "cut character":
        lance_io.write_dataset(made, tmp_path / "t.lance", data_storage_version=version)
        assert lance.dataset(str(tmp_path / "t.lance")).to_table().to_pylist() == made.to_pylist()


HIDDEN: dict[str, pa.Array] = {
    "a null": pa.StringArray.from_buffers(
        3, pa.array([0, 1, 5, 6], pa.int32()).buffers()[1], pa.py_buffer(b"a" + BAD + b"b"), pa.py_buffer(b"\x05")
    ),
    "a null struct": structs(texts(b"a", BAD, b"b"), [False, True, False]),
    "a null list": pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()), texts(b"a", BAD, b"b"), mask=pa.array([False, True, False])
    ),
    "before and behind": texts(BAD, b"a", b"b", b"c", BAD).slice(1, 3),
}


NO_NULLS_OF = {"0.1": ("a null struct", "a null list"), "2.0": ("a null struct",)}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", HIDDEN)
def test_bytes_that_are_no_value(version: str, name: str, tmp_path: Path) -> None:
    """They may be anything; pylance reads the column."""
    column = HIDDEN[name]
    if name in NO_NULLS_OF.get(version, ()):
        pytest.skip("this version has no such nulls")
    uri = str(tmp_path / "t.lance")
    lance_io.write_dataset(table_of(column), uri, data_storage_version=version)
    expected = column.to_pylist()
    assert lance_io.dataset(uri).to_table()["c"].to_pylist() == expected
    assert lance.dataset(uri).to_table()["c"].to_pylist() == expected


ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "s": ["a", "b", "c"]})
WRONG = pa.table({"id": pa.array([2, 9], pa.int64()), "s": texts(b"x", BAD)})
NEW = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "new": texts(b"x", BAD, b"y")})


def added(table: Any) -> Any:
    return table.add_columns(NEW.select(["new"]).to_reader(), reader_schema=NEW.select(["new"]).schema)


CALLS: dict[str, Callable[[Any], Any]] = {
    "append": lambda t: lance_io.write_dataset(WRONG, t.uri, mode="append"),
    "append in a group": lambda t: lance_io.write_dataset(WRONG, t.uri, mode="append", group_commit=True),
    "overwrite": lambda t: lance_io.write_dataset(WRONG, t.uri, mode="overwrite"),
    "insert": lambda t: t.insert(WRONG),
    "insert of batches": lambda t: t.insert(WRONG.to_reader()),
    "merge_insert": lambda t: (
        t.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(WRONG)
    ),
    "merge_insert of columns": lambda t: (
        t.merge_insert("id").when_matched_update_all().execute(NEW.rename_columns(["id", "s"]))
    ),
    "add_columns": added,
    "add_columns by a function": lambda t: t.add_columns(
        lambda batch: pa.record_batch({"new": texts(*[BAD] * batch.num_rows)})
    ),
    "merge": lambda t: t.merge(NEW, "id"),
    "write_fragments": lambda t: lance_io.fragment.write_fragments(WRONG, t.uri, mode="append"),
    "LanceFragment.create": lambda t: lance_io.LanceFragment.create(t.uri, WRONG),
    "LanceFragment.merge": lambda t: t.get_fragments()[0].merge(NEW, "id"),
    "LanceFragment.update_columns": lambda t: t.get_fragments()[0].update_columns(
        NEW.rename_columns(["id", "s"]), "id", "id"
    ),
}


@pytest.mark.parametrize("version", ["0.1", "2.2"])
@pytest.mark.parametrize("call", CALLS)
def test_every_call(call: str, version: str, tmp_path: Path) -> None:
    table = lance_io.write_dataset(ROWS, str(tmp_path / "t.lance"), data_storage_version=version)
    before = names(tmp_path)
    with pytest.raises((ValueError, OSError), match="is not UTF-8"):
        CALLS[call](table)
    assert names(tmp_path) == before


async def test_awaited_calls(tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    table = await lance_io.AsyncDataset.write(ROWS, uri)
    before = names(tmp_path)
    for call in (
        table.insert(WRONG),
        table.merge(NEW, "id"),
        table.merge_insert("id").when_not_matched_insert_all().execute(WRONG),
        lance_io.AsyncDataset.write(WRONG, uri, mode="overwrite"),
    ):
        with pytest.raises((SchemaError, OSError), match="is not UTF-8"):
            await call
    assert names(tmp_path) == before


@pytest.mark.parametrize("version", ["2.0", "2.1"])
async def test_files_by_themselves(version: str, tmp_path: Path) -> None:
    """A batch that is refused leaves the writer as it was."""
    with LanceFileWriter(tmp_path / "f.lance", ROWS.schema, version=version) as writer:
        writer.write_batch(ROWS)
        with pytest.raises(SchemaError, match="row 4: "):
            writer.write_batch(WRONG)
        writer.write_batch(ROWS)
    assert lance_io.file.LanceFileReader(tmp_path / "f.lance").read_all().to_table().num_rows == 6
    with pytest.raises(SchemaError, match="row 1: "):
        async with AsyncFileWriter(tmp_path / "g.lance", ROWS.schema, version=version) as other:
            await other.write_batch(WRONG)
    assert names(tmp_path) == ["f.lance"]


@pytest.mark.parametrize("version", ["0.1", "2.2"])
def test_the_row_is_counted_from_the_first_that_is_written(version: str, tmp_path: Path) -> None:
    """Through batches and files."""
    values = [b"%d" % number for number in range(5000)]
    values[4321] = BAD * 100
    wrong = pa.table({"s": texts(*values)})
    options: dict[str, Any] = {"data_storage_version": version, "max_rows_per_file": 1024}
    for rows in (wrong, wrong.to_reader(700)):
        with pytest.raises(SchemaError, match=r"Column `s`, row 4321: b'caf\\xe9caf.*'\.\.\. is not UTF-8"):
            lance_io.write_dataset(rows, tmp_path / "t.lance", **options)
    assert names(tmp_path) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_of_a_table_that_has_such_text(version: str, tmp_path: Path) -> None:
    """As another library, or a release of this one, wrote it: it is read as it is and compacted, and can be mended."""
    uri = str(tmp_path / "t.lance")
    rows = pa.table({"id": pa.array([1, 2, 3, 4], pa.int64()), "s": texts(b"a", BAD, b"c", b"d"), "n": [1, 2, 3, 4]})
    lance.write_dataset(rows, uri, data_storage_version=version, max_rows_per_file=2, max_rows_per_group=2)
    table = lance_io.dataset(uri)
    assert table.to_table()["s"].cast(pa.binary()).to_pylist() == [b"a", BAD, b"c", b"d"]
    table.optimize.compact_files()
    assert len(table.get_fragments()) == 1
    assert table.to_table()["s"].cast(pa.binary()).to_pylist() == [b"a", BAD, b"c", b"d"]
    table.delete("id = 4")
    with pytest.raises(OSError, match=r"Column `s`, row 0: .* is not UTF-8"):
        table.update({"n": "0"}, "id = 2")
    table.update({"s": "'b'"}, "id = 2")
    table.update({"n": "0"}, "id = 2")
    expected = [{"id": 1, "s": "a", "n": 1}, {"id": 2, "s": "b", "n": 0}, {"id": 3, "s": "c", "n": 3}]
    table.optimize.compact_files(materialize_deletions_threshold=0.0)
    assert sorted(lance.dataset(uri).to_table().to_pylist(), key=lambda one: one["id"]) == expected
