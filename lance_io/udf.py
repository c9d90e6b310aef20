"""Functions that compute columns, under the module name that pylance gives them."""

from __future__ import annotations

from lance_io.dataset.changes.batch_udf import BatchUDF, BatchUDFCheckpoint, batch_udf, normalize_transform

__all__ = ["BatchUDF", "BatchUDFCheckpoint", "batch_udf", "normalize_transform"]
