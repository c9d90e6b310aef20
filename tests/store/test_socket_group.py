"""Many sockets read by one call: the usual answers to their end, of everything else what has come."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import random
import socket
import termios
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_io import _kernels
from lance_io.store.http.connection import COPIED_BYTES_MAX, SCRATCH_BYTES
from lance_io.store.http.range_get import RangeGet
from lance_io.store.http.socket_group import IS_SUPPORTED, SocketGroup
from lance_io.store.offers import WantedRange
from lance_io.store.s3.bucket import open_s3
from tests.http_faults import Asked, FaultServer
from tests.store.test_http_gets import turns_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_io.store.offers import StartedRead
    from lance_io.store.s3.bucket import S3Store

pytestmark = pytest.mark.skipif(not IS_SUPPORTED, reason="only Linux has epoll")

CONTENT = random.Random(11).randbytes(3_000_000)
READY, BEGUN, COMPLETE, UNUSUAL, BROKEN = range(5)
SMALL, LARGE = (1000, 5000), (1000, 301_000)


def head_of(start: int, end: int, **more: object) -> bytes:
    fields = {
        "Content-Length": end - start,
        "Content-Range": f"bytes {start}-{end - 1}/{len(CONTENT)}",
        "ETag": '"v1"',
        **more,
    }
    return b"HTTP/1.1 206 Partial Content\r\n%s\r\n" % b"".join(
        f"{name}: {value}\r\n".encode() for name, value in fields.items()
    )


def answer_of(start: int, end: int) -> bytes:
    return head_of(start, end) + CONTENT[start:end]


class Bench:
    """Sockets of a group, and the servers' ends of them."""

    def __init__(self, count: int, stack: ExitStack) -> None:
        self.sockets = _kernels.RangeSockets(COPIED_BYTES_MAX, SCRATCH_BYTES)
        self.ends: dict[int, socket.socket] = {}
        self.ours: dict[int, socket.socket] = {}
        for _ in range(count):
            ours, theirs = (stack.enter_context(one) for one in socket.socketpair())
            ours.setblocking(False)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
            slot = self.sockets.add(ours)
            self.ours[slot], self.ends[slot] = ours, theirs

    def ask(self, slot: int, span: tuple[int, int], memory: Any = None) -> None:
        assert self.sockets.send([(slot, b"GET", *span, memory)], 0.0) == []
        assert self.ends[slot].recv(100) == b"GET"

    def told(self) -> list[Any]:
        return self.sockets.receive(1.0)


def count_waiting(one: socket.socket) -> int:
    """Bytes that have come and were not read."""
    found = bytearray(4)
    fcntl.ioctl(one, termios.FIONREAD, found)
    return int.from_bytes(found, "little")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as held:
        yield held


@pytest.mark.parametrize("span", [SMALL, LARGE])
@pytest.mark.parametrize("cut", [1, 20, 10**9])
def test_an_answer_comes_at_once_or_in_pieces(span: tuple[int, int], cut: int, stack: ExitStack) -> None:
    bench, expected = Bench(1, stack), CONTENT[slice(*span)]
    memory = bytearray(len(expected)) if span is LARGE else None
    bench.ask(0, span, memory)
    assert bench.told() == []
    data = answer_of(*span)
    size = len(head_of(*span)) + cut  # some of the body comes with the head
    bench.ends[0].sendall(data[:size])
    found = bench.told()
    if size < len(data):
        assert found == [(0, BEGUN, len(CONTENT), '"v1"', None)]
        bench.ends[0].sendall(data[size:])
        found = []
        while not found:
            assert bench.sockets.heard_s(0) == 1.0
            found = bench.told()
        assert found[0][:4] == (0, COMPLETE, None, None)
    elif span is LARGE:  # a socket has no more than its turn
        assert found == [(0, BEGUN, len(CONTENT), '"v1"', None)]
        found = bench.told()
    else:
        assert found[0][:4] == (0, COMPLETE, len(CONTENT), '"v1"')
    assert bytes(memory or found[0][4]) == expected
    assert (found[0][4] is None) == (memory is not None)
    assert bench.sockets.heard_s(0) is None and bench.told() == []
    bench.ask(0, SMALL)  # and the next one
    bench.ends[0].sendall(answer_of(*SMALL))
    assert [one[4] for one in bench.told()] == [CONTENT[slice(*SMALL)]]


@given(st.integers(0, 400), st.binary(max_size=40), st.booleans())
def test_whatever_else_comes_is_given_back_as_it_came(kept: int, other: bytes, has_ended: bool) -> None:
    """Any beginning of the right answer, and then something else."""
    whole = answer_of(*SMALL)
    data = whole[:kept] + other
    with ExitStack() as stack:
        bench = Bench(1, stack)
        bench.ask(0, SMALL)
        bench.ends[0].sendall(data)
        if has_ended:
            bench.ends[0].shutdown(socket.SHUT_WR)
        came = bytearray()
        while found := bench.told():
            ((slot, what, *_, piece),) = found
            assert slot == 0
            if what == UNUSUAL:
                came += piece
                assert bench.sockets.give_back(0) is None
            elif what == READY:
                piece = bench.ours[0].recv(1 << 16)
                came += piece
                if not piece:
                    break
            elif what == BROKEN:
                received, piece = bench.sockets.give_back(0) or (0, None)
                assert len(piece or b"") == received
                came += piece or b""
                break
            else:
                assert what == BEGUN
                came += whole[: len(head_of(*SMALL))]
                if not has_ended:
                    break
        if not has_ended and bench.sockets.heard_s(0) is not None:
            came += (bench.sockets.give_back(0) or (0, b""))[1] or b""
        assert came == data


def test_more_than_was_asked_for_is_no_usual_answer(stack: ExitStack) -> None:
    bench = Bench(1, stack)
    bench.ask(0, SMALL)
    bench.ends[0].sendall(answer_of(*SMALL) + b"!")
    assert bench.told() == [(0, UNUSUAL, None, None, answer_of(*SMALL) + b"!")]


def test_what_has_come_is_given_back(stack: ExitStack) -> None:
    bench, memory = Bench(2, stack), bytearray(300_000)
    bench.ask(0, LARGE, memory)
    bench.ask(1, SMALL)
    assert bench.sockets.give_back(1) == (0, b"")  # nothing
    bench.ends[0].sendall(answer_of(*LARGE)[:100_000])
    while bench.told():
        pass
    received, piece = bench.sockets.give_back(0) or (0, b"")
    assert piece is None and memory[:received] == CONTENT[1000 : 1000 + received]
    assert received == 100_000 - len(head_of(*LARGE))
    memory.append(0)  # it is not held any more
    bench.ends[0].sendall(b"more")
    assert bench.told() == [(0, READY, None, None, None)]


def test_many_at_once(stack: ExitStack) -> None:
    bench = Bench(300, stack)
    spans = {slot: (slot * 1000, slot * 1000 + 500) for slot in bench.ends}
    heads = [(slot, b"GET %d" % slot, *span, None) for slot, span in spans.items()]
    assert bench.sockets.send(heads, 0.0) == []
    for slot, end in bench.ends.items():
        assert end.recv(100) == b"GET %d" % slot
        end.sendall(answer_of(*spans[slot]))
    found = bench.told()
    assert {slot: piece for slot, what, _, _, piece in found if what == COMPLETE} == {
        slot: CONTENT[slice(*span)] for slot, span in spans.items()
    }


def test_large_answers_take_turns_and_small_ones_come_first(stack: ExitStack) -> None:
    bench = Bench(21, stack)
    *large, small = bench.ends
    memories = {slot: bytearray(2_000_000) for slot in large}
    for slot in large:
        bench.ask(slot, (0, 2_000_000), memories[slot])
        bench.ends[slot].sendall(head_of(0, 2_000_000))
    while bench.told():
        pass
    bench.ask(small, SMALL)
    for slot in large:
        bench.ends[slot].setblocking(False)
        bench.ends[slot].send(CONTENT[:1_000_000])
    bench.ends[small].sendall(answer_of(*SMALL))

    def num_received() -> list[int]:
        return [1_000_000 - count_waiting(bench.ours[slot]) for slot in large]

    assert [(slot, what) for slot, what, *_ in bench.told()] == [(small, COMPLETE)]
    for num_calls in range(1, 5):  # no more than takes a moment in each, and nobody a second time before all others
        received = num_received()
        assert max(received) - min(received) <= 256 << 10
        assert min(num_calls << 22, 20 * 950_000) <= sum(received) <= (num_calls << 22) + (256 << 10) * num_calls
        bench.told()


def test_after_a_long_time_more_is_received(stack: ExitStack) -> None:
    bench = Bench(40, stack)
    memories = {slot: bytearray(2_000_000) for slot in bench.ends}
    for slot, end in bench.ends.items():
        bench.ask(slot, (0, 2_000_000), memories[slot])
        end.sendall(head_of(0, 2_000_000))
    while bench.sockets.receive(1.0):
        pass
    for end in bench.ends.values():
        end.setblocking(False)
        end.send(CONTENT[:1_000_000])
    turn = 256 << 10
    for now_s, at_least in ((1.001, 4 << 20), (1.0625, int(0.0615 * 128e6)), (1.0, 4 << 20)):
        before = sum(count_waiting(ours) for ours in bench.ours.values())
        bench.sockets.receive(now_s)
        received = before - sum(count_waiting(ours) for ours in bench.ours.values())
        assert at_least <= received < at_least + turn


def test_what_cannot_be_sent_is_told(stack: ExitStack) -> None:
    bench = Bench(2, stack)
    head = bytes(64 << 20)
    ((slot, num_sent, code),) = bench.sockets.send([(0, head, *SMALL, None)], 0.0)
    assert (slot, code) == (0, 0) and 0 < num_sent < len(head)
    assert bench.sockets.send([(0, b"GET", *SMALL, None)], 0.0) == [(0, 0, 0)]  # there is no room
    bench.ends[1].close()
    assert bench.sockets.send([(1, b"GET", *SMALL, None)], 0.0) == [(1, 0, errno.EPIPE)]
    assert bench.sockets.heard_s(0) is bench.sockets.heard_s(1) is None


def test_a_connection_that_is_reset(stack: ExitStack) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = stack.enter_context(socket.create_connection(listening.getsockname()))
        theirs, _ = listening.accept()
    ours.setblocking(False)
    sockets = _kernels.RangeSockets(COPIED_BYTES_MAX, SCRATCH_BYTES)
    slot = sockets.add(ours)
    assert sockets.send([(slot, b"GET", *SMALL, None)], 0.0) == []
    theirs.close()  # with what was sent unread: a reset
    assert sockets.receive(1.0) == [(slot, BROKEN, errno.ECONNRESET, None, None)]


def test_nonsense_is_refused(stack: ExitStack) -> None:
    bench = Bench(1, stack)
    read_only: Any = memoryview(bytes(4000))
    for get in [
        (5, b"GET", *SMALL, None),
        (0, b"GET", 7, 7, None),
        (0, b"GET", 7, 6, None),
        (0, b"GET", *LARGE, None),  # that much needs memory
        (0, b"GET", *SMALL, bytearray(3999)),
        (0, b"GET", 0, 1 << 63, bytearray(10)),
    ]:
        with pytest.raises(ValueError):
            bench.sockets.send([get], 0.0)
    with pytest.raises((ValueError, BufferError)):
        bench.sockets.send([(0, b"GET", *SMALL, read_only)], 0.0)
    bench.ask(0, SMALL)
    with pytest.raises(ValueError, match="under way"):
        bench.sockets.send([(0, b"GET", *SMALL, None)], 0.0)
    bench.sockets.remove(0)
    for call in (bench.sockets.remove, bench.sockets.give_back, bench.sockets.heard_s):
        with pytest.raises(ValueError, match="number 0"):
            call(0)
    assert bench.sockets.add(bench.ours[0]) == 0
    with pytest.raises(OSError):
        bench.sockets.add(bench.ours[0])  # it is there already
    assert bench.sockets.add(bench.ends[0]) == 1  # and that has cost no number


# -- in a pool ---------------------------------------------------------------------------------------------------------


def store_on(server: FaultServer) -> S3Store:
    known = {"aws_endpoint": server.endpoint, "allow_http": "true", "aws_skip_signature": "true", "aws_region": "r"}
    return open_s3("bucket", {**known, "hedge_percent": "0"})


async def read_all(store: S3Store, wanted: Sequence[WantedRange]) -> list[bytes]:
    over: asyncio.Queue[Sequence[StartedRead]] = asyncio.Queue()
    store.start_ranges(wanted, over.put_nowait, lambda tag, late: None)
    found: dict[int, bytes] = {}
    while len(found) < len(wanted):
        found |= {started.tag: bytes(started.result() or b"") for started in await over.get()}
    return [found[number] for number in range(len(wanted))]


async def test_gets_that_begin_together_are_sent_by_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the loop watches one descriptor for all of their connections, as long as there are any."""
    calls: list[int] = []
    send = SocketGroup.send

    def counted(self: SocketGroup, handed: Any, now_s: float) -> None:
        calls.append(len(handed))
        send(self, handed, now_s)

    monkeypatch.setattr(SocketGroup, "send", counted)
    wanted = [WantedRange("key", at * 1000, at * 1000 + 700, tag=at) for at in range(40)]
    async with FaultServer(CONTENT) as server:
        store = store_on(server)
        assert await read_all(store, wanted) == [CONTENT[one.start : one.end] for one in wanted]
        calls.clear()
        assert await read_all(store, wanted) == [CONTENT[one.start : one.end] for one in wanted]
        assert calls == [40]
        (pool,) = store._loop().gets._pools.values()  # type: ignore[attr-defined]
        selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
        watched = {key.fd for key in selector.get_map().values()}
        connections = {connection._transport._fd for connection in pool._open}
        group_fd = pool._group._sockets.fileno()
        assert group_fd in watched and not watched & connections
        await store.aclose()
        assert pool._group is None and group_fd not in {key.fd for key in selector.get_map().values()}


async def test_one_who_cancels_another_that_has_just_ended() -> None:
    """Two answers come together; whoever hears of the first gives the second one up."""
    wanted = [WantedRange("key", at * 1000, at * 1000 + 700, tag=at) for at in range(2)]
    async with FaultServer(CONTENT) as server:
        store = store_on(server)
        await read_all(store, wanted)  # two connections
        told: list[int] = []
        over = asyncio.Event()
        started: list[StartedRead] = []

        def ended(by: int, some: Sequence[StartedRead]) -> None:
            told.extend(one.tag for one in some)
            started[1 - by].cancel()
            over.set()

        for at in range(2):
            started += store.start_ranges([wanted[at]], lambda some, at=at: ended(at, some), lambda tag, late: None)
        await over.wait()
        gate = store._loop().gates["read"]
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(told) == 1
        assert (gate.in_flight, store.stats.in_flight) == (0, 0)
        await store.aclose()


async def test_an_error_of_one_who_is_told_keeps_it_from_nobody() -> None:
    wanted = [WantedRange("key", at * 1000, at * 1000 + 700, tag=at) for at in range(2)]
    failed = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failed.set_result(context["exception"]))
    async with FaultServer(CONTENT) as server:
        store = store_on(server)
        await read_all(store, wanted)
        over: asyncio.Queue[Sequence[StartedRead]] = asyncio.Queue()

        def ended(some: Sequence[StartedRead]) -> None:
            raise LookupError

        store.start_ranges(wanted[:1], ended, lambda tag, late: None)
        store.start_ranges(wanted[1:], over.put_nowait, lambda tag, late: None)
        assert [one.tag for one in await over.get()] == [1]
        assert type(await failed) is LookupError
        assert (store._loop().gates["read"].in_flight, store.stats.in_flight) == (0, 0)
        await store.aclose()


async def test_each_piece_of_a_body_is_a_sign_of_life() -> None:
    go_on = asyncio.Event()

    async def in_two_pieces(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
        data = answer_of(*LARGE)
        writer.write(data[:100_000])
        await go_on.wait()
        writer.write(data[100_000:200_000])
        await asyncio.Event().wait()

    async with FaultServer(CONTENT, [in_two_pieces]) as server:
        store = store_on(server)
        await store._loop().gets.site.make_ready("key")  # type: ignore[attr-defined]
        (started,) = store.start_ranges([WantedRange("key", *LARGE)], list.copy, lambda tag, late: None)
        assert isinstance(started, RangeGet)
        await turns_until(lambda: started.answer is not None)
        connection = started.connection
        assert connection is not None
        before_s = connection.heard_s()
        assert before_s > started.heard_s  # when it was sent
        go_on.set()
        await turns_until(lambda: connection.heard_s() > before_s)
        started.cancel()
        await store.aclose()
