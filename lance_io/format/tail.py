"""Writes the end of a file: descriptor, column metadata, offset tables, footer.

    | ... data | descriptor | column 0 | column 1 | ... | column table | globals table | footer |
               ^ multiple of 64

The descriptor is global buffer 0; the others are among the data. `footer.py` documents and reads the footer,
`globals.py` the descriptor. Specification: file container, sections 1 and 2.
"""

from __future__ import annotations

import struct
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.empty_pb2 import Empty

from lance_io.format.columns import COLUMN_ENCODING_TYPE, PAGE_TYPES
from lance_io.format.footer import ALIGNMENT_BYTES, FOOTER_BYTES, MAGIC, TABLE_ENTRY_BYTES
from lance_io.format.per_schema import PerSchema
from lance_io.format.schema_messages import encode_schema
from lance_io.proto import encodings_pb2, file_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lance_io.format.schema import Schema
    from lance_io.format.version import FileVersion

PAD: Final = b"H"  # padding byte of other writers; readers ignore it

_DESCRIBED: Final[PerSchema[bytes]] = PerSchema("its part of file descriptors")

_FOOTER = struct.Struct("<QQQIIHH4s")
_ENTRY = struct.Struct("<QQ")


def padding(size_bytes: int) -> bytes:
    """Padding after a buffer of this size, up to the next multiple of 64."""
    return PAD * (-size_bytes % ALIGNMENT_BYTES)


def encode_file_descriptor(schema: Schema, num_rows: int, metadata: Mapping[str, bytes]) -> bytes:
    """Global buffer 0: the file's own schema with its field ids, and its number of rows.

    metadata  of the schema, plus entries that were added during the write
    """
    length = file_pb2.FileDescriptor(length=num_rows).SerializeToString()
    if metadata != schema.metadata:
        return _encode_described(schema, metadata) + length
    described = _DESCRIBED.get(schema)
    if described is None:
        described = _DESCRIBED.keep(schema, _encode_described(schema, metadata))
    return described + length


def _encode_described(schema: Schema, metadata: Mapping[str, bytes]) -> bytes:
    """The descriptor's first field. A message is the concatenation of its fields."""
    fields = encode_schema(schema)
    for field in fields:
        if field.id == -1:  # members of a blob descriptor follow their struct and have no parent id
            field.parent_id = field.id
    described = file_pb2.Schema(fields=fields, metadata=metadata)
    return file_pb2.FileDescriptor(schema=described).SerializeToString(deterministic=True)


def encode_tail(
    columns: Sequence[bytes], global_buffers: Iterable[tuple[int, int]], *, columns_at: int, version: FileVersion
) -> list[bytes]:
    """Everything after the descriptor.

    columns         the metadata message of each column
    global_buffers  (file offset, size) of each, in bytes, the descriptor first
    columns_at      file offset at which the result begins
    """
    sizes = [len(column) for column in columns]
    starts = accumulate(sizes, initial=columns_at)
    ranges = list(global_buffers)
    column_table = b"".join(_ENTRY.pack(start, size) for start, size in zip(starts, sizes, strict=False))
    globals_table = b"".join(_ENTRY.pack(*each) for each in ranges)
    column_table_at = columns_at + sum(sizes)
    globals_table_at = column_table_at + len(sizes) * TABLE_ENTRY_BYTES
    numbers = len(ranges), len(sizes), *version.in_footer
    footer = _FOOTER.pack(columns_at, column_table_at, globals_table_at, *numbers, MAGIC)
    assert len(footer) == FOOTER_BYTES
    return [*columns, column_table, globals_table, footer]


# -- column metadata: one message per page, concatenated at the end ----------------------------------------------------
#
# `columns.py` documents and reads the message. A column's message is its column encoding followed by its pages, and a
# protobuf message with a repeated field is the concatenation of messages with one entry each: so a page is serialized
# as soon as its position is known, and the column is the concatenation of its pages.


def _pack_any(type_name: str, value: bytes) -> bytes:
    message = AnyMessage()
    message.type_url, message.value = f"/{type_name}", value
    return message.SerializeToString()


def _column_encoding(encoding: encodings_pb2.ColumnEncoding) -> bytes:
    message = file_pb2.ColumnMetadata()
    message.encoding.direct.encoding = _pack_any(COLUMN_ENCODING_TYPE, encoding.SerializeToString())
    return message.SerializeToString()


_VALUES: Final = encodings_pb2.ColumnEncoding(values=Empty())
_COLUMN_ENCODING: Final = _column_encoding(_VALUES)  # of nearly every column
_BLOBS: Final = _column_encoding(encodings_pb2.ColumnEncoding(blob=encodings_pb2.Blob(inner=_VALUES)))


def encode_page_entry(
    buffer_offsets: Sequence[int],
    buffer_sizes: Sequence[int],
    *,
    num_rows: int,
    first_row: int,
    layout: bytes,
    version: FileVersion,
) -> bytes:
    """A page's part of its column's message (spec: file container, section 3).

    buffer_offsets, buffer_sizes  file offsets (multiples of 64) and exact sizes, in bytes
    num_rows                      rows, or slots below a fixed-size list of structs
    first_row                     top-level row number of its first row
    layout                        a serialized `PageLayout`
    """
    message = file_pb2.ColumnMetadata()
    page = message.pages.add()  # filled in place: passing messages copies them, which takes three times as long
    page.buffer_offsets.extend(buffer_offsets)
    page.buffer_sizes.extend(buffer_sizes)
    page.length = num_rows
    page.encoding.direct.encoding = _pack_any(PAGE_TYPES[version], layout)
    page.priority = first_row
    return message.SerializeToString()


def encode_column(page_entries: Iterable[bytes], *, is_blob: bool = False) -> bytes:
    """The message of a column from the `encode_page_entry` of its pages, in row order.

    is_blob  whether to mark the column as a blob column, as in version 2.0
    """
    return b"".join((_BLOBS if is_blob else _COLUMN_ENCODING, *page_entries))
