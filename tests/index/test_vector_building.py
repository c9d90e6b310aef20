"""Indices of vectors that are built here: pylance plans with them, and answers as over its own."""

from __future__ import annotations

import asyncio
import tracemalloc
import warnings
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.changes.index.vectors import sample_vectors
from lance_io.index.vector.distances import Metric

if TYPE_CHECKING:
    from pathlib import Path

ROWS, DIM = 2400, 16
KINDS = [
    pytest.param("IVF_FLAT", {}, id="flat"),
    pytest.param("IVF_PQ", {"num_sub_vectors": 4}, id="pq"),
    pytest.param("IVF_PQ", {"num_sub_vectors": 4, "num_bits": 4, "skip_transpose": True}, id="pq4"),
    pytest.param("IVF_SQ", {}, id="sq"),
]


def vectors(num_rows: int = ROWS, *, seed: int = 3, dtype: str = "f4") -> np.ndarray[Any, Any]:
    """Vectors in clusters of different lengths."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(11).normal(size=(24, DIM)) * 3
    chosen = centers[rng.integers(0, 24, num_rows)] + rng.normal(size=(num_rows, DIM))
    return (chosen * rng.uniform(0.7, 1.4, (num_rows, 1))).astype(dtype)


def vector_table(x: np.ndarray[Any, Any], first: int = 0, mask: np.ndarray[Any, Any] | None = None) -> pa.Table:
    """A table of vectors with ids."""
    lists = pa.FixedSizeListArray.from_arrays(
        pa.array(x.ravel()), x.shape[1], mask=None if mask is None else pa.array(mask)
    )
    return pa.table({"id": np.arange(first, first + len(x)), "v": lists})


@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_pylance_searches_built_indices(tmp_path: Path, kind: str, options: dict[str, Any], face: str) -> None:
    x, uri = vectors(), str(tmp_path / "t")
    lance_io.write_dataset(vector_table(x), uri, max_rows_per_file=1000, enable_stable_row_ids=face == "async")
    for metric in ("l2", "cosine", "dot"):
        arguments: dict[str, Any] = {"metric": metric, "num_partitions": 6, "replace": True, **options}
        if face == "sync":
            lance_io.dataset(uri).create_index("v", kind, **arguments)
        else:

            async def build(arguments: dict[str, Any] = arguments) -> None:
                await (await lance_io.AsyncDataset.open(uri)).create_index("v", kind, **arguments)

            asyncio.run(build())
        peer, own = lance.dataset(uri), lance_io.dataset(uri)
        assert peer.stats.index_stats("v_idx")["num_indexed_rows"] == ROWS
        matches = 0
        for query in vectors(8, seed=8):
            near: dict[str, Any] = {"column": "v", "q": query, "k": 10, "nprobes": 6}
            scanner = peer.scanner(nearest=near, columns=["_distance"], with_row_id=True)
            assert "ANNSubIndex: name=v_idx" in scanner.explain_plan(True)
            theirs = scanner.to_table()["_distance"].to_numpy()
            ours = own.to_table(["_distance"], nearest=near)["_distance"].to_numpy()
            np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4)
            refined = peer.to_table(["id"], nearest=near | {"refine_factor": 20})["id"].to_pylist()
            exact = peer.to_table(["id"], nearest=near | {"use_index": False, "metric": metric})["id"].to_pylist()
            matches += len({*refined} & {*exact})
        assert matches >= 76  # of 80: no partition is left out


def test_names_and_defaults_are_those_of_pylance(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance_io.write_dataset(vector_table(vectors()), uri)
    own = lance_io.dataset(uri)
    with pytest.raises(TypeError, match="Vector column id must be FixedSizeListArray"):
        own.create_index("id", "IVF_FLAT")
    with pytest.raises(KeyError, match="zz not found in schema"):
        own.create_index("zz", "IVF_FLAT")
    with pytest.raises(NotImplementedError, match=r"Only .* index types supported\. Got BTREE"):
        own.create_index("v", "BTREE")
    for kind in ("IVF_HNSW_SQ", "IVF_HNSW_PQ", "IVF_HNSW_FLAT", "IVF_RQ"):
        with pytest.raises(NotImplementedError, match=f"builds no {kind}"):
            own.create_index("v", kind, num_sub_vectors=4)
    with pytest.raises(NotImplementedError, match="accelerator is not offered"):
        own.create_index("v", "IVF_PQ", num_sub_vectors=4, accelerator="cuda")
    for arguments, message in (
        ({"metric": "manhattan"}, "Metric manhattan not supported"),
        ({"metric": "hamming"}, "hamming goes with"),
        ({"num_partitions": 0}, "num_partitions must be"),
        ({"sample_rate": 0}, "sample_rate must be"),
        ({"max_iters": 0}, "max_iters must be"),
        ({"target_partition_size": 0}, "target_partition_size must be"),
        ({"num_sub_vectors": 3}, "must be divisible by num_sub_vectors"),
        ({"num_sub_vectors": 0}, "must be divisible by num_sub_vectors"),
        ({"index_uuid": "xx"}, "Invalid UUID"),
        ({"fragment_ids": [0]}, "create_index_uncommitted"),
        ({"pq_codebook": np.zeros((4, 256, 4), "f4")}, "ivf_centroids must be specified"),
        ({"ivf_centroids": np.zeros((0, DIM), "f4")}, "at least one cluster"),
        ({"ivf_centroids": np.zeros((3, 8), "f4")}, "Failed to cast centroids"),
        ({"ivf_centroids": np.zeros((3, DIM), "f4"), "num_partitions": 4}, "3 clusters, but num_partitions=4"),
    ):
        with pytest.raises(ValueError, match=message):
            own.create_index("v", "IVF_FLAT", **arguments)
    for arguments, message in (
        ({}, "num_sub_vectors are required"),
        ({"num_sub_vectors": 4, "num_bits": 5}, "num_bits 5 not supported"),
        ({"num_sub_vectors": 1, "num_bits": 4}, "divisible by 2 for num_bits=4"),
    ):
        with pytest.raises(ValueError, match=message):
            own.create_index("v", "IVF_PQ", **arguments)
    with pytest.raises(TypeError, match="num_partitions must be int"):
        own.create_index("v", "IVF_FLAT", num_partitions="2")
    with pytest.raises(OverflowError):
        own.create_index("v", "IVF_FLAT", num_partitions=-1)
    with pytest.warns(DeprecationWarning, match="index_cache_size"):
        assert own.create_index("v", "IVF_FLAT", index_cache_size=5, nonsense=1) is own
    with pytest.raises(RuntimeError, match="already exists"):
        own.create_index("v", "IVF_SQ")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own.create_index("v", "IVF_SQ", "other", num_partitions=2)
    assert [index.name for index in own.describe_indices()] == ["other", "v_idx"]
    assert [index.name for index in lance.dataset(uri).describe_indices()] == ["other", "v_idx"]


EDGES = [
    pytest.param("IVF_FLAT", {}, id="flat"),
    pytest.param("IVF_PQ", {"num_sub_vectors": 4}, id="pq"),
    pytest.param("IVF_SQ", {}, id="sq"),
]


def outcome(library: Any, uri: str, table: pa.Table, kind: str, options: dict[str, Any]) -> tuple[Any, ...]:
    """What a build gives: covered fragments, files, partitions and rows; or the kind of its error."""
    library.write_dataset(table, uri, mode="overwrite")
    try:
        library.dataset(uri).create_index("v", kind, **options)
    except (ValueError, RuntimeError) as error:
        return (ValueError if isinstance(error, ValueError) else RuntimeError,)
    (index,) = lance.dataset(uri).describe_indices()
    (segment,) = index.segments
    sizes = [
        part["size"]
        for each in lance.dataset(uri).stats.index_stats("v_idx")["indices"]
        for part in each.get("partitions", ())
    ]
    return set(segment.fragment_ids), len(sizes), sum(sizes)


@pytest.mark.parametrize(("kind", "options"), EDGES)
def test_unusual_tables_are_indexed_as_by_pylance(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    x = vectors(1000)
    third = np.arange(1000) % 3 == 0
    far, infinite, zeros = x.copy(), x.copy(), x.copy()
    far[third, 2], infinite[third], zeros[third] = np.nan, np.inf, 0
    cases: list[tuple[pa.Table, dict[str, Any]]] = [
        (vector_table(x[:0]), {"num_partitions": 4}),
        (vector_table(x[:1]), {"num_partitions": 1}),
        (vector_table(x[:5]), {"num_partitions": 8}),
        (vector_table(x[:100]), {"num_partitions": 1}),
        (vector_table(x[:300]), {"num_partitions": 300}),
        (vector_table(x), {"target_partition_size": 100}),
        (vector_table(x), {"num_partitions": 20, "sample_rate": 16}),
        (vector_table(x), {}),
        (vector_table(x), {"num_partitions": 4, "train": False}),
        (vector_table(far), {"num_partitions": 4}),
        (vector_table(infinite), {"num_partitions": 4}),
        (vector_table(zeros), {"num_partitions": 4, "metric": "cosine"}),
        (vector_table(x, mask=third), {"num_partitions": 4}),
        (vector_table(x * 0), {"num_partitions": 4}),
        (vector_table(x), {"num_partitions": 0}),
    ]
    for number, (table, more) in enumerate(cases):
        theirs = outcome(lance, str(tmp_path / f"theirs{number}"), table, kind, options | more)
        ours = outcome(lance_io, str(tmp_path / f"ours{number}"), table, kind, options | more)
        assert ours == theirs, (number, more)
        if len(ours) > 1 and ours[0]:
            near = {"column": "v", "q": x[1], "k": 2000, "nprobes": 400}
            found = lance_io.dataset(str(tmp_path / f"ours{number}")).to_table(["id"], nearest=near)
            assert found.num_rows == ours[2]
    unlearned = outcome(lance_io, str(tmp_path / "nulls"), vector_table(x, mask=np.ones(1000, bool)), kind, options)
    assert unlearned == (set(), 0, 0)  # pylance fails for IVF_FLAT and IVF_SQ


@pytest.mark.parametrize("dtype", ["f2", "f8"])
@pytest.mark.parametrize(("kind", "options"), EDGES)
def test_other_floats_are_searched_by_pylance(tmp_path: Path, kind: str, options: dict[str, Any], dtype: str) -> None:
    x, uri = vectors(dtype=dtype), str(tmp_path / "t")
    lance_io.write_dataset(vector_table(x), uri)
    for metric in ("l2", "cosine"):
        lance_io.dataset(uri).create_index("v", kind, metric=metric, num_partitions=6, replace=True, **options)
        peer = lance.dataset(uri)
        assert peer.centroids(index_name="v_idx").type.value_type == pa.array(x[:1, 0]).type
        for query in vectors(4, seed=8, dtype=dtype):
            near: dict[str, Any] = {"column": "v", "q": query, "k": 10, "nprobes": 6, "refine_factor": 20}
            found = {*peer.to_table(["id"], nearest=near)["id"].to_pylist()}
            exact = {*peer.to_table(["id"], nearest=near | {"use_index": False, "metric": metric})["id"].to_pylist()}
            assert len(found & exact) >= 9


def test_bytes_are_indexed_by_their_bits(tmp_path: Path) -> None:
    rng, uri = np.random.default_rng(5), str(tmp_path / "t")
    centers = rng.integers(0, 256, (12, DIM), np.uint8)
    flips = np.packbits(rng.random((ROWS, DIM * 8)) < 0.08, axis=1)
    x = centers[rng.integers(0, 12, ROWS)] ^ flips
    lance_io.write_dataset(vector_table(x), uri)
    own = lance_io.dataset(uri)
    for kind, metric in (("IVF_FLAT", "l2"), ("IVF_SQ", "hamming"), ("IVF_PQ", "hamming")):
        with pytest.raises(ValueError, match="hamming goes"):
            own.create_index("v", kind, metric=metric, num_sub_vectors=4)
    own.create_index("v", "IVF_FLAT", metric="hamming", num_partitions=12)
    matches = 0
    for query in x[:20]:
        near: dict[str, Any] = {"column": "v", "q": query, "k": 10, "nprobes": 1}
        theirs, ours, exact = (
            each.to_table(["_distance"], nearest=near | more)["_distance"].to_pylist()
            for each, more in (
                (lance.dataset(uri), {}),
                (own, {}),
                (own, {"use_index": False, "metric": "hamming"}),
            )
        )
        assert ours == theirs
        matches += sum(a == b for a, b in zip(ours, exact, strict=True))
    assert matches > 180  # of 200: a partition is a cluster
    (segment,) = own.stats.index_stats("v_idx")["indices"]
    assert segment["mean_distance"] < 0.12 * DIM * 8  # bits


def test_given_models_are_used(tmp_path: Path) -> None:
    uri, x = str(tmp_path / "t"), vectors()
    lance_io.write_dataset(vector_table(x), uri)
    own = lance_io.dataset(uri)
    words = np.random.default_rng(1).normal(size=(4, 256, 4)).astype("f4")
    for centroids in (x[:5], pa.array(x[:5].tolist(), pa.list_(pa.float32(), DIM)), x[:5].astype("f8")):
        for codebook in (words, pa.FixedSizeListArray.from_arrays(pa.array(words.ravel()), DIM)):
            own.create_index(
                "v", "IVF_PQ", num_sub_vectors=4, ivf_centroids=centroids, pq_codebook=codebook, replace=True
            )
            stored = own.centroids(column="v").flatten().to_numpy().reshape(5, DIM)
            np.testing.assert_array_equal(stored, x[:5])
            ours = own.to_table(["_distance"], nearest={"column": "v", "q": x[9], "k": 5, "nprobes": 5})
            theirs = lance.dataset(uri).to_table(
                ["_distance"], nearest={"column": "v", "q": x[9], "k": 5, "nprobes": 5}
            )
            np.testing.assert_allclose(ours["_distance"], theirs["_distance"], rtol=1e-4)


def test_builds_repeat_and_spill(tmp_path: Path) -> None:
    """A build with little memory writes the same files as one with much."""
    rng, uri = np.random.default_rng(2), str(tmp_path / "t")
    x = rng.normal(size=(24_000, 64)).astype("f4")
    lance_io.write_dataset(vector_table(x), uri)
    for kind, options in (("IVF_FLAT", {}), ("IVF_PQ", {"num_sub_vectors": 8, "num_bits": 4})):
        files = []
        for memory_limit in (16, 512):
            dataset = lance_io.dataset(uri, version=1)
            segment = dataset.create_index_uncommitted(
                "v",
                kind,
                fragment_ids=[0],
                num_partitions=3,
                sample_rate=64,
                max_iters=4,
                memory_limit=memory_limit,
                **options,
            )
            folder = tmp_path / "t" / "_indices" / segment.uuid
            files.append([(folder / name).read_bytes() for name in ("auxiliary.idx", "index.idx")])
        assert files[0] == files[1]


def test_a_sample_needs_its_memory_once_more() -> None:
    """Rows that are chosen among those held are copied once: the sample of a build is the most that it holds."""
    rng, dim, wanted = np.random.default_rng(4), 64, 60_000
    reservoir = sample_vectors._Reservoir(dim, np.dtype("f4"), wanted, rng)
    x = rng.normal(size=(wanted // 4, dim)).astype("f4")
    array = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), dim)
    tracemalloc.start()
    try:
        for _ in range(5):
            reservoir.add(array, Metric.L2)
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        sample = reservoir.sample()
        grown = tracemalloc.get_traced_memory()[1] - held
    finally:
        tracemalloc.stop()
    assert held >= 1.2 * sample.nbytes
    assert len(sample) == wanted
    assert grown <= 1.5 * sample.nbytes
