"""Connections of the JVM: each has one request, in a thread of its own.

A message is JSON behind its length, four bytes. A request names its operation and carries the token. An answer with
`error` has the text of an exception, and its `kind`: what the JVM throws follows from it.
"""

from __future__ import annotations

import hmac
import json
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from lance_io.errors import AlreadyExists, BindError, LanceError, NotFound, SchemaError, UnsupportedError, UsageError
from lance_io.redaction import hide_secrets

REQUESTS_MAX: Final = 512  # at once; more wait to be accepted
MESSAGE_BYTES_MAX: Final = 1 << 30
HEADER_SECONDS_MAX: Final = 30.0  # for a request to arrive
BUFFER_BYTES: Final = 1 << 16
BUFFERS_MAX: Final = 1024  # of one call of the system, which takes no more


class MissingTable(NotFound):
    """There is no table at a path."""


class Connection:
    """One request and its answer.

    socket  to the JVM
    out     the same, buffered
    """

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.out: Any = connected.makefile("wb", buffering=BUFFER_BYTES)

    def request(self) -> dict[str, Any]:
        """The request. Raises `EOFError` if it does not arrive whole, `UsageError` if it is none."""
        self.socket.settimeout(HEADER_SECONDS_MAX)
        (size,) = struct.unpack(">I", self._exactly(4))
        if size > MESSAGE_BYTES_MAX:
            raise UsageError(f"a request of {size} bytes")
        request = json.loads(self._exactly(size))
        self.socket.settimeout(None)
        if not isinstance(request, dict):
            raise UsageError("a request is an object of JSON")
        return request

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self.socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)

    def send(self, answer: dict[str, Any]) -> None:
        """Send a message."""
        self.out.write(framed(json.dumps(answer).encode()))
        self.out.flush()

    def send_buffers(self, buffers: Sequence[Any]) -> None:
        """Send the bytes of some buffers, without joining them in memory."""
        self.out.flush()
        while buffers:
            num_bytes = self.socket.sendmsg(buffers[:BUFFERS_MAX])
            buffers = _without(buffers, num_bytes)

    def send_error(self, error: BaseException) -> None:
        """Send an exception."""
        self.send({"error": error_text(error), "kind": error_kind(error)})

    def watch(self, stop: Any) -> None:
        """Call `stop` when the JVM closes the connection, which it does to cancel the request."""

        def wait() -> None:
            with suppress(OSError):
                self.socket.recv(1)
            stop()

        threading.Thread(target=wait, name="lance_io-cancel", daemon=True).start()

    def close(self) -> None:
        """Close the connection."""
        with suppress(OSError):
            self.out.close()
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # also wakes the thread that watches it
        self.socket.close()


def framed(text: bytes) -> bytes:
    """A message behind its length."""
    return struct.pack(">I", len(text)) + text


def _without(buffers: Sequence[Any], num_bytes: int) -> Sequence[Any]:
    """The buffers without their first bytes."""
    for index, buffer in enumerate(buffers):
        size = memoryview(buffer).nbytes
        if num_bytes < size:
            return [memoryview(buffer)[num_bytes:], *buffers[index + 1 :]]
        num_bytes -= size
    return []


Run: TypeAlias = Callable[[Connection, dict[str, Any]], None]


def serve(listening: socket.socket, token: str, run: Run) -> None:
    """Answer requests for as long as the process lives; `run` answers one."""
    room = threading.BoundedSemaphore(REQUESTS_MAX)
    while True:
        room.acquire()
        connected, _ = listening.accept()

        def answer(connection: Connection) -> None:
            try:
                answer_request(connection, token, run)
            finally:
                connection.close()
                room.release()

        threading.Thread(target=answer, args=(Connection(connected),), name="lance_io-request", daemon=True).start()


def answer_request(connection: Connection, token: str, run: Run) -> None:
    """Answer one request, or say why not."""
    try:
        request = connection.request()
        if not hmac.compare_digest(str(request.get("token")), token):
            return  # not our JVM: it learns nothing
        run(connection, request)
    except (EOFError, BrokenPipeError, ConnectionResetError, TimeoutError):
        return  # the JVM has closed it
    except Exception as error:
        with suppress(OSError):
            connection.send_error(error)


def error_kind(error: BaseException) -> str:
    """Which exception the JVM throws: `missing` and `exists` (the table), `usage`, `unsupported`, or `error`."""
    if isinstance(error, MissingTable):
        return "missing"
    if isinstance(error, AlreadyExists):
        return "exists"
    if isinstance(error, UnsupportedError):
        return "unsupported"
    return "usage" if isinstance(error, (UsageError, NotFound, BindError, SchemaError)) else "error"


def error_text(error: BaseException) -> str:
    """The exception and its notes, without credentials; for errors that are not ours, where they were raised."""
    name = NotFound.__name__ if isinstance(error, MissingTable) else type(error).__name__
    lines = [f"{name}: {error}", *getattr(error, "__notes__", ())]
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is not None and not isinstance(error, (LanceError, ValueError, OSError)):
        lines.append(f"in {trace.tb_frame.f_code.co_qualname}, line {trace.tb_lineno}")
    return hide_secrets("\n".join(lines))
