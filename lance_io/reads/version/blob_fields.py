"""Fields of blobs as bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lance_io.format.logical_types import EXTENSION_NAME
from lance_io.format.schema import BLOB_KEY

if TYPE_CHECKING:
    from lance_io.format.schema import Field


def with_binaries(field: Field, *, marked: bool = False) -> Field:
    """A field with every blob as bytes, except those in fixed-size lists, which neither library writes.

    marked  metadata marks the bytes as blobs, so that they can be written as such
    """
    if field.holds_blobs:
        metadata = {key: value for key, value in field.metadata.items() if key.encode() != EXTENSION_NAME}
        if marked:
            metadata[BLOB_KEY] = b"true"
        return replace(field, logical_type="large_binary", children=(), metadata=metadata)
    if field.logical_type.startswith("fixed_size_list"):
        return field.describe_blobs()
    return replace(field, children=tuple(with_binaries(child, marked=marked) for child in field.children))
