"""Declared primary and clustering keys: what is stored, what is refused, and what stays, as in pylance."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import lance
import lance.file
import lance.schema
import pyarrow as pa
import pytest

import lance_io
import lance_io.file
import lance_io.schema
from lance_io.errors import PrimaryKeyError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PK, PK_AT = "lance-schema:unenforced-primary-key", "lance-schema:unenforced-primary-key:position"
CK, CK_AT = "lance-schema:unenforced-clustering-key", "lance-schema:unenforced-clustering-key:position"
YES = {PK: "true"}
Metadata = dict[str, str] | None
LIBRARIES = pytest.mark.parametrize("library", [lance, lance_io])


def field(name: str, metadata: Metadata = None, dtype: Any = pa.int64(), *, nullable: bool = False) -> Any:  # noqa: B008
    return pa.field(name, dtype, nullable, metadata=metadata)


def schema(a: Metadata = None, b: Metadata = None) -> pa.Schema:
    inner = pa.struct([field("x")])
    return pa.schema([field("a", a), field("b", b), field("c", nullable=True), field("s", dtype=inner)])


def rows(of: pa.Schema) -> pa.Table:
    return pa.table({"a": [1, 2], "b": [3, 4], "c": [5, None], "s": [{"x": 6}, {"x": 7}]}, schema=of)


def keys(path: Path) -> dict[str, Any]:
    """What pylance sees of the keys of a table, and what it stores for them."""
    seen = lance.dataset(path)
    stored = {
        one.name: (
            one.unenforced_primary_key,
            one.unenforced_primary_key_position,
            one.unenforced_clustering_key_position,
        )
        for one in lance_io.dataset(path)._state.manifest.message.fields
    }
    return {
        "stored": stored,
        "schema": [(one.name, one.metadata) for one in seen.schema],
        "primary": [one.name() for one in seen.lance_schema.unenforced_primary_key()],
        "clustering": [one.name() for one in seen.lance_schema.unenforced_clustering_key()],
    }


WORDS = ["true", "tRUE", "1", "yes", "Y", "on", "t", "false", "0", "2", "", " true"]
NUMBERS = ["0", "1", "+3", "007", "4294967295", "4294967296", "0" * 5000 + "7", "9" * 5000, "-1", " 1", "x", "", "+"]
DECLARED: list[Metadata] = [
    *({PK: one} for one in WORDS),
    *({key: one} for key, one in product((PK_AT, CK_AT), NUMBERS)),
    *({PK: one, PK_AT: two} for one, two in product(("true", "false"), ("3", "0", "x"))),
    {CK: "true"},
    {CK: "true", CK_AT: "2", PK: "yes"},
]


def test_metadata_declare_what_they_declare_for_pylance(tmp_path: Path) -> None:
    declared = pa.schema([field(str(number), one) for number, one in enumerate(DECLARED)])
    for library in (lance, lance_io):
        library.write_dataset(declared.empty_table(), str(tmp_path / library.__name__))
    assert keys(tmp_path / "lance_io") == keys(tmp_path / "lance")
    assert len(keys(tmp_path / "lance")["primary"]) == 18


def test_schemas_show_keys_as_pylance_does(tmp_path: Path) -> None:
    nested = pa.struct([field("x", {PK_AT: "2", CK_AT: "1"})])
    declared = pa.schema(
        [
            field("a", {PK_AT: "3", CK_AT: "2"}),
            field("b", YES),
            field("c", {PK_AT: "1", CK_AT: "1"}),
            field("d", {CK_AT: "0", PK: "yes"}),
            field("s", dtype=nested),
        ]
    )
    path = tmp_path / "t"
    lance_io.write_dataset(declared.empty_table(), path)

    def shown(one: Any) -> Any:
        return [
            [each.name() for each in one.unenforced_primary_key()],
            [each.name() for each in one.unenforced_clustering_key()],
            [(each.is_unenforced_primary_key(), each.unenforced_primary_key_position()) for each in one.fields()],
            [(each.is_unenforced_clustering_key(), each.unenforced_clustering_key_position()) for each in one.fields()],
        ]

    assert shown(lance_io.dataset(path).lance_schema) == shown(lance.dataset(path).lance_schema)
    ours, theirs = lance_io.schema.LanceSchema, lance.schema.LanceSchema
    assert shown(ours.from_pyarrow(declared)) == shown(theirs.from_pyarrow(declared))


IMPOSSIBLE: dict[str, Any] = {
    "nullable": field("k", YES, nullable=True),
    "nullable, by position": field("k", {PK_AT: "0"}, nullable=True),
    "nullable, by another word": field("k", {PK: "On"}, nullable=True),
    "a struct": field("k", YES, pa.struct([field("x")])),
    "a list": field("k", YES, pa.list_(field("item"))),
    "a map": field("k", YES, pa.map_(pa.string(), pa.int64())),
    "in a nullable struct": field("k", None, pa.struct([field("x", YES)]), nullable=True),
    "in a list": field("k", None, pa.list_(field("item", YES))),
    "in a map": field("k", None, pa.map_(pa.int64(), field("value", YES))),
    "a blob with members": field("k", {**YES, "lance-encoding:blob": "true"}, pa.large_binary()),
}
POSSIBLE: dict[str, Any] = {
    "in a struct": field("k", None, pa.struct([field("x", YES)])),
    "a struct without members": field("k", YES, pa.struct([])),
    "a fixed-size list": field("k", YES, pa.list_(pa.int64(), 2)),
    "a dictionary": field("k", YES, pa.dictionary(pa.int32(), pa.string())),
    "a clustering key that is nullable": field("k", {CK_AT: "1"}, nullable=True),
    "none": field("k", {PK: "false"}, nullable=True),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_impossible_primary_keys_are_refused(tmp_path: Path, case: str) -> None:
    declared = pa.schema([IMPOSSIBLE[case]])
    with pytest.raises(OSError, match="Primary key column"):
        lance.write_dataset(declared.empty_table(), tmp_path / "theirs")
    with pytest.raises(PrimaryKeyError, match=r"Primary key column.*'k") as raised:
        lance_io.write_dataset(declared.empty_table(), tmp_path / "ours")
    assert isinstance(raised.value, OSError)
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize("case", POSSIBLE)
def test_possible_keys_are_stored(tmp_path: Path, case: str) -> None:
    for library in (lance, lance_io):
        library.write_dataset(pa.schema([POSSIBLE[case]]).empty_table(), str(tmp_path / library.__name__))
    assert keys(tmp_path / "lance_io") == keys(tmp_path / "lance")


def _file(library: Any, path: Path, of: pa.Schema) -> None:
    with library.file.LanceFileWriter(str(path / "f.lance"), of) as writer:
        writer.write_batch(of.empty_table())


def _write(library: Any, path: Path, of: pa.Schema, mode: str) -> None:
    library.write_dataset(rows(of), library.write_dataset(rows(schema()), str(path / "t")), mode=mode)


def _commit(library: Any, path: Path, operation: Any) -> None:
    table = library.write_dataset(rows(schema()), str(path / "t"))
    library.LanceDataset.commit(table.uri, operation, read_version=1)


NEW_SCHEMAS: dict[str, Callable[[Any, Path, pa.Schema], Any]] = {
    "files": _file,
    "append": lambda library, path, of: _write(library, path, of, "append"),
    "overwrite": lambda library, path, of: _write(library, path, of, "overwrite"),
    "fragments": lambda library, path, of: library.fragment.write_fragments(rows(of), str(path / "t")),
    "Overwrite": lambda library, path, of: _commit(library, path, library.LanceOperation.Overwrite(of, [])),
    "Project": lambda library, path, of: _commit(library, path, library.LanceOperation.Project(of)),
    "LanceSchema": lambda library, _, of: library.schema.LanceSchema.from_pyarrow(of),
}


@pytest.mark.parametrize("case", NEW_SCHEMAS)
def test_whoever_brings_a_schema_is_told(tmp_path: Path, case: str) -> None:
    declared = schema().set(2, field("c", YES, nullable=True))
    for library in (lance, lance_io):
        (tmp_path / library.__name__).mkdir()
    with pytest.raises((OSError, RuntimeError, ValueError), match="Primary key column") as expected:
        NEW_SCHEMAS[case](lance, tmp_path / "lance", declared)
    with pytest.raises(PrimaryKeyError, match=r"Primary key column.*'c'") as raised:
        NEW_SCHEMAS[case](lance_io, tmp_path / "lance_io", declared)
    assert isinstance(raised.value, expected.type)


def _operation(name: str) -> Callable[[Any], Any]:
    """Commits an operation whose schema is the table's own."""

    def run(table: Any) -> Any:
        library = lance if isinstance(table, lance.LanceDataset) else lance_io
        operations = library.LanceOperation
        if name == "Overwrite":
            operation = operations.Overwrite(table.schema, [])
        elif name == "Merge":
            operation = operations.Merge([one.metadata for one in table.get_fragments()], table.lance_schema)
        else:
            operation = operations.Project(table.schema)
        return library.LanceDataset.commit(table.uri, operation, read_version=table.version)

    return run


KEPT: dict[str, Callable[[Any], Any]] = {
    "append": lambda t: t.insert(rows(schema()), mode="append"),
    "overwrite": lambda t: t.insert(rows(schema({PK_AT: "1"}, {CK_AT: "2"})), mode="overwrite"),
    "overwrite without": lambda t: t.insert(rows(schema()), mode="overwrite"),
    "delete": lambda t: t.delete("a = 1"),
    "truncate": lambda t: t.truncate_table(),
    "config": lambda t: t.update_config({"x": "y"}),
    "metadata": lambda t: t.update_field_metadata({"a": {"x": "y"}}),
    "metadata elsewhere": lambda t: t.update_field_metadata({"c": {"x": "y"}}, replace=True),
    "schema metadata": lambda t: t.update_schema_metadata({"x": "y"}),
    **{name: _operation(name) for name in ("Overwrite", "Project", "Merge")},
}


@pytest.mark.parametrize("case", KEPT)
def test_keys_stay_through_changes(tmp_path: Path, case: str) -> None:
    """On a table by either library: what ours leaves is what pylance would have left."""
    declared = schema({PK_AT: "2", CK_AT: "1"}, {PK_AT: "1", "q": "r"})
    for maker, library in product((lance, lance_io), repeat=2):
        path = tmp_path / f"{maker.__name__}-{library.__name__}"
        maker.write_dataset(rows(declared), str(path))
        KEPT[case](library.dataset(str(path)))
    expected = keys(tmp_path / "lance-lance")
    assert [keys(path) for path in tmp_path.iterdir()] == [expected] * 4


def test_pylance_merges_by_the_primary_key_of_our_tables(tmp_path: Path) -> None:
    table = lance_io.write_dataset(rows(schema()), tmp_path / "t")
    table.update_field_metadata({"b": {PK_AT: "1"}})
    new = rows(schema()).slice(1)
    merged = lance.dataset(tmp_path / "t").merge_insert([]).when_not_matched_insert_all().execute(new)
    assert merged["num_inserted_rows"] == 0
    assert lance_io.dataset(tmp_path / "t").count_rows() == 2


STARTS: list[Metadata] = [None, YES, {PK_AT: "2", CK_AT: "1"}, {PK: "false", PK_AT: "x", CK_AT: "0"}]
UPDATES: list[dict[str, dict[str, str | None]]] = [
    {"a": {"x": "y"}},
    {"a": {PK: "true"}},
    {"a": {PK: "false"}},
    {"a": {PK: None}},
    {"a": {PK_AT: "2"}},
    {"a": {PK: "true", PK_AT: None}},
    {"a": {CK_AT: "0"}},
    {"a": {CK_AT: "2", CK: None}},
    {"a": {CK_AT: None}},
    {"b": {PK: "false"}},
    {"b": {PK: "true"}},
    {"b": {CK_AT: "x"}},
    {"a": {PK: "true"}, "b": {PK: "false"}},
    {"c": {PK: "true"}},
    {"c": {CK_AT: "1"}},
    {"s.x": {PK_AT: "1"}},
]


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("start", STARTS, ids=str)
def test_keys_are_set_once(tmp_path: Path, start: Metadata, replace: bool) -> None:
    """Which changes of metadata are refused, and what the others leave."""
    outcomes: dict[Any, list[Any]] = {lance: [], lance_io: []}
    for library, outcome in outcomes.items():
        path = tmp_path / library.__name__
        library.write_dataset(rows(schema(start)), str(path))
        table = library.dataset(str(path))
        for updates in UPDATES:
            refusal = _error(lambda: table.update_field_metadata(updates, replace=replace))  # noqa: B023
            outcome.append(refusal or keys(path))
            if refusal is None:
                table = library.dataset(str(path), version=1)
                table.restore()  # every change meets the first version
    for updates, ours, theirs in zip(UPDATES, outcomes[lance_io], outcomes[lance], strict=True):
        assert ours == theirs, updates


def _error(change: Callable[[], Any]) -> str | None:
    """What a refusal is about."""
    try:
        change()
    except OSError as error:
        about = ("cannot be changed once set", "cannot be set to an invalid value", "must not be nullable")
        return next(one for one in about if one in str(error))
    return None


@LIBRARIES
def test_other_ways_to_change_a_key_that_is_set(tmp_path: Path, library: Any) -> None:
    path = str(tmp_path / "t")
    table = library.write_dataset(rows(schema(YES)), path)
    updates = library.LanceOperation.UpdateMap({PK: None})
    with pytest.raises(OSError, match="cannot be changed once set"):
        library.LanceDataset.commit(
            path, library.LanceOperation.UpdateConfig(field_metadata_updates={0: updates}), read_version=1
        )
    with pytest.warns(DeprecationWarning), pytest.raises(OSError, match="cannot be changed once set"):
        table.replace_field_metadata("a", {**YES, "x": "y"})
    assert library.dataset(path).version == 1


@LIBRARIES
def test_of_two_writers_the_first_sets_the_key(tmp_path: Path, library: Any) -> None:
    path = str(tmp_path / "t")
    first = library.write_dataset(rows(schema()), path)
    second = library.dataset(path)
    first.update_field_metadata({"a": YES})
    with pytest.raises(OSError, match="cannot be changed once set"):
        second.update_field_metadata({"b": YES})
    assert keys(tmp_path / "t")["primary"] == ["a"]
