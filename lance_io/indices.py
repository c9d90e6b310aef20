"""Settings of indices. Module and name are those of pylance."""

from __future__ import annotations

from lance_io.changes.index.index_config import IndexConfig

__all__ = ["IndexConfig"]
