"""`write_dataset` against pylance: what is taken, what is refused, and what the tables are then."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pytest

import lance_io
import lance_io.progress
from lance_io.changes.edits import commit_operation
from lance_io.changes.write import write_arguments
from lance_io.errors import CommitConflictError, LanceError
from lance_io.fragment import write_fragments, write_fragments_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

TABLE = pa.table(
    {
        "a": pa.array([1, 2, 3, 4], pa.int32()),
        "b": ["x", "y", None, "z"],
        "s": [{"p": 1, "q": "u"}, None, {"p": 2, "q": None}, {"p": 3, "q": "v"}],
        "l": [[1, 2], [], None, [3]],
    }
)
WRITERS = pytest.mark.parametrize("library", [lance, lance_io], ids=["pylance", "ours"])


def same(ours: str | Path, theirs: str | Path) -> None:
    """Both tables look the same to both libraries, field ids and versions included."""
    for reader in (lance, lance_io):
        one, other = reader.dataset(str(ours)), reader.dataset(str(theirs))
        assert one.to_table().equals(other.to_table())
        assert one.schema.equals(other.schema, check_metadata=True)
        assert [field.id() for field in one.lance_schema.fields()] == [f.id() for f in other.lance_schema.fields()]
        assert one.version == other.version
        assert shape(one) == shape(other)


def shape(table: Any) -> list[Any]:
    """Fragments without the names and sizes of files."""
    return [
        (
            one.fragment_id,
            one.physical_rows,
            [(f.fields, f.column_indices, f.file_minor_version) for f in one.data_files()],
        )
        for one in table.get_fragments()
    ]


# -- forms of data ---------------------------------------------------------------------------------------------------

FRAME = pd.DataFrame({"a": [1, 2, 3], "b": ["x", None, "z"]})
FORMS: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "table": lambda: (TABLE, {}),
    "table with another schema": lambda: (TABLE, {"schema": TABLE.schema.set(0, pa.field("a", pa.int64()))}),
    "batch": lambda: (TABLE.to_batches()[0], {}),
    "reader": lambda: (TABLE.to_reader(), {}),
    "pandas": lambda: (FRAME, {}),
    "pandas with an index": lambda: (FRAME.set_index("b"), {}),
    "pandas with a schema": lambda: (FRAME, {"schema": pa.schema([("a", pa.int16()), ("b", pa.string())])}),
    "polars": lambda: (pl.DataFrame({"a": [1, 2], "b": ["x", None]}), {}),
    "dict": lambda: ({"a": [1, 2], "b": [None, "x"]}, {}),
    "dict with a schema": lambda: ({"a": [1, 2]}, {"schema": pa.schema([("a", pa.int8())])}),
    "list of dicts": lambda: ([{"a": 1}, {"a": None}], {}),
    "batches": lambda: (TABLE.to_batches(max_chunksize=1), {"schema": TABLE.schema}),
    "generator": lambda: ((b for b in TABLE.to_batches(max_chunksize=3)), {"schema": TABLE.schema}),
    "batches to be cast": lambda: (TABLE.select(["a"]).to_batches(), {"schema": pa.schema([("a", pa.int64())])}),
    "arrow dataset": lambda: (pads.dataset(TABLE), {}),
    "arrow scanner": lambda: (pads.dataset(TABLE).scanner(columns=["b"]), {}),
    "no rows": lambda: (TABLE.slice(0, 0), {}),
    "chunks and slices": lambda: (pa.concat_tables([TABLE.slice(1, 2), TABLE.slice(0, 1), TABLE]), {}),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_data_gives_the_table_that_pylance_makes(tmp_path: Path, form: str) -> None:
    for library, name in ((lance, "theirs"), (lance_io, "ours")):
        data, options = FORMS[form]()
        written = library.write_dataset(data, str(tmp_path / name), **options)
        assert written.version == 1
    same(tmp_path / "ours", tmp_path / "theirs")


def test_datasets_and_scanners_of_both_libraries_are_data(tmp_path: Path) -> None:
    lance.write_dataset(TABLE, tmp_path / "source")
    sources = [
        lance.dataset(tmp_path / "source"),
        lance.dataset(tmp_path / "source").scanner(),
        lance_io.dataset(tmp_path / "source"),
        lance_io.dataset(tmp_path / "source").scanner(),
    ]
    for number, source in enumerate(sources):
        lance_io.write_dataset(source, tmp_path / f"{number}")
        assert lance.dataset(tmp_path / f"{number}").to_table().equals(TABLE)


@pytest.mark.parametrize(
    "data",
    ["text", [], 5, iter(TABLE.to_batches()), pa.array([{"a": 1}])],
    ids=["text", "nothing", "number", "batches", "array"],
)
def test_what_is_no_table_is_refused_as_by_pylance(tmp_path: Path, data: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as theirs:
        lance.write_dataset(data, tmp_path / "t")
    with pytest.raises(theirs.type):
        lance_io.write_dataset(data, tmp_path / "t")
    assert not list((tmp_path / "t").glob("**/*.lance"))


async def test_asynchronous_iterables_are_data(tmp_path: Path) -> None:
    async def batches() -> AsyncIterator[pa.RecordBatch]:
        for batch in TABLE.to_batches(max_chunksize=1):
            await asyncio.sleep(0)
            yield batch

    table = await lance_io.AsyncDataset.write(batches(), tmp_path / "t", TABLE.schema)
    assert await table.count_rows() == 4
    await table.insert(TABLE)
    assert table.version == 2
    assert lance.dataset(tmp_path / "t").to_table().equals(pa.concat_tables([TABLE, TABLE]))


# -- modes -----------------------------------------------------------------------------------------------------------


def changes(library: Any, uri: str) -> None:
    """Every mode, with changes of schema, order and metadata."""
    library.write_dataset(TABLE, uri, max_rows_per_file=3)
    library.write_dataset(TABLE.select(["s", "b", "a"]), uri, mode="append")
    library.write_dataset(TABLE.select(["a"]), uri, mode="append")
    library.write_dataset(pa.table({"s": [{"q": "w", "p": 9}]}), uri, mode="append")
    library.write_dataset(TABLE.slice(0, 0), uri, mode="append")
    library.write_dataset(library.dataset(uri), uri, mode="append", max_rows_per_file=2)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_appends_are_those_of_pylance(tmp_path: Path, version: str) -> None:
    for library, name in ((lance, "theirs"), (lance_io, "ours")):
        library.write_dataset(TABLE.slice(0, 0), str(tmp_path / name), data_storage_version=version)
        library.write_dataset(TABLE, str(tmp_path / name), mode="overwrite")
        library.write_dataset(TABLE.select(["l", "b"]), str(tmp_path / name), mode="append")
        assert library.dataset(str(tmp_path / name)).data_storage_version == version
    same(tmp_path / "ours", tmp_path / "theirs")


def test_writes_in_turn_give_the_table_that_pylance_makes(tmp_path: Path) -> None:
    for library, name in ((lance, "theirs"), (lance_io, "ours")):
        changes(library, str(tmp_path / name))
    same(tmp_path / "ours", tmp_path / "theirs")


def test_overwriting_keeps_config_and_history(tmp_path: Path) -> None:
    other = pa.table({"new": [1.5]}).replace_schema_metadata({"k": "v"})
    for library, name in ((lance, "theirs"), (lance_io, "ours")):
        uri = str(tmp_path / name)
        library.write_dataset(TABLE, uri, data_storage_version="2.1").update_config({"x": "y"})
        library.write_dataset(other, uri, mode="overwrite", data_storage_version="2.2")
        assert library.dataset(uri).config() == {"x": "y"}
        assert library.dataset(uri, 1).count_rows() == 4
    same(tmp_path / "ours", tmp_path / "theirs")
    assert lance.dataset(tmp_path / "ours").data_storage_version == "2.2"


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_table_that_is_not_there_is_created(tmp_path: Path, mode: str) -> None:
    assert lance_io.write_dataset(TABLE, tmp_path / "t", mode=mode).version == 1
    assert lance.dataset(tmp_path / "t").to_table().equals(TABLE)


def test_an_open_dataset_may_be_the_place(tmp_path: Path) -> None:
    first = lance_io.write_dataset(TABLE, tmp_path / "t")
    second = lance_io.write_dataset(TABLE, first, mode="append")
    third = lance_io.write_dataset(TABLE, first, mode="append")  # stale by now
    assert (first.version, second.version, third.version) == (1, 2, 3)
    assert (len(first), len(second), len(third)) == (4, 8, 12)
    first.insert(TABLE)
    assert (first.version, len(first)) == (4, 16)
    lance.dataset(tmp_path / "t").create_branch("side", 1)
    lance_io.dataset(tmp_path / "t", ("side", None)).insert(TABLE)
    assert len(lance.dataset(tmp_path / "t").checkout_version(("side", 2)).to_table()) == 8
    assert len(lance.dataset(tmp_path / "t")) == 16


# -- refusals --------------------------------------------------------------------------------------------------------

REFUSED: dict[str, Callable[[Any, str], Any]] = {
    "create where there is a table": lambda library, uri: library.write_dataset(TABLE, uri),
    "no mode": lambda library, uri: library.write_dataset(TABLE, uri, mode="foo"),
    "unknown column": lambda library, uri: library.write_dataset({"z": [1]}, uri, mode="append"),
    "other type": lambda library, uri: library.write_dataset({"a": ["x"]}, uri, mode="append"),
    "several differences": lambda library, uri: library.write_dataset(
        {"a": [1], "zz": [1], "y": [1]}, uri, mode="append"
    ),
    "other member": lambda library, uri: library.write_dataset({"s": [{"p": "x", "n": 1}]}, uri, mode="append"),
    "other item": lambda library, uri: library.write_dataset({"l": [["x"]]}, uri, mode="append"),
    "null where none may be": lambda library, uri: library.write_dataset(
        pa.table({"n": pa.array([None], pa.int64()), "a": pa.array([1], pa.int32())}), uri, mode="append"
    ),
    "missing where it must be": lambda library, uri: library.write_dataset({"b": ["x"]}, uri, mode="append"),
    "reserved name": lambda library, uri: library.write_dataset({"_rowid": [1]}, uri + "2"),
    "dotted name": lambda library, uri: library.write_dataset({"a.b": [1]}, uri + "2"),
    "a name twice": lambda library, uri: library.write_dataset(pa.table([[1], [2]], names=["a", "a"]), uri + "2"),
    "no such version": lambda library, uri: library.write_dataset(TABLE, uri + "2", data_storage_version="v2"),
    "map in 2.1": lambda library, uri: library.write_dataset(
        pa.table({"m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32()))}), uri + "2", data_storage_version="2.1"
    ),
    "run-end encoded": lambda library, uri: library.write_dataset(
        pa.table({"r": pa.RunEndEncodedArray.from_arrays([1, 2], [5, 6])}), uri + "2"
    ),
    "list view": lambda library, uri: library.write_dataset(
        pa.table({"v": pa.array([[1]], pa.list_view(pa.int32()))}), uri + "2"
    ),
    "decimal32": lambda library, uri: library.write_dataset(
        pa.table({"d": pa.array([1], pa.decimal32(5, 1))}), uri + "2"
    ),
    "null structs without members": lambda library, uri: library.write_dataset(
        pa.table({"e": pa.array([{}, None], pa.struct([]))}), uri + "2"
    ),
    "metadata that is no text": lambda library, uri: library.write_dataset(
        pa.table({"a": [1]}).replace_schema_metadata({b"k": b"\xff"}), uri + "2"
    ),
    "metadata of a field that is no text": lambda library, uri: library.write_dataset(
        pa.table([[1]], schema=pa.schema([pa.field("a", pa.int64(), metadata={b"k\xff": b"v"})])), uri + "2"
    ),
    "a member twice": lambda library, uri: library.write_dataset(
        pa.table([[1], pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["p", "p"])], names=["n", "s"]),
        uri,
        mode="append",
    ),
    "a name twice in what is appended": lambda library, uri: library.write_dataset(
        pa.table([[1], [2]], names=["n", "n"]), uri, mode="append"
    ),
    "batches with more columns than their schema": lambda library, uri: library.write_dataset(
        iter(TABLE.to_batches()), uri + "2", TABLE.schema.remove(1)
    ),
    "no place": lambda library, _: library.write_dataset(TABLE),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_are_those_of_pylance(tmp_path: Path, case: str) -> None:
    schema = TABLE.schema.append(pa.field("n", pa.int64(), nullable=False))
    start = TABLE.append_column("n", pa.array([1, 2, 3, 4])).cast(schema)
    messages: list[str] = []
    for library, name in ((lance, "theirs"), (lance_io, "ours")):
        uri = str(tmp_path / name)
        library.write_dataset(start, uri)
        with pytest.raises((OSError, ValueError)) as raised:
            REFUSED[case](library, uri)
        messages.append(str(raised.value))
        if library is lance:
            expected = raised.type
        else:
            assert isinstance(raised.value, expected)
            assert isinstance(raised.value, LanceError)
    same(tmp_path / "ours", tmp_path / "theirs")
    assert len(list((tmp_path / "ours" / "data").iterdir())) == 1  # what a refused write left is gone
    assert not (tmp_path / "ours2" / "_versions").exists()
    shared = {
        "unknown column": "Append with different schema: fields did not match",
        "other type": "`a` should have type int32 but type was string",
        "several differences": "missing=[n], unexpected=[",
        "other member": "`s` had mismatched children",
        "null where none may be": "contained null values even though the field is marked non-null",
        "reserved name": "is a reserved name",
        "create where there is a table": "Dataset already exists",
        "no mode": "Invalid mode foo",
        "no such version": "Unknown Lance storage version: v2",
    }.get(case, "")
    assert all(shared in message for message in messages), messages


@pytest.mark.parametrize("name", ["max_rows_per_file", "max_bytes_per_file", "max_page_bytes"])
def test_a_file_of_nothing_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1"):
        lance_io.write_dataset(TABLE, tmp_path / "t", **{name: 0})


# -- files, properties, progress ---------------------------------------------------------------------------------------


def test_files_end_where_they_should(tmp_path: Path) -> None:
    rows = pa.table({"a": range(10_000), "b": [str(i) * 10 for i in range(10_000)]})
    lance_io.write_dataset(rows, tmp_path / "rows", max_rows_per_file=2999)
    assert [one.physical_rows for one in lance.dataset(tmp_path / "rows").get_fragments()] == [2999, 2999, 2999, 1003]
    lance_io.write_dataset(rows.to_reader(max_chunksize=100), tmp_path / "bytes", max_bytes_per_file=50_000)
    sizes = [one.data_files()[0].file_size_bytes for one in lance.dataset(tmp_path / "bytes").get_fragments()]
    assert len(sizes) > 3
    assert all(size < 80_000 for size in sizes)
    for name in ("rows", "bytes"):
        assert lance.dataset(tmp_path / name).to_table().equals(rows)


LOOSE: dict[str, dict[str, Any]] = {
    "no limits": {"max_rows_per_file": None, "max_bytes_per_file": None, "max_page_bytes": None, "mode": None},
    "capitals": {"mode": "Create", "data_storage_version": "STABLE"},
    "manifest names": {"enable_v2_manifest_paths": None},
    "cleanup": {"auto_cleanup_options": {}},
    "cleanup at times": {"auto_cleanup_options": {"interval": 3}},
    "cleanup of age": {"auto_cleanup_options": {"older_than_seconds": 5}},
    "cleanup of nothing said": {"auto_cleanup_options": {"interval": None, "older_than_seconds": None}},
}


@pytest.mark.parametrize("keywords", LOOSE.values(), ids=LOOSE)
def test_keywords_are_taken_as_loosely_as_by_pylance(tmp_path: Path, keywords: dict[str, Any]) -> None:
    ours, theirs = (
        library.write_dataset(TABLE, tmp_path / library.__name__, **keywords) for library in (lance_io, lance)
    )
    same(tmp_path / "lance_io", tmp_path / "lance")
    assert ours.config() == theirs.config()
    assert ours.data_storage_version == theirs.data_storage_version
    names = [[path.name for path in (tmp_path / one / "_versions").glob("*.manifest")] for one in ("lance_io", "lance")]
    assert names[0] == names[1]


def test_no_version_is_no_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Unknown Lance storage version"):
        lance_io.write_dataset(TABLE, tmp_path / "t", data_storage_version="")


def test_deleting_needs_a_filter(tmp_path: Path) -> None:
    """Or every row would go."""
    for library in (lance, lance_io):
        table = library.write_dataset(TABLE, tmp_path / library.__name__)
        for delete in (table.delete, table.get_fragments()[0].delete):
            with pytest.raises(TypeError):
                delete(None)
        assert lance.dataset(tmp_path / library.__name__).count_rows() == len(TABLE)


@WRITERS
def test_properties_and_settings(tmp_path: Path, library: Any) -> None:
    uri = str(tmp_path / "t")
    library.write_dataset(
        TABLE,
        uri,
        commit_message="why",
        transaction_properties={"who": "me"},
        auto_cleanup_options={"interval": 20, "older_than_seconds": 3600},
        enable_v2_manifest_paths=False,
        enable_stable_row_ids=True,
    )
    library.write_dataset(TABLE, uri, mode="append", commit_message="more")
    for reader in (lance, lance_io):
        table = reader.dataset(uri)
        assert table.read_transaction(1).transaction_properties == {"__lance_commit_message": "why", "who": "me"}
        assert [one.transaction_properties.get("__lance_commit_message") for one in table.get_transactions()] == [
            "more",
            "why",
        ]
        assert table.has_stable_row_ids
        assert table.to_table(columns=["_rowid"])["_rowid"].to_pylist() == list(range(8))
        assert table.config()["lance.auto_cleanup.interval"] == "20"
    assert sorted(path.name for path in (tmp_path / "t/_versions").glob("*.manifest")) == ["1.manifest", "2.manifest"]


def listener(library: Any) -> Any:
    """A progress object of a library that writes down what it hears."""

    class Progress(library.progress.FragmentWriteProgress):
        def __init__(self) -> None:
            self.heard: list[Any] = []

        def begin(self, fragment: Any, **_: Any) -> None:
            self.heard.append(("begin", fragment.id, len(fragment.files)))

        def complete(self, fragment: Any, **_: Any) -> None:
            self.heard.append(("complete", fragment.id, len(fragment.files), fragment.physical_rows))

    return Progress()


def test_progress_hears_of_every_fragment(tmp_path: Path) -> None:
    ours, theirs = listener(lance_io), listener(lance)
    lance_io.write_dataset(TABLE, tmp_path / "ours", max_rows_per_file=3, progress=ours)
    lance.write_dataset(TABLE, tmp_path / "theirs", max_rows_per_file=3, progress=theirs)
    assert ours.heard[:3] == theirs.heard[:3]
    assert [what for what, *_ in ours.heard] == ["begin", "complete"] * 2


# -- failures --------------------------------------------------------------------------------------------------------


def files_below(folder: Path) -> list[Path]:
    """All files, however deep."""
    return sorted(path for path in folder.glob("**/*") if path.is_file())


def test_an_error_of_the_data_leaves_nothing(tmp_path: Path) -> None:
    def batches() -> Any:
        yield from TABLE.to_batches(max_chunksize=1)
        raise LookupError("no more")

    lance_io.write_dataset(TABLE, tmp_path / "t")
    before = files_below(tmp_path)
    for mode in ("append", "overwrite"):
        with pytest.raises(LookupError, match="no more"):
            lance_io.write_dataset(batches(), tmp_path / "t", TABLE.schema, mode, max_rows_per_file=2)
    with pytest.raises(LookupError, match="no more"):
        lance_io.write_dataset(batches(), tmp_path / "new", TABLE.schema, max_rows_per_file=2)
    assert files_below(tmp_path) == before


BLOB = lance_io.blob_field("b", inline_size_threshold=2, dedicated_size_threshold=20)
BLOBS = pa.table([lance_io.blob_array([b"x" * 10, b"y" * 30] * 3)], schema=pa.schema([BLOB]))


async def test_a_failed_write_leaves_no_files_of_blobs(tmp_path: Path) -> None:
    """Neither beside the data files that are visible already nor beside the one that is not, by either driver."""
    before: list[Path] = []

    def batches() -> Iterator[pa.RecordBatch]:
        yield from BLOBS.to_batches(max_chunksize=1)[:5]
        before.extend(files_below(tmp_path))
        raise LookupError("no more")

    async def asynchronous() -> AsyncIterator[pa.RecordBatch]:
        for batch in batches():
            yield batch

    how: dict[str, Any] = {"max_rows_per_file": 2, "data_storage_version": "2.2"}
    for write in (lance_io.write_dataset, write_fragments):
        with pytest.raises(LookupError, match="no more"):
            write(batches(), str(tmp_path / "t"), BLOBS.schema, **how)
        assert not files_below(tmp_path)
    for write_async in (lance_io.AsyncDataset.write, write_fragments_async):
        with pytest.raises(LookupError, match="no more"):
            await write_async(asynchronous(), str(tmp_path / "t"), BLOBS.schema, **how)
        assert not files_below(tmp_path)
    visible = [path for path in before if path.suffix in (".lance", ".blob")]
    assert len(visible) >= 4 * (2 + 2 * 2)  # two data files that are full, and what is beside them


async def test_a_cancelled_write_leaves_nothing(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def batches() -> AsyncIterator[pa.RecordBatch]:
        yield TABLE.to_batches()[0]
        begun.set()
        await asyncio.sleep(60)

    task = asyncio.ensure_future(
        lance_io.AsyncDataset.write(batches(), tmp_path / "t", TABLE.schema, max_rows_per_file=2)
    )
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not files_below(tmp_path)


def test_a_table_made_meanwhile_wins(tmp_path: Path) -> None:
    def batches() -> Any:
        yield from TABLE.to_batches()
        lance.write_dataset(TABLE, tmp_path / "t")

    with pytest.raises(OSError, match="already exists"):
        lance_io.write_dataset(batches(), tmp_path / "t", TABLE.schema)
    assert len(list((tmp_path / "t/data").iterdir())) == 1
    assert lance.dataset(tmp_path / "t").count_rows() == 4


def test_a_version_made_meanwhile_is_built_on(tmp_path: Path) -> None:
    def batches() -> Any:
        yield from TABLE.to_batches()
        lance.write_dataset(TABLE, tmp_path / "t", mode="append")

    lance_io.write_dataset(TABLE, tmp_path / "t")
    assert lance_io.write_dataset(batches(), tmp_path / "t", TABLE.schema, "append").version == 3
    assert lance.dataset(tmp_path / "t").count_rows() == 12

    def overwriting() -> Any:
        yield from TABLE.to_batches()
        lance.write_dataset(TABLE, tmp_path / "t", mode="overwrite")

    with pytest.raises(CommitConflictError, match="incompatible with concurrent transaction Overwrite"):
        lance_io.write_dataset(overwriting(), tmp_path / "t", TABLE.schema, "append")
    assert lance.dataset(tmp_path / "t").count_rows() == 4


def test_functions_that_hand_keywords_on_know_them_all() -> None:
    taken = set(inspect.signature(lance_io.write_dataset).parameters)
    assert taken == write_arguments.TABLE_KEYWORDS | {"data_obj", "uri", "schema", "mode"}
    taken = set(inspect.signature(lance_io.LanceDataset.commit).parameters)
    assert taken == commit_operation.KEYWORDS - {"session"}


async def test_unknown_keywords_are_refused(tmp_path: Path) -> None:
    """Also where the awaitable twins take `**options`."""
    for write in (lance_io.write_dataset, lance_io.AsyncDataset.write, write_fragments, write_fragments_async):
        with pytest.raises(TypeError, match="unexpected keyword argument 'max_rows_per_flie'"):
            found = write(TABLE, str(tmp_path / "t"), max_rows_per_flie=1)  # type: ignore[call-arg]
            if inspect.isawaitable(found):
                await found
    with pytest.raises(TypeError, match="unexpected keyword argument 'retries'"):
        await lance_io.AsyncDataset.commit(tmp_path / "t", lance_io.LanceOperation.Append([]), 1, retries=3)
    for name in ("namespace_client", "table_id"):
        with pytest.raises(NotImplementedError, match=f"{name} is not part of this release"):
            lance_io.write_dataset(TABLE, tmp_path / "t", **{name: ["x"]})
    assert not files_below(tmp_path)


@pytest.mark.parametrize("num_rows", [10, 10_000])
def test_batches_may_share_memory_that_is_filled_again(tmp_path: Path, num_rows: int) -> None:
    memory = np.zeros(num_rows, dtype=np.int64)

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(5):
            memory.fill(number)
            yield pa.record_batch([pa.array(memory)], ["a"])

    assert np.shares_memory(memory, pa.array(memory).to_numpy())
    schema = pa.schema([("a", pa.int64())])
    lance_io.write_dataset(batches(), tmp_path, schema, durability="none")
    expected = np.repeat(np.arange(5), num_rows)
    assert lance.dataset(str(tmp_path)).to_table()["a"].to_numpy().tolist() == expected.tolist()


def test_slices_of_a_table_that_is_held_are_not_taken_for_all_of_it(tmp_path: Path) -> None:
    whole = pa.table({"a": pa.array(range(100_000), pa.int64()), "b": [f"row {number}" for number in range(100_000)]})
    table = pa.concat_tables([whole.slice(start, 7) for start in range(0, 70_000, 1000)])
    lance_io.write_dataset(table, tmp_path, max_bytes_per_file=1 << 20, durability="none")
    dataset = lance.dataset(str(tmp_path))
    assert dataset.to_table() == table.combine_chunks()
    assert len(dataset.get_fragments()) == 1


def test_no_other_durability_is_taken(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="durability: expected 'full' or 'none', found 'hint'"):
        lance_io.write_dataset(TABLE, tmp_path, durability="hint")


def test_an_insert_keeps_what_a_dataset_was_opened_with(tmp_path: Path) -> None:
    taken: list[int] = []

    @contextmanager
    def lock(version: int) -> Iterator[None]:
        taken.append(version)
        yield

    uri = str(tmp_path / "t")
    rows = pa.table({"a": [1, 2], "b": [1, 2]})
    lance_io.write_dataset(rows, uri)
    table = lance_io.dataset(uri, commit_lock=lock, default_scan_options={"columns": ["b"]})
    table.insert(rows)
    table.delete("a = 1")
    assert taken == [2, 3]
    assert table.to_table().column_names == ["b"]


@pytest.mark.parametrize("metadata", [None, {"lance-encoding:compression": "fsst"}], ids=["plain", "fsst"])
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_pylance_reads_long_texts(tmp_path: Path, version: Any, metadata: dict[str, str] | None) -> None:
    """Of sizes around those at which values are cut to be coded, and above that at which zstd comes instead."""
    dice = np.random.default_rng(5)
    words = [*(f'"größe": {i}, ' for i in range(50)), "— ", "語 ", '{"sku": "', '"}, ']
    text = "".join(words[i] for i in dice.integers(0, len(words), 60_000))
    largest = 40_000 if metadata else 30_000
    values = [text[at : at + at % largest] for at in range(0, len(text), 7001)] + [None, "", text[:8192]] * 3
    table = pa.table({"t": values}, schema=pa.schema([pa.field("t", pa.string(), metadata=metadata)]))
    uri = str(tmp_path / "t")
    lance_io.write_dataset(table, uri, data_storage_version=version)
    assert lance.dataset(uri).to_table().column("t").to_pylist() == values
    places = [len(values) - 1, 3, 40]
    for library in (lance, lance_io):
        assert library.dataset(uri).take(places).column("t").to_pylist() == [values[at] for at in places]


def test_tables_of_many_columns_are_those_of_pylance(tmp_path: Path) -> None:
    columns: dict[str, Any] = {}
    for at in range(300):
        made = [
            pa.array([at, None]),
            pa.array([str(at), "y"]),
            pa.array([[at], []]),
            pa.array([at / 2, 1.0]).cast("f4"),
        ]
        columns[f"c{at}"] = made[at % 4]
    schema = pa.schema([pa.field(n, one.type, metadata={"k": n} if n > "c9" else None) for n, one in columns.items()])
    rows = pa.table(columns, schema=schema)
    for library in (lance, lance_io):
        library.write_dataset(rows, str(tmp_path / library.__name__))
    ours, theirs = (lance.dataset(str(tmp_path / library.__name__)) for library in (lance_io, lance))
    assert ours.schema.equals(theirs.schema, check_metadata=True)
    assert ours.to_table() == theirs.to_table() == rows
    assert [one.id() for one in ours.lance_schema.fields()] == [one.id() for one in theirs.lance_schema.fields()]
