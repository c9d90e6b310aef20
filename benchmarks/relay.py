"""A relay in front of an HTTP server that counts requests and bytes, and adds latency; run in a process of its own.

    python -m benchmarks.relay HOST PORT LATENCY_S

It prints its own port, then answers every line of standard input with what was counted since the last one, as JSON:
`requests` (heads sent by clients), `rounds` (requests that were sent while no other one waited for its answer), `bytes`
(sent by the server, heads included), `connections` (opened). Neither contender counts for itself here.

Rounds are right where the latency is long beside what a client needs to send all that depends on nothing: then these
requests overlap, and the next round begins when all have been answered.

Bytes pass unchanged, so signatures hold. Latency is added before each request is passed on, which is what a client
without pipelining sees as a round trip.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass

PIECE_BYTES = 1 << 18
HEAD_ENDS = b" HTTP/1.1\r\n"  # of the request line; the bodies that benchmarks send never hold it


@dataclass
class Counts:
    """Since the last question."""

    requests: int = 0
    rounds: int = 0
    bytes: int = 0
    connections: int = 0


class Relay:
    """Passes connections on to one server, and counts."""

    def __init__(self, host: str, port: int, latency_s: float) -> None:
        self.host, self.port, self.latency_s = host, port, latency_s
        self.counts = Counts()
        self._waiting: set[asyncio.StreamWriter] = set()  # connections, by the side of the server, that owe an answer

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of a client until either side ends it."""
        self.counts.connections += 1
        try:
            up_reader, up_writer = await asyncio.open_connection(self.host, self.port, limit=PIECE_BYTES)
        except OSError:
            writer.close()
            return
        ways = [
            asyncio.create_task(self._requests(reader, up_writer)),
            asyncio.create_task(self._answers(up_reader, writer, up_writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self._waiting.discard(up_writer)
            writer.close()
            up_writer.close()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        before = b""
        while piece := await reader.read(PIECE_BYTES):
            requests = (before + piece).count(HEAD_ENDS)
            self.counts.requests += requests
            if requests:
                self.counts.rounds += not self._waiting
                self._waiting.add(writer)
            before = piece[-(len(HEAD_ENDS) - 1) :]
            if requests and self.latency_s:
                await asyncio.sleep(self.latency_s)
            writer.write(piece)
            await writer.drain()

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, up_writer: asyncio.StreamWriter
    ) -> None:
        while piece := await reader.read(PIECE_BYTES):
            if not piece.startswith(b"HTTP/1.1 100"):  # which only says that the body may come
                self._waiting.discard(up_writer)
            self.counts.bytes += len(piece)
            writer.write(piece)
            await writer.drain()

    def take_counts(self) -> Counts:
        """What was counted, and begin again."""
        counts, self.counts = self.counts, Counts()
        return counts


async def serve(host: str, port: int, latency_s: float) -> None:
    """Relay until standard input ends."""
    relay = Relay(host, port, latency_s)
    server = await asyncio.start_server(relay.connected, "127.0.0.1", 0, limit=PIECE_BYTES)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(vars(relay.take_counts())), flush=True)
    os._exit(0)  # connections may still be open: they end with the process, without a word


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
