"""A data file taken apart, so that single parts of it can be damaged, and put together again around the damage.

data part        page buffers and global buffers, as they were
columns          `ColumnMetadata` messages, and in each page the `PageLayout` message, or the `ArrayEncoding` of 2.0
descriptor       global buffer 0; a changed one is put behind the data part
tables, footer   written anew, so that only what was meant to be damaged is
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from google.protobuf.any_pb2 import Any as AnyMessage

from lance_io.proto import encodings21_pb2, encodings_pb2, file_pb2

FOOTER = struct.Struct("<QQQIIHH4s")
PAIR = struct.Struct("<QQ")
Layout = encodings21_pb2.PageLayout | encodings_pb2.ArrayEncoding


@dataclass(frozen=True)
class Place:
    """One buffer of one page, and what it is: "chunk words", "chunks", "dictionary", "index", "levels", "entries", or
    "array" in version 2.0.
    """

    column: int
    page: int
    buffer: int
    start: int
    size: int
    role: str


class Anatomy:
    """The parts of a data file that is not damaged yet."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.footer = list(FOOTER.unpack_from(data, len(data) - FOOTER.size))
        columns_at, table_at, globals_at, num_globals, num_columns, *_ = self.footer
        self.body = data[:columns_at]
        self.column_table = [PAIR.unpack_from(data, table_at + 16 * i) for i in range(num_columns)]
        self.global_table = [PAIR.unpack_from(data, globals_at + 16 * i) for i in range(num_globals)]
        self.columns = [file_pb2.ColumnMetadata.FromString(data[at : at + size]) for at, size in self.column_table]
        at, size = self.global_table[0]
        self.descriptor = file_pb2.FileDescriptor.FromString(data[at : at + size])
        self.descriptor_changed = False

    def layout(self, column: int, page: int) -> Layout:
        """The layout message of a page."""
        wrapped = AnyMessage.FromString(self.columns[column].pages[page].encoding.direct.encoding)
        if wrapped.type_url.endswith("ArrayEncoding"):
            return encodings_pb2.ArrayEncoding.FromString(wrapped.value)
        return encodings21_pb2.PageLayout.FromString(wrapped.value)

    def set_layout(self, column: int, page: int, layout: Layout) -> None:
        """Put a changed layout message back."""
        direct = self.columns[column].pages[page].encoding.direct
        wrapped = AnyMessage.FromString(direct.encoding)
        wrapped.value = layout.SerializeToString()
        direct.encoding = wrapped.SerializeToString()

    def pages(self) -> list[tuple[int, int]]:
        """(column, page) of every page."""
        return [(c, p) for c, column in enumerate(self.columns) for p in range(len(column.pages))]

    def places(self) -> list[Place]:
        """Every page buffer."""
        found = []
        for column, page in self.pages():
            message = self.columns[column].pages[page]
            roles = _roles(self.layout(column, page), len(message.buffer_sizes))
            for number, (start, size) in enumerate(zip(message.buffer_offsets, message.buffer_sizes, strict=True)):
                found.append(Place(column, page, number, start, size, roles[number]))
        return found

    def together(self) -> bytes:
        """The file of these parts."""
        body = self.body
        globals_ = list(self.global_table)
        if self.descriptor_changed:
            content = self.descriptor.SerializeToString()
            body += bytes(-len(body) % 64)
            globals_[0] = (len(body), len(content))
            body += content
        columns_at = len(body)
        table = []
        for column in self.columns:
            content = column.SerializeToString()
            table.append((len(body), len(content)))
            body += content
        table_at = len(body)
        body += b"".join(PAIR.pack(*entry) for entry in table)
        globals_at = len(body)
        body += b"".join(PAIR.pack(*entry) for entry in globals_)
        return body + FOOTER.pack(columns_at, table_at, globals_at, len(globals_), len(table), *self.footer[5:])


def _roles(layout: Layout, count: int) -> list[str]:
    if isinstance(layout, encodings_pb2.ArrayEncoding):
        return ["array"] * count
    kind = layout.WhichOneof("layout")
    if kind == "blob_layout":
        return _roles(layout.blob_layout.inner_layout, count)
    if kind == "full_zip_layout":
        return ["entries", "index"][:count]
    if kind == "mini_block_layout":
        middle = ["dictionary"] if layout.mini_block_layout.HasField("dictionary") else []
        return ["chunk words", "chunks", *middle, "index"][:count]
    return ["levels"] * count
