"""Whether the other end of a connection has taken what it was sent: two ends in this process."""

from __future__ import annotations

import os
import select
import socket
from itertools import count
from typing import TYPE_CHECKING

import pytest

from lance_io.spark import consumed as taken

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:B313 00000000:0000 0A 00000000:00000005 00:00000000 00000000     0        0 1026113 2 00000000cad30fdb
   1: 0100007F:E071 0100007F:A1EA 01 00000010:00000000 00:00000000 00000000     0        0 1026114 1 00000000cad30fdc
   2: 0100007F:A1EA 0100007F:E071 01 00000000:00008194 00:00000000 00000000     0        0 1026115 1 00000000cad30fdd
   3: 0100007F:A1EB 0100007F:E071 06 00000000:00000007 00:00000000 00000000     0        0 0 1 00000000cad30fde
"""
TABLE_6 = """  sl  local_address                         remote_address                        st tx_queue rx_queue tr
   0: 0000000000000000FFFF00000100007F:A1EA 0000000000000000FFFF00000100007F:E071 01 00000000:00000021 00:00000000
"""


@pytest.mark.parametrize(
    ("table", "local", "remote", "expected"),
    [
        (TABLE, 0xA1EA, 0xE071, 0x81A4),  # some are on their way
        (TABLE, 0xE071, 0xA1EA, 0),
        (TABLE, 0xA1EB, 0xE071, None),  # not established any more
        (TABLE, 0xB313, 0, None),  # listens
        (TABLE_6, 0xA1EA, 0xE071, 0x21),
        (TABLE_6, 0xA1EA, 0xE072, None),
        ("", 1, 2, None),
    ],
)
def test_what_waits_at_the_other_end(table: str, local: int, remote: int, expected: int | None) -> None:
    assert taken.unread_tcp_bytes([table], reader=local, writer=remote) == expected


@pytest.fixture(params=["tcp", "tcp6", "unix"])
def ends(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, ...]]:
    """A worker's end of a connection, and the virtual machine's."""
    if not hasattr(select, "POLLRDHUP"):
        pytest.skip("only Linux tells")
    if request.param == "unix":
        ours, theirs = socket.socketpair()
    else:
        family, host = (socket.AF_INET, "127.0.0.1") if request.param == "tcp" else (socket.AF_INET6, "::1")
        with socket.create_server((host, 0), family=family) as server:
            theirs = socket.create_connection(server.getsockname()[:2])
            ours, _ = server.accept()
    monkeypatch.setattr(taken, "_spark_inodes", {os.fstat(ours.fileno()).st_ino})
    monkeypatch.setattr(taken, "this_task", object)
    with ours, theirs:
        yield ours, theirs


def test_what_was_read_makes_room_for_more(ends: tuple[socket.socket, ...]) -> None:
    ours, theirs = ends
    ours.sendall(bytes(1000))
    assert len(theirs.recv(1000, socket.MSG_WAITALL)) == 1000
    assert taken.wait_until_consumed()


def test_a_connection_that_was_closed_wants_nothing(ends: tuple[socket.socket, ...]) -> None:
    ours, theirs = ends
    ours.sendall(bytes(1000))
    theirs.close()
    assert not taken.wait_until_consumed()


def test_the_connection_is_found_and_left_as_it_is(
    ends: tuple[socket.socket, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By looking at this process's sockets, of which it may have others, too; and it stays open."""
    ours, theirs = ends
    inode = os.fstat(ours.fileno()).st_ino
    near = [(inode, ours.dup())]
    monkeypatch.setattr(taken, "_local_connections", lambda: iter(near))
    monkeypatch.setattr(taken, "_spark_inodes", set())
    taken.find_connection()
    assert taken._spark_inodes == {inode}
    near = [(inode, ours.dup())]
    with taken.connection_to_spark() as found:
        assert found is not None and os.fstat(found.fileno()).st_ino == inode
    if ours.family != socket.AF_UNIX:
        assert not ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    ours.sendall(b"still open")
    assert theirs.recv(10, socket.MSG_WAITALL) == b"still open"


def test_nobody_is_waited_for_for_ever(ends: tuple[socket.socket, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """A second passes between any two looks at the clock."""
    ours, _ = ends
    ours.sendall(bytes(1000))
    looks: list[int] = []
    look = taken._count_unread
    monkeypatch.setattr(taken, "_count_unread", lambda one: looks.append(look(one) or 0) or looks[-1])
    monkeypatch.setattr(taken, "monotonic", count().__next__)
    monkeypatch.setattr(taken, "WAIT_S_MAX", 5)
    assert taken.wait_until_consumed()
    assert len(looks) == 4
    assert min(looks) == max(looks) >= 1000  # Unix sockets count the memory that it takes


def test_outside_of_workers_nobody_is_waited_for(
    ends: tuple[socket.socket, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, _ = ends
    ours.sendall(bytes(1000))
    monkeypatch.setattr(taken, "this_task", lambda: None)
    monkeypatch.setattr(taken, "_wait_until_read", None)
    assert taken.wait_until_consumed()
