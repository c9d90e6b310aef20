"""Plain TCP on a loop that can watch sockets: connects and reads without a task, future or timeout per connection.

A take without open connections opens hundreds of them; asyncio needs 0.15 ms for each, most of it bookkeeping.
Encrypted connections use asyncio's own transports.
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
    """A new non-blocking socket for a numeric address."""
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


class Dial:
    """A connect in progress, to one address.

    limit_s  timeout
    done     called in a later turn of the loop with this `Dial` and the socket or an `OSError`; not after `cancel`
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
            self._socket = sock = tcp_socket(address)
            code = sock.connect_ex((address, port))
        except OSError as error:
            loop.call_soon(self._end, error)
            return
        if code in _UNDER_WAY:
            loop.add_writer(sock.fileno(), self._decide)  # a number: asyncio would format a socket object, slowly
            self._limit = loop.call_later(limit_s, self._end, TimeoutError())
        else:
            loop.call_soon(self._decide)

    def cancel(self) -> None:
        """Close the socket; `done` is not called."""
        self._done = None
        self._end(None)

    def _decide(self) -> None:
        if self._socket is not None:
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            self._end(OSError(code, f"{os.strerror(code)} ({self.address})") if code else None)

    def _end(self, error: OSError | None) -> None:
        sock, self._socket = self._socket, None
        done, self._done = self._done, None
        if sock is not None:
            if self._limit is not None:
                self._limit.cancel()
                self._loop.remove_writer(sock.fileno())
            if error is not None or done is None:
                sock.close()
        if done is not None:
            outcome = error or sock
            assert outcome is not None
            done(self, outcome)


class TcpTransport:
    """A connected socket and its protocol: the part of `asyncio.Transport` that a `Connection` needs.

    An error of the socket or the protocol closes it; `connection_lost` follows in a later turn of the loop.

    group  watches the socket for reading; None: the loop watches it
    """

    __slots__ = ("_fd", "_is_closing", "_loop", "_slot", "_socket", "_unsent", "group", "protocol")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        protocol: asyncio.BufferedProtocol,
        group: SocketGroup | None = None,
    ) -> None:
        self._loop = loop
        self._socket, self._fd = sock, sock.fileno()
        self.protocol: Any = protocol
        self.group = group
        self._unsent = bytearray()
        self._is_closing = False
        self._slot = -1
        if group is None:
            loop.add_reader(self._fd, self.readable)
        else:
            self._slot = group.add(self, sock)
        protocol.connection_made(self)  # type: ignore[arg-type]  # `Connection` uses no other methods

    def __del__(self) -> None:
        self._socket.close()  # the loop may be closed already

    def write(self, data: bytes) -> None:
        """Send now, or as soon as the socket has room."""
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
        """Queue the rest of `data`, whose first `num_sent` bytes are sent."""
        if num_sent == len(data):
            return
        if not self._unsent:
            self._loop.add_writer(self._fd, self._writable)
        self._unsent += memoryview(data)[num_sent:]

    @property
    def slot(self) -> int:
        """The socket's slot in the group, for sending a request; -1 without a group or with unsent bytes."""
        return -1 if self._unsent else self._slot

    def is_closing(self) -> bool:
        """Whether it is closed or closing."""
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
        """Read once: the socket has bytes or has reached its end."""
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

    def resume_read(self, data: bytes) -> None:
        """Pass bytes to the protocol that the group has already read."""
        try:
            self.protocol.resume_read(data)
        except Exception as error:
            self._lose(error)

    def broken(self, error: OSError | None) -> None:
        """The connection has ended, with or without an error."""
        self.protocol.leave_kernel()
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
