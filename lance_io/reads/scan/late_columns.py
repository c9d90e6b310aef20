"""Late columns: read for the rows that pass the filter, collected until reading them is worth a round.

Rows of runs that pass nearly whole wait for a scan of their columns instead (`late_scan.py`).
"""

from __future__ import annotations

import sys
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from lance_io.levels.arrays import memory_bytes
from lance_io.levels.join import TooManyValues, holds_dictionary
from lance_io.levels.retype import concat
from lance_io.levels.row_bytes import fixed_bits
from lance_io.limits import MIB
from lance_io.plans.beside import Finish, Start
from lance_io.reads.scan.late_choice import ROWS_GROWTH, WAITING_BYTES_MAX
from lance_io.reads.scan.span_rows import Joined, Rows, halves_of_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lance_io.format.schema import Field
    from lance_io.plans.beside import Started
    from lance_io.plans.plan import Plan
    from lance_io.plans.streams import Stream
    from lance_io.reads.rows.read_rows import RowReader
    from lance_io.reads.scan.late_scan import LateScan
    from lance_io.reads.scan.pipeline import ScanPlan
    from lance_io.reads.scan.scan_statistics import ScanWatch
    from lance_io.spans import IntArray

    Give = Callable[[Rows | Joined], Stream]

LATE_ROWS_FIRST = 16  # rows of the first take, while the size of values is unknown; one row on local disk
LATE_BYTES = 16 * MIB  # approximate late columns of one take
TAKES_AHEAD = 4  # takes under way after the one to be delivered next
NARROW_BITS = 8 * 1024  # values of at most this width need no byte bound: 64 Ki of them take 64 MiB


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
        self._order: deque[Started[Joined] | None] = deque()
        self._num_takes = 0  # takes in `_order`
        late, early = [
            () if projection is None else projection.fields for projection in (plan.late_read, plan.early_read)
        ]
        # each read has a dictionary of its own
        has_dictionary = any([holds_dictionary(field.arrow_type) for field in (*early, *late)])
        self._step = sys.maxsize if has_dictionary else _first_rows(late, is_local=reader.is_local)
        self._is_sized = all([fixed_bits(field.arrow_type) is not None for field in late])

    def add(self, kept: Rows | Joined, give: Give, *, is_last: bool) -> Stream:
        """Queue rows; their late columns are read when enough rows wait.

        is_last  whether no rows follow

        The size of values is known only after reading, so the first take of variable-size values is small.
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
            if isinstance(rows, Rows) and (is_dense or scan.reads(rows, self._step)):
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
            rows_max = min(self._rows_max, self._step)
            waiting = sum([rows.num_rows for rows in self._waiting])
            few = max(1, rows_max - waiting) if self._step < sys.maxsize else kept.num_rows
            part = kept.slice(start, min(kept.num_rows, start + few))
            self._waiting.append(part)
            self._waiting_bytes += sum([memory_bytes(column) for column in part.columns.values()])
            start += part.num_rows
            is_end = is_last and start == kept.num_rows
            if is_end or waiting + part.num_rows >= rows_max or self._waiting_bytes >= WAITING_BYTES_MAX:
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
        if self._scan is None:
            yield from self._complete(waiting, give)
            return
        self._order.append((yield Start(self._columns_of(waiting))))
        self._num_takes += 1
        if not self._is_sized:  # the size of later takes depends on this one
            yield from self._give_all(give)

    def _give_ready(self, scan: LateScan, give: Give) -> Stream:
        while self._order:
            first = self._order[0]
            is_ready = scan.has_lead if first is None else first.is_done or self._num_takes > TAKES_AHEAD
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
        yield from give((yield Finish(first)))

    def _complete(self, waiting: list[Rows | Joined], give: Give) -> Stream:
        """Read the late columns of some rows and deliver them; in halves if dictionaries do not fit together."""
        try:
            rows = yield from self._columns_of(waiting)
        except TooManyValues:
            halves = halves_of_rows(waiting)
            if halves is None:
                raise
        else:
            yield from give(rows)
            return
        for half in halves:
            yield from self._complete(half, give)

    def _columns_of(self, waiting: list[Rows | Joined]) -> Plan[Joined]:
        """Some rows with all their columns. Raises `TooManyValues`."""
        picks: list[tuple[int, list[IntArray]]] = []
        for span, offsets in chain.from_iterable(rows.parts for rows in waiting):
            if not picks or picks[-1][0] != span:
                picks.append((span, []))
            picks[-1][1].append(offsets)
        joined = [(span, pieces[0] if len(pieces) == 1 else np.concatenate(pieces)) for span, pieces in picks]
        arrays = yield from self._reader.read(
            [(self._plan.spans[span].fragment_index, offsets) for span, offsets in joined]
        )
        num_rows = sum([len(offsets) for _, offsets in joined])
        if self._step < sys.maxsize:
            row_bytes = sum(map(memory_bytes, arrays)) / num_rows
            self._step = max(1, min(self._step * ROWS_GROWTH, int(LATE_BYTES / max(1, row_bytes))))
        columns = dict(zip(self._plan.late, arrays, strict=True))
        for name in waiting[0].columns:
            columns[name] = concat([rows.columns[name] for rows in waiting])
        return Joined(columns, joined, num_rows)


def _first_rows(fields: Sequence[Field], *, is_local: bool) -> int:
    """Rows of the first read: few if only the values tell their size."""
    sizes = [fixed_bits(field.arrow_type) for field in fields]
    known = [bits for bits in sizes if bits is not None]
    if len(known) < len(sizes):
        return 1 if is_local else LATE_ROWS_FIRST
    return sys.maxsize if max(known) <= NARROW_BITS else max(1, 8 * LATE_BYTES // sum(known))
