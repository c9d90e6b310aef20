"""Descriptions of a data file for people and tools: metadata, statistics, pages."""

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
    """Location of a buffer in a file.

    Attributes:
        position: File offset in bytes.
        size: Size in bytes.
    """

    position: int
    size: int


@dataclass(frozen=True, slots=True)
class PageMetadata:
    """One page of a column.

    Attributes:
        buffers: Locations of its buffers.
        encoding: Its layout and codec, as text.
        num_rows: Its number of rows.
    """

    buffers: list[BufferDescriptor]
    encoding: str
    num_rows: int = 0


@dataclass(frozen=True, slots=True)
class ColumnMetadata:
    """One column of a file.

    Attributes:
        column_buffers: Locations of buffers that belong to the whole column; current files have none.
        pages: Its pages, in row order.
        name: Its name, dotted for nested columns.
    """

    column_buffers: list[BufferDescriptor]
    pages: list[PageMetadata]
    name: str = ""


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """Metadata of a file, as `LanceFileReader.metadata` returns it; names and meanings are pylance's.

    Attributes:
        schema: Arrow schema of all columns.
        num_rows: Number of rows.
        num_data_bytes: Bytes before the column metadata, including padding, without global buffers.
        num_column_metadata_bytes: Bytes of the column metadata and of its offset table.
        num_global_buffer_bytes: Bytes of all global buffers.
        global_buffers: Locations of the global buffers.
        columns: One entry per stored column.
        major_version: Major file version in the footer.
        minor_version: Minor file version in the footer.
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
    """Statistics of a column.

    Attributes:
        num_pages: Number of pages.
        size_bytes: Bytes of their buffers.
    """

    num_pages: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """Statistics of a file.

    Attributes:
        columns: One entry per stored column, in column order.
    """

    columns: list[ColumnStatistics] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ColumnPages:
    """The pages of one column, as `lance-io pages` prints them."""

    index: int
    name: str
    type: str
    pages: list[PageDescription]

    @property
    def num_rows(self) -> int:
        """Rows of all pages."""
        return sum(page.num_rows for page in self.pages)

    @property
    def num_bytes(self) -> int:
        """Bytes of all page buffers."""
        return sum(page.num_bytes for page in self.pages)


def describe_columns(file: OpenedFile) -> list[ColumnPages]:
    """Describe each column of a file, whose column metadata must have been read."""
    return describe_pages([file.stored_column(index) for index in range(len(file.paths))])


def describe_pages(columns: Sequence[Column]) -> list[ColumnPages]:
    """Describe columns."""
    return [
        ColumnPages(c.index, c.path.name, c.path.leaf.logical_type, [page.describe() for page in c.pages])
        for c in columns
    ]


def file_metadata(file: OpenedFile) -> FileMetadata:
    """See `FileMetadata`."""
    buffers = zip(file.global_buffers.positions.tolist(), file.global_buffers.sizes.tolist(), strict=True)
    descriptors = [BufferDescriptor(position, size) for position, size in buffers]
    num_global_bytes = sum(descriptor.size for descriptor in descriptors)
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
    column, column_info = file.stored_column(index), file.info(index)
    column_buffers = zip(column_info.buffer_offsets, column_info.buffer_sizes, strict=True)
    pages = []
    for info, page in zip(column_info.pages, column.pages, strict=True):
        description = page.describe()
        buffers = zip(info.buffer_offsets, info.buffer_sizes, strict=True)
        text = f"{description.layout}: {description.codec}"
        pages.append(PageMetadata([BufferDescriptor(*buffer) for buffer in buffers], text, info.num_rows))
    return ColumnMetadata([BufferDescriptor(*buffer) for buffer in column_buffers], pages, column.path.name)


def file_statistics(file: OpenedFile) -> FileStatistics:
    """See `FileStatistics`."""
    infos = [file.info(index) for index in range(len(file.paths))]
    return FileStatistics([ColumnStatistics(len(i.pages), sum(page.data_bytes for page in i.pages)) for i in infos])


LanceBufferDescriptor = BufferDescriptor  # pylance's names
LanceColumnMetadata = ColumnMetadata
LanceFileMetadata = FileMetadata
LanceFileStatistics = FileStatistics
LancePageMetadata = PageMetadata
