"""ONE .lance OBJECT: opening it, and driving the layouts of its pages over a store.

    source    what the table says about a file and a fragment, and what reading needs: store, cache, scheduler
    steps     computations that ask for bytes, joined to rounds
    opening   footer, schema and column metadata in one or two reads
    opened    the opened file: columns and their pages
    view      the columns that a projection reads of it, and what their pages have in common
    rows      selected rows of a file
    pieces    what a scan reads one by one: pages, and parts of large ones
    drive     the two drivers: in the caller's thread, or on the engine's loop
    scan      pieces read and decoded ahead, in the caller's thread (`scan_sync`) or on the loop (`scan_async`;
              `scan_ready` where order does not matter)
    batches   batches cut from decoded pieces
    valuecheck  are decoded values in the range of their types, where that is asked for
    table     many fragments: takes and scans of projected fields
    reader    `LanceFileReader`, `AsyncFileReader`

and writing one:

    writesteps  computations that ask for work on the CPU and for bytes to be written
    accumulate  rows that wait for their page, by column
    places      where buffers go in the file, and the metadata that says so
    blobwrite   payloads of blob columns, in the file and beside it
    writer      record batches to the bytes of a file
    writedrive  the two drivers: in the caller's thread, or on the engine's loop
    writing     `LanceFileWriter`, `AsyncFileWriter`, and the same for the files of a table
    session     `LanceFileSession`: both, and the objects around them, below one place

Everything that decides is in generators that both drivers run; only `drive`, `scan_sync`, `scan_async`, `table`,
`writedrive` and `writing` read, write or await.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lance_io.file.file_report import FileMetadata, FileStatistics
    from lance_io.file.file_session import LanceFileSession
    from lance_io.file.reader import AsyncFileReader, LanceFileReader, ReaderResults
    from lance_io.file.write.writers import AsyncFileWriter, LanceFileWriter, stable_version

_HOMES = {
    "AsyncFileReader": "reader",
    "AsyncFileWriter": "write.writers",
    "FileMetadata": "file_report",
    "FileStatistics": "file_report",
    "LanceFileReader": "reader",
    "LanceFileSession": "file_session",
    "LanceFileWriter": "write.writers",
    "ReaderResults": "reader",
    "stable_version": "write.writers",
}


def __getattr__(name: str) -> Any:
    """Public names are loaded when they are first asked for: the rooms above import single modules of this one."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


__all__ = [
    "AsyncFileReader",
    "AsyncFileWriter",
    "FileMetadata",
    "FileStatistics",
    "LanceFileReader",
    "LanceFileSession",
    "LanceFileWriter",
    "ReaderResults",
    "stable_version",
]
