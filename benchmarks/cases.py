"""What a case is, and what all kinds of cases share: the contenders, turns in this process, turns in fresh ones.

Before a case is measured, the contenders' answers are compared: pylance's must equal ours, Parquet's must have as many
rows. The cases themselves are in `reads`, `filters`, `functions`, `writes`, `commits`, `changes`, `shares` and `spark`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pyarrow.dataset

import lance_io
from benchmarks.measure import Operation, Sample, Turn, operations_per_turn, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.tables import BenchTable

OURS, PYLANCE, PARQUET, ZSTD = "lance_io", "pylance", "parquet", "parquet-zstd"
# In Spark: what nobody can beat, and ourselves with half of the machine, over sockets that wait for nothing, and in
# workers that we may tune; and what nobody can beat in such workers.
CEILING, ONE_CORE, UNIX_SOCKETS = "ceiling", "one core", "unix sockets"
TUNED_WORKER, TUNED_CEILING = "tune_worker", "tuned ceiling"
# Of processes that append to one table: the same, if each of them had made as many versions.
EQUAL_SHARE = "equal share"
# Of old file versions: the bytes that we read, read by nobody but the system.
BARE = "bare read"
# Of filters: the faster of two plans of ours that do not look at the rows.
FASTER = "faster plan"
# Not contenders, but other measures of a case: pylance's processor time, and a limit for ours that is no ratio.
PROCESSOR, LIMIT = "processor time", "limit"
# In SQL through the JAR: the time of the other and what may come on top; our own queries with a task for each core.
ALLOWANCE, TWO_SLOTS = "allowance", "two slots"
COMPARED = {TUNED_CEILING: TUNED_WORKER}
"""Whom a contender is compared with; the others with us."""
ROOT = Path(__file__).resolve().parents[1]


class WrongAnswerError(AssertionError):
    """Two contenders do not give the same rows: there is nothing to compare."""


@dataclass(frozen=True)
class Case:
    """One question that every contender answers.

    goal, parquet_goal   how many times better than pylance and Parquet we want to be; None: no goal is set
    make                 opens what is needed, compares the answers, and gives the turns
    profiled             gives our operation alone, for `--profile`; None where that makes no sense
    rounds_max           rounds that say enough, where one takes long or all give the same
    rounds_factor        how many times as many rounds are asked for, where they differ widely
    seconds              after this time no round begins, but for the first few, where no number is asked for
    amounts              what one operation moves, for rates: "rows", "bytes", "commits"; known once `make` has run
    ceiling_goal         as `goal`, beside what nobody can beat
    share_goal           as `goal`, beside what an equal share of all processes would be
    cpu_goal             as `goal`, of processor time
    limit_s              what we may need at most, whatever others need
    plan_goal            as `goal`, beside the faster of two fixed plans
    peer_goals           as `goal`, beside contenders by name
    """

    name: str
    make: Callable[[], Mapping[str, Turn]]
    unit: str = "s"
    goal: float | None = None
    parquet_goal: float | None = None
    profiled: Callable[[], Operation] | None = None
    rounds_max: int | None = None
    rounds_factor: int = 1
    seconds: float = 8.0
    amounts: dict[str, float] = field(default_factory=dict)
    ceiling_goal: float | None = None
    share_goal: float | None = None
    bare_goal: float | None = None
    cpu_goal: float | None = None
    limit_s: float | None = None
    plan_goal: float | None = None
    peer_goals: dict[str, float] = field(default_factory=dict)

    def rounds(self, asked: int) -> int:
        """How many rounds to run when `asked` are asked for."""
        return min(asked * self.rounds_factor, self.rounds_max or asked * self.rounds_factor)


def without_goals(case: Case) -> Case:
    """The same question, asked at a scale for which no goals are set."""
    return replace(
        case,
        goal=None,
        parquet_goal=None,
        ceiling_goal=None,
        share_goal=None,
        bare_goal=None,
        cpu_goal=None,
        limit_s=None,
        plan_goal=None,
        peer_goals={},
    )


def build_case(name: str, operation_of: Callable[[Any], Operation], *, cpu_goal: float, rounds_max: int) -> Case:
    """The build of an index, by each library on a copy of a table: processor time.

    operation_of  gives the operation of a library
    """

    def make() -> Mapping[str, Turn]:
        return {who: timed(operation_of(library), 1) for who, library in ((OURS, lance_io), (PYLANCE, lance))}

    def ours() -> Operation:
        return operation_of(lance_io)

    return Case(name, make, cpu_goal=cpu_goal, profiled=ours, rounds_max=rounds_max)


# -- contenders -------------------------------------------------------------------------------------------------------


def open_ours(table: BenchTable) -> Any:
    """The table in `lance_io`, with a session of its own."""
    return lance_io.dataset(table.lance_uri, session=lance_io.Session())


def open_pylance(table: BenchTable) -> Any:
    """The table in pylance, with a session of its own."""
    return lance.dataset(table.lance_uri, session=lance.Session())


def open_parquet(table: BenchTable) -> Any:
    """The Parquet files as one dataset of pyarrow."""
    return pyarrow.dataset.dataset(table.parquet_folder, format="parquet")


OPENERS: dict[str, Callable[[BenchTable], Any]] = {OURS: open_ours, PYLANCE: open_pylance, PARQUET: open_parquet}


# -- turns ------------------------------------------------------------------------------------------------------------


def in_process(operations: Mapping[str, Operation], compare: bool = True) -> dict[str, Turn]:
    """Turns of operations of this process: compared once, warmed, repeated within a turn where they are short.

    We and pylance do the same repetitions in a turn, so on the same rows; Parquet, which may need a thousand times as
    long for a take, does as many as fit.
    """
    if compare:
        require_equal({name: operation(0) for name, operation in operations.items()})
    often = {name: operations_per_turn(operation) for name, operation in operations.items()}
    often[OURS] = often[PYLANCE] = max(often[OURS], often[PYLANCE])
    return {name: timed(operation, often[name]) for name, operation in operations.items()}


def require_equal(answers: Mapping[str, pa.Table]) -> None:
    """Raise `WrongAnswerError` unless all answers are the same rows."""
    ours = answers[OURS]
    for name, answer in answers.items():
        same = answer.num_rows == ours.num_rows if name == PARQUET else answer.equals(ours)
        if not same:
            raise WrongAnswerError(f"{name} answers {answer.num_rows:,} rows, lance_io other {ours.num_rows:,} rows")


def row_count(num_rows: int) -> pa.Table:
    """The answer of an operation whose rows may differ, as ties do: only their number is compared."""
    return pa.table({"num_rows": [num_rows]})


def probe(what: str, library: str, path: str, round_number: int = 0) -> Sample:
    """What `benchmarks.probe` measures in a fresh interpreter."""
    del round_number
    return measured_by("benchmarks.probe", what, library, path)


def measured_by(module: str, *arguments: str) -> Sample:
    """What a module measures in a fresh interpreter; it prints a `Sample` as JSON."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed:\n{done.stderr}")
    return Sample(**json.loads(done.stdout))


def fresh(
    what: str, contenders: tuple[str, ...], path_of: Callable[[str], str], is_timed: bool = True
) -> dict[str, Turn]:
    """Turns that each start an interpreter. Of timed ones a first, which compiles bytecode, is not counted."""
    turns: dict[str, Turn] = {who: partial(probe, what, who, path_of(who)) for who in contenders}
    if is_timed:
        for turn in turns.values():
            turn(0)
    return turns
