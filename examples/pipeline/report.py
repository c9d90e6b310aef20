"""The output of the pipeline: progress, and a summary at the end."""

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
    """The table after a write, and the delay until the service had opened it.

    source    label of the write, such as "file 1"

    delay_s   from the timestamp of the version until the service had opened it; None without a service
    requests  made by the callers until then
    """

    source: str
    version: int
    rows: int
    files: int
    delay_s: float | None
    requests: int


class Story:
    """Prints the steps, and keeps the numbers for the summary table."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.increments: list[Increment] = []

    def title(self, text: str, code: str = "") -> None:
        """Print the title of the next step, and its code."""
        self._console.print()
        self._console.print(f"[bold cyan]{text}[/]")
        if code:
            language = "sql" if code.split()[0].isupper() else "python"
            self._console.print(Syntax(code, language, theme="ansi_dark", background_color="default"))

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show a status line in a terminal during the block."""
        with self._console.status(text):
            yield

    def answer(self, text: str, seconds: float | None = None) -> None:
        """Print the result of a step."""
        took = "" if seconds is None else f"  [dim]{seconds:,.1f} s[/]"
        self._console.print(f"  [green]->[/] {text}{took}", soft_wrap=True)

    def answer_of(self, service: Service, path: str) -> None:
        """Send a request to the service, and print its answer."""
        self._console.print(f"  [dim]GET {path}[/] ", end="")
        self._console.print_json(json.dumps(service.ask(path), ensure_ascii=False), indent=None)

    def increment(self, source: str, uri: str, service: Service | None = None, callers: Callers | None = None) -> None:
        """Open the newest version of the table, and wait until the service has it."""
        started = time.perf_counter()
        table = lance_io.dataset(uri)
        delay_s = None
        if service is not None:
            moment = table.versions()[-1]["timestamp"].timestamp()
            delay_s = max(0.0, service.wait_for(table.version)["since"] - moment)
        files = sum(len(fragment.data_files()) for fragment in table.get_fragments())
        requests = 0 if callers is None else len(callers.latencies)
        now = Increment(source, table.version, table.count_rows(), files, delay_s, requests)
        before = self.increments[-1].rows if self.increments else 0
        seen = "" if delay_s is None else f"; the service had it {_delay(delay_s)} later"
        new = f", {now.rows - before:,} of them new" if before and now.rows > before else ""
        self.answer(f"version {now.version}, {now.rows:,} rows{new}{seen}", time.perf_counter() - started)
        self.increments.append(now)

    def summary(self, callers: Callers, number: int) -> None:
        """Print all writes, and the callers' latencies."""
        grid = Table(title="Writes to the table", box=box.ROUNDED, title_style="bold")
        grid.add_column("from")
        for name in ("version", "rows", "files", "served after", "requests by then"):
            grid.add_column(name, justify="right")
        for write in self.increments:
            served = "" if write.delay_s is None else _delay(write.delay_s)
            grid.add_row(
                write.source,
                str(write.version),
                f"{write.rows:,}",
                str(write.files),
                served,
                f"{write.requests:,}",
            )
        self._console.print()
        self._console.print(grid)
        self._console.print(
            f"{number} callers made {len(callers.latencies):,} requests meanwhile: p50 {callers.percentile_ms(50):.1f} "
            f"ms, p99 {callers.percentile_ms(99):.1f} ms.",
            soft_wrap=True,
        )

    def verdict(self, problems: Sequence[str], num_rows: int) -> None:
        """Print the problems, or that there are none."""
        if problems:
            for problem in problems:
                self._console.print(f"[bold red]wrong:[/] {problem}", soft_wrap=True)
        else:
            self._console.print(f"[bold green]All {num_rows:,} rows are there once, and no request failed.[/]")

    def log(self, lines: Sequence[str]) -> None:
        """Print the last log lines of the other processes, after a failure."""
        self._console.print("\nLast log lines of Spark and the service:")
        for line in lines:
            self._console.print(line, markup=False, style="dim", soft_wrap=True)


def _delay(seconds: float) -> str:
    color = "green" if seconds < SOON_S else "yellow"
    return f"[{color}]{seconds:.2f} s[/]"
