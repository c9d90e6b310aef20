"""Tables whose field ids are never given out again (feature flag 32768): every write obeys it, as in pylance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import OperationError
from tests.fuzz.test_found import change_manifest
from tests.interop.test_feature_flags import newest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:Passing a pyarrow.Schema:DeprecationWarning")

ROWS = pa.table({"a": [1, 2], "b": ["x", "y"]})
NESTED = pa.table({"x": [1], "n": [{"p": 1, "q": [1, 2]}]})


def marked(folder: Path, mark: int = 5) -> str:
    """A table of pylance that has given out field ids up to `mark`."""

    def change(message: Any) -> None:
        message.max_allocated_field_id = mark
        message.writer_feature_flags |= 32768

    lance.write_dataset(ROWS, str(folder), data_storage_version="2.1")
    change_manifest(folder, change)
    return str(folder)


def ids(uri: str, folder: Path) -> tuple[Any, ...]:
    """Words, mark, ids of the schema and of the files of the newest version."""
    message = newest(folder)
    fields = [(field.name, field.id, field.parent_id) for field in message.fields]
    files = [[list(file.fields) for file in fragment.files] for fragment in message.fragments]
    return message.reader_feature_flags, message.writer_feature_flags, message.max_allocated_field_id, fields, files


def overwrite_twice(library: Any, uri: str) -> None:
    library.write_dataset(NESTED, uri, mode="overwrite")
    library.write_dataset(ROWS, uri, mode="overwrite")


def restore(library: Any, uri: str) -> None:
    library.write_dataset(NESTED, uri, mode="overwrite")
    library.dataset(uri, version=1).restore()


def add_by_merge(library: Any, uri: str) -> None:
    table = library.dataset(uri)
    fragments = [fragment.metadata for fragment in table.get_fragments()]
    schema = table.schema.append(pa.field("c", pa.int32()))
    library.LanceDataset.commit(uri, library.LanceOperation.Merge(fragments, schema), read_version=table.version)


def overwrite_stale(library: Any, uri: str) -> None:
    before = library.dataset(uri)
    add_by_merge(library, uri)
    library.write_dataset(NESTED, before, mode="overwrite")


CHANGES: dict[str, Callable[[Any, str], Any]] = {
    "append": lambda library, uri: library.write_dataset(ROWS.slice(1), uri, mode="append"),
    "delete": lambda library, uri: library.dataset(uri).delete("a = 1"),
    "config": lambda library, uri: library.dataset(uri).update_config({"k": "v"}),
    "overwrite": lambda library, uri: library.write_dataset(NESTED, uri, mode="overwrite"),
    "overwrite twice": overwrite_twice,
    "restore": restore,
    "merge": add_by_merge,
    "stale overwrite": overwrite_stale,
}


@pytest.mark.parametrize("change", CHANGES)
def test_new_ids_are_those_of_pylance(tmp_path: Path, change: str) -> None:
    made = []
    for name, library in (("theirs", lance), ("ours", lance_io)):
        uri = marked(tmp_path / name)
        CHANGES[change](library, uri)
        made.append(ids(uri, tmp_path / name))
        assert lance_io.dataset(uri).to_table().equals(lance.dataset(uri).to_table())
        lance.dataset(uri).delete("true")  # pylance goes on from there
    assert made[0] == made[1]
    assert made[0][1] & 32768


def test_an_id_that_was_dropped_is_not_given_to_another_column(tmp_path: Path) -> None:
    uri = marked(tmp_path / "t", 1)
    lance.dataset(uri).add_columns({"c": "a + 1"})
    lance.dataset(uri).drop_columns(["c"])
    assert newest(tmp_path / "t").max_allocated_field_id == 2
    add_by_merge(lance_io, uri)
    assert {field.name: field.id for field in newest(tmp_path / "t").fields} == {"a": 0, "b": 1, "c": 3}
    assert lance_io.dataset(uri).to_table(columns=["c"])["c"].null_count == 2


@pytest.mark.parametrize("mark", [0, 2**31, 2**40])
def test_marks_that_cannot_be_are_refused_when_something_is_written(tmp_path: Path, mark: int) -> None:
    for name, library in (("theirs", lance), ("ours", lance_io)):
        uri = marked(tmp_path / name, mark)
        assert library.dataset(uri).count_rows() == 2
        with pytest.raises(OSError, match="is below referenced field ID 1"):
            library.write_dataset(ROWS, uri, mode="append")


def test_ids_come_to_an_end(tmp_path: Path) -> None:
    for name, library in (("theirs", lance), ("ours", lance_io)):
        uri = marked(tmp_path / name, 2**31 - 1)
        library.write_dataset(ROWS, uri, mode="append")
        with pytest.raises((OSError, ValueError), match="exhausted"):
            library.write_dataset(ROWS, uri, mode="overwrite")
    with pytest.raises(OperationError, match="exhausted"):
        add_by_merge(lance_io, uri)


def test_versions_from_before_the_flag_are_not_restored(tmp_path: Path) -> None:
    for name, library in (("theirs", lance), ("ours", lance_io)):
        uri = str(tmp_path / name)
        lance.write_dataset(ROWS, uri)
        lance.dataset(uri).update_config({"k": "v"})

        def change(message: Any) -> None:
            message.max_allocated_field_id = 7
            message.writer_feature_flags |= 32768

        change_manifest(tmp_path / name, change)
        with pytest.raises(OSError, match="Cannot restore version 1: non-reusable field IDs were activated"):
            library.dataset(uri, version=1).restore()


def test_files_name_no_ids_that_the_schema_lacks(tmp_path: Path) -> None:
    for name, library in (("theirs", lance), ("ours", lance_io)):
        uri = marked(tmp_path / name)
        (fragment,) = library.dataset(uri).get_fragments()
        metadata = fragment.metadata
        metadata.files[0].fields = [0, 6]
        with pytest.raises(OSError, match="new field ID 6"):
            library.LanceDataset.commit(uri, library.LanceOperation.Append([metadata]), read_version=1)
