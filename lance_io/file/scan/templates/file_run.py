"""A run of small files that a scan reads whole, for both drivers: templates, limits, joined batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io import limits
from lance_io.file.scan.batches import Cutter, JoinedBatch
from lance_io.file.scan.templates.file_templates import FileTemplates
from lance_io.io.buffer_pool import buffer_pool
from lance_io.levels.arrays import memory_bytes
from lance_io.levels.row_bytes import fixed_bits
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from lance_io.file.open.file_source import ReadContext
    from lance_io.file.open.leaf_projection import LeafColumns, Projection
    from lance_io.file.scan.batches import ScanBatch
    from lance_io.file.scan.decoded_parts import Allowance
    from lance_io.file.scan.page_slices import Piece
    from lance_io.file.scan.readahead import Readahead, Span
    from lance_io.file.scan.slow_start import Pace

    Part = ScanBatch | JoinedBatch | Cutter | int  # a span that the general scan must read is its index


@dataclass(eq=False, repr=False)
class FileRun:
    """Spans that are one whole small file each, with the same columns.

    first      index of the first span in the scan
    leaves     the common leaves of the files
    pace       row limit of the scan; None for no limit
    num_begun  spans whose reads have begun
    """

    context: ReadContext
    projection: Projection
    spans: Sequence[Span]
    first: int
    leaves: LeafColumns
    ahead: Readahead
    pace: Pace | None = None

    def __post_init__(self) -> None:
        buffer_pool().trim()
        self.templates = FileTemplates.of(self.leaves)
        self.rows_max = rows_max(self.leaves)
        self.num_begun = 0

    def allows(self, index: int) -> bool:
        """Whether the row limit allows to read a span ahead."""
        return self.pace is None or self.pace.allows(self.first + index)

    def num_rows(self, part: Part) -> int:
        """Rows of a part."""
        if isinstance(part, int):
            return self.spans[part][0].num_rows
        return part.end - part.position if isinstance(part, Cutter) else part.num_rows

    def decode(
        self,
        first: int,
        files: Sequence[tuple[Any, int]],
        allowance: Allowance,
        read_alone: Callable[[int, Any, Allowance], Iterable[Part]],
    ) -> Iterator[Part]:
        """The rows of some files in order.

        first       index of the span of the first file
        files       all bytes of each file, and its number of rows
        allowance   limit of the decoded bytes: the general scan must read the files beyond it
        read_alone  returns the parts of a file that matches no template, from the index of its span, its bytes and the
                    allowance
        """
        refs = [source.files[0] for source, _, _ in self.spans[first : first + len(files)]]
        for at, count, arrays in self.templates.decode(refs, self.context.store.identity, files):
            if not count:
                yield from read_alone(first + at, files[at][0], allowance)
                continue
            allowance.use(sum(map(memory_bytes, arrays)))
            yield self._joined(first + at, [num_rows for _, num_rows in files[at : at + count]], arrays)
            if not allowance.has_room(0):
                yield from range(first + at + count, first + len(files))
                return

    def needs_general(self, group: Sequence[Piece], allowance: Allowance) -> bool:
        """Whether the pieces of a file decode to so much at once that the general scan must read it."""
        return not allowance.has_room(sum([piece.bound or 0 for piece in group if not piece.is_to_measure]))

    def _joined(self, index: int, row_counts: list[int], arrays: list[pa.Array]) -> JoinedBatch:
        """All rows of some files.

        index   of the span of the first file
        arrays  one of each of the leaves
        """
        projection, leaves, num_rows = self.projection, self.leaves, sum(row_counts)
        if not (projection.is_flat and leaves.is_all):
            by_leaf = dict(zip(leaves.leaf_ids, arrays, strict=True))
            numbers = range(len(projection.fields))
            arrays = [projection.assemble_field(number, by_leaf, num_rows) for number in numbers]
        return JoinedBatch(self.first + index, row_counts, num_rows, arrays)


def rows_max(leaves: LeafColumns) -> int:
    """Maximum number of rows per job: a file may have any number of rows whose values take no bytes."""
    row_bits = sum([fixed_bits(path.leaf_type) or 0 for path in leaves.paths])
    return min(limits.SCAN_JOB_ROWS, 8 * limits.SCAN_DECODED_BYTES // max(1, row_bits))
