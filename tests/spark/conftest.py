"""The Spark session that tests share: local, or a cluster of real executors; and a wide table on MinIO to be read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import lance
import numpy as np
import pyarrow as pa
import pytest

from tests.s3.proxy import CountingProxy
from tests.spark.blows import HoldingProxy
from tests.spark.sessions import Sessions, WideTable
from tests.spark.standalone import standalone_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.servers import S3Server


HERE: Final = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules on the cluster come first, one after the other: each change of the session takes ten seconds and more."""
    mine = [item for item in items if item.path.parent == HERE]
    on_cluster = {item.path for item in mine if "cluster" in getattr(item, "fixturenames", ())}
    ordered = iter(sorted(mine, key=lambda item: item.path not in on_cluster))
    items[:] = [next(ordered) if item.path.parent == HERE else item for item in items]


@pytest.fixture(scope="session")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sessions]:
    """Gives one session at a time, and keeps it until another kind is wanted."""
    with Sessions(tmp_path_factory.mktemp("spark")) as kept:
        yield kept


@pytest.fixture(scope="module")
def spark(sessions: Sessions) -> SparkSession:
    """In local mode, two cores, four attempts a task, with an event log."""
    return sessions.get("local")


@pytest.fixture(scope="module")
def cluster(sessions: Sessions) -> SparkSession:
    """Two executors in processes of their own, one core each, with an event log."""
    return sessions.get("cluster")


@pytest.fixture(scope="module")
def overtaking(sessions: Sessions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two executors on two hosts, one core each; a task that takes longer than others is started twice."""
    sessions.stop()
    with standalone_session(tmp_path_factory.mktemp("standalone")) as session:
        yield session


@pytest.fixture(scope="module")
def holding(s3: S3Server) -> Iterator[HoldingProxy]:
    """Holds an answer of MinIO back."""
    with HoldingProxy(s3.endpoint) as held:
        yield held


@pytest.fixture(scope="module")
def proxy(s3: S3Server) -> Iterator[CountingProxy]:
    """Counts what passes to MinIO."""
    with CountingProxy(s3.endpoint) as counting:
        yield counting


@pytest.fixture(scope="module")
def storage(s3: S3Server, proxy: CountingProxy) -> dict[str, str]:
    """Options of Spark for MinIO by way of the proxy."""
    return {f"storage.{name}": text for name, text in s3.options(aws_endpoint=proxy.endpoint).items()}


@pytest.fixture(scope="session")
def wide(s3: S3Server) -> WideTable:
    """24 MiB of vectors and 0.2 MB of numbers in twelve fragments."""
    table = WideTable(f"s3://{s3.bucket}/test-spark-wide/t.lance", num_rows=24_000, dimension=256, file_rows=2_000)
    values = np.random.default_rng(7).random(table.num_rows * table.dimension, dtype=np.float32)
    rows = pa.table(
        {"id": np.arange(table.num_rows), "v": pa.FixedSizeListArray.from_arrays(pa.array(values), table.dimension)}
    )
    lance.write_dataset(
        rows, table.uri, storage_options=s3.options(), mode="overwrite", max_rows_per_file=table.file_rows
    )
    return table
