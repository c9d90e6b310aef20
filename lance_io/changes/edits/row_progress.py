"""Progress of a change, in rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lance_io.reads.metadata.file_listing import Progress


class RowProgress:
    """Counts the rows that are done and calls `progress(done, total)`.

    progress  None for no reports
    num_rows  the total, None if it is unknown
    """

    def __init__(self, progress: Progress | None, num_rows: int | None) -> None:
        self._progress = progress
        self._num_rows = num_rows
        self._num_done = 0

    def add(self, num_rows: int) -> None:
        """Report that `num_rows` more rows are done."""
        self._num_done += num_rows
        if self._progress is not None and num_rows:
            self._progress(self._num_done, self._num_rows)
