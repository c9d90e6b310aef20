"""What the PySpark job does: Parquet in, one more column in flight, a Lance table out.

Where the table's bucket is, and who may write to it, is in the environment (`AWS_ENDPOINT_URL` and so on), which the
processes of Spark inherit; so no credential is among the options.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from corpus import WIDTH

COLUMNS = "id LONG, text STRING, vector ARRAY<FLOAT>"
STREAM_ID = "texts"  # what the sink knows this stream by, as long as its checkpoint lives
EXIT_S = 30.0


def with_words(texts: DataFrame) -> DataFrame:
    """The texts, and how many words each has."""
    return texts.selectExpr("*", "size(split(text, ' ')) AS words")


def write_batch(spark: SparkSession, parquet: Path, uri: str) -> None:
    """Write all Parquet files of a folder to a new table: one version, whatever becomes of single tasks."""
    texts = spark.read.parquet(str(parquet))
    (
        with_words(texts)
        .write.format("lance_io")
        .mode("append")
        .option("vector.arrow.fixed-size-list.size", WIDTH)  # vectors rather than lists of any length
        .save(uri)
    )


def start_stream(
    spark: SparkSession, parquet: Path, uri: str, checkpoint: Path, *, columns: str = COLUMNS, **options: str
) -> StreamingQuery:
    """Append every Parquet file that appears in a folder, each in a version of its own and exactly once."""
    increments = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(str(parquet))
    return (
        with_words(increments)
        .writeStream.format("lance_io")
        .option("stream_id", STREAM_ID)
        .option("checkpointLocation", str(checkpoint))
        .options(**options)
        .trigger(processingTime="200 milliseconds")
        .start(uri)
    )


def rows_by_language(spark: SparkSession, uri: str) -> dict[str | None, int]:
    """Read the table with Spark: how many rows there are of each language."""
    found = spark.read.format("lance_io").option("columns", "language").load(uri)
    return {row["language"]: row["count"] for row in found.groupBy("language").count().collect()}


@contextmanager
def spark_session(master: str, folder: Path, log: IO[str]) -> Iterator[SparkSession]:
    """A Spark of our own on 127.0.0.1, whose files are in `folder` and whose words go to `log`."""
    os.environ |= {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
    }
    settings = {
        "spark.app.name": "lance_io pipeline",
        "spark.master": master,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "768m",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)  # none is used here
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    launch: Any = launch_gateway  # which has no types
    gateway = launch(conf, popen_kwargs={"stdout": log, "stderr": log})
    try:
        context = SparkContext(gateway=gateway, conf=conf)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's own asks a JVM that is about to be ended
        yield SparkSession(context)
    finally:
        _end(gateway.proc)


def _end(jvm: subprocess.Popen[bytes]) -> None:
    """End the JVM: it stops Spark, and goes, when nobody is at the other end of its input."""
    assert jvm.stdin is not None
    jvm.stdin.close()
    try:
        jvm.wait(EXIT_S)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()
