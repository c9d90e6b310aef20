"""A client of the worker, as the JAR is one: starts the process, sends requests, reads batches."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

import lance_io
from tests.spark.sessions import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Iterator

HELLO: Final = {"protocol": 1, "jar": lance_io.__version__, "token": "secret", "cpus": 2}


class WorkerError(Exception):
    """An error that the worker answered; `kind` says which exception the JAR throws."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass
class Worker:
    """A running worker. Leaving the `with` block ends it as the end of a JVM does."""

    process: subprocess.Popen[bytes]
    answer: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def start(cls, hello: dict[str, Any] = HELLO, **environment: str) -> Self:
        """Start a worker and read its first line."""
        process = subprocess.Popen(
            [sys.executable, "-m", "lance_io.spark.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT), **environment},
        )
        process.stdin.write(json.dumps(hello).encode() + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
        return cls(process, json.loads(line) if line else {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()

    def connect(self) -> socket.socket:
        """A connection."""
        if "port" in self.answer:
            return socket.create_connection(("127.0.0.1", self.answer["port"]), 60)
        connected = socket.socket(socket.AF_UNIX)
        connected.settimeout(60)
        connected.connect(self.answer["socket"])
        return connected

    @contextmanager
    def request(self, operation: str, token: str = "secret", **fields: Any) -> Iterator[socket.socket]:
        """A connection with a request."""
        text = json.dumps({"op": operation, "token": token, **fields}).encode()
        with self.connect() as connected:
            connected.sendall(struct.pack(">I", len(text)) + text)
            yield connected

    def ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        """Send a request and read its answer."""
        with self.request(operation, **fields) as connected, connected.makefile("rb") as answers:
            return read_answer(answers)

    def load(self, uri: str, **options: str) -> dict[str, Any]:
        """Open a version; the answer, with what later requests need."""
        given = {"path": uri, **options}
        answer = self.ask("load", options=given)
        return {**answer, "request": {"options": given, "pinned": answer["pinned"]}}

    def plan(self, loaded: dict[str, Any], **fields: Any) -> dict[str, Any]:
        """Plan a scan."""
        whole = {"schema": loaded["schema"], "counts": False, "filter": None, "limit": -1, "runtime": []}
        whole |= {"offset": 0, "order": []}
        return self.ask("plan", **loaded["request"], **{**whole, **fields})

    def read(self, planned: dict[str, Any]) -> list[pa.RecordBatch]:
        """The batches of all parts."""
        batches = []
        for part in planned["parts"]:
            with (
                self.request("read", job=planned["job"], part=part) as connected,
                connected.makefile("rb") as answers,
            ):
                read_answer(answers)
                batches += read_batches(answers)
        return batches


def read_answer(answers: Any) -> dict[str, Any]:
    """The next message. Raises `WorkerError`."""
    header = answers.read(4)
    if len(header) < 4:
        raise EOFError
    answer: dict[str, Any] = json.loads(answers.read(struct.unpack(">I", header)[0]))
    if "error" in answer:
        raise WorkerError(answer["kind"], answer["error"])
    return answer


def read_batches(answers: Any, costs: dict[str, int] | None = None) -> Iterator[pa.RecordBatch]:
    """Batches behind their signs. The first one has the schema before it.

    costs  gets the costs that come with them
    """
    stream = None
    while True:
        sign = answers.read(1)
        if sign == b"B":
            stream = stream or pa.ipc.open_stream(_NoReadAhead(answers))
            yield stream.read_next_batch()
        elif sign in (b"X", b"M"):
            answer = read_answer(answers)
            if costs is not None:
                costs.update(answer)
        else:
            assert sign == b"E", sign
            return


class _NoReadAhead:
    """A file of which Arrow reads no more than it needs, because signs stand between its messages."""

    closed = False

    def __init__(self, answers: Any) -> None:
        self._answers = answers

    def read(self, size: int = -1) -> bytes:
        """See `io.RawIOBase`."""
        return bytes(self._answers.read(size))

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def close(self) -> None:
        """The connection is closed by its owner."""
