"""The last 40 bytes of a data file, and the offset tables before them (spec: file container, section 1).

    bytes  type     field              meaning
     0- 7  u64 LE   columns_at         file offset of the first column metadata message
     8-15  u64 LE   column_table_at    file offset of the (position, size) pairs, one per column
    16-23  u64 LE   globals_table_at   file offset of the (position, size) pairs, one per global buffer
    24-27  u32 LE   num_globals
    28-31  u32 LE   num_columns
    32-35  u16 x 2  major, minor       see `version.py`
    36-39  bytes    "LANC"

    | data and global buffers | column metadata | column table | globals table | footer |
                              ^ columns_at      ^ column_table_at              ^ file_bytes - 40
                                                               ^ globals_table_at

The three sections at the end leave no gap between them, which ties every number of the footer to the file's size.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from lance_io.errors import FormatError, UnsupportedError
from lance_io.format.version import V0_1, V2_1, VERSION_OF_PAIR, FileVersion
from lance_io.limits import METADATA_BYTES_MAX
from lance_io.records import dataclass

if TYPE_CHECKING:
    from lance_io.format.wire import Buffer
    from lance_io.spans import IntArray

MAGIC: Final = b"LANC"
ALIGNMENT_BYTES: Final = 64  # of page and global buffers, from 2.1 on

_LAYOUT = struct.Struct("<QQQIIHH4s")
FOOTER_BYTES: Final = _LAYOUT.size
_ENTRY = struct.Struct("<QQ")  # of an offset table: position, size
TABLE_ENTRY_BYTES: Final = _ENTRY.size
_VERSION_AND_MAGIC = struct.Struct("<HH4s")  # shared with version 0.1, whose footer is shorter


@dataclass(frozen=True, slots=True)
class Footer:
    """The metadata sections of a data file; every offset is checked against `file_bytes`.

    columns_at, column_table_at, globals_table_at  file offsets in bytes
    num_globals, num_columns                       entries of the two tables
    version                                        file version
    file_bytes                                     size of the whole file
    """

    columns_at: int
    column_table_at: int
    globals_table_at: int
    num_globals: int
    num_columns: int
    version: FileVersion
    file_bytes: int


class OffsetTable(NamedTuple):
    """Ranges of some buffers: i64[n] file offsets and i64[n] sizes, in bytes."""

    positions: IntArray
    sizes: IntArray


def decode_footer(tail: Buffer, *, file_bytes: int) -> Footer:
    """Read the footer from the end of `tail`, any suffix of the file of at least 40 bytes (or the whole file).

    Raises `FormatError` for a file that does not end in a footer or whose footer contradicts its size, and
    `UnsupportedError` for version 0.1, whose footer has another form, and for unknown versions.
    """
    view = memoryview(tail).cast("B")
    if len(view) < _VERSION_AND_MAGIC.size:
        raise FormatError(f"file of {file_bytes} bytes is too short for a {FOOTER_BYTES}-byte footer")
    major, minor, magic = _VERSION_AND_MAGIC.unpack_from(view, len(view) - _VERSION_AND_MAGIC.size)
    if magic != MAGIC:
        raise FormatError(
            f"expected {MAGIC!r} in the last 4 bytes, found {magic!r}: this does not appear to be a Lance file, or a "
            "whole one"
        )
    version = VERSION_OF_PAIR[major, minor]
    if version == V0_1:
        raise UnsupportedError(f"data files of version {V0_1.name} are not read yet")
    if len(view) < FOOTER_BYTES:
        raise FormatError(f"file of {file_bytes} bytes is too short for a {FOOTER_BYTES}-byte footer")
    first, second, third, num_globals, num_columns, *_ = _LAYOUT.unpack_from(view, len(view) - FOOTER_BYTES)
    footer = Footer(first, second, third, num_globals, num_columns, version, file_bytes)
    _check_sections(footer)
    return footer


def _check_sections(footer: Footer) -> None:
    column_table_end = footer.column_table_at + footer.num_columns * TABLE_ENTRY_BYTES
    globals_table_end = footer.globals_table_at + footer.num_globals * TABLE_ENTRY_BYTES
    in_order = footer.columns_at <= footer.column_table_at
    adjacent = column_table_end == footer.globals_table_at and globals_table_end == footer.file_bytes - FOOTER_BYTES
    if not (in_order and adjacent):
        raise FormatError(
            f"footer: expected column metadata at {footer.columns_at}, then {footer.num_columns} table entries at "
            f"{footer.column_table_at}, then {footer.num_globals} at {footer.globals_table_at} to fill a file of "
            f"{footer.file_bytes} bytes, but they overlap or leave gaps. The file is damaged or cut off"
        )
    if footer.num_globals == 0:
        raise FormatError("footer: expected at least one global buffer, the file descriptor, found none")
    if footer.file_bytes - footer.columns_at > METADATA_BYTES_MAX:
        raise FormatError(
            f"footer: column metadata of {footer.file_bytes - footer.columns_at} bytes, at most {METADATA_BYTES_MAX}"
        )


def decode_offset_table(data: Buffer, count: int, *, start: int, end: int, what: str) -> OffsetTable:
    """Read `count` (position, size) pairs from the beginning of `data`.

    start, end  file range that must contain all of them. Raises `FormatError` otherwise.
    what        name of an entry in error messages, such as `"column metadata"`
    """
    length_bytes = count * TABLE_ENTRY_BYTES
    view = memoryview(data).cast("B")[:length_bytes]
    if len(view) < length_bytes:
        raise FormatError(f"offset table of {what}: expected {length_bytes} bytes, found {len(view)}")
    table = np.frombuffer(bytes(view), dtype="<u8").reshape(count, 2)
    positions, sizes = table[:, 0], table[:, 1]
    is_outside = (positions < start) | (positions > end) | (sizes > end - np.minimum(positions, end))
    if is_outside.any():
        index = int(is_outside.argmax())
        raise FormatError(
            f"{what} {index}: {sizes[index]} bytes at {positions[index]} lie outside of the bytes {start} to {end} "
            "of the file"
        )
    return OffsetTable(positions.astype(np.int64), sizes.astype(np.int64))


def check_alignment(offset_bytes: int, version: FileVersion, what: str) -> None:
    """Raise `FormatError` for an unaligned buffer in a file of version 2.1 or later (section 1.3)."""
    if offset_bytes % ALIGNMENT_BYTES and version >= V2_1:
        raise FormatError(f"{what} at offset {offset_bytes} is not aligned to {ALIGNMENT_BYTES} bytes")
