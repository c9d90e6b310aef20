"""Spans of rows for a scan: decoded page by page, or taken where they are few."""

from __future__ import annotations

from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io.file.scan.batches import ScanBatch
from lance_io.file.table_reader import TableReader
from lance_io.levels.arrays import memory_bytes
from lance_io.levels.join import holds_dictionary
from lance_io.plans.plan import drive_async, drive_sync
from lance_io.turns import MANY, in_turns

ROWS_WITHOUT_COLUMNS_MAX: Final = 1 << 20  # row ids are made batch by batch: a fragment may claim any number of rows
ROWS_BY_TAKE_MAX: Final = 1024  # so few rows are cheaper to take than to decode pages for
PAGES_BY_TAKE_MAX: Final = 512  # but of more pages, looking for the chunks of each takes longer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterator, Sequence

    import pyarrow as pa

    from lance_io.file.scan.batches import JoinedBatch
    from lance_io.file.take.take_files import Taken
    from lance_io.io.scheduler import Merge
    from lance_io.plans.plan import Plan
    from lance_io.reads.scan.pipeline import ScanPlan
    from lance_io.reads.scan.pipeline import Span as RowSpan
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.version.state import DatasetState


def is_taken(state: DatasetState, plan: ScanPlan) -> bool:
    """Whether a scan takes its rows, as they are so few: only the chunks that hold them are read.

    Whole fragments are taken only from stores that answer at once: finding their chunks first is a round more. What is
    taken becomes one array over one dictionary; a scan gives each fragment its own.
    """
    if not 0 < plan.num_rows <= ROWS_BY_TAKE_MAX:
        return False
    if plan.early_read is not None and len(plan.spans) * len(plan.early_read.leaves) > PAGES_BY_TAKE_MAX:
        return False
    if (
        len(plan.spans) > 1
        and plan.early_read is not None
        and any([holds_dictionary(field.arrow_type) for field in plan.early_read.fields])
    ):
        return False
    return state.is_local or plan.num_rows < sum(state.sources[span.place].num_rows for span in plan.spans)


class SpanReader:
    """Reads the early columns of a scan, span by span.

    batch_rows  rows per batch at most, None for batches as large as they are decoded

    A scan of very few rows takes them instead (`is_taken`). Where order does not matter, spans of stores that are
    waited for come as they are ready; stores that answer at once keep nobody waiting.
    """

    def __init__(self, state: DatasetState, plan: ScanPlan, options: ScanOptions, batch_rows: int | None) -> None:
        self._plan = plan
        self._batch_rows = batch_rows
        self._in_order = options.scan_in_order is not False or plan.late_costs is not None
        self._how: dict[str, Any] = {
            "pieces_ahead": options.batch_readahead,
            "spans_ahead": options.fragment_readahead,
            "first_rows": _first_rows(plan, options) if options.starts_small else None,
        }
        context = state.scan_context(options.io_buffer_size)
        self._reader = None if plan.early_read is None else TableReader(context, plan.early_read)
        spans = plan.spans if len(plan.spans) < MANY else in_turns(plan.spans)
        self._spans = [(state.sources[span.place], span.start, span.end) for span in spans]

        self._by_rows = is_taken(state, plan)

    def read_sync(self) -> Generator[ScanBatch | JoinedBatch, None, None]:
        """The batches, read in this thread; those of small fragments may be joined."""
        if self._reader is None:
            return self._without_columns()
        if self._by_rows:
            return self._taken_sync()
        return self._cut_sync(self._reader.scan_joined(self._spans, None, **self._how))

    async def read(self) -> AsyncGenerator[ScanBatch, None]:
        """The batches, read on the running loop."""
        if self._reader is None:
            for batch in self._without_columns():
                yield batch
            return
        if self._by_rows:
            with closing(_TakenSpans(self._reader, self._plan.spans, self._spans)) as taken:
                while (wanted := taken.next()) is not None:
                    for batch in taken.batches(*(await drive_async(wanted))):
                        yield batch
            return
        merge: Merge = "scan" if self._plan.late_read is None else "take"  # the bytes between may not be wanted
        batches = self._reader.scan(self._spans, None, in_order=self._in_order, merge=merge, **self._how)
        try:
            async for batch in batches:
                for part in self._parts(batch):
                    yield part
        finally:
            await batches.aclose()

    def _cut_sync(
        self, batches: Generator[ScanBatch | JoinedBatch, None, None]
    ) -> Generator[ScanBatch | JoinedBatch, None, None]:
        if self._batch_rows is None:
            return batches
        return self._cut(batches)

    def _cut(
        self, batches: Generator[ScanBatch | JoinedBatch, None, None]
    ) -> Generator[ScanBatch | JoinedBatch, None, None]:
        with closing(batches):
            for batch in batches:
                if isinstance(batch, ScanBatch):
                    yield from self._parts(batch)
                else:
                    yield batch

    def _parts(self, batch: ScanBatch) -> Iterator[ScanBatch]:
        """Slices of a batch, of no more rows than wanted."""
        step, count = self._batch_rows or max(1, batch.num_rows), batch.num_rows
        if count <= step:
            yield batch
            return
        for start in range(0, count, step):
            num_rows = min(step, count - start)
            arrays = [array.slice(start, num_rows) for array in batch.arrays]
            yield ScanBatch(batch.span_index, batch.row_start + start, num_rows, arrays)

    def _taken_sync(self) -> Generator[ScanBatch, None, None]:
        assert self._reader is not None
        with closing(_TakenSpans(self._reader, self._plan.spans, self._spans)) as taken:
            while (wanted := taken.next()) is not None:
                yield from taken.batches(*drive_sync(wanted))

    def _without_columns(self) -> Generator[ScanBatch, None, None]:
        """Rows of which no stored column is wanted: nothing to read."""
        for index, span in enumerate(self._plan.spans):
            step = self._batch_rows or ROWS_WITHOUT_COLUMNS_MAX
            for start in range(span.start, span.end, step):
                yield ScanBatch(index, start, min(step, span.end - start), [])


def _first_rows(plan: ScanPlan, options: ScanOptions) -> int | None:
    """How many rows have to be read for the first batch; None where the caller says how far to read ahead."""
    if options.batch_readahead is not None or not plan.spans:
        return None
    span, num_rows = plan.spans[0], options.batch_rows
    if not plan.keep_deleted and plan.predicate is None:
        live = plan.live[span.place]
        first = int(live.positions(np.array([span.start], dtype=np.int64))[0])
        start, end = live.span(first, min(first + num_rows, live.num_live))
        num_rows = max(num_rows, end - start)
    return num_rows


class _TakenSpans:
    """The rows of spans that are taken, in pieces where they are many bytes.

    The pool counts the last two: rows of the one before wait for their batch.

    Columns with dictionaries are one piece: each piece would have dictionaries of its own.
    """

    def __init__(self, reader: TableReader, spans: Sequence[RowSpan], sources: Sequence[Any]) -> None:
        self._reader = reader
        self._left = deque([(index, span.start, span.end) for index, span in enumerate(spans)])
        picks = [(source, np.arange(start, end, dtype=np.int64)) for source, start, end in sources]
        self._pieces = reader.pieces(
            picks, is_one=any([holds_dictionary(field.arrow_type) for field in reader.projection.fields])
        )
        self._last_bytes = self._held_bytes = 0

    def next(self) -> Plan[tuple[int, Taken]] | None:
        """What is read next; None at the end."""
        return None if self._pieces.is_done else self._reader.take_piece(self._pieces)

    def batches(self, num_rows: int, arrays: list[pa.Array]) -> Iterator[ScanBatch]:
        """What was read, span by span."""
        before, self._last_bytes = self._last_bytes, sum(map(memory_bytes, arrays))
        self._hold(before + self._last_bytes)
        position = 0
        while position < num_rows:
            index, start, end = self._left.popleft()
            until = min(end, start + num_rows - position)
            if until < end:
                self._left.appendleft((index, until, end))
            part = ScanBatch(index, start, until - start, [one.slice(position, until - start) for one in arrays])
            position += until - start
            if position == num_rows:
                arrays = []  # not held here while the last part is used
            yield part
            del part

    def close(self) -> None:
        """No more rows are wanted."""
        self._hold(0)

    def _hold(self, num_bytes: int) -> None:
        before, self._held_bytes = self._held_bytes, num_bytes
        self._reader.context.pool.charge(num_bytes - before)
