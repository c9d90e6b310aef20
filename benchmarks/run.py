"""Compare `lance_io` with pylance and Parquet on local disk, in one run.

    make bench                                           everything; writes benchmarks/results/latest.json and .png,
                                                         and three tables into docs/benchmarks.md
    make bench ARGS="shapes"                             wide tables and many files; writes their table, and
                                                         benchmarks/results/shapes.json
    make bench ARGS="changes"                            updates, merges, columns, compaction, cleanup: the same
    make bench ARGS="functions"                          functions of filters; writes benchmarks/results/functions.json
    make bench ARGS="kinds"                              kinds of text and numbers; writes benchmarks/results/kinds.json
    make bench ARGS="late"                               filters by what passes; writes benchmarks/results/late.json
    make bench ARGS="sparksql"                           SQL in Spark; writes benchmarks/results/sparksql.json
    python -m benchmarks.run --only take/five --only '*/many'  some cases: whole names or their beginnings, * for any
    python -m benchmarks.run --scale 0.01 --repeat 3     small tables, few rounds
    python -m benchmarks.run --list                      names of the cases
    python -m benchmarks.run --profile scan/five/text    where our time goes, instead of measuring
    python -m benchmarks.run --s3 URL --latency 0.03     requests, bytes and times against a bucket

Any other run, or one that is not at full scale, is printed, and written only where `--output` says.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if not __package__:  # started as a file: the checkout, not this folder, is where imports begin
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from rich.console import Console

from benchmarks import buckets
from benchmarks.cases import Case, without_goals
from benchmarks.catalogue import STORED_GROUPS, TABLED_GROUPS, chosen_cases
from benchmarks.measure import alternate
from benchmarks.picture import draw
from benchmarks.profiling import profile_text
from benchmarks.report import Finding, Report, as_table, fill_in, goals_table, quantity, rate, ratio, spark_table, sums
from benchmarks.tables import Tables, default_cache

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = Path(__file__).resolve().parent / "results"
DOCUMENT = RESULTS.parents[1] / "docs" / "benchmarks.md"
ROUNDS = 15


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line, parsed and checked."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="PATTERN", action="append", default=[], help="cases, as in take/five")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the rows of the tables (default: 1)")
    parser.add_argument(
        "--repeat", type=int, metavar="N", help=f"rounds of every case (default: up to {ROUNDS}, as time allows)"
    )
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where to write latest.json and latest.png")
    parser.add_argument("--cache", type=Path, default=default_cache(), metavar="FOLDER", help="where tables are kept")
    parser.add_argument("--profile", action="store_true", help="profile our side of the cases, measure nothing")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument(
        "--s3", metavar="URL", help="ask the endpoint of a bucket instead; credentials: AWS_* variables"
    )
    parser.add_argument("--bucket", default="lance-io", help="bucket for --s3 (default: lance-io)")
    parser.add_argument("--latency", type=float, default=0.0, metavar="S", help="seconds added to requests of --s3")
    parser.add_argument("cases", nargs="*", metavar="PATTERN", help="the same as --only")
    options = parser.parse_args(argv)
    if options.scale <= 0:
        parser.error("--scale must be above 0")
    if options.repeat is not None and options.repeat < 1:
        parser.error("--repeat must be at least 1")
    options.only += options.cases
    return options


def measured(case: Case, rounds: int | None) -> Finding:
    """Run one case, for as many rounds as are asked for, or as its time allows."""
    seconds = case.seconds if rounds is None else math.inf
    return Finding.of(case, alternate(case.make(), case.rounds(rounds or ROUNDS), seconds))


def line(finding: Finding) -> str:
    """What is said of a case as soon as it is measured."""
    ours = quantity(finding.values["lance_io"].median, finding.unit)
    if finding.amounts:
        ours += f"   {rate(finding)}"
    peers = "   ".join(f"{peer} {ratio(finding, peer)}" for peer in finding.against)
    return f"{finding.name:<28} {ours:>12}   {peers}"


def ask_bucket(options: argparse.Namespace, tables: Tables, console: Console) -> None:
    """Requests, bytes and times of both libraries against `--s3`."""
    found = buckets.costs(tables, options.s3, options.bucket, options.latency, options.repeat or ROUNDS)
    console.print(buckets.as_table(found, options.latency))
    if options.output or options.scale == 1:
        path = (options.output or RESULTS) / "bucket.json"
        buckets.save(found, options.latency, path)
        console.print(f"[dim]written: {path}[/]")


def run(argv: Sequence[str] | None = None, console: Console | None = None) -> Report | None:
    """Do what the command line says; returns the report of a measuring run."""
    options = arguments(argv)
    console = console or Console(highlight=False, width=None if sys.stdout.isatty() else 160)

    tables = Tables(options.cache, options.scale)
    if options.s3:
        ask_bucket(options, tables, console)
        return None
    cases = chosen_cases(tables, options.only)
    if not cases:
        raise SystemExit(f"no case is named {' or '.join(options.only)}; --list shows the names")
    if options.list:
        console.print("\n".join(case.name for case in cases))
        return None
    if options.profile:
        for case in cases:
            console.print(profile_text(case), markup=False, soft_wrap=True)
        return None

    report = Report(scale=options.scale, rounds=options.repeat or ROUNDS)
    started_s = time.monotonic()
    for case in cases:
        finding = measured(case if options.scale == 1 else without_goals(case), options.repeat)
        report.findings.append(finding)
        console.print(line(finding))
    report.seconds = time.monotonic() - started_s
    console.print(as_table(report))
    console.print(sums(report))
    complete = options.scale == 1 and not options.only
    folder = options.output or (RESULTS if complete else None)
    if folder is not None:
        report.save(folder / "latest.json")
        draw(report, folder / "latest.png")
        console.print(f"[dim]written: {folder / 'latest.json'}, {folder / 'latest.png'}[/]")
    if options.output:
        return report
    stored = next((group for group in STORED_GROUPS if options.scale == 1 and options.only == [group]), None)
    if stored:
        report.save(RESULTS / f"{stored}.json")
        console.print(f"[dim]written: {RESULTS / f'{stored}.json'}[/]")
    if complete:
        fill_document("spark", spark_table(report), console)
    for group in TABLED_GROUPS:
        if complete or group == stored:
            fill_document(group, goals_table(report, STORED_GROUPS[group]), console)
    return report


def fill_document(name: str, table: str, console: Console) -> None:
    """Put a table into the document of the benchmark."""
    DOCUMENT.write_text(fill_in(DOCUMENT.read_text(), name, table))
    console.print(f"[dim]the table of {name} is in {DOCUMENT}[/]")


if __name__ == "__main__":
    run()
