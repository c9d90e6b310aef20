"""Filtered scans on a bucket: columns that come along with the filter's, and bytes that were there before."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.file.open import kept_ends
from lance_io.file.open.kept_ends import KeptEnds
from lance_io.limits import KIB, MIB
from lance_io.reads.scan.late_choice import StoredColumn, read_along
from lance_io.runtime import pool
from lance_io.store.costs import STORE_COSTS
from lance_io.store.profile import CLOUD, LOCAL
from tests.dataset.test_late_choice import InlinePool
from tests.file.test_rounds import Bench, Lap, ranges_of

if TYPE_CHECKING:
    from pathlib import Path

    from lance_io.dataset.lance_dataset import AsyncDataset
    from lance_io.store.costs import RequestCosts

FILES, ROWS = 12, 500
GAP = CLOUD.take_gap_bytes


# -- the choice, without reads ----------------------------------------------------------------------------------------


def column(name: str, file_bytes: float | None) -> StoredColumn:
    """`f...` is read for the filter, `l...` may be read late; others are not read."""
    roles: dict[str, Any] = {"f": "filter", "l": "late"}
    return StoredColumn(name, file_bytes, roles.get(name[0], "unread"))


@pytest.mark.parametrize(
    ("columns", "along"),
    [
        ([("f", 9e6), ("l1", GAP)], {"l1"}),
        ([("f", 9e6), ("l1", GAP + 1)], set()),
        ([("l1", GAP), ("f", 9e6), ("l2", GAP)], {"l1", "l2"}),
        ([("f", 9e6), ("x", 10), ("l1", GAP - 10)], {"l1"}),  # the bytes between are read, too
        ([("f", 9e6), ("x", 11), ("l1", GAP - 10)], set()),
        ([("f", 9e6), ("x", None), ("l1", 1)], set()),  # of any size
        ([("f", 9e6), ("l1", 5e6), ("l2", 1)], set()),
        ([("f", 9e6), ("l1", GAP), ("l2", GAP), ("l3", GAP)], {"l1", "l2", "l3"}),  # each beside the one before
        ([("f1", 9e6), ("l1", 5e6), ("l2", 1), ("f2", 8)], {"l2"}),
        ([("l1", 1), ("l2", 1)], set()),  # the filter is on row ids
        ([("f", 8), ("l1", None)], set()),
    ],
)
def test_columns_beside_those_of_the_filter(columns: list[tuple[str, float | None]], along: set[str]) -> None:
    layout = [column(*each) for each in columns]
    assert read_along(layout, 1, CLOUD) == along
    assert read_along(layout[::-1], 1, CLOUD) == along
    assert read_along(layout, 1, LOCAL) == set()


def test_columns_that_come_along_have_two_mebibytes_together() -> None:
    layout = [column("f", 1e6), column("l1", GAP), column("l2", GAP // 2)]
    most = 2 * MIB // GAP
    assert read_along(layout, most // 2, CLOUD) == {"l1", "l2"}
    assert read_along(layout, most, CLOUD) == {"l2"}
    assert read_along(layout, 2 * most, CLOUD) == {"l2"}
    assert read_along(layout, 2 * most + 1, CLOUD) == set()


def spent(costs: RequestCosts, rounds: list[list[float]]) -> tuple[float, int, float]:
    """Seconds, requests and bytes of rounds of requests with these sizes."""
    sizes = [list(map(int, each)) for each in rounds]
    return costs.of_reads(sizes).seconds, sum(map(len, sizes)), sum(map(sum, sizes))


@pytest.mark.parametrize("store", ["s3", "minio", "gcs"])
def test_plans_with_columns_along_in_the_whole_grid(store: str) -> None:
    """Against reading the same columns late: hardly more bytes, no later, and a request less where rows are."""
    costs = STORE_COSTS[store]
    profile = CLOUD.with_costs(costs)
    seen = set()
    grid = itertools.product([1, 4, 8, 16], [100, 2000, 20_000], [100, 1000, 10_000, 100_000], [1, 8, 64, 1000])
    for narrow, wide, num_rows, num_files in grid:
        layout = [column("f", 8 * num_rows), column("l1", narrow * num_rows), column("l2", wide * num_rows)]
        along = read_along(layout, num_files, profile)
        assert "l2" not in along or wide * num_rows <= profile.take_gap_bytes
        seen.add(frozenset(along))
        for touched in {0, 1, num_files // 2, num_files}:
            early, late = 8.0 * num_rows, {"l1": float(narrow * num_rows), "l2": float(wide)}
            late["l1"] = min(late["l1"], 4 * KIB)  # the chunk of a row
            first = early + sum([narrow * num_rows if name == "l1" else wide * num_rows for name in along])
            ours = spent(
                costs,
                [[first] * num_files, [late[name] for name in late if name not in along for _ in range(touched)]],
            )
            without = spent(costs, [[early] * num_files, list(late.values()) * touched])
            assert ours[2] <= without[2] + 2 * MIB
            assert ours[1] == without[1] - len(along) * touched
            assert ours[0] <= without[0] + 0.1 * costs.latency_s + num_files * profile.take_gap_bytes * 2.5e-9
    assert frozenset() in seen and frozenset({"l1"}) in seen


# -- the ends of files ------------------------------------------------------------------------------------------------


class Charges:
    """A memory budget that only counts."""

    def __init__(self) -> None:
        self.held_bytes = 0

    def charge(self, delta_bytes: int) -> None:
        self.held_bytes += delta_bytes


def test_kept_ends_are_bounded_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from lance_io.file.file_steps import Tail

    monkeypatch.setattr(kept_ends, "KEPT_BYTES_MAX", 100)
    charges: Any = Charges()
    ends = KeptEnds(charges)
    tails = {key: Tail(7, bytes(size)) for key, size in [("a", 40), ("b", 50), ("c", 30), ("large", 101)]}
    for key, tail in tails.items():
        assert ends.kept(key, None) is None
        assert ends.kept(key, tail) is tail
    assert ends.find("a") is None and ends.find("large") is None  # the oldest went for the newest
    assert charges.held_bytes == 80
    kept = ends.find("c")
    assert kept is not None and (kept.start, len(kept.buffer)) == (7, 30)
    assert ends.kept("c", tails["c"]) is tails["c"] and charges.held_bytes == 80
    ends.close()
    assert charges.held_bytes == 0 and ends.find("c") is None
    ends.kept("a", tails["a"])
    assert charges.held_bytes == 0 and ends.find("a") is None


# -- on a bucket ------------------------------------------------------------------------------------------------------


def files_of(tmp_path: Path, *, last: bool = False) -> dict[str, bytes]:
    """Twelve files of 330 kB: `id`, `score` beside it, a vector that nearly all bytes belong to, and perhaps `last`."""
    numbers = np.arange(FILES * ROWS)
    vectors = pa.array(np.random.default_rng(1).random(len(numbers) * 160).astype(np.float32))
    rows = pa.table(
        {
            "id": np.random.default_rng(2).permutation(numbers),
            "score": np.random.default_rng(3).random(len(numbers)),
            "vector": pa.FixedSizeListArray.from_arrays(vectors, 160),
        }
    )
    if last:
        rows = rows.append_column("last", pa.array(np.random.default_rng(4).random(len(numbers))))
    lance_io.write_dataset(rows, tmp_path / "t", max_rows_per_file=ROWS)
    paths = [path for path in tmp_path.rglob("*") if path.is_file()]
    return {str(path.relative_to(tmp_path)): path.read_bytes() for path in paths}


def asked_twice(log: list[str]) -> int:
    """Bytes of data files that were asked for more than once."""
    spans = sorted(each for each in ranges_of(log) if each[0].endswith(".lance"))
    twice, last = 0, ("", 0)
    for key, start, end in spans:
        if key == last[0]:
            twice += max(0, min(last[1], end) - start)
            end = max(end, last[1])
        last = key, end
    return twice


def bytes_of(log: list[str]) -> int:
    return sum([end - start for _, start, end in ranges_of(log)])


CONDITIONS = {
    "nothing": "id < 0",
    "one": "id = 777",
    "each": f"id % {ROWS} < 9",
    "half": "id % 2 = 0",
    "all": "id >= 0",
}


@pytest.mark.parametrize("name", CONDITIONS)
@pytest.mark.parametrize("late", [None, True])
def test_no_byte_is_asked_for_twice(
    name: str, late: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cold: each byte once, in three rounds at most. Warm: the filter's column, `score` beside it, and vectors."""
    objects = files_of(tmp_path)
    data_bytes = sum([len(data) for key, data in objects.items() if key.endswith(".lance")])
    expected = lance_io.dataset(str(tmp_path / "t")).to_table(filter=CONDITIONS[name], late_materialization=False)
    monkeypatch.setattr(pool, "_pool", InlinePool())
    bench = Bench(objects)
    seen: list[Any] = []

    async def scanned(table: AsyncDataset, lap: Lap) -> tuple[int, list[str]]:
        lap()
        got = await table.to_table(filter=CONDITIONS[name], late_materialization=late, scan_stats_callback=seen.append)
        assert got == expected
        return lap()

    async def work(lap: Lap) -> None:
        table = await lance_io.AsyncDataset.open("t", session=bench.session)
        rounds, log = await scanned(table, lap)
        assert rounds <= 3, log
        assert asked_twice(log) == 0
        assert bytes_of(log) <= data_bytes
        kept_bytes = seen[0].all_counts["late_bytes_kept"]
        assert (kept_bytes > 0) == (name in ("each", "half", "all")) or name == "one"
        rounds, log = await scanned(table, lap)
        assert rounds == (1 if name == "nothing" else 2)
        assert asked_twice(log) == 0
        assert seen[1].all_counts["late_bytes_kept"] == 0
        if name == "nothing":
            beside = 1 if late is not None else 2  # an explicit choice decides alone
            assert len(log) == 2 * FILES  # values, and where chunks begin: `score` has no requests of its own
            assert (beside - 1) * 8 * FILES * ROWS <= bytes_of(log) < (beside * 8 * ROWS + 200) * FILES
        await table.aclose()

    bench.run(work)


def test_plans_say_which_columns_come_along(tmp_path: Path) -> None:
    files_of(tmp_path)
    ds = lance_io.dataset(str(tmp_path / "t"))
    on_bucket = str(ds.scanner(filter="id = 5").explain_io())
    assert "score: read with the filter's columns" in on_bucket
    assert "vector: read afterwards" in on_bucket
    explicit = str(ds.scanner(filter="id = 5", late_materialization=["score", "vector"]).explain_io())
    assert "read with the filter's columns" not in explicit
    assert "score, vector: read afterwards" in explicit
    assert "late_bytes_kept=0" in ds.scanner(filter="id = 5").analyze_plan()


LATE = ["name", "words", "both", "vector", "note"]  # without `id` of the filter


def texts_of(tmp_path: Path, version: str) -> dict[str, bytes]:
    """Twelve files of 400 kB: texts and lists beside `id`, a vector that most bytes belong to, and texts behind it."""
    numbers = np.arange(FILES * ROWS)
    vectors = pa.array(np.random.default_rng(1).random(len(numbers) * 160).astype(np.float32))
    dice = random.Random(7)
    rows = pa.table(
        {
            "id": np.random.default_rng(2).permutation(numbers),
            "name": [dice.randbytes(dice.randrange(20)).hex() for _ in numbers],
            "words": [[dice.randbytes(3).hex()] * dice.randrange(4) for _ in numbers],
            "both": [{"a": dice.random(), "b": dice.randbytes(4).hex()} for _ in numbers],
            "vector": pa.FixedSizeListArray.from_arrays(vectors, 160),
            "note": [dice.randbytes(dice.randrange(90)).hex() for _ in numbers],
        }
    )
    lance_io.write_dataset(rows, tmp_path / "t", max_rows_per_file=ROWS, data_storage_version=version)
    paths = [path for path in tmp_path.rglob("*") if path.is_file()]
    return {str(path.relative_to(tmp_path)): path.read_bytes() for path in paths}


def row_of_each_file(tmp_path: Path) -> tuple[str, pa.Table]:
    """A filter for a row in the middle of each file, and these rows, read without columns along."""
    ids = np.random.default_rng(2).permutation(FILES * ROWS)[ROWS // 2 :: ROWS]
    condition = f"id in ({str(ids.tolist())[1:-1]})"
    return condition, lance_io.dataset(str(tmp_path / "t")).to_table(filter=condition, late_materialization=False)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_texts_and_lists_come_along_once_their_pages_are_known(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`name`, `words` and `both` then have no request of their own; `note` lies behind the vector."""
    bench = Bench(texts_of(tmp_path, version))
    condition, expected = row_of_each_file(tmp_path)
    monkeypatch.setattr(pool, "_pool", InlinePool())

    async def work(lap: Lap) -> None:
        table = await lance_io.AsyncDataset.open("t", session=bench.session)
        scanner = table.scanner(filter=condition)
        assert "name, words, both, vector, note: read afterwards" in str(await scanner.explain_io(cold=True))
        counts = []
        for choice in (None, None, LATE):  # cold, warm, and warm without columns along
            lap()
            assert await table.to_table(filter=condition, late_materialization=choice) == expected
            rounds, log = lap()
            assert asked_twice(log) == 0
            counts.append((rounds, len(log), bytes_of(log)))
        _, along, apart = counts
        assert along[0] == apart[0] == 2
        assert along[1] == apart[1] - FILES, counts
        assert apart[2] < along[2] < apart[2] + FILES * GAP
        for is_cold in (True, False):
            explained = str(await scanner.explain_io(cold=is_cold))
            assert ("name, words, both: read with the filter's columns" in explained) is not is_cold
        nothing = table.scanner(filter="id < 0")
        plan = await nothing.explain_io()
        lap()
        await nothing.to_table()
        rounds, log = lap()
        assert (rounds, len(log)) == (1, 2 * FILES)  # values, and where chunks begin
        assert (plan.num_rounds, plan.num_requests, plan.num_bytes) == (1, 2 * FILES, bytes_of(log))
        await table.aclose()

    bench.run(work)


@pytest.mark.parametrize(("version", "along", "apart"), [("0.1", (4, 4), (5, 7)), ("2.0", (2, 3), (2, 4))])
def test_texts_of_old_versions_come_along_once_they_were_read(
    version: str, along: tuple[int, int], apart: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns of version 0.1 have sizes once they were read, those of 2.0 once their file is open."""
    bench = Bench(texts_of(tmp_path, version))
    condition, expected = row_of_each_file(tmp_path)
    monkeypatch.setattr(pool, "_pool", InlinePool())

    async def work(lap: Lap) -> None:
        table = await lance_io.AsyncDataset.open("t", session=bench.session)
        scanner = table.scanner(filter=condition)
        assert "read with the filter's columns" not in str(await scanner.explain_io(cold=True))
        counts, num_bytes = [], []
        for choice in (None, None, LATE):  # cold, warm, and warm without columns along
            lap()
            assert await table.to_table(filter=condition, late_materialization=choice) == expected
            rounds, log = lap()
            counts.append((rounds, len(log) / FILES))
            num_bytes.append(bytes_of(log) if len(counts) > 1 else 0)
        assert counts[1:] == [along, apart], "rounds, and requests for each file"
        assert num_bytes[1] < num_bytes[2] + FILES * GAP
        assert "name, words, both: read with the filter's columns" in str(await scanner.explain_io())
        nothing = "id % 7 > 6"  # bounds of batches exclude no row
        plan = await table.scanner(filter=nothing).explain_io()
        lap()
        assert (await table.to_table(filter=nothing)).num_rows == 0
        _, log = lap()
        assert (plan.num_requests, plan.num_bytes) == (len(log), bytes_of(log)) and len(log) == FILES
        await table.aclose()

    bench.run(work)


def test_texts_of_local_files_stay_late(tmp_path: Path) -> None:
    """Nothing comes along without costs of requests."""
    texts_of(tmp_path / "new", "2.2")
    here = lance_io.dataset(str(tmp_path / "new" / "t"))
    here.to_table()
    assert "note: read afterwards" in str(here.scanner(filter="id < 0").explain_io())
    assert "read with the filter's columns" not in str(here.scanner(filter="id < 0").explain_io())


EXPLAINED = [
    ("id < 0", None, "score: read with the filter's columns"),
    ("id < 0", True, "score, vector, last: read afterwards"),
    ("id < 0", ["vector"], "vector: read afterwards"),
    ("id < 0 or last < 0", None, "vector: read afterwards"),  # with 320 kB between them
]


@pytest.mark.parametrize(("condition", "late", "note"), EXPLAINED)
def test_explained_requests_of_a_bucket_are_those_of_the_scan(
    condition: str, late: Any, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing passes, so that no request follows: cold and warm, each request to the byte, and each round."""
    objects = files_of(tmp_path, last=True)
    monkeypatch.setattr(pool, "_pool", InlinePool())
    bench = Bench(objects)

    async def work(lap: Lap) -> None:
        table = await lance_io.AsyncDataset.open("t", session=bench.session)
        scanner = table.scanner(filter=condition, late_materialization=late)
        for is_cold in (True, False):
            plan = await scanner.explain_io(cold=is_cold)
            lap()
            assert (await table.to_table(filter=condition, late_materialization=late)).num_rows == 0
            rounds, log = lap()
            planned = [(f"t/{plan.short_key(key)}", *span) for each in plan.rounds for key, *span in each.requests]
            assert sorted(planned) == sorted(ranges_of(log))
            assert (plan.num_rounds, plan.num_bytes) == (rounds, bytes_of(log))
            assert any([note in each for each in plan.notes])
        await table.aclose()

    bench.run(work)


def test_late_rows_are_the_same_from_kept_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts, lists and structs at the ends of files, of which a part lies before what is kept."""
    dice = random.Random(5)
    num_rows = 3000
    rows = pa.table(
        {
            "id": list(range(num_rows)),
            "text": [dice.randbytes(dice.randrange(300)).hex() for _ in range(num_rows)],
            "list": [[dice.random()] * dice.randrange(9) for _ in range(num_rows)],
            "both": [{"a": number, "b": str(number) * 9} for number in range(num_rows)],
        }
    )
    monkeypatch.setattr(pool, "_pool", InlinePool())
    for version in ("0.1", "2.0", "2.1", "2.2"):
        root = tmp_path / version
        lance_io.write_dataset(rows, root / "t", max_rows_per_file=1500, data_storage_version=version)
        expected = lance_io.dataset(str(root / "t")).to_table()
        paths = [path for path in root.rglob("*") if path.is_file()]
        objects = {str(path.relative_to(root)): path.read_bytes() for path in paths}
        for number in (0, 1, 40, num_rows):
            bench = Bench(objects)

            async def work(_: Lap, bench: Bench = bench, number: int = number, expected: pa.Table = expected) -> None:
                table = await lance_io.AsyncDataset.open("t", session=bench.session)
                chosen = [] if not number else range(0, num_rows, num_rows // number)
                condition = f"id in ({', '.join(map(str, chosen))})" if chosen else "id < 0"
                got = await table.to_table(filter=condition, late_materialization=True)
                assert got == expected.take(pa.array(chosen, pa.int64()))
                await table.aclose()

            bench.run(work)
