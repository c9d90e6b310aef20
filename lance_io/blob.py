"""Blob columns. Module and names are those of pylance."""

from __future__ import annotations

from lance_io.changes.write.blob_arrays import Blob, blob_array, blob_field
from lance_io.reads.blobs.blob_column import BlobColumn
from lance_io.reads.takes.blob_file import BlobFile

__all__ = ["Blob", "BlobColumn", "BlobFile", "blob_array", "blob_field"]
