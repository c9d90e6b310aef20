"""What a change of many rows tells its caller while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lance_io.reads.metadata.file_listing import Progress


class RowProgress:
    """Tells a caller how many rows are done, and of how many.

    progress  None where nobody wants to know
    num_rows  that there are to do, None where that is not known yet
    """

    def __init__(self, progress: Progress | None, num_rows: int | None) -> None:
        self._progress = progress
        self._num_rows = num_rows
        self._num_done = 0

    def add(self, num_rows: int) -> None:
        """So many more rows are done."""
        self._num_done += num_rows
        if self._progress is not None and num_rows:
            self._progress(self._num_done, self._num_rows)
