"""`dataset.distributed` without Spark: an engine of a few lines, whose tasks are processes of their own."""

from __future__ import annotations

import multiprocessing
import pickle
import re
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.dataset import distributed
from lance_io.dataset.distributed import (
    TablePlace,
    TableVersion,
    WriteJob,
    WrittenFiles,
    abort_write,
    commit_write,
    discard_files,
    remove_job_files,
    table_place,
    table_version,
    write_files,
)
from lance_io.errors import BindError, CommitConflictError, NotFound, OperationError, SchemaError
from lance_io.io.stats import io_stats

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
ROWS = 3000
MIB = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t.lance")


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    """Two processes that know nothing of this one."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        yield pool


def rows(start: int, stop: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(start, stop)), pa.array(map(str, range(start, stop)))], schema=SCHEMA)


def here(path: str) -> TablePlace:
    return TablePlace.of_process(path, {})


def planned(path: str, **more: Any) -> WriteJob:
    return WriteJob.plan(here(path), lambda table: SCHEMA if table is None else table, SCHEMA.names, **more)


def written(path: str, job: WriteJob, start: int, stop: int) -> WrittenFiles:
    """What a task does that writes."""
    batches = iter([rows(start, stop)])
    limits: dict[str, Any] = {"rows_per_file": 700, "bytes_per_file": MIB, "is_rows_hard": True}
    return write_files(here(path), job, job.arrow_schema, batches, **limits)


def write_task(path: str, job: bytes, start: int, stop: int) -> bytes:
    """The same in another process."""
    return pickle.dumps(written(path, pickle.loads(job), start, stop))


def read_task(path: str, scan: bytes, part: bytes) -> list[pa.RecordBatch]:
    """What a task does that reads, in another process."""
    return list(pickle.loads(scan).read(here(path), pickle.loads(part), batch_bytes=MIB))


def ids(path: str) -> list[int]:
    return sorted(lance.dataset(path).to_table()["id"].to_pylist())


def files(path: str) -> int:
    return len(list(Path(path, "data").glob("*")))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Five fragments, the third of which lacks rows."""
    path = str(tmp_path_factory.mktemp("surface") / "t.lance")
    job = planned(path)
    commit_write(here(path), job, [written(path, job, 0, ROWS)])
    lance.dataset(path).delete("id >= 1500 and id < 1600")
    return path


def test_each_name_is_documented() -> None:
    page = Path(__file__).resolve().parents[2].joinpath("docs/architecture.md").read_text()
    for name in distributed.__all__:
        assert all(re.search(rf"\b{name}\b", text) for text in (distributed.__doc__ or "", page)), name
        assert getattr(distributed, name).__doc__


def test_processes_write_and_read_a_table(path: str, processes: ProcessPoolExecutor) -> None:
    job = planned(path)
    tasks = [processes.submit(write_task, path, pickle.dumps(job), at, at + 1000) for at in range(0, ROWS, 1000)]
    messages = [pickle.loads(task.result()) for task in tasks]
    assert TableVersion.newest(here(path)) is None  # nobody sees it yet
    assert commit_write(here(path), job, messages, message="by three tasks") == 1
    assert sum(one.num_rows for one in messages) == ROWS and files(path) == sum(len(one.paths) for one in messages)

    version = TableVersion.open(here(path))
    scan = version.scan(columns=[("text",), ("id",)], filter="id % 2 = 1")
    parts = version.parts(scan, part_bytes=1, num_parts=4)
    assert version.schema_of(scan).names == ["text", "id"]
    sent = pickle.dumps(scan)
    found = [processes.submit(read_task, path, sent, pickle.dumps(part)) for part in parts]
    batches = [batch for task in found for batch in task.result()]
    assert pa.Table.from_batches(batches)["id"].to_pylist() == list(range(1, ROWS, 2))
    assert version.count(scan) == ROWS // 2


def test_what_travels_does_nothing_when_it_arrives(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    version = TableVersion.open(here(table))
    scan = version.scan()
    (part,) = version.parts(scan, part_bytes=MIB)
    list(scan.read(here(table), part, batch_bytes=MIB))
    sent = pickle.dumps((scan, part, planned(table), WrittenFiles()))
    monkeypatch.setattr(table_place, "_session", None)
    with io_stats() as spent:
        again, its_part, *_ = pickle.loads(sent)
        batches = again.read(here(table), its_part, batch_bytes=MIB)
        assert spent.num_reads == 0
    assert again.prepared is None
    assert sum(len(batch) for batch in batches) == ROWS - 100


@pytest.mark.parametrize("longest", [0, table_version.CARRIED_BYTES_MAX])
def test_a_version_is_named_to_others(table: str, longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its manifest, or to be read again."""
    monkeypatch.setattr(table_version, "CARRIED_BYTES_MAX", longest)
    named = TableVersion.open(here(table), 1).to_bytes()
    with io_stats() as spent:
        found = TableVersion.from_bytes(here(table), named)
    assert (spent.num_reads > 0) == (longest == 0)
    assert (found.version, found.branch, found.column_names) == (1, None, ("id", "text"))
    assert found.count(found.scan()) == ROWS


def test_versions_by_time(table: str) -> None:
    now = datetime.now(UTC)
    assert TableVersion.open(here(table), at=now + timedelta(hours=1)).version == 2
    with pytest.raises(NotFound, match="no version is as old as"):
        TableVersion.open(here(table), at=now - timedelta(days=1))
    with pytest.raises(NotFound):
        TableVersion.open(here(table), 9)


@pytest.mark.parametrize("first", [1, 600, 1550, 5000])
@pytest.mark.parametrize("start", [0, 1550])
def test_a_part_is_read_in_two_steps(table: str, first: int, start: int) -> None:
    """The rows that it begins with, of its first fragment, and the others; deleted ones do not count."""
    version = TableVersion.open(here(table))
    scan = version.scan(with_row_address=True)
    (whole,) = version.parts(scan, part_bytes=MIB)
    _, part = version.parts(scan, part_bytes=1, num_parts=2) if start else (None, whole)

    def read(**more: int) -> list[Any]:
        found = scan.read(here(table), part, batch_bytes=MIB, batch_rows=100, **more)
        return [row for batch in found for row in batch.to_pylist()]

    head, rest = read(first_rows=first), read(skip_rows=first)
    assert head + rest == read()
    in_first = lance.dataset(table).get_fragment(part.ranges[0][0]).count_rows()
    assert 0 < len(head) <= min(first, in_first)
    assert [sum(version.live_rows([part]))] == [len(head + rest)]


def test_parts_say_what_they_cost(table: str) -> None:
    version = TableVersion.open(here(table))
    scan = version.scan(columns=[("id",)])
    parts = version.parts(scan, part_bytes=ROWS * 8 // 3)
    assert len(parts) == 3 and all(part.num_bytes for part in parts)
    assert version.num_requests(scan, parts[0]) > 0
    (some,) = version.parts(scan, part_bytes=MIB, places=[1])
    assert [one for one, _, _ in some.ranges] == [version.fragment_ids[1]]
    assert version.fragment_size(2)[0] == 600
    with pytest.raises(BindError):
        version.parts(version.scan(filter="nope = 1"), part_bytes=MIB)


def test_a_job_id_counts_once_and_files_of_lost_tasks_go(path: str) -> None:
    job = planned(path, job_id="nightly")
    lost, kept = written(path, job, 0, 10), written(path, job, 0, 10)
    assert commit_write(here(path), job, [kept]) == 1
    assert remove_job_files(here(path), "nightly") == sorted(lost.paths)
    again = planned(path, job_id="nightly")
    assert again.is_done and commit_write(here(path), again, []) is None
    assert ids(path) == list(range(10))


def test_an_abort_removes_what_was_not_committed(path: str) -> None:
    job = planned(path)
    messages = [written(path, job, 0, 10)]
    assert abort_write(here(path), job, messages) == "aborted, 1 of 1 files removed" and not files(path)
    job = planned(path)
    messages = [written(path, job, 0, 10)]
    commit_write(here(path), job, messages)
    assert "was committed as version 1" in abort_write(here(path), job, messages)
    assert files(path) == 1


def test_blobs_that_are_removed_leave_no_folder(path: str) -> None:
    schema = pa.schema([lance.blob_field("b")])
    batch = pa.record_batch([lance.blob_array([b"x" * (5 * MIB)])], schema=schema)
    lance_io.write_dataset(pa.Table.from_batches([batch]), path, data_storage_version="2.2")
    before = {*Path(path, "data").iterdir()}

    def failing() -> Iterator[pa.RecordBatch]:
        yield batch
        raise RuntimeError("no more")

    def blob_files(job_id: str) -> tuple[WriteJob, WrittenFiles]:
        job = WriteJob.plan(here(path), lambda _: schema, schema.names, job_id=job_id)
        return job, write_files(here(path), job, schema, iter([batch]), rows_per_file=1, bytes_per_file=MIB)

    with pytest.raises(RuntimeError, match="no more"):
        lance_io.write_dataset(failing(), path, schema=schema, mode="append")
    assert {*Path(path, "data").iterdir()} == before
    job, lost = blob_files("aborted")
    assert len(lost.paths) == 2
    abort_write(here(path), job, [lost])
    discard_files(here(path), blob_files("discarded")[1])
    blob_files("lost")
    remove_job_files(here(path), "lost")
    assert {*Path(path, "data").iterdir()} == before


@pytest.mark.parametrize("creates", [False, True])
def test_what_a_task_has_written_counts_once(path: str, creates: bool) -> None:
    """A message that arrives twice is refused before any version is made, also one of columns that are to be added."""
    if not creates:
        lance.write_dataset(pa.table({"id": pa.array([1], pa.int64())}), path)
    job = WriteJob.plan(here(path), lambda _: SCHEMA, SCHEMA.names)
    once = written(path, job, 0, 1000)
    with pytest.raises(OperationError, match=r"adds the data file .* twice"):
        commit_write(here(path), job, [once, once], merge_schema=True)
    assert (Path(path) / "_versions").exists() != creates
    assert creates or lance.dataset(path).version == 1
    assert commit_write(here(path), job, [once], merge_schema=True) == (1 if creates else 2)
    assert lance.dataset(path).count_rows() == 1000 + (not creates)


def test_marks_are_set_in_the_version_that_holds_the_rows(path: str) -> None:
    """And by one of two writers that have read the same."""
    for number, before in enumerate([None, "0"]):
        job = planned(path)
        commit_write(here(path), job, [written(path, job, number, number + 1)], mark=("at", str(number), before))
        newest = TableVersion.newest(here(path))
        assert newest is not None and newest.config["at"] == str(number)
    job = planned(path)
    late = [written(path, job, 2, 3)]
    with pytest.raises(CommitConflictError, match="another writer set it"):
        commit_write(here(path), job, late, mark=("at", "1", "0"))
    assert ids(path) == [0, 1]


def test_jobs_are_refused_before_their_tasks_start(path: str) -> None:
    with pytest.raises(NotFound, match="create is false"):
        planned(path, create=False)
    with pytest.raises(SchemaError, match="no column"):
        WriteJob.plan(here(path), lambda _: SCHEMA, ["other"])


def test_versions_say_how_they_came_about(table: str) -> None:
    assert _changes(table) == [("Overwrite", (0, 1, 2, 3, 4)), ("Delete", None)]


def test_versions_that_only_add_columns_extend_the_one_before(path: str) -> None:
    job = planned(path)
    commit_write(here(path), job, [written(path, job, 0, 5)])
    lance.dataset(path).add_columns(pa.field("more", pa.int32()))
    lance.dataset(path).update_config({"a": "b"})
    job = planned(path)
    commit_write(here(path), job, [written(path, job, 5, 9)])
    assert _changes(path) == [("Overwrite", (0,)), ("Merge", None), ("UpdateConfig", ()), ("Append", (1,))]
    first, second = (TableVersion.open(here(path), number) for number in (1, 2))
    change = second.change()
    assert change is not None and change.may_extend and second.extends(first)


def _changes(path: str) -> Sequence[tuple[str, tuple[int, ...] | None]]:
    newest = TableVersion.newest(here(path))
    assert newest is not None
    found = [TableVersion.open(here(path), number + 1).change() for number in range(newest.version)]
    return [(one.operation, one.added) for one in found if one is not None]
