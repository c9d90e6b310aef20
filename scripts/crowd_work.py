"""A process of the crowd (`scripts/crowd.py`): makes changes of one kind and notes each before and after.

    {"i": 3, "sets": {"10000007": null}}        before: counters of rows after the call, by id; null: the row goes
    {"i": 3, "ended": "done"}                   after: "done", "refused" (by a conflict: it did not happen), "unknown"

A line is on disk before the next step. A call without an end, and a call of unknown end, happened completely or not at
all; the process does not change its rows any more. A fault is a line `{"i": 3, "wrong": ...}`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

Rows: TypeAlias = "dict[int, int | None]"

IDS: Final = 10_000_000  # of each process
SCHEMA: Final = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("who", pa.string())])
ROWS_PER_OWNER: Final = {"delete": 3000, "update": 100, "merge": 100, "pylance": 1000}
CONFLICTS: Final = ("onflict", "contention", "concurrent writers")  # in pylance's errors after which it may try again
PAUSE_S: Final = 0.2
COMPACT_S: Final = 4.0
CLEAN_S: Final = 30.0


def rows(ids: Iterable[int], counters: Iterable[int], who: str) -> pa.Table:
    """Rows of a process."""
    ids = [*ids]
    return pa.table({"id": ids, "n": [*counters], "who": [who] * len(ids)}, schema=SCHEMA)


def first_rows(names: Iterable[str]) -> dict[str, list[int]]:
    """Ids of the rows that each process has at the beginning."""
    return {
        name: [IDS * (1 + index) + number for number in range(ROWS_PER_OWNER.get(kind_of(name), 0))]
        for index, name in enumerate(names)
    }


def kind_of(name: str) -> str:
    """The kind of a process: its name without its number."""
    return name.rstrip("0123456789")


# -- the journal -----------------------------------------------------------------------------------------------------


@dataclass
class Known:
    """The rows of a process, by its journal.

    rows     known rows, with their counters
    doubts   calls that may have happened or not: the rows before, and after
    calls    number of calls that began; ended: number of ends of each kind
    wrong    faults
    removed  versions that cleanups have removed
    """

    rows: dict[int, int]
    doubts: list[tuple[Rows, Rows]] = field(default_factory=list)
    calls: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    removed: int = 0
    _open: tuple[int, Rows] | None = None

    def take(self, line: dict[str, Any]) -> None:
        """Take in the next line."""
        if "sets" in line:
            self._doubt()  # the call before, if a kill ended its process
            self.calls += 1
            self._open = line["i"], {int(key): value for key, value in line["sets"].items()}
        if "wrong" in line:
            self.wrong.append(line["wrong"])
        self.removed += line.get("removed", 0)
        if "ended" in line and self._open is not None:
            self.ended[line["ended"]] = self.ended.get(line["ended"], 0) + 1
            if line["ended"] == "unknown":
                self._doubt()
            elif line["ended"] == "done":
                for key, value in self._open[1].items():
                    if value is None:
                        self.rows.pop(key, None)
                    else:
                        self.rows[key] = value
            self._open = None

    def close(self) -> None:
        """End after the last line."""
        self._doubt()

    def _doubt(self) -> None:
        if self._open is not None and self._open[1]:
            after = self._open[1]
            self.doubts.append(({key: self.rows.pop(key, None) for key in after}, after))
        self._open = None


def read_journal(path: Path, first: Iterable[int]) -> Known:
    """Read a journal; its last line may be cut."""
    known = Known(dict.fromkeys(first, 0))
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    for line in lines:
        if line.startswith(b"{") and line.endswith(b"}"):
            known.take(json.loads(line))
    known.close()
    return known


class Journal:
    """A file of lines, each on disk when `write` returns."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(self._fd, b"\n")  # ends a line that was cut

    def write(self, **values: Any) -> None:
        """Write one line."""
        os.write(self._fd, json.dumps(values).encode() + b"\n")
        os.fsync(self._fd)


# -- the work --------------------------------------------------------------------------------------------------------


class Worker:
    """One process; a new one continues after a killed one."""

    def __init__(self, task: dict[str, Any], name: str) -> None:
        self.task, self.name, self.kind = task, name, kind_of(name)
        self.uri, self.options = task["uri"], task["options"]
        path = Path(task["journals"]) / f"{name}.jsonl"
        self.first_id = IDS * (1 + task["names"].index(name))
        self.known = read_journal(path, first_rows(task["names"])[name])
        self.journal = Journal(path)
        self.dice = random.Random(f"{task['seed']} {name} {self.known.calls}")
        self.is_over = False
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, _: int, __: FrameType | None) -> None:
        self.is_over = True

    def run(self) -> None:
        """Make calls until SIGTERM, or until the number of calls is reached."""
        import lance_io

        self.library = lance_io
        calls = {
            "delete": self.delete,
            "update": self.update,
            "merge": self.merge,
            "append": self.append,
            "compact": self.compact,
            "clean": self.clean,
            "pylance": self.of_pylance,
        }
        wanted = self.task["calls"]
        while not self.is_over and (wanted is None or self.known.calls < wanted):
            calls[self.kind]()
            pause_s = {"compact": COMPACT_S, "clean": self.task["clean_s"]}.get(self.kind, PAUSE_S)
            self._pause(pause_s if self.kind == "clean" else self.dice.random() * pause_s)
        self.journal.write(end=True)

    def _pause(self, pause_s: float) -> None:
        until = time.monotonic() + (0.05 if self.task["calls"] is not None else pause_s)
        while not self.is_over and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))

    def open(self) -> Any:
        """The newest version."""
        return self.library.dataset(self.uri, storage_options=self.options)

    def call(self, sets: Rows, work: Callable[[], str | None]) -> None:
        """Note a call, run it, note its end. `work` returns a fault of the result, or None."""
        number = self.known.calls
        self._note(i=number, sets={str(key): value for key, value in sets.items()})
        try:
            wrong = work()
        except Exception as error:
            ended, wrong = self._ending(error)
        else:
            ended = "done"
        if wrong:
            self._note(i=number, wrong=f"{self.name}: {wrong}")
        self._note(i=number, ended=ended)

    def _ending(self, error: Exception) -> tuple[str, str | None]:
        text = f"{type(error).__name__}: {error}"[:500]
        if self.kind == "pylance":
            is_legal = isinstance(error, OSError) and any(word in str(error) for word in CONFLICTS)
            return ("refused", None) if is_legal else ("unknown", text)
        from lance_io.errors import CommitConflictError, CommitUnknownError

        if isinstance(error, CommitUnknownError):
            return "unknown", None
        if isinstance(error, CommitConflictError):
            return "refused", None if error.retryable else text
        return "unknown", text + "\n" + "".join(traceback.format_exception(error))[-1500:]

    def _note(self, **values: Any) -> None:
        self.journal.write(t=round(time.time(), 3), **values)
        self.known.take(values)

    def _some(self, count: int) -> list[int]:
        """Random known rows."""
        return self.dice.sample(sorted(self.known.rows), min(count, len(self.known.rows)))

    def _new(self, count: int) -> list[int]:
        """Unused ids, which no killed process has used either."""
        first = self.first_id + IDS // 2 + 10 * self.known.calls
        return [*range(first, first + count)]

    # -- kinds -------------------------------------------------------------------------------------------------------

    def delete(self) -> None:
        """Delete one row, or five of many fragments."""
        ids = self._some(self.dice.choice([1, 1, 5]))
        if not ids:
            self.is_over = True
            return

        def work() -> str | None:
            result = self.open().delete(f"id in ({', '.join(map(str, ids))})")
            return None if result["num_deleted_rows"] == len(ids) else f"delete of {ids}: {result}"

        self.call(dict.fromkeys(ids), work)

    def update(self) -> None:
        """Increment a counter."""
        [key] = self._some(1)

        def work() -> str | None:
            result = self.open().update({"n": "n + 1"}, f"id = {key}")
            return None if result["num_rows_updated"] == 1 else f"update of {key}: {result}"

        self.call({key: self.known.rows[key] + 1}, work)

    def merge(self) -> None:
        """Merge two known rows and a new one."""
        old, new = self._some(2), self._new(1)
        sets: Rows = {**{key: self.known.rows[key] + 1 for key in old}, **dict.fromkeys(new, 0)}
        given = rows(sets, [value or 0 for value in sets.values()], self.name)

        def work() -> str | None:
            builder = self.open().merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            result = builder.execute(given)
            counts = result["num_updated_rows"], result["num_inserted_rows"]
            return None if counts == (len(old), 1) else f"merge of {sets}: {result}"

        self.call(sets, work)

    def append(self) -> None:
        """Append new rows."""
        ids = self._new(3)
        given = rows(ids, [0] * 3, self.name)

        def work() -> None:
            self.library.write_dataset(given, self.uri, mode="append", storage_options=self.options)

        self.call(dict.fromkeys(ids, 0), work)

    def compact(self) -> None:
        """Compact, which changes no row."""

        limit = self.dice.choice([None, 20, 50])  # a compaction of all fragments seldom ends before a conflict

        def work() -> None:
            self.open().optimize.compact_files(target_rows_per_fragment=1000, max_source_fragments=limit)

        self.call({}, work)

    def clean(self) -> None:
        """Remove versions older than ten minutes."""

        def work() -> None:
            stats = self.open().cleanup_old_versions(timedelta(seconds=self.task["older_than_s"]))
            self._note(removed=stats.old_versions)

        self.call({}, work)

    def of_pylance(self) -> None:
        """Append rows or delete one, with pylance."""
        import lance

        uri, options = self.uri, self.options
        if self.dice.random() < 0.5 or not self.known.rows:
            ids = self._new(2)
            given = rows(ids, [0] * 2, self.name)

            def work() -> None:
                lance.write_dataset(given, uri, mode="append", storage_options=options)

            self.call(dict.fromkeys(ids, 0), work)
            return
        [key] = self._some(1)

        def remove() -> None:
            lance.dataset(uri, storage_options=options).delete(f"id = {key}")

        self.call({key: None}, remove)


if __name__ == "__main__":
    Worker(json.loads(Path(sys.argv[1]).read_text()), sys.argv[2]).run()
