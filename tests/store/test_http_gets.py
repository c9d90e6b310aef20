"""Our HTTP client on real sockets: connections that are kept, shared, spread, bounded, given up; deadlines; forks."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import random
import socket
import ssl
import threading
from collections import Counter
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

import pytest
import trustme

from lance_io.errors import AccessDenied, NotFound
from lance_io.store import descriptors
from lance_io.store.counters import CONNECTIONS, OperationCounts, process_operations
from lance_io.store.failures import StoreFailure, Transient
from lance_io.store.http import gets, pool, tcp
from lance_io.store.http.addresses import Addresses
from lance_io.store.http.exchange import Origin
from lance_io.store.http.gets import HttpGets
from lance_io.store.offers import WantedRange
from lance_io.store.policies.download import Download
from lance_io.store.policies.hedge import SAMPLES_MIN, Hedging
from lance_io.store.policies.logical_read import RetryPolicy
from lance_io.store.s3.bucket import S3Store, open_s3
from lance_io.store.s3.bucket_options import S3Options, has_profiles, static_keys
from lance_io.store.s3.credentials import Chain, RenewableCredentials
from tests.http_faults import Answer, Asked, FaultServer, after, broken_after, hang_up, head, serve, status
from tests.listening import Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from lance_io.store.offers import StartedRead
    from lance_io.store.policies.transport import GetTransport

CONTENT = random.Random(2).randbytes(300_000)
SILENCE = "0.3s"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries follow at once: jitter draws 0."""
    monkeypatch.setattr("lance_io.store.cloud.cloud_store.random.random", lambda: 0.0)


@pytest.fixture(autouse=True)
def nothing_is_left(nothing_of_others: None) -> Iterator[None]:
    """No test leaves a socket counted, or a pool behind."""
    others = set(pool._pools.values())  # of a store that somebody still holds, on a loop that is no more
    yield
    gc.collect()
    assert descriptors.num_sockets() == 0
    assert set(pool._pools.values()) <= others


def store_at(endpoint: str, **options: str) -> S3Store:
    keys = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "secret", "aws_region": "us-east-1"}
    given = {"aws_endpoint": endpoint, "allow_http": "true", "hedge_percent": "0", **keys, **options}
    return open_s3(given.pop("bucket", "bucket"), {name: text for name, text in given.items() if text})


def pool_of(store: S3Store) -> pool.OriginPool:
    """The connections of a store that has read something on this loop."""
    own = store._loop().gets
    assert isinstance(own, HttpGets)
    (found,) = own._pools.values()
    return found


async def turns_until(happened: Callable[[], bool]) -> None:
    """Let the loop turn until something has happened; the test's own time limit ends what never does."""
    while not happened():  # noqa: ASYNC110 (what is watched has no event, and is not to have one for tests)
        await asyncio.sleep(0.001)


class Counting(FaultServer):
    """Counts connections, too."""

    def __init__(self, *script: Answer) -> None:
        super().__init__(CONTENT, script)
        self.connections = self.most_alive = 0
        self.clients: dict[asyncio.StreamWriter, asyncio.StreamReader] = {}

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Count."""
        self.connections += 1
        self.most_alive = max(self.most_alive, self.alive)
        self.clients[to_client] = client
        await super().serve(client, to_client)


async def attempt(gets: GetTransport, download: Download) -> None:
    """One attempt of a transport."""
    over: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    under_way = gets.start(download, over.set_result)
    try:
        error = await over
    except asyncio.CancelledError:
        under_way.cancel()
        raise
    if error is not None:
        raise error


async def read(store: S3Store, start: int = 0, end: int = 1000) -> None:
    """Read a range and check it."""
    assert bytes(await store.get_range("key", start, end)) == CONTENT[start:end]


async def stall(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Silence, until the client goes away."""
    assert isinstance(server, Counting)
    await server.clients[writer].read()
    writer.close()


async def serve_last(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """The right answer, which says that it is the last one."""
    start, end = asked.span(len(CONTENT)) or (0, 0)
    body = CONTENT[start:end]
    fields = {"Content-Range": f"bytes {start}-{end - 1}/{len(CONTENT)}", "Content-Length": len(body)}
    writer.write(head(206, {**fields, "Connection": "close"}) + body)


async def list_nothing(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """A list without objects."""
    body = b"<ListBucketResult></ListBucketResult>"
    writer.write(head(200, {"Content-Length": len(body)}) + body)


# -- connections are kept and shared ----------------------------------------------------------------------------------


async def test_one_connection_serves_what_comes_one_after_the_other() -> None:
    async with Counting() as server:
        store = store_at(server.endpoint)
        for start in range(0, 200_000, 20_000):
            await read(store, start, start + 100_000)
        assert (server.connections, pool_of(store).num_open, pool_of(store).num_idle) == (1, 1, 1)
        await store.aclose()
        await turns_until(lambda: server.alive == 0)


async def test_what_is_asked_at_once_has_connections_of_its_own_up_to_the_limit() -> None:
    async with Counting() as server:
        store = store_at(server.endpoint, requests_start="7", requests_max="7")
        await asyncio.gather(*(read(store, at, at + 1000) for at in range(50)))
        assert server.most_alive == 7
        assert (pool_of(store).num_idle, len(server.requests)) == (7, 50)
        await store.aclose()


async def test_answers_free_connections_before_more_are_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []  # connections, by turn of the loop
    turn = 0

    class Counted(tcp.Dial):
        def __init__(self, *arguments: Any) -> None:
            begun.append(turn)
            super().__init__(*arguments)

    monkeypatch.setattr(pool, "Dial", Counted)
    async with Counting() as server:
        store = store_at(server.endpoint)
        await read(store)
        begun.clear()
        reads = [asyncio.ensure_future(read(store, at, at + 1000)) for at in range(500)]
        while not all(one.done() for one in reads):
            await asyncio.sleep(0)
            turn += 1
        await asyncio.gather(*reads)
        assert max(Counter(begun).values()) == pool.OPENED_AT_ONCE_MAX
        assert pool.OPENED_AT_ONCE_MAX < server.connections < 400  # the server answers on the same loop
        await store.aclose()


async def test_stores_of_one_endpoint_share_connections_until_the_last_one_leaves() -> None:
    async with Counting() as server:
        first, second = store_at(server.endpoint), store_at(server.endpoint, bucket="other")
        await read(first)
        await read(second)
        assert pool_of(first) is pool_of(second)
        assert server.connections == 1
        await first.aclose()
        assert server.alive == 1
        await read(second)
        await read(first)  # it may come back
        assert server.connections == 1
        await first.aclose()
        await second.aclose()
        await turns_until(lambda: server.alive == 0)


async def test_an_answer_may_be_the_last_one_of_its_connection() -> None:
    async with Counting(serve_last, serve) as server:
        store = store_at(server.endpoint)
        await read(store)
        assert pool_of(store).num_idle == 0
        await read(store)
        assert server.connections == 2
        await store.aclose()


async def test_a_connection_that_was_closed_meanwhile_costs_no_attempt() -> None:
    """The server closes as the request comes; over a new connection it is served."""
    async with Counting(serve, serve, hang_up, serve) as server:
        store = store_at(server.endpoint, client_max_retries="0")
        await asyncio.gather(read(store), read(store))
        await read(store)
        assert (len(server.requests), server.connections) == (4, 3)
        counts = store.stats.snapshot()["get"]
        assert (counts.requests, counts.retries, counts.errors) == (4, 1, 0)
        await store.aclose()


@pytest.mark.parametrize("way", ["range", "long"])
async def test_whatever_is_sent_counts(way: str) -> None:
    """Requests that the pool sends once more are requests of the store and of the process, lists and GETs."""
    async with Counting(serve, hang_up, serve, hang_up, list_nothing) as server:
        before = process_operations()
        store = store_at(server.endpoint, client_max_retries="0")
        await read(store)
        if way == "long":
            await attempt(store._loop().gets, Download.of_range("key", 0, 1000))
        else:
            await read(store)
        assert [key async for key in store.list("")] == []
        assert len(server.requests) == 5
        after = process_operations()
        sent = {name: counts - before.get(name, OperationCounts()) for name, counts in after.items()}
        begun = 1 if way == "long" else 2  # an attempt by itself is counted by who makes it
        assert (sent["get"].requests, sent["get"].retries) == (begun + 1, 1)
        assert (sent["list"].requests, sent["list"].retries) == (2, 1)
        await store.aclose()


async def test_but_only_once_and_not_over_a_new_connection() -> None:
    async with Counting(serve, hang_up, hang_up) as server:
        store = store_at(server.endpoint, client_max_retries="0")
        await read(store)
        with pytest.raises(Transient, match="no answer"):
            await read(store)
        assert (len(server.requests), server.connections) == (3, 2)
        await store.aclose()
    async with Counting(hang_up) as server:
        store = store_at(server.endpoint, client_max_retries="0")
        with pytest.raises(Transient, match="no answer"):
            await read(store)
        assert len(server.requests) == 1
        await store.aclose()


async def test_connections_are_counted() -> None:
    """Open and idle ones now, and all that were opened, as the server sees them."""
    gc.collect()
    before = CONNECTIONS.total()
    async with Counting() as server:
        store = store_at(server.endpoint)
        await asyncio.gather(read(store), read(store), read(store))
        now = CONNECTIONS.total()
        assert now.num_opened - before.num_opened == server.connections == now.num_open - before.num_open == 3
        assert now.num_idle - before.num_idle == 3
        await read(store)
        assert CONNECTIONS.total() == now and now.handshake_s > before.handshake_s
        await store.aclose()
    after = CONNECTIONS.total()
    assert (after.num_open, after.num_idle, after.num_opened) == (before.num_open, before.num_idle, now.num_opened)


async def test_idle_connections_are_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "IDLE_S", 0.0)
    monkeypatch.setattr(pool, "SWEEP_S", 0.01)
    async with Counting() as server:
        store = store_at(server.endpoint)
        await read(store)
        await turns_until(lambda: server.connections == 1 and server.alive == 0)
        assert pool_of(store).num_open == 0
        await turns_until(lambda: pool_of(store)._sweeping is None)  # nothing to look at: the loop is left alone
        await read(store)
        await store.aclose()


async def test_connections_can_be_opened_ahead_and_not_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opening, most = 0, 0

    class Counted(tcp.Dial):
        def __init__(self, *arguments: Any) -> None:
            nonlocal opening, most
            opening += 1
            most = max(most, opening)
            *others, done = arguments

            def told(*outcome: Any) -> None:
                nonlocal opening
                opening -= 1
                done(*outcome)

            super().__init__(*others, told)  # type: ignore[call-arg]

    async with Counting() as server:
        store = store_at(server.endpoint)
        await read(store)
        monkeypatch.setattr(pool, "Dial", Counted)
        pool_of(store).open_ahead(50)
        await turns_until(lambda: pool_of(store).num_idle == 50)
        assert most == pool.AHEAD_MAX
        await asyncio.gather(*(read(store, at, at + 1000) for at in range(50)))
        assert server.connections == 50
        pool_of(store).open_ahead(10_000)
        assert pool_of(store)._ahead == store.profile.requests_max
        await store.aclose()


async def test_a_get_takes_no_task_no_future_and_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where late answers are asked for again: one timer looks at all that is under way."""
    loop = asyncio.get_running_loop()
    async with Counting() as server:
        store = store_at(server.endpoint, hedge_percent="5")
        await asyncio.gather(*(read(store) for _ in range(SAMPLES_MIN)))
        monkeypatch.setattr(Hedging, "patience_s", lambda self, num_bytes=0: 30.0)
        made: list[str] = []
        for name in ("create_task", "create_future", "call_at"):  # which `call_later` calls
            real = getattr(loop, name)
            monkeypatch.setattr(loop, name, lambda *a, n=name, real=real, **k: made.append(n) or real(*a, **k))
        over: asyncio.Queue[Sequence[StartedRead]] = asyncio.Queue()
        wanted = [WantedRange("key", start, start + 200_000) for start in range(0, 100_000, 10_000)]
        store.start_ranges(wanted, over.put_nowait, ignore_retry)
        assert made == ["call_at"]
        readings: list[StartedRead] = []
        while len(readings) < len(wanted):
            readings += await over.get()
        monkeypatch.undo()
        assert (made.count("create_task"), made.count("call_at")) == (0, 1)
        # a future is what somebody waits for: here the server, and the test at its queue
        assert {len(reading.result() or b"") for reading in readings} == {200_000}
        await store.aclose()


# -- addresses --------------------------------------------------------------------------------------------------------


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Gives a name some addresses; returns the list of look-ups."""

    def name(*addresses: str) -> list[str]:
        asked: list[str] = []
        real = socket.getaddrinfo

        def resolve(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
            if host != "store.test.invalid":
                return real(host, port, *rest, **more)
            asked.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        return asked

    return name


class OnAddresses(Counting):
    """Listens on several addresses of this machine; knows which of them were used."""

    def __init__(self, *addresses: str) -> None:
        super().__init__()
        self._addresses = addresses
        self.used: list[str] = []

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._connected, self._addresses, 0)
        port = self._server.sockets[0].getsockname()[1]
        self._server.close()
        await self._server.wait_closed()
        self._server = await asyncio.start_server(self._connected, self._addresses, port)
        self.endpoint = f"http://store.test.invalid:{port}"

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Note the address."""
        self.used.append(to_client.get_extra_info("sockname")[0])
        await super().serve(client, to_client)


async def test_connections_spread_over_all_addresses_of_a_name(named: Callable[..., list[str]]) -> None:
    asked = named("127.0.0.1", "127.0.0.2", "127.0.0.3")
    async with OnAddresses("127.0.0.1", "127.0.0.2", "127.0.0.3") as server:
        store = store_at(server.endpoint)
        await asyncio.gather(*(read(store, at, at + 1000) for at in range(12)))
        assert sorted(server.used) == sorted(["127.0.0.1", "127.0.0.2", "127.0.0.3"] * 4)
        pool_of(store).open_ahead(15)
        await turns_until(lambda: pool_of(store).num_idle == len(server.used) == 15)
        assert (len(asked), server.used.count("127.0.0.2")) == (1, 5)
        await store.aclose()


async def test_an_address_where_nobody_listens_is_passed_over(named: Callable[..., list[str]]) -> None:
    named("127.0.0.9", "127.0.0.1")
    async with OnAddresses("127.0.0.1") as server:
        store = store_at(server.endpoint, client_max_retries="0")
        await read(store)
        await asyncio.gather(*(read(store, at, at + 1000) for at in range(6)))
        assert set(server.used) == {"127.0.0.1"}
        await store.aclose()


async def test_an_address_that_does_not_answer_is_passed_over_in_time(
    named: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    named("127.0.0.1", "127.0.0.9")
    monkeypatch.setattr(pool, "CONNECT_S", 2.0)
    async with OnAddresses("127.0.0.1") as server:
        port = int(server.endpoint.rsplit(":", 1)[1])
        store = store_at(server.endpoint)
        await read(store)  # the addresses are known from here on
        with ExitStack() as stack:
            stack.enter_context(socket.create_server(("127.0.0.9", port), backlog=0))
            for _ in range(4):  # more than it takes
                waiting = stack.enter_context(tcp.tcp_socket("127.0.0.9"))
                waiting.connect_ex(("127.0.0.9", port))
            found = pool_of(store)
            found.open_ahead(5)
            dialled = {one.address for one in found._opening if isinstance(one, tcp.Dial)}
            assert dialled == {"127.0.0.1", "127.0.0.9"}
            await turns_until(lambda: found.num_idle == 5)
        assert set(server.used) == {"127.0.0.1"}
        await store.aclose()


async def test_a_name_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    store = store_at("http://nowhere.test.invalid", client_max_retries="1")
    with pytest.raises(Transient, match=r"no answer \(gaierror") as caught:
        await read(store)
    assert caught.value.attempts == 2
    await store.aclose()


# -- descriptors ------------------------------------------------------------------------------------------------------


async def test_no_more_connections_than_the_process_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "sockets_max", lambda: 3)
    async with Counting() as server, Counting() as other:
        store, second = store_at(server.endpoint), store_at(other.endpoint)
        await asyncio.gather(*(read(store, at, at + 1000) for at in range(20)))
        assert server.most_alive == 3
        await asyncio.gather(*(read(second, at, at + 1000) for at in range(5)))  # one it may always have
        assert other.most_alive == 1
        await store.aclose()
        await second.aclose()


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_process_without_descriptors_goes_on_with_the_connections_it_has(
    is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, left = tcp.tcp_socket, 2

    def refused(address: str) -> socket.socket:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.EMFILE, "Too many open files")
        return made(address)

    for module in (tcp, pool):  # of the short way to a connection, and of the long one
        monkeypatch.setattr(module, "tcp_socket", refused)
    async with Counting() as server:
        store = store_at(server.endpoint, client_max_retries="0")
        if is_known:  # the address: connections are made the short way
            await read(store)
        await asyncio.gather(*(read(store, at, at + 1000) for at in range(40)))
        assert (server.most_alive, len(server.requests)) == (2, 40 + is_known)
        await store.aclose()


def test_half_of_what_the_system_allows() -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (500, hard))
        assert descriptors.sockets_max() == 250
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# -- deadlines --------------------------------------------------------------------------------------------------------


async def stall_in_body(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """The head, a few bytes, then silence."""
    start, end = asked.span(len(CONTENT)) or (0, 0)
    fields = {"Content-Range": f"bytes {start}-{end - 1}/{len(CONTENT)}", "Content-Length": end - start}
    writer.write(head(206, fields) + CONTENT[start : start + 5])
    await stall(server, asked, writer)


async def stall_in_head(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Half a head, then silence."""
    writer.write(b"HTTP/1.1 206 Par")
    await stall(server, asked, writer)


async def drip(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """A head, and ever more headers of it: never silent, never done."""
    assert isinstance(server, Counting)
    writer.write(b"HTTP/1.1 206 OK\r\n")
    while not server.clients[writer].at_eof():
        writer.write(b"X")
        await writer.drain()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("answer", [stall, stall_in_head, stall_in_body, drip])
async def test_silence_and_endless_answers_end(answer: Answer) -> None:
    async with Counting(answer) as server:
        store = store_at(server.endpoint, request_timeout=SILENCE, client_max_retries="0")
        with pytest.raises(Transient, match="no answer in time"):
            await read(store)
        await turns_until(lambda: server.alive == 0)
        assert pool_of(store).num_open == 0
        await read(store)
        await store.aclose()


async def test_silence_ends_before_the_time_for_a_long_answer_does() -> None:
    async with Counting(stall_in_body) as server:
        store = store_at(server.endpoint, request_timeout="1000s", read_timeout="200ms")
        await read(store)
        assert server.asked == ["bytes=0-999", "bytes=5-999"]
        await store.aclose()


async def test_waiting_for_a_connection_ends_too() -> None:
    """Two stores of one bucket, of which one waits for its only connection less long than the other."""
    async with Counting(stall) as server:
        patient = store_at(server.endpoint, requests_max="1", request_timeout="1000s")
        hasty = store_at(server.endpoint, requests_max="1", request_timeout=SILENCE, client_max_retries="0")
        await patient._loop().state.signer("key")
        first = asyncio.create_task(attempt(patient._loop().gets, Download.of_range("key", 0, 10)))
        await server.arrived.wait()
        with pytest.raises(Transient, match="no answer in time"):
            await attempt(hasty._loop().gets, Download.of_range("key", 0, 10))
        assert (len(server.requests), pool_of(hasty).num_waiting) == (1, 0)
        await cancel(first)
        await patient.aclose()
        await hasty.aclose()


async def test_the_rest_after_a_silence_is_asked_for_over_another_connection() -> None:
    async with Counting(stall_in_body, stall_in_body) as server:
        store = store_at(server.endpoint, request_timeout=SILENCE)
        await read(store)
        assert server.asked == ["bytes=0-999", "bytes=5-999", "bytes=10-999"]
        await store.aclose()


class Silent(Listener):
    """Accepts connections and says nothing; who wants TLS waits for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.came = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Wait for its end."""
        self.came.set()
        while await client.read(1000):
            pass


async def test_a_connection_that_does_not_come_about_in_time() -> None:
    async with Silent() as server:
        store = store_at(server.endpoint.replace("http:", "https:"), connect_timeout="0.2s", client_max_retries="0")
        async with asyncio.timeout(pool.CONNECT_S / 2):  # which is for connections that nobody waits for
            with pytest.raises(Transient, match="no answer in time"):
                await read(store)
            await turns_until(lambda: server.alive == 0)
        await store.aclose()


# -- into the caller's memory -----------------------------------------------------------------------------------------


async def replaced(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Another object is there now."""
    server.content, server.etag = CONTENT[::-1], '"v2"'
    await status(412, "PreconditionFailed")(server, asked, writer)


def ignore_retry(tag: object, late: bool) -> None:
    """Nobody asks whether a request was made again."""


@pytest.mark.parametrize("length", [100, 100_000, 250_000])
@pytest.mark.parametrize("express", ["false", "true"])
async def test_bytes_can_be_received_into_memory_of_the_caller(express: str, length: int) -> None:
    async with Counting(broken_after(50), broken_after(40), replaced) as server:
        store = store_at(server.endpoint, s3_express=express)
        memory = bytearray(length + 2)
        over = asyncio.get_running_loop().create_future()
        inside = memoryview(memory)[1:-1]
        (reading,) = store.start_ranges(
            [WantedRange("key", 1000, 1000 + length, inside)], over.set_result, ignore_retry
        )
        assert await over == [reading]
        assert reading.result() is None
        assert memory == b"\0" + CONTENT[::-1][1000 : 1000 + length] + b"\0"
        assert server.asked[1:] == [f"bytes={start}-{1000 + length - 1}" for start in (1050, 1090, 1000)]
        await store.aclose()


# -- cancelling -------------------------------------------------------------------------------------------------------


async def cancel(work: asyncio.Task[None]) -> None:
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


@pytest.mark.parametrize("answer", [stall, stall_in_head, stall_in_body])
async def test_cancelling_while_an_answer_is_due(answer: Answer) -> None:
    async with Counting(answer) as server:
        store = store_at(server.endpoint)
        work = asyncio.create_task(read(store))
        await server.arrived.wait()
        if answer is not stall:
            exchange = next(iter(pool_of(store)._open)).exchange
            assert exchange is not None
            connection = exchange.connection
            assert connection is not None
            assert isinstance(exchange.sink, Download)
            sink = exchange.sink
            await turns_until(lambda: connection._partial is not None or sink.received > 0)
        await cancel(work)
        await turns_until(lambda: server.alive == 0)
        assert (pool_of(store).num_open, pool_of(store).num_waiting, store.stats.in_flight) == (0, 0, 0)
        await read(store)
        await store.aclose()


async def test_cancelling_while_a_connection_is_being_opened() -> None:
    async with Silent() as server:
        store = store_at(server.endpoint.replace("http:", "https:"))
        work = asyncio.create_task(read(store))
        await server.came.wait()
        await cancel(work)
        assert store.stats.in_flight == 0
        await store.aclose()
        await turns_until(lambda: server.alive == 0)


async def test_cancelling_while_others_have_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "SWEEP_S", 1e6)  # what is to be done, is done before the next sweep
    async with Counting(stall, serve) as server:
        store = store_at(server.endpoint, requests_max="1", request_timeout="1000000s", read_timeout="1000000s")
        own = store._loop().gets
        await store._loop().state.signer("key")
        first = asyncio.create_task(attempt(own, Download.of_range("key", 0, 10)))
        await server.arrived.wait()
        second, third = (asyncio.create_task(attempt(own, Download.of_range("key", at, at + 5))) for at in (1, 2))
        await turns_until(lambda: pool_of(store).num_waiting == 2)
        await cancel(second)
        await cancel(first)  # its connection goes with it, and a new one is opened for the third
        await third
        assert server.asked == ["bytes=0-9", "bytes=2-6"]
        await store.aclose()


async def test_cancelling_while_a_request_waits_to_go_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Counting(serve, hang_up) as server:
        store = store_at(server.endpoint)
        await read(store)
        found = pool_of(store)
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(found, "_open_more", lambda: None)  # it waits for a connection as long as we like
            lost = asyncio.create_task(read(store))
            await turns_until(lambda: len(found._resent) == 1)
            await cancel(lost)
        assert store.stats.in_flight == 0
        found._open_more()
        assert (found.num_open, found.num_waiting, len(found._opening), len(server.asked)) == (0, 0, 0, 2)
        await store.aclose()


async def test_who_was_cancelled_in_line_gets_no_turn() -> None:
    go_on = asyncio.Event()
    async with Counting(after(go_on)) as server:
        store = store_at(server.endpoint, requests_max="1")
        own = store._loop().gets
        await store._loop().state.signer("key")
        first, second, third = (asyncio.create_task(attempt(own, Download.of_range("key", 0, at))) for at in (1, 2, 3))
        await turns_until(lambda: server.arrived.is_set() and pool_of(store).num_waiting == 2)
        await cancel(second)
        go_on.set()
        await first
        await third
        assert (server.asked, server.connections) == (["bytes=0-0", "bytes=0-2"], 1)
        await store.aclose()


async def test_time_without_a_connection_is_counted() -> None:
    go_on, loop = asyncio.Event(), asyncio.get_running_loop()
    async with Counting(after(go_on)) as server:
        store = store_at(server.endpoint, requests_max="1")
        own = store._loop().gets
        await store._loop().state.signer("key")
        first, second = Download.of_range("key", 0, 10), Download.of_range("key", 5, 10)
        began_s = loop.time()
        tasks = [asyncio.create_task(attempt(own, download)) for download in (first, second)]
        await turns_until(lambda: server.arrived.is_set() and pool_of(store).num_waiting == 1)
        arrived_s = loop.time()
        await asyncio.sleep(0.01)
        going_s = loop.time()
        go_on.set()
        await asyncio.gather(*tasks)
        assert 0 < first.queue_s <= arrived_s - began_s
        assert going_s - arrived_s <= second.queue_s <= loop.time() - began_s
        await store.aclose()


async def test_a_read_that_is_made_again_after_closing_belongs_to_the_store_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store is closed while it pauses; the connection that it opens then is closed with the store, too."""
    monkeypatch.setattr(RetryPolicy, "pause_s", lambda *_: 0.2)
    async with Counting(status(500)) as server:
        store = store_at(server.endpoint)
        reading = asyncio.create_task(read(store))
        await turns_until(lambda: len(server.requests) == 1 and not store._loop().gates["read"].in_flight)
        await store.aclose()
        await reading
        assert pool_of(store).num_open == 1
        await store.aclose()
        assert not store._loops and server.connections == 2


async def test_closing_ends_what_is_under_way() -> None:
    async with Counting(stall, stall) as server:
        store = store_at(server.endpoint, client_max_retries="0", requests_max="1")
        work = asyncio.create_task(read(store))
        await server.arrived.wait()
        await store.aclose()
        with pytest.raises(Transient, match="were closed"):
            await work
        await turns_until(lambda: server.alive == 0)


# -- trust ------------------------------------------------------------------------------------------------------------


class Secure(Counting):
    """Speaks TLS."""

    def __init__(self, certificate: trustme.LeafCert) -> None:
        super().__init__()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(self._context)

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._context)
        self.endpoint = f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


async def test_tls_with_an_authority_of_our_own(authority: trustme.CA, tmp_path: Path) -> None:
    pem = authority.cert_pem.bytes().decode()
    (tmp_path / "ca.pem").write_text(pem)
    async with Secure(authority.issue_cert("127.0.0.1")) as server:
        for named in (pem, str(tmp_path / "ca.pem")):
            store = store_at(server.endpoint, proxy_ca_certificate=named)
            await asyncio.gather(*(read(store, at, at + 200_000) for at in range(4)))
            await store.aclose()


@pytest.mark.parametrize("flaw", ["expired", "another host", "unknown authority", "file is missing"])
async def test_certificates_that_are_not_trusted(flaw: str, authority: trustme.CA, tmp_path: Path) -> None:
    import datetime

    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    host = "example.com" if flaw == "another host" else "127.0.0.1"
    certificate = authority.issue_cert(host, not_after=past if flaw == "expired" else None)
    trusted = trustme.CA() if flaw == "unknown authority" else authority
    named = str(tmp_path / "none.pem") if flaw == "file is missing" else trusted.cert_pem.bytes().decode()
    async with Secure(certificate) as server:
        store = store_at(server.endpoint, proxy_ca_certificate=named, client_max_retries="3")
        with pytest.raises(StoreFailure, match="cannot connect") as caught:
            await read(store)
        assert (type(caught.value), caught.value.attempts, server.requests) == (StoreFailure, 1, [])
        await store.aclose()


class Plain(Silent):
    """Takes what comes for a bad request."""

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Say so."""
        await client.read(1)
        to_client.write(head(400, {"Content-Length": 0}))
        await to_client.drain()


async def test_tls_where_none_is_spoken() -> None:
    async with Plain() as server:
        store = store_at(server.endpoint.replace("http:", "https:"), client_max_retries="0")
        with pytest.raises(Transient, match=r"no answer .SSLError"):
            await read(store)
        await store.aclose()


# -- buckets that have moved ------------------------------------------------------------------------------------------


async def test_a_bucket_in_another_region_is_asked_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over plain HTTP here, since nobody has Amazon's certificates."""
    moved = status(301, "PermanentRedirect", x_amz_bucket_region="eu-west-3")
    async with Counting(moved, serve, serve) as server:
        port = int(server.endpoint.rpartition(":")[2])
        names: list[str] = []

        class Near(Addresses):
            def __init__(self, host: str, _: int) -> None:
                names.append(host)
                super().__init__("127.0.0.1", port)

        monkeypatch.setattr(pool, "Addresses", Near)
        real = pool.OriginPool.__init__
        monkeypatch.setattr(
            pool.OriginPool, "__init__", lambda self, origin: real(self, Origin(origin.host, port, None))
        )
        store = store_at("")
        await read(store)
        await read(store)
        await store.aclose()
    assert names == ["bucket.s3.us-east-1.amazonaws.com", "bucket.s3.eu-west-3.amazonaws.com"]
    regions = [request.headers["authorization"].split("/")[2] for request in server.requests]
    assert regions == ["us-east-1", "eu-west-3", "eu-west-3"]


@pytest.mark.parametrize("code", [301, 302, 307, 308])
async def test_no_other_redirection_is_followed(code: int) -> None:
    """It would show the request to whom the server names."""
    async with Counting() as other:
        moved = status(code, "Moved", Location=f"{other.endpoint}/bucket/key", x_amz_bucket_region="eu-west-3")
        async with Counting(moved) as server:
            store = store_at(server.endpoint)
            with pytest.raises(StoreFailure, match=f"HTTP {code} Moved"):
                await read(store)
            await store.aclose()
        assert other.connections == 0


# -- credentials ------------------------------------------------------------------------------------------------------


async def test_credentials_are_looked_at_once_for_many_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_CREDENTIAL_EXPIRATION", "2099-01-01T00:00:00Z")  # these, aiobotocore has to look after
    async with Counting() as server:
        store = store_at(server.endpoint, aws_access_key_id="", aws_secret_access_key="")
        session, looks = store._loop().state.session(), 0
        real = session.get_credentials

        async def counted() -> Any:
            nonlocal looks
            looks += 1
            return await real()

        monkeypatch.setattr(session, "get_credentials", counted)
        await read(store)
        await asyncio.gather(*(read(store, at, at + 1000) for at in range(30)))
        assert looks == 1
        assert "AKIDEXAMPLE" in server.requests[-1].headers["authorization"]
        session.set_credentials("AKIDOTHER", "changed")
        chain = store._loop().state._chain
        assert isinstance(chain, Chain)
        chain._latest = RenewableCredentials(await real(), chain._map_error, "s3")
        monkeypatch.setattr("lance_io.store.s3.loop_state.LOOK_S", 0.0)  # the time has come
        await read(store)
        assert "AKIDOTHER" in server.requests[-1].headers["authorization"]
        await store.aclose()


@pytest.mark.parametrize("text", ["agent\r\nx-evil: 1", "agent\nx"])
async def test_an_option_cannot_add_a_header(text: str) -> None:
    async with Counting() as server:
        with pytest.raises(Exception, match="user_agent"):
            store_at(server.endpoint, user_agent=text)
        assert server.requests == []


@pytest.mark.parametrize("flaw", [{"aws_session_token": "a\r\nx-evil: 1"}, {"aws_region": "x\ny: 1"}])
async def test_credentials_cannot_add_a_header_either(flaw: dict[str, str]) -> None:
    async with Counting() as server:
        store = store_at(server.endpoint, **flaw)
        with pytest.raises(AccessDenied, match="characters invalid in a header") as caught:
            await read(store)
        assert "evil" not in str(caught.value) and server.requests == []
        await store.aclose()


async def test_a_region_cannot_lead_elsewhere() -> None:
    for region in ("a b", "a\u2028b", "a/b", "a@b", "a#b", "a?b", "a:1", "\\"):
        store = store_at("", aws_region=region, client_max_retries="0", skip_signature="true")
        with pytest.raises(StoreFailure, match="is not a valid host name"):
            await read(store)
        await store.aclose()


KEYS = {"AWS_ACCESS_KEY_ID": "e", "AWS_SECRET_ACCESS_KEY": "s"}


@pytest.mark.parametrize(
    ("options", "environment", "found"),
    [
        (S3Options("b", access_key="a", secret_key="k", token="t"), KEYS, ("a", "k", "t")),
        (S3Options("b"), KEYS, ("e", "s", None)),
        (S3Options("b"), {**KEYS, "AWS_SESSION_TOKEN": "t"}, ("e", "s", "t")),
        (S3Options("b"), {**KEYS, "AWS_SESSION_TOKEN": "t", "AWS_SECURITY_TOKEN": "older"}, ("e", "s", "older")),
        (S3Options("b", profile="p"), KEYS, None),
        (S3Options("b"), {**KEYS, "AWS_CREDENTIAL_EXPIRATION": "2099-01-01T00:00:00Z"}, None),
        (S3Options("b"), {"AWS_ACCESS_KEY_ID": "e"}, None),
        (S3Options("b"), {}, None),
    ],
)
async def test_keys_lie_open_where_botocore_would_find_them_first(
    options: S3Options, environment: dict[str, str], found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aiobotocore.session import AioSession

    assert static_keys(options, environment) == found
    if found is not None and options.access_key is None:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        frozen = await (await AioSession().get_credentials()).get_frozen_credentials()
        assert found == (frozen.access_key, frozen.secret_key, frozen.token)


def test_files_of_profiles_are_looked_for(tmp_path: Path) -> None:
    none = {"AWS_CONFIG_FILE": str(tmp_path / "no"), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none")}
    (tmp_path / "yes").touch()
    assert not has_profiles(S3Options("b"), none)
    assert has_profiles(S3Options("b", profile="p"), none)
    for name in none:
        assert has_profiles(S3Options("b"), {**none, name: str(tmp_path / "yes")})


# -- threads and forks ------------------------------------------------------------------------------------------------


def test_each_loop_has_connections_of_its_own() -> None:
    counts: list[int] = []

    async def run() -> None:
        async with Counting() as server:
            store = stores.setdefault(server.endpoint, store_at(server.endpoint))
            await asyncio.gather(*(read(store, at, at + 1000) for at in range(10)))
            counts.append(len(server.requests))
            await store.aclose()

    stores: dict[str, S3Store] = {}
    threads = [threading.Thread(target=asyncio.run, args=(run(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [10, 10, 10]


class OnThread(BaseHTTPRequestHandler):
    """Serves ranges from a thread, whatever becomes of the client's loop."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        body = CONTENT[int(first) : int(last) + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(CONTENT)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_connections_of_a_loop_that_was_closed_under_them_do_not_count() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), OnThread)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        store = store_at(f"http://127.0.0.1:{server.server_port}")
        loop = asyncio.new_event_loop()
        loop.run_until_complete(read(store))
        loop.close()

        async def again() -> None:
            await read(store)
            assert descriptors.num_sockets() == 1
            await store.aclose()

        asyncio.run(again())
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def test_a_listing_opens_connections_for_the_reads_that_follow() -> None:
    async with Counting(list_nothing) as server:
        store = store_at(server.endpoint)
        assert [meta async for meta in store.list("")] == []
        await turns_until(lambda: pool_of(store).num_idle == gets.OPEN_AHEAD)
        await asyncio.gather(*(read(store, at, at + 1000) for at in range(gets.OPEN_AHEAD)))
        assert server.connections == gets.OPEN_AHEAD
        await store.aclose()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
async def test_a_forked_child_opens_connections_of_its_own() -> None:
    async with Counting() as server:
        store = store_at(server.endpoint)
        await read(store)
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:
            outcome = b"failed"
            try:
                asyncio.events._set_running_loop(None)
                asyncio.run(_in_child(store))
                outcome = b"read"
            finally:
                os.write(writable, outcome)
                os._exit(0)
        os.close(writable)
        outcome = await asyncio.to_thread(os.read, readable, 100)
        os.close(readable)
        await asyncio.to_thread(os.waitpid, child, 0)
        await read(store)  # the parent's connection is as it was
        assert outcome == b"read"
        assert (server.connections, pool_of(store).num_open) == (2, 1)
        await store.aclose()


async def _in_child(store: S3Store) -> None:
    assert descriptors.num_sockets() == 0
    assert not list(pool._pools.values())
    await read(store, 5, 200_000)
    await store.aclose()


# -- errors -----------------------------------------------------------------------------------------------------------


async def test_refusals_keep_the_connection() -> None:
    async with Counting(status(404, "NoSuchKey"), status(403, "AccessDenied"), status(416)) as server:
        store = store_at(server.endpoint)
        for error in (NotFound, AccessDenied):
            with pytest.raises(error):
                await read(store)
        tail, size_bytes, _ = await store.get_suffix("key", 5)
        assert (bytes(tail), size_bytes) == (b"", 0)
        await read(store)
        assert server.connections == 1
        await store.aclose()


async def test_a_broken_answer_is_told_with_what_has_come() -> None:
    async with Counting(broken_after(70_000)) as server:
        store = store_at(server.endpoint, client_max_retries="0")
        with pytest.raises(Transient, match="broke off after 70000 of 200000 bytes"):
            await read(store, 0, 200_000)
        await store.aclose()


@pytest.mark.parametrize(
    ("option", "left"), [({"pool_idle_timeout": "0s"}, 0), ({"pool_max_idle_per_host": "2"}, 2), ({}, 8)]
)
async def test_idle_connections_by_options(option: dict[str, str], left: int) -> None:
    async with Counting() as server:
        store = store_at(server.endpoint, **option)
        reads = asyncio.gather(*(read(store) for _ in range(8)))
        await reads
        assert server.connections == 8
        connections = pool_of(store)
        if left == 0:
            await turns_until(lambda: connections._sweeping is None)
        assert connections.num_open == left
        await store.aclose()
