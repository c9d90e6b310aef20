"""A straggler is overtaken: on a standalone cluster, because Spark does not speculate on the host of the original.

Linux answers on all of 127.0.0.0/8, so two workers with hosts of their own need no set-up.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pyspark
import pytest

from lance_io.spark import cleanup_job, register
from tests.spark.chaotic import ChaoticSource
from tests.spark.sessions import Sessions, spark_environment, spark_session

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2")]

DEPLOY = "org.apache.spark.deploy"
TASKS = 4


@contextmanager
def spark_process(folder: Path, *arguments: str) -> Iterator[Path]:
    """A process of the cluster, ended by its id; gives the file of what it says."""
    environment = {**os.environ, **spark_environment(folder), "SPARK_LOG_DIR": str(folder)}
    environment |= {"SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_DIRS": str(folder / "local")}
    environment.pop("SPARK_LOCAL_IP")
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), *arguments]
    said = folder / f"{arguments[0].rpartition('.')[2]}-{len(list(folder.iterdir()))}.log"
    with said.open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield said
        finally:
            process.terminate()
            process.wait()


def address(said: Path) -> str:
    """Where the cluster's master listens, once it does: on a port that it chose itself."""
    for _ in range(1200):
        if found := re.search(r"Starting Spark master at (spark://\S+)\n", said.read_text()):
            return found[1]
        time.sleep(0.1)
    raise TimeoutError(f"the cluster's master did not come up:\n{said.read_text()}")


def test_a_straggler_is_overtaken(sessions: Sessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions.stop()
    monkeypatch.chdir(tmp_path)
    path = str(tmp_path / "t.lance")
    settings = {
        "spark__executor__memory": "512m",
        "spark__executor__cores": "1",
        "spark__speculation": "true",
        "spark__speculation__interval": "200ms",
        "spark__speculation__quantile": "0.3",
        "spark__speculation__multiplier": "1.2",
    }
    with ExitStack() as stack:
        at = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        master = address(stack.enter_context(spark_process(tmp_path, f"{DEPLOY}.master.Master", *at)))
        for host in ("127.0.0.2", "127.0.0.3"):
            own = ["--host", host, "--cores", "1", "--memory", "600m", "--webui-port", "0", "-d", str(tmp_path / host)]
            stack.enter_context(spark_process(tmp_path, f"{DEPLOY}.worker.Worker", *own, master))
        spark = stack.enter_context(spark_session(tmp_path, master, **settings))
        spark.sparkContext.addPyFile(str(Path(__file__).with_name("chaotic.py")))
        register(spark)
        spark.dataSource.register(ChaoticSource)
        rows = spark.range(0, 40_000, 1, TASKS)
        lance.write_dataset(pa.table({"id": range(-10, 0)}), path)
        slow = {"chaos": "slow", "chaos_once": str(tmp_path / "once"), "job_id": "night"}
        rows.write.format("chaotic").mode("append").options(**slow).save(path)
    assert (tmp_path / "once").exists()
    table = lance.dataset(path)
    assert table.version == 2
    assert sorted(table.to_table()["id"].to_pylist()) == list(range(-10, 40_000))
    assert len(table.get_fragments()) == 1 + TASKS
    cleanup_job(path, "night")
    assert sorted(table.to_table()["id"].to_pylist()) == list(range(-10, 40_000))
    assert len(list(Path(path, "data").iterdir())) == 1 + TASKS
