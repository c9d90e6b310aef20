"""Results and goals as tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from benchmarks.latency.contenders import OURS
from benchmarks.latency.goals import MISSED, NEARLY, REACHED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.latency.findings import Result, Results
    from benchmarks.latency.goals import GoalLine

COLUMNS = (
    "scenario", "contender", "time", "speed", "cpu", "p50", "p99", "takes/s", "requests", "rounds", "MB", "in flight",
    "proxy",
)  # fmt: skip
MARKS = {REACHED: "[green]reached[/]", NEARLY: "[yellow]within 5 %[/]", MISSED: "[red]missed[/]"}


def shown(value: float | None, unit: str = "") -> str:
    """A number for a cell: `ms` and `us` are made of seconds, `MB` of bytes."""
    if value is None:
        return ""
    scaled = value * {"ms": 1e3, "us": 1e6, "MB": 1e-6}.get(unit, 1.0)
    digits = 0 if abs(scaled) >= 100 or scaled == int(scaled) else 1 if abs(scaled) >= 10 else 2
    return f"{scaled:,.{digits}f}{' ' + unit if unit else ''}"


def rows_of(result: Result) -> list[list[str]]:
    """A row for each contender; `speed` is how many times ours the contender's is."""
    rows = []
    for who in result.turns:
        faster = result.times_faster(who, OURS)
        requests = result.median(who, "requests") or 0
        proxy_s = result.median(who, "proxy_cpu_s")
        rows.append(
            [
                result.name if who == next(iter(result.turns)) else "",
                who,
                shown(result.median(who, "wall_s"), "ms"),
                "" if who == OURS or faster is None else f"{faster:.2f} x",
                shown(result.median(who, "cpu_s"), "ms"),
                shown(result.median(who, "p50_s"), "ms"),
                shown(result.median(who, "p99_s"), "ms"),
                shown(result.median(who, "takes_per_s")),
                shown(requests),
                shown(result.median(who, "rounds")),
                shown(result.median(who, "sent_bytes"), "MB"),
                shown(result.median(who, "in_flight_max")),
                shown(proxy_s / requests if proxy_s is not None and requests else None, "us"),
            ]
        )
    return rows


def as_tables(results: Results) -> list[Table]:
    """One for each latency."""
    tables = []
    for latency_ms in sorted({result.latency_ms for result in results.results}):
        table = Table(
            title=f"{latency_ms:g} ms added to each request",
            caption="cpu: for one take, where there are many; proxy: its processor time for a request; medians",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
        )
        for number, heading in enumerate(COLUMNS):
            table.add_column(heading, justify="right" if number > 1 else "left", no_wrap=True)
        for result in results.results:
            if result.latency_ms == latency_ms:
                for row in rows_of(result):
                    table.add_row(*row)
                table.add_section()
        tables.append(table)
    return tables


def goals_table(lines: Sequence[GoalLine]) -> Table:
    """All goals, and whether they were reached."""
    table = Table(title="Goals", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, heading in enumerate(("scenario", "added", "goal", "value", "limit", "")):
        table.add_column(heading, justify="right" if number in (1, 3, 4) else "left")
    for line in lines:
        texts = [f"{number:.4g}" for number in (line.value, line.limit)]
        table.add_row(line.name, f"{line.latency_ms:g} ms", line.text, *texts, MARKS[line.state])
    return table


def sums(lines: Sequence[GoalLine], results: Results) -> str:
    """How many goals were reached, and whose counts of requests are not the proxy's."""
    states = [line.state for line in lines]
    text = f"{states.count(REACHED)} of {len(states)} goals reached, {states.count(NEARLY)} within 5 %."
    for result in results.results:
        text += "".join(f"\n{result.name} at {result.latency_ms:g} ms: {words}" for words in result.failed.values())
        if result.condition == "plain":
            for who, own, seen in result.miscounted():
                text += f"\n{result.name} at {result.latency_ms:g} ms: {who} counted {own} reads, the proxy {seen}"
    return text
