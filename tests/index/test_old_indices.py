"""An index of pylance 0.20, whose files have version 0.1: without it until it is built again."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_io

OLD = (
    Path(__file__).resolve().parents[2].parent
    / "shared/data/peer-datasets/historical/0.20.0--old_btree_bitmap_indices/data.lance"
)
UNUSED = "'btree_idx' has files of version 0.1"


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A table of four rows with a B-tree in files of 0.1, and a bitmap in a file of 2.0."""
    return str(shutil.copytree(OLD, tmp_path / "old.lance"))


def test_a_b_tree_in_files_of_0_1_is_not_used(uri: str) -> None:
    table = lance_io.dataset(uri)
    for predicate in ("btree = 1", "btree > 2 AND bitmap < 9", "btree IN (1, 9)", "btree IS NULL"):
        with pytest.warns(UserWarning, match=UNUSED):
            rows = table.to_table(filter=predicate)
        assert rows.equals(lance.dataset(uri).to_table(filter=predicate))
    with pytest.warns(UserWarning, match=UNUSED):
        assert table.get("btree", [3, 9])["bitmap"].to_pylist() == [3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "@bitmap_idx(" in table.scanner(filter="bitmap = 1").explain_plan()
        assert table.count_rows("btree = 1", use_scalar_index=False) == 1
        table.prewarm_index("btree_idx")
        stats = table.stats.index_stats("btree_idx")
    assert (stats["index_type"], stats["segments"]) == ("BTree", [{}])
    with pytest.warns(UserWarning, match=UNUSED):
        table.delete("btree = 2")
    assert lance.dataset(uri).to_table()["btree"].to_pylist() == [1, 3, 4]


@pytest.mark.parametrize("retrain", [True, False])
def test_an_update_of_the_index_builds_it_again(uri: str, *, retrain: bool) -> None:
    lance_io.write_dataset(pa.table({"bitmap": [7], "btree": [7]}), uri, mode="append")
    table = lance_io.dataset(uri)
    table.optimize.optimize_indices(retrain=retrain)
    for library in (lance, lance_io):
        again = library.dataset(uri)
        assert "@btree_idx(BTree)" in again.scanner(filter="btree = 7").explain_plan()
        assert again.to_table(filter="btree IN (1, 7)")["bitmap"].to_pylist() == [1, 7]
