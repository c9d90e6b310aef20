"""The benchmark under latency: what it makes of a log, its rows and goals, the proxy's behaviour, and a tiny run."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from rich.console import Console

import lance_io
from benchmarks.latency import callers, goals, playing, plots, requestlog, scenarios
from benchmarks.latency.__main__ import run
from benchmarks.latency.contenders import CONTENDERS
from benchmarks.latency.crew import WorkerError, WorkerProcess
from benchmarks.latency.findings import Result, Results, Turn
from benchmarks.latency.proxyport import Proxy, ProxyError, running_proxy
from benchmarks.latency.questions import Answer, Question, picked, priming
from benchmarks.latency.replayers import REPLAYERS
from benchmarks.latency.requestlog import Record, Traffic
from benchmarks.latency.tabulated import sums
from benchmarks.latency.worlds import WORLDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers import S3Server

# -- logs ------------------------------------------------------------------------------------------------------------


def record(from_ms: int, until_ms: int, **changed: Any) -> Record:
    plain = Record(
        method="GET", key="/b/a.lance", range=(0, 10), status=206, sent_bytes=10, received_bytes=0,
        from_us=from_ms * 1000, first_us=from_ms * 1000, until_us=until_ms * 1000,
        connection=1, in_flight=1, fast=True, event="",
    )  # fmt: skip
    return replace(plain, **changed)


def test_a_round_begins_when_nothing_is_under_way() -> None:
    log = [record(0, 30), record(1, 31), record(31, 60), record(59, 80), record(90, 120)]
    assert requestlog.rounds(reversed(log)) == 3
    assert requestlog.rounds([]) == 0


def test_files_have_rounds_of_their_own() -> None:
    """Two for the table, then two or three for each file; those of different files overlap all the time."""
    log = [record(0, 30, key="/b/t/?list"), record(30, 60, key="/b/t/_versions/1.manifest")]
    for number in range(20):
        key, at = f"/b/t/data/{number}.lance", 60 + number
        log += [record(at, at + 30, key=key), *(record(at + 30 + more, at + 60 + more, key=key) for more in range(5))]
    assert requestlog.rounds(reversed(log)) == 4
    assert requestlog.rounds([*log, record(200, 230, key="/b/t/data/7.lance")]) == 5


def test_ends_come_before_beginnings_of_the_same_moment() -> None:
    assert requestlog.in_flight_max([record(0, 30), record(30, 60), record(10, 40)]) == 2


def test_ranges_are_replayed_once_in_the_order_of_asking() -> None:
    log = [
        record(2, 9, range=(5, 7)),
        record(1, 8),
        record(3, 9),  # a hedge
        record(0, 1, method="PUT"),
        record(0, 1, key="/b", range=(0, 0)),
    ]
    assert requestlog.data_ranges(log) == [("/b/a.lance", 0, 10), ("/b/a.lance", 5, 7)]


def test_good_and_refused_answers_are_counted_by_the_second() -> None:
    log = [record(0, 500), record(0, 900, status=503), record(0, 2500), record(0, 2600, status=0)]
    assert requestlog.answered_per_second(log) == [(1, 1), (0, 0), (1, 0)]
    log = [record(1000 * second, 1000 * second + 1) for second in range(41)]
    assert playing.steadiness(log) == {"good_per_s": 1.0, "worst_good_per_s": 1, "refused_share": 0.0}
    assert playing.steadiness(log[:5]) == {}


# -- questions -------------------------------------------------------------------------------------------------------


def test_rows_are_the_same_for_the_same_seed_and_within_the_table() -> None:
    for pattern in ("scattered", "clustered", "neighbours", "one_each"):
        rows = picked(pattern, 250, 1_000, 10, seed=3)
        assert rows == picked(pattern, 250, 1_000, 10, seed=3) != picked(pattern, 250, 1_000, 10, seed=4)
        assert 0 <= min(rows) <= max(rows) < 1_000
        assert len(rows) == (10 if pattern == "one_each" else 250)
    assert [row // 100 for row in picked("one_each", 0, 1_000, 10, 1)] == list(range(10))
    neighbours = picked("neighbours", 7, 1_000, 1, 1)
    assert neighbours == list(range(neighbours[0], neighbours[0] + 7))
    runs = picked("clustered", 250, 1_000, 1, 1)
    assert sum(after != before + 1 for before, after in pairwise(runs)) == 2
    assert priming(5) == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="'here and there'"):
        picked("here and there", 1, 1, 1, 1)


def test_questions_and_answers_are_lines() -> None:
    question = Question("take", {"rows": {"count": 2}, "text": "a\nb"})
    assert question.as_line().count("\n") == 1
    assert Question.of_line(question.as_line()) == question
    assert json.loads(Answer(1.0, 2.0, {"rows": 3}).as_line()) == {"wall_s": 1.0, "cpu_s": 2.0, "told": {"rows": 3}}


def test_callers_ask_again_until_all_is_taken() -> None:
    most = now = 0

    async def take(rows: int) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1

    waits = asyncio.run(callers.waits_of(take, iter(range(50)), 8))
    assert (len(waits), most) == (50, 8)
    assert len(asyncio.run(callers.waits_of(take, count(), 8, for_s=0.0))) == 0
    assert [callers.percentile([4.0, 1.0, 3.0, 2.0], percent) for percent in (1, 50, 51, 99, 100)] == [1, 2, 3, 4, 4]
    assert callers.told([1.0, 3.0], 2.0) == {"takes": 2, "takes_per_s": 1, "p50_s": 1, "p99_s": 3, "longest_s": 3}


# -- scenarios -------------------------------------------------------------------------------------------------------


def test_scenarios_have_names_of_their_own_and_known_parts() -> None:
    everything = scenarios.all_scenarios()
    assert len({scenario.name for scenario in everything}) == len(everything)
    known = {*CONTENDERS, *REPLAYERS, scenarios.IMPORTS, scenarios.LOCAL}
    for scenario in everything:
        assert set(scenario.contenders(30)) <= known
        assert scenario.world in {*WORLDS, "own"}
    assert sum(scenario.everywhere for scenario in everything) == 12


def test_a_plan_begins_with_the_main_latency() -> None:
    plan = scenarios.planned(["take/mixed/1", "append"])
    latencies = [latency_ms for _, latency_ms in plan]
    assert latencies == sorted(latencies, key=lambda latency_ms: latency_ms != 30)
    assert {latency_ms for scenario, latency_ms in plan if scenario.name == "append"} == {0, 5, 30, 100}
    assert [latency_ms for _, latency_ms in scenarios.planned(["append"], [7.0])] == [7.0]
    assert scenarios.planned(["no such"]) == []
    assert {one.name for one, _ in scenarios.planned(["take/vec/100"])} == {"take/vec/100", "take/vec/100/own"}
    assert len({one.name for one, _ in scenarios.planned(["cold/*/1"])}) == 5
    assert all(latency_ms == 30 and not scenario.also for scenario, latency_ms in scenarios.planned([], reduced=True))


def test_a_condition_keeps_its_own_latency_model() -> None:
    slow = next(scenario for scenario in scenarios.all_scenarios() if scenario.condition == "slow 1 %")
    latency = {"median_ms": 5, "sigma": 0.3, "tail_share": 0.01, "tail_factor": 50}
    assert slow.settings(5, seed=9) == {"latency": latency, "seed": 9}


# -- results and goals -----------------------------------------------------------------------------------------------

NO_TRAFFIC = Traffic.of([])


def turns(*walls_s: float, **told: Any) -> list[Turn]:
    return [Turn(wall_s, wall_s / 10, 0.0, NO_TRAFFIC, dict(told)) for wall_s in walls_s]


def results_of(*found: Result) -> Results:
    return Results(1.0, 3, {"processor": "x", "cores": 2}, {"lance_io": "0", "pylance": "14"}, "today", list(found))


def judged(result: Result) -> dict[str, str]:
    return {line.text: line.state for line in goals.goals(results_of(result))}


def test_contenders_are_compared_within_the_rounds() -> None:
    result = Result("take/mixed/100", 30.0, "plain", {"lance_io": turns(1, 4, 2), "pylance": turns(2, 4, 8)})
    assert result.times_faster("lance_io", "pylance") == 2
    assert result.median("lance_io", "wall_s") == 2
    assert result.median("nobody", "wall_s") is None
    rates = {"lance_io": turns(1, takes_per_s=50), "pylance": turns(1, takes_per_s=100)}
    assert Result("callers/32", 30.0, "plain", rates).times_faster("lance_io", "pylance") == 0.5


def test_processor_time_is_for_one_take() -> None:
    (turn,) = turns(10.0, takes=4)
    assert turn.per_take().cpu_s == 0.25


def test_counts_that_differ_from_the_proxys_are_told() -> None:
    traffic = Traffic.of([record(0, 1), record(2, 3), record(4, 5, method="PUT")])
    same, other = Turn(1, 1, 0, traffic, {"reads": 2}), Turn(1, 1, 0, traffic, {"reads": 3})
    result = Result("take/mixed/1", 30.0, "plain", {"lance_io": [same], "pylance": [same, other]})
    assert result.miscounted() == [("pylance", 3, 2)]
    assert "pylance counted 3 reads, the proxy 2" in sums([], results_of(result))


def test_a_take_of_a_hundred_is_judged_by_pylance_and_the_bare_client() -> None:
    found = {"lance_io": turns(0.1, 0.1, 0.1), "pylance": turns(0.125, 0.125, 0.125), "bare": turns(0.08, 0.08, 0.08)}
    assert judged(Result("take/mixed/100", 30.0, "plain", found)) == {
        "at least 0.95 times pylance's speed": "reached",
        "at least 1.3 times pylance's speed": "within 5 %",
        "lance_io: requests at most 1 times pylance's": "reached",
        "lance_io: sent_bytes at most 1 times pylance's": "reached",
        "lance_io: rounds at most 1 times pylance's": "reached",
        "lance_io: wall_s at most 1.25 times bare's + 5 ms": "reached",
    }
    two = Traffic.of([record(0, 1), record(2, 3)])
    found["lance_io"] = [replace(turn, traffic=two) for turn in turns(0.2, 0.2, 0.2)]
    assert set(judged(Result("take/mixed/100", 30.0, "plain", found)).values()) == {"missed"}
    assert list(judged(Result("take/mixed/100", 5.0, "plain", found))) == ["at least 1 times pylance's speed"]
    assert judged(Result("take/mixed/100", 30.0, "faults 1 %", {"lance_io": turns(1)})) == {}


def test_searches_are_judged_by_time_and_by_pylance_unlimited() -> None:
    found = {"lance_io": turns(0.2, 0.2, 0.2), "pylance unlimited": turns(0.3, 0.3, 0.3)}
    assert judged(Result("search/cold", 30.0, "plain", found)) == {
        "wall_s at most 220 ms": "reached",
        "at least 2 times pylance unlimited's speed": "missed",
        "lance_io: sent_bytes at most 1.2 times pylance unlimited's": "reached",
        "at most 66 requests": "reached",
    }
    assert len(judged(Result("search/cold/own", 30.0, "plain", found))) == 2
    assert judged(Result("texts/cold", 30.0, "plain", found)) == {
        "wall_s at most 220 ms": "reached",
        "at least 2.8 times pylance unlimited's speed": "missed",
        "at most 32 requests": "reached",
    }


def test_queries_by_key_are_judged_by_pylance_unlimited() -> None:
    """A look-up whose pages are in memory, beside a filter whose pages are not."""

    def walls(ours: float, theirs: float, **more: Any) -> dict[str, list[Turn]]:
        return {"lance_io": turns(*[ours] * 3, **more), "pylance unlimited": turns(*[theirs] * 3, **more)}

    assert judged(Result("index/key/cold", 30.0, "plain", walls(0.205, 0.25))) == {
        "wall_s at most 200 ms": "within 5 %",
        "at least 1.25 times pylance unlimited's speed": "within 5 %",
        "at most 12 requests": "reached",
    }
    get = Result("index/get/warm", 30.0, "plain", walls(0.035, 0.035))
    assert judged(get) == {"wall_s at most 40 ms": "reached"}
    lines = goals.goals(results_of(Result("index/key/warm", 30.0, "plain", walls(0.065, 0.07)), get))
    assert [(line.name, line.value, line.state) for line in lines][-1] == ("index/get/warm", 2.0, "reached")
    many = {**walls(1.0, 1.0, takes=100, takes_per_s=300.0), "pylance unlimited": turns(1, takes=100, takes_per_s=99.0)}
    assert judged(Result("index/callers/256", 30.0, "plain", many)) == {
        "cpu_s of a look-up at most 0.6 ms": "missed",
        "at least 3 times pylance unlimited's speed": "reached",
    }


def test_throttled_runs_are_judged_by_their_seconds() -> None:
    steady = {"takes_per_s": 60, "good_per_s": 420.0, "worst_good_per_s": 200, "refused_share": 0.05}
    result = Result("throttled/64 callers", 30.0, "throttled", {"lance_io": turns(40, **steady)})
    assert judged(result) == {
        "at least 400 good GETs a second": "reached",
        "no second below 250": "missed",
        "at most 10 % refused": "reached",
    }


def test_takes_during_a_scan_are_judged_by_those_without() -> None:
    during = Result("callers/8 during a scan", 30.0, "plain", {"lance_io": turns(1, takes_per_s=9, p99_s=0.09)})
    without = Result("callers/8", 30.0, "plain", {"lance_io": turns(1, takes_per_s=9, p99_s=0.04)})
    lines = goals.goals(results_of(during, without))
    assert [(line.limit, line.state) for line in lines] == [(0.08, "missed")]


def test_results_are_stored_and_found_again(tmp_path: Path) -> None:
    results = results_of(Result("open/mixed", 30.0, "plain", {"lance_io": turns(0.1), "pylance": turns(0.2)}))
    results.save(tmp_path / "latency.json", goals.goals(results))
    assert Results.load(tmp_path / "latency.json") == results
    assert json.loads((tmp_path / "latency.json").read_text())["goals"][0]["limit"] == 0.95


def test_what_is_played_again_takes_the_place_of_what_was_stored() -> None:
    first, second = (Result(name, 30.0, "plain", {"lance_io": turns(0.1)}) for name in ("open/mixed", "take/mixed/1"))
    anew, more = (Result(name, 30.0, "plain", {"lance_io": turns(0.3)}) for name in ("open/mixed", "cached/mixed/1"))
    later = replace(results_of(more, anew), made_at="later")
    assert results_of(first, second).replaced(later) == replace(later, results=[anew, second, more])


def test_who_fails_is_out_and_a_goal_is_missed() -> None:
    result = Result("append", 30.0, "faults 1 %", {"pylance": turns(1)}, {"lance_io": "lance_io: ended with 1"})
    assert judged(result) == {"answers without an error": "missed"}
    assert sums([], results_of(result)).endswith("append at 30 ms: lance_io: ended with 1")


def test_a_worker_that_ends_is_an_error_that_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    with WorkerProcess("lance_io", {}) as worker, pytest.raises(WorkerError, match="ended with 1 when asked to open"):
        worker.ask("open", uri="/no/such/table")
    assert "/no/such/table" in capfd.readouterr().err


def test_pictures_are_drawn_of_what_is_there(tmp_path: Path) -> None:
    rates = {who: turns(1.0, takes_per_s=99.0, p99_s=0.1) for who in ("lance_io", "pylance", "bare")}
    plots.draw_callers(results_of(Result("callers/32", 30.0, "plain", rates)), tmp_path / "callers.png")
    plots.draw_speeds(results_of(Result("callers/32", 30.0, "plain", rates)), tmp_path / "speeds.png")
    plots.draw_speeds(results_of(Result("callers/32", 5.0, "plain", rates)), tmp_path / "none.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["callers.png", "speeds.png"]


def test_other_answers_end_the_run() -> None:
    mine, other = turns(1, digest=["a", "b"])[0], turns(1, digest=["c", "b"])[0]
    playing.compare("take", {"lance_io": mine, "lancedb": other})
    with pytest.raises(playing.Disagreement, match="pylance gives other digest"):
        playing.compare("take", {"lance_io": mine, "pylance": other})


# -- the proxy -------------------------------------------------------------------------------------------------------

CONTENT = bytes(range(256)) * 800  # 204,800 bytes
KEY = "/bucket/data/a b.lance"
TARGET = "/bucket/data/a%20b.lance"


class Store(ThreadingHTTPServer):
    """Keeps objects by target, and what was asked of it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects = {TARGET: CONTENT}
        self.asked: list[tuple[str, str, str]] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Store

    def answer(self, status: int, body: bytes = b"") -> None:
        self.server.asked.append((self.command, self.path, self.headers["Host"]))
        self.send_response(status)
        self.send_header("ETag", '"e"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        found = self.server.objects.get(self.path)
        self.answer(200 if found is not None else 404, found or b"nothing")

    def do_PUT(self) -> None:
        self.server.objects[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200)

    def do_DELETE(self) -> None:
        self.server.objects.pop(self.path, None)
        self.answer(204)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.objects.clear()
        self.answer(200)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as store:
        serving = threading.Thread(target=store.serve_forever, args=(0.01,))
        serving.start()
        yield store
        store.shutdown()
        serving.join()


@pytest.fixture
def proxy(store: Store) -> Iterator[Proxy]:
    with running_proxy(f"http://127.0.0.1:{store.server_port}") as proxy:
        yield proxy


@pytest.mark.parametrize(
    ("dialect", "target", "key", "is_told"),
    [
        ("gcs", "/storage/v1/b/bucket/o/data%2Fa%20b.lance?alt=media", KEY, True),
        ("gcs", TARGET, KEY, True),
        ("azure", f"/account{TARGET}", f"/account{KEY}", False),
        ("azure", f"/account{TARGET}?sv=2023&sig=ab", f"/account{KEY}", False),
    ],
)
def test_each_dialect_is_answered_out_of_memory(
    store: Store, dialect: str, target: str, key: str, is_told: bool
) -> None:
    store.objects = {target: CONTENT}
    with running_proxy(f"http://127.0.0.1:{store.server_port}", dialect) as proxy, connected(proxy) as connection:
        for _ in range(2):
            assert get(connection, "bytes=10-19", target)[:2] == (206, CONTENT[10:20])
        assert len(store.asked) == 1
        assert {(one.key, one.range, one.fast) for one in proxy.take_log()} == {(key, (10, 20), True)}
        assert get(connection, "bytes=-5", target)[0] == (200 if dialect == "azure" else 206)  # asked by Azure's server
        assert len(store.asked) == (2 if dialect == "azure" else 1)
        connection.request("DELETE", target)
        connection.getresponse().read()
        assert get(connection, "bytes=10-19", target)[0] == 404
        (named,) = [host for method, _, host in store.asked if method == "DELETE"]
        assert (named == f"127.0.0.1:{store.server_port}") == is_told  # its own name, or that of the proxy
        proxy.set({"throttle": {"requests_per_s": 0.001, "burst": 1}})
        words = [get(connection, target=target)[:2] for _ in range(2)][-1]
        assert words[0] == 503
        assert (b"ServerBusy" if dialect == "azure" else b'"code": 503') in words[1]


@contextmanager
def connected(proxy: Proxy) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(proxy.endpoint.removeprefix("http://"), timeout=60)
    try:
        yield connection
    finally:
        connection.close()


def get(
    connection: http.client.HTTPConnection, wanted: str | None = None, target: str = TARGET
) -> tuple[int, bytes, str | None]:
    connection.request("GET", target, headers={} if wanted is None else {"Range": wanted})
    answer = connection.getresponse()
    return answer.status, answer.read(), answer.headers["Content-Range"]


def test_ranges_of_data_files_are_answered_out_of_memory(proxy: Proxy, store: Store) -> None:
    size = len(CONTENT)
    with connected(proxy) as connection:
        assert get(connection, "bytes=10-19") == (206, CONTENT[10:20], f"bytes 10-19/{size}")
        assert get(connection, "bytes=-5") == (206, CONTENT[-5:], f"bytes {size - 5}-{size - 1}/{size}")
        assert get(connection, f"bytes={size - 3}-") == (206, CONTENT[-3:], f"bytes {size - 3}-{size - 1}/{size}")
        assert get(connection, f"bytes=100-{size + 9}")[:2] == (206, CONTENT[100:])
        assert get(connection, f"bytes={size}-")[0] == 416
        assert get(connection) == (200, CONTENT, None)
    assert [method for method, *_ in store.asked] == ["GET"]
    log = proxy.take_log()
    assert [one.range for one in log[:2]] == [(10, 20), (size - 5, size)]
    assert {(one.key, one.method, one.connection, one.fast) for one in log} == {(KEY, "GET", 1, True)}
    assert sum(one.sent_bytes for one in log) == proxy.stats().sent_bytes
    assert proxy.take_log() == []


def test_what_is_written_or_deleted_through_it_is_forgotten(proxy: Proxy, store: Store) -> None:
    with connected(proxy) as connection:
        assert get(connection, "bytes=0-1")[1] == CONTENT[:2]
        changes = (
            ("PUT", TARGET, b"new content"),
            ("DELETE", TARGET, b""),
            ("PUT", TARGET, b"third"),
            ("POST", "/bucket/?delete=", b"<Delete><Object><Key>data/a b.lance</Key></Object></Delete>"),
        )
        for method, target, body in changes:
            connection.request(method, target, body)
            connection.getresponse().read()
            status, content, _ = get(connection)
            assert (status, content) == ((200, body) if method == "PUT" else (404, b"nothing"))
    assert proxy.stats().received_bytes == sum(len(body) for *_, body in changes)


def test_everything_else_passes_with_its_host(proxy: Proxy, store: Store) -> None:
    store.objects["/bucket/_versions/1.manifest"] = b"manifest"
    with connected(proxy) as connection:
        for _ in range(2):
            assert get(connection, target="/bucket/_versions/1.manifest")[:2] == (200, b"manifest")
    address = proxy.endpoint.removeprefix("http://")
    assert store.asked == [("GET", "/bucket/_versions/1.manifest", address)] * 2
    assert {(one.fast, one.sent_bytes) for one in proxy.take_log()} == {(False, 8)}


def test_chunked_bodies_and_100_continue(proxy: Proxy) -> None:
    with connected(proxy) as connection:
        connection.request("PUT", "/bucket/x.txt", b"ab", headers={"Expect": "100-continue"})
        assert connection.getresponse().read() == b""
        assert get(connection, target="/bucket/x.txt")[1] == b"ab"


def test_an_answer_waits_for_its_latency(proxy: Proxy) -> None:
    with connected(proxy) as connection:
        get(connection)
        proxy.take_log()
        proxy.set({"latency": {"median_ms": 30}})
        for wanted in ("bytes=0-9", None):
            get(connection, wanted)
        get(connection, target="/bucket/other")
    assert all(one.first_us - one.from_us >= 30_000 for one in proxy.take_log())


def test_bytes_take_the_time_of_the_bandwidth(proxy: Proxy) -> None:
    proxy.set({"bandwidth": {"connection_bytes_per_s": 2_000_000}})
    with connected(proxy) as connection:
        assert get(connection)[1] == CONTENT
    (log,) = proxy.take_log()
    assert log.until_us - log.first_us >= len(CONTENT) / 2 * 0.95


def test_above_the_rate_requests_are_refused(proxy: Proxy) -> None:
    proxy.set({"throttle": {"requests_per_s": 1e-6, "burst": 3}})
    with connected(proxy) as connection:
        answers = [get(connection, "bytes=0-1") for _ in range(5)]
    assert [status for status, *_ in answers] == [206, 206, 206, 503, 503]
    assert b"<Code>SlowDown</Code>" in answers[-1][1]
    assert proxy.stats().throttled == 2


@pytest.mark.parametrize("fault", ["error", "reset", "cut", "stall"])
def test_a_fault_comes_as_announced(proxy: Proxy, fault: str) -> None:
    proxy.set({"faults": {f"{fault}_share": 1.0, "stall_ms": 20}})
    with connected(proxy) as connection:
        if fault == "error":
            assert get(connection)[0] == 500
        elif fault == "cut":
            with pytest.raises(http.client.IncompleteRead) as caught:
                get(connection)
            assert caught.value.partial == CONTENT[: len(CONTENT) // 2]
        else:
            with pytest.raises((ConnectionResetError, http.client.RemoteDisconnected)):
                get(connection)
    with connected(proxy) as connection:  # other methods are spared
        connection.request("PUT", "/bucket/y", b"y")
        assert connection.getresponse().status == 200
    sent = {"error": None, "reset": 0, "cut": len(CONTENT) // 2, "stall": len(CONTENT) // 2}[fault]
    (log,) = (one for one in proxy.take_log() if one.method == "GET")
    assert log.event == fault
    assert sent is None or log.sent_bytes == sent
    assert proxy.stats().disturbed == 1


def test_settings_are_checked_and_replaced_as_a_whole(proxy: Proxy) -> None:
    proxy.set({"latency": {"median_ms": 7}})
    with pytest.raises(ProxyError, match=r"latency.median_ms is -1"):
        proxy.set({"latency": {"median_ms": -1}})
    assert proxy.settings()["latency"]["median_ms"] == 7
    proxy.set({})
    assert proxy.settings()["latency"]["median_ms"] == 0


def test_a_client_that_leaves_is_logged(proxy: Proxy) -> None:
    with connected(proxy) as connection:
        get(connection)
        proxy.reset()
        proxy.set({"latency": {"median_ms": 3_600_000}})
        connection.request("GET", TARGET)
        while proxy.stats().in_flight == 0:
            pass
    while proxy.stats().in_flight:
        pass
    assert [(one.event, one.status) for one in proxy.take_log()] == [("left", 200)]


def test_signed_requests_reach_a_real_server(s3: S3Server, s3_uri: str) -> None:
    with running_proxy(s3.endpoint) as proxy:
        options = s3.options(aws_endpoint=proxy.endpoint)
        lance_io.write_dataset(pa.table({"a": range(1_000)}), s3_uri, storage_options=options)
        dataset = lance_io.dataset(s3_uri, storage_options=options)
        assert dataset.take([3, 999]).to_pydict() == {"a": [3, 999]}
        log = proxy.take_log()
    assert {one.status for one in log} <= {200, 204, 206, 404, 412}
    assert not any(one.fast and one.status != 206 for one in log)  # the bucket is not open to everybody: all pass on


# -- a run -----------------------------------------------------------------------------------------------------------


def test_a_tiny_run_compares_judges_and_draws(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=200)
    sizes = ["--scale", "0.0004", "--rounds", "1", "--latency", "30", "--cache", str(tmp_path / "cache")]
    chosen = ["--only", "callers/8", "--only", "take/one/100", "--only", "append"]
    (results,) = run([*sizes, *chosen, "--output", str(tmp_path)], console)
    assert [result.name for result in results.results] == ["take/one/100", "callers/8", "append"]
    take = results.find("take/one/100", 30.0)
    assert take is not None and list(take.turns) == ["lance_io", "pylance", "bare"]
    assert take.miscounted() == []
    assert all(one.wall_s >= 0.03 and one.traffic.rounds >= 1 for some in take.turns.values() for one in some)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "goals reached" in text and "at least 0.95 times pylance's speed" in text
    assert Results.load(tmp_path / "latency.json").results[0].name == "take/one/100"
    assert (tmp_path / "latency.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("store", ["gcs", "azure"])
def test_a_tiny_run_at_other_stores(tmp_path: Path, store: str) -> None:
    sizes = ["--scale", "0.0004", "--rounds", "1", "--latency", "30", "--cache", str(tmp_path / "cache")]
    chosen = ["--store", store, "--only", "take/mixed/100", "--only", "append"]
    (results,) = run([*sizes, *chosen, "--output", str(tmp_path)], Console(file=io.StringIO()))
    assert [result.name for result in results.results] == ["take/mixed/100"]  # it reads
    (take,) = results.results
    assert (take.failed, take.miscounted()) == ({}, [])
    for turns in take.turns.values():  # ranges of data files, which the proxy has answered alone
        assert {(one.traffic.requests, one.traffic.rounds, one.traffic.events == {}) for one in turns} == {(5, 1, True)}
    assert Results.load(tmp_path / f"latency-{store}.json").store == store


def test_a_name_that_nothing_has_ends_the_run() -> None:
    with pytest.raises(SystemExit, match="no scenario is named nothing"):
        run(["--only", "nothing"])
