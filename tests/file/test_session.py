"""`LanceFileSession` against the one of pylance, on the same folder and in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from lance.file import LanceFileSession as PeerSession

from lance_io.errors import UsageError
from lance_io.file.file_session import LanceFileSession

if TYPE_CHECKING:
    from pathlib import Path

BATCH = pa.record_batch({"a": pa.array([1, 2, 3], pa.int32())})


def test_is_like_that_of_pylance(tmp_path: Path) -> None:
    base = tmp_path / "base"
    ours, peer = LanceFileSession(base), PeerSession(str(base))
    assert ours.list() == peer.list() == []
    with ours.open_writer("a/x.lance", schema=BATCH.schema, version="2.1") as writer:
        writer.write_batch(BATCH)
    with ours.open_writer("y.lance") as writer:
        writer.write_batch(BATCH)
    (tmp_path / "plain").write_bytes(b"hello")
    ours.upload_file(tmp_path / "plain", "up/f")
    for path in (None, "a", "a/", "nowhere", "y.lance"):
        assert sorted(ours.list(path)) == sorted(peer.list(path))
        mine, theirs = ours.list_with_delimiter(path), peer.list_with_delimiter(path)
        assert sorted(mine.common_prefixes) == sorted(theirs.common_prefixes)
        assert sorted(mine.objects) == sorted(theirs.objects)
    for path in ("a/x.lance", "a", "q", "up/f"):
        assert ours.contains(path) == peer.contains(path)
    assert ours.read_range("up/f", 1, 3) == peer.read_range("up/f", 1, 3) == b"ell"
    ours.download_file("up/f", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"hello"
    assert ours.open_reader("a/x.lance").read_all().to_table() == peer.open_reader("a/x.lance").read_all().to_table()
    ours.delete_file("y.lance")
    assert not peer.contains("y.lance")


def test_errors(tmp_path: Path) -> None:
    session = LanceFileSession(tmp_path)
    (tmp_path / "f").write_bytes(b"hello")
    for call in (
        lambda: session.read_range("missing", 0, 1),
        lambda: session.read_range("f", 0, 100),
        lambda: session.delete_file("missing"),
        lambda: session.download_file("missing", tmp_path / "copy"),
        lambda: session.upload_file(tmp_path / "missing", "g"),
    ):
        with pytest.raises(OSError):
            call()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f"]
    with pytest.raises(UsageError):
        session.contains("../f")


def test_in_shared_memory() -> None:
    session = LanceFileSession("shared-memory://session-test/base")
    with session.open_writer("x.lance") as writer:
        writer.write_batch(BATCH)
    assert session.list() == ["x.lance"]
    assert session.open_reader("x.lance").num_rows() == 3
