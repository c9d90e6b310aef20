"""Whether the virtual machine has taken what a worker has sent it, and so wants more; by what the system says (Linux).

Spark ends a task that has enough rows without a word: it closes the connection. Until then nobody says whether it is
still busy with what was sent, or has enough. But both ends of the connection are on this machine, which tells how many
bytes wait at the other end: none are left when it wants more. The connection is looked at, and left as it is.

    TCP    /proc/net/tcp, tcp6   the queues of both ends, found by the ports
    Unix   TIOCOUTQ              what was sent and not read
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

BUFFER_BYTES: Final = 64 << 10  # what both ends read and write through, unless `spark.buffer.size` says otherwise
TAKEN_WITHIN_S: Final = 60.0  # a consumer that is slower with some rows loses nothing by what was not read ahead
_WAIT_MS_MAX: Final = 50
_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED: Final = "01"

_found: set[int] = set()  # inodes of what `find_connection` has found, in this process: forked ones look anew


def buffer_bytes() -> int:
    """How much of what a worker has written may stay with it, and how much the other end may take unasked."""
    text = os.environ.get("SPARK_BUFFER_SIZE", "")
    return int(text) if text.isdecimal() else BUFFER_BYTES


def find_connection() -> None:
    """Find the connection of a worker that has no other yet."""
    global _found
    tcp: set[int] = set()
    unix: set[int] = set()
    for inode, one in _connections():
        with one:
            (unix if one.family == socket.AF_UNIX else tcp).add(inode)  # Unix: or an event loop's own
    _found = tcp or unix


@contextmanager
def connection_to_spark() -> Iterator[socket.socket | None]:
    """A duplicate of the connection, for the time of the block; None where it was not found, or has been closed."""
    with ExitStack() as opened:
        near = {inode: opened.enter_context(one) for inode, one in _connections()} if len(_found) == 1 else {}
        yield next((one for inode, one in near.items() if inode in _found), None)


def wants_more() -> bool:
    """Wait until Spark has taken what this worker has sent, or has closed the connection; False in the latter case.

    At once True outside of workers, and where nobody can tell.
    """
    if this_task() is None or len(_found) != 1 or not hasattr(select, "POLLRDHUP"):
        return True
    with connection_to_spark() as connection:
        return connection is not None and _is_taken(connection)


def _is_taken(connection: socket.socket) -> bool:
    closed = select.poll()
    closed.register(connection, select.POLLRDHUP)
    ends_at, wait_ms, nothing = monotonic() + TAKEN_WITHIN_S, 1, 0
    while monotonic() < ends_at:
        if closed.poll(wait_ms):
            return False
        waiting = _waiting_bytes(connection)
        nothing = 0 if waiting else nothing + 1
        if waiting is None or nothing == 2:  # a first time, bytes may have been between both ends
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
    """Bytes on their way to one end of a connection of this machine, or there and not read; None for no such end.

    tables         texts of /proc/net/tcp and tcp6; the ends may be in different ones
    local, remote  ports of that end and of the other one
    """
    found, is_there = 0, False
    for line in (line for table in tables for line in table.splitlines()[1:]):
        _, here, there, state, queues, *_ = line.split()
        ports = int(here.rpartition(":")[2], 16), int(there.rpartition(":")[2], 16)
        sent, received = (int(text, 16) for text in queues.split(":"))
        if state != _ESTABLISHED:
            continue
        if ports == (local, remote):
            found, is_there = found + received, True
        elif ports == (remote, local):
            found += sent
    return found if is_there else None


def _connections() -> Iterator[tuple[int, socket.socket]]:
    """This process's connections to others of this machine: the inode of each, and a duplicate."""
    seen = set()
    for name in os.listdir("/dev/fd") if os.path.isdir("/dev/fd") else ():
        with suppress(OSError):  # the listing's own descriptor is closed, and not every socket is a connection
            status = os.fstat(int(name))
            if not stat.S_ISSOCK(status.st_mode) or status.st_ino in seen:
                continue
            one = socket.socket(fileno=os.dup(int(name)))
            if _is_near(one):
                seen.add(status.st_ino)
                yield status.st_ino, one
            else:
                one.close()


def _is_near(one: socket.socket) -> bool:
    """Whether it leads to a process of this machine."""
    try:
        peer = one.getpeername()
    except OSError:  # it leads nowhere
        return False
    if one.family in (socket.AF_INET, socket.AF_INET6):
        return ip_address(peer[0]).is_loopback
    return one.family == socket.AF_UNIX
