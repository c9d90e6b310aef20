"""Columns of a file of version 2.0 that is being written: one per field (spec: encodings 2.0, 2 and 7).

leaf      its values; those of list items are concatenated
list      the number of items of each list; closing a page of it also closes those of the items, as old readers need
struct    only one page at the end with the number of structs: structs cannot be null
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.encodings.v2_0.variable import END_BYTES
from lance_io.encodings.v2_0.write_arrays import encode_array, encode_ends, encode_header
from lance_io.errors import UnsupportedDataError
from lance_io.file.write.accumulate import ClosedPage, ColumnQueue
from lance_io.levels.chunks import LeafChunk, leaf_array
from lance_io.levels.join import join_arrays
from lance_io.levels.leaf_sums import LeafSums, sum_flat
from lance_io.levels.lists import visible_items
from lance_io.levels.path import NodeKind
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lance_io.encodings.options import ColumnOptions
    from lance_io.encodings.written import EncodedPage
    from lance_io.file.write.write_plan import FilePlan
    from lance_io.format.schema import Field
    from lance_io.levels.path import LeafPath

_NO_ROWS: Final = 0  # first row of every page, by the format


@dataclass(slots=True, eq=False)
class _Column:
    """A column and the columns of its members.

    queue      queued values of a leaf
    lengths    lengths of queued lists
    num_rows   number of values so far; for lists, of queued ones
    has_pages  whether any page has been closed
    """

    index: int
    path: LeafPath
    options: ColumnOptions
    children: list[_Column] = field(default_factory=list)
    queue: ColumnQueue | None = None
    lengths: list[pa.Array] = field(default_factory=list)
    num_rows: int = 0
    has_pages: bool = False

    @property
    def kind(self) -> NodeKind:
        kind = self.path.nodes[-1].kind
        is_empty = pa.types.is_struct(self.path.leaf_type) and not self.path.leaf_type.num_fields
        return NodeKind.STRUCT if is_empty else kind

    @property
    def waiting_bytes(self) -> int:
        """Bytes of queued data."""
        if self.queue is not None:
            return self.queue.num_bytes
        return END_BYTES * self.num_rows if self.lengths else 0

    def lengths_page(self) -> ClosedPage:
        """The page of the queued lists."""
        chunks = [LeafChunk((), lengths, 0, len(lengths)) for lengths in self.lengths]
        return ClosedPage(self.index, _NO_ROWS, chunks, self.waiting_bytes)

    def walk(self) -> Iterator[_Column]:
        yield self
        for child in self.children:
            yield from child.walk()


class ArrayQueues:
    """Queues of values that wait for their pages, by column.

    page_bytes, cache_bytes  see `ColumnQueue`
    """

    def __init__(self, fields: Sequence[Field], plan: FilePlan, page_bytes: int, cache_bytes: int) -> None:
        self._fields = fields
        self._page_bytes = page_bytes
        self._cache_bytes = cache_bytes
        self._tops: list[_Column] = []
        for below in plan.columns_by_field:
            above: list[_Column] = []
            for path, options in below:
                column = _Column(len(self._all), path, options)
                if column.kind is NodeKind.LEAF:
                    column.queue = ColumnQueue(column.index, path, page_bytes, cache_bytes)
                del above[len(path.nodes) - 1 :]
                (above[-1].children if above else self._tops).append(column)
                above.append(column)
        self._columns = self._all

    @property
    def _all(self) -> list[_Column]:
        return [column for top in self._tops for column in top.walk()]

    @property
    def waiting_bytes(self) -> list[int]:
        """Bytes of queued data, by column."""
        return [column.waiting_bytes for column in self._columns]

    def add(self, arrays: Iterable[pa.Array], *, held: bool) -> Iterator[ClosedPage]:
        """Queue rows; yields the pages that they fill. Rows are queued as this is consumed.

        Raises UnsupportedDataError for null structs.
        """
        for top, array in zip(self._tops, arrays, strict=True):
            yield from self._add(top, array, held)

    def _add(self, column: _Column, array: pa.Array, held: bool) -> Iterator[ClosedPage]:
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        match column.kind:
            case NodeKind.LEAF:
                assert column.queue is not None, "leaves have a queue"
                if pa.types.is_struct(array.type) and not column.path.leaf.is_blob:
                    _check_no_nulls(column.path, array)
                column.num_rows += len(array)
                chunk = LeafChunk((), leaf_array(array), 0, len(array))
                for page in column.queue.add(chunk, held=held):
                    column.has_pages = True
                    yield page
            case NodeKind.STRUCT:
                _check_no_nulls(column.path, array)
                column.num_rows += len(array)
                for member, child in enumerate(column.children):
                    yield from self._add(child, array.field(member), held)
            case _:
                yield from self._add_lists(column, array, held)

    def _add_lists(self, column: _Column, array: pa.Array, held: bool) -> Iterator[ClosedPage]:
        rows_max, start = max(1, self._page_bytes // END_BYTES), 0
        while start < len(array):
            part = array.slice(start, rows_max - column.num_rows)
            start += len(part)
            items, offsets = visible_items(part)
            column.lengths.append(_lengths(part, offsets))
            column.num_rows += len(part)
            yield from self._add(column.children[0], items, held)
            if column.num_rows == rows_max:
                yield from self._flush(column)
        if column.num_rows * END_BYTES > self._cache_bytes:
            yield from self._flush(column)

    def sum_rows(self, arrays: Iterable[pa.Array]) -> list[LeafSums]:
        """Checksums of these rows by column: of the values of leaves and the lengths of lists; structs are counted."""
        sums = [LeafSums()] * len(self._columns)
        pending = list(zip(self._tops, arrays, strict=True))
        while pending:
            column, array = pending.pop()
            if isinstance(array.type, pa.BaseExtensionType):
                array = array.storage
            match column.kind:
                case NodeKind.LEAF:
                    sums[column.index] = sum_flat(leaf_array(array))
                case NodeKind.STRUCT:
                    sums[column.index] = LeafSums(len(array))
                    pending += [(child, array.field(member)) for member, child in enumerate(column.children)]
                case _:
                    items, offsets = visible_items(array)
                    sums[column.index] = sum_flat(_lengths(array, offsets))
                    pending.append((column.children[0], items))
        return sums

    def encode_summed(self, page: ClosedPage) -> tuple[list[EncodedPage], LeafSums]:
        """As `encode`, with the checksums of the rows."""
        column = self._columns[page.column]
        if column.kind is NodeKind.STRUCT:
            return self.encode(page), LeafSums(column.num_rows)
        values = _values_of(page.chunks)
        return self._encode(column, values), sum_flat(values)

    @property
    def struct_columns(self) -> frozenset[int]:
        """Indexes of the columns of structs."""
        return frozenset(column.index for column in self._columns if column.kind is NodeKind.STRUCT)

    def add_structs(self, column: int, num_rows: int) -> None:
        """Count structs without arrays, whose members' pages are encoded already."""
        assert self._columns[column].kind is NodeKind.STRUCT, "other columns have pages of their own"
        self._columns[column].num_rows += num_rows

    def flush(self) -> Iterator[ClosedPage]:
        """Close the pages of all queued rows, and the headers of structs."""
        for top in self._tops:
            yield from self._flush(top, is_end=True)

    def peek(self) -> Iterator[ClosedPage]:
        """The pages of the queued values; the values stay queued."""
        for column in self._columns:
            if column.queue is not None:
                yield from column.queue.peek()
            elif column.lengths:
                yield column.lengths_page()

    def close_pages(self) -> Iterator[ClosedPage]:
        """Close the pages of the queued rows, in a file that continues."""
        for top in self._tops:
            yield from self._flush(top)

    def _flush(self, column: _Column, *, is_end: bool = False) -> Iterator[ClosedPage]:
        """Close the queued pages of a column and those below; at the end of the file also the mandatory pages."""
        had_rows = column.has_pages or bool(column.num_rows)
        match column.kind:
            case NodeKind.LEAF:
                assert column.queue is not None, "leaves have a queue"
                for page in column.queue.flush():
                    column.has_pages = True
                    yield page
            case NodeKind.STRUCT:
                if is_end:
                    yield ClosedPage(column.index, _NO_ROWS, (), 0)
            case _:
                if column.lengths:
                    page = column.lengths_page()
                    column.lengths, column.num_rows, column.has_pages = [], 0, True
                    yield page
        for child in column.children:
            yield from self._flush(child, is_end=is_end)
        if is_end and had_rows and column.children and column.kind is not NodeKind.STRUCT:
            yield from self._empty(column.children[0])

    def _empty(self, column: _Column) -> Iterator[ClosedPage]:
        """A page without values for a column below lists that have no items, as the reference writes it."""
        if column.kind is not NodeKind.STRUCT and not column.has_pages:
            column.has_pages = True
            nothing = pa.array([], pa.int64() if column.children else column.path.leaf_type)
            yield ClosedPage(column.index, _NO_ROWS, [LeafChunk((), nothing, 0, 0)], 0)
        for child in column.children:
            yield from self._empty(child)

    def encode(self, page: ClosedPage) -> list[EncodedPage]:
        """Encode a page."""
        column = self._columns[page.column]
        if column.kind is NodeKind.STRUCT:
            return [encode_header(column.num_rows)]
        return self._encode(column, _values_of(page.chunks))

    def _encode(self, column: _Column, values: pa.Array) -> list[EncodedPage]:
        if column.children:
            return [encode_ends(values)]
        return [encode_array(column.path, values, column.options)]

    def num_rows(self, page: ClosedPage, encoded: EncodedPage) -> int:
        """Zero: pages of this version do not store their first row."""
        del page, encoded
        return _NO_ROWS


def _check_no_nulls(path: LeafPath, array: pa.Array) -> None:
    if array.null_count:
        raise UnsupportedDataError(
            f"The struct field `{path.leaf.name}` contains {array.null_count} null value(s), but Lance file version "
            "2.0 does not encode struct validity; use file version 2.1 or later"
        )


def _lengths(array: pa.Array, offsets: Any) -> pa.Array:
    lengths = np.diff(offsets)
    return pa.array(lengths, mask=array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None)


def _values_of(chunks: Sequence[LeafChunk]) -> pa.Array:
    return join_arrays([chunk.leaf.slice(chunk.start, chunk.num_rows) for chunk in chunks])
