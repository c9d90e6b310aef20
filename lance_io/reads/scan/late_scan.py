"""Late columns of runs of rows of which nearly all pass: a second scan behind that of the filter's columns."""

from __future__ import annotations

from collections import deque
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from lance_io.file.scan.batches import ScanBatch
from lance_io.file.scan.read_gate import ReadGate
from lance_io.file.table_reader import TableReader
from lance_io.levels.arrays import memory_bytes
from lance_io.limits import KIB, MIB
from lance_io.plans.beside import Finish, Start, Started
from lance_io.plans.streams import Close, Next, Open
from lance_io.reads.scan.late_choice import WAITING_BYTES_MAX
from lance_io.reads.scan.span_rows import kept_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from lance_io.file.open.kept_ends import KeptEnds
    from lance_io.plans.plan import Plan
    from lance_io.plans.streams import Stream
    from lance_io.reads.scan.late_choice import LateCosts
    from lance_io.reads.scan.pipeline import ScanPlan
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.scan.span_rows import Rows
    from lance_io.reads.version.state import DatasetState

    Give = Callable[[Rows], Stream]

SPANS_MAX: Final = 1024  # of one scan; another one starts behind them, if each is small
RUNS_MAX: Final = 64  # of a batch, examined separately
DENSE_BYTES_MIN: Final = 64 * KIB  # of a run that says something of the rows behind it
LEAD_BYTES: Final = 64 * MIB  # of late columns by which the filter's are ahead: as much as the readahead of a scan


@dataclass(slots=True, eq=False)
class _Run:
    """A scan from one span on, up to where its gate is open.

    items       its batches; the first one was started early
    first_span, begin  the first span, and the row of all spans that it begins with
    limit       the row of all spans up to which the gate is open
    num_waiting  runs of rows that are still to be read of it
    """

    items: Any
    gate: ReadGate
    first_span: int
    begin: int
    first_batch: Started[ScanBatch | None] | None
    limit: int = 0
    num_waiting: int = 0
    batch: ScanBatch | None = None

    def close(self) -> Plan[None]:
        """Stop reading."""
        if self.first_batch is not None:
            yield Close(self.first_batch)
        yield Close(self.items)


class LateScan:
    """Reads late columns page by page, no further than rows are known to be needed.

    costs  decide whether rows are read this way
    ends   the ends of files that the scan of the filter's columns has read

    After a gap another scan starts, while the rows before it are still being delivered.
    """

    def __init__(
        self, state: DatasetState, plan: ScanPlan, options: ScanOptions, costs: LateCosts, ends: KeptEnds | None = None
    ) -> None:
        assert plan.late_read is not None, "there are late columns"
        self._plan = plan
        self.costs = costs
        self._reader = TableReader(state.scan_context(options.io_buffer_size, ends), plan.late_read)
        self._sources = state.sources
        self._read_options: dict[str, Any] = {
            "pieces_ahead": options.batch_readahead,
            "spans_ahead": options.fragment_readahead,
        }
        self._run: _Run | None = None  # the latest one
        self._was_dense = False  # the run of rows before
        self._waiting: deque[tuple[Rows, _Run]] = deque()
        self._waiting_rows = 0  # physical rows that they come from
        self._waiting_bytes = 0
        self._given_rows = 0
        self._lead_rows = max(1, int(LEAD_BYTES / costs.row_bytes))

    def runs(self, rows: Rows) -> list[Rows]:
        """Rows in parts that are read separately; a single part if each would cost a round."""
        return rows.runs(self.costs.gap_rows, RUNS_MAX if self.costs.costs is None else 1)

    def reads(self, rows: Rows) -> bool:
        """Whether the late columns of a run of rows are read here.

        A scan that begins reads to the end of its pages. These bytes count unless the run before was dense, too: then
        the rows behind probably are.
        """
        offsets, num_rows = None if rows.is_run else rows.offsets, rows.end - rows.first
        is_dense = self.costs.reads_all(offsets, num_rows)
        was_dense, self._was_dense = self._was_dense, is_dense and num_rows * self.costs.row_bytes > DENSE_BYTES_MIN
        if not is_dense or (was_dense and self._was_dense) or self._is_near(rows):
            return is_dense
        return self.costs.reads_all(offsets, num_rows, rows_behind=self._plan.spans[rows.span].end - rows.end)

    def _is_near(self, rows: Rows) -> bool:
        """Whether the gap between the end of the last scan and these rows is small."""
        run = self._run
        if run is None or rows.span >= run.first_span + SPANS_MAX:
            return False
        return self._position(rows.span, rows.first) - run.limit <= self.costs.gap_rows

    @property
    def has_lead(self) -> bool:
        """Whether enough rows wait that the first should be delivered, or they take too much memory.

        If reads are immediate, the first rows are delivered at once; then the lead grows with the delivered rows.
        """
        if not self._waiting:
            return False
        lead_rows = self._lead_rows if self.costs.costs is not None else min(self._lead_rows, self._given_rows)
        first = self._waiting[0][0]
        is_ahead = self._waiting_rows - (first.end - first.first) >= lead_rows
        return is_ahead or self._waiting_bytes >= WAITING_BYTES_MAX

    def add(self, rows: Rows) -> Plan[None]:
        """Queue rows and request their columns."""
        run = self._run
        if run is None or not self._is_near(rows):
            yield from self.end()
            run = self._run = yield from self._open(rows)
        run.limit = self._position(rows.span, rows.end)
        run.gate.open(run.limit - run.begin)
        run.num_waiting += 1
        self._waiting.append((rows, run))
        self._waiting_rows += rows.end - rows.first
        self._waiting_bytes += _early_bytes(rows)

    def _open(self, rows: Rows) -> Plan[_Run]:
        """Start a scan from these rows on."""
        fragment_indexes = self._plan.spans[rows.span : rows.span + SPANS_MAX]
        spans = [(self._sources[span.fragment_index], span.start, span.end) for span in fragment_indexes]
        spans[0] = (spans[0][0], rows.first, spans[0][2])
        gate = ReadGate(spans)
        gate.open(rows.end - rows.first)
        how = {**self._read_options, "gate": gate}
        items = yield Open(partial(self._scan_sync, spans, how), lambda: self._reader.scan(spans, None, **how))
        begin = self._position(rows.span, rows.first)
        return _Run(items, gate, rows.span, begin, (yield Start(_next_of(items))))

    @cached_property
    def _starts(self) -> list[int]:
        """Rows of all spans before each of them."""
        return list(accumulate([span.end - span.start for span in self._plan.spans], initial=0))

    def _position(self, span: int, row: int) -> int:
        """The position of a span's row among the rows of all spans."""
        return self._starts[span] + row - self._plan.spans[span].start

    def _scan_sync(self, spans: Sequence[Any], how: dict[str, Any]) -> Generator[ScanBatch, None, None]:
        with closing(self._reader.scan_joined(spans, None, **how)) as batches:
            for batch in batches:
                if isinstance(batch, ScanBatch):
                    yield batch
                else:
                    yield from batch.split(None)

    def read(self, give: Give) -> Stream:
        """Pass the rows that waited longest to `give`, with their late columns, in parts as their pages arrive."""
        rows, run = self._waiting.popleft()
        self._waiting_rows -= rows.end - rows.first
        self._waiting_bytes -= _early_bytes(rows)
        self._given_rows += rows.end - rows.first
        done = 0
        while done < rows.num_rows:
            batch = yield from _batch_with(run, rows.span, rows.row_at(done))
            until = rows.num_before(batch.row_start + batch.num_rows)
            part = rows.slice(done, until)
            arrays = kept_rows(batch.arrays, part, batch.row_start, batch.num_rows)
            columns = {**dict(zip(self._plan.late, arrays, strict=True)), **part.columns}
            done = until
            yield from give(replace(part, columns=columns))
        run.num_waiting -= 1
        if run is not self._run and not run.num_waiting:
            yield from run.close()

    def end(self) -> Plan[None]:
        """End the last scan; later rows start another one."""
        run, self._run = self._run, None
        if run is not None and not run.num_waiting:
            yield from run.close()


def _next_of(items: Any) -> Plan[ScanBatch | None]:
    batch: ScanBatch | None = yield Next(items)
    return batch


def _batch_with(run: _Run, span: int, row: int) -> Plan[ScanBatch]:
    """The batch of a scan that holds a row; rows ascend from call to call."""
    while True:
        batch = run.batch
        if batch is not None and batch.span_index + run.first_span == span and row < batch.row_start + batch.num_rows:
            return batch
        run.batch = batch = None
        first, run.first_batch = run.first_batch, None
        run.batch = (yield Next(run.items)) if first is None else (yield Finish(first))
        assert run.batch is not None, "the scan reaches to the end of all its spans"


def _early_bytes(rows: Rows) -> int:
    return sum(map(memory_bytes, rows.columns.values()))
