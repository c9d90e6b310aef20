"""What a data file consists of, for people and tools: metadata, statistics, page descriptions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_io.encodings.api import PageDescription
    from lance_io.file.open.column_pages import Column
    from lance_io.file.open.data_file import OpenedFile


@dataclass(frozen=True, slots=True)
class BufferDescriptor:
    """Where a buffer lies: file offset and size, in bytes."""

    position: int
    size: int


@dataclass(frozen=True, slots=True)
class PageMetadata:
    """One page: its buffers, and its encoding as text."""

    buffers: list[BufferDescriptor]
    encoding: str
    num_rows: int = 0


@dataclass(frozen=True, slots=True)
class ColumnMetadata:
    """One column: its own buffers (none in today's files) and its pages."""

    column_buffers: list[BufferDescriptor]
    pages: list[PageMetadata]
    name: str = ""


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """What `LanceFileReader.metadata` returns; names and meanings are pylance's.

    num_data_bytes             before the column metadata, global buffers left out, padding included
    num_column_metadata_bytes  with the table of their places
    """

    schema: pa.Schema
    num_rows: int
    num_data_bytes: int
    num_column_metadata_bytes: int
    num_global_buffer_bytes: int
    global_buffers: list[BufferDescriptor]
    columns: list[ColumnMetadata]
    major_version: int
    minor_version: int


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Pages of a column and their bytes."""

    num_pages: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """Statistics per column, in column order."""

    columns: list[ColumnStatistics] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ColumnPages:
    """The pages of one column, described: what `lance-io pages` prints."""

    index: int
    name: str
    type: str
    pages: list[PageDescription]

    @property
    def num_rows(self) -> int:
        """Page rows."""
        return sum(page.num_rows for page in self.pages)

    @property
    def num_bytes(self) -> int:
        """Bytes of all page buffers."""
        return sum(page.num_bytes for page in self.pages)


def describe_columns(file: OpenedFile) -> list[ColumnPages]:
    """Every column of a file whose column metadata has been read."""
    return describe_pages([file.stored_column(index) for index in range(len(file.paths))])


def describe_pages(columns: Sequence[Column]) -> list[ColumnPages]:
    """Some columns, described."""
    return [
        ColumnPages(c.index, c.path.name, c.path.leaf.logical_type, [page.describe() for page in c.pages])
        for c in columns
    ]


def file_metadata(file: OpenedFile) -> FileMetadata:
    """See `FileMetadata`."""
    buffers = zip(file.global_buffers.positions.tolist(), file.global_buffers.sizes.tolist(), strict=True)
    descriptors = [BufferDescriptor(position, size) for position, size in buffers]
    num_global_bytes = sum(one.size for one in descriptors)
    return FileMetadata(
        schema=file.descriptor.schema.to_arrow(),
        num_rows=file.num_rows,
        num_data_bytes=file.footer.columns_at - num_global_bytes,
        num_column_metadata_bytes=file.footer.globals_table_at - file.footer.columns_at,
        num_global_buffer_bytes=num_global_bytes,
        global_buffers=descriptors,
        columns=[_column(file, index) for index in range(len(file.paths))],
        major_version=file.version.in_footer[0],
        minor_version=file.version.in_footer[1],
    )


def _column(file: OpenedFile, index: int) -> ColumnMetadata:
    column, what = file.stored_column(index), file.info(index)
    own = zip(what.buffer_offsets, what.buffer_sizes, strict=True)
    pages = []
    for info, page in zip(what.pages, column.pages, strict=True):
        found = page.describe()
        buffers = zip(info.buffer_offsets, info.buffer_sizes, strict=True)
        text = f"{found.layout}: {found.codec}"
        pages.append(PageMetadata([BufferDescriptor(*buffer) for buffer in buffers], text, info.num_rows))
    return ColumnMetadata([BufferDescriptor(*buffer) for buffer in own], pages, column.path.name)


def file_statistics(file: OpenedFile) -> FileStatistics:
    """See `FileStatistics`."""
    infos = [file.info(index) for index in range(len(file.paths))]
    return FileStatistics([ColumnStatistics(len(i.pages), sum(page.data_bytes for page in i.pages)) for i in infos])


LanceBufferDescriptor = BufferDescriptor  # under the names that pylance gives them
LanceColumnMetadata = ColumnMetadata
LanceFileMetadata = FileMetadata
LanceFileStatistics = FileStatistics
LancePageMetadata = PageMetadata
