"""`format("probed")`: our source, whose tasks tell what their process is like when they end.

The option `probes` names a folder; every task writes a line of JSON there. With `warm=true` a task that reads has read
a batch before, so that its process has loaded all that it needs. Workers import this module by name.

    pid, task     the worker, and which of its tasks this was, counted from 0
    sessions      addresses of the sessions of the process (one), likewise `loops`, `clients`
    clients_before  those that the process had when the task began
    engines       threads of the engine
    reads         requests of this task
    frozen        objects that the garbage collector does not look at
    workers       tasks that share the executor
    pool_bytes    what its scans may hold together
    hidden        names of options that the session hides
    delays        of each TCP connection whether it may hold back what the process writes
    grown         bytes by which the process had grown at most while the task ran
"""

from __future__ import annotations

import gc
import json
import os
import socket
import stat
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lance_io.spark.options import parse_options
from lance_io.spark.read.reader import LanceReader
from lance_io.spark.source import LanceDataSource
from lance_io.spark.task_context import executor_workers, property_of_task
from lance_io.spark.write.writer import LanceWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

_tasks = 0


class ProbedSource(LanceDataSource):
    """See the module."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.kept = dict(self.options.items())
        self.probes = self.kept.pop("probes", "")
        self.is_warm = self.kept.pop("warm", "") == "true"

    @classmethod
    def name(cls) -> str:
        return "probed"

    @property
    def _given(self) -> dict[str, str]:
        return self.kept

    def reader(self, schema: Any) -> Any:
        reader = ProbedReader(parse_options(self._given, "read"), schema, self._version)
        reader.probes, reader.is_warm = self.probes, self.is_warm
        return reader

    def writer(self, schema: Any, overwrite: bool) -> Any:
        writer = ProbedWriter(parse_options(self._given, "write"), schema, overwrite)
        writer.probes = self.probes
        return writer


class ProbedReader(LanceReader):
    probes = ""
    is_warm = False

    def read(self, partition: Any) -> Iterator[Any]:
        if self.is_warm:
            batches: Any = super().read(partition)
            next(batches)
            batches.close()
        with probed(self.probes):
            yield from super().read(partition)


class ProbedWriter(LanceWriter):
    probes = ""

    def write(self, iterator: Iterator[Any]) -> Any:
        with probed(self.probes):
            return super().write(iterator)


@contextmanager
def probed(folder: str) -> Iterator[None]:
    """Write down what the process is like when the block has ended."""
    global _tasks
    from lance_io import runtime
    from lance_io.dataset.distributed.table_place import process_session
    from lance_io.io.budget import process_pool
    from lance_io.io.stats import process_stats

    clients_before = _clients()
    Path("/proc/self/clear_refs").write_text("5")  # from here on a new highest resident size counts
    before = _status_bytes("VmRSS")
    reads_before = process_stats().num_reads
    yield
    frozen = gc.get_freeze_count()
    told = {
        "pid": os.getpid(),
        "task": _tasks,
        "sessions": [id(process_session())],
        "loops": [id(runtime.engine_loop())],
        "clients_before": clients_before,
        "clients": _clients(),
        "engines": [thread.name for thread in threading.enumerate() if thread.name == "lance_io-engine"],
        "frozen": frozen,
        "cpus": runtime.cpu_count(),
        "workers": executor_workers(),
        "pool_bytes": process_pool().capacity_bytes,
        "hidden": property_of_task("spark.redaction.regex"),
        "delays": _delays(),
        "reads": process_stats().num_reads - reads_before,
        "grown": _status_bytes("VmHWM") - before,
    }
    _tasks += 1
    Path(folder, f"{uuid4().hex}.json").write_text(json.dumps(told))


def _clients() -> list[int]:
    """Addresses of the pools of connections of this process, whoever holds them."""
    frozen = gc.get_freeze_count()
    gc.unfreeze()  # or they would not be found
    gc.collect()  # what was frozen and has died since does not count
    found = sorted(id(one) for one in gc.get_objects() if type(one).__name__ == "OriginPool")
    if frozen:
        gc.freeze()
    return found


def _delays() -> list[bool]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the listing's own descriptor is closed, and not every socket is a connection
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as one:
                    found.append(not one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
    return found


def _status_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def probes(folder: Path) -> list[dict[str, Any]]:
    """What all tasks have told, by process and in its order."""
    told = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    return sorted(told, key=lambda one: (one["pid"], one["task"]))
