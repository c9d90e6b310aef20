"""Keeping indices of vectors: updates, compactions, segments of several processes, statistics, models."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import shutil
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.changes.index import build_segment
from lance_io.changes.index.vectors import copied_rows
from lance_io.indices import IndicesBuilder, IvfModel, PqModel
from tests.index.test_vector_building import DIM, ROWS, vector_table, vectors
from tests.index.vector_tasks import build_part

if TYPE_CHECKING:
    from pathlib import Path

KINDS = [
    pytest.param("IVF_FLAT", {}, id="flat"),
    pytest.param("IVF_PQ", {"num_sub_vectors": 4}, id="pq"),
    pytest.param("IVF_SQ", {}, id="sq"),
]


def written(tmp_path: Path, *, stable: bool = False) -> str:
    """A table of three fragments."""
    uri = str(tmp_path / "t")
    lance_io.write_dataset(vector_table(vectors()), uri, max_rows_per_file=1000, enable_stable_row_ids=stable)
    return uri


def append(uri: str, first: int, num_rows: int = 300) -> None:
    """Append a fragment."""
    lance_io.write_dataset(vector_table(vectors(num_rows, seed=first), first), uri, mode="append")


def coverage(uri: str) -> list[list[int]]:
    """The fragments of each segment, by pylance."""
    (index,) = lance.dataset(uri).describe_indices()
    return [sorted(segment.fragment_ids) for segment in index.segments]


def check(uri: str, num_segments: int) -> None:
    """Both libraries find by the index what a comparison of all vectors finds."""
    peer, own = lance.dataset(uri), lance_io.dataset(uri)
    for query in vectors(4, seed=9):
        near: dict[str, Any] = {"column": "v", "q": query, "k": 10, "nprobes": 6, "refine_factor": 50}
        plan = peer.scanner(nearest=near).explain_plan(True)
        assert f"ANNSubIndex: name=v_idx, k=500, deltas={num_segments}" in plan, plan
        assert f"deltas={num_segments}" in own.scanner(nearest=near).explain_plan()
        exact = own.to_table(["id"], nearest={"column": "v", "q": query, "k": 10, "use_index": False})
        for dataset in (peer, own):
            assert {*dataset.to_table(["id"], nearest=near)["id"].to_pylist()} == {*exact["id"].to_pylist()}


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "ids"])
@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_updates_are_those_of_pylance(tmp_path: Path, kind: str, options: dict[str, Any], stable: bool) -> None:
    """Segments cover the fragments that they cover after pylance's `optimize_indices`, and hold the same rows."""
    uri = written(tmp_path, stable=stable)
    lance_io.dataset(uri).create_index("v", kind, num_partitions=6, **options)
    append(uri, 2400)
    lance_io.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    assert coverage(uri) == [[0, 1, 2], [3]]
    check(uri, 2)
    version = lance_io.dataset(uri).version
    lance_io.dataset(uri).optimize.optimize_indices()
    assert lance_io.dataset(uri).version == version  # nothing to do
    append(uri, 2700)
    lance_io.dataset(uri).optimize.optimize_indices()
    assert coverage(uri) == [[0, 1, 2], [3, 4]]
    models = lance_io.dataset(uri).stats.index_stats("v_idx")["indices"]
    assert models[0]["centroids"] == models[1]["centroids"]
    assert models[0]["sub_index"] == models[1]["sub_index"]
    lance_io.dataset(uri).optimize.optimize_indices(num_indices_to_merge=9)
    assert coverage(uri) == [[0, 1, 2, 3, 4]]
    check(uri, 1)
    append(uri, 3000)
    lance_io.dataset(uri).delete("id % 7 = 3")
    lance_io.dataset(uri).optimize.optimize_indices(retrain=True)
    statistics = lance.dataset(uri).stats.index_stats("v_idx")
    (segment,) = statistics["indices"]
    assert segment["num_partitions"] == 6 and segment["centroids"] != models[0]["centroids"]
    assert sum(part["size"] for part in segment["partitions"]) == lance.dataset(uri).count_rows()
    check(uri, 1)


@pytest.mark.parametrize("defers", [None, False, True])
@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_compactions_keep_coverage(tmp_path: Path, kind: str, options: dict[str, Any], defers: bool | None) -> None:
    uri = written(tmp_path)
    lance_io.dataset(uri).create_index("v", kind, num_partitions=6, **options)
    before = lance_io.dataset(uri).describe_indices()[0].segments[0].uuid
    lance_io.dataset(uri).delete("id % 5 = 2")
    arguments = {} if defers is None else {"defer_index_remap": defers}
    lance_io.dataset(uri).optimize.compact_files(target_rows_per_fragment=100_000, **arguments)
    own = lance_io.dataset(uri)
    assert len(own.get_fragments()) == 1
    assert own.stats.index_stats("v_idx")["num_unindexed_rows"] == 0
    check(uri, 1)
    (segment,) = next(index for index in own.describe_indices() if index.name == "v_idx").segments
    assert (segment.uuid != before) is (defers is False)
    lance.dataset(uri).optimize.compact_files()
    lance.dataset(uri).optimize.optimize_indices()
    check(uri, 1)


def test_pylance_keeps_built_indices(tmp_path: Path) -> None:
    uri = written(tmp_path)
    for kind, options in (("IVF_FLAT", {}), ("IVF_PQ", {"num_sub_vectors": 4}), ("IVF_SQ", {})):
        lance_io.dataset(uri).create_index("v", kind, num_partitions=6, replace=True, **options)
        append(uri, lance_io.dataset(uri).count_rows())
        lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
        check(uri, 2)
        lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=2)
        check(uri, 1)
        append(uri, lance_io.dataset(uri).count_rows())
        lance_io.dataset(uri).optimize.optimize_indices(num_indices_to_merge=2)  # one that pylance wrote
        check(uri, 1)


def test_an_index_without_rows_learns_later(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance_io.write_dataset(vector_table(vectors(0)), uri)
    lance_io.dataset(uri).create_index("v", "IVF_PQ", num_sub_vectors=4)
    assert coverage(uri) == [[]]
    append(uri, 0, 100)
    lance_io.dataset(uri).optimize.optimize_indices()  # fewer rows than codewords
    assert coverage(uri) == [[]]
    append(uri, 100, 1000)
    lance_io.dataset(uri).optimize.optimize_indices()
    assert coverage(uri) == [[0, 1]]
    check(uri, 1)
    lance_io.dataset(uri).create_index("v", "IVF_SQ", train=False, replace=True)
    assert coverage(uri) == [[]]
    lance.dataset(uri).optimize.optimize_indices()
    check(uri, 1)


# -- copied codes ------------------------------------------------------------------------------------------------------


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The fragments whose column is read, build by build."""
    seen: list[list[int]] = []
    read = build_segment.read_column

    def recorded(state: Any, request: Any, fragment_ids: list[int], *more: Any) -> Any:
        seen.append([*fragment_ids])
        return read(state, request, fragment_ids, *more)

    monkeypatch.setattr(build_segment, "read_column", recorded)
    return seen


def maintained(uri: str, *, stable: bool) -> None:
    """New rows as a segment of their own, then updates, merged segments, and a compaction."""
    lance_io.dataset(uri).delete("id % 5 = 2")
    append(uri, 2400)
    lance_io.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    lance_io.dataset(uri).update({"id": "id + 100000"}, where="id % 50 = 1")
    lance_io.dataset(uri).optimize.optimize_indices(num_indices_to_merge=5)
    if not stable:
        lance_io.dataset(uri).delete("id % 7 = 3")
        lance_io.dataset(uri).optimize.compact_files(target_rows_per_fragment=100_000, defer_index_remap=False)


def all_distances(uri: str) -> np.ndarray[Any, Any]:
    """The distances of all rows from a query, as their codes give them, by id."""
    nearest = {"column": "v", "q": vectors(1, seed=9)[0], "k": 10_000, "nprobes": 6}
    rows = lance_io.dataset(uri).to_table(["id", "_distance"], nearest=nearest).sort_by("id")
    assert rows["id"].to_pylist() == sorted(lance_io.dataset(uri).to_table(["id"])["id"].to_pylist())
    return rows["_distance"].to_numpy()


@pytest.mark.parametrize("library", [lance, lance_io], ids=["theirs", "ours"])
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "ids"])
@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_codes_are_copied(
    tmp_path: Path,
    kind: str,
    options: dict[str, Any],
    stable: bool,
    library: Any,
    scanned: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A merge or a compaction reads the columns of new rows alone, and gives the codes that a scan of all gives."""
    uri, again = written(tmp_path, stable=stable), str(tmp_path / "again")
    library.dataset(uri).create_index("v", kind, metric="l2", num_partitions=6, **options)
    shutil.copytree(uri, again)
    scanned.clear()
    maintained(uri, stable=stable)
    assert [each for each in scanned if each] == [[3], [4]]
    assert coverage(uri) == [[fragment.fragment_id for fragment in lance_io.dataset(uri).get_fragments()]]
    check(uri, 1)

    def nothing(*_: object) -> Any:
        yield from ()
        return frozenset()

    monkeypatch.setattr(copied_rows, "copy_rows", nothing)
    maintained(again, stable=stable)
    mine, scanned_ones = all_distances(uri), all_distances(again)
    if library is lance_io:
        np.testing.assert_array_equal(mine, scanned_ones)
    else:  # a code of pylance may differ where two are as near
        assert np.isclose(mine, scanned_ones, rtol=1e-4).mean() > 0.99


# -- several processes -------------------------------------------------------------------------------------------------


def test_four_tasks_share_a_model(tmp_path: Path) -> None:
    """Tasks build segments; merged segments, and merges of these, answer as one index that one process built."""
    uri = written(tmp_path)
    append(uri, ROWS)
    alone = str(tmp_path / "alone")
    lance_io.write_dataset(lance_io.dataset(uri).to_table(), alone, max_rows_per_file=1000)
    models = IndicesBuilder(lance_io.dataset(uri), "v").prepare_global_ivf_pq(6, 4, sample_rate=8)
    centroids: dict[str, Any] = {"ivf_centroids": models["ivf_centroids"], "num_partitions": 6}
    words = centroids | {"pq_codebook": models["pq_codebook"], "num_sub_vectors": 4}
    wanted = {"IVF_FLAT": centroids, "IVF_PQ": words, "IVF_SQ": centroids}
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as tasks:
        parts = {
            kind: [tasks.submit(build_part, uri, number, pickle.dumps(shared), kind) for number in range(4)]
            for kind, shared in wanted.items()
        }
        built = {kind: [pickle.loads(part.result(timeout=300)) for part in parts[kind]] for kind in parts}
    for kind, segments in built.items():
        dataset = lance_io.dataset(uri)
        if dataset.describe_indices():
            dataset.drop_index("v_idx")
        dataset.commit_existing_index_segments("v_idx", "v", segments)
        assert coverage(uri) == [[0], [1], [2], [3]]
        check(uri, 4)
        pairs = [dataset.merge_existing_index_segments(pair) for pair in (segments[:2], segments[2:])]
        merged = dataset.merge_existing_index_segments(pairs)
        dataset.commit_existing_index_segments("v_idx", "v", [merged])
        assert coverage(uri) == [[0, 1, 2, 3]]
        check(uri, 1)
        if kind == "IVF_SQ":  # its bounds are those of the first segment's sample
            continue
        lance_io.dataset(alone).create_index("v", kind, replace=True, **wanted[kind])
        for query in vectors(4, seed=9):
            near: dict[str, Any] = {"column": "v", "q": query, "k": 10, "nprobes": 2}
            left, right = (lance.dataset(each).to_table(["id"], nearest=near) for each in (uri, alone))
            assert left["_distance"].to_pylist() == pytest.approx(right["_distance"].to_pylist(), rel=1e-4)


# -- models and statistics ---------------------------------------------------------------------------------------------


def test_models_are_those_of_pylance(tmp_path: Path) -> None:
    uri = written(tmp_path)
    own = lance_io.dataset(uri)
    for kind, metric in (("IVF_FLAT", "l2"), ("IVF_PQ", "cosine")):
        own.create_index("v", kind, metric=metric, num_partitions=6, num_sub_vectors=4, replace=True)
        model, theirs = own.get_ivf_model("v_idx"), lance.dataset(uri).get_ivf_model("v_idx")
        assert model.distance_type == metric and model.num_partitions == 6
        assert model.centroids.equals(theirs.centroids)
        assert own.centroids(column="v").equals(model.centroids)

    async def awaited() -> Any:
        dataset = await lance_io.AsyncDataset.open(uri)
        return (await dataset.get_ivf_model("v_idx")).centroids, await dataset.centroids(index_name="v_idx")

    assert all(each.equals(model.centroids) for each in asyncio.run(awaited()))
    peer = lance.dataset(uri)
    for kind in ("IVF_RQ", "IVF_HNSW_SQ"):  # kinds that are not built here
        peer = peer.create_index("v", kind, metric="l2", num_partitions=3, replace=True)
        assert lance_io.dataset(uri).centroids(index_name="v_idx").equals(peer.centroids(index_name="v_idx"))
    own = lance_io.dataset(uri)
    for missing in ({"column": "id"}, {"index_name": "nothing"}):
        with pytest.raises(KeyError):
            own.centroids(**missing)
    with pytest.raises(ValueError, match="Must provide"):
        own.centroids()
    ivf, pq = str(tmp_path / "ivf.lance"), str(tmp_path / "pq.lance")
    builder = IndicesBuilder(own, "v")
    trained = builder.train_ivf(5, sample_rate=16)
    codebook = builder.train_pq(trained, 4, sample_rate=8, num_bits=4)
    trained.save(ivf)
    codebook.save(pq)
    for module in (lance.indices, lance_io.indices):
        loaded, words = module.IvfModel.load(ivf), module.PqModel.load(pq)
        assert (loaded.distance_type, loaded.num_partitions) == ("l2", 5) and loaded.centroids.equals(trained.centroids)
        assert (words.num_subvectors, words.num_bits, words.dimension) == (4, 4, DIM)
        assert words.codebook.equals(codebook.codebook)
    lance.indices.IvfModel(trained.centroids, "dot").save(ivf)
    assert IvfModel.load(ivf).distance_type == "dot"
    with pytest.raises(ValueError, match="centroids"):
        PqModel.load(ivf)
    with pytest.raises(ValueError, match="not enough rows"):
        builder.train_ivf(500)
    with pytest.raises(ValueError, match=r"must be divisible by num_subvectors .* without remainder"):
        builder.train_pq(trained, 5)
    with pytest.raises(NotImplementedError, match="accelerator"):
        builder.train_ivf(4, accelerator="cuda")
    with pytest.raises(NotImplementedError, match="create_index_uncommitted"):
        builder.transform_vectors(trained, codebook, "x")
    with pytest.raises(ValueError, match="Fragment id does not exist: 77"):
        builder.train_ivf(4, fragment_ids=[77])


def test_statistics_are_those_of_pylance(tmp_path: Path) -> None:
    """Only drift and mean distance are ours. Vectors that moved away show as drift."""
    uri = written(tmp_path)
    for kind, options in (("IVF_FLAT", {}), ("IVF_PQ", {"num_sub_vectors": 4}), ("IVF_SQ", {})):
        lance_io.dataset(uri).create_index("v", kind, metric="cosine", num_partitions=6, replace=True, **options)
        ours, theirs = (each.dataset(uri).stats.index_stats("v_idx") for each in (lance_io, lance))
        segment, expected = ours["indices"][0], theirs["indices"][0]
        assert segment.pop("drift") == 1.0 and 0 < segment.pop("mean_distance") < 1
        np.testing.assert_allclose(segment.pop("centroids"), expected.pop("centroids"), rtol=1e-6)
        assert segment.pop("uri").endswith(expected.pop("uri").rpartition("_indices")[2])
        assert segment == expected
        assert {key: ours[key] for key in ours if key not in ("indices", "segments")} == {
            key: theirs[key] for key in ours if key not in ("indices", "segments")
        }
    lance_io.dataset(uri).create_index("v", "IVF_FLAT", num_partitions=6, replace=True)
    lance_io.write_dataset(vector_table(vectors(300, seed=2) + 40, ROWS), uri, mode="append")
    lance_io.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    first, second = lance_io.dataset(uri).stats.index_stats("v_idx")["segments"]
    assert first["drift"] == 1.0 and second["drift"] > 10
    x = pa.concat_arrays(lance_io.dataset(uri).to_table(["v"])["v"].chunks[:3]).flatten().to_numpy().reshape(-1, DIM)
    away = ((x[:, None] - np.array(first["centroids"])[None]) ** 2).sum(axis=2).min(axis=1)
    assert first["mean_distance"] == pytest.approx(away[:ROWS].mean(), rel=1e-3)
