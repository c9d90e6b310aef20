"""Dependent rounds and requests of writes, as exact numbers; every request lasts one unit of virtual time.

pylance needs a chain of 6 dependent requests to append on S3 and of 10 to delete.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from lance_io import runtime
from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.reads.version.session import Session
from lance_io.store.memory import MemoryStore
from lance_io.store.profile import CLOUD
from lance_io.store.url import Location
from lance_io.testing.latency import LatencyStore, run_virtual
from lance_io.testing.record import RecordingStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

ROWS = pa.table({"a": np.arange(1000), "s": [f"row {i}" for i in range(1000)]})


async def batches() -> AsyncIterator[pa.RecordBatch]:
    """The rows from this loop: virtual time does not wait for threads."""
    for batch in ROWS.to_batches():
        yield batch


class Bench:
    """A table behind a store that records and delays."""

    def __init__(self) -> None:
        self.store = RecordingStore(LatencyStore(MemoryStore(profile=CLOUD)))

    def session(self) -> Session:
        """A session that knows nothing of the table yet."""
        session = Session()
        session.locate = lambda uri, options: Location(self.store, "t", "memory://t")
        return session

    def run(self, *steps: Callable[[Bench], Awaitable[Any]]) -> tuple[int, list[str]]:
        """Rounds and requests (operation and folder) of the last step."""

        async def body() -> tuple[int, list[str]]:
            loop = asyncio.get_running_loop()
            rounds, log = 0, []
            with runtime.use_loop(loop):
                for step in steps:
                    since = loop.time()
                    self.store.take_log()
                    await step(self)
                    rounds, log = round(loop.time() - since), self.store.take_log()
            return rounds, [self._short(line) for line in log]

        return run_virtual(body)[0]

    @staticmethod
    def _short(line: str) -> str:
        operation, key, *_ = line.split()
        return f"{operation} {key.split('/')[1]}"

    def write(self, mode: str = "create", **options: Any) -> Callable[[Bench], Awaitable[Any]]:
        """A write by URI."""
        return lambda bench: AsyncDataset.write(
            batches(), "memory://t", ROWS.schema, mode, session=bench.session(), **options
        )


def test_create_takes_two_rounds() -> None:
    bench = Bench()
    rounds, log = bench.run(bench.write())
    assert rounds == 2
    assert sorted(log[:-1]) == ["list _versions", "put _transactions", "put data"]
    assert log[-1] == "put_create _versions"


def test_append_by_uri_takes_four_rounds() -> None:
    bench = Bench()
    rounds, log = bench.run(bench.write(), bench.write("append"))
    assert rounds == 4
    assert log[:2] == ["list _versions", "get _versions"]
    assert sorted(log[2:4]) == ["put _transactions", "put data"]
    assert log[4:] == ["put_create _versions"]


def test_append_to_an_open_table_takes_two_rounds_and_three_after_others() -> None:
    bench = Bench()
    tables: list[AsyncDataset] = []

    async def open_table(bench: Bench) -> None:
        tables.append(await AsyncDataset.open("memory://t", session=bench.session()))

    async def insert(_: Bench) -> None:
        await tables[0].insert(ROWS)

    rounds, log = bench.run(bench.write(), open_table, insert)
    assert rounds == 2
    assert sorted(log[:-1]) == ["list _versions", "put _transactions", "put data"]
    rounds, log = bench.run(bench.write("append"), bench.write("append"), insert)
    assert rounds == 3
    assert sorted(log[3:5]) == ["get _versions", "get _versions"]
    assert len(log) == 6


@pytest.mark.parametrize(("version", "expected"), [(None, 4), ("2.1", 3)])
def test_overwrite_by_uri(version: str | None, expected: int) -> None:
    bench = Bench()
    rounds, log = bench.run(bench.write(), bench.write("overwrite", data_storage_version=version))
    assert rounds == expected
    assert sorted(log) == sorted(
        ["list _versions", "get _versions", "put data", "put _transactions", "put_create _versions"]
    )


@pytest.mark.parametrize("with_deletions", [False, True])
def test_delete_by_uri_takes_six_rounds(with_deletions: bool) -> None:
    bench = Bench()

    async def delete(bench: Bench) -> None:
        table = await AsyncDataset.open("memory://t", session=bench.session())
        await table.delete("a = 7")

    async def delete_before(bench: Bench) -> None:
        table = await AsyncDataset.open("memory://t", session=bench.session())
        await table.delete("a = 8")

    steps = [bench.write(), *([delete_before] if with_deletions else []), delete]
    rounds, log = bench.run(*steps)
    assert rounds <= 6, log
    assert log[-1] == "put_create _versions"
    assert "put _deletions" in log


def test_the_tables_are_whole() -> None:
    bench = Bench()

    async def delete(bench: Bench) -> None:
        table = await AsyncDataset.open("memory://t", session=bench.session())
        assert await table.delete("a % 2 = 0") == {"num_deleted_rows": 500}
        assert (await table.to_table()).num_rows == 500

    bench.run(bench.write(max_rows_per_file=300), delete)
