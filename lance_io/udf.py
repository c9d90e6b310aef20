"""Functions that compute new columns, under the module name that pylance gives them."""

from __future__ import annotations

from lance_io.changes.columns.batch_udf import BatchUDF, batch_udf

__all__ = ["BatchUDF", "batch_udf"]
