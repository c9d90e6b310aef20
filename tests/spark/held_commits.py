"""Workers behind the JAR that stop for good at a moment of a statement, and say so.

The name of a table ends in the moment: `made_before` stops before the commit of its rows, `made_after` when its version
is there and the JVM does not know it yet. Of `made_tasks` each task says that it has written its files, and goes on; of
a procedure only the first does, and the others stop.
Each event is a line in a named pipe. Processes whose `PYTHONPATH` is `path_of(...)` start such workers.
"""

from __future__ import annotations

import os
import pickle
import threading
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lance_io.dataset import distributed
from lance_io.spark.worker.writing import change_requests, procedures
from tests.spark.sessions import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Callable

MOMENTS: Final = ("tasks", "before", "after")
SITE: Final = """\
import sys
if "lance_io.spark.worker" in sys.orig_argv:
    from tests.spark import held_commits
    held_commits.install({events!r})
"""


def path_of(folder: Path, events: Path) -> str:
    """A path for Python with a module that each process imports first. Spark's own processes it leaves alone."""
    (folder / "sitecustomize.py").write_text(SITE.format(events=str(events)))
    return os.pathsep.join([str(folder), str(CHECKOUT)])


def install(events: str) -> None:
    """Let this process stop where names of tables say it."""
    for name in ("commit_write", "commit_rows"):
        setattr(distributed, name, _held(getattr(distributed, name), events, _of_target))
    answers = change_requests.ANSWERS
    answers["call_end"] = _held(answers["call_end"], events, _of_request)
    procedures.run_task = _held_task(procedures.run_task, events)
    write_files = distributed.write_files

    def says_written(place: Any, *arguments: Any, **named: Any) -> Any:
        files = write_files(place, *arguments, **named)
        name = _of_target(place)
        if _moment(name) == "tasks" and files.num_rows:
            say(events, f"{name} written")
        return files

    distributed.write_files = says_written


def _held(work: Callable[..., Any], events: str, name_of: Callable[..., str]) -> Callable[..., Any]:
    def held(*arguments: Any, **named: Any) -> Any:
        name = name_of(arguments[0])
        if _moment(name) == "before":
            stop(events, name)
        result = work(*arguments, **named)
        if _moment(name) == "after":
            stop(events, name)
        return result

    return held


def _held_task(run: Callable[..., Any], events: str) -> Callable[..., Any]:
    """The first task of a procedure writes its files, the others stop."""

    def held(connection: Any, request: dict[str, Any]) -> None:
        name = _of_request(request)
        is_held = _moment(name) == "tasks"
        if is_held and pickle.loads(b64decode(request["task"])).number:
            stop(events, name)
        run(connection, request)
        if is_held:
            say(events, f"{name} written")

    return held


def _of_target(target: Any) -> str:
    return Path(getattr(target, "place", target).uri).stem  # of a version, or the table itself


def _of_request(request: dict[str, Any]) -> str:
    return Path(request["options"]["path"]).stem


def _moment(name: str) -> str:
    return name.rpartition("_")[2]


def say(events: str, line: str) -> None:
    """Tell the test an event."""
    with open(events, "a") as pipe:
        pipe.write(f"{line}\n")


def stop(events: str, line: str) -> None:
    """Tell the test an event, and go no further."""
    say(events, line)
    threading.Event().wait()
