"""How answers look: JSON with stable keys, tables for people, progress bars where something takes its time."""

from __future__ import annotations

import base64
import io
import json
import math
import re
import sys
import threading
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import Console, RenderableType
    from rich.progress import Progress

    Report = dict[str, Any]

T = TypeVar("T")

PIPE_WIDTH: Final = 1000  # columns of a "screen" that is none: tables are not cut in a pipe
PROGRESS_AFTER_SECONDS: Final = 1.0


def show(report: Report, as_json: bool, render: Callable[[Report], RenderableType]) -> None:
    """Print a report: as JSON, or as `render` draws it."""
    if as_json:
        print(_json(plain(report), getattr(sys.stdout, "encoding", None) or "utf-8"))
        return
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal or pipe that is not UTF-8 gets what it has signs for
        sys.stdout.reconfigure(errors="backslashreplace")
    drawn = render(report)
    _console().print(printable(drawn) if isinstance(drawn, str) else drawn, soft_wrap=True)


def _json(report: Any, encoding: str) -> str:
    """As JSON: characters as they are, or all beyond ASCII as escapes where the encoding lacks one of them."""
    text = json.dumps(report, indent=2, ensure_ascii=False)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return json.dumps(report, indent=2)
    return text


# C0 and C1 controls but for the line feed, what turns the direction of writing, halves of characters
_UNPRINTABLE: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Text whose control characters are escapes: data must not steer the terminal. Line feeds stay."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    width = None if is_terminal(sys.stderr if stderr else sys.stdout) else PIPE_WIDTH
    return Console(stderr=stderr, markup=False, highlight=False, width=width)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody sits there; a stream that was closed before the program began is None."""
    return stream is not None and stream.isatty()


def plain(value: Any) -> Any:
    """A value in JSON's terms: times as ISO 8601, bytes as base64, numbers that JSON lacks as text."""
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
            return {str(key): plain(one) for key, one in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
        case _:
            return str(value)


# -- tables ------------------------------------------------------------------------------------------------------


def pairs(values: Mapping[str, object]) -> RenderableType:
    """Names and values, one pair per line; pairs without a value are left out."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for name, value in values.items():
        if value is not None and value != "":
            grid.add_row(Text(printable(name), style="bold"), Text(text(value)))
    return grid


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> RenderableType:
    """A table. Names that begin with `>` are those of columns of numbers, set to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(
        title=None if title is None else Text(printable(title)),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for name in columns:
        drawn.add_column(Text(printable(name.removeprefix(">"))), justify="right" if name.startswith(">") else "left")
    for row in rows:
        drawn.add_row(*(Text(text(cell)) for cell in row))
    return drawn


def group(*parts: RenderableType | str) -> RenderableType:
    """Several things, one below the other."""
    from rich.console import Group
    from rich.text import Text

    return Group(*(Text(printable(part)) if isinstance(part, str) else part for part in parts))


def text(value: object) -> str:
    """A cell for people: numbers with thousands separators, yes and no, escapes for control characters."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.2f}"
        case datetime():
            return value.isoformat(sep=" ", timespec="seconds")
        case _:
            return printable(str(value))


# -- progress ----------------------------------------------------------------------------------------------------


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """A bar on the terminal's error stream, if the block takes more than a second; call the result per step.

    total  number of steps, None when it is not known
    """
    if not is_terminal(sys.stderr):
        yield lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *([] if total is None else [MofNCompleteColumn()]),
        TimeElapsedColumn(),
        console=_console(stderr=True),
        transient=True,
    )
    task = bar.add_task(what, total=total)
    with _shown_later(bar):
        yield lambda: bar.advance(task)


@contextmanager
def transfer(what: str, total_rows: int | None) -> Iterator[Callable[[int, int], None]]:
    """A bar for rows under way, shown as `progress` is; call the result with rows and bytes that have gone through.

    It tells rows, their bytes in memory, both per second, and the time that is left.
    total_rows  None when it is not known
    """
    if not is_terminal(sys.stderr):
        yield lambda num_rows, num_bytes: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[done]}", markup=False),
        TimeElapsedColumn() if total_rows is None else TimeRemainingColumn(elapsed_when_finished=True),
        console=_console(stderr=True),
        transient=True,
    )
    meter = Meter(total_rows)
    task = bar.add_task(what, total=total_rows, done=meter.text())
    with _shown_later(bar):

        def advance(num_rows: int, num_bytes: int) -> None:
            meter.add(num_rows, num_bytes)
            bar.update(task, advance=num_rows, done=meter.text())

        yield advance


class Meter:
    """Rows and bytes that have gone through, and how fast.

    clock  gives seconds
    """

    def __init__(self, total_rows: int | None, clock: Callable[[], float] = perf_counter) -> None:
        self._total_rows = total_rows
        self._clock = clock
        self._started = clock()
        self._num_rows = self._num_bytes = 0

    def add(self, num_rows: int, num_bytes: int) -> None:
        """So many more."""
        self._num_rows += num_rows
        self._num_bytes += num_bytes

    def text(self) -> str:
        """Such as `1,000/3,000 rows, 1.5 MiB, 500 rows/s, 0.8 MiB/s`."""
        from lance_io.dataset.scan.io_plan import format_bytes

        of_all = "" if self._total_rows is None else f"/{self._total_rows:,}"
        seconds = max(self._clock() - self._started, 1e-9)
        return (
            f"{self._num_rows:,}{of_all} rows, {format_bytes(self._num_bytes)}, "
            f"{self._num_rows / seconds:,.0f} rows/s, {format_bytes(round(self._num_bytes / seconds))}/s"
        )


@contextmanager
def _shown_later(bar: Progress) -> Iterator[None]:
    """Start a bar unless the block is over by then."""
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
    """The things one after the other, with a progress bar if that takes more than a second."""
    with progress(what, len(things)) as step:
        for thing in things:
            yield thing
            step()
