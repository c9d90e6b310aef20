"""Vector search without an index, beside pylance's and beside distances that numpy computes."""

from __future__ import annotations

import asyncio
import pickle
from random import Random
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.dataset import ScannerBuilder as PeerBuilder

import lance_io
from lance_io.dataset import ScannerBuilder
from tests.seeds import seed_of

if TYPE_CHECKING:
    from pathlib import Path

    from lance_io.store.counters import StatsSnapshot

DIM = 12
METRICS = ("l2", "cosine", "dot")
RELATIVE, ABSOLUTE = 1e-5, 2e-6  # what float32 loses of terms of about 1 when they cancel


def vectors(values: Any, item: pa.DataType | None = None, valid: Any = None) -> pa.FixedSizeListArray:
    """Fixed-size lists of a matrix."""
    matrix = np.asarray(values)
    items = pa.array(matrix.reshape(-1))
    mask = None if valid is None else pa.array(~np.asarray(valid))
    return pa.FixedSizeListArray.from_arrays(items if item is None else items.cast(item), matrix.shape[1], mask=mask)


def table_of(column: pa.Array) -> pa.Table:
    numbers = range(len(column))
    return pa.table({"a": numbers, "v": column, "t": [f"row {number}" for number in numbers]})


def matrix(num_rows: int, seed: int | str = 0, dim: int = DIM) -> np.ndarray:
    return np.random.default_rng([*str(seed).encode()]).normal(size=(num_rows, dim)).astype("f4")


def assert_same(ours: pa.Table, theirs: pa.Table, all_of_theirs: pa.Table | None = None) -> None:
    """The same rows at the same distances. Where rounding swaps neighbours, the other row is as near.

    all_of_theirs  distances of all rows, where some may be swapped over the cut
    """
    assert ours.schema.equals(theirs.schema, check_metadata=True)
    assert ours.num_rows == theirs.num_rows
    found, expected = ours["_distance"].to_numpy(), theirs["_distance"].to_numpy()
    np.testing.assert_allclose(found, expected, rtol=RELATIVE, atol=ABSOLUTE)
    assert not np.isnan(found).any()
    if ours["_rowid"] == theirs["_rowid"]:
        if "a" in ours.column_names:
            assert ours["a"] == theirs["a"]
        return
    assert all_of_theirs is not None, (ours["_rowid"], theirs["_rowid"])
    names = [name for name in ("query_index", "_rowid") if name in ours.column_names]
    distances = {
        tuple(row[name] for name in names): row["_distance"]
        for row in all_of_theirs.select([*names, "_distance"]).to_pylist()
    }
    keys = [tuple(row[name] for name in names) for row in ours.select(names).to_pylist()]
    assert len({*keys}) == len(keys)
    np.testing.assert_allclose(found, [distances[key] for key in keys], rtol=RELATIVE, atol=ABSOLUTE)


# -- beside pylance, at random ---------------------------------------------------------------------------------------


def drawn_column(random: Random, num_rows: int) -> tuple[pa.Array, Any]:
    """A column of vectors, some null, some with NaN, zeros or nulls, some alike; and queries."""
    generator = np.random.default_rng(random.getrandbits(32))
    dim = random.choice([3, 8, 33])
    kind = random.choice(["float16", "float32", "float64", "uint8", "lists"])
    if kind == "uint8":
        values = generator.integers(0, 256, (num_rows, dim)).astype("u1")
        query = generator.integers(0, 256, (3, dim)).astype("u1")
        return vectors(values, valid=generator.random(num_rows) > 0.1), query
    values = (generator.normal(size=(num_rows, dim)) * random.choice([1, 1, 100])).astype("f2").astype("f4")
    query = generator.normal(size=(3, dim)).astype("f2").astype("f4")
    values[generator.integers(0, num_rows, 4)] = values[0]
    values[generator.integers(0, num_rows, 2)] = query[0]
    if kind == "lists":
        cuts = np.sort(generator.integers(0, num_rows + 1, num_rows // 2 - 1))
        offsets = np.concatenate(([0], cuts, [num_rows])).astype("i4")
        return pa.ListArray.from_arrays(pa.array(offsets), vectors(values)), query
    values[generator.integers(0, num_rows, 2)] = 0
    values[generator.integers(0, num_rows, 3), 0] = np.nan
    values[generator.integers(0, num_rows, 2), 0] = np.inf
    return vectors(values.astype(kind), valid=generator.random(num_rows) > 0.1), query


@pytest.mark.parametrize("place", range(16))
def test_drawn_tables_and_searches_are_answered_as_by_pylance(tmp_path: Path, place: int) -> None:
    random = Random(seed_of(f"nearest {place}"))
    column, queries = drawn_column(random, random.choice([40, 300, 1500]))
    options = {"enable_stable_row_ids": random.random() < 0.5}
    options["data_storage_version"] = random.choice(["2.0", "2.1", "2.2"])
    peer = lance.write_dataset(table_of(column), str(tmp_path), max_rows_per_file=len(column) // 3 + 1, **options)
    if random.random() < 0.6:
        peer.delete(f"a % {random.choice([3, 7])} = 1")
    if random.random() < 0.5:
        peer.update({"t": "'new'"}, where="a % 5 = 2")
    ours = lance_io.dataset(str(tmp_path))
    for _ in range(4):
        nearest: dict[str, Any] = {"column": "v", "k": random.choice([1, 2, 10, 50, 5000])}
        nearest["q"] = random.choice([queries[0], queries, queries[:2], queries[:1], queries[1].tolist()])
        if column.type != vectors(np.zeros((1, len(queries[0])), "u1")).type:
            nearest["metric"] = random.choice(METRICS)
        scan: dict[str, Any] = {"columns": ["_distance", "a", "t"], "with_row_id": True}
        whole = peer.to_table(nearest={**nearest, "k": 10_000}, **scan)
        if random.random() < 0.3 and whole.num_rows:
            bounds = sorted(random.choices(whole["_distance"].to_pylist(), k=2))
            nearest["distance_range"] = (bounds[0] - 0.01, bounds[1] + 0.01)
        if random.random() < 0.5:
            scan |= {"filter": random.choice(["a % 2 = 0", "a > 9000", "t = 'new' or a < 20"])}
            scan["prefilter"] = random.random() < 0.6
        if random.random() < 0.3:
            scan |= {"limit": random.choice([1, 4, 30]), "offset": random.choice([0, 3])}
        expected = peer.to_table(nearest=nearest, **scan)
        assert_same(ours.to_table(nearest=nearest, **scan), expected, whole)
        found = asyncio.run(_async_table(str(tmp_path), nearest, scan))
        assert_same(found, expected, whole)


async def _async_table(uri: str, nearest: dict[str, Any], scan: dict[str, Any]) -> pa.Table:
    ds = await lance_io.AsyncDataset.open(uri)
    found = await ds.to_table(nearest=nearest, **scan)
    await ds.aclose()
    return found


# -- beside numpy ----------------------------------------------------------------------------------------------------


def reference(metric: str, values: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Distances by their definitions, in numbers of 80 bits, as float32."""
    x, q = values.astype("f16" if hasattr(np, "float128") else "f8"), query.astype("f8")
    if metric == "l2":
        return ((x - q) ** 2).sum(axis=1).astype("f4")
    products = (x * q).sum(axis=1)
    if metric == "dot":
        return (1 - products).astype("f4")
    return (1 - products / np.sqrt((x * x).sum(axis=1) * (q * q).sum())).astype("f4")


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_distances_are_exact_where_a_product_cannot_tell_rows_apart(tmp_path: Path, metric: str, dtype: str) -> None:
    """Vectors far from the origin and near each other: the product of matrices loses all digits of their distances."""
    values = (1000 + matrix(5000) * 1e-3).astype(dtype)
    ds = lance_io.write_dataset(table_of(vectors(values)), str(tmp_path))
    query = values[77] + np.dtype(dtype).type(1e-4)
    found = ds.to_table(["a"], nearest={"column": "v", "q": pa.array(query), "k": 25, "metric": metric})
    expected = reference(metric, values, query)
    order = np.lexsort((np.arange(len(values)), expected))[:25]
    tolerance = 0 if metric == "l2" else 1e-9
    np.testing.assert_allclose(found["_distance"].to_numpy(), expected[order], rtol=1e-6, atol=tolerance)
    if metric == "l2":
        assert found["a"].to_pylist() == order.tolist()


def test_bfloat16_is_searched(tmp_path: Path) -> None:
    from lance_io.arrow import bfloat16_array

    values = matrix(200)
    items = bfloat16_array(values.reshape(-1).tolist())
    ds = lance_io.write_dataset(table_of(pa.FixedSizeListArray.from_arrays(items, DIM)), str(tmp_path))
    stored = np.array([float(one) for one in items.to_pylist()], "f4").reshape(-1, DIM)
    own = ds.take([7])["v"].chunk(0)[0]
    for query, floats in ((own, stored[7]), (stored[9], stored[9])):
        for metric in METRICS:
            found = ds.to_table(["a"], nearest={"column": "v", "q": query, "k": 9, "metric": metric})
            expected = reference(metric, stored, floats)
            assert found["a"].to_pylist() == np.lexsort((np.arange(200), expected))[:9].tolist()
            np.testing.assert_allclose(found["_distance"].to_numpy(), np.sort(expected)[:9], rtol=1e-6, atol=1e-7)


def test_ties_go_by_row(tmp_path: Path) -> None:
    values = np.tile(matrix(2), (1000, 1))
    peer = lance.write_dataset(table_of(vectors(values)), str(tmp_path), max_rows_per_file=600)
    ours = lance_io.dataset(str(tmp_path))
    reverse = ours.get_fragments()[::-1]
    for k in (7, 990, 1100):
        for query in (values[0], values[:2]):
            nearest = {"column": "v", "q": query, "k": k}
            expected = peer.to_table(["a"], nearest=nearest)
            found = ours.to_table(["a"], nearest=nearest)
            assert found.drop("_distance") == expected.drop("_distance")
            assert ours.to_table(["a"], nearest=nearest, fragments=reverse) == found


def test_nulls_in_lists_of_vectors_are_no_vectors(tmp_path: Path) -> None:
    nan = float("nan")
    lists = [[[3.0, 0], None], [None], [[nan, 1], [2, 0]], [[nan, nan]], [], None, [[1, 0]]]
    column = pa.array(lists, pa.list_(pa.list_(pa.float32(), 2)))
    ds = lance_io.write_dataset(table_of(column), str(tmp_path))
    found = ds.to_table(["a"], nearest={"column": "v", "q": [[1.0, 0], [0, 0]], "k": 9})
    assert found.to_pydict() == {"a": [6, 2, 0], "_distance": [1, 5, 13]}


def test_nothing_is_near_a_query_with_nan(tmp_path: Path) -> None:
    ds = lance_io.write_dataset(table_of(vectors(matrix(50))), str(tmp_path))
    query = matrix(2)
    query[0, 3] = np.nan
    assert ds.to_table(nearest={"column": "v", "q": query[0]}).num_rows == 0
    found = ds.to_table(["a"], nearest={"column": "v", "q": query, "k": 3})
    assert found["query_index"].to_pylist() == [1, 1, 1]


# -- what is shown ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def flat_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """200 rows in four fragments, some deleted, with a struct that holds vectors, too."""
    uri = str(tmp_path_factory.mktemp("search") / "flat")
    values = matrix(200)
    table = table_of(vectors(values))
    nested = pa.StructArray.from_arrays([vectors(values[::-1]), pa.array(range(200))], ["w", "x"])
    table = table.append_column("s", nested).replace_schema_metadata({"origin": "tests"})
    lance.write_dataset(table, uri, max_rows_per_file=50).delete("a % 10 = 4")
    return uri


SHOWN: list[dict[str, Any]] = [
    {},
    {"columns": ["a"]},
    {"columns": ["_distance", "a"]},
    {"columns": []},
    {"columns": ["a"], "with_row_id": True, "with_row_address": True},
    {"with_row_address": True},
    {"columns": ["s.x", "_rowid"]},
    {"columns": {"b": "a + 1"}},
    {"columns": {"b": "a + 1", "d": "_distance * 2"}},
    {"columns": {"d": "_distance + a"}},
    {"columns": ["a"], "disable_scoring_autoprojection": True},
    {"disable_scoring_autoprojection": True},
    {"columns": ["_distance"], "disable_scoring_autoprojection": True},
    {"columns": ["a"], "filter": "_distance < 20 and a > 50"},
    {"columns": ["t"], "filter": "s.x % 2 = 0"},
    {"columns": ["t"], "filter": "_rowid > 40"},
    {"columns": ["t"], "filter": "a > 50", "prefilter": True},
    {"columns": ["a"], "order_by": ["a"]},
    {"columns": ["t"], "order_by": ["a"], "limit": 3, "offset": 2},
    {"columns": ["a"], "limit": 3, "offset": 2},
    {"columns": ["a"], "limit": 0},
    {"columns": ["a"], "filter": "a < 100", "limit": 2, "offset": 1},
    {"columns": ["a"], "fast_search": True},
]


@pytest.mark.parametrize("options", SHOWN, ids=[str(one) for one in SHOWN])
def test_columns_and_windows_are_those_of_pylance(flat_uri: str, options: dict[str, Any]) -> None:
    peer, ours = lance.dataset(flat_uri), lance_io.dataset(flat_uri)
    for query in (matrix(1, 5)[0], matrix(2, 6)):
        for column in ("v", "s.w"):
            nearest = {"column": column, "q": query, "k": 12}
            expected = peer.to_table(nearest=nearest, **options)
            found = ours.to_table(nearest=nearest, **options)
            assert ours.scanner(nearest=nearest, **options).projected_schema == expected.schema
            assert found.schema.equals(expected.schema, check_metadata=True)
            for name in expected.column_names:
                if pa.types.is_floating(expected[name].type):
                    np.testing.assert_allclose(found[name].to_numpy(), expected[name].to_numpy(), rtol=1e-5)
                else:
                    assert found[name].combine_chunks() == expected[name].combine_chunks()


def test_every_way_to_ask_gives_the_same(flat_uri: str) -> None:
    ds, nearest = lance_io.dataset(flat_uri), {"column": "v", "q": matrix(1, 5)[0], "k": 12}
    expected = ds.to_table(["a"], nearest=nearest)
    scanner = ds.scanner(["a"], nearest=nearest)
    assert pa.Table.from_batches(ds.to_batches(["a"], nearest=nearest)) == expected
    assert scanner.to_reader().read_all() == expected
    vectors_alone = ds.scanner(["v", "_rowaddr"]).explain_io(cold=True)
    assert scanner.explain_io(cold=True).num_requests == vectors_alone.num_requests
    assert "the rows that are found" in scanner.explain_io().notes[0]
    assert pickle.loads(pickle.dumps(scanner)).to_table() == expected
    assert scanner.head(5) == ds.head(5, columns=["a"], nearest=nearest) == expected.slice(0, 5)
    assert [one.num_rows for one in ds.to_batches(["a"], nearest=nearest, batch_size=5)] == [5, 5, 2]
    assert scanner.to_pandas()["a"].tolist() == expected["a"].to_pylist()
    assert scanner.count_rows() == 12 == lance.dataset(flat_uri).scanner(nearest=nearest).count_rows()
    assert ds.scanner(nearest=nearest, filter="a > 100").count_rows() == sum(
        number > 100 for number in expected["a"].to_pylist()
    )
    builder = ScannerBuilder(ds).nearest(**nearest).columns(["a"])
    assert builder.to_scanner().to_table() == expected
    with_defaults = lance_io.dataset(flat_uri, default_scan_options={"nearest": nearest, "columns": ["a"]})
    assert with_defaults.to_table() == expected
    filtered = lance_io.dataset(flat_uri, default_scan_options={"prefilter": True})
    first = ds.to_table(["a"], "a > 100", nearest=nearest, prefilter=True)
    assert filtered.to_table(["a"], "a > 100", nearest=nearest) == first
    assert filtered.to_table(["a"], "a > 100", nearest=nearest, prefilter=False) == ds.to_table(
        ["a"], "a > 100", nearest=nearest
    )


def test_asynchronous_ways_give_the_same(flat_uri: str) -> None:
    nearest = {"column": "v", "q": matrix(2, 6), "k": 12}
    expected = lance_io.dataset(flat_uri).to_table(["a"], nearest=nearest)

    async def ask() -> None:
        ds = await lance_io.AsyncDataset.open(flat_uri)
        scanner = ds.scanner(["a"], nearest=nearest)
        assert await scanner.to_table() == expected
        assert pa.Table.from_batches([one async for one in scanner.to_batches()]) == expected
        assert await scanner.count_rows() == 24
        assert (await scanner.head(4)) == expected.slice(0, 4)
        assert "KNNVectorDistance: metric=l2, k=12, queries=2" in await scanner.explain_plan()
        assert "rows_scanned=180" in await scanner.analyze_plan()
        await ds.aclose()

    asyncio.run(ask())


def test_fragments_and_old_versions_are_searched(flat_uri: str, tmp_path: Path) -> None:
    nearest = {"column": "v", "q": matrix(1, 5)[0], "k": 300}
    ds = lance_io.dataset(flat_uri)
    part = ds.scanner(["a"], nearest=nearest, fragments=ds.get_fragments()[1:3]).to_table()
    assert sorted(part["a"].to_pylist()) == [number for number in range(50, 150) if number % 10 != 4]
    assert sorted(ds.get_fragments()[0].to_table(["a"], nearest=nearest)["a"].to_pylist())[-1] == 49
    assert ds.checkout_version(1).to_table(["a"], nearest=nearest).num_rows == 200
    branch = lance_io.write_dataset(table_of(vectors(matrix(20))), str(tmp_path)).create_branch("b")
    branch.delete("a < 5")
    assert branch.to_table(["a"], nearest=nearest).num_rows == 15


def test_blobs_and_json_come_with_what_is_found(tmp_path: Path) -> None:
    values = matrix(30)
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    table = table_of(vectors(values)).append_column(blob, pa.array([b"%d" % number for number in range(30)], blob.type))
    table = table.append_column("j", pa.array([f'{{"x": {number}}}' for number in range(30)], pa.json_()))
    ds = lance_io.write_dataset(table, str(tmp_path), data_storage_version="2.1")
    nearest = {"column": "v", "q": values[3], "k": 8}
    order = ds.to_table(["a"], nearest=nearest)["a"].to_pylist()
    found = ds.to_table(["j", "b"], nearest=nearest, blob_handling="all_binary")
    assert found["b"].to_pylist() == [b"%d" % number for number in order]
    assert found["j"].to_pylist() == [f'{{"x":{number}}}' for number in order]
    few = ds.to_table(["a", "b"], "json_get_int(j, 'x') % 2 = 0", nearest=nearest, blob_handling="all_binary")
    assert few["a"].to_pylist() == [number for number in order if number % 2 == 0]
    assert few["b"].to_pylist() == [b"%d" % number for number in few["a"].to_pylist()]
    large = ds.to_table(["a", "b"], "b.size = 2", nearest=nearest, blob_handling="all_binary")
    assert large["b"].to_pylist() == [b"%d" % number for number in order if number > 9]
    assert ds.scanner(["a", "b"], nearest=nearest).to_pandas()["b"].iloc[0].read() == b"3"


# -- indices ---------------------------------------------------------------------------------------------------------


def test_without_its_index_a_table_is_searched_exactly(tmp_path: Path) -> None:
    """`tests/index/test_vector_search.py` has the searches by the index."""
    values = matrix(700, dim=8)
    peer = lance.write_dataset(table_of(vectors(values[:600])), str(tmp_path), max_rows_per_file=250)
    peer.create_index("v", "IVF_PQ", metric="cosine", num_partitions=4, num_sub_vectors=2)
    peer = lance.write_dataset(table_of(vectors(values[600:])), str(tmp_path), mode="append")
    ours = lance_io.dataset(str(tmp_path))
    nearest = {"column": "v", "q": values[650], "k": 20}
    exact = {metric: peer.to_table(nearest={**nearest, "metric": metric, "use_index": False}) for metric in METRICS}
    for options, metric in (
        ({"nprobes": 4, "refine_factor": 30}, "cosine"),  # as the index measures
        ({"use_index": False}, "l2"),
        ({"metric": "dot", "use_index": False}, "dot"),
        ({"metric": "cosine", "nprobes": 4, "refine_factor": 30, "ef": 30}, "cosine"),
    ):
        matches = ours.to_table(nearest={**nearest, **options})
        assert matches["t"] == exact[metric]["t"]
        np.testing.assert_allclose(matches["_distance"], exact[metric]["_distance"], rtol=1e-5, atol=1e-6)
    fast = peer.to_table(nearest={**nearest, "use_index": False}, fast_search=True)
    assert fast.num_rows == 0 == ours.to_table(nearest={**nearest, "use_index": False}, fast_search=True).num_rows
    with pytest.warns(UserWarning, match="measures cosine"):
        assert ours.to_table(nearest={**nearest, "metric": "l2"}, fast_search=True).num_rows == 0
    every = {**nearest, "k": 1000, "nprobes": 4}
    covered = ours.scanner(nearest=every, fast_search=True, with_row_address=True).to_table()
    assert {*(covered["_rowaddr"].to_numpy() >> 32).tolist()} == {0, 1, 2}
    assert covered.num_rows == 600


# -- what is refused -------------------------------------------------------------------------------------------------

Q = [0.5] * DIM
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"q": Q[1:]}, ValueError, "Query vector size 11 does not match index column size 12"),
    ({"q": Q * 2}, ValueError, "Query vector size 24 does not match index column size 12"),
    ({"q": [Q, Q[1:]]}, ValueError, "All query vectors must have the same length, but got 12 and 11"),
    ({"q": "abc"}, TypeError, "uery vector"),
    ({"q": None}, TypeError, "Query vectors should be an array of floats"),
    ({"q": ["x"] * DIM}, ValueError, "could not convert string to float"),
    ({"q": pa.array(["x"] * DIM)}, TypeError, "query vector must be list-like or pa.FloatingPointArray but received"),
    ({"column": "zz"}, ValueError, "Embedding column zz is not in the dataset"),
    ({"column": "V"}, ValueError, "V"),
    ({"column": "a"}, TypeError, "Query column a must be a vector. Got int64"),
    ({"column": "s"}, TypeError, "Query column s must be a vector"),
    ({"column": 5}, TypeError, "str"),
    ({"metric": "near"}, ValueError, "Metric type 'near' is not supported"),
    ({"metric": "hamming"}, ValueError, "Distance type hamming does not support Float32 vectors"),
    ({"k": 0}, ValueError, "Nearest-K must be > 0 but got 0"),
    ({"k": 2.5}, TypeError, "'float' object cannot be interpreted as an integer"),
    ({"k": 1 << 70}, OverflowError, "too big|below 2"),
    ({"nprobes": 0}, ValueError, "Nprobes must be > 0 but got 0"),
    ({"nprobes": "5"}, TypeError, "'str' object cannot be interpreted as an integer"),
    ({"minimum_nprobes": 0}, ValueError, "minimum_nprobes must be >= 1"),
    ({"minimum_nprobes": 3, "maximum_nprobes": 2}, ValueError, "minimum_nprobes must be <= maximum_nprobes"),
    ({"refine_factor": 0}, ValueError, "Refine factor must be 1 or more got 0"),
    ({"ef": 0}, ValueError, "ef must be > 0 but got 0"),
    ({"query_parallelism": -2}, ValueError, "query_parallelism must be >= -1"),
    ({"approx_mode": "x"}, ValueError, "approx_mode must be one of 'fast', 'normal', or 'accurate', got 'x'"),
    ({"search_effort": 2}, ValueError, "search_effort must be finite and in .0, 1."),
    ({"search_effort": "a"}, TypeError, "must be real number, not str"),
    ({"distance_range": (1,)}, ValueError, "distance_range must be a tuple of .lower_bound, upper_bound."),
    ({"distance_range": ("a", None)}, TypeError, "must be real number, not str"),
    ({"distance_range": 5}, TypeError, "has no len"),
    ({"use_index": 5}, TypeError, "bool"),
    ({"zz": 5}, TypeError, "unexpected keyword argument 'zz'"),
]


@pytest.mark.parametrize(("given", "error", "words"), REFUSED, ids=[str(one[0])[:40] for one in REFUSED])
def test_what_makes_no_sense_is_refused_as_by_pylance(
    flat_uri: str, given: dict[str, Any], error: type[Exception], words: str
) -> None:
    nearest = {"column": "v", "q": Q, **given}
    for library in (lance, lance_io):
        with pytest.raises(error, match=words):
            library.dataset(flat_uri).scanner(nearest=nearest).to_table()


@pytest.mark.parametrize("given", [5, {}, {"column": "v"}, {"q": Q}])
def test_a_search_needs_a_column_and_a_query(flat_uri: str, given: Any) -> None:
    for library in (lance, lance_io):
        with pytest.raises(TypeError):
            library.dataset(flat_uri).to_table(nearest=given)


@pytest.mark.parametrize(
    ("scan", "words"),
    [
        ({"include_deleted_rows": True, "with_row_id": True}, "Cannot include deleted rows"),
        ({"limit": 0}, "k must be positive"),
        ({"filter": "_distance < 1", "prefilter": True}, "_distance"),
        ({"order_by": ["_distance"]}, "Column _distance not found"),
        ({"columns": ["_distance", "_distance"]}, "Duplicate column name: _distance"),
        ({"columns": ["zz"]}, "zz"),
        ({"columns": ["query_index"]}, "query_index"),
    ],
)
def test_scans_that_no_search_can_be_are_refused(flat_uri: str, scan: dict[str, Any], words: str) -> None:
    for library in (lance, lance_io):
        with pytest.raises(ValueError, match=words):
            library.dataset(flat_uri).to_table(nearest={"column": "v", "q": Q}, **scan)


def test_columns_that_a_search_adds_may_not_be_the_tables(tmp_path: Path) -> None:
    column = vectors(matrix(5))
    lance.write_dataset(pa.table({"v": column, "_distance": range(5)}), str(tmp_path / "d"))
    lance.write_dataset(pa.table({"v": column, "query_index": range(5)}), str(tmp_path / "q"))
    for library in (lance, lance_io):
        with pytest.raises(ValueError, match="_distance"):
            library.dataset(str(tmp_path / "d")).to_table(nearest={"column": "v", "q": Q})
        with pytest.raises(ValueError, match="query_index"):
            library.dataset(str(tmp_path / "q")).to_table(nearest={"column": "v", "q": [Q, Q]})
        single = library.dataset(str(tmp_path / "q")).to_table(nearest={"column": "v", "q": Q, "k": 2})
        assert single.column_names == ["v", "query_index", "_distance"]


@pytest.mark.parametrize("item", ["int8", "uint16", "int32", "bool"])
def test_types_without_a_distance_are_refused(tmp_path: Path, item: str) -> None:
    values = vectors(np.zeros((4, 2), "i1")).cast(
        pa.list_(pa.field("item", getattr(pa, item + "_" * (item == "bool"))()), 2)
    )
    lance.write_dataset(table_of(values), str(tmp_path))
    for library in (lance, lance_io):
        with pytest.raises(ValueError, match="element"):
            library.dataset(str(tmp_path)).to_table(nearest={"column": "v", "q": [0, 0]})


def test_bytes_are_compared_by_bits_alone(tmp_path: Path) -> None:
    lance.write_dataset(table_of(vectors(np.arange(20, dtype="u1").reshape(10, 2))), str(tmp_path))
    for library in (lance, lance_io):
        with pytest.raises(ValueError, match="l2 does not support UInt8 vectors"):
            library.dataset(str(tmp_path)).to_table(nearest={"column": "v", "q": [0, 0], "metric": "l2"})
        found = library.dataset(str(tmp_path)).to_table(["a"], nearest={"column": "v", "q": [1.9, 3], "k": 2})
        assert found.to_pydict() == {"a": [0, 1], "_distance": [2, 2]}
    with pytest.raises(ValueError, match=r"a query of 300\.0 does not fit"):
        lance_io.dataset(str(tmp_path)).to_table(nearest={"column": "v", "q": [300, 0]})


def test_the_builder_says_at_once_what_does_not_fit(flat_uri: str) -> None:
    for builder in (PeerBuilder(lance.dataset(flat_uri)), ScannerBuilder(lance_io.dataset(flat_uri))):
        with pytest.raises(ValueError, match="Query vector size 2 does not match"):
            builder.nearest("v", [1, 2])


# -- requests and memory ---------------------------------------------------------------------------------------------


def spent(ds: Any, call: Any) -> StatsSnapshot:
    """What the table's store counted while `call` ran."""
    stats = ds._state.location.store.stats
    before = stats.snapshot()
    call()
    return stats.snapshot() - before


def test_only_the_vectors_are_read_for_all_rows(tmp_path: Path) -> None:
    """And what else is shown for the rows that are found: text of 400 bytes a row stays where it is."""
    values = matrix(2000, dim=16)
    table = table_of(vectors(values)).append_column("long", pa.array([f"{n:04}" * 100 for n in range(2000)]))
    uri = str(tmp_path)
    lance_io.write_dataset(table, uri, max_rows_per_file=500)
    ds = lance_io.dataset(uri)
    nearest = {"column": "v", "q": values[3], "k": 5}
    ds.to_table(nearest=nearest)  # opens the files
    vectors_alone = spent(ds, lambda: ds.to_table(["v"]))
    search_alone = spent(ds, lambda: ds.to_table(["_distance"], nearest=nearest, with_row_id=True))
    assert (search_alone.requests, search_alone.bytes_read) == (vectors_alone.requests, vectors_alone.bytes_read)
    assert search_alone.bytes_read < 1.1 * values.nbytes
    found = ds.to_table(["_rowid"], nearest=nearest)["_rowid"].to_pylist()
    with_text = spent(ds, lambda: ds.to_table(["long"], nearest=nearest))
    text_alone = spent(ds, lambda: ds._take_rows(found, ["long"]))
    assert with_text.requests == search_alone.requests + text_alone.requests
    assert with_text.bytes_read == search_alone.bytes_read + text_alone.bytes_read
    filtered = spent(ds, lambda: ds.to_table(["long"], "a > 1990", nearest=nearest, prefilter=True))
    assert filtered.bytes_read < values.nbytes / 2  # the vectors of nine rows, and the numbers of all
