"""Files of version 0.1 and how to open them (spec: legacy 0.1, sections 1 to 4).

    round 1   the end of the file: footer, in most files metadata and page table as well
    round 2   the part of the metadata before it
    round 3   the part of the page table before it

Such a file stores no types: the table names its fields and their types. So it is read only through a table, and its
columns are those of a projection. A leaf has one page, which consists of all batches; arithmetic over the page table
locates rows in it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from lance_io.encodings.rounds import fetch
from lance_io.encodings.v0_1.batched_leaf import BatchedLeaf
from lance_io.encodings.v0_1.field_pages import FieldPages
from lance_io.errors import FormatError, UnsupportedError
from lance_io.file.file_steps import Tail, serve_from_tail
from lance_io.file.open.column_pages import Column, SinglePage, where
from lance_io.file.open.file_source import DEAD
from lance_io.file.open.projected_pages import FileView
from lance_io.format.error_context import FILE_ERRORS, add_location
from lance_io.format.v0_1.batch_table import (
    BATCH_FOOTER_BYTES,
    PageTable,
    block_at,
    decode_end,
    decode_metadata,
    metadata_position,
    page_table_range,
)
from lance_io.format.version import V0_1
from lance_io.levels.path import NodeKind
from lance_io.spans import Ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.file.file_steps import FileSteps
    from lance_io.file.open.file_source import FileRef
    from lance_io.file.open.leaf_projection import FileColumns
    from lance_io.format.v0_1.batch_table import BatchMetadata
    from lance_io.levels.path import LeafPath, PathNode
    from lance_io.spans import IntArray

VIEWS_MAX: Final = 8  # cached projections per file
VIEW_BYTES_PER_ENTRY: Final = 64  # approximate memory of a file's views per entry of its page table


class BatchedFile:
    """A data file of version 0.1 whose end has been read; see `TableFile` for the common interface.

    metadata       batches, and location of the statistics
    page_table_at  start and end offset of the page table
    """

    def __init__(
        self,
        identity: tuple[str, str, int],
        ids: tuple[int, int],
        metadata: BatchMetadata,
        table: PageTable,
        page_table_at: tuple[int, int],
    ) -> None:
        self.version = V0_1
        self.identity = identity
        self.key = identity[1]
        self.size_bytes = identity[2]
        self.num_rows = metadata.num_rows
        self.metadata = metadata
        self.page_table_at = page_table_at
        self._ids = ids
        self._table = table
        self._views: dict[int, FileView] = {}  # by identity of `FileColumns`; each view keeps its `FileColumns` alive
        self._known_pages: dict[int, FieldPages] = {}  # by field id
        self._known_columns: dict[int, tuple[IntArray | None, Column]] = {}  # with the result of `_ends_before`

    @cached_property
    def _row_starts(self) -> IntArray:
        return np.array([0, self.num_rows], dtype=np.int64)

    @property
    def page_table(self) -> PageTable:
        """Locations of the pages."""
        return self._table

    @property
    def nbytes(self) -> int:
        """Approximate memory held, in bytes."""
        return 4096 + VIEW_BYTES_PER_ENTRY * (len(self._table) + self.metadata.num_batches + 1)

    def has_ids(self, ref: FileRef) -> bool:
        """Whether the table names the same field ids as when the file was opened."""
        return ids_of(ref) == self._ids

    def missing(self, columns: list[int]) -> list[int]:
        """Always empty: the page table has been read."""
        return []

    def stored_bytes(self, columns: Sequence[int]) -> int | None:
        """Bytes of some leaves, with the lists above; None unless all of them have been read before."""
        known = [self._known_columns.get(column) for column in columns]
        if any([entry is None for entry in known]):
            return None
        return sum([entry[1].pages.num_bytes(0) for entry in known if entry is not None])

    def view(self, file_columns: FileColumns, *, keep: bool = True) -> FileView:
        """The columns of a projection. Raises FormatError and UnsupportedError that name column and batch.

        keep  cache them
        """
        view = self._views.get(id(file_columns))
        if view is None:
            if not self.has_ids(file_columns.ref):
                text = f"the table names fields {ids_of(file_columns.ref)}, another version of it {self._ids}"
                raise FormatError(text, path=self.key)
            view = FileView(file_columns, self._columns(file_columns))
            if not keep:
                return view
            if len(self._views) >= VIEWS_MAX:
                self._views.clear()
            self._views[id(file_columns)] = view
        return view

    def _columns(self, file_columns: FileColumns) -> list[Column]:
        paths = file_columns.leaf_columns.paths
        chains = [self._chain(path, column) for path, column in zip(paths, file_columns.columns, strict=True)]
        columns = file_columns.columns
        return [self._column(path, column, chain) for path, column, chain in zip(paths, columns, chains, strict=True)]

    def _column(self, path: LeafPath, column: int, chain: list[FieldPages]) -> Column:
        """The column of a leaf; from the cache, unless page bounds are known by now that it was built without."""
        leaf = chain[-1]
        before = self._ends_before(column) if leaf.kind == "binary" else None
        known = self._known_columns.get(column)
        if known is not None and known[0] is before and known[1].path == path:
            return known[1]
        try:
            pages = BatchedLeaf(path, self.metadata.row_starts, chain[:-1], leaf, before, self.size_bytes)
        except FormatError as error:
            raise add_location(error, where(column, path), self.key) from None
        page = SinglePage(pages, int(pages.batch_bytes.sum()))
        leaf_column = Column(self.identity, column, path, self._row_starts, page)
        self._known_columns[column] = before, leaf_column
        return leaf_column

    def _chain(self, path: LeafPath, column: int) -> list[FieldPages]:
        """The pages of the lists around a leaf, and its own."""
        try:
            return [self._pages_of(node) for node in path.nodes if node.kind is not NodeKind.STRUCT]
        except FILE_ERRORS as error:
            raise add_location(error, where(column, path), self.key) from error.__cause__

    def _pages_of(self, node: PathNode) -> FieldPages:
        field_id = node.field.id
        if not self._table.has(field_id):
            raise FormatError(f"no pages of field {field_id}, the file has {self._ids[0]} to {self._ids[1]}")
        known = self._known_pages.get(field_id)
        if known is None or known.node.kind != node.kind or known.node.arrow_type != node.arrow_type:
            known = self._known_pages[field_id] = FieldPages.of(node, self._table, self.size_bytes)
        return known

    def _ends_before(self, field_id: int) -> IntArray | None:
        """End offsets of the pages that writers put before those of a field; None if their sizes are unknown."""
        at = int(self._rows_with_pages.searchsorted(field_id - self._table.first_id))
        if not len(self._rows_with_pages):
            return None
        pages = self._known_pages.get(int(self._rows_with_pages[at - 1]) + self._table.first_id)
        if pages is None:
            return None
        return pages.ends if at > 0 else pages.ends_of_batch_before

    @cached_property
    def _rows_with_pages(self) -> IntArray:
        """Rows of the page table that have pages."""
        rows: IntArray = np.flatnonzero(self._table.positions.any(axis=1) | self._table.lengths.any(axis=1))
        return rows


class AloneOfFirstVersion(UnsupportedError):
    """A file of version 0.1 that no table describes, such as those of indices of the first releases."""


def ids_of(ref: FileRef) -> tuple[int, int]:
    """The smallest and the largest field id of a file. Raises `AloneOfFirstVersion` if the table names none."""
    ids = [each for each in ref.field_ids if each >= 0]
    if not ids:
        raise AloneOfFirstVersion(
            "data files of version 0.1 (v1 metadata) are read as parts of their table, not by themselves", path=ref.key
        )
    return min(ids), max(ids)


def checked_ids(ref: FileRef) -> tuple[int, int]:
    """First and last field id of a file's page table. Raises `FormatError` if the first is unknown."""
    ids = ids_of(ref)
    if ref.field_ids[0] == DEAD:
        raise FormatError("its first column is dead, and the locations of the other columns' pages are counted from it")
    return ids


def open_batched(identity: tuple[str, str, int], ref: FileRef, tail: Tail) -> FileSteps[tuple[BatchedFile, Tail]]:
    """Open a file whose footer is of version 0.1.

    tail  the end of the file, at least the footer
    Raises `FormatError` and `UnsupportedError`.
    """
    ids, file_bytes = checked_ids(ref), identity[2]
    decoded = decode_end(tail.buffer, tail.start, file_bytes, ids[1] - ids[0] + 1)
    if decoded is not None:
        metadata, data = decoded
        at = metadata.page_table_at
        return BatchedFile(
            identity, ids, metadata, PageTable(data, *ids, metadata.num_batches), (at, at + len(data))
        ), tail
    position = metadata_position(tail.buffer, file_bytes)
    if position < tail.start:
        tail = yield from _extend_tail(tail, position)
    content = memoryview(tail.buffer)[position - tail.start : len(tail.buffer) - BATCH_FOOTER_BYTES]
    metadata = decode_metadata(block_at(content, 0, "metadata"))
    start, end = page_table_range(metadata.page_table_at, *ids, metadata.num_batches, file_bytes)
    fetched = yield from serve_from_tail(tail, fetch(Ranges.of((start, end), purpose="metadata")))
    table = PageTable(bytes(fetched.piece(0, end - start)), *ids, metadata.num_batches)
    return BatchedFile(identity, ids, metadata, table, (start, end)), tail


def _extend_tail(tail: Tail, start: int) -> FileSteps[Tail]:
    """Extend the tail to an earlier start, reading only the missing bytes."""
    fetched = yield Ranges.of((start, tail.start), purpose="metadata")
    return Tail(start, b"".join((fetched.piece(0, tail.start - start), memoryview(tail.buffer))))
