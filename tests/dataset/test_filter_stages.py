"""Filters in two stages: dear conditions read columns for the rows that cheap ones leave, and keep the same rows."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import EvaluationError
from lance_io.filters import Predicate, compile_filter
from lance_io.filters import evaluate as evaluation
from lance_io.reads.scan import late_plan
from lance_io.reads.scan.late_choice import LateCosts
from lance_io.runtime import pool
from tests.dataset.test_late_choice import InlinePool
from tests.file.test_rounds import Bench, Lap
from tests.seeds import seed_of

if TYPE_CHECKING:
    from pathlib import Path

NUM_ROWS = 6000
CHEAP = ["id < 900", "id in (5, 77, 3000)", "score >= 0.5", "score is null", "_rowid < 4000", "id != 17", "flag"]
DEAR = [
    "text like '%7%'",
    "text >= 'row 3'",
    "text is not null",
    "length(note) > 4",
    "cast(note as int) >= 0",
    "note = '12'",
    "1000 / (id - 7) != 5",
    "array_length(items) = 2",
    "(text < 'row 2' or id > 100)",
]


def rows_of(dice: random.Random, *, has_nulls: bool = True) -> pa.Table:
    ids = list(range(NUM_ROWS))
    dice.shuffle(ids)

    def or_null(value: Any, share: float) -> Any:
        return None if has_nulls and dice.random() < share else value

    return pa.table(
        {
            "id": ids,
            "score": pa.array([or_null(dice.random(), 0.1) for _ in ids], pa.float64()),
            "flag": [or_null(number % 3 == 0, 0.1) for number in ids],
            "text": [or_null(f"row {number} " * 20, 0.1) for number in ids],
            "note": [or_null(str(number % 50), 0.02) if number > 30 else "none" for number in ids],
            "items": [[number] * (number % 4) for number in ids],
        }
    )


def answer(ds: lance_io.LanceDataset, condition: str, **more: Any) -> list[int] | str:
    """The ids of the rows that pass, or the error's beginning."""
    try:
        ids: list[int] = ds.to_table(["id"], filter=condition, **more)["id"].to_pylist()
    except EvaluationError as error:
        return str(error).partition(":")[2]
    return ids


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
def test_two_stages_answer_as_one(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, counts and errors, in every order of writing, however the rows of the second stage are read."""
    dice = random.Random(seed_of(f"stages {version}"))
    uri = str(tmp_path / "t")
    table = lance_io.write_dataset(
        rows_of(dice, has_nulls=version != "0.1"), uri, max_rows_per_file=2500, data_storage_version=version
    )
    table.delete("id % 11 = 5")
    ds = lance_io.dataset(uri)
    monkeypatch.setattr(late_plan, "worth_waiting", lambda *_: True)
    monkeypatch.setattr(LateCosts, "reads_all", lambda *_, **__: dice.random() < 0.5)
    outcomes = set()
    for _ in range(30):
        conditions = [*dice.sample(CHEAP, dice.randrange(1, 3)), *dice.sample(DEAR, dice.randrange(1, 3))]
        dice.shuffle(conditions)
        condition = " and ".join(conditions)
        expected = answer(ds, condition, late_materialization=False)  # the whole filter at once
        assert answer(ds, condition) == expected, condition
        if isinstance(expected, str):
            outcomes.add("error")
            with pytest.raises(EvaluationError):
                ds.count_rows(condition)
            continue
        outcomes.add("rows" if expected else "none")
        assert ds.count_rows(condition) == len(expected), condition
        names = dice.sample(["id", "text", "note", "items", "_rowid"], 2)
        batches = list(ds.to_batches(names, filter=condition, batch_size=dice.choice([7, 5000])))
        both = ds.to_table(names, filter=condition, late_materialization=False)
        assert pa.Table.from_batches(batches, both.schema) == both, condition

        async def twin(condition: str = condition) -> tuple[list[int], int]:
            async with lance_io.AsyncDataset.open(uri) as ds:
                rows = await ds.to_table(["id"], filter=condition)
                return rows["id"].to_pylist(), await ds.count_rows(condition)

        assert asyncio.run(twin()) == (expected, len(expected)), condition
    assert outcomes == {"rows", "none", "error"}


def test_changes_go_by_both_stages(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    rows = rows_of(random.Random(3)).select(["id", "text"])
    ds = lance_io.write_dataset(rows, uri)
    assert "ReadLate: projection=[text]" in ds.scanner(["id"], filter="id < 900 and text like '%7%'").explain_plan()
    passing = [
        n for n, text in zip(rows["id"].to_pylist(), rows["text"].to_pylist(), strict=True) if "7" in (text or "")
    ]
    assert ds.update({"text": "'seven'"}, where="id < 900 and text like '%7%'")["num_rows_updated"] == sum(
        [number < 900 for number in passing]
    )
    ds.delete("text = 'seven' and id >= 100")
    left = {number for number in range(NUM_ROWS) if number not in passing or not 100 <= number < 900}
    assert set(lance_io.dataset(uri).to_table(["id"])["id"].to_pylist()) == left


@pytest.mark.parametrize("order", list(itertools.permutations(["id = 20077", "text like '%7'", "score >= 0"])))
def test_bytes_and_rows_of_each_stage(order: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a bucket, the dear column is read for the row that the cheap condition leaves, wherever that is written."""
    num_rows = 40_000
    ids = np.random.default_rng(1).permutation(num_rows)
    noise = random.Random(2)
    rows = pa.table(
        {"id": ids, "score": ids / 7, "text": [f"{noise.randbytes(200).hex()} {number}" for number in ids.tolist()]}
    )
    lance_io.write_dataset(rows, tmp_path / "t", max_rows_per_file=10_000)
    paths = [path for path in tmp_path.rglob("*") if path.is_file()]
    bench = Bench({str(path.relative_to(tmp_path)): path.read_bytes() for path in paths})
    monkeypatch.setattr(pool, "_pool", InlinePool())
    computed: dict[str, int] = {}
    mask = Predicate.mask

    def counted(predicate: Predicate, batch: pa.RecordBatch) -> pa.BooleanArray:
        computed[str(predicate)] = computed.get(str(predicate), 0) + batch.num_rows
        return mask(predicate, batch)

    monkeypatch.setattr(Predicate, "mask", counted)

    async def work(lap: Lap) -> None:
        table = await lance_io.AsyncDataset.open("t", session=bench.session)
        await table.take(list(range(0, num_rows, 500)))  # metadata and page indexes are cached
        lap()
        got = await table.to_table(["id"], filter=" and ".join(order))
        assert got["id"].to_pylist() == [20077]
        rounds, log = lap()
        spans = [line.split(" ")[2].split("-") for line in log]
        num_bytes = sum(int(end) - int(start) for start, end in spans)
        assert rounds == 2
        assert num_bytes < 2 * 8 * num_rows + 100_000  # ids, scores, and a chunk of texts; all texts are 16 MB
        await table.aclose()

    bench.run(work)
    first, second = computed.values()
    assert (first, second) == (num_rows, 1)


def test_dear_conditions_are_computed_for_the_few_rows_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where all columns are in memory; where many rows are left, for all of them in one go."""
    batch = pa.record_batch({"id": range(1000), "text": [f"text {number}" for number in range(1000)]})
    compared: list[int] = []
    compare = evaluation.compare

    def noted(op: Any, left: Any, right: Any) -> Any:
        if pa.types.is_string(left.type):
            compared.append(len(left))
        return compare(op, left, right)

    monkeypatch.setattr(evaluation, "compare", noted)
    for conditions in itertools.permutations(["id < 10", "text >= 'text 5'"]):
        predicate = compile_filter(" and ".join(conditions), batch.schema)
        assert predicate.selection(batch).tolist() == [5, 6, 7, 8, 9]
    predicate = compile_filter("text < 'text 5' or id >= 10", batch.schema)
    assert predicate.mask(batch).true_count == 995
    predicate = compile_filter("text < 'text 5' and id >= 10", batch.schema)
    assert predicate.mask(batch).true_count == 440
    assert compared == [10, 10, 10, 1000]


SIZES = {"id": 8.0, "day": 4.0, "text": 100.0, "vector": 512.0}
SCHEMA = pa.schema(
    [("id", pa.int64()), ("day", pa.int32()), ("text", pa.string()), ("vector", pa.list_(pa.float32(), 128))]
)


@pytest.mark.parametrize(
    ("condition", "first", "second"),
    [
        ("text = 'x' and id = 5", "(id = 5)", "(text = 'x')"),
        ("day < 5 and text = 'x' and id = 5", "((day < 5) and (id = 5))", "(text = 'x')"),
        ("id = 5 and (day = 4 and text = 'x')", "((id = 5) and (day = 4))", "(text = 'x')"),
        ("text = 'x' and vector is null", "(text = 'x')", "(vector is null)"),
        ("_rowid < 10 and text = 'x'", "(_rowid < 10)", "(text = 'x')"),
        ("id = 5 and day < 4", None, None),  # both are cheap
        ("id != 5 and text = 'x'", None, None),  # the cheap one leaves nearly all rows
        ("id = 5 or text = 'x'", None, None),
        ("cast(id as string) = '5' and text = 'x'", None, None),  # a cast that may fail is never first
    ],
)
def test_how_filters_are_split(condition: str, first: str | None, second: str | None) -> None:
    parts = compile_filter(condition, SCHEMA).split(SIZES.__getitem__)
    assert (None if parts is None else (str(parts[0]), str(parts[1]))) == (None if first is None else (first, second))


def test_conditions_that_can_fail_see_the_rows_that_they_saw_before() -> None:
    """Rows for which the first stage is null stay, as the whole filter is computed for them."""
    predicate = compile_filter("id < 5 and text like 'x%'", SCHEMA)
    parts = predicate.split(SIZES.__getitem__)
    assert parts is not None and parts[0].keeps_null and parts[1] is predicate
    assert parts[0].mask(pa.record_batch({"id": [1, None, 9]})).to_pylist() == [True, True, False]


def test_statistics_say_how_each_stage_went(tmp_path: Path) -> None:
    """Of the rows, 900 pass the first stage; of these, those with a seven are wanted, and the rest of the columns."""
    rows = rows_of(random.Random(4), has_nulls=False).select(["id", "text", "note"])
    ds = lance_io.write_dataset(rows, str(tmp_path / "t"))
    seen: list[Any] = []
    scanner = ds.scanner(filter="id < 900 and text like '%7%'", scan_stats_callback=seen.append)
    num_rows = scanner.to_table().num_rows
    assert num_rows == sum(["7" in str(number) for number in range(900)])
    counts = seen[0].all_counts
    assert (counts["rows_scanned"], counts["rows_first_stage"]) == (NUM_ROWS, 900)
    late = counts["late_rows_taken"], counts["late_rows_read"]
    assert sum(late) >= 900 + num_rows  # texts of the first stage's rows, notes of all that pass
    assert "late_rows_taken=" in scanner.analyze_plan()
    explained = str(scanner.explain_io())
    assert "first (id < 900), then" in explained and "text: read afterwards" in explained
