"""Scans whose consumer may stop after a few rows: they begin with one batch, and read ahead twice as far with each that
is taken.

A query engine that takes batches from a stream does not say how many it needs. So nothing behind a row is begun before
it is needed, and that row goes on with what was given. What would be one piece is cut there: into the first batch, two,
eight ... After some ten batches the scan is as far ahead as any other, in four rounds where all bytes are waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.file.scan.readahead import Span
    from lance_io.spans import IntArray
    from lance_io.store.profile import StoreProfile

FIRST_ROWS_MIN: Final = 1024  # fewer are in one chunk, or hardly more bytes
AHEAD_MAX: Final = 7  # times what was given: batches come many at once, and do not say how many of them were taken
SMALL_PIECES: Final = 2  # that so many are small is worth a request each
FINE_BYTES_MIN: Final = 4096  # about a chunk
NOWHERE: Final = np.empty(0, dtype=np.int64)


class Pace(Protocol):
    """How far a scan may go ahead of its consumer."""

    def gave(self, num_rows: int, /) -> None:
        """A batch of so many rows was taken."""

    def reaches(self, span_index: int, row: int | None = None, /) -> bool:
        """Whether what begins with this row of the file, or with a span, may be begun ahead of need."""

    def borders(self, span_index: int, /) -> Borders | None:
        """Where the rows of a span are cut, so that a scan can stop there."""


class SlowStart:
    """How far one scan may go ahead.

    spans       all of the scan
    first_rows  of the first batch
    profile     of the store
    """

    __slots__ = ("_first_rows", "_limit_rows", "_num_given", "_positions", "_profile", "_spans")

    def __init__(self, spans: Sequence[Span], first_rows: int, profile: StoreProfile) -> None:
        self._spans = spans
        self._positions = np.cumsum([0, *[end - start for _, start, end in spans]])  # rows of the scan before a span
        self._first_rows = max(FIRST_ROWS_MIN, first_rows)
        self._profile = profile
        self._num_given = 0
        self._limit_rows = self.limit(0)

    def gave(self, num_rows: int) -> None:
        """A batch of so many rows was taken."""
        self._num_given += num_rows
        self._limit_rows = self.limit(self._num_given)

    def reaches(self, span_index: int, row: int | None = None) -> bool:
        """Whether what begins with this row of the file, or with a span, may be begun ahead of need."""
        start = self._spans[span_index][1]
        return int(self._positions[span_index]) + (0 if row is None else row - start) < self._limit_rows

    def limit(self, num_given: int) -> int:
        """The row of the scan up to which it may go once so many were given."""
        first = self._first_rows
        if num_given < first:
            return max(first, 2 * num_given)
        return num_given + min(first << min(num_given // first, 32), AHEAD_MAX * num_given)

    def borders(self, span_index: int) -> Borders:
        """Where the rows of a span are cut."""
        return Borders(self, int(self._positions[span_index]) - self._spans[span_index][1], self._profile)


class Borders:
    """Where the rows of one file are cut, so that a scan can stop there.

    to_scan  what makes a row of the file one of the scan
    """

    __slots__ = ("_profile", "_start", "_to_scan")

    def __init__(self, start: SlowStart, to_scan: int, profile: StoreProfile) -> None:
        self._start = start
        self._to_scan = to_scan
        self._profile = profile

    def rows(self, row_start: int, row_end: int, num_bytes: int) -> IntArray:
        """Rows of the file between these two; none where reading less than so many bytes takes as long."""
        found, end = [], row_end + self._to_scan
        at = self._start.limit(row_start + self._to_scan)
        while at < end and num_bytes > self._profile.whole_file_bytes:
            found.append(at - self._to_scan)
            at = self._start.limit(at)
        return np.array(found, dtype=np.int64)

    def kept(self, rows: IntArray, sizes: IntArray, wanted: IntArray, bytes_max: int) -> IntArray:
        """Which of the possible borders to keep, as their numbers, ascending: pieces end at the wanted ones or behind.

        rows       i64[n + 1], ascending
        sizes      i64[n], bytes between them
        bytes_max  pieces of more are cut where they have about so many

        Behind the first pieces, none has so few bytes that a request costs as much.
        """
        before = np.append(0, np.cumsum(sizes))
        end, gap_bytes = len(rows) - 1, self._profile.scan_gap_bytes
        found = [0]
        for at in np.unique(np.searchsorted(rows, wanted)).tolist():
            is_large = min(before[at] - before[found[-1]], before[end] - before[at]) >= gap_bytes
            if 0 < at < end and (is_large or len(found) <= SMALL_PIECES):
                found.append(at)
        first = int(before[found[-1]]) + bytes_max
        by_bytes = np.searchsorted(before, np.arange(first, int(before[end]) - bytes_max // 2, bytes_max))
        kept: IntArray = np.unique(np.concatenate((found, by_bytes, [end])))
        return kept
