"""A standalone cluster of two hosts, because Spark does not speculate on the host of the original.

Linux answers on all of 127.0.0.0/8, so two workers with hosts of their own need no set-up.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark
import pytest

from lance_io.spark.sessions import JAR
from tests.spark.sessions import spark_environment, spark_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

DEPLOY: Final = "org.apache.spark.deploy"
HOSTS: Final = ("127.0.0.2", "127.0.0.3")
SETTINGS: Final = {
    "spark__executor__memory": "512m",
    "spark__executor__cores": "1",
    "spark__jars": str(JAR),
    "spark__speculation": "true",
    "spark__speculation__interval": "200ms",
    "spark__speculation__quantile": "0.3",
    "spark__speculation__multiplier": "1.2",
}


@contextmanager
def standalone_session(folder: Path, **more: str) -> Iterator[SparkSession]:
    """A session on two executors on two hosts, one core each; a task that takes longer than others is started twice."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.chdir(folder)
        at = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        master = _address(stack.enter_context(_spark_process(folder, f"{DEPLOY}.master.Master", *at)))
        for host in HOSTS:
            own = ["--host", host, "--cores", "1", "--memory", "600m", "--webui-port", "0", "-d", str(folder / host)]
            stack.enter_context(_spark_process(folder, f"{DEPLOY}.worker.Worker", *own, master))
        yield stack.enter_context(spark_session(folder, master, **SETTINGS, **more))


@contextmanager
def _spark_process(folder: Path, *arguments: str) -> Iterator[Path]:
    """A process of the cluster, ended by its id; gives the file of its output."""
    environment = {**os.environ, **spark_environment(folder), "SPARK_LOG_DIR": str(folder)}
    environment |= {"SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_DIRS": str(folder / "local")}
    environment.pop("SPARK_LOCAL_IP")
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), *arguments]
    output = folder / f"{arguments[0].rpartition('.')[2]}-{len(list(folder.iterdir()))}.log"
    with output.open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield output
        finally:
            process.terminate()
            process.wait()


def _address(output: Path) -> str:
    """Where the cluster's master listens, once it does: on a port that it chose itself."""
    for _ in range(1200):
        if match := re.search(r"Starting Spark master at (spark://\S+)\n", output.read_text()):
            return match[1]
        time.sleep(0.1)
    raise TimeoutError(f"the cluster's master did not come up:\n{output.read_text()}")
