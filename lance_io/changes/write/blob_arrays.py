"""Fields and arrays of blob columns of the second kind, for writes (spec: structural encodings, 10.8)."""

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
    """One blob to write: its bytes, or a reference to an object outside of the table.

    Args:
        data: The bytes.
        uri: URI of an object outside of the table. Give either `data` or `uri`.
        position: First byte of the blob in the object. None for the whole object.
        size: Number of bytes. `position` and `size` belong together.

    Raises:
        ValueError: The arguments contradict each other, or `uri` is empty.
    """

    data: bytes | None = None
    uri: str | None = None
    position: int | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        if self.data is not None and self.uri is not None:
            raise UsageError("a blob has either data or a uri")
        if (self.position is None) != (self.size is None) or (self.position is not None and self.uri is None):
            raise UsageError("a blob has both position and size, or neither; both need a uri")
        if self.uri == "":
            raise UsageError("the uri of a blob cannot be empty")

    @staticmethod
    def from_bytes(data: bytes | bytearray | memoryview) -> Blob:
        """A blob of these bytes.

        Args:
            data: The bytes; they are copied unless they are `bytes`.
        """
        return Blob(data=bytes(data))

    @staticmethod
    def from_uri(uri: str, position: int | None = None, size: int | None = None) -> Blob:
        """A reference to a blob in another object.

        Args:
            uri: URI of the object.
            position: First byte of the blob in the object. None for the whole object.
            size: Number of bytes. Give both `position` and `size`, or neither.

        Raises:
            ValueError: `uri` is empty, or only one of `position` and `size` is given.
        """
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

    Args:
        name: Name of the column.
        nullable: Whether values may be null.
        inline_size_threshold: Largest size of a blob in the data file itself, in bytes. 65,536 by default.
        dedicated_size_threshold: A larger blob gets a file of its own, in bytes. 4 MiB by default. Blobs between both
            thresholds share pack files.
        pack_file_size_threshold: Size at which a pack file ends, in bytes. 1 GiB by default.

    Returns:
        The field.
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

    Args:
        values: Bytes, URIs as strings, `Blob`s, or None for null.

    Returns:
        An array of the type of `blob_field`.

    Raises:
        TypeError: A value is of another type.
        ValueError: A URI is empty.
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
