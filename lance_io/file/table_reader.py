"""Takes and scans of projected fields over many fragments.

    take, warm, read   plans, for every store
    scan_sync          in the caller's thread (decoding on all cores), for stores that offer `SyncReads`
    scan               on the engine's loop, for every store

Leaves are read separately and assembled to fields at the end (`open/leaf_projection.py`). If the context asks for it,
values are then checked (`value_check.py`); on the loop, the CPU pool checks them.
"""

from __future__ import annotations

from contextlib import aclosing, closing
from functools import cached_property, partial
from typing import TYPE_CHECKING

from lance_io.errors import ResourceLimitError
from lance_io.file.file_requests import ReadFiles
from lance_io.file.open.leaf_projection import Projection
from lance_io.file.take.take_files import open_files, take, warm
from lance_io.file.take.take_pieces import ANY_BYTES, PiecewiseTake
from lance_io.format.error_context import add_location
from lance_io.lazy_names import lazy_module
from lance_io.levels.arrays import memory_bytes
from lance_io.levels.row_bytes import check_row_bytes, fixed_bits
from lance_io.plans.cpu_requests import Compute
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Sequence

    import pyarrow as pa

    from lance_io.file import value_check
    from lance_io.file.open.file_source import FragmentSource, ReadContext
    from lance_io.file.scan import batches as scan_batches
    from lance_io.file.scan import readahead as readaheads
    from lance_io.file.scan import scan_async, scan_sync
    from lance_io.file.scan.batches import JoinedBatch, ScanBatch
    from lance_io.file.scan.read_gate import ReadGate
    from lance_io.file.scan.readahead import Span
    from lance_io.file.take.take_files import Items, Taken
    from lance_io.format.schema import Field
    from lance_io.io.scheduler import Merge
    from lance_io.levels.layout import BatchLayout
    from lance_io.plans.plan import Plan
    from lance_io.spans import IntArray

    Pick = tuple[FragmentSource, IntArray]
    Part = tuple[FragmentSource, int]
else:
    value_check = lazy_module("lance_io.file.value_check")
    scan_batches = lazy_module("lance_io.file.scan.batches")
    readaheads = lazy_module("lance_io.file.scan.readahead")
    scan_sync = lazy_module("lance_io.file.scan.scan_sync")
    scan_async = lazy_module("lance_io.file.scan.scan_async")


class TableReader:
    """Reads the projected fields of fragments.

    context     store, cache, scheduler
    projection  pruned top-level fields of the table's schema
    """

    def __init__(self, context: ReadContext, projection: Projection | Sequence[Field]) -> None:
        self.context = context
        self.projection = projection if isinstance(projection, Projection) else Projection(projection)

    # -- random access -------------------------------------------------------------------------------------------------

    def take(self, picks: Sequence[Pick], layout: BatchLayout | None = None) -> Plan[Taken]:
        """Rows of fragments, one array per field, in order of the fragments. Reads all files concurrently.

        picks   (fragment, i64[n] physical offsets, ascending, each once)
        layout  of a batch of these fields: returns a batch instead of arrays if one kernel call can build it
        """
        context = self.context
        taken: Taken = yield ReadFiles(context, take(context, self.projection, picks, layout))
        self._check_sizes(taken, picks)
        if context.checks_values:
            yield self._check(_columns(taken), _parts(picks))
        return taken

    def pieces(
        self,
        picks: Sequence[Pick],
        layout: BatchLayout | None = None,
        items: Sequence[Items] | None = None,
        *,
        is_one: bool = False,
    ) -> PiecewiseTake:
        """A take in pieces, for `take_piece`: several if the rows are large, one if `is_one`.

        items  per fragment, by leaf id: i64[n, k], the wanted items of the outermost list of each row. The lists then
               hold exactly these, null where a list lacks the item. Rows may repeat with other items
        """
        return PiecewiseTake(self.context, self.projection, picks, layout, ANY_BYTES if is_one else None, items)

    def take_piece(self, pieces: PiecewiseTake) -> Plan[tuple[int, Taken]]:
        """The next piece: its number of rows, and their fields."""
        piece: tuple[int, list[Pick], Taken] = yield ReadFiles(self.context, pieces.next())
        num_rows, picks, taken = piece
        self._check_sizes(taken, picks)
        if self.context.checks_values:
            yield self._check(_columns(taken), _parts(picks))
        return num_rows, taken

    def warm(self, sources: Sequence[FragmentSource]) -> Plan[None]:
        """Load the metadata and page indexes that takes of these fragments need into the search cache."""
        yield ReadFiles(self.context, warm(self.context, self.projection, sources))

    def open_files(self, sources: Sequence[FragmentSource]) -> Plan[None]:
        """Open the files of these fragments, before it is known which of them have wanted rows."""
        yield ReadFiles(self.context, open_files(self.context, self.projection, sources))

    # -- scans -------------------------------------------------------------------------------------------------

    def scan_sync(
        self,
        spans: Sequence[Span],
        batch_rows: int | None,
        *,
        pieces_ahead: int | None = None,
        spans_ahead: int | None = None,
    ) -> Generator[ScanBatch, None, None]:
        """Batches of physical row ranges, in order. A batch has rows of one span.

        spans         (fragment, first row, end row), physical
        batch_rows    rows per batch (the last of a span may have fewer), None for pieces of the size that is decoded
        pieces_ahead  pages (or parts of large pages) to decode ahead, over all columns; None for twice the core count
        spans_ahead   spans to start ahead of the current one, within `pieces_ahead`; None for no further limit, and
                      for 8 on the engine's loop
        """
        with closing(
            self.scan_joined(spans, batch_rows, pieces_ahead=pieces_ahead, spans_ahead=spans_ahead)
        ) as batches:
            for batch in batches:
                if isinstance(batch, scan_batches.ScanBatch):
                    yield batch
                else:
                    yield from batch.split(batch_rows)

    def scan_joined(
        self,
        spans: Sequence[Span],
        batch_rows: int | None,
        *,
        pieces_ahead: int | None = None,
        spans_ahead: int | None = None,
        first_rows: int | None = None,
        gate: ReadGate | None = None,
    ) -> Generator[ScanBatch | JoinedBatch, None, None]:
        """As `scan_sync`, but small spans that were decoded together stay together, regardless of `batch_rows`.

        first_rows  rows of the first batch, if the consumer may stop there: the scan starts with these and doubles its
                    readahead as rows are consumed (`scan/slow_start.py`); None for the full readahead at once
        gate        limits the readahead instead
        """
        ahead = readaheads.readahead(pieces_ahead, spans_ahead, first_rows, gate)
        batches = scan_sync.scan_sync(self.context, self.projection, spans, batch_rows, ahead)
        return self._checked_sync(spans, batches) if self.context.checks_values else batches

    async def scan(
        self,
        spans: Sequence[Span],
        batch_rows: int | None,
        *,
        in_order: bool = True,
        pieces_ahead: int | None = None,
        spans_ahead: int | None = None,
        first_rows: int | None = None,
        gate: ReadGate | None = None,
        merge: Merge = "scan",
    ) -> AsyncGenerator[ScanBatch, None]:
        """As `scan_sync` on the engine's loop. Parameters as for `scan_joined_async`."""
        async with aclosing(
            self.scan_joined_async(
                spans,
                batch_rows,
                in_order=in_order,
                pieces_ahead=pieces_ahead,
                spans_ahead=spans_ahead,
                first_rows=first_rows,
                gate=gate,
                merge=merge,
            )
        ) as batches:
            async for batch in batches:
                if isinstance(batch, scan_batches.ScanBatch):
                    yield batch
                    continue
                for part in batch.split(batch_rows):
                    yield part

    def scan_joined_async(
        self,
        spans: Sequence[Span],
        batch_rows: int | None,
        *,
        in_order: bool = True,
        pieces_ahead: int | None = None,
        spans_ahead: int | None = None,
        first_rows: int | None = None,
        gate: ReadGate | None = None,
        merge: Merge = "scan",
    ) -> AsyncGenerator[ScanBatch | JoinedBatch, None]:
        """As `scan_joined` on the engine's loop; prefetches the bytes of all spans ahead within the budget.

        in_order          False to yield batches of any span as they become ready; a span's batches stay in row order
        first_rows, gate  see `scan_joined`; without effect if not `in_order`
        merge             see `Readahead`
        """
        is_ordered = in_order or len(spans) < 2
        driver = scan_async.scan if is_ordered else scan_async.scan_unordered
        ahead = readaheads.readahead(pieces_ahead, spans_ahead, first_rows if is_ordered else None, gate, merge)
        batches = driver(self.context, self.projection, spans, batch_rows, ahead)
        return self._check_values(spans, batches) if self.context.checks_values else batches

    def read(self, spans: Sequence[Span]) -> Plan[list[pa.ChunkedArray]]:
        """Whole columns of physical row ranges: decoded pages as chunks, zero-copy."""
        columns: list[pa.ChunkedArray] = yield _ReadColumns(self.context, self.projection, spans)
        if self.context.checks_values:
            yield self._check(columns, _lengths(spans))
        return columns

    @cached_property
    def _variable_fields(self) -> list[int]:
        """Numbers of the fields of variable size."""
        return [number for number, field in enumerate(self.projection.fields) if fixed_bits(field.arrow_type) is None]

    def _check_sizes(self, taken: Taken, picks: Sequence[Pick]) -> None:
        """Raise ResourceLimitError for a value larger than the context allows."""
        bytes_max = self.context.value_bytes_max
        if not isinstance(taken, list) and taken.get_total_buffer_size() <= bytes_max:
            return
        arrays = _columns(taken)
        for number in self._variable_fields:
            if memory_bytes(arrays[number]) > bytes_max:
                self._check_rows(number, arrays[number], picks)

    def _check_rows(self, number: int, array: pa.Array | pa.ChunkedArray, picks: Sequence[Pick]) -> None:
        start, leaf_ids = 0, {path.leaf.id for path in self.projection.paths[number]}
        for source, rows in picks:
            for at in range(len(rows)):
                try:
                    check_row_bytes(array.slice(start + at, 1), self.context.value_bytes_max, int(rows[at]))
                except ResourceLimitError as error:
                    keys = [
                        file.ref.key for file in self.projection.locate(source) if leaf_ids.intersection(file.leaf_ids)
                    ]
                    raise add_location(error, f'column "{self.projection.fields[number].name}"', *keys[:1]) from None
            start += len(rows)

    # -- values --------------------------------------------------------------------------------------------------------

    def _check(self, arrays: Sequence[pa.Array | pa.ChunkedArray], parts: Sequence[Part]) -> Compute[None]:
        work = partial(value_check.check_values, self.projection, arrays, parts)
        return Compute(work, lambda: sum([array.nbytes for array in arrays]))

    def _checked_sync(
        self, spans: Sequence[Span], batches: Generator[ScanBatch | JoinedBatch, None, None]
    ) -> Generator[ScanBatch | JoinedBatch, None, None]:
        with closing(batches):
            for batch in batches:
                value_check.check_values(self.projection, batch.arrays, _parts_of(spans, batch))
                yield batch

    async def _check_values(
        self, spans: Sequence[Span], batches: AsyncGenerator[ScanBatch | JoinedBatch, None]
    ) -> AsyncGenerator[ScanBatch | JoinedBatch, None]:
        async with aclosing(batches):
            async for batch in batches:
                await self._check(batch.arrays, _parts_of(spans, batch)).answer_async()
                yield batch


@dataclass(frozen=True, slots=True, eq=False)
class _ReadColumns:
    context: ReadContext
    projection: Projection
    spans: Sequence[Span]

    def answer_sync(self) -> list[pa.ChunkedArray]:
        return scan_sync.read_sync(self.context, self.projection, self.spans)

    async def answer_async(self) -> list[pa.ChunkedArray]:
        return await scan_async.read(self.context, self.projection, self.spans)


def _columns(taken: Taken) -> list[pa.Array]:
    return taken if isinstance(taken, list) else taken.columns


def _parts(picks: Sequence[Pick]) -> list[Part]:
    return [(source, len(rows)) for source, rows in picks]


def _parts_of(spans: Sequence[Span], batch: ScanBatch | JoinedBatch) -> list[Part]:
    counts = (batch.num_rows,) if isinstance(batch, scan_batches.ScanBatch) else batch.row_counts
    return [(spans[index][0], count) for index, count in enumerate(counts, batch.span_index)]


def _lengths(spans: Sequence[Span]) -> list[Part]:
    return [(source, end - start) for source, start, end in spans]
