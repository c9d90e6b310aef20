"""What programs written for pylance trip over: deprecated names that warn, texts of errors, progress."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import pickle
import re
from typing import TYPE_CHECKING, Any

import lance
import lance.file
import lance.fragment
import lance.log
import lance.progress
import pyarrow as pa
import pytest

import lance_io
import lance_io.file
import lance_io.fragment
import lance_io.log
import lance_io.progress
from lance_io import AsyncDataset
from lance_io.dataset.fragment import AsyncFragment

if TYPE_CHECKING:
    from pathlib import Path

ROW = pa.table({"a": [1], "s": ["x"]})


@pytest.fixture
def tables(tmp_path: Path) -> list[tuple[Any, Any, str]]:
    """A table for each library: the module, the dataset, its place."""
    found = []
    for library in (lance_io, lance):
        uri = str(tmp_path / library.__name__)
        lance.write_dataset(pa.table({"a": range(10), "s": list("abcdefghij")}), uri, max_rows_per_file=4)
        found.append((library, library.dataset(uri), uri))
    return found


DEPRECATED: dict[str, Any] = {
    "replace_schema_metadata": lambda m, ds, uri: ds.replace_schema_metadata({"k": "v"}),
    "replace_field_metadata": lambda m, ds, uri: ds.replace_field_metadata("a", {"k": "v"}),
    "use_legacy_format": lambda m, ds, uri: m.write_dataset(ROW, uri, mode="append", use_legacy_format=False),
    "fragments": lambda m, ds, uri: m.fragment.write_fragments(ROW, uri, use_legacy_format=False),
    "index_cache_size": lambda m, ds, uri: m.dataset(uri, index_cache_size=5),
    "data_files": lambda m, ds, uri: ds.get_fragments()[0].metadata.data_files(),
    "path": lambda m, ds, uri: ds.get_fragments()[0].data_files()[0].path(),
    "path of metadata": lambda m, ds, uri: ds.get_fragments()[0].metadata.files[0].path(),
    "field_ids": lambda m, ds, uri: ds.get_fragments()[0].data_files()[0].field_ids(),
    "Merge": lambda m, ds, uri: m.LanceOperation.Merge([], ds.schema),
}


@pytest.mark.parametrize("call", DEPRECATED.values(), ids=DEPRECATED)
def test_deprecated_names_warn(call: Any, tables: list[Any]) -> None:
    texts = []
    for each in tables:
        with pytest.warns(DeprecationWarning) as told:
            call(*each)
        texts.append(str(told[0].message))
    assert texts[1].startswith(texts[0])


def test_paths_of_data_files_are_texts_and_calls(tables: list[Any]) -> None:
    found = []
    for library, dataset, uri in tables:
        (name,) = sorted(os.listdir(f"{uri}/data"))[:1]
        (fragment,) = [one for one in dataset.get_fragments() if one.data_files()[0].path == name]
        file = fragment.data_files()[0]
        with pytest.warns(DeprecationWarning):
            assert file.path() == name
        metadata = pickle.loads(pickle.dumps(fragment.metadata))
        again = library.fragment.FragmentMetadata.from_json(json.dumps(fragment.metadata.to_json()))
        for copied in (metadata, again, copy.deepcopy(fragment.metadata)):
            assert copied == fragment.metadata and copied.files[0].path == name
            with pytest.warns(DeprecationWarning):
                assert copied.files[0].path() == name
        values = dataclasses.asdict(file)
        found.append((isinstance(file.path, str), isinstance(pickle.loads(pickle.dumps(file.path)), str), len(values)))
        made = library.fragment.DataFile("x.lance", [0])
        with pytest.warns(DeprecationWarning):
            assert made.path() == made.path == "x.lance" and "'x.lance'" in repr(made)
    assert found[0] == found[1]
    file = lance_io.fragment.DataFile("x.lance", [0])
    file.path = "y.lance"
    with pytest.warns(DeprecationWarning) as told:
        assert file.path() == "y.lance"
        lance_io.LanceOperation.Merge([], ROW.schema)
    assert {one.filename for one in told} == {__file__}, "a warning names the line of the caller"
    assert type(dataclasses.asdict(file)["path"]) is str


def test_names_that_are_accepted(tables: list[Any]) -> None:
    for library, _, uri in tables:
        assert library.LanceDataset(uri, metadata_cache_size=5).count_rows() == 10
        for data in (ROW, pa.table({"z": [1]})):
            assert library.LanceFragment.create(uri, data, mode="create").num_rows == 1


ERRORS: dict[str, Any] = {
    "no tag": lambda m, ds, uri: m.dataset(uri, version="x"),
    "tag again": lambda m, ds, uri: [ds.tags.create("t", 1), ds.tags.create("t", 1)],
    "no version to tag": lambda m, ds, uri: ds.tags.create("t", 77),
    "no version read": lambda m, ds, uri: m.LanceDataset.commit(uri, m.LanceOperation.Append([])),
    "no operation": lambda m, ds, uri: m.LanceDataset.commit(uri, 5, read_version=1),
    "no lock": lambda m, ds, uri: m.write_dataset(ROW, uri, mode="append", commit_lock=5),
    "mode": lambda m, ds, uri: m.write_dataset(ROW, uri, mode="x"),
    "other schema": lambda m, ds, uri: m.write_dataset(pa.table({"z": [1]}), uri, mode="append"),
    "keyword": lambda m, ds, uri: m.write_dataset(ROW, uri, mode="append", nothing=1),
    "keyword of fragments": lambda m, ds, uri: m.fragment.write_fragments(ROW, uri, nothing=1),
    "no column to drop": lambda m, ds, uri: ds.drop_columns(["z"]),
    "all columns": lambda m, ds, uri: ds.drop_columns(["a", "s"]),
    "no field": lambda m, ds, uri: ds.update_field_metadata({"z": {"k": "v"}}),
    "limit": lambda m, ds, uri: ds.to_table(limit=-1),
    "no rows": lambda m, ds, uri: m.write_dataset(iter([]), uri + "2"),
    "data": lambda m, ds, uri: m.write_dataset(5, uri + "2"),
    "fragment of no rows": lambda m, ds, uri: m.LanceFragment.create(uri, ROW.slice(0, 0)),
    "fragment of no rows for a new table": lambda m, ds, uri: m.LanceFragment.create(uri + "2", ROW.slice(0, 0)),
    "fragment of an empty reader": lambda m, ds, uri: m.LanceFragment.create(uri, iter([]), schema=ROW.schema),
    "fragment of no columns": lambda m, ds, uri: m.LanceFragment.create(uri, ROW.select([])),
    "fragment of nothing": lambda m, ds, uri: m.LanceFragment.create(uri, pa.table({}), mode="overwrite"),
    "no table": lambda m, ds, uri: m.write_dataset(ROW, uri, mode="create"),
}


@pytest.mark.parametrize("call", ERRORS.values(), ids=ERRORS)
def test_errors_begin_as_those_of_pylance(call: Any, tables: list[Any]) -> None:
    texts, kinds = [], []
    for library, dataset, uri in tables:
        with pytest.raises((ValueError, OSError, TypeError)) as raised:
            call(library, dataset, uri)
        texts.append(str(raised.value).replace(library.__name__, "t"))
        kinds.append(raised.value)
    assert isinstance(kinds[0], next(kind for kind in (OSError, ValueError, TypeError) if isinstance(kinds[1], kind)))
    begin = re.split(r"\.?, (/|location)|\. Please|, missing", texts[1])[0]
    assert texts[0].startswith(begin)


BAD_FILTERS = ["zz > 3", "a >", "a > 'abc'", "a + 1", "zz(a)", "", "s", "a in (1,", "a = 1 and", "1", "a like 5"]
PREDICATES: dict[str, Any] = {
    "to_table": lambda m, ds, text: ds.to_table(filter=text),
    "scanner": lambda m, ds, text: ds.scanner(filter=text).to_table(),
    "count_rows": lambda m, ds, text: ds.count_rows(text),
    "delete": lambda m, ds, text: ds.delete(text),
    "update": lambda m, ds, text: ds.update({"a": "1"}, where=text),
    "fragment": lambda m, ds, text: ds.get_fragments()[0].to_table(filter=text),
    "fragment, delete": lambda m, ds, text: ds.get_fragments()[0].delete(text),
    "merge": lambda m, ds, text: ds.merge_insert("a").when_not_matched_by_source_delete(text).execute(ds.to_table()),
}


@pytest.mark.parametrize("call", PREDICATES.values(), ids=PREDICATES)
async def test_refused_predicates_begin_as_those_of_pylance(call: Any, tables: list[Any]) -> None:
    for text in BAD_FILTERS:
        texts = []
        for library, dataset, _ in tables:
            with pytest.raises((ValueError, OSError)) as raised:
                call(library, dataset, text)
            texts.append(str(raised.value))
            again = pickle.loads(pickle.dumps(raised.value))
            assert str(again) == str(raised.value)
        if texts[1].startswith("Invalid user input: "):
            assert texts[0].startswith("Invalid user input: "), texts
            assert texts[0].count("Invalid user input: ") == 1
    with pytest.raises(ValueError, match=r"^Invalid user input: "):
        await (await AsyncDataset.open(tables[0][2])).count_rows("zz > 3")


COMPUTED: dict[str, Any] = {
    "columns": lambda m, ds, uri: ds.to_table(columns={"z": "zz + 1"}),
    "a column": lambda m, ds, uri: ds.to_table(columns=["zz"]),
    "take": lambda m, ds, uri: ds.take([0], columns={"z": "zz + 1"}),
    "add_columns": lambda m, ds, uri: ds.add_columns({"z": "zz + 1"}),
    "add_columns, no expression": lambda m, ds, uri: ds.add_columns({"z": "1 +"}),
    "update": lambda m, ds, uri: ds.update({"a": "zz + 1"}),
    "update, no expression": lambda m, ds, uri: ds.update({"a": "1 +"}),
    "merge": lambda m, ds, uri: ds.merge_insert("a").when_matched_update_all("zz = 1").execute(ds.to_table()),
}


@pytest.mark.parametrize("call", COMPUTED.values(), ids=COMPUTED)
def test_refused_expressions_begin_as_those_of_pylance(call: Any, tables: list[Any]) -> None:
    for library, dataset, uri in tables:
        with pytest.raises((ValueError, OSError), match=r"^Invalid user input: "):
            call(library, dataset, uri)


@pytest.mark.parametrize("name", ["_rowid", "_rowaddr"])
async def test_system_columns_are_not_updated(name: str, tables: list[Any]) -> None:
    rows = pa.table({"a": [1], name: pa.array([1], pa.uint64())})
    for _, dataset, _ in tables:
        with pytest.raises(
            ValueError, match=f"^Invalid user input: Column {name} is a reserved metadata column and cannot be"
        ):
            dataset.get_fragments()[0].update_columns(rows, "a")
        with pytest.raises(ValueError, match=f"^Invalid user input: Column '{name}' does not exist in dataset schema"):
            dataset.update({name: "1"})
    table = await AsyncDataset.open(tables[0][2])
    for refused in (table.update({name: "1"}), table.get_fragments()[0].update_columns(rows, "a")):
        with pytest.raises(ValueError, match="metadata column and cannot be updated"):
            await refused


def listener(library: Any, heard: list[Any]) -> Any:
    class Listener(library.progress.FragmentWriteProgress):
        def begin(self, fragment: Any, **kwargs: Any) -> None:
            heard.append(("begin", fragment.id, kwargs))

        def complete(self, fragment: Any, **kwargs: Any) -> None:
            heard.append(("complete", fragment.id, fragment.physical_rows, kwargs))

    return Listener()


@pytest.mark.parametrize("version", ["0.1", "2.2"])
@pytest.mark.parametrize("mode", ["append", "create", "overwrite"])
async def test_progress_names_the_id_of_the_fragment(
    tables: list[Any], mode: str, version: str, tmp_path: Path
) -> None:
    for number in (None, 7):
        told: dict[str, list[Any]] = {}
        for library, _, uri in tables:
            given = {"fragment_id": number, "mode": mode, "data_storage_version": version}
            place = uri if mode != "append" else str(tmp_path / "new")
            heard = told.setdefault(library.__name__, [])
            made = library.LanceFragment.create(place, ROW, progress=listener(library, heard), **given)
            assert made.id == (number or 0)
            if library is lance_io:
                heard = told.setdefault("asynchronous", [])
                made = await AsyncFragment.create(place, ROW, progress=listener(library, heard), **given)
                assert made.id == (number or 0)
        assert told["lance_io"] == told["asynchronous"] == told["lance"]


def test_statistics_of_columns(tmp_path: Path) -> None:
    table = pa.table(
        {"a": range(50_000), "s": [str(n) * 3 for n in range(50_000)], "l": [[n, 2] for n in range(50_000)]}
    )
    for version in ("2.0", "2.1", "2.2"):
        lance.write_dataset(table, str(tmp_path / version), data_storage_version=version)
        (file,) = (tmp_path / version / "data").iterdir()
        found, expected = (make.LanceFileReader(str(file)) for make in (lance_io.file, lance.file))
        ours, theirs = (
            [(one.num_pages, one.size_bytes) for one in reader.file_statistics().columns]
            for reader in (found, expected)
        )
        assert ours == theirs
        pages = [[len(one.pages) for one in reader.metadata().columns] for reader in (found, expected)]
        assert pages[0] == pages[1]


@pytest.mark.parametrize("asked", [None, "debug", "WARN", "trace", "lance=debug", "info,lance_core=trace", "off"])
def test_levels_of_logs(asked: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lance_io.log.ENV_NAME_PYLANCE_LOGGING_LEVEL == lance.log.ENV_NAME_PYLANCE_LOGGING_LEVEL
    monkeypatch.delenv(lance_io.log.ENV_NAME_PYLANCE_LOGGING_LEVEL, raising=False)
    if asked is not None:
        monkeypatch.setenv(lance_io.log.ENV_NAME_PYLANCE_LOGGING_LEVEL, asked)
    assert lance_io.log.get_log_level() == lance.log.get_log_level()
    assert lance_io.log.get_python_log_level(asked or "x") == lance.log.get_python_log_level(asked or "x")
