"""A readahead limit that another scan controls, such as the scan of a filter's columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_io.file.scan.readahead import Span


class ReadGate:
    """Limits the readahead of a scan to a row that moves forward.

    spans  all spans of the scan

    Not thread-safe: use it in the consumer's thread, as the scan.
    """

    __slots__ = ("_limit_rows", "_positions", "_spans", "listener")

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._positions = np.cumsum([0, *[end - start for _, start, end in spans]]).tolist()
        self._limit_rows = 0
        self.listener: Callable[[], None] | None = None  # called when the limit rises, so that the scan resumes

    def open(self, limit_rows: int) -> None:
        """Raise the limit to this row of the scan."""
        if limit_rows > self._limit_rows:
            self._limit_rows = limit_rows
            if self.listener is not None:
                self.listener()

    def allows(self, span_index: int, row: int | None = None) -> bool:
        """Whether the limit allows to prefetch from this row of a span's file on, or from the start of the span."""
        start = self._spans[span_index][1]
        return int(self._positions[span_index]) + (0 if row is None else row - start) < self._limit_rows

    def consumed(self, num_rows: int) -> None:
        """See `Pace`; no effect."""

    def borders(self, span_index: int) -> None:
        """See `Pace`; no further cuts."""
