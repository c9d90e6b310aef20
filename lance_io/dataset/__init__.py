"""USER OBJECTS: datasets, scanners, fragments, and the methods that change them.

Each object has two faces, a synchronous class and an asynchronous one, in one module:

    lance_dataset                        `LanceDataset` and `AsyncDataset`
    fragment, scanner, sql_query         a fragment, a scan, a query
    fragment_session, scanner_builder    repeated takes of a fragment; options of a scan, one by one
    row_methods                          methods that return rows
    version_methods                      methods for versions, files and comparisons
    change_methods, column_methods, metadata_methods, clone_methods, cleanup_methods
                                         methods that commit a version, or remove old ones
    optimizer, tags_and_branches, version_delta   objects behind properties of a dataset
    open_dataset, write_table, opening   from a URI to a dataset; the coroutine that opens
    polars_source                        a table as a source of polars
    bases                                base classes of pyarrow
    distributed/                         the API for engines of many processes, such as Spark
    cli_imports                         the names that the command (`cli/`) uses

Below are `changes/`, the plans that commit a version, and `reads/`, an open version and its rows. Both faces of an
object run the same plans (`plans/plan.py`); a face adds the driver (`reads/run_plan.py`). Names load on first use, so
that importing this package loads no pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lance_io.changes.columns.schema_edits import AlterColumn
    from lance_io.changes.edits.change_plans import DeleteResult
    from lance_io.changes.edits.update_rows import UpdateResult
    from lance_io.changes.merge.merge_builder import MergeInsertBuilder
    from lance_io.changes.merge.merge_plan import ExecuteResult
    from lance_io.changes.operations.lance_operation import (
        LANCE_COMMIT_MESSAGE_KEY,
        DatasetBasePath,
        Index,
        IndexFile,
        LanceOperation,
        Transaction,
    )
    from lance_io.changes.write.write_arguments import AutoCleanupConfig
    from lance_io.dataset.fragment import LanceFragment
    from lance_io.dataset.lance_dataset import AsyncDataset, BulkCommitResult, LanceDataset
    from lance_io.dataset.open_dataset import dataset
    from lance_io.dataset.optimizer import DatasetOptimizer
    from lance_io.dataset.scanner import LanceScanner
    from lance_io.dataset.scanner_builder import ScannerBuilder
    from lance_io.dataset.sql_query import SqlQuery, SqlQueryBuilder
    from lance_io.dataset.tags_and_branches import Branch, Branches, Tag, Tags
    from lance_io.dataset.version_delta import DatasetDelta
    from lance_io.dataset.write_table import write_dataset
    from lance_io.reads.metadata.describe import Version, VersionRef
    from lance_io.reads.metadata.lance_schema import LanceSchema
    from lance_io.reads.metadata.table_statistics import DatasetStats, DataStatistics, FieldStatistics, LanceStats
    from lance_io.reads.scan.scan_options import ColumnOrdering
    from lance_io.reads.scan.scan_statistics import ScanStatistics
    from lance_io.reads.version.session import Session

_HOMES = {
    "LANCE_COMMIT_MESSAGE_KEY": "lance_io.changes.operations.lance_operation",
    "AlterColumn": "lance_io.changes.columns.schema_edits",
    "AsyncDataset": "lance_io.dataset.lance_dataset",
    "AutoCleanupConfig": "lance_io.changes.write.write_arguments",
    "Branch": "lance_io.dataset.tags_and_branches",
    "Branches": "lance_io.dataset.tags_and_branches",
    "BulkCommitResult": "lance_io.dataset.lance_dataset",
    "ColumnOrdering": "lance_io.reads.scan.scan_options",
    "DataStatistics": "lance_io.reads.metadata.table_statistics",
    "DatasetBasePath": "lance_io.changes.operations.lance_operation",
    "DatasetDelta": "lance_io.dataset.version_delta",
    "DatasetOptimizer": "lance_io.dataset.optimizer",
    "DatasetStats": "lance_io.reads.metadata.table_statistics",
    "DeleteResult": "lance_io.changes.edits.change_plans",
    "ExecuteResult": "lance_io.changes.merge.merge_plan",
    "FieldStatistics": "lance_io.reads.metadata.table_statistics",
    "Index": "lance_io.changes.operations.lance_operation",
    "IndexFile": "lance_io.changes.operations.lance_operation",
    "LanceDataset": "lance_io.dataset.lance_dataset",
    "LanceFragment": "lance_io.dataset.fragment",
    "LanceOperation": "lance_io.changes.operations.lance_operation",
    "LanceScanner": "lance_io.dataset.scanner",
    "MergeInsertBuilder": "lance_io.changes.merge.merge_builder",
    "LanceSchema": "lance_io.reads.metadata.lance_schema",
    "LanceStats": "lance_io.reads.metadata.table_statistics",
    "ScanStatistics": "lance_io.reads.scan.scan_statistics",
    "ScannerBuilder": "lance_io.dataset.scanner_builder",
    "Session": "lance_io.reads.version.session",
    "SqlQuery": "lance_io.dataset.sql_query",
    "SqlQueryBuilder": "lance_io.dataset.sql_query",
    "Tag": "lance_io.dataset.tags_and_branches",
    "Tags": "lance_io.dataset.tags_and_branches",
    "Transaction": "lance_io.changes.operations.lance_operation",
    "UpdateResult": "lance_io.changes.edits.update_rows",
    "Version": "lance_io.reads.metadata.describe",
    "VersionRef": "lance_io.reads.metadata.describe",
    "dataset": "lance_io.dataset.open_dataset",
    "write_dataset": "lance_io.dataset.write_table",
}

__all__ = [
    "LANCE_COMMIT_MESSAGE_KEY",
    "AlterColumn",
    "AsyncDataset",
    "AutoCleanupConfig",
    "Branch",
    "Branches",
    "BulkCommitResult",
    "ColumnOrdering",
    "DataStatistics",
    "DatasetBasePath",
    "DatasetDelta",
    "DatasetOptimizer",
    "DatasetStats",
    "DeleteResult",
    "ExecuteResult",
    "FieldStatistics",
    "Index",
    "IndexFile",
    "LanceDataset",
    "LanceFragment",
    "LanceOperation",
    "LanceScanner",
    "MergeInsertBuilder",
    "LanceSchema",
    "LanceStats",
    "ScanStatistics",
    "ScannerBuilder",
    "Session",
    "SqlQuery",
    "SqlQueryBuilder",
    "Tag",
    "Tags",
    "Transaction",
    "UpdateResult",
    "Version",
    "VersionRef",
    "dataset",
    "write_dataset",
]


def __getattr__(name: str) -> Any:
    from lance_io.lazy_names import lazy_names  # imported here, because importing lance_io loads this package

    load, _ = lazy_names(__name__, _HOMES)
    return load(name)


def __dir__() -> list[str]:
    from lance_io.lazy_names import lazy_names

    _, names = lazy_names(__name__, _HOMES)
    return names()
