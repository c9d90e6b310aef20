"""How rows are matched: every way gives what a plain loop over both tables gives, in memory and on local disk."""

from __future__ import annotations

import json
import math
import pickle
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lance_io
from lance_io.changes.join import placed_rows, source_rows
from lance_io.changes.join.keyed_rows import KeyedRows
from lance_io.changes.join.row_keys import has_key, key_table, row_keys, rows_in
from lance_io.changes.join.spilled_batches import Buckets, SpilledBatches
from lance_io.changes.merge import match_rows, merge_plan
from lance_io.errors import OperationError
from lance_io.optimize import Compaction

if TYPE_CHECKING:
    from pathlib import Path

Row = dict[str, Any]
KEYS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "number": (pa.int32(), st.integers(-3, 3)),
    "float": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf])),
    "text": (pa.string(), st.sampled_from(["", "a", "aa", "b"])),
    "list": (pa.list_(pa.int8()), st.lists(st.integers(0, 1), max_size=2)),
}
WAYS: list[int | str] = ["source", "target", 3]
# three small fragments, so that keys meet across batches
FOLDER = tempfile.gettempdir()


def same(one: Any, other: Any) -> bool:
    """Whether two keys are one: no null is, and floats are compared by their bits."""
    if one is None or other is None:
        return False
    if isinstance(one, float):
        return np.float64(one).tobytes() == np.float64(other).tobytes()
    return bool(one == other)


def matches(one: Row, other: Row, on: list[str]) -> bool:
    return all(same(one[name], other[name]) for name in on)


def merged(
    target: list[Row], source: list[Row], on: list[str], clauses: Row
) -> tuple[list[Row], dict[str, int]] | None:
    """The plain merge; None where it is ambiguous."""
    kept, counts = [], {"num_inserted_rows": 0, "num_updated_rows": 0, "num_deleted_rows": 0}
    for row in target:
        found = [one for one in source if matches(one, row, on)]
        passed = [one for one in found if clauses["least"] is None or one["v"] >= clauses["least"] + row["v"] % 2]
        if clauses["matched"] == "keep":
            passed = []
        if len(passed) > 1:
            return None
        if passed and clauses["matched"] == "update":
            kept.append({**row, **passed[0]})
            counts["num_updated_rows"] += 1
        elif passed or (not found and clauses["rest"] is not None and row["v"] < clauses["rest"]):
            counts["num_deleted_rows"] += 1
        else:
            kept.append(row)
    if clauses["inserts"]:
        new = [one for one in source if not any(matches(one, row, on) for row in target)]
        counts["num_inserted_rows"] = len(new)
        kept += [{"w": None, **one} for one in new]
    return kept, counts


@st.composite
def cases(draw: st.DrawFn) -> Row:
    kinds = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=2))
    on = [f"k{place}" for place in range(len(kinds))]
    keys = {name: st.none() | KEYS[kind][1] for name, kind in zip(on, kinds, strict=True)}
    row = st.fixed_dictionaries({**keys, "v": st.integers(0, 9), "w": st.integers(0, 9)})
    is_partial = draw(st.booleans())
    source = draw(st.lists(row, max_size=12))
    matched = draw(st.sampled_from(["update", "delete", "keep"]))
    clauses = {
        "matched": matched,
        "least": draw(st.none() | st.integers(0, 9)) if matched == "update" else None,
        "inserts": draw(st.booleans()) or matched == "keep",
        "rest": draw(st.none() | st.integers(0, 9)),
    }
    return {
        "on": on,
        "types": {name: KEYS[kind][0] for name, kind in zip(on, kinds, strict=True)},
        "target": draw(st.lists(row, min_size=1, max_size=20)),
        "source": [{name: value for name, value in one.items() if name != "w"} for one in source]
        if is_partial
        else source,
        "names": [*on, "v"] if is_partial else [*on, "v", "w"],
        "clauses": clauses,
        "stable": draw(st.booleans()),
        "batch": draw(st.integers(1, 5)),
        "way": draw(st.sampled_from(WAYS)),
    }


def in_order(rows: list[Row]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases())
def test_random_merges_are_those_of_a_plain_loop(case: Row) -> None:
    folder = tempfile.mkdtemp(dir=FOLDER)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(match_rows, "planned_join", lambda *_: case["way"])
            patch.setattr(source_rows, "PIECE_ROWS", case["batch"])
            patch.setattr(match_rows, "PAIR_BYTES", (1 << 26) // case["batch"])
            check(case, folder)
    finally:
        shutil.rmtree(folder)


def check(case: Row, folder: str) -> None:
    types = {**case["types"], "v": pa.int64(), "w": pa.int64()}
    target = pa.Table.from_pylist(case["target"], pa.schema(types))
    source = pa.Table.from_pylist(case["source"], pa.schema({name: types[name] for name in case["names"]}))
    table = lance_io.write_dataset(target, folder + "/t", max_rows_per_file=7, enable_stable_row_ids=case["stable"])
    builder, clauses = table.merge_insert(case["on"]), case["clauses"]
    if clauses["matched"] == "update":
        least = clauses["least"]
        builder.when_matched_update_all(None if least is None else f"source.v >= {least} + target.v % 2")
    elif clauses["matched"] == "delete":
        builder.when_matched_delete()
    if clauses["inserts"]:
        builder.when_not_matched_insert_all()
    if clauses["rest"] is not None:
        builder.when_not_matched_by_source_delete(f"v < {clauses['rest']}")
    expected = merged(case["target"], case["source"], case["on"], clauses)
    given_rows = source.to_reader(max_chunksize=case["batch"])
    if expected is None:
        with pytest.raises(OperationError, match="Ambiguous"):
            builder.execute(given_rows)
        assert table.version == 1
        return
    assert builder.execute(given_rows) == expected[1]
    found = table.to_table().to_pylist()
    assert in_order(found) == in_order(expected[0])
    if case["stable"]:
        ids = table.to_table(columns=["_rowid"])["_rowid"].to_pylist()
        assert len(set(ids)) == len(ids)


# -- on local disk -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["rewrite_rows", "rewrite_columns"])
def test_what_does_not_fit_goes_to_local_disk_and_comes_back(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spilled = []
    add = SpilledBatches.add
    monkeypatch.setattr(SpilledBatches, "add", lambda self, batch: (spilled.append(batch.num_rows), add(self, batch)))
    monkeypatch.setattr(match_rows, "planned_join", lambda *_: 5)
    monkeypatch.setattr(merge_plan, "SOURCE_SHARE", 1 << 20)
    monkeypatch.setattr(match_rows, "PAIR_BYTES", 1 << 10)
    for module in (match_rows, placed_rows):
        monkeypatch.setattr(module, "Buckets", lambda number, _: Buckets(number, 1 << 14))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "spill"))
    (tmp_path / "spill").mkdir()
    keys = np.random.default_rng(5).permutation(40_000)
    text = pa.array([f"text {number % 100}" for number in range(40_000)]).dictionary_encode()
    rows = pa.table({"a": pa.array(range(40_000)), "s": text, "n": pa.array(range(40_000))})
    table = lance_io.write_dataset(rows, str(tmp_path / "t"), max_rows_per_file=9000)
    given_rows = pa.table({"a": keys[:20_000], "n": -keys[:20_000]})
    builder = table.merge_insert("a").when_matched_update_all().write_mode(mode)
    done = builder.execute(given_rows.to_reader(max_chunksize=3000), memory_limit=16 << 20)
    assert done["num_updated_rows"] == 20_000 and sum(spilled) > 60_000
    found = table.to_table().sort_by("a")
    expected = np.arange(40_000)
    expected[keys[:20_000]] = -keys[:20_000]
    assert found["n"].to_pylist() == expected.tolist()
    assert found["s"].to_pylist() == rows["s"].to_pylist()
    assert list((tmp_path / "spill").iterdir()) == [], "a file of spilled rows stayed"


def test_buckets_give_each_row_once() -> None:
    buckets = Buckets(4, 1000)
    numbers = np.random.default_rng(1).integers(0, 4, 5000)
    for start in range(0, 5000, 100):
        batch = pa.record_batch({"n": pa.array(range(start, start + 100))})
        buckets.add(batch, numbers[start : start + 100])
    assert buckets.is_spilled
    for bucket in range(4):
        found = [number for batch in buckets.take(bucket) for number in batch.column(0).to_pylist()]
        assert found == np.flatnonzero(numbers == bucket).tolist()
    buckets.close()


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    spilled = SpilledBatches()
    with pytest.raises(OSError, match=r"memory_limit.*No space left.*TMPDIR"):
        spilled.add(pa.record_batch({"a": [1]}))
    spilled.close()


@pytest.mark.parametrize("limit", [0, 1000, -5])
def test_a_limit_that_is_too_small_is_refused(tmp_path: Path, limit: int) -> None:
    table = lance_io.write_dataset(pa.table({"a": [1]}), str(tmp_path / "t"))
    with pytest.raises(ValueError, match="memory_limit must be at least"):
        table.merge_insert("a").when_matched_delete().execute(pa.table({"a": [1]}), memory_limit=limit)
    with pytest.raises(ValueError, match="memory_limit must be at least"):
        table.update({"a": "2"}, memory_limit=limit)


def test_a_table_may_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that of all calls that do not say, and travels with the dataset."""
    spilled = []
    add = SpilledBatches.add
    monkeypatch.setattr(SpilledBatches, "add", lambda self, batch: (spilled.append(batch.num_rows), add(self, batch)))
    uri = str(tmp_path / "t")
    lance_io.write_dataset(pa.table({"a": range(10), "b": range(10)}), uri, max_rows_per_file=5)
    given_rows = pa.table({"a": range(400_000), "b": range(400_000)})
    small = pickle.loads(pickle.dumps(lance_io.dataset(uri, memory_limit=16 << 20)))
    small.insert(pa.table({"a": [10], "b": [10]}))
    for table, limit, spills in ((lance_io.dataset(uri), None, False), (small, None, True), (small, 512 << 20, False)):
        builder = table.merge_insert("a").when_matched_update_all()
        builder.execute_uncommitted(given_rows.to_reader(max_chunksize=50_000), memory_limit=limit)
        assert bool(spilled) == spills
        spilled.clear()
    options = Compaction.plan(small).tasks[0].json()
    assert json.loads(options)["options"]["memory_limit"] == 16 << 20
    with pytest.raises(ValueError, match="memory_limit must be at least"):
        lance_io.dataset(uri, memory_limit=1000)


def test_keys_that_are_kept_do_not_hold_the_rows_they_come_from() -> None:
    batch = pa.record_batch({"k": np.arange(1000), "v": np.arange(1000)})
    keyed = KeyedRows.of([batch["k"]], batch.select(["v"]))[0]
    kept = keyed.kept()
    assert kept.keys.tolist() == list(range(1000)) and kept.columns.equals(batch.select(["v"]))
    assert np.shares_memory(keyed.keys, batch["k"].to_numpy()) and not np.shares_memory(kept.keys, keyed.keys)
    assert kept.columns["v"].buffers()[1].address != batch["v"].buffers()[1].address


# -- keys ------------------------------------------------------------------------------------------------------------


def test_sliced_and_nested_keys_are_those_of_their_values() -> None:
    values: list[Any] = [None, [{"x": 1, "y": "a"}], [], [{"x": 1, "y": None}, None], [{"x": 2, "y": "a"}], [None]]
    dtype = pa.list_(pa.struct([("x", pa.int16()), ("y", pa.string())]))
    whole = pa.array(values * 3, dtype)
    for start, length in ((0, 18), (1, 17), (5, 8), (7, 0)):
        part = whole.slice(start, length)
        alone = pa.array(part.to_pylist(), dtype)
        assert row_keys([part]).tolist() == row_keys([alone]).tolist()
        known = has_key([part])
        assert known is None or known.tolist() == [value is not None for value in part.to_pylist()]
    keys = row_keys([whole])
    firsts = rows_in(key_table(keys).groups()).tolist()
    assert firsts == [values.index(value) for value in whole.to_pylist()]


def test_views_dictionaries_and_plain_text_have_one_key() -> None:
    words = pa.array(["a", "b" * 20, "", "a"])
    forms = [words, words.cast(pa.large_string()), words.dictionary_encode(), words.cast(pa.string_view())]
    found = {row_keys([form]).tobytes() for form in forms}
    assert len(found) == 1
