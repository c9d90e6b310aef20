"""Spark sessions for tests: everything on 127.0.0.1 and in temporary folders, no user interface, few partitions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

import pyspark
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from lance_io.spark.sessions import JAR

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

Kind: TypeAlias = Literal["local", "cluster"]

HIDDEN: Final = "(?i)secret|password|token|access[.]?key|hidden"  # Spark's default and one more
KINDS: Final[dict[Kind, tuple[str, dict[str, str]]]] = {
    "local": ("local[2,4]", {}),
    "cluster": ("local-cluster[2,1,768]", {"spark__executor__memory": "768m", "spark__redaction__regex": HIDDEN}),
}
JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # short lives: half of the time of a JVM is compiling
# What a failed task leads to: PySpark translates exceptions of planning, and in tasks those of Python.
TASK_ERRORS: Final = (PySparkException, Py4JJavaError)
CHECKOUT = Path(__file__).resolve().parents[2]


def spark_environment(folder: Path) -> dict[str, str]:
    """What the JVM, and through it every worker, finds in its environment."""
    return {
        "JAVA_TOOL_OPTIONS": JAVA_OPTIONS,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(CHECKOUT),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "LANCE_IO_HEDGE_PERCENT": "0",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(folder / "no-such-file"),
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "no-such-file"),
    }


def spark_settings(folder: Path, **more: str) -> dict[str, str]:
    """Settings of a test session; `more` with `__` for dots."""
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.log.level": "OFF",
        **{name.replace("__", "."): value for name, value in more.items()},
    }


@contextmanager
def spark_session(folder: Path, master: str = "local[2,4]", **more: str) -> Iterator[SparkSession]:
    """A session for the time of the block; only one at a time."""
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        for name, value in spark_environment(folder).items():
            patch.setenv(name, value)
        builder = SparkSession.builder.master(master)
        for name, value in spark_settings(folder, **more).items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()


START: Final = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
"""


def run_driver(code: str, folder: Path, *arguments: str, path: Sequence[Path] = (CHECKOUT,), **more: str) -> str:
    """What a driver program of its own prints, which finds a session as `spark`.

    arguments  it finds them from `sys.argv[2]` on
    path       folders on its path, and its workers'
    more       settings, as for `spark_settings`
    """
    settings = spark_settings(folder, **{"spark__master": "local[2]", **more})
    environment = {**os.environ, **spark_environment(folder), "PYTHONPATH": os.pathsep.join(map(str, path))}
    command = [sys.executable, "-c", START + code, json.dumps(settings), *arguments]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Sessions:
    """The session of this process, kept from test to test: starting one, and its first query, take ten seconds.

    Spark has one at a time, so whoever wants another kind ends it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._kind: Kind | None = None
        self._running = ExitStack()
        self._left: list[Path] = []

    def __enter__(self) -> Self:
        (self.folder / "events").mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def get(self, kind: Kind) -> SparkSession:
        """A session of this kind, which finds `lance_io`, `chaotic` and `probed` by name."""
        from pyspark.sql import SparkSession

        if kind != self._kind:
            self.stop()
            self._start(kind)
        spark = SparkSession.getActiveSession()
        assert spark is not None
        return spark

    def stop(self) -> None:
        """End the session, if there is one."""
        self._kind = None
        self._running.close()
        for folder in self._left:
            shutil.rmtree(folder, ignore_errors=True)

    def _start(self, kind: Kind) -> None:
        from lance_io.spark import register
        from tests.spark.chaotic import ChaoticSource
        from tests.spark.probing import ProbedSource

        master, more = KINDS[kind]
        logging = {
            "spark__eventLog__enabled": "true",
            "spark__eventLog__dir": f"file://{self.folder}/events",
            "spark__eventLog__compress": "false",  # tests search it
            "spark__jars": str(JAR),  # also what the virtual machine starts with, where it keeps it
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)  # where the virtual machine makes folders
            spark = self._running.enter_context(spark_session(self.folder, master, **logging, **more))
        register(spark)
        spark.dataSource.register(ChaoticSource)
        spark.dataSource.register(ProbedSource)
        self._kind = kind
        self._left.append(executors_folder(spark))


def release() -> tuple[int, ...]:
    """The release of pyspark: major and minor."""
    return tuple(map(int, pyspark.__version__.split(".")[:2]))


def executors_folder(spark: SparkSession) -> Path:
    """Where the executors of a local cluster leave their logs: inside of the package, whatever one asks for."""
    return Path(pyspark.__file__).parent / "work" / spark.sparkContext.applicationId


@dataclass(frozen=True)
class WideTable:
    """A table of an id and a vector of floats."""

    uri: str
    num_rows: int
    dimension: int
    file_rows: int
