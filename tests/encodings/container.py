"""The plainest file around encoded pages: for tests that hand pages to readers, ours and pylance."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf import any_pb2

from lance_io.encodings.open_page import PAGE_LAYOUT_MESSAGE, open_page
from lance_io.format.columns import COLUMN_ENCODING_TYPE, PageInfo
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.format.schema_messages import encode_schema
from lance_io.levels.path import leaf_paths
from lance_io.proto import encodings_pb2, file_pb2
from lance_io.spans import Fetched

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from lance_io.encodings.api import PageLayout
    from lance_io.encodings.written import EncodedPage
    from lance_io.format.version import FileVersion
    from lance_io.levels.path import LeafPath


class Memory:
    """Page buffers at 64-byte borders of one bytes object."""

    def __init__(self) -> None:
        self.file = io.BytesIO()

    def put(self, data: Any) -> tuple[int, int]:
        """Offset and size of what is appended."""
        self.file.write(bytes(-self.file.tell() % 64))
        start = self.file.tell()
        self.file.write(data)
        return start, self.file.tell() - start

    def page(self, page: EncodedPage) -> tuple[tuple[int, ...], tuple[int, ...]]:
        places = [self.put(b"".join(bytes(part) for part in buffer.parts)) for buffer in page.buffers]
        return tuple(start for start, _ in places), tuple(size for _, size in places)


def reopen(page: EncodedPage, path: LeafPath, version: FileVersion) -> tuple[PageLayout, bytes]:
    """The page as our reader sees it, and the bytes it lies in."""
    memory = Memory()
    memory.put(b"before")
    offsets, sizes = memory.page(page)
    info = PageInfo(offsets, sizes, page.num_rows, 0, PAGE_LAYOUT_MESSAGE, page.layout)
    return open_page(version, info, path), memory.file.getvalue()


def drive_async(steps: Any, data: bytes) -> Any:
    """Run a computation over bytes."""
    try:
        wanted = next(steps)
        while True:
            pieces = [data[a:b] for a, b in zip(wanted.starts.tolist(), wanted.ends.tolist(), strict=True)]
            offsets = np.cumsum([0, *map(len, pieces)])[:-1].astype(np.int64)
            wanted = steps.send(Fetched(b"".join(pieces), offsets))
    except StopIteration as finished:
        return finished.value


def read_back(page: EncodedPage, path: LeafPath, version: FileVersion) -> pa.Array:
    """All rows of a page, by our reader."""
    layout, data = reopen(page, path, version)
    return drive_async(layout.scan(), data)


def write_file(
    target: Path, schema: pa.Schema, columns: Sequence[Sequence[EncodedPage]], num_rows: int, version: FileVersion
) -> None:
    """A whole file of these pages."""
    memory = Memory()
    metadata = []
    paths = [path for field in schema_from_arrow(schema).fields for path in leaf_paths(field)]
    for path, pages in zip(paths, columns, strict=True):
        column = file_pb2.ColumnMetadata()
        column.encoding.direct.encoding = _any(COLUMN_ENCODING_TYPE, encodings_pb2.ColumnEncoding(values={}))
        priority = 0
        for page in pages:
            offsets, sizes = memory.page(page)
            message = column.pages.add(
                buffer_offsets=offsets, buffer_sizes=sizes, length=page.num_rows, priority=priority
            )
            message.encoding.direct.encoding = any_pb2.Any(
                type_url=f"/{PAGE_LAYOUT_MESSAGE}", value=page.layout
            ).SerializeToString()
            priority += page.num_rows // path.slots_per_row  # of the first row, where pages count slots
        metadata.append(column.SerializeToString())
    fields = encode_schema(schema_from_arrow(schema))
    descriptor = file_pb2.FileDescriptor(length=num_rows)
    descriptor.schema.fields.extend(fields)
    globals_at = memory.put(descriptor.SerializeToString())
    out = memory.file
    places = []
    columns_at = out.tell()
    for column in metadata:
        places.append((out.tell(), len(column)))
        out.write(column)
    column_table_at = out.tell()
    out.write(b"".join(struct.pack("<QQ", *place) for place in places))
    globals_table_at = out.tell()
    out.write(struct.pack("<QQ", *globals_at))
    out.write(
        struct.pack(
            "<QQQIIHH4s", columns_at, column_table_at, globals_table_at, 1, len(columns), version.major, version.minor,
            b"LANC",
        )
    )  # fmt: skip
    target.write_bytes(out.getvalue())


def _any(type_name: str, message: Any) -> bytes:
    return any_pb2.Any(type_url=f"/{type_name}", value=message.SerializeToString()).SerializeToString()
