"""Takes and scans of projected fields over many fragments.

    take_now, scan_now, read_now   in the caller's thread (decoding on both cores), for stores that offer `SyncReads`
    take, scan, read               on the engine's loop, for every store

Leaves are read apart and put together to fields at the end (`projection.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.file.projection import Projection
from lance_io.file.take import take

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    import pyarrow as pa

    from lance_io.file.batches import ScanBatch
    from lance_io.file.scan import Span
    from lance_io.file.source import FragmentSource, ReadContext
    from lance_io.format.schema import Field
    from lance_io.spans import IntArray

    Pick = tuple[FragmentSource, IntArray]


class TableReader:
    """Reads the projected fields of fragments.

    context     store, cache, scheduler
    projection  pruned top-level fields of the table's schema
    """

    def __init__(self, context: ReadContext, projection: Projection | Sequence[Field]) -> None:
        self.context = context
        self.projection = projection if isinstance(projection, Projection) else Projection(projection)

    # -- random access -------------------------------------------------------------------------------------------------

    def take_now(self, picks: Sequence[Pick]) -> list[pa.Array]:
        """Rows of fragments, one array per field, fragments one after the other.

        picks  (fragment, i64[n] physical offsets, ascending, each once)
        """
        from lance_io.file.drive import take_now

        return take_now(take(self.context, self.projection, picks), self.context)

    async def take(self, picks: Sequence[Pick]) -> list[pa.Array]:
        """The same on the engine's loop; files are read side by side."""
        from lance_io.file.drive import take_later

        return await take_later(take(self.context, self.projection, picks), self.context)

    # -- scans -------------------------------------------------------------------------------------------------

    def scan_now(
        self,
        spans: Sequence[Span],
        batch_rows: int | None,
        *,
        pieces_ahead: int | None = None,
        spans_ahead: int | None = None,
    ) -> Iterator[ScanBatch]:
        """Batches of physical row ranges, in order; batches never reach over a span.

        spans         (fragment, first row, end row), physical
        batch_rows    rows per batch (the last of a span may have fewer), None for pieces as large as they are decoded
        pieces_ahead  pages (or parts of large ones) decoded before they are needed, of all columns together; None for
                      twice as many as there are cores
        spans_ahead   spans begun behind the one that is being given, as far as the pieces go; None for no other bound
                      than these, and for 8 on the engine's loop
        """
        from lance_io.file.scan import readahead
        from lance_io.file.scan_now import scan_now

        return scan_now(self.context, self.projection, spans, batch_rows, readahead(pieces_ahead, spans_ahead))

    def scan(
        self,
        spans: Sequence[Span],
        batch_rows: int | None,
        *,
        in_order: bool = True,
        pieces_ahead: int | None = None,
        spans_ahead: int | None = None,
    ) -> AsyncGenerator[ScanBatch, None]:
        """The same on the engine's loop; the bytes of all spans ahead are requested, as far as the budget goes.

        in_order  False for the batches of whichever span has one ready; those of one span still come in row order
        """
        from lance_io.file.scan import readahead
        from lance_io.file.scan_later import scan
        from lance_io.file.scan_ready import scan_as_ready

        driver = scan if in_order or len(spans) < 2 else scan_as_ready
        return driver(self.context, self.projection, spans, batch_rows, readahead(pieces_ahead, spans_ahead))

    def read_now(self, spans: Sequence[Span]) -> list[pa.ChunkedArray]:
        """Whole columns of physical row ranges: decoded pages as chunks, without a copy."""
        from lance_io.file.scan_now import read_now

        return read_now(self.context, self.projection, spans)

    async def read(self, spans: Sequence[Span]) -> list[pa.ChunkedArray]:
        """The same on the engine's loop."""
        from lance_io.file.scan_later import read

        return await read(self.context, self.projection, spans)
