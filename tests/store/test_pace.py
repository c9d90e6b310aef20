"""How the pace settles at what a bucket gives: a simulated bucket, the real gate and retries, virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_io.store.failures import Throttled
from lance_io.store.offers import Flow, flow
from lance_io.store.policies import pace
from lance_io.store.policies.logical_read import RetryPolicy
from lance_io.store.policies.pace import Pace
from lance_io.store.policies.throttle import AdaptiveLimit, Gate
from lance_io.testing.latency import run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Bucket:
    """Answers after a latency; refuses what comes faster than tokens do.

    per_s  tokens that come in a second, now
    burst  tokens that it keeps
    """

    per_s: Callable[[float], float]
    burst: float = 50
    latency_s: float = 0.03
    good: Counter[int] = field(default_factory=Counter)  # answers by second
    refused: Counter[int] = field(default_factory=Counter)
    tokens: float = 0
    at_s: float = 0

    def __post_init__(self) -> None:
        self.tokens = self.burst

    async def ask(self) -> bool:
        now_s = asyncio.get_running_loop().time()
        self.tokens = min(self.burst, self.tokens + (now_s - self.at_s) * self.per_s(now_s))
        self.at_s = now_s
        is_good = self.tokens >= 1
        self.tokens -= is_good
        await asyncio.sleep(self.latency_s)
        (self.good if is_good else self.refused)[int(asyncio.get_running_loop().time())] += 1
        return is_good

    def good_per_s(self, start: int, end: int) -> list[int]:
        """Good answers in each second."""
        return [self.good[second] for second in range(start, end)]

    def refused_share(self, start: int, end: int) -> float:
        """Of all answers in these seconds."""
        refused = sum(self.refused[second] for second in range(start, end))
        return refused / max(1, refused + sum(self.good_per_s(start, end)))


class Client:
    """One process: a gate, and requests that are made again as the S3 store makes them again."""

    def __init__(self, bucket: Bucket, seed: int = 0) -> None:
        self.bucket = bucket
        self.limit = AdaptiveLimit(512)
        self.gate = Gate(self.limit, asyncio.get_running_loop().time)
        self.random = random.Random(seed)
        self.num_good = 0

    async def get(self) -> None:
        """One GET, until it succeeds."""
        policy, place, attempts = RetryPolicy(), None, 0
        while True:
            attempts += 1
            place = await self.gate.enter(place)
            is_good = await self.bucket.ask()
            self.gate.leave(None if is_good else Throttled("slow down", status=503))
            if is_good:
                self.num_good += 1
                return
            pause_s = policy.pause_s(min(attempts, 7), 0, self.random.random())
            assert pause_s is not None
            await asyncio.sleep(pause_s)

    async def take(self, num_gets: int = 7) -> None:
        """A take of one row: its GETs at once."""
        flow.set(Flow())
        await asyncio.gather(*(self.get() for _ in range(num_gets)))

    async def callers(self, number: int, until_s: float) -> None:
        """So many callers, each taking again and again."""

        async def call() -> None:
            while asyncio.get_running_loop().time() < until_s:
                await self.take()

        await asyncio.gather(*(asyncio.create_task(call()) for _ in range(number)))


@pytest.mark.parametrize(("per_s", "burst"), [(500, 50), (500, 500), (100, 10), (1500, 100)])
def test_the_pace_settles_at_what_the_bucket_gives(per_s: int, burst: int) -> None:
    async def body() -> Bucket:
        bucket = Bucket(lambda _: per_s, burst)
        await Client(bucket).callers(64, 20)
        return bucket

    bucket, _ = run_virtual(body)
    seconds = bucket.good_per_s(10, 20)
    assert sum(seconds) >= 0.94 * 10 * per_s
    assert min(seconds) >= 0.85 * per_s
    assert bucket.refused_share(10, 20) <= 0.03
    assert bucket.refused_share(1, 10) <= 0.1  # while it is found out what the bucket gives


def test_the_pace_follows_a_bucket_that_gives_less_and_more() -> None:
    async def body() -> Bucket:
        bucket = Bucket(lambda now_s: 1000 if now_s < 10 else 300 if now_s < 20 else 1000)
        await Client(bucket).callers(64, 45)
        return bucket

    bucket, _ = run_virtual(body)
    assert min(bucket.good_per_s(12, 20)) >= 0.85 * 300
    assert bucket.refused_share(12, 20) <= 0.05
    assert min(bucket.good_per_s(35, 45)) >= 0.85 * 1000  # it takes some seconds to find that there is more
    assert bucket.refused_share(20, 45) <= 0.03


def test_a_client_that_is_busy_now_and_then_uses_what_it_gets() -> None:
    """It sends nothing for up to 0.4 s, again and again: what it then counts is not what the bucket gives."""

    async def body() -> Bucket:
        bucket, dice = Bucket(lambda _: 500), random.Random(2)
        client = Client(bucket)

        async def stall() -> None:
            while True:
                await asyncio.sleep(dice.uniform(0.1, 1.2))
                client.limit.limit = 0
                await asyncio.sleep(dice.uniform(0.02, 0.4))
                client.limit.limit = 512
                client.gate._admit()

        stalling = asyncio.create_task(stall())
        await client.callers(64, 40)
        stalling.cancel()
        return bucket

    bucket, _ = run_virtual(body)
    seconds = bucket.good_per_s(10, 40)
    assert sum(seconds) >= 0.82 * 30 * 500
    assert min(seconds) >= 0.6 * 500
    assert bucket.refused_share(10, 40) <= 0.01


def test_processes_draw_nearer_to_each_other() -> None:
    async def body() -> tuple[Bucket, list[list[int]]]:
        bucket = Bucket(lambda _: 500)
        clients = [Client(bucket, seed) for seed in range(3)]
        working = [asyncio.create_task(clients[0].callers(32, 70))]
        await asyncio.sleep(10)  # one has everything when the others come
        working += [asyncio.create_task(client.callers(32, 70)) for client in clients[1:]]
        counts = []
        for _ in range(3):
            counts.append([client.num_good for client in clients])
            await asyncio.sleep(20)
        counts.append([client.num_good for client in clients])
        await asyncio.gather(*working)
        return bucket, [[b - a for a, b in zip(*pair, strict=True)] for pair in pairwise(counts)]

    (bucket, shares), _ = run_virtual(body)
    assert sum(bucket.good_per_s(30, 70)) >= 0.95 * 40 * 500
    assert bucket.refused_share(30, 70) <= 0.03
    least = [min(one) / sum(one) for one in shares]
    assert least == sorted(least)
    assert least[-1] >= 0.5 / 3


def test_one_refusal_among_few_requests_slows_nobody_down() -> None:
    async def body() -> tuple[bool, float]:
        bucket = Bucket(lambda _: 1e9, 1e9)
        client = Client(bucket)
        for _ in range(20):
            await client.take()
        bucket.per_s, bucket.tokens = (lambda _: 0.0), 6
        refused = asyncio.create_task(client.take())  # six of its seven are served
        await asyncio.sleep(0.031)
        bucket.per_s = lambda _: 1e9
        await refused
        began_s = asyncio.get_running_loop().time()
        await client.take(100)
        return client.limit.pace.per_s is not None, asyncio.get_running_loop().time() - began_s

    (is_paced, took_s), _ = run_virtual(body)
    assert is_paced and took_s <= 0.5


def test_a_first_pace_that_is_far_too_low_is_left_within_seconds() -> None:
    async def body() -> Bucket:
        bucket = Bucket(lambda _: 1e9, 1e9)
        client = Client(bucket)
        bucket.per_s, bucket.tokens = (lambda _: 0.0), 0  # for a moment
        calling = asyncio.create_task(client.callers(64, 8))
        await asyncio.sleep(0.01)
        bucket.per_s = lambda _: 2000
        await calling
        return bucket

    bucket, _ = run_virtual(body)
    assert min(bucket.good_per_s(5, 8)) >= 0.8 * 2000


def test_a_bucket_that_is_asked_in_bursts_is_not_taken_for_a_slow_one() -> None:
    """A burst after seconds of silence is refused in part; what it got is no measure of what there is."""

    async def body() -> list[float]:
        bucket, clock = Bucket(lambda _: 500), asyncio.get_running_loop().time
        client, took_s = Client(bucket), []
        for _ in range(8):
            began_s = clock()
            await client.take(450)
            took_s.append(clock() - began_s)
            await asyncio.sleep(7)
        return took_s

    took_s, _ = run_virtual(body)
    assert max(took_s) <= 2 * 450 / 500 + 0.5


def test_after_a_calm_minute_there_is_no_pace() -> None:
    async def body() -> list[bool]:
        bucket = Bucket(lambda now_s: 100 if now_s < 5 else 1e9)
        client, clock = Client(bucket), asyncio.get_running_loop().time
        paced = []
        await client.callers(8, 10)
        while clock() < 80:
            await client.take()
            paced.append(client.limit.pace.per_s is not None)
            await asyncio.sleep(3)
        return paced

    paced, _ = run_virtual(body)
    assert paced == sorted(paced, reverse=True)  # once gone it stays away
    assert paced[:15] == [True] * 15 and not paced[-1]


def started(in_flight: int) -> Pace:
    """A pace whose bucket refused the first of so many requests, and the others as well."""
    one = Pace()
    for number in range(in_flight):
        one.note(0.01, in_flight - number, refused=True)
    return one


def test_answers_to_what_was_sent_before_say_nothing_about_the_pace() -> None:
    one = started(500)
    assert one.per_s == 350
    for number in range(350):
        assert one.wait_s(number / 400) >= 0
        one.note(0.02 + number / 349, 10, refused=False)
    assert one.per_s == 700  # a clean window: the first pace was a guess


def test_what_came_before_a_silence_is_no_measure() -> None:
    one = started(500)
    for number in range(10):
        one.note(0.02 + number / 1000, 10, refused=False)
    for _ in range(100):
        one.wait_s(20.0)
    for number in range(100):
        one.note(20.0 + number / 1000, 100, refused=number < 50)
    assert one.per_s == 350
    one.note(21.0, 100, refused=False)
    assert one.per_s == pytest.approx(350 * 0.7 * 0.95)  # half of a window's few was refused: a cut, but no measure


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=20), st.integers(1, 60))
def test_answers_that_come_together_are_noted_as_each_by_itself(answers: list[tuple[int, bool]], old: int) -> None:
    together, apart = started(old), started(old)
    for number, (num_requests, refused) in enumerate(answers):
        now_s = 0.02 + number / 1000  # within a window
        together.note(now_s, 100, refused=refused, num_requests=num_requests)
        for _ in range(num_requests):
            apart.note(now_s, 100, refused=refused)
    assert vars(together) == vars(apart)


@given(st.lists(st.tuples(st.floats(0, 2), st.sampled_from(["ask", "good", "refused"])), max_size=300))
def test_the_pace_stays_within_its_bounds(events: list[tuple[float, str]]) -> None:
    one, now_s, in_flight = Pace(), 0.0, 0
    for step_s, event in events:
        now_s += step_s / 10
        before = one.per_s
        if event == "ask" or not in_flight:
            wait_s = one.wait_s(now_s)
            assert wait_s >= 0 and (before is not None or wait_s == 0)
            in_flight += 1
            continue
        one.note(now_s, in_flight, refused=event == "refused")
        in_flight -= 1
        if before is None:
            assert (one.per_s is not None) == (event == "refused")
        elif one.per_s is not None:
            assert pace.LEAST_PER_S <= one.per_s <= before * 2


@given(st.floats(50, 5000), st.lists(st.floats(0, 0.1), min_size=1, max_size=200))
def test_requests_are_spread_by_the_pace(per_s: float, gaps_s: list[float]) -> None:
    one, now_s, begun_s = Pace(), 0.0, []
    one.per_s = per_s
    for gap_s in gaps_s:
        now_s += gap_s
        begun_s.append(now_s + one.wait_s(now_s))
    assert begun_s == sorted(begun_s)
    for first, start_s in enumerate(begun_s):
        for last in range(first, len(begun_s)):
            assert last - first + 1 <= per_s * (begun_s[last] - start_s + pace.BURST_S) + 1 + 1e-6 * per_s


# -- whose turn it is -------------------------------------------------------------------------------------------------


def test_a_take_beside_a_scan_does_not_wait_for_all_of_it() -> None:
    """At 500 a second, 400 reads of a scan are 0.8 s: a take's seven GETs go between them."""

    async def body() -> tuple[float, float]:
        bucket, clock = Bucket(lambda _: 1e9, 1e9), asyncio.get_running_loop().time
        client = Client(bucket)
        client.limit.pace.per_s = 500.0
        client.limit.pace._refused_s = 0.0
        scanning = asyncio.create_task(client.take(400))
        await asyncio.sleep(0.05)
        began_s = clock()
        await asyncio.create_task(client.take(7))
        took_s = clock() - began_s
        await scanning
        return took_s, clock()

    (took_s, all_s), _ = run_virtual(body)
    assert took_s <= 14 / 500 + 0.03 + 0.005
    assert all_s <= 407 / 500 + 0.04  # and nothing is lost by it


def test_requests_of_no_operation_go_ahead() -> None:
    async def body() -> float:
        client, clock = Client(Bucket(lambda _: 1e9, 1e9)), asyncio.get_running_loop().time
        client.limit.pace.per_s = 100.0
        client.limit.pace._refused_s = 0.0
        scanning = asyncio.create_task(client.take(100))
        await asyncio.sleep(0.05)
        began_s = clock()
        await client.get()
        took_s = clock() - began_s
        scanning.cancel()
        await asyncio.wait([scanning])
        return took_s

    assert run_virtual(body)[0] <= 0.01 + 0.03 + 1e-6
