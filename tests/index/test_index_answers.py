"""Answers of indices that pylance built equal those of scans without them: ours, and pylance's.

Each table has two segments, deletions before and after them, updates that move rows to fragments without index, and a
fragment that was appended later; with and without stable row ids, which take turns (in a campaign: both).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.indices import IndexConfig

import lance_io
from tests import products

if TYPE_CHECKING:
    from pathlib import Path

NUM_ROWS = 3_000
SPECIAL = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf])


def make_rows(num_rows: int, rng: np.random.Generator) -> pa.Table:
    """Rows with nulls, repetitions, floats of every kind, and text that is not ASCII."""
    floats = np.where(
        rng.random(num_rows) < 0.1, SPECIAL[rng.integers(0, 6, num_rows)], np.round(rng.normal(size=num_rows), 2)
    )
    words = ["", "日本", None, "zz"]
    labels = [
        None if number % 11 == 0 else [f"t{item}" if item else None for item in rng.integers(0, 10, number % 4)]
        for number in range(num_rows)
    ]
    return pa.table(
        {
            "i": pa.array(rng.integers(0, 3000, num_rows), mask=rng.random(num_rows) < 0.03),
            "f": pa.array(floats, mask=rng.random(num_rows) < 0.03),
            "s": pa.array([words[code % 4] if code < 40 else f"k{code}é" for code in rng.integers(0, 400, num_rows)]),
            "l": pa.array(labels, pa.list_(pa.string())),
            "t": pa.array([None if row % 50 == 0 else f"Word x-y word {row}" for row in range(num_rows)]),
            "b": pa.array(rng.random(num_rows) < 0.5, mask=rng.random(num_rows) < 0.1),
        }
    )


NEW_VALUES = {"i": "5", "f": "-0.0", "s": "'k77é'", "l": "['t1','t2']", "t": "'new word 12'", "b": "true"}


def make_table(folder: Path, column: str, kind: Any, *, stable: bool) -> None:
    """A table whose index of `column` has two segments and does not cover everything."""
    rng = np.random.default_rng(5)
    rows = make_rows(NUM_ROWS, rng)
    table = lance.write_dataset(
        rows, folder, max_rows_per_file=NUM_ROWS // 3, enable_stable_row_ids=stable, data_storage_version="2.1"
    )
    table.delete("i % 10 = 7")
    table.create_scalar_index(column, kind, name="x")
    table = lance.write_dataset(make_rows(500, rng), folder, mode="append")
    table.optimize.optimize_indices(num_indices_to_merge=0)
    table.delete("i % 10 = 3")
    table.update({column: NEW_VALUES[column]}, where="i % 100 = 8")
    table.update({"i" if column != "i" else "f": "1"}, where="i % 100 = 9")
    lance.write_dataset(make_rows(300, rng), folder, mode="append")


NUMBERS = [
    "i = 5", "i = -1", "i < 40", "i >= 2900", "i BETWEEN 100 AND 120", "i IN (1, 2, 99999)", "i IS NULL",
    "i = 5 OR i IS NULL", "i < 40 AND i > 30", "i >= 2900 AND i = 5", "i != 5", "NOT (i BETWEEN 100 AND 120)",
    "i IS NOT NULL", "NOT (i = 5 OR i IS NULL)", "NOT (i < 40 AND i > 30)", "i NOT IN (5, 8, 11)", "5 = i", "20 > i",
    "i IS DISTINCT FROM 5", "i IS NOT DISTINCT FROM 5", "NOT (i IS DISTINCT FROM 5)", "i IN (1, NULL)",
    "i = 5 AND f > 0.5", "i < 100 AND s LIKE 'k1%'", "i = 5 OR f > 2.5", "i + 1 = 6", "i > 2900 OR NOT (i > 50)",
    "(i > 10 AND f < 0) OR i = 7", "i IN (1, 2, 3, 4, 5, 6, 7) AND NOT b", "i > 5 AND i > 8 AND i <= 20 AND i < 25",
    "(i > 10 AND i < 20) AND (i > 12 OR b)", "i > 20 AND i < 10",
]  # fmt: skip
FLOATS = [
    "f = 0.0", "f = -0.0", "f < 0.0", "f <= -0.0", "f > 0.0", "f >= 0.0", "f > 2.5", "f < -1e300", "f IN (0.0, 1.0)",
    "f IS NULL", "f BETWEEN -0.5 AND 0.5", "NOT (f < 1.5)", "NOT (f = 0.0)", "f > 15", "f != 0", "f >= -0.0",
    "f IN (-0.0, 2.5, 0.01, 0.02)",
]  # fmt: skip
TEXTS = [
    "s = 'k77é'", "s < 'k2'", "s > 'z'", "s IN ('k100é', 'none', '')", "s IS NULL", "s BETWEEN 'k3' AND 'k5'",
    "s = '日本'", "NOT (s = 'k77é')", "NOT (s IN ('k100é', 'none', ''))", "NOT (s = 'k77é') AND s > 'k9'",
    "s LIKE 'k1%'", "s LIKE '日%'", "s LIKE 'k_7%'", "s LIKE 'k77é'", "starts_with(s, 'k39')", "s NOT LIKE 'k1%'",
    "s LIKE '%7é'", "s ILIKE 'K1%'", "s LIKE ''", "s LIKE '%'", "starts_with(s, '')", "s LIKE 'k\\%%'",
    "s LIKE 'k1%' OR s IS NULL", "s >= ''",
]  # fmt: skip
LABELS = [
    "array_has_any(l, ['t1'])", "array_has_any(l, ['t1', 't9'])", "array_has_all(l, ['t1', 't2'])",
    "array_has_all(l, ['t1', 'nope'])", "array_has_any(l, ['t3', NULL])", "array_has_all(l, ['t3', NULL])",
    "NOT array_has_any(l, ['t1'])", "NOT array_has_all(l, ['t1', 't2'])", "array_has(l, 't4')",
    "array_contains(l, 't4')", "array_has_all(l, ['t1', 't2']) OR array_has_all(l, ['t5'])",
    "array_has_any(l, ['t1']) AND NOT array_has_any(l, ['t2'])", "l IS NULL", "array_has(l, 'nope')",
    "array_has(l, 't1') AND i < 1000", "NOT array_has(l, 't4') AND array_has(l, 't5')",
]  # fmt: skip
CONTAINED = [
    "contains(t, 'word 12')", "contains(t, 'Word')", "contains(t, 'x-y')", "contains(t, 'zzz')",
    "contains(t, 'word') AND contains(t, '777')", "t LIKE '%word 55%'", "contains(t, '日本語')", "contains(t, '12')",
    "NOT contains(t, 'word 12')", "contains(t, 'word 12') OR contains(t, '99')", "t LIKE 'Word x%77'",
]  # fmt: skip
NO_TRIGRAM = ("contains(t, 'x-y')", "contains(t, '日本語')", "contains(t, '12')")  # pylance asks, and gets all rows
FLAGS = ["b", "NOT b", "b IS TRUE", "b IS NOT TRUE", "b IS FALSE", "b = false", "b IS NULL", "b AND i < 100"]
EQUALITIES = ("i = 5", "i = -1", "i IN (1, 2, 99999)", "i IS NULL", "i = 5 OR i IS NULL", "i = 5 AND f > 0.5")


@dataclass(frozen=True)
class Case:
    """An index, and filters on its column."""

    column: str
    kind: str
    parameters: dict[str, Any]
    filters: list[str]

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.column}"


CASES = [
    Case("i", "BTREE", {}, NUMBERS),
    Case("i", "BITMAP", {}, NUMBERS),
    Case("i", "ZONEMAP", {"rows_per_zone": 500}, NUMBERS),
    Case("i", "BLOOMFILTER", {"number_of_items": 500, "probability": 0.01}, NUMBERS),
    Case("f", "BTREE", {"zone_size": 512}, FLOATS),
    Case("f", "BITMAP", {}, FLOATS),
    Case("f", "ZONEMAP", {"rows_per_zone": 500}, FLOATS),
    Case("f", "BLOOMFILTER", {}, FLOATS),
    Case("s", "BTREE", {"zone_size": 512}, TEXTS),
    Case("s", "BITMAP", {}, TEXTS),
    Case("s", "ZONEMAP", {"rows_per_zone": 500}, TEXTS),
    Case("s", "BLOOMFILTER", {}, TEXTS),
    Case("l", "LABEL_LIST", {}, LABELS),
    Case("t", "NGRAM", {}, CONTAINED),
    Case("b", "BTREE", {}, FLAGS),
    Case("b", "BITMAP", {}, FLAGS),
]


TURNS = [
    pytest.param(case, stable, id=f"{case.name}-{'ids' if stable else 'addresses'}")
    for number, case in enumerate(CASES)
    for stable in (False, True)
    if products.ALL or stable == (number + number // 4) % 2  # each kind and each column has both
]


@pytest.mark.parametrize(("case", "stable"), TURNS)
def test_answers_equal_scans(case: Case, stable: bool, tmp_path: Path) -> None:
    kind = IndexConfig(case.kind.lower(), case.parameters) if case.parameters else case.kind
    make_table(tmp_path, case.column, kind, stable=stable)
    table, peer = lance_io.dataset(tmp_path), lance.dataset(tmp_path)
    for text in case.filters:
        options = {"columns": ["i", "s"], "filter": text, "with_row_address": True}
        answer = table.to_table(**options)
        assert answer == table.to_table(**options, use_scalar_index=False), text
        addresses = answer["_rowaddr"].to_pylist()
        assert addresses == peer.to_table(**options, use_scalar_index=False)["_rowaddr"].to_pylist(), text
        assert table.count_rows(text) == len(addresses), text
        planned = "ScalarIndexQuery" in table.scanner(**options).explain_plan()
        if text not in NO_TRIGRAM:
            assert planned or "ScalarIndexQuery" not in peer.scanner(**options).explain_plan(), text
