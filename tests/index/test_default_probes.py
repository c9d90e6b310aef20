"""Searches without a number of partitions: recall and bytes beside pylance, which decides by itself, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from pathlib import Path

NUM_ROWS, DIM, PARTITIONS, NUM_QUERIES = 20_000, 24, 144, 40
RNG = np.random.default_rng(12)
CENTRES = RNG.normal(size=(PARTITIONS, DIM)).astype(np.float32) * 2
VECTORS = (CENTRES[RNG.integers(0, PARTITIONS, NUM_ROWS)] + RNG.normal(size=(NUM_ROWS, DIM))).astype(np.float32)
QUERIES = (VECTORS[RNG.integers(0, NUM_ROWS, NUM_QUERIES)] + RNG.normal(size=(NUM_QUERIES, DIM)) / 4).astype("f4")


@pytest.fixture(scope="module", params=["l2", "cosine", "dot"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A table of clusters, whose index has their centres."""
    folder: Path = tmp_path_factory.mktemp("clusters")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.reshape(-1)), DIM)
    written = lance.write_dataset(pa.table({"v": vectors}), folder)
    written.create_index("v", "IVF_FLAT", metric=request.param, num_partitions=PARTITIONS, ivf_centroids=CENTRES)
    return str(folder), request.param


def found(dataset: Any, query: Any, k: int, **more: Any) -> set[int]:
    """The rows of a search."""
    nearest = {"column": "v", "q": query, "k": k, **more}
    rows = dataset.to_table(["_rowid"], nearest=nearest, disable_scoring_autoprojection=True)
    return set(rows["_rowid"].to_pylist())


@pytest.mark.parametrize("k", [1, 10, 100])
def test_recall_and_bytes_are_those_of_pylance(table: tuple[str, str], k: int) -> None:
    uri, metric = table
    recalls, num_bytes = [], []
    exact = [found(lance.dataset(uri), query, k, use_index=False, metric=metric) for query in QUERIES]
    for library in (lance, lance_io):
        num_found, num_read = 0, 0
        for query, truth in zip(QUERIES, exact, strict=True):
            dataset = library.dataset(uri)
            dataset.io_stats_incremental()
            num_found += len(found(dataset, query, k) & truth)
            num_read += dataset.io_stats_incremental().read_bytes
        recalls.append(num_found / k / NUM_QUERIES)
        num_bytes.append(num_read / NUM_QUERIES)
    assert recalls[1] >= recalls[0] - 0.02, (recalls, num_bytes)
    if metric != "dot" and k <= 10:  # of dot products distances have no ratio; for many rows we search more
        assert num_bytes[1] <= 1.2 * num_bytes[0], (recalls, num_bytes)


def test_the_plan_names_the_partitions_of_the_search(table: tuple[str, str]) -> None:
    """As many as are near: a query at a centre needs fewer than one from which all are about as far.

    The index for cosine has rows in three partitions only: its centres have different lengths.
    """
    uri, metric = table
    dataset = lance_io.dataset(uri)

    def least(query: Any) -> int:
        plan = dataset.scanner(nearest={"column": "v", "q": query, "k": 5}).explain_plan()
        return int(plan.partition("minimum_nprobes=")[2].partition(",")[0])

    numbers = least(CENTRES[7]), least(np.full(DIM, 1000, np.float32))
    assert numbers == {"l2": (4, 12), "cosine": (3, 3), "dot": (8, 8)}[metric]
