"""An HTTP proxy on 127.0.0.1 for clients that are told of it: every host it is asked for is one server.

So names that no resolver knows (buckets in host names) work in tests. Runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tests.listening import ThreadedProxy


class ForwardProxy(ThreadedProxy):
    """A context manager; `asked` are the first lines of its connections, `authorizations` what they came with."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.asked: list[str] = []
        self.authorizations: list[str] = []

    async def relay(
        self,
        client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> None:
        """Read the first head, then pass on whatever comes."""
        head = await client.readuntil(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        self.asked.append(lines[0])
        self.authorizations += [line.split(": ")[1] for line in lines if line.lower().startswith("proxy-auth")]
        if lines[0].startswith("CONNECT "):
            to_client.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            to_server.write(head)  # with the whole URL in its first line, which every server understands
        await asyncio.gather(pump(client, to_server), pump(server, to_client))


async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Pass on bytes until the source ends."""
    with suppress(ConnectionError):
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
    target.close()
