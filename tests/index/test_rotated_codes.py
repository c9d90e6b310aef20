"""Searches by IVF_RQ indices that pylance writes, beside pylance's own with `approx_mode="accurate"`.

Pylance leaves out rows by a bound that holds mostly, so that it may miss a row: its rows have the same distances here,
and no distance of ours is above its.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.index.vector.rotated_codes import RotatedCodes

if TYPE_CHECKING:
    from pathlib import Path

NUM_ROWS, PARTITIONS = 900, 3
CASES = [(64, bits, "l2") for bits in range(1, 10)]
CASES += [(72, bits, metric) for bits in (1, 5) for metric in ("l2", "cosine", "dot")]
CASES += [(64, bits, metric) for bits in (1, 5) for metric in ("cosine", "dot")]


def drawn(num_rows: int, dim: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(num_rows, dim)) * rng.uniform(0.5, 2, (num_rows, 1))).astype("f4")


def table_of(values: np.ndarray, first: int = 0) -> pa.Table:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    return pa.table({"id": range(first, first + len(values)), "v": vectors})


def assert_as_near(ours: pa.Table, theirs: pa.Table, k: int) -> None:
    assert ours.num_rows == theirs.num_rows
    mine, its = ours["_distance"].to_numpy(), theirs["_distance"].to_numpy()
    size = np.maximum(1, np.abs(its))
    assert (mine <= its + 3e-4 * size).all(), (mine, its)
    by_row = dict(zip(ours["_rowid"].to_pylist(), mine.tolist(), strict=True))
    assert len(by_row) == ours.num_rows <= k
    both = [at for at, row in enumerate(theirs["_rowid"].to_pylist()) if row in by_row]
    assert len(both) >= 0.8 * len(its)
    for at in both:
        assert abs(by_row[theirs["_rowid"][at].as_py()] - its[at]) <= 3e-4 * size[at]


@pytest.mark.parametrize(("dim", "bits", "metric"), CASES, ids=[f"{c[0]}-{c[1]}-{c[2]}" for c in CASES])
def test_distances_are_those_of_pylance(tmp_path: Path, dim: int, bits: int, metric: str) -> None:
    is_stable = bits % 2 == 0
    peer = lance.write_dataset(
        table_of(drawn(NUM_ROWS, dim, 1)), str(tmp_path), max_rows_per_file=400, enable_stable_row_ids=is_stable
    )
    peer.create_index("v", "IVF_RQ", metric=metric, num_partitions=PARTITIONS, num_bits=bits)
    peer.delete("id % 7 = 3")
    queries = drawn(6, dim, 9)
    ours = lance_io.dataset(str(tmp_path))
    assert "type=IVF_RQ" in ours.scanner(nearest={"column": "v", "q": queries[0]}).explain_plan()
    columns = {"columns": ["_distance"], "with_row_id": True}
    for number, query in enumerate(queries):
        nearest = {"column": "v", "q": query, "k": 10, "nprobes": 1 + number % PARTITIONS}
        scan: dict[str, Any] = {"filter": "id % 2 = 0", "prefilter": True} if number == 4 else {}
        peers = peer.scanner(nearest={**nearest, "approx_mode": "accurate"}, **columns, **scan).to_table()
        assert_as_near(ours.scanner(nearest=nearest, **columns, **scan).to_table(), peers, 10)


def test_refined_searches_are_exact(tmp_path: Path) -> None:
    """And so are those beside rows that the index does not cover; segments are searched together."""
    peer = lance.write_dataset(table_of(drawn(NUM_ROWS, 64, 1)), str(tmp_path))
    peer.create_index("v", "IVF_RQ", metric="l2", num_partitions=PARTITIONS)
    nearest = {"column": "v", "q": drawn(1, 64, 9)[0], "k": 10, "nprobes": PARTITIONS, "refine_factor": 20}
    exact = {**nearest, "use_index": False}
    mine, its = (
        lance_io.dataset(str(tmp_path)).to_table(["id"], nearest=nearest),
        peer.to_table(["id"], nearest=exact),
    )
    assert mine["id"] == its["id"]
    np.testing.assert_allclose(mine["_distance"], its["_distance"], rtol=2e-5)
    peer = lance.write_dataset(table_of(drawn(60, 64, 2), NUM_ROWS), str(tmp_path), mode="append")
    mine = lance_io.dataset(str(tmp_path)).to_table(["id"], nearest={**nearest, "refine_factor": None, "k": 300})
    assert len({*mine["id"].to_pylist()} & {*range(NUM_ROWS, NUM_ROWS + 60)}) > 5
    peer.optimize.optimize_indices(num_indices_to_merge=0)
    segmented = lance_io.dataset(str(tmp_path))
    assert "deltas=2" in segmented.scanner(nearest=nearest).explain_plan()
    assert segmented.to_table(["id"], nearest=nearest)["id"] == peer.to_table(["id"], nearest=exact)["id"]


@pytest.mark.parametrize("dim", [8, 64, 72, 104, 1000])
def test_rotations_keep_lengths_and_angles(dim: int) -> None:
    signs = np.random.default_rng(dim).choice([-1, 1], (4, dim)).astype("f4")
    codes = RotatedCodes(dim, 1, signs)
    left, right = drawn(2, dim, 3)
    turned = codes.rotate(left), codes.rotate(right)
    np.testing.assert_allclose(turned[0] @ turned[1], left @ right, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(turned[0] @ turned[0], left @ left, rtol=1e-4)
