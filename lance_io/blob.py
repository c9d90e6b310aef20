"""Blob columns under the module name that pylance gives them."""

from __future__ import annotations

from lance_io.dataset.blobs.blob_column import BlobColumn
from lance_io.dataset.blobs.blob_file import BlobFile
from lance_io.dataset.write.blob_arrays import Blob, blob_array, blob_field

__all__ = ["Blob", "BlobColumn", "BlobFile", "blob_array", "blob_field"]
