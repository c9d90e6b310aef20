"""What the pipeline tells while it runs, and in the end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

import lance_io
from backstage import Service
from callers import Callers

SOON_S = 1.0


@dataclass(frozen=True)
class Increment:
    """What the table was after something was written, and how soon the service had it.

    delay_s   from the moment in the version's manifest to the moment when the service had opened it; None without one
    requests  that the callers had made by then
    """

    what: str
    version: int
    rows: int
    files: int
    delay_s: float | None
    requests: int


class Story:
    """Tells the steps, one after the other, and keeps what the last table shows."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.increments: list[Increment] = []

    def title(self, text: str, code: str = "") -> None:
        """What comes next, and the code that does it."""
        self._console.print()
        self._console.print(f"[bold cyan]{text}[/]")
        if code:
            self._console.print(Syntax(code, "python", theme="ansi_dark", background_color="default"))

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Something is under way; a terminal shows that."""
        with self._console.status(what):
            yield

    def answer(self, text: str, seconds: float | None = None) -> None:
        """What came of it."""
        took = "" if seconds is None else f"  [dim]{seconds:,.1f} s[/]"
        self._console.print(f"  [green]->[/] {text}{took}", soft_wrap=True)

    def answer_of(self, service: Service, path: str) -> None:
        """A request to the service, and its answer as it is."""
        self._console.print(f"  [dim]GET {path}[/] ", end="")
        self._console.print_json(json.dumps(service.ask(path), ensure_ascii=False), indent=None)

    def increment(self, what: str, uri: str, service: Service | None = None, callers: Callers | None = None) -> None:
        """Look at the newest version of the table, and wait until the service has it."""
        started = time.perf_counter()
        table = lance_io.dataset(uri)
        delay_s = None
        if service is not None:
            moment = table.versions()[-1]["timestamp"].timestamp()
            delay_s = max(0.0, service.wait_for(table.version)["since"] - moment)
        files = sum(len(fragment.data_files()) for fragment in table.get_fragments())
        requests = 0 if callers is None else len(callers.latencies)
        now = Increment(what, table.version, table.count_rows(), files, delay_s, requests)
        before = self.increments[-1].rows if self.increments else 0
        seen = "" if delay_s is None else f"; the service had it {_delay(delay_s)} later"
        new = f", {now.rows - before:,} of them new" if before else ""
        self.answer(f"version {now.version}, {now.rows:,} rows{new}{seen}", time.perf_counter() - started)
        self.increments.append(now)

    def summary(self, callers: Callers, number: int) -> None:
        """All that was written, and what the callers saw of it."""
        grid = Table(title="What came into the table", box=box.ROUNDED, title_style="bold")
        grid.add_column("from")
        for name in ("version", "rows", "files", "served after", "requests by then"):
            grid.add_column(name, justify="right")
        for one in self.increments:
            served = "" if one.delay_s is None else _delay(one.delay_s)
            grid.add_row(one.what, str(one.version), f"{one.rows:,}", str(one.files), served, f"{one.requests:,}")
        self._console.print()
        self._console.print(grid)
        self._console.print(
            f"{number} callers made {len(callers.latencies):,} requests meanwhile: half of them took less than "
            f"{callers.percentile_ms(50):.1f} ms, 99 of 100 less than {callers.percentile_ms(99):.1f} ms.",
            soft_wrap=True,
        )

    def verdict(self, problems: Sequence[str], num_rows: int) -> None:
        """Whether all is well."""
        if problems:
            for problem in problems:
                self._console.print(f"[bold red]wrong:[/] {problem}", soft_wrap=True)
        else:
            self._console.print(f"[bold green]All {num_rows:,} rows are there once, and no request failed.[/]")

    def log(self, lines: Sequence[str]) -> None:
        """What the other processes wrote last, before something failed."""
        self._console.print("\nWhat Spark and the service said last:")
        for line in lines:
            self._console.print(line, markup=False, style="dim", soft_wrap=True)


def _delay(seconds: float) -> str:
    color = "green" if seconds < SOON_S else "yellow"
    return f"[{color}]{seconds:.2f} s[/]"
