"""What a worker does with the task of a read, in this process: when it begins, and what is left when it ends."""

from __future__ import annotations

import asyncio
import pickle
import shutil
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_io import limits, runtime
from lance_io.dataset.distributed import table_place
from lance_io.errors import NotFound
from lance_io.io.stats import io_stats
from lance_io.spark import task_context
from lance_io.spark.consumed import BUFFER_BYTES
from lance_io.spark.helpers import option_texts
from lance_io.spark.read import reader as reader_module
from lance_io.spark.source import LanceDataSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lance_io.spark.read.reader import LanceReader
    from tests.servers import S3Server

ROWS = 8000
CHUNK_BYTES = 32 << 10  # of a page; the first rows may end inside of one


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of two fragments with deletions."""
    place = str(tmp_path_factory.mktemp("tasks") / "t.lance")
    numbers = pa.array(range(ROWS))
    dataset = lance.write_dataset(pa.table({"id": numbers, "s": numbers.cast("string")}), place, max_rows_per_file=5000)
    dataset.delete("id % 7 = 3")
    return place


@pytest.fixture(scope="module")
def far(s3: S3Server) -> Iterator[tuple[str, dict[str, Any]]]:
    """8 MB in ten fragments in a bucket, and options by which a scan reads little ahead."""
    place = f"s3://{s3.bucket}/test-spark-read-tasks/t.lance"
    values = pa.table({"a": np.random.default_rng(1).random(1_000_000)})
    lance.write_dataset(values, place, mode="overwrite", storage_options=s3.options(), max_rows_per_file=100_000)
    yield place, {"batch_size": 10, "io_buffer_bytes": "1m", "storage": s3.options()}


def planned(uri: str, **options: Any) -> LanceReader:
    """The reader, in the process that plans."""
    source = LanceDataSource({**option_texts(options), "path": uri})
    reader: LanceReader = source.reader(schema=source.schema())
    return reader


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Callable[[LanceReader], LanceReader]:
    """Gives a reader as a worker unpickles it, which knows nothing of the reads of other tests."""

    def send(reader: LanceReader) -> LanceReader:
        pickled = pickle.dumps(reader)
        monkeypatch.setattr(table_place, "_session", None)
        found: LanceReader = pickle.loads(pickled)
        return found

    return send


# -- beginning ---------------------------------------------------------------------------------------------------------


def test_nothing_happens_before_a_task_reads(uri: str, sent: Any) -> None:
    """Neither where the reader is unpickled nor where it is given a partition: whoever asks for rows begins."""
    reader = planned(uri, num_partitions=4, batch_size=1000)
    partitions = reader.partitions()
    for partition in partitions:
        expected = list(reader.read(partition))
        with io_stats() as spent:
            task = sent(reader)
            assert table_place._session is None  # nothing was opened
            batches = task.read(partition)
            assert spent.num_reads == 0
            assert list(batches) == expected != []
            assert spent.num_reads > 0
        assert list(task.read(partition)) == expected  # a second time from its beginning


def test_partitions_do_not_travel_with_every_task(uri: str, sent: Any) -> None:
    """Spark gives each task its own."""
    reader = planned(uri, num_partitions=1000, columns=["id"])
    partitions = reader.partitions()
    assert len(pickle.dumps(partitions)) > 30 * len(pickle.dumps(reader))
    assert list(sent(reader).read(partitions[7])) == list(reader.read(partitions[7])) != []


def test_errors_are_told_by_read(tmp_path: Path, sent: Any) -> None:
    place = tmp_path / "broken.lance"
    dataset = lance.write_dataset(pa.table({"a": range(5000)}), str(place), max_rows_per_file=1000)
    reader = planned(str(place), num_partitions=5)
    partitions = reader.partitions()
    (place / "data" / dataset.get_fragments()[3].data_files()[0].path).unlink()
    task = sent(reader)
    with pytest.raises(NotFound) as caught:
        list(task.read(partitions[3]))
    assert any("fragment 3 rows 0 to 1000" in note for note in caught.value.__notes__)
    assert [len(one) for one in sent(reader).read(partitions[2])] == [1000]


def test_a_cleanup_between_planning_and_tasks(tmp_path: Path) -> None:
    """Deletion files and data files that are gone with their version, when a limit is planned and when tasks read."""
    place = tmp_path / "cleaned.lance"
    lance.write_dataset(pa.table({"a": range(5000)}), str(place), max_rows_per_file=1000).delete("a % 1000 < 10")
    limited = LanceDataSource({"path": str(place), "limit": "2500"})
    schema = limited.schema()
    reader = planned(str(place), num_partitions=2)
    partitions = reader.partitions()
    lance.write_dataset(pa.table({"a": [1]}), str(place), mode="overwrite")
    lance.dataset(str(place)).cleanup_old_versions(timedelta(microseconds=1))
    told = r"version 2 of .*cleaned.lance was removed by a cleanup; the oldest one left is 3"
    with pytest.raises(NotFound, match=told) as caught:
        list(reader.read(partitions[1]))
    assert any("fragment 2 rows" in note for note in caught.value.__notes__)
    with pytest.raises(NotFound, match=told):
        limited.reader(schema=schema)


def test_files_that_are_gone_from_a_version_are_not_cleaned_up(tmp_path: Path) -> None:
    place = tmp_path / "broken.lance"
    lance.write_dataset(pa.table({"a": [1]}), str(place))
    reader = planned(str(place))
    (partition,) = reader.partitions()
    shutil.rmtree(place / "data")
    with pytest.raises(NotFound, match=r"^(?!.*cleanup)"):
        list(reader.read(partition))
    shutil.rmtree(place)
    with pytest.raises(NotFound, match=r"^(?!.*cleanup)"):
        list(reader.read(partition))


# -- the first rows ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """12 MB in three columns and two fragments with stable row ids, of which the first rows are deleted."""
    place = str(tmp_path_factory.mktemp("heavy") / "t.lance")
    numbers = np.random.default_rng(1).integers(0, 1 << 60, 60_000)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(numbers, 45).astype(np.float32)), 45)
    table = pa.table({"id": range(60_000), "s": [f"text {one}" for one in numbers.tolist()], "v": vectors})
    dataset = lance.write_dataset(table, place, max_rows_per_file=40_000, enable_stable_row_ids=True)
    dataset.delete("id < 5000 or (id > 5100 and id < 5200)")
    return place


def begun(reader: LanceReader) -> tuple[pa.Table, int]:
    """The first two batches of the first partition, and the bytes that they take in a new process."""
    with pytest.MonkeyPatch.context() as patch, io_stats() as spent:
        patch.setattr(table_place, "_session", None)
        batches: Any = reader.read(reader.partitions()[0])
        first = pa.Table.from_batches([next(batches), next(batches)])
        batches.close()
    return first, spent.bytes_read


def test_the_first_rows_are_read_alone(heavy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chunks that hold them and the file's metadata; a scan begins with pages, and whole ones it goes on with."""
    reader = planned(heavy)
    first, bytes_read = begun(reader)
    width = sum(one.num_bytes for one in reader._parts) / 60_000
    assert first.num_rows == reader_module.HEAD_BYTES // width
    assert first["id"][:2].to_pylist() == [5000, 5001]
    assert first["v"].chunk(1).nbytes > 2 * BUFFER_BYTES  # does not vanish in the buffers of both ends
    metadata = 2 * limits.TAIL_BYTES_LOCAL + 5100  # the tail, the deletion file
    assert bytes_read <= first.nbytes + 3 * CHUNK_BYTES + metadata < 480_000
    (partition,) = reader.partitions()
    with io_stats() as spent:
        rows = list(reader.read(partition))
    monkeypatch.setattr(reader_module, "HEAD_PARTITION_BYTES_MIN", 1 << 60)
    with io_stats() as plain:
        expected = list(reader.read(partition))
    assert pa.Table.from_batches(rows) == pa.Table.from_batches(expected)
    assert spent.bytes_read <= plain.bytes_read + first.nbytes + 3 * CHUNK_BYTES
    assert begun(reader)[1] > 4_000_000


@pytest.mark.parametrize(
    "options",
    [
        {"num_partitions": 3},
        {"filter": "id % 3 = 1", "with_row_id": True, "with_row_address": True},
        {"filter": "id > 30000", "limit": 2000},
        {"filter": "id < 5001 or id > 59998"},
        {"limit": 50_000, "batch_size": 100, "with_fragment_id": True},
    ],
)
def test_no_row_is_lost_between_the_first_and_the_others(
    heavy: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = planned(heavy, **options)
    found = [pa.Table.from_batches(reader.read(one)) for one in reader.partitions()]
    monkeypatch.setattr(reader_module, "HEAD_PARTITION_BYTES_MIN", 1 << 60)
    assert [pa.Table.from_batches(reader.read(one)) for one in reader.partitions()] == found
    expected = lance.dataset(heavy).to_table(columns=["id"], filter=options.get("filter"), limit=options.get("limit"))
    assert pa.concat_tables(found).select(["id"]).equals(expected)


def test_fragments_of_few_rows_or_none_begin_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "HEAD_PARTITION_BYTES_MIN", 1)
    place = str(tmp_path / "t.lance")
    dataset = lance.write_dataset(pa.table({"a": range(3000)}), place, max_rows_per_file=2)
    dataset.delete("a < 2 or a = 3 or a > 2900")
    found = pa.Table.from_batches(planned(place).read(planned(place).partitions()[0]))
    assert found["a"].to_pylist() == [2, *range(4, 2901)]


def test_the_first_rows_cost_a_few_requests_in_one_task(far: tuple[str, dict[str, Any]], sent: Any) -> None:
    """In a bucket: two for each column and one for the file, whatever the number of tasks."""
    requests = {}
    for least in (1, 1 << 60):
        with pytest.MonkeyPatch.context() as patch, io_stats() as spent:
            patch.setattr(reader_module, "HEAD_PARTITION_BYTES_MIN", least)
            patch.setattr(table_place, "_session", None)
            reader = planned(far[0], num_partitions=4, storage=far[1]["storage"])
            assert sum(len(batch) for one in reader.partitions() for batch in reader.read(one)) == 1_000_000
        requests[least] = spent.num_reads
    assert 0 < requests[1] - requests[1 << 60] <= 3


# -- leaving -----------------------------------------------------------------------------------------------------------


def test_leaving_early_closes_the_scan(uri: str) -> None:
    reader = planned(uri, batch_size=10)
    (partition,) = reader.partitions()
    batches: Any = reader.read(partition)
    assert next(batches).num_rows == 10
    batches.close()
    assert list(batches) == []


def test_leaving_early_leaves_nothing_under_way(far: tuple[str, dict[str, Any]], sent: Any) -> None:
    """No request of the scan goes on, on the engine, when Spark has its rows."""
    reader = planned(far[0], num_partitions=2, **far[1])
    partitions = reader.partitions()

    async def under_way() -> set[Any]:
        return asyncio.all_tasks() - {asyncio.current_task()}

    async def ended(tasks: set[Any]) -> bool:
        left = await under_way() - tasks
        return not left or not (await asyncio.wait(left, timeout=30))[1]

    before = runtime.run(under_way())
    with io_stats() as spent:
        batches = sent(reader).read(partitions[1])
        assert next(batches).num_rows == 10
        batches.close()
        assert runtime.run(ended(before))
    assert 0 < spent.bytes_read < 4_000_000


def test_reads_without_the_jar_say_what_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line of the log of a planner's process."""
    monkeypatch.setattr(task_context, "_logged_pid", 0)
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"a": [1]}), uri)
    source = LanceDataSource({"path": uri})
    for _ in range(2):
        source.reader(source.schema())
    (record,) = caplog.records
    assert "lacks the JAR" in record.message
    assert "lance_io.spark.configure or enable adds" in record.message
