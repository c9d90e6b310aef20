"""The PySpark job, in SQL but for its streams: a table from Parquet files, merged corrections, an index, a compaction.

The bucket's address and credentials are in the environment (`AWS_ENDPOINT_URL` and so on), which Spark's processes
inherit. So no option has credentials.
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

import lance_io.spark

CREATE = """
CREATE TABLE lance.texts TBLPROPERTIES ('vector.arrow.fixed-size-list.size' = '128') AS
  SELECT *, size(split(text, ' ')) AS words FROM parquet.`{folder}`"""
INDEX = "CALL lance.system.create_index('texts', 'id', 'BTREE')"
MERGE = """
MERGE INTO lance.texts t
  USING (SELECT *, size(split(text, ' ')) AS words FROM parquet.`{folder}`) s ON t.id = s.id
  WHEN MATCHED THEN UPDATE SET text = s.text, words = s.words
  WHEN NOT MATCHED THEN INSERT *"""
COMPACT = "CALL lance.system.compact('texts')"
OPTIMIZE = "CALL lance.system.optimize_indices('texts')"
COUNT = "SELECT language, count(*) AS rows FROM lance.texts GROUP BY language"
COLUMNS = "id LONG, text STRING, vector ARRAY<FLOAT>"
STREAM_ID = "texts"  # identifies this stream in the sink, as long as its checkpoint exists
EXIT_S = 30.0


def with_words(texts: DataFrame) -> DataFrame:
    """The texts, with the number of words of each."""
    return texts.selectExpr("*", "size(split(text, ' ')) AS words")


def use_catalog(spark: SparkSession, folder: str) -> None:
    """Give the session a catalog of the tables in a folder: the table `texts` is `lance.texts`."""
    lance_io.spark.enable(spark, catalog="lance", path=folder)


def run(spark: SparkSession, statement: str, folder: Path | None = None) -> dict[str, Any]:
    """Run a statement on Parquet files of a folder; returns the row of a procedure."""
    rows = spark.sql(statement.format(folder=folder)).collect()
    return rows[0].asDict() if rows else {}


def start_stream(
    spark: SparkSession, parquet: Path, uri: str, checkpoint: Path, *, columns: str = COLUMNS, **options: str
) -> StreamingQuery:
    """Append every Parquet file that appears in a folder, each as a separate version and exactly once."""
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


def rows_by_language(spark: SparkSession) -> dict[str | None, int]:
    """Count the rows of each language."""
    return {row["language"]: row["rows"] for row in spark.sql(COUNT).collect()}


@contextmanager
def spark_session(master: str, folder: Path, log: IO[str]) -> Iterator[SparkSession]:
    """A Spark session on 127.0.0.1, with its files in `folder` and its output in `log`."""
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
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)  # no pandas here
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    launch: Any = launch_gateway  # has no type hints
    gateway = launch(conf, popen_kwargs={"stdout": log, "stderr": log})
    try:
        context = SparkContext(gateway=gateway, conf=conf)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's handler calls the JVM, which may be ending
        yield SparkSession(context)
    finally:
        _end(gateway.proc)


def _end(jvm: subprocess.Popen[bytes]) -> None:
    """End the JVM: it stops Spark and exits when its standard input is closed."""
    assert jvm.stdin is not None
    jvm.stdin.close()
    try:
        jvm.wait(EXIT_S)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()
