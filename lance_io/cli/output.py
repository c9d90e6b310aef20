"""Prints answers: JSON with stable keys, tables for people, progress bars for slow steps."""

from __future__ import annotations

import base64
import io
import json
import math
import sys
import threading
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lance_io.cli.tables import is_terminal
from lance_io.dataset.cli_imports import format_bytes
from lance_io.lazy_names import lazy_module
from lance_io.redaction import hide_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.progress import Progress

    from lance_io.cli import drawing
    from lance_io.cli.tables import Shown

    Report = dict[str, Any]
else:
    drawing = lazy_module("lance_io.cli.drawing")  # slow to load, and not needed for JSON

T = TypeVar("T")

PROGRESS_AFTER_SECONDS: Final = 1.0


def show(report: Report, as_json: bool, render: Callable[[Report], Shown]) -> None:
    """Print a report: as JSON, or as `render` draws it. URIs are shown without credentials."""
    if isinstance(report.get("uri"), str):
        report = {**report, "uri": hide_secrets(report["uri"])}
    if as_json:
        print(_json(plain(report), getattr(sys.stdout, "encoding", None) or "utf-8"))
        return
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal or pipe that is not UTF-8 gets escapes
        sys.stdout.reconfigure(errors="backslashreplace")
    drawing.draw(render(report))


def _json(report: Any, encoding: str) -> str:
    """Format as JSON; escapes everything beyond ASCII if the encoding lacks a character."""
    text = json.dumps(report, indent=2, ensure_ascii=False)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return json.dumps(report, indent=2)
    return text


def plain(value: Any) -> Any:
    """A value in JSON's types: times as ISO 8601, bytes as base64, numbers that JSON lacks as text."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode()
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case dict():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return str(value)


# -- progress ----------------------------------------------------------------------------------------------------


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """A bar on the terminal's error stream, if the block takes more than a second; call the result per step.

    total  number of steps, None if unknown
    """
    if not is_terminal(sys.stderr):
        yield lambda: None
        return
    bar = drawing.steps_bar(total)
    task = bar.add_task(what, total=total)
    with _show_later(bar):
        yield lambda: bar.advance(task)


@contextmanager
def transfer(what: str, total_rows: int | None) -> Iterator[Callable[[int, int], None]]:
    """A bar for rows in transfer, shown as `progress` is; call the result with the rows and bytes of each batch.

    It shows rows, their bytes in memory, both per second, and the remaining time.
    total_rows  None if unknown
    """
    if not is_terminal(sys.stderr):
        yield lambda num_rows, num_bytes: None
        return
    bar = drawing.transfer_bar(total_rows)
    meter = Meter(total_rows)
    task = bar.add_task(what, total=total_rows, done=meter.text())
    with _show_later(bar):

        def advance(num_rows: int, num_bytes: int) -> None:
            meter.add(num_rows, num_bytes)
            bar.update(task, advance=num_rows, done=meter.text())

        yield advance


class Meter:
    """Rows and bytes so far, and their rates.

    clock  returns seconds
    """

    def __init__(self, total_rows: int | None, clock: Callable[[], float] = perf_counter) -> None:
        self._total_rows = total_rows
        self._clock = clock
        self._started = clock()
        self._num_rows = self._num_bytes = 0

    def add(self, num_rows: int, num_bytes: int) -> None:
        """Add a batch."""
        self._num_rows += num_rows
        self._num_bytes += num_bytes

    def text(self) -> str:
        """Such as `1,000/3,000 rows, 1.5 MiB, 500 rows/s, 0.8 MiB/s`."""
        of_all = "" if self._total_rows is None else f"/{self._total_rows:,}"
        seconds = max(self._clock() - self._started, 1e-9)
        return (
            f"{self._num_rows:,}{of_all} rows, {format_bytes(self._num_bytes)}, "
            f"{self._num_rows / seconds:,.0f} rows/s, {format_bytes(round(self._num_bytes / seconds))}/s"
        )


@contextmanager
def _show_later(bar: Progress) -> Iterator[None]:
    """Start a bar, unless the block ends within `PROGRESS_AFTER_SECONDS`."""
    timer = threading.Timer(PROGRESS_AFTER_SECONDS, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


def steps(what: str, things: Sequence[T]) -> Iterator[T]:
    """Yield the things, with a progress bar if that takes more than a second."""
    with progress(what, len(things)) as step:
        for thing in things:
            yield thing
            step()
