"""Stores where nobody can decide a commit: every change is refused before it has put anything."""

from __future__ import annotations

import zipfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import fsspec
import lance
import pyarrow as pa
import pytest
from fsspec.registry import _registry

import lance_io
from lance_io.dataset.distributed import TablePlace, WriteJob
from lance_io.errors import UnsupportedError
from tests.store.bucketfs import BucketFileSystem, GuestFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ROWS = pa.table({"id": range(100), "text": [f"row {n}" for n in range(100)]})
VOUCHED = {"exclusive_create": "true"}
WRITES = {"put", "create", "delete"}
PATH = "b/t.lance"


@pytest.fixture
def fs() -> Iterator[BucketFileSystem]:
    """A filesystem with a table, whose opener does not vouch for `mode="create"`."""
    bucket = BucketFileSystem()
    lance_io.write_dataset(ROWS, PATH, filesystem=bucket, storage_options=VOUCHED, max_rows_per_file=50)
    ds = lance_io.dataset(PATH, filesystem=bucket, storage_options=VOUCHED)
    ds.delete("id = 5")
    ds.tags.create("old", 1)
    BucketFileSystem.calls.clear()
    yield bucket
    BucketFileSystem.clear()


def unread() -> Iterator[pa.RecordBatch]:
    """Rows that nobody is to ask for."""
    raise AssertionError("rows of a write that cannot be committed were read")
    yield


def reader() -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(ROWS.schema, unread())


def write(**how: Any) -> Callable[[lance_io.LanceDataset, Any], Any]:
    return lambda _, fs: lance_io.write_dataset(reader(), how.pop("path", PATH), filesystem=fs, **how)


def merge(ds: lance_io.LanceDataset, _: Any) -> Any:
    return ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(reader())


CHANGES: dict[str, Callable[[lance_io.LanceDataset, Any], Any]] = {
    "create": write(path="b/new.lance"),
    "append": write(mode="append"),
    "overwrite": write(mode="overwrite"),
    "group": lambda _, fs: lance_io.write_dataset(ROWS, PATH, mode="append", group_commit=True, filesystem=fs),
    "insert": lambda ds, _: ds.insert(reader()),
    "delete": lambda ds, _: ds.delete("id > 50"),
    "truncate": lambda ds, _: ds.truncate_table(),
    "update": lambda ds, _: ds.update({"text": "'x'"}),
    "merge_insert": merge,
    "add columns": lambda ds, _: ds.add_columns({"twice": "id * 2"}),
    "add null columns": lambda ds, _: ds.add_columns(pa.schema([("none", pa.int32())])),
    "merge": lambda ds, _: ds.merge(pa.table({"id": range(100), "more": range(100)}), "id"),
    "cast": lambda ds, _: ds.alter_columns({"path": "id", "data_type": pa.int32()}),
    "rename": lambda ds, _: ds.alter_columns({"path": "id", "name": "number"}),
    "drop columns": lambda ds, _: ds.drop_columns(["text"]),
    "restore": lambda ds, _: ds.checkout_version(1).restore(),
    "config": lambda ds, _: ds.update_config({"a": "b"}),
    "compact": lambda ds, _: ds.optimize.compact_files(),
    "tag": lambda ds, _: ds.tags.create("new", 1),
    "branch": lambda ds, _: ds.create_branch("side"),
    "shallow clone": lambda ds, fs: ds.shallow_clone("b/clone.lance", 1, filesystem=fs),
    "deep clone": lambda ds, fs: ds.deep_clone("b/clone.lance", 1, filesystem=fs),
    "commit": lambda ds, fs: lance_io.LanceDataset.commit(
        PATH, lance_io.LanceOperation.Append([]), read_version=2, filesystem=fs
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_put_there(change: str, fs: BucketFileSystem) -> None:
    before = dict(BucketFileSystem.objects(PATH))
    ds = lance_io.dataset(PATH, filesystem=fs)
    with pytest.raises(UnsupportedError, match="commit_lock"):
        CHANGES[change](ds, fs)
    assert {name for name, _ in BucketFileSystem.calls} & WRITES == set()
    assert BucketFileSystem.objects(PATH) == before


def test_an_archive_stays_as_it_is(tmp_path: Path) -> None:
    lance.write_dataset(ROWS, str(tmp_path / "t.lance"))
    archive = tmp_path / "x.zip"
    with zipfile.ZipFile(archive, "w") as made:
        for path in sorted((tmp_path / "t.lance").rglob("*")):
            made.write(path, path.relative_to(tmp_path))
    fs = fsspec.filesystem("zip", fo=str(archive), mode="a", skip_instance_cache=True)
    before, there = archive.read_bytes(), set(fs.zip.namelist())
    for mode, path in (("create", "new.lance"), ("append", "t.lance"), ("overwrite", "t.lance")):
        with pytest.raises(UnsupportedError, match="commit_lock"):
            lance_io.write_dataset(ROWS, path, mode=mode, filesystem=fs)
        with pytest.raises(UnsupportedError, match="commit_lock"):
            lance_io.write_dataset(ROWS, f"zip://{path}::{archive}", mode=mode, storage_options={"mode": "a"})
    assert set(fs.zip.namelist()) == there
    fs.close()
    assert archive.read_bytes() == before


def test_a_lock_is_enough() -> None:
    """The same changes are made under one."""
    versions: list[int] = []

    @contextmanager
    def lock(version: int) -> Iterator[None]:
        versions.append(version)
        yield

    fs = fsspec.filesystem("memory")
    how: dict[str, Any] = {"filesystem": fs, "commit_lock": lock}
    lance_io.write_dataset(ROWS, "/locked/t.lance", **how)
    ds = lance_io.dataset("/locked/t.lance", **how)
    ds.update({"text": "'x'"}, where="id < 10")
    ds.add_columns({"twice": "id * 2"})
    ds.alter_columns({"path": "twice", "data_type": pa.int32()})
    more = pa.table({"id": [200], "text": ["a"], "twice": pa.array([1], pa.int32())})
    ds.merge_insert("id").when_not_matched_insert_all().execute(more)
    ds.optimize.compact_files()
    ds.tags.create("now", ds.version)
    ds.create_branch("side")
    assert ds.count_rows() == 101
    assert versions[:6] == [1, 2, 3, 4, 5, 6]
    fs.store.clear()


def test_a_job_of_many_tasks_is_refused_before_they_begin(fs: BucketFileSystem) -> None:
    _registry["guestfs"] = GuestFileSystem
    try:
        place = TablePlace.of_process("guestfs://b/t.lance", {})
        with pytest.raises(UnsupportedError, match="commit_lock"):
            WriteJob.plan(place, lambda _: ROWS.schema, ROWS.schema.names)
    finally:
        del _registry["guestfs"]
    assert {name for name, _ in BucketFileSystem.calls} & WRITES == set()
