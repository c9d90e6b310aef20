"""Deletion files: the deleted rows of a fragment (spec: table, section 4).

    .arrow   Arrow IPC file, one batch, one column `row_id`: uint32 not null, in any order
    .bin     portable 32-bit Roaring bitmap

Both list offsets into the physical rows of the fragment: all rows ever deleted in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.codecs.roaring import decode_roaring, encode_roaring
from lance_io.errors import FormatError
from lance_io.spans import distinct
from lance_io.table.manifest.arrow_ipc import read_u32_column
from lance_io.table.manifest.fragment import FRAGMENT_ROWS_MAX

if TYPE_CHECKING:
    from lance_io.codecs.roaring import U32Array
    from lance_io.format.wire import Buffer
    from lance_io.table.manifest.fragment import DeletionFile, DeletionKind

ARROW_ROWS_MAX: Final = 5000  # more deleted rows than these are written as a bitmap
_COMPRESSED_ROWS_MIN: Final = 128  # compression makes fewer rows no smaller, and takes five times as long

_ROW_ID: Final[pa.Schema] = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])


def deletion_kind(num_deleted_rows: int) -> DeletionKind:
    """The file format for this number of deleted rows."""
    return "arrow" if num_deleted_rows <= ARROW_ROWS_MAX else "bitmap"


def encode_deletions(offsets: U32Array, kind: DeletionKind) -> bytes:
    """The deletion file of `offsets`, u32, ascending and without duplicates: all rows ever deleted in the fragment."""
    if kind == "bitmap":
        return encode_roaring(offsets)
    memory = pa.py_buffer(np.ascontiguousarray(offsets, np.uint32))
    column: pa.Array[Any] = pa.Array.from_buffers(pa.uint32(), len(offsets), [None, memory])  # `pa.array` loads pandas
    sink = pa.BufferOutputStream()
    compression = "zstd" if len(offsets) >= _COMPRESSED_ROWS_MIN else None
    with pa.ipc.new_file(sink, _ROW_ID, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([column], schema=_ROW_ID))
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode_deletions(data: Buffer, file: DeletionFile, physical_rows: int | None) -> U32Array:
    """The deleted offsets of a fragment, u32, ascending and without duplicates.

    data           the whole deletion file
    file           its entry in the manifest: kind, and number of rows if known
    physical_rows  rows of the fragment if known; offsets at or above it are damage

    Raises `FormatError` for bytes that are not such a file, or contradict the manifest.
    """
    limit = FRAGMENT_ROWS_MAX if physical_rows is None else physical_rows
    expected = file.num_deleted_rows
    num_rows_max = limit if expected is None else min(expected, limit)
    if file.kind == "bitmap":
        offsets = decode_roaring(data, num_values_max=num_rows_max)
    else:
        offsets = distinct(read_u32_column(data, "row_id", num_rows_max=num_rows_max))
    if len(offsets) and int(offsets[-1]) >= limit:
        raise FormatError(f"deletion file: row {int(offsets[-1])} is deleted in a fragment of {limit} rows")
    if expected is not None and expected != len(offsets):
        raise FormatError(f"deletion file: {len(offsets)} deleted rows, but the manifest says {expected}")
    return offsets
