"""Fragments under the module name that pylance gives them."""

from __future__ import annotations

from lance_io.dataset.fragments import LanceFragment
from lance_io.dataset.metadata import DataFile, DeletionFile, FragmentMetadata, RowIdMeta

__all__ = ["DataFile", "DeletionFile", "FragmentMetadata", "LanceFragment", "RowIdMeta"]
