"""Texts of plans that name an index, as pylance's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from pathlib import Path

FILTERS = [
    "b = x'32333435323334353233343532333435'",
    "b > x'6162'",
    "b >= x'61' AND b < x'62'",
    "n = 5",
    "n BETWEEN 3 AND 7",
    "n IN (1, 2, 3, 4)",
    "n >= 2 AND n < 5",
    "NOT (n = 5)",
    "NOT (n BETWEEN 3 AND 7)",
    "NOT (n < 3 OR n > 7)",
    "NOT (n = 5 OR n = 6)",
    "n IS NULL",
    "s = 'word'",
    "s LIKE 'wo%'",
]


@pytest.mark.parametrize("text", FILTERS)
def test_conditions_are_spelled_as_by_pylance(text: str, tmp_path: Path) -> None:
    rows = pa.table({"b": [b"2345234523452345", b"ab"], "n": [5, None], "s": ["word", "other"]})
    table = lance.write_dataset(rows, tmp_path)
    for column in rows.column_names:
        table.create_scalar_index(column, "BTREE")
    plans = [each.dataset(tmp_path).scanner(filter=text).explain_plan() for each in (lance, lance_io)]
    theirs, ours = [[line.strip() for line in plan.splitlines() if "ScalarIndexQuery" in line] for plan in plans]
    assert ours == theirs
    assert len(theirs) == 1
