"""How answers look: JSON with stable keys, tables for people, a progress bar where something takes its time."""

from __future__ import annotations

import base64
import json
import math
import sys
import threading
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import Console, RenderableType

    Report = dict[str, Any]

T = TypeVar("T")

PIPE_WIDTH: Final = 1000  # columns of a "screen" that is none: tables are not cut in a pipe
PROGRESS_AFTER_SECONDS: Final = 1.0


def show(report: Report, as_json: bool, render: Callable[[Report], RenderableType]) -> None:
    """Print a report: as JSON, or as `render` draws it."""
    if as_json:
        sys.stdout.write(json.dumps(plain(report), indent=2, ensure_ascii=False) + "\n")
    else:
        _console().print(render(report), soft_wrap=True)


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, markup=False, highlight=False, width=None if stream.isatty() else PIPE_WIDTH)


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
            grid.add_row(Text(name, style="bold"), Text(text(value)))
    return grid


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> RenderableType:
    """A table. Names that begin with `>` are those of columns of numbers, set to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(
        title=None if title is None else Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for name in columns:
        drawn.add_column(Text(name.removeprefix(">")), justify="right" if name.startswith(">") else "left")
    for row in rows:
        drawn.add_row(*(Text(text(cell)) for cell in row))
    return drawn


def group(*parts: RenderableType | str) -> RenderableType:
    """Several things, one below the other."""
    from rich.console import Group
    from rich.text import Text

    return Group(*(Text(part) if isinstance(part, str) else part for part in parts))


def text(value: object) -> str:
    """A cell for people: numbers with thousands separators, yes and no."""
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
            return str(value)


# -- progress ----------------------------------------------------------------------------------------------------


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """A bar on the terminal's error stream, if the block takes more than a second; call the result per step.

    total  number of steps, None when it is not known
    """
    if not sys.stderr.isatty():
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
    timer = threading.Timer(PROGRESS_AFTER_SECONDS, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda: bar.advance(task)
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
