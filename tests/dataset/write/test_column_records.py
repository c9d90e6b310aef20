"""Records of data files that an operation brings are checked before it is committed, by what opening would refuse.

pylance commits these, and then the table cannot be read, or reads other values.
"""

from __future__ import annotations

import importlib
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset, LanceOperation
from lance_io.changes.write.write_fragments import write_fragments_async
from lance_io.errors import OperationError
from lance_io.fragment import DataFile, FragmentMetadata
from tests.dataset.write.test_write_rounds import Bench, batches

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA: Final = pa.schema(
    [("a", pa.int64()), ("st", pa.struct([("x", pa.int32()), ("y", pa.string())])), ("z", pa.string())]
)
VERSIONS: Final = ("2.0", "2.1", "2.2")


def rows(start: int, end: int) -> pa.Table:
    values = [{"a": i, "st": {"x": i, "y": "y"}, "z": "z"} for i in range(start, end)]
    return pa.Table.from_pylist(values, SCHEMA)


def column_beyond(fields: list[int], columns: list[int]) -> tuple[list[int], list[int]]:
    return fields, [*columns[:-1], 99]


def field_twice(fields: list[int], columns: list[int]) -> tuple[list[int], list[int]]:
    return [*fields[:-1], fields[0]], columns


def column_twice(fields: list[int], columns: list[int]) -> tuple[list[int], list[int]]:
    return fields, [*columns[:-1], columns[0]]


def lists_apart(fields: list[int], columns: list[int]) -> tuple[list[int], list[int]]:
    return fields, columns[:-1]


def other_order(fields: list[int], columns: list[int]) -> tuple[list[int], list[int]]:
    return fields, [columns[-1], *columns[1:-1], columns[0]]


def parent_alone(fields: list[int], columns: list[int]) -> tuple[list[int], list[int]]:
    """The struct, of id 1, without its members 2 and 3."""
    return [0, 1, 4], [0, 1, columns[-1]]


WRONG: Final = {
    "a column beyond": (column_beyond, r"said to be column 99, but the file has \d columns"),
    "a field twice": (field_twice, "field 0 is stored in more than one column"),
    "a column twice": (column_twice, "a column is listed twice"),
    "lists that do not fit": (lists_apart, r"field ids, but \d columns"),
    "another order": (other_order, r"holds (int64|string), but field"),
    "a struct without members": (
        parent_alone,
        r'field 1 \("st"\), a struct, but none|field ids \[1\], which are not in the schema',
    ),
}


def operation_with(kind: str, table: lance_io.LanceDataset, new: DataFile, old: DataFile) -> Any:
    """An operation of which a file is `new`, of four rows. old: the file of fragment 0 that it replaces."""
    fragment = FragmentMetadata(0, [new], 4)
    first = table.get_fragments()[0].metadata
    match kind:
        case "append":
            return LanceOperation.Append([fragment])
        case "overwrite":
            return LanceOperation.Overwrite(SCHEMA, [fragment])
        case "merge":
            others = [one.metadata for one in table.get_fragments()[1:]]
            return LanceOperation.Merge([replace(first, files=[new]), *others], table.lance_schema)
        case "update":
            return LanceOperation.Update(
                removed_fragment_ids=[],
                updated_fragments=[replace(first, files=[new])],
                new_fragments=[],
                fields_modified=[0],
            )
        case "update of new rows":
            return LanceOperation.Update(
                removed_fragment_ids=[0], updated_fragments=[], new_fragments=[fragment], fields_modified=[]
            )
        case "rewrite":
            group = LanceOperation.RewriteGroup(old_fragments=[first], new_fragments=[replace(fragment, id=7)])
            return LanceOperation.Rewrite(groups=[group], rewritten_indices=[])
    assert kind == "data replacement"
    return LanceOperation.DataReplacement([LanceOperation.DataReplacementGroup(0, new)])


KINDS: Final = (*("append", "overwrite", "merge", "update", "update of new rows", "rewrite", "data replacement"),)


def prepared(path: Path, version: str, *, by_peer: bool) -> tuple[str, DataFile, DataFile]:
    """A table of two files, the record of a third one that no version names, and that of the first."""
    place = str(path / "t")
    lance.write_dataset(rows(0, 8), place, max_rows_per_file=4, data_storage_version=version)
    library: Any = lance if by_peer else lance_io
    made = library.fragment.write_fragments(rows(8, 12), place, data_storage_version=version)
    file = made[0].files[0]
    old = lance_io.dataset(place).get_fragments()[0].metadata.files[0]
    return place, replace(old, path=file.path, file_size_bytes=None), old


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by_peer", [False, True])
def test_a_record_that_cannot_be_read_is_refused(tmp_path: Path, version: str, kind: str, by_peer: bool) -> None:
    """Whether this process wrote the file or another; the table stays as it was."""
    place, new, old = prepared(tmp_path, version, by_peer=by_peer)
    table = lance_io.dataset(place)
    for change, text in WRONG.values():
        fields, columns = change([*new.fields], [*new.column_indices])
        wrong = operation_with(kind, table, replace(new, fields=fields, column_indices=columns), old)
        with pytest.raises(OperationError, match=text) as caught:
            lance_io.LanceDataset.commit(place, wrong, read_version=1)
        assert new.path in str(caught.value)
        assert not [*(tmp_path / "t" / "_transactions").glob("1-*")]
    assert lance_io.dataset(place).version == 1
    right = operation_with(kind, table, new, old)
    lance_io.LanceDataset.commit(place, right, read_version=1)
    found = lance.dataset(place).to_table().sort_by("a")
    assert found == lance_io.dataset(place).to_table().sort_by("a")
    assert set(range(8, 12)) <= set(found["a"].to_pylist())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_field_in_two_files_is_refused(tmp_path: Path, version: str) -> None:
    place, new, old = prepared(tmp_path, version, by_peer=True)
    table = lance_io.dataset(place)
    first, second = (one.metadata for one in table.get_fragments())
    operation = LanceOperation.Merge([replace(first, files=[old, new]), second], table.lance_schema)
    with pytest.raises(OperationError, match=r"fragment 0 .* field 0 is stored in more than one column"):
        lance_io.LanceDataset.commit(place, operation, read_version=1)
    assert lance_io.dataset(place).to_table() == rows(0, 8)


@pytest.mark.parametrize("call", ["add", "cast"])
def test_a_wrong_record_of_our_own_is_not_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Older columns that were not dead would be a field in two files. What was written is removed."""
    place = str(tmp_path / "t")
    lance.write_dataset(rows(0, 8), place, max_rows_per_file=4, data_storage_version="2.0")
    files = sorted((tmp_path / "t" / "data").iterdir())
    module = importlib.import_module("lance_io.changes.columns.rewrite_columns")
    monkeypatch.setattr(module, "with_dead_columns", lambda fragment: fragment)
    table = lance_io.dataset(place)
    with pytest.raises(OperationError, match=r"Merge: fragment 0 of .* field 1 is stored in more than one column"):
        if call == "add":
            table.add_columns({"st": "named_struct('m', a)"})
        else:
            table.alter_columns({"path": "st.x", "data_type": pa.int64()})
    assert sorted((tmp_path / "t" / "data").iterdir()) == files
    assert not [*(tmp_path / "t" / "_transactions").glob("1-*")]
    assert lance_io.dataset(place).to_table() == lance.dataset(place).to_table() == rows(0, 8)


@pytest.mark.parametrize(("is_known", "layouts"), [(True, 1), (False, 1), (False, 2)])
def test_what_is_asked_of_files(is_known: bool, layouts: int) -> None:
    """Nothing of this process's own; of others one of each layout, beside the first round."""
    bench = Bench()
    operations: list[Any] = []

    async def prepare(bench: Bench) -> None:
        found = await AsyncDataset.open("memory://t", session=bench.session())
        made: list[Any] = await write_fragments_async(batches(), "memory://t", found.schema, session=bench.session())
        file = made[0].files[0]
        fragments = [made[0]]
        if not is_known:
            copies = []
            for number in range(4):
                content, _ = await bench.store.get(f"t/data/{file.path}")
                await bench.store.put(f"t/data/copy{number}.lance", content)
                fields = file.fields if number < 3 or layouts == 1 else [0, -2]
                copies.append(replace(file, path=f"copy{number}.lance", fields=fields))
            fragments = [replace(made[0], files=[one]) for one in copies]
        operations.append(LanceOperation.Append(fragments))

    async def commit(bench: Bench) -> None:
        await AsyncDataset.commit("memory://t", operations[0], 1, session=bench.session())

    rounds, log = bench.run(bench.write(), prepare, commit)
    assert log[:2] == ["list _versions", "get _versions"]
    asked = [line for line in log if line.endswith(" data")]
    assert asked == ([] if is_known else ["get data"] * layouts)
    assert rounds == 4


def test_a_merge_by_pylance_of_the_same_kind_cannot_be_read(tmp_path: Path) -> None:
    """What the check is for."""
    place, new, _ = prepared(tmp_path, "2.1", by_peer=True)
    shutil.copytree(place, tmp_path / "theirs")
    theirs = str(tmp_path / "theirs")
    file = replace(new, column_indices=[*new.column_indices[:-1], 99])
    peer_file = lance.fragment.DataFile(file.path, file.fields, file.column_indices, 2, 1)
    append = lance.LanceOperation.Append([lance.FragmentMetadata(0, [peer_file], 4)])
    lance.LanceDataset.commit(theirs, append, read_version=1)
    with pytest.raises((OSError, ValueError, pa.ArrowInvalid)):
        lance.dataset(theirs).to_table()
