"""Commit locks that raise: what becomes of the version, its files and the handle is what becomes of them in pylance."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import fsspec
import lance
import lance.commit
import pyarrow as pa
import pytest

import lance_io
import lance_io.commit
from lance_io import AsyncDataset
from lance_io.errors import CommitHandlerError

if TYPE_CHECKING:
    from pathlib import Path

ROW = pa.table({"a": [7], "s": ["x"]})
ROWS = pa.table({"a": range(6), "s": list("abcdef")})


class Lock:
    """A commit lock that raises, `times` times, where it is made, entered or left."""

    def __init__(self, where: str, error: Exception, times: int = 1) -> None:
        self.where, self.error, self.times = where, error, times
        self.events: list[Any] = []

    def __call__(self, version: int) -> Lock:
        self.events.append(version)
        return self._step("call")

    def __enter__(self) -> Lock:
        return self._step("enter")

    def __exit__(self, *failure: object) -> None:
        self._step("exit")

    def _step(self, name: str) -> Lock:
        self.events.append(name)
        if name == self.where and self.times:
            self.times -= 1
            raise self.error
        return self


CHANGES: dict[str, Any] = {
    "append": lambda m, ds, uri, lock: m.write_dataset(ROW, uri, mode="append", commit_lock=lock),
    "overwrite": lambda m, ds, uri, lock: m.write_dataset(ROW, uri, mode="overwrite", commit_lock=lock),
    "insert": lambda m, ds, uri, lock: ds.insert(ROW),
    "delete": lambda m, ds, uri, lock: ds.delete("a = 1"),
    "update": lambda m, ds, uri, lock: ds.update({"s": "'u'"}, where="a < 3"),
    "merge": lambda m, ds, uri, lock: ds.merge_insert("a").when_not_matched_insert_all().execute(ROW),
    "columns": lambda m, ds, uri, lock: ds.add_columns({"b": "a + 1"}),
    "cast": lambda m, ds, uri, lock: ds.alter_columns({"path": "a", "data_type": pa.int32()}),
    "drop": lambda m, ds, uri, lock: ds.drop_columns(["s"]),
    "config": lambda m, ds, uri, lock: ds.update_config({"k": "v"}),
    "restore": lambda m, ds, uri, lock: m.dataset(uri, version=1, commit_lock=lock).restore(),
    "operation": lambda m, ds, uri, lock: m.LanceDataset.commit(
        uri, m.LanceOperation.Append([m.LanceFragment.create(uri, ROW)]), read_version=2, commit_lock=lock
    ),
}


def made(library: Any, folder: Path) -> str:
    uri = str(folder / library.__name__)
    lance.write_dataset(ROWS, uri, max_rows_per_file=4)
    lance.dataset(uri).delete("a = 4")
    return uri


def files(uri: str) -> set[str]:
    found = {os.path.join(folder, name) for folder, _, names in os.walk(uri) for name in names}
    return {os.path.relpath(one, uri) for one in found}


def error_of(library: Any, kind: str) -> Exception:
    return KeyError("mine") if kind == "any" else library.commit.CommitConflictError("held by another")


def raise_of(change: Any) -> OSError:
    with pytest.raises(
        OSError, match=r"Error from commit handler: (KeyError: 'mine'|CommitConflictError: held)"
    ) as raised:
        change()
    return raised.value


@pytest.mark.parametrize("kind", ["any", "conflict"])
@pytest.mark.parametrize("where", ["call", "enter", "exit"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_lock_that_raises_ends_the_commit(tmp_path: Path, name: str, where: str, kind: str) -> None:
    found = []
    for library in (lance_io, lance):
        uri = made(library, tmp_path)
        lock = Lock(where, error_of(library, kind))
        dataset = library.dataset(uri, commit_lock=lock)
        before = files(uri)
        error = raise_of(lambda library=library, ds=dataset, uri=uri, lock=lock: CHANGES[name](library, ds, uri, lock))
        assert lock.events == [3, "call", "enter", "exit"][: 2 + ["call", "enter", "exit"].index(where)]
        if library is lance_io:
            assert isinstance(error, CommitHandlerError) and error.__cause__ is lock.error
            if where != "exit" and name != "operation":
                assert files(uri) == before, "nothing was committed, and nothing stays"
        version = lance.dataset(uri).version
        assert version == (3 if where == "exit" else 2)
        assert dataset.count_rows() == 5 and dataset.latest_version == version  # the handle reads on
        dataset.checkout_latest()
        dataset.update_config({"after": "it"})  # and commits
        last = lance.dataset(uri)
        last.validate()
        found.append((last.version, last.to_table().to_pydict(), last.config()))
    assert found[0] == found[1]


@pytest.mark.parametrize("where", ["enter", "exit"])
@pytest.mark.parametrize("naming", [True, False], ids=["V2", "V1"])
def test_a_lock_that_raises_at_the_first_version(tmp_path: Path, where: str, naming: bool) -> None:
    for library in (lance_io, lance):
        uri, lock = str(tmp_path / library.__name__), Lock(where, error_of(library, "conflict"))
        options = {"commit_lock": lock, "enable_v2_manifest_paths": naming}
        raise_of(lambda library=library, uri=uri, options=options: library.write_dataset(ROWS, uri, **options))
        if where == "exit":
            assert lance.dataset(uri).to_table() == ROWS
            assert library.write_dataset(ROW, uri, mode="append", commit_lock=lock).version == 2
        else:
            with pytest.raises((OSError, ValueError)):
                lance.dataset(uri)
            assert library is lance or files(uri) == set()
            assert library.write_dataset(ROWS, uri, **options).version == 1


@pytest.mark.parametrize("where", ["enter", "exit"])
async def test_the_asynchronous_changes(tmp_path: Path, where: str) -> None:
    uri = made(lance_io, tmp_path)
    before = files(uri)
    for number, change in enumerate(
        (
            lambda ds: ds.insert(ROW),
            lambda ds: ds.delete("a = 1"),
            lambda ds: ds.add_columns({"b": "a + 1"}),
        )
    ):
        lock = Lock(where, KeyError("mine"))
        table = await AsyncDataset.open(uri, commit_lock=lock)
        with pytest.raises(CommitHandlerError) as raised:
            await change(table)
        assert raised.value.__cause__ is lock.error
        version = lance.dataset(uri).version
        assert version == (3 + number if where == "exit" else 2) and await table.count_rows() >= 5
    lance.dataset(uri).validate()
    assert (files(uri) == before) == (where == "enter")
    if where == "exit":
        assert lance.dataset(uri).to_table(columns=["a", "b"]).to_pydict() == {
            "a": [0, 2, 3, 5, 7],
            "b": [1, 3, 4, 6, 8],
        }


@pytest.mark.parametrize("where", ["enter", "exit"])
def test_appends_of_a_group(tmp_path: Path, where: str) -> None:
    uri = made(lance_io, tmp_path)
    before, lock = files(uri), Lock(where, KeyError("mine"))
    error = raise_of(lambda: lance_io.write_dataset(ROW, uri, mode="append", group_commit=True, commit_lock=lock))
    assert isinstance(error, CommitHandlerError) and isinstance(error.__cause__, KeyError)
    if where == "enter":
        assert files(uri) == before
    assert lance.dataset(uri).count_rows() == (6 if where == "exit" else 5)
    lance_io.write_dataset(ROW, uri, mode="append", group_commit=True, commit_lock=lock)
    assert lance.dataset(uri).count_rows() == (7 if where == "exit" else 6)


@pytest.mark.parametrize("where", ["enter", "exit"])
def test_tags_and_branches_under_a_lock(where: str) -> None:
    """Where the store does not decide, the lock is held around their files, too."""
    how: dict[str, Any] = {"filesystem": fsspec.filesystem("memory")}
    try:
        lance_io.write_dataset(ROWS, "/failing/t.lance", **how, commit_lock=Lock("never", KeyError("mine")))
        lock = Lock(where, KeyError("mine"))
        table = lance_io.dataset("/failing/t.lance", **how, commit_lock=lock)
        raise_of(lambda: table.tags.create("now", 1))
        assert [*table.tags.list()] == (["now"] if where == "exit" else [])
        lock.times = 1
        raise_of(lambda: table.create_branch("side"))
        table.create_branch("side")
        assert [*table.branches.list()] == ["side"]
    finally:
        how["filesystem"].store.clear()


def test_a_number_that_is_taken_and_a_lock_that_is_not_left(tmp_path: Path) -> None:
    """Nothing is committed then, and no file stays."""
    uri = made(lance_io, tmp_path)

    class Overtaken(Lock):
        def __enter__(self) -> Lock:
            lance.write_dataset(ROW, uri, mode="append")
            return super().__enter__()

    lock = Overtaken("exit", KeyError("mine"))
    raise_of(lambda: lance_io.write_dataset(ROW, uri, mode="append", commit_lock=lock))
    table = lance.dataset(uri)
    assert (table.version, table.count_rows()) == (3, 6)
    named = {file.path for fragment in table.get_fragments() for file in fragment.data_files()}
    assert set(os.listdir(f"{uri}/data")) == named
