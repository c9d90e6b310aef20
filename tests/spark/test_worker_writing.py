"""Writes of the worker, asked by a client in Python: tasks given up, results twice, aborts after a commit."""

from __future__ import annotations

import json
import socket
from base64 import b64decode, b64encode
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

from lance_io.codecs.roaring import encode_roaring
from lance_io.spark.types import carried_schema
from lance_io.spark.worker.jvm_connections import Connection
from lance_io.spark.worker.writing.task_rows import receive_rows
from tests.spark.worker_client import Worker, WorkerError, read_answer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(180)

STRUCT = StructType().add("id", LongType()).add("text", StringType())


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker.start() as started:
        yield started


@pytest.fixture
def options(worker: Worker, tmp_path: Path) -> dict[str, str]:
    """A table of three rows."""
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1, 2, 3], "text": ["a", "b", "c"]}), uri)
    return {"path": uri}


def send_rows(worker: Worker, write: str, partition: int, rows: pa.Table, *, end: bytes = b"C") -> dict[str, Any]:
    """What the worker answers to the rows of a task."""
    with (
        worker.request("write_rows", write=write, partition=partition, moves=False) as connected,
        connected.makefile("rb") as answers,
    ):
        schema = pa.ipc.read_schema(pa.BufferReader(b64decode(read_answer(answers)["arrow"])))
        assert schema == carried_schema(STRUCT)
        with connected.makefile("wb") as out, pa.ipc.new_stream(out, schema) as stream:
            stream.write_table(rows.cast(schema))
        connected.sendall(end)
        if not end:
            connected.shutdown(socket.SHUT_WR)
        return {"partition": partition, "inserted": read_answer(answers)["files"]}


def plan(worker: Worker, options: dict[str, str], **fields: Any) -> str:
    pinned = worker.ask("load", options=options)["pinned"]
    request = {"kind": "append", "predicates": [], "write_options": {}, "pinned": pinned, **fields}
    return str(worker.ask("plan_write", options=options, schema=STRUCT.json(), **request)["write"])


def files(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "t.lance" / "data").iterdir()}


def live_files(options: dict[str, str]) -> set[str]:
    return {file.path for fragment in lance.dataset(options["path"]).get_fragments() for file in fragment.data_files()}


ROWS = pa.table({"id": [10, 11], "text": ["x", None]})


def test_a_task_that_is_given_up_leaves_nothing(worker: Worker, options: dict[str, str], tmp_path: Path) -> None:
    before, write = files(tmp_path), plan(worker, options)
    for end, message in ((b"", "given up after 2 rows"), (b"X", "given up after 2 rows")):
        with pytest.raises(WorkerError, match=message):
            send_rows(worker, write, 0, ROWS, end=end)
    assert files(tmp_path) == before


def test_a_task_whose_answer_nothing_reads_leaves_nothing(
    worker: Worker, options: dict[str, str], tmp_path: Path
) -> None:
    """The JVM has closed the connection of a task that Spark killed while its last file was written."""
    before, write = files(tmp_path), plan(worker, options)
    mine, theirs = socket.socketpair()
    request = {"write": write, "partition": 0}
    with mine, ThreadPoolExecutor(1) as pool, mine.makefile("rb") as answers, mine.makefile("wb") as out:
        receiving = pool.submit(receive_rows, Connection(theirs), request)
        schema = pa.ipc.read_schema(pa.BufferReader(b64decode(read_answer(answers)["arrow"])))
        mine.shutdown(socket.SHUT_RD)  # from now on an answer is an error
        with pa.ipc.new_stream(out, schema) as stream:
            stream.write_table(ROWS.cast(schema))
        out.write(b"C")
        out.flush()
        receiving.result(60)
    theirs.close()
    assert files(tmp_path) == before


def test_results_of_a_task_count_once(worker: Worker, options: dict[str, str], tmp_path: Path) -> None:
    write = plan(worker, options)
    results = [send_rows(worker, write, number, ROWS) for number in (0, 1, 0)]
    answer = worker.ask("commit", write=write, results=[*results, results[1]])  # a message that came twice
    assert (answer["version"], answer["rows"]) == (2, 4)
    assert lance.dataset(options["path"]).count_rows() == 7
    assert files(tmp_path) == live_files(options)  # those of the second result are gone
    # Spark aborts a job whose commit it did not see: its files stay
    assert "was committed as version 2" in worker.ask("abort", write=write, results=results[:2])["outcome"]
    assert files(tmp_path) == live_files(options)


def test_an_aborted_write_leaves_nothing(worker: Worker, options: dict[str, str], tmp_path: Path) -> None:
    before, write = files(tmp_path), plan(worker, options, kind="replace")
    results = [send_rows(worker, write, number, ROWS) for number in (0, 1)]
    assert len(files(tmp_path)) == len(before) + 2
    worker.ask("abort", write=write, results=results)
    assert files(tmp_path) == before


def test_changes_of_rows_are_checked(worker: Worker, options: dict[str, str]) -> None:
    """Offsets come from tasks; two tasks never change one row, and delete none beyond its fragment."""
    loaded = worker.ask("load", options=options)
    write = plan_delete(worker, options, loaded)

    def deleting(partition: int, *offsets: int) -> dict[str, Any]:
        bitmap = b64encode(encode_roaring(np.array(offsets, np.uint32))).decode()
        return {"partition": partition, "deleted": {"0": bitmap}, "updated": 0}

    for results, message in (
        ([{**deleting(0, 1), "updated": 1}, deleting(1, 1)], "deleted twice"),
        ([deleting(0, 7)], "has no row 7"),
        ([{"partition": 0, "deleted": {"5": deleting(0, 1)["deleted"]["0"]}}], "no fragment 5"),
    ):
        with pytest.raises(WorkerError, match=message):
            worker.ask("commit", write=write, results=results)
    worker.ask("commit", write=write, results=[deleting(0, 1, 2), deleting(1, 2)])  # a source may match a row twice
    assert lance.dataset(options["path"]).to_table()["id"].to_pylist() == [1]
    # a change of a version in whose fragments others changed rows
    with pytest.raises(WorkerError, match="CommitConflictError"):
        worker.ask("commit", write=plan_delete(worker, options, loaded), results=[deleting(0, 0)])


def plan_delete(worker: Worker, options: dict[str, str], loaded: dict[str, Any]) -> str:
    fields = {"statement": "DELETE", "schema": json.dumps({"type": "struct", "fields": []})}
    return str(worker.ask("plan_change", options=options, pinned=loaded["pinned"], **fields)["write"])


def longs(*names: str) -> StructType:
    return StructType([StructField(name, LongType()) for name in names])


def test_names_are_those_of_the_table(worker: Worker, tmp_path: Path) -> None:
    """Where a write merges schemas and names are not case-sensitive, at any depth."""
    uri = str(tmp_path / "named.lance")
    point = pa.struct([("x", pa.int64())])
    types = {"id": pa.int64(), "s": point, "l": pa.list_(point), "m": pa.map_(pa.string(), point), "a": pa.int8()}
    lance.write_dataset(pa.schema([*types.items(), ("A", pa.int8())]).empty_table(), uri)

    def named(struct: StructType, **options: str) -> str:
        answer = worker.ask("stored_names", options={"path": uri, **options}, schema=struct.json())
        return StructType.fromJson(json.loads(answer["schema"])).simpleString()

    given = longs("ID", "A", "New").add("S", longs("X", "Y")).add("l", ArrayType(longs("X")))
    given = given.add("M", MapType(StringType(), longs("X", "z")))
    expected = longs("id", "A", "New").add("s", longs("x", "Y")).add("l", ArrayType(longs("x")))
    expected = expected.add("m", MapType(StringType(), longs("x", "z")))
    for options in ({"mergeSchema": "true"}, {"mergeschema": "true", "stream_id": "s", "case_sensitive": "false"}):
        assert named(given, **options) == expected.simpleString()
    for options in ({}, {"mergeSchema": "false"}, {"merge_schema": "true", "casesensitive": "true"}):
        assert named(given, **options) == given.simpleString()
    assert named(given, mergeSchema="true", path=str(tmp_path / "missing.lance")) == given.simpleString()
    for twice, message in (
        (longs("id", "ID"), "column id: the rows have it twice"),
        (StructType().add("s", longs("x", "X")), r"column s\.x: the rows have it twice"),
    ):
        with pytest.raises(WorkerError, match=message):
            named(twice, mergeSchema="true")
    schema = pa.schema([("bb", pa.int8()), ("Bb", pa.int8())])
    lance.write_dataset(schema.empty_table(), str(tmp_path / "both.lance"))
    with pytest.raises(WorkerError, match="column BB: the table has bb and Bb, which differ in case only"):
        named(longs("BB"), mergeSchema="true", path=str(tmp_path / "both.lance"))
