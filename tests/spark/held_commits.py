"""Workers behind the JAR that stop for good at a moment of a statement, and say so.

The name of a table ends in the moment: `made_before` stops before the commit of its rows, `made_after` when its version
is there and the JVM does not know it yet. Of `made_tasks` each task says that it has written its files, and goes on.
Each event is a line in a named pipe. Processes whose `PYTHONPATH` is `path_of(...)` start such workers.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lance_io.dataset import distributed
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
        setattr(distributed, name, _held(getattr(distributed, name), events))
    write_files = distributed.write_files

    def says_written(place: Any, *arguments: Any, **named: Any) -> Any:
        files = write_files(place, *arguments, **named)
        if _moment(place) == "tasks" and files.num_rows:
            say(events, f"{_name(place)} written")
        return files

    distributed.write_files = says_written


def _held(commit: Callable[..., Any], events: str) -> Callable[..., Any]:
    def held(target: Any, *arguments: Any, **named: Any) -> Any:
        place = getattr(target, "place", target)  # of a version, or the table itself
        if _moment(place) == "before":
            stop(events, _name(place))
        result = commit(target, *arguments, **named)
        if _moment(place) == "after":
            stop(events, _name(place))
        return result

    return held


def _name(place: Any) -> str:
    return Path(place.uri).stem


def _moment(place: Any) -> str:
    return _name(place).rpartition("_")[2]


def say(events: str, line: str) -> None:
    """Tell the test an event."""
    with open(events, "a") as pipe:
        pipe.write(f"{line}\n")


def stop(events: str, line: str) -> None:
    """Tell the test an event, and go no further."""
    say(events, line)
    threading.Event().wait()
