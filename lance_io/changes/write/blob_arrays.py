"""Blobs to be written: fields and arrays of blob columns of the second kind (spec: structural encodings, 10.8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lance_io.errors import UsageError
from lance_io.format.schema import BLOB_V2_EXTENSION

if TYPE_CHECKING:
    from collections.abc import Iterable

_MEMBERS: Final = pa.struct(
    [
        pa.field("data", pa.large_binary()),
        pa.field("uri", pa.string()),
        pa.field("position", pa.uint64()),
        pa.field("size", pa.uint64()),
    ]
)
_THRESHOLD: Final = "lance-encoding:blob-{}-threshold"


@dataclass(frozen=True)
class Blob:
    """One blob: bytes to be stored, or where they are.

    data            bytes
    uri             an object outside of the table; position and size name a part of it
    position, size  bytes; both or none
    """

    data: bytes | None = None
    uri: str | None = None
    position: int | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        if self.data is not None and self.uri is not None:
            raise UsageError("a blob has either data or a uri")
        if (self.position is None) != (self.size is None) or (self.position is not None and self.uri is None):
            raise UsageError("position and size of a blob belong together, and to a uri")
        if self.uri == "":
            raise UsageError("the uri of a blob cannot be empty")

    @staticmethod
    def from_bytes(data: bytes | bytearray | memoryview) -> Blob:
        """A blob of these bytes."""
        return Blob(data=bytes(data))

    @staticmethod
    def from_uri(uri: str, position: int | None = None, size: int | None = None) -> Blob:
        """A blob that lies in another object."""
        return Blob(uri=uri, position=position, size=size)

    @staticmethod
    def empty() -> Blob:
        """A blob of no bytes."""
        return Blob(data=b"")


def blob_field(
    name: str,
    *,
    nullable: bool = True,
    inline_size_threshold: int | None = None,
    dedicated_size_threshold: int | None = None,
    pack_file_size_threshold: int | None = None,
) -> pa.Field:
    """The Arrow field of a blob column, for files of version 2.2.

    inline_size_threshold      blobs of at most so many bytes lie in the data file (65,536)
    dedicated_size_threshold   larger ones have a file of their own (4 MiB); those between share files
    pack_file_size_threshold   bytes at which such a shared file ends (1 GiB)
    """
    metadata: dict[str | bytes, str | bytes] = {"ARROW:extension:name": BLOB_V2_EXTENSION}
    for what, value in (
        ("inline-size", inline_size_threshold),
        ("dedicated-size", dedicated_size_threshold),
        ("pack-file-size", pack_file_size_threshold),
    ):
        if value is not None:
            metadata[_THRESHOLD.format(what)] = str(value)
    return pa.field(name, _MEMBERS, nullable, metadata)


def blob_array(values: Iterable[Any]) -> pa.StructArray:
    """The array of a blob column.

    values  bytes, URIs as text, `Blob`s, or None for null
    Raises `TypeError` for anything else.
    """
    rows: list[dict[str, Any] | None] = []
    for value in values:
        blob = _blob(value)
        rows.append(
            None if blob is None else {"data": blob.data, "uri": blob.uri, "position": blob.position, "size": blob.size}
        )
    array: pa.StructArray = pa.array(rows, _MEMBERS)
    return array


def _blob(value: Any) -> Blob | None:
    if value is None or isinstance(value, Blob):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return Blob.from_bytes(value)
    if isinstance(value, str):
        return Blob.from_uri(value)
    raise TypeError(f"expected bytes, a URI, a Blob or None, found {type(value).__name__}")
