"""Connections over plain TCP, on real sockets: made, refused, given up; written to when there is room; lost."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from contextlib import closing
from typing import TYPE_CHECKING, Any, Self

import pytest

from lance_io.store.http.tcp import Dial, TcpTransport, tcp_socket
from tests.listening import Listener

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCALHOST = "127.0.0.1"


class Told(asyncio.BufferedProtocol):
    """Notes what it is told."""

    def __init__(self, buffer_bytes: int = 1 << 16) -> None:
        self.transport: Any = None
        self.memory = bytearray(buffer_bytes)
        self.data = bytearray()
        self.ended = False
        self.came = asyncio.Event()
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.memory

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self.memory[:nbytes]
        self.came.set()

    def eof_received(self) -> bool:
        self.ended = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


class Server(Listener):
    """One for the length of a block."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


class Echo(Server):
    """Reads as much as it is told to, gives it back, and says no more."""

    def __init__(self, num_bytes: int) -> None:
        super().__init__()
        self.num_bytes = num_bytes
        self.go = asyncio.Event()

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """See above."""
        await self.go.wait()
        to_client.write(await client.readexactly(self.num_bytes))
        await to_client.drain()


async def dial(port: int, limit_s: float = 60.0) -> socket.socket | OSError:
    over: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    dialled = Dial(asyncio.get_running_loop(), LOCALHOST, port, limit_s, lambda *told: over.set_result(told))
    assert not over.done()
    found, outcome = await over
    assert found is dialled
    return outcome


async def connected(server: Listener, told: Told) -> TcpTransport:
    outcome = await dial(int(server.endpoint.rsplit(":", 1)[1]))
    assert isinstance(outcome, socket.socket)
    return TcpTransport(asyncio.get_running_loop(), outcome, told)


@pytest.fixture
def full() -> Iterator[int]:
    """A port that takes no more connections, and does not say so."""
    with closing(socket.create_server((LOCALHOST, 0), backlog=0)) as listening:
        port = listening.getsockname()[1]
        waiting = []
        for _ in range(4):
            one = tcp_socket(LOCALHOST)
            one.connect_ex((LOCALHOST, port))
            waiting.append(one)
        yield port
        for one in waiting:
            one.close()


async def test_more_is_sent_and_received_than_fits_at_once() -> None:
    pieces = [bytes([number]) * 3_000_000 for number in range(5)]
    async with Echo(15_000_000) as server:
        told = Told()
        transport = await connected(server, told)
        assert told.transport is transport
        for piece in pieces:
            transport.write(piece)
        assert transport._unsent  # the server does not read yet
        server.go.set()
        assert await told.lost is None
        assert told.ended and told.data == b"".join(pieces) and transport.is_closing()
        transport.write(b"too late")
        transport.abort()


@pytest.mark.parametrize("is_writing", [False, True])
async def test_closing_is_told_once_in_a_later_turn(is_writing: bool) -> None:
    async with Echo(1 << 30) as server:
        told = Told()
        transport = await connected(server, told)
        if is_writing:
            transport.write(bytes(10_000_000))
        transport.abort()
        transport.abort()
        assert transport.is_closing() and not told.lost.done()
        assert await told.lost is None
        assert transport._socket.fileno() == -1
        server.go.set()


async def test_a_reset_and_a_failing_protocol_end_it() -> None:
    class Resetting(Server):
        async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
            to_client.write(b"x")
            await client.read(1)
            to_client.transport.abort()

    class Failing(Told):
        def buffer_updated(self, nbytes: int) -> None:
            raise KeyError("a bug")

    async with Resetting() as server:
        failing = Failing()
        await connected(server, failing)
        assert isinstance(await failing.lost, KeyError)
        told = Told()
        transport = await connected(server, told)
        await told.came.wait()
        transport.write(bytes(50_000_000))
        assert isinstance(await told.lost, OSError)


async def test_nobody_listens() -> None:
    with closing(socket.create_server((LOCALHOST, 0))) as listening:
        port = listening.getsockname()[1]
    assert isinstance(await dial(port), ConnectionRefusedError)


async def test_addresses_of_the_newer_kind() -> None:
    try:
        listening = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has none")
    over: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    with closing(listening):
        port = listening.getsockname()[1]
        Dial(asyncio.get_running_loop(), "::1", port, 60.0, lambda _, outcome: over.set_result(outcome))
        with closing(await over) as made:
            assert made.getpeername()[:2] == ("::1", port)


async def test_nobody_answers(full: int) -> None:
    assert isinstance(await dial(full, 0.05), TimeoutError)


async def test_who_is_cancelled_hears_nothing_and_leaves_nothing(full: int) -> None:
    loop = asyncio.get_running_loop()
    told: list[Any] = []
    for port in (full, 1):
        dialled = Dial(loop, LOCALHOST, port, 0.05, lambda *outcome: told.append(outcome))
        made: Any = dialled._socket
        dialled.cancel()
        dialled.cancel()
        assert made.fileno() == -1
    await asyncio.sleep(0.1)
    assert not told


async def test_no_socket_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(address: str) -> socket.socket:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("lance_io.store.http.tcp.tcp_socket", refused)
    outcome = await dial(1)
    assert isinstance(outcome, OSError) and outcome.errno == 24


def test_a_loop_that_was_closed_under_it() -> None:
    """Then nobody can close it any more; it goes without a word."""

    async def begin() -> None:
        async with Echo(1) as server:
            await connected(server, Told())
            server.go.set()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop = asyncio.new_event_loop()
        loop.run_until_complete(begin())
        loop.close()
        del loop
        gc.collect()


def test_a_loop_that_was_closed_while_a_connection_was_made(full: int) -> None:
    async def begin() -> Dial:
        return Dial(asyncio.get_running_loop(), LOCALHOST, full, 60.0, lambda *_: None)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop = asyncio.new_event_loop()
        dialled = loop.run_until_complete(begin())
        loop.close()
        made: Any = dialled._socket
        dialled.cancel()
        assert made.fileno() == -1
        del dialled, made
        gc.collect()
