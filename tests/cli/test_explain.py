"""The plan of a scan or take is what the real one then asks for, request by request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
import pytest

from lance_io.dataset.lance_dataset import AsyncDataset, LanceDataset
from lance_io.errors import UsageError
from lance_io.plans.plan import drive_sync
from lance_io.reads.open_version import open_options, open_steps
from lance_io.reads.run_plan import run
from lance_io.reads.scan import execute
from lance_io.reads.scan.explain import explain_scan, explain_take
from lance_io.reads.scan.io_plan import IoPlan, PlannedRequest, Round, count_of
from lance_io.reads.scan.scan_options import ColumnOrdering, scan_options
from lance_io.reads.scan.scan_plan import scan_projection
from lance_io.reads.takes.take_rows import take_positions
from lance_io.reads.version.session import Session
from lance_io.store.costs import STORE_COSTS
from lance_io.store.local.disk import LocalStore
from lance_io.store.profile import CLOUD
from lance_io.testing.record import RecordingStore, record

if TYPE_CHECKING:
    from collections.abc import Callable

    import lance

    from lance_io.reads.version.state import DatasetState
    from lance_io.store.url import Location

CHANCE = np.random.default_rng(7)
TAKES = {
    "one row": [4321],
    "few": [0, 5, 2999, 3000, 7000],
    "unsorted, repeated": [8000, 17, 17, 5000],
    "many": CHANCE.integers(0, 8400, 300).tolist(),
    "none": [],
}
COLUMNS: list[Any] = [None, ["id"], ["text", "wide"], ["items", "point.x"], ["vector", "nothing"], ["id", "_rowid"]]
COLUMNS += [{"x": "items[2]", "id": "id", "y": "items[1]"}]
SCANS: list[dict[str, Any]] = [
    {},
    {"columns": ["word", "items"]},
    {"limit": 10},
    {"limit": 4000, "offset": 1234, "columns": ["id", "wide", "point"]},
    {"columns": ["id"], "with_row_id": True},
    {"columns": []},
    {"limit": 2000, "offset": 6000 - 497, "columns": ["id", "text"]},
    {"fragments": (2,)},
    {"order_by": [ColumnOrdering("id")], "columns": ["id", "word"]},
]


@pytest.fixture(params=["in this thread", "alone", "through the scheduler"])
def state(request: pytest.FixtureRequest, table: lance.LanceDataset, monkeypatch: pytest.MonkeyPatch) -> DatasetState:
    """The table over a store that writes down its requests, local (alone: with one processor) or as if remote."""
    opened = drive_sync(open_steps(open_options(table.uri)))
    if request.param == "alone":
        monkeypatch.setenv("LANCE_CPU_THREADS", "1")
    if request.param != "through the scheduler":
        store = record(LocalStore())
    else:
        store = RecordingStore(LocalStore(profile=CLOUD))

    def moved(location: Location) -> Location:
        return replace(location, store=store)

    return replace(opened, location=moved(opened.location), root=moved(opened.root), session=Session())


def asked(state: DatasetState, operation: Callable[[], Any]) -> tuple[list[tuple[str, int, int]], Any]:
    """The reads of an operation, sorted: key, start, end (of a whole object, both 0); and its result."""
    store = state.location.store
    assert isinstance(store, RecordingStore)
    store.requests.clear()
    result = operation()
    return sorted((one.key, one.start or 0, one.end or 0) for one in store.requests), result


def planned(plan: IoPlan) -> list[tuple[str, int, int]]:
    """The requests of a plan in the same form: deletion files are read whole."""
    requests = [request for one in plan.rounds for request in one.requests]
    return sorted((key.lstrip("/"), start, 0 if "_deletions/" in key else end) for key, start, end in requests)


def of_purpose(plan: IoPlan, purpose: str) -> list[PlannedRequest]:
    """The requests of one purpose, round by round."""
    return [request for one in plan.rounds if one.purpose == purpose for request in one.requests]


def within(inner: tuple[str, int, int], outer: tuple[str, int, int]) -> bool:
    """True when one request brings nothing that the other does not."""
    return inner[0] == outer[0] and outer[1] <= inner[1] and inner[2] <= outer[2]


def test_take_asks_for_what_was_planned(state: DatasetState) -> None:
    for rows in TAKES.values():
        for columns in COLUMNS:
            explained, plan = asked(state, lambda r=rows, c=columns: run(state, explain_take(state, r, c, cold=True)))
            cold = replace(state, session=Session())
            taken, _ = asked(cold, lambda r=rows, c=columns, s=cold: run(s, take_positions(s, r, c)))
            assert planned(plan) == taken
            assert len(of_purpose(plan, "data")) == len(taken) - len(explained)


def test_scan_asks_for_what_was_planned(state: DatasetState) -> None:
    for keywords in SCANS:
        options = scan_options(**keywords)
        plan = run(state, explain_scan(state, options, cold=True))
        cold = replace(state, session=Session())
        schema = scan_projection(cold, options).arrow_schema
        scanned, table = asked(cold, lambda o=options, s=cold, t=schema: execute.collect(s, o, t))
        assert table.num_rows > 0
        index_keys = [key for key, _, _ in of_purpose(plan, "index")]
        if state.answers_sync or len(index_keys) == len(set(index_keys)):
            assert planned(plan) == scanned, keywords
        else:  # indexes of one file that come in several reads: what the first asks for may go out before the others'
            assert plan.num_requests <= len(scanned)
            assert all(any(within(one, request) for request in planned(plan)) for one in scanned), keywords


def test_no_data_is_read(state: DatasetState) -> None:
    plan = run(state, explain_take(state, [1, 5000], cold=True))
    explained, _ = asked(state, lambda: run(state, explain_take(state, [1, 5000], cold=True)))
    data = {(key.lstrip("/"), start, end) for key, start, end in of_purpose(plan, "data")}
    assert data
    assert data.isdisjoint(explained)
    assert set(explained) == set(planned(plan)) - data


def test_warm_take_has_one_round(state: DatasetState) -> None:
    rows = [1, 100, 5000, 8000]
    cold = run(state, explain_take(state, rows))
    warm = run(state, explain_take(state, rows))
    assert [one.purpose for one in cold.rounds] == ["metadata", "metadata", "index", "data"]
    assert [(one.number, one.purpose) for one in warm.rounds] == [(1, "data")]
    assert of_purpose(warm, "data") == of_purpose(cold, "data")
    assert run(state, explain_take(state, rows, cold=True)) == cold


def test_filter_is_noted(state: DatasetState) -> None:
    options = scan_options(filter=pc.field("id") < 10, columns=["id", "wide"], limit=3, late_materialization=True)
    plan = run(state, explain_scan(state, options, cold=True))
    assert any("wide" in note for note in plan.notes)
    assert any("3 rows" in note for note in plan.notes)


@pytest.mark.parametrize(("count", "words"), [(0, "0 rounds"), (1, "1 round"), (2, "2 rounds"), (1200, "1,200 rounds")])
def test_numbers_have_their_nouns(count: int, words: str) -> None:
    assert count_of(count, "round") == words


def test_text_and_plain_values(state: DatasetState) -> None:
    plan = run(state, explain_take(state, [1, 5000], ["id"], cold=True))
    text = str(plan)
    assert text.splitlines()[0].startswith("round 1  metadata")
    assert f"total  {plan.num_rounds} rounds, {plan.num_requests} requests" in text
    values = plan.to_dict()
    assert values["num_bytes"] == plan.num_bytes == sum(one["request_bytes"] for one in values["rounds"])
    assert plan.wanted_bytes <= plan.num_bytes
    assert all(
        request["key"].startswith(("data/", "_deletions/")) for one in values["rounds"] for request in one["requests"]
    )


def test_cost_of_a_plan_by_hand() -> None:
    """Two rounds, the second of them of two purposes, which are one round of three GETs."""
    rounds = (
        Round(1, "metadata", (PlannedRequest("a", 0, 1000),), 1000),
        Round(2, "index", (PlannedRequest("a", 2000, 3000),), 900),
        Round(2, "data", (PlannedRequest("b", 0, 8_500_000), PlannedRequest("b", 9_000_000, 9_001_000)), 8_000_000),
    )
    assert IoPlan(rounds).cost is None
    assert IoPlan(rounds).to_dict()["cost"] is None
    plan = IoPlan(rounds, costs=STORE_COSTS["s3"])
    assert plan.cost is not None
    assert plan.cost.seconds == pytest.approx((0.030 + 120e-6 + 1000 * 1.4e-9) + (0.030 + 0.100))
    assert plan.cost.usd == pytest.approx(4 * 0.4e-6)
    assert "cost   160.1 ms, $1.6e-06 ($1.60 a million times) on s3" in str(plan)
    free = IoPlan(rounds, costs=STORE_COSTS["minio"])
    assert "no money on minio" in str(free)


def test_as_if_it_were_elsewhere(state: DatasetState) -> None:
    """A named store shares requests as that store does: the plan of the table behind the scheduler, and its price."""
    options = scan_options(columns=["id", "text"])
    own = run(state, explain_scan(state, options, cold=True))
    there = run(state, explain_scan(state, options, cold=True, store="s3"))
    cloud = replace(state, location=replace(state.location, store=RecordingStore(LocalStore(profile=CLOUD))))
    assert of_purpose(there, "data") == of_purpose(run(cloud, explain_scan(cloud, options, cold=True)), "data")
    assert there.cost == STORE_COSTS["s3"].of_reads(
        [
            [end - start for one in there.rounds if one.number == number for _, start, end in one.requests]
            for number in range(1, there.num_rounds + 1)
        ]
    )
    assert (own.cost is None) == state.answers_sync
    take = run(state, explain_take(state, [1, 5000, 8000], store="s3-express"))
    assert take.cost is not None and take.cost.usd == pytest.approx(
        take.num_requests * 0.03e-6 + take.num_bytes / 2**30 * 0.0006
    )
    with pytest.raises(UsageError, match="s3-express"):
        run(state, explain_take(state, [1], store="tape"))


async def test_scanners_explain_themselves(table: lance.LanceDataset) -> None:
    dataset = LanceDataset(table.uri)
    plan = dataset.scanner(["id"], limit=2000).explain_io()
    cold = run(dataset._state, explain_scan(dataset._state, scan_options(columns=["id"], limit=2000), cold=True))
    assert dataset.scanner(["id"], limit=2000).explain_io(cold=True) == cold == plan
    assert [one.purpose for one in dataset.scanner(["id"], limit=10).explain_io().rounds] == ["index", "data"]
    async with AsyncDataset.open(table.uri) as opened:
        assert await opened.scanner(["id"], limit=2000).explain_io() == plan
        there = await opened.scanner(["id"], limit=2000).explain_io(store="gcs", cold=True)
    assert there == dataset.scanner(["id"], limit=2000).explain_io(store=STORE_COSTS["gcs"], cold=True)
    assert there.cost is not None and there.costs == STORE_COSTS["gcs"]


def test_command(run: Any, table: lance.LanceDataset) -> None:
    report = run("explain", table.uri, "--take", "0,17,3000-3002", "-c", "id", "--json").report
    assert (report["operation"], report["opening"]["num_requests"]) == ("take", 2)
    assert report["rounds"][-1]["purpose"] == "data"
    assert report["num_requests"] == sum(len(one["requests"]) for one in report["rounds"])
    random = [run("explain", table.uri, "--take-random", 20, "--seed", seed, "--json").out for seed in (1, 1, 2)]
    assert random[0] == random[1] != random[2]
    assert run("explain", table.uri, "--take", "1", "--take-random", 2).code == 2
    assert run("explain", table.uri, "--take", "1", "--limit", 2).code == 2
    assert run("explain", table.uri, "--take-random", 100000).code == 2
    assert (report["cost"], report["opening"]["cost"]) == (None, None)  # of the local disk
    priced = run(
        "explain", table.uri, "--take", "0,17", "--store", "s3", "-o", "read_usd_per_gib=0.02", "--json"
    ).report
    usd = priced["num_requests"] * 0.4e-6 + priced["num_bytes"] / 2**30 * 0.02
    assert (priced["cost"]["store"], priced["cost"]["usd"]) == ("s3", pytest.approx(usd))
    opening = priced["opening"]
    assert opening["cost"]["usd"] == pytest.approx(5e-6 + 0.4e-6 + opening["num_bytes"] / 2**30 * 0.02)
    assert opening["cost"]["seconds"] == pytest.approx(2 * 0.030 + opening["num_bytes"] / 85e6)
    assert "a million times) on s3" in run("explain", table.uri, "--store", "s3").out
    assert run("explain", table.uri, "--store", "tape").code == 2
    assert "more (--all shows them)" in run("explain", table.uri, "--take-random", 1000).out
