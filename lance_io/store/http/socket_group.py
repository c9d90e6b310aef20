"""Plain sockets of a pool: the loop watches one descriptor for all of them, and one call reads all ready sockets.

Most answers belong to GETs of ranges and have the usual form; a kernel reads those to their end (`RangeSockets`).
Transports read all other sockets when they become ready. This needs epoll (Linux); elsewhere the loop watches each
socket.
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

    from lance_io.store.http.connection import Connection, KernelGet
    from lance_io.store.http.pool import OriginPool
    from lance_io.store.http.range_get import RangeGet
    from lance_io.store.http.tcp import TcpTransport

IS_SUPPORTED: Final = hasattr(_kernels, "RangeSockets")
_READY, _BEGUN, _COMPLETE, _UNUSUAL, _BROKEN = range(5)


class SocketGroup:
    """See the module's docstring; call every method on the loop. Exists while it has sockets."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: OriginPool) -> None:
        self._loop = loop
        self._pool = pool
        self._sockets = _kernels.RangeSockets(COPIED_BYTES_MAX, SCRATCH_BYTES)
        self._transports: dict[int, TcpTransport] = {}
        loop.add_reader(self._sockets.fileno(), self._readable)

    def add(self, transport: TcpTransport, sock: socket.socket) -> int:
        """Watch a socket; returns its slot."""
        slot = self._sockets.add(sock)
        self._transports[slot] = transport
        return slot

    def remove(self, slot: int) -> None:
        """Stop watching a socket; removing the last one ends the group."""
        del self._transports[slot]
        self._sockets.remove(slot)
        if not self._transports:
            self._loop.remove_reader(self._sockets.fileno())
            self._pool.on_group_empty()

    def send(self, handed: list[KernelGet], now_s: float) -> None:
        """Send each request over its own idle connection."""
        for slot, num_sent, code in self._sockets.send(handed, now_s):
            self._transports[slot].protocol.send_rest(num_sent, OSError(code, os.strerror(code)) if code else None)

    def give_back(self, slot: int) -> tuple[int, bytes | None]:
        """Hand an answer back to its connection; returns the body so far, see `RangeGet.adopt_received`."""
        return self._sockets.give_back(slot) or (0, None)

    def heard_s(self, slot: int) -> float:
        """When bytes of an answer last arrived."""
        return self._sockets.heard_s(slot) or 0.0

    def _readable(self) -> None:
        now_s = self._loop.time()
        free: list[Connection] = []
        done: list[RangeGet] = []
        for slot, event, size, etag, data in self._sockets.receive(now_s):
            transport = self._transports.get(slot)
            if transport is None:  # closed by an earlier event of this list
                continue
            connection: Connection = transport.protocol
            if event == _COMPLETE:
                done.append(connection.on_kernel_done(data, now_s))
                free.append(connection)
            elif event == _READY:
                transport.readable()
            elif event == _BEGUN:
                assert size is not None
                connection.on_kernel_head(size, etag, now_s)
            elif event == _UNUSUAL:
                assert data is not None
                transport.resume_read(data)
            else:
                transport.broken(None if size is None else OSError(size, os.strerror(size)))
        if done:
            self._pool.free_all([connection for connection in free if connection.is_open], now_s)
            settle(done)
