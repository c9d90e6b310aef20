"""User-defined functions that compute new columns. Module and names are those of pylance."""

from __future__ import annotations

from lance_io.changes.columns.batch_udf import BatchUDF, batch_udf

__all__ = ["BatchUDF", "batch_udf"]
