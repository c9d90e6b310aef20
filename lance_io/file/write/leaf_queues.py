"""Columns of a file of version 2.1 or later that is being written: one per leaf, including the levels above it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from lance_io.encodings.write_pages import encode_pages
from lance_io.encodings.write_small import SMALL_PAGE_BYTES_MAX, encode_small_pages
from lance_io.file.write.accumulate import ColumnQueue
from lance_io.levels.chunks import leaf_chunks
from lance_io.levels.leaf_sums import sum_page
from lance_io.levels.shred import shred
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from lance_io._kernels import SmallPages
    from lance_io.encodings.options import ColumnOptions
    from lance_io.encodings.written import EncodedPage
    from lance_io.file.write.accumulate import ClosedPage
    from lance_io.file.write.write_plan import FilePlan
    from lance_io.format.schema import Field
    from lance_io.format.version import FileVersion
    from lance_io.levels.leaf_sums import LeafSums
    from lance_io.levels.leafpage import LeafPage
    from lance_io.levels.path import LeafPath


GROUP_BYTES: Final = 256 << 10  # leaf data of small pages that are encoded together: enough to share among cores
GROUP_PAGES: Final = 1024

EncodedGroup: TypeAlias = "list[tuple[int, SmallPages | list[EncodedPage]]]"
"""Number of a page in its group with the encoded page; or the number of the first of several, with all of them."""


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    """A leaf column: its queue of rows, and their encoding options."""

    path: LeafPath
    options: ColumnOptions
    queue: ColumnQueue


class LeafQueues:
    """Queues of rows that wait for their pages, by leaf column.

    page_bytes, cache_bytes  see `ColumnQueue`
    """

    def __init__(
        self, fields: Sequence[Field], plan: FilePlan, version: FileVersion, page_bytes: int, cache_bytes: int
    ) -> None:
        self._fields = fields
        self._version = version
        self._small_kinds = plan.small_kinds
        # Per column: a page of one chunk is small up to this many bytes.
        self._small_bytes_max = [-1 if kind is None else SMALL_PAGE_BYTES_MAX for kind in plan.small_kinds]
        self._columns: list[_Column] = []
        self._by_field = []
        for leaves in plan.columns_by_field:
            first = len(self._columns)
            for column, (path, options) in enumerate(leaves, first):
                self._columns.append(_Column(path, options, ColumnQueue(column, path, page_bytes, cache_bytes)))
            self._by_field.append(self._columns[first:])

    @property
    def waiting_bytes(self) -> list[int]:
        """Bytes of queued leaf data, by column."""
        return [column.queue.num_bytes for column in self._columns]

    def add(self, arrays: Iterable[pa.Array], *, held: bool) -> Iterator[ClosedPage]:
        """Queue rows; yields the pages that they fill. Rows are queued as this is consumed."""
        for field, columns, array in zip(self._fields, self._by_field, arrays, strict=True):
            for column, chunk in zip(columns, leaf_chunks(field, array), strict=True):
                yield from column.queue.add(chunk, held=held)

    def sum_rows(self, arrays: Iterable[pa.Array]) -> list[LeafSums]:
        """Checksums of these rows, by column."""
        chunks = zip(self._fields, arrays, strict=True)
        return [sum_page(shred([chunk])) for field, array in chunks for chunk in leaf_chunks(field, array)]

    def flush(self) -> Iterator[ClosedPage]:
        """Close the pages of all queued rows."""
        for column in self._columns:
            yield from column.queue.flush()

    def peek(self) -> Iterator[ClosedPage]:
        """The pages that `flush` would close; the rows stay queued."""
        for column in self._columns:
            yield from column.queue.peek()

    def close_pages(self) -> Iterator[ClosedPage]:
        """As `flush`, in a file that continues."""
        return self.flush()

    def encode(self, page: ClosedPage) -> list[EncodedPage]:
        """Encode a page; several only if the format cannot hold these rows in one."""
        return self._encode(page, shred(page.chunks))

    def flush_groups(self) -> Iterator[list[ClosedPage]]:
        """As `flush`, with small pages of neighbouring columns grouped."""
        group: list[ClosedPage] = []
        num_bytes = 0
        for column, bytes_max in zip(self._columns, self._small_bytes_max, strict=True):
            for page in column.queue.flush():
                is_small = page.num_bytes <= bytes_max and len(page.chunks) == 1
                if group and (not is_small or num_bytes >= GROUP_BYTES or len(group) >= GROUP_PAGES):
                    yield group
                    group, num_bytes = [], 0
                if is_small:
                    group.append(page)
                    num_bytes += page.num_bytes
                else:
                    yield [page]
        if group:
            yield group

    def encode_group(self, pages: list[ClosedPage]) -> EncodedGroup:
        """Encode a group of `flush_groups`. Small pages must hold the first rows of the file."""
        first_page = pages[0]
        if first_page.num_bytes > self._small_bytes_max[first_page.column] or len(first_page.chunks) > 1:
            return [(0, self.encode(page)) for page in pages]
        columns = []
        for page in pages:
            kind, chunk = self._small_kinds[page.column], page.chunks[0]
            assert kind is not None, "small pages have a kind"
            columns.append((kind, chunk.leaf.slice(chunk.start, chunk.num_rows)))
        encoded: EncodedGroup = []
        done = 0
        for first, run in encode_small_pages(columns, self._version):
            encoded += [(at, self.encode(pages[at])) for at in range(done, first)]
            encoded.append((first, run))
            done = first + len(run)
        encoded += [(at, self.encode(pages[at])) for at in range(done, len(pages))]
        return encoded

    def encode_summed(self, page: ClosedPage) -> tuple[list[EncodedPage], LeafSums]:
        """As `encode`, with the checksums of the rows."""
        shredded = shred(page.chunks)
        return self._encode(page, shredded), sum_page(shredded)

    def _encode(self, page: ClosedPage, shredded: LeafPage) -> list[EncodedPage]:
        column = self._columns[page.column]
        return encode_pages(column.path, shredded, column.options, self._version)

    def num_rows(self, page: ClosedPage, encoded: EncodedPage) -> int:
        """Number of table rows in a page."""
        return encoded.num_rows // self._columns[page.column].path.slots_per_row
