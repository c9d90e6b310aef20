"""The option `tune_worker`: what it changes in a process, and that without it nothing of the kind happens."""

from __future__ import annotations

import ctypes
import gc
import os
import socket
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lance_io.spark import worker_tuning
from lance_io.spark.options import parse_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.spark.options import TargetOptions


def options(tune_worker: str | None) -> TargetOptions:
    """Options of a read that say so."""
    given = {"path": "t.lance"} if tune_worker is None else {"path": "t.lance", "tune_worker": tune_worker}
    return parse_options(given, "read")


class Worker:
    """A process that seems to be a worker of Spark's, and what happens to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, connection: socket.socket | None) -> None:
        self.done: list[str] = []

        @contextmanager
        def connection_to_spark() -> Iterator[socket.socket | None]:
            yield connection

        mallopt = SimpleNamespace(mallopt=lambda *_: self.done.append("mallopt"))
        monkeypatch.setattr(worker_tuning, "connection_to_spark", connection_to_spark)
        monkeypatch.setattr(worker_tuning, "this_task", object)
        monkeypatch.setattr(worker_tuning, "is_forked_by_daemon", lambda: True)
        monkeypatch.setattr(worker_tuning, "_tuned_pid", 0)
        monkeypatch.setattr(worker_tuning, "_frozen", (0, 0))
        monkeypatch.setattr(ctypes, "CDLL", lambda _: mallopt)
        monkeypatch.setattr(gc, "freeze", lambda: self.done.append("freeze"))

    def run_task(self, given: TargetOptions) -> None:
        """What a task does to its process."""
        worker_tuning.tune_worker(given)
        worker_tuning.freeze_loaded(given)


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    """A worker's end of a connection over TCP."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as ours, server.accept()[0]:
            yield ours


def delays(connection: socket.socket) -> bool:
    return not connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("given", [None, "false"])
def test_without_the_option_nothing_is_touched(
    monkeypatch: pytest.MonkeyPatch, connection: socket.socket, given: str | None
) -> None:
    worker = Worker(monkeypatch, connection)
    worker.run_task(options(given))
    assert worker.done == []
    assert delays(connection)


def test_with_it_each_setting_is_made_once(monkeypatch: pytest.MonkeyPatch, connection: socket.socket) -> None:
    """In a process; the collector once more where more has been loaded."""
    worker = Worker(monkeypatch, connection)
    for _ in range(2):
        worker.run_task(options("true"))
    assert sorted(worker.done) == ["freeze", "mallopt", "mallopt"]
    assert not delays(connection)
    monkeypatch.setattr(worker_tuning, "_frozen", (os.getpid(), 0))
    worker.run_task(options("true"))
    assert worker.done.count("freeze") == 2 and worker.done.count("mallopt") == 2


@pytest.mark.parametrize("is_found", [True, False])
def test_unix_sockets_and_connections_that_are_not_found(monkeypatch: pytest.MonkeyPatch, is_found: bool) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        worker = Worker(monkeypatch, ours if is_found else None)
        worker.run_task(options("true"))
    assert "mallopt" in worker.done


def test_outside_of_spark_nothing_is_touched(monkeypatch: pytest.MonkeyPatch, connection: socket.socket) -> None:
    """Not even with the option: the driver's process is the user's."""
    worker = Worker(monkeypatch, connection)
    monkeypatch.setattr(worker_tuning, "this_task", lambda: None)
    monkeypatch.setattr(worker_tuning, "is_forked_by_daemon", lambda: False)
    worker.run_task(options("true"))
    assert worker.done == []
    assert delays(connection)


def test_other_systems_have_another_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(monkeypatch, None)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    worker.run_task(options("true"))
    assert worker.done == ["freeze"]


def test_it_is_an_option_of_every_kind_of_job() -> None:
    for purpose, more in (("read", {}), ("write", {}), ("stream_read", {}), ("stream_write", {"stream_id": "s"})):
        given: dict[str, Any] = {"path": "t", "tuneWorker": "true", **more}
        assert parse_options(given, purpose).tune_worker
