"""Run the campaigns, which are too long for every change, and write their findings to `docs/campaigns.md`.

    python scripts/campaign.py                         all of them, some hours
    python scripts/campaign.py orders mutants          some; the other sections of the page stay as they are
    python scripts/campaign.py --seed 20261124 orders  the cases that another run drew (or SEED=20261124)
    python scripts/campaign.py --share 0.1 orders      a tenth of the size, and the page says so
    python scripts/campaign.py memory --memory-mib 1024 4096 16384 --memory-results FILE
                                                       tables of these sizes, less the results already in the file

All random cases come from the seed, which defaults to the date. The exit status is 1 if a campaign has findings. After
Ctrl-C the page has the sections of the campaigns that had ended.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from scripts.mutants import Believed, Outcome

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "campaigns.md"
MUTANTS: Final = 300
KILLED_MIN: Final = 0.8
MEMORY_MIB: Final = 256
INTERRUPTED: Final = 130


@dataclass(frozen=True)
class Part:
    """One call of pytest.

    tests     files, folders and options
    variable  environment variable that sets the number of cases
    size      its value at full size; a word if there is nothing between little and all
    cases     describes the cases, with {size} and {tests}, the number of tests
    workers   processes; 1 if the tests start processes themselves
    """

    tests: tuple[str, ...]
    variable: str
    size: int | str
    cases: str
    workers: int = 2

    def sized(self, share: float) -> int | str:
        """The size of a run: at least 1, because the tests take 0 for their everyday size."""
        return self.size if isinstance(self.size, str) else max(1, round(self.size * share))

    def command(self) -> list[str]:
        """The call, without the interpreter."""
        spread = ["-n", str(self.workers), "--dist", "load"] if self.workers > 1 else []
        return ["-m", "pytest", *self.tests, "-o", "timeout=0", *spread]


@dataclass(frozen=True)
class Campaign:
    """The calls of pytest under one name.

    about   describes its cases, for the page
    missed  a fault that it did not find once, and the reason
    """

    name: str
    about: str
    parts: tuple[Part, ...] = ()
    missed: str = ""


CAMPAIGNS: Final = (
    Campaign(
        "damage",
        "Data files, manifests and deletion files, ours and pylance's, with bytes changed at random offsets or where "
        "the format has lengths, offsets and counts. Each must be read as data or refused with an error of ours, in "
        "bounded time and memory. And files of indices of every kind, by both builders: each answer is rows of the "
        "table or an error that names index and file; a file that was cut or has another length gives no other rows "
        "than a scan; a key look-up never gives a row of another key.",
        (
            Part(
                ("tests/fuzz/test_index_damage.py",),
                "LANCE_IO_FUZZ_CASES",
                10_000,
                "{size} files of indices, and every cut of {tests} more",
                1,
            ),
            Part(
                ("tests/fuzz/test_campaign.py", "-k", "random"),
                "LANCE_IO_FUZZ_CASES",
                10_000,
                "{size} files, and as many of versions 2.0 and 0.1 alone",
                1,
            ),
        ),
    ),
    Campaign(
        "bombs",
        "Small files whose values decode to many bytes, of every codec and layout in each file version that has it, "
        "read by a process that may map 512 MiB more than after its first scan. It gives the right rows or an error "
        "of ours, and counts, takes a row and gives a first batch within seconds.",
        (Part(("tests/fuzz/test_bombs.py", "-k", "bomb"), "LANCE_IO_BOMBS", "full", "{tests} kinds of files", 1),),
    ),
    Campaign(
        "decoded",
        "The memory that a fresh process needs beside the opened table, for texts of 1 and of 100 MiB in files of a "
        "few kilobytes, and for blobs. The limits: a scan of values of 1 MiB 320 MiB, with batches of the default "
        "size five batches and 128 MiB, one batch more with a filter; a scan of larger values three values and 128 "
        "MiB; a take its result and 128 MiB; a change `memory_limit` (128 MiB here), 256 MiB and two values.",
        (Part(("tests/dataset/test_peaks.py",), "LANCE_IO_PEAKS", "full", "{tests} calls", 1),),
    ),
    Campaign(
        "cuts",
        "Files of tables, cut at every length. No cut file may be read as other data.",
        (
            Part(
                ("tests/fuzz/test_campaign.py", "-k", "cut"),
                "LANCE_IO_FUZZ_CASES",
                "1001",
                "{tests} tests: every length of files of all versions, 300 lengths of every type in 2.0 and 0.1",
            ),
        ),
    ),
    Campaign(
        "orders",
        "Writers, deleters, cleanups, restores and tags run at the same time, request by request in random orders; "
        "some die. Every version must be whole, and every change that succeeded must be in the table once. And chains: "
        "each call that changes a table loses 0 to 4 races in a row to random mixtures of all other changes, of rows "
        "of the same fragment, of another one, or of none that it touches. Afterwards the rows are those of a simple "
        "model, every file that a version names exists, and no other file does.",
        (
            Part(
                ("tests/simulate/test_orders.py", "tests/commit/test_turnstile.py"),
                "LANCE_IO_ORDERS",
                10_000,
                "{tests} situations, {size} orders each",
            ),
            Part(
                ("tests/simulate/test_chains.py",),
                "LANCE_IO_CHAINS",
                200,
                "{tests} tests, {size} chains for each call and kind of table",
            ),
        ),
        "Before there were chains, a delete, update or merge that was rebased twice could remove the deletion file "
        "that its manifest names, and leave a table that cannot be read. It happened after one commit that touched "
        "other rows of its fragment, and then one that did not touch the fragment. The orders drew deletes of the "
        "same rows, which run again after a conflict and are not merged, and the turnstile drew commits that know no "
        "rows. The conflicts had one other change between opening and committing, so that nothing was rebased twice, "
        "and compared the rows that both libraries read, not the files that a version names.",
    ),
    Campaign(
        "faults",
        "Every change of a table, stopped, cancelled or failing at any of its requests, or losing power at any of "
        "its system calls; and through a proxy before a real S3 server that cuts, delays and resets connections. "
        "The table is the old one or the new one, and a repetition makes it the new one. Every operation on a bucket "
        "under every fault, and takes that are cancelled at any time: they leave nothing behind.",
        (
            Part(
                ("tests/simulate", "-k", "not test_orders and not test_chains"),
                "LANCE_IO_SIMULATE",
                50,
                "{tests} tests",
            ),
            Part(
                ("tests/s3/test_fault_writes.py", "tests/s3/test_faults.py"),
                "LANCE_IO_SIMULATE",
                50,
                "{tests} tests on S3",
                1,
            ),
            Part(
                ("tests/io/test_cancelled_takes.py", "tests/s3/test_faults.py", "-k", "cancelled"),
                "LANCE_IO_CANCELLED_TAKES",
                10_000,
                "{size} cancelled takes, and a quarter as many of a table",
                1,
            ),
        ),
    ),
    Campaign(
        "writers",
        "Many writers in four processes, one of them pylance's, append to one table on a real S3 server, beside "
        "deletes and compactions; also through proxies that disturb them, and with a database for the commits. No row "
        "may be lost or doubled.",
        (
            Part(
                (
                    "tests/s3/test_writers.py",
                    "tests/s3/test_fault_writes.py::TestMinio::test_processes_of_writers_lose_nothing",
                ),
                "LANCE_IO_WRITERS",
                16,
                "{tests} situations, {size} writers in each process",
                1,
            ),
        ),
    ),
    Campaign(
        "crowd",
        "Two processes that delete, two that update, two that merge, two that compact, two that append, one that "
        "removes versions older than ten minutes every 30 seconds, and one of pylance's that appends and deletes, "
        "all on one table, on local disk and on a real S3 server; every few seconds one is killed. By the journals "
        "that they keep nothing may be lost, doubled or unreadable, every file that a version names must exist, and "
        "old versions must be gone.",
        (
            Part(
                ("tests/interop/test_crowd.py", "tests/s3/test_crowd.py"),
                "LANCE_IO_CROWD_MINUTES",
                25,
                "{tests} tests, the crowds for {size} minutes each",
                1,
            ),
        ),
    ),
    Campaign(
        "cache",
        "Processes that read and write one disk cache, which is much smaller than the files that they read, 48 at a "
        "time; every tenth is killed. Once there is room on the disk, once other processes fill and empty it. No "
        "process may get wrong bytes, find damage, or see the bound exceeded.",
        (
            Part(
                ("tests/store/test_disk_cache.py", "-k", "many_processes"),
                "LANCE_IO_CACHE_PROCESSES",
                1000,
                "twice {size} processes",
                1,
            ),
        ),
    ),
    Campaign(
        "conflicts",
        "Every pair of calls that change a table, commits of ready operations among them, the second on a handle that "
        "missed the first, by lance_io and pylance in all combinations: the result, the beginning of its text and the "
        "table afterwards are those of pylance in the same role. Calls beside those that build and keep an index of "
        "vectors: afterwards both libraries find every row by its vector.",
        (
            Part(
                ("tests/commit/test_stale_calls.py", "tests/commit/test_vector_calls.py"),
                "LANCE_IO_STALE_CALLS",
                250,
                "{tests} tests, up to {size} pairs of calls and libraries each",
            ),
            Part(
                ("tests/commit/test_text_calls.py",),
                "LANCE_IO_STALE_CALLS",
                60,
                "{tests} tests of calls beside a full-text index, up to {size} pairs each",
            ),
        ),
    ),
    Campaign(
        "alternation",
        "lance_io and pylance change one table in turn, its clones, branches and base paths, in random steps beside a "
        "model, on local disk and on S3. After every step both read the rows of the model, and indices find them.",
        (
            Part(
                ("tests/interop/test_alternation.py", "tests/s3/test_alternation.py"),
                "LANCE_IO_STATEFUL_STEPS",
                300,
                "examples of 60 steps for {size} steps of the short ones",
            ),
        ),
    ),
    Campaign(
        "fidelity",
        "Every type and encoding, alone and at its full size: pylance reads and changes the tables that we write, and "
        "we those of pylance.",
        (Part(("tests/dataset/write/test_fidelity.py",), "LANCE_IO_FIDELITY", "cases", "{tests} cases"),),
    ),
    Campaign(
        "types",
        "Random nested types with random nulls, shapes and encoding options, read by scan, range and row, and written.",
        (
            Part(
                ("tests/encodings/test_random_types.py", "tests/dataset/write/test_fidelity.py", "-k", "random"),
                "LANCE_IO_RANDOM_TYPES",
                2000,
                "{tests} tests, the properties with {size} examples each",
            ),
        ),
    ),
    Campaign(
        "filters",
        "Random text filters and computed columns over random tables give the results of pylance.",
        (
            Part(
                ("tests/filters/test_sql_random.py", "tests/dataset/test_text_filters.py"),
                "LANCE_IO_TEST_EXAMPLES",
                2000,
                "{tests} tests, the properties with {size} examples each",
            ),
        ),
    ),
    Campaign(
        "texts",
        "Random full-text queries, with similar words, phrases and queries inside of queries, of all rows and of the "
        "ten best: rows and scores are pylance's, but for ties.",
        (Part(("tests/index/test_text_random.py",), "LANCE_IO_TEXT_QUERIES", 3000, "{size} queries", 1),),
    ),
    Campaign(
        "tokens",
        "Random texts of twelve scripts, split by every base tokenizer, in every language, and with each parameter of "
        "the tokenizer: the tokens and their positions are pylance's.",
        (
            Part(
                ("tests/index/text/test_tokens.py", "-k", "are_those_of_pylance"),
                "LANCE_IO_TOKEN_TEXTS",
                10_000,
                "{size} texts for each of {tests} sets of parameters",
            ),
        ),
    ),
    Campaign(
        "indices",
        "Random filters on random tables give the rows of a scan: indices of every kind, several segments, deletions, "
        "updates, stable row ids, compactions, deferred ones too, by both libraries in any order.",
        (
            Part(
                ("tests/index/test_index_property.py", "tests/index/test_index_histories.py"),
                "LANCE_IO_INDEX_FILTERS",
                20_000,
                "{size} filters in each of {tests} tests",
            ),
            Part(
                ("tests/index/test_bytes_of_indices.py",),
                "LANCE_IO_INDEX_BYTES",
                "all",
                "the bytes that filters of every form read by either library's indices of every kind, beside pylance's",
                1,
            ),
        ),
    ),
    Campaign(
        "builds",
        "The memory that builds of indices need beside the opened table, with `memory_limit` 256 MiB: of 50 million "
        "distinct numbers, of which a BITMAP has as many bitmaps, and of 20 million distinct texts. The limit is 400 "
        "MiB.",
        (
            Part(
                ("tests/index/test_build_memory.py",),
                "LANCE_IO_BUILD_ROWS",
                50_000_000,
                "{tests} builds of {size} numbers, or 0.4 times as many texts",
                1,
            ),
        ),
    ),
    Campaign(
        "vectors",
        "Searches by IVF indices that pylance wrote (flat, product codes of 8 and 4 bits, scalar codes; l2, cosine, "
        "dot), fresh, after deletions, and beside rows that the index does not cover: distances and rows are "
        "pylance's, but for rounding, and where candidates tie. Indices that are built here: pylance plans with them "
        "and gives the distances that their files say, adds rows to them and compacts them.",
        (
            Part(("tests/index/test_vector_grid.py",), "LANCE_IO_VECTOR_GRID", 20, "{size} queries in {tests} grids"),
            Part(
                ("tests/index/test_vector_writing.py",),
                "LANCE_IO_VECTOR_CHECKS",
                12,
                "{size} queries and an update of 24 built indices, in {tests} kinds",
            ),
        ),
    ),
    Campaign(
        "statements",
        "Random programs of SQL over a table of Spark's catalog, of ten statements each: inserts, deletes, updates, "
        "merges with all clauses, new, dropped, renamed and wider columns, compactions; with stable row ids and "
        "without. After each the rows are those of DuckDB.",
        (
            Part(
                ("tests/spark/test_jar_programs.py",),
                "LANCE_IO_SPARK_PROGRAMS",
                300,
                "{size} programs",
                1,
            ),
        ),
    ),
    Campaign(
        "procedures",
        "Procedures of Spark's catalog that run as jobs (an index, a compaction, new columns), on MinIO: while a task "
        "writes, an executor or the worker beside it is killed, or another attempt of the task takes its place. The "
        "table is that of one process, in one version (a compaction has two), and no file is left that no version "
        "names.",
        (
            Part(
                ("tests/spark/test_struck_calls.py",),
                "LANCE_IO_SPARK_BLOWS",
                20,
                "{size} blows in each of {tests} tests",
                1,
            ),
        ),
    ),
    Campaign(
        "strikes",
        "INSERT, CREATE TABLE AS, UPDATE, MERGE and DELETE through Spark's catalog, on MinIO: while a task reads or "
        "writes, an executor or the worker beside it is killed, or another attempt of the task takes its place. The "
        "table is that of one process, in one version, with the row ids of old rows, and a cleanup leaves no file that "
        "the version does not name.",
        (
            Part(
                ("tests/spark/test_struck_statements.py",),
                "LANCE_IO_SPARK_BLOWS",
                20,
                "{size} blows in each of {tests} tests",
                1,
            ),
        ),
    ),
    Campaign(
        "drivers",
        "Statements and procedures of Spark's catalog whose driver is killed while tasks run, before the commit, or "
        "after it, and those whose driver loses its worker before or after the commit. The table is the old or the new "
        "one; a second run succeeds, and a cleanup leaves no other file.",
        (
            Part(
                ("tests/spark/test_killed_drivers.py",),
                "LANCE_IO_SPARK_BLOWS",
                20,
                "{tests} drivers, half of them killed, of eight statements at three moments",
                1,
            ),
        ),
    ),
    Campaign(
        "predicates",
        "Random predicates on NaN, both zeros, nulls, texts of all kinds, days before 1582 and decimals of 38 digits "
        "give through Spark's JAR the rows that Spark gives without pushing them; so do predicates that Spark itself "
        "changes: on CHAR, under collations, in zones of sessions, with casts, with ANSI and without.",
        (
            Part(
                ("tests/spark/test_jar_reading.py", "-k", "random_predicates"),
                "LANCE_IO_SPARK_PREDICATES",
                2000,
                "{size} predicates in each of {tests} tests",
                1,
            ),
        ),
    ),
    Campaign(
        "losses",
        "Reads of each kind through Spark's JAR, on a cluster whose worker or executor is killed in the middle of a "
        "task, or whose task is overtaken by a second one, give each row once, and leave no process.",
        (
            Part(
                ("tests/spark/test_speculation.py",),
                "LANCE_IO_SPARK_CHAOS",
                20,
                "{size} rounds of each kind of read and loss, in {tests} tests",
                1,
            ),
        ),
    ),
    Campaign(
        "spark",
        "Queries of 1 GB on MinIO through Spark's JAR read only the columns and rows that they use. And the memory of "
        "a worker whose readers are slow, with 1, 4 and 16 of them.",
        (
            Part(
                ("tests/spark/test_jar_cluster.py", "-k", "queries_read or show_reads"),
                "LANCE_IO_TEST_SPARK_FACTS",
                1_860_000,
                "{tests} queries on a table of {size} rows",
                1,
            ),
            Part(("tests/spark/test_worker_memory.py",), "LANCE_IO_SPARK_SLOTS", "full", "{tests} sizes of workers", 1),
        ),
    ),
    Campaign(
        "products",
        "All combinations where `make test` takes some, with every value of each dimension: cases of encodings with "
        "versions, cuts and pages; damage of small files that are read together; Arrow types, each in a table of its "
        "own; calls by both faces, each in a process of its own; operations with the places that they are committed "
        "to; indices with both kinds of row ids; kinds of indices of vectors with metrics; memory by kinds of files "
        "and of scans.",
        (
            Part(
                (
                    *("tests/encodings/test_cases.py", "tests/encodings/test_write_pages.py"),
                    *("tests/file/test_writer_cases.py", "tests/file/test_known_files.py"),
                    *("tests/file/test_known_arrays.py", "tests/file/test_known_batches.py"),
                    *("tests/interop/test_types.py", "tests/interop/test_alone.py"),
                    *("tests/interop/test_commits_by_place.py", "tests/index/test_index_answers.py"),
                    *("tests/index/test_vector_search.py", "tests/dataset/test_decoded_peaks.py"),
                ),
                "LANCE_IO_PRODUCTS",
                "all",
                "{tests} tests",
            ),
        ),
    ),
    Campaign(
        "memory",
        "Changes of tables of rows of 100 B, of vectors of 4 KiB and of blobs of 1 MiB: an update of 1 % of the rows, "
        "a merge of 10 % from a reader, a compaction; and of texts of 1 MiB, which compress a hundredfold or a "
        "thousandfold, an update and a new column of all rows and takes of them, which may need the size of their "
        "result and 128 MiB (no array of 32-bit offsets holds those of 4 GiB). The peak memory of a fresh process, "
        "less its memory after import and opening, is at most `memory_limit` and 256 MiB, for every size of the table. "
        "pylance, which has no such limit, is measured up to 4 GiB and stopped at 12 GiB of memory; larger tables "
        "are of vectors alone.",
    ),
    Campaign(
        "mutants",
        "Automatic changes of the package in all its folders: an operator, a constant, an argument, a condition. Some "
        "test must notice. `scripts/invisible_mutants.toml` names the changes that no test can notice, with the "
        "reason; every other change that survives is a finding.",
    ),
)
NAMES: Final = tuple(campaign.name for campaign in CAMPAIGNS)


# -- the results of a run --------------------------------------------------------------------------------------------


@dataclass
class Report:
    """The results of one campaign.

    cases     describes the cases
    findings  each with the command that shows it again
    commands  the calls
    details   more for the page, as Markdown
    seconds   its time, if that is more than this run
    """

    cases: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    details: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Stamp:
    """Date, commit and seed of a run."""

    date: str
    commit: str
    seed: str


def run_tests(campaign: Campaign, seed: str, share: float) -> Report:
    """Call pytest for each part of a campaign."""
    report = Report()
    for part in campaign.parts:
        settings = {part.variable: str(part.sized(share)), "LANCE_IO_SEED": seed}
        shown = " ".join(f"{name}={value}" for name, value in settings.items())
        report.commands.append(f"{shown} python {shlex.join(part.command())}")
        print(f"\n== {campaign.name}: {report.commands[-1]}", flush=True)
        with tempfile.TemporaryDirectory(prefix="lance-io-campaign-") as folder:
            results = Path(folder) / "junit.xml"
            command = [sys.executable, *part.command(), "-q", f"--junitxml={results}", "-o", "junit_family=xunit1"]
            status = call(command, {**os.environ, "CI": "true", **settings})
            tests, findings = read_results(results, shown) if results.exists() else (0, [])
            measured = read_measured(results) if results.exists() else []
        if status and not findings:
            findings = [f"pytest ended with {status}: `{report.commands[-1]}`"]
        report.findings += findings
        report.cases.append(cases_text(part, share, tests))
        if measured:
            head = ["| Values | Call | Peak | At most |", "|---|---|---|---|"]
            report.details = "\n".join([*head, *[f"| {line} |" for line in measured]])
    return report


def call(command: Sequence[str], environment: dict[str, str]) -> int:
    """Run a command in the checkout; on Ctrl-C wait for its end, too."""
    with subprocess.Popen(command, cwd=ROOT, env=environment) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            process.wait()
            raise


def cases_text(part: Part, share: float, tests: int) -> str:
    """Describe the cases, with the full size if the run was smaller."""
    size = part.sized(share)
    text = part.cases.format(size=f"{size:,}" if isinstance(size, int) else size, tests=tests)
    if isinstance(size, int) and size != part.size:
        text += f" (`{part.variable}={size}`; at full size {part.size:,})"
    return text


def read_results(path: Path, settings: str) -> tuple[int, list[str]]:
    """The number of tests, and for each that failed its message and the command that runs it again."""
    findings: list[str] = []
    cases = list(ElementTree.parse(path).iter("testcase"))
    for case in cases:
        for trouble in (*case.findall("failure"), *case.findall("error"), *case.findall("skipped")):
            if trouble.tag == "skipped" and trouble.attrib.get("type") == "pytest.xfail":
                continue
            words = (trouble.attrib.get("message") or trouble.tag).strip().splitlines()[0][:200]
            name = f"{case.attrib.get('file', '')}::{case.attrib['name']}"
            again = f"{settings} python -m pytest -o timeout=0 {shlex.quote(name)}"
            findings.append(
                f"`{case.attrib['name']}`: {trouble.tag}, `{words.replace('`', ' ')}`; again by\n\n      {again}"
            )
    return len(cases), findings


def read_measured(path: Path) -> list[str]:
    """The measurements of the tests, the cells of a line each."""
    properties = ElementTree.parse(path).iter("property")
    return [each.attrib["value"] for each in properties if each.attrib.get("name") == "measured"]


# -- mutants ---------------------------------------------------------------------------------------------------------


def run_mutants(seed: str, number: int, workers: int, *, believe: Believed, minutes: float | None) -> Report:
    """Draw mutants, run the tests on each, and report the survivors."""
    from scripts import mutants  # only mutants need its libraries

    outcomes = mutants.run(number, seed, workers, believe=believe, minutes=minutes)
    shown = f"python scripts/campaign.py --seed {seed} --mutants {number} mutants"
    if (believed := sum(outcome.by == mutants.EARLIER for outcome in outcomes)) == 0:
        return mutants_report(outcomes, shown)
    report = mutants_report(outcomes, f"{shown} --believe {believe}")
    report.details = f"{believed} verdicts are those of an earlier run, whose time is not counted.\n\n{report.details}"
    return report


def mutants_report(outcomes: Sequence[Outcome], command: str) -> Report:
    """The numbers by folder of the package; survivors with their differences."""
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    killed = verdicts["killed"] / max(1, len(outcomes))
    cases = f"{len(outcomes)} mutants" + ("" if len(outcomes) == MUTANTS else f" (at full size {MUTANTS})")
    report = Report(cases=[cases], commands=[command])
    survivors = sorted(
        (outcome.mutant for outcome in outcomes if outcome.verdict == "survived"), key=lambda m: (m.module, m.line)
    )
    report.findings = [f"`{mutant.module}:{mutant.line}` survived; see below" for mutant in survivors]
    if killed < KILLED_MIN:
        report.findings.append(f"only {killed:.0%} were killed, the goal is {KILLED_MIN:.0%}")
    lines = [
        f"{killed:.0%} were killed: {verdicts['killed']} by tests; {verdicts['invisible']} are named as invisible, "
        f"{verdicts['survived']} survived.",
        "",
        "| Room | mutants | killed | invisible | survived |",
        "|---|---|---|---|---|",
    ]
    for room in sorted({outcome.mutant.room for outcome in outcomes}):
        of_room = Counter(outcome.verdict for outcome in outcomes if outcome.mutant.room == room)
        numbers = (of_room.total(), of_room["killed"], of_room["invisible"], of_room["survived"])
        lines.append(f"| {room} | " + " | ".join(map(str, numbers)) + " |")
    if survivors:
        lines += ["", "Survivors:", "", "```diff", "\n\n".join(mutant.diff() for mutant in survivors), "```"]
    report.details = "\n".join(lines)
    return report


# -- memory ----------------------------------------------------------------------------------------------------------


def run_memory(sizes_mib: Sequence[int], results: Path | None) -> Report:
    """Measure changes of tables of these sizes, except those that the results have already."""
    from scripts import measure_memory  # only the memory campaign needs its libraries

    with tempfile.TemporaryDirectory(prefix="lance-io-campaign-") as folder:
        path = results or Path(folder) / "results.jsonl"
        for size_mib in sizes_mib:
            kinds = measure_memory.KINDS if size_mib <= measure_memory.PEER_SIZE_MIB else ["vectors"]
            measure_memory.measure(path, [size_mib], kinds)
        lines = measure_memory.read_results(path)
    sizes = " ".join(map(str, sizes_mib))
    return memory_report([line for line in lines if line["size"] in sizes_mib], sizes)


def memory_report(lines: Sequence[dict[str, Any]], sizes: str) -> Report:
    """All lines as a table; as findings our lines above their limit."""
    from scripts import measure_memory

    report = Report(cases=[f"{len(lines)} changes"])
    report.commands = [f"python scripts/campaign.py memory --memory-mib {sizes}"]
    for line in filter(measure_memory.is_above, lines):
        took = line.get("failed") or f"{line['grown']} MiB"
        report.findings.append(
            f"{line['change']} of {line['size']} MiB of {line['kind']} under {line['limit']} MiB: {took}; again by\n\n"
            f"      python scripts/change_memory.py {line['change']} {line['kind']} --size-mib {line['size']} "
            f"--limit-mib {line['limit']}"
        )
    commits = Counter(line["commit"] for line in lines)  # those of earlier runs are among them
    measured = ", ".join(f"{number} at `{commit}`" for commit, number in commits.items())
    report.seconds = sum(line.get("seconds", 0.0) for line in lines)
    report.details = f"Measured: {measured}.\n\n{measure_memory.table_of(lines)}"
    return report


# -- the page --------------------------------------------------------------------------------------------------------

INTRODUCTION = """# Campaigns

    make campaign                          # all of them; some hours on two cores
    make campaign ARGS="orders mutants"    # some; the other sections below stay as they are
    make campaign SEED=20261124            # the cases that another run drew; the seed is the date otherwise

`make test` runs a few cases of each kind. The campaigns run as many as a release needs: the same tests at full size,
and changes of the code that the tests must notice. All random cases depend on the seed (`LANCE_IO_SEED` for a test that
runs by itself). `scripts/campaign.py` writes this page; each section shows the last run of its campaign.
"""


def section(campaign: Campaign, report: Report, stamp: Stamp) -> str:
    """The section of the page for a run."""
    count = f"{len(report.findings)}, below" if report.findings else "none"
    cells = (stamp.date, f"`{stamp.commit}`", stamp.seed, "; ".join(report.cases), time_text(report.seconds), count)
    lines = [
        f"## {campaign.name.capitalize()}",
        "",
        textwrap.fill(campaign.about, 120),
        "",
        "| Date | Commit | Seed | Tried | Time | Findings |",
        "|---|---|---|---|---|---|",
        "| " + " | ".join(cells) + " |",
        "",
        *(f"    {command}" for command in report.commands),
    ]
    if report.findings:
        lines += ["", *(f"- {finding}" for finding in report.findings)]
    if report.details:
        lines += ["", report.details]
    if campaign.missed:
        lines += ["", textwrap.fill(campaign.missed, 120)]
    return "\n".join(lines) + "\n"


def time_text(seconds: float) -> str:
    """Seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def page_with(page: str, name: str, text: str) -> str:
    """The page with the section of a campaign replaced, the others unchanged, all in their order."""
    sections = {part.split("\n", 1)[0].lower(): f"## {part}" for part in re.split(r"^## ", page, flags=re.M)[1:]}
    sections[name] = text
    for campaign in CAMPAIGNS:
        head = f"## {campaign.name.capitalize()}\n\n{textwrap.fill(campaign.about, 120)}"
        missed = f"\n{textwrap.fill(campaign.missed, 120)}\n" if campaign.missed else ""
        sections.setdefault(campaign.name, f"{head}\n\nNot run yet.\n{missed}")
    return "\n".join([INTRODUCTION, *(sections[campaign.name].rstrip("\n") + "\n" for campaign in CAMPAIGNS)])


def write_page(path: Path, name: str, text: str) -> None:
    """Replace one section of the file, at once."""
    page = page_with(path.read_text() if path.exists() else "", name, text)
    new = path.with_suffix(".new")
    new.write_text(page)
    new.replace(path)


# -- from the command line -------------------------------------------------------------------------------------------


def commit_name() -> str:
    """The commit of the checkout; with `+` if the checkout has changes."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    changed = [line for line in git("status", "--porcelain").splitlines() if not line.endswith("docs/campaigns.md")]
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    today = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="CAMPAIGN", help=f"of {', '.join(NAMES)}; all by default")
    parser.add_argument("--seed", default=os.environ.get("SEED") or today, help="of all random cases; the date")
    parser.add_argument("--share", type=float, default=1.0, help="of the full number of random cases")
    parser.add_argument("--mutants", type=int, default=MUTANTS, help=f"number of mutants ({MUTANTS})")
    parser.add_argument("--workers", type=int, default=2, help="mutants to test at a time (2)")
    parser.add_argument(
        "--believe",
        choices=["nothing", "killed", "all"],
        default="nothing",
        help="take over results of mutants from an earlier run of the same code: of those that it killed, or all",
    )
    parser.add_argument(
        "--minutes", type=float, help="time after which no other mutant starts; the first ones are of all folders"
    )
    parser.add_argument(
        "--memory-mib",
        type=int,
        nargs="+",
        default=[MEMORY_MIB],
        help=f"sizes of the tables of `memory` ({MEMORY_MIB})",
    )
    parser.add_argument("--memory-results", type=Path, help="a file of results that `memory` continues")
    parser.add_argument("--page", type=Path, default=PAGE, help="the file to write")
    options = parser.parse_args(arguments)
    if unknown := sorted({*options.names} - {*NAMES}):
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    if not re.fullmatch(r"\d+", options.seed):
        parser.error(f"a seed is a number, not {options.seed!r}")
    return options


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run campaigns; 1 if there are findings."""
    options = parse(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    print(f"seed {options.seed}", flush=True)
    num_findings = 0
    for campaign in CAMPAIGNS:
        if options.names and campaign.name not in options.names:
            continue
        stamp = Stamp(datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"), commit_name(), options.seed)
        started = time.monotonic()
        try:
            if campaign.parts:
                report = run_tests(campaign, options.seed, options.share)
            elif campaign.name == "memory":
                report = run_memory(options.memory_mib, options.memory_results)
            else:
                more = {"believe": options.believe, "minutes": options.minutes}
                report = run_mutants(options.seed, options.mutants, options.workers, **more)

        except KeyboardInterrupt:
            print(f"\ninterrupted; {campaign.name} has not ended, and its section is unchanged", file=sys.stderr)
            return INTERRUPTED
        report.seconds = report.seconds or time.monotonic() - started
        write_page(options.page, campaign.name, section(campaign, report, stamp))
        num_findings += len(report.findings)
        print(f"== {campaign.name}: {len(report.findings)} findings, {time_text(report.seconds)}", flush=True)
    print(f"{num_findings} findings; {options.page}")
    return 1 if num_findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
