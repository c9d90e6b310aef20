"""Settings of indices, and models of indices of vectors. Module and names are those of pylance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.changes.index.index_config import IndexConfig
from lance_io.lazy_names import lazy_names

if TYPE_CHECKING:
    from lance_io.changes.index.vectors.trained_models import IvfModel, PqModel
    from lance_io.dataset.indices.indices_builder import IndicesBuilder

_HOMES = {
    "IndicesBuilder": "lance_io.dataset.indices.indices_builder",
    "IvfModel": "lance_io.changes.index.vectors.trained_models",
    "PqModel": "lance_io.changes.index.vectors.trained_models",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)

__all__ = ["IndexConfig", "IndicesBuilder", "IvfModel", "PqModel"]
