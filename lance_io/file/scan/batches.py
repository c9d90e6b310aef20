"""Batches and whole columns from decoded pieces. No I/O.

ScanBatch    rows of one span; the unit that later steps filter and return
JoinedBatch  all rows of several spans
Cutter       cuts the batches of one span as its pieces arrive: page ends differ between columns, batch rows do not
whole_span   the batch of a span whose pieces arrive together, such as those of a small file
Collector    whole columns of many spans, with decoded pieces as chunks
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lance_io.errors import FormatError
from lance_io.file.scan.decoded_parts import DeferredParts, Part
from lance_io.format.error_context import add_page_locations
from lance_io.levels.arrays import memory_bytes
from lance_io.levels.join import join_arrays
from lance_io.records import dataclass
from lance_io.runtime import cpu_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_io.file.open.leaf_projection import Projection
    from lance_io.file.scan.decoded_parts import PartRoom
    from lance_io.file.scan.page_slices import Piece


PARTS_IN_USE: Final = 2


@dataclass(frozen=True, slots=True)
class ScanBatch:
    """Rows `row_start` to `row_start + num_rows` (physical) of span `span_index`, one array per field."""

    span_index: int
    row_start: int
    num_rows: int
    arrays: list[pa.Array]


@dataclass(frozen=True, slots=True)
class JoinedBatch:
    """All rows of the spans from `span_index` on, one array per field.

    row_counts  rows of each span, which begins with the first row of its fragment
    """

    span_index: int
    row_counts: Sequence[int]
    num_rows: int
    arrays: list[pa.Array]

    def cut(self, rows_max: int) -> tuple[JoinedBatch, JoinedBatch | None]:
        """Split off the first spans with at most `rows_max` rows together, at least one span; and the other spans."""
        ends = np.cumsum(self.row_counts)
        count = max(1, int(np.searchsorted(ends, rows_max, side="right")))
        if count == len(self.row_counts):
            return self, None
        end = int(ends[count - 1])
        head, rest = [array.slice(0, end) for array in self.arrays], [array.slice(end) for array in self.arrays]
        counts = self.row_counts
        return (
            JoinedBatch(self.span_index, counts[:count], end, head),
            JoinedBatch(self.span_index + count, counts[count:], self.num_rows - end, rest),
        )

    def split(self, batch_rows: int | None = None) -> Iterator[ScanBatch]:
        """Split into batches of one span each, with at most `batch_rows` rows (None for any number)."""
        before = 0
        for index, count in enumerate(self.row_counts, self.span_index):
            step = batch_rows or max(count, 1)
            for start in range(0, count, step):
                num_rows = min(step, count - start)
                arrays = [array.slice(before + start, num_rows) for array in self.arrays]
                yield ScanBatch(index, start, num_rows, arrays)
            before += count


class _Leaf:
    """Decoded arrays of one leaf column that batches have not used up, in row order, and its deferred parts.

    room     counts the parts; None if they are not counted
    used     the pieces of the last rows
    in_use   the parts of the last rows, at most two: rows of the previous part may wait for their batch
    """

    __slots__ = ("_room", "arrays", "in_use", "used")

    def __init__(self, room: PartRoom | None) -> None:
        self._room = room
        # (first row, array, its piece); deferred parts stand behind the parts created from them
        self.arrays: deque[tuple[int, pa.Array | Part | DeferredParts, Piece]] = deque()
        self.used: list[Piece] = []
        self.in_use: deque[Part] = deque()

    def end(self, otherwise: int) -> int:
        """End of the first array's rows."""
        if not self.arrays:
            return otherwise
        row_start, array = self._first()
        return row_start + len(array)

    def _first(self) -> tuple[int, pa.Array | Part]:
        while type(self.arrays[0][1]) is DeferredParts:
            self._make_part(0)
        row_start, array, _ = self.arrays[0]
        return row_start, array

    def _make_part(self, at: int) -> None:
        """Insert the next of the deferred parts before them, or replace them if it is the last."""
        _, deferred, whole = self.arrays[at]
        assert type(deferred) is DeferredParts, "checked before"
        piece = deferred.take()
        self.arrays[at] = piece.row_start, Part(piece, self._room), piece
        if deferred.next_piece is not None:
            self.arrays.insert(at + 1, (deferred.next_piece.row_start, deferred, whole))

    def rows(self, start: int, end: int) -> pa.Array:
        """Rows `start` to `end`; drops arrays before `end`."""
        parts = []
        arrays = self.arrays
        self.used = []
        while True:
            row_start, first = self._first()
            piece = arrays[0][2]
            if isinstance(first, Part):
                array = self._use(first)
                arrays[0] = row_start, array, piece
            else:
                array = first
            self.used.append(piece)
            array_end = row_start + len(array)
            part_end = min(end, array_end)
            whole = start == row_start and part_end == array_end
            parts.append(array if whole else array.slice(start - row_start, part_end - start))
            if part_end == array_end:
                arrays.popleft()
            if part_end == end:
                break
            start = part_end
        return parts[0] if len(parts) == 1 else join_arrays(parts)

    def _use(self, part: Part) -> pa.Array:
        if len(self.in_use) == PARTS_IN_USE:
            self.in_use.popleft().release()
        self.in_use.append(part)
        array = part.array()
        part.drop_array()
        if len(array) != len(part):
            raise _wrong_rows(part.piece, len(array))
        return array

    def parts(self, end: int) -> Iterator[Part]:
        """Parts before row `end` that are not decoded, created lazily."""
        at = 0
        while at < len(self.arrays) and self.arrays[at][0] < end:
            if type(self.arrays[at][1]) is DeferredParts:
                self._make_part(at)
            array = self.arrays[at][1]
            at += 1
            if type(array) is Part:
                yield array

    def close(self) -> None:
        """Release all parts; no more rows are wanted."""
        for _, array, _ in self.arrays:
            if type(array) is Part:
                array.release()
        while self.in_use:
            self.in_use.popleft().release()


class Cutter:
    """Cuts the batches of one span from arriving arrays.

    room  counts the parts that are decoded while batches are cut; None if they are not counted
    """

    def __init__(
        self,
        projection: Projection,
        index: int,
        start: int,
        end: int,
        batch_rows: int | None,
        room: PartRoom | None = None,
    ) -> None:
        self.room = room
        self.projection = projection
        self.index = index
        self.position = start
        self.end = end
        self.batch_rows = batch_rows
        self.leaves: dict[int, _Leaf] = {}
        self.has_parts = False
        self.waiting_bytes = 0

    @property
    def needs_rows_before(self) -> int:
        """All pieces that start before this row must arrive before `cut`."""
        if self.batch_rows is None:
            return self.position + 1
        return min(self.position + self.batch_rows, self.end)

    def add(self, leaf_id: int, piece: Piece, array: pa.Array | DeferredParts) -> None:
        """Add a decoded piece, or its deferred parts; pieces of a leaf arrive in row order."""
        leaf = self.leaves.setdefault(leaf_id, _Leaf(self.room))
        if isinstance(array, DeferredParts):
            if array.next_piece is not None:
                leaf.arrays.append((piece.row_start, array, piece))
            self.has_parts = True
            self.waiting_bytes += array.num_bytes
            return
        if len(array) != piece.row_end - piece.row_start:
            raise _wrong_rows(piece, len(array))
        leaf.arrays.append((piece.row_start, array, piece))

    def _next_end(self) -> int:
        if self.batch_rows is not None:
            return self.needs_rows_before
        return min((leaf.end(self.end) for leaf in self.leaves.values()), default=self.end)

    def wanted_parts(self) -> Iterator[Part]:
        """The parts that the next batch needs and that are not decoded yet."""
        if self.has_parts:
            end = self._next_end()
            for leaf in self.leaves.values():
                yield from leaf.parts(end)

    def begin_ahead(self) -> None:
        """Submit the next parts of each leaf for decoding, as many as there are cores and room."""
        if self.has_parts:
            for leaf in self.leaves.values():
                for part in islice(leaf.parts(self.end), cpu_count()):
                    part.begin_ahead()

    def all(self) -> Iterator[ScanBatch]:
        """The remaining batches, once all pieces have arrived."""
        try:
            while self.position < self.end:
                batch = self.cut()
                self.begin_ahead()
                yield batch
        finally:
            self.close()

    @property
    def held_bytes(self) -> int:
        """Memory of decoded arrays and of the bytes of deferred parts."""
        arrays = [array for leaf in self.leaves.values() for _, array, _ in leaf.arrays]
        decoded = [array for array in arrays if type(array) not in (Part, DeferredParts)]
        return self.waiting_bytes + sum(map(memory_bytes, decoded))

    def close(self) -> None:
        """Release all parts; no more batches are cut."""
        if self.has_parts:
            for leaf in self.leaves.values():
                leaf.close()

    def cut(self) -> ScanBatch:
        """The next batch."""
        start, end = self.position, self._next_end()
        leaves = self.rows(end)
        arrays = [
            leaves[leaf_id] if leaf_id in leaves else self.field(number, leaves, end - start)
            for number, leaf_id in enumerate(self.projection.flat_leaf_ids)
        ]
        return ScanBatch(self.index, start, end - start, arrays)

    def rows(self, end: int) -> dict[int, pa.Array]:
        """The rows up to `end`, by leaf."""
        start, self.position = self.position, end
        return {leaf_id: leaf.rows(start, end) for leaf_id, leaf in self.leaves.items()}

    def field(self, number: int, leaves: dict[int, pa.Array], num_rows: int) -> pa.Array:
        """Assemble a field from the result of `rows`."""
        try:
            return self.projection.assemble_field(number, leaves, num_rows)
        except FormatError as error:
            ids = [path.leaf.id for path in self.projection.paths[number]]
            leaves_used = [self.leaves[leaf_id] for leaf_id in ids if leaf_id in self.leaves]
            raise _with_locations(error, [piece for leaf in leaves_used for piece in leaf.used]) from None


def _wrong_rows(piece: Piece, num_rows: int) -> FormatError:
    return FormatError(
        f"{num_rows} rows decoded; the page has {piece.row_end - piece.row_start}",
        path=piece.file.key,
        where=f"{piece.column.where}, page {piece.number}",
    )


def whole_span(
    projection: Projection, index: int, start: int, num_rows: int, pieces: Sequence[Piece], arrays: list[pa.Array]
) -> ScanBatch:
    """The batch of a span with one decoded piece per leaf, such as all of a small file.

    pieces, arrays  in the order of the projection's leaves; all arrays have `num_rows`
    """
    if projection.is_flat:
        return ScanBatch(index, start, num_rows, arrays)
    leaves = dict(zip(projection.leaves, arrays, strict=True))
    fields = []
    for number, leaf_id in enumerate(projection.flat_leaf_ids):
        try:
            fields.append(projection.assemble_field(number, leaves, num_rows) if leaf_id is None else leaves[leaf_id])
        except FormatError as error:
            used = dict(zip(projection.leaves, pieces, strict=True))
            raise _with_locations(error, [used[path.leaf.id] for path in projection.paths[number]]) from None
    return ScanBatch(index, start, num_rows, fields)


def _with_locations(error: FormatError, pieces: Sequence[Piece]) -> FormatError:
    pages = [(piece.file.key, piece.column.where, piece.number) for piece in pieces]
    return add_page_locations(error, pages)


class Collector:
    """Whole columns: the decoded pages of a field with one leaf are its chunks."""

    def __init__(self, projection: Projection) -> None:
        self.projection = projection
        self.chunks: list[list[pa.Array]] = [[] for _ in projection.fields]

    def add(
        self, index: int, start: int, end: int, leaves: dict[int, list[tuple[Piece, pa.Array | DeferredParts]]]
    ) -> None:
        """Add all pieces of one span, by leaf and in row order."""
        for number, paths in enumerate(self.projection.paths):
            cutter = Cutter(self.projection, index, start, end, None)
            for path in paths:
                for piece, array in leaves.get(path.leaf.id, []):
                    cutter.add(path.leaf.id, piece, array)
            self._add_field(number, cutter)

    def _add_field(self, number: int, cutter: Cutter) -> None:
        while cutter.position < cutter.end:
            start = cutter.position
            end = min((leaf.end(cutter.end) for leaf in cutter.leaves.values()), default=cutter.end)
            self.chunks[number].append(cutter.field(number, cutter.rows(end), end - start))

    def columns(self) -> list[pa.ChunkedArray]:
        """One chunked array per field."""
        return [
            pa.chunked_array(chunks, type=chunks[0].type if chunks else field.arrow_type)
            for field, chunks in zip(self.projection.fields, self.chunks, strict=True)
        ]
