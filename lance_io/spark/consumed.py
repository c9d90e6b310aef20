"""Waits until the JVM has read the batches that a Python worker sent, or has closed the connection (Linux only).

When Spark has enough rows, it ends a task by closing the connection, without a message. A worker that prefetches rows
before it knows whether Spark needs them may read them in vain. Spark needs more rows if the JVM has read all sent bytes
and keeps the connection open. Both ends of the connection are on this machine, so Linux shows the number of bytes that
the JVM has not read yet:

    TCP    /proc/net/tcp, tcp6   sizes of the queues of both ends, which are found by their ports
    Unix   TIOCOUTQ              bytes sent and not read

The connection itself is not changed.
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

BUFFER_BYTES: Final = 64 << 10  # buffer of each end, unless `spark.buffer.size` is set
WAIT_S_MAX: Final = 60.0  # longest wait for the JVM to read the sent batches; after it, the worker goes on
_POLL_MS_MAX: Final = 50  # longest pause between two looks at the queues
_TCP_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED: Final = "01"  # state of an open connection in these tables

_spark_inodes: set[int] = set()  # inodes of the connections that `find_connection` saw; each worker process calls it


def buffer_bytes() -> int:
    """Bytes of the worker's output buffer, and of the JVM's input buffer; both have this size."""
    text = os.environ.get("SPARK_BUFFER_SIZE", "")
    return int(text) if text.isdecimal() else BUFFER_BYTES


def find_connection() -> None:
    """Find the worker's connection to Spark, and remember its inode. The worker calls it before it opens others."""
    global _spark_inodes
    tcp: set[int] = set()
    unix: set[int] = set()
    for inode, connection in _local_connections():
        with connection:
            (unix if connection.family == socket.AF_UNIX else tcp).add(inode)
    # Spark connects by TCP or by a Unix socket. If there is a TCP connection, Unix sockets belong to an event loop.
    _spark_inodes = tcp or unix


@contextmanager
def connection_to_spark() -> Iterator[socket.socket | None]:
    """A duplicate of the connection to Spark, open during the block.

    None if this process has closed the connection, or if `find_connection` saw none or several.
    """
    with ExitStack() as stack:
        is_found = len(_spark_inodes) == 1
        local = {inode: stack.enter_context(each) for inode, each in _local_connections()} if is_found else {}
        yield next((connection for inode, connection in local.items() if inode in _spark_inodes), None)


def wait_until_consumed() -> bool:
    """Wait until Spark has read the batches of this worker, for at most `WAIT_S_MAX`. Blocks the thread.

    Returns False if Spark has closed the connection, so that it needs no more rows; otherwise True. Outside of workers,
    and on systems that do not show the queues, returns True immediately.
    """
    if this_task() is None or len(_spark_inodes) != 1 or not hasattr(select, "POLLRDHUP"):
        return True
    with connection_to_spark() as connection:
        return connection is not None and _wait_until_read(connection)


def _wait_until_read(connection: socket.socket) -> bool:
    """Wait until the peer has read all bytes, for at most `WAIT_S_MAX`; returns whether the connection is open."""
    hangups = select.poll()
    hangups.register(connection, select.POLLRDHUP)
    ends_at_s, poll_ms, num_empty = monotonic() + WAIT_S_MAX, 1, 0
    while monotonic() < ends_at_s:
        if hangups.poll(poll_ms):
            return False
        num_bytes = _count_unread(connection)
        num_empty = 0 if num_bytes else num_empty + 1
        if num_bytes is None or num_empty == 2:  # one look may miss bytes that move between the queues; two do not
            return True
        poll_ms = min(2 * poll_ms, _POLL_MS_MAX)
    return True


def _count_unread(connection: socket.socket) -> int | None:
    """Number of bytes that the peer has not read yet; None if the system does not show it."""
    if connection.family == socket.AF_UNIX:
        import fcntl
        import termios

        return int.from_bytes(fcntl.ioctl(connection, termios.TIOCOUTQ, b"\0" * 4), "little")
    tables = []
    for table in _TCP_TABLES:
        with suppress(OSError):
            tables.append(table.read_text())
    return unread_tcp_bytes(tables, reader=connection.getpeername()[1], writer=connection.getsockname()[1])


def unread_tcp_bytes(tables: Iterable[str], *, reader: int, writer: int) -> int | None:
    """Number of bytes that the writer has sent and the reader has not read, on a connection within this machine.

    None if the tables do not show the reader's end.

    tables          texts of /proc/net/tcp and tcp6; the two ends may be in different tables
    reader, writer  ports of the two ends
    """
    num_bytes, has_reader = 0, False
    for line in (line for table in tables for line in table.splitlines()[1:]):
        _, local, remote, state, queues, *_ = line.split()
        ports = int(local.rpartition(":")[2], 16), int(remote.rpartition(":")[2], 16)
        sent, received = (int(text, 16) for text in queues.split(":"))
        if state != _ESTABLISHED:
            continue
        if ports == (reader, writer):
            num_bytes, has_reader = num_bytes + received, True
        elif ports == (writer, reader):
            num_bytes += sent
    return num_bytes if has_reader else None


def _local_connections() -> Iterator[tuple[int, socket.socket]]:
    """Connections of this process to processes of this machine: inode and duplicate. The caller closes duplicates."""
    seen = set()
    for name in os.listdir("/dev/fd") if os.path.isdir("/dev/fd") else ():
        with suppress(OSError):  # the descriptor of the listing itself is closed by now
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
