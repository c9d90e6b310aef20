"""Late columns: read for the rows that pass the filter, collected until reading them is worth a round.

Rows of runs that pass nearly whole wait for a scan of their columns instead (`late_scan.py`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from lance_io.levels.arrays import memory_bytes
from lance_io.levels.join import TooManyValues, holds_dictionary
from lance_io.levels.retype import concat
from lance_io.limits import MIB
from lance_io.plans.beside import Finish, Start
from lance_io.reads.scan.late_choice import WAITING_BYTES_MAX
from lance_io.reads.scan.span_rows import Joined, Rows, halves_of_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from lance_io.file.take.take_pieces import PiecewiseTake
    from lance_io.plans.beside import Started
    from lance_io.plans.plan import Plan
    from lance_io.plans.streams import Stream
    from lance_io.reads.rows.read_rows import RowReader
    from lance_io.reads.scan.late_scan import LateScan
    from lance_io.reads.scan.pipeline import ScanPlan
    from lance_io.reads.scan.scan_statistics import ScanWatch
    from lance_io.spans import IntArray

    Give = Callable[[Rows | Joined], Stream]

LATE_BYTES = 16 * MIB  # approximate late columns of one take
TAKES_AHEAD = 4  # takes under way after the one to be delivered next


@dataclass(slots=True, eq=False)
class _Take:
    """Rows whose late columns are read, in pieces if these are large.

    rows    with their early columns
    pieces  of the late ones
    first   the first piece
    """

    rows: Joined
    pieces: PiecewiseTake
    first: Started[Joined] | None = None
    num_given: int = 0


class LateColumns:
    """The rows of one scan that wait for their late columns.

    reader     reads `plan.late` of chosen rows
    rows_max   rows collected for one read
    scan       reads all rows of runs, where that is cheaper; None where each row is taken
    watch      counts the rows, if statistics are requested

    `add` and `finish` pass rows to `give` with their late columns.
    """

    def __init__(
        self,
        plan: ScanPlan,
        reader: RowReader,
        rows_max: int,
        scan: LateScan | None = None,
        watch: ScanWatch | None = None,
    ) -> None:
        self._plan = plan
        self._watch = watch
        self._reader = reader
        self._scan = scan
        self._rows_max = rows_max
        self._waiting: list[Rows | Joined] = []
        self._waiting_bytes = 0  # of the early columns
        # deliveries in order: takes; None for the next rows of the scan
        self._order: deque[_Take | None] = deque()
        self._num_takes = 0  # takes in `_order`
        reads = [projection for projection in (plan.late_read, plan.early_read) if projection is not None]
        # each read has a dictionary of its own
        self._has_dictionary = any([holds_dictionary(field.arrow_type) for read in reads for field in read.fields])
        row_bytes = None if plan.late_read is None else plan.late_read.row_bytes
        if row_bytes is not None:
            self._rows_max = max(1, min(rows_max, int(LATE_BYTES / max(row_bytes, 1))))
        self._are_small = row_bytes is not None  # takes, so that several may be under way

    def add(self, kept: Rows | Joined, give: Give, *, is_last: bool) -> Stream:
        """Queue rows; their late columns are read when enough rows wait.

        is_last  whether no rows follow
        """
        scan = self._scan
        if scan is None:
            yield from self._collect(kept, give, is_last=is_last)
            return
        runs: Iterable[Rows | Joined]
        is_dense = False
        if isinstance(kept, Rows):
            runs = scan.runs(kept)
        else:
            is_dense = scan.costs.reads_all(kept.positions(), kept.num_examined)
            runs = kept.by_span() if is_dense else [kept]
        for rows in runs:
            if isinstance(rows, Rows) and (is_dense or scan.reads(rows)):
                yield from self._begin_take(give)
                yield from scan.add(rows)
                if self._watch is not None:
                    self._watch.record_late(read=rows.end - rows.first)
                self._order.append(None)
            elif rows.num_rows:
                yield from self._collect(rows, give, is_last=False)
            yield from self._give_ready(scan, give)
        if is_last:
            yield from self.finish(give)

    def _collect(self, kept: Rows | Joined, give: Give, *, is_last: bool) -> Stream:
        start = 0
        while start < kept.num_rows:
            waiting = sum([rows.num_rows for rows in self._waiting])
            few = max(1, self._rows_max - waiting)
            part = kept.slice(start, min(kept.num_rows, start + few))
            self._waiting.append(part)
            self._waiting_bytes += sum([memory_bytes(column) for column in part.columns.values()])
            start += part.num_rows
            is_end = is_last and start == kept.num_rows
            if is_end or waiting + part.num_rows >= self._rows_max or self._waiting_bytes >= WAITING_BYTES_MAX:
                yield from self._begin_take(give)

    def finish(self, give: Give) -> Stream:
        """Read the rest when all rows are in; as `add`."""
        yield from self._begin_take(give)
        yield from self._give_all(give)
        if self._scan is not None:
            yield from self._scan.end()

    def _begin_take(self, give: Give) -> Stream:
        """Start reading the late columns of the waiting rows; without concurrency, deliver them at once."""
        if not self._waiting:
            return
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if self._watch is not None:
            self._watch.record_late(taken=sum([rows.num_rows for rows in waiting]))
        if self._has_dictionary:
            yield from self._complete(waiting, give)
            return
        take = self._take(waiting)
        if self._scan is None:
            yield from self._give_pieces(take, give)
            return
        if not self._are_small and self._num_takes:
            yield from self._give_all(give)
        take.first = yield Start(self._piece(take))
        self._order.append(take)
        self._num_takes += 1

    def _give_ready(self, scan: LateScan, give: Give) -> Stream:
        while self._order:
            first = self._order[0]
            is_ready = scan.has_lead if first is None else _is_read(first) or self._num_takes > TAKES_AHEAD
            if not is_ready:
                return
            yield from self._give_first(give)

    def _give_all(self, give: Give) -> Stream:
        while self._order:
            yield from self._give_first(give)

    def _give_first(self, give: Give) -> Stream:
        first = self._order.popleft()
        if first is None:
            assert self._scan is not None, "it has the rows"
            yield from self._scan.read(give)
            return
        self._num_takes -= 1
        yield from self._give_pieces(first, give)

    def _take(self, waiting: list[Rows | Joined]) -> _Take:
        rows = _joined(waiting)
        return _Take(rows, self._reader.pieces(self._groups(rows)))

    def _groups(self, rows: Joined) -> list[tuple[int, IntArray]]:
        return [(self._plan.spans[span].fragment_index, offsets) for span, offsets in rows.parts]

    def _give_pieces(self, take: _Take, give: Give) -> Stream:
        first, take.first = take.first, None
        rows = (yield from self._piece(take)) if first is None else (yield Finish(first))
        late_bytes = sum([memory_bytes(rows.columns[name]) for name in self._plan.late])
        self._are_small = take.pieces.is_done and late_bytes <= LATE_BYTES  # an estimate for those that follow
        yield from give(rows)
        while not take.pieces.is_done:
            yield from give((yield from self._piece(take)))

    def _piece(self, take: _Take) -> Plan[Joined]:
        num_rows, arrays = yield from self._reader.read_piece(take.pieces)
        rows = take.rows.slice(take.num_given, take.num_given + num_rows)
        take.num_given += num_rows
        return self._with_late(rows, arrays)

    def _with_late(self, rows: Joined, arrays: list[pa.Array] | pa.RecordBatch) -> Joined:
        assert isinstance(arrays, list), "asked for without a layout"
        columns = {**dict(zip(self._plan.late, arrays, strict=True)), **rows.columns}
        return Joined(columns, rows.parts, rows.num_rows)

    def _complete(self, waiting: list[Rows | Joined], give: Give) -> Stream:
        """Read the late columns of some rows and deliver them; in halves if dictionaries do not fit together."""
        try:
            rows = _joined(waiting)
            complete = self._with_late(rows, (yield from self._reader.read(self._groups(rows))))
        except TooManyValues:
            halves = halves_of_rows(waiting)
            if halves is None:
                raise
        else:
            yield from give(complete)
            return
        for half in halves:
            yield from self._complete(half, give)


def _is_read(take: _Take) -> bool:
    return take.first is None or take.first.is_done


def _joined(waiting: list[Rows | Joined]) -> Joined:
    """Rows that follow each other, with their columns."""
    picks: list[tuple[int, list[IntArray]]] = []
    for span, offsets in chain.from_iterable(rows.parts for rows in waiting):
        if not picks or picks[-1][0] != span:
            picks.append((span, []))
        picks[-1][1].append(offsets)
    parts = [(span, pieces[0] if len(pieces) == 1 else np.concatenate(pieces)) for span, pieces in picks]
    columns = {name: concat([rows.columns[name] for rows in waiting]) for name in waiting[0].columns}
    return Joined(columns, parts, sum([rows.num_rows for rows in waiting]))
