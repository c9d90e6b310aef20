"""How this room asks the file room for rows: as an `Ask` for chosen rows, as a stream for ranges."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io.file.drivers import drive_sync, truncated
from lance_io.file.table_reader import TableReader
from lance_io.records import dataclass
from lance_io.store.api import InvalidRange, ShortRead

ROWS_WITHOUT_COLUMNS_MAX: Final = 1 << 20  # row ids are made piece by piece: a fragment may claim any number of rows
ROWS_BY_TAKE_MAX: Final = 1024  # so few rows are cheaper to take than to decode pages for

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Sequence

    import pyarrow as pa

    from lance_io.dataset.scan.pipeline import ScanPlan
    from lance_io.dataset.scan.scan_options import ScanOptions
    from lance_io.dataset.version.state import DatasetState
    from lance_io.file.open.file_source import FragmentSource, ReadContext
    from lance_io.file.open.leaf_projection import Projection
    from lance_io.file.take.take_files import Taken
    from lance_io.format.schema import Field
    from lance_io.levels.layout import BatchLayout
    from lance_io.plans.plan import Plan
    from lance_io.spans import Fetched, IntArray, Ranges, Steps


@dataclass(frozen=True, slots=True)
class _TakeRows:
    reader: TableReader
    picks: Sequence[tuple[FragmentSource, IntArray]]
    layout: BatchLayout | None

    def answer_sync(self) -> Taken:
        return self.reader.take_sync(self.picks, self.layout)

    async def answer_async(self) -> Taken:
        return await self.reader.take(self.picks, self.layout)


@dataclass(frozen=True, slots=True)
class _WarmFiles:
    reader: TableReader
    sources: Sequence[FragmentSource]

    def answer_sync(self) -> None:
        self.reader.warm_sync(self.sources)

    async def answer_async(self) -> None:
        await self.reader.warm(self.sources)


class RowReader:
    """Reads chosen rows of some fields.

    projection  pruned top-level fields of the table's schema
    """

    def __init__(self, state: DatasetState, projection: Projection) -> None:
        self._sources = state.sources  # not the state, which remembers readers
        self._reader = TableReader(state.context, projection)

    def read(self, groups: Sequence[tuple[int, IntArray]], layout: BatchLayout | None = None) -> Plan[Taken]:
        """One array per field, the groups one after the other.

        groups  (place of the fragment, i64[n] offsets, ascending, each once)
        layout  of a batch of these fields, to get that instead of arrays where it can be made at once
        """
        picks = [(self._sources[place], offsets) for place, offsets in groups]
        taken: Taken = yield _TakeRows(self._reader, picks, layout)
        return taken

    def warm(self, places: Sequence[int]) -> Plan[None]:
        """Load what reading rows of these fragments needs besides them."""
        yield _WarmFiles(self._reader, [self._sources[place] for place in places])


@dataclass(frozen=True, slots=True)
class ReadColumns:
    """All physical rows of some columns of one fragment, a chunked array for each."""

    reader: TableReader
    spans: Sequence[tuple[FragmentSource, int, int]]

    @classmethod
    def of(cls, state: DatasetState, fields: Sequence[Field], place: int) -> ReadColumns:
        """The columns of the fragment at `place`; of their fields, ids and types count."""
        source = state.sources[place]
        return cls(TableReader(state.context, fields), [(source, 0, source.num_rows)])

    def answer_sync(self) -> list[pa.ChunkedArray]:
        """See `Ask`."""
        return self.reader.read_sync(self.spans)

    async def answer_async(self) -> list[pa.ChunkedArray]:
        """See `Ask`."""
        return await self.reader.read(self.spans)


@dataclass(frozen=True, slots=True)
class Piece:
    """Physical rows `row_start .. row_start + num_rows` of a span, one array per field."""

    span_index: int
    row_start: int
    num_rows: int
    arrays: Sequence[pa.Array]


def is_taken(state: DatasetState, plan: ScanPlan) -> bool:
    """Whether a scan takes its rows, as they are so few: only the chunks that hold them are read.

    Whole fragments are taken only from stores that answer at once: finding their chunks first is a round more. What is
    taken becomes one array over one dictionary; a scan gives each fragment its own.
    """
    if not 0 < plan.num_rows <= ROWS_BY_TAKE_MAX:
        return False
    if len(plan.spans) > 1 and plan.early_read is not None and _has_dictionaries(plan.early_read.fields):
        return False
    return state.answers_sync or plan.num_rows < sum(state.sources[span.place].num_rows for span in plan.spans)


def _has_dictionaries(fields: Sequence[Field]) -> bool:
    return any(each.logical_type.startswith("dict:") for field in fields for each in field.walk())


class SpanReader:
    """Reads the early columns of a scan, span by span.

    batch_rows  rows per piece, None for pieces as large as they are decoded

    A scan of very few rows takes them instead (`is_taken`). Where order does not matter, spans of stores that are
    waited for come as they are ready; stores that answer at once keep nobody waiting.
    """

    def __init__(self, state: DatasetState, plan: ScanPlan, options: ScanOptions, batch_rows: int | None) -> None:
        self._plan = plan
        self._batch_rows = batch_rows
        self._in_order = options.scan_in_order is not False
        self._how: dict[str, Any] = {
            "pieces_ahead": options.batch_readahead,
            "spans_ahead": options.fragment_readahead,
        }
        context = state.scan_context(options.io_buffer_size)
        self._reader = None if plan.early_read is None else TableReader(context, plan.early_read)
        self._spans = [(state.sources[span.place], span.start, span.end) for span in plan.spans]

        self._by_rows = is_taken(state, plan)

    def read_sync(self) -> Generator[Any, None, None]:
        """The pieces, read in this thread."""
        if self._reader is None:
            yield from self._without_columns()
            return
        if self._by_rows:
            yield from self._cut(self._reader.take_sync(self._picks()))
            return
        yield from self._reader.scan_sync(self._spans, self._batch_rows, **self._how)

    async def read(self) -> AsyncGenerator[Any, None]:
        """The pieces, read on the running loop."""
        if self._reader is None:
            for piece in self._without_columns():
                yield piece
            return
        if self._by_rows:
            for piece in self._cut(await self._reader.take(self._picks())):
                yield piece
            return
        batches = self._reader.scan(self._spans, self._batch_rows, in_order=self._in_order, **self._how)
        try:
            async for batch in batches:
                yield batch
        finally:
            await batches.aclose()

    def _picks(self) -> list[tuple[FragmentSource, IntArray]]:
        return [(source, np.arange(start, end, dtype=np.int64)) for source, start, end in self._spans]

    def _cut(self, arrays: list[pa.Array]) -> Generator[Piece, None, None]:
        """Whole spans out of the arrays of all spans."""
        position = 0
        for index, span in enumerate(self._plan.spans):
            num_rows = span.end - span.start
            yield Piece(index, span.start, num_rows, [array.slice(position, num_rows) for array in arrays])
            position += num_rows

    def _without_columns(self) -> Generator[Piece, None, None]:
        """Rows of which no stored column is wanted: nothing to read."""
        for index, span in enumerate(self._plan.spans):
            step = self._batch_rows or ROWS_WITHOUT_COLUMNS_MAX
            for start in range(span.start, span.end, step):
                yield Piece(index, start, min(step, span.end - start), ())


@dataclass(frozen=True, slots=True)
class ReadBytes:
    """Byte ranges of one object that is no Lance file, such as blobs: one buffer and where each range starts in it."""

    context: ReadContext
    key: str
    ranges: Ranges

    def _steps(self) -> Steps[Fetched]:
        return (yield replace(self.ranges, keep=True))

    def answer_sync(self) -> Fetched:
        """See `Ask`."""
        return drive_sync(self._steps(), self.context, self.key)

    async def answer_async(self) -> Fetched:
        """See `Ask`."""
        reads = self.context.scheduler().file(self.key, size_bytes=None)
        try:
            fetched: Fetched = await reads.submit(self.ranges)
        except (ShortRead, InvalidRange) as error:
            raise truncated(self.key, error) from error
        return fetched


def bytes_of(fetched: Fetched, ranges: Ranges) -> list[bytes]:
    """The ranges as separate byte strings."""
    lengths = (ranges.ends - ranges.starts).tolist()
    return [bytes(fetched.piece(number, length)) for number, length in enumerate(lengths)]


def ranges_of(starts: IntArray, lengths: IntArray) -> Ranges:
    """Ranges from starts and lengths."""
    from lance_io.spans import Ranges

    starts = np.ascontiguousarray(starts, dtype=np.int64)
    return Ranges(starts, starts + lengths)
