"""Open tables, scans and what reads them, shared by threads and tasks: docs/operations.md says what may be."""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io import metrics
from lance_io.errors import OperationError
from lance_io.file import AsyncFileReader, LanceFileReader
from lance_io.optimize import Compaction
from lance_io.sampler import FullScanSampler, ShardedBatchIterator, ShardedBatchSampler, maybe_sample
from lance_io.udf import batch_udf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NUM_ROWS: Final = 2000
THREADS: Final = 4
SECONDS_MAX: Final = 60  # only a hang takes this long


def rows(start: int, end: int) -> pa.Table:
    return pa.table({"i": range(start, end), "s": [f"s{i}" for i in range(start, end)]})


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Four fragments, with stable row ids."""
    path = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, NUM_ROWS), path, max_rows_per_file=500, enable_stable_row_ids=True)
    return path


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(THREADS) as threads:
        yield threads


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads that leave the interpreter to each other wherever they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(pool: ThreadPoolExecutor, call: Callable[[], Any]) -> list[Any]:
    """What a call gives in all threads, which begin together."""
    together = threading.Barrier(THREADS)

    def one() -> Any:
        together.wait(SECONDS_MAX)
        return call()

    return [future.result(SECONDS_MAX) for future in [pool.submit(one) for _ in range(THREADS)]]


# -- the version of a handle -------------------------------------------------------------------------------------------


class Hold:
    """Keeps the first call that ends from going on in its thread, until it is let go."""

    def __init__(self) -> None:
        self.held, self.go_on = threading.Event(), threading.Event()
        self._is_first = True
        self.stop = metrics.on_call(self._note)

    def _note(self, told: Any) -> None:
        if self._is_first and told.call not in ("open", "scan", "take"):
            self._is_first = False
            self.held.set()
            assert self.go_on.wait(SECONDS_MAX)


@pytest.fixture
def hold() -> Iterator[Hold]:
    found = Hold()
    yield found
    found.go_on.set()
    found.stop()


def merge(table: Any) -> Any:
    return table.merge_insert("i").when_not_matched_insert_all().execute(rows(5000, 5001))


CHANGES: Final[dict[str, Callable[[Any], Any]]] = {
    "delete": lambda table: table.delete("i = 7"),
    "update": lambda table: table.update({"s": "'x'"}, where="i = 8"),
    "insert": lambda table: table.insert(rows(4000, 4001)),
    "merge_insert": merge,
    "add_columns": lambda table: table.add_columns({"j": "i + 1"}),
    "add_columns without values": lambda table: table.add_columns(pa.field("j", pa.int64())),
    "merge": lambda table: table.merge(pa.table({"i": [1], "j": [2]}), "i"),
    "alter_columns": lambda table: table.alter_columns({"path": "s", "name": "t"}),
    "drop_columns": lambda table: table.drop_columns(["s"]),
    "update_config": lambda table: table.update_config({"a": "b"}),
    "add_bases": lambda table: table.add_bases([lance_io.DatasetBasePath("/dev/shm/nowhere", name="far")]),
    "compact": lambda table: table.optimize.compact_files(),
    "checkout_latest": lambda table: table.checkout_latest(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_call_that_ends_late_takes_no_handle_back(
    uri: str, pool: ThreadPoolExecutor, hold: Hold, change: str
) -> None:
    """It has made its version when another thread makes the next one, and comes back to a handle that is there."""
    table = lance_io.dataset(uri)
    late = pool.submit(CHANGES[change], table)
    assert hold.held.wait(SECONDS_MAX)
    table.update_config({"later": "yes"})
    newest = table.version
    hold.go_on.set()
    late.result(SECONDS_MAX)
    assert table.version == newest == lance.dataset(uri).version
    assert table.config()["later"] == "yes"


@pytest.mark.parametrize("change", CHANGES)
def test_a_call_that_ends_late_on_another_loop(uri: str, pool: ThreadPoolExecutor, hold: Hold, change: str) -> None:
    table = asyncio.run(opened(uri))
    late = pool.submit(asyncio.run, called(CHANGES[change], table))
    assert hold.held.wait(SECONDS_MAX)
    asyncio.run(called(lambda table: table.update_config({"later": "yes"}), table))
    newest = table.version
    hold.go_on.set()
    late.result(SECONDS_MAX)
    assert table.version == newest == lance.dataset(uri).version


async def opened(uri: str) -> Any:
    return await lance_io.AsyncDataset.open(uri)


async def called(change: Callable[[Any], Any], table: Any) -> Any:
    return await change(table)


def test_a_handle_still_goes_where_it_is_told(uri: str) -> None:
    """A table that was removed and made again has fewer versions than the handle had."""
    table = lance_io.dataset(uri)
    table.delete("i = 1")
    lance_io.LanceDataset.drop(uri)
    lance.write_dataset(rows(0, 3), uri)
    table.checkout_latest()
    assert (table.version, table.count_rows()) == (1, 3)


def test_changes_of_one_handle_are_all_there(uri: str, pool: ThreadPoolExecutor) -> None:
    """Threads that delete, update, insert and merge, while others scan: each scan is of one version."""
    table = lance_io.dataset(uri)
    before = table.to_table()
    numbers = iter(range(100))
    lock = threading.Lock()

    def change() -> list[int]:
        with lock:
            number = next(numbers)
        table.delete(f"i = {number}")
        table.insert(rows(3000 + number, 3001 + number))
        table.merge_insert("i").when_not_matched_insert_all().execute(rows(6000 + number, 6001 + number))
        return [table.to_table(columns=["i"]).num_rows for _ in range(2)]

    counts = [count for found in in_threads(pool, change) for count in found]
    assert all(NUM_ROWS - THREADS <= count <= NUM_ROWS + 2 * THREADS for count in counts)
    expected = [*range(THREADS, NUM_ROWS), *range(3000, 3000 + THREADS), *range(6000, 6000 + THREADS)]
    assert sorted(table.to_table()["i"].to_pylist()) == expected
    assert sorted(lance.dataset(uri).to_table()["i"].to_pylist()) == expected
    assert before.num_rows == NUM_ROWS


async def test_gathered_changes_are_all_there(uri: str) -> None:
    async with lance_io.AsyncDataset.open(uri) as table:
        builder = table.merge_insert("i").when_not_matched_insert_all()
        await asyncio.gather(
            *(table.insert(rows(3000 + n, 3001 + n)) for n in range(4)),
            *(table.delete(f"i = {n}") for n in range(4)),
            *(builder.execute(rows(6000 + n, 6001 + n)) for n in range(4)),
        )
        expected = [*range(4, NUM_ROWS), *range(3000, 3004), *range(6000, 6004)]
        assert sorted((await table.to_table())["i"].to_pylist()) == expected
        assert table.version == await table.latest_version() == 13
    assert sorted(lance.dataset(uri).to_table()["i"].to_pylist()) == expected


def test_one_merge_runs_in_many_threads(uri: str, pool: ThreadPoolExecutor) -> None:
    table = lance_io.dataset(uri)
    builder = table.merge_insert("i").when_not_matched_insert_all()
    numbers = iter(range(THREADS))
    done = in_threads(pool, lambda: builder.execute(rows(n := 3000 + next(numbers), n + 1))["num_inserted_rows"])
    assert (done, table.count_rows()) == ([1] * THREADS, NUM_ROWS + THREADS)


# -- scans and batches -------------------------------------------------------------------------------------------------


def file_of(uri: str) -> str:
    return f"{uri}/data/{lance_io.dataset(uri).get_fragments()[0].data_files()[0].path}"


STREAMS: Final[dict[str, Callable[[str], Any]]] = {
    "to_batches": lambda uri: lance_io.dataset(uri).to_batches(batch_size=10),
    "filtered": lambda uri: lance_io.dataset(uri).to_batches(filter="i % 2 = 0", batch_size=10),
    "ordered": lambda uri: lance_io.dataset(uri).to_batches(order_by=["s"], batch_size=10),
    "with a deadline": lambda uri: lance_io.dataset(uri).to_batches(batch_size=10, timeout=600),
    "to_reader": lambda uri: lance_io.dataset(uri).scanner(batch_size=10).to_reader(),
    "fragment": lambda uri: lance_io.dataset(uri).get_fragments()[0].to_batches(batch_size=10),
    "file": lambda uri: LanceFileReader(file_of(uri)).read_all(batch_size=10).to_batches(),
    "rows of a file": lambda uri: LanceFileReader(file_of(uri)).take_rows([*range(400)], batch_size=10).to_batches(),
    "inserted rows": lambda uri: lance_io.dataset(uri).delta(begin_version=0, end_version=1).get_inserted_rows(),
    "tracked files": lambda uri: lance_io.dataset(uri).tracked_files(),
    "sql": lambda uri: lance_io.dataset(uri).sql("SELECT * FROM dataset").batch_size(10).build().to_stream_reader(),
    "sampler": lambda uri: FullScanSampler()(lance_io.dataset(uri), batch_size=10),
    "shares": lambda uri: ShardedBatchSampler(0, 2)(lance_io.dataset(uri), batch_size=10),
    "filtered shares": lambda uri: ShardedBatchSampler(0, 2, True)(
        lance_io.dataset(uri), batch_size=10, filter="i > 9"
    ),
    "old shares": lambda uri: iter(shares(uri)),
    "sample": lambda uri: maybe_sample(uri, NUM_ROWS, ["i"], batch_size=10),
}


def shares(uri: str) -> ShardedBatchIterator:
    with pytest.warns(UserWarning, match="deprecated"):
        return ShardedBatchIterator(uri, 0, 2, batch_size=10)


@pytest.mark.parametrize("kind", STREAMS)
def test_threads_take_each_batch_once(uri: str, pool: ThreadPoolExecutor, hurried: None, kind: str) -> None:
    alone = pa.Table.from_batches([*STREAMS[kind](uri)])
    stream = iter(STREAMS[kind](uri))
    taken = [batch for part in in_threads(pool, lambda: [*stream]) for batch in part]
    assert in_order(pa.Table.from_batches(taken)) == in_order(alone)


def in_order(table: pa.Table) -> list[Any]:
    return sorted(map(str, table.to_pylist()))


def test_a_reader_is_shared_as_in_pylance(uri: str, pool: ThreadPoolExecutor, hurried: None) -> None:
    found = []
    for library in (lance, lance_io):
        reader = library.dataset(uri).scanner(batch_size=10).to_reader()
        batches = in_threads(pool, lambda reader=reader: [reader.read_next_batch() for _ in range(40)])
        found.append(in_order(pa.Table.from_batches([batch for part in batches for batch in part])))
    assert found[0] == found[1]


async def tasks_of(stream: Any) -> pa.Table:
    async def take() -> list[pa.RecordBatch]:
        return [batch async for batch in stream]

    parts = await asyncio.gather(*(take() for _ in range(4)))
    return pa.Table.from_batches([batch for part in parts for batch in part])


@pytest.mark.parametrize("kind", ["to_batches", "scanner", "fragment", "tracked files", "sql", "inserted rows", "file"])
async def test_tasks_take_each_batch_once(uri: str, kind: str) -> None:
    async with lance_io.AsyncDataset.open(uri) as table, AsyncFileReader(file_of(uri)) as file:
        streams: dict[str, Callable[[], Any]] = {
            "to_batches": lambda: table.to_batches(batch_size=10),
            "scanner": lambda: aiter(table.scanner(batch_size=10)),
            "fragment": lambda: table.get_fragments()[0].to_batches(batch_size=10),
            "tracked files": table.tracked_files,
            "sql": lambda: table.sql("SELECT * FROM dataset").batch_size(10).build().to_stream_reader(),
            "inserted rows": lambda: table.delta(begin_version=0, end_version=1).get_inserted_rows(),
            "file": lambda: file.read_all(batch_size=10),
        }
        alone = pa.Table.from_batches([batch async for batch in streams[kind]()])
        assert in_order(await tasks_of(streams[kind]())) == in_order(alone)


async def test_deleted_rows_are_taken_once(uri: str, pool: ThreadPoolExecutor, hurried: None) -> None:
    lance_io.dataset(uri).delete("i < 400")
    reader = lance_io.dataset(uri).delta(compared_against=1).get_deleted_row_ids()
    taken = [batch for part in in_threads(pool, lambda: [*reader]) for batch in part]
    async with lance_io.AsyncDataset.open(uri) as table:
        awaited = await tasks_of(table.delta(compared_against=1).get_deleted_row_ids())
    assert [*range(400)] == sorted(awaited["_rowid"].to_pylist())
    assert [*range(400)] == sorted(pa.Table.from_batches(taken)["_rowid"].to_pylist())


def test_one_scan_runs_in_many_threads(uri: str, pool: ThreadPoolExecutor) -> None:
    expected = lance.dataset(uri).to_table(filter="i % 3 = 0")
    table = lance_io.dataset(uri)
    scan, fragment = table.scanner(filter="i % 3 = 0"), table.get_fragments()[1]
    assert all(found == expected for found in in_threads(pool, scan.to_table))
    assert in_threads(pool, scan.count_rows) == [expected.num_rows] * THREADS
    assert all(found["i"].to_pylist() == [500, 999] for found in in_threads(pool, lambda: fragment.take([0, 499])))


def test_one_file_is_read_by_many_threads(uri: str, pool: ThreadPoolExecutor) -> None:
    reader = LanceFileReader(file_of(uri))
    found = in_threads(pool, lambda: (reader.take_rows([3, 400]).to_table(), reader.metadata().num_rows))
    assert [(table["i"].to_pylist(), num_rows) for table, num_rows in found] == [([3, 400], 500)] * THREADS


# -- the rest ----------------------------------------------------------------------------------------------------------


def test_tasks_of_a_compaction_run_in_many_threads(uri: str, pool: ThreadPoolExecutor) -> None:
    table = lance_io.dataset(uri)
    plan = Compaction.plan(table, {"target_rows_per_fragment": 1000})
    assert plan.num_tasks() > 1
    results = [*pool.map(lambda task: task.execute(table), plan.tasks)]
    Compaction.commit(table, results)
    assert lance.dataset(uri).to_table() == rows(0, NUM_ROWS)
    assert len(table.get_fragments()) == plan.num_tasks()


def test_counters_that_begin_anew_give_each_request_once(uri: str, pool: ThreadPoolExecutor, hurried: None) -> None:
    table = lance_io.dataset(uri)
    for _ in range(50):
        table.take([1], ["i"])
    total = table.io_stats_snapshot().read_iops
    assert total
    found = in_threads(pool, lambda: [table.io_stats_incremental().read_iops for _ in range(50)])
    assert sum(map(sum, found)) == total


def test_a_checkpoint_belongs_to_one_call(uri: str, tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    """The other one is refused while it is under way, which costs the first nothing."""
    came, go_on = threading.Event(), threading.Event()
    checkpoint = tmp_path / "checkpoint"

    @batch_udf(output_schema=pa.schema([pa.field("j", pa.int64())]), checkpoint_file=checkpoint)
    def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
        came.set()
        assert go_on.wait(SECONDS_MAX)
        return pa.record_batch({"j": pa.compute.multiply(batch["i"], 2)})

    table, other = lance_io.dataset(uri), lance_io.dataset(uri)
    first: Future[Any] = pool.submit(table.add_columns, slow, ["i"])
    try:
        assert came.wait(SECONDS_MAX)
        with pytest.raises(OperationError, match="cannot be used: database is locked"):
            other.add_columns(slow, ["i"])
    finally:
        go_on.set()
    first.result(SECONDS_MAX)
    found = lance.dataset(uri).to_table()
    assert found["j"].to_pylist() == [2 * i for i in found["i"].to_pylist()]
    assert not checkpoint.exists()
