"""Indices of vectors that are built here: pylance plans with them, and answers as over its own."""

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io

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
        own.create_index("v", "IVF_FLAT", num_partitions="2")  # type: ignore[arg-type]
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
