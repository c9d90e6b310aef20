"""Cutting reads into partitions, and reading these in this process: no Spark session.

`LANCE_IO_TEST_SPARK_FRAGMENT_MIB` is the size of the fragment that is cut.
"""

from __future__ import annotations

import os
import pickle
import shutil
import time
from contextlib import contextmanager
from datetime import UTC, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance.blob import blob_array, blob_field
from pyspark import TaskContext
from pyspark.sql import types as spark

import lance_io.spark
from lance_io import filters
from lance_io.dataset.distributed import read_part, table_place, table_version
from lance_io.dataset.distributed.scan_parts import cut
from lance_io.dataset.distributed.scan_request import decoded_width
from lance_io.errors import BindError, NotFound, SchemaError, UnsupportedError
from lance_io.io.stats import io_stats
from lance_io.reads.rows.rebatch import rebatch_by_bytes
from lance_io.reads.scan.scan_options import scan_options
from lance_io.spark import engine
from lance_io.spark.helpers import option_texts
from lance_io.spark.options import parse_options
from lance_io.spark.read.reader import unpack_job
from lance_io.spark.source import LanceDataSource
from lance_io.store.profile import CLOUD

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lance_io.dataset.distributed import ScanPart
    from lance_io.reads.version.state import DatasetState
    from lance_io.spark.read.reader import LanceReader

ROWS = 20_000
FRAGMENT_MIB = int(os.environ.get("LANCE_IO_TEST_SPARK_FRAGMENT_MIB", "64"))


def rows(first: int, num_rows: int) -> pa.Table:
    numbers = np.arange(first, first + num_rows)
    return pa.table(
        {
            "id": numbers,
            "v": pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(numbers, 8).astype(np.float32)), 8),
            "s": [f"text {number}" for number in numbers.tolist()],
            "st": pa.array([{"x": number, "y.z": -number} for number in numbers.tolist()]),
        }
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    """Four fragments with deletions; row ids that are not addresses."""
    uri = str(tmp_path_factory.mktemp("planning") / "t.lance")
    dataset = lance.write_dataset(rows(0, ROWS), uri, max_rows_per_file=6000, enable_stable_row_ids=True)
    dataset.delete("id % 7 = 3 or (id > 6100 and id < 9000)")
    return dataset


def read(uri: str, **options: Any) -> list[pa.RecordBatch]:
    """What Spark does: the source, its reader and its partitions travel as pickles between processes."""
    source = LanceDataSource({**option_texts(options), "path": uri})
    schema = source.schema()
    reader = pickle.loads(pickle.dumps(source)).reader(schema=schema)
    partitions = [pickle.loads(pickle.dumps(one)) for one in reader.partitions()]
    reader = pickle.loads(pickle.dumps(reader))
    return [batch for one in partitions for batch in reader.read(one)]


# -- cutting ---------------------------------------------------------------------------------------------------------

SPANS = st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 200_000), st.floats(1, 5000)), max_size=40)


@given(SPANS, st.integers(1, 60))
def test_cuts_keep_every_row_once_and_balance_bytes(given_: list[tuple[int, int, float]], num_parts: int) -> None:
    spans = [(place, start, start + num_rows) for place, (start, num_rows, _) in enumerate(given_)]
    widths = [width for _, _, width in given_]
    parts = cut(spans, widths, num_parts, keep_empty=True)
    assert len(parts) == num_parts
    whole = [piece for part in parts for piece in part]
    assert whole == sorted(whole)
    for place, start, end in spans:
        pieces = [(first, last) for where, first, last in whole if where == place]
        assert pieces[0][0] == start and pieces[-1][1] == end
        assert all(one[1] == other[0] for one, other in pairwise(pieces))
    wanted = sum(num_rows * width for _, num_rows, width in given_) / num_parts
    for part in parts:
        size = sum((end - start) * widths[place] for place, start, end in part)
        assert size <= 1.1 * wanted + 2 * max(widths, default=0)


def test_a_large_fragment_is_cut_at_round_rows() -> None:
    mib = 1 << 20
    (first, *_, last) = parts = cut([(0, 0, mib)], [1024.0], 16)
    assert len(parts) == 16
    assert all(start % 1024 == 0 for part in parts for _, start, _ in part)
    sizes = [sum(end - start for _, start, end in part) * 1024 for part in parts]
    assert max(sizes) <= 1.1 * 64 * mib and min(sizes) >= 0.9 * 64 * mib
    assert first[0][1] == 0 and last[0][2] == mib


def test_no_rows_give_one_partition() -> None:
    assert cut([], [], 3) == [[]]


def test_widths() -> None:
    nested = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.float32(), 4)), ("c", pa.string())])
    assert decoded_width(nested) == (20.0, 1)
    assert decoded_width(pa.dictionary(pa.int8(), pa.string())) == (0.0, 1)


# -- plans -----------------------------------------------------------------------------------------------------------


def test_plan_without_a_session(table: lance.LanceDataset) -> None:
    plan = lance_io.spark.plan(table.uri, num_partitions=5, columns=["id", "v"])
    assert plan.version == table.version
    assert len(plan.partitions) == 5
    for part in plan.partitions:  # which cut fragments with deletions
        left = 0
        for one, first, num_rows in part.ranges:
            rows = table.get_fragment(one).to_table(columns=[], with_row_address=True)
            offsets = rows["_rowaddr"].to_numpy() & 0xFFFFFFFF
            left += int(((offsets >= first) & (offsets < first + num_rows)).sum())
        assert part.rows == left > 0
    assert sum(part.rows for part in plan.partitions) == table.count_rows() < ROWS
    assert plan.bytes == sum(part.bytes for part in plan.partitions) == pytest.approx(ROWS * 40, rel=0.01)
    fragments = [fragment.fragment_id for fragment in table.get_fragments()]
    assert sorted({one for part in plan.partitions for one, _, _ in part.ranges}) == fragments
    assert plan.requests > lance_io.spark.plan(table.uri, num_partitions=1, columns=["id"]).requests > 0


@pytest.mark.parametrize("options", [{"limit": 9000, "num_partitions": 4}, {"num_partitions": 1}])
def test_plans_count_the_rows_that_come(table: lance.LanceDataset, options: dict[str, int]) -> None:
    planned = [part.rows for part in lance_io.spark.plan(table.uri, **options).partitions]
    reader = LanceDataSource({**option_texts(options), "path": table.uri})
    tasks = reader.reader(schema=reader.schema())
    assert planned == [sum(len(batch) for batch in tasks.read(one)) for one in tasks.partitions()]


def test_a_count_reads_no_data(table: lance.LanceDataset, tmp_path: Path) -> None:
    """A filter is counted by reading its columns; without one the data files need not even be there."""
    uri = str(tmp_path / "t.lance")
    shutil.copytree(table.uri, uri)
    assert lance_io.spark.count(uri, filter="id % 10 = 1") == table.count_rows("id % 10 = 1")
    shutil.rmtree(tmp_path / "t.lance" / "data")
    assert lance_io.spark.count(uri) == table.count_rows()
    assert lance_io.spark.count(uri, version=1, columns=["id"]) == ROWS
    assert lance_io.spark.count(uri, limit=10) == 10
    with pytest.raises(FileNotFoundError):
        lance_io.spark.count(uri, filter="id > 5")
    with pytest.raises(BindError, match="nope"):
        lance_io.spark.count(uri, columns=["nope"])


def test_a_limit_with_a_filter_is_one_task(table: lance.LanceDataset) -> None:
    """Only one scan in order knows which rows come first."""
    assert len(lance_io.spark.plan(table.uri, limit=10, filter="id > 5", num_partitions=4).partitions) == 1
    assert len(lance_io.spark.plan(table.uri, limit=9000, num_partitions=4).partitions) == 4


@pytest.mark.parametrize(
    "says", [{"resource.executor.cores": "4"}, {"spark.master": "local[4]", "resource.executor.cores": None}]
)
def test_workers_share_what_an_executor_has(monkeypatch: pytest.MonkeyPatch, says: dict[str, str | None]) -> None:
    """One worker for each core: of requests and of bytes ahead each has its part, unless the user says a number."""

    class Context:
        def getLocalProperty(self, key: str) -> str | None:
            return says.get(key)

        def cpus(self) -> int:
            return 1

    plain = parse_options({"path": "s3://b/t.lance"}, "read")
    told = parse_options({"path": "s3://b/t.lance", "io_concurrency": "7", "io_buffer_bytes": "1m"}, "read")
    alone = engine.io_buffer_bytes(plain)
    monkeypatch.setattr(TaskContext, "get", lambda: Context())
    assert engine.io_buffer_bytes(plain) * 4 == alone
    assert engine.storage_options(plain) == {"requests_max": str(CLOUD.requests_max // 4)}
    assert engine.io_buffer_bytes(told) == 1 << 20
    assert engine.storage_options(told) == {"requests_max": "7"}


def test_split_bytes_and_the_cap(table: lance.LanceDataset) -> None:
    assert len(lance_io.spark.plan(table.uri).partitions) == 1
    parts = lance_io.spark.plan(table.uri, columns=["v"], split_bytes=ROWS * 32 // 8).partitions
    assert len(parts) == 8
    assert max(part.bytes for part in parts) <= 1.1 * ROWS * 4
    assert len(lance_io.spark.plan(table.uri, split_bytes=1000, max_partitions=6).partitions) == 6


def test_a_large_fragment_is_read_in_tasks_of_the_same_bytes(tmp_path: Path) -> None:
    """What tasks really read, and that they read every row once."""
    num_rows, uri = FRAGMENT_MIB << 10, str(tmp_path / "large.lance")
    values = pa.array(np.random.default_rng(3).random(num_rows * 256, dtype=np.float32))
    vectors = pa.FixedSizeListArray.from_arrays(values, 256)
    lance.write_dataset(pa.table({"id": np.arange(num_rows), "v": vectors}), uri)
    source = LanceDataSource({"path": uri, "split_bytes": f"{FRAGMENT_MIB // 16}m"})
    reader = source.reader(source.schema())
    partitions = reader.partitions()
    assert 15 <= len(partitions) <= 17
    sizes, ids = [], []
    for one in partitions:
        with io_stats() as spent:
            ids += [batch["id"] for batch in reader.read(one)]
        sizes.append(spent.bytes_read)
    wanted = num_rows * 1032 / len(partitions)
    assert 0.9 * wanted <= min(sizes) and max(sizes) <= 1.1 * wanted
    assert pa.chunked_array(ids).equals(pa.chunked_array([pa.array(np.arange(num_rows))]))


def test_many_small_fragments_are_one_task(tmp_path: Path) -> None:
    uri = str(tmp_path / "small.lance")
    lance.write_dataset(pa.table({"a": range(1000)}), uri, max_rows_per_file=1, max_rows_per_group=1)
    (part,) = lance_io.spark.plan(uri).partitions
    assert len(part.ranges) == 1000
    assert pa.Table.from_batches(read(uri))["a"].to_pylist() == list(range(1000))


def test_texts_count_as_what_they_take(tmp_path: Path) -> None:
    uri = str(tmp_path / "texts.lance")
    dice = np.random.default_rng(0)
    lance.write_dataset(pa.table({"a": range(200), "t": [dice.bytes(5000).hex() for _ in range(200)]}), uri)
    plan = lance_io.spark.plan(uri, columns=["t"])
    assert plan.bytes > 200 * 4000


# -- rows ------------------------------------------------------------------------------------------------------------

READS: list[dict[str, Any]] = [
    {},
    {"num_partitions": 9},
    {"num_partitions": 3, "batch_bytes": 20_000},
    {"num_partitions": 4, "batch_size": 999, "columns": ["id"]},
    {"columns": "id,st.x,st.`y.z`", "num_partitions": 2},
    {"filter": "id > 5000 and s != 'text 17000'", "num_partitions": 5, "columns": ["s"]},
    {"filter": "v[1] > 9000", "columns": ["id"]},
    {"limit": 7001, "num_partitions": 3},
    {"limit": 100, "filter": "id > 15000"},
    {"columns": ["id"], "with_row_id": True, "with_row_address": True, "num_partitions": 4},
    {"version": 1, "num_partitions": 2, "io_concurrency": 2, "io_buffer_bytes": "1m"},
]


@pytest.mark.parametrize("options", READS, ids=str)
def test_rows_are_those_of_pylance(table: lance.LanceDataset, options: dict[str, Any]) -> None:
    found = pa.Table.from_batches(read(table.uri, **options))
    at = table.checkout_version(options.get("version", table.version))
    columns = options.get("columns")
    names = columns.split(",") if isinstance(columns, str) else columns
    keywords = {
        name: options[name] for name in ("filter", "limit", "with_row_id", "with_row_address") if name in options
    }
    expected = at.to_table(columns=names, **keywords)
    assert found.num_rows == expected.num_rows
    for ours, theirs in zip(found.columns, expected.columns, strict=True):
        assert ours.to_pylist() == theirs.to_pylist()


def test_members_are_called_by_their_path(table: lance.LanceDataset) -> None:
    (batch, *_) = read(table.uri, columns="st.`y.z`,st.x")
    assert batch.schema.names == ["st.y.z", "st.x"]


def test_fragment_ids(table: lance.LanceDataset) -> None:
    found = pa.Table.from_batches(read(table.uri, columns=["id"], with_fragment_id=True, num_partitions=3))
    expected = table.to_table(columns=["id"], with_row_address=True)
    assert found["_fragid"].to_pylist() == [address >> 32 for address in expected["_rowaddr"].to_pylist()]
    assert found.schema.field("_fragid").type == pa.int64()


def test_a_column_called_as_fragment_ids_are_is_read_as_it_is(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1, 2], "_fragid": [70, None]}), uri)
    (batch,) = read(uri)
    assert batch["_fragid"].to_pylist() == [70, None]
    with pytest.raises(BindError, match="occur twice"):
        read(uri, with_fragment_id=True)


@pytest.fixture
def far_east() -> Iterator[None]:
    """The zone of this process is 14 hours ahead."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Pacific/Kiritimati")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_east")
def test_versions_by_tag_and_time(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    first = lance.write_dataset(pa.table({"a": [1]}), uri)
    lance.write_dataset(pa.table({"a": [2]}), uri, mode="append")
    first.tags.create("one", 1)
    shown = first.versions()[0]["timestamp"]  # by way of a float, which may have lost a microsecond
    moment = shown.astimezone(UTC) + timedelta(microseconds=2)
    assert pa.Table.from_batches(read(uri, tag="one")).num_rows == 1
    for shown in (moment, moment.replace(tzinfo=None)):
        assert pa.Table.from_batches(read(uri, timestampAsOf=shown.isoformat())).num_rows == 1  # and not before it
    assert pa.Table.from_batches(read(uri, timestampAsOf="2999-01-01")).num_rows == 2
    with pytest.raises(FileNotFoundError, match="no version is as old as 1999-01-01T00:00:00"):
        read(uri, timestampAsOf="1999-01-01")


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_blobs_are_bytes_or_descriptions(tmp_path: Path, version: str) -> None:
    blobs = [b"one", None, b"x" * 100_000, b""] * 500
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    column = pa.array(blobs, pa.large_binary())
    if version == "2.2":
        field, column = blob_field("b"), blob_array(blobs)
    uri = str(tmp_path / "blobs.lance")
    table = pa.Table.from_arrays([pa.array(range(2000)), column], schema=pa.schema([pa.field("id", pa.int64()), field]))
    lance.write_dataset(table, uri, data_storage_version=version)
    found = read(uri, batch_bytes="4m")
    assert [blob for batch in found for blob in batch["b"].to_pylist()] == blobs
    assert max(batch.nbytes for batch in found) < 8 << 20
    (few,) = read(uri, filter="id < 3", columns=["b"])
    assert few["b"].to_pylist() == blobs[:3]
    (described,) = read(uri, blobs="descriptions", filter="id < 3")
    sizes = [None if one is None else int(one["size"]) for one in described["b"].to_pylist()]
    assert [sizes[0], sizes[2]] == [3, 100_000]


def test_blobs_inside_lists_are_bytes_too(tmp_path: Path) -> None:
    item = pa.field("item", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    blobs = [[b"one", None], [], None, [b"x" * 100_000, b""]] * 100
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("l", pa.list_(item))])
    uri = str(tmp_path / "blobs.lance")
    table = pa.Table.from_arrays([pa.array(range(400)), pa.array(blobs, pa.list_(item))], schema=schema)
    lance.write_dataset(table, uri, data_storage_version="2.2")
    assert [row for batch in read(uri) for row in batch["l"].to_pylist()] == blobs
    (few,) = read(uri, filter="id < 4", columns=["l"])
    assert few["l"].to_pylist() == blobs[:4]


def test_no_rows_are_one_partition_without_batches(table: lance.LanceDataset, tmp_path: Path) -> None:
    assert read(table.uri, limit=0) == []
    uri = str(tmp_path / "empty.lance")
    lance.write_dataset(pa.table({"a": pa.array([], pa.int64())}), uri)
    assert read(uri) == []


def test_schemas_of_the_user_project(table: lance.LanceDataset) -> None:
    source = LanceDataSource({"path": table.uri})
    wanted = spark.StructType([spark.StructField("s", spark.StringType()), spark.StructField("id", spark.LongType())])
    reader = source.reader(schema=wanted)  # without a call of schema(): Spark has one already
    (batch, *_) = [batch for one in reader.partitions() for batch in reader.read(one)]
    assert batch.schema.names == ["s", "id"]
    with pytest.raises(SchemaError, match="id is bigint, and the schema given to the read says int"):
        source.reader(schema=spark.StructType([spark.StructField("id", spark.IntegerType())]))
    with pytest.raises(BindError, match="the schema names nope"):
        source.reader(schema=spark.StructType([spark.StructField("nope", spark.LongType())]))


def test_no_columns_still_count_rows(table: lance.LanceDataset) -> None:
    reader = LanceDataSource({"path": table.uri}).reader(schema=spark.StructType([]))
    batches = [batch for one in reader.partitions() for batch in reader.read(one)]
    assert sum(batch.num_rows for batch in batches) == table.count_rows()


@pytest.mark.parametrize("options", [{"columns": ["_rowoffset"]}, {"filter": "_rowoffset < 5"}], ids=str)
def test_row_offsets_are_refused(table: lance.LanceDataset, options: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match="_rowoffset"):
        read(table.uri, **options)


def test_filters_that_do_not_fit_are_said_by_the_planner(table: lance.LanceDataset) -> None:
    source = LanceDataSource({"path": table.uri, "filter": "nope = 1"})
    with pytest.raises(BindError, match="nope"):
        source.reader(schema=spark.StructType([]))


# -- what tasks do ---------------------------------------------------------------------------------------------------


def test_errors_say_where_they_come_from(tmp_path: Path) -> None:
    uri = str(tmp_path / "broken.lance")
    dataset = lance.write_dataset(pa.table({"a": range(5000)}), uri, max_rows_per_file=1000)
    source = LanceDataSource({"path": uri, "num_partitions": "5"})
    reader = source.reader(schema=source.schema())
    partitions = reader.partitions()
    file = dataset.get_fragments()[2].data_files()[0].path
    (tmp_path / "broken.lance" / "data" / file).unlink()
    with pytest.raises(FileNotFoundError) as caught:
        [*reader.read(partitions[2])]
    (note,) = caught.value.__notes__
    assert "broken.lance version 1: fragment 2 rows 0 to 1000" in note


def test_tasks_share_a_session_and_read_no_manifest(table: lance.LanceDataset) -> None:
    source = LanceDataSource({"path": table.uri, "num_partitions": "50"})
    reader = source.reader(schema=source.schema())
    partitions = reader.partitions()
    session = table_place.process_session()
    with io_stats() as first:
        batches = [batch for one in partitions for batch in reader.read(one)]
    assert table_place.process_session() is session
    assert sum(batch.num_rows for batch in batches) == table.count_rows()
    with io_stats() as second:
        [batch for one in partitions for batch in reader.read(one)]
    assert second.num_reads < first.num_reads  # footers, page indexes and deletion files are in the cache
    with without_manifests(table.uri):
        assert sum(batch.num_rows for one in partitions for batch in reader.read(one)) == table.count_rows()


@contextmanager
def without_manifests(uri: str) -> Iterator[None]:
    versions = f"{uri}/_versions"
    os.rename(versions, f"{versions}-moved")
    try:
        yield
    finally:
        os.rename(f"{versions}-moved", versions)


def test_what_was_loaded_is_planned_without_a_request(
    table: lance.LanceDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest travels from planner to planner; a long one is read again."""
    source = LanceDataSource({"path": table.uri, "num_partitions": "3", "filter": "id % 2 = 0"})
    schema = source.schema()
    monkeypatch.setattr(table_place, "_session", None)  # as in the other process
    with without_manifests(table.uri), io_stats() as spent:
        partitions = pickle.loads(pickle.dumps(source)).reader(schema=schema).partitions()
    assert spent.num_reads == 0
    monkeypatch.setattr(table_version, "CARRIED_BYTES_MAX", 0)
    source.schema()
    again = pickle.loads(pickle.dumps(source)).reader(schema=schema).partitions()
    assert [one.value for one in again] == [one.value for one in partitions]
    with without_manifests(table.uri), pytest.raises(NotFound, match=f"version {table.version} was not found"):
        pickle.loads(pickle.dumps(source)).reader(schema=schema)


def test_tasks_of_the_same_fragments_share_what_is_known_of_them(table: lance.LanceDataset) -> None:
    source = LanceDataSource({"path": table.uri, "num_partitions": "50"})
    reader = source.reader(schema=source.schema())
    plans = [one.value for one in reader.partitions()]
    again = LanceDataSource({"path": table.uri, "num_partitions": "50", "columns": "id"})
    other = again.reader(schema=again.schema())

    def opened(reader: LanceReader, part: ScanPart) -> DatasetState:
        job = unpack_job(reader._job)
        return job.scan.state(engine.table_place(job.options), part)

    states = {plan.fragments: opened(reader, plan) for plan in plans}
    assert 1 < len(states) < len(plans)
    assert len(set(map(id, states.values()))) == len(states)
    for plan in plans:
        assert opened(reader, plan) is opened(other, plan) is states[plan.fragments]


def test_tasks_of_one_read_prepare_once(table: lance.LanceDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    source = LanceDataSource({"path": table.uri, "num_partitions": "50", "filter": "id % 2 = 0"})
    planned: Any = source.reader(schema=source.schema())
    partitions, sent = planned.partitions(), pickle.dumps(planned)
    compiled = []
    compile_filter = filters.compile_filter
    monkeypatch.setattr(filters, "compile_filter", lambda *a: compiled.append(a) or compile_filter(*a))

    found = [batch for one in partitions for batch in pickle.loads(sent).read(one)]

    assert pa.Table.from_batches(found)["id"].to_pylist() == table.to_table(filter="id % 2 = 0")["id"].to_pylist()
    assert len(compiled) == 1
    job = unpack_job(planned._job)
    assert job is unpack_job(bytes(planned._job))
    state = job.scan.state(engine.table_place(job.options), partitions[0].value)
    first, second = (read_part._plan_columns(job.scan, state, scan_options()) for _ in range(2))
    assert len(compiled) == 1
    assert first.predicate is second.predicate
    assert first.early_read is not second.early_read  # these remember every file that they have seen


def test_a_forked_process_has_its_own_session(table: lance.LanceDataset) -> None:
    source = LanceDataSource({"path": table.uri})
    reader = source.reader(schema=source.schema())
    (partition,) = reader.partitions()
    expected = sum(batch.num_rows for batch in reader.read(partition))
    inherited = table_place.process_session()
    child = os.fork()
    if child == 0:
        num_rows = sum(batch.num_rows for batch in reader.read(partition))
        os._exit(0 if num_rows == expected and table_place.process_session() is not inherited else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_pickles_are_small_and_hold_no_secrets_of_the_process(table: lance.LanceDataset) -> None:
    source = LanceDataSource({"path": table.uri})
    reader = source.reader(schema=source.schema())
    assert len(pickle.dumps(reader)) < 4000
    assert all(len(pickle.dumps(one)) < 4000 for one in reader.partitions())


# -- batch sizes -----------------------------------------------------------------------------------------------------


@given(
    st.lists(st.lists(st.integers(0, 300), max_size=30), max_size=10),
    st.integers(1, 2000),
    st.integers(1, 50) | st.none(),
)
def test_batches_have_the_wanted_size(sizes: list[list[int]], bytes_max: int, rows_max: int | None) -> None:
    batches = [pa.RecordBatch.from_pydict({"b": pa.array([b"x" * n for n in one], pa.binary())}) for one in sizes]
    found = list(rebatch_by_bytes(iter(batches), bytes_max, rows_max))
    assert [n for one in sizes for n in one] == [len(value) for batch in found for value in batch["b"].to_pylist()]
    for batch in found:
        assert 0 < batch.num_rows <= (rows_max or batch.num_rows)
        assert batch.num_rows == 1 or batch.nbytes <= 2 * bytes_max
