"""The distributed form: fragments made in many places, by either library, committed as one by either."""

from __future__ import annotations

import dataclasses
import json
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import lance.fragment
import pyarrow as pa
import pytest

import lance_io
import lance_io.debug
import lance_io.fragment
from lance_io.errors import LanceError
from lance_io.proto import table_pb2
from tests.dataset.write.test_write_dataset import shape
from tests.interop.comparing import LIBRARIES, assert_same

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.filterwarnings("ignore:Passing a pyarrow.Schema:DeprecationWarning")

ROWS = pa.table(
    {
        "a": pa.array(range(40), pa.int64()),
        "b": [f"row {i}" if i % 5 else None for i in range(40)],
        "n": [{"x": [i] * (i % 3)} for i in range(40)],
    }
)
NAMES = {lance: "pylance", lance_io: "ours"}
PAIRS = [(lance_io, lance), (lance, lance_io), (lance_io, lance_io)]
WRITTEN_BY_COMMITTED_BY = pytest.mark.parametrize(
    ("writer", "committer"), PAIRS, ids=[f"{NAMES[one]} then {NAMES[other]}" for one, other in PAIRS]
)


def carried(library: Any, fragments: Any) -> list[Any]:
    """Fragments as another process gets them: JSON, read by the library that it uses."""
    return [library.fragment.FragmentMetadata.from_json(json.dumps(one.to_json())) for one in fragments]


# -- operations, made by one library and committed by the other --------------------------------------------------------


def append(writer: Any, committer: Any, uri: str) -> Any:
    made = writer.fragment.write_fragments(ROWS.select(["n", "a"]), uri, max_rows_per_file=15)
    return committer.LanceOperation.Append(carried(committer, made))


def overwrite(writer: Any, committer: Any, uri: str) -> Any:
    other = pa.table({"new": ["x", None], "a": [1.5, 2.5]})
    made = writer.fragment.write_fragments(other, uri, mode="overwrite")
    return committer.LanceOperation.Overwrite(other.schema, carried(committer, made))


def delete(writer: Any, committer: Any, uri: str) -> Any:
    """Whole fragments and parts of others."""
    fragments = writer.dataset(uri).get_fragments()
    left = {one.fragment_id: one.delete("a < 10 or a % 4 = 1") for one in fragments}
    updated = carried(committer, [one for one in left.values() if one is not None])
    return committer.LanceOperation.Delete(updated, [key for key, one in left.items() if one is None], "a < 10")


def update(writer: Any, committer: Any, uri: str) -> Any:
    """Rows written again, with other values."""
    fragments = writer.dataset(uri).get_fragments()
    left = {one.fragment_id: one.delete("a in (3, 12, 13)") for one in fragments}
    new = writer.fragment.write_fragments(pa.table({"a": [3, 12, 13], "b": ["x", "y", "z"]}), uri)
    return committer.LanceOperation.Update(
        updated_fragments=carried(committer, left.values()),
        new_fragments=carried(committer, new),
        fields_for_preserving_frag_bitmap=[0, 1],
        update_mode="rewrite_rows",
    )


def replace_data(writer: Any, committer: Any, uri: str) -> Any:
    """A column that was added without values gets a file, in all fragments but the first."""
    lance.dataset(uri).add_columns(pa.field("late", pa.int32()))
    groups = []
    for fragment in writer.dataset(uri).get_fragments()[1:]:
        column = pa.table({"late": pa.array(range(fragment.physical_rows), pa.int32())})
        (new,) = writer.fragment.write_fragments(column, uri)
        (file,) = carried(committer, [new])[0].files
        groups.append(committer.LanceOperation.DataReplacementGroup(fragment.fragment_id, file))
    return committer.LanceOperation.DataReplacement(groups)


def merge(_writer: Any, committer: Any, uri: str) -> Any:
    """Fragments with one more column, which only pylance makes; we take the schema without ids, too."""
    made = [
        one.merge_columns(lambda batch: pa.record_batch({"c": [value.as_py() * 3 for value in batch["a"]]}), ["a"])
        for one in lance.dataset(uri).get_fragments()
    ]
    schema = made[0][1] if committer is lance else made[0][1].to_pyarrow()
    return committer.LanceOperation.Merge(carried(committer, [one for one, _ in made]), schema)


def restore(_writer: Any, committer: Any, uri: str) -> Any:
    lance.dataset(uri).delete("a > 5")
    return committer.LanceOperation.Restore(1)


def configure(_writer: Any, committer: Any, _uri: str) -> Any:
    maps = committer.LanceOperation.UpdateMap
    return committer.LanceOperation.UpdateConfig(
        config_updates=maps({"k": "v"}),
        table_metadata_updates=maps({"m": "w"}, replace=True),
        schema_metadata_updates=maps({"s": "t"}),
        field_metadata_updates={1: maps({"f": "g"})},
    )


OPERATIONS = (append, overwrite, delete, update, replace_data, merge, restore, configure)
# Or changing them, as rows with stable ids record.
MOVING_ROWS = (append, overwrite, delete, update, replace_data, merge)


@pytest.mark.parametrize(
    ("operation", "stable"),
    [(one, False) for one in OPERATIONS] + [(one, True) for one in OPERATIONS if one in MOVING_ROWS],
    ids=lambda one: one.__name__ if callable(one) else "stable ids" if one else "addresses",
)
@WRITTEN_BY_COMMITTED_BY
def test_operations_pass_between_the_libraries(
    tmp_path: Path, writer: Any, committer: Any, operation: Callable[[Any, Any, str], Any], stable: bool
) -> None:
    tables = {"theirs": (lance, lance), "mixed": (writer, committer)}
    for name, (wrote, commits) in tables.items():
        uri = str(tmp_path / name)
        lance.write_dataset(ROWS, uri, max_rows_per_file=10, enable_stable_row_ids=stable)
        made = operation(wrote, commits, uri)
        commits.LanceDataset.commit(uri, made, read_version=lance.dataset(uri).version)
    for reader in LIBRARIES:
        theirs, mixed = reader.dataset(str(tmp_path / "theirs")), reader.dataset(str(tmp_path / "mixed"))
        versions = ["_row_created_at_version", "_row_last_updated_at_version"]
        columns = [*theirs.schema.names, "_rowid", "_rowaddr", *versions]
        assert_same(mixed.to_table(columns=columns), theirs.to_table(columns=columns))
        assert mixed.schema.equals(theirs.schema, check_metadata=True)
        assert shape(mixed) == shape(theirs)
        assert (mixed.version, mixed.config(), mixed.metadata) == (theirs.version, theirs.config(), theirs.metadata)


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER"])
@pytest.mark.parametrize("operation", ["rewrite", "update"])
def test_indices_hide_no_rows_that_have_moved(tmp_path: Path, operation: str, kind: str) -> None:
    """A fragment is written again under the row ids that it had; or rows are, and new ones come with them."""
    uri = str(tmp_path / "t")
    lance.write_dataset(ROWS, uri, max_rows_per_file=10, enable_stable_row_ids=True)
    first = lance.dataset(uri).get_fragments()[0]
    same = lance.fragment.write_fragments(ROWS.slice(0, 10), uri)[0]
    left = first.delete("a in (3, 4)")
    more = lance.fragment.write_fragments(pa.table({"a": [3, 4, 100], "b": ["x"] * 3}), uri)
    lance.dataset(uri).create_scalar_index("a", kind)
    ours = lance_io.LanceOperation
    if operation == "rewrite":
        new = dataclasses.replace(first.metadata, id=9, files=same.files)
        group = ours.RewriteGroup(carried(lance_io, [first.metadata]), carried(lance_io, [new]))
        change: Any = ours.Rewrite([group], [])
    else:
        change = ours.Update(updated_fragments=carried(lance_io, [left]), new_fragments=carried(lance_io, more))
    lance_io.LanceDataset.commit(uri, change, read_version=2)
    table = lance.dataset(uri)
    for text in ("a = 3", "a >= 2 and a < 35", "a = 100"):
        expected = table.to_table(filter=text, use_scalar_index=False)
        assert_same(table.to_table(filter=text), expected)
    assert table.count_rows("a = 3") == 1 and table.count_rows("a = 100") == (operation == "update")


@pytest.mark.parametrize("dropped", [[], ["b"], ["n"], ["b", "n"], ["n.x"]], ids=" ".join)
def test_new_fields_get_ids_that_no_dropped_field_had(tmp_path: Path, dropped: list[str]) -> None:
    uri = str(tmp_path / "t")
    rows = ROWS.append_column("m", pa.array([{"p": i, "q": {"r": i}} for i in range(40)]))
    lance.write_dataset(rows, uri, max_rows_per_file=10)
    if dropped:
        lance.dataset(uri).drop_columns(dropped)
    before = lance.dataset(uri)
    operation = merge(lance, lance_io, uri)
    merged = lance_io.LanceDataset.commit(uri, operation, read_version=before.version)
    expected = before.to_table().append_column("c", pa.array(range(0, 120, 3)))
    for reader in LIBRARIES:
        assert_same(reader.dataset(uri).to_table(), expected)
    old = {one.name(): one.id() for one in before.lance_schema.fields()}
    assert {one.name(): one.id() for one in merged.lance_schema.fields()} == {**old, "c": before.max_field_id + 1}


@pytest.mark.parametrize("change", ["id of a dropped field", "type", "nullability"])
def test_schemas_that_files_contradict_are_refused(tmp_path: Path, change: str) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(ROWS, uri)
    lance.dataset(uri).drop_columns(["b"])
    fragments = [one.metadata for one in lance.dataset(uri).get_fragments()]
    fields = {
        "id of a dropped field": [pa.field("a", pa.int64()), pa.field("z", pa.string())],  # z gets 1, as b had
        "type": [pa.field("a", pa.int32())],
        "nullability": [pa.field("a", pa.int64(), nullable=False)],
    }[change]
    schema = lance_io.write_dataset(pa.schema(fields).empty_table(), tmp_path / "ids").lance_schema
    operation = lance_io.LanceOperation.Merge(carried(lance_io, fragments), schema)
    with pytest.raises(LanceError, match=r"Merge (gives|changes)"):
        lance_io.LanceDataset.commit(uri, operation, read_version=2)
    assert lance.dataset(uri).version == 2


REFUSED: dict[str, Callable[[Any, str], Any]] = {
    "fragments to create where there is a table": lambda library, uri: library.fragment.write_fragments(
        ROWS, uri, mode="create"
    ),
    "fragment without rows": lambda library, uri: library.LanceFragment.create(uri, ROWS.slice(0, 0)),
    "batch of nothing": lambda library, uri: library.LanceDataset.commit_batch(uri, []),
    "batch of other operations": lambda library, uri: library.LanceDataset.commit_batch(
        uri, [library.Transaction(1, library.LanceOperation.Restore(1))]
    ),
    "files of 0.1": lambda library, uri: library.LanceDataset.commit(
        uri, library.LanceOperation.Append(legacy(library, uri)), read_version=1
    ),
    "merge without a fragment": lambda library, uri: library.LanceDataset.commit(
        uri, library.LanceOperation.Merge([], library.dataset(uri).lance_schema), read_version=1
    ),
    "fragment with an id that is taken": lambda library, uri: library.LanceDataset.commit(
        uri,
        library.LanceOperation.Append([one.metadata for one in library.dataset(uri).get_fragments()][1:]),
        read_version=1,
    ),
    "version that is to come": lambda library, uri: library.LanceDataset.commit(
        uri, library.LanceOperation.Append([]), read_version=9
    ),
    "version that is not there": lambda library, uri: library.LanceDataset.commit(
        uri, library.LanceOperation.Restore(9)
    ),
    "no table": lambda library, uri: library.LanceDataset.commit(
        uri + "2", library.LanceOperation.Append([]), read_version=1
    ),
    "no version": lambda library, uri: library.LanceDataset.commit(uri, library.LanceOperation.Append([])),
}


def legacy(library: Any, uri: str) -> list[Any]:
    """A fragment that says that its file is of version 0.1."""
    (made,) = library.fragment.write_fragments(ROWS, uri)
    told = made.to_json()
    told["files"][0] |= {"file_major_version": 0, "file_minor_version": 2, "column_indices": []}
    return [library.fragment.FragmentMetadata.from_json(json.dumps(told))]


@pytest.mark.parametrize("version", [1, 2, 9])
def test_an_older_version_is_restored_beside_the_others(tmp_path: Path, version: int) -> None:
    """A detached version is made on the one that is open, and needs the restored one beside it."""
    rows = pa.table({"a": [1, 2]})
    found = []
    for library in LIBRARIES:
        uri = str(tmp_path / library.__name__)
        lance.write_dataset(rows, uri)
        lance.write_dataset(rows, uri, mode="append")
        restore = library.LanceOperation.Restore(version)
        if version == 9:
            with pytest.raises(OSError):
                library.LanceDataset.commit(uri, restore, detached=True)
            continue
        detached = library.LanceDataset.commit(uri, restore, detached=True)
        assert detached.version >> 63 == 1
        table = lance.dataset(uri, version=detached.version)
        found.append(([one.fragment_id for one in table.get_fragments()], table.to_table().to_pydict()))
        assert lance.dataset(uri).version == 2
    assert version == 9 or found[0] == found[1]


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_are_those_of_pylance(tmp_path: Path, case: str) -> None:
    kinds = []
    for library in LIBRARIES:
        uri = str(tmp_path / NAMES[library])
        lance.write_dataset(ROWS, uri, max_rows_per_file=10)
        with pytest.raises((OSError, ValueError)) as raised:
            REFUSED[case](library, uri)
        kinds.append(raised.type)
        assert lance.dataset(uri).version == 1
    assert issubclass(kinds[1], LanceError) and issubclass(kinds[1], kinds[0]), kinds


# -- blobs, and schemas that files do not have ----------------------------------------------------------------------

BLOB = pa.field("x", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
BLOBS = pa.table([[1, 2], [b"one", b"two"]], schema=pa.schema([pa.field("k", pa.int64()), BLOB]))


def blob_bytes(library: Any, uri: str) -> list[bytes]:
    return [one.readall() for one in library.dataset(uri).take_blobs("x", indices=[0, 1])]


@pytest.mark.parametrize("before", ["nothing", "blobs", "plain", "2.1"])
@WRITTEN_BY_COMMITTED_BY
def test_blobs_of_a_distributed_write_are_of_the_kind_that_files_hold(
    tmp_path: Path, writer: Any, committer: Any, before: str
) -> None:
    tables = {"theirs": (lance, lance), "mixed": (writer, committer)}
    for name, (wrote, commits) in tables.items():
        uri = str(tmp_path / name)
        if before != "nothing":
            first = BLOBS.cast(pa.schema([("k", pa.int64()), ("x", pa.large_binary())])) if before == "plain" else BLOBS
            lance.write_dataset(first, uri, data_storage_version="2.1" if before == "2.1" else None)
        made = wrote.fragment.write_fragments(BLOBS, uri, mode="create" if before == "nothing" else "overwrite")
        commits.LanceDataset.commit(uri, commits.LanceOperation.Overwrite(BLOBS.schema, carried(commits, made)))
    for reader in LIBRARIES:
        theirs, mixed = reader.dataset(str(tmp_path / "theirs")), reader.dataset(str(tmp_path / "mixed"))
        assert mixed.schema.equals(theirs.schema, check_metadata=True)
        assert_same(mixed.to_table(), theirs.to_table())
        assert blob_bytes(reader, str(tmp_path / "mixed")) == [b"one", b"two"]


def test_columns_after_blobs_keep_their_values(tmp_path: Path) -> None:
    """pylance writes two kinds of ids, and does not commit those of files that create a table."""
    uri, rows = str(tmp_path / "t"), BLOBS.select(["x", "k"])
    for mode in ("create", "overwrite"):
        made = lance.fragment.write_fragments(rows, uri, mode=mode)
        operation = lance_io.LanceOperation.Overwrite(rows.schema, carried(lance_io, made))
        lance_io.LanceDataset.commit(uri, operation)
        for reader in LIBRARIES:
            assert reader.dataset(uri).to_table(columns=["k"])["k"].to_pylist() == [1, 2]
            assert blob_bytes(reader, uri) == [b"one", b"two"]


@pytest.mark.parametrize("operation", ["Project", "Merge"])
def test_schemas_of_rows_name_the_blobs_of_the_table(tmp_path: Path, operation: str) -> None:
    uri = str(tmp_path / "t")
    table = lance_io.write_dataset(BLOBS, uri)
    fragments = [one.metadata for one in table.get_fragments()]
    made = {
        "Project": lance_io.LanceOperation.Project(pa.schema([BLOB])),
        "Merge": lance_io.LanceOperation.Merge(fragments, BLOBS.schema),
    }[operation]
    lance_io.LanceDataset.commit(uri, made, read_version=1)
    for reader in LIBRARIES:
        assert blob_bytes(reader, uri) == [b"one", b"two"]


PROJECTED = {
    "unknown column": [("zzz", pa.string())],
    "unknown column beside one": [("a", pa.int64()), ("zzz", pa.string())],
    "another type": [("a", pa.string())],
    "no column": [],
}


@pytest.mark.parametrize("case", PROJECTED)
def test_a_projection_to_what_is_not_there_is_refused(tmp_path: Path, case: str) -> None:
    """pylance commits it; what it gives cannot be read, or has nulls for values."""
    uri = str(tmp_path / "t")
    lance.write_dataset(ROWS, uri)
    operation = lance_io.LanceOperation.Project(pa.schema(PROJECTED[case]))
    with pytest.raises(OSError, match="Project names"):
        lance_io.LanceDataset.commit(uri, operation, read_version=1)
    assert lance.dataset(uri).version == 1


A, B = pa.field("a", pa.int64()), pa.field("b", pa.string())
OVERWRITTEN: dict[str, tuple[list[pa.Field[Any]], str]] = {
    "fewer columns": ([A], r"field ids \[1\]"),
    "nested where it is flat": ([pa.field("s", pa.struct([A, B]))], r'column 1 \("b"\) holds string'),
    "another order": ([B, A], r'column 0 \("a"\) holds int64'),
    "another type": ([A, BLOB.with_name("b")], r'column 1 \("b"\) holds string'),
    "a column that must be": ([A, B, pa.field("c", pa.int64(), nullable=False)], 'no column "c"'),
}


@pytest.mark.parametrize("exists", [False, True], ids=["new", "over"])
@pytest.mark.parametrize("case", OVERWRITTEN)
def test_an_overwrite_with_other_columns_than_its_files_is_refused(tmp_path: Path, case: str, exists: bool) -> None:
    """pylance looks at field ids only, and commits what it cannot read."""
    uri, (fields, refusal) = str(tmp_path / "t"), OVERWRITTEN[case]
    if exists:
        lance.write_dataset(ROWS, uri)
    rows = pa.table([[1], ["x"]], schema=pa.schema([A, B]))
    made = lance_io.fragment.write_fragments(rows, uri, mode="overwrite" if exists else "create")
    operation = lance_io.LanceOperation.Overwrite(pa.schema(fields), made)
    with pytest.raises(OSError, match=refusal) as raised:
        lance_io.LanceDataset.commit(uri, operation)
    assert isinstance(raised.value, ValueError)
    assert len(list(Path(uri).glob("_versions/*.manifest"))) == exists


# -- processes ---------------------------------------------------------------------------------------------------------


def write_part(uri: str, first: int, by_pylance: bool) -> tuple[bytes | None, list[str]]:
    """What a worker sends back: a pickle, and JSON. Pylance's fragments go as JSON only."""
    rows = pa.table({"a": pa.array(range(first, first + 10), pa.int64()), "b": ["x"] * 10, "n": [None] * 10})
    rows = rows.set_column(2, "n", pa.nulls(10, ROWS.schema.field("n").type))
    library = lance if by_pylance else lance_io
    made = library.fragment.write_fragments(rows, uri, mode="append", max_rows_per_file=7)
    return None if by_pylance else pickle.dumps(made), [json.dumps(one.to_json()) for one in made]


def test_fragments_of_several_processes_become_one_version(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance_io.write_dataset(ROWS, uri)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as workers:
        jobs = [workers.submit(write_part, uri, 100 * part, part % 2 == 1) for part in range(4)]
        answers = [job.result() for job in jobs]
    fragments = []
    for pickled, texts in answers:
        made = [lance_io.FragmentMetadata.from_json(text) for text in texts]
        assert pickled is None or pickle.loads(pickled) == made
        fragments += made
    operation = lance_io.LanceOperation.Append(fragments)
    transaction = pickle.loads(pickle.dumps(lance_io.Transaction(1, operation)))
    assert lance_io.LanceDataset.commit(uri, transaction).version == 2
    for reader in LIBRARIES:
        found = reader.dataset(uri).to_table(["a"])["a"].to_pylist()
        assert sorted(found) == sorted([*range(40), *(100 * part + i for part in range(4) for i in range(10))])
        assert [one.fragment_id for one in reader.dataset(uri).get_fragments()] == list(range(9))


@WRITTEN_BY_COMMITTED_BY
def test_a_table_is_created_from_fragments(tmp_path: Path, writer: Any, committer: Any) -> None:
    uri = str(tmp_path / "t")
    made = writer.fragment.write_fragments(ROWS, uri, mode="create", max_rows_per_file=15)
    operation = committer.LanceOperation.Overwrite(ROWS.schema, carried(committer, made))
    assert committer.LanceDataset.commit(uri, operation, enable_stable_row_ids=True).version == 1
    for reader in LIBRARIES:
        table = reader.dataset(uri)
        assert_same(table.to_table(), ROWS)
        assert table.has_stable_row_ids
        assert table.to_table(columns=["_rowid"])["_rowid"].to_pylist() == list(range(40))


# -- the same transaction again ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", LIBRARIES, ids=NAMES.get)
@pytest.mark.parametrize("between", [None, *LIBRARIES], ids=lambda one: NAMES.get(one, "nobody"))
@pytest.mark.parametrize("kind", ["append", "overwrite", "delete"])
def test_a_transaction_that_pylance_or_we_committed_is_recognised(
    tmp_path: Path, first: Any, between: Any, kind: str
) -> None:
    """Whoever committed it, and whatever came between. (Pylance itself recognises none: it appends twice.)"""
    uri = str(tmp_path / "t")
    lance_io.write_dataset(ROWS, uri, max_rows_per_file=10)
    make = {"append": append, "overwrite": overwrite, "delete": delete}[kind]
    transactions = {
        library: library.Transaction(1, make(library, library, uri), "11111111-2222-4333-8444-555555555555")
        for library in {first, lance_io}
    }
    once = first.LanceDataset.commit(uri, transactions[first])
    assert once.version == 2
    expected = lance.dataset(uri).to_table()
    if between is not None:
        between.dataset(uri).update_config({"k": "v"})
    again = lance_io.LanceDataset.commit(uri, transactions[lance_io])
    assert again.version == 2
    assert_same(again.to_table(), expected)
    assert lance.dataset(uri).version == (2 if between is None else 3)
    assert_same(lance.dataset(uri).to_table(), expected)


def test_a_creation_that_pylance_committed_is_recognised(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    made = lance.fragment.write_fragments(ROWS, uri, mode="create")
    for library in (lance, lance_io, lance_io):
        operation = library.LanceOperation.Overwrite(ROWS.schema, carried(library, made))
        transaction = library.Transaction(0, operation, "11111111-2222-4333-8444-555555555555")
        assert library.LanceDataset.commit(uri, transaction).version == 1
    assert lance.dataset(uri).version == 1


BEFORE: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda _: None,
    "append": lambda table: lance.write_dataset(ROWS, table.uri, mode="append"),
    "overwrite": lambda table: lance.write_dataset(ROWS, table.uri, mode="overwrite"),
    "delete": lambda table: table.delete("a > 7"),
    "restore": lambda table: table.restore(),
    "update": lambda table: table.update({"a": "a + 1"}),
}


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize(
    ("make", "read_version"), [(append, 0), (overwrite, None), (overwrite, 0), (restore, None), (restore, 0)]
)
def test_what_was_made_for_no_version_joins_the_newest(
    tmp_path: Path, read_version: int | None, make: Any, before: str
) -> None:
    """Or the one of the dataset that is handed over."""
    found, refused = [], []
    for library in (lance, lance_io):
        uri = str(tmp_path / NAMES[library])
        old = library.dataset(lance.write_dataset(ROWS, uri, max_rows_per_file=10).uri)
        BEFORE[before](lance.dataset(uri))
        operation = make(library, library, uri)
        found.append(library.LanceDataset.commit(uri, operation, read_version=read_version))
        try:
            refused.append(library.LanceDataset.commit(old, make(library, library, uri), read_version=read_version))
        except library.commit.CommitConflictError:
            refused.append(None)
    assert shape(found[0]) == shape(found[1])
    assert_same(found[1].to_table(), found[0].to_table())
    assert [one and shape(one) for one in refused[:1]] == [one and shape(one) for one in refused[1:]]


def test_what_was_made_for_no_version_is_recognised(tmp_path: Path) -> None:
    table = lance_io.write_dataset(ROWS, tmp_path / "t")
    transaction = lance_io.Transaction(0, overwrite(lance_io, lance_io, table.uri))
    for _ in range(2):
        assert lance_io.LanceDataset.commit(table.uri, transaction).version == 2
        lance.dataset(table.uri).update_config({"k": "v"})


# -- what others put into manifests ------------------------------------------------------------------------------------


UNKNOWN = b"\x8a\xf3\x01\x05later"  # field 3889, five bytes: no release has it


def manifest_file(uri: str, version: int) -> Path:
    return Path(uri) / "_versions" / f"{2**64 - 1 - version}.manifest"


def message_of(data: bytes) -> table_pb2.Manifest:
    start = int.from_bytes(data[-16:-8], "little")
    return table_pb2.Manifest.FromString(
        data[start + 4 : start + 4 + int.from_bytes(data[start : start + 4], "little")]
    )


def plant(uri: str, version: int, *, aux_data: int = 0) -> None:
    """Add an unknown field to every message of a manifest, as a later release may, or a place of auxiliary data."""
    file = manifest_file(uri, version)
    data = file.read_bytes()
    start = int.from_bytes(data[-16:-8], "little")
    message = message_of(data)
    parts = [message, *message.fields, *message.fragments, *(one.files[0] for one in message.fragments)]
    for part in () if aux_data else parts:
        part.MergeFromString(UNKNOWN)
    message.version_aux_data = aux_data
    encoded = message.SerializeToString()
    file.write_bytes(data[:start] + len(encoded).to_bytes(4, "little") + encoded + data[-16:])


CHANGES: dict[str, Callable[[Any], Any]] = {
    "append": lambda t: t.insert(ROWS),
    "delete": lambda t: t.delete("a % 7 = 0"),
    "config": lambda t: t.update_config({"k": "v"}),
    "field metadata": lambda t: t.update_field_metadata({"a": {"k": "v"}}),
    "committed append": lambda t: lance_io.LanceDataset.commit(
        t.uri,
        lance_io.LanceOperation.Append(lance_io.fragment.write_fragments(ROWS, t)),
        read_version=t.version,
    ),
    "restore": lambda t: (t.delete("true"), lance_io.dataset(t.uri, 1).restore()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_unknown_fields_of_a_manifest_survive(tmp_path: Path, change: str) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(ROWS, uri, max_rows_per_file=10)
    plant(uri, 1)
    table = lance_io.dataset(uri)
    CHANGES[change](table)
    newest = lance_io.dataset(uri)
    message = message_of(manifest_file(uri, newest.version).read_bytes())
    old = [one for one in message.fragments if one.id < 4]
    assert UNKNOWN in message.SerializeToString()
    for part in (message.fields, old, [one.files[0] for one in old]):
        assert len(part) >= 3
        assert all(UNKNOWN in one.SerializeToString() for one in part)
    top = table_pb2.Manifest.FromString(message.SerializeToString())
    top.ClearField("fields")
    top.ClearField("fragments")
    assert UNKNOWN in top.SerializeToString()
    assert_same(lance.dataset(uri).to_table(), newest.to_table())


@pytest.mark.parametrize("change", CHANGES)
def test_the_place_of_auxiliary_data_is_not_inherited(tmp_path: Path, change: str) -> None:
    """It is a place in the manifest file of its own version; pylance inherits it by a restore alone."""
    for uri in (str(tmp_path / "theirs"), str(tmp_path / "t")):
        lance.write_dataset(ROWS, uri, max_rows_per_file=10)
        plant(uri, 1, aux_data=17)
    if change not in ("restore", "committed append"):
        CHANGES[change](lance.dataset(str(tmp_path / "theirs")))
        assert message_of(manifest_file(str(tmp_path / "theirs"), 2).read_bytes()).version_aux_data == 0
    assert "version_aux_data: 17," in lance_io.debug.format_manifest(lance_io.dataset(uri))
    CHANGES[change](lance_io.dataset(uri))
    newest = lance_io.dataset(uri)
    assert message_of(manifest_file(uri, newest.version).read_bytes()).version_aux_data == 0
