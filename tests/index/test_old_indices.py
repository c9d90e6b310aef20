"""Indices in files of version 0.1, as of pylance 0.20: tables do without them until they are built again."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.indices import IndicesBuilder, IvfModel, PqModel

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


def test_vectors_in_one_file_of_0_1_are_compared_without_it(tmp_path: Path) -> None:
    """`load_shuffled_vectors` of pylance 14 writes such an index, by which it finds no row itself."""
    rng = np.random.default_rng(4)

    def vectors(count: int) -> pa.Array:
        return pa.FixedSizeListArray.from_arrays(pa.array(rng.random(count * 16, np.float32)), 16)

    uri = str(tmp_path / "v.lance")
    table = lance.write_dataset(pa.table({"v": vectors(300)}), uri, max_rows_per_file=100)
    builder = IndicesBuilder(table, "v")
    centroids, codes = IvfModel(vectors(4), "l2"), PqModel(2, vectors(256))
    builder.transform_vectors(centroids, codes, str(tmp_path / "coded"))
    files = builder.shuffle_transformed_vectors(["coded"], str(tmp_path), centroids, "sorted")
    builder.load_shuffled_vectors(files, str(tmp_path), centroids, codes)
    nearest = {"column": "v", "q": np.full(16, 0.5, np.float32), "k": 7}
    with pytest.warns(UserWarning, match=r"vector index 'v_idx' is not used.*one file of version 0\.1"):
        rows = lance_io.dataset(uri).to_table([], nearest=nearest, with_row_id=True)
    assert rows.equals(lance_io.dataset(uri).to_table([], nearest={**nearest, "use_index": False}, with_row_id=True))
    exact = lance.dataset(uri).to_table([], nearest={**nearest, "use_index": False}, with_row_id=True)
    assert rows["_rowid"].equals(exact["_rowid"])
