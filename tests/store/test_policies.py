"""The pure parts: when to try again, how many at once, what an option means, what a range costs."""

from __future__ import annotations

import asyncio
import os
import random
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_io.errors import UnsupportedError, UsageError
from lance_io.spans import Ranges
from lance_io.store.bounds import merge_cost
from lance_io.store.counters import StoreStats
from lance_io.store.failures import Transient
from lance_io.store.policies.download import Download
from lance_io.store.policies.hedge import Hedging, Watch
from lance_io.store.policies.logical_read import RetryPolicy, Sending, read_through
from lance_io.store.policies.throttle import AdaptiveLimit, Gate, Rate
from lance_io.store.policies.transport import TaskAttempt
from lance_io.store.profile import CLOUD, LOCAL
from lance_io.store.s3.bucket_options import S3Options, parse_s3
from lance_io.store.storage_options import normalize, planning, seconds, switch
from lance_io.testing.latency import run_virtual
from lance_io.testing.record import merge_ranges

if TYPE_CHECKING:
    from collections.abc import Callable

# -- retries ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 20), st.floats(0, 200), st.floats(0, 1, exclude_max=True), st.none() | st.floats(0, 200))
def test_pauses_stay_within_the_policy(attempts: int, elapsed: float, fraction: float, asked: float | None) -> None:
    policy = RetryPolicy()
    pause = policy.pause_s(attempts, elapsed, fraction, asked)
    if pause is None:
        assert attempts >= 8 or elapsed + 10 + (asked or 0) > 120
    else:
        assert attempts < 8 and elapsed + pause <= 120
        assert (asked or 0) <= pause <= min(10, 0.1 * 2 ** (attempts - 1)) + (asked or 0)


# -- adaptive limit ---------------------------------------------------------------------------------------------------


def test_everything_may_go_out_at_once_until_connections_are_lost() -> None:
    limit = AdaptiveLimit(512)
    assert limit.limit == 512
    limit.note(0.0, 512, throttled=True)  # a matter of the pace: what is in flight at once was not too much
    limit.note(1.0, 512)
    assert limit.limit == 512


def test_the_limit_falls_by_a_third_once_per_window_and_recovers_slowly() -> None:
    limit = AdaptiveLimit(64)
    limit.note(0.0, 1)
    for now_s in (0.1, 0.2, 0.3):
        limit.note(now_s, 10, lost=True)
    assert limit.limit == 64
    limit.note(1.0, 1)
    assert limit.limit == 44
    limit.note(2.0, 44)
    assert limit.limit == 52
    limit.note(3.0, 51)  # clean, but the limit was not reached: nothing says that more would help
    assert limit.limit == 52


@pytest.mark.parametrize(
    ("num_lost", "num_others", "expected"),
    [(2, 0, 64), (3, 0, 44), (3, 57, 44), (3, 58, 64), (6, 100, 44), (0, 100, 64)],
)
def test_a_burst_of_lost_connections_lowers_the_limit(num_lost: int, num_others: int, expected: int) -> None:
    limit = AdaptiveLimit(64)
    for number in range(num_lost + num_others - 1):
        limit.note(0.001 * number, 1, lost=number < num_lost)
    limit.note(1.5, 1, lost=not num_others)
    assert limit.limit == expected
    limit.note(3.0, 1)  # what was lost in an earlier window does not count again
    assert limit.limit == expected


@pytest.mark.parametrize(("num_others", "expected"), [(57, 44), (58, 64)])
def test_answers_that_come_together_count_each(num_others: int, expected: int) -> None:
    limit = AdaptiveLimit(64)
    limit.note(0.0, 64, lost=True, num_requests=3)
    limit.note(0.5, 1, num_requests=num_others - 1)
    limit.note(1.5, 1)
    assert limit.limit == expected


async def test_a_gate_lets_several_through_at_once() -> None:
    limit = AdaptiveLimit(5)
    gate = Gate(limit, asyncio.get_running_loop().time)
    assert gate.num_open() == 5
    places = gate.enter_many(3)
    assert (gate.num_open(), gate.in_flight, sorted(set(places))) == (2, 3, places)
    waiting: list[int] = []
    turns = [gate.enqueue(partial(waiting.append, number), None, None) for number in range(4)]
    assert gate.num_open() == 0  # two went through, two stand in line
    gate.leave(num_requests=3)
    assert gate.in_flight == 4
    await asyncio.sleep(0)
    assert waiting == [0, 1, 2, 3]
    assert all(turn.position > places[-1] for turn in turns)
    gate.leave(num_requests=4)
    assert (gate.in_flight, gate.num_open()) == (0, 5)
    limit.pace.per_s = 10.0
    assert gate.num_open() == 0  # each has to wait for its turn


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 300), st.booleans()), max_size=60), st.integers(1, 300))
def test_the_limit_stays_within_its_bounds(events: list[tuple[float, int, bool]], maximum: int) -> None:
    limit, now_s = AdaptiveLimit(maximum), 0.0
    for step_s, in_flight, lost in events:
        now_s += step_s
        before = limit.limit
        limit.note(now_s, in_flight, lost=lost)
        assert max(min(4, maximum), int(before * 0.7)) <= limit.limit <= maximum


async def test_a_gate_lets_no_more_through_than_its_limit() -> None:
    gate, peak = Gate(AdaptiveLimit(3), lambda: 0.0), 0

    async def work(number: int) -> None:
        nonlocal peak
        await gate.enter()
        try:
            peak = max(peak, gate.in_flight)
            for _ in range(number % 4):
                await asyncio.sleep(0)
        finally:
            gate.leave()

    tasks = [asyncio.create_task(work(number)) for number in range(40)]
    await asyncio.sleep(0)
    for task in random.Random(1).sample(tasks, 12):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (peak, gate.in_flight) == (3, 0)
    await gate.enter()  # no slot was lost
    await gate.enter()
    await gate.enter()


@pytest.mark.parametrize("num_cancelled", [1, 2, 3])
async def test_a_slot_that_comes_in_the_moment_of_cancellation_goes_to_the_next_in_line(num_cancelled: int) -> None:
    gate, passed = Gate(AdaptiveLimit(3), lambda: 0.0), []

    async def work(number: int) -> None:
        await gate.enter()
        passed.append(number)

    for _ in range(3):
        await gate.enter()
    tasks = [asyncio.create_task(work(number)) for number in range(6)]
    await asyncio.sleep(0)
    for _ in range(num_cancelled):
        gate.leave()  # hands the slot over; who gets it has not run yet
    for task in tasks[:num_cancelled]:
        task.cancel()
    for _ in range(3):  # all that can go on does
        await asyncio.sleep(0)
    assert passed == list(range(num_cancelled, 2 * num_cancelled))
    assert gate.in_flight == 3
    for task in tasks[2 * num_cancelled :]:
        task.cancel()


@given(st.integers(1, 50), st.lists(st.floats(0, 1), max_size=80))
def test_a_rate_is_kept_over_any_time(per_s: int, gaps_s: list[float]) -> None:
    rate, now_s, passed_s = Rate(per_s), 0.0, []
    for gap_s in gaps_s:
        now_s += gap_s
        passed_s.append(now_s + rate.wait_s(now_s))
    assert passed_s == sorted(passed_s)
    for first, begin_s in enumerate(passed_s):
        for last, end_s in enumerate(passed_s[first:], first):
            assert last - first + 1 <= per_s * (end_s - begin_s + 1) + 1e-6 * per_s + 1


def test_a_slow_caller_is_not_held_up_by_a_rate() -> None:
    rate = Rate(4)
    assert [rate.wait_s(0.25 * number) for number in range(20)] == [0.0] * 20


def test_a_gate_keeps_to_a_rate() -> None:
    async def body() -> list[float]:
        clock = asyncio.get_running_loop().time
        gate, passed_s = Gate(AdaptiveLimit(64), clock, Rate(10)), []

        async def work() -> None:
            await gate.enter()
            passed_s.append(round(clock(), 6))
            gate.leave()

        await asyncio.gather(*(work() for _ in range(25)))
        return passed_s

    passed_s, _ = run_virtual(body)
    assert passed_s == [0.0] * 10 + [round(0.1 * number, 6) for number in range(1, 16)]


class Line:
    """Requests at one gate in virtual time, some of which have to be made again; `passed` are (name, seconds)."""

    def __init__(self, gate: Gate, lasts_s: float) -> None:
        self.gate = gate
        self.lasts_s = lasts_s
        self.passed: list[tuple[str, float]] = []

    async def request(self, name: str, *pauses_s: float) -> None:
        """One more attempt after each pause."""
        clock, place = asyncio.get_running_loop().time, None
        for pause_s in (*pauses_s, None):
            place = await self.gate.enter(place)
            self.passed.append((name, round(clock(), 6)))
            await asyncio.sleep(self.lasts_s)
            self.gate.leave()
            if pause_s is not None:
                await asyncio.sleep(pause_s)


def test_a_request_that_is_made_again_goes_ahead_of_those_that_wait() -> None:
    async def body() -> list[tuple[str, float]]:
        line = Line(Gate(AdaptiveLimit(2), asyncio.get_running_loop().time), 1.0)
        # a and b come back while c and d have the slots: in the order of their first arrival, not of their return
        await asyncio.gather(line.request("a", 0.5, 0.5), line.request("b", 0.25), *map(line.request, "cdefg"))
        return line.passed

    passed, _ = run_virtual(body)
    assert passed == [
        ("a", 0),
        ("b", 0),
        ("c", 1),
        ("d", 1),
        ("a", 2),
        ("b", 2),
        ("e", 3),
        ("f", 3),
        ("a", 4),
        ("g", 4),
    ]


def test_a_request_that_pauses_holds_no_slot() -> None:
    async def body() -> list[tuple[str, float]]:
        line = Line(Gate(AdaptiveLimit(1), asyncio.get_running_loop().time), 1.0)
        await asyncio.gather(line.request("a", 10.0), *map(line.request, "bc"))
        return line.passed

    assert run_virtual(body)[0] == [("a", 0), ("b", 1), ("c", 2), ("a", 11)]


def test_the_next_token_of_a_rate_is_for_who_is_first_in_line() -> None:
    async def body() -> list[tuple[str, float]]:
        line = Line(Gate(AdaptiveLimit(64), asyncio.get_running_loop().time, Rate(1)), 0.0)
        requests = [line.request("a", 0.5), *map(line.request, "bcd")]
        a, b, c, d = map(asyncio.ensure_future, requests)
        await asyncio.sleep(2.5)
        c.cancel()  # the token that it waits for is for d
        await asyncio.gather(a, b, d)
        return line.passed

    assert run_virtual(body)[0] == [("a", 0), ("a", 1), ("b", 2), ("d", 3)]


def test_the_time_before_a_gate_is_counted() -> None:
    class Gets:
        async def attempt(self, download: Download) -> None:
            await asyncio.sleep(1.0)
            if download.num_answers == 0 and download.key == "a":
                download.num_answers += 1
                raise Transient("once more", path=download.key)
            download.begin(206, {"content-range": "bytes 0-9/10"})
            download.add(bytes(10))

        def start(self, download: Download, ended: Callable[[BaseException | None], None]) -> TaskAttempt:
            return TaskAttempt(self.attempt(download), ended)

        async def close(self) -> None:
            pass

    async def body() -> list[float]:
        gate = Gate(AdaptiveLimit(1), asyncio.get_running_loop().time)
        retries = RetryPolicy(first_delay_s=0.0)
        sending = Sending(Gets(), gate, Watch(Hedging(0)), StoreStats(), "bucket", retries, None)
        downloads = [Download.of_range(key, 0, 10) for key in "ab"]
        await asyncio.gather(*(read_through(lambda: sending, download, None) for download in downloads))
        return [download.queue_s for download in downloads]

    # a fails at 1 and waits from there until b, which has waited for it, is done
    assert run_virtual(body) == ([1.0, 1.0], 3.0)


# -- options ----------------------------------------------------------------------------------------------------------


def s3(environment: dict[str, str] | None = None, **options: object) -> S3Options:
    return parse_s3("bucket", normalize(options), environment or {})


def test_options_come_before_the_environment_and_in_any_case() -> None:
    environment = {"AWS_REGION": "us-west-2", "REGION": "mars", "ENDPOINT": "http://elsewhere", "CONNECT_TIMEOUT": "2s"}
    assert s3(environment).region == "us-west-2"
    assert s3(environment, Region="eu-west-1").region == "eu-west-1"
    assert s3(environment, AWS_REGION="eu-west-3").region == "eu-west-3"
    assert (s3(environment).endpoint, s3(environment).connect_timeout_s) == (None, 2.0)
    assert s3({"AWS_DEFAULT_REGION": "eu-north-1"}).region == "eu-north-1"


def test_credentials_are_left_to_the_chain_unless_given() -> None:
    environment = {"AWS_ACCESS_KEY_ID": "from", "AWS_SECRET_ACCESS_KEY": "environment"}
    assert s3(environment).access_key is None
    given_ = s3(environment, access_key_id="a", secret_access_key="b", session_token="c")
    assert (given_.access_key, given_.secret_key, given_.token) == ("a", "b", "c")
    with pytest.raises(UsageError, match="go together"):
        s3(aws_access_key_id="a")


def test_options_show_no_secret() -> None:
    shown = repr(s3(access_key_id="AKID", secret_access_key="s3cret", token="t0ken", proxy_url="http://me:pass@proxy"))
    assert not any(secret in shown for secret in ("AKID", "s3cret", "t0ken", "pass"))


def test_addressing() -> None:
    assert s3().virtual_hosted
    assert not s3(endpoint="https://minio.example").virtual_hosted
    assert (
        s3(endpoint="https://bucket.oss.example/", virtual_hosted_style_request="true").endpoint
        == "https://oss.example"
    )
    assert not parse_s3("dotted.bucket", {}, {}).virtual_hosted
    assert parse_s3("name--usw2-az1--x-s3", {}, {}).express


def test_plain_http_must_be_meant() -> None:
    with pytest.raises(UsageError, match="allow_http"):
        s3(endpoint="http://127.0.0.1:9000")
    assert s3(endpoint="http://127.0.0.1:9000", allow_http=True).endpoint == "http://127.0.0.1:9000"
    with pytest.raises(UsageError, match="without a user name"):
        s3(endpoint="https://user:password@host")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5s", 5),
        ("500ms", 0.5),
        ("30", 30),
        ("2 minutes", 120),
        ("1.5 m", 90),
        ("1h", 3600),
        ("3 seconds", 3),
        ("1h 30m 5s", 5405),
        ("250000us", 0.25),
        ("2days", 172_800),
        ("300 millis", 0.3),
        ("1M", 30.44 * 86_400),
    ],
)
def test_durations(text: str, value: float) -> None:
    assert seconds("request_timeout", text) == value


@pytest.mark.parametrize("text", ["", "soon", "-1s", "5 parsecs", "1e3", "5S", "1h, 30m", "1h 30"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="request_timeout"):
        seconds("request_timeout", text)


def test_switches() -> None:
    assert [switch("x", text) for text in ("true", "TRUE", "1", "on", "false", "0", "No")] == [True] * 4 + [False] * 3
    with pytest.raises(UsageError, match="expected true or false, found 'perhaps'"):
        switch("x", "perhaps")


def test_profiles_follow_options() -> None:
    profile = CLOUD.with_options({"block_size": "4096", "requests_max": "16", "other": "x"})
    assert (profile.take_gap_bytes, profile.requests_max, profile.requests_start) == (4096, 16, 16)
    assert CLOUD.with_options({}) == CLOUD
    behind = planning({"requests_max": "16"}, {"LANCE_IO_REQUESTS_MAX": "8", "LANCE_IO_SPLIT_BYTES": "1000"})
    assert (LOCAL.with_options(behind).requests_max, LOCAL.with_options(behind).split_bytes) == (16, 1000)
    of_pylance = {"LANCE_IO_THREADS": "5", "LANCE_PROCESS_IO_THREADS_LIMIT": "9", "LANCE_MAX_IOP_SIZE": "2000"}
    profile = LOCAL.with_options(planning({}, of_pylance))
    assert (profile.requests_start, profile.requests_max, profile.split_bytes) == (5, 9, 2000)
    assert planning({}, {**of_pylance, "LANCE_IO_SPLIT_BYTES": "1000"})["split_bytes"] == "1000"
    for options in ({"requests_max": "0"}, {"block_size": "big"}, {"split_bytes": "-1"}):
        with pytest.raises(UsageError):
            LOCAL.with_options(options)


def test_variables_that_are_set_later_are_seen_by_what_is_opened_then(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LANCE_IO_SPLIT_BYTES", "LANCE_MAX_IOP_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert "split_bytes" not in planning({})
    monkeypatch.setenv("LANCE_MAX_IOP_SIZE", "2000")
    assert planning({})["split_bytes"] == "2000"
    monkeypatch.setenv("LANCE_IO_SPLIT_BYTES", "1000")
    assert planning({}) == planning({}, dict(os.environ))
    assert planning({})["split_bytes"] == "1000"
    monkeypatch.delenv("LANCE_IO_SPLIT_BYTES")
    monkeypatch.delenv("LANCE_MAX_IOP_SIZE")
    assert "split_bytes" not in planning({})


# -- counting ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 40))), st.integers(0, 30))
def test_what_merged_reads_cost(spans: list[tuple[int, int]], gap_bytes: int) -> None:
    ranges = Ranges.of(*((start, start + length) for start, length in spans))
    reads = merge_ranges(ranges, gap_bytes)
    assert merge_cost(ranges.starts, ranges.ends, gap_bytes) == (len(reads), sum(end - start for start, end in reads))


def test_stats_count_and_subtract() -> None:
    stats = StoreStats(log_max=2)
    stats.begin("get", "a", 0, 10)
    stats.begin("get", "b", 5, 9)
    stats.end("get", 10)
    stats.end("get", failed=True)
    before = stats.snapshot()
    stats.retry("get")
    stats.count("put", "c", 7)
    done = stats.snapshot() - before
    assert (before["get"].requests, before["get"].num_bytes, before["get"].errors, before.in_flight_peak) == (
        2,
        10,
        1,
        2,
    )
    assert (done["get"].retries, done.bytes_written, done.requests, stats.in_flight) == (1, 7, 1, 0)
    assert [entry.key for entry in stats.log] == ["b", "c"]
    assert np.int64(0) == done["list"].requests


def test_unknown_places_are_named() -> None:
    from lance_io.store.url import resolve_uri

    with pytest.raises(UsageError, match="No object store provider found for scheme: 'no-such-scheme'"):
        resolve_uri("no-such-scheme://host/x")
    with pytest.raises(UnsupportedError, match=r"s3\+ddb://"):
        resolve_uri("s3+ddb://bucket/x")
    with pytest.raises(UsageError, match="no bucket"):
        resolve_uri("s3:///x")
