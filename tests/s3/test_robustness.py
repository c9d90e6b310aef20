"""Scans of a table on S3: memory, several loops and threads, Ctrl-C, the end of the interpreter."""

from __future__ import annotations

import asyncio
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset, limits, runtime
from lance_io.io.stats import io_stats, store_stats
from lance_io.limits import MIB
from tests.s3.proxy import FaultyProxy, Harm
from tests.store.table_conformance import run_program

if TYPE_CHECKING:
    from tests.servers import S3Server

CHECKOUT = Path(__file__).resolve().parents[2]
ROWS = 400_000
SECONDS_MAX = 60


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    dice = np.random.default_rng(0)
    numbers = dice.integers(0, 1 << 62, ROWS)
    return pa.table({"row": np.arange(ROWS), "number": numbers, "float": dice.random(ROWS)})


@pytest.fixture(scope="module")
def uri(rows: pa.Table, s3: S3Server) -> str:
    """Two files of one page per column."""
    place = f"s3://{s3.bucket}/test-{uuid.uuid4().hex}/t.lance"
    lance.write_dataset(rows, place, max_rows_per_file=ROWS // 2, storage_options=s3.options())
    return place


async def under_way() -> set[Any]:
    """Tasks of the engine; to be asked there."""
    return asyncio.all_tasks() - {asyncio.current_task()}


async def left_of(tasks: set[Any]) -> set[Any]:
    """Those that have not ended after a while."""
    return (await asyncio.wait(tasks, timeout=SECONDS_MAX / 2))[1] if tasks else set()


def test_a_scan_stays_within_its_buffer(
    uri: str, rows: pa.Table, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SCAN_PIECE_BYTES", MIB // 4)
    options = s3.options(scan_gap_bytes="16384", user_agent=uuid.uuid4().hex)
    ds = lance_io.dataset(uri, storage_options=options)
    stats = store_stats(ds._state.location.store.identity)
    before = stats.snapshot()
    assert pa.Table.from_batches(ds.to_batches(io_buffer_size=MIB)) == rows
    after = stats.snapshot()
    largest = 2 * MIB // 4 + 2 * 16384
    assert after.bytes_held_peak <= max(before.bytes_held_peak, MIB + 2 * largest)
    assert stats._bytes_held == 0
    assert after.bytes_read - before.bytes_read <= 1.02 * (after.bytes_wanted - before.bytes_wanted)


async def test_statistics_count_what_went_over_the_wire(uri: str, s3: S3Server) -> None:
    table = await AsyncDataset.open(uri, storage_options=s3.options())
    store = table._state.location.store
    before = store.stats.snapshot()
    with io_stats() as seen:
        await table.take([7, 8])
    spent = store.stats.snapshot() - before
    assert (seen.num_reads, seen.bytes_read) == (spent["get"].requests, spent.bytes_read)
    assert seen.rounds == 3
    with io_stats() as seen:
        await table.take([7, ROWS - 7])  # the second file is opened meanwhile
    assert seen.rounds <= 3


async def test_a_scan_tells_of_requests_made_again(uri: str, rows: pa.Table, s3: S3Server) -> None:
    class EveryThird(FaultyProxy):
        def _harm(self) -> Harm | None:
            self.done["cut"] += 1
            return "cut" if self.done["cut"] % 3 == 0 else None

    with EveryThird(s3.endpoint, seed=0) as proxy:
        options = s3.options(aws_endpoint=proxy.endpoint, hedge_percent="0")
        table = await AsyncDataset.open(uri, storage_options=options)
        store = table._state.location.store
        for driver in (table, lance_io.dataset(uri, storage_options=options)):
            before, told = driver._state.location.store.stats.snapshot(), []
            scanner = driver.scanner(["number"], scan_stats_callback=told.append)
            found = scanner.to_table()
            assert (found if isinstance(found, pa.Table) else await found) == rows.select(["number"])
            again = (driver._state.location.store.stats.snapshot() - before)["get"].retries
            assert told[0].retries == again > 0
        assert store_stats(store.identity).retries >= again


def test_one_dataset_on_many_loops_and_threads(uri: str, rows: pa.Table, s3: S3Server) -> None:
    ds = lance_io.dataset(uri, storage_options=s3.options())
    table = AsyncDataset.of(ds)

    def work(number: int) -> bool:
        index = [number * 1000, ROWS - 1 - number]
        plain = ds.take(index) == rows.take(index)
        other = asyncio.run(table.take(index, ["number"])) == rows.select(["number"]).take(index)
        return plain and other and ds.to_table(["row"])["row"].to_pylist()[-1] == ROWS - 1

    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(work, range(12)))
    assert runtime.run(left_of(runtime.run(under_way()))) == set()


def test_ctrl_c(uri: str, s3: S3Server) -> None:
    code = """
        from tests.interrupting import keep_interrupts

        keep_interrupts()
        main = threading.get_ident()
        threading.Timer(0.5, signal.pthread_kill, (main, signal.SIGINT)).start()
        try:
            while True:
                for batch in ds.to_batches(batch_size=1000, io_buffer_size=1):
                    pass
        except KeyboardInterrupt:
            print("interrupted")
        assert ds.to_table(["row"]).num_rows == 400_000
    """
    assert run_program(code, uri, s3.options()) == (0, "interrupted\n", "")


def test_the_interpreter_ends_with_an_open_iterator(uri: str, s3: S3Server) -> None:
    code = """
        scan = iter(ds.to_batches(batch_size=10, io_buffer_size=1))
        next(scan)
        print("bye")
    """
    assert run_program(code, uri, s3.options()) == (0, "bye\n", "")
