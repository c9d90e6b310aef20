"""Fragments. Module and names are those of pylance."""

from __future__ import annotations

from lance_io.changes.write.write_fragments import write_fragments, write_fragments_async
from lance_io.dataset.fragment import LanceFragment
from lance_io.dataset.fragment_session import FragmentSession
from lance_io.reads.metadata.fragment_metadata import (
    DataFile,
    DeletionFile,
    FragmentMetadata,
    RowDatasetVersionMeta,
    RowIdMeta,
)
from lance_io.reads.metadata.row_id_sequence import RowIdSequence

__all__ = [
    "DataFile",
    "DeletionFile",
    "FragmentMetadata",
    "FragmentSession",
    "LanceFragment",
    "RowDatasetVersionMeta",
    "RowIdMeta",
    "RowIdSequence",
    "write_fragments",
    "write_fragments_async",
]
