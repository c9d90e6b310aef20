"""Spark on tables in Google Cloud Storage and in Azure: what it writes we read, and the other way round."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lance_io

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # the first query starts a virtual machine and several Pythons


@pytest.fixture(params=["gcs", "azure"])
def place(request: pytest.FixtureRequest) -> tuple[str, dict[str, str]]:
    """A fresh URI, and the storage options to go with it."""
    server = request.getfixturevalue(request.param)
    root = f"gs://{server.bucket}" if request.param == "gcs" else f"az://{server.container}"
    return f"{root}/test-{uuid.uuid4().hex}/t.lance", server.options()


def test_a_table_is_written_and_read(spark: SparkSession, place: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    uri, options = place
    storage = {f"storage.{name}": text for name, text in options.items()}
    written = spark.range(1000).selectExpr("id", "concat('row ', id) AS text").repartition(3)
    written.write.format("lance_io").options(**storage).mode("append").save(uri)
    table = lance_io.dataset(uri, storage_options=options)
    assert len(table.get_fragments()) == 3
    expected = [{"id": number, "text": f"row {number}"} for number in range(1000)]
    assert table.to_table().sort_by("id").to_pylist() == expected

    lance_io.write_dataset(pa.table({"id": [1000], "text": ["ours"]}), uri, mode="append", storage_options=options)
    found = spark.read.format("lance_io").options(**storage).load(uri)
    assert [row.asDict() for row in found.orderBy("id").collect()] == [*expected, {"id": 1000, "text": "ours"}]
    assert [row.text for row in found.where("id >= 999").orderBy("id").collect()] == ["row 999", "ours"]

    arriving = tmp_path / "arriving"
    arriving.mkdir()
    pq.write_table(pa.table({"id": range(1001, 1005), "text": ["streamed"] * 4}), arriving / "one.parquet")
    stream = spark.readStream.schema("id LONG, text STRING").parquet(str(arriving)).writeStream.format("lance_io")
    stream = stream.options(**storage, stream_id="one", checkpointLocation=str(tmp_path / "checkpoint"))
    stream.trigger(availableNow=True).start(uri).awaitTermination()
    assert sorted(lance_io.dataset(uri, storage_options=options).to_table()["id"].to_pylist()) == [*range(1005)]
