"""Lance files and tables on local disk and object stores, async first.

    import lance_io

    lance_io.write_dataset(rows, "s3://bucket/table.lance")
    table = lance_io.dataset("s3://bucket/table.lance")
    table.take([5, 7], columns=["id", "text"])

    async with lance_io.AsyncDataset.open("s3://bucket/table.lance") as table:
        async for batch in table.to_batches(): ...

Names are those of pylance, and load on first use: importing this package loads neither pyarrow's dataset module nor any
cloud client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lance_io.dataset.open_dataset import dataset

if TYPE_CHECKING:
    from lance_io.changes.columns.batch_udf import batch_udf
    from lance_io.changes.index.build_progress import IndexProgress
    from lance_io.changes.merge.merge_builder import MergeInsertBuilder
    from lance_io.changes.operations.lance_operation import (
        DatasetBasePath,
        Index,
        IndexFile,
        LanceOperation,
        Transaction,
    )
    from lance_io.changes.upkeep.remove_versions import CleanupExplanation
    from lance_io.changes.write.blob_arrays import Blob, blob_array, blob_field
    from lance_io.changes.write.column_encodings import Encoding
    from lance_io.commit.cleanups.cleanup_values import CleanupStats
    from lance_io.dataset.fragment import LanceFragment
    from lance_io.dataset.lance_dataset import AsyncDataset, LanceDataset
    from lance_io.dataset.scanner import LanceScanner
    from lance_io.dataset.write_table import write_dataset
    from lance_io.file.reader import AsyncFileReader
    from lance_io.file.write.writers import AsyncFileWriter
    from lance_io.index.text.tokenizer import FtsToken, tokenize
    from lance_io.io.shared_limits import IoScheduler
    from lance_io.io.stats import bytes_read_counter, iops_counter
    from lance_io.log import set_logger
    from lance_io.reads.blobs.blob_column import BlobColumn
    from lance_io.reads.metadata.fragment_metadata import FragmentMetadata
    from lance_io.reads.metadata.table_statistics import DataStatistics, FieldStatistics
    from lance_io.reads.scan.scan_statistics import ScanStatistics
    from lance_io.reads.takes.blob_file import BlobFile
    from lance_io.reads.version.session import Session
    from lance_io.schema import json_to_schema, schema_to_json

__version__ = "0.1.0"

_HOMES = {
    "AsyncDataset": "lance_io.dataset.lance_dataset",
    "AsyncFileReader": "lance_io.file.reader",
    "AsyncFileWriter": "lance_io.file.write.writers",
    "Blob": "lance_io.changes.write.blob_arrays",
    "BlobColumn": "lance_io.reads.blobs.blob_column",
    "BlobFile": "lance_io.reads.takes.blob_file",
    "CleanupExplanation": "lance_io.changes.upkeep.remove_versions",
    "CleanupStats": "lance_io.commit.cleanups.cleanup_values",
    "DataStatistics": "lance_io.reads.metadata.table_statistics",
    "DatasetBasePath": "lance_io.changes.operations.lance_operation",
    "Encoding": "lance_io.changes.write.column_encodings",
    "FieldStatistics": "lance_io.reads.metadata.table_statistics",
    "FragmentMetadata": "lance_io.reads.metadata.fragment_metadata",
    "FtsToken": "lance_io.index.text.tokenizer",
    "Index": "lance_io.changes.operations.lance_operation",
    "IndexFile": "lance_io.changes.operations.lance_operation",
    "IndexProgress": "lance_io.changes.index.build_progress",
    "IoScheduler": "lance_io.io.shared_limits",
    "LanceDataset": "lance_io.dataset.lance_dataset",
    "LanceFragment": "lance_io.dataset.fragment",
    "LanceOperation": "lance_io.changes.operations.lance_operation",
    "LanceScanner": "lance_io.dataset.scanner",
    "MergeInsertBuilder": "lance_io.changes.merge.merge_builder",
    "ScanStatistics": "lance_io.reads.scan.scan_statistics",
    "Session": "lance_io.reads.version.session",
    "Transaction": "lance_io.changes.operations.lance_operation",
    "batch_udf": "lance_io.changes.columns.batch_udf",
    "blob_array": "lance_io.changes.write.blob_arrays",
    "blob_field": "lance_io.changes.write.blob_arrays",
    "bytes_read_counter": "lance_io.io.stats",
    "iops_counter": "lance_io.io.stats",
    "json_to_schema": "lance_io.schema",
    "schema_to_json": "lance_io.schema",
    "set_logger": "lance_io.log",
    "tokenize": "lance_io.index.text.tokenizer",
    "write_dataset": "lance_io.dataset.write_table",
}

_MODULES = frozenset(
    (
        "arrow",
        "blob",
        "commit",
        "debug",
        "errors",
        "file",
        "fragment",
        "indices",
        "log",
        "metrics",
        "optimize",
        "progress",
        "sampler",
        "schema",
        "types",
        "udf",
        "util",
        "vector",
    )
)

__all__ = [
    "AsyncDataset",
    "AsyncFileReader",
    "AsyncFileWriter",
    "Blob",
    "BlobColumn",
    "BlobFile",
    "CleanupExplanation",
    "CleanupStats",
    "DataStatistics",
    "DatasetBasePath",
    "Encoding",
    "FieldStatistics",
    "FragmentMetadata",
    "FtsToken",
    "Index",
    "IndexFile",
    "IndexProgress",
    "IoScheduler",
    "LanceDataset",
    "LanceFragment",
    "LanceOperation",
    "LanceScanner",
    "MergeInsertBuilder",
    "ScanStatistics",
    "Session",
    "Transaction",
    "batch_udf",
    "blob_array",
    "blob_field",
    "bytes_read_counter",
    "dataset",
    "iops_counter",
    "json_to_schema",
    "schema_to_json",
    "set_logger",
    "tokenize",
    "write_dataset",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    home = _HOMES.get(name)
    if home is None:
        if not name.startswith("_") and (refusal := _not_offered(name)) is not None:
            return refusal
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def _not_offered(name: str) -> Any:
    from lance_io.not_offered import not_offered

    return not_offered(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
