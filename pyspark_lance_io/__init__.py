"""Where Spark finds `format("lance_io")`: it imports every top-level package whose name begins with `pyspark_`."""

from __future__ import annotations

from lance_io.spark.source import LanceDataSource as DefaultSource

__all__ = ["DefaultSource"]
