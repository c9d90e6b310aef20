"""A pipeline: Parquet files -> PySpark -> a Lance table in a bucket -> an HTTP service, all of it at once.

    make pipeline                                       or
    python examples/pipeline --rows 200000              more rows
    python examples/pipeline --master 'local-cluster[2,1,768]'      executors in processes of their own

A PySpark job writes the texts of Parquet files to a new table on a MinIO server, which is started for it. Then a
service opens the table and answers sixteen callers, while further files arrive and a stream appends each of them,
exactly once; the last one brings a new column. In the end every row must be there once, as it was sent, and every
answer must have been right; otherwise the exit code is 1.

    corpus      the texts                      callers     who asks the service
    ingest      what Spark does                verify      is every row there, once?
    service     the HTTP service               report      what is printed
    backstage   starts MinIO and the service
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import pyarrow as pa
from pyspark import __version__ as spark_version
from pyspark.sql import SparkSession
from rich.console import Console

import corpus
import ingest
import lance_io
from backstage import Service, bucket, keep_interrupts, running_service
from callers import Callers
from report import Story
from verify import differences, expected_table

CALLERS = 16
FILES = 4  # of the batch write
INCREMENTS = 3  # files that arrive while the service runs, and one more with a new column
LOG_LINES = 30

WRITE_CODE = """\
texts = spark.read.parquet("texts/")
texts = texts.selectExpr("*", "size(split(text, ' ')) AS words")
(texts.write.format("lance_io").mode("append")
    .option("vector.arrow.fixed-size-list.size", 128).save(uri))"""
SERVE_CODE = """\
table = await lance_io.AsyncDataset.open(uri)
await table.take([position], columns=["id", "text", "words"])"""
STREAM_CODE = """\
columns = "id LONG, text STRING, vector ARRAY<FLOAT>"
texts = spark.readStream.schema(columns).parquet("arriving/")
texts = texts.selectExpr("*", "size(split(text, ' ')) AS words")
(texts.writeStream.format("lance_io").option("stream_id", "texts")
    .option("checkpointLocation", place).start(uri))"""
MERGE_CODE = """\
columns = "id LONG, text STRING, vector ARRAY<FLOAT>, language STRING"
(texts.writeStream.format("lance_io").option("stream_id", "texts")
    .option("checkpointLocation", place)
    .option("mergeSchema", True).start(uri))"""
READ_CODE = """\
texts = spark.read.format("lance_io").option("columns", "language").load(uri)
texts.groupBy("language").count()"""


class Pipeline:
    """The run; `sent` is what went into Spark."""

    def __init__(self, story: Story, spark: SparkSession, uri: str, folder: Path, log: IO[str]) -> None:
        self.story = story
        self.spark = spark
        self.uri = uri
        self.folder = folder
        self.log = log
        self.sent: list[pa.Table] = []

    @property
    def num_sent(self) -> int:
        """How many rows went into Spark so far."""
        return sum(table.num_rows for table in self.sent)

    def run(self, num_rows: int) -> list[str]:
        """All of it; gives what is wrong with the table and the answers."""
        self.write_batch(num_rows)
        with running_service(self.uri, self.log) as service:
            self.story.title(f"A service opens the table, and {CALLERS} callers ask it from now on", SERVE_CODE)
            self.story.answer_of(service, f"/rows/{num_rows // 3}")
            with Callers(service.url, CALLERS) as callers:
                self.append_increments(service, callers, num_rows // 10)
                problems = self.read_back()
        self.story.summary(callers, CALLERS)
        return problems + callers.problems()

    def make(self, num_rows: int, folder: Path, name: str, *, with_language: bool = False) -> None:
        """The next rows, as a Parquet file that arrives in a folder."""
        ids = range(self.num_sent, self.num_sent + num_rows)
        self.sent.append(corpus.make_rows(ids, with_language=with_language))
        corpus.write_parquet(self.sent[-1], folder, f"{name}.parquet")

    def write_batch(self, num_rows: int) -> None:
        """Some Parquet files into a new table."""
        place = self.folder / "texts"
        place.mkdir()
        for number in range(FILES):
            self.make(num_rows * (number + 1) // FILES - num_rows * number // FILES, place, str(number))
        self.story.title(f"{num_rows:,} texts with {corpus.WIDTH} floats each, in {FILES} Parquet files", WRITE_CODE)
        started = time.perf_counter()
        with self.story.waiting("Spark writes the table"):
            ingest.write_batch(self.spark, place, self.uri)
        self.story.answer(self.uri, time.perf_counter() - started)
        self.story.increment("batch write", self.uri)

    def append_increments(self, service: Service, callers: Callers, num_rows: int) -> None:
        """Files arrive, and a stream appends them; the last one has a column more."""
        self.story.title(f"{INCREMENTS} files arrive, with {num_rows:,} texts each", STREAM_CODE)
        place, checkpoint = self.folder / "arriving", self.folder / "checkpoint"
        place.mkdir()
        query = ingest.start_stream(self.spark, place, self.uri, checkpoint)
        for number in range(1, INCREMENTS + 1):
            self.make(num_rows, place, str(number))
            with self.story.waiting("the stream appends"):
                query.processAllAvailable()
            self.story.increment(f"file {number}", self.uri, service, callers)
        query.stop()

        self.story.title("One more, which knows the language of its texts", MERGE_CODE)
        self.make(num_rows, place, "last", with_language=True)
        columns = f"{ingest.COLUMNS}, language STRING"
        query = ingest.start_stream(self.spark, place, self.uri, checkpoint, columns=columns, mergeSchema="true")
        with self.story.waiting("the stream adds the column and appends"):
            query.processAllAvailable()
        self.story.increment("a new column", self.uri, service, callers)
        query.stop()
        self.story.answer_of(service, f"/rows/{self.num_sent - 1}")

    def read_back(self) -> list[str]:
        """What Spark and lance_io read must be what was sent."""
        self.story.title("Spark reads the table", READ_CODE)
        started = time.perf_counter()
        with self.story.waiting("Spark counts"):
            found = ingest.rows_by_language(self.spark, self.uri)
        counted = ", ".join(f"{rows:,} {language or 'unknown'}" for language, rows in found.items())
        self.story.answer(counted, time.perf_counter() - started)
        expected = expected_table(self.sent)
        problems = differences(lance_io.dataset(self.uri).to_table(), expected)
        sent = {entry["values"]: entry["counts"] for entry in expected["language"].value_counts().to_pylist()}
        if found != sent:
            problems.append(f"Spark counted {found}, but {sent} were sent")
        return problems


def run(options: argparse.Namespace, story: Story, folder: Path) -> int:
    """Run the pipeline; gives the exit code. When it fails, the last words of all processes are shown."""
    with (folder / "log").open("w") as log:
        logging.basicConfig(stream=log)  # what libraries have to say, next to the words of Spark and the service
        try:
            problems = run_in(folder, log, options, story)
        except Exception:
            story.log((folder / "log").read_text(errors="replace").splitlines()[-LOG_LINES:])
            raise
    return 1 if problems else 0


def run_in(folder: Path, log: IO[str], options: argparse.Namespace, story: Story) -> list[str]:
    """Start everything, run the pipeline, end everything; gives what is wrong."""
    with ExitStack() as stack:
        started = time.perf_counter()
        with story.waiting("MinIO and Spark start"):
            endpoint, place = stack.enter_context(bucket())
            spark = stack.enter_context(ingest.spark_session(options.master, folder, log))
        story.title("Parquet files -> PySpark -> a Lance table in a bucket -> an HTTP service")
        story.answer(f"MinIO at {endpoint}, Spark {spark_version} on {options.master}", time.perf_counter() - started)
        uri = f"{place}/pipeline-{uuid.uuid4().hex[:8]}/texts.lance"
        pipeline = Pipeline(story, spark, uri, folder, log)
        problems = pipeline.run(options.rows)
        story.verdict(problems, pipeline.num_sent)
    return problems


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="examples/pipeline", description="Parquet -> PySpark -> Lance -> HTTP.")
    parser.add_argument("--rows", type=int, default=20_000, help="rows of the batch write (default: 20000)")
    parser.add_argument("--master", default="local[2,4]", help="where Spark runs (default: two cores of this process)")
    options = parser.parse_args()
    if options.rows < 100:
        parser.error("--rows must be at least 100")
    keep_interrupts()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="lance-io-pipeline-") as folder:
        try:
            return run(options, Story(console), Path(folder))
        except KeyboardInterrupt:
            console.print("\nstopped")
            return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
