"""An opened data file: its schema, and its columns with the layouts of their pages.

Columns are parsed when they are first asked for, from metadata that was read at opening (or, in very wide files, for
the projection only). Specification: file container, sections 2.2 and 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lance_io.encodings.registry import open_page
from lance_io.encodings.v2_1.miniblock import MiniBlockPage
from lance_io.errors import FormatError
from lance_io.format.columns import decode_column
from lance_io.format.places import REFUSALS, placed
from lance_io.levels.path import LeafPath, leaf_paths

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_io.encodings.api import PageLayout
    from lance_io.format.columns import ColumnInfo
    from lance_io.format.footer import Footer, OffsetTable
    from lance_io.format.globals import FileDescriptor
    from lance_io.spans import IntArray


@dataclass(slots=True, eq=False)
class Column:
    """One column of an opened file.

    row_starts  i64[pages + 1], table rows before each page
    pages       layouts, in row order
    info        what the metadata says about each page
    keys        search-cache key of each page's index
    accepted    the type that the table was last found to declare for this column
    join_key    rows of all its pages, and of columns of other files with an equal key, can be decoded into one array;
                None for a column whose pages are decoded one by one
    """

    index: int
    path: LeafPath
    row_starts: IntArray
    pages: tuple[PageLayout, ...]
    info: ColumnInfo
    keys: list[tuple[Any, ...]]
    join_key: tuple[str, str] | None
    accepted: pa.DataType | None = None

    def expect_type(self, dtype: pa.DataType) -> None:
        """Raise FormatError unless the table's schema has this column's leaf type and nesting (`LeafPath.skeleton`)."""
        if dtype is self.accepted:  # the usual case, without comparing
            return
        found = self.path.skeleton
        if dtype != found:
            raise FormatError(f"{found} in the file, {dtype} in the table", where=self.where)
        self.accepted = dtype

    @property
    def where(self) -> str:
        """The column for messages."""
        return f'column {self.index} ("{self.path.name}")'


class OpenedFile:
    """A data file whose metadata has been read.

    identity         store, key and size: what cache entries about the file are known by
    key, size_bytes  the object
    footer           sections and version
    descriptor       the file's own schema and its number of rows
    column_table     where the metadata of each column is
    blocks           metadata messages by column, as far as they were read
    global_buffers   where the global buffers are
    """

    def __init__(
        self,
        identity: tuple[str, str, int],
        footer: Footer,
        descriptor: FileDescriptor,
        column_table: OffsetTable,
        global_buffers: OffsetTable,
        blocks: dict[int, bytes],
    ) -> None:
        self.identity = identity
        self.key = identity[1]
        self.size_bytes = footer.file_bytes
        self.footer = footer
        self.version = footer.version
        self.descriptor = descriptor
        self.num_rows = descriptor.num_rows
        self.column_table = column_table
        self.global_buffers = global_buffers
        self.blocks = blocks
        self.paths = [path for field in descriptor.schema.fields for path in leaf_paths(field)]
        self._columns: dict[int, Column] = {}
        if footer.num_columns != len(self.paths):
            raise FormatError(
                f"{footer.num_columns} columns in a file whose schema has {len(self.paths)} leaf columns", path=self.key
            )

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes, about: messages, and what parsing makes of them."""
        return 4096 + 4 * sum(map(len, self.blocks.values())) + 1024 * len(self.paths)

    def missing(self, columns: list[int]) -> list[int]:
        """Which of these columns' metadata has not been read."""
        return [column for column in columns if column not in self.blocks]

    def column(self, index: int) -> Column:
        """The column, parsed on first use. Raises FormatError and UnsupportedError that name column and page."""
        column = self._columns.get(index)
        if column is None:
            try:
                column = self._columns[index] = self._parse(index)
            except REFUSALS as error:
                error.path = self.key
                raise
        return column

    def _parse(self, index: int) -> Column:
        if not 0 <= index < len(self.paths):
            raise FormatError(f"the manifest names column {index}; the file has {len(self.paths)}")
        info = decode_column(self.blocks[index], index, self.footer)
        path = self.paths[index]
        where = f'column {index} ("{path.name}")'
        slots = path.slots_per_row
        pages = []
        for number, page in enumerate(info.pages):
            if page.num_rows % slots:
                raise FormatError(f"{page.num_rows} slots for lists of {slots}", where=f"{where}, page {number}")
            try:
                pages.append(open_page(self.version, page, path))
            except REFUSALS as error:
                raise placed(error, f"{where}, page {number}") from error.__cause__
        if info.num_rows != self.num_rows * slots:
            raise FormatError(f"{info.num_rows // slots} rows in its pages; the file has {self.num_rows}", where=where)
        row_starts = info.row_starts if slots == 1 else info.row_starts // slots
        keys = [(self.identity, index, number) for number in range(len(pages))]
        first = pages[0] if pages else None
        join_key = None
        if isinstance(first, MiniBlockPage) and all(first.joins(page) for page in pages):
            join_key = str(path.nodes[0].arrow_type), repr(first.value_shape)
        return Column(index, path, row_starts, tuple(pages), info, keys, join_key)
