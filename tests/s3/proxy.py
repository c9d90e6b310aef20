"""An HTTP proxy on 127.0.0.1 in a thread of its own that counts what passes: any client's requests and body bytes.

It understands as much of HTTP/1.1 as two S3 clients and MinIO use: bodies with a length, bodies in chunks, answers
without a body; connections stay open. Heads are passed on unchanged, `Host` included, so signatures hold.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit


@dataclass
class Spent:
    """What passed: the request lines, and the bytes of the answers' bodies, listings apart (they echo the request)."""

    lines: list[str] = field(default_factory=list)
    body_bytes: int = 0

    @property
    def requests(self) -> int:
        return len(self.lines)

    def count(self, method: str) -> int:
        return sum(line.startswith(method + " ") for line in self.lines)


class CountingProxy:
    """Passes HTTP on to `target` and counts; a context manager. `take()` gives the counts since the last call."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname, parts.port)
        self._spent = Spent()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="counting-proxy", daemon=True)
        self._connections: set[asyncio.Task[None]] = set()
        self.endpoint = ""

    def take(self) -> Spent:
        """What passed since the last call; every answer that its client has read whole is in it."""

        async def swap() -> Spent:
            spent, self._spent = self._spent, Spent()
            return spent

        return asyncio.run_coroutine_threadsafe(swap(), self._loop).result(10)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.endpoint = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _stop(self) -> None:
        self._server.close()
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        server, to_server = await asyncio.open_connection(*self._target)
        try:
            while True:
                head = await client.readuntil(b"\r\n\r\n")
                method = head.split(b" ", 1)[0]
                to_server.write(head)
                await _pass_body(client, to_server, head, has_body=method in (b"PUT", b"POST"))
                self._spent.lines.append(head.split(b"\r\n", 1)[0].decode())
                answer = await server.readuntil(b"\r\n\r\n")
                has_body = method != b"HEAD" and answer.split(b" ", 2)[1] not in (b"204", b"304")
                body = await _read_body(server, answer, has_body=has_body)
                if b"list-type" not in head.split(b"\r\n", 1)[0]:
                    self._spent.body_bytes += len(body)
                to_client.write(answer + body)
                await to_client.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(connection)
            to_client.close()
            to_server.close()


async def _pass_body(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, head: bytes, *, has_body: bool
) -> None:
    target.write(await _read_body(source, head, has_body=has_body))
    await target.drain()


async def _read_body(source: asyncio.StreamReader, head: bytes, *, has_body: bool) -> bytes:
    headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
    if not has_body:
        return b""
    if headers.get(b"transfer-encoding") == b"chunked":
        parts = []
        while True:
            line = await source.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            parts += [line, await source.readexactly(size + 2)]
            if size == 0:
                return b"".join(parts)
    return await source.readexactly(int(headers.get(b"content-length", b"0")))
