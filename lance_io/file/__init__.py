"""One `.lance` file: open it, read its pages, write it. Takes and scans over many files.

    open/       footer, schema and columns in one or two reads; the columns that a projection reads
    take/       random access: rows of many files at once
    scan/       row ranges: prefetches and decodes pages, cuts batches from them

    write/      rows to pages, pages to bytes, bytes to the store
    file_steps, file_requests   generators that request bytes of files; the code that answers the requests
    table_reader                takes and scans of projected fields over fragments
    reader, file_session        `LanceFileReader`, `AsyncFileReader`, `LanceFileSession`
    row_indices, value_check, file_report   arguments, checks of decoded values, descriptions of files

All decisions are made in generators (`plans/`). Only `file_requests`, `scan/scan_sync` and `scan/scan_async` read,
decode on other threads or await.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.lazy_names import lazy_names

if TYPE_CHECKING:
    from lance_io.file.file_report import (
        FileMetadata,
        FileStatistics,
        LanceBufferDescriptor,
        LanceColumnMetadata,
        LanceFileMetadata,
        LanceFileStatistics,
        LancePageMetadata,
    )
    from lance_io.file.file_session import LanceFileSession, ListResult
    from lance_io.file.reader import AsyncFileReader, LanceFileReader, ReaderResults
    from lance_io.file.write.writers import AsyncFileWriter, LanceFileWriter, stable_version

_HOMES = {
    "AsyncFileReader": "lance_io.file.reader",
    "AsyncFileWriter": "lance_io.file.write.writers",
    "FileMetadata": "lance_io.file.file_report",
    "FileStatistics": "lance_io.file.file_report",
    "LanceBufferDescriptor": "lance_io.file.file_report",
    "LanceColumnMetadata": "lance_io.file.file_report",
    "LanceFileMetadata": "lance_io.file.file_report",
    "LanceFileReader": "lance_io.file.reader",
    "LanceFileSession": "lance_io.file.file_session",
    "LanceFileStatistics": "lance_io.file.file_report",
    "LanceFileWriter": "lance_io.file.write.writers",
    "LancePageMetadata": "lance_io.file.file_report",
    "ListResult": "lance_io.file.file_session",
    "ReaderResults": "lance_io.file.reader",
    "stable_version": "lance_io.file.write.writers",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)

__all__ = [
    "AsyncFileReader",
    "AsyncFileWriter",
    "FileMetadata",
    "FileStatistics",
    "LanceBufferDescriptor",
    "LanceColumnMetadata",
    "LanceFileMetadata",
    "LanceFileReader",
    "LanceFileSession",
    "LanceFileStatistics",
    "LanceFileWriter",
    "LancePageMetadata",
    "ListResult",
    "ReaderResults",
    "stable_version",
]
