"""Answers of indices that an open version keeps, and look-ups that callers of one turn of a loop share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import FormatError, UsageError
from lance_io.reads.keys import joined_look_ups
from lance_io.reads.scan import execute, index_scan, scan_plan
from lance_io.reads.version.state import ANSWERS_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NUM_ROWS = 3000
OPTIONS: list[dict[str, Any]] = [
    {},
    {"columns": ["c", "id"]},
    {"columns": []},
    {"limit": 3},
    {"limit": 2, "offset": 1},
    {"with_row_id": True},
    {"with_row_address": True, "columns": ["s"]},
    {"fast_search": True},
    {"late_materialization": True},
    {"late_materialization": ["s"]},
    {"columns": {"twice": "id * 2"}},
    {"order_by": "id"},
    {"use_scalar_index": False},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows in four fragments; the last one has no index, and some rows of the others are gone."""
    folder = tmp_path_factory.mktemp("answers")
    rng = np.random.default_rng(4)
    texts = [f"text {row}" for row in range(NUM_ROWS)]
    rows = pa.table({"id": rng.permutation(NUM_ROWS), "c": rng.integers(0, 40, NUM_ROWS), "s": texts})
    table = lance.write_dataset(rows.slice(0, 2400), folder, max_rows_per_file=800)
    table.create_scalar_index("id", "BTREE")
    table.create_scalar_index("c", "BITMAP")
    table.delete("id % 50 = 7")
    lance.write_dataset(rows.slice(2400), folder, mode="append")
    return folder


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The scans that are planned."""
    planned: list[Any] = []
    plan = scan_plan.plan_scan
    assert vars(execute)["plan_scan"] is plan, "scans that are never kept are not counted"

    def counted(state: Any, options: Any, *args: Any, **more: Any) -> Any:
        planned.append(options.filter)
        return plan(state, options, *args, **more)

    monkeypatch.setattr(scan_plan, "plan_scan", counted)
    return planned


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("text", ["id = 77", "id < 40 AND c > 20", "c IN (3, 4)", "id = 2950 OR c = 3", "id > 5000"])
def test_the_same_question_has_the_same_answer(folder: Path, text: str, options: dict[str, Any]) -> None:
    table = lance_io.dataset(folder)
    expected = table.to_table(filter=text, **{**options, "use_scalar_index": False})
    if not options.get("fast_search"):
        assert table.to_table(filter=text, **options) == expected
    first = table.to_table(filter=text, **options)
    for _ in range(2):
        assert table.to_table(filter=text, **options) == first
        assert pa.Table.from_batches(table.to_batches(filter=text, **options), first.schema) == first
    assert table.count_rows(text) == table.count_rows(text) == table.count_rows(text, use_scalar_index=False)


def test_a_known_question_is_planned_once(folder: Path, plans: list[str]) -> None:
    """Each version and each handle has its own answers; statistics count what is read."""
    table = lance_io.dataset(folder)
    for _ in range(3):
        table.to_table(["s"], "id = 5")
        table.count_rows("c = 3")
    assert plans == ["id = 5", "c = 3"]
    table.to_table(["id"], "id = 5")
    table.to_table(["s"], "id = 5", limit=1)
    assert len(plans) == 4
    seen: list[Any] = []
    table.scanner(["s"], "id = 5", scan_stats_callback=seen.append).to_table()
    assert seen[0].index_cache_hits == 1
    before = table.count_rows("c = 3")
    changed = lance_io.dataset(folder)
    assert changed.count_rows("c = 3") == before
    assert len(plans) == 5


def test_answers_after_a_change_are_new(tmp_path: Path) -> None:
    table = lance_io.write_dataset(pa.table({"id": range(100)}), tmp_path)
    table.create_scalar_index("id", "BTREE")
    assert table.count_rows("id < 10") == table.count_rows("id < 10") == 10
    table.delete("id = 3")
    assert table.count_rows("id < 10") == table.to_table(filter="id < 10").num_rows == 9
    table.insert(pa.table({"id": [4]}))
    assert table.count_rows("id < 10") == 10
    assert table.checkout_version(2).count_rows("id < 10") == 10


def test_the_time_is_not_kept(tmp_path: Path, plans: list[str]) -> None:
    rows = pa.table({"ts": pa.array([0, 2**62 // 1000], pa.timestamp("us"))})
    table = lance_io.write_dataset(rows, tmp_path)
    table.create_scalar_index("ts", "BTREE")
    for _ in range(2):
        assert table.count_rows("ts < now()") == 1
    assert plans == ["ts < now()"] * 2
    state = table._state
    shown = [str(scan_plan.bind_filter(state, "ts < now()")) for _ in range(2)]
    assert shown[0] != shown[1]
    assert scan_plan.bind_filter(state, "ts IS NULL") is scan_plan.bind_filter(state, "ts IS NULL")


def test_answers_are_bounded(folder: Path) -> None:
    table = lance_io.dataset(folder)
    for first in range(0, 1600):
        table.count_rows(f"id >= {first} AND id < {first + 400}")
    stats = table._state.answers.stats
    assert stats.evictions > 0
    assert ANSWERS_BYTES_MAX // 2 < stats.bytes <= ANSWERS_BYTES_MAX


@pytest.fixture(scope="module", params=[False, True], ids=["addresses", "ids"])
def covered(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Rows of which indices cover all, some of them deleted."""
    folder = tmp_path_factory.mktemp("covered")
    rng = np.random.default_rng(5)
    ids = rng.permutation(NUM_ROWS)
    rows = pa.table(
        {
            "id": ids,
            "c": pa.array(rng.integers(0, 40, NUM_ROWS), pa.int16()),
            "s": [f"text {number}" for number in ids.tolist()],
        }
    )
    table = lance.write_dataset(rows, folder, max_rows_per_file=800, enable_stable_row_ids=request.param)
    for column, kind in (("id", "BTREE"), ("c", "BITMAP"), ("s", "BTREE")):
        table.create_scalar_index(column, kind)
    table.delete("id % 50 = 7")
    return folder


@pytest.mark.parametrize(
    "options",
    [{}, {"columns": []}, {"with_row_id": True}, {"late_materialization": True}, {"order_by": "id"}],
    ids=str,
)
def test_questions_that_differ_in_values_have_the_rows_of_a_scan(covered: Path, options: dict[str, Any]) -> None:
    table = lance_io.dataset(covered)
    forms = ["id = {}", "id >= {} AND id < 1000", "c = {}", "s = 'text {}'", "id <= {} AND c > 30", "s >= 'text {}'"]
    for form in forms:
        for value in (5000, 12, 7, 39):
            text = form.format(value)
            expected = table.to_table(filter=text, **{**options, "use_scalar_index": False})
            assert table.to_table(filter=text, **options) == expected, text
            assert pa.Table.from_batches(table.to_batches(filter=text, **options), expected.schema) == expected
            assert table.count_rows(text) == table.count_rows(text, use_scalar_index=False)


def test_questions_that_differ_in_values_are_planned_once(covered: Path, plans: list[str]) -> None:
    """Those of one form, with the same options; values that do not fit are errors as ever."""
    table = lance_io.dataset(covered)
    for value in range(200, 240):
        assert table.to_table(["id"], f"id = {value}")["id"].to_pylist() == [value] * (value % 50 != 7)
        table.to_table(["id"], f"id >= {value} AND id < {value + 5}")
        table.count_rows(f"c = {value % 40}")
        table.to_table(["s"], f"s = 'text {value}'")
    assert plans == ["id = 200", "id >= 200 AND id < 205", "c = 0", "s = 'text 200'"]
    table.to_table(["id"], "id = 1", with_row_id=True)
    table.to_table(["id"], "id = 1", limit=1)
    table.to_table(["id"], "id = 2", limit=1)
    with pytest.raises(ValueError, match="could not convert"):
        table.count_rows("c = 40000")
    assert len(plans) == 8
    seen: list[Any] = []
    table.scanner(["s"], "id = 5", scan_stats_callback=seen.append).to_table()
    assert seen[0].index_cache_hits + seen[0].index_cache_misses == 1


def test_a_form_that_an_index_does_not_answer_for_other_values_is_planned(
    covered: Path, plans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A range of many rows is scanned, even if a small one was asked of the index."""
    monkeypatch.setattr(index_scan, "INDEX_ROWS_MIN", 100)
    table = lance_io.dataset(covered)
    texts = ["c < 1", "c < 30", "c < 2"]
    for text in texts:
        assert table.to_table(["id"], text) == table.to_table(["id"], text, use_scalar_index=False)
    assert plans == ["c < 1", "c < 1", "c < 30", "c < 30", "c < 2"]


# -- look-ups of one turn ----------------------------------------------------------------------------------------------


def with_table(folder: Path, body: Callable[[lance_io.AsyncDataset], Any]) -> Any:
    async def run() -> Any:
        async with lance_io.AsyncDataset.open(folder) as table:
            return await body(table)

    return asyncio.run(run())


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of callers of each look-up."""
    answer, seen = joined_look_ups.Turn._answer, list[int]()

    async def counted(turn: joined_look_ups.Turn) -> None:
        seen.append(len(turn._waiters))
        await answer(turn)

    monkeypatch.setattr(joined_look_ups.Turn, "_answer", counted)
    return seen


@pytest.mark.parametrize("on_missing", ["skip", "null", "raise"])
@pytest.mark.parametrize("column", ["id", "c"])
def test_callers_of_a_turn_get_their_own_rows(folder: Path, runs: list[int], column: str, on_missing: str) -> None:
    """As alone: rows, and errors of keys that are missing or do not fit."""
    calls: list[Any] = [[77], [5, 77, 5], [None], [2950, 3], np.array([12]), [10**6], ["x"], [1.5], pa.array([4, None])]
    calls.append(["\ud800"])  # which no column can hold
    alone = lance_io.dataset(folder)

    def outcome(result: Any) -> Any:
        return (type(result), str(result)) if isinstance(result, Exception) else result

    expected = []
    for keys in calls:
        try:
            expected.append(alone.get(column, keys, ["s", "id"], on_missing=on_missing))
        except (UsageError, TypeError) as error:
            expected.append(outcome(error))

    async def body(table: lance_io.AsyncDataset) -> Any:
        looks = [table.get(column, keys, ["s", "id"], on_missing=on_missing) for keys in calls]
        return await asyncio.gather(*looks, return_exceptions=True)

    assert [outcome(result) for result in with_table(folder, body)] == expected
    assert runs == [len(calls)]


def test_other_columns_and_many_keys_are_other_look_ups(folder: Path, runs: list[int]) -> None:
    many = list(range(joined_look_ups.CALL_KEYS_MAX))

    async def body(table: lance_io.AsyncDataset) -> list[int]:
        looks = [table.get("id", [1], ["s"]), table.get("id", [1], ["c"]), table.get("c", [1], ["s"])]
        looks += [table.get("id", [*many, 1], ["s"]), table.get("id", [1], ["s"], timeout=60)]
        looks += [table.get("id", many, ["s"]) for _ in range(20)]
        return [rows.num_rows for rows in await asyncio.gather(*looks)]

    counts = with_table(folder, body)
    assert counts[3:] == [lance_io.dataset(folder).get("id", [*many, 1]).num_rows, 1, *[counts[5]] * 20]
    assert sorted(runs) == [1, 1, 5, 16]
    assert max(runs) * len(many) <= joined_look_ups.TURN_KEYS_MAX


def test_callers_may_leave(folder: Path) -> None:
    """One that is cancelled leaves the others alone; without any nothing is looked up."""

    async def body(table: lance_io.AsyncDataset) -> tuple[Any, int]:
        first, second = (asyncio.ensure_future(table.get("id", [key], ["id"])) for key in (5, 77))
        await asyncio.sleep(0)
        first.cancel()
        results: list[Any] = list(await asyncio.gather(first, second, return_exceptions=True))
        alone = asyncio.ensure_future(table.get("id", [6], ["id"]))
        await asyncio.sleep(0)
        alone.cancel()
        await asyncio.gather(alone, return_exceptions=True)
        await asyncio.sleep(0)
        return results, len(table._state.key_turns)

    (cancelled, rows), waiting = with_table(folder, body)
    assert isinstance(cancelled, asyncio.CancelledError)
    assert rows["id"].to_pylist() == [77]
    assert waiting == 0


def test_an_error_about_the_index_reaches_every_caller(folder: Path, tmp_path: Path) -> None:
    lance_io.write_dataset(pa.table({"id": range(100)}), tmp_path).create_scalar_index("id", "BTREE")
    (path,) = tmp_path.glob("_indices/*/page_data.lance")
    path.write_bytes(path.read_bytes()[:-1])

    async def body(table: lance_io.AsyncDataset) -> Any:
        return await asyncio.gather(*[table.get("id", [key]) for key in range(3)], return_exceptions=True)

    errors = with_table(tmp_path, body)
    assert all(isinstance(error, FormatError) and "'id_idx'" in str(error) for error in errors)


def test_rows_of_callers_do_not_hold_each_other(tmp_path: Path) -> None:
    """The rows of large results are copied; those of small ones are slices of one table."""
    table = lance_io.write_dataset(pa.table({"id": range(40), "s": ["x" * 10_000] * 40}), tmp_path)
    table.create_scalar_index("id", "BTREE")

    async def body(opened: lance_io.AsyncDataset) -> list[pa.Table]:
        return await asyncio.gather(*[opened.get("id", [key], ["s"]) for key in range(20)])

    for rows in with_table(tmp_path, body):
        assert rows.get_total_buffer_size() < 20_000
