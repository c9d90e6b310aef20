"""Servers on free ports of 127.0.0.1, for tests that listen in on a connection or disturb it.

Listener       lives on the loop of whoever starts it
ThreadedProxy  has a loop and a thread of its own, and a connection to another server for each that it accepts
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Self

ACCEPTING_TURNS = 5  # of a loop, within which a connection that it has accepted becomes a task of ours
ANSWER_S = 60.0  # for the thread of a proxy to start and to end, on a loaded machine, too


class Listener:
    """Accepts connections; each is a task, and they end with the server.

    endpoint  `http://127.0.0.1:PORT`, empty before it has started
    """

    def __init__(self) -> None:
        self.endpoint = ""
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def alive(self) -> int:
        """Connections now."""
        return len(self._connections)

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """One connection, for a subclass to say; it is closed afterwards. Either side may break it off at any time."""
        raise NotImplementedError

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.endpoint = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Listen no more, and end all connections, also those that come at this moment."""
        for listening in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listening)
        for _ in range(ACCEPTING_TURNS):
            await _turn()
        self._server.close()
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await _turn()  # in which their sockets close
        await self._server.wait_closed()

    async def _connected(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await self.serve(client, to_client)
        except asyncio.CancelledError:
            to_client.transport.abort()  # whatever is left to be sent
        finally:
            self._connections.discard(connection)
            to_client.close()


async def _turn() -> None:
    """Let the loop make a turn. Not by `asyncio.sleep`: tests put something of their own in its place."""
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_soon(turned.set_result, None)
    await turned


class ThreadedProxy(Listener):
    """Stands before the server at `host` and `port`; a context manager for code that has no loop."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__()
        self._target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=type(self).__name__, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.start(), self._loop).result(ANSWER_S)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self.stop(), self._loop).result(ANSWER_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ANSWER_S)
        self._loop.close()

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Open the other connection, and close it in the end."""
        server, to_server = await asyncio.open_connection(*self._target)
        try:
            await self.relay(client, to_client, server, to_server)
        except asyncio.CancelledError:
            to_server.transport.abort()
            raise
        finally:
            to_server.close()

    async def relay(
        self,
        client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> None:
        """What passes between the two, for a subclass to say."""
        raise NotImplementedError
