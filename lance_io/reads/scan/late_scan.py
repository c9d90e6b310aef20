"""Late columns of runs of rows of which nearly all pass the filter: a scan behind that of the filter's columns."""

from __future__ import annotations

from collections import deque
from contextlib import closing
from functools import cached_property, partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from lance_io.file.scan.batches import ScanBatch
from lance_io.file.scan.read_gate import ReadGate
from lance_io.file.table_reader import TableReader
from lance_io.levels.arrays import memory_bytes
from lance_io.limits import MIB
from lance_io.plans.streams import Close, Next, Open
from lance_io.reads.scan.span_rows import picked

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    import pyarrow as pa

    from lance_io.plans.plan import Plan
    from lance_io.plans.streams import Stream
    from lance_io.reads.scan.late_choice import LateCosts
    from lance_io.reads.scan.pipeline import ScanPlan
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.scan.span_rows import Rows
    from lance_io.reads.version.state import DatasetState

    Give = Callable[[dict[str, pa.Array], list[tuple[int, int]]], Stream]

SPANS_MAX: Final = 1024  # of one scan: it begins anew behind them, where each is small
RUNS_MAX: Final = 64  # of a batch that are looked at one by one
LEAD_BYTES: Final = 64 * MIB  # of late columns that the filter's are ahead: as much as a scan reads ahead
WAITING_BYTES_MAX: Final = 64 * MIB  # of the columns that rows have, while they wait for the others


class LateScan:
    """Reads late columns page by page, no further than rows are known to be wanted.

    costs  decide whether rows are read so

    One scan is open at a time. It ends where rows are to be taken one by one.
    """

    def __init__(self, state: DatasetState, plan: ScanPlan, options: ScanOptions, costs: LateCosts) -> None:
        assert plan.late_read is not None, "there are late columns"
        self._plan = plan
        self.costs = costs
        self._reader = TableReader(state.scan_context(options.io_buffer_size), plan.late_read)
        self._sources = state.sources
        self._how: dict[str, Any] = {"pieces_ahead": options.batch_readahead, "spans_ahead": options.fragment_readahead}
        self._gate: ReadGate | None = None
        self._items: Any = None  # of the open scan
        self._first = 0  # its first span,
        self._begin = 0  # the row of all spans that it begins with,
        self._limit = 0  # and the one up to which it may go
        self._batch: ScanBatch | None = None
        self._waiting: deque[Rows] = deque()
        self._waiting_rows = 0  # physical rows that these come from
        self._waiting_bytes = 0
        self._given_rows = 0
        self._lead_rows = max(1, int(LEAD_BYTES / costs.row_bytes))

    def runs(self, rows: Rows) -> list[Rows]:
        """Rows in parts that are read apart from one another: one where each of them would be a round."""
        return rows.runs(self.costs.gap_rows, RUNS_MAX if self.costs.costs is None else 1)

    def reads(self, rows: Rows, first_rows: int) -> bool:
        """Whether the late columns of a run of rows are read here. first_rows: see `LateCosts.reads_all`."""
        offsets = None if rows.is_run else rows.offsets
        behind = 0 if self._is_near(rows) else self._plan.spans[rows.span].end - rows.end
        return self.costs.reads_all(offsets, rows.end - rows.first, rows_behind=behind, first_rows=first_rows)

    def _is_near(self, rows: Rows) -> bool:
        """Whether the scan is open, and hardly anything lies between it and these rows."""
        if self._gate is None:
            return False
        is_open = rows.span < self._first + SPANS_MAX
        return is_open and self._position(rows.span, rows.first) - self._limit <= self.costs.gap_rows

    @property
    def is_waiting(self) -> bool:
        """Whether rows wait for their columns."""
        return bool(self._waiting)

    @property
    def has_lead(self) -> bool:
        """Whether so many rows wait that the first should not wait any longer, or they take too much.

        Where nothing is waited for, the first rows are given at once, and then the lead grows with what was given.
        """
        lead_rows = self._lead_rows if self.costs.costs is not None else min(self._lead_rows, self._given_rows)
        is_ahead = self._waiting_rows - (self._waiting[0].end - self._waiting[0].first) >= lead_rows
        return is_ahead or self._waiting_bytes >= WAITING_BYTES_MAX

    def add(self, rows: Rows) -> Plan[None]:
        """Have rows wait, and their columns be read. What waits before a gap has been read."""
        self._waiting.append(rows)
        self._waiting_rows += rows.end - rows.first
        self._waiting_bytes += _early_bytes(rows)
        if self._gate is not None:
            self._open_until(rows)
            return
        places = self._plan.spans[rows.span : rows.span + SPANS_MAX]
        spans = [(self._sources[one.place], one.start, one.end) for one in places]
        spans[0] = (spans[0][0], rows.first, spans[0][2])
        self._gate = ReadGate(spans)
        self._first, self._begin = rows.span, self._position(rows.span, rows.first)
        self._open_until(rows)
        how = {**self._how, "gate": self._gate}
        self._items = yield Open(partial(self._scan_sync, spans, how), lambda: self._reader.scan(spans, None, **how))

    def is_behind_gap(self, rows: Rows) -> bool:
        """Whether the open scan ends before these rows, to begin again there."""
        return self._gate is not None and not self._is_near(rows)

    def _open_until(self, rows: Rows) -> None:
        assert self._gate is not None, "a scan is open"
        self._limit = self._position(rows.span, rows.end)
        self._gate.open(self._limit - self._begin)

    @cached_property
    def _starts(self) -> list[int]:
        """Rows of all spans before each of them."""
        return list(accumulate([span.end - span.start for span in self._plan.spans], initial=0))

    def _position(self, span: int, row: int) -> int:
        """Which of the rows of all spans a row of one is."""
        return self._starts[span] + row - self._plan.spans[span].start

    def _scan_sync(self, spans: Sequence[Any], how: dict[str, Any]) -> Generator[ScanBatch, None, None]:
        with closing(self._reader.scan_joined(spans, None, **how)) as batches:
            for batch in batches:
                if isinstance(batch, ScanBatch):
                    yield batch
                else:
                    yield from batch.split(None)

    def read(self, give: Give) -> Stream:
        """Pass the rows that have waited longest to `give`, complete, in parts as their pages come."""
        rows = self._waiting.popleft()
        self._waiting_rows -= rows.end - rows.first
        self._waiting_bytes -= _early_bytes(rows)
        self._given_rows += rows.end - rows.first
        done = 0
        while done < rows.num_rows:
            batch = yield from self._batch_with(rows.span, rows.row_at(done))
            until = rows.num_before(batch.row_start + batch.num_rows)
            part = rows.slice(done, until)
            arrays = picked(batch.arrays, part, batch.row_start, batch.num_rows)
            columns = {**dict(zip(self._plan.late, arrays, strict=True)), **part.columns}
            done = until
            yield from give(columns, part.counts)

    def _batch_with(self, span: int, row: int) -> Plan[ScanBatch]:
        """The batch that holds a row, which is not before that of the call before."""
        while True:
            batch = self._batch
            if batch is not None and batch.span_index + self._first == span:
                if row < batch.row_start + batch.num_rows:
                    return batch
            self._batch = batch = None
            self._batch = yield Next(self._items)
            assert self._batch is not None, "the scan reaches to the end of all spans"

    def close(self) -> Plan[None]:
        """Read no further."""
        items, self._items, self._gate, self._batch = self._items, None, None, None
        if items is not None:
            yield Close(items)


def _early_bytes(rows: Rows) -> int:
    return sum(map(memory_bytes, rows.columns.values()))
