"""Indices of tables whose compactions recorded moved rows instead of rewriting indices, by either library."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import FormatError
from lance_io.index.details import Space
from lance_io.index.rows.moves import Move, moved_rows
from lance_io.index.rows.row_set import RowSet

if TYPE_CHECKING:
    from pathlib import Path

    from lance_io.reads.index.table_indices import IndexPart

FILTERS = ("i = 5", "i < 20", "i IN (3, 4, 5, 6, 7)", "NOT (i = 5)", "i IS NULL", "i = 5 AND x > 100")
KINDS = ("BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER")


def make_table(folder: Path, kind: str) -> lance.LanceDataset:
    """Eight fragments under an index, then deletions."""
    rng = np.random.default_rng(1)
    rows = pa.table({"i": pa.array(rng.integers(0, 500, 4000), mask=rng.random(4000) < 0.05), "x": range(4000)})
    table = lance.write_dataset(rows, folder, max_rows_per_file=500)
    table.create_scalar_index("i", kind, name="x")
    table.delete("x % 7 = 3")
    return table


def check_answers(folder: Path) -> int:
    """Compare answers with scans; returns how many filters an index answered."""
    table = lance_io.dataset(folder)
    for text in FILTERS:
        assert table.to_table(filter=text) == table.to_table(filter=text, use_scalar_index=False), text
    return sum("ScalarIndexQuery" in table.scanner(filter=text).explain_plan() for text in FILTERS)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_followed_through_several_compactions(kind: str, tmp_path: Path) -> None:
    table = make_table(tmp_path, kind)
    answered = check_answers(tmp_path)
    assert answered >= 4
    for again in range(2):
        table.optimize.compact_files(target_rows_per_fragment=1200 * (again + 1), defer_index_remap=True)
        assert check_answers(tmp_path) == answered
        lance.write_dataset(pa.table({"i": [5] * 50, "x": [0] * 50}), tmp_path, mode="append")
        lance_io.dataset(tmp_path).optimize.compact_files(target_rows_per_fragment=9000, defer_index_remap=True)
        assert check_answers(tmp_path) == answered
        table = lance.dataset(tmp_path)
        with pytest.warns(DeprecationWarning):
            entries = {entry["name"]: entry for entry in table.list_indices()}
        covered = set(entries["x"]["fragment_ids"])
        assert covered <= {fragment.fragment_id for fragment in table.get_fragments()}
        ours = {part.covered for part in _parts(tmp_path)}
        assert ours == {frozenset(covered)}


def _parts(folder: Path) -> list[IndexPart]:
    table = lance_io.dataset(folder)
    table.to_table(filter="i = 5")
    return [part for index in table._state.__dict__["table_indices"].indices for part in index.parts]


@pytest.mark.parametrize("kind", KINDS)
def test_a_compaction_of_pylance_beside_the_record(kind: str, tmp_path: Path) -> None:
    """pylance 14 answers nothing from a B-tree after this."""
    table = make_table(tmp_path, kind)
    table.optimize.compact_files(target_rows_per_fragment=1200, defer_index_remap=True)
    lance.dataset(tmp_path).optimize.compact_files(target_rows_per_fragment=5000)
    assert check_answers(tmp_path) == (len(FILTERS) if kind == "BITMAP" else 0)


def test_moves_are_applied_row_by_row() -> None:
    rng = np.random.default_rng(2)
    old = [fragment_id << 32 | row for fragment_id in (3, 4, 9) for row in range(50) if rng.random() < 0.7]
    new = [(20, 40), (21, len(old) - 40)]
    targets = [fragment_id << 32 | row for fragment_id, num_rows in new for row in range(num_rows)]
    move = Move(frozenset((3, 4, 9)), rows_of(old), tuple(new)).check()
    expected = dict(zip(old, targets, strict=True))
    for _ in range(50):
        rows = [*rng.choice([*range(3 << 32, (3 << 32) + 60), *range(9 << 32, (9 << 32) + 60), 5 << 32, *old], 40)]
        wanted = {expected.get(int(row), int(row)) for row in rows if int(row) in expected or int(row) >> 32 == 5}
        assert set(moved_rows(rows_of(rows), [move]).rows().tolist()) == wanted
    with pytest.raises(FormatError, match="became 41"):
        Move(frozenset((3,)), rows_of(old), ((20, 41),)).check()


def rows_of(rows: list[int]) -> RowSet:
    return RowSet.of_rows(Space.ADDRESSES, np.unique(np.array(rows, np.uint64)))
