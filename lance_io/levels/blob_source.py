"""Blobs to copy from other files: arrays with the locations of the bytes instead of the bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from lance_io.format.schema import Field

BLOB_SOURCE: Final = pa.struct(
    [
        pa.field("source", pa.int32()),  # number of the object in its reader; -1 for a blob that stays in place
        pa.field("start", pa.uint64()),  # offset of the bytes in the object
        pa.field("kind", pa.uint8()),  # kind of a blob of the second kind, 0 for the first
        pa.field("position", pa.uint64()),  # from here on: the description of a blob that stays in place
        pa.field("size", pa.uint64()),
        pa.field("blob_id", pa.uint32()),
        pa.field("blob_uri", pa.string()),
    ]
)
_NAMES: Final = [field.name for field in BLOB_SOURCE]


def is_blob_source(field: Field) -> bool:
    """Whether a field of a batch is of this type."""
    return field.logical_type == "struct" and [child.name for child in field.children] == _NAMES
