"""WHAT USERS HOLD: datasets, scanners, fragments, and how their calls become reads.

    entry, opening, versions, refs   from a URI to a table version
    state, session                   an open version, what versions share
    options, projection, scan        what a scan is asked for, and what it will read
    pipeline, rebatch, ordering      decoded pieces to batches
    take, rows, rowcolumns, loading  random access, row arithmetic, system columns, deletions and row ids
    blobs, blobfile                  blob columns
    files, fragmentsession           files of a table listed; takes from one fragment
    stream, execute, running         the two drivers, of scans and of all other plans: in the caller's thread, or on the
                                     engine's loop
    later                            modules that are imported when something of them is first used
    facts, sync, lancedataset, scanner, fragments  the public classes,
    aio, aioscanner, aiofragments    and their asynchronous twins
    bases                            the classes of pyarrow that they are subclasses of

Decisions are pure functions and plans (`commit/steps.py`); the synchronous and the asynchronous classes run the same.
Names are loaded when they are first used, so that importing the package loads no pyarrow; see `bases`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lance_io.dataset.aio import AsyncDataset
    from lance_io.dataset.entry import dataset
    from lance_io.dataset.fragments import LanceFragment
    from lance_io.dataset.lancedataset import LanceDataset
    from lance_io.dataset.lanceschema import LanceSchema
    from lance_io.dataset.options import ColumnOrdering
    from lance_io.dataset.refs import Branches, Tags
    from lance_io.dataset.scanner import LanceScanner, ScannerBuilder
    from lance_io.dataset.scanstats import ScanStatistics
    from lance_io.dataset.session import Session
    from lance_io.dataset.stats import DataStatistics, FieldStatistics, LanceStats
    from lance_io.dataset.write.entry import write_dataset
    from lance_io.dataset.write.keywords import AutoCleanupConfig
    from lance_io.dataset.write.operations import (
        LANCE_COMMIT_MESSAGE_KEY,
        DatasetBasePath,
        Index,
        IndexFile,
        LanceOperation,
        Transaction,
    )

_HOMES = {
    "LANCE_COMMIT_MESSAGE_KEY": "write.operations",
    "AsyncDataset": "aio",
    "AutoCleanupConfig": "write.keywords",
    "Branches": "refs",
    "ColumnOrdering": "options",
    "DataStatistics": "stats",
    "DatasetBasePath": "write.operations",
    "FieldStatistics": "stats",
    "Index": "write.operations",
    "IndexFile": "write.operations",
    "LanceDataset": "lancedataset",
    "LanceFragment": "fragments",
    "LanceOperation": "write.operations",
    "LanceScanner": "scanner",
    "LanceSchema": "lanceschema",
    "LanceStats": "stats",
    "ScanStatistics": "scanstats",
    "ScannerBuilder": "scanner",
    "Session": "session",
    "Tags": "refs",
    "Transaction": "write.operations",
    "dataset": "entry",
    "write_dataset": "write.entry",
}

__all__ = [
    "LANCE_COMMIT_MESSAGE_KEY",
    "AsyncDataset",
    "AutoCleanupConfig",
    "Branches",
    "ColumnOrdering",
    "DataStatistics",
    "DatasetBasePath",
    "FieldStatistics",
    "Index",
    "IndexFile",
    "LanceDataset",
    "LanceFragment",
    "LanceOperation",
    "LanceScanner",
    "LanceSchema",
    "LanceStats",
    "ScanStatistics",
    "ScannerBuilder",
    "Session",
    "Tags",
    "Transaction",
    "dataset",
    "write_dataset",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
