"""Workers from outside: processes that are asked, one question at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Self

from benchmarks.cases import ROOT
from benchmarks.latency.contenders import CONTENDERS, PYLANCE
from benchmarks.latency.questions import Answer, Question

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType


class WorkerError(RuntimeError):
    """A worker has ended instead of answering."""


def environment_of(contender: str) -> dict[str, str]:
    """What its process finds: nothing that says how to reach some other bucket."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "LANCE_"))}
    more = CONTENDERS[contender].environment if contender in CONTENDERS else {}
    if contender not in CONTENDERS and contender != "imports":
        more = CONTENDERS[PYLANCE].environment
    return {**plain, "AWS_EC2_METADATA_DISABLED": "true", "PYTHONPATH": str(ROOT), **more}


class WorkerProcess:
    """One contender in a process of its own; a context manager.

    options  storage options that it opens tables with
    """

    def __init__(self, contender: str, options: Mapping[str, str]) -> None:
        self.contender = contender
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.latency.worker", contender, json.dumps(dict(options))],
            cwd=ROOT,
            env=environment_of(contender),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, question: str, **arguments: Any) -> Answer:
        """Wait for the answer. Raises `WorkerError` where the worker ended; its words are on standard error."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(Question(question, arguments).as_line())
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # there is no line to be read then
        line = self._process.stdout.readline()
        if not line:
            raise WorkerError(f"{self.contender}: ended with {self._process.wait()} when asked to {question}")
        return Answer(**json.loads(line))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._process.kill()
        with self._process:  # closes its standard input, and waits
            pass


def first_row(contender: str, uri: str, row: int, options: Mapping[str, str]) -> Answer:
    """A new process up to its first row: wall time from its start, processor time as it says."""
    command = [sys.executable, "-m", "benchmarks.latency.firstrow", contender, uri, str(row), json.dumps(dict(options))]
    started = time.perf_counter()
    with subprocess.Popen(
        command, cwd=ROOT, env=environment_of(contender), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        wall_s = time.perf_counter() - started
    if not line:
        raise WorkerError(f"{contender}: a new process ended with {process.returncode} before its first row")
    return Answer(wall_s, float(line))
