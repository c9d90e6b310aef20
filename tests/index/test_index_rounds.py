"""Rounds and requests of scans and look-ups by index on a bucket, as exact numbers; a request lasts one unit of time.

The tables and their indices are pylance's. Opening the table is not counted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_io import runtime
from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.file import file_requests
from lance_io.plans import cpu_requests
from lance_io.reads.version.session import Session
from lance_io.runtime import pool
from lance_io.store.memory import MemoryStore
from lance_io.store.profile import CLOUD
from lance_io.store.url import Location
from lance_io.testing.latency import LatencyStore, run_virtual
from lance_io.testing.record import RecordingStore
from tests.dataset.test_late_choice import InlinePool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    Call = Callable[[AsyncDataset], Awaitable[Any]]

NUM_ROWS = 200_000


class Bench:
    """A copy of a local table behind a store that records and delays."""

    def __init__(self, folder: Path) -> None:
        inner = MemoryStore(profile=CLOUD)
        for path in folder.rglob("*"):
            if path.is_file():
                inner.put_sync(f"t/{path.relative_to(folder).as_posix()}", path.read_bytes())
        self.store = RecordingStore(LatencyStore(inner))

    def run(self, *calls: Call) -> list[tuple[int, list[str], Any]]:
        """Rounds, requests and result of each call, on one open table."""
        session = Session()
        session.locate = lambda uri, options: Location(self.store, "t", "memory://t")

        async def body() -> list[tuple[int, list[str], Any]]:
            loop, measured = asyncio.get_running_loop(), []
            with runtime.use_loop(loop):
                table = await AsyncDataset.open("memory://t", session=session)
                await table.describe_indices()
                for call in calls:
                    self.store.take_log()
                    since = loop.time()
                    result = await call(table)
                    measured.append((round(loop.time() - since), self.store.take_log(), result))
            return measured

        with pytest.MonkeyPatch.context() as patch:  # virtual time does not wait for threads that decode or import
            patch.setattr(pool, "_pool", InlinePool())
            patch.setattr(pool, "_blocking", InlinePool())
            patch.setattr(file_requests, "INLINE_DECODE_BYTES_MAX", 1 << 30)
            patch.setattr(cpu_requests, "INLINE_WORK_BYTES_MAX", 1 << 30)
            return run_virtual(body)[0]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("indexed")
    rng = np.random.default_rng(7)
    rows = pa.table({"id": rng.permutation(NUM_ROWS), "value": rng.random(NUM_ROWS)})
    table = lance.write_dataset(rows, folder, max_rows_per_file=NUM_ROWS // 4)
    table.create_scalar_index("id", "BTREE")
    return Bench(folder)


def counts(measured: list[tuple[int, list[str], Any]]) -> list[tuple[int, int]]:
    """Rounds and requests of each call."""
    return [(rounds, len(log)) for rounds, log, _ in measured]


def test_equality_by_btree(bench: Bench) -> None:
    measured = bench.run(
        lambda table: table.to_table(["value"], "id = 5"),
        lambda table: table.to_table(["value"], "id = 5"),  # its page is kept
        lambda table: table.to_table(["value"], f"id = {NUM_ROWS - 7}"),
        lambda table: table.to_table(["value"], f"id = {NUM_ROWS}"),  # above the greatest value: no page
        lambda table: table.count_rows("id = 70000"),
        lambda table: table.to_table(["value"], "id = 5", use_scalar_index=False),
    )
    assert counts(measured)[:5] == [(5, 12), (1, 1), (2, 3), (0, 0), (1, 2)]
    assert not [line for line in measured[5][1] if "_indices" in line]
    tables = [result for _, _, result in measured]
    assert [table.num_rows for table in tables[:4]] == [1, 1, 1, 0]
    assert tables[0] == tables[1] == tables[5]
    assert tables[4] == 1
    assert {line.split("/")[1] for line in measured[2][1]} == {"_indices", "data"}


def test_look_up_of_keys(bench: Bench) -> None:
    measured = bench.run(
        lambda table: table.get("id", [NUM_ROWS], []),  # opens the index
        lambda table: table.warm(["id", "value"]),
        lambda table: table.get("id", [5], ["value"]),
        lambda table: table.get("id", [5], ["value"]),
        lambda table: table.get("id", [NUM_ROWS]),
        lambda table: table.prewarm_index("id_idx"),  # the other pages
        lambda table: table.get("id", [70_000], ["value"]),
    )
    assert counts(measured)[1:5] == [(1, 8), (2, 4), (1, 2), (0, 0)]  # the look-up has opened the data files, too
    assert counts(measured)[5:] == [(1, 1), (1, 2)]
    assert [result.num_rows for _, _, result in measured[2:5]] == [1, 1, 0]
    assert measured[6][2].num_rows == 1


def test_a_prewarmed_index_reads_data_only(bench: Bench) -> None:
    measured = bench.run(
        lambda table: table.prewarm_index("id_idx"),
        lambda table: table.warm(["id", "value"]),
        lambda table: table.get("id", [5, 100_000], ["value"]),
        lambda table: table.count_rows("id BETWEEN 70 AND 90000"),
        lambda table: table.prewarm_index("id_idx"),
    )
    assert counts(measured)[0] == (3, 5)
    assert counts(measured)[2][0] == 1
    assert not [line for line in measured[2][1] if "_indices" in line]
    assert counts(measured)[3:] == [(0, 0), (0, 0)]
    assert measured[3][2] == 89_931


@pytest.mark.parametrize("text", ["id = 5", "id IN (5, 70000, 150000)", "id < 30 AND value > 0.5", "id >= 199000"])
def test_explained_reads_are_those_of_the_scan(bench: Bench, text: str) -> None:
    ((_, _, plan),) = bench.run(lambda table: table.scanner(["value"], text).explain_io(cold=True))
    ((rounds, log, _),) = bench.run(lambda table: table.to_table(["value"], text))
    assert any("id_idx(BTree)" in note for note in plan.notes)
    planned = sorted(
        f"get t/{plan.short_key(key)} {start}-{end}" for each in plan.rounds for key, start, end in each.requests
    )
    if not plan.notes[1:]:  # nothing is read afterwards
        assert (plan.num_rounds, planned) == (rounds, sorted(log))
    assert plan.num_rounds <= rounds
    assert set(planned) <= set(log)


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A table with a bitmap over 100 values, and a zone map over values that grow with the table."""
    folder = tmp_path_factory.mktemp("kinds")
    rng = np.random.default_rng(8)
    rows = pa.table(
        {"c": rng.integers(0, 100, NUM_ROWS), "ts": np.arange(NUM_ROWS), "value": rng.random(NUM_ROWS)},
    )
    table = lance.write_dataset(rows, folder, max_rows_per_file=NUM_ROWS // 4)
    table.create_scalar_index("c", "BITMAP")
    table.create_scalar_index("ts", "ZONEMAP")
    return Bench(folder)


def test_many_keys(bench: Bench) -> None:
    keys = [*range(0, NUM_ROWS, NUM_ROWS // 100)]
    text = f"id IN ({', '.join(map(str, keys))})"
    others = f"id IN ({', '.join(str(key + 1000) for key in keys)})"
    measured = bench.run(
        lambda table: table.to_table(["value"], text),
        lambda table: table.to_table(["value"], others),
        lambda table: table.to_table(["value"], text),
    )
    rounds = [rounds for rounds, _, _ in measured]
    assert (rounds, [result.num_rows for _, _, result in measured]) == ([5, 1, 1], [100] * 3)
    requests = [len(log) for _, log, _ in measured]
    assert all(count <= most for count, most in zip(requests, (240, 160, 101), strict=True)), requests


def test_counts_by_bitmap_and_ranges_by_zones(kinds: Bench) -> None:
    measured = kinds.run(
        lambda table: table.count_rows("c = 3"),
        lambda table: table.count_rows("c = 3"),
        lambda table: table.count_rows("c = 4"),
        lambda table: table.to_table(["value"], "ts >= 100 AND ts < 300"),
        lambda table: table.to_table(["value"], "ts >= 100 AND ts < 300"),
    )
    assert measured[0][2] == measured[1][2] > 1500
    assert measured[3][2].num_rows == measured[4][2].num_rows == 200
    assert counts(measured) == [(3, 3), (0, 0), (1, 1), (3, 9), (1, 2)]


def test_rows_that_no_index_covers_are_read_meanwhile(tmp_path: Path) -> None:
    """They take no round of their own, but are read in the first one, beside the index or its rows."""
    rng = np.random.default_rng(7)
    ids = rng.permutation(NUM_ROWS + 400)
    rows = pa.table({"id": ids, "value": rng.random(len(ids))})
    table = lance.write_dataset(rows.slice(0, NUM_ROWS), tmp_path, max_rows_per_file=NUM_ROWS // 4)
    table.create_scalar_index("id", "BTREE")
    lance.write_dataset(rows.slice(NUM_ROWS, 200), tmp_path, mode="append")
    lance.write_dataset(rows.slice(NUM_ROWS + 200), tmp_path, mode="append")
    key, later, appended = (int(ids[row]) for row in (5, 100_005, NUM_ROWS + 5))
    measured = Bench(tmp_path).run(
        lambda table: table.to_table(["value"], f"id = {key}"),
        lambda table: table.to_table(["value"], f"id = {later}"),
        lambda table: table.to_table(["value"], f"id = {later}"),
        lambda table: table.get("id", [later, appended], ["value"]),
        lambda table: table.count_rows(f"id IN ({key}, {later}, {appended})"),
        lambda table: table.to_table(["id"], f"id = {appended}", limit=1),
    )
    assert [rounds for rounds, _ in counts(measured)] == [5, 3, 1, 3, 1, 1]
    results = [result for _, _, result in measured]
    assert results[:2] == [rows.select(["value"]).take([at]) for at in (5, 100_005)]
    assert results[3]["value"].to_pylist() == rows["value"].take([100_005, NUM_ROWS + 5]).to_pylist()
    assert (results[4], results[5].num_rows) == (3, 1)
    for _, log, _ in measured:
        assert len({*log}) == len(log)  # nothing is read twice
