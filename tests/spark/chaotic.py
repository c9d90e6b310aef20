"""A data source whose processes die where a test says so. Workers import it by name, so it travels by reference.

`chaos` names what happens, `chaos_once` a file that is made when it has happened: it happens once.

    raise           a task raises after its rows were written
    kill            a task's Python worker is killed after it has taken a batch
    executor        the JVM that a task runs under is killed
    slow            a task takes two minutes
    commit_before   the process that commits dies before it has published
    commit_after    it dies when it has published
    commit_waits    it waits until there is a file of that name that ends in `.over`
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lance_io.spark.source import LanceDataSource
from lance_io.spark.stream.stream_sink import LanceStreamWriter
from lance_io.spark.write.writer import LanceWriter

if TYPE_CHECKING:
    from collections.abc import Iterator


class ChaoticSource(LanceDataSource):
    """`format("chaotic")`."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        given = dict(self.options.items())
        self.chaos = given.pop("chaos", "")
        self.once = given.pop("chaos_once", "")
        self.kept = given

    @classmethod
    def name(cls) -> str:
        return "chaotic"

    @property
    def _given(self) -> dict[str, str]:
        return self.kept

    def writer(self, schema: Any, overwrite: bool) -> Any:
        from lance_io.spark.options import parse_options

        return _marked(ChaoticWriter(parse_options(self._given, "write"), schema, overwrite), self)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from lance_io.spark.options import parse_options

        return _marked(ChaoticStreamWriter(parse_options(self._given, "stream_write"), schema, overwrite), self)


def _marked(writer: Any, source: ChaoticSource) -> Any:
    writer.chaos, writer.once = source.chaos, source.once
    return writer


class _Chaos:
    chaos = once = ""

    def strikes(self, what: str) -> bool:
        """Whether it is the time for `what`; once only, in all processes."""
        if self.chaos != what:
            return False
        try:
            Path(self.once).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def struck(self, batches: Iterator[Any]) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            yield batch
            if number == 0 and self.strikes("kill"):
                os.kill(os.getpid(), signal.SIGKILL)
            if number == 0 and self.strikes("executor"):
                os.kill(_jvm(), signal.SIGKILL)
            if number == 0 and self.strikes("slow"):
                time.sleep(120)

    def finished(self, message: Any) -> Any:
        if self.strikes("raise"):
            raise RuntimeError("a task that fails once")
        return message

    def wait(self) -> None:
        over = Path(self.once).with_suffix(".over")
        if self.strikes("commit_waits"):
            while not over.exists():
                time.sleep(0.05)

    def die(self, what: str) -> None:
        if self.strikes(what):
            os._exit(1)


def _jvm() -> int:
    """The executor's process: the daemon that forked this worker is its child."""
    pid = os.getpid()
    while True:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if "CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_text():
            return pid


class ChaoticWriter(_Chaos, LanceWriter):
    def write(self, iterator: Iterator[Any]) -> Any:
        return self.finished(super().write(self.struck(iterator)))

    def commit(self, messages: Any) -> None:
        self.die("commit_before")
        self.wait()
        super().commit(messages)
        self.die("commit_after")


class ChaoticStreamWriter(_Chaos, LanceStreamWriter):
    def write(self, iterator: Iterator[Any]) -> Any:
        return self.finished(super().write(self.struck(iterator)))

    def commit(self, messages: Any, batchId: int) -> None:
        self.die("commit_before")
        super().commit(messages, batchId)
        self.die("commit_after")
