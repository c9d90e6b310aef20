"""Times on a bucket, under latency: `lance_io`, pylance, and a bare client that fetches the same ranges.

    make bench-latency                                        everything; writes benchmarks/results/latency.json
    python -m benchmarks.latency --only take/mixed            scenarios by name or its beginning, * for any
    python -m benchmarks.latency --only callers/32 --latency 5
    python -m benchmarks.latency --store gcs --store azure    reads, at servers of these
    python -m benchmarks.latency --reduced                    what matters most at 30 ms, three rounds
    python -m benchmarks.latency --only cached --again        scenarios anew, whose results join the stored ones
    python -m benchmarks.latency --list                       names and latencies

All that is played at S3, the reads at Google Cloud Storage and Azure too, unless something is chosen. A run that does
not play everything at full scale is printed, and written only where `--output` says, or `--again`.
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from benchmarks.latency.backends import BACKENDS
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

    from benchmarks.latency.scenarios import Scenario

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
    parser.add_argument("--store", choices=sorted(BACKENDS), action="append", help="which server is played at")
    parser.add_argument("--again", action="store_true", help="keep the stored results of all that is not played")
    parser.add_argument("--list", action="store_true", help="print what would be played")
    options = parser.parse_args(argv)
    if options.scale <= 0:
        parser.error("--scale must be above 0")
    if options.rounds < 0:
        parser.error("--rounds must be at least 1")
    if options.again and options.scale != 1:
        parser.error("--again is for runs at full scale")
    if any(latency_ms < 0 for latency_ms in options.latency or []):
        parser.error("--latency must not be below 0")
    options.complete = options.scale == 1 and not (options.only or options.latency or options.reduced)
    options.store = options.store or (list(BACKENDS) if options.complete else ["s3"])
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


def run(argv: Sequence[str] | None = None, console: Console | None = None) -> list[Results]:
    """Do what the command line says; returns the results of each store that was played at."""
    options = arguments(argv)
    console = console or Console(highlight=False, width=None if sys.stdout.isatty() else 180)
    plans = {store: planned(options.only, options.latency, options.reduced, store) for store in options.store}
    if not any(plans.values()):
        raise SystemExit(f"no scenario is named {' or '.join(options.only)}; --list shows the names")
    if options.list:
        for store, plan in plans.items():
            console.print(
                "\n".join(f"{store:<6} {scenario.name:<32} {latency_ms:>4g} ms" for scenario, latency_ms in plan)
            )
        return []
    found = []
    for store, plan in plans.items():
        results = _played(store, plan, options, console)
        name = "latency" if store == "s3" else f"latency-{store}"
        stored = (options.output or RESULTS) / f"{name}.json"
        if options.again and stored.exists():
            results = Results.load(stored).replaced(results)
        found.append(results)
        judged = goals(results)
        for table in (*as_tables(results), goals_table(judged)):
            console.print(table)
        console.print(sums(judged, results), markup=False)
        folder = options.output or (RESULTS if options.complete or options.again else None)
        if folder is not None:
            results.save(folder / f"{name}.json", judged)
            draw_speeds(results, folder / f"{name}.png")
            draw_callers(results, folder / f"{name}-callers.png")
            console.print(f"[dim]written: {folder / name}.json, and pictures beside it[/]")
    return found


def _played(
    store: str, plan: Sequence[tuple[Scenario, float]], options: argparse.Namespace, console: Console
) -> Results:
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    machine, versions = describe_machine(), describe_versions()
    results = Results(options.scale, options.rounds, machine, versions, made_at, store=store)
    with Stage(options.cache, options.scale, store) as stage:
        for scenario, latency_ms in plan:
            started = time.perf_counter()
            result = Play(stage, scenario, latency_ms, options.rounds).run()
            results.results.append(result)
            console.print(line(result, time.perf_counter() - started), markup=False, soft_wrap=True)
    return results


if __name__ == "__main__":
    run()
