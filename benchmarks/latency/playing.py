"""Plays a scenario: contenders take turns behind the proxy, and their answers are compared."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks.latency.contenders import LANCEDB, OUR_LOOP, OURS, OURS_CACHED, PARQUET
from benchmarks.latency.crew import WorkerError, WorkerProcess, first_row
from benchmarks.latency.findings import Result, Turn
from benchmarks.latency.replayers import REPLAYERS
from benchmarks.latency.requestlog import Range, Record, Traffic, answered_per_second, data_ranges
from benchmarks.latency.scenarios import IMPORTS, LOCAL
from benchmarks.latency.worlds import AS_PARQUET, OWN, THEIRS

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.latency.questions import Answer
    from benchmarks.latency.scenarios import Scenario
    from benchmarks.latency.worlds import Stage

A = TypeVar("A")
T = TypeVar("T")

TAKES_IN_FLIGHT, SCANS_IN_FLIGHT = 512, 32
GROUPS = 64  # takes whose ranges are looked at one by one, for those who replay them
FIRST_ROWS = 10_000  # of a table that is written to
SETTLED_TRIES, SETTLED_S = 50, 0.02
OTHER_KEYS = 1_000  # the seed of keys that are looked up before
SETTLED_AFTER_S, WATCHED_S = 10, 40  # of a throttled run, what its goals are about


class Disagreement(AssertionError):
    """Two contenders gave different answers to the same question."""


class Play:
    """One scenario at one latency.

    stage   the server, the proxy, the tables
    rounds  turns of each contender
    """

    def __init__(self, stage: Stage, scenario: Scenario, latency_ms: float, rounds: int) -> None:
        self._stage, self._scenario, self._latency_ms = stage, scenario, latency_ms
        self._rounds = min(scenario.rounds or rounds, rounds)
        self._result = Result(scenario.name, latency_ms, scenario.condition)
        self._workers: dict[str, WorkerProcess] = {}
        self._modules: dict[str, list[str]] = {}
        self._versions: dict[str, int | None] = {}
        self._log: list[Record] = []
        self._groups: list[list[Range]] = []
        self._places: dict[str, str] = {}

    def run(self) -> Result:
        """All rounds."""
        scenario, kind = self._scenario, self._scenario.kind
        turn: Callable[[str, int], Turn] = {
            "first": self._first,
            "open": self._fresh,
            "reopen": self._fresh,
            "cold": self._fresh,
            "cached": self._fresh,
            "cold search": self._fresh,
            "cold query": self._fresh,
            "search": self._search,
            "query": self._query,
            "key callers": self._key_callers,
            "take": self._take,
            "scan": self._scan,
            "callers": self._callers,
        }.get(kind, self._write)
        everybody = scenario.contenders(self._latency_ms)
        libraries = [who for who in everybody if who not in REPLAYERS]
        replayers = [who for who in everybody if who in REPLAYERS]
        with ExitStack() as stack:
            # Who hedges goes by the latency that was: one that changed meanwhile would be taken for lateness.
            self._stage.proxy.set({"latency": {"median_ms": self._latency_ms}})
            for who in everybody:
                self._try(who, self._prepare, stack)
            if kind == "callers" and replayers and OURS not in self._result.failed:
                self._groups = [self._ranges_of_take(number) for number in range(GROUPS)]
            for number in range(self._rounds):
                turns: dict[str, Turn] = {}
                for who in (libraries if number % 2 == 0 else libraries[::-1]) + replayers:
                    if who in replayers and OURS in self._result.failed:
                        continue  # there is nothing to replay
                    done = self._try(who, turn if who in libraries else self._replay, number)
                    if done is None:
                        continue
                    turns[who] = done
                    if who == OURS and replayers and kind != "callers":
                        self._groups = [data_ranges(self._log)]
                compare(scenario.name, turns)
                for who, one in turns.items():
                    one.told.pop("digest", None)
                    self._result.turns.setdefault(who, []).append(one.per_take())
        return self._result

    def _try(self, who: str, action: Callable[[str, A], T], argument: A) -> T | None:
        """Do it for a contender that has not failed; whose worker ends is out for the rest of the scenario."""
        if who in self._result.failed:
            return None
        try:
            return action(who, argument)
        except WorkerError as error:
            self._result.failed[who] = str(error)
            return None

    # -- before --------------------------------------------------------------------------------------------------------

    def _uri(self, who: str) -> str:
        stage, world = self._stage, self._scenario.world
        if who == PARQUET:
            return stage.uri(world, AS_PARQUET)
        if who == LOCAL:
            return stage.local(world)
        own = self._scenario.each_own and who in (OURS, OUR_LOOP)
        return stage.uri(world, OWN if own else THEIRS)

    def _worker(self, who: str) -> WorkerProcess:
        options = self._stage.replay_options if who in REPLAYERS else self._stage.options
        return WorkerProcess(OURS if who == LOCAL else who, options)

    def _prepare(self, who: str, stack: ExitStack) -> None:
        """A process for those who keep one, and whatever must not be measured."""
        kind = self._scenario.kind
        if kind == "first":
            return
        if kind == "cold search":
            with self._worker(who) as worker:
                worker.ask("open", uri=self._uri(who))
                worker.ask("search", **self._asked(0))
                self._modules[who] = worker.ask("modules").told["modules"]
            return
        if kind == "cold query":
            with self._worker(who) as worker:
                worker.ask("open", uri=self._uri(who))
                worker.ask("query", **self._wanted(OTHER_KEYS))
                self._modules[who] = worker.ask("modules").told["modules"]
            return
        if kind in ("open", "reopen", "cold", "cached"):
            rows = self._rows(0) if kind == "cached" else self._rows(0, count=1, pattern="scattered")
            with self._worker(who) as worker:
                self._versions[who] = worker.ask("open_take", uri=self._uri(who), rows=rows).told["version"]
                self._modules[who] = worker.ask("modules").told["modules"]
            return
        worker = self._workers[who] = stack.enter_context(self._worker(who))
        if who in REPLAYERS:
            worker.ask("connect", in_flight=SCANS_IN_FLIGHT if kind == "scan" else TAKES_IN_FLIGHT)
        elif kind == "search":
            worker.ask("warm_search", uri=self._uri(who), **self._asked(1_000))
        elif kind in ("query", "key callers"):
            loads = self._scenario.arguments.get("loads", False)
            worker.ask("warm_query", uri=self._uri(who), loads=loads, **self._wanted(OTHER_KEYS))
        elif kind in ("take", "scan", "callers"):
            worker.ask("warm", uri=self._uri(who), num_rows=self._stage.world(self._scenario.world).num_rows)
        else:
            self._places[who] = self._stage.new_uri()
            worker.ask("write", uri=self._places[who], mode="create", num_rows=FIRST_ROWS)

    def _ranges_of_take(self, number: int) -> list[Range]:
        self._stage.proxy.reset()
        self._workers[OURS].ask("take", rows=self._rows(1_000 + number))
        return data_ranges(self._stage.proxy.take_log())

    def _asked(self, seed: int) -> dict[str, Any]:
        """A search."""
        world, asked = self._stage.world(self._scenario.world), self._scenario.arguments["nearest"]
        return {"seed": seed, "column": world.column, "asked": asked}

    def _wanted(self, seed: int, **changed: Any) -> dict[str, Any]:
        """A look-up of keys."""
        world, arguments = self._stage.world(self._scenario.world), self._scenario.arguments
        asked = {"by_key": arguments["by_key"], "count": arguments["count"], "num_rows": world.num_rows, **changed}
        return {"seed": seed, "column": world.key, "columns": [world.column], **asked}

    def _rows(self, seed: int, **changed: Any) -> dict[str, Any]:
        world = self._stage.world(self._scenario.world)
        arguments = {**self._scenario.arguments, **changed}
        return {
            "pattern": arguments["pattern"],
            "count": min(arguments["count"], world.num_rows),
            "num_rows": world.num_rows,
            "num_files": world.num_files,
            "seed": seed,
        }

    # -- turns ---------------------------------------------------------------------------------------------------------

    def _measured(self, number: int, ask: Callable[[], Answer], before: Callable[[], Answer] | None = None) -> Turn:
        proxy = self._stage.proxy
        if before is not None:
            proxy.set({"latency": {"median_ms": self._latency_ms}})
            before()
            self._settle()
        proxy.set(self._scenario.settings(self._latency_ms, number + 1))
        proxy.reset()
        cpu_before_s = proxy.stats().cpu_s
        answer = ask()
        proxy_cpu_s = proxy.stats().cpu_s - cpu_before_s
        self._settle()
        self._log = proxy.take_log()
        return Turn(answer.wall_s, answer.cpu_s, proxy_cpu_s, Traffic.of(self._log), dict(answer.told))

    def _settle(self) -> None:
        """Let requests end that nobody waits for, such as the slower one of two: they belong to this turn."""
        for _ in range(SETTLED_TRIES):
            if self._stage.proxy.stats().in_flight == 0:
                return
            time.sleep(SETTLED_S)

    def _first(self, who: str, number: int) -> Turn:
        stage = self._stage
        uri = stage.uri(self._scenario.world, THEIRS)
        return self._measured(number, lambda: first_row(who, uri, number, stage.options))

    def _fresh(self, who: str, number: int) -> Turn:
        """In a new process, which has imported what the last one of its kind needed."""
        uri, kind = self._uri(who), self._scenario.kind
        if kind == "cached" and who == OURS_CACHED:
            with WorkerProcess(who, self._stage.options) as worker:  # whose end leaves all that it has read
                worker.ask("open_take", uri=uri, rows=self._rows(number))
        with WorkerProcess(who, self._stage.options) as worker:
            worker.ask("load", modules=self._modules[who])
            if kind in ("cold search", "cold query"):
                question = "search" if kind == "cold search" else "query"
                asked = self._asked(number) if kind == "cold search" else self._wanted(number, check=number == 0)
                opened = partial(worker.ask, "open", uri=uri)
                return self._measured(number, partial(worker.ask, question, **asked), opened)
            if kind in ("cold", "cached"):
                version = self._versions[who] if self._scenario.arguments.get("pinned") else None
                asked = {"uri": uri, "rows": self._rows(number), "check": number == 0, "version": version}
                return self._measured(number, lambda: worker.ask("open_take", **asked))
            if kind == "reopen":
                worker.ask("open_take", uri=uri, rows=self._rows(number, count=1, pattern="scattered"))
            return self._measured(number, lambda: worker.ask("open", uri=uri))

    def _take(self, who: str, number: int) -> Turn:
        worker, rows = self._workers[who], self._rows(number)
        return self._measured(number, lambda: worker.ask("take", rows=rows, check=number == 0))

    def _search(self, who: str, number: int) -> Turn:
        return self._measured(number, lambda: self._workers[who].ask("search", **self._asked(number)))

    def _query(self, who: str, number: int) -> Turn:
        seed = OTHER_KEYS if self._scenario.arguments.get("again") else number
        wanted = self._wanted(seed, check=number == 0)
        return self._measured(number, lambda: self._workers[who].ask("query", **wanted))

    def _key_callers(self, who: str, number: int) -> Turn:
        arguments, worker = self._scenario.arguments, self._workers[who]
        wanted = self._wanted(number, count=arguments["takes"])
        more = {name: wanted[name] for name in wanted if name != "by_key"}
        before = {**more, "seed": OTHER_KEYS + number, "count": arguments["callers"]}
        return self._measured(
            number,
            lambda: worker.ask("key_waits", callers=arguments["callers"], **more),
            lambda: worker.ask("key_waits", callers=arguments["callers"], **before),
        )

    def _scan(self, who: str, number: int) -> Turn:
        world = self._stage.world(self._scenario.world)
        asked, where = self._scenario.arguments["columns"], self._scenario.arguments.get("where")
        columns = {"one": [world.column], "all": None}[asked] if isinstance(asked, str) else asked
        where = where(world.num_rows) if callable(where) else where
        return self._measured(number, lambda: self._workers[who].ask("scan", columns=columns, where=where))

    def _callers(self, who: str, number: int) -> Turn:
        arguments = self._scenario.arguments
        more = {name: arguments[name] for name in ("callers", "takes", "for_s", "during_scan") if name in arguments}
        worker, rows = self._workers[who], self._rows(number)
        callers = arguments["callers"]
        turn = self._measured(
            number,
            lambda: worker.ask("waits", rows=rows, **more),
            lambda: worker.ask("waits", rows=self._rows(2_000 + number), callers=callers, takes=callers),
        )
        if "for_s" in arguments:
            turn.told.update(steadiness(self._log))
        return turn

    def _replay(self, who: str, number: int) -> Turn:
        arguments, worker = self._scenario.arguments, self._workers[who]
        more = {name: arguments[name] for name in ("callers", "takes") if name in arguments}
        groups, callers = self._groups, arguments.get("callers", 1)
        turn = self._measured(
            number,
            lambda: worker.ask("replay", groups=groups, **more),
            lambda: worker.ask("replay", groups=groups, callers=callers, takes=callers),
        )
        if self._scenario.kind != "callers":
            turn.told.clear()
        return turn

    def _write(self, who: str, number: int) -> Turn:
        worker, kind, stage = self._workers[who], self._scenario.kind, self._stage
        if kind == "writers":
            return self._measured(
                number, lambda: worker.ask("append_waits", uri=self._places[who], **self._scenario.arguments)
            )
        if kind == "delete":
            uri = self._places[who]
            return self._measured(number, lambda: worker.ask("delete", uri=uri, predicate=f"id = {number}"))
        uri = stage.new_uri() if kind == "create" else self._places[who]
        num_rows = self._scenario.arguments["rows"]
        return self._measured(number, lambda: worker.ask("write", uri=uri, mode=kind, num_rows=num_rows))


def steadiness(log: list[Record]) -> dict[str, float]:
    """Of a throttled run, of the seconds from 10 to 40: good answers per second, the worst second, the share of 503."""
    seconds = answered_per_second(log)[SETTLED_AFTER_S:WATCHED_S]
    if not seconds:
        return {}
    good, refused = sum(one for one, _ in seconds), sum(one for _, one in seconds)
    return {
        "good_per_s": good / len(seconds),
        "worst_good_per_s": min(one for one, _ in seconds),
        "refused_share": refused / max(1, good + refused),
    }


def compare(name: str, turns: dict[str, Turn]) -> None:
    """Raise `Disagreement` where contenders gave other rows than ours."""
    for quantity in ("rows", "digest"):
        told = {who: turn.told[quantity] for who, turn in turns.items() if quantity in turn.told}
        for who, answer in told.items():
            wanted = told.get(OURS, answer)
            if who == LANCEDB and quantity == "digest":  # gives rows in an order of its own
                answer, wanted = answer[1], wanted[1]
            if answer != wanted and who != IMPORTS:
                raise Disagreement(f"{name}: {who} gives other {quantity} than {OURS}: {answer}, not {wanted}")
