"""Procedures as the worker answers them, asked by a client in Python: calls that begin again, tasks given up."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import UsageError
from lance_io.spark.worker.writing.carried_functions import CarriedFunction
from tests.spark.test_table_jobs import FRAGMENTS, ROWS, make_rows
from tests.spark.worker_client import Worker, WorkerError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(180)

WAIT_S = 60.0


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker.start() as started:
        yield started


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(make_rows(), uri, max_rows_per_file=ROWS)
    return uri


class Call:
    """One call of a procedure."""

    def __init__(self, worker: Worker, uri: str, procedure: str, cores: int = 1, **arguments: Any) -> None:
        self.worker = worker
        self.fields = {"options": {"path": uri}, "procedure": procedure, "arguments": arguments}
        self.planned = worker.ask("call", cores=cores, **self.fields)

    def run(self, task: str) -> str:
        """The result of a task."""
        answer = self.worker.ask("call_task", options=self.fields["options"], job=self.planned["job"], task=task)
        return str(answer["result"])

    def finish(self, results: list[str], attempt: int = 0) -> dict[str, Any]:
        return self.worker.ask("call_end", job=self.planned["job"], results=results, attempt=attempt, **self.fields)


def segments(uri: str) -> set[str]:
    folder = Path(uri, "_indices")
    return set(os.listdir(folder)) if folder.exists() else set()


def live_segments(uri: str) -> set[str]:
    return {segment.uuid for index in lance_io.dataset(uri).describe_indices() for segment in index.segments}


def test_a_call_is_planned_again(worker: Worker, uri: str) -> None:
    """After a compaction of covered fragments; only so often."""
    for attempt, is_again in ((0, True), (1, True), (2, False)):
        call = Call(worker, uri, "create_index", column="id", index_type="BTREE", num_segments=3)
        results = [call.run(task) for task in call.planned["tasks"]]
        assert len(segments(uri) - live_segments(uri)) == len(results) == (3 if attempt == 0 else 1)
        lance.dataset(uri).delete(f"id = {attempt}")
        lance.dataset(uri).optimize.compact_files(materialize_deletions_threshold=0.0)
        if is_again:
            assert call.finish(results, attempt) == {"again": True}
        else:
            with pytest.raises(WorkerError, match="CommitConflictError"):
                call.finish(results, attempt)
        assert segments(uri) == live_segments(uri)
    call = Call(worker, uri, "create_index", column="id", index_type="BTREE", num_segments=3)
    answer = call.finish([call.run(task) for task in call.planned["tasks"]])
    assert dict(zip(answer["names"], answer["values"], strict=True))["segments"] == 1  # of one fragment
    assert segments(uri) == live_segments(uri) != set()


def test_a_task_that_is_given_up_leaves_nothing(worker: Worker, uri: str, tmp_path: Path) -> None:
    """Spark closes the connection of a task that it kills; the function waits until it has."""
    started, over = tmp_path / "started", tmp_path / "over"

    def waits(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch["id"][0].as_py() >= 2 * ROWS:  # the second fragment of the part of two
            started.touch()
            while not over.exists():
                time.sleep(0.01)
        return pa.record_batch({"x": batch["id"]})

    schema = pa.schema({"x": pa.int64()})
    carried = CarriedFunction.of(waits, is_pandas=False, read_columns=["id"], output_schema=schema, batch_size=None)
    call = Call(worker, uri, "add_columns", function=carried.to_text())
    data = Path(uri, "data")
    before = set(os.listdir(data))
    tasks = call.planned["tasks"]
    assert len(tasks) == 4 < FRAGMENTS
    with worker.request("call_task", options={"path": uri}, job=call.planned["job"], task=tasks[1]):
        wait_until(started.exists)
        assert len(set(os.listdir(data)) - before) >= 1  # the file of the first fragment
    over.touch()  # the connection is closed by now
    wait_until(lambda: set(os.listdir(data)) == before)
    over.unlink()
    assert lance.dataset(uri).version == 1


def wait_until(is_so: Any) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_functions_of_another_python(worker: Worker, uri: str) -> None:
    def identity(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    carried = CarriedFunction.of(identity, is_pandas=False, read_columns=["id"], output_schema=None, batch_size=None)
    other = dataclasses.replace(carried, python="2.7")
    with pytest.raises(WorkerError, match=r"sent by Python 2\.7, the workers run 3"):
        Call(worker, uri, "add_columns", function=other.to_text())
    with pytest.raises(WorkerError, match="expected a text from"):
        Call(worker, uri, "add_columns", function="print(1)")
    with pytest.raises(UsageError, match="cannot be sent"):
        CarriedFunction.of(
            lambda batch: worker.process, is_pandas=False, read_columns=None, output_schema=None, batch_size=None
        )
