"""Creating, replacing, dropping and updating indices: arguments, conflicts, failures, both faces."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import CommitConflictError, OperationError
from lance_io.index.build import btree_files
from lance_io.indices import IndexConfig
from tests.index.index_tables import append, fragmented, our, wrong_answers

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.progress import IndexProgress

NUMBERS = ["i = 5", "i BETWEEN 100 AND 120", "i IS NULL", "i != 5"]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A table of three fragments."""
    return fragmented(tmp_path, np.random.default_rng(1), stable=False, num_rows=900)


def index_folders(uri: str) -> set[str]:
    """The folders of segments that are there."""
    folder = Path(uri) / "_indices"
    return {each.name for each in folder.iterdir()} if folder.exists() else set()


def coverage(uri: str, name: str = "x") -> list[set[int]]:
    """The fragments of each segment, by pylance."""
    indices = {index.name: index for index in lance.dataset(uri).describe_indices()}
    return [set(segment.fragment_ids) for segment in indices[name].segments]


# -- arguments ---------------------------------------------------------------------------------------------------------


def outcome(create: Callable[[], object]) -> type[BaseException] | None:
    try:
        create()
    except Exception as error:
        return type(error)
    return None


@pytest.mark.parametrize(
    ("column", "kind", "options"),
    [
        ("i", "BTREE", {}),
        ("i", "btree", {"name": "other"}),
        ("I", "BTREE", {}),
        (["i"], "BTREE", {}),
        (["i", "s"], "BTREE", {}),
        ("nothing", "BTREE", {}),
        ("i", "NONSENSE", {}),
        ("l", "BTREE", {}),
        ("i", "LABEL_LIST", {}),
        ("i", "NGRAM", {}),
        ("s", "BTREE", {"name": "taken"}),
        ("i", "BTREE", {"name": "taken"}),
        ("i", "BTREE", {"name": "taken", "replace": False}),
        ("i", "BTREE", {"fragment_ids": [0]}),
        ("i", "BTREE", {"index_uuid": "nonsense"}),
        ("i", "BTREE", {"index_uuid": "01234567-89ab-cdef-0123-456789abcdef"}),
        ("i", "BTREE", {"train": False}),
        ("i", "BITMAP", {"train": False}),
        ("i", "ZONEMAP", {"train": False}),
        ("i", "BLOOMFILTER", {"unknown": 3}),
    ],
)
def test_arguments_mean_the_same(uri: str, tmp_path: Path, column: Any, kind: str, options: dict[str, Any]) -> None:
    """Both libraries accept and refuse the same, and leave entries with the same name, column and coverage."""
    lance.dataset(uri).create_scalar_index("i", "BITMAP", name="taken")
    theirs = str(tmp_path / "theirs.lance")
    lance.dataset(uri).deep_clone(theirs, reference=lance.dataset(uri).version)
    left = outcome(lambda: lance.dataset(theirs).create_scalar_index(column, kind, **options))
    right = outcome(lambda: our(uri).create_scalar_index(column, kind, **options))
    if left is None or right is None:
        assert left is right
    else:
        expected = OSError if left is RuntimeError else left
        assert issubclass(right, expected), (left, right)

    def entries(table: str) -> list[Any]:
        return [
            (index.name, index.index_type, index.field_names, [set(each.fragment_ids) for each in index.segments])
            for index in lance.dataset(table).describe_indices()
        ]

    if not (options.get("train") is False and kind != "BTREE"):  # pylance trains these in spite of it
        assert entries(uri) == entries(theirs)


def test_an_index_without_rows_is_trained_later(uri: str) -> None:
    for kind, name in (("BTREE", "x"), ("BITMAP", "b"), ("LABEL_LIST", "l")):
        our(uri).create_scalar_index("l" if kind == "LABEL_LIST" else "i", kind, name, train=False)
        assert coverage(uri, name) == [set()]
    assert (
        lance.dataset(uri).count_rows("i = 5")
        == lance.dataset(uri).scanner(filter="i = 5", use_scalar_index=False).count_rows()
    )
    our(uri).optimize.optimize_indices(index_names=["x", "l"])
    assert coverage(uri) == coverage(uri, "l") == [{0, 1, 2}]
    assert coverage(uri, "b") == [set()]
    assert wrong_answers(uri, "x", NUMBERS) == []


def test_nested_columns_and_odd_names(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    rows = pa.table({"st": [{"a": n % 7, "b.c": n} for n in range(100)]})
    lance.write_dataset(rows, uri)
    our(uri).create_scalar_index("st.a", "BTREE")
    our(uri).create_scalar_index("st.`b.c`", "BITMAP")
    assert {index.name: index.field_names for index in lance.dataset(uri).describe_indices()} == {
        "st.a_idx": ["st.a"],
        "st.`b.c`_idx": ["st.`b.c`"],
    }
    assert wrong_answers(uri, "st.a_idx", ["st.a = 3", "st.a > 5"]) == []


def test_progress(uri: str) -> None:
    events: list[IndexProgress] = []
    counts: list[tuple[int, int | None]] = []
    our(uri).create_scalar_index(
        "i", "BTREE", progress_callback=events.append, progress=lambda done, total: counts.append((done, total))
    )
    num_rows = lance.dataset(uri).count_rows()
    assert counts[-1] == (num_rows, num_rows)
    assert [(event.event, event.stage) for event in events if event.event != "progress"] == [
        ("start", "load_data"),
        ("complete", "load_data"),
        ("start", "write_files"),
        ("complete", "write_files"),
    ]
    assert events[0].fraction == 0.0
    assert max(event.fraction or 0 for event in events) == 1.0


def test_async_face(uri: str) -> None:
    async def run() -> dict[str, Any]:
        ds = await lance_io.AsyncDataset.open(uri)
        await ds.create_scalar_index("i", "BTREE", "x")
        segment = await ds.create_index_uncommitted("k", "BITMAP", "y", fragment_ids=[0])
        others = await ds.create_index_uncommitted("k", "BITMAP", "y", fragment_ids=[1, 2])
        merged = await ds.merge_existing_index_segments([segment, others])
        await ds.commit_existing_index_segments("y", "k", [merged])
        await ds.optimize.optimize_indices()
        assert [index.name for index in await ds.describe_indices()] == ["x", "y"]
        await ds.drop_index("y")
        statistics = await ds.stats.index_stats("x")
        with pytest.warns(DeprecationWarning):
            assert await ds.index_statistics("x") == statistics
        return statistics

    assert asyncio.run(run()) == lance.dataset(uri).stats.index_stats("x")
    assert wrong_answers(uri, "x", NUMBERS) == []


def test_statistics_of_an_unknown_index(uri: str) -> None:
    for library in (lance, lance_io):
        with pytest.raises(KeyError, match="nothing"):
            library.dataset(uri).stats.index_stats("nothing")


# -- segments ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER"])
def test_segments_of_several_processes(uri: str, kind: str) -> None:
    """Built apart, by either library, pickled, and committed together; neither a part nor a whole before the commit."""
    version = our(uri).version
    mine = our(uri).create_index_uncommitted("i", kind, "x", fragment_ids=[0, 2])
    theirs = our(uri).create_index_uncommitted("i", kind, "x", fragment_ids=[1])
    assert our(uri).version == version and our(uri).describe_indices() == []
    segments = pickle.loads(pickle.dumps([mine, theirs]))
    our(uri).commit_existing_index_segments("x", "i", segments)
    assert coverage(uri) == [{0, 2}, {1}]
    queries = ["i = 5", "i IN (1,2,99999)"]
    assert wrong_answers(uri, "x", queries) == []
    whole = our(uri).merge_existing_index_segments(segments)
    our(uri).commit_existing_index_segments("x", "i", [whole])
    assert coverage(uri) == [{0, 1, 2}]
    assert wrong_answers(uri, "x", queries) == []


def rewritten_in_place(uri: str, at: int = 0) -> int:
    """Give a row of a fragment another `i`, in a new file of this column; returns the old value."""
    table = lance.dataset(uri)
    old = table.get_fragments()[at]
    row = old.to_table(columns=["i"], filter="i IS NOT NULL", with_row_id=True).slice(0, 1)
    rows = pa.table({"_rowid": row["_rowid"], "i": [99_999]})
    fragment, fields = old.update_columns(rows, left_on="_rowid", right_on="_rowid")[:2]
    update = lance.LanceOperation.Update(updated_fragments=[fragment], fields_modified=fields)
    lance.LanceDataset.commit(uri, update, read_version=table.version)
    return int(row["i"][0].as_py())


def test_segments_do_not_cover_columns_that_were_rewritten_since(uri: str) -> None:
    """As in pylance: the segment has the old values."""
    segment = our(uri).create_index_uncommitted("i", "BTREE", "x", fragment_ids=[0, 1, 2])
    before = rewritten_in_place(uri)
    our(uri).commit_existing_index_segments("x", "i", [segment])
    assert coverage(uri) == [{1, 2}]
    assert wrong_answers(uri, "x", [f"i = {before}", "i = 99999"]) == []
    our(uri).cleanup_old_versions(timedelta(0), delete_unverified=False)
    with pytest.raises(ValueError, match=r"was built from version \d+, which is gone"):
        our(uri).commit_existing_index_segments("y", "i", [segment])


def test_segments_that_do_not_fit(uri: str) -> None:
    ds = our(uri)
    first = ds.create_index_uncommitted("i", "BTREE", "x", fragment_ids=[0, 1])
    second = ds.create_index_uncommitted("i", "BTREE", "x", fragment_ids=[1, 2])
    other = ds.create_index_uncommitted("s", "BTREE", "x", fragment_ids=[2])
    with pytest.raises(ValueError, match="overlapping fragment coverage"):
        ds.commit_existing_index_segments("x", "i", [first, second])
    with pytest.raises(ValueError, match="overlapping fragment coverage"):
        ds.merge_existing_index_segments([first, second])
    with pytest.raises(ValueError, match="differ in their column"):
        ds.merge_existing_index_segments([first, other])
    with pytest.raises(ValueError, match="was built for fields"):
        ds.commit_existing_index_segments("x", "i", [other])
    with pytest.raises(ValueError, match="at least one index segment"):
        ds.commit_existing_index_segments("x", "i", [])
    with pytest.raises(ValueError, match="No fragment with id 9"):
        ds.create_index_uncommitted("i", "BTREE", fragment_ids=[9])
    with pytest.raises(ValueError, match="requires fragment_ids"):
        ds.create_index_uncommitted("i", "BTREE")
    assert our(uri).describe_indices() == []


# -- optimize ----------------------------------------------------------------------------------------------------------


def test_segments_by_the_number_to_merge(uri: str) -> None:
    """What each number does is what it does in pylance."""
    rng = np.random.default_rng(2)
    our(uri).create_scalar_index("i", "BTREE", "x")
    for fragment_id in (3, 4):
        append(uri, rng, 50)
        our(uri).optimize.optimize_indices(num_indices_to_merge=0)
        assert coverage(uri)[-1] == {fragment_id}
    append(uri, rng, 50)
    our(uri).optimize.optimize_indices()
    assert coverage(uri) == [{0, 1, 2}, {3}, {4, 5}]
    version = our(uri).version
    our(uri).optimize.optimize_indices()
    our(uri).optimize.optimize_indices(num_indices_to_merge=0)
    assert our(uri).version == version  # nothing to do, no commit
    our(uri).optimize.optimize_indices(num_indices_to_merge=2)
    assert coverage(uri) == [{0, 1, 2}, {3, 4, 5}]
    our(uri).optimize.optimize_indices(retrain=True)
    assert coverage(uri) == [{0, 1, 2, 3, 4, 5}]
    assert wrong_answers(uri, "x", NUMBERS) == []
    with pytest.raises(OverflowError):
        our(uri).optimize.optimize_indices(num_indices_to_merge=-1)


def test_segments_with_old_values_are_merged(uri: str) -> None:
    """Beside a new segment of their fragment, pylance finds them in the old one."""
    our(uri).create_scalar_index("i", "BTREE", "x")
    append(uri, np.random.default_rng(2), 50)
    our(uri).optimize.optimize_indices(num_indices_to_merge=0)
    before = rewritten_in_place(uri)
    assert coverage(uri) == [{1, 2}, {3}]
    our(uri).optimize.optimize_indices(num_indices_to_merge=0)
    assert coverage(uri) == [{0, 1, 2, 3}]
    assert wrong_answers(uri, "x", [f"i = {before}", "i = 99999"]) == []


@pytest.mark.parametrize("change", ["compaction", "cleanup"])
def test_old_values_of_fragments_that_the_version_of_a_segment_lacks(uri: str, change: str) -> None:
    """After a compaction by pylance, which keeps the version of segments, and where a cleanup has removed it."""
    our(uri).create_scalar_index("i", "BTREE", "x")
    if change == "compaction":
        append(uri, np.random.default_rng(2), 50)
        our(uri).optimize.optimize_indices(num_indices_to_merge=0)
        lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=300)
    covered = coverage(uri)[0]
    ids = [fragment.fragment_id for fragment in lance.dataset(uri).get_fragments()]
    before = rewritten_in_place(uri, ids.index(max(covered)))
    assert coverage(uri)[0] == covered - {max(covered)} != set()
    if change == "cleanup":
        our(uri).cleanup_old_versions(timedelta(0), delete_unverified=False)
    our(uri).optimize.optimize_indices(num_indices_to_merge=0)
    assert wrong_answers(uri, "x", [f"i = {before}", "i = 99999"]) == []


def test_a_new_segment_reads_no_index_file(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 0 only the settings of the present segment are read, and there is one commit for all indices."""
    our(uri).create_scalar_index("i", "BTREE", "x")
    our(uri).create_scalar_index("s", "BITMAP", "y")
    append(uri, np.random.default_rng(2), 50)
    ds = our(uri)
    before = ds.version
    (segment,) = next(index for index in ds.describe_indices() if index.name == "x").segments
    os.truncate(Path(uri) / "_indices" / segment.uuid / "page_data.lance", 0)
    ds.optimize.optimize_indices(num_indices_to_merge=0)
    assert ds.version == before + 1
    assert coverage(uri, "x") == coverage(uri, "y") == [{0, 1, 2}, {3}]


def test_deferred_compaction_is_written_down(uri: str) -> None:
    """The record of moves goes once no segment needs it."""
    our(uri).create_scalar_index("i", "BTREE", "x")
    our(uri).create_scalar_index("s", "BITMAP", "y")
    before = {index.name: index.segments[0].uuid for index in our(uri).describe_indices()}
    our(uri).optimize.compact_files(defer_index_remap=True)
    assert any(index.name.startswith("__lance_frag_reuse") for index in our(uri).describe_indices())
    our(uri).optimize.optimize_indices()
    after = {index.name: index.segments[0].uuid for index in our(uri).describe_indices()}
    assert after.keys() == before.keys()
    assert all(after[name] != before[name] for name in before)
    assert wrong_answers(uri, "x", NUMBERS) == []
    assert wrong_answers(uri, "y", ["s = 'k7é'", "s IS NULL"]) == []


# -- conflicts and failures --------------------------------------------------------------------------------------------


def meanwhile(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object], times: int = 1) -> list[int]:
    """Run a change after an index was built and before it is committed; returns the builds so far."""
    from lance_io.changes.index import create_index

    builds: list[int] = []
    commit = create_index.commit_segments

    def late(*args: Any) -> Any:
        builds.append(len(builds))
        if len(builds) <= times:
            thread = threading.Thread(target=change)  # plans of another caller
            thread.start()
            thread.join()
        return commit(*args)

    monkeypatch.setattr(create_index, "commit_segments", late)
    return builds


def test_appends_and_deletes_go_together_with_a_build(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def change() -> None:
        append(uri, np.random.default_rng(3), 50)
        lance.dataset(uri).delete("i % 7 = 1")

    builds = meanwhile(monkeypatch, change)
    our(uri).create_scalar_index("i", "BTREE", "x")
    assert len(builds) == 1
    assert coverage(uri) == [{0, 1, 2}]
    assert wrong_answers(uri, "x", NUMBERS) == []


def test_a_compaction_meanwhile_makes_the_build_begin_again(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    builds = meanwhile(monkeypatch, lambda: lance.dataset(uri).optimize.compact_files())
    our(uri).create_scalar_index("i", "BTREE", "x")
    assert len(builds) == 2
    assert coverage(uri) == [{each.fragment_id for each in lance.dataset(uri).get_fragments()}]
    assert wrong_answers(uri, "x", NUMBERS) == []
    assert len(index_folders(uri)) == 1  # the files of the first build are gone


def test_compactions_without_end_are_an_error(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def change() -> None:
        append(uri, np.random.default_rng(3), 50)
        lance.dataset(uri).optimize.compact_files()

    builds = meanwhile(monkeypatch, change, times=9)
    with pytest.raises(CommitConflictError, match="Too many concurrent writers"):
        our(uri).create_scalar_index("i", "BTREE", "x")
    assert len(builds) == 3
    assert our(uri).describe_indices() == []
    assert index_folders(uri) == set()


def test_an_index_of_the_name_meanwhile(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The build begins again, and replaces it, as it would have if it had been there."""
    builds = meanwhile(monkeypatch, lambda: lance.dataset(uri).create_scalar_index("i", "BITMAP", name="x"))
    our(uri).create_scalar_index("i", "BTREE", "x")
    assert len(builds) == 2
    (index,) = lance.dataset(uri).describe_indices()
    assert (index.index_type, len(index.segments)) == ("BTree", 1)


@pytest.mark.parametrize("change", ["drop", "cast"])
def test_a_column_that_is_gone_meanwhile(uri: str, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """pylance commits such an index, which then fails every filter; ours is refused, and leaves nothing."""

    def alter() -> None:
        if change == "drop":
            lance.dataset(uri).drop_columns(["i"])
        else:
            lance.dataset(uri).alter_columns({"path": "i", "data_type": pa.int32()})

    meanwhile(monkeypatch, alter)
    if change == "drop":
        with pytest.raises(KeyError, match="i not found in schema"):
            our(uri).create_scalar_index("i", "BTREE", "x")
        assert our(uri).describe_indices() == []
        assert index_folders(uri) == set()
    else:  # built again, over the column as it is now
        our(uri).create_scalar_index("i", "BTREE", "x")
        assert wrong_answers(uri, "x", NUMBERS) == []


def test_a_failed_build_leaves_nothing(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the builder fails, or a file reads back as other than it was written."""
    our(uri).create_scalar_index("i", "BTREE", "x")
    before, version = index_folders(uri), our(uri).version
    with monkeypatch.context() as patch:
        patch.setattr(btree_files._Lookup, "batches", lambda _: iter([pa.RecordBatch.from_pydict({"min": [1]})]))
        with pytest.raises(ValueError):
            our(uri).create_scalar_index("i", "BTREE", "x")
    assert index_folders(uri) == before
    from lance_io.changes.index import segment_files

    with monkeypatch.context() as patch:
        patch.setattr(segment_files, "_equal", lambda *_: False)
        with pytest.raises(OperationError, match="Nothing was committed"):
            our(uri).create_scalar_index("i", IndexConfig("btree"), "x")
    assert index_folders(uri) == before
    assert our(uri).version == version
    assert wrong_answers(uri, "x", NUMBERS) == []


def test_dropping(uri: str) -> None:
    our(uri).create_scalar_index("i", "BTREE", "x")
    append(uri, np.random.default_rng(3), 50)
    our(uri).optimize.optimize_indices(num_indices_to_merge=0)
    our(uri).drop_index("x")
    assert our(uri).describe_indices() == lance.dataset(uri).describe_indices() == []
    with pytest.raises(RuntimeError, match="x"):
        our(uri).drop_index("x")


def test_spilled_builds_give_the_same(uri: str) -> None:
    """With little memory runs go to disk, and the files are the same."""
    rng = np.random.default_rng(8)
    numbers = rng.permutation(600_000)
    lance.write_dataset(pa.table({"i": numbers}), uri, mode="overwrite")
    ds = our(uri)
    ds.create_scalar_index("i", "BTREE", "x", memory_limit=16)
    ds.create_scalar_index("i", "BTREE", "y")
    files = []
    for index in ds.describe_indices():
        folder = Path(uri) / "_indices" / index.segments[0].uuid
        files.append(lance.file.LanceFileReader(str(folder / "page_data.lance")).read_all().to_table())
    assert files[0].equals(files[1])
    assert (numbers[files[0]["ids"].to_numpy().astype("u4")] == np.arange(len(numbers))).all()


def test_files_of_a_segment_are_never_written_again(uri: str) -> None:
    """A UUID that is in use would change an index that versions name."""
    our(uri).create_scalar_index("i", "BTREE", "x")
    (segment,) = our(uri).describe_indices()[0].segments
    folder = Path(uri) / "_indices" / segment.uuid
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ValueError, match="a segment of this UUID already"):
        our(uri).create_scalar_index("i", "BTREE", "y", index_uuid=segment.uuid)
    with pytest.raises(ValueError, match="a segment of this UUID already"):
        our(uri).create_index_uncommitted("i", "BTREE", "y", index_uuid=segment.uuid, fragment_ids=[0])
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    unused = "01234567-89ab-cdef-0123-456789abcdef"
    our(uri).create_scalar_index("i", "BTREE", "y", index_uuid=unused)
    assert unused in index_folders(uri)


@pytest.mark.parametrize("how", ["optimize", "compact"])
def test_indices_of_a_shallow_clone(uri: str, tmp_path: Path, how: str) -> None:
    """A segment of the cloned table is read there; new segments lie in the clone."""
    our(uri).create_scalar_index("i", "BTREE", "x")
    before = index_folders(uri)
    clone = str(tmp_path / "clone.lance")
    our(uri).shallow_clone(clone, our(uri).version)
    if how == "optimize":
        append(clone, np.random.default_rng(3), 50)
        our(clone).optimize.optimize_indices()
    else:
        our(clone).optimize.compact_files(defer_index_remap=False)
    (index,) = our(clone).describe_indices()
    (segment,) = index.segments
    assert segment.base_id is None
    assert index.num_rows_indexed == our(clone).count_rows()
    assert segment.uuid in index_folders(clone)
    assert index_folders(uri) == before
    assert wrong_answers(clone, "x", NUMBERS) == []
