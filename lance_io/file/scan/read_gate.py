"""A scan that goes ahead as far as another one allows, such as that of a filter's columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_io.file.scan.readahead import Span


class ReadGate:
    """How far a scan may go ahead of its consumer: up to a row of the scan that moves on.

    spans  all of the scan

    It belongs to the thread of the consumer, as the scan does.
    """

    __slots__ = ("_limit_rows", "_positions", "_spans", "listener")

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._positions = np.cumsum([0, *[end - start for _, start, end in spans]]).tolist()
        self._limit_rows = 0
        self.listener: Callable[[], None] | None = None  # of the scan: it may go on

    def open(self, limit_rows: int) -> None:
        """Let it go ahead up to this row of the scan."""
        if limit_rows > self._limit_rows:
            self._limit_rows = limit_rows
            if self.listener is not None:
                self.listener()

    def reaches(self, span_index: int, row: int | None = None) -> bool:
        """Whether what begins with this row of the file, or with a span, may be begun ahead of need."""
        start = self._spans[span_index][1]
        return int(self._positions[span_index]) + (0 if row is None else row - start) < self._limit_rows

    def gave(self, num_rows: int) -> None:
        """A batch of so many rows was taken: of no effect."""

    def borders(self, span_index: int) -> None:
        """Where the rows of a span are cut, too: nowhere."""
