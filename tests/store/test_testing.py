"""The stores that `lance_io.testing` ships for tests: what they record, how they fail, what time means in them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lance_io.spans import Ranges
from lance_io.store.failures import Throttled, Transient
from lance_io.store.local.disk import LocalStore
from lance_io.store.memory import MemoryStore
from lance_io.store.offers import PlanReads, SyncReads
from lance_io.testing.faults import FAULTS_OF_WRITES, Crashed, Fault, FaultyStore, count_requests
from lance_io.testing.latency import LatencyStore, run_virtual
from lance_io.testing.record import record

if TYPE_CHECKING:
    from lance_io.testing.wrap import Request


@pytest.fixture
def memory() -> MemoryStore:
    store = MemoryStore()
    store.put_sync("base/data/x", bytes(1000))
    return store


async def test_a_log_tells_every_request(memory: MemoryStore) -> None:
    store = record(memory, "base")
    await store.get_range("base/data/x", 0, 100)
    await store.get_suffix("base/data/x", 40)
    await store.get("base/data/x")
    await store.put("base/y", b"123", if_absent=True)
    _ = [meta async for meta in store.list("base/")]
    await store.delete(["base/y"])
    expected = ["get data/x 0-100", "get data/x -40", "get data/x", "put_create y 3 bytes", "list ", "delete y"]
    assert store.take_log() == expected
    assert store.log == []


def test_a_recorded_store_keeps_its_abilities(memory: MemoryStore) -> None:
    store = record(memory)
    assert isinstance(store, SyncReads)
    assert not isinstance(record(LatencyStore(memory)), SyncReads)
    assert not isinstance(store, PlanReads)  # the asynchronous path is recorded read by read
    assert isinstance(LocalStore(), SyncReads) and isinstance(LocalStore(), PlanReads)
    store.read_sync([("base/data/x", Ranges.of((50, 60), (0, 10), (12, 15)))], 4)
    assert store.log == ["get base/data/x 0-15", "get base/data/x 50-60"]


def test_virtual_time_counts_rounds(memory: MemoryStore) -> None:
    store = LatencyStore(memory)

    async def three_rounds() -> int:
        await store.get_suffix("base/data/x", 10)
        await asyncio.gather(*(store.get_range("base/data/x", at, at + 5) for at in range(100)))
        await asyncio.gather(store.head("base/data/x"), store.get("base/data/x"))
        return 7

    assert run_virtual(three_rounds) == (7, 3.0)


def test_virtual_time_jumps_over_pauses() -> None:
    async def sleep() -> None:
        async with asyncio.timeout(4000):
            await asyncio.sleep(3600)

    assert run_virtual(sleep) == (None, 3600.0)


async def write_twice(store: object) -> None:
    await store.put("a", b"1")  # type: ignore[attr-defined]
    await store.put("b", b"2", if_absent=True)  # type: ignore[attr-defined]


async def test_scripted_faults_of_writes() -> None:
    assert await count_requests(MemoryStore(), write_twice) == 2
    left: dict[tuple[int, Fault], list[str]] = {}
    for call in range(2):
        for fault in FAULTS_OF_WRITES:
            inner = MemoryStore()
            with pytest.raises((Transient, Crashed)):
                await write_twice(FaultyStore(inner, {call: fault}))
            left[call, fault] = [meta.key async for meta in inner.list("")]
    assert left == {
        (0, Fault.REFUSED): [],
        (0, Fault.LOST_ANSWER): ["a"],
        (0, Fault.CRASH): ["a"],
        (0, Fault.THROTTLED): [],
        (1, Fault.REFUSED): ["a"],
        (1, Fault.LOST_ANSWER): ["a", "b"],
        (1, Fault.CRASH): ["a", "b"],
        (1, Fault.THROTTLED): ["a"],
    }


async def test_after_a_crash_nothing_goes_on() -> None:
    store = FaultyStore(MemoryStore(), {0: Fault.CRASH})
    with pytest.raises(Crashed):
        await store.put("a", b"1")
    with pytest.raises(Crashed):
        await store.head("a")


async def test_scripted_faults_of_reads(memory: MemoryStore) -> None:
    def reads(request: Request) -> bool:
        return not request.is_write

    store = FaultyStore(memory, {0: Fault.SHORT_BODY, 2: Fault.THROTTLED, 3: Fault.STALE_LIST}, counts=reads)
    assert len(await store.get_range("base/data/x", 0, 100)) == 50
    assert len(await store.get_range("base/data/x", 0, 100)) == 100
    with pytest.raises(Throttled):
        await store.get("base/data/x")
    await store.put("base/new", b"")
    assert [meta.name async for meta in store.list("base/")] == ["x"]
    assert [meta.name async for meta in store.list("base/")] == ["x", "new"]


def test_a_slow_request_costs_a_minute(memory: MemoryStore) -> None:
    store = FaultyStore(memory, {0: Fault.SLOW}, counts=lambda request: True)
    _, passed_s = run_virtual(lambda: store.head("base/data/x"))
    assert passed_s == 60.0
