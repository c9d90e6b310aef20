"""Compaction beside pylance's: the same rows, ids, versions and fragments, and tables that both go on working with."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from lance.optimize import Compaction as PeerCompaction

import lance_io
from lance_io.errors import CommitConflictError, OperationError
from lance_io.optimize import AsyncCompaction, Compaction

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LINEAGE = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


def rows_of(first: int, count: int) -> pa.Table:
    """Rows of many types; a null in each column now and then."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "a": pa.array(numbers, pa.int64()),
            "b": pa.array([None if n % 7 == 0 else n / 2 for n in numbers], pa.float32()),
            "s": pa.array([None if n % 5 == 0 else f"row {n}" * (n % 4) for n in numbers]),
            "v": pa.array([[n, n + 1, n + 2] for n in numbers], pa.list_(pa.float32(), 3)),
            "l": pa.array([None if n % 11 == 0 else [str(n)] * (n % 3) for n in numbers], pa.list_(pa.string())),
            "st": pa.array([{"x": n, "y": None if n % 13 == 0 else str(n)} for n in numbers]),
            "d": pa.array([f"k{n % 3}" for n in numbers]).dictionary_encode(),
            "t": pa.array([n % 2 == 0 for n in numbers]),
        }
    )


def write_table(path: Path, sizes: list[int], **options: Any) -> None:
    start = 0
    for number, size in enumerate(sizes):
        lance.write_dataset(rows_of(start, size), str(path), mode="create" if number == 0 else "append", **options)
        start += size


def change_table(path: Path) -> None:
    """Deletions, an update, columns that were dropped, added and cast."""
    ds = lance.dataset(str(path))
    ds.delete("a in (3, 4, 21, 40)")
    ds.update({"s": "'changed'"}, where="a in (5, 41)")
    ds.drop_columns(["t"])
    ds.add_columns({"e": "a * 2"})
    ds.alter_columns({"path": "a", "data_type": pa.int32()})


def read_by(library: Any, path: Path, columns: list[str] | None = None) -> pa.Table:
    return plain(library.dataset(str(path)).to_table(columns=columns))


def plain(table: pa.Table) -> pa.Table:
    """The same values without dictionaries, of which no two libraries make the same."""
    fields = [field.with_type(pa.string()) if pa.types.is_dictionary(field.type) else field for field in table.schema]
    return table.cast(pa.schema(fields)).combine_chunks()


def layout(path: Path) -> list[tuple[int, int, int, list[list[int]]]]:
    """Fragments as pylance sees them: ids, rows, deletions, fields of their files."""
    fragments = [fragment.metadata for fragment in lance.dataset(str(path)).get_fragments()]
    return [
        (one.id, one.physical_rows, one.num_deletions, [list(file.fields) for file in one.files]) for one in fragments
    ]


def compact_both(tmp_path: Path, options: dict[str, Any]) -> tuple[Path, Path]:
    """The table at `tmp_path / "t.lance"`, compacted by us and by pylance; their metrics are the same."""
    mine, theirs = tmp_path / "mine.lance", tmp_path / "theirs.lance"
    shutil.copytree(tmp_path / "t.lance", mine)
    shutil.copytree(tmp_path / "t.lance", theirs)
    ds, peer = lance_io.dataset(str(mine)), lance.dataset(str(theirs))
    done, expected = ds.optimize.compact_files(**options), peer.optimize.compact_files(**options)
    assert {name: getattr(expected, name) for name in vars(done)} == vars(done)
    assert ds.version == peer.version
    assert plain(ds.to_table()).equals(plain(peer.to_table()))
    return mine, theirs


CASES: list[tuple[list[int], dict[str, Any]]] = [
    ([5, 5, 100, 5], {"target_rows_per_fragment": 50}),
    ([10] * 10, {"target_rows_per_fragment": 30}),
    ([49] * 3, {"target_rows_per_fragment": 50}),
    ([33] * 3, {"target_rows_per_fragment": 50}),
    ([30] * 3, {"target_rows_per_fragment": 50}),
    ([30, 30], {}),
    ([60], {"target_rows_per_fragment": 50, "materialize_deletions_threshold": 0.0}),
    ([60, 60], {"target_rows_per_fragment": 50, "materialize_deletions": False}),
    ([20] * 4, {"target_rows_per_fragment": 40, "max_source_fragments": 2}),
    ([20] * 4, {"excluded_fragment_ids": [2]}),
    ([20] * 4, {"batch_size": 7}),
]


@pytest.mark.parametrize(
    ("stable", "changed", "version", "sizes", "options"),
    [(stable, stable, "2.2", *case) for stable in (False, True) for case in CASES]
    + [(True, False, "2.1", *case) for case in CASES[:2]]
    + [(False, True, "2.1", *case) for case in CASES[2:4]]
    + [(True, True, "2.0", *case) for case in CASES[5:8]],
)
def test_the_same_as_pylance(
    tmp_path: Path, *, sizes: list[int], options: dict[str, Any], stable: bool, version: str, changed: bool
) -> None:
    write_table(tmp_path / "t.lance", sizes, enable_stable_row_ids=stable, data_storage_version=version)
    if changed:
        change_table(tmp_path / "t.lance")
    mine, theirs = compact_both(tmp_path, options)
    assert layout(mine) == layout(theirs)
    for library in (lance, lance_io):
        assert read_by(library, mine).equals(read_by(library, theirs))
        assert read_by(library, mine, LINEAGE).equals(read_by(library, theirs, LINEAGE))
    for path in (mine, theirs):  # both go on with what the other has compacted
        lance.dataset(str(path)).delete("a = 7")
        lance_io.dataset(str(path)).insert(lance_io.dataset(str(path)).to_table().slice(0, 3))
        lance.dataset(str(path)).optimize.compact_files()
    assert read_by(lance, mine, ["a", *LINEAGE]).equals(read_by(lance_io, theirs, ["a", *LINEAGE]))


def test_version_0_1(tmp_path: Path) -> None:
    for number in range(3):
        rows = rows_of(number * 30, 30).select(["a", "s"])
        mode = "create" if number == 0 else "append"
        lance.write_dataset(rows, str(tmp_path / "t.lance"), mode=mode, data_storage_version="legacy")
    lance.dataset(str(tmp_path / "t.lance")).delete("a % 9 = 1")
    mine, theirs = compact_both(tmp_path, {"max_rows_per_group": 16})
    assert layout(mine) == layout(theirs)
    assert read_by(lance, mine).equals(read_by(lance, theirs))


def test_nothing_to_do_makes_no_version(tmp_path: Path) -> None:
    write_table(tmp_path / "t.lance", [30])
    mine, theirs = compact_both(tmp_path, {})
    assert lance_io.dataset(str(mine)).version == lance.dataset(str(theirs)).version == 1


def test_all_rows_of_a_group_deleted(tmp_path: Path) -> None:
    """Fragments whose rows are gone are gone from the manifest; what is left is compacted."""
    write_table(tmp_path / "t.lance", [10, 10, 10])
    lance.dataset(str(tmp_path / "t.lance")).delete("a < 19")
    mine, theirs = compact_both(tmp_path, {})
    assert layout(mine) == layout(theirs)


def test_another_file_version(tmp_path: Path) -> None:
    write_table(tmp_path / "t.lance", [10] * 3, data_storage_version="2.1")
    mine, theirs = compact_both(tmp_path, {"data_storage_version": "2.2"})
    for path in (mine, theirs):
        file = lance.dataset(str(path)).get_fragments()[0].metadata.files[0]
        assert (file.file_major_version, file.file_minor_version) == (2, 2)
        assert lance_io.dataset(str(path)).data_storage_version == "2.1"


def test_steps_in_any_order(tmp_path: Path) -> None:
    """A part of the tasks, and results in another order: rows keep theirs."""
    path = tmp_path / "t.lance"
    write_table(path, [10] * 6)
    ds = lance_io.dataset(str(path))
    plan = Compaction.plan(ds, {"target_rows_per_fragment": 20})
    results = [task.execute(lance_io.dataset(str(path))) for task in plan.tasks]
    assert ds.version == lance_io.dataset(str(path)).version == plan.read_version
    for result in results:
        for file in (one for fragment in result.new_fragments for one in fragment.files):
            assert (path / "data" / file.path).stat().st_size == file.file_size_bytes
    metrics = Compaction.commit(ds, [results[2], results[0]])
    assert (metrics.fragments_removed, metrics.fragments_added) == (4, 2)
    assert ds.to_table()["a"].to_pylist() == [*range(20, 40), *range(20), *range(40, 60)]
    assert [fragment.fragment_id for fragment in ds.get_fragments()] == [2, 3, 6, 7]
    Compaction.commit(ds, results[1:2])
    assert sorted(read_by(lance, path)["a"].to_pylist()) == [*range(60)]
    with pytest.raises(CommitConflictError):
        Compaction.commit(ds, results[1:2])
    assert Compaction.commit(ds, []).fragments_added == 0


@pytest.mark.parametrize("is_written_again", [False, True])
async def test_a_task_that_was_repeated_counts_once(tmp_path: Path, is_written_again: bool) -> None:
    """Two results of one task are refused before ids are reserved; then one is taken, and the files of the other stay.

    pylance refuses them, too, behind a version that has reserved the ids.
    """
    path, peer = tmp_path / "t.lance", tmp_path / "peer.lance"
    write_table(path, [10] * 4)
    shutil.copytree(path, peer)
    ds, options = lance_io.dataset(str(path)), {"target_rows_per_fragment": 20}
    plan = Compaction.plan(ds, options)
    results = [task.execute(ds) for task in plan.tasks]
    doubled = [*results, plan.tasks[0].execute(ds) if is_written_again else results[0]]
    num_files = len([*(path / "data").iterdir()])
    with pytest.raises(OperationError, match="attempts to replace fragment id=0 more than once"):
        Compaction.commit(ds, doubled)
    async with lance_io.AsyncDataset.open(str(path)) as other:
        with pytest.raises(OperationError, match="attempts to replace fragment id=0 more than once"):
            await AsyncCompaction.commit(other, doubled)
    assert lance.dataset(str(path)).version == plan.read_version and len([*(path / "data").iterdir()]) == num_files
    assert Compaction.commit(ds, doubled[1:]).fragments_added == 2
    assert sorted(read_by(lance, path)["a"].to_pylist()) == [*range(40)]
    theirs = lance.dataset(str(peer))
    tasks = PeerCompaction.plan(theirs, options).tasks
    with pytest.raises(OSError, match="attempts to replace fragment id=0 more than once"):
        PeerCompaction.commit(theirs, [task.execute(theirs) for task in (*tasks, tasks[0])])
    assert lance.dataset(str(peer)).version == plan.read_version + 1


def test_tasks_of_either_library(tmp_path: Path) -> None:
    """What pylance plans and we execute, and the other way round."""
    path = tmp_path / "t.lance"
    write_table(path, [10] * 4, enable_stable_row_ids=True)
    from lance.optimize import CompactionTask as PeerTask
    from lance.optimize import RewriteResult as PeerResult

    from lance_io.optimize import CompactionTask, RewriteResult

    before = read_by(lance, path, ["a", *LINEAGE])
    options = {"target_rows_per_fragment": 20}
    peer, ds = lance.dataset(str(path)), lance_io.dataset(str(path))
    theirs = PeerCompaction.plan(peer, options).tasks
    mine = Compaction.plan(ds, options).tasks
    first = CompactionTask.from_json(theirs[0].json()).execute(ds)
    second = PeerTask.from_json(mine[1].json()).execute(peer)
    PeerCompaction.commit(peer, [PeerResult.from_json(first.json())])
    ds.checkout_latest()
    Compaction.commit(ds, [RewriteResult.from_json(second.json())])
    assert read_by(lance, path, ["a", *LINEAGE]).equals(before)
    assert read_by(lance_io, path, ["a", *LINEAGE]).equals(before)
    assert [row[0] for row in layout(path)] == [4, 5]


async def test_async_twins(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    write_table(path, [10] * 4)
    async with lance_io.AsyncDataset.open(str(path)) as ds:
        plan = await AsyncCompaction.plan(ds, {"target_rows_per_fragment": 20})
        results = [await task.execute_async(ds) for task in plan.tasks[:1]]
        assert (await AsyncCompaction.commit(ds, results)).fragments_added == 1
        assert (await ds.optimize.compact_files(target_rows_per_fragment=1000)).fragments_added == 1
        assert (await AsyncCompaction.execute(ds, {})).fragments_added == 0
        assert sorted((await ds.to_table())["a"].to_pylist()) == [*range(40)]
        await ds.optimize.enable_auto_cleanup({"interval": 5, "older_than_seconds": 0})
        assert ds.config()["lance.auto_cleanup.interval"] == "5"
        await ds.optimize.disable_auto_cleanup()
        assert ds.config() == {}
    assert len(layout(path)) == 1


# -- beside other writers ----------------------------------------------------------------------------------------------


def _delete_here(ds: Any) -> None:
    ds.delete("a = 3")


def _delete_elsewhere(ds: Any) -> None:
    ds.delete("a = 33")


def _append(ds: Any) -> None:
    ds.insert(ds.to_table(columns=None).slice(0, 2))


def _rename(ds: Any) -> None:
    ds.alter_columns({"path": "a", "name": "z"})


def _drop(ds: Any) -> None:
    ds.drop_columns(["b"])


def _add_nulls(ds: Any) -> None:
    ds.add_columns(pa.field("n", pa.int8()))


def _add_values(ds: Any) -> None:
    ds.add_columns({"n": "a + 1"})


def _cast(ds: Any) -> None:
    ds.alter_columns({"path": "a", "data_type": pa.int32()})


def _configure(ds: Any) -> None:
    ds.update_config({"x": "y"})


def _overwrite(ds: Any) -> None:
    ds.insert(ds.to_table().slice(0, 2), mode="overwrite")


def _update_here(ds: Any) -> None:
    ds.update({"b": "1"}, where="a = 3")


def _compact(ds: Any) -> None:
    ds.optimize.compact_files(target_rows_per_fragment=30)


def _restore(ds: Any) -> None:
    ds.restore()


def _truncate(ds: Any) -> None:
    ds.truncate_table()


OTHERS: list[Callable[[Any], None]] = [
    _delete_here,
    _delete_elsewhere,
    _append,
    _rename,
    _drop,
    _add_nulls,
    _add_values,
    _cast,
    _configure,
    _overwrite,
    _update_here,
    _compact,
    _restore,
    _truncate,
]


@pytest.mark.parametrize("other", OTHERS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("rival", [lance, lance_io], ids=["pylance", "ours"])
def test_conflicts_are_those_of_pylance(tmp_path: Path, other: Callable[[Any], None], rival: Any) -> None:
    """A plan of fragments 0 and 1 that is committed after another change, whoever made that.

    What cannot be is refused before ids are reserved, which pylance does first: it leaves a version more.
    """
    outcomes, versions = [], []
    for library, compaction in ((lance, PeerCompaction), (lance_io, Compaction)):
        path = tmp_path / f"{library.__name__}.lance"
        write_table(path, [10, 10, 60])
        ds = library.dataset(str(path))
        (task,) = compaction.plan(ds, {"target_rows_per_fragment": 40}).tasks
        result = task.execute(ds)
        other(rival.dataset(str(path)))
        version = lance.dataset(str(path)).version
        try:
            compaction.commit(ds, [result])
        except OSError as error:
            outcomes.append("incompatible" if "ncompatible" in str(error) else "retry")
        else:
            outcomes.append("done")
        versions.append(lance.dataset(str(path)).version - version)
        assert read_by(lance, path).equals(read_by(lance_io, path))
    assert outcomes[0] == outcomes[1]
    assert versions[1] == (2 if outcomes[1] == "done" else 0)
    assert versions[1] <= versions[0]


def test_a_conflict_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    write_table(path, [10, 10])
    ds = lance_io.dataset(str(path))
    lance.dataset(str(path)).delete("a = 3")
    before = {file.name for file in path.rglob("*")}
    with pytest.raises(CommitConflictError):
        ds.optimize.compact_files()
    assert {file.name for file in path.rglob("*")} == before
    ds.checkout_latest()
    ds.optimize.compact_files()
    assert lance.dataset(str(path)).count_rows() == 19
