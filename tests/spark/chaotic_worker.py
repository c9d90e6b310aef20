"""Workers behind the JAR that in the middle of a read do what a file in a folder orders.

Executors whose `PYTHONPATH` is `path_of(FOLDER)` start such workers. The files:

    kill      the worker is killed when it has sent the first batch of a task
    executor  the virtual machine of the task is killed
    slow      the task waits until its reader leaves, two minutes at most; then there is a file `released`

The worker that carries an order out removes its file before: it happens once.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lance_io.spark.worker import part_batches
from tests.spark.sessions import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Iterator

ORDERS: Final = ("kill", "executor", "slow")
SLOW_SECONDS: Final = 120.0
SITE: Final = """\
import sys
if "lance_io.spark.worker" in sys.orig_argv:
    from tests.spark import chaotic_worker
    chaotic_worker.install({folder!r})
"""


def path_of(folder: Path) -> str:
    """A path for Python with a module that each process imports first. Those of Spark itself it leaves alone."""
    (folder / "sitecustomize.py").write_text(SITE.format(folder=str(folder)))
    return os.pathsep.join([str(folder), str(CHECKOUT)])


def install(folder: str) -> None:
    """Let this process obey the files of a folder."""
    part_batches._batches = Chaos(Path(folder)).of_task


class Chaos:
    """Carries out the orders of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.batches = part_batches._batches

    def of_task(self, connection: Any, *task: Any) -> Iterator[Any]:
        """The batches of a task; an order is carried out after the first, or after none."""
        with closing(self.batches(connection, *task)) as batches:
            first = next(batches, None)
            if first is not None:
                yield first
            for order in ORDERS:
                if self._takes(order):
                    self._carry_out(order, connection)
            yield from batches

    def _takes(self, order: str) -> bool:
        try:
            (self.folder / order).unlink()
        except FileNotFoundError:
            return False
        return True

    def _carry_out(self, order: str, connection: Any) -> None:
        if order == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if order == "executor":
            jvm = os.getppid()
            assert "CoarseGrainedExecutorBackend" in Path(f"/proc/{jvm}/cmdline").read_text()
            os.kill(jvm, signal.SIGKILL)
        left = threading.Event()
        connection.watch(left.set)
        if left.wait(SLOW_SECONDS):
            (self.folder / "released").touch()
