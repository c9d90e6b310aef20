"""A pipeline: Parquet files -> PySpark -> a Lance table in a bucket -> an HTTP service, all of it at once.

    make pipeline                                       or
    python examples/pipeline --rows 200000              more rows
    python examples/pipeline --master 'local-cluster[2,1,768]'      executors in separate processes

It starts a MinIO server, and SQL makes a table there of the texts of Parquet files, with an index of their ids. Then a
service opens the table and answers sixteen callers by id, while further files arrive and a stream appends each of them
exactly once; the last file adds a column. SQL merges corrections and new texts, compacts the table, and brings the
index up to date, of which the callers notice nothing. The exit code is 0 if the table has every row once and as it was
sent, and all answers were right; otherwise 1.

    corpus      the texts                      callers     the clients of the service
    ingest      the Spark job                  verify      checks the rows of the table
    service     the HTTP service               report      the output
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
INCREMENTS = 3  # files that arrive while the service runs, before the one with a new column
LOG_LINES = 30

SERVE_CODE = """\
table = await lance_io.AsyncDataset.open(uri)
await table.get("id", [row_id], columns=["id", "text", "words"])"""
STREAM_CODE = """\
columns = "id LONG, text STRING, vector ARRAY<FLOAT>"
texts = spark.readStream.schema(columns).parquet("arriving/")
texts = texts.selectExpr("*", "size(split(text, ' ')) AS words")
(texts.writeStream.format("lance_io").option("stream_id", "texts")
    .option("checkpointLocation", checkpoint).start(uri))"""
NEW_COLUMN_CODE = """\
columns = "id LONG, text STRING, vector ARRAY<FLOAT>, language STRING"
(texts.writeStream.format("lance_io").option("stream_id", "texts")
    .option("checkpointLocation", checkpoint)
    .option("mergeSchema", True).start(uri))"""


class Pipeline:
    """A run of the pipeline; `sent` has the rows given to Spark."""

    def __init__(self, story: Story, spark: SparkSession, uri: str, folder: Path, log: IO[str]) -> None:
        self.story = story
        self.spark = spark
        self.uri = uri
        self.folder = folder
        self.log = log
        self.sent: list[pa.Table] = []
        self.corrections: pa.Table | None = None

    @property
    def num_sent(self) -> int:
        """The number of rows given to Spark so far."""
        return sum(table.num_rows for table in self.sent)

    def run(self, num_rows: int) -> list[str]:
        """Run all steps; returns the problems of the table and the answers."""
        self.write_batch(num_rows)
        with running_service(self.uri, self.log) as service:
            self.story.title(f"A service opens the table, and {CALLERS} callers send requests from now on", SERVE_CODE)
            self.story.answer_of(service, f"/rows/{num_rows // 3}")
            with Callers(service.url, CALLERS) as callers:
                self.append_increments(service, callers, num_rows // 10)
                self.merge_corrections(service, callers, num_rows // 10)
                self.maintain(service, callers)
                problems = self.read_back()
        self.story.summary(callers, CALLERS)
        return problems + callers.problems()

    def make(self, num_rows: int, folder: Path, name: str, *, with_language: bool = False) -> None:
        """Write the next rows as a Parquet file to a folder."""
        ids = range(self.num_sent, self.num_sent + num_rows)
        self.sent.append(corpus.make_rows(ids, with_language=with_language))
        corpus.write_parquet(self.sent[-1], folder, f"{name}.parquet")

    def write_batch(self, num_rows: int) -> None:
        """Write some Parquet files to a new table."""
        texts = self.folder / "texts"
        texts.mkdir()
        for number in range(FILES):
            self.make(num_rows * (number + 1) // FILES - num_rows * number // FILES, texts, str(number))
        about = f"{num_rows:,} texts with {corpus.WIDTH} floats each, in {FILES} Parquet files"
        self.story.title(about, _shown(ingest.CREATE, texts))
        started = time.perf_counter()
        ingest.use_catalog(self.spark, self.uri.rpartition("/")[0])
        with self.story.waiting("Spark writes the table"):
            ingest.run(self.spark, ingest.CREATE, texts)
        self.story.answer(self.uri, time.perf_counter() - started)
        self.story.increment("new table", self.uri)
        self.run_call("An index of the ids, which the service asks", ingest.INDEX)

    def append_increments(self, service: Service, callers: Callers, num_rows: int) -> None:
        """Add files that a stream appends; the last one has one more column."""
        self.story.title(f"{INCREMENTS} files arrive, with {num_rows:,} texts each", STREAM_CODE)
        arriving, checkpoint = self.folder / "arriving", self.folder / "checkpoint"
        arriving.mkdir()
        query = ingest.start_stream(self.spark, arriving, self.uri, checkpoint)
        for number in range(1, INCREMENTS + 1):
            self.make(num_rows, arriving, str(number))
            with self.story.waiting("the stream appends"):
                query.processAllAvailable()
            self.story.increment(f"file {number}", self.uri, service, callers)
        query.stop()

        self.story.title("One more file, with the language of its texts", NEW_COLUMN_CODE)
        self.make(num_rows, arriving, "last", with_language=True)
        columns = f"{ingest.COLUMNS}, language STRING"
        query = ingest.start_stream(self.spark, arriving, self.uri, checkpoint, columns=columns, mergeSchema="true")
        with self.story.waiting("the stream adds the column and appends"):
            query.processAllAvailable()
        self.story.increment("a new column", self.uri, service, callers)
        query.stop()
        self.story.answer_of(service, f"/rows/{self.num_sent - 1}")

    def merge_corrections(self, service: Service, callers: Callers, num_rows: int) -> None:
        """Merge new texts of rows that are there, and rows that are not."""
        folder = self.folder / "corrections"
        folder.mkdir()
        known = pa.concat_tables(self.sent, promote_options="default")
        corrections = corpus.corrected(known)
        self.make(num_rows, folder, "new", with_language=True)
        corpus.write_parquet(corrections.cast(self.sent[-1].schema), folder, "corrected.parquet")
        about = f"{corrections.num_rows:,} corrections, and {num_rows:,} more texts"
        self.story.title(about, _shown(ingest.MERGE, folder))
        with self.story.waiting("Spark merges"):
            ingest.run(self.spark, ingest.MERGE, folder)
        self.corrections = corrections
        self.story.increment("merge", self.uri, service, callers)
        self.story.answer_of(service, f"/rows/{corrections['id'][0].as_py()}")

    def maintain(self, service: Service, callers: Callers) -> None:
        """Compact the table, and bring its index up to date."""
        self.run_call("Fewer and larger files", ingest.COMPACT)
        self.story.increment("compaction", self.uri, service, callers)
        self.run_call("The index covers all rows again", ingest.OPTIMIZE)
        self.story.increment("index", self.uri, service, callers)

    def run_call(self, title: str, call: str) -> None:
        """Call a procedure, and print its row."""
        self.story.title(title, call)
        started = time.perf_counter()
        with self.story.waiting("Spark calls"):
            row = ingest.run(self.spark, call)
        self.story.answer(", ".join(f"{name} {value}" for name, value in row.items()), time.perf_counter() - started)

    def read_back(self) -> list[str]:
        """Compare the rows that Spark and lance_io read with the sent rows; returns the problems."""
        self.story.title("Spark reads the table", ingest.COUNT)
        started = time.perf_counter()
        with self.story.waiting("Spark counts"):
            counts = ingest.rows_by_language(self.spark)
        shown = ", ".join(f"{rows:,} {language or 'unknown'}" for language, rows in counts.items())
        self.story.answer(shown, time.perf_counter() - started)
        expected = expected_table(self.sent, self.corrections)
        problems = differences(lance_io.dataset(self.uri).to_table(), expected)
        sent = {entry["values"]: entry["counts"] for entry in expected["language"].value_counts().to_pylist()}
        if counts != sent:
            problems.append(f"Spark counted {counts}, but {sent} were sent")
        return problems


def _shown(statement: str, folder: Path) -> str:
    """A statement as the story prints it, with a short path."""
    return statement.strip().format(folder=f"{folder.name}/")


def run(options: argparse.Namespace, story: Story, folder: Path) -> int:
    """Run the pipeline; returns the exit code. If it raises, the last log lines of all processes are printed."""
    with (folder / "log").open("w") as log:
        logging.basicConfig(stream=log)  # logs of libraries, beside the output of Spark and the service
        try:
            problems = run_in(folder, log, options, story)
        except Exception:
            story.log((folder / "log").read_text(errors="replace").splitlines()[-LOG_LINES:])
            raise
    return 1 if problems else 0


def run_in(folder: Path, log: IO[str], options: argparse.Namespace, story: Story) -> list[str]:
    """Start all processes, run the pipeline, end them; returns the problems."""
    with ExitStack() as stack:
        started = time.perf_counter()
        with story.waiting("MinIO and Spark start"):
            endpoint, bucket_uri = stack.enter_context(bucket())
            spark = stack.enter_context(ingest.spark_session(options.master, folder, log))
        story.title("Parquet files -> PySpark -> a Lance table in a bucket -> an HTTP service")
        story.answer(f"MinIO at {endpoint}, Spark {spark_version} on {options.master}", time.perf_counter() - started)
        uri = f"{bucket_uri}/pipeline-{uuid.uuid4().hex[:8]}/texts.lance"
        pipeline = Pipeline(story, spark, uri, folder, log)
        problems = pipeline.run(options.rows)
        story.verdict(problems, pipeline.num_sent)
    return problems


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="examples/pipeline", description="Parquet -> PySpark -> Lance -> HTTP.")
    parser.add_argument("--rows", type=int, default=20_000, help="rows of the batch write (default: 20000)")
    parser.add_argument("--master", default="local[2,4]", help="Spark's master (default: local[2,4], two local cores)")
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
