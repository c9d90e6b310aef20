"""Second requests for late answers: when they are due, who wins, what is left behind."""

from __future__ import annotations

import asyncio
import math
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_io.errors import LanceError, NotFound
from lance_io.store.counters import StoreStats
from lance_io.store.failures import Transient
from lance_io.store.offers import WantedRange
from lance_io.store.policies.download import Download
from lance_io.store.policies.hedge import LARGE_BYTES, SAMPLES_MAX, SAMPLES_MIN, Hedging, Race, Watch
from lance_io.store.policies.pace import Pace
from lance_io.store.policies.transport import TaskAttempt
from lance_io.store.profile import LOCAL
from lance_io.store.s3.bucket import S3Store, open_s3
from lance_io.testing.latency import run_virtual
from tests.http_faults import Answer, Asked, FaultServer, after, broken_after, serve, stall, status

if TYPE_CHECKING:
    from collections.abc import Callable

CONTENT = bytes(range(256)) * 800  # 200 KiB


# -- when -------------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 5), max_size=200), st.sampled_from([0, 4096, LARGE_BYTES]))
def test_patience_follows_what_answers_take(times: list[float], num_bytes: int) -> None:
    hedging = Hedging(5)
    for time in times:
        hedging.note(time, num_bytes)
    if len(times) < SAMPLES_MIN:
        assert hedging.patience_s(num_bytes) is None
    else:
        seen = sorted(times[: len(times) // 32 * 32])
        assert hedging.patience_s(num_bytes) == max(2 * seen[len(seen) // 2], seen[len(seen) * 95 // 100])
    assert hedging.patience_s(0 if num_bytes == LARGE_BYTES else LARGE_BYTES) is None  # nothing is known of these


def test_what_answers_took_long_ago_does_not_count() -> None:
    hedging = Hedging(5)
    for time_s in [*[3.0] * 512, *[0.01] * SAMPLES_MAX]:
        hedging.note(time_s)
    assert hedging.patience_s() == 0.02


@given(st.integers(0, 100), st.integers(0, 500))
def test_no_more_than_its_share_is_spent(percent: int, requests: int) -> None:
    hedging, spent = Hedging(percent), 0
    for _ in range(requests):
        hedging.note(0.01)
        spent += hedging.spend()
    assert spent <= requests * percent / 100 + 1e-6


def test_a_take_of_hundreds_may_spend_its_share_at_once() -> None:
    hedging = Hedging(5)
    for _ in range(500):
        hedging.note(0.01)
    assert [hedging.spend() for _ in range(26)] == [True] * 25 + [False]
    for _ in range(100_000):
        hedging.note(0.01)
    assert sum(hedging.spend() for _ in range(1000)) == 32  # and no more, however long nothing was late


def test_none_when_switched_off() -> None:
    hedging = Hedging(0)
    for _ in range(100):
        hedging.note(0.01)
    assert hedging.patience_s() is None and not hedging.spend()


def test_none_while_the_bucket_refuses_requests() -> None:
    pace = Pace()
    hedging = Hedging(5, pace)
    for _ in range(100):
        hedging.note(0.01)
    assert hedging.spend()
    pace.note(0.0, 1, refused=True)
    assert not hedging.spend()
    pace.note(100.0, 1, refused=False)
    assert hedging.spend()


class Transport:
    """Sends by a coroutine."""

    async def attempt(self, download: Download) -> None:
        """One attempt."""
        raise NotImplementedError

    def start(self, download: Download, ended: Callable[[BaseException | None], None]) -> TaskAttempt:
        return TaskAttempt(self.attempt(download), ended)

    async def close(self) -> None:
        pass


async def attempt_hedged(gets: Transport, download: Download, watch: Watch, stats: StoreStats) -> None:
    """Run a race to its end."""
    over: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    race = Race(gets, download, stats, watch, None, over.set_result)
    race.start(watch.now_s())
    try:
        error = await over
    except asyncio.CancelledError:
        race.cancel()
        raise
    if error is not None:
        raise error


def tail(seed: int, num_takes: int, num_gets: int) -> tuple[list[float], float]:
    """How long takes took, and requests for each GET: 30 ms (lognormal, sigma 0.3), for 1 of 100 GETs 50 times that."""
    random, sent = Random(seed), 0

    class Slow(Transport):
        async def attempt(self, download: Download) -> None:
            nonlocal sent
            sent += 1
            latency_s = 0.03 * math.exp(random.gauss(0, 0.3)) * (50 if random.random() < 0.01 else 1)
            await asyncio.sleep(latency_s)
            download.begin(206, {"content-range": "bytes 0-9/10"})
            download.add(CONTENT[:10])

    async def body() -> list[float]:
        clock, hedging, took_s = asyncio.get_running_loop().time, Hedging(5), []
        watch = Watch(hedging)
        for _ in range(SAMPLES_MAX):
            hedging.note(0.03 * math.exp(random.gauss(0, 0.3)))
        for _ in range(num_takes):
            began_s = clock()
            downloads = [Download.of_range("key", 0, 10) for _ in range(num_gets)]
            await asyncio.gather(*(attempt_hedged(Slow(), one, watch, StoreStats()) for one in downloads))
            took_s.append(clock() - began_s)
        return took_s

    took_s, _ = run_virtual(body)
    return sorted(took_s), sent / (num_takes * num_gets)


@pytest.mark.parametrize(("num_takes", "num_gets", "times"), [(1000, 7, 3.5), (30, 460, 3.0)])
def test_the_tail_of_takes_is_short(num_takes: int, num_gets: int, times: float) -> None:
    took_s, sent = tail(1, num_takes, num_gets)
    assert took_s[num_takes * 99 // 100] <= times * took_s[num_takes // 2]
    assert 1.01 < sent <= 1.05


# -- who wins, in virtual time ----------------------------------------------------------------------------------------

Step = tuple[float, float, type[Exception] | None]  # seconds to the head, seconds to the end, the end


class Scripted(Transport):
    """A transport whose n-th attempt goes by the n-th step."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.cancelled: list[int] = []
        self.started = 0
        self.is_over = False

    async def attempt(self, download: Download) -> None:
        number, self.started = self.started, self.started + 1
        head_s, end_s, error = self.steps[number]
        try:
            await asyncio.sleep(head_s)
            if error is NotFound:
                raise NotFound("no", path=download.key)
            download.begin(206, {"content-range": f"bytes 0-{len(CONTENT) - 1}/{len(CONTENT)}", "etag": f'"{number}"'})
            download.add(CONTENT[:1000])
            await asyncio.sleep(end_s - head_s)
            if error is not None:
                raise error("scripted", path=download.key)  # type: ignore[call-arg]
            download.add(CONTENT[1000:])
        except asyncio.CancelledError:
            if not self.is_over:
                self.cancelled.append(number)
            raise


def race(*steps: Step) -> tuple[str, float, Scripted, StoreStats]:
    """Read once when answers take 100 ms as a rule: the etag or the error, after how long, and what is left."""
    gets, stats, hedging = Scripted(*steps), StoreStats(), Hedging(100)
    for _ in range(SAMPLES_MIN):
        hedging.note(0.1)

    async def read() -> str:
        download = Download.of_range("key", 0, len(CONTENT))
        try:
            await attempt_hedged(gets, download, Watch(hedging), stats)
            download.finish()
            assert bytes(download.buffer()) == CONTENT
            return str(download.etag)
        except LanceError as error:
            return type(error).__name__
        finally:
            for _ in range(3):
                await asyncio.sleep(0)
            gets.is_over = True  # what ends after that, the end of the loop has ended

    (outcome, took_s) = run_virtual(read)
    return outcome, took_s, gets, stats


@pytest.mark.parametrize(
    ("steps", "outcome", "took_s", "cancelled"),
    [
        ([(0.1, 5.0, None)], '"0"', 5.0, []),  # the head was in time, however long the body takes
        ([(9.0, 9.1, None), (0.1, 0.2, None)], '"1"', 0.4, [0]),
        ([(0.3, 0.5, None), (0.1, 9.0, None)], '"0"', 0.5, [1]),
        ([(0.3, 0.9, None), (0.2, 0.5, None)], '"1"', 0.7, [0]),  # the first one's half body is dropped
        ([(1.0, 1.1, None), (0.1, 0.2, Transient)], '"0"', 1.1, []),
        ([(1.0, 1.1, Transient), (0.1, 2.0, None)], '"1"', 2.2, []),
        ([(1.0, 1.1, Transient), (0.1, 2.0, Transient)], "Transient", 2.2, []),
        ([(1.0, 1.1, NotFound), (0.1, 2.0, None)], "NotFound", 1.0, [1]),
        ([(0.2, 0.3, None)], '"0"', 0.3, []),  # it came as the patience ended: what is here is looked at first
        ([(0.1, 0.15, Transient)], "Transient", 0.15, []),
        ([(0.1, 0.15, NotFound)], "NotFound", 0.1, []),
        ([(9.0, 9.1, None), (9.0, 9.1, None), (0.1, 0.2, None)], '"2"', 0.6, [0, 1]),  # unlucky twice
        ([(0.3, 9.1, None), (0.05, 2.0, None)], '"1"', 2.2, [0]),  # no third one: an answer has begun
        ([(9.0, 9.1, None), (9.0, 9.1, None), (9.0, 9.2, None)], '"0"', 9.1, [1, 2]),  # and no fourth
        ([(1.0, 1.1, Transient), (0.5, 0.7, Transient), (0.5, 2.0, None)], '"2"', 2.4, []),
        ([(1.0, 1.1, Transient), (0.5, 2.0, None), (0.5, 0.7, Transient)], '"1"', 2.2, []),
    ],
)
def test_the_first_complete_answer_wins(steps: list[Step], outcome: str, took_s: float, cancelled: list[int]) -> None:
    found, passed_s, gets, stats = race(*steps)
    assert (found, passed_s, gets.cancelled, gets.started) == (outcome, pytest.approx(took_s), cancelled, len(steps))
    assert stats.in_flight == 0
    counts = stats.snapshot()["get"]
    assert (counts.requests, counts.retries) == (len(steps) - 1, len(steps) - 1)
    assert counts.hedges == counts.retries, "these were late, and none had failed"


def test_cancelling_ends_both() -> None:
    gets, hedging = Scripted((9.0, 9.1, None), (9.0, 9.1, None)), Hedging(100)
    for _ in range(SAMPLES_MIN):
        hedging.note(0.01)

    async def run() -> None:
        download = Download.of_range("key", 0, len(CONTENT))
        reading = asyncio.create_task(attempt_hedged(gets, download, Watch(hedging), StoreStats()))
        await asyncio.sleep(1)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await asyncio.sleep(0)
        gets.is_over = True

    run_virtual(run)
    assert sorted(gets.cancelled) == [0, 1]


# -- on sockets -------------------------------------------------------------------------------------------------------


def store_on(server: FaultServer, **options: str) -> S3Store:
    known = {"aws_endpoint": server.endpoint, "allow_http": "true", "aws_skip_signature": "true", "hedge_percent": "5"}
    return open_s3("bucket", {**known, **options})


async def read_into(store: S3Store) -> bytearray:
    memory = bytearray(99_990)
    over: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    wanted = WantedRange("key", 10, 100_000, memoryview(memory))
    (reading,) = store.start_ranges([wanted], over.set_result, lambda tag, late: None)
    await over
    assert reading.result() is None
    return memory


READS: dict[str, Callable[[S3Store], object]] = {
    "range": lambda store: store.get_range("key", 10, 100_000),
    "into": read_into,
    "suffix": lambda store: store.get_suffix("key", 1000),
    "object": lambda store: store.get("key"),
}


async def test_a_request_is_made_again_though_all_that_may_be_are_in_flight() -> None:
    async with FaultServer(CONTENT, [*[serve] * 32, stall]) as server:
        store = store_on(server, requests_max="1")
        for _ in range(32):
            await store.get_range("key", 0, 10)
        async with asyncio.timeout(10):
            assert await store.get_range("key", 0, 10) == CONTENT[:10]
        assert len(server.requests) == 34
        await store.aclose()


@pytest.mark.parametrize("size_bytes", [10, LARGE_BYTES])
async def test_a_kind_of_reads_is_watched_by_itself(size_bytes: int) -> None:
    """Where all reads are small, or all large, nothing is known of the others."""
    content = bytes(LARGE_BYTES + 1000)
    async with FaultServer(content, [*[serve] * 32, stall]) as server:
        store = store_on(server)
        for _ in range(32):
            await store.get_range("key", 0, size_bytes)
        async with asyncio.timeout(10):
            assert len(await store.get_range("key", 1000, 1000 + size_bytes)) == size_bytes
        assert len(server.requests) == 34
        await store.aclose()


@pytest.mark.parametrize("kind", READS)
@pytest.mark.parametrize("second", [serve, broken_after(500)])
async def test_a_late_answer_is_asked_for_again(kind: str, second: Answer) -> None:
    late = asyncio.Event()

    async def second_answer(server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
        await second(server, asked, writer)
        if second is not serve:
            asyncio.get_running_loop().call_later(0.2, late.set)

    script = [*[serve] * 32, after(late), second_answer]
    async with FaultServer(CONTENT, script) as server:
        store = store_on(server)
        for _ in range(32):
            await store.get_range("key", 0, 10)
        found = await READS[kind](store)
        data = found[0] if isinstance(found, tuple) else found
        expected = {
            "range": CONTENT[10:100_000],
            "into": CONTENT[10:100_000],
            "suffix": CONTENT[-1000:],
            "object": CONTENT,
        }[kind]
        assert bytes(data) == expected
        assert len(server.requests) == 34
        assert server.asked[32] == server.asked[33]
        async with asyncio.timeout(10):
            while store.stats.in_flight:  # noqa: ASYNC110 - the one that lost is cancelled
                await asyncio.sleep(0.001)
        await store.aclose()


def test_only_the_fast_client_asks_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LANCE_IO_HEDGE_PERCENT")
    keys = {"access_key_id": "a", "secret_access_key": "b"}
    percents = [
        open_s3("bucket", {**keys, "s3_express": express}).profile.hedge_percent for express in ("false", "true")
    ]
    assert percents == [5, 0]
    assert LOCAL.hedge_percent == 0


async def test_it_can_be_switched_off() -> None:
    async with FaultServer(CONTENT, [*[serve] * 32, stall]) as server:
        store = store_on(server, hedge_percent="0")
        for _ in range(32):
            await store.get_range("key", 0, 10)
        reading = asyncio.create_task(store.get_range("key", 0, 10))
        await asyncio.sleep(0.4)
        assert len(server.requests) == 33
        reading.cancel()
        await asyncio.wait([reading])
        await store.aclose()


async def test_errors_are_not_asked_for_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hedging, "patience_s", lambda self, num_bytes=0: 30.0)  # so none of them is late
    async with FaultServer(CONTENT, [*[serve] * 32, status(404, "NoSuchKey")]) as server:
        store = store_on(server)
        for _ in range(32):
            await store.get_range("key", 0, 10)
        with pytest.raises(NotFound):
            await store.get_range("key", 0, 10)
        assert len(server.requests) == 33
        await store.aclose()
