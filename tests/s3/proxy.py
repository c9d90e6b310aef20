"""HTTP proxies on 127.0.0.1 in threads of their own: they count requests and body bytes, do harm, end, hold back.

They understand as much of HTTP/1.1 as two S3 clients and MinIO use: bodies with a length, bodies in chunks, answers
without a body; connections stay open. Heads are passed on unchanged, `Host` included, so signatures hold.
"""

from __future__ import annotations

import asyncio
import random
import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

from tests.listening import ANSWER_S, ThreadedProxy
from tests.seeds import seed_of

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass
class Spent:
    """What passed: the request lines, and the bytes of the answers' bodies, listings apart (they echo the request).

    list_bytes   those of the listings
    connections  that were opened
    """

    lines: list[str] = field(default_factory=list)
    body_bytes: int = 0
    list_bytes: int = 0
    connections: int = 0

    @property
    def requests(self) -> int:
        return len(self.lines)

    def count(self, method: str) -> int:
        return sum(line.startswith(method + " ") for line in self.lines)


@dataclass(frozen=True)
class Message:
    """A request or an answer: the head with the empty line behind it, and the body as it was sent."""

    head: bytes
    body: bytes

    @property
    def line(self) -> str:
        """The first line."""
        return self.head.split(b"\r\n", 1)[0].decode()

    @property
    def method(self) -> str:
        """Of a request."""
        return self.line.split(" ", 1)[0]

    @property
    def status(self) -> str:
        """Of an answer."""
        return self.line.split(" ", 2)[1]


class HttpProxy(ThreadedProxy):
    """Passes requests on to the server whose URL is `target`, and its answers back, each of them whole."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        super().__init__(str(parts.hostname), parts.port or 80)

    async def relay(
        self,
        client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> None:
        """One request after the other."""
        try:
            while await self.exchange(await _request(client), to_client, server, to_server):
                await to_client.drain()
        finally:
            to_client.transport.abort()  # a reset, where something is left to be read

    async def exchange(
        self,
        request: Message,
        to_client: asyncio.StreamWriter,
        server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> bool:
        """One request and its answer; whether the connection goes on."""
        answer = await self.answer(request, server, to_server)
        to_client.write(answer.head + answer.body)
        return True

    async def answer(self, request: Message, server: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> Message:
        """What the server answers."""
        to_server.write(request.head + request.body)
        await to_server.drain()
        return await _answer(server, request.method)


class CountingProxy(HttpProxy):
    """Counts what passes; `take()` gives the counts since the last call."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._spent = Spent()

    def take(self) -> Spent:
        """What passed since the last call; every answer that its client has read whole is in it."""

        async def swap() -> Spent:
            spent, self._spent = self._spent, Spent()
            return spent

        return asyncio.run_coroutine_threadsafe(swap(), self._loop).result(ANSWER_S)

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Count the connection."""
        self._spent.connections += 1
        await super().serve(client, to_client)

    async def answer(self, request: Message, server: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> Message:
        """Count on the way."""
        answer = await super().answer(request, server, to_server)
        self._spent.lines.append(request.line)
        if re.search(r"[?&](list-type=|comp=list&)", request.line):
            self._spent.list_bytes += len(answer.body)
        else:
            self._spent.body_bytes += len(answer.body)
        return answer


Harm = Literal["refused", "lost", "cut", "late"]
HARMS: Final[tuple[Harm, ...]] = ("refused", "lost", "cut", "late")
DELAY_S: Final = 0.05


class FaultyProxy(HttpProxy):
    """Does harm to some of the requests, by a seeded chance.

    refused  the connection is reset before the server hears of the request
    lost     after the server has answered, before the client hears of it
    cut      in the middle of the answer
    late     the answer comes after a pause

    rate   share of all requests
    harms  of these kinds
    done   how often each kind of harm was done
    """

    def __init__(self, target: str, seed: int, *, rate: float = 0.2, harms: Sequence[Harm] = HARMS) -> None:
        super().__init__(target)
        self._dice = random.Random(seed_of(seed))
        self._rate, self._harms = rate, harms
        self.done: Counter[Harm | None] = Counter()

    def _harm(self) -> Harm | None:
        kind = self._dice.choice(self._harms) if self._dice.random() < self._rate else None
        self.done[kind] += 1
        return kind

    async def exchange(
        self,
        request: Message,
        to_client: asyncio.StreamWriter,
        server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> bool:
        """One request and what becomes of it."""
        harm = self._harm()
        if harm == "refused":
            return False
        answer = await self.answer(request, server, to_server)
        if harm == "lost":
            return False
        if harm == "late":
            await asyncio.sleep(DELAY_S)
        data = answer.head + answer.body
        to_client.write(data[: len(data) // 2] if harm == "cut" else data)
        await to_client.drain()
        return harm != "cut"


class EndingProxy(HttpProxy):
    """Lets so many requests that write pass, the last one without its answer, and nothing after it.

    To the server that is a client whose process has ended there.

    writes  that the server has been sent since the last call of `let`
    """

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._writes_max: int | None = None
        self.writes = 0

    @property
    def is_over(self) -> bool:
        """Whether the client has ended."""
        return self._writes_max is not None and self.writes >= self._writes_max

    def let(self, writes_max: int | None) -> None:
        """Begin anew; None: everything passes."""

        async def begin() -> None:
            self._writes_max, self.writes = writes_max, 0

        asyncio.run_coroutine_threadsafe(begin(), self._loop).result(ANSWER_S)

    async def exchange(
        self,
        request: Message,
        to_client: asyncio.StreamWriter,
        server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> bool:
        """One request, if it is to pass."""
        if self.is_over:
            return False
        if request.method in ("PUT", "POST", "DELETE"):
            self.writes += 1
        goes_on = not self.is_over
        answer = await self.answer(request, server, to_server)
        if goes_on:
            to_client.write(answer.head + answer.body)
        return goes_on


class HoldingProxy(HttpProxy):
    """Holds answers back while it is told to.

    held  set as soon as one is held back
    """

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._open = asyncio.Event()
        self._open.set()
        self.held = threading.Event()

    def hold(self) -> None:
        """Hold all that come from now on."""
        self.held.clear()
        self._loop.call_soon_threadsafe(self._open.clear)

    def let_go(self) -> None:
        """Send them."""
        self._loop.call_soon_threadsafe(self._open.set)

    async def answer(self, request: Message, server: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> Message:
        """What the server answers, in time."""
        answer = await super().answer(request, server, to_server)
        if not self._open.is_set():
            self.held.set()
            await self._open.wait()
        return answer


async def _request(source: asyncio.StreamReader) -> Message:
    head = await source.readuntil(b"\r\n\r\n")
    has_body = head.split(b" ", 1)[0] in (b"PUT", b"POST")
    return Message(head, await _body(source, head) if has_body else b"")


async def _answer(source: asyncio.StreamReader, method: str) -> Message:
    head = await source.readuntil(b"\r\n\r\n")
    has_body = method != "HEAD" and head.split(b" ", 2)[1] not in (b"204", b"304")
    return Message(head, await _body(source, head) if has_body else b"")


async def _body(source: asyncio.StreamReader, head: bytes) -> bytes:
    headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
    if headers.get(b"transfer-encoding") == b"chunked":
        parts = []
        while True:
            line = await source.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            parts += [line, await source.readexactly(size + 2)]
            if size == 0:
                return b"".join(parts)
    return await source.readexactly(int(headers.get(b"content-length", b"0")))
