"""What takes by different callers share: GETs of one turn, ranges that are under way, places in line."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io.io.budget import Pool
from lance_io.io.scheduler import ReadScheduler
from lance_io.io.slots import slots_of
from lance_io.io.stats import io_stats
from lance_io.spans import Ranges
from lance_io.store.failures import ShortRead
from lance_io.testing.latency import run_virtual
from tests.io.fakes import PROFILE, FakeCachedStore, FakeStartStore, FakeStore, FakeTogetherStore, content

SIZE = 4000
FILES = {"a": content(SIZE, 3), "b": content(SIZE, 4)}
STORES = [FakeStore, FakeStartStore, FakeTogetherStore]
FEW = Ranges.of((100, 110))


def takes(store: FakeStore, count: int, **options: Any) -> list[ReadScheduler]:
    return [ReadScheduler(store, merge="take", **options) for _ in range(count)]


async def turns(count: int = 8) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def assert_clean(*schedulers: ReadScheduler) -> None:
    for scheduler in schedulers:
        operation = scheduler._own
        assert operation.budget.held_bytes == 0 and not operation.live
        dispatcher = operation.dispatcher
        assert dispatcher is None or not (dispatcher.in_flight or dispatcher._queue or dispatcher._under_way)
        assert slots_of(scheduler.store).in_use == 0


async def answer(handle: Any) -> bytes:
    return bytes((await handle).piece(0, 10))


@pytest.mark.parametrize("kind", STORES)
async def test_callers_of_one_turn_share_the_gets_of_neighbours(kind: type[FakeStore]) -> None:
    store = kind(FILES)
    one, two, other = takes(store, 3)
    with io_stats() as seen:
        found = await asyncio.gather(
            answer(one.file("a").submit(Ranges.of((100, 110)))),
            answer(two.file("a").submit(Ranges.of((113, 123)))),
            answer(other.file("b").submit(Ranges.of((100, 110)))),
        )
    assert found == [FILES["a"][100:110], FILES["a"][113:123], FILES["b"][100:110]]
    assert sorted(store.log) == [("a", 100, 123), ("b", 100, 110)]
    assert (seen.num_reads, seen.bytes_read, seen.bytes_wanted, seen.rounds) == (2, 33, 30, 1)
    assert (one.stats.num_reads, two.stats.num_reads, other.stats.num_reads) == (1, 1, 1)
    await turns()
    assert_clean(one, two, other)


@pytest.mark.parametrize("kind", STORES)
async def test_a_range_that_is_under_way_is_not_asked_for_again(kind: type[FakeStore]) -> None:
    store = kind(FILES)
    store.held = True
    first, *others = takes(store, 5)
    handles = [first.file("a").submit(Ranges.of((100, 110), (900, 910)))]
    await turns()
    for other in others:
        handles.append(other.file("a").submit(Ranges.of((100, 110), (500, 510))))
        await turns()
    assert store.log == [("a", 100, 110), ("a", 900, 910), ("a", 500, 510)]
    store.release()
    for handle, second in zip(handles, (900, *[500] * 4), strict=True):
        fetched = await handle
        assert bytes(fetched.piece(0, 10)) == FILES["a"][100:110]
        assert bytes(fetched.piece(1, 10)) == FILES["a"][second : second + 10]
    await turns()
    assert_clean(first, *others)
    store.held = False
    assert await answer(first.file("a").submit(Ranges.of((100, 110)))) == FILES["a"][100:110]
    assert len(store.log) == 4  # what was answered is not under way


@pytest.mark.parametrize("kind", STORES)
async def test_ends_and_whole_objects_are_read_as_ever(kind: type[FakeStore]) -> None:
    (scheduler,) = takes(kind(FILES), 1)
    assert await scheduler.suffix("a", 10) == (FILES["a"][-10:], SIZE, None)
    assert (await scheduler.whole("b"))[0] == FILES["b"]
    await turns()
    assert_clean(scheduler)


async def test_who_joins_holds_no_more_than_it_asked_for() -> None:
    """The first one's answer lies in memory of its own, many times as large."""
    store = FakeStartStore(FILES)
    store.held = True
    first, second = takes(store, 2)
    large = first.file("a").submit(Ranges.of((0, 10), *((at, at + 90) for at in range(200, 3200, 100))))
    await turns()
    small = second.file("a").submit(Ranges.of((0, 10)))
    await turns()
    store.release()
    while not large.done:
        store.release()
        await turns()
    whole, one = await large, await small
    assert bytes(one.piece(0, 10)) == bytes(whole.piece(0, 10)) == FILES["a"][:10]
    assert not np.shares_memory(np.frombuffer(one.buffer, np.uint8), np.frombuffer(whole.buffer, np.uint8))
    assert len(memoryview(one.buffer)) == 10


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("who", [0, 1])
async def test_one_who_gives_up_leaves_the_others_what_they_share(kind: type[FakeStore], who: int) -> None:
    store = kind(FILES)
    store.held = True
    schedulers = takes(store, 2)
    handles = []
    for scheduler in schedulers:
        handles.append(scheduler.file("a").submit(Ranges.of((100, 110), (700, 710))))
        await turns()
    assert len(store.log) == 2
    handles[who].cancel()
    await schedulers[who].aclose()
    assert store.cancelled == []
    assert [scheduler._own.budget.held_bytes for scheduler in schedulers] == [20 * (who != 0), 20 * (who != 1)]
    store.release()
    assert await answer(handles[1 - who]) == FILES["a"][100:110]
    await turns()
    assert_clean(*schedulers)


@pytest.mark.parametrize("kind", STORES)
async def test_when_all_give_up_it_is_cancelled_and_may_be_asked_for_again(kind: type[FakeStore]) -> None:
    store = kind(FILES)
    store.held = True
    one, two = takes(store, 2)
    handles = [one.file("a").submit(Ranges.of((0, 10)))]
    await turns()
    handles.append(two.file("a").submit(Ranges.of((0, 10))))
    await turns()
    for handle in handles:
        handle.cancel()
    third = one.file("a").submit(Ranges.of((0, 10)))
    await turns()
    assert store.cancelled == [("a", 0, 10)]
    store.release()
    assert await answer(third) == FILES["a"][:10]
    assert len(store.log) == 2
    await turns()
    assert_clean(one, two)


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("gives_up", [False, True])
async def test_what_nobody_wanted_while_it_was_queued_is_not_joined(kind: type[FakeStore], gives_up: bool) -> None:
    """Its payer has left, and the bytes of who joined it were never given back to the pool."""
    store = kind(FILES, profile=replace(PROFILE, requests_max=1))
    store.held = True
    pool = Pool(1000)
    busy, first, second = takes(store, 3, pool=pool)
    one = busy.file("a").submit(Ranges.of((0, 10)))
    await turns()
    left = first.file("a").submit(Ranges.of((500, 510)))
    await turns()
    left.cancel()
    late = second.file("a").submit(Ranges.of((500, 510)))
    await turns()
    assert [take._own.budget.held_bytes for take in (busy, first, second)] == [10, 0, 10]
    store.release(1)
    assert await answer(one) == FILES["a"][:10]
    await turns()
    assert store.log == [("a", 0, 10), ("a", 500, 510)]
    if gives_up:
        late.cancel()
    store.release()
    if not gives_up:
        assert await answer(late) == FILES["a"][500:510]
    await turns()
    assert pool.avail_bytes == pool.capacity_bytes
    assert_clean(busy, first, second)


@pytest.mark.parametrize("kind", STORES)
async def test_an_error_is_everybodys_and_is_forgotten(kind: type[FakeStore]) -> None:
    store = kind(FILES)
    store.held = True
    store.failures["a", 0] = OSError("no")
    one, two = takes(store, 2)
    handles = [one.file("a").submit(Ranges.of((0, 10)))]
    await turns()
    handles.append(two.file("a").submit(Ranges.of((0, 10))))
    await turns()
    store.release()
    for handle in handles:
        with pytest.raises(OSError, match="no"):
            await handle
    store.held, store.failures = False, {}
    assert await answer(one.file("a").submit(Ranges.of((0, 10)))) == FILES["a"][:10]
    await turns()
    assert_clean(one, two)


@pytest.mark.parametrize("kind", STORES)
async def test_reads_that_end_together_end_once_though_some_fail(kind: type[FakeStore]) -> None:
    """Of a request whose first read fails nobody waits for the others, which end in the same moment."""
    store = kind(FILES)
    store.held = True
    store.failures["a", 0] = ShortRead("cut", path="a")
    one, two = takes(store, 2)
    failing = one.file("a").submit(Ranges.of((0, 10), (1000, 1010), (2000, 2010)))
    other = two.file("b").submit(Ranges.of((0, 10)))
    await turns()
    assert slots_of(store).in_use == 4
    store.release()
    with pytest.raises(ShortRead):
        await failing
    assert await answer(other) == FILES["b"][:10]
    await turns()
    assert_clean(one, two)
    assert not one._own.ending and one.stats._in_flight == 0 and one.stats.num_reads == 3
    store.held = False
    assert await answer(one.file("a").submit(Ranges.of((1000, 1010)))) == FILES["a"][1000:1010]


async def test_a_large_take_does_not_keep_small_ones_waiting() -> None:
    store = FakeStore(FILES, profile=replace(PROFILE, requests_max=4))
    store.held = True
    large, small = takes(store, 2)
    many = large.file("a").submit(Ranges.of(*((at, at + 10) for at in range(0, 4000, 100))))
    await turns()
    one = small.file("b").submit(Ranges.of((0, 10)))
    await turns()
    store.release(2)
    await turns()
    assert store.log[4:] == [("a", 400, 410), ("b", 0, 10)]  # in turns, though the other stands in line with 36
    one.cancel()
    many.cancel()
    store.release()
    await turns()


def test_time_in_line_is_counted() -> None:
    class Slow(FakeStore):
        async def get_range(self, key: str, start: int, end: int) -> bytes:
            await asyncio.sleep(1.0)
            return await super().get_range(key, start, end)

    async def read() -> ReadScheduler:
        (scheduler,) = takes(Slow(FILES, profile=replace(PROFILE, requests_max=2)), 1)
        await scheduler.file("a").submit(Ranges.of(*((at, at + 10) for at in range(0, 600, 100))))
        return scheduler

    scheduler, took_s = run_virtual(read)
    assert took_s == 3.0
    assert (scheduler.stats.queue_s, scheduler.stats.queue_s_max) == (2 * 1.0 + 2 * 2.0, 2.0)


async def test_so_is_the_time_that_a_store_says() -> None:
    (scheduler,) = takes(FakeStartStore(FILES), 1)
    await scheduler.file("a").submit(Ranges.of((0, 10), (500, 510)))
    assert scheduler.stats.queue_s == pytest.approx(2 * 0.25, abs=0.1)
    assert scheduler.stats.queue_s_max == pytest.approx(0.25, abs=0.1)


def test_loops_share_nothing() -> None:
    store = FakeStore(FILES)

    async def read() -> bytes:
        (scheduler,) = takes(store, 1)
        return await answer(scheduler.file("a").submit(Ranges.of((0, 10))))

    assert asyncio.run(read()) == asyncio.run(read()) == FILES["a"][:10]
    assert len(store.log) == 2


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),  # who
            st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4)), min_size=1, max_size=4),  # tens of bytes
            st.integers(0, 3),  # turns until the next one
            st.sampled_from(["wait", "wait", "cancel", "drop"]),
        ),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from(STORES),
    st.sampled_from([0, 60, 1000]),
    st.integers(0, 1 << 30),
)
def test_everybody_gets_what_was_asked_for(steps: Any, kind: Any, budget: int, seed: int) -> None:
    """Takes that come and go while others read the same."""

    async def play() -> None:
        store = kind(FILES)
        store.held = True
        schedulers = takes(store, 4, budget_bytes=budget, pool=Pool(500))
        dice, waiting = np.random.default_rng(seed), []

        async def check(handle: Any, asked: Ranges) -> None:
            fetched = await handle
            for at, (start, end) in enumerate(zip(asked.starts.tolist(), asked.ends.tolist(), strict=True)):
                assert bytes(fetched.piece(at, end - start)) == FILES["a"][start:end]

        for who, pairs, wait, fate in steps:
            asked = Ranges.of(*((100 * start, 100 * start + 10 * tens) for start, tens in pairs))
            handle = schedulers[who].file("a").submit(asked)
            waiting.append((asyncio.create_task(check(handle, asked)) if fate == "wait" else handle, fate))
            del handle
            await turns(wait)
            if dice.random() < 0.5:
                store.release(1)
        for task, fate in waiting:
            if fate == "cancel":
                task.cancel()
        waiting = [(task, fate) for task, fate in waiting if fate == "wait"]
        del task
        while not all(task.done() for task, _ in waiting):
            store.release()
            await turns(2)
        for task, _ in waiting:
            await task
        store.release()
        await turns()
        store.release()
        await turns()
        assert_clean(*schedulers)

    asyncio.run(play())


# -- a disk cache ------------------------------------------------------------------------------------------------


async def test_ranges_of_one_turn_are_looked_for_together_and_the_others_read() -> None:
    store = FakeCachedStore(FILES)
    one, two = takes(store, 2)
    wanted = Ranges.of((100, 110), (201, 211), (300, 310))
    with io_stats() as seen:
        first, second = await asyncio.gather(one.file("a").submit(wanted), answer(two.file("b").submit(FEW)))
    assert [bytes(first.piece(at, 10)) for at in range(3)] == [FILES["a"][at : at + 10] for at in (100, 201, 300)]
    assert second == FILES["b"][100:110]
    assert [[(read.key, read.start, read.end) for read in looked] for looked, _ in store.finds] == [
        [("a", 100, 110), ("a", 201, 211), ("a", 300, 310)]
    ]
    assert sorted(store.log) == [("a", 201, 211), ("b", 100, 110)]
    assert (seen.num_reads, seen.bytes_read, seen.num_cached, seen.bytes_cached) == (2, 20, 2, 20)
    await turns()
    assert_clean(one, two)


async def test_who_is_all_in_the_cache_takes_no_slot_and_no_round() -> None:
    store = FakeCachedStore(FILES, replace(PROFILE, requests_max=1))
    (scheduler,) = takes(store, 1)
    store.held = True
    waiting = scheduler.file("b").submit(FEW)  # which takes the only slot
    await turns()
    with io_stats() as seen:
        assert await answer(scheduler.file("a").submit(FEW)) == FILES["a"][100:110]
    assert (seen.num_reads, seen.rounds, seen.num_cached, len(store.log)) == (0, 0, 1, 1)
    store.release()
    await waiting
    await turns()
    assert_clean(scheduler)


async def test_who_asks_for_what_is_looked_for_joins() -> None:
    store = FakeCachedStore(FILES)
    store.finds_held = True
    first, second = takes(store, 2)
    handles = [first.file("a").submit(Ranges.of((100, 110), (300, 310)))]
    await turns()
    handles.append(second.file("a").submit(FEW))
    await turns()
    assert len(store.finds) == 1
    store.tell()
    assert [bytes((await handle).piece(0, 10)) for handle in handles] == [FILES["a"][100:110]] * 2
    assert store.log == []
    await turns()
    assert_clean(first, second)


@pytest.mark.parametrize("start", [100, 101])
async def test_what_is_given_up_while_it_is_looked_for_is_read_by_nobody(start: int) -> None:
    store = FakeCachedStore(FILES)
    store.finds_held = True
    gone, stays = takes(store, 2)
    handle = gone.file("a").submit(Ranges.of((start, start + 10), (start + 100, start + 110)))
    other = stays.file("a").submit(Ranges.of((start + 500, start + 510)))
    await turns()
    handle.cancel()
    await gone.aclose()
    assert gone._own.budget.held_bytes == 0
    store.tell()
    assert await answer(other) == FILES["a"][start + 500 : start + 510]
    assert store.log == ([] if start == 100 else [("a", start + 500, start + 510)])
    await turns()
    assert_clean(gone, stays)


async def test_what_goes_wrong_in_the_cache_is_told_to_all_who_wait() -> None:
    store = FakeCachedStore(FILES)
    store.finds_held = True
    first, second = takes(store, 2)
    handles = [one.file("a").submit(FEW) for one in (first, second)]
    await turns()
    store.tell(MemoryError("no room"))
    for handle in handles:
        with pytest.raises(MemoryError, match="no room"):
            await handle
    await turns()
    assert_clean(first, second)
