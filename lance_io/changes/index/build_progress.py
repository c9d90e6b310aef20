"""Progress of an index build: the house's function of rows, and pylance's events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.reads.metadata.file_listing import Progress


@dataclass(frozen=True)
class IndexProgress:
    """An event of an index build.

    Args:
        event: "start", "progress" or "complete".
        stage: "load_data" while the column is read, "write_files" while the files are written.
        completed: Work that is done, None if unknown.
        total: All work of the stage, None if unknown.
        unit: Unit of the work.
    """

    event: Literal["start", "progress", "complete"]
    stage: str
    completed: int | None = None
    total: int | None = None
    unit: str = ""

    @property
    def fraction(self) -> float | None:
        """Share of the work that is done; None if it is unknown."""
        if self.completed is None or not self.total:
            return None
        return min(self.completed / self.total, 1.0)


class BuildProgress:
    """Reports a build.

    progress  called with the number of rows read and their total, None if it is unknown; None for no reports
    callback  called with events; None for none
    """

    def __init__(
        self, progress: Progress | None = None, callback: Callable[[IndexProgress], object] | None = None
    ) -> None:
        self._progress = progress
        self._callback = callback
        self._stage = ""
        self._done = 0
        self._total: int | None = None

    def begin(self, stage: str, total: int | None = None) -> None:
        """Begin a stage. total: its rows."""
        self._stage, self._done, self._total = stage, 0, total
        self._emit("start")

    def add(self, num_rows: int) -> None:
        """Report that more rows were read."""
        self._done += num_rows
        if self._progress is not None and num_rows:
            self._progress(self._done, self._total)
        self._emit("progress")

    def end(self) -> None:
        """End the stage."""
        self._emit("complete")

    def _emit(self, event: Literal["start", "progress", "complete"]) -> None:
        if self._callback is not None:
            unit = "rows" if self._stage == "load_data" else "files"
            self._callback(IndexProgress(event, self._stage, self._done, self._total, unit))
