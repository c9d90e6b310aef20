"""Blobs that are copied from other files: arrays that say where the bytes are, in the place of the bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from lance_io.format.schema import Field

BLOB_SOURCE: Final = pa.struct(
    [
        pa.field("source", pa.int32()),  # which object has the bytes, as its reader counts them; -1: they stay
        pa.field("start", pa.uint64()),  # their place in it
        pa.field("kind", pa.uint8()),  # of the second kind of blobs, 0 for the first
        pa.field("position", pa.uint64()),  # what the description says of a blob that stays
        pa.field("size", pa.uint64()),
        pa.field("blob_id", pa.uint32()),
        pa.field("blob_uri", pa.string()),
    ]
)
_NAMES: Final = [field.name for field in BLOB_SOURCE]


def is_blob_source(field: Field) -> bool:
    """Whether a field, as batches bring it, is of this type."""
    return field.logical_type == "struct" and [child.name for child in field.children] == _NAMES
