"""The search cache: bound, order of eviction, one load per key, and what happens when a loader disappears."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lance_io.errors import FormatError, UsageError
from lance_io.io.cache import CacheHit, ClaimAbandoned, LoadOwner, LoadPending, SearchCache

CHILD_SECONDS_MAX = 20


def test_least_recently_used_goes_first() -> None:
    cache = SearchCache(100)
    for name in ("a", "b"):
        cache.put((name,), name, 40)
    assert cache.get(("a",)) == "a"
    cache.put(("c",), "c", 40)
    assert cache.get(("b",)) is None
    assert cache.get(("a",)) == "a"
    stats = cache.stats
    assert (stats.hits, stats.misses, stats.evictions, stats.entries, stats.bytes) == (2, 1, 1, 2, 80)


def test_replacing_counts_bytes_once_and_large_values_are_not_kept() -> None:
    cache = SearchCache(100)
    cache.put(("a",), 1, 60)
    cache.put(("a",), 2, 30)
    assert cache.stats.bytes == 30
    cache.put(("a",), 3, 101)
    assert cache.get(("a",)) is None
    assert cache.stats.bytes == 0
    cache.put(("a",), 4, 100)
    cache.discard(("a",))
    cache.discard(("a",))
    assert len(cache) == 0


def test_sizes_are_checked() -> None:
    with pytest.raises(UsageError):
        SearchCache(-1)
    with pytest.raises(UsageError):
        SearchCache(1).put(("a",), 1, -1)


@given(st.lists(st.tuples(st.sampled_from("gmpd"), st.integers(0, 7), st.integers(0, 60))))
@example([("p", 1, 40), ("p", 0, 40), ("m", 0, 0), ("p", 2, 40)])
def test_behaves_like_a_list_of_recently_used(steps: list[tuple[str, int, int]]) -> None:
    cache, model = SearchCache(100), dict[tuple[int], int]()
    for action, number, nbytes in steps:
        key = (number,)
        if action == "g":
            expected = model.pop(key, None)
            if expected is not None:
                model[key] = expected
            assert cache.get(key) == expected
        elif action == "m":  # the key and its two neighbours
            keys = [(number - 1,), key, (number + 1,)]
            held = {one: model.pop(one) for one in keys if one in model}
            model.update(held)
            assert cache.get_many(keys) == [held.get(one) for one in keys]
        elif action == "d":
            model.pop(key, None)
            cache.discard(key)
        else:
            model.pop(key, None)
            model[key] = nbytes
            while sum(model.values()) > 100:
                del model[next(iter(model))]
            cache.put(key, nbytes, nbytes)
        assert [key for key in model if key not in cache] == []
        assert cache.stats.bytes == sum(model.values())
        assert len(cache) == len(model)


def test_one_loads_and_the_others_get_its_value() -> None:
    cache = SearchCache(100)
    owner = cache.claim(("k",))
    pending = cache.claim(("k",))
    assert isinstance(owner, LoadOwner)
    assert isinstance(pending, LoadPending)
    owner.fulfil("value", 5)
    assert pending.future.result(0) == "value"
    found = cache.claim(("k",))
    assert isinstance(found, CacheHit)
    assert found.value == "value"
    assert (cache.stats.hits, cache.stats.misses) == (2, 1)


def test_a_value_too_large_to_keep_is_still_delivered() -> None:
    cache = SearchCache(0)
    owner, pending = cache.claim_many([("k",), ("k",)])
    assert isinstance(owner, LoadOwner)
    assert isinstance(pending, LoadPending)
    owner.fulfil("value", 5)
    assert pending.future.result(0) == "value"
    assert isinstance(cache.claim(("k",)), LoadOwner)


def test_an_error_reaches_those_who_wait_and_is_not_remembered() -> None:
    cache = SearchCache(100)
    owner, pending = cache.claim_many([("k",), ("k",)])
    assert isinstance(owner, LoadOwner)
    assert isinstance(pending, LoadPending)
    owner.abandon(FormatError("damaged"))
    with pytest.raises(FormatError, match="damaged"):
        pending.future.result(0)
    assert isinstance(cache.claim(("k",)), LoadOwner)


def test_a_dropped_ticket_releases_those_who_wait() -> None:
    cache = SearchCache(100)
    owner = cache.claim(("k",))
    pending = cache.claim(("k",))
    assert isinstance(pending, LoadPending)
    cycle: list[Any] = [owner]
    cycle.append(cycle)
    del owner, cycle
    gc.collect()
    with pytest.raises(ClaimAbandoned):
        pending.future.result(0)
    assert isinstance(cache.claim(("k",)), LoadOwner)


def test_a_ticket_counts_once() -> None:
    cache = SearchCache(100)
    owner = cache.claim(("k",))
    assert isinstance(owner, LoadOwner)
    owner.fulfil("first", 1)
    owner.fulfil("second", 1)
    owner.abandon()
    assert cache.get(("k",)) == "first"


def test_several_tickets_are_fulfilled_together() -> None:
    cache = SearchCache(100)
    claims = cache.claim_many([("a",), ("b",), ("c",), ("d",)])
    pending = cache.claim(("b",))
    assert isinstance(pending, LoadPending)
    tickets = [claim for claim in claims if isinstance(claim, LoadOwner)]
    assert len(tickets) == 4
    tickets[3].fulfil("first", 10)
    values = ["A", "B", "too large", "second"]
    cache.fulfil_many(
        [(ticket, value, size) for ticket, value, size in zip(tickets, values, (40, 50, 101, 9), strict=True)]
    )
    assert pending.future.result(0) == "B"
    assert [cache.get((name,)) for name in "abcd"] == ["A", "B", None, "first"]
    assert (cache.stats.entries, cache.stats.bytes) == (3, 100)
    assert isinstance(cache.claim(("c",)), LoadOwner)  # nobody loads it any more
    del claims, tickets  # they have counted: nothing is abandoned
    assert cache.stats.entries == 3


def test_tickets_whose_loads_are_forgotten_are_kept_none_the_less() -> None:
    """After a fork the child has entries, and no loads."""
    cache = SearchCache(100)
    ticket = cache.claim(("a",))
    assert isinstance(ticket, LoadOwner)
    cache._after_fork()
    again = cache.claim(("a",))
    assert isinstance(again, LoadOwner)
    cache.fulfil_many([(ticket, "of the parent", 10)])
    assert cache.get(("a",)) == "of the parent"
    again.fulfil("of the child", 20)
    assert (cache.get(("a",)), cache.stats.bytes) == ("of the child", 20)


async def test_a_loop_waits_for_a_thread() -> None:
    cache = SearchCache(100)
    owner = cache.claim(("k",))
    assert isinstance(owner, LoadOwner)
    pending = cache.claim(("k",))
    assert isinstance(pending, LoadPending)
    waiting = asyncio.wrap_future(pending.future)
    thread = threading.Thread(target=owner.fulfil, args=("value", 1))
    thread.start()
    assert await waiting == "value"
    thread.join()


def test_many_threads_load_each_key_once() -> None:
    cache = SearchCache(1000)
    loads = itertools.count(1)

    def look(number: int) -> int:
        while True:
            claim = cache.claim((number % 10,))
            if isinstance(claim, CacheHit):
                return int(claim.value)
            if isinstance(claim, LoadOwner):
                if next(loads) % 4 == 0:
                    del claim  # given up: somebody else has to step in
                    continue
                claim.fulfil(number % 10, 10)
                return number % 10
            try:
                return int(claim.future.result(60))
            except ClaimAbandoned:
                continue

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(look, range(400))) == [number % 10 for number in range(400)]
    assert cache.stats.misses == next(loads) - 1 == 13  # every fourth for nothing


def test_a_forked_child_forgets_loads_and_keeps_entries() -> None:
    cache = SearchCache(100)
    cache.put(("kept",), "value", 10)
    in_flight = cache.claim(("loading",))
    locked, release = threading.Event(), threading.Event()

    def hold_the_lock() -> None:
        with cache._lock:
            locked.set()
            release.wait(CHILD_SECONDS_MAX)

    thread = threading.Thread(target=hold_the_lock)
    thread.start()
    locked.wait(CHILD_SECONDS_MAX)
    child = os.fork()
    if child == 0:
        fine = cache.get(("kept",)) == "value" and isinstance(cache.claim(("loading",)), LoadOwner)
        os._exit(0 if fine else 1)
    release.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert isinstance(in_flight, LoadOwner)
