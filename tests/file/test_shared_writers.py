"""One file writer, many threads or gathered calls: each batch is whole, and calls are done in their order."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import lance.file
import numpy as np
import pyarrow as pa
import pytest

from lance_io.errors import SchemaError, UsageError
from lance_io.file import AsyncFileWriter, LanceFileReader, LanceFileWriter
from lance_io.runtime.engine import current_engine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

THREADS: Final = 4
COLUMNS: Final = [f"c{i}" for i in range(12)]
SECONDS_MAX: Final = 60  # only a hang takes this long


def batch_of(number: int, num_rows: int = 100) -> pa.RecordBatch:
    """One number everywhere."""
    return pa.record_batch([np.full(num_rows, number)] * len(COLUMNS), names=COLUMNS)


@pytest.fixture
def hurried() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def numbers_of(table: pa.Table) -> list[int]:
    """The number of each batch, in the order of the file; all columns must agree."""
    columns = [column.to_numpy().reshape(-1, 100) for column in table.columns]
    assert all((column == columns[0]).all() for column in columns)
    assert (columns[0] == columns[0][:, :1]).all()
    return [int(number) for number in columns[0][:, 0]]


@pytest.mark.parametrize("pages", [None, 1000])
def test_batches_of_many_threads_are_whole_as_in_pylance(tmp_path: Path, hurried: None, pages: int | None) -> None:
    for name, writer_of in (("theirs", lance.file.LanceFileWriter), ("ours", LanceFileWriter)):
        path = str(tmp_path / name)
        writer: Any = writer_of(path, max_page_bytes=pages)
        with ThreadPoolExecutor(THREADS) as pool:
            [*pool.map(lambda number, writer=writer: writer.write_batch(batch_of(number)), range(80))]
        assert writer.close() == 8000
        assert sorted(numbers_of(LanceFileReader(path).read_all().to_table())) == [*range(80)]
        assert sorted(numbers_of(lance.file.LanceFileReader(path).read_all().to_table())) == [*range(80)]


def test_the_end_of_a_file_waits_for_the_batch_under_way(tmp_path: Path) -> None:
    """A batch is handed over by another thread when the file is closed: it is in it, or it is refused."""
    came, go_on = threading.Event(), threading.Event()

    class Slow:
        """A batch that comes when it is let go."""

        def __arrow_c_array__(self, requested_schema: object = None) -> Any:
            came.set()
            assert go_on.wait(SECONDS_MAX)
            return batch_of(1).__arrow_c_array__(requested_schema)

    writer = LanceFileWriter(tmp_path / "f", batch_of(0).schema)
    with ThreadPoolExecutor(2) as pool:
        batch = pool.submit(writer.write_batch, Slow())
        assert came.wait(SECONDS_MAX)
        closed = pool.submit(writer.close)
        go_on.set()
        batch.result(SECONDS_MAX)
        assert closed.result(SECONDS_MAX) == 100
    assert numbers_of(LanceFileReader(tmp_path / "f").read_all().to_table()) == [1]


@pytest.mark.parametrize("schema", [None, batch_of(0).schema])
@pytest.mark.parametrize("is_entered", [True, False])
async def test_gathered_calls_are_done_in_their_order(
    tmp_path: Path, schema: pa.Schema | None, is_entered: bool
) -> None:
    writer = AsyncFileWriter(tmp_path / "f", schema, max_page_bytes=1000)
    if is_entered:
        await writer.__aenter__()
    calls: list[Any] = [writer.write_batch(batch_of(number)) for number in range(30)]
    calls += [writer.add_global_buffer(b"one"), writer.add_global_buffer(b"two"), writer.close(), writer.close()]
    assert await asyncio.gather(*calls) == [None] * 30 + [1, 2, 3000, None]
    assert numbers_of(lance.file.LanceFileReader(str(tmp_path / "f")).read_all().to_table()) == [*range(30)]


async def test_calls_behind_a_batch_that_does_not_fit(tmp_path: Path) -> None:
    """It has no consequences for them."""
    async with AsyncFileWriter(tmp_path / "f", batch_of(0).schema) as writer:
        wrong = pa.record_batch({"other": [1]})
        calls = (writer.write_batch(one) for one in (batch_of(1), wrong, batch_of(2)))
        first, second, third = await asyncio.gather(*calls, return_exceptions=True)
    assert (first, type(second), third) == (None, SchemaError, None)
    assert numbers_of(LanceFileReader(tmp_path / "f").read_all().to_table()) == [1, 2]


@pytest.mark.parametrize("which", [0, 1])
async def test_a_cancelled_call_leaves_no_file_that_lacks_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    """The first call is under way, the second one waits for it; those behind them are refused."""
    came, go_on = threading.Event(), threading.Event()

    async def held(*_: object) -> None:
        came.set()
        await asyncio.to_thread(go_on.wait, SECONDS_MAX)

    monkeypatch.setattr("lance_io.file.write.writers.load_client", held)
    writer = AsyncFileWriter(tmp_path / "f", batch_of(0).schema)
    calls = [asyncio.ensure_future(writer.write_batch(batch_of(number))) for number in range(3)]
    calls.append(asyncio.ensure_future(writer.close()))
    assert await asyncio.to_thread(came.wait, SECONDS_MAX)
    calls[which].cancel()
    for _ in range(5):  # until it has said so to the engine, which hears of that first
        await asyncio.sleep(0)
    go_on.set()
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(found[which], asyncio.CancelledError)
    assert [type(one) for one in found[which + 1 : 3]] == [UsageError] * (2 - which)
    assert found[3] is None and writer.closed
    assert not os.listdir(tmp_path)


async def test_a_call_that_is_cancelled_before_it_begins(tmp_path: Path) -> None:
    """The engine has other things to do, and gets calls and cancellation together: the same is true."""
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        go_on.wait(SECONDS_MAX)

    writer = AsyncFileWriter(tmp_path / "f", batch_of(0).schema)
    await writer.write_batch(batch_of(0))
    current_engine().loop.call_soon_threadsafe(hold)
    assert await asyncio.to_thread(held.wait, SECONDS_MAX)
    calls = [asyncio.ensure_future(writer.write_batch(batch_of(number))) for number in range(1, 4)]
    calls.append(asyncio.ensure_future(writer.close()))
    await asyncio.sleep(0)  # all have been handed over
    calls[1].cancel()
    for _ in range(5):  # and the cancellation
        await asyncio.sleep(0)
    go_on.set()
    first, cancelled, behind, closed = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(cancelled, asyncio.CancelledError)
    assert (type(behind), closed) == (UsageError, None)
    assert first is None or isinstance(first, UsageError)
    assert not os.listdir(tmp_path)
