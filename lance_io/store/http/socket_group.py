"""The plain sockets of a pool: the loop watches one descriptor for all of them, and one call reads what has come.

Most of what comes are usual answers to GETs of ranges, which a kernel reads to their end (`RangeSockets`). Sockets that
carry anything else are read by their transports, as they become ready. Linux has what it takes (epoll); elsewhere the
loop watches each socket.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from lance_io import _kernels
from lance_io.store.http.connection import COPIED_BYTES_MAX, SCRATCH_BYTES
from lance_io.store.http.range_get import settle

if TYPE_CHECKING:
    import asyncio
    import socket

    from lance_io.store.http.connection import Connection, HandedGet
    from lance_io.store.http.pool import OriginPool
    from lance_io.store.http.range_get import RangeGet
    from lance_io.store.http.tcp import TcpTransport

IS_THERE: Final = hasattr(_kernels, "RangeSockets")
_READY, _BEGUN, _COMPLETE, _UNUSUAL, _BROKEN = range(5)


class SocketGroup:
    """See the module's description; every method is called on the loop. It is there while it has sockets."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: OriginPool) -> None:
        self._loop = loop
        self._pool = pool
        self._sockets = _kernels.RangeSockets(COPIED_BYTES_MAX, SCRATCH_BYTES)
        self._transports: dict[int, TcpTransport] = {}
        loop.add_reader(self._sockets.fileno(), self._readable)

    def add(self, transport: TcpTransport, made: socket.socket) -> int:
        """Watch a socket; its number."""
        slot = self._sockets.add(made)
        self._transports[slot] = transport
        return slot

    def remove(self, slot: int) -> None:
        """Forget a socket; with the last one this ends."""
        del self._transports[slot]
        self._sockets.remove(slot)
        if not self._transports:
            self._loop.remove_reader(self._sockets.fileno())
            self._pool.group_ended()

    def send(self, handed: list[HandedGet], now_s: float) -> None:
        """Send requests, each over a connection of its own that is idle."""
        for slot, num_sent, code in self._sockets.send(handed, now_s):
            self._transports[slot].protocol.take_on(num_sent, OSError(code, os.strerror(code)) if code else None)

    def give_back(self, slot: int) -> tuple[int, bytes | None]:
        """The answer is read by the connection from now on: what has come of its body, see `RangeGet.came`."""
        return self._sockets.give_back(slot) or (0, None)

    def heard_s(self, slot: int) -> float:
        """When something of an answer has come last."""
        return self._sockets.heard_s(slot) or 0.0

    def _readable(self) -> None:
        """Something has come."""
        now_s = self._loop.time()
        free: list[Connection] = []
        over: list[RangeGet] = []
        for slot, what, size, etag, data in self._sockets.receive(now_s):
            transport = self._transports.get(slot)
            if transport is None:  # closed by what came before it in this list
                continue
            connection: Connection = transport.protocol
            if what == _COMPLETE:
                over.append(connection.completed(data, now_s))
                free.append(connection)
            elif what == _READY:
                transport.readable()
            elif what == _BEGUN:
                assert size is not None
                connection.has_begun(size, etag, now_s)
            elif what == _UNUSUAL:
                assert data is not None
                transport.read_on(data)
            else:
                transport.broken(None if size is None else OSError(size, os.strerror(size)))
        if over:
            self._pool.free_all([connection for connection in free if connection.is_open], now_s)
            settle(over)
