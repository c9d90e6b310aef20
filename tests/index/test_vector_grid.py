"""The grid of searches by an index beside pylance's: kinds × metrics × queries × parameters, while the table changes.

A few of the queries here; all 1,500 searches with `LANCE_IO_VECTOR_GRID=20`, a campaign.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from pathlib import Path

NUM_QUERIES = int(os.environ.get("LANCE_IO_VECTOR_GRID", "3"))
NUM_ROWS, NUM_LATER, DIM, PARTITIONS, K = 4000, 60, 16, 8, 10
PRODUCT = {"num_sub_vectors": 4}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "flat": ("IVF_FLAT", {}),
    "pq8": ("IVF_PQ", PRODUCT),
    "pq4": ("IVF_PQ", {**PRODUCT, "num_bits": 4}),
    "pq-rows": ("IVF_PQ", {**PRODUCT, "skip_transpose": True}),
    "sq": ("IVF_SQ", {}),
}
SEARCHES: list[tuple[dict[str, Any], str | None]] = [
    ({"nprobes": 1}, None),
    ({"nprobes": 3}, None),
    ({"nprobes": 8}, None),
    ({"nprobes": 3, "refine_factor": 5}, None),
    ({"nprobes": 4}, "id % 3 = 0"),
]


def table_of(values: np.ndarray, first: int = 0) -> pa.Table:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), DIM)
    return pa.table({"id": range(first, first + len(values)), "v": vectors})


def is_tied(peer: Any, nearest: dict[str, Any], scan: dict[str, Any]) -> bool:
    """Whether two candidates around the cut have one distance of their codes: which of them stays is arbitrary."""
    cut = K * nearest.get("refine_factor", 1)
    plain = {key: value for key, value in nearest.items() if key != "refine_factor"}
    nearest = {**plain, "k": cut + 1}
    distances = peer.scanner(["_distance"], nearest=nearest, fast_search=True, **scan).to_table()["_distance"]
    return len(distances) > cut and bool(
        np.isclose(distances[cut - 1].as_py(), distances[cut].as_py(), rtol=1e-6, atol=1e-7)
    )


def differences(mine: pa.Table, its: pa.Table) -> str | None:
    """How two results differ, apart from rounding and ties."""
    if mine.num_rows != its.num_rows:
        return f"{mine.num_rows} rows, expected {its.num_rows}"
    ours, theirs = mine["_distance"].to_numpy(), its["_distance"].to_numpy()
    tolerance = {"rtol": 2e-5, "atol": 2e-6}
    if not np.allclose(ours, theirs, **tolerance):
        return f"distances {ours}, expected {theirs}"
    for at, (row, expected) in enumerate(zip(mine["_rowid"].to_pylist(), its["_rowid"].to_pylist(), strict=True)):
        if row != expected and np.isclose(theirs, theirs[at], **tolerance).sum() < 2 and at < K - 1:
            return f"row {row} at {at}, expected {expected}"
    return None


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_search_is_that_of_pylance(tmp_path: Path, kind: str, metric: str) -> None:
    rng = np.random.default_rng(7)
    size = rng.uniform(0.5, 2, (NUM_ROWS + NUM_LATER, 1))
    values = (rng.normal(size=(NUM_ROWS + NUM_LATER, DIM)) * size).astype("f4")
    peer = lance.write_dataset(table_of(values[:NUM_ROWS]), tmp_path, max_rows_per_file=1500)
    name, options = KINDS[kind]
    peer.create_index("v", name, metric=metric, num_partitions=PARTITIONS, **options)
    ours, wrong, num_tied = lance_io.dataset(tmp_path), [], 0
    for number in range(NUM_QUERIES):
        if number == NUM_QUERIES // 3:
            peer.delete("id % 7 = 3")
            ours = lance_io.dataset(tmp_path)
        is_mixed = number >= 2 * NUM_QUERIES // 3
        if number == 2 * NUM_QUERIES // 3:
            peer = lance.write_dataset(table_of(values[NUM_ROWS:], NUM_ROWS), tmp_path, mode="append")
            ours = lance_io.dataset(tmp_path)
        query = rng.normal(size=DIM).astype("f4")
        for asked, text in SEARCHES:
            nearest = {"column": "v", "q": query, "k": K, **asked}
            scan = {"filter": text, "prefilter": True}
            if (is_mixed or "refine_factor" in asked) and is_tied(peer, nearest, scan):
                num_tied += 1
                continue
            columns = {"columns": ["_distance"], "with_row_id": True}
            mine = ours.scanner(nearest=nearest, **columns, **scan).to_table()
            if difference := differences(mine, peer.scanner(nearest=nearest, **columns, **scan).to_table()):
                wrong.append((number, asked, text, difference))
    assert not wrong, wrong
    assert num_tied <= max(2, NUM_QUERIES * len(SEARCHES) // (3 if kind == "pq4" else 20))
    print(f"{NUM_QUERIES * len(SEARCHES) - num_tied} searches compared, {num_tied} left out")
