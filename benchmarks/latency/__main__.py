"""Times on a bucket, under latency: `lance_io`, pylance, and a bare client that fetches the same ranges.

    make bench-latency                                        everything; writes benchmarks/results/latency.json
    python -m benchmarks.latency --only take/mixed            scenarios by name or its beginning, * for any
    python -m benchmarks.latency --only callers/32 --latency 5
    python -m benchmarks.latency --reduced                    what matters most at 30 ms, three rounds
    python -m benchmarks.latency --list                       names and latencies

A run that does not play everything at full scale is printed, and written only where `--output` says.
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from benchmarks.latency.contenders import OURS
from benchmarks.latency.findings import Result, Results
from benchmarks.latency.goals import goals
from benchmarks.latency.playing import Play
from benchmarks.latency.plots import draw_callers, draw_speeds
from benchmarks.latency.scenarios import ROUNDS, planned
from benchmarks.latency.tabulated import as_tables, goals_table, shown, sums
from benchmarks.latency.worlds import Stage
from benchmarks.report import describe_machine, describe_versions
from benchmarks.tables import default_cache

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = Path(__file__).resolve().parents[1] / "results"
REDUCED_ROUNDS = 3


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line, parsed and checked."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="benchmarks.latency", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="PATTERN", action="append", default=[], help="scenarios, as in take/mixed")
    parser.add_argument("--latency", type=float, action="append", metavar="MS", help="instead of 30, and 0, 5, 100")
    parser.add_argument("--reduced", action="store_true", help="what matters most, in some three minutes")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the rows of the tables (default: 1)")
    parser.add_argument(
        "--rounds", type=int, default=0, metavar="N", help=f"turns of each contender (default: {ROUNDS})"
    )
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where to write latency.json and the pictures")
    parser.add_argument("--cache", type=Path, default=default_cache(), metavar="FOLDER", help="where tables are kept")
    parser.add_argument("--list", action="store_true", help="print what would be played")
    options = parser.parse_args(argv)
    if options.scale <= 0:
        parser.error("--scale must be above 0")
    if options.rounds < 0:
        parser.error("--rounds must be at least 1")
    if any(latency_ms < 0 for latency_ms in options.latency or []):
        parser.error("--latency must not be below 0")
    options.rounds = options.rounds or (REDUCED_ROUNDS if options.reduced else ROUNDS)
    return options


def line(result: Result, took_s: float) -> str:
    """What is said of a scenario as soon as it has been played."""
    texts = []
    for who in result.turns:
        faster = result.times_faster(who, OURS)
        note = "" if who == OURS or faster is None else f" ({faster:.2f} x)"
        texts.append(
            f"{who} {shown(result.median(who, result.speed), 'ms' if result.speed == 'wall_s' else '/s')}{note}"
        )
    return f"{result.name:<30} {result.latency_ms:>4g} ms   " + ", ".join(texts) + f"   [{took_s:.0f} s]"


def run(argv: Sequence[str] | None = None, console: Console | None = None) -> Results | None:
    """Do what the command line says; returns the results of a run that measures."""
    options = arguments(argv)
    console = console or Console(highlight=False, width=None if sys.stdout.isatty() else 180)
    plan = planned(options.only, options.latency, options.reduced)
    if not plan:
        raise SystemExit(f"no scenario is named {' or '.join(options.only)}; --list shows the names")
    if options.list:
        console.print("\n".join(f"{scenario.name:<32} {latency_ms:>4g} ms" for scenario, latency_ms in plan))
        return None
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    results = Results(options.scale, options.rounds, describe_machine(), describe_versions(), made_at)
    with Stage(options.cache, options.scale) as stage:
        for scenario, latency_ms in plan:
            started = time.perf_counter()
            result = Play(stage, scenario, latency_ms, options.rounds).run()
            results.results.append(result)
            console.print(line(result, time.perf_counter() - started), markup=False, soft_wrap=True)
    judged = goals(results)
    for table in (*as_tables(results), goals_table(judged)):
        console.print(table)
    console.print(sums(judged, results), markup=False)
    complete = options.scale == 1 and not (options.only or options.latency or options.reduced)
    folder = options.output or (RESULTS if complete else None)
    if folder is not None:
        results.save(folder / "latency.json", judged)
        draw_speeds(results, folder / "latency.png")
        draw_callers(results, folder / "latency-callers.png")
        console.print(f"[dim]written: {folder / 'latency.json'}, and pictures beside it[/]")
    return results


if __name__ == "__main__":
    run()
