"""The scheduler on stores that answer when told: merging, order, limits, budget, cancellation, errors, counters."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io.errors import FormatError, NotFound
from lance_io.io.budget import Pool
from lance_io.io.scheduler import Handle, ReadScheduler
from lance_io.io.shared_limits import IoScheduler
from lance_io.io.slots import scan_slots_of, slots_of
from lance_io.io.stats import io_stats, process_stats, store_stats
from lance_io.spans import Fetched, Ranges
from lance_io.store.counters import on_retry
from lance_io.store.offers import Flow, flow
from tests.io.fakes import PROFILE, FakeCachedStore, FakePlanStore, FakeStartStore, FakeStore, content

SIZE = 2000
FILES = {"a": content(SIZE, 1), "b": content(SIZE, 2)}


async def turns(count: int = 6) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def assert_answers(fetched: Fetched, key: str, wanted: Ranges, files: dict[str, bytes] = FILES) -> None:
    assert len(fetched.offsets) == len(wanted)
    for index, (start, end) in enumerate(zip(wanted.starts.tolist(), wanted.ends.tolist(), strict=True)):
        assert bytes(fetched.piece(index, end - start)) == files[key][start:end]


def assert_clean(scheduler: ReadScheduler) -> None:
    """Nothing is held, waiting, in flight or in line."""
    assert scheduler._own.budget.held_bytes == 0
    assert not scheduler._own.live
    assert scheduler._own.dispatcher is None or not scheduler._own.dispatcher.in_flight
    assert slots_of(scheduler.store).in_use == scan_slots_of(scheduler.store).in_use == 0


# -- answers ---------------------------------------------------------------------------------------------------

ranges = st.lists(
    st.tuples(st.integers(0, SIZE), st.sampled_from([0, 1, 5, 40, 250])).map(lambda r: (r[0], min(SIZE, sum(r)))),
    max_size=8,
)
submissions = st.lists(
    st.tuples(st.sampled_from("ab"), ranges, st.integers(0, 3), st.booleans()), min_size=1, max_size=8
)


@settings(deadline=None, max_examples=100)
@given(
    submissions,
    st.sampled_from(["take", "scan"]),
    st.sampled_from([0, 1, 300]),
    st.sampled_from([FakeStore, FakePlanStore, FakeStartStore, FakeCachedStore]),
    st.sampled_from(["in order", "reversed", "all at once"]),
)
def test_every_request_gets_its_bytes(
    wanted: list[tuple[str, list[tuple[int, int]], int, bool]], merge: Any, budget: int, store: type, order: str
) -> None:
    async def read() -> None:
        async with ReadScheduler(store(FILES), merge=merge, budget_bytes=budget, pool=Pool(200)) as scheduler:
            handles = []
            for key, pairs, priority, keep in wanted:
                asked = Ranges.of(*pairs, keep=keep)
                handles.append((key, asked, scheduler.file(key, size_bytes=SIZE).submit(asked, priority)))
            if order == "all at once":
                answers = await asyncio.gather(*(handle for _, _, handle in handles))
                for (key, asked, _), answer in zip(handles, answers, strict=True):
                    assert_answers(answer, key, asked)
            for key, asked, handle in [] if order == "all at once" else handles[:: -1 if order == "reversed" else 1]:
                assert_answers(await handle, key, asked)
            await turns()
            assert_clean(scheduler)
            assert scheduler.stats.num_ranges == sum(len(pairs) for _, pairs, _, _ in wanted)

    asyncio.run(read())


async def test_pieces_of_one_answer_are_received_where_they_belong() -> None:
    store = FakeStartStore(FILES)
    wanted = Ranges.of((1500, 1700), (0, 10), (12, 40), (900, 950))
    async with ReadScheduler(store, merge="take") as scheduler:
        answer = await scheduler.file("a", size_bytes=SIZE).submit(wanted)
        assert_answers(answer, "a", wanted)
        received = [np.frombuffer(memory, np.uint8) for memory in store.received]
        assert sum(map(len, received)) == 200 + 40 + 50
        assert all(np.shares_memory(memory, np.frombuffer(answer.buffer, np.uint8)) for memory in received)
        one = await scheduler.file("a", size_bytes=SIZE).submit(Ranges.of((5, 9)))  # that is a piece by itself
        assert (bytes(one.buffer), len(store.received)) == (FILES["a"][5:9], 4)
    assert_clean(scheduler)


@pytest.mark.parametrize("store", [FakeStore, FakeStartStore])
async def test_an_answer_belongs_to_whoever_took_it(store: type) -> None:
    """Its memory, where several pieces came together, is nobody else's; what asked for it is in no cycle."""
    async with ReadScheduler(store(FILES), merge="take") as scheduler:
        wanted = Ranges.of((1500, 1700), (0, 10), (900, 950))
        handle = scheduler.file("a", size_bytes=SIZE).submit(wanted)
        answer = await handle
        assert_answers(answer, "a", wanted)
        await turns()
        holders = gc.get_referrers(answer.buffer)
        assert [one for one in holders if type(one).__name__ == "Request"] == []
        ticket = handle._request.ticket
        assert ticket is not None
        assert ticket.item is None


async def test_what_is_shared_is_received_once_and_copied() -> None:
    store = FakeStartStore(FILES)
    async with ReadScheduler(store, merge="take") as scheduler:
        file = scheduler.file("a", size_bytes=SIZE)
        asked = [Ranges.of((0, 10), (500, 510)), Ranges.of((5, 15), (800, 810))]
        answers = await asyncio.gather(*(file.submit(each) for each in asked))
        for each, answer in zip(asked, answers, strict=True):
            assert_answers(answer, "a", each)
    assert [len(memory) for memory in store.received] == [10, 10]
    assert_clean(scheduler)


async def test_one_read_is_not_copied_and_several_come_together_in_one_buffer() -> None:
    store = FakeStore(FILES)
    scheduler = ReadScheduler(store, merge="take")
    near = await scheduler.file("a").submit(Ranges.of((10, 20), (22, 30)))
    assert near.buffer.obj is store.given[0]
    assert near.offsets.tolist() == [0, 12]
    far = await scheduler.file("a").submit(Ranges.of((500, 510), (10, 20)))
    assert far.offsets.tolist() == [10, 0]
    assert len(far.buffer) == 20


async def test_a_small_kept_answer_does_not_pin_a_large_buffer() -> None:
    store = FakeStore(FILES)
    scheduler = ReadScheduler(store, merge="scan")
    kept = scheduler.file("a").submit(Ranges.of((0, 10), keep=True))
    passing = scheduler.file("a").submit(Ranges.of((10, 90)))
    assert isinstance((await kept).buffer, bytes)
    assert (await passing).buffer.obj is store.given[0]
    plans = ReadScheduler(FakePlanStore(FILES), merge="scan")
    kept, passing = (
        plans.file("a").submit(Ranges.of((5, 9), (0, 2), keep=True)),
        plans.file("a").submit(Ranges.of((10, 90))),
    )
    small, large = await kept, await passing
    assert len(memoryview(small.buffer)) == 6
    assert_answers(small, "a", Ranges.of((5, 9), (0, 2)))
    assert len(large.buffer) == 86


async def test_nothing_is_read_for_empty_ranges() -> None:
    store = FakeStore(FILES)
    handle = ReadScheduler(store).file("a").submit(Ranges.of((7, 7), (9, 9)))
    assert handle.done
    assert (await handle).offsets.tolist() == [0, 0]
    assert store.log == []


async def test_a_handle_gives_its_answer_once() -> None:
    handle = ReadScheduler(FakeStore(FILES)).file("a").submit(Ranges.of((0, 5)))
    await handle
    with pytest.raises(RuntimeError, match="once"):
        await handle


async def test_ranges_outside_the_file_are_refused_before_anything_is_read() -> None:
    store = FakeStore(FILES)
    with pytest.raises(FormatError, match="has 2000"):
        ReadScheduler(store).file("a", size_bytes=SIZE).submit(Ranges.of((0, SIZE + 1)))
    await turns()
    assert store.log == []


async def test_a_short_answer_is_an_error() -> None:
    handle = ReadScheduler(FakeStore(FILES)).file("a").submit(Ranges.of((SIZE - 5, SIZE + 5)))
    with pytest.raises(FormatError, match=r"expected 10 bytes .* gave 5"):
        await handle


async def test_suffix_and_whole_object_are_counted() -> None:
    store = FakeStore(FILES)
    scheduler = ReadScheduler(store)
    tail, size, _ = await scheduler.suffix("a", 20)
    assert (tail, size) == (FILES["a"][-20:], SIZE)
    whole, meta = await scheduler.whole("b")
    assert (whole, meta.size_bytes) == (FILES["b"], SIZE)
    assert (scheduler.stats.num_reads, scheduler.stats.bytes_read, scheduler.stats.rounds) == (2, SIZE + 20, 2)
    assert_clean(scheduler)


# -- merging ---------------------------------------------------------------------------------------------------


def submit_columns(scheduler: ReadScheduler, priorities: list[int]) -> list[Handle]:
    file = scheduler.file("a")
    return [file.submit(Ranges.of((12 * i, 12 * i + 10)), priority) for i, priority in enumerate(priorities)]


async def test_a_take_merges_what_one_batch_of_rows_needs() -> None:
    store = FakeStore(FILES)
    await asyncio.gather(*submit_columns(ReadScheduler(store, merge="take"), [5, 5, 5]))
    assert store.log == [("a", 0, 34)]
    store.log.clear()
    await asyncio.gather(*submit_columns(ReadScheduler(store, merge="take"), [5, 6, 6]))
    assert store.log == [("a", 0, 10), ("a", 12, 34)]


async def test_a_scan_merges_whatever_it_may_fetch_of_a_file() -> None:
    store = FakeStore(FILES)
    scheduler = ReadScheduler(store, merge="scan")
    handles = [*submit_columns(scheduler, [0, 50, 99]), scheduler.file("b").submit(Ranges.of((0, 5)))]
    await asyncio.gather(*handles)
    assert store.log == [("a", 0, 34), ("b", 0, 5)]


async def test_later_submissions_make_reads_of_their_own() -> None:
    store = FakeStore(FILES)
    scheduler = ReadScheduler(store, merge="scan")
    first = submit_columns(scheduler, [0])
    await turns()
    await asyncio.gather(*first, *submit_columns(scheduler, [0]))
    assert store.log == [("a", 0, 10), ("a", 0, 10)]


async def test_a_store_of_plans_gets_one_call_of_bounded_size() -> None:
    store = FakePlanStore(FILES)
    scheduler = ReadScheduler(store, merge="scan")
    file = scheduler.file("a")
    handles = [file.submit(Ranges.of((40 * i, 40 * i + 40)), i) for i in range(5)]
    for i, handle in enumerate(handles):
        assert_answers(await handle, "a", Ranges.of((40 * i, 40 * i + 40)))
    assert store.log == [("a", 0, 80), ("a", 80, 160), ("a", 160, 200)]


# -- order and limits --------------------------------------------------------------------------------------------


async def test_the_most_urgent_goes_first_and_metadata_before_all() -> None:
    store = FakeStore(FILES)
    scheduler = ReadScheduler(store, merge="take", requests_max=1)
    later, sooner = scheduler.file("a", priority=1), scheduler.file("b", priority=0)
    handles = [later.submit(Ranges.of((0, 5)), 0), sooner.submit(Ranges.of((100, 105)), 9)]
    handles += [sooner.submit(Ranges.of((0, 5)), 3), later.submit(Ranges.of((50, 55), purpose="metadata"), 7)]
    await asyncio.gather(*handles)
    assert store.log == [("a", 50, 55), ("b", 0, 5), ("b", 100, 105), ("a", 0, 5)]


async def test_metadata_does_not_wait_for_the_scans_own_slots() -> None:
    store = FakeStore(FILES)
    store.held = True
    scheduler = ReadScheduler(store, requests_max=1)
    data = scheduler.file("a").submit(Ranges.of((0, 5)))
    await turns()
    metadata = scheduler.file("a").submit(Ranges.of((50, 55), purpose="metadata"))
    await turns()
    assert store.in_flight == 2
    store.release()
    assert_answers(await metadata, "a", Ranges.of((50, 55)))
    assert_answers(await data, "a", Ranges.of((0, 5)))


async def test_scans_of_one_store_share_half_of_its_slots_and_take_turns() -> None:
    store = FakeStore(FILES, profile=replace(PROFILE, requests_max=6))
    one, two = ReadScheduler(store, requests_max=9), ReadScheduler(store, requests_max=9)
    handles = [
        scheduler.file(key).submit(Ranges.of((100 * i, 100 * i + 5)), i)
        for scheduler, key in ((one, "a"), (two, "b"))
        for i in range(12)
    ]
    await asyncio.gather(*handles)
    assert store.in_flight_peak == 3
    first_half = [key for key, _, _ in store.log[:12]]
    assert 3 <= first_half.count("b") <= 9
    assert_clean(one)
    assert_clean(two)


async def test_a_scheduler_that_gives_up_in_line_passes_its_slot_on() -> None:
    store = FakeStore(FILES, profile=replace(PROFILE, requests_max=1))
    store.held = True
    one, two, three = (ReadScheduler(store) for _ in range(3))
    first = one.file("a").submit(Ranges.of((0, 5)))
    await turns()
    second, third = two.file("a").submit(Ranges.of((0, 5))), three.file("b").submit(Ranges.of((0, 5)))
    await turns()
    second.cancel()
    store.held = False
    store.release()
    assert_answers(await first, "a", Ranges.of((0, 5)))
    assert_answers(await third, "b", Ranges.of((0, 5)))
    await turns()
    assert slots_of(store).in_use == 0


async def test_a_take_finds_slots_beside_scans() -> None:
    store = FakeStore(FILES, profile=replace(PROFILE, requests_max=8))
    store.held = True
    scans = [ReadScheduler(store, requests_max=9), ReadScheduler(store, shared=IoScheduler())]
    parts = [Ranges.of((100 * i, 100 * i + 5)) for i in range(12)]
    handles = [scan.file("a").submit(part, i) for i, part in enumerate(parts) for scan in scans]
    await turns()
    assert store.in_flight == 4
    take = ReadScheduler(store, merge="take")
    taken = [take.file("b").submit(part, i) for i, part in enumerate(parts[:4])]
    await turns()
    assert [key for key, _, _ in store.log[4:]] == ["b"] * 4
    store.held = False
    store.release()
    await asyncio.gather(*handles, *taken)
    await turns()
    for scheduler in (*scans, take):
        assert_clean(scheduler)


async def in_flight_by_round(store: FakeStore, scheduler: ReadScheduler, rounds: int) -> list[int]:
    """How many reads are in flight in each round of a scan of many parts."""
    file, seen = scheduler.file("long"), []
    handles = [file.submit(Ranges.of((100 * i, 100 * i + 5)), i) for i in range(400)]
    for _ in range(rounds):
        await turns()
        seen.append(store.in_flight)
        store.release()
    await turns()
    for handle in handles:
        handle.cancel()
    await scheduler.aclose()
    return seen


LONG = {"long": content(40_000)}


async def test_a_scan_doubles_what_it_has_in_flight_while_more_is_wanted() -> None:
    store = FakeStore(LONG, profile=replace(PROFILE, requests_start=4, requests_max=64))
    store.held = True
    assert await in_flight_by_round(store, ReadScheduler(store), 6) == [4, 8, 16, 32, 32, 32]
    store = FakeStore(LONG, profile=replace(PROFILE, requests_start=4, requests_max=64))
    store.held = True
    assert await in_flight_by_round(store, ReadScheduler(store, merge="take"), 2) == [64, 64]
    assert await in_flight_by_round(store, ReadScheduler(store, requests_max=5), 3) == [5, 5, 5]


@pytest.mark.parametrize(("late", "expected"), [(True, [4, 8, 16]), (False, [4, 5, 6])])
async def test_a_read_that_failed_slows_its_scan_down_and_a_late_one_does_not(late: bool, expected: list[int]) -> None:
    class Again(FakeStore):
        async def get_range(self, key: str, start: int, end: int) -> bytes:
            if start == 0:
                told = on_retry.get()
                assert told is not None
                told(late)
            return await super().get_range(key, start, end)

    store = Again(LONG, profile=replace(PROFILE, requests_start=4, requests_max=64))
    store.held = True
    scheduler = ReadScheduler(store)
    assert await in_flight_by_round(store, scheduler, 3) == expected
    assert scheduler.stats.retries == 1


async def test_a_scan_whose_limit_is_not_reached_keeps_it() -> None:
    store = FakeStore(FILES)
    scheduler = ReadScheduler(store)
    for i in range(12):
        await scheduler.file("a").submit(Ranges.of((100 * i, 100 * i + 5)), i)
    assert scheduler._bind().growth.limit == PROFILE.requests_start


async def test_a_store_is_told_which_operation_asks() -> None:
    seen: dict[str, set[Flow | None]] = {"a": set(), "b": set()}

    class Told(FakeStore):
        async def get_range(self, key: str, start: int, end: int) -> bytes:
            seen[key].add(flow.get())
            return await super().get_range(key, start, end)

    store = Told(FILES)
    schedulers = {key: ReadScheduler(store) for key in "ab"}
    parts = [Ranges.of((100 * i, 100 * i + 5)) for i in range(3)]
    await asyncio.gather(*(schedulers[key].file(key).submit(part) for key in "ab" for part in parts))
    assert len(seen["a"]) == len(seen["b"]) == 1
    assert None not in seen["a"] | seen["b"] and seen["a"] != seen["b"]
    assert flow.get() is None


# -- budget ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["in order", "reversed", "shuffled"])
@pytest.mark.parametrize("store_type", [FakeStore, FakePlanStore])
@pytest.mark.parametrize("space", [0, 8])
async def test_the_bytes_held_stay_within_their_bound(order: str, store_type: type[FakeStore], space: int) -> None:
    rng = random.Random(order)
    sizes = [rng.choice([5, 30, 60]) for _ in range(30)]
    starts = np.cumsum([0, *(size + space for size in sizes)]).tolist()
    store, budget = store_type(FILES), 150
    scheduler = ReadScheduler(store, gap_bytes_max=space, budget_bytes=budget)
    numbers = list(range(30))
    if order == "reversed":
        numbers.reverse()
    elif order == "shuffled":
        rng.shuffle(numbers)
    asked = {i: Ranges.of((starts[i], starts[i] + sizes[i])) for i in numbers}
    handles = {i: scheduler.file("a").submit(asked[i], i) for i in sorted(numbers)}
    consumers = 2

    async def consume(mine: list[int]) -> None:
        for i in mine:
            assert_answers(await handles.pop(i), "a", asked[i])

    await asyncio.gather(*(consume(numbers[consumer::consumers]) for consumer in range(consumers)))
    largest = 60 + space if order == "in order" else 100  # a read that two requests share counts for the first of them
    assert scheduler.stats.bytes_held_peak <= budget + (consumers + 1) * largest
    await turns()
    assert_clean(scheduler)


async def test_a_stalled_consumer_does_not_fetch_everything() -> None:
    store = FakeStore(FILES)
    scheduler = ReadScheduler(store, merge="scan", gap_bytes_max=0, budget_bytes=100)
    handles = [scheduler.file("a").submit(Ranges.of((20 * i, 20 * i + 20)), i) for i in range(50)]
    await turns(50)
    assert sum(end - start for _, start, end in store.log) == 100
    await handles[0]
    await turns(50)
    assert sum(end - start for _, start, end in store.log) <= 200


async def test_steady_readahead_keeps_sharing_reads() -> None:
    store = FakeStore({"a": content(40_000)})
    scheduler = ReadScheduler(store, merge="scan", gap_bytes_max=0, budget_bytes=1000)
    handles = [scheduler.file("a").submit(Ranges.of((20 * i, 20 * i + 20)), i) for i in range(2000)]
    for handle in handles:
        await handle
    assert len(store.log) <= 1.5 * 40_000 / 100


async def test_a_request_larger_than_the_budget_is_read_and_gaps_are_counted() -> None:
    store = FakeStore(FILES)
    scheduler = ReadScheduler(store, merge="scan", budget_bytes=50)
    answer = await scheduler.file("a").submit(Ranges.of((0, 10), (20, 30), (500, 700)))
    assert_answers(answer, "a", Ranges.of((0, 10), (20, 30), (500, 700)))
    assert scheduler.stats.bytes_read == 230
    await turns()
    assert_clean(scheduler)


async def test_many_small_ranges_are_not_taken_for_many_gaps() -> None:
    store = FakeStore(FILES)
    scheduler = ReadScheduler(store, merge="scan", budget_bytes=1000)
    near = [Ranges.of(*((200 * i + 4 * j, 200 * i + 4 * j + 1) for j in range(25))) for i in range(5)]
    handles = [scheduler.file("a").submit(ranges) for ranges in near]
    await turns()
    assert len(store.log) == 5
    for ranges, handle in zip(near, handles, strict=True):
        assert_answers(await handle, "a", ranges)


async def test_many_small_requests_are_not_taken_for_many_gaps() -> None:
    """Their file fits into the budget with its gaps: it is read in reads of full length."""
    store = FakeStore(FILES)
    scheduler = ReadScheduler(store, merge="scan", budget_bytes=SIZE)
    asked = [Ranges.of((3 * i, 3 * i + 1)) for i in range(600)]
    handles = [scheduler.file("a").submit(ranges, i) for i, ranges in enumerate(asked)]
    for ranges, handle in zip(asked, handles, strict=True):
        assert_answers(await handle, "a", ranges)
    assert store.log == [("a", start, min(start + 100, 1798)) for start in range(0, 1800, 102)]


async def test_a_budget_of_zero_is_none() -> None:
    store = FakeStore(FILES)
    scheduler = ReadScheduler(store, budget_bytes=0, pool=Pool(10))
    handles = [scheduler.file("a").submit(Ranges.of((100 * i, 100 * i + 100)), i) for i in range(20)]
    await turns(60)
    assert sum(end - start for _, start, end in store.log) == SIZE
    del handles
    await turns()
    assert_clean(scheduler)


async def test_scans_share_the_bound_of_the_process() -> None:
    pool = Pool(100)
    store = FakeStore(FILES)
    schedulers = [ReadScheduler(store, gap_bytes_max=0, budget_bytes=100, pool=pool) for _ in range(2)]
    handles = [
        [s.file(k).submit(Ranges.of((50 * i, 50 * i + 50)), i) for i in range(4)]
        for s, k in zip(schedulers, "ab", strict=True)
    ]
    await turns(30)
    assert sum(end - start for _, start, end in store.log) == 150  # the second scan may have one over the bound
    for handle in handles[0]:
        await handle
    await turns(30)
    assert sum(end - start for key, start, end in store.log if key == "b") == 100  # up to its own bound
    for handle in handles[1]:
        await handle
    await turns()
    assert pool.avail_bytes == 100


# -- giving up -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cancel", "drop", "cancel the awaiting task", "close the scheduler"])
@pytest.mark.parametrize("moment", ["pending", "in flight", "answered"])
async def test_giving_up_returns_everything(how: str, moment: str) -> None:
    store = FakeStore(FILES)
    store.held = moment != "answered"
    scheduler = ReadScheduler(store, budget_bytes=1000)
    handle = scheduler.file("a").submit(Ranges.of((0, 50), (500, 550)))
    if how == "cancel the awaiting task":
        task = asyncio.create_task(_await(handle, turns(12 if moment == "answered" else 0)))
        await turns(1 if moment == "pending" else 6)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
    elif moment != "pending":
        await turns()
    if how == "cancel":
        handle.cancel()
        handle.cancel()
    elif how == "close the scheduler":
        scheduler.close()
    del handle
    gc.collect()
    await turns(10)
    assert len(store.cancelled) == (len(store.log) if moment != "answered" else 0)
    assert store.in_flight == 0
    assert_clean(scheduler)


async def test_a_shared_read_is_not_cancelled_while_somebody_wants_it() -> None:
    store = FakeStore(FILES)
    store.held = True
    scheduler = ReadScheduler(store, budget_bytes=1000)
    one, two = scheduler.file("a").submit(Ranges.of((0, 10))), scheduler.file("a").submit(Ranges.of((10, 20)))
    await turns()
    one.cancel()
    await turns()
    assert store.cancelled == []
    assert scheduler._own.budget.held_bytes == 20
    store.release()
    assert_answers(await two, "a", Ranges.of((10, 20)))
    await turns()
    assert_clean(scheduler)
    with pytest.raises(RuntimeError, match="cancelled"):
        await one


async def test_a_shared_buffer_counts_until_the_last_holder_has_taken_it() -> None:
    store = FakeStore(FILES)
    scheduler = ReadScheduler(store, budget_bytes=1000)
    one, two = scheduler.file("a").submit(Ranges.of((0, 10))), scheduler.file("a").submit(Ranges.of((10, 20)))
    await one
    assert scheduler._own.budget.held_bytes == 20
    await two
    assert scheduler._own.budget.held_bytes == 0


async def test_bytes_of_a_read_that_cannot_be_cancelled_count_until_it_ends() -> None:
    store = FakeStore(FILES)
    store.held = store.stubborn = True
    scheduler = ReadScheduler(store, budget_bytes=1000)
    handle = scheduler.file("a").submit(Ranges.of((0, 50), (500, 550)))
    await turns()
    handle.cancel()
    await turns()
    assert (scheduler._own.budget.held_bytes, store.in_flight) == (100, 2)
    store.release(1)
    await turns()
    assert scheduler._own.budget.held_bytes == 50
    store.release()
    await turns()
    assert_clean(scheduler)


async def test_cancelling_wakes_who_awaits() -> None:
    store = FakeStore(FILES)
    store.held = True
    handle = ReadScheduler(store).file("a").submit(Ranges.of((0, 50)))

    async def wait() -> Any:
        return await handle

    task = asyncio.create_task(wait())
    await turns()
    handle.cancel()
    with pytest.raises(RuntimeError, match="cancelled"):
        await task


async def test_leaving_the_scheduler_waits_for_its_reads() -> None:
    store = FakeStore(FILES)
    store.held = True
    async with ReadScheduler(store) as scheduler:
        handle = scheduler.file("a").submit(Ranges.of((0, 50)))
        await turns()
    assert store.in_flight == 0
    with pytest.raises(RuntimeError, match="closed"):
        await handle
    with pytest.raises(RuntimeError, match="closed"):
        scheduler.file("a").submit(Ranges.of((0, 50)))


async def test_one_loop_per_scheduler() -> None:
    scheduler = ReadScheduler(FakeStore(FILES))
    await scheduler.file("a").submit(Ranges.of((0, 50)))

    async def elsewhere() -> None:
        scheduler.file("a").submit(Ranges.of((0, 50)))

    with pytest.raises(RuntimeError, match="event loop"):
        await asyncio.to_thread(asyncio.run, elsewhere())


# -- errors --------------------------------------------------------------------------------------------------------


async def test_one_failure_ends_its_request_and_no_other() -> None:
    store = FakeStore(FILES)
    store.held = True
    error = store.failures["a", 0] = NotFound("gone", path="a")
    scheduler = ReadScheduler(store, merge="take", budget_bytes=1000)
    failing = scheduler.file("a").submit(Ranges.of((0, 10), (500, 510), (900, 910)))
    fine = scheduler.file("b").submit(Ranges.of((0, 10)))
    await turns()
    store.release(1)
    with pytest.raises(NotFound) as caught:
        await failing
    assert caught.value is error
    await turns()
    assert sorted(store.cancelled) == [("a", 500, 510), ("a", 900, 910)]
    store.release()
    assert_answers(await fine, "b", Ranges.of((0, 10)))
    await turns()
    assert_clean(scheduler)


async def test_a_failed_read_fails_all_who_share_it_and_says_nothing_to_those_who_left() -> None:
    store = FakeStore(FILES)
    store.failures["a", 0] = NotFound("gone", path="a")
    scheduler = ReadScheduler(store)
    handles = [scheduler.file("a").submit(Ranges.of((10 * i, 10 * i + 10))) for i in range(3)]
    del handles[2]
    for handle in handles:
        with pytest.raises(NotFound):
            await handle
    await turns()
    assert_clean(scheduler)


async def test_an_error_while_planning_reaches_who_waits() -> None:
    scheduler = ReadScheduler(FakeStore(FILES), read_bytes_max=-1)
    with pytest.raises((ValueError, OverflowError)):
        await asyncio.wait_for(_await(scheduler.file("a").submit(Ranges.of((0, 10)))), 5)
    assert_clean(scheduler)


async def _await(handle: Handle, before: Any = None) -> Any:
    if before is not None:
        await before
    return await handle


# -- counters ------------------------------------------------------------------------------------------------------


async def test_ranges_reads_and_rounds_are_counted_in_every_scope() -> None:
    store = FakeStore(FILES)
    before = process_stats().snapshot()
    scheduler = ReadScheduler(store, merge="take", requests_max=1)
    with io_stats() as outer:
        with io_stats() as inner:
            await scheduler.file("a").submit(Ranges.of((0, 10), (12, 20), (500, 510)))
        await scheduler.file("a").submit(Ranges.of((0, 10)))
        await ReadScheduler(store).file("b").submit(Ranges.of((0, 10)))
    stats = scheduler.stats
    assert (stats.num_ranges, stats.bytes_wanted, stats.num_reads, stats.bytes_read) == (4, 38, 3, 40)
    assert stats.rounds == 2  # one slot, but the two reads of the first request depend on nothing
    assert stats.amplification == 40 / 38
    assert (inner.num_reads, outer.num_reads, outer.rounds) == (2, 4, 3)
    assert store_stats(store.identity).num_reads == 4
    assert process_stats().num_reads - before.num_reads == 4
    assert stats.bytes_held_peak >= 30


async def test_a_read_shared_by_two_scopes_counts_in_both() -> None:
    store = FakeStore(FILES)
    scheduler = ReadScheduler(store)
    with io_stats() as one:
        first = scheduler.file("a").submit(Ranges.of((0, 10)))
    with io_stats() as two:
        second = scheduler.file("a").submit(Ranges.of((10, 30)))
    await first
    await second
    assert (one.bytes_wanted, one.num_reads, one.bytes_read) == (10, 1, 30)
    assert (two.bytes_wanted, two.num_reads, two.bytes_read) == (20, 1, 30)
    assert scheduler.stats.num_reads == 1


# -- lifetime ------------------------------------------------------------------------------------------------------


async def test_a_file_says_how_its_requests_merge_and_a_scheduler_goes_with_its_last_user() -> None:
    store = FakeStore(FILES)
    file = ReadScheduler(store, merge="take").file("a", size_bytes=0)
    scan = file._scheduler.file("a", merge="scan")
    handles = [file.submit(Ranges.of((0, 10))), file.submit(Ranges.of((10, 20))), scan.submit(Ranges.of((0, 10)), 7)]
    await asyncio.gather(*handles)
    assert sorted(store.log) == [("a", 0, 10), ("a", 0, 20)]
    assert await file.suffix(3) == (FILES["a"][-3:], SIZE, None)
    reference = weakref.ref(file._scheduler)
    del file, scan, handles
    await turns()
    assert reference() is None
