"""A Spark session in a process of its own, which runs one query at a time and tells how long it took.

    python -m benchmarks.sparkjobs CORES FOLDER SOCKETS SOURCE

Reads queries as lines of JSON from its input and answers each by a line; ends at the end of its input.

    {"read": FORMAT, "options": {..}, "columns": [..], "filter": SQL}            into Spark's sink that drops rows
    {"read": .., "check": true}                                                   answers rows and a checksum instead
    {"sql": TEXT, "views": {NAME: {"read": FORMAT, ..}}}                          SQL over views, which are made once
    {"read": .., "write": FORMAT, "to": PATH, "write_options": {..}}              from one format into another
    {"statement": TEXT}                                                           SQL that changes a table

SOURCE is `python` or `jar`: which of our sources is `format("lance_io")`. With the JAR, `bench` is a catalog whose
tables are named by their paths.

`SparkProcess` is the other side: it starts such a process and asks it. Two of them, with other numbers of cores or
other sockets, can take turns.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from benchmarks.cases import ROOT
from benchmarks.measure import Sample

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.tables import Tables

Query = dict[str, Any]
Sockets: TypeAlias = Literal["tcp", "unix"]  # between Spark and its workers
Source: TypeAlias = Literal["python", "jar"]
JAR_SETTINGS: Final = {"spark.sql.sources.partitionOverwriteMode": "dynamic"}


class SparkSessions:
    """Sessions with the JAR, at most those of one case at a time: each holds up to two gigabytes."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._running: dict[int, SparkProcess] = {}

    def __call__(self, *cores: int) -> list[SparkProcess]:
        """A session for each number of cores, started if it does not run; all others end."""
        for other in self._running.keys() - {*cores}:
            self._running.pop(other).close()
        for each in cores:
            if each not in self._running:
                self._running[each] = SparkProcess(each, self._tables.new_folder(), "tcp", "jar")
        return [self._running[each] for each in cores]


class SparkProcess:
    """A session with so many cores. Close it, or let the end of this process do so."""

    def __init__(self, cores: int, folder: Path, sockets: Sockets, source: Source = "python") -> None:
        self._log = folder / "spark.log"
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        command = [sys.executable, "-m", "benchmarks.sparkjobs", str(cores), str(folder), sockets, source]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        atexit.register(self.close)

    def ask(self, query: Query) -> dict[str, Any]:
        """Run a query. Raises `RuntimeError` with what Spark has said when it fails."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(query) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(f"Spark (which needs Java 17 or newer) has failed:\n{self._log.read_text()[-4000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def sample(self, query: Query) -> Sample:
        """Run a query for its time, and for the processor time of Spark and of its Python workers."""
        answer = self.ask(query)
        return Sample(answer["wall_s"], answer["cpu_s"])

    def close(self) -> None:
        """End the process and the virtual machine below it."""
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(60)


# -- inside of that process ------------------------------------------------------------------------------------------


def start(cores: int, folder: Path, sockets: str, source: str) -> SparkSession:
    """The session."""
    from pyspark.sql import SparkSession

    from benchmarks.sparksource import ReadySource
    from lance_io.spark import configure, register

    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.log.level": "ERROR",
        "spark.python.unix.domain.socket.enabled": str(sockets == "unix").lower(),
    }
    builder = SparkSession.builder.master(f"local[{cores}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    if source == "jar":
        for name, value in JAR_SETTINGS.items():
            builder = builder.config(name, value)
        builder = builder.config("spark.sql.shuffle.partitions", cores)
        builder = configure(builder, catalog="bench", path=str(folder / "bench"), storage={"durability": "none"})
    spark = builder.getOrCreate()
    if source == "python":
        register(spark)
    spark.dataSource.register(ReadySource)
    return spark


def rows(spark: SparkSession, query: Query) -> DataFrame:
    """The rows of a query."""
    if "sql" in query:
        for name, source in query.get("views", {}).items():
            _make_view(spark, name, json.dumps(source))
        return spark.sql(query["sql"])
    frame = spark.read.format(query["read"]).options(**query.get("options", {})).load(query["path"])
    if query.get("filter"):
        frame = frame.where(query["filter"])
    return frame.select(query["columns"]) if query.get("columns") else frame


@cache
def _make_view(spark: SparkSession, name: str, source: str) -> None:
    rows(spark, json.loads(source)).createOrReplaceTempView(name)


def answered(spark: SparkSession, query: Query) -> dict[str, Any]:
    """Run a query."""
    if query.get("check"):
        frame = rows(spark, query)
        names = ", ".join(f"`{name}`" for name in sorted(frame.columns))
        (found,) = frame.selectExpr(f"xxhash64({names}) h").selectExpr("count(*) n", "bit_xor(h) x").collect()
        return {"rows": found["n"], "checksum": found["x"]}
    cpu_before = tree_cpu_s(os.getpid())
    started = time.perf_counter()
    if "statement" in query:
        spark.sql(query["statement"]).collect()
    elif "write" in query:
        options = query.get("write_options", {})
        rows(spark, query).write.format(query["write"]).options(**options).mode("append").save(query["to"])
    else:
        rows(spark, query).write.format("noop").mode("overwrite").save()
    wall_s = time.perf_counter() - started
    return {"wall_s": wall_s, "cpu_s": tree_cpu_s(os.getpid()) - cpu_before}


def tree_cpu_s(root: int) -> float:
    """Processor seconds of a process and all below it, the ended ones that somebody has waited for included.

    0.0 where there is no /proc.
    """
    parents: dict[int, tuple[int, float]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # has ended meanwhile
            continue
        parents[int(stat.parent.name)] = int(fields[1]), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return sum(cpu_s for pid, (_, cpu_s) in parents.items() if _is_below(pid, root, parents))


def _is_below(pid: int, root: int, parents: dict[int, tuple[int, float]]) -> bool:
    while pid != root and pid in parents:
        pid = parents[pid][0]
    return pid == root


def main(cores: int, folder: Path, sockets: str, source: str) -> None:
    """Answer until there is no more input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Spark prints goes with its log
    spark = start(cores, folder, sockets, source)
    for line in sys.stdin:
        print(json.dumps(answered(spark, json.loads(line))), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:5])
