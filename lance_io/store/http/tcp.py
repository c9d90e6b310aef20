"""Plain TCP on a loop that can watch sockets: connections are made and read without a task, future or timeout for each.

A take that finds no connections opens hundreds of them; asyncio's ways cost 0.15 ms for each, most of it bookkeeping.
What is encrypted goes through asyncio's own transports.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from lance_io.store.http.socket_group import SocketGroup

_UNDER_WAY: Final = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR, errno.EALREADY})


def tcp_socket(address: str) -> socket.socket:
    """A socket that is about to be connected to an address, as it is written in numbers."""
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        made.close()
        raise
    return made


class Dial:
    """A connection that is being made, to one address.

    limit_s  how long that may take
    done     called in a later turn of the loop with this, and the socket or an `OSError`; not after `cancel`
    """

    __slots__ = ("_done", "_limit", "_loop", "_socket", "address")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address: str,
        port: int,
        limit_s: float,
        done: Callable[[Dial, socket.socket | OSError], None],
    ) -> None:
        self.address = address
        self._loop = loop
        self._done: Callable[[Dial, socket.socket | OSError], None] | None = done
        self._socket: socket.socket | None = None
        self._limit: asyncio.TimerHandle | None = None
        try:
            self._socket = made = tcp_socket(address)
            code = made.connect_ex((address, port))
        except OSError as error:
            loop.call_soon(self._end, error)
            return
        if code in _UNDER_WAY:
            loop.add_writer(made.fileno(), self._decide)  # asyncio describes what it does not know, a socket at length
            self._limit = loop.call_later(limit_s, self._end, TimeoutError())
        else:
            loop.call_soon(self._decide)

    def cancel(self) -> None:
        """Nobody wants it any more."""
        self._done = None
        self._end(None)

    def _decide(self) -> None:
        if self._socket is not None:
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            self._end(OSError(code, f"{os.strerror(code)} ({self.address})") if code else None)

    def _end(self, error: OSError | None) -> None:
        made, self._socket = self._socket, None
        done, self._done = self._done, None
        if made is not None:
            if self._limit is not None:
                self._limit.cancel()
                self._loop.remove_writer(made.fileno())
            if error is not None or done is None:
                made.close()
        if done is not None:
            outcome = error or made
            assert outcome is not None
            done(self, outcome)


class TcpTransport:
    """A connected socket and its protocol: as much of an `asyncio.Transport` as a `Connection` needs.

    Errors of the socket, and of the protocol, end it: `connection_lost` is called in a later turn of the loop.

    group  watches the socket for reading; without one the loop does
    """

    __slots__ = ("_fd", "_is_closing", "_loop", "_slot", "_socket", "_unsent", "group", "protocol")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        made: socket.socket,
        protocol: asyncio.BufferedProtocol,
        group: SocketGroup | None = None,
    ) -> None:
        self._loop = loop
        self._socket, self._fd = made, made.fileno()
        self.protocol: Any = protocol
        self.group = group
        self._unsent = bytearray()
        self._is_closing = False
        self._slot = -1
        if group is None:
            loop.add_reader(self._fd, self.readable)
        else:
            self._slot = group.add(self, made)
        protocol.connection_made(self)  # type: ignore[arg-type]  # it asks for no more than this has

    def __del__(self) -> None:
        self._socket.close()  # of a loop that was closed meanwhile

    def write(self, data: bytes) -> None:
        """Send, now or as soon as there is room."""
        if self._is_closing:
            return
        sent = 0
        if not self._unsent:
            try:
                sent = self._socket.send(data)
            except (BlockingIOError, InterruptedError):
                pass
            except OSError as error:
                self._lose(error)
                return
        self.wrote(data, sent)

    def wrote(self, data: bytes, num_sent: int) -> None:
        """So much of it is sent; the rest is as soon as there is room."""
        if num_sent == len(data):
            return
        if not self._unsent:
            self._loop.add_writer(self._fd, self._writable)
        self._unsent += memoryview(data)[num_sent:]

    @property
    def slot(self) -> int:
        """The number of its socket in the group, by which a request can be sent; -1 without one, and as long as not all
        is sent that was written before.
        """
        return -1 if self._unsent else self._slot

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._is_closing

    def abort(self) -> None:
        """Close at once."""
        self._lose(None)

    def _writable(self) -> None:
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
            return
        if not self._unsent:
            self._loop.remove_writer(self._fd)

    def readable(self) -> None:
        """Something has come, or the end."""
        protocol = self.protocol
        try:
            num_bytes = self._socket.recv_into(protocol.get_buffer(-1))
            if num_bytes:
                protocol.buffer_updated(num_bytes)
                return
            protocol.eof_received()
        except (BlockingIOError, InterruptedError):
            return
        except Exception as error:
            self._lose(error)
            return
        self._lose(None)

    def read_on(self, data: bytes) -> None:
        """This has been read already."""
        try:
            self.protocol.read_on(data)
        except Exception as error:
            self._lose(error)

    def broken(self, error: OSError | None) -> None:
        """The connection has ended, with an error or without."""
        self.protocol.take_back()
        self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if self.group is None:
            self._loop.remove_reader(self._fd)
        else:
            self.group.remove(self._slot)
        if self._unsent:
            self._unsent.clear()
            self._loop.remove_writer(self._fd)
        self._loop.call_soon(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        protocol, self.protocol, self.group = self.protocol, None, None
        try:
            protocol.connection_lost(error)
        finally:
            self._socket.close()
