"""Searches by the IVF indices that pylance writes, beside pylance's own with the same number of partitions.

Distances are pylance's but for rounding, and so are rows, except where distances tie.
"""

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.index.vector.ivf import Ivf
from lance_io.index.vector.vector_details import VERSIONS, Coding
from lance_io.reads.index import neighbours
from tests import products

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NUM_ROWS, DIM, PARTITIONS = 1500, 16, 6
PRODUCT = {"num_sub_vectors": 4}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "flat": ("IVF_FLAT", {}),
    "pq8": ("IVF_PQ", PRODUCT),
    "pq4": ("IVF_PQ", {**PRODUCT, "num_bits": 4}),
    "pq-rows": ("IVF_PQ", {**PRODUCT, "skip_transpose": True}),
    "sq": ("IVF_SQ", {}),
    "hnsw-flat": ("IVF_HNSW_FLAT", {}),
    "hnsw-pq": ("IVF_HNSW_PQ", PRODUCT),
    "hnsw-sq": ("IVF_HNSW_SQ", {}),
}
# Files of the codes above with other contents beside: outside of campaigns by one metric each.
ONE_METRIC = {"pq-rows": "cosine", "hnsw-flat": "l2", "hnsw-pq": "cosine", "hnsw-sq": "dot"}
CASES = [
    (name, metric, "float32")
    for name in KINDS
    for metric in ("l2", "cosine", "dot")
    if products.ALL or ONE_METRIC.get(name, metric) == metric
]
CASES += [(name, "l2", dtype) for name in ("flat", "pq8", "sq") for dtype in ("float16", "float64")]
CASES += [("flat", metric, dtype) for metric in ("cosine", "dot") for dtype in ("float16", "float64")]
CASES += [("flat", "hamming", "uint8")]
SEARCHES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"nprobes": 1}, {}),
    ({"nprobes": 3}, {}),
    ({"nprobes": PARTITIONS}, {}),
    ({"nprobes": PARTITIONS + 50}, {}),
    ({"nprobes": 3, "refine_factor": 5}, {}),
    ({"nprobes": 2, "refine_factor": 1}, {}),
    ({"nprobes": 4}, {"filter": "id % 3 = 0", "prefilter": True}),
    ({"nprobes": 3, "refine_factor": 3}, {"filter": "id % 2 = 0", "prefilter": True}),
    ({"nprobes": 4}, {"filter": "id % 3 = 0"}),
    ({"nprobes": 3}, {"fast_search": True}),
]


def vectors(matrix: np.ndarray) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), matrix.shape[1])


def drawn(num_rows: int, dtype: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == "uint8":
        return rng.integers(0, 256, (num_rows, DIM)).astype("u1")
    return (rng.normal(size=(num_rows, DIM)) * rng.uniform(0.5, 2, (num_rows, 1))).astype(dtype)


def table_of(matrix: np.ndarray, first: int = 0) -> pa.Table:
    return pa.table({"id": range(first, first + len(matrix)), "other": [0] * len(matrix), "v": vectors(matrix)})


def histories(folder: Path, name: str, metric: str, dtype: str, *, stable: bool) -> Iterator[tuple[str, Any]]:
    """A table with an index, after one change after another."""
    kind, options = KINDS[name]
    peer = lance.write_dataset(
        table_of(drawn(NUM_ROWS, dtype, 1)), str(folder), max_rows_per_file=600, enable_stable_row_ids=stable
    )
    peer.create_index("v", kind, metric=metric, num_partitions=PARTITIONS, **options)
    yield "fresh", peer
    peer.delete("id % 7 = 3")
    yield "deleted", peer
    peer.update({"other": "1"}, where="id % 50 = 1")  # with stable row ids, the moved rows stay covered
    peer = lance.write_dataset(table_of(drawn(80, dtype, 2), NUM_ROWS), str(folder), mode="append")
    yield "uncovered", peer
    peer.optimize.optimize_indices(num_indices_to_merge=0)
    yield "segments", peer


def nearly(dtype: str) -> dict[str, float]:
    """Tolerances of distances."""
    return {"rtol": 1e-3, "atol": 2e-3} if dtype in ("float16", "uint8") else {"rtol": 2e-5, "atol": 2e-6}


def is_tied(peer: Any, nearest: dict[str, Any], scan: dict[str, Any], tolerance: dict[str, float]) -> bool:
    """Whether it is arbitrary which candidates have their distances computed exactly."""
    cut = nearest["k"] * nearest.get("refine_factor", 1)
    plain = {key: value for key, value in nearest.items() if key != "refine_factor"}
    scan = {"filter": None, **scan} if scan.get("prefilter") else {}
    distances = peer.scanner(
        ["_distance"], nearest={**plain, "k": cut + 1}, **{**scan, "fast_search": True}
    ).to_table()["_distance"]
    if len(distances) <= cut:
        return False
    return bool(np.isclose(distances[cut - 1].as_py(), distances[cut].as_py(), **tolerance))


def is_between_partitions(peer: Any, query: np.ndarray, nearest: dict[str, Any], metric: str) -> bool:
    """Whether rounding to half a float decides which partitions are the nearest."""
    point = query.astype("f8") / (np.linalg.norm(query.astype("f8")) if metric == "cosine" else 1)
    for segment in peer.stats.index_stats("v_idx")["indices"]:
        centroids = np.array(segment["centroids"], dtype="f8")
        distances = -centroids @ point if metric == "dot" else ((centroids - point) ** 2).sum(axis=1)
        ordered = np.sort(distances)
        cut = nearest["nprobes"]
        if cut < len(ordered) and np.isclose(ordered[cut - 1], ordered[cut], rtol=3e-3, atol=3e-3):
            return True
    return False


def assert_as_near(ours: pa.Table, theirs: pa.Table, tolerance: dict[str, float]) -> None:
    """A graph may miss rows, which are found here; those that both find have one distance."""
    mine, its = ours["_distance"].to_numpy(), theirs["_distance"].to_numpy()
    assert len(mine) >= len(its)
    assert (mine[: len(its)] <= its * (1 + np.sign(its) * tolerance["rtol"]) + tolerance["atol"]).all(), (mine, its)
    by_row = dict(zip(ours["_rowid"].to_pylist(), mine.tolist(), strict=True))
    both = [
        (by_row[row], at) for row, at in zip(theirs["_rowid"].to_pylist(), its.tolist(), strict=True) if row in by_row
    ]
    assert len(both) >= 0.7 * len(its)
    np.testing.assert_allclose([pair[0] for pair in both], [pair[1] for pair in both], **tolerance)


def assert_same(ours: pa.Table, theirs: pa.Table, tolerance: dict[str, float]) -> None:
    mine, its = ours["_distance"].to_numpy(), theirs["_distance"].to_numpy()
    assert len(mine) == len(its)
    np.testing.assert_allclose(mine, its, **tolerance)
    pairs = zip(ours["_rowid"].to_pylist(), theirs["_rowid"].to_pylist(), strict=True)
    for at, (my_row, its_row) in enumerate(pairs):
        if my_row != its_row:  # rows may swap, also over the cut, where distances tie
            others = np.isclose(its, its[at], **tolerance).sum()
            assert others > 1 or at == len(its) - 1, (at, mine, its)
    assert len({*ours["_rowid"].to_pylist()}) == len(ours)


@pytest.mark.parametrize(("name", "metric", "dtype"), CASES, ids=["-".join(case) for case in CASES])
def test_searches_are_those_of_pylance(tmp_path: Path, name: str, metric: str, dtype: str) -> None:
    """In each state of a table, with and without stable row ids."""
    queries = drawn(3, dtype, 9)
    tolerance = nearly(dtype)
    num_searches = num_tied = 0
    for stable in (False, True) if dtype == "float32" else (True,):
        for state, peer in histories(tmp_path / str(stable), name, metric, dtype, stable=stable):
            ours = lance_io.dataset(str(tmp_path / str(stable)))
            for number, (asked, scan) in enumerate(SEARCHES):
                query = queries[number % len(queries)]
                nearest = {"column": "v", "q": pa.array(query), "k": 10, **asked}
                is_cut = "refine_factor" in asked or (state == "uncovered" and "fast_search" not in scan)
                is_cut = is_cut or ("filter" in scan and "prefilter" not in scan)
                num_searches += 1
                if is_cut and is_tied(peer, nearest, scan, tolerance):
                    num_tied += 1
                    continue
                columns = {"columns": ["id", "_distance"], "with_row_id": True}
                theirs = peer.scanner(nearest=nearest, **columns, **scan).to_table()
                if dtype == "float16" and is_between_partitions(peer, query, nearest, metric):
                    num_tied += 1
                    continue
                check = assert_as_near if name.startswith("hnsw") else assert_same
                check(ours.scanner(nearest=nearest, **columns, **scan).to_table(), theirs, tolerance)
    assert num_tied <= num_searches / (2 if "pq4" in name or dtype in ("uint8", "float16") else 8)


def indexed(folder: Path, kind: str = "flat", metric: str = "l2", **more: Any) -> tuple[Any, Any]:
    """A table with an index: pylance's and ours."""
    name, options = KINDS[kind]
    peer = lance.write_dataset(table_of(drawn(NUM_ROWS, "float32", 1)), str(folder), max_rows_per_file=600)
    peer.create_index("v", name, metric=metric, num_partitions=PARTITIONS, **options, **more)
    return peer, lance_io.dataset(str(folder))


def test_several_queries_are_searched_together(tmp_path: Path) -> None:
    peer, ours = indexed(tmp_path, "pq8")
    queries = drawn(5, "float32", 4)
    for more in ({}, {"refine_factor": 4}, {"distance_range": (1.0, 30.0)}):
        nearest = {"column": "v", "q": queries, "k": 7, "nprobes": 3, **more}
        mine = ours.to_table(["id"], nearest=nearest)
        assert mine["query_index"].to_pylist() == [number for number in range(5) for _ in range(7)]
        for number, query in enumerate(queries):
            single = peer.to_table(["id", "_distance"], nearest={**nearest, "q": query})
            its = mine.slice(7 * number, 7)
            assert its["id"] == single["id"]
            np.testing.assert_allclose(its["_distance"], single["_distance"], rtol=2e-5)


@pytest.mark.parametrize("kind", ["flat", "pq8", "sq"])
def test_distance_ranges(tmp_path: Path, kind: str) -> None:
    peer, ours = indexed(tmp_path, kind)
    query = drawn(1, "float32", 4)[0]
    whole = peer.to_table(["_distance"], nearest={"column": "v", "q": query, "k": 300, "nprobes": 4})["_distance"]
    low, high = ((whole[at].as_py() + whole[at + 1].as_py()) / 2 for at in (30, 200))
    for bounds in ((low, None), (None, high), (low, high), (high, low), (-1.0, 0.0)):
        for refine in (None, 3):
            nearest = {"column": "v", "q": query, "k": 20, "nprobes": 4, "distance_range": bounds}
            nearest["refine_factor"] = refine
            columns = {"columns": ["_distance"], "with_row_id": True}
            mine = ours.scanner(nearest=nearest, **columns).to_table()
            assert_same(mine, peer.scanner(nearest=nearest, **columns).to_table(), nearly("float32"))


def test_a_selective_filter_goes_by_rows(tmp_path: Path) -> None:
    """The few rows that a filter allows are compared exactly, also those outside of the partitions."""
    peer, ours = indexed(tmp_path, "pq8")
    query = drawn(1, "float32", 4)[0]
    nearest = {"column": "v", "q": query, "k": 10, "nprobes": 1}
    for text in ("id % 100 = 7", "id = 5", "id < 0"):
        scan = {"columns": ["id", "_distance"], "filter": text, "prefilter": True}
        exact = peer.to_table(nearest={**nearest, "use_index": False}, **scan)
        mine = ours.to_table(nearest=nearest, **scan)
        assert mine["id"] == exact["id"]
        np.testing.assert_allclose(mine["_distance"], exact["_distance"], rtol=2e-5)
    peer.create_scalar_index("id", "BTREE")
    again = lance_io.dataset(str(tmp_path))
    scan = {"columns": ["id", "_distance"], "filter": "id < 600", "prefilter": True}
    mine, its = again.to_table(nearest=nearest, **scan), peer.to_table(nearest=nearest, **scan)
    assert mine["id"] == its["id"]


def test_without_a_number_of_partitions_rows_are_looked_for_until_there_are_k(tmp_path: Path) -> None:
    peer, ours = indexed(tmp_path)
    query = drawn(1, "float32", 4)[0]
    exact = peer.to_table(["id"], nearest={"column": "v", "q": query, "k": 1000, "use_index": False})
    mine = ours.to_table(["id"], nearest={"column": "v", "q": query, "k": 1000})
    assert mine.num_rows == 1000
    all_rows = ours.to_table(["id"], nearest={"column": "v", "q": query, "k": 1000, "minimum_nprobes": PARTITIONS})
    assert all_rows["id"] == exact["id"]
    few = ours.to_table(["id"], nearest={"column": "v", "q": query, "k": 1000, "maximum_nprobes": 1})
    assert few.num_rows < 1000
    one_by_one = ours.to_table(["id"], nearest={"column": "v", "q": query, "k": 1000, "minimum_nprobes": 1})
    assert one_by_one.num_rows == 1000


def test_every_face_gives_the_same(tmp_path: Path) -> None:
    _, ours = indexed(tmp_path, "sq")
    query = drawn(1, "float32", 4)[0]
    nearest = {"column": "v", "q": query, "k": 9, "nprobes": 2, "refine_factor": 2}
    expected = ours.to_table(nearest=nearest)
    batches = ours.to_batches(nearest=nearest)
    assert pa.Table.from_batches(batches) == expected

    async def by_loop() -> pa.Table:
        table = await lance_io.AsyncDataset.open(str(tmp_path))
        try:
            return await table.to_table(nearest=nearest)
        finally:
            await table.aclose()

    assert asyncio.run(by_loop()) == expected
    assert ours.scanner(nearest=nearest, filter="id >= 0").count_rows() == 9


def test_nested_vectors_are_searched_by_index(tmp_path: Path) -> None:
    flat = table_of(drawn(NUM_ROWS, "float32", 1))
    nested = pa.table({"id": flat["id"], "s": pa.StructArray.from_arrays([flat["v"].combine_chunks()], ["v"])})
    peer = lance.write_dataset(nested, str(tmp_path))
    peer.create_index("s.v", "IVF_PQ", metric="l2", num_partitions=PARTITIONS, num_sub_vectors=4)
    ours = lance_io.dataset(str(tmp_path))
    for refine in (None, 3):
        nearest = {"column": "s.v", "q": drawn(1, "float32", 4)[0], "k": 9, "nprobes": 2, "refine_factor": refine}
        assert "ANNSubIndex" in ours.scanner(nearest=nearest).explain_plan()
        assert ours.to_table(["id"], nearest=nearest)["id"] == peer.to_table(["id"], nearest=nearest)["id"]


def test_moved_rows_are_followed(tmp_path: Path) -> None:
    """Rows that a compaction moved while it deferred the index."""
    peer, _ = indexed(tmp_path, "pq8")
    peer.delete("id % 5 = 0")
    peer.optimize.compact_files(target_rows_per_fragment=5000, defer_index_remap=True)
    ours = lance_io.dataset(str(tmp_path))
    for more in ({}, {"refine_factor": 3}):
        nearest = {"column": "v", "q": drawn(1, "float32", 4)[0], "k": 20, "nprobes": 3, **more}
        assert "ANNSubIndex" in ours.scanner(nearest=nearest).explain_plan()
        columns = {"columns": ["id", "_distance"], "with_row_id": True}
        mine = ours.scanner(nearest=nearest, **columns).to_table()
        assert_same(mine, peer.scanner(nearest=nearest, **columns).to_table(), nearly("float32"))


def test_indices_of_later_versions_leave_the_search_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = lance.write_dataset(table_of(drawn(NUM_ROWS, "float32", 1)), str(tmp_path))
    peer.create_index("v", "IVF_RQ", metric="l2", num_partitions=3)
    ours = lance_io.dataset(str(tmp_path))
    monkeypatch.setitem(VERSIONS, Coding.RQ, 1)
    nearest = {"column": "v", "q": drawn(1, "float32", 4)[0], "k": 9, "nprobes": 1}
    with pytest.warns(UserWarning, match="v_idx.*IVF_RQ, version 2"):
        mine = ours.to_table(["id"], nearest=nearest)
    assert mine["id"] == peer.to_table(["id"], nearest={**nearest, "use_index": False})["id"]


def test_another_metric_and_no_index_are_exact(tmp_path: Path) -> None:
    peer, ours = indexed(tmp_path, "pq8")
    nearest = {"column": "v", "q": drawn(1, "float32", 4)[0], "k": 9, "nprobes": 1}
    with pytest.warns(UserWarning, match="v_idx.*measures l2, the search cosine"):
        mine = ours.to_table(["id"], nearest={**nearest, "metric": "cosine"})
    exact = peer.to_table(["id"], nearest={**nearest, "metric": "cosine", "use_index": False})
    assert mine["id"] == exact["id"]
    assert exact["id"] == peer.to_table(["id"], nearest={**nearest, "metric": "cosine"})["id"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            ours.to_table(["id"], nearest={**nearest, "metric": "dot"})
    assert len(caught) == 1
    exact = peer.to_table(["id"], nearest={**nearest, "use_index": False})
    assert ours.to_table(["id"], nearest={**nearest, "use_index": False})["id"] == exact["id"]


def test_plans_name_index_and_partitions(tmp_path: Path) -> None:
    peer, ours = indexed(tmp_path, "pq8")
    nearest = {"column": "v", "q": drawn(1, "float32", 4)[0], "k": 9, "nprobes": 2, "refine_factor": 3}
    text = ours.scanner(["id"], nearest=nearest).explain_plan()
    (index,) = peer.describe_indices()
    assert "KNNVectorDistance: metric=l2, k=9" in text
    assert "ANNSubIndex: name=v_idx, type=IVF_PQ, k=27, deltas=1, metric=l2" in text
    assert f"uuid={index.segments[0].uuid}, minimum_nprobes=2, maximum_nprobes=2" in text
    theirs = peer.scanner(["id"], nearest=nearest).explain_plan()
    assert "ANNSubIndex: name=v_idx, k=27, deltas=1, metric=L2" in theirs


@pytest.mark.parametrize("kind", ["flat", "pq8", "sq"])
@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_queries_without_a_direction_find_nothing(tmp_path: Path, kind: str, metric: str) -> None:
    """As in pylance, but for scalar codes, which it compares with a query of NaN."""
    peer, ours = indexed(tmp_path, kind, metric)
    query = drawn(1, "float32", 4)[0]
    for bad in (np.nan, np.inf):
        query[3] = bad
        nearest = {"column": "v", "q": query, "k": 5, "nprobes": 3}
        assert ours.to_table(["id"], nearest=nearest).num_rows == 0
        if kind != "sq":
            assert peer.to_table(["id"], nearest=nearest).num_rows == 0
    if metric == "cosine":
        nearest = {"column": "v", "q": np.zeros(DIM, "f4"), "k": 5, "nprobes": 3}
        assert ours.to_table(["id"], nearest=nearest).num_rows == 0


def test_small_and_empty_tables(tmp_path: Path) -> None:
    query = drawn(1, "float32", 4)[0]
    nearest = {"column": "v", "q": query, "k": 5, "nprobes": 10}
    for num_rows, kind in ((1, "IVF_FLAT"), (5, "IVF_FLAT"), (5, "IVF_SQ")):
        folder = str(tmp_path / f"{num_rows}{kind}")
        peer = lance.write_dataset(table_of(drawn(num_rows, "float32", 1)), folder)
        peer.create_index("v", kind, metric="l2", num_partitions=1)
        mine = lance_io.dataset(folder).to_table(["id"], nearest=nearest)
        assert mine["id"] == peer.to_table(["id"], nearest=nearest)["id"]
        peer.delete("true")
        assert lance_io.dataset(folder).to_table(["id"], nearest=nearest).num_rows == 0
    peer, ours = indexed(tmp_path / "more")
    every = {**nearest, "k": 5 * NUM_ROWS}
    assert ours.to_table(["id"], nearest=every)["id"] == peer.to_table(["id"], nearest=every)["id"]


def test_effort_goes_from_one_partition_to_all(tmp_path: Path) -> None:
    _, ours = indexed(tmp_path)
    nearest = {"column": "v", "q": drawn(1, "float32", 4)[0], "k": 5, "nprobes": 2}
    plans = [
        ours.scanner(["id"], nearest={**nearest, "search_effort": effort}).explain_plan() for effort in (0, 0.5, 1)
    ]
    num_partitions = int(plans[0].split("] of ")[1].split(",")[0])
    firsts = [int(plan.split("minimum_nprobes=")[1].split(",")[0]) for plan in plans]
    assert firsts == [1, round(num_partitions**0.5), num_partitions]


def test_vectors_that_are_null_or_no_numbers_are_left_out(tmp_path: Path) -> None:
    values = drawn(NUM_ROWS, "float32", 1)
    values[5, 0] = np.nan
    is_null = pa.array([row % 7 == 0 for row in range(NUM_ROWS)])
    column = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), DIM, mask=is_null)
    peer = lance.write_dataset(pa.table({"id": range(NUM_ROWS), "v": column}), str(tmp_path))
    peer.create_index("v", "IVF_SQ", metric="l2", num_partitions=PARTITIONS)
    ours = lance_io.dataset(str(tmp_path))
    nearest = {"column": "v", "q": drawn(1, "float32", 4)[0], "k": NUM_ROWS, "nprobes": PARTITIONS}
    mine, its = (table.to_table(["id"], nearest=nearest) for table in (ours, peer))
    assert mine.num_rows == its.num_rows == NUM_ROWS - len(range(0, NUM_ROWS, 7)) - 1
    assert {*mine["id"].to_pylist()} == {*its["id"].to_pylist()}


def test_several_queries_hold_few_distances_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries together need memory for their distances: of as many as fit, at least one."""
    values = np.random.default_rng(3).normal(size=(900, 8)).astype("f4")
    ds = lance_io.write_dataset(pa.table({"id": range(900), "v": vectors(values)}), tmp_path)
    ds.create_index("v", "IVF_SQ", num_partitions=4)
    nearest = {"column": "v", "q": values[:30] + 0.1, "k": 5, "nprobes": 4}
    together = ds.to_table(["id"], nearest=nearest)
    sizes, compare = [], Ivf.distances
    monkeypatch.setattr(neighbours, "_DISTANCES_MAX", 2000)
    monkeypatch.setattr(Ivf, "distances", lambda ivf, *terms: sizes.append(terms[3].num_rows) or compare(ivf, *terms))
    assert ds.to_table(["id"], nearest=nearest) == together
    assert sizes == [1800] * 15


def test_distances_that_overflow_do_not_count(tmp_path: Path) -> None:
    """More such rows than are looked up at first, some of them deleted."""
    values = np.tile(np.arange(1, 501, dtype="f4")[:, None], 4)
    values[:200] = 3e38
    peer = lance.write_dataset(pa.table({"id": range(500), "v": vectors(values)}), str(tmp_path))
    peer.create_index("v", "IVF_FLAT", metric="dot", num_partitions=1, ivf_centroids=np.zeros((1, 4), "f4"))
    peer.delete("id < 195")
    ours = lance_io.dataset(str(tmp_path))
    for value, num_rows in ((2, 20), (3e38, 0)):
        nearest = {"column": "v", "q": np.full(4, value, "f4"), "k": 20, "nprobes": 1}
        for scan in ({}, {"filter": "id > 190", "prefilter": True}):
            mine, its = (table.to_table(["id", "_distance"], nearest=nearest, **scan) for table in (ours, peer))
            assert mine == its
            assert mine.num_rows == num_rows
