"""Draws tables and texts with Rich. Loaded only for drawing: JSON does not need it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from rich import box
from rich import table as rich_table
from rich.console import Console, Group, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from lance_io.cli.tables import Pairs, Table, is_terminal, printable, text

if TYPE_CHECKING:
    from lance_io.cli.tables import Shown

PIPE_WIDTH: Final = 1000  # width of output to a pipe, in characters: tables are not cut there


def draw(shown: Shown) -> None:
    """Print tables and texts."""
    drawn = printable(shown) if isinstance(shown, str) else _draw_parts(shown)
    _console().print(drawn, soft_wrap=True)


def steps_bar(total: int | None) -> Progress:
    """A progress bar that counts steps; shows `total` if it is known."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *([] if total is None else [MofNCompleteColumn()]),
        TimeElapsedColumn(),
        console=_console(stderr=True),
        transient=True,
    )


def transfer_bar(total_rows: int | None) -> Progress:
    """A progress bar of rows. It shows the field `done` of its task, and the remaining time, or the elapsed time."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[done]}", markup=False),
        TimeElapsedColumn() if total_rows is None else TimeRemainingColumn(elapsed_when_finished=True),
        console=_console(stderr=True),
        transient=True,
    )


def _console(*, stderr: bool = False) -> Console:
    width = None if is_terminal(sys.stderr if stderr else sys.stdout) else PIPE_WIDTH
    return Console(stderr=stderr, markup=False, highlight=False, width=width)


def _draw_parts(shown: Shown) -> RenderableType:
    match shown:
        case str():
            return Text(printable(shown))
        case Pairs():
            return _grid(shown)
        case Table():
            return _table(shown)
        case _:
            return Group(*map(_draw_parts, shown))


def _grid(pairs: Pairs) -> rich_table.Table:
    grid = rich_table.Table.grid(padding=(0, 2))
    for name, value in pairs.values.items():
        if value is not None and value != "":
            grid.add_row(Text(printable(name), style="bold"), Text(text(value)))
    return grid


def _table(table: Table) -> rich_table.Table:
    """A table for Rich; columns whose name begins with `>` are aligned to the right."""
    drawn = rich_table.Table(
        title=None if table.title is None else Text(printable(table.title)),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for name in table.columns:
        drawn.add_column(Text(printable(name.removeprefix(">"))), justify="right" if name.startswith(">") else "left")
    for row in table.rows:
        drawn.add_row(*(Text(text(cell)) for cell in row))
    return drawn
