"""Spans of rows for a scan: decoded page by page, or taken if they are few."""

from __future__ import annotations

from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io.file.scan.batches import ScanBatch
from lance_io.file.table_reader import TableReader
from lance_io.gil import MANY, yielding
from lance_io.levels.arrays import memory_bytes
from lance_io.levels.join import holds_dictionary
from lance_io.plans.plan import drive_async, drive_sync
from lance_io.reads.scan.span_rows import ChosenBatch

# row ids are built batch by batch, because a fragment may claim any number of rows
ROWS_WITHOUT_COLUMNS_MAX: Final = 1 << 20
ROWS_BY_TAKE_MAX: Final = 1024  # for so few rows, a take is cheaper than decoding pages
PAGES_BY_TAKE_MAX: Final = 512  # with more pages, looking up the chunks of each takes longer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterator, Sequence

    import pyarrow as pa

    from lance_io.file.open.kept_ends import KeptEnds
    from lance_io.file.scan.batches import JoinedBatch
    from lance_io.file.take.take_files import Taken
    from lance_io.io.scheduler import Merge
    from lance_io.plans.plan import Plan
    from lance_io.reads.scan.pipeline import ScanPlan
    from lance_io.reads.scan.pipeline import Span as RowSpan
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray

    Batch = ScanBatch | JoinedBatch | ChosenBatch


def is_taken(state: DatasetState, plan: ScanPlan) -> bool:
    """Whether a scan takes its rows because they are few, reading only the chunks that hold them.

    Whole fragments are taken only from stores that answer at once, because finding their chunks costs a round. Taken
    rows form one array over one dictionary, while a scan keeps each fragment's dictionary.
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
    return state.is_local or plan.num_rows < sum(state.sources[span.fragment_index].num_rows for span in plan.spans)


class SpanReader:
    """Reads the early columns of a scan, span by span.

    batch_rows  maximum rows per batch; None for batches as they are decoded
    ends        keeps the ends of the files that it opens, for later columns

    A scan of very few rows takes them instead (`is_taken`). If order does not matter, spans of remote stores are
    delivered as they arrive.
    """

    def __init__(
        self,
        state: DatasetState,
        plan: ScanPlan,
        options: ScanOptions,
        batch_rows: int | None,
        ends: KeptEnds | None = None,
    ) -> None:
        self._plan = plan
        self._batch_rows = batch_rows
        self._in_order = options.scan_in_order is not False or plan.late_costs is not None or plan.second is not None
        self._read_options: dict[str, Any] = {
            "pieces_ahead": options.batch_readahead,
            "spans_ahead": options.fragment_readahead,
            "first_rows": _first_rows(plan, options) if options.starts_small else None,
        }
        context = state.scan_context(options.io_buffer_size, ends)
        self._reader = None if plan.early_read is None else TableReader(context, plan.early_read)
        spans = plan.spans if len(plan.spans) < MANY else yielding(plan.spans)
        self._spans = [(state.sources[span.fragment_index], span.start, span.end) for span in spans]

        self._by_rows = is_taken(state, plan)

    def read_sync(self) -> Generator[Batch, None, None]:
        """The batches, read in this thread; those of small fragments may be joined."""
        if self._plan.chosen is not None:
            return self._chosen_sync(self._plan.chosen)
        if self._reader is None:
            return self._without_columns()
        if self._by_rows:
            return self._taken_sync()
        return self._cut_sync(self._reader.scan_joined(self._spans, None, **self._read_options))

    async def read(self) -> AsyncGenerator[Batch, None]:
        """The batches, read on the running loop; those of small fragments may be joined."""
        if self._plan.chosen is not None:
            with closing(_ChosenRows(self._reader, self._spans, self._plan.chosen, self._batch_rows)) as chosen:
                while (reading := chosen.next()) is not None:
                    for few in chosen.batches(*(await drive_async(reading))):
                        yield few
            return
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
        # the bytes between late rows may not be needed
        merge: Merge = "scan" if self._plan.late_read is None and self._plan.second is None else "take"
        how = {"in_order": self._in_order, "merge": merge, **self._read_options}
        batches = self._reader.scan_joined_async(self._spans, None, **how)
        try:
            async for rows in batches:
                if isinstance(rows, ScanBatch):
                    for part in self._parts(rows):
                        yield part
                else:
                    yield rows
        finally:
            await batches.aclose()

    def _chosen_sync(self, offsets: Sequence[IntArray]) -> Generator[ChosenBatch, None, None]:
        with closing(_ChosenRows(self._reader, self._spans, offsets, self._batch_rows)) as chosen:
            while (reading := chosen.next()) is not None:
                yield from chosen.batches(*drive_sync(reading))

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
        """Slices of a batch with the requested number of rows at most."""
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
        """Rows without stored columns: nothing to read."""
        for index, span in enumerate(self._plan.spans):
            step = self._batch_rows or ROWS_WITHOUT_COLUMNS_MAX
            for start in range(span.start, span.end, step):
                yield ScanBatch(index, start, min(step, span.end - start), [])


def _first_rows(plan: ScanPlan, options: ScanOptions) -> int | None:
    """Rows to read for the first batch; None if the caller sets the readahead."""
    if options.batch_readahead is not None or not plan.spans:
        return None
    span, num_rows = plan.spans[0], options.batch_rows
    if not plan.keep_deleted and plan.predicate is None:
        live = plan.live[span.fragment_index]
        first = int(live.positions(np.array([span.start], dtype=np.int64))[0])
        start, end = live.span(first, min(first + num_rows, live.num_live))
        num_rows = max(num_rows, end - start)
    return num_rows


class _TakenSpans:
    """The taken rows of spans, in pieces if they are many bytes.

    The pool counts the last two pieces, because rows of the previous one wait for their batch. Columns with
    dictionaries are one piece, because each piece would have dictionaries of its own.
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
        """The next read; None at the end."""
        return None if self._pieces.is_done else self._reader.take_piece(self._pieces)

    def batches(self, num_rows: int, arrays: list[pa.Array]) -> Iterator[ScanBatch]:
        """The rows of a read, span by span."""
        before, self._last_bytes = self._last_bytes, sum(map(memory_bytes, arrays))
        self._hold(before + self._last_bytes)
        position = 0
        while position < num_rows:
            index, start, end = self._left.popleft()
            until = min(end, start + num_rows - position)
            if until < end:
                self._left.appendleft((index, until, end))
            part = ScanBatch(index, start, until - start, [array.slice(position, until - start) for array in arrays])
            position += until - start
            if position == num_rows:
                arrays = []  # not held here while the consumer uses the last part
            yield part
            del part

    def close(self) -> None:
        """Release the memory."""
        self._hold(0)

    def _hold(self, num_bytes: int) -> None:
        before, self._held_bytes = self._held_bytes, num_bytes
        self._reader.context.pool.charge(num_bytes - before)


class _ChosenRows:
    """Chosen rows of spans, taken in pieces if they are many bytes; without columns none is read.

    offsets     of the rows of each span, ascending
    batch_rows  maximum rows per batch; None for any number
    """

    def __init__(
        self,
        reader: TableReader | None,
        sources: Sequence[Any],
        offsets: Sequence[IntArray],
        batch_rows: int | None,
    ) -> None:
        self._reader = reader
        self._left = deque([(index, rows) for index, rows in enumerate(offsets) if len(rows)])
        self._batch_rows = batch_rows
        picks = [(sources[index][0], rows) for index, rows in self._left]
        self._pieces = None if reader is None else reader.pieces(picks, is_one=_has_dictionaries(reader))
        self._held_bytes = 0

    def next(self) -> Plan[tuple[int, Taken]] | None:
        """The next read; None at the end."""
        if not self._left:
            return None
        if self._reader is None or self._pieces is None:
            return _nothing_to_read(min(ROWS_WITHOUT_COLUMNS_MAX, len(self._left[0][1])))
        return self._reader.take_piece(self._pieces)

    def batches(self, num_rows: int, arrays: list[pa.Array]) -> Iterator[ChosenBatch]:
        """The rows of a read, span by span."""
        self._hold(sum(map(memory_bytes, arrays)))
        position = 0
        while position < num_rows:
            index, rows = self._left.popleft()
            count = min(len(rows), num_rows - position, self._batch_rows or num_rows)
            if count < len(rows):
                self._left.appendleft((index, rows[count:]))
            yield ChosenBatch(index, rows[:count], [array.slice(position, count) for array in arrays])
            position += count

    def close(self) -> None:
        """Release the memory."""
        self._hold(0)

    def _hold(self, num_bytes: int) -> None:
        before, self._held_bytes = self._held_bytes, num_bytes
        if self._reader is not None:
            self._reader.context.pool.charge(num_bytes - before)


def _has_dictionaries(reader: TableReader) -> bool:
    return any([holds_dictionary(field.arrow_type) for field in reader.projection.fields])


def _nothing_to_read(num_rows: int) -> Plan[tuple[int, Taken]]:
    yield from ()
    return num_rows, []
