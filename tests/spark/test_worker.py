"""The worker behind the JAR, asked by a client in Python: its start, its socket, its end, and its answers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import struct
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import UTC, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.io.budget import process_pool
from lance_io.io.stats import process_stats
from lance_io.spark.worker import jvm_connections, listening, worker_operations
from tests.spark.worker_client import HELLO, Worker, WorkerError, read_answer, read_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import S3Server

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    ids = np.arange(40)
    texts = pa.array([None if number % 9 == 0 else f"t{number % 4}" for number in ids])
    points = pa.array([{"x": int(number), "y": f"y{number}"} for number in ids])
    return pa.table({"id": ids, "text": texts, "point": points})


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory, table: pa.Table) -> str:
    """Forty rows in four fragments."""
    path = str(tmp_path_factory.mktemp("tables") / "t.lance")
    lance.write_dataset(table, path, max_rows_per_file=10)
    return path


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker.start() as started:
        yield started


# -- start and end -----------------------------------------------------------------------------------------------------


def test_the_socket_is_in_a_folder_of_the_user_alone(worker: Worker) -> None:
    path = Path(worker.answer["socket"])
    assert len(os.fsencode(path)) <= listening.PATH_BYTES_MAX
    status = path.parent.stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o700, os.getuid())


def test_it_ends_with_the_jvm_and_leaves_nothing() -> None:
    with Worker.start() as started:
        folder = Path(started.answer["socket"]).parent
        assert folder.is_dir()
    assert started.process.returncode == 0
    assert not folder.exists()


def test_it_ends_with_the_jvm_in_the_middle_of_reads(tmp_path: Path) -> None:
    """Of two whose reader is slow, so that its threads wait for sockets."""
    path = make_wide(tmp_path)
    started = Worker.start()
    folder = Path(started.answer["socket"]).parent
    planned = started.plan(started.load(path, batch_bytes="1m"))
    with ExitStack() as stack:
        for _ in range(2):
            connected = stack.enter_context(started.request("read", job=planned["job"], part=planned["parts"][0]))
            answers = stack.enter_context(connected.makefile("rb"))
            read_answer(answers)
            assert next(read_batches(answers)).num_rows > 0
        with started:
            assert started.process.poll() is None
    assert started.process.returncode == 0
    assert not folder.exists()


def test_a_folder_of_a_killed_worker_goes_with_the_next_start() -> None:
    short = Path(tempfile.mkdtemp(dir="/tmp", prefix="x"))  # a socket's path must be short
    try:
        killed = Worker.start(XDG_RUNTIME_DIR=str(short))
        folder = Path(killed.answer["socket"]).parent
        other = short / f"{listening.PREFIX}of-another-program"  # has no lock of ours
        other.mkdir()
        killed.process.send_signal(signal.SIGKILL)
        killed.process.wait()
        with killed, Worker.start(XDG_RUNTIME_DIR=str(short)) as second, Worker.start(XDG_RUNTIME_DIR=str(short)):
            assert not folder.exists()
            assert other.exists()
            assert Path(second.answer["socket"]).exists()  # the third worker left it alone
    finally:
        shutil.rmtree(short)


def test_long_paths_lead_to_the_next_folder_and_none_to_a_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str
) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir()
    with Worker.start(XDG_RUNTIME_DIR=str(long)) as started:
        assert started.answer["socket"].startswith("/tmp/")
    monkeypatch.setattr(listening, "_parents", lambda: iter(()))
    listener = listening.Listener.open()
    with listener.socket:
        assert listener.address == {"port": listener.socket.getsockname()[1]}
        assert listener.socket.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("hello", [{**HELLO, "jar": "0.0.9"}, {**HELLO, "protocol": 2}])
def test_another_version_is_told_before_anything_is_read(hello: dict[str, Any]) -> None:
    with Worker.start(hello) as started:
        assert started.answer == {"protocol": 1, "package": lance_io.__version__}
        assert started.process.wait(30) == 0


def test_ctrl_c_of_the_terminal_does_not_end_it(uri: str) -> None:
    with Worker.start() as started:
        started.process.send_signal(signal.SIGINT)
        assert started.load(uri)["version"] == 1


# -- requests ----------------------------------------------------------------------------------------------------------


def test_a_wrong_token_learns_nothing(worker: Worker, uri: str) -> None:
    with worker.request("load", token="guess", options={"path": uri}) as connected:
        assert connected.recv(1) == b""


@pytest.mark.parametrize("message", [b"\xff\xff\xff\xff", struct.pack(">I", 4) + b"nope", struct.pack(">I", 2) + b"[]"])
def test_bytes_that_are_no_request_harm_no_other(worker: Worker, uri: str, message: bytes) -> None:
    with worker.connect() as connected, connected.makefile("rb") as answers:
        connected.sendall(message)
        with pytest.raises(WorkerError):
            read_answer(answers)
    assert worker.load(uri)["version"] == 1


def test_errors_have_kinds(worker: Worker, uri: str, tmp_path: Path) -> None:
    def kind_of(operation: str, **fields: Any) -> str:
        with pytest.raises(WorkerError) as caught:
            worker.ask(operation, **fields)
        return caught.value.kind

    assert kind_of("load", options={"path": str(tmp_path / "none.lance")}) == "missing"
    assert kind_of("load", options={"path": uri, "version": "7"}) == "usage"
    assert kind_of("load", options={"path": uri, "colums": "id"}) == "usage"
    assert kind_of("load", options={"path": uri, "columns": "nothing"}) == "usage"
    assert kind_of("load", options={"path": uri, "pushdown": "on"}) == "unsupported"
    assert kind_of("bake") == "usage"


def test_a_version_that_is_not_there_names_those_that_are(worker: Worker, tmp_path: Path) -> None:
    path = str(tmp_path / "versions.lance")
    for number in range(4):
        lance.write_dataset(pa.table({"a": [number]}), path, mode="overwrite")
    lance.dataset(path).tags.create("kept", 3)
    lance.dataset(path).cleanup_old_versions(timedelta(microseconds=1), error_if_tagged_old_versions=False)
    first, last = (time["timestamp"] for time in lance.dataset(path).versions())
    for fields in ({"ref": "9"}, {"ref": "2"}, {"ref": "unknown"}, {"micros": 0}):
        with pytest.raises(WorkerError) as caught:
            worker.ask("load", options={"path": path}, **fields)
        assert caught.value.kind == "usage"
        text = str(caught.value)
        assert f"the oldest version kept is 3 of {first.strftime('%Y-')}" in text
        assert f"the newest 4 of {last.strftime('%Y-')}" in text
    assert worker.ask("load", options={"path": path}, ref="kept")["version"] == 3
    assert worker.ask("load", options={"path": path}, ref="4")["version"] == 4


def test_tables_of_a_folder(worker: Worker, tmp_path: Path) -> None:
    for name in ("b", "a"):
        lance.write_dataset(pa.table({"x": [1]}), str(tmp_path / f"{name}.lance"))
    (tmp_path / "file.lance").write_text("no folder")
    (tmp_path / "other").mkdir()
    assert worker.ask("list", options={"path": str(tmp_path)}) == {"names": ["a", "b"]}


# -- reads -------------------------------------------------------------------------------------------------------------


def schema_of(loaded: dict[str, Any], *names: str) -> str:
    """The schema of some columns, metadata columns among them."""
    fields = {field["name"]: field for field in json.loads(loaded["schema"])["fields"]}
    system = {"type": "long", "nullable": True, "metadata": {}}
    return json.dumps({"type": "struct", "fields": [fields.get(name) or {"name": name, **system} for name in names]})


def test_columns_rows_and_estimates(worker: Worker, uri: str, table: pa.Table) -> None:
    loaded = worker.load(uri)
    planned = worker.plan(loaded, schema=schema_of(loaded, "text", "id"))
    assert planned["rows"] == 40
    rows = pa.Table.from_batches(worker.read(planned))
    assert rows.equals(table.select(["text", "id"]))
    narrow = worker.plan(loaded, schema=schema_of(loaded, "id"))
    assert narrow["bytes"] == 40 * 8 < planned["bytes"]


def test_metadata_columns(worker: Worker, uri: str) -> None:
    loaded = worker.load(uri)
    versions = ["_row_created_at_version", "_row_last_updated_at_version"]
    assert loaded["metadata_columns"] == ["_rowid", "_rowaddr", "_fragid", *versions]
    planned = worker.plan(loaded, schema=schema_of(loaded, "_fragid", "id", "_rowaddr"), filter="id in (9, 10)")
    rows = pa.Table.from_batches(worker.read(planned)).to_pylist()
    assert rows == [{"_fragid": 0, "id": 9, "_rowaddr": 9}, {"_fragid": 1, "id": 10, "_rowaddr": 1 << 32}]


def test_limits_of_a_scan_and_of_each_task(worker: Worker, uri: str) -> None:
    """With a filter each task has the whole limit, because Spark cuts again; without one it is of the scan."""
    loaded = worker.load(uri, num_partitions="4")
    planned = worker.plan(loaded, schema=schema_of(loaded, "id"), limit=12)
    assert sorted(id for batch in worker.read(planned) for id in batch["id"].to_pylist()) == [*range(12)]
    planned = worker.plan(loaded, schema=schema_of(loaded, "id"), limit=2, filter="id % 10 > 4")
    assert len(planned["parts"]) == 4
    ids = [id for batch in worker.read(planned) for id in batch["id"].to_pylist()]
    assert ids == [5, 6, 15, 16, 25, 26, 35, 36]


def test_samples_are_of_whole_fragments(worker: Worker, uri: str) -> None:
    """By a number of each fragment that only the seed decides: samples beside each other have all rows together."""
    loaded = worker.load(uri)

    def sampled(seed: int, lower: float, upper: float, **fields: Any) -> list[int]:
        sample = {"lower": lower, "upper": upper, "seed": str(seed)}
        planned = worker.plan(loaded, schema=schema_of(loaded, "id"), sample=sample, **fields)
        ids = [id for batch in worker.read(planned) for id in batch["id"].to_pylist()]
        assert planned["rows"] is None or planned["rows"] >= len(ids)
        return ids

    halves = [(sampled(seed, 0, 0.5), sampled(seed, 0.5, 1)) for seed in range(8)]
    for both in halves:
        assert sorted(both[0] + both[1]) == [*range(40)]
        assert all(len(ids) == 10 * len({id // 10 for id in ids}) for ids in both)
    assert len(set(map(str, halves))) > 1
    assert (sampled(1, 0, 0), sampled(1, 0, 1, limit=12)) == ([], [*range(12)])
    seed = next(number for number, (ids, _) in enumerate(halves) if len(ids) > 10)
    assert sampled(seed, 0, 0.5, limit=15, offset=3) == halves[seed][0][3:15]
    assert sampled(seed, 0, 0.5, filter="id % 2 = 0") == halves[seed][0][::2]
    assert sampled(seed, 0, 0, limit=5) == []


@pytest.mark.server
def test_costs_say_which_reads_a_disk_cache_answered(s3: S3Server, tmp_path: Path) -> None:
    """Of a worker whose memory knows nothing, after others: a worker may end before it has written what it read."""
    uri = f"s3://{s3.bucket}/test-spark-cached/t.lance"
    rows = pa.table({"id": range(5000), "text": ["x" * 100] * 5000})
    lance.write_dataset(rows, uri, storage_options=s3.options(), mode="overwrite").create_scalar_index("id", "BTREE")
    options = {f"storage.{name}": text for name, text in s3.options().items()}

    def costs() -> dict[str, int]:
        spent: dict[str, int] = {}
        with Worker.start(LANCE_IO_DISK_CACHE=str(tmp_path), LANCE_IO_HEDGE_PERCENT="0") as started:
            loaded = started.load(uri, **options)
            planned = started.plan(loaded, schema=schema_of(loaded, "text"), filter="id = 77")
            with started.request("read", job=planned["job"], part=planned["parts"][0]) as connected:
                with connected.makefile("rb") as answers:
                    read_answer(answers)
                    assert sum(batch.num_rows for batch in read_batches(answers, spent)) == 1
        return spent

    first = costs()
    assert first["cached"] == 0 < first["requests"]
    while (later := costs())["cached"] == 0:
        assert later["requests"] == first["requests"]
    assert later["requests"] < first["requests"]


def test_counts_of_tasks(worker: Worker, uri: str) -> None:
    loaded = worker.load(uri, num_partitions="4")
    planned = worker.plan(loaded, counts=True, filter="text = 't1'")
    counts = [batch["count(*)"].to_pylist() for batch in worker.read(planned)]
    assert len(counts) == 4
    assert sum(count for (count,) in counts) == lance.dataset(uri).count_rows("text = 't1'")
    counted = worker.ask("aggregate", **loaded["request"], filter=None, aggregates=[{"fn": "COUNT_STAR"}])
    assert counted == {"values": ["40"]}


def test_predicates_of_joins_leave_rows_out(worker: Worker, uri: str) -> None:
    loaded = worker.load(uri)
    node = {"op": "IN", "args": [{"col": ["id"]}, {"lit": "3", "type": "bigint"}, {"lit": "33", "type": "bigint"}]}
    planned = worker.plan(loaded, schema=schema_of(loaded, "id"), runtime=[node])
    assert [id for batch in worker.read(planned) for id in batch["id"].to_pylist()] == [3, 33]


def test_the_users_own_filter_and_limit_stay_alone(worker: Worker, uri: str) -> None:
    """A filter may end in a comment, and a limit counts rows before predicates."""
    node = {"op": "=", "args": [{"col": ["id"]}, {"lit": "3", "type": "bigint"}]}
    for options in ({"filter": "id < 5 -- few"}, {"limit": "4"}):
        loaded = worker.load(uri, **options)
        answer = worker.ask("filter", **loaded["request"], predicates=[node])
        assert answer == {"uses": ["left"], "filter": None}
        planned = worker.plan(loaded, schema=schema_of(loaded, "id"))
        assert sum(batch.num_rows for batch in worker.read(planned)) == (5 if "filter" in options else 4)
    assert worker.load(uri, filter="id < 5")["is_counted"] is False


def test_an_error_within_a_read_reaches_the_reader(worker: Worker, tmp_path: Path) -> None:
    path = str(tmp_path / "times.lance")
    moments = pa.array([1000] * 9_999 + [1], pa.timestamp("ns"))
    lance.write_dataset(pa.table({"t": moments}), path)
    loaded = worker.load(path, batch_size="5000")
    with pytest.raises(WorkerError, match=r"column t[\s\S]*times.lance version 1: fragment 0 rows 0 to 10000"):
        worker.read(worker.plan(loaded))


def test_a_closed_connection_ends_the_scan(worker: Worker, tmp_path: Path) -> None:
    """A scan that takes seconds: its filter matches nothing, so that no batch shows whether the reader is there.

    The connection is closed in one direction, to see that the sign of the end does not come.
    """
    path = str(tmp_path / "large.lance")
    lance.write_dataset(pa.table({"id": np.arange(4_000_000)}), path)
    loaded = worker.load(path)
    planned = worker.plan(loaded, filter="md5(cast(id AS string)) = 'never'")
    with worker.request("read", job=planned["job"], part=planned["parts"][0]) as connected:
        connected.shutdown(socket.SHUT_WR)
        with connected.makefile("rb") as answers:
            assert read_answer(answers) == {}
            assert answers.read() == b""
    assert worker.load(path)["version"] == 1


def test_a_slow_reader_holds_the_scan_back(tmp_path: Path) -> None:
    """The socket is the back-pressure: what was not taken is not read."""
    path = make_wide(tmp_path)
    with Worker.start() as started:
        loaded = started.load(path, batch_bytes="1m", io_buffer_bytes="1m")
        planned = started.plan(loaded)
        with (
            started.request("read", job=planned["job"], part=planned["parts"][0]) as connected,
            connected.makefile("rb") as answers,
        ):
            read_answer(answers)
            batches = read_batches(answers)
            assert next(batches).num_rows > 0
            before = read_bytes(started)
            assert sum(batch.num_rows for batch in batches) < 60_000
            assert read_bytes(started) - before > 20_000_000  # most came only when it was asked for


class Reluctant(socket.socket):
    """A socket of which each call takes a few bytes only, as where a signal interrupts it."""

    def sendmsg(self, buffers: Any, *more: Any) -> int:
        assert 0 < len(buffers) <= jvm_connections.BUFFERS_MAX
        return super().sendmsg([b"".join(map(bytes, buffers))[:1000]], *more)


@pytest.mark.parametrize("kind", [socket.socket, Reluctant])
def test_buffers_arrive_whole_and_in_order(kind: type[socket.socket]) -> None:
    """Also more of them than a call of the system takes, empty ones, and those of Arrow."""
    buffers = [b"", *(bytes([number % 251]) * (number % 7) for number in range(3000)), pa.py_buffer(b"a" * 5000)]
    first, second = socket.socketpair()
    served = kind(fileno=first.detach())
    with second, ThreadPoolExecutor(1) as pool, closing(jvm_connections.Connection(served)) as connection:
        received = pool.submit(second.makefile("rb").read)
        connection.out.write(b"before")
        connection.send_buffers(buffers)
        connection.close()
        assert received.result(60) == b"before" + b"".join(map(bytes, buffers))


def make_wide(folder: Path) -> str:
    """A table of 61 MB in one fragment, which no socket holds."""
    path = str(folder / "wide.lance")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(256 * 60_000, "f4")), 256)
    lance.write_dataset(pa.table({"v": vectors}), path)
    return path


def test_a_reader_that_leaves_gets_all_returned(tmp_path: Path) -> None:
    """The thread of the request ends, and its scan holds nothing more and has not read the rest of the table."""
    options = {"path": make_wide(tmp_path), "batch_bytes": "1m", "io_buffer_bytes": "4m"}
    loaded = worker_operations.load({"options": options})
    request = {"options": options, "pinned": loaded["pinned"], "schema": loaded["schema"], "counts": False}
    planned = worker_operations.plan({**request, "filter": None, "limit": -1, "offset": 0, "order": [], "runtime": []})
    free_bytes, read_before = process_pool().avail_bytes, process_stats().bytes_read
    reader, served = socket.socketpair()

    def serve() -> None:
        with closing(jvm_connections.Connection(served)) as connection:
            jvm_connections.answer_request(connection, "t", worker_operations.run)

    thread = threading.Thread(target=serve)
    thread.start()
    text = json.dumps({"op": "read", "token": "t", "job": planned["job"], "part": planned["parts"][0]}).encode()
    with reader, reader.makefile("rb") as answers:
        reader.sendall(struct.pack(">I", len(text)) + text)
        read_answer(answers)
        assert next(read_batches(answers)).num_rows > 0
        assert process_pool().avail_bytes < free_bytes
    thread.join(60)
    assert not thread.is_alive()
    while process_pool().avail_bytes < free_bytes:  # pieces that threads are decoding
        time.sleep(0.01)
    assert process_pool().avail_bytes == free_bytes
    assert 0 < process_stats().bytes_read - read_before < 40_000_000


def read_bytes(worker: Worker) -> int:
    """Bytes that the process has read by system calls."""
    lines = Path(f"/proc/{worker.process.pid}/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("rchar")).split()[1])


def test_many_requests_at_once(worker: Worker, uri: str) -> None:
    """As many connections as an executor may have slots, open at the same time."""
    loaded = worker.load(uri)
    planned = worker.plan(loaded)
    connections = []
    for _ in range(32):
        context = worker.request("read", job=planned["job"], part=planned["parts"][0])
        connections.append((context, context.__enter__()))
    for context, connected in connections:
        with connected.makefile("rb") as answers:
            read_answer(answers)
            assert sum(batch.num_rows for batch in read_batches(answers)) == 40
        context.__exit__(None, None, None)


def test_structs_have_the_members_that_are_asked_for(worker: Worker, tmp_path: Path) -> None:
    """At any depth, and null where the whole struct is; only their bytes are read."""
    path = str(tmp_path / "structs.lance")
    wide = "x" * 2000
    points = [
        None
        if id % 5 == 0
        else {"x": id, "wide": wide, "z": {"deep": id, "other": [id]}, "w": {"q": id} if id % 3 else None}
        for id in range(1000)
    ]
    lance.write_dataset(pa.table({"point": points}), path)
    loaded = worker.load(path)
    assert loaded["narrowable"] == ["point"]
    deep = {"name": "deep", "type": "long", "nullable": True, "metadata": {}}
    members = [
        {"name": "z", "type": {"type": "struct", "fields": [deep]}, "nullable": True, "metadata": {}},
        {"name": "w", "type": {"type": "struct", "fields": [{**deep, "name": "q"}]}, "nullable": True, "metadata": {}},
    ]
    schema = {"type": "struct", "fields": [{"name": "point", "type": {"type": "struct", "fields": members}}]}
    schema["fields"][0] |= {"nullable": True, "metadata": {}}
    expected = [point and {"z": {"deep": point["z"]["deep"]}, "w": point["w"]} for point in points]
    planned = worker.plan(loaded, schema=json.dumps(schema))
    assert pa.Table.from_batches(worker.read(planned))["point"].to_pylist() == expected
    assert planned["bytes"] == 1000 * 16 < worker.plan(loaded)["bytes"]
    filtered = worker.plan(loaded, schema=json.dumps(schema), filter="point.x in (7, 9)")
    assert pa.Table.from_batches(worker.read(filtered))["point"].to_pylist() == [expected[7], expected[9]]


def test_metadata_tables(worker: Worker, uri: str) -> None:
    def about(name: str, **fields: Any) -> pa.Table:
        answer = worker.ask("about", options={"path": uri}, table=name, **fields)
        return pa.Table.from_batches(worker.read({"job": answer["job"], "parts": [answer["part"]]}))

    data = lance.dataset(uri)
    history = about("history")
    assert history["version"].to_pylist() == [version["version"] for version in data.versions()]
    moments = [moment.replace(tzinfo=None) for moment in history["timestamp"].to_pylist()]
    local = [version["timestamp"].astimezone(UTC).replace(tzinfo=None) for version in data.versions()]
    assert all(abs(ours - theirs) <= timedelta(microseconds=1) for ours, theirs in zip(moments, local, strict=True))
    operations = [type(data.read_transaction(number).operation).__name__ for number in history["version"].to_pylist()]
    assert history["operation"].to_pylist() == operations
    assert about("fragments")["num_rows"].to_pylist() == [each.count_rows() for each in data.get_fragments()]
    paths = [file.path for fragment in data.get_fragments() for file in fragment.data_files()]
    assert about("files")["path"].to_pylist() == paths
    assert about("files", ref="1").num_rows == 4
    with pytest.raises(WorkerError, match="there are history, fragments, files, indices"):
        about("nothing")


def test_indices_are_those_of_pylance(worker: Worker, tmp_path: Path) -> None:
    path = str(tmp_path / "indexed.lance")
    data = lance.write_dataset(pa.table({"a": range(300)}), path)
    data.create_scalar_index("a", "BTREE")
    answer = worker.ask("about", options={"path": path}, table="indices")
    (index,) = pa.Table.from_batches(worker.read({"job": answer["job"], "parts": [answer["part"]]})).to_pylist()
    (described,) = data.describe_indices()
    assert (index["name"], index["type"]) == (described.name, described.index_type)
    assert (index["columns"], index["num_rows_indexed"]) == (["a"], 300)
