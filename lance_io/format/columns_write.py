"""Column metadata of a file that is being written: one message per page, put together at the end.

`columns.py` shows the message and reads it. A column's message is its column encoding followed by its pages, and a
protobuf message with a repeated field is the concatenation of messages with one entry each: so a page is serialized
as soon as its place is known, and the column is the bytes of its pages in a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.any_pb2 import Any as AnyMessage

from lance_io.format.columns import COLUMN_ENCODING_TYPE, PAGE_TYPES
from lance_io.proto import encodings_pb2, file_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lance_io.format.version import FileVersion


def _packed(type_name: str, value: bytes) -> bytes:
    message = AnyMessage()
    message.type_url, message.value = f"/{type_name}", value
    return message.SerializeToString()


def _column_encoding() -> bytes:
    encoding = encodings_pb2.ColumnEncoding()
    encoding.values.SetInParent()
    message = file_pb2.ColumnMetadata()
    message.encoding.direct.encoding = _packed(COLUMN_ENCODING_TYPE, encoding.SerializeToString())
    return message.SerializeToString()


_COLUMN_ENCODING: Final = _column_encoding()  # the same in every column


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
    page = message.pages.add()  # filled in place: messages made of messages are copied, which takes three times as long
    page.buffer_offsets.extend(buffer_offsets)
    page.buffer_sizes.extend(buffer_sizes)
    page.length = num_rows
    page.encoding.direct.encoding = _packed(PAGE_TYPES[version], layout)
    page.priority = first_row
    return message.SerializeToString()


def encode_column(page_entries: Iterable[bytes]) -> bytes:
    """The message of a column out of what `encode_page_entry` made of its pages, in row order."""
    return b"".join((_COLUMN_ENCODING, *page_entries))
