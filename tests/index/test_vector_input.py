"""Odd and wrong parameters of searches by an index: pylance's answer, or its refusal."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from pathlib import Path

NUM_ROWS, DIM, PARTITIONS = 700, 8, 4
QUERY = [0.1] * DIM
KINDS: dict[str, dict[str, Any]] = {"IVF_FLAT": {}, "IVF_PQ": {"num_sub_vectors": 2}, "IVF_SQ": {}}
REFUSED: list[dict[str, Any]] = [
    {"q": [0.1] * (DIM - 1)},
    {"q": [[0.1] * DIM, [0.1] * (DIM + 1)]},
    {"q": "text"},
    {"q": None},
    {"k": 0},
    {"k": -1},
    {"nprobes": 0},
    {"refine_factor": 0},
    {"ef": 0},
    {"minimum_nprobes": 3, "maximum_nprobes": 2},
    {"minimum_nprobes": 0},
    {"maximum_nprobes": 0},
    {"metric": "manhattan"},
    {"metric": "hamming"},
    {"approx_mode": "wild"},
    {"distance_range": (1.0,)},
    {"column": "id"},
    {"column": "none"},
    {"column": ""},
    {"column": "V"},
    {"column": "v.item"},
    {"q": []},
    {"q": [[]]},
    {"q": {}},
    {"q": np.zeros((2, 2, DIM))},
    {"q": np.zeros((0, DIM))},
    {"k": "x"},
    {"nprobes": "x"},
    {"nprobes": -1},
    {"nprobes": 3, "maximum_nprobes": 2},
    {"nprobes": 1, "minimum_nprobes": 2},
    {"refine_factor": -1},
    {"refine_factor": 1 << 32},
    {"metric": ""},
    {"metric": 5},
    {"ef": -1},
    {"query_parallelism": -2},
    {"distance_range": (0.0,)},
]
ANSWERED: list[dict[str, Any]] = [
    {"k": NUM_ROWS, "nprobes": PARTITIONS},
    {"k": 3 * NUM_ROWS, "nprobes": PARTITIONS},
    {"nprobes": 1000},
    {"minimum_nprobes": PARTITIONS, "maximum_nprobes": PARTITIONS},
    {"minimum_nprobes": 1000},
    {"refine_factor": 1, "nprobes": 2},
    {"refine_factor": 100, "nprobes": PARTITIONS},
    {"nprobes": 2, "ef": 5},
    {"nprobes": 2, "approx_mode": "fast"},
    {"nprobes": 2, "approx_mode": "accurate"},
    {"nprobes": 2, "distance_range": (None, None)},
    {"nprobes": PARTITIONS, "distance_range": (5.0, 1.0)},
    {"nprobes": 2, "q": np.full(DIM, 0.1, "f2")},
    {"nprobes": 2, "q": np.full(DIM, 0.1, "f8")},
    {"nprobes": 2, "q": [1] * DIM},
    {"nprobes": 2, "q": pa.array(QUERY, pa.float32())},
    {"nprobes": 2, "q": [0.0] * DIM},
    {"nprobes": 2, "metric": "L2"},
    {"nprobes": 2, "q": [1e30] * DIM},  # distances that no number holds
    {"nprobes": 2, "q": [-0.0] * DIM},
    {"nprobes": 2, "q": np.full(DIM, 3, "u1")},
    {"nprobes": 2, "q": [[0.1] * DIM, [0.2] * DIM]},
    {"nprobes": 2, "q": [[0.1] * DIM, [0.2] * DIM], "refine_factor": 3},
    {"nprobes": PARTITIONS, "q": [[0.1] * DIM, [0.1] * DIM], "k": 3 * NUM_ROWS},
    {"minimum_nprobes": 2, "nprobes": 2},
]


@pytest.fixture(scope="module", params=KINDS)
def tables(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """A table with an index: pylance's and ours."""
    folder = str(tmp_path_factory.mktemp(request.param))
    values = np.random.default_rng(3).normal(size=(NUM_ROWS, DIM)).astype("f4")
    rows = pa.table({"id": range(NUM_ROWS), "v": pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), DIM)})
    peer = lance.write_dataset(rows, folder, max_rows_per_file=300)
    peer.create_index("v", request.param, metric="l2", num_partitions=PARTITIONS, **KINDS[request.param])
    return peer, lance_io.dataset(folder)


def rows_of(table: Any, asked: dict[str, Any]) -> pa.Table:
    nearest = {"column": "v", "q": QUERY, "k": 5, **asked}
    return table.to_table(["id", "_distance"], nearest=nearest)


def test_searches_that_pylance_refuses(tables: tuple[Any, Any]) -> None:
    peer, ours = tables
    for asked in REFUSED:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the index has another metric
            with pytest.raises((ValueError, TypeError, OSError, OverflowError, LookupError)):
                rows_of(peer, asked)
            with pytest.raises((ValueError, TypeError, OverflowError, KeyError)) as caught:
                rows_of(ours, asked)
        assert str(caught.value), asked


def test_searches_that_pylance_answers(tables: tuple[Any, Any]) -> None:
    peer, ours = tables
    for asked in ANSWERED:
        mine, its = rows_of(ours, asked), rows_of(peer, asked)
        assert mine.num_rows == its.num_rows, asked
        np.testing.assert_allclose(mine["_distance"], its["_distance"], rtol=2e-5, atol=1e-6, err_msg=str(asked))
        distances = its["_distance"].to_numpy()
        assert mine.column_names == its.column_names, asked
        if "query_index" in its.column_names:
            assert mine["query_index"] == its["query_index"]
        for at, (row, expected) in enumerate(zip(mine["id"].to_pylist(), its["id"].to_pylist(), strict=True)):
            assert row == expected or np.isclose(distances, distances[at], rtol=2e-5).sum() > 1 or at % 5 == 4, asked


def test_few_rows_and_empty_partitions(tmp_path: Path) -> None:
    """Fewer rows than codewords, a partition of one row, and partitions without rows."""
    values = np.zeros((300, DIM), "f4")
    values[0] = 100.0  # alone
    values[1:40] = np.random.default_rng(4).normal(size=(39, DIM))
    rows = pa.table({"id": range(300), "v": pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), DIM)})
    for kind, options in KINDS.items():
        folder = str(tmp_path / kind)
        peer = lance.write_dataset(rows, folder)
        peer.create_index("v", kind, metric="l2", num_partitions=12, **options)
        peer.delete("id > 40 AND id % 2 = 0")
        ours = lance_io.dataset(folder)
        for asked in ({"k": 300, "nprobes": 12}, {"q": [100.0] * DIM, "nprobes": 1}, {"k": 45, "nprobes": 12}):
            mine, its = rows_of(ours, asked), rows_of(peer, asked)
            np.testing.assert_allclose(mine["_distance"], its["_distance"], rtol=2e-5, atol=1e-4)
        peer.delete("true")
        assert rows_of(lance_io.dataset(folder), {}).num_rows == rows_of(peer, {}).num_rows == 0


def test_an_empty_table_is_as_in_pylance(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array([], "i8"), "v": pa.array([], pa.list_(pa.float32(), DIM))})
    for kind, options in KINDS.items():
        folder = str(tmp_path / kind)
        lance.write_dataset(rows, folder).create_index("v", kind, metric="l2", num_partitions=PARTITIONS, **options)
        for asked in ({}, {"refine_factor": 2}, {"q": [QUERY, QUERY]}, {"use_index": False}, {"nprobes": 1}):
            mine, its = (rows_of(each.dataset(folder), asked) for each in (lance_io, lance))
            assert (mine.num_rows, mine.schema) == (its.num_rows, its.schema) == (0, its.schema)


def test_a_zero_query_by_cosine_is_as_in_pylance(tmp_path: Path) -> None:
    values = np.random.default_rng(3).normal(size=(NUM_ROWS, DIM)).astype("f4")
    rows = pa.table({"id": range(NUM_ROWS), "v": pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), DIM)})
    for kind in ("IVF_FLAT", "IVF_PQ"):
        peer = lance.write_dataset(rows, str(tmp_path / kind))
        peer.create_index("v", kind, metric="cosine", num_partitions=PARTITIONS, **KINDS[kind])
        for asked in ({"q": [0.0] * DIM}, {"q": [np.nan] * DIM}, {"q": [np.inf] * DIM}):
            assert rows_of(lance_io.dataset(str(tmp_path / kind)), asked).num_rows == rows_of(peer, asked).num_rows
