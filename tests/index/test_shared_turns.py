"""Searches of several callers at once: those that wait are answered together, whatever happens to one of them."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.plans.plan import Wait
from lance_io.reads.scan import nearest as searches
from lance_io.reads.scan.scan_options import scan_options
from lance_io.reads.scan.vectors import shared_turns
from lance_io.reads.scan.vectors.shared_turns import QUERIES_MAX, SharedTurns

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

NUM_ROWS, DIM = 600, 8


class Line:
    """Turns of one search at a time, whose searches end when they are told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shared_turns, "cpu_count", lambda: 1)
        self.turns = SharedTurns(None)
        self.asked: list[list[int]] = []
        self.fails = False

    def _run(self, queries: Any) -> Generator[str, None, list[str]]:
        self.asked.append(queries[:, 0].tolist())
        yield "reading"
        if self.fails:
            raise ValueError("damaged")
        return [f"answer {number}" for number in queries[:, 0].tolist()]

    def search(self, number: int) -> Any:
        """A search, up to its first request."""
        plan = self.turns.search(np.array([[number]]), self._run)
        return plan, next(plan)


def end(plan: Any, answer: Any = None) -> Any:
    """The result of a plan after its last request."""
    with pytest.raises(StopIteration) as done:
        plan.send(answer)
    return done.value.value


def go_on(plan: Any, wait: Any) -> Any:
    """The next request of a plan that waited for an outcome, which is there."""
    assert isinstance(wait, Wait)
    return plan.send(wait.future.result(0))


def test_a_single_search_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(monkeypatch)
    for number in range(3):
        plan, request = line.search(number)
        assert request == "reading"
        assert end(plan) == f"answer {number}"
    assert line.asked == [[0], [1], [2]]


def test_those_that_wait_are_answered_together(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(monkeypatch)
    first, _ = line.search(0)
    others = [line.search(number) for number in range(1, 6)]
    others[2][0].close()  # a caller gave up
    assert end(first) == "answer 0"
    assert go_on(*others[0]) == "reading"
    late, late_wait = line.search(9)
    assert end(others[0][0]) == "answer 1"
    assert [end(plan, wait.future.result(0)) for plan, wait in (others[1], *others[3:])] == [
        "answer 2",
        "answer 4",
        "answer 5",
    ]
    assert go_on(late, late_wait) == "reading"
    assert end(late) == "answer 9"
    assert line.asked == [[0], [1, 2, 4, 5], [9]]
    assert line.search(7)[1] == "reading"  # the line is empty again


def test_a_failure_is_that_of_each_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search whose query is wrong, say, must not fail those of others."""
    line = Line(monkeypatch)
    first, _ = line.search(0)
    others = [line.search(number) for number in range(1, 4)]
    end(first)
    go_on(*others[0])
    line.fails = True
    with pytest.raises(ValueError, match="damaged"):
        others[0][0].send(None)
    line.fails = False
    for number, (plan, wait) in enumerate(others[1:], 2):
        assert go_on(plan, wait) == "reading"
        assert end(plan) == f"answer {number}"
    assert line.asked == [[0], [1, 2, 3], [2], [3]]


@pytest.mark.parametrize("begun", [False, True])
def test_a_cancelled_search_hands_its_turn_on(monkeypatch: pytest.MonkeyPatch, begun: bool) -> None:
    line = Line(monkeypatch)
    first, _ = line.search(0)
    second, third = line.search(1), line.search(2)
    first.close()
    if begun:
        go_on(*second)
        fourth = line.search(3)
        second[0].close()  # while it runs for itself and the third
        assert go_on(*third) == "reading"
        assert end(third[0]) == "answer 2"
        assert go_on(*fourth) == "reading"
    else:
        second[0].close()  # it was told to run, and did not begin
        assert go_on(*third) == "reading"
        assert line.asked == [[0], [2]]


def test_the_group_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(monkeypatch)
    first, _ = line.search(0)
    others = [line.search(number) for number in range(1, 2 * QUERIES_MAX)]
    end(first)
    go_on(*others[0])
    assert len(line.asked[1]) == QUERIES_MAX


def test_a_child_process_does_not_wait_for_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for its searches nor for the lock, which a thread may hold while another one forks."""
    line = Line(monkeypatch)
    line.search(0)
    line.search(1)
    with line.turns._lock:
        child = os.fork()
        if not child:
            signal.alarm(60)  # ends a child that waits
            status = 1
            try:
                status = 0 if line.search(2)[1] == "reading" else 2
            finally:
                os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def table(tmp_path: Path) -> lance_io.LanceDataset:
    values = np.random.default_rng(3).normal(size=(NUM_ROWS, DIM)).astype("f4")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), DIM)
    rows = pa.table({"id": range(NUM_ROWS), "text": [f"row {row}" for row in range(NUM_ROWS)], "v": vectors})
    ds = lance_io.write_dataset(rows, tmp_path, max_rows_per_file=250)
    ds.create_index("v", "IVF_SQ", num_partitions=6)
    return ds


@pytest.mark.parametrize(
    ("asked", "scan"),
    [
        ({"nprobes": 3}, {}),
        ({"nprobes": 3, "refine_factor": 2}, {"filter": "id % 3 = 0", "prefilter": True}),
        ({"use_index": False}, {"offset": 1, "limit": 3}),
        ({"nprobes": 6, "distance_range": (None, 0.01)}, {}),  # no rows
    ],
)
def test_callers_get_their_own_answers(
    table: lance_io.LanceDataset, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], scan: dict[str, Any]
) -> None:
    """Twelve callers, of whom the first holds up the others until all wait: two searches answer all."""
    queries = np.random.default_rng(4).normal(size=(12, DIM)).astype("f4")

    def search(query: np.ndarray) -> pa.Table:
        nearest = {"column": "v", "q": query, "k": 5, **asked}
        return table.to_table(["id", "text"], nearest=nearest, **scan)

    alone = [search(query) for query in queries]
    monkeypatch.setattr(shared_turns, "cpu_count", lambda: 1)
    all_wait, group_sizes = Future[None](), []
    begins, together, num_waiting, lock = SharedTurns._begins, searches._search_together, [0], threading.Lock()

    def counted(turns: SharedTurns, ticket: Any) -> bool:
        runs = begins(turns, ticket)
        with lock:
            num_waiting[0] += not runs
            if num_waiting[0] == len(queries) - 1:
                all_wait.set_result(None)
                num_waiting[0] = 0
        return runs

    def held(state: Any, options: Any, projection: Any, queries: Any) -> Any:
        group_sizes.append(len(queries))
        if len(queries) == 1:
            yield Wait(all_wait, 60)
        return (yield from together(state, options, projection, queries))

    monkeypatch.setattr(SharedTurns, "_begins", counted)
    monkeypatch.setattr(searches, "_search_together", held)
    with ThreadPoolExecutor(len(queries)) as callers:
        assert list(callers.map(search, queries)) == alone
    assert group_sizes == [1, len(queries) - 1]


def test_searches_that_stand_alone(tmp_path: Path) -> None:
    """Those of several vectors, and those that differ in more than their query."""
    vectors = pa.array([[[1.0, 2.0], [3.0, 4.0]]] * 3, pa.list_(pa.list_(pa.float32(), 2)))
    flat = pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float32(), 2))
    state = lance_io.write_dataset(pa.table({"many": vectors, "v": flat}), tmp_path)._state
    projection: Any = object()

    def turns(column: str, q: Any, **scan: Any) -> Any:
        options = scan_options(nearest={"column": column, "q": q, "k": 2}, **scan)
        return shared_turns.shared_turns(state, options, projection)

    assert turns("many", [1.0, 2.0]) is None
    assert turns("v", [[1.0, 2.0]]) is None
    assert turns("v", [1.0, 2.0], filter="_distance < 3") is None
    assert turns("v", [1.0, 2.0], timeout=3) is None
    together = turns("v", [1.0, 2.0])
    assert together is turns("v", [5.0, 6.0])
    assert together is not turns("v", [1.0, 2.0], limit=1)
    assert together is not turns("v", [1.0, 2.0], filter="true", prefilter=True)
    assert together is not shared_turns.shared_turns(
        state,
        scan_options(nearest={"column": "v", "q": [1.0, 2.0], "k": 2}),
        lance_io,
    )
