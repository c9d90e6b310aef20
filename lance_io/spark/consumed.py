"""Detects whether the JVM has consumed the batches that a worker sent, and so waits for more (Linux only).

Spark ends a task that has enough rows by closing the connection, without a message. Until then a worker cannot know
whether Spark is still busy or has enough rows. But both ends of the connection are on this machine, so the kernel shows
the bytes that the JVM has not read yet: none are left when it waits for more. The connection itself is not changed.

    TCP    /proc/net/tcp, tcp6   the queues of both ends, found by their ports
    Unix   TIOCOUTQ              bytes sent and not read
"""

from __future__ import annotations

import os
import select
import socket
import stat
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from lance_io.spark.task_context import this_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BUFFER_BYTES: Final = 64 << 10  # buffer of both ends, unless `spark.buffer.size` says otherwise
TAKEN_WITHIN_S: Final = 60.0  # a consumer that takes longer for some rows does not need prefetching
_WAIT_MS_MAX: Final = 50
_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED: Final = "01"

_inodes: set[int] = set()  # of the connections that `find_connection` saw; each forked process calls it again


def buffer_bytes() -> int:
    """Size of the buffers: bytes that may stay in the worker's, and that the JVM may read ahead into its own."""
    text = os.environ.get("SPARK_BUFFER_SIZE", "")
    return int(text) if text.isdecimal() else BUFFER_BYTES


def find_connection() -> None:
    """Find the worker's connection to Spark. Call it before the worker opens other connections."""
    global _inodes
    tcp: set[int] = set()
    unix: set[int] = set()
    for inode, connection in _connections():
        with connection:
            (unix if connection.family == socket.AF_UNIX else tcp).add(inode)  # may also be an event loop's own socket
    _inodes = tcp or unix


@contextmanager
def connection_to_spark() -> Iterator[socket.socket | None]:
    """A duplicate of the connection, open during the block; None if it was not found, or has been closed."""
    with ExitStack() as opened:
        local = {inode: opened.enter_context(each) for inode, each in _connections()} if len(_inodes) == 1 else {}
        yield next((connection for inode, connection in local.items() if inode in _inodes), None)


def wants_more() -> bool:
    """Wait until Spark has consumed this worker's batches, at most `TAKEN_WITHIN_S`; returns False if it has closed.

    Returns True immediately outside of workers, and on systems that do not show the queues.
    """
    if this_task() is None or len(_inodes) != 1 or not hasattr(select, "POLLRDHUP"):
        return True
    with connection_to_spark() as connection:
        return connection is not None and _is_taken(connection)


def _is_taken(connection: socket.socket) -> bool:
    closed = select.poll()
    closed.register(connection, select.POLLRDHUP)
    ends_at, wait_ms, num_empty = monotonic() + TAKEN_WITHIN_S, 1, 0
    while monotonic() < ends_at:
        if closed.poll(wait_ms):
            return False
        waiting = _waiting_bytes(connection)
        num_empty = 0 if waiting else num_empty + 1
        if waiting is None or num_empty == 2:  # bytes may be between the two queues at one check, not at two
            return True
        wait_ms = min(2 * wait_ms, _WAIT_MS_MAX)
    return True


def _waiting_bytes(connection: socket.socket) -> int | None:
    if connection.family == socket.AF_UNIX:
        import fcntl
        import termios

        return int.from_bytes(fcntl.ioctl(connection, termios.TIOCOUTQ, b"\0" * 4), "little")
    tables = []
    for table in _TABLES:
        with suppress(OSError):
            tables.append(table.read_text())
    return waiting_bytes(tables, connection.getpeername()[1], connection.getsockname()[1])


def waiting_bytes(tables: Iterable[str], local: int, remote: int) -> int | None:
    """Bytes in flight to one end of a local connection, or received and not read; None if the end does not exist.

    tables         texts of /proc/net/tcp and tcp6; the ends may be in different tables
    local, remote  ports of that end and of the other end
    """
    num_bytes, is_there = 0, False
    for line in (line for table in tables for line in table.splitlines()[1:]):
        _, here, there, state, queues, *_ = line.split()
        ports = int(here.rpartition(":")[2], 16), int(there.rpartition(":")[2], 16)
        sent, received = (int(text, 16) for text in queues.split(":"))
        if state != _ESTABLISHED:
            continue
        if ports == (local, remote):
            num_bytes, is_there = num_bytes + received, True
        elif ports == (remote, local):
            num_bytes += sent
    return num_bytes if is_there else None


def _connections() -> Iterator[tuple[int, socket.socket]]:
    """This process's connections to processes of this machine: the inode of each, and a duplicate."""
    seen = set()
    for name in os.listdir("/dev/fd") if os.path.isdir("/dev/fd") else ():
        with suppress(OSError):  # the listing's own descriptor is closed, and not every socket is a connection
            status = os.fstat(int(name))
            if not stat.S_ISSOCK(status.st_mode) or status.st_ino in seen:
                continue
            connection = socket.socket(fileno=os.dup(int(name)))
            if _is_local(connection):
                seen.add(status.st_ino)
                yield status.st_ino, connection
            else:
                connection.close()


def _is_local(connection: socket.socket) -> bool:
    """Whether the peer is a process of this machine."""
    try:
        peer = connection.getpeername()
    except OSError:  # not connected
        return False
    if connection.family in (socket.AF_INET, socket.AF_INET6):
        return ip_address(peer[0]).is_loopback
    return connection.family == socket.AF_UNIX
