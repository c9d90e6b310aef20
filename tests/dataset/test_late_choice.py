"""Filtered scans that decide by what passes how late columns are read: the same rows, whatever they decide."""

from __future__ import annotations

import asyncio
import gc
import random
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_io
from lance_io import limits
from lance_io.reads.scan import late_choice, late_plan, late_scan
from lance_io.reads.scan.late_choice import LateCosts, worth_waiting
from lance_io.runtime import pool
from lance_io.store.profile import CLOUD, LOCAL
from tests.file.test_rounds import Bench, Lap
from tests.seeds import seed_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lance_io.dataset.lance_dataset import AsyncDataset

NUM_ROWS = 12_000
ORDERS = ["sorted", "clustered", "scattered"]


def ids_in(order: str, num_rows: int, dice: random.Random) -> np.ndarray[Any, Any]:
    """0 to num_rows in some order."""
    ids = np.arange(num_rows)
    if order == "scattered":
        return np.random.default_rng(dice.randrange(1 << 30)).permutation(ids)
    if order == "clustered":
        blocks = [ids[start : start + num_rows // 20] for start in range(0, num_rows, num_rows // 20)]
        dice.shuffle(blocks)
        return np.concatenate(blocks)
    return ids


def rows_in(order: str, dice: random.Random) -> pa.Table:
    ids = ids_in(order, NUM_ROWS, dice)
    vectors = pa.array(np.repeat(ids, 16).astype(np.float32))
    return pa.table(
        {
            "id": ids,
            "text": [f"row {one}" * (one % 5) for one in ids.tolist()],
            "vector": pa.FixedSizeListArray.from_arrays(vectors, 16),
            "list": [[one] * (one % 3) for one in ids.tolist()],
            "both": pa.StructArray.from_arrays([pa.array(ids), pa.array(ids % 7)], ["a", "b"]),
        }
    )


class Choices:
    """Instead of a choice: one that is drawn."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.made: set[bool] = set()

    def __call__(self, costs: LateCosts, offsets: Any, num_rows: int, **_: int) -> bool:
        choice = self._dice.random() < 0.5
        self.made.add(choice)
        return choice


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
@pytest.mark.parametrize("order", ORDERS)
def test_any_choice_gives_the_same_rows(
    order: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed_of(f"late {order} {version}"))
    rows = rows_in(order, dice)
    ids = rows["id"].to_pylist()
    uri = str(tmp_path / "t")
    table = lance_io.write_dataset(rows, uri, max_rows_per_file=5000, data_storage_version=version)
    table.delete("id % 11 = 5")
    rows = lance_io.dataset(uri).to_table()  # 0.1 has no empty texts and lists; nothing is late without a filter
    assert rows["id"].to_pylist() == [one for one in ids if one % 11 != 5]
    choices = Choices(dice)
    monkeypatch.setattr(LateCosts, "reads_all", lambda *found, **more: choices(*found, **more))
    monkeypatch.setattr(late_plan, "worth_waiting", lambda *_: True)
    monkeypatch.setattr(late_scan, "LEAD_BYTES", 20_000)
    monkeypatch.setattr(late_scan, "SPANS_MAX", 2)
    monkeypatch.setattr(limits, "SCAN_PIECE_BYTES", 30_000)
    for _ in range(8):
        share, first = dice.choice([0, 0.001, 0.1, 0.5, 1]), dice.randrange(NUM_ROWS)
        condition = (pc.field("id") >= first) & (pc.field("id") < first + round(share * NUM_ROWS))
        names = dice.sample(rows.column_names, 3)
        wanted: dict[str, Any] = {"columns": names, "filter": condition}
        if dice.random() < 0.5:
            wanted |= {"limit": dice.randrange(1, 900), "offset": dice.randrange(0, 200)}
        expected = rows.filter(condition).select(names)
        expected = expected.slice(wanted.get("offset", 0), wanted.get("limit"))
        assert lance_io.dataset(uri).to_table(**wanted) == expected, wanted
        batches = lance_io.dataset(uri).to_batches(batch_size=dice.choice([100, 3000]), **wanted)
        assert pa.Table.from_batches(batches, expected.schema) == expected, wanted

        async def found(wanted: dict[str, Any] = wanted) -> pa.Table:
            async with lance_io.AsyncDataset.open(uri) as twin:
                return await twin.to_table(**wanted)

        assert asyncio.run(found()) == expected, wanted
    assert choices.made == {True, False}


def written(tmp_path: Path, order: str) -> tuple[dict[str, bytes], int]:
    """The files of a table of 16 MB with four fragments, and its number of rows."""
    num_rows = 32_000
    vectors = pa.array(np.random.default_rng(1).random(num_rows * 128).astype(np.float32))
    rows = pa.table(
        {
            "id": ids_in(order, num_rows, random.Random(1)),
            "vector": pa.FixedSizeListArray.from_arrays(vectors, 128),
        }
    )
    lance_io.write_dataset(rows, tmp_path / "t", max_rows_per_file=8000)
    found = tmp_path.rglob("*")
    objects = {str(path.relative_to(tmp_path)): path.read_bytes() for path in found if path.is_file()}
    return objects, num_rows


class InlinePool(Executor):
    """Does all work where it is asked for: virtual time passes while a thread works."""

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(*arguments, **named))
        except BaseException as error:  # is the caller's
            done.set_exception(error)
        return done


@pytest.mark.parametrize("order", ORDERS)
def test_rounds_and_bytes_on_a_bucket(order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each cell as lean as the better of two plans: all columns at once, and each row that passes."""
    objects, num_rows = written(tmp_path, order)
    monkeypatch.setattr(pool, "_pool", InlinePool())
    bench = Bench(objects)

    async def cost_of(table: AsyncDataset, lap: Lap, num_passing: int, late: bool | None) -> tuple[int, int]:
        lap()
        got = await table.to_table(filter=f"id < {num_passing}", late_materialization=late)
        assert got.num_rows == num_passing
        rounds, log = lap()
        spans = [line.split(" ")[2].split("-") for line in log]
        return rounds, sum(int(end) - int(start) for start, end in spans)

    async def work(lap: Lap) -> None:
        table = await lance_io.AsyncDataset.open("t", session=bench.session)
        await table.take(list(range(0, num_rows, 1000)))  # an open handle: metadata and page indexes are cached
        for num_passing in (0, 1, 3, num_rows // 100, num_rows // 10, num_rows // 2, num_rows):
            rounds, num_bytes = await cost_of(table, lap, num_passing, None)
            together = await cost_of(table, lap, num_passing, late=False)
            apart = await cost_of(table, lap, num_passing, late=True)
            where = f"{num_passing} rows: {rounds, num_bytes}; together {together}, apart {apart}"
            assert together[0] == 1
            assert rounds <= 2, where
            assert num_bytes <= 1.1 * min(together[1], apart[1]) + 2e6, where

    bench.run(work)


PATTERNS = ["id >= 0", "id < 9000", "id % 16000 < 8000", "id % 4000 = 1"]


@pytest.mark.parametrize("condition", PATTERNS)
def test_a_scan_that_ends_early_leaves_nothing_running(
    condition: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended by its reader after some batches, and cancelled in each round, while takes and scans run beside it."""
    objects, num_rows = written(tmp_path, "sorted")
    monkeypatch.setattr(pool, "_pool", InlinePool())
    bench = Bench(objects)
    failures: list[dict[str, Any]] = []

    async def work(lap: Lap) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context))
        table = await lance_io.AsyncDataset.open("t", session=bench.session)
        await table.take(list(range(0, num_rows, 1000)))
        others = asyncio.all_tasks()
        for num_batches in (1, 2, 9):
            batches: Any = table.to_batches(filter=condition, batch_size=900)
            for _ in range(num_batches):
                await anext(batches, None)
            await batches.aclose()
            assert asyncio.all_tasks() == others
        for rounds in range(4):
            scan = asyncio.ensure_future(table.to_table(filter=condition))
            await asyncio.sleep(rounds + 0.5)
            scan.cancel()
            await asyncio.gather(scan, return_exceptions=True)
            assert asyncio.all_tasks() == others
        await table.aclose()

    bench.run(work)
    gc.collect()
    assert failures == []


COSTS = LateCosts.of(CLOUD, row_bytes=512, num_columns=1)


def test_what_is_dense_is_read_without_gaps() -> None:
    for costs in (COSTS, LateCosts.of(LOCAL, row_bytes=512, num_columns=1)):
        assert costs.reads_all(None, 100_000)
        assert costs.reads_all(np.arange(99_000), 100_000)
        assert not costs.reads_all(np.arange(0, 100_000, 10_000), 100_000)
        assert not costs.reads_all(np.empty(0, dtype=np.int64), 100_000)
        assert not costs.reads_all(np.array([17]), 1, rows_behind=100_000)


def test_where_requests_cost_most_gaps_are_read() -> None:
    """Every hundredth row is as fast to have as all of them, and brings as many bytes; each ten thousandth is not."""
    near, far = np.arange(0, 1_000_000, 100), np.arange(0, 1_000_000, 10_000)
    assert COSTS.reads_all(near, 1_000_000)
    assert not COSTS.reads_all(far, 1_000_000)


def test_each_column_has_requests_of_its_own() -> None:
    """Of every thousandth row, numbers are so near that one request brings them, and vectors are not."""
    offsets = np.arange(0, 1_000_000, 1000)
    mixed = LateCosts.of(CLOUD, row_bytes=520, num_columns=2, widths=[8, 512])
    alike = LateCosts.of(CLOUD, row_bytes=520, num_columns=2)
    num_requests, num_bytes = mixed._taken(offsets)
    assert num_requests == 1 + 1000
    assert num_bytes == pytest.approx(999_001 * 8 + 512 + 1000 * (512 + 4096))
    assert alike._taken(offsets)[0] == 2 * 1000
    scaled = LateCosts.of(CLOUD, row_bytes=52, num_columns=2, widths=[8, 512])
    assert sum([width * number for width, number in scaled.widths]) == pytest.approx(52)
    many = LateCosts.of(CLOUD, row_bytes=900, num_columns=9, widths=range(1, 10))
    assert many.widths == ((100.0, 9),)


def test_columns_are_read_at_once_where_a_round_costs_more() -> None:
    assert not worth_waiting(1000, 512, 10e6, CLOUD)  # half a megabyte
    assert worth_waiting(100_000, 512, 10e6, CLOUD)
    assert not worth_waiting(100_000, 512, CLOUD.whole_file_bytes, CLOUD)  # which come whole
    assert worth_waiting(1000, 512, 10e6, LOCAL)
    assert late_choice.is_wide(16, LOCAL) and not late_choice.is_wide(8, LOCAL)
