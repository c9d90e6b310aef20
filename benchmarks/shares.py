"""Shares of processes that append to one table on the local disk for twenty seconds, nothing flushed.

    share/ours/N      N processes of ours
    share/beside/3    two of ours and one of pylance

The value is the time of an append of the process that made the fewest; `equal share` is what it would be if all had
made as many. So the ratio is the smallest share, in equal ones. Every append of ours must succeed, and each have made a
version; pylance may give up one after twenty lost races, which is said.

    python -m benchmarks.shares LIBRARY TABLE SECONDS

is one of the processes: it appends to a table of its own, so that all is imported, says that it is ready, waits for a
line, appends, and tells what it did as a line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import lance

from benchmarks.cases import EQUAL_SHARE, OURS, PYLANCE, ROOT, Case
from benchmarks.commits import appenders, small_rows
from benchmarks.measure import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.measure import Turn
    from benchmarks.tables import Tables

SECONDS = 20.0
CROWDS = {"ours/2": (OURS,) * 2, "ours/3": (OURS,) * 3, "ours/8": (OURS,) * 8, "beside/3": (OURS, OURS, PYLANCE)}
GOALS = {"ours/3": 0.5, "beside/3": 0.5}


def append_for(library: str, table: str, seconds: float) -> dict[str, Any]:
    """Append a row again and again; gives how often that went well, the first errors, and the processor time."""
    append, row = appenders("none")[library], small_rows(1)
    num_appends, errors, until = 0, [], time.monotonic() + seconds
    cpu_before = time.process_time()
    while time.monotonic() < until:
        try:
            append(row, table)
        except Exception as error:
            errors.append(repr(error))
        else:
            num_appends += 1
    return {"appends": num_appends, "errors": errors[:3], "cpu_s": time.process_time() - cpu_before}


def append_once(library: str) -> None:
    """An append to a table that nobody else has, which imports all that appends need."""
    with tempfile.TemporaryDirectory() as table:
        lance.write_dataset(small_rows(1), table)
        appenders("none")[library](small_rows(1), table)


def append_together(libraries: Sequence[str], path: Path, seconds: float) -> list[dict[str, Any]]:
    """What each process says, which all begin at the same time. Raises `RuntimeError` if one of ours failed."""
    lance.write_dataset(small_rows(1), path)
    with ExitStack() as stack:
        processes = []
        for library in libraries:
            command = [sys.executable, "-m", "benchmarks.shares", library, str(path), str(seconds)]
            process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            processes.append(stack.enter_context(process))
            stack.callback(process.kill)
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        said = [json.loads(process.communicate()[0]) for process in processes]
    for library, each in zip(libraries, said, strict=True):
        if each["errors"] and library == OURS:
            raise RuntimeError(f"appends of ours failed: {each['errors']}")
        if each["errors"]:
            print(f"appends of {library} failed: {each['errors']}", file=sys.stderr)
    if lance.dataset(path).version != 1 + sum(each["appends"] for each in said):
        raise AssertionError("not every append made a version")
    return said


def share_case(tables: Tables, name: str) -> Case:
    """One crowd of processes."""
    libraries, seconds = CROWDS[name], max(1.0, SECONDS * min(1.0, tables.scale))
    equal: list[Sample] = []

    def fewest(folder: Path, number: int) -> Sample:
        said = append_together(libraries, folder / str(number), seconds)
        counts = [each["appends"] for each in said]
        mean = sum(counts) / len(counts)
        cpu_s = sum(each["cpu_s"] for each in said) / max(sum(counts), 1)
        equal.append(Sample(seconds / max(mean, 1.0), cpu_s))
        return Sample(seconds / max(min(counts), 0.01), cpu_s)

    def make() -> dict[str, Turn]:
        return {OURS: partial(fewest, tables.new_folder()), EQUAL_SHARE: lambda _: equal[-1]}

    return Case(f"share/{name}", make, rounds_max=1, share_goal=GOALS.get(name))


def share_cases(tables: Tables) -> Iterator[Case]:
    """Every crowd."""
    for name in CROWDS:
        yield share_case(tables, name)


if __name__ == "__main__":
    append_once(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(append_for(sys.argv[1], sys.argv[2], float(sys.argv[3]))))
