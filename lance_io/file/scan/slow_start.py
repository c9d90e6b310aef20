"""Slow start of scans whose consumer may stop after a few rows: the readahead starts with one batch and grows.

A query engine that takes batches from a stream does not announce how many it needs. So the scan prefetches nothing
after a limit row, and the limit grows with the rows that the consumer has taken. A piece that crosses it is cut there:
into the first batch, two, eight ... batches. After about ten batches the scan has its full readahead, in four rounds
on a store with latency.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.file.scan.readahead import Span
    from lance_io.spans import IntArray
    from lance_io.store.profile import StoreProfile

FIRST_ROWS_MIN: Final = 1024  # fewer rows are in one chunk, or save hardly any bytes
AHEAD_MAX: Final = 7  # times the rows given: batches come many at once, and their consumption is not reported
SMALL_PIECES: Final = 2  # small pieces that are worth one request each
FINE_BYTES_MIN: Final = 4096  # about one chunk
NOWHERE: Final = np.empty(0, dtype=np.int64)


class Pace(Protocol):
    """Limits how far a scan may read ahead of its consumer."""

    def consumed(self, num_rows: int, /) -> None:
        """Record that the consumer took `num_rows` rows."""

    def allows(self, span_index: int, row: int | None = None, /) -> bool:
        """Whether the limit allows to prefetch from this row of a span's file on, or from the start of the span."""

    def borders(self, span_index: int, /) -> Borders | None:
        """Rows of a span to cut pieces at, so that the scan can stop there."""


class SlowStart:
    """Row limit of a scan that grows with the rows that the consumer has taken.

    spans       all spans of the scan
    first_rows  rows of the first batch
    profile     profile of the store
    """

    __slots__ = ("_first_rows", "_limit_rows", "_num_given", "_positions", "_profile", "_spans")

    def __init__(self, spans: Sequence[Span], first_rows: int, profile: StoreProfile) -> None:
        self._spans = spans
        self._positions = np.cumsum([0, *[end - start for _, start, end in spans]])  # rows of the scan before a span
        self._first_rows = max(FIRST_ROWS_MIN, first_rows)
        self._profile = profile
        self._num_given = 0
        self._limit_rows = self.limit(0)

    def consumed(self, num_rows: int) -> None:
        """See `Pace`."""
        self._num_given += num_rows
        self._limit_rows = self.limit(self._num_given)

    def allows(self, span_index: int, row: int | None = None) -> bool:
        """See `Pace`."""
        start = self._spans[span_index][1]
        return int(self._positions[span_index]) + (0 if row is None else row - start) < self._limit_rows

    def limit(self, num_given: int) -> int:
        """The row limit of the scan once the consumer has taken `num_given` rows."""
        first = self._first_rows
        if num_given < first:
            return max(first, 2 * num_given)
        return num_given + min(first << min(num_given // first, 32), AHEAD_MAX * num_given)

    def borders(self, span_index: int) -> Borders:
        """See `Pace`."""
        return Borders(self, int(self._positions[span_index]) - self._spans[span_index][1], self._profile)


class Borders:
    """Rows of one file to cut pieces at, so that a scan can stop there.

    to_scan  offset from row numbers of the file to those of the scan
    """

    __slots__ = ("_profile", "_start", "_to_scan")

    def __init__(self, start: SlowStart, to_scan: int, profile: StoreProfile) -> None:
        self._start = start
        self._to_scan = to_scan
        self._profile = profile

    def rows(self, row_start: int, row_end: int, num_bytes: int) -> IntArray:
        """Rows to cut at between `row_start` and `row_end`; none if `num_bytes` are few, as cutting saves no time."""
        rows, end = [], row_end + self._to_scan
        at = self._start.limit(row_start + self._to_scan)
        while at < end and num_bytes > self._profile.whole_file_bytes:
            rows.append(at - self._to_scan)
            at = self._start.limit(at)
        return np.array(rows, dtype=np.int64)

    def select(self, rows: IntArray, sizes: IntArray, wanted: IntArray, bytes_max: int) -> IntArray:
        """Indexes of the possible borders to cut at, ascending: the wanted ones, or the next possible ones.

        rows       i64[n + 1], possible borders, ascending
        sizes      i64[n], bytes between them
        wanted     rows to cut at
        bytes_max  larger pieces are cut into pieces of about this size

        After the first pieces, none is so small that its request would cost as much as its bytes.
        """
        before = np.append(0, np.cumsum(sizes))
        end, gap_bytes = len(rows) - 1, self._profile.scan_gap_bytes
        by_rows = [0]
        for at in np.unique(np.searchsorted(rows, wanted)).tolist():
            is_large = min(before[at] - before[by_rows[-1]], before[end] - before[at]) >= gap_bytes
            if 0 < at < end and (is_large or len(by_rows) <= SMALL_PIECES):
                by_rows.append(at)
        first = int(before[by_rows[-1]]) + bytes_max
        by_bytes = np.searchsorted(before, np.arange(first, int(before[end]) - bytes_max // 2, bytes_max))
        selected: IntArray = np.unique(np.concatenate((by_rows, by_bytes, [end])))
        return selected
