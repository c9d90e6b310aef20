"""Changes by handles that missed others: what is committed goes into the newest records, and every file of it is there.

`tests/simulate/test_chains.py` draws chains of lost races; here are the single cases, on local disk, beside pylance.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.errors import CommitConflictError, CommitHandlerError, CommitUnknownError
from lance_io.testing.faults import Fault, FaultyStore
from tests.simulate.test_crashes import run
from tests.simulate.world import URI, World, append, create, numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lance_io.reads.version.session import Session
    from lance_io.testing.wrap import Request

    Change = Callable[[lance_io.LanceDataset], Any]


def rows(*numbers: int) -> pa.Table:
    return pa.table({"a": pa.array(numbers, pa.int64()), "b": [f"b{number}" for number in numbers]})


def merge(dataset: lance_io.LanceDataset) -> None:
    """Row 2 moves, row 200 is new."""
    builder = dataset.merge_insert("a").when_matched_update_all().when_not_matched_insert_all()
    builder.execute(rows(2, 200))


def patch(dataset: lance_io.LanceDataset) -> None:
    """Row 2 gets another `b`, in place."""
    builder = dataset.merge_insert("a").when_matched_update_all().write_mode("rewrite_columns")
    builder.execute(pa.table({"a": pa.array([2], pa.int64()), "b": ["patched"]}))


CHANGES: dict[str, Change] = {
    "delete": lambda dataset: dataset.delete("a = 2"),
    "update": lambda dataset: dataset.update({"b": "'new'"}, "a = 2"),
    "merge": merge,
    "patch": patch,
}
LEFT = {
    "delete": {0: "b0", 3: "b3"},
    "update": {0: "b0", 2: "new", 3: "b3"},
    "merge": {0: "b0", 2: "b2", 3: "b3", 200: "b200"},
    "patch": {0: "b0", 2: "patched", 3: "b3"},
}


def named(uri: Path) -> set[str]:
    """Paths that the newest version names, as pylance reads it."""
    dataset = lance.dataset(uri)
    found = set()
    for fragment in dataset.get_fragments():
        found |= {f"data/{file.path}" for file in fragment.data_files()}
        deletion = fragment.deletion_file()
        found |= set() if deletion is None else {deletion}
    return found


def check(uri: Path, content: dict[int, str]) -> None:
    """Both libraries read this, every named file is there, and nothing lies beside those that versions name."""
    for library in (lance, lance_io):
        table = library.dataset(uri).to_table(columns=["a", "b"])
        assert dict(zip(*table.to_pydict().values(), strict=True)) == content
    lance.dataset(uri).validate()
    assert all((uri / path).exists() for path in named(uri))
    versions = {f"_deletions/{path.name}" for path in (uri / "_deletions").glob("*")}
    wanted = set()
    for version in lance.dataset(uri).versions():
        for fragment in lance.dataset(uri, version["version"]).get_fragments():
            wanted |= {fragment.deletion_file()} - {None}
    assert versions == wanted


@pytest.mark.parametrize("races", [1, 2, 3])
@pytest.mark.parametrize("change", ["delete", "update", "merge"])
def test_a_change_that_loses_races_names_files_that_are_there(tmp_path: Path, change: str, races: int) -> None:
    """It is rebased onto a deletion in its own fragment, then onto appends, which leave that alone."""
    uri = tmp_path / "t"
    lance_io.write_dataset(rows(0, 1, 2, 3), uri)
    attempts: list[int] = []

    @contextlib.contextmanager
    def lock(version: int) -> Iterator[None]:
        attempts.append(version)
        if len(attempts) <= races:
            lance_io.write_dataset(rows(100 + len(attempts)), uri, mode="append")
        yield

    stale = lance_io.dataset(uri, commit_lock=lock)
    lance_io.dataset(uri).delete("a = 1")
    CHANGES[change](stale)
    assert len(attempts) == races + 1
    check(uri, {**LEFT[change], **{100 + number: f"b{100 + number}" for number in range(1, races + 1)}})


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable ids"])
@pytest.mark.parametrize("deleted", [False, True], ids=["alone", "after a delete"])
def test_a_change_over_dropped_columns_leaves_them_dropped(
    tmp_path: Path, change: str, stable: bool, deleted: bool
) -> None:
    uri = tmp_path / "t"
    lance_io.write_dataset(rows(0, 2, 3), uri, enable_stable_row_ids=stable)
    lance_io.dataset(uri).add_columns({"z": "a * 100"})
    stale = lance_io.dataset(uri)
    lance_io.dataset(uri).drop_columns(["z"])
    if deleted and change != "patch":  # for which both of one fragment is a conflict
        lance_io.dataset(uri).delete("a = 0")
        lance_io.write_dataset(rows(0), uri, mode="append")
    CHANGES[change](stale)
    check(uri, LEFT[change])
    newest = lance_io.dataset(uri)
    ids = {field.id() for field in newest.lance_schema.fields()}
    first = newest.get_fragments()[0]
    live = [[one for one in file.fields if one >= 0] for file in first.data_files()]
    assert all(ids.issuperset(one) for one in live) and newest.schema.names == ["a", "b"]


def test_columns_that_were_dropped_are_not_written_anew(tmp_path: Path) -> None:
    uri = tmp_path / "t"
    lance_io.write_dataset(rows(0, 2, 3), uri)
    lance_io.dataset(uri).add_columns({"z": "a * 100"})
    stale = lance_io.dataset(uri)
    lance_io.dataset(uri).drop_columns(["z"])
    builder = stale.merge_insert("a").when_matched_update_all().write_mode("rewrite_columns")
    builder.execute(pa.table({"a": pa.array([2], pa.int64()), "z": pa.array([7], pa.int64())}))
    check(uri, {0: "b0", 2: "b2", 3: "b3"})
    assert len(lance_io.dataset(uri).get_fragments()[0].data_files()) == 1


@pytest.mark.parametrize("library", [lance, lance_io], ids=["by pylance", "by ours"])
def test_a_ready_delete_over_dropped_columns(tmp_path: Path, library: Any) -> None:
    """Its rows are not known; its record of the fragment is as old as it is."""
    uri = tmp_path / "t"
    lance_io.write_dataset(rows(0, 2, 3), uri)
    lance_io.dataset(uri).add_columns({"z": "a * 100"})
    before = lance_io.dataset(uri)
    metadata = library.dataset(uri).get_fragments()[0].delete("a = 2")
    lance_io.dataset(uri).drop_columns(["z"])
    changed = lance_io.FragmentMetadata.from_json(json.dumps(metadata.to_json()))
    operation = lance_io.LanceOperation.Delete([changed], [], "a = 2")
    lance_io.LanceDataset.commit(uri, operation, read_version=before.version)
    check(uri, LEFT["delete"])
    assert len(lance_io.dataset(uri).get_fragments()[0].data_files()) == 1


# -- what failed attempts leave ---------------------------------------------------------------------------------------


def test_attempts_that_conflict_leave_no_files(tmp_path: Path) -> None:
    uri = tmp_path / "t"
    lance_io.write_dataset(rows(*range(40)), uri, max_rows_per_file=4)
    stale = lance_io.dataset(uri)
    lance_io.dataset(uri).delete("a % 4 = 1")
    before = {path for path in uri.rglob("*") if path.is_file()}
    with pytest.raises(CommitConflictError):
        stale.delete("a % 4 = 1", conflict_retries=0)
    with pytest.raises(CommitConflictError):
        stale.update({"b": "'x'"}, "a % 4 = 1", conflict_retries=0)
    assert {path for path in uri.rglob("*") if path.is_file()} == before


# -- the outcome decides ----------------------------------------------------------------------------------------------


class Lock:
    """A lock that cannot be released."""

    def __init__(self, version: int) -> None:
        self.version = version

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        raise RuntimeError("the lock server is gone")


@pytest.mark.parametrize("reads_back", [True, False], ids=["reads back", "nobody answers"])
@pytest.mark.parametrize("change", ["append", "delete", "update", "merge"])
def test_a_lock_that_fails_at_release_does_not_take_the_files(change: str, reads_back: bool) -> None:
    """The answer to the deciding PUT is lost, and then the lock fails: the version is there, whatever is raised."""
    world = World()
    assert run(world.session(), create) is None and run(world.session(), append) is None
    are_failing: list[bool] = []

    def counts(request: Request) -> bool:
        if request.operation == "put" and request.key.endswith(".manifest"):
            are_failing.append(True)
        return bool(are_failing)

    script = {0: Fault.LOST_ANSWER, **({} if reads_back else dict.fromkeys(range(1, 40), Fault.REFUSED))}
    store = FaultyStore(world.place.store, script, counts)

    async def work(session: Session) -> None:
        table = await AsyncDataset.open(URI, session=session, commit_lock=Lock)
        if change == "append":
            await table.insert(pa.table({"a": pa.array([7], pa.int64())}))
        elif change == "delete":
            await table.delete("a = 1")
        elif change == "update":
            await table.update({"a": "a + 50"}, "a = 1")
        else:
            builder = table.merge_insert("a").when_matched_update_all()
            await builder.when_not_matched_insert_all().execute(pa.table({"a": pa.array([1], pa.int64())}))

    version = world.newest()[0]
    outcome = run(world.session(store), work)
    assert isinstance(outcome, CommitHandlerError if reads_back else CommitUnknownError)
    world.check()
    assert world.newest()[0] == version + 1
    assert len(numbers(world.open())) > 0
