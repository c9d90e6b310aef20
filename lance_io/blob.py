"""Blob columns under the module name that pylance gives them."""

from __future__ import annotations

from lance_io.dataset.blobfile import BlobFile

__all__ = ["BlobFile"]
