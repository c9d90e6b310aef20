"""Blobs through compaction: each payload as it was, by both libraries, whatever holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from lance.blob import Blob, blob_array, blob_field

import lance_io
from lance_io.file.write import blob_pages

if TYPE_CHECKING:
    from pathlib import Path

KIB = 1 << 10
PAYLOADS: list[bytes | None] = [
    b"small",
    None,
    b"",
    b"i" * (60 * KIB),
    b"p" * (100 * KIB),
    b"q" * (300 * KIB),
    b"d" * (5 << 20),
    b"another",
]


def blobs_by(library: Any, path: Path, columns: list[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        library.dataset(str(path)).to_table(columns=["n", *columns], blob_handling="all_binary").to_pylist()
    )
    return sorted(found, key=lambda row: row["n"])


def compact(path: Path, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
    if monkeypatch is not None:
        monkeypatch.setattr(blob_pages, "COPIED_AT_ONCE_BYTES", 90 * KIB)
    lance_io.dataset(str(path)).optimize.compact_files()


@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_first_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, version: str, pieces: bool) -> None:
    path = tmp_path / "t.lance"
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("n", pa.int64()), field])
    for first in (0, 8, 16):
        rows = pa.table([range(first, first + 8), pa.array(PAYLOADS, pa.large_binary())], schema=schema)
        mode = "append" if first else "create"
        lance.write_dataset(rows, str(path), mode=mode, data_storage_version=version)
    lance.dataset(str(path)).delete("n in (3, 8)")
    before = blobs_by(lance_io, path, ["b"])
    compact(path, monkeypatch if pieces else None)
    assert blobs_by(lance_io, path, ["b"]) == before
    peer = lance.dataset(str(path))
    assert len(peer.get_fragments()) == 1
    read = [file and file.read() for file in peer.take_blobs("b", indices=range(22))]
    assert read == [row["b"] for row in before]


@pytest.mark.parametrize("pieces", [False, True])
def test_second_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, pieces: bool) -> None:
    path = tmp_path / "t.lance"
    outside = tmp_path / "outside.bin"
    outside.write_bytes(b"somewhere else")
    inner = pa.struct([pa.field("x", pa.int32()), blob_field("y")])
    schema = pa.schema(
        [
            pa.field("n", pa.int64()),
            blob_field("b"),
            pa.field("st", inner),
            pa.field("l", pa.list_(blob_field("item"))),
        ]
    )
    values = [*PAYLOADS[:-1], Blob.from_uri(outside.as_uri())]
    for first in (0, 8, 16):
        blobs = blob_array(values)
        members = pa.StructArray.from_arrays([pa.array(range(8), pa.int32()), blob_array(PAYLOADS)], fields=list(inner))
        lists = pa.ListArray.from_arrays(
            pa.array([0, 0, 1, 3, 3, 4, 5, 7, 8], pa.int32()), blob_array(PAYLOADS), type=schema.field("l").type
        )
        rows = pa.table([pa.array(range(first, first + 8), pa.int64()), blobs, members, lists], schema=schema)
        mode = "append" if first else "create"
        lance_io.write_dataset(
            rows, str(path), mode=mode, data_storage_version="2.2", allow_external_blob_outside_bases=True
        )
    lance.dataset(str(path)).delete("n in (3, 8)")
    before = blobs_by(lance_io, path, ["b", "st", "l"])
    sidecars = sum(1 for _ in (path / "data").rglob("*.blob"))
    compact(path, monkeypatch if pieces else None)
    assert blobs_by(lance_io, path, ["b", "st", "l"]) == before
    peer = lance.dataset(str(path))
    (fragment,) = peer.get_fragments()
    stem = fragment.metadata.files[0].path.removesuffix(".lance")
    assert 0 < sum(1 for _ in (path / "data" / stem).iterdir()) < sidecars
    assert blobs_by(lance, path, ["b"]) == [{"n": row["n"], "b": row["b"]} for row in before]
    found = {row["n"]: row["b"] for row in peer.to_table(columns=["n", "b"]).to_pylist()}
    assert found[7]["kind"] == 3
    assert found[7]["blob_uri"] == outside.as_uri()
    lance_io.dataset(str(path)).cleanup_old_versions(retain_versions=1, versions=None)
    assert blobs_by(lance_io, path, ["b", "st", "l"]) == before


def test_managed_blobs_stay(tmp_path: Path) -> None:
    """What the table manages is named anew, and no byte of it is written."""
    path = tmp_path / "t.lance"
    schema = pa.schema([pa.field("n", pa.int64()), blob_field("b")], metadata={"lance.blob.managed": "true"})
    for first in (0, 8):
        rows = pa.table([pa.array(range(first, first + 8), pa.int64()), blob_array(PAYLOADS)], schema=schema)
        lance_io.write_dataset(rows, str(path), mode="append" if first else "create", data_storage_version="2.2")
    before = blobs_by(lance_io, path, ["b"])
    managed = sorted(file.name for file in (path / "_blobs").iterdir())
    compact(path)
    assert sorted(file.name for file in (path / "_blobs").iterdir()) == managed
    assert blobs_by(lance_io, path, ["b"]) == blobs_by(lance, path, ["b"]) == before
    ds = lance_io.dataset(str(path))
    ds.cleanup_old_versions(retain_versions=1)
    assert blobs_by(lance_io, path, ["b"]) == before


def test_a_failed_compaction_removes_sidecars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.lance"
    schema = pa.schema([pa.field("n", pa.int64()), blob_field("b")])
    for first in (0, 8):
        rows = pa.table([pa.array(range(first, first + 8), pa.int64()), blob_array(PAYLOADS)], schema=schema)
        lance_io.write_dataset(rows, str(path), mode="append" if first else "create", data_storage_version="2.2")
    ds = lance_io.dataset(str(path))
    lance.dataset(str(path)).delete("n = 3")
    before = sorted(str(file) for file in (path / "data").rglob("*") if file.is_file())
    with pytest.raises(OSError, match="onflict"):
        ds.optimize.compact_files()
    assert sorted(str(file) for file in (path / "data").rglob("*") if file.is_file()) == before
