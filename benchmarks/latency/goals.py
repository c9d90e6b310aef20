"""What must be reached, as lines: a quantity of a result, beside the limit that another result or a number sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.latency.contenders import (
    OUR_LOOP,
    OURS,
    OURS_CACHED,
    OURS_EARLY,
    OURS_LATE,
    PYLANCE,
    PYLANCE_AS_IS,
    PYLANCE_WIDE,
)
from benchmarks.latency.replayers import BARE
from benchmarks.latency.scenarios import IMPORTS, LOCAL, MAIN_LATENCY_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.latency.findings import Result, Results

NEAR = 0.05
SPARE_BYTES, PIECE_BYTES = 2 << 20, 8 << 20  # that a filtered scan may read in vain
SEARCHES = {  # seconds at 30 ms, and times the speed of pylance unlimited
    "search/cold": (0.22, 2.0),
    "search/cold/own": (0.19, 2.0),
    "search/cold/refine": (0.26, 3.0),
    "search/warm": (0.085, 1.7),
    "search/warm/refine": (0.13, 2.3),
    "texts/cold": (0.22, 2.8),
    "texts/cold/own": (0.19, 2.8),
    "texts/warm": (0.08, 1.6),
}
SEARCH_REQUESTS = {"search/cold": 66, "texts/cold": 32}
QUERIES: dict[str, tuple[float | None, float | None, int | None]] = {  # as above, and requests
    "index/key/cold": (0.2, 1.25, 12),
    "index/key/cold/own": (0.13, 1.25, 12),
    "index/key/warm": (0.07, 1.05, None),
    "index/get/warm": (0.04, None, None),
    "index/keys/cold": (None, None, 240),
    "index/keys/warm": (0.2, 1.3, 160),
    "index/keys/again": (0.12, 1.2, 101),
}
GET_TIMES = 1.8  # of a filter whose index is as warm as pylance has it: its pages are not in memory
LOOK_UP_CPU_S, LOOK_UP_TIMES = 0.0006, 3.0
REACHED, NEARLY, MISSED = "reached", "within 5 %", "missed"


@dataclass(frozen=True)
class GoalLine:
    """One goal, judged.

    at_most  the value must not be above the limit; otherwise not below
    """

    name: str
    latency_ms: float
    text: str
    value: float
    limit: float
    at_most: bool

    @property
    def state(self) -> str:
        """`reached`, `within 5 %`, `missed`."""
        value, limit = (self.value, self.limit) if self.at_most else (self.limit, self.value)
        if value <= limit:
            return REACHED
        return NEARLY if value <= limit * (1 + NEAR) else MISSED


class _Judge:
    """Lines about one result; what was not measured gives none."""

    def __init__(self, result: Result) -> None:
        self._result = result
        self.lines: list[GoalLine] = []

    def add(self, text: str, value: float | None, limit: float | None, at_most: bool = True) -> None:
        """A line, where both numbers are there."""
        if value is not None and limit is not None:
            self.lines.append(GoalLine(self._result.name, self._result.latency_ms, text, value, limit, at_most))

    def faster(self, times: float, peer: str = PYLANCE) -> None:
        """So many times as fast as a peer."""
        value = self._result.times_faster(OURS, peer)
        self.add(f"at least {times:g} times {peer}'s speed", value, times, at_most=False)

    def ratio(self, quantity: str, who: str, peer: str, times: float, plus: float = 0.0) -> None:
        """At most so many times a peer's quantity."""
        limit = self._result.median(peer, quantity)
        more = f" + {plus * 1e3:g} ms" if plus else ""
        text = f"{who}: {quantity} at most {times:g} times {peer}'s{more}"
        self.add(text, self._result.median(who, quantity), None if limit is None else limit * times + plus)

    def within(self, quantity: str, other: str, times: float, plus: float = 0.0, who: str = OURS) -> None:
        """At most so many times another quantity of the same contender."""
        limit = self._result.median(who, other)
        text = f"{quantity} at most {times:g} times {other}" + (f" + {plus * 1e3:g} ms" if plus else "")
        self.add(text, self._result.median(who, quantity), None if limit is None else limit * times + plus)


def goals(results: Results) -> list[GoalLine]:
    """All lines that can be judged, in the order of the results."""
    return [line for result in results.results for line in _lines(result, results)]


def _lines(result: Result, results: Results) -> Iterator[GoalLine]:
    judge = _Judge(result)
    name = result.name
    if OURS in result.failed:
        judge.add("answers without an error", 0, 1, at_most=False)
    if name.startswith("late/"):
        _passing(judge, result)
    elif result.condition == "plain" and not name.endswith("/own"):
        judge.faster(0.95 if result.latency_ms >= MAIN_LATENCY_MS else 1.0)
    if result.latency_ms == MAIN_LATENCY_MS:
        _counts(judge, result)
        _take(judge, name)
        _scan(judge, result)
        _search(judge, result)
        _query(judge, result, results)
        _process(judge, result)
        _cached(judge, result)
        _disturbed(judge, result)
        _during_scan(judge, result, results)
        _writers(judge, result)
        if result.condition == "plain" and name.startswith("callers/"):
            _callers(judge, result)
    if name.startswith("callers/") and result.median(BARE, "cpu_s") is not None:
        judge.ratio("cpu_s", OUR_LOOP, BARE, 2.2)
        judge.ratio("cpu_s", OURS, BARE, 3.0)
    yield from judge.lines


def _passing(judge: _Judge, result: Result) -> None:
    """A filter: as fast as the faster of two plans and a round trip, and as lean as it; or, where both are about as
    fast, as the leaner of both. See `benchmarks.passing`.
    """
    plans = [who for who in (OURS_EARLY, OURS_LATE) if result.median(who, "wall_s") is not None]
    if len(plans) < 2:
        return
    walls = [result.median(who, "wall_s") or 0.0 for who in plans]
    sizes = [result.median(who, "sent_bytes") or 0.0 for who in plans]
    round_s = result.latency_ms / 1e3
    text = "wall_s at most 1.1 times the faster plan's + a round trip"
    judge.add(text, result.median(OURS, "wall_s"), 1.1 * min(walls) + round_s)
    is_near = abs(walls[0] - walls[1]) <= round_s
    leaner = min(sizes) if is_near else sizes[walls.index(min(walls))]
    spare = SPARE_BYTES if is_near else PIECE_BYTES
    text = f"sent_bytes at most 1.1 times the {'leaner' if is_near else 'faster'} plan's + {spare >> 20} MiB"
    judge.add(text, result.median(OURS, "sent_bytes"), 1.1 * leaner + spare)
    if result.name.split("/")[1] != "8":  # where one round cannot be beaten by two
        judge.faster(1.0)


def _counts(judge: _Judge, result: Result) -> None:
    kind = result.name.split("/")[0]
    their_files = result.condition == "plain" and not result.name.endswith("/own")
    if their_files and kind in ("open", "reopen", "cold", "take", "scan"):
        judge.ratio("requests", OURS, PYLANCE, 1.0)
        judge.ratio("sent_bytes", OURS, PYLANCE, 1.0)
        if kind != "scan":  # whose rounds are a matter of how fast batches are taken
            judge.ratio("rounds", OURS, PYLANCE, 1.0)


def _take(judge: _Judge, name: str) -> None:
    parts = name.split("/")
    if parts[0] == "cold" and parts[2:] == ["1", "own"]:
        judge.faster(1.2)
    if parts[0] != "take" or len(parts) > 3 or parts[1] not in ("mixed", "vec"):
        return
    if parts[2] == "100":
        judge.ratio("wall_s", OURS, BARE, 1.25, plus=0.005)
        judge.faster(1.3)
    elif parts[2] in ("1000", "10000"):
        judge.ratio("wall_s", OURS, BARE, 1.25)
        judge.faster(1.1)


def _callers(judge: _Judge, result: Result) -> None:
    if result.name == "callers/32":
        bare = result.median(BARE, "takes_per_s")
        limit = None if bare is None else 0.8 * bare
        judge.add("at least 0.8 of the bare client's takes", result.median(OURS, "takes_per_s"), limit, at_most=False)
        judge.faster(1.2)
        judge.within("p99_s", "p50_s", 1.0, plus=0.04)
    elif result.name in ("callers/256", "callers/1024"):
        judge.faster(1.5)
        judge.within("p99_s", "p50_s", 2.0)


def _during_scan(judge: _Judge, result: Result, results: Results) -> None:
    if result.name == "callers/8 during a scan":
        without = results.find("callers/8", result.latency_ms)
        limit = None if without is None else without.median(OURS, "p99_s")
        text = "p99_s at most 2 times that without a scan"
        judge.add(text, result.median(OURS, "p99_s"), None if limit is None else 2 * limit)


def _writers(judge: _Judge, result: Result) -> None:
    if result.name == "writers/64":
        appends_per_s = result.median(OURS, "takes_per_s")
        judge.add("at least 200 acknowledged appends a second", appends_per_s, 200, at_most=False)
        judge.add("p99_s at most 1 s", result.median(OURS, "p99_s"), 1.0)


def _scan(judge: _Judge, result: Result) -> None:
    if not result.name.startswith("scan/"):
        return
    if result.condition == "200 MB/s":
        judge.ratio("wall_s", OURS, BARE, 1 / 0.95)
    elif result.condition == "plain" and result.name.startswith("scan/big/") and not result.name.endswith("/own"):
        judge.faster(1.2)
    if result.name != "scan/big/all":
        return
    local, bare = result.median(LOCAL, "cpu_s"), result.median(BARE, "cpu_s")
    limit = None if local is None or bare is None else 1.4 * (local + bare)
    judge.add("cpu_s at most 1.4 times local scan and bare download", result.median(OURS, "cpu_s"), limit)
    peaks = [turn.value("peak_bytes") for turn in result.turns.get(OURS, [])]
    if peaks:
        judge.add("resident size at most 512 MiB", max(peak for peak in peaks if peak is not None), float(512 << 20))
    if len(peaks) >= 3 and peaks[0] is not None:
        judge.add("resident size of the third scan that of the first", peaks[2], 1.05 * peaks[0])


def _search(judge: _Judge, result: Result) -> None:
    """Vectors and words by an index; of the same files no more bytes of vectors than pylance but a fifth."""
    if result.name not in SEARCHES:
        return
    limit_s, times = SEARCHES[result.name]
    judge.add(f"wall_s at most {limit_s * 1e3:g} ms", result.median(OURS, "wall_s"), limit_s)
    judge.faster(times, PYLANCE_WIDE)
    if result.name.startswith("search/") and not result.name.endswith("/own"):
        judge.ratio("sent_bytes", OURS, PYLANCE_WIDE, 1.2)
    if requests := SEARCH_REQUESTS.get(result.name):
        judge.add(f"at most {requests} requests", result.median(OURS, "requests"), requests)


def _query(judge: _Judge, result: Result, results: Results) -> None:
    """Rows of keys by a BTREE."""
    if result.name == "index/callers/256":
        judge.add("cpu_s of a look-up at most 0.6 ms", result.median(OURS, "cpu_s"), LOOK_UP_CPU_S)
        judge.faster(LOOK_UP_TIMES, PYLANCE_WIDE)
    if result.name not in QUERIES:
        return
    limit_s, times, requests = QUERIES[result.name]
    if limit_s is not None:
        judge.add(f"wall_s at most {limit_s * 1e3:g} ms", result.median(OURS, "wall_s"), limit_s)
    if times is not None:
        judge.faster(times, PYLANCE_WIDE)
    if requests is not None:
        judge.add(f"at most {requests} requests", result.median(OURS, "requests"), requests)
    filtered = results.find("index/key/warm", result.latency_ms) if result.name == "index/get/warm" else None
    if filtered is not None:
        theirs, ours = filtered.median(PYLANCE_WIDE, "wall_s"), result.median(OURS, "wall_s")
        text = f"at least {GET_TIMES:g} times {PYLANCE_WIDE}'s speed in index/key/warm"
        judge.add(text, theirs / ours if theirs and ours else None, GET_TIMES, at_most=False)


def _process(judge: _Judge, result: Result) -> None:
    if result.name.startswith("first/"):
        ours, imports = result.median(OURS, "cpu_s"), result.median(IMPORTS, "cpu_s")
        above = None if ours is None or imports is None else ours - imports
        judge.add("cpu_s at most 150 ms above `import numpy, pyarrow`", above, 0.15)
        judge.ratio("wall_s", OURS, PYLANCE, 0.75)
    elif result.name.startswith("reopen/"):
        judge.add("cpu_s at most 5 ms", result.median(OURS, "cpu_s"), 0.005)
        judge.add("two rounds", result.median(OURS, "rounds"), 2)


def _cached(judge: _Judge, result: Result) -> None:
    """A second process with a disk cache: one listing, which takes the latency, and nothing for a pinned version."""
    kind, _, count, *pinned = (*result.name.split("/"), "", "")
    if kind != "cached":
        return
    requests = result.median(OURS_CACHED, "requests")
    if "pinned" in pinned:
        judge.add("disk cache: no request", requests, 0)
        value = result.times_faster(OURS_CACHED, PYLANCE)
        judge.add(f"disk cache: at least 10 times {PYLANCE}'s speed", value, 10, at_most=False)
    else:
        judge.add("disk cache: one request", requests, 1)
        above_s = 0.015 if count == "1" else 0.025
        limit = result.latency_ms / 1e3 + above_s
        text = f"disk cache: wall_s at most the latency + {above_s * 1e3:g} ms"
        judge.add(text, result.median(OURS_CACHED, "wall_s"), limit)


def _disturbed(judge: _Judge, result: Result) -> None:
    if result.name.startswith("slow/"):
        judge.within("p99_s", "p50_s", 3.0 if "take 100" in result.name else 3.5)
    elif result.name.startswith("throttled/"):
        judge.add("at least 400 good GETs a second", result.median(OURS, "good_per_s"), 400, at_most=False)
        judge.add("no second below 250", result.median(OURS, "worst_good_per_s"), 250, at_most=False)
        judge.add("at most 10 % refused", result.median(OURS, "refused_share"), 0.1)
        judge.faster(0.95, PYLANCE_AS_IS)
    elif result.condition != "plain" and not result.name.startswith("scan/"):
        judge.faster(0.95)
