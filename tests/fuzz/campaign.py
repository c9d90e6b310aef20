"""Runs workers over a range of cases, starts them again behind a case that kills one, and sums up.

python -m tests.fuzz.campaign SPECIMENS SEED FIRST LAST [workers]     # by hand; makes the specimens if need be,
                                                                      # those of old versions in a folder called "old",
                                                                      # those with indices in one called "indexed",
                                                                      # those with indices of vectors in "vectors"
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.fuzz.indexed import make_indexed_specimens
from tests.fuzz.indexed_vectors import make_vector_specimens
from tests.fuzz.specimens import make_old_specimens, make_specimens

ROOT = Path(__file__).resolve().parents[2]
PART = 250  # cases of one worker process
ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "2",  # each arena reserves address space, which a worker limits
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "RUST_BACKTRACE": "1",
}


def run_cases(folder: Path, seed: int, first: int, last: int) -> list[dict[str, Any]]:
    """The reports of all cases, in a worker process; a case that kills it is a finding."""
    reports: list[dict[str, Any]] = []
    while first < last:
        command = [sys.executable, "-m", "tests.fuzz.worker", str(folder), str(seed), str(first), str(last)]
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False
        )
        begun = None
        for line in done.stdout.splitlines():
            report = json.loads(line)
            begun = report.get("begin", begun)
            if "case" in report:
                reports.append(report)
        if done.returncode == 0:
            break
        if begun is None:
            raise RuntimeError(f"the worker did not start:\n{done.stderr[-4000:]}")
        trace = done.stderr[-3000:]
        reports.append({"case": begun, "findings": [f"the process ended with {done.returncode}:\n{trace}"], "read": 0})
        first = begun + 1
    return reports


def run_parts(folder: Path, seed: int, first: int, last: int, workers: int = 2) -> list[dict[str, Any]]:
    """The same by several worker processes at a time, each with some hundred cases."""
    with ThreadPoolExecutor(workers) as pool:
        jobs = [pool.submit(run_cases, folder, seed, at, min(at + PART, last)) for at in range(first, last, PART)]
        return [report for job in jobs for report in job.result()]


def report_text(reports: list[dict[str, Any]], seed: int) -> str:
    """Findings one by one, and how many cases were refused."""
    found = [report for report in reports if report["findings"]]
    refused, grown = sum(not r["read"] for r in reports), max(r.get("grown", 0) for r in reports) >> 20
    lines = [f"seed {seed}: {len(reports)} cases, {refused} refused, {len(found)} findings, at most {grown} MiB each"]
    for report in found:
        lines += ["", f"case {report['case']} of {report.get('of')}: {report.get('what')}", *report["findings"]]
    return "\n".join(lines)


def main() -> None:
    folder, seed, first, last = Path(sys.argv[1]), *map(int, sys.argv[2:5])
    workers = int(sys.argv[5]) if len(sys.argv) > 5 else 2
    if not folder.exists():
        if folder.name == "indexed":
            make_indexed_specimens(folder)
        elif folder.name == "vectors":
            make_vector_specimens(folder)
        else:
            (make_old_specimens if folder.name == "old" else make_specimens)(folder, all_of_them=True)
    reports = run_parts(folder, seed, first, last, workers)
    print(report_text(reports, seed))
    kinds = Counter(finding.splitlines()[0][:100] for report in reports for finding in report["findings"])
    for kind, count in kinds.most_common():
        print(f"{count:6} {kind}")
    with open(folder / f"reports-{seed}.jsonl", "a") as out:
        out.writelines(json.dumps(report) + "\n" for report in reports)


if __name__ == "__main__":
    main()
