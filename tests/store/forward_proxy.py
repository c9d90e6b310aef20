"""An HTTP proxy on 127.0.0.1 for clients that are told of it: every host it is asked for is one server.

So names that no resolver knows (buckets in host names) work in tests. Runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Self


class ForwardProxy:
    """A context manager; `asked` are the first lines of its connections, `authorizations` what they came with."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="forward-proxy", daemon=True)
        self._connections: set[asyncio.Task[None]] = set()
        self.asked: list[str] = []
        self.authorizations: list[str] = []
        self.url = ""

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
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

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
            head = await client.readuntil(b"\r\n\r\n")
            lines = head.decode().split("\r\n")
            self.asked.append(lines[0])
            self.authorizations += [line.split(": ")[1] for line in lines if line.lower().startswith("proxy-auth")]
            if lines[0].startswith("CONNECT "):
                to_client.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                to_server.write(head)  # with the whole URL in its first line, which every server understands
            await asyncio.gather(_pump(client, to_server), _pump(server, to_client))
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            self._connections.discard(connection)
            to_client.close()
            to_server.close()


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
    target.close()
