"""Bounds of distances hold for whatever numbers, and what they leave out is not among the nearest."""

from __future__ import annotations

from typing import Any

import lance.arrow
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as made

from lance_io.index.vector import flat_search
from lance_io.index.vector.distances import Metric, Queries, bounds, exact
from lance_io.index.vector.flat_search import FlatSearch, SearchTerms
from lance_io.index.vector.vector_arrays import vector_rows
from tests.seeds import seeded

FLOATS = (Metric.L2, Metric.COSINE, Metric.DOT)
DTYPES = st.sampled_from(["f4", "f8"])


def drawn_floats(dtype: str) -> st.SearchStrategy[float]:
    """Of every size, with the neighbours of 1,000 more often than others."""
    width = 8 * np.dtype(dtype).itemsize
    near = st.integers(-9, 9).map(lambda step: float(np.dtype(dtype).type(1000 + step / 1024)))
    return st.one_of(st.floats(width=width), st.floats(-2, 2, width=width), near)


@st.composite
def drawn_pairs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    dtype, dim = draw(DTYPES), draw(st.integers(1, 9))
    rows = made.arrays(dtype, (draw(st.integers(1, 12)), dim), elements=drawn_floats(dtype))
    queries = made.arrays(dtype, (draw(st.integers(1, 3)), dim), elements=drawn_floats(dtype))
    return draw(rows), draw(queries)


@seeded
@settings(max_examples=60, deadline=None)
@given(drawn_pairs(), st.sampled_from(FLOATS))
def test_distances_lie_within_their_bounds(pair: tuple[np.ndarray, np.ndarray], metric: Metric) -> None:
    rows, queries = pair
    low, high = bounds(metric, rows, Queries.of(queries, rows.dtype), has_high=True)
    assert high is not None
    for number, query in enumerate(queries):
        distances = exact(metric, rows, query).astype("f8")
        assert not (low[number] > distances).any()
        assert not (high[number] < distances).any()
        assert np.isnan(low[number][np.isnan(distances)]).all()  # no bound of what is no number
    one_by_one = np.concatenate([exact(metric, rows[at : at + 1], queries[0]) for at in range(len(rows))])
    assert exact(metric, rows, queries[0]).tobytes() == one_by_one.tobytes()  # of the row alone


@seeded
@settings(max_examples=60, deadline=None)
@given(drawn_pairs(), st.sampled_from(FLOATS), st.integers(1, 5), st.booleans(), st.data())
def test_the_nearest_are_those_of_all_distances_sorted(
    pair: tuple[np.ndarray, np.ndarray], metric: Metric, k: int, is_cut: bool, data: Any
) -> None:
    rows, queries = pair
    lower, upper = (-1.0, 5.0) if data.draw(st.booleans()) else (None, None)
    search = FlatSearch(SearchTerms(metric, queries, k, lower=lower, upper=upper))
    column = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
    ids = np.arange(len(rows), dtype=np.uint64)
    cut = len(rows) // 2 if is_cut else 0
    for part in (slice(cut, None), slice(0, cut)):  # in whatever order
        search.add(column[part], ids[part], ids[part].astype(np.int64))
    for query, found in zip(queries, search.results(), strict=True):
        distances = exact(metric, rows, query)
        counts = ~np.isnan(distances)
        if lower is not None:
            counts &= (distances >= lower) & (distances < upper)
        kept = np.flatnonzero(counts)
        expected = kept[np.lexsort((kept, distances[kept]))][:k]
        assert found.ids.tolist() == expected.tolist()
        assert found.distances.tobytes() == distances[expected].tobytes()


def test_few_distances_are_computed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20,000 rows and 8 queries, those that may be among the ten nearest."""
    generator = np.random.default_rng(3)
    rows, queries = generator.normal(size=(20_000, 32)).astype("f4"), generator.normal(size=(8, 32)).astype("f4")
    computed = 0

    def counted(metric: Metric, vectors: Any, query: Any) -> Any:
        nonlocal computed
        computed += len(vectors)
        return exact(metric, vectors, query)

    monkeypatch.setattr(flat_search, "exact", counted)
    for metric in FLOATS:
        search = FlatSearch(SearchTerms(metric, queries, 10))
        column = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), 32)
        ids = np.arange(len(rows), dtype=np.uint64)
        search.add(column, ids, ids.astype(np.int64))
        assert [len(one) for one in search.results()] == [10] * 8
    assert computed < 3 * 8 * 200


@pytest.mark.parametrize("is_large", [False, True])
def test_lists_of_vectors_are_read_from_any_slice(is_large: bool) -> None:
    lists = [[[1, 2], None], None, [], [[3, 4], [5, 6]], [None], [[7, None]]] * 3
    vector = pa.list_(pa.float32(), 2)
    array = pa.array(lists, pa.large_list(vector) if is_large else pa.list_(vector))
    ids = np.arange(len(lists), dtype=np.uint64)
    for start in range(7):
        search = FlatSearch(SearchTerms(Metric.L2, np.zeros((1, 2), "f4"), 20, is_joined=True))
        search.add(array.slice(start, 8), ids[start : start + 8], ids[start : start + 8].astype(np.int64))
        (found,) = search.results()
        expected = [(5.0, 0), (25.0, 3), (49.0, 5)]
        rows = [(distance, at) for at in range(start, start + 8) for distance, kind in expected if at % 6 == kind]
        assert list(zip(found.distances.tolist(), found.ids.tolist(), strict=True)) == sorted(rows)


def test_vectors_of_a_registered_type() -> None:
    """An item type that pylance registers reaches the search as an extension type."""
    bits = np.array([[1, 2], [3, 4]], "<u2")
    storage = pa.FixedSizeBinaryArray.from_buffers(pa.binary(2), 4, [None, pa.py_buffer(bits.tobytes())])
    items = pa.ExtensionArray.from_storage(lance.arrow.BFloat16Type(), storage)
    found = vector_rows(pa.FixedSizeListArray.from_arrays(items, 2))
    np.testing.assert_array_equal(found.matrix, bits)
