"""All that is measured, as data.

A scenario is played at one or several latencies; its result is known by its name and the latency. Kinds:

first    a new process, up to its first row
open     the first opening in a process that has imported everything
reopen   the second one
cold     opening and taking rows, in a process that has imported everything
cached   the same, when another process has taken these rows before; `pinned`: by the number of the version
take     rows of a table whose metadata is warm
search   the rows nearest to a vector, or the best ones for words, by an index that was asked before
cold search   the first search of a table that was just opened, in a process that has imported everything
query    the rows of keys, by a BTREE that is in memory; the pages, too, if `loads`
cold query    the first look-up of a table that was just opened, in a process that has imported everything
key callers   look-ups of a key each by many callers
scan     all rows, or those that pass a filter, batch by batch; one column, or all
callers  takes of few rows by many callers
writers  appends of few rows to one table by many callers
create, append, delete, overwrite
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from typing import Any

from benchmarks.latency.contenders import (
    LANCEDB,
    OUR_LOOP,
    OURS,
    OURS_CACHED,
    OURS_EARLY,
    OURS_LATE,
    PARQUET,
    PYLANCE,
    PYLANCE_AS_IS,
    PYLANCE_WIDE,
)
from benchmarks.latency.replayers import BARE, OBSTORE
from benchmarks.passing import CELLS

MAIN_LATENCY_MS = 30.0
OTHER_LATENCIES_MS = (0.0, 5.0, 100.0)
NEAR_LATENCIES_MS = (5.0,)
ROUNDS = 5
IMPORTS, LOCAL = "imports", "lance_io, local disk"
READING = ("first", "open", "reopen", "cold", "cached", "take", "scan", "callers")

CONDITIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "slow 1 %": {"latency": {"sigma": 0.3, "tail_share": 0.01, "tail_factor": 50}},
    "throttled": {"throttle": {"requests_per_s": 500, "burst": 50}},
    "faults 1 %": {"faults": {"error_share": 0.004, "reset_share": 0.003, "cut_share": 0.003}},
    "100 MB/s": {"bandwidth": {"total_bytes_per_s": 100e6}},
    "200 MB/s": {"bandwidth": {"total_bytes_per_s": 200e6}},
}


@dataclass(frozen=True)
class Scenario:
    """One thing to measure.

    who         contenders, in the order of the first round; replayers follow ours
    also        contenders at 30 ms only
    arguments   by kind: `pattern`, `count`; `columns` (one or all, or a list), `where` (a text, or what gives it for a
                number of rows); `callers`, `takes`, `for_s`, `during_scan`, `rows`; `nearest`,
                also for words: `k`, and `num_words`; `by_key` (by a look-up, not a filter),
                `loads` (all of the index before), `again` (the same keys)
    condition   what the proxy does besides its latency
    each_own    everybody reads the files that it has written, instead of pylance's
    rounds      0: as many as the run has
    everywhere  at the other latencies as well
    reduced     part of the short run
    nearby      at 5 ms as well
    apart       played only where it is named
    """

    name: str
    kind: str
    world: str
    who: tuple[str, ...] = (OURS, PYLANCE)
    also: tuple[str, ...] = ()
    arguments: dict[str, Any] = field(default_factory=dict)
    condition: str = "plain"
    each_own: bool = False
    rounds: int = 0
    everywhere: bool = False
    reduced: bool = False
    nearby: bool = False
    apart: bool = False

    @property
    def is_for_all_stores(self) -> bool:
        """Whether it is played at Google Cloud Storage and Azure, too: reads of pylance's files, undisturbed."""
        return (
            self.kind in READING
            and self.world in ("mixed", "vec")
            and self.condition == "plain"
            and not self.each_own
            and "where" not in self.arguments
        )

    def contenders(self, latency_ms: float) -> tuple[str, ...]:
        """Who takes part at this latency."""
        return self.who + (self.also if latency_ms == MAIN_LATENCY_MS else ())

    def settings(self, latency_ms: float, seed: int) -> dict[str, Any]:
        """What the proxy is told."""
        condition = CONDITIONS[self.condition]
        return {**condition, "latency": {**condition.get("latency", {}), "median_ms": latency_ms}, "seed": seed}


def _processes() -> list[Scenario]:
    cold = {"pattern": "scattered"}
    return [
        Scenario("first/mixed", "first", "mixed", (OURS, PYLANCE, IMPORTS), (LANCEDB,), reduced=True),
        Scenario("open/mixed", "open", "mixed", also=(PYLANCE_AS_IS, LANCEDB, PARQUET)),
        Scenario("reopen/mixed", "reopen", "mixed", reduced=True),
        Scenario("open/many", "open", "many"),
        *(
            Scenario(
                f"cold/{world}/{count}",
                "cold",
                world,
                also=(PYLANCE_AS_IS, LANCEDB, PARQUET) if world == "mixed" else (),
                arguments={**cold, "count": count},
                everywhere=world == "mixed",
                reduced=world == "mixed" and count == 1,
            )
            for world in ("mixed", "vec")
            for count in (1, 100)
        ),
        *(
            Scenario(
                f"cached/mixed/{count}" + ("/pinned" if pinned else ""),
                "cached",
                "mixed",
                (OURS, OURS_CACHED, PYLANCE),
                arguments={**cold, "count": count, "pinned": pinned},
            )
            for count in (1, 100)
            for pinned in (False, True)
        ),
        Scenario("cold/many/each", "cold", "many", arguments={"pattern": "one_each", "count": 64}),
        *(
            Scenario(
                f"cold/{world}/{count}/own",
                "cold",
                world,
                arguments={**cold, "count": count},
                each_own=True,
                reduced=(world, count) == ("mixed", 1),
            )
            for world, count in (("mixed", 1), ("mixed", 100), ("vec", 1), ("many", 1))
        ),
    ]


def _takes() -> list[Scenario]:
    also = (PYLANCE_AS_IS, LANCEDB, OBSTORE, PARQUET)
    counts = (1, 10, 100, 1_000, 10_000)
    cases = [(world, "scattered", count) for world in ("mixed", "one", "many") for count in counts]
    cases += [(world, "clustered", 1_000) for world in ("mixed", "one", "many")]
    cases += [("mixed", "clustered", 10_000), ("mixed", "neighbours", 100), ("many", "one_each", 64)]
    cases += [("vec", "scattered", count) for count in (1, 100, 1_000, 10_000)]
    everywhere = {("mixed", "scattered", count) for count in (1, 100, 1_000)}
    everywhere |= {("vec", "scattered", 100), ("many", "one_each", 64)}
    own = [("mixed", "scattered", count) for count in counts]
    own += [("vec", "scattered", 100), ("vec", "scattered", 1_000), ("many", "one_each", 64)]

    def named(world: str, pattern: str, count: int) -> str:
        return f"take/{world}/" + {"scattered": f"{count}", "one_each": "each"}.get(pattern, f"{count} {pattern}")

    def take(case: tuple[str, str, int], each_own: bool) -> Scenario:
        world, pattern, count = case
        main = world == "mixed" and pattern == "scattered" and not each_own
        return Scenario(
            named(*case) + ("/own" if each_own else ""),
            "take",
            world,
            (OURS, PYLANCE, BARE),
            also if main and count in (1, 100, 1_000) else (),
            {"pattern": pattern, "count": count},
            each_own=each_own,
            everywhere=case in everywhere and not each_own,
            reduced=(main and count in (1, 100, 1_000)) or (case in everywhere and not each_own),
        )

    return [take(case, False) for case in cases] + [take(case, True) for case in own]


def _scans() -> list[Scenario]:
    who = (OURS, PYLANCE, BARE)
    return [
        Scenario("scan/big/one", "scan", "big", who, (PYLANCE_AS_IS, LANCEDB, OBSTORE, PARQUET), {"columns": "one"}),
        Scenario(
            "scan/big/all", "scan", "big", (*who, LOCAL), (PYLANCE_AS_IS, LANCEDB, OBSTORE, PARQUET), {"columns": "all"}
        ),
        Scenario("scan/big/all/own", "scan", "big", who, arguments={"columns": "all"}, each_own=True),
        Scenario("scan/mixed/one", "scan", "mixed", who, arguments={"columns": "one"}, everywhere=True, reduced=True),
        Scenario("scan/mixed/all", "scan", "mixed", who, arguments={"columns": "all"}, everywhere=True, reduced=True),
        Scenario("scan/many/all", "scan", "many", who, arguments={"columns": "all"}),
        *(
            Scenario(f"scan/mixed/all/{limit}", "scan", "mixed", who, arguments={"columns": "all"}, condition=limit)
            for limit in ("100 MB/s", "200 MB/s")
        ),
    ]


def _filters() -> list[Scenario]:
    """Few rows, many, and a condition on text beside one on numbers; the column `random` is uniform."""

    def below(percent: float) -> str:
        return f"random < {round(-(2**62) + 2**63 * percent / 100)}"

    conditions = {
        "one": "id = 23456",
        "0.01": below(0.01),
        "1": below(1),
        "50": below(50),
        "both": f"text LIKE '%ab%' AND {below(0.01)}",
    }
    return [
        Scenario(f"filter/mixed/{label}", "scan", "mixed", arguments={"columns": "all", "where": where})
        for label, where in conditions.items()
    ]


def _passing() -> list[Scenario]:
    """Filters by what passes, beside our two plans that do not look at it."""
    who = (OURS, OURS_EARLY, OURS_LATE, PYLANCE)
    return [
        Scenario(
            cell.name,
            "scan",
            cell.table,
            who,
            arguments={"columns": [cell.layout, "rest"], "where": cell.where},
            nearby=True,
            apart=True,
        )
        for cell in CELLS
    ]


def _searches() -> list[Scenario]:
    """Twenty partitions; also with a hundred candidates, whose own vectors are compared."""
    plain = {"k": 10, "nprobes": 20}
    who, also = (OURS, PYLANCE_WIDE), (PYLANCE, PYLANCE_AS_IS)
    return [
        Scenario(f"search/{temper}{ending}{own}", kind, "near", who, also, {"nearest": asked}, each_own=bool(own))
        for temper, kind in (("cold", "cold search"), ("warm", "search"))
        for ending, asked in (("", plain), ("/refine", {**plain, "refine_factor": 10}))
        for own in ("", "/own")
    ]


def _word_searches() -> list[Scenario]:
    """Two words; warm other ones than before."""
    who, also, asked = (OURS, PYLANCE_WIDE), (PYLANCE, PYLANCE_AS_IS), {"k": 10, "num_words": 2}
    return [
        Scenario(
            f"texts/{temper}{own}", kind, "words", who, also, {"nearest": asked}, each_own=bool(own), reduced=not own
        )
        for temper, kind in (("cold", "cold search"), ("warm", "search"))
        for own in ("", "/own")
    ]


def _queries() -> list[Scenario]:
    """By a key, by a hundred; a look-up by key whose pages are in memory has no peer but a filter."""
    who, also = (OURS, PYLANCE_WIDE), (PYLANCE, PYLANCE_AS_IS)
    key, keys = {"count": 1, "by_key": False}, {"count": 100, "by_key": False}
    get = {"count": 1, "by_key": True, "loads": True}
    many = {**get, "callers": 256, "takes": 2_560}
    return [
        Scenario("index/key/cold", "cold query", "keyed", who, also, key, reduced=True),
        Scenario("index/key/cold/own", "cold query", "keyed", who, also, key, each_own=True, reduced=True),
        Scenario("index/key/warm", "query", "keyed", who, also, key, reduced=True),
        Scenario("index/get/warm", "query", "keyed", who, also, get, reduced=True),
        Scenario("index/keys/cold", "cold query", "keyed", who, also, keys),
        Scenario("index/keys/warm", "query", "keyed", who, also, keys, reduced=True),
        Scenario("index/keys/again", "query", "keyed", who, also, {**keys, "again": True}, reduced=True),
        Scenario("index/callers/256", "key callers", "keyed", who, also, many, reduced=True),
    ]


def _callers() -> list[Scenario]:
    who = (OURS, OUR_LOOP, PYLANCE, BARE)
    one = {"pattern": "scattered", "count": 1}
    also = (PYLANCE_AS_IS, LANCEDB, OBSTORE)
    return [
        Scenario("callers/1", "callers", "mixed", who, arguments={**one, "callers": 1, "takes": 50}),
        Scenario(
            "callers/32",
            "callers",
            "mixed",
            who,
            also,
            {**one, "callers": 32, "takes": 640},
            everywhere=True,
            reduced=True,
        ),
        Scenario(
            "callers/256",
            "callers",
            "mixed",
            who,
            also,
            {**one, "callers": 256, "takes": 1_536},
            "plain",
            everywhere=True,
            reduced=True,
        ),
        Scenario("callers/1024", "callers", "mixed", who, arguments={**one, "callers": 1_024, "takes": 3_072}),
        Scenario(
            "callers/8 during a scan",
            "callers",
            "mixed",
            (OURS, PYLANCE),
            arguments={**one, "callers": 8, "takes": 320, "during_scan": True},
        ),
        Scenario("callers/8", "callers", "mixed", (OURS, PYLANCE), arguments={**one, "callers": 8, "takes": 320}),
    ]


def _writes() -> list[Scenario]:
    return [
        Scenario("create", "create", "own", arguments={"rows": 200_000}),
        Scenario("append", "append", "own", arguments={"rows": 100}, everywhere=True, reduced=True),
        Scenario(
            "writers/64",
            "writers",
            "own",
            arguments={"callers": 64, "rows": 10, "for_s": 10.0},
            rounds=2,
        ),
        Scenario("delete", "delete", "own"),
        Scenario("overwrite", "overwrite", "own", arguments={"rows": 100}),
    ]


def _disturbed() -> list[Scenario]:
    one, hundred = {"pattern": "scattered", "count": 1}, {"pattern": "scattered", "count": 100}
    slow = [
        Scenario(f"slow/{name}", "callers", "mixed", who, arguments=arguments, condition="slow 1 %", rounds=2)
        for name, who, arguments in (
            ("take 1, 1 caller", (OURS, PYLANCE), {**one, "callers": 1, "takes": 200}),
            ("take 1, 8 callers", (OURS, PYLANCE), {**one, "callers": 8, "takes": 800}),
            # without pylance, whose every take would wait for a slow request: two minutes and a half for a turn
            ("take 100, 1 caller", (OURS,), {**hundred, "callers": 1, "takes": 100}),
        )
    ]
    return [
        *slow,
        Scenario(
            "throttled/64 callers",
            "callers",
            "mixed",
            (OURS, PYLANCE_AS_IS),
            arguments={**one, "callers": 64, "takes": 40_000, "for_s": 40.0},
            condition="throttled",
            rounds=2,
        ),
        Scenario(
            "faults/32 callers",
            "callers",
            "mixed",
            arguments={**one, "callers": 32, "takes": 640},
            condition="faults 1 %",
        ),
        Scenario("faults/take 100", "take", "mixed", arguments=hundred, condition="faults 1 %"),
        Scenario(
            "narrow/take 1000",
            "take",
            "mixed",
            (OURS, PYLANCE, BARE),
            arguments={"pattern": "scattered", "count": 1_000},
            condition="100 MB/s",
        ),
    ]


def all_scenarios() -> list[Scenario]:
    """In the order in which they are played."""
    searches = _searches() + _word_searches()
    reads = _processes() + _takes() + _scans() + _filters() + _passing() + searches + _queries() + _callers()
    return reads + _writes() + _disturbed()


def _matches(name: str, pattern: str) -> bool:
    return fnmatch(name, pattern) or fnmatch(name, f"{pattern}/*")


def planned(
    patterns: list[str], latencies_ms: list[float] | None = None, reduced: bool = False, store: str = "s3"
) -> list[tuple[Scenario, float]]:
    """What a run plays: scenarios of these names, or whose names begin so before a slash; `*` for any; all without.

    latencies_ms  instead of 30 for all of them, and 0, 5 and 100 for some
    store         others than `s3` have the reads that are for all, at 30 ms
    """
    plan: list[tuple[Scenario, float]] = []
    for scenario in all_scenarios():
        if scenario.apart if not patterns else not any(_matches(scenario.name, pattern) for pattern in patterns):
            continue
        if (reduced and not scenario.reduced) or (store != "s3" and not scenario.is_for_all_stores):
            continue
        if reduced or store != "s3":
            scenario = replace(scenario, also=())
        others = OTHER_LATENCIES_MS if scenario.everywhere else NEAR_LATENCIES_MS if scenario.nearby else ()
        others = others if not reduced and store == "s3" else ()
        plan += [(scenario, latency_ms) for latency_ms in latencies_ms or (MAIN_LATENCY_MS, *others)]
    return sorted(plan, key=lambda one: one[1] != MAIN_LATENCY_MS) if latencies_ms is None else plan
