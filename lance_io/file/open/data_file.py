"""An opened data file: its schema, and its columns with the layouts of their pages.

Columns are parsed on first use from metadata that was read at opening (in very wide files, only that of the
projection): page lengths at once, the layout of a page on its first use. Results that depend only on the schema are
computed once and shared, because most files of a table have the same schema.
Specification: file container, sections 2.2 and 3.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io.errors import FormatError
from lance_io.file.open.column_pages import Column, Layouts, Pages, where
from lance_io.file.open.projected_pages import FileView
from lance_io.format.columns import LazyItems, decode_column, decode_column_table, decode_columns, ordinary_info
from lance_io.format.error_context import FILE_ERRORS
from lance_io.format.flat_fields import FlatFields
from lance_io.format.footer import TABLE_ENTRY_BYTES
from lance_io.format.globals import FileDescriptor, decode_globals_table
from lance_io.format.version import V2_0
from lance_io.gil import yielding
from lance_io.lazy_names import lazy_module
from lance_io.levels.path import LeafPath, leaf_paths
from lance_io.limits import VALUE_BYTES_MAX
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_io.file.open import array_columns
    from lance_io.file.open.array_columns import ColumnTree
    from lance_io.file.open.leaf_projection import FileColumns, LeafColumns
    from lance_io.format.columns import ColumnInfo
    from lance_io.format.footer import Footer, OffsetTable
    from lance_io.format.schema import Schema
    from lance_io.format.version import FileVersion
    from lance_io.spans import IntArray
else:
    array_columns = lazy_module("lance_io.file.open.array_columns")  # imports the readers of 2.0, which few tables need

VIEWS_MAX: Final = 8  # cached projections per file and per schema
MEASURED_PAGES_MAX: Final = 64  # more pages are not summed up: they are not few bytes


class FlatPaths(LazyItems[LeafPath]):
    """Paths to the columns of fields without members, one column each."""

    __slots__ = ("_fields", "_value_bytes_max")

    def __init__(self, fields: FlatFields, value_bytes_max: int) -> None:
        super().__init__(len(fields))
        self._fields = fields
        self._value_bytes_max = value_bytes_max

    def _make_item(self, number: int) -> LeafPath:
        (path,) = leaf_paths(self._fields[number])
        return path.allowing(self._value_bytes_max)


@dataclass(frozen=True, slots=True, eq=False)
class FileSchema:
    """State that all files with the same schema (byte by byte) share.

    schema    schema of the file
    paths     paths to its columns; before and after version 2.0 only leaves have columns
    tree      column tree, version 2.0 only
    layouts   cached page layouts
    accepted  leaves of projections whose declared types match the columns, by identity; keeps them alive
    """

    schema: Schema
    paths: Sequence[LeafPath]
    layouts: Layouts = field(default_factory=Layouts)
    accepted: dict[int, LeafColumns] = field(default_factory=dict)
    tree: ColumnTree | None = None

    @classmethod
    def of(cls, schema: Schema, version: FileVersion, value_bytes_max: int = VALUE_BYTES_MAX) -> FileSchema:
        """The state for files with this schema; a value may decode to at most `value_bytes_max` bytes."""
        if version == V2_0:
            tree = array_columns.ColumnTree.of(schema, value_bytes_max)
            return cls(schema, tree.paths, tree=tree)
        if isinstance(schema.fields, FlatFields):
            return cls(schema, FlatPaths(schema.fields, value_bytes_max))
        paths = [path.allowing(value_bytes_max) for top in schema.fields for path in leaf_paths(top)]
        return cls(schema, tuple(paths))


class OpenedFile:
    """A data file whose metadata has been read.

    identity         store, key and size: key of cache entries about the file
    key, size_bytes  the object
    footer           sections and version
    num_rows         rows of the file
    messages         bytes from the first column's metadata to the footer, if all of it has been read
    tables           offsets of column metadata and global buffers, if `messages` is None
    blocks           metadata messages by column that have been read, if `messages` is None
    """

    def __init__(
        self,
        identity: tuple[str, str, int],
        footer: Footer,
        schema: FileSchema,
        num_rows: int,
        messages: bytes | None,
        tables: tuple[OffsetTable, OffsetTable] | None = None,
    ) -> None:
        self.identity = identity
        self.key = identity[1]
        self.size_bytes = footer.file_bytes
        self.footer = footer
        self.version = footer.version
        self.num_rows = num_rows
        self.blocks: dict[int, bytes] = {}
        self._schema = schema
        self._messages = messages
        self._tables = tables
        self._single_page_row_starts: IntArray | None = None
        self._columns: dict[int, Column] = {}
        # Columns whose members the table declares differently, by its last declaration.
        self._redeclared: dict[int, Column] = {}
        self._views: dict[int, FileView] = {}  # by identity of `FileColumns`; each view keeps its `FileColumns` alive
        self.named_columns: Any = None  # choices of columns by name, of readers that know no fields: `NamedColumns`
        self.paths = schema.paths
        self._arrays: array_columns.ArrayColumns | None = None
        if schema.tree is not None:
            tree = schema.tree
            if footer.num_columns != len(tree.paths) and messages is not None:
                tree = tree.with_byte_lists(
                    footer.num_columns, lambda index: array_columns.first_page_is_list(self.info(index))
                )
                self.paths = tree.paths
            self._tree = tree
            self._infos: dict[int, ColumnInfo] = {}
            self._stored_sizes: dict[int, tuple[int, int]] = {}  # by column: its pages, and their bytes
            self._arrays = array_columns.ArrayColumns(
                self.key, tree, lambda index: self._infos.get(index) or self.info(index)
            )
        if footer.num_columns != len(self.paths):
            raise FormatError(
                f"{footer.num_columns} columns in a file whose schema has {len(self.paths)} columns", path=self.key
            )

    @property
    def descriptor(self) -> FileDescriptor:
        """The file's own schema and its number of rows."""
        return FileDescriptor(self._schema.schema, self.num_rows)

    @property
    def column_table(self) -> OffsetTable:
        """Offsets of each column's metadata."""
        return self._offset_tables()[0]

    @property
    def global_buffers(self) -> OffsetTable:
        """Offsets of the global buffers."""
        return self._offset_tables()[1]

    def _offset_tables(self) -> tuple[OffsetTable, OffsetTable]:
        if self._tables is None:
            assert self._messages is not None, "a file has its tables or the bytes to parse them from"
            footer, messages = self.footer, memoryview(self._messages)
            columns = decode_column_table(messages[footer.column_table_at - footer.columns_at :], footer)
            buffers = decode_globals_table(messages[footer.globals_table_at - footer.columns_at :], footer)
            self._tables = columns, buffers
        return self._tables

    @property
    def nbytes(self) -> int:
        """Approximate memory held, in bytes: messages and their parsed form."""
        held = sum(map(len, self.blocks.values()))
        if self._messages is not None:
            held = len(self._messages) - TABLE_ENTRY_BYTES * (self.footer.num_columns + self.footer.num_globals)
        return 4096 + 4 * held + 1024 * len(self.paths)

    def missing(self, columns: list[int]) -> list[int]:
        """Those of these columns whose metadata has not been read."""
        if self._messages is not None:
            return []
        return [column for column in self.with_list_columns(columns) if column not in self.blocks]

    def stored_bytes(self, columns: Sequence[int]) -> int | None:
        """Bytes of the pages of some columns, from their metadata.

        None for many pages, and for metadata that have not been read or are damaged. In version 2.0 with the columns of
        the lists above.
        """
        if self.missing([*columns]):
            return None
        try:
            if self._arrays is not None:
                return self._stored_arrays(self.with_list_columns([*columns]))
            by_column = [self.column(index).pages for index in columns]
        except FILE_ERRORS:
            return None
        if sum(map(len, by_column)) > MEASURED_PAGES_MAX:
            return None
        return sum([pages.num_bytes(number) for pages in by_column for number in range(len(pages))])

    def _stored_arrays(self, columns: list[int]) -> int | None:
        """`stored_bytes` of columns of version 2.0, whose metadata are decoded once."""
        sizes = self._stored_sizes
        for index in columns:
            if index not in sizes:
                pages = self.info(index).pages
                is_few = len(pages) <= MEASURED_PAGES_MAX
                sizes[index] = len(pages), sum([page.data_bytes for page in pages]) if is_few else 0
        if sum([sizes[index][0] for index in columns]) > MEASURED_PAGES_MAX:
            return None
        return sum([sizes[index][1] for index in columns])

    def with_list_columns(self, columns: list[int]) -> list[int]:
        """These columns and the columns of the lists above them, if lists have columns."""
        if self._arrays is None:
            return columns
        known = [column for column in columns if 0 <= column < len(self.paths)]
        return list(dict.fromkeys(index for column in known for index in self._tree.columns_of(column)))

    def column(self, index: int) -> Column:
        """The column, parsed on first use. Raises FormatError and UnsupportedError that name column and page."""
        column = self._columns.get(index)
        return self._load([index])[0] if column is None else column

    def stored_column(self, index: int) -> Column:
        """A column with its own pages, for descriptions: list pages are separate from those of their items."""
        if self._arrays is None:
            return self.column(index)
        row_starts, pages = self._arrays.stored_pages(index)
        return Column(self.identity, index, self.paths[index], row_starts, pages)

    def info(self, index: int) -> ColumnInfo:
        """The decoded metadata of a column; raises as `column`."""
        return decode_column(self._block(index), index, self.footer, self.key)

    def infos(self) -> list[ColumnInfo]:
        """The decoded metadata of all columns; raises as `column`."""
        indices = range(len(self.paths))
        if self._messages is None:
            return [self.info(index) for index in indices]
        parts = decode_columns(self._messages, indices, self.footer)
        return [
            self.info(at) if column_parts is None else ordinary_info(at, *column_parts)
            for at, column_parts in enumerate(parts)
        ]

    def view(self, file_columns: FileColumns, *, keep: bool = True) -> FileView:
        """The columns of a projection; raises as `column`, and FormatError for types other than the table's.

        keep  cache them and their parts
        """
        view = self._views.get(id(file_columns))
        if view is None:
            had_some = bool(self._columns)
            view = FileView(file_columns, self._declare_columns(file_columns.leaf_columns))
            if not keep:
                if not had_some:
                    self._columns, self._redeclared = {}, {}
                return view
            if len(self._views) >= VIEWS_MAX:
                self._views.clear()
            self._views[id(file_columns)] = view
        return view

    def _declare_columns(self, leaves: LeafColumns) -> list[Column]:
        """The columns as the table declares them; FormatError for other types."""
        columns = self._load(leaves.columns)
        accepted = self._schema.accepted
        if id(leaves) in accepted:  # fast path: nothing to compare
            return columns
        declared = [
            self._declare_column(column, path, dtype)
            for column, path, dtype in zip(columns, leaves.paths, leaves.types, strict=True)
        ]
        if declared == columns:
            if len(accepted) >= VIEWS_MAX:
                accepted.clear()
            accepted[id(leaves)] = leaves
        return declared

    def _declare_column(self, column: Column, declared: LeafPath, dtype: pa.DataType) -> Column:
        """A column as the table declares it; the `LeafPath.skeleton` of `declared` is `dtype`."""
        skeleton = column.path.skeleton
        is_same = dtype == skeleton and not declared.leaf.is_packed  # members of packed structs have ids, too
        path = column.path if is_same else column.path.as_declared(declared)
        if path is None:
            raise FormatError(f"{skeleton} in the file, {dtype} in the table", path=self.key, where=column.where)
        if path is column.path:
            return column
        other = self._redeclared.get(column.index)
        if other is None or other.path != path:
            other = self._redeclared[column.index] = self._with_path(column, path)
        return other

    def _with_path(self, column: Column, path: LeafPath) -> Column:
        """The column with its pages read under another path."""
        if self._arrays is not None:
            return self._array_column(column.index, path)
        index, row_starts = column.index, column.row_starts
        # These layouts are not shared: shared layouts refer to the path of the file's own schema.
        pages = Pages(self.key, self.version, index, path, self.info(index).pages, row_starts, None)
        return Column(self.identity, index, path, row_starts, pages)

    # -- from messages to columns --------------------------------------------------------------------------------

    def _load(self, indices: Sequence[int]) -> list[Column]:
        columns = self._columns
        new = [index for index in indices if index not in columns]
        if new:
            try:
                self._parse(new)
            except FILE_ERRORS as error:
                error.path = self.key
                raise
        return [columns[index] for index in indices]

    def _decode_infos(self, indices: list[int]) -> None:
        """Decode the metadata of some columns of version 2.0 and of the columns above them in one call."""
        if self._messages is None:
            return
        tree = self._tree
        wanted = list(
            dict.fromkeys(column for index in indices for column in (*tree.headers[index], *tree.columns_of(index)))
        )
        for index, parts in zip(wanted, decode_columns(self._messages, wanted, self.footer), strict=True):
            if parts is not None:
                self._infos[index] = ordinary_info(index, *parts)

    def _array_column(self, index: int, path: LeafPath) -> Column:
        """A leaf column of version 2.0, read under this path."""
        assert self._arrays is not None, "only files of version 2.0 have such columns"
        for header in self._tree.headers[index]:
            if self._messages is not None:
                self._arrays.check_header(header)
        first, starts, pages = self._arrays.rows_and_pages(index, path)
        if int(starts[-1]) != self.num_rows:
            text = f"{int(starts[-1])} rows in its pages; the file has {self.num_rows}"
            raise FormatError(text, where=self._arrays.where(first))
        paged_by = None if first == index else self._arrays.where(first)
        return Column(self.identity, index, path, starts, pages, paged_by)

    def _parse(self, indices: list[int]) -> None:
        if self._arrays is not None:
            for index in indices:
                if not 0 <= index < len(self.paths):
                    raise FormatError(f"the manifest names column {index}; the file has {len(self.paths)}")
            self._decode_infos(indices)
            for index in indices:
                self._columns[index] = self._array_column(index, self.paths[index])
            self._infos.clear()
            return
        messages = self._messages
        decoded = [None] * len(indices) if messages is None else decode_columns(messages, indices, self.footer)
        for index, parts in yielding(zip(indices, decoded, strict=True)):
            if not 0 <= index < len(self.paths):
                raise FormatError(f"the manifest names column {index}; the file has {len(self.paths)}")
            slots = self.paths[index].slots_per_row
            if parts is None:
                info = self.info(index)
                column = self._column(index, info.row_starts, info.pages)
            elif parts[0] is None and parts[1] == self.num_rows * slots:  # the usual case: one page with all rows
                column = self._column(index, None, parts[2])
            else:
                starts = [0, parts[1]] if parts[0] is None else np.frombuffer(parts[0], dtype=np.int64)
                column = self._column(index, np.asarray(starts, dtype=np.int64), parts[2])
            self._columns[index] = column

    def _column(self, index: int, slot_starts: IntArray | None, pages: Any) -> Column:
        """A column whose pages begin at these slots; None for one page with all rows."""
        path, schema = self.paths[index], self._schema
        if slot_starts is None:
            row_starts = self._single_page_row_starts
            if row_starts is None:
                row_starts = self._single_page_row_starts = np.array([0, self.num_rows], dtype=np.int64)
        else:
            row_starts = self._row_starts(index, slot_starts)
        layouts = Pages(self.key, self.version, index, path, pages, row_starts, schema.layouts)
        return Column(self.identity, index, path, row_starts, layouts)

    def _row_starts(self, index: int, slot_starts: IntArray) -> IntArray:
        """The first row of each page and the total; checks that the pages hold all rows of the file."""
        path, starts = self.paths[index], slot_starts
        slots = path.slots_per_row
        if slots > 1:
            uneven = np.flatnonzero(starts % slots)
            if len(uneven):
                number = int(uneven[0]) - 1
                num_slots = int(starts[number + 1] - starts[number])
                text = f"{num_slots} slots for lists of {slots}"
                raise FormatError(text, where=f"{where(index, path)}, page {number}")
            starts = starts // slots
        if int(starts[-1]) != self.num_rows:
            text = f"{int(starts[-1])} rows in its pages; the file has {self.num_rows}"
            raise FormatError(text, where=where(index, path))
        return starts

    def _block(self, index: int) -> bytes | memoryview:
        """The metadata message of an existing column whose metadata has been read."""
        if self._messages is None:
            return self.blocks[index]
        table, start = self.column_table, self.footer.columns_at
        at = int(table.positions[index]) - start
        return memoryview(self._messages)[at : at + int(table.sizes[index])]
