"""Blob columns made with our own helpers, read by both libraries."""

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING, Any

import lance
import lance.blob
import pyarrow as pa
import pytest

import lance_io
import lance_io.blob
from lance_io.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

BYTES = [b"x", None, b"", os.urandom(70_000), os.urandom(200_000)]


def read(table: Any) -> list[bytes | None]:
    return [blob and blob.read() for blob in table.take_blobs("b", indices=range(table.count_rows()))]


def test_every_place_of_a_blob(tmp_path: Path) -> None:
    """In the data file, in a shared file, in one of its own, and outside of the table."""
    outside = tmp_path / "outside.bin"
    outside.write_bytes(b"0123456789")
    values = [*BYTES, f"file://{outside}", lance_io.Blob.from_uri(f"file://{outside}", position=2, size=3)]
    field = lance_io.blob_field("b", dedicated_size_threshold=100_000)
    rows = pa.table([lance_io.blob_array(values)], schema=pa.schema([field]))
    ours = lance_io.write_dataset(rows, tmp_path / "t", allow_external_blob_outside_bases=True)
    assert read(ours) == [*BYTES, b"0123456789", b"234"]
    assert read(lance.dataset(tmp_path / "t"))[:5] == BYTES
    assert len(list((tmp_path / "t").glob("data/*/*.blob"))) == 2


@pytest.mark.parametrize("library", [lance, lance_io])
def test_references_are_stored_only_if_asked_for(library: Any, tmp_path: Path) -> None:
    """The table is not whole without what they refer to, and a service must not be made to read any file."""
    outside = tmp_path / "outside.bin"
    outside.write_bytes(b"0123456789")
    rows = pa.table([library.blob_array([b"here", f"file://{outside}"])], schema=pa.schema([library.blob_field("b")]))
    uri = str(tmp_path / "t")
    with pytest.raises(OSError, match="allow_external_blob_outside_bases"):
        library.write_dataset(rows, uri, data_storage_version="2.2")
    with pytest.raises(OSError, match="allow_external_blob_outside_bases"):
        library.fragment.write_fragments(rows, uri, data_storage_version="2.2")
    table = library.write_dataset(rows, uri, data_storage_version="2.2", allow_external_blob_outside_bases=True)
    assert read(table) == [b"here", b"0123456789"]
    for mode in ("append", "overwrite"):
        with pytest.raises(OSError, match="allow_external_blob_outside_bases"):
            library.write_dataset(rows, uri, mode=mode, data_storage_version="2.2")
    assert library.dataset(uri).version == 1


def test_fields_are_those_of_pylance(tmp_path: Path) -> None:
    options = {"inline_size_threshold": 10, "dedicated_size_threshold": 1000}
    for library, name in ((lance, "theirs"), (lance_io, "ours")):
        schema = pa.schema([library.blob_field("b", nullable=False, **options)])
        library.write_dataset(pa.table([library.blob_array([b"x" * 50])], schema=schema), str(tmp_path / name))
    for reader in (lance, lance_io):
        one, other = reader.dataset(str(tmp_path / "ours")), reader.dataset(str(tmp_path / "theirs"))
        assert one.schema.equals(other.schema, check_metadata=True)
        assert read(one) == read(other)


def test_names_and_parameters_are_those_of_pylance() -> None:
    for name in ("blob_field", "blob_array"):
        ours, theirs = (inspect.signature(getattr(library.blob, name)).parameters for library in (lance_io, lance))
        assert list(ours) == list(theirs)
    assert lance_io.blob.Blob.empty() == lance_io.Blob(data=b"")


@pytest.mark.parametrize("arguments", [{"data": b"", "uri": "x"}, {"uri": ""}, {"data": b"", "size": 1, "position": 0}])
def test_what_is_no_blob(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        lance_io.Blob(**arguments)
    with pytest.raises(TypeError, match="expected bytes, a URI, a Blob or None, found int"):
        lance_io.blob_array([5])


def test_modules_are_there_without_importing_them() -> None:
    assert lance_io.fragment.write_fragments
    assert lance_io.commit.CommitConflictError is lance_io.errors.CommitConflictError
    assert lance_io.progress.FragmentWriteProgress
