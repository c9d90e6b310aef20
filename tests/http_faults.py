"""An HTTP server on 127.0.0.1 that answers ranged GETs as told: right, half, too long, not at all.

async with FaultServer(content, [broken_after(100), serve]) as server:
    ...                        # the first request breaks off after 100 bytes, all later ones are served
    assert server.asked == ["bytes=0-999", "bytes=100-999"]
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tests.listening import Listener

ETAG = '"v1"'


@dataclass
class Asked:
    """One request: its line, its headers, names in lower case, and its body."""

    line: str
    headers: dict[str, str]
    body: bytes = b""

    def span(self, size_bytes: int) -> tuple[int, int] | None:
        """The range asked for, within the object; None without a range header."""
        text = self.headers.get("range") or self.headers.get("x-ms-range")
        if text is None:
            return None
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", text)
        assert match is not None
        if not match[1]:
            return max(0, size_bytes - int(match[2])), size_bytes
        return int(match[1]), min(int(match[2]) + 1, size_bytes)


async def read_asked(client: asyncio.StreamReader, begun: bytes = b"") -> Asked:
    """The next request of a connection; `begun` is what was read of it before."""
    line, *rest = (begun + await client.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    headers = dict(entry.split(": ", 1) for entry in rest)
    asked = Asked(line, {name.lower(): value for name, value in headers.items()})
    asked.body = await client.readexactly(int(asked.headers.get("content-length", "0")))
    return asked


Answer = Callable[["FaultServer", Asked, asyncio.StreamWriter], Awaitable[None]]


def head(status: int, headers: dict[str, Any]) -> bytes:
    """The head of an answer."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Whatever\r\n{lines}\r\n".encode()


def _part(server: FaultServer, asked: Asked) -> tuple[bytes, dict[str, Any], int]:
    size = len(server.content)
    span = asked.span(size)
    if span is None:
        return server.content, {"ETag": server.etag, "Content-Length": size}, 200
    start, end = span
    body = server.content[start:end]
    return (
        body,
        {"ETag": server.etag, "Content-Length": len(body), "Content-Range": f"bytes {start}-{end - 1}/{size}"},
        206,
    )


async def serve(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """The right answer."""
    body, headers, code = _part(server, asked)
    writer.write(head(code, headers) + (b"" if asked.line.startswith("HEAD ") else body))


def broken_after(num_bytes: int) -> Answer:
    """The right head, so many bytes of the body, then the connection ends."""

    async def answer(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
        body, headers, code = _part(server, asked)
        writer.write(head(code, headers) + body[:num_bytes])
        await writer.drain()
        writer.close()

    return answer


async def hang_up(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """No answer at all."""
    writer.close()


async def stall(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Silence."""
    await server.closing.wait()


def after(event: asyncio.Event) -> Answer:
    """The right answer, once something has happened."""

    async def answer(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
        await event.wait()
        await serve(server, asked, writer)

    return answer


async def whole(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """The whole object, whatever was asked."""
    writer.write(head(200, {"ETag": server.etag, "Content-Length": len(server.content)}) + server.content)


async def too_long(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """The right range in the head, and a body that is ten bytes longer and says so."""
    body, headers, code = _part(server, asked)
    writer.write(head(code, {**headers, "Content-Length": len(body) + 10}) + body + b"x" * 10)


async def too_long_in_chunks(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """The same without announcing a length."""
    body, headers, code = _part(server, asked)
    del headers["Content-Length"]
    body += b"x" * 10
    chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    writer.write(head(code, {**headers, "Transfer-Encoding": "chunked"}) + chunk)


def in_chunks(chunk_bytes: int, broken_after: int | None = None) -> Answer:
    """The right answer without a length, in chunks; or only so many bytes of it, then the connection ends."""

    async def answer(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
        body, headers, code = _part(server, asked)
        del headers["Content-Length"]
        sent = body[:broken_after]
        pieces = [sent[at : at + chunk_bytes] for at in range(0, len(sent), chunk_bytes)]
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
        writer.write(head(code, {**headers, "Transfer-Encoding": "chunked"}) + chunks)
        if broken_after is None:
            writer.write(b"0\r\n\r\n")
        else:
            await writer.drain()
            writer.close()

    return answer


async def to_the_end(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """The right answer without a length, ended by closing the connection."""
    body, headers, code = _part(server, asked)
    del headers["Content-Length"]
    writer.write(head(code, {**headers, "Connection": "close"}) + body)
    await writer.drain()
    writer.close()


def content_range(text: str) -> Answer:
    """A partial answer that claims to be another part."""

    async def answer(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
        body, headers, _ = _part(server, asked)
        writer.write(head(206, {**headers, "Content-Range": text}) + body)

    return answer


def status(code: int, name: str = "", message: str = "", **headers: str) -> Answer:
    """A refusal in S3's manner."""

    async def answer(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
        body = f"<?xml version='1.0'?><Error><Code>{name}</Code><Message>{message}</Message></Error>".encode()
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        if asked.line.startswith("HEAD "):
            body = b""
        writer.write(head(code, {"Content-Length": len(body), **named}) + body)

    return answer


class FaultServer(Listener):
    """Answers the n-th request by the n-th answer of the script, and `serve` afterwards."""

    def __init__(self, content: bytes, script: Sequence[Answer] = (), etag: str = ETAG) -> None:
        super().__init__()
        self.content, self.script, self.etag = content, script, etag
        self.requests: list[Asked] = []
        self.arrived = asyncio.Event()
        self.closing = asyncio.Event()

    @property
    def asked(self) -> list[str | None]:
        """The range headers in order."""
        return [request.headers.get("range") for request in self.requests]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closing.set()
        await self.stop()

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """One request after the other."""
        while not to_client.is_closing():
            asked = await read_asked(client)
            number = len(self.requests)
            self.requests.append(asked)
            self.arrived.set()
            await (self.script[number] if number < len(self.script) else serve)(self, asked, to_client)
            await to_client.drain()
