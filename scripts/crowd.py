"""A crowd on one table: all kinds of changes at once, by processes with a journal each that are killed now and then.

    python scripts/crowd.py                              two minutes on local disk
    python scripts/crowd.py --minutes 25                 the length for a release
    python scripts/crowd.py --minutes 25 --store minio   the same on an S3 server, which the script starts
    python scripts/crowd.py --folder F                   table and journals stay in F in any case

Two processes delete, two update, two merge, two compact, two append, one cleans up every 30 seconds, and one is
pylance's, which appends and deletes. Rows of all of them are in the same fragments; each process changes only its own
rows. At the end nothing may be lost, doubled or unreadable: the rows are those of the journals, but a killed call may
have happened or not; every file that a version names exists; both libraries read the same; and after a quarter of an
hour old versions are gone.

The exit status is 1 if there are findings; then table and journals stay.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import lance_io  # noqa: E402
from scripts.crowd_work import CLEAN_S, Known, Rows, first_rows, read_journal, rows  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS: Final = ("delete", "update", "merge", "compact", "append")
OLDER_THAN_S: Final = 600.0  # cleanups remove older versions
BEGIN_S: Final = 300.0  # time for the first call of every process
KILL_S: Final = 6.0  # on average, between two kills
LOOK_S: Final = 10.0
ENDING_S: Final = 300.0  # time for a process to end on request
ROWS_PER_FILE: Final = 1000
VERSIONS_READ: Final = 20  # versions that both libraries read at the end


@dataclass
class Crowd:
    """The processes of one run.

    names        of the processes
    task         settings for each process
    must_remove  whether the run is long enough for a cleanup to remove versions
    kills        number of killed processes
    """

    folder: Path
    names: list[str]
    task: dict[str, Any]
    must_remove: bool
    kills: int = 0
    findings: list[str] = field(default_factory=list)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def journals(self) -> Path:
        """The folder of their journals."""
        return self.folder / "journals"

    def begin(self) -> None:
        """Write the table with its first rows, and start all processes."""
        self.journals.mkdir()
        (self.folder / "task.json").write_text(json.dumps(self.task))
        owned = first_rows(self.names)
        mixed = sorted((key % 1000, key) for keys in owned.values() for key in keys)
        ids = [key for _, key in mixed]
        given = rows(ids, [0] * len(ids), "first")
        options = {"storage_options": self.task["options"], "max_rows_per_file": ROWS_PER_FILE}
        lance_io.write_dataset(given, self.task["uri"], **options)
        for name in self.names:
            self.start(name)

    def start(self, name: str) -> None:
        """Start a process, the first or one after a kill."""
        command = [sys.executable, str(ROOT / "scripts" / "crowd_work.py"), str(self.folder / "task.json"), name]
        with open(self.folder / f"{name}.err", "ab") as errors:
            self.running[name] = subprocess.Popen(command, cwd=ROOT, stderr=errors, stdout=errors)

    def look_after(self) -> None:
        """Remove processes that have ended; an end before the work is done is a finding."""
        for name, process in [*self.running.items()]:
            if process.poll() is not None:
                del self.running[name]
                if process.returncode not in (0, -signal.SIGTERM):
                    output = (self.folder / f"{name}.err").read_text()[-1000:]
                    self.findings.append(f"{name} ended with {process.returncode}: {output}")

    def kill(self, name: str) -> None:
        """End a process at once, and start another one."""
        process = self.running[name]
        if process.poll() is None:
            process.kill()
            process.wait()
            self.kills += 1
            self.start(name)

    def end(self) -> None:
        """Ask all of them to end, and wait."""
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        for name, process in self.running.items():
            try:
                process.wait(ENDING_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                self.findings.append(f"{name} did not end within {ENDING_S:.0f} s")
        self.look_after()

    def stop(self) -> None:
        """Kill all processes that still run."""
        for process in self.running.values():
            process.kill()
            process.wait()

    def known(self) -> dict[str, Known]:
        """Read the journals."""
        owned = first_rows(self.names)
        return {name: read_journal(self.journals / f"{name}.jsonl", owned[name]) for name in self.names}


# -- running ---------------------------------------------------------------------------------------------------------


def run_for(crowd: Crowd, minutes: float, dice: random.Random) -> None:
    """Kill a process now and then until the time is over, or there are findings."""
    wait_for_all(crowd)
    began = time.monotonic()
    until, looked = began + 60 * minutes, began
    while time.monotonic() < until and not crowd.findings:
        time.sleep(min(dice.uniform(0.5, 2 * KILL_S - 0.5), max(0.0, until - time.monotonic())))
        crowd.look_after()
        if crowd.running:
            crowd.kill(dice.choice(sorted(crowd.running)))
        if time.monotonic() - looked > LOOK_S:
            looked = time.monotonic()
            look_at(crowd)
            print(f"{(looked - began) / 60:.1f} min: version {newest(crowd)}, {crowd.kills} kills", flush=True)
    crowd.end()


def wait_for_all(crowd: Crowd) -> None:
    """Wait until every process has made a call, which takes long on a small machine."""
    until = time.monotonic() + BEGIN_S
    while not all(known.ended for known in crowd.known().values()) and not crowd.findings:
        crowd.look_after()
        time.sleep(0.3)
        if time.monotonic() > until:
            crowd.findings.append(f"not all processes have made a call within {BEGIN_S:.0f} s")


def run_calls(crowd: Crowd, kills: int, dice: random.Random) -> None:
    """Each process makes its number of calls; kills come when journals have become longer."""
    for _ in range(kills):
        name = dice.choice(crowd.names)
        journal = crowd.journals / f"{name}.jsonl"
        size = journal.stat().st_size if journal.exists() else 0
        while name in crowd.running and not (journal.exists() and journal.stat().st_size > size):
            crowd.look_after()
            time.sleep(0.01)
        if name in crowd.running:
            crowd.kill(name)
    for process in [*crowd.running.values()]:
        process.wait()
    crowd.look_after()


def newest(crowd: Crowd) -> int:
    """Number of the newest version."""
    return int(lance_io.dataset(crowd.task["uri"], storage_options=crowd.task["options"]).version)


def look_at(crowd: Crowd) -> None:
    """Check that the table is readable while all processes work."""
    try:
        ids = lance_io.dataset(crowd.task["uri"], storage_options=crowd.task["options"]).to_table(columns=["id"])["id"]
    except Exception as error:
        crowd.findings.append(f"while it was changed: {type(error).__name__}: {error}"[:1000])
        return
    if len(ids.unique()) != len(ids):
        crowd.findings.append("while it was changed: rows were there twice")


# -- the table at the end --------------------------------------------------------------------------------------------


def compare(actual: dict[int, int], journals: Sequence[Known]) -> list[str]:
    """Compare rows with the journals; a call of unknown end must have happened completely, or not at all."""
    expected: dict[int, int | None] = {}
    findings = []
    for known in journals:
        expected.update(known.rows)
        for before, after in known.doubts:
            now: Rows = {key: actual.get(key) for key in after}
            if now not in (before, after):
                findings.append(f"neither before nor after: {now}, not {before} or {after}")
            expected.update(now)
    wrong = [key for key in {*expected, *actual} if expected.get(key) != actual.get(key)]
    lost = sorted(key for key in wrong if key not in actual)
    more = sorted(key for key in wrong if expected.get(key) is None)
    other = sorted({*wrong} - {*lost, *more})
    for what, keys in (("lost", lost), ("there and should not be", more), ("with another counter", other)):
        if keys:
            findings.append(f"{len(keys)} rows {what}, such as {keys[:5]}")
    return findings


def check(crowd: Crowd, dice: random.Random) -> list[str]:
    """All faults of the table, and those that the processes have noted."""
    import lance

    uri, options = crowd.task["uri"], crowd.task["options"]
    journals = crowd.known()
    findings = [wrong for known in journals.values() for wrong in known.wrong]
    table = lance_io.dataset(uri, storage_options=options)
    ours = table.to_table(columns=["id", "n"])
    theirs = lance.dataset(uri, storage_options=options).to_table(columns=["id", "n"])
    if not ours.sort_by("id").equals(theirs.sort_by("id")):
        findings.append("both libraries read different rows")
    actual = dict(zip(ours["id"].to_pylist(), ours["n"].to_pylist(), strict=True))
    if len(actual) != len(ours):
        findings.append(f"{len(ours) - len(actual)} rows are there twice")
    findings += compare(actual, [*journals.values()])
    findings += check_versions(table, uri, options, dice)
    if crowd.must_remove and not journals["clean"].removed:
        findings.append("no cleanup has removed a version")
    return findings


def check_versions(table: Any, uri: str, options: Any, dice: random.Random) -> list[str]:
    """Find files that versions name but that are gone, and unreadable versions."""
    import lance

    existing = {*table.all_files().read_all()["path"].to_pylist()}
    named = table.tracked_files().read_all().to_pylist()
    gone = sorted({(file["version"], file["path"]) for file in named if file["path"] not in existing})
    findings = [f"{len(gone)} files are gone that versions name, such as {gone[:3]}"] if gone else []
    numbers = [ref["version"] for ref in table.version_refs()]
    for number in sorted(dice.sample(numbers, min(VERSIONS_READ, len(numbers)))):
        try:
            ours = lance_io.dataset(uri, number, storage_options=options).to_table(columns=["id", "n"])
            theirs = lance.dataset(uri, number, storage_options=options).to_table(columns=["id", "n"])
        except Exception as error:
            findings.append(f"version {number}: {type(error).__name__}: {error}"[:500])
            continue
        if not ours.sort_by("id").equals(theirs.sort_by("id")):
            findings.append(f"version {number}: both libraries read different rows")
    return findings


def summary(crowd: Crowd) -> str:
    """The calls of each process, as text."""
    journals = crowd.known()
    lines = [f"version {newest(crowd)}, {crowd.kills} kills, {journals['clean'].removed} versions removed"]
    for name, known in journals.items():
        ends = ", ".join(f"{number} {how}" for how, number in sorted(known.ended.items()))
        lines.append(f"  {name:10} {known.calls} calls: {ends}; {len(known.doubts)} in doubt")
    return "\n".join(lines)


# -- from the command line -------------------------------------------------------------------------------------------


def run_crowd(folder: Path, uri: str, options: dict[str, str] | None, given: argparse.Namespace) -> list[str]:
    """Run one crowd on a table and return its findings."""
    names = [f"{kind}{number}" for kind in KINDS for number in range(given.crew)] + ["clean", "pylance"]
    task = {"uri": uri, "options": options, "names": names, "journals": str(folder / "journals"), "seed": given.seed}
    task |= {"calls": given.calls, "older_than_s": OLDER_THAN_S, "clean_s": CLEAN_S}
    is_long = given.calls is None and 60 * given.minutes > 1.5 * OLDER_THAN_S
    crowd, dice = Crowd(folder, names, task, is_long), random.Random(given.seed)
    with ExitStack() as stack:
        stack.callback(crowd.stop)
        crowd.begin()
        if given.calls is None:
            run_for(crowd, given.minutes, dice)
        else:
            run_calls(crowd, given.kills, dice)
        findings = crowd.findings
        try:
            print(summary(crowd), flush=True)
            findings += check(crowd, dice)
        except Exception as error:
            findings.append(f"afterwards: {type(error).__name__}: {error}"[:1000])
    return findings


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.0, help="length of the run")
    parser.add_argument("--store", choices=["local", "minio"], default="local", help="store of the table")
    parser.add_argument("--crew", type=int, default=2, help="processes of each kind")
    parser.add_argument("--calls", type=int, help="calls of each process, instead of a time")
    parser.add_argument("--kills", type=int, default=6, help="number of kills, with --calls")
    parser.add_argument("--seed", default="1", help="of the random numbers; the order of calls differs in each run")
    parser.add_argument("--folder", type=Path, help="a new folder in which table and journals stay")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one crowd."""
    given = parse(arguments)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="lance-io-crowd-"))
    folder.mkdir(exist_ok=True, parents=True)
    with ExitStack() as stack:
        uri, options = str(folder / "t.lance"), None
        if given.store == "minio":
            from tests.servers import s3_server  # starts a server

            server = stack.enter_context(s3_server())
            uri, options = server.uri(f"crowd-{os.getpid()}-{time.time_ns()}/t.lance"), server.options()
        findings = run_crowd(folder, uri, options, given)
    for finding in findings:
        print(f"FOUND: {finding}")
    if not findings:
        print("nothing was found")
    if not findings and given.folder is None:
        shutil.rmtree(folder)
    else:
        print(f"table and journals: {folder}")
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
