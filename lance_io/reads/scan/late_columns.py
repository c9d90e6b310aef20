"""Columns that a scan reads late: of the rows that pass its filter, collected until reading them is worth a round.

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

    import pyarrow as pa

    from lance_io.format.schema import Field
    from lance_io.plans.beside import Started
    from lance_io.plans.plan import Plan
    from lance_io.plans.streams import Stream
    from lance_io.reads.rows.read_rows import RowReader
    from lance_io.reads.scan.late_scan import LateScan
    from lance_io.reads.scan.pipeline import ScanPlan
    from lance_io.spans import IntArray

    _Taking = Started[tuple[dict[str, pa.Array], list[tuple[int, int]]]]
    Give = Callable[[dict[str, pa.Array], list[tuple[int, int]]], Stream]

LATE_ROWS_FIRST = 16  # rows of the first take, while the size of values is unknown; one row on local disk
LATE_BYTES = 16 * MIB  # late columns of one take, about
TAKES_AHEAD = 4  # takes under way behind the one whose rows are next
NARROW_BITS = 8 * 1024  # values of at most this width need no bound of bytes: 64 Ki of them take 64 MiB


class LateColumns:
    """The rows of one scan that wait for their late columns.

    reader     reads `plan.late` of chosen rows
    rows_max   how many rows are collected for one read
    scan       reads all rows of runs, where that is better; None where each row is taken

    `add` and `finish` pass complete rows to `give`: all columns by name, and the spans with how many rows each has.
    """

    def __init__(self, plan: ScanPlan, reader: RowReader, rows_max: int, scan: LateScan | None = None) -> None:
        self._plan = plan
        self._reader = reader
        self._scan = scan
        self._rows_max = rows_max
        self._waiting: list[Rows | Joined] = []
        self._waiting_bytes = 0  # of the columns that were read early
        self._order: deque[_Taking | None] = deque()  # what is to be given: takes, None for the next rows of the scan
        self._num_takes = 0  # of these
        late, early = [() if one is None else one.fields for one in (plan.late_read, plan.early_read)]
        is_one = any([holds_dictionary(field.arrow_type) for field in (*early, *late)])  # each read has one of its own
        self._step = sys.maxsize if is_one else _first_rows(late, is_local=reader.is_local)
        self._is_sized = all([fixed_bits(field.arrow_type) is not None for field in late])

    def add(self, kept: Rows | Joined, give: Give, *, is_last: bool) -> Stream:
        """Have some rows wait for their late columns, which are read whenever enough do.

        is_last  whether no rows follow

        The size of values is known when they are read: the first of those that may be large are few.
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
            is_dense = scan.costs.reads_all(kept.positions(), kept.num_looked)
            runs = kept.by_span() if is_dense else [kept]
        for rows in runs:
            if isinstance(rows, Rows) and (is_dense or scan.reads(rows, self._step)):
                yield from self._begin_take(give)
                yield from scan.add(rows)
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
            waiting = sum([one.num_rows for one in self._waiting])
            few = max(1, rows_max - waiting) if self._step < sys.maxsize else kept.num_rows
            part = kept.slice(start, min(kept.num_rows, start + few))
            self._waiting.append(part)
            self._waiting_bytes += sum([memory_bytes(one) for one in part.columns.values()])
            start += part.num_rows
            is_end = is_last and start == kept.num_rows
            if is_end or waiting + part.num_rows >= rows_max or self._waiting_bytes >= WAITING_BYTES_MAX:
                yield from self._begin_take(give)

    def finish(self, give: Give) -> Stream:
        """Read what is left when all rows are in; as `add`."""
        yield from self._begin_take(give)
        yield from self._give_all(give)
        if self._scan is not None:
            yield from self._scan.end()

    def _begin_take(self, give: Give) -> Stream:
        """Have the late columns of the waiting rows be read; they are given at once, where nothing runs beside."""
        if not self._waiting:
            return
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if self._scan is None:
            yield from self._complete(waiting, give)
            return
        self._order.append((yield Start(self._columns_of(waiting))))
        self._num_takes += 1
        if not self._is_sized:  # the size of the next ones follows from this one
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
        columns, counts = yield Finish(first)
        yield from give(columns, counts)

    def _complete(self, waiting: list[Rows | Joined], give: Give) -> Stream:
        """Read the late columns of some rows, and give them; in halves where dictionaries do not fit together."""
        try:
            columns, counts = yield from self._columns_of(waiting)
        except TooManyValues:
            halves = halves_of_rows(waiting)
            if halves is None:
                raise
        else:
            yield from give(columns, counts)
            return
        for half in halves:
            yield from self._complete(half, give)

    def _columns_of(self, waiting: list[Rows | Joined]) -> Plan[tuple[dict[str, pa.Array], list[tuple[int, int]]]]:
        """All columns of some rows, and their spans, each with how many rows it has. Raises `TooManyValues`."""
        picks: list[tuple[int, list[IntArray]]] = []
        for span, offsets in chain.from_iterable(rows.parts for rows in waiting):
            if not picks or picks[-1][0] != span:
                picks.append((span, []))
            picks[-1][1].append(offsets)
        joined = [(span, pieces[0] if len(pieces) == 1 else np.concatenate(pieces)) for span, pieces in picks]
        arrays = yield from self._reader.read([(self._plan.spans[span].place, one) for span, one in joined])
        if self._step < sys.maxsize:
            row_bytes = sum(map(memory_bytes, arrays)) / sum([len(offsets) for _, offsets in joined])
            self._step = max(1, min(self._step * ROWS_GROWTH, int(LATE_BYTES / max(1, row_bytes))))
        columns = dict(zip(self._plan.late, arrays, strict=True))
        for name in waiting[0].columns:
            columns[name] = concat([rows.columns[name] for rows in waiting])
        return columns, [(span, len(offsets)) for span, offsets in joined]


def _first_rows(fields: Sequence[Field], *, is_local: bool) -> int:
    """How many rows of some fields are read at first: few, where only the values say how large they are."""
    sizes = [fixed_bits(field.arrow_type) for field in fields]
    known = [bits for bits in sizes if bits is not None]
    if len(known) < len(sizes):
        return 1 if is_local else LATE_ROWS_FIRST
    return sys.maxsize if max(known) <= NARROW_BITS else max(1, 8 * LATE_BYTES // sum(known))
