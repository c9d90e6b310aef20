"""Extension types of the format, for creating such columns and for type checks. See `format.extensions`."""

from __future__ import annotations

from lance_io.format.extensions import BFloat16Array, BFloat16Scalar, BFloat16Type, BlobType

__all__ = ["BFloat16Array", "BFloat16Scalar", "BFloat16Type", "BlobType"]
