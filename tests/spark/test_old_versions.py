"""Tables of file versions 2.0 and 0.1: read, written and streamed into; pylance says what is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import types as spark_types

import lance_io
from lance_io.errors import OperationError, SchemaError
from lance_io.spark import read_table, write_table
from tests.spark.jobs import ID, Job, Stream, ids, struct

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)
OLD = pytest.mark.parametrize("version", ["0.1", "2.0"])
TYPED = struct(id=spark_types.LongType(), s=spark_types.StringType(), l=spark_types.ArrayType(spark_types.LongType()))
ROWS = [(i, None if i % 3 == 0 else f"text {i}", [i] * (i % 3)) for i in range(40)]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t.lance")


def rows_by_pylance(path: str) -> list[tuple[Any, ...]]:
    found = lance.dataset(path).to_table().to_pylist()
    return sorted((row["id"], row["s"], row["l"]) for row in found)


@OLD
def test_a_job_creates_appends_and_overwrites(path: str, version: str) -> None:
    Job(path, TYPED, data_storage_version=version).run(ROWS[:10], ROWS[10:20])
    Job(path, TYPED).run(ROWS[20:40])
    table = lance.dataset(path)
    assert table.data_storage_version == version and rows_by_pylance(path) == ROWS
    pairs = {(f.file_major_version, f.file_minor_version) for one in table.get_fragments() for f in one.data_files()}
    assert pairs == {(0, 2) if version == "0.1" else (2, 0)}
    lance.dataset(path).delete("id < 5")
    assert lance_io.dataset(path).to_table().to_pylist() == lance.dataset(path).to_table().to_pylist()
    Job(path, TYPED, overwrite=True).run(ROWS[:3])
    assert rows_by_pylance(path) == ROWS[:3] and lance.dataset(path).data_storage_version == version


@pytest.mark.parametrize(("before", "after"), [("2.2", "0.1"), ("0.1", "2.2"), ("0.1", "2.0")])
def test_an_overwrite_may_change_the_version_and_an_append_to_or_from_the_oldest_may_not(
    path: str, before: str, after: str
) -> None:
    Job(path, data_storage_version=before).run(range(4))
    with pytest.raises(OperationError, match="cannot be mixed"):
        Job(path, data_storage_version=after)
    Job(path, overwrite=True, data_storage_version=after).run(range(7))
    assert ids(path) == list(range(7)) and lance.dataset(path).data_storage_version == after


@OLD
def test_a_stream_writes_each_batch_once(path: str, version: str) -> None:
    stream = Stream(path, data_storage_version=version)
    stream.run(0, [1], [2, 3])
    stream.run(0, [1], [2, 3])
    stream.run(1, [4])
    assert ids(path) == [1, 2, 3, 4] and lance.dataset(path).version == 2
    assert lance.dataset(path).data_storage_version == version


def test_what_tasks_cannot_write_in_the_oldest_version_is_refused_before_they_begin(path: str) -> None:
    lance.write_dataset(pa.table({"id": range(3), "s": ["a", "b", "c"]}), path, data_storage_version="0.1")
    with pytest.raises(SchemaError, match=r"'s'.*absent"):
        Job(path, ID)
    wide = struct(id=spark_types.LongType(), s=spark_types.StringType(), more=spark_types.LongType())
    with pytest.raises(SchemaError, match=r"'more'.*absent"):
        Job(path, wide, merge_schema=True)
    words = pa.table({"id": range(3), "s": pa.array(["a", "b", "a"]).dictionary_encode()})
    lance.write_dataset(words, path, mode="overwrite", data_storage_version="0.1")
    with pytest.raises(SchemaError, match="dictionary field 's'"):
        Job(path, struct(id=spark_types.LongType(), s=spark_types.StringType()))
    assert lance.dataset(path).version == 2


def test_nulls_that_the_oldest_version_cannot_hold_are_lost_with_a_warning(path: str) -> None:
    job = Job(path, struct(id=spark_types.LongType()), data_storage_version="0.1")
    with pytest.warns(UserWarning, match="of id are lost"):
        job.run([1, None])
    assert ids(path) == [0, 1]


@OLD
def test_spark_reads_what_it_has_written(spark: SparkSession, path: str, version: str) -> None:
    df = spark.createDataFrame(ROWS, TYPED).coalesce(2)
    write_table(df, path, data_storage_version=version)
    write_table(df, path)
    assert rows_by_pylance(path) == sorted(ROWS * 2, key=lambda row: row[0])
    found = read_table(spark, path)
    assert sorted(map(tuple, found.collect())) == rows_by_pylance(path)
    some = found.where("id >= 10 AND id < 13").select("s", "id").orderBy("id").collect()
    assert [tuple(row) for row in some] == [("text 10", 10)] * 2 + [("text 11", 11)] * 2 + [(None, 12)] * 2
    streamed = spark.readStream.format("lance_io").option("starting_version", "1").load(path)
    query = streamed.writeStream.format("memory").queryName("streamed").trigger(availableNow=True).start()
    query.awaitTermination()
    assert spark.sql("SELECT * FROM streamed").count() == len(ROWS)
