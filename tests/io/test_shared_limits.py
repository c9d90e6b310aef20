"""What the datasets of a session share: places, bytes, an order, counters, numbers of their stores."""

from __future__ import annotations

import asyncio
import pickle
import random
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io import IoScheduler, Session
from lance_io.io.budget import process_pool
from lance_io.io.scheduler import ReadScheduler
from lance_io.io.slots import slots_of
from lance_io.io.stats import io_stats
from lance_io.spans import Ranges
from tests.io.fakes import PROFILE, FakeStore, content

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = content(4096)
PART = 50  # bytes: far enough apart to share no read, and half of the longest


def parts(count: int, first: int = 0) -> list[Ranges]:
    return [Ranges.of((start, start + PART)) for start in range(100 * first, 100 * (first + count), 100)]


async def idle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency": 0},
        {"concurrency": True},
        {"io_buffer_size": -1},
        {"retries": 1.5},
        {"timeout": 0},
        {"timeout": float("inf")},
        {"timeout": "5s"},
        {"priority": None},
        {"gap_bytes_max": -1},
        {"read_bytes_max": 0},
    ],
    ids=str,
)
def test_numbers_that_cannot_be(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        IoScheduler(**wrong)


async def test_readers_share_places() -> None:
    shared = IoScheduler(concurrency=3)
    stores = [FakeStore({"f": DATA}), FakeStore({"f": DATA})]
    for store in stores:
        store.held = True
    readers = [ReadScheduler(store, merge="take", shared=shared) for store in (*stores, stores[0])]
    handles = [
        reader.file("f", size_bytes=4096).submit(one) for at, reader in enumerate(readers) for one in parts(4, 4 * at)
    ]
    most = 0
    while not all(handle.done for handle in handles):
        await idle()
        in_flight = sum(store.in_flight for store in stores)
        most = max(most, in_flight)
        assert in_flight <= 3
        for store in stores:
            store.release()
    assert most == 3
    for at, handle in enumerate(handles):
        fetched = await handle
        assert bytes(fetched.piece(0, PART)) == DATA[100 * at : 100 * at + PART]
    for reader in readers:
        await reader.aclose()
    assert [slots_of(store).in_use for store in stores] == [0, 0]
    assert shared.stats.num_reads == sum(len(store.log) for store in stores) == 12
    assert shared.stats.bytes_read == 12 * PART


async def test_a_smaller_number_goes_first() -> None:
    store = FakeStore({name: DATA for name in "abc"})
    store.held = True
    limit = store.profile.requests_max
    first = ReadScheduler(store, merge="take")
    handles = [first.file("a", size_bytes=4096).submit(one) for one in parts(limit)]
    await idle()
    late = ReadScheduler(store, merge="take", shared=IoScheduler(priority=5))
    soon = ReadScheduler(store, merge="take", shared=IoScheduler(priority=-5))
    handles += [late.file("b", size_bytes=4096).submit(one) for one in parts(1)]
    await idle()
    handles += [soon.file("c", size_bytes=4096).submit(one) for one in parts(1)]
    await idle()
    assert [key for key, *_ in store.log] == ["a"] * limit
    while not all(handle.done for handle in handles):
        store.release()
        await idle()
    assert [key for key, *_ in store.log[limit:]] == ["c", "b"]
    for handle in handles:
        await handle


@pytest.mark.parametrize("seed", range(20))
async def test_every_place_comes_back(seed: int) -> None:
    dice = random.Random(seed)
    shared = IoScheduler(concurrency=dice.randint(1, 4), priority=dice.randint(-1, 1))
    store = FakeStore({"f": DATA})
    store.held = True
    whose = [dice.choice([shared, shared, None]) for _ in range(dice.randint(2, 5))]
    readers = [ReadScheduler(store, merge="take", shared=one) for one in whose]
    waiting: list[asyncio.Task[Any]] = []
    for _ in range(40):
        reader = dice.choice(readers)
        if reader._closed is None:
            handle = reader.file("f", size_bytes=4096).submit(dice.choice(parts(30)))
            waiting.append(asyncio.ensure_future(_taken(handle)))
        await idle()
        if dice.random() < 0.4 and waiting:
            dice.choice(waiting).cancel()
        if dice.random() < 0.1:
            reader.close()
        if dice.random() < 0.5:
            store.release()
    while store.in_flight or not all(task.done() for task in waiting):
        store.release()
        await idle()
    await asyncio.gather(*waiting, return_exceptions=True)
    await asyncio.gather(*(reader.aclose() for reader in readers))
    assert slots_of(store).in_use == 0
    assert shared._slots is not None
    assert shared._slots.in_use == 0


async def _taken(handle: Any) -> Any:
    return await handle


async def test_readers_share_bytes() -> None:
    before = process_pool().avail_bytes
    capacity = 4 * PART + PROFILE.take_gap_bytes  # what a request will take is known to a gap until it is planned
    shared = IoScheduler(io_buffer_size=capacity)
    store = FakeStore({"f": DATA})
    readers = [ReadScheduler(store, merge="take", shared=shared) for _ in range(3)]
    handles = [
        [reader.file("f", size_bytes=4096).submit(one) for one in parts(10, 10 * at)]
        for at, reader in enumerate(readers)
    ]
    await idle()
    held = sum(reader._own.budget.held_bytes for reader in readers)
    # Three parts with their gaps are within the bound; every other reader may begin one in any case.
    assert held == 3 * PART + 2 * PART
    assert process_pool().avail_bytes == before - held
    for own in zip(*handles, strict=True):
        for handle in own:
            await handle
    assert shared.pool.avail_bytes == capacity
    assert process_pool().avail_bytes == before


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("sharing") / "t.lance")
    lance.write_dataset(pa.table({"a": range(40_000), "b": [f"row {i}" for i in range(40_000)]}), path)
    return path


@pytest.mark.parametrize(
    "read",
    [
        lambda ds: ds.to_table(),
        lambda ds: pa.Table.from_batches(ds.to_batches()),
        lambda ds: ds.take([5, 30_000]),
        lambda ds: ds.to_table(filter="a % 7 = 0"),
    ],
    ids=["table", "batches", "take", "filter"],
)
def test_counts_of_local_reads(table: str, read: Callable[[Any], pa.Table]) -> None:
    shared = IoScheduler(io_buffer_size=1 << 20)
    found = [lance_io.dataset(table, session=Session(io_scheduler=shared)) for _ in range(2)]
    with io_stats() as seen:
        for dataset in found:
            assert read(dataset) == read(lance.dataset(table))
    assert shared.stats.num_ranges > 0
    assert (shared.stats.num_ranges, shared.stats.bytes_wanted, shared.stats.num_reads) == (
        seen.num_ranges,
        seen.bytes_wanted,
        seen.num_reads,
    )
    assert shared.pool.avail_bytes == 1 << 20


def test_numbers_of_stores() -> None:
    shared = IoScheduler(retries=2, timeout=1.5, gap_bytes_max=7, read_bytes_max=5 << 20)
    session = Session(io_scheduler=shared)
    given = {"region": "eu-west-1", "Request_Timeout": "9s", "scan_gap_bytes": "11"}
    store: Any = session.locate("s3://bucket/t.lance", given).store
    profile = store.profile
    assert (store.options.retry.attempts_max, store.options.request_timeout_s) == (3, 9.0)
    assert (profile.take_gap_bytes, profile.scan_gap_bytes) == (7, 11)
    assert (profile.take_read_bytes_max, profile.scan_read_bytes_max, profile.split_bytes) == (5 << 20,) * 3
    plain: Any = session.locate("s3://bucket/u.lance", {"region": "eu-west-1"}).store
    assert plain.options.request_timeout_s == 1.5


def test_scans_hold_what_the_session_says(table: str) -> None:
    session = Session(io_scheduler=IoScheduler(io_buffer_size=12_345))
    state: Any = lance_io.dataset(table, session=session)._state
    assert state.context.io_buffer_bytes == 12_345
    assert state.scan_context(99).io_buffer_bytes == 99


def test_a_copy_has_the_same_numbers() -> None:
    session = Session(io_scheduler=IoScheduler(3, 4096, 1, 2.5, -1, gap_bytes_max=8))
    copy = pickle.loads(pickle.dumps(session))
    assert repr(copy.io_scheduler) == repr(session.io_scheduler)
    assert "concurrency=3, io_buffer_size=4096, retries=1, timeout=2.5, priority=-1" in repr(copy.io_scheduler)
    assert copy.io_scheduler.stats is not session.io_scheduler.stats
