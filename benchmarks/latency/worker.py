"""A process that answers questions for one contender: a line of JSON in, a line of JSON out.

    python -m benchmarks.latency.worker CONTENDER OPTIONS

OPTIONS are storage options in JSON. An error ends the process, with its traceback on standard error. Time is measured
around the library's work alone: results are digested, and garbage is collected, outside.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import sys
import time
from contextlib import suppress
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from benchmarks.latency.callers import told
from benchmarks.latency.contenders import CONTENDERS, Contender
from benchmarks.latency.questions import Answer, Question, picked, priming
from benchmarks.latency.replayers import REPLAYERS, Replayer
from benchmarks.tables import KEY_STEP, KEYS_END, frequent_words, near_vectors, seven_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from benchmarks.latency.requestlog import Range

T = TypeVar("T")


def timed(operation: Callable[[], T]) -> tuple[Answer, T]:
    """Do it once."""
    gc.collect()
    cpu_before = time.process_time()
    started = time.perf_counter()
    result = operation()
    wall_s = time.perf_counter() - started
    return Answer(wall_s, time.process_time() - cpu_before), result


def digest(table: pa.Table) -> list[str]:
    """The same for equal values, whatever the types that hold them; the second one in whatever order of rows."""
    rows = [repr(row) for row in table.to_pylist()]
    return [hashlib.sha256("".join(one).encode()).hexdigest()[:16] for one in (rows, sorted(rows))]


class Worker:
    """Answers for one library. Every method is a question."""

    def __init__(self, contender: Contender) -> None:
        self._contender = contender
        self._rows: pa.Table | None = None

    def load(self, modules: list[str]) -> Answer:
        """Import what somebody else needed for the same, so that it does not count."""
        for name in modules:
            with suppress(ImportError):
                importlib.import_module(name)
        return Answer(0, 0)

    def modules(self) -> Answer:
        """What has been imported so far."""
        return Answer(0, 0, {"modules": [name for name in sys.modules if name.split(".")[0] != "benchmarks"]})

    def open(self, uri: str) -> Answer:
        """Open a table."""
        answer, _ = timed(lambda: self._contender.open(uri))
        self._contender.reads()
        return answer

    def warm(self, uri: str, num_rows: int) -> Answer:
        """Open a table, and read what takes and scans need to know of it."""
        self._contender.open(uri)
        self._contender.take(priming(num_rows), None)
        self._contender.reads()
        return Answer(0, 0)

    def take(self, rows: dict[str, Any], columns: list[str] | None = None, check: bool = False) -> Answer:
        """Take the rows that `picked` gives for `rows`."""
        picks = picked(**rows)
        answer, table = timed(lambda: self._contender.take(picks, columns))
        answer.told.update(rows=table.num_rows, reads=self._contender.reads())
        if check:
            answer.told["digest"] = digest(table)
        return answer

    def warm_search(self, uri: str, **asked: Any) -> Answer:
        """Open a table, and search it once."""
        self._contender.open(uri)
        self._contender.search(**search_of(**asked))
        self._contender.reads()
        return Answer(0, 0)

    def search(self, **asked: Any) -> Answer:
        """Search the open table."""
        terms = search_of(**asked)
        answer, table = timed(lambda: self._contender.search(**terms))
        answer.told.update(rows=table.num_rows, reads=self._contender.reads())
        return answer

    def warm_query(self, uri: str, column: str, columns: list[str], loads: bool, **asked: Any) -> Answer:
        """Open a table, look up keys once, and read what takes need to know; `loads`: all of the index, too."""
        self._contender.open(uri)
        self._contender.take(priming(asked["num_rows"]), columns)
        if loads:
            self._contender.load_index(column)
        return self.query(column, columns, **asked)

    def query(self, column: str, columns: list[str], by_key: bool, check: bool = False, **asked: Any) -> Answer:
        """Look up keys in the open table."""
        keys = keys_of(**asked)
        answer, table = timed(lambda: self._contender.look_up(column, keys, columns, by_key))
        answer.told.update(rows=table.num_rows, reads=self._contender.reads())
        if check:
            answer.told["digest"] = digest(table)[1:]  # in whatever order of rows
        return answer

    def key_waits(self, column: str, columns: list[str], callers: int, **asked: Any) -> Answer:
        """Look-ups of a key each by many callers at once."""
        keys = keys_of(**asked)
        self._contender.reads()
        answer, waits = timed(lambda: self._contender.key_waits(column, iter(keys), columns, callers))
        answer.told.update(told(waits, answer.wall_s), reads=self._contender.reads())
        return answer

    def open_take(self, uri: str, rows: dict[str, Any], check: bool = False, version: int | None = None) -> Answer:
        """Open, the newest version or that of a number, and take."""
        picks = picked(**rows)

        def operation() -> pa.Table:
            if version is None:
                self._contender.open(uri)
            else:
                self._contender.open_version(uri, version)
            return self._contender.take(picks, None)

        answer, table = timed(operation)
        answer.told.update(rows=table.num_rows, reads=self._contender.reads(), version=self._contender.version())
        if check:
            answer.told["digest"] = digest(table)
        return answer

    def scan(self, columns: list[str] | None, where: str | None = None) -> Answer:
        """Go through all rows, or those that pass a filter, and report the highest resident size meanwhile."""
        reset_peak()
        answer, num_rows = timed(lambda: self._contender.scan(columns, where))
        answer.told.update(rows=num_rows, peak_bytes=peak_bytes(), reads=self._contender.reads())
        return answer

    def waits(
        self,
        rows: dict[str, Any],
        callers: int,
        takes: int,
        for_s: float | None = None,
        scan_columns: list[str] | None = None,
        during_scan: bool = False,
    ) -> Answer:
        """Takes by many callers at once, until `takes` are done or `for_s` seconds have passed."""
        contender, num_rows = self._contender, rows["num_rows"]

        count = rows["count"]
        picks = picked(**{**rows, "count": takes * count})
        contender.reads()
        wait: Callable[[Iterator[list[int]], int, float | None], list[float]] = contender.waits
        if during_scan:
            wait = partial(contender.waits_during_scan, columns=scan_columns)
        measured = iter([picks[at : at + count] for at in range(0, len(picks), count)])
        answer, waits = timed(lambda: wait(measured, callers, for_s))
        answer.told.update(told(waits, answer.wall_s), rows=num_rows, reads=contender.reads())
        return answer

    def append_waits(self, uri: str, callers: int, rows: int, for_s: float) -> Answer:
        """Appends of so many rows by many callers at once, until so many seconds have passed."""
        batch = seven_columns(0, rows, np.random.default_rng(7)).to_batches()[0]
        answer, waits = timed(lambda: self._contender.append_waits(repeat(batch), uri, callers, for_s))
        answer.told.update(told(waits, answer.wall_s))
        return answer

    def write(self, uri: str, mode: str, num_rows: int) -> Answer:
        """Write so many rows of the seven columns."""
        if self._rows is None or self._rows.num_rows != num_rows:
            self._rows = seven_columns(0, num_rows, np.random.default_rng(7))
        rows = self._rows
        return timed(lambda: self._contender.write(rows, uri, mode))[0]

    def delete(self, uri: str, predicate: str) -> Answer:
        """Delete rows."""
        return timed(lambda: self._contender.delete(uri, predicate))[0]


def search_of(seed: int, column: str, asked: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a search, with a query for each seed: words if `asked` has their number, else a vector."""
    query = frequent_words(seed, asked["num_words"]) if "num_words" in asked else near_vectors(seed, 1)[0]
    return {"column": column, "query": query, "asked": asked}


def keys_of(seed: int, count: int, num_rows: int) -> list[int]:
    """Keys of rows anywhere in the table `keyed`, others for each seed."""
    rows = np.random.default_rng([seed, count, num_rows]).integers(0, num_rows, count)
    return [int(key) for key in rows * KEY_STEP % KEYS_END]


class ReplayWorker:
    """Answers for a client that only fetches."""

    def __init__(self, replayer: Replayer) -> None:
        self._replayer = replayer

    def connect(self, in_flight: int) -> Answer:
        """Open connections."""
        self._replayer.connect(in_flight)
        return Answer(0, 0)

    def replay(self, groups: list[list[Range]], callers: int = 1, takes: int = 1) -> Answer:
        """Fetch groups of ranges."""
        wait = self._replayer.waits(groups, callers, takes)
        answer, waits = timed(wait)
        answer.told.update(told(waits, answer.wall_s))
        return answer


def reset_peak() -> None:
    """Let the highest resident size begin at that of now."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def peak_bytes() -> int:
    """The highest resident size since `reset_peak`."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


def made(name: str, options: dict[str, str]) -> Worker | ReplayWorker:
    """The worker of a contender."""
    if name in REPLAYERS:
        return ReplayWorker(REPLAYERS[name](options))
    return Worker(CONTENDERS[name](options))


def main() -> None:
    """Answer until standard input ends."""
    worker = made(sys.argv[1], json.loads(sys.argv[2]))
    for line in sys.stdin:
        question = Question.of_line(line)
        answer = getattr(worker, question.ask)(**question.arguments)
        sys.stdout.write(answer.as_line())
        sys.stdout.flush()


if __name__ == "__main__":
    main()
