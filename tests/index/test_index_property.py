"""Property: any filter over several indexed columns gives the rows of a scan, whatever happened to the table before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance.indices import IndexConfig

import lance_io
from tests.seeds import seeded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KINDS: dict[str, Any] = {
    "i": IndexConfig("btree", {"zone_size": 64}),
    "c": "BITMAP",
    "f": IndexConfig("zonemap", {"rows_per_zone": 50}),
    "g": IndexConfig("bloomfilter", {"number_of_items": 60, "probability": 0.05}),
    "s": IndexConfig("btree", {"zone_size": 64}),
    "l": "LABEL_LIST",
    "t": "NGRAM",
}


def make_rows(num_rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)

    def some(values: Any) -> pa.Array:
        return pa.array(values, mask=rng.random(num_rows) < 0.1)

    floats = rng.choice([0.0, -0.0, float("nan"), 1.5, -2.5, float("inf")], num_rows)
    return pa.table(
        {
            "i": some(rng.integers(0, 60, num_rows)),
            "c": some(rng.integers(0, 6, num_rows)),
            "f": some(floats),
            "g": some(rng.integers(0, 30, num_rows).astype(np.int32)),
            "s": some([f"{'ab'[number % 2]}{number}" for number in rng.integers(0, 20, num_rows).tolist()]),
            "l": pa.array(
                [
                    None if number == 0 else [f"t{number % 3}", None][: number % 3]
                    for number in rng.integers(0, 9, num_rows)
                ]
            ),
            "t": some([f"some word {number} here" for number in rng.integers(0, 15, num_rows).tolist()]),
            "u": rng.integers(0, 10, num_rows),
        }
    )


def indexed(folder: Path, *, stable: bool) -> lance.LanceDataset:
    """A table with an index of each kind, of which the second segment covers two fragments of five."""
    table = lance.write_dataset(make_rows(300, 1), folder, max_rows_per_file=100, enable_stable_row_ids=stable)
    table.delete("u = 3")
    for column, kind in KINDS.items():
        table.create_scalar_index(column, kind, name=f"{column}_index")
    table = lance.write_dataset(make_rows(120, 2), folder, max_rows_per_file=60, mode="append")
    table.optimize.optimize_indices(num_indices_to_merge=0)
    return table


def plain(folder: Path, stable: bool) -> None:
    indexed(folder, stable=stable)


def changed(folder: Path, stable: bool) -> None:
    """Deleted and moved rows by both libraries, and rows without index."""
    table = indexed(folder, stable=stable)
    table.delete("u = 4")
    table.update({"i": "7", "s": "'a3'"}, where="u = 5")
    lance_io.dataset(folder).update({"c": "2"}, where="u = 6")
    lance_io.dataset(folder).delete("i = 11")
    lance.write_dataset(make_rows(40, 3), folder, mode="append")


def optimized(folder: Path, stable: bool) -> None:
    """Rows that an update moved from one segment's fragments to those of the next: the first keeps the old entries."""
    changed(folder, stable)
    lance.dataset(folder).update({"c": "0", "l": "['t9']", "t": "'x word 1'"}, where="u = 7")
    lance.dataset(folder).optimize.optimize_indices(num_indices_to_merge=0)


def compacted(folder: Path, stable: bool) -> None:
    """A compaction after changes; then more changes."""
    changed(folder, stable)
    lance.dataset(folder).optimize.compact_files(target_rows_per_fragment=250)
    lance_io.dataset(folder).update({"f": "1.5"}, where="u = 1")


def patched(folder: Path, stable: bool) -> None:
    """Columns rewritten in place, which makes indices lose fragments between others."""
    table = indexed(folder, stable=stable)
    rows = table.to_table(columns=["i", "c"], filter="i = 20 and c is not null").slice(0, 1)
    new = rows.set_column(1, "c", pa.array([5]))
    lance.dataset(folder).merge_insert("i").when_matched_update_all().execute(new)


HISTORIES: dict[str, Callable[[Path, bool], None]] = {
    "plain": plain,
    "changed": changed,
    "optimized": optimized,
    "compacted": compacted,
    "patched": patched,
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[lance_io.LanceDataset]:
    opened = []
    for name, history in HISTORIES.items():
        for stable in (False, True):
            folder = tmp_path_factory.mktemp(f"{name}-{stable}") / "t"
            history(folder, stable)
            opened.append(lance_io.dataset(folder))
    return opened


numbers = st.integers(-2, 62)
negations = st.sampled_from(["", "NOT "])
operators = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])


def in_list(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[str]:
    listed = st.lists(values, min_size=1, max_size=6)
    return st.builds(
        lambda items, no: f"{column} {no}IN ({', '.join(map(str, items))})", listed, st.sampled_from(["", "NOT "])
    )


def compared(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[str]:
    return st.builds(lambda operator, value: f"{column} {operator} {value}", operators, values)


letters = st.sampled_from(["'a'", "'a1'", "'b13'", "'b'", "'c'", "''"])
labels = st.lists(st.sampled_from(["'t1'", "'t2'", "'t0'", "'t9'", "NULL"]), min_size=1, max_size=3).filter(
    lambda items: items != ["NULL"]
)
atoms = st.one_of(
    compared("i", numbers),
    in_list("i", numbers),
    compared("c", st.integers(-1, 7)),
    in_list("c", st.integers(-1, 7)),
    compared("f", st.sampled_from([0.0, -0.0, 1.5, -2.5, 7.25])),
    in_list("f", st.sampled_from([0.0, 1.5, 7.25])),
    compared("g", st.integers(-1, 31)),
    in_list("g", st.integers(-1, 31)),
    compared("s", letters),
    st.builds(lambda prefix: f"s LIKE '{prefix}%'", st.sampled_from(["a", "a1", "b", "_", "c"])),
    st.builds(
        lambda function, items: f"{function}(l, [{', '.join(items)}])",
        st.sampled_from(["array_has_any", "array_has_all"]),
        labels,
    ),
    st.builds(lambda needle: f"contains(t, '{needle}')", st.sampled_from(["word 1", "here", "word 12 ", "x", "Word"])),
    st.builds(
        lambda column, no: f"{column} IS {no}NULL", st.sampled_from(sorted(KINDS)), st.sampled_from(["", "NOT "])
    ),
    compared("u", st.integers(0, 9)),
)
filters = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds(lambda left, right: f"({left} AND {right})", inner, inner),
        st.builds(lambda left, right: f"({left} OR {right})", inner, inner),
        st.builds(lambda part: f"NOT ({part})", inner),
    ),
    max_leaves=6,
)
windows = st.sampled_from([{}, {}, {"limit": 3}, {"limit": 5, "offset": 4}, {"offset": 7}])


@seeded
@settings(max_examples=500, deadline=None)
@given(data=st.data())
def test_answers_equal_scans(tables: list[lance_io.LanceDataset], data: st.DataObject) -> None:
    table = tables[data.draw(st.integers(0, len(tables) - 1))]
    options = {"filter": data.draw(filters), "with_row_address": True, **data.draw(windows)}
    columns = data.draw(st.sampled_from([["i", "t"], ["u"], [], ["_rowid"]]))
    expected = table.to_table(columns, **options, use_scalar_index=False)
    assert table.to_table(columns, **options) == expected
    if len(options) == 2:
        assert table.count_rows(options["filter"]) == expected.num_rows
    batches = [*table.to_batches(columns, batch_size=data.draw(st.integers(1, 40)), **options)]
    assert pa.Table.from_batches(batches, expected.schema) == expected


@seeded
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_fast_search_leaves_out_what_no_index_covers(
    tables: list[lance_io.LanceDataset], data: st.DataObject
) -> None:
    table = tables[data.draw(st.integers(0, len(tables) - 1))]
    text = data.draw(filters)
    every = set(table.to_table([], filter=text, with_row_address=True)["_rowaddr"].to_pylist())
    fast = set(table.to_table([], filter=text, with_row_address=True, fast_search=True)["_rowaddr"].to_pylist())
    assert fast <= every
    left_out = {address >> 32 for address in every - fast}
    assert left_out.isdisjoint({address >> 32 for address in fast})


@seeded
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_keys_are_looked_up_in_their_order(tables: list[lance_io.LanceDataset], data: st.DataObject) -> None:
    table = tables[data.draw(st.integers(0, len(tables) - 1))]
    column = data.draw(st.sampled_from(["i", "c"]))
    keys = data.draw(st.lists(st.one_of(st.none(), st.integers(-1, 62)), max_size=8))
    rows = table.to_table([column, "t"], with_row_address=True).to_pylist()
    for on_missing in ("skip", "null"):
        expected: list[Any] = []
        for key in keys:
            same = [row["_rowaddr"] for row in rows if key is not None and row[column] == key]
            expected += same or [None] * (on_missing == "null")
        got = table.get(column, keys, ["t", "_rowaddr"], on_missing=on_missing)
        assert got["_rowaddr"].to_pylist() == expected
        by_address = {row["_rowaddr"]: row["t"] for row in rows}
        assert got["t"].to_pylist() == [by_address.get(address) for address in expected]
