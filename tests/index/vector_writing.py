"""Checks of indices of vectors that are built here, as `check_vector_writing.py` of the format's description does.

Each of its 24 tables (kinds, metrics, kinds of row ids) is searched by pylance, which must plan with the index and give
the distances that numpy computes from the files; then pylance appends, deletes, updates the index and compacts.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa

import lance_io
from lance_io.file import LanceFileReader
from lance_io.proto import index_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("IVF_FLAT", {}),
    ("IVF_SQ", {}),
    ("IVF_PQ", {"num_sub_vectors": 4}),
    ("IVF_PQ", {"num_sub_vectors": 4, "num_bits": 4}),
)
METRICS = ("l2", "cosine", "dot")
ROWS, MORE, DIM = 3000, 400, 16
_TYPES = {1: "<f2", 2: "<f4", 3: "<f8"}


class PlainIndex:
    """Reads the files of an index, and computes distances without the package's search."""

    def __init__(self, folder: Path) -> None:
        index, self._rows = LanceFileReader(str(folder / "index.idx")), LanceFileReader(str(folder / "auxiliary.idx"))
        metadata = index.metadata().schema.metadata
        about = json.loads(metadata[b"lance:index"])
        self._kind, self._metric = about["type"], about["distance_type"]
        message = index_pb2.Ivf.FromString(index.read_global_buffer(int(metadata[b"lance:ivf"])))
        self._centroids = _matrix(message.centroids)
        metadata = self._rows.metadata().schema.metadata
        layout = index_pb2.Ivf.FromString(self._rows.read_global_buffer(int(metadata[b"lance:ivf"])))
        self._offsets, self._lengths = list(layout.offsets), list(layout.lengths)
        self._about = json.loads(json.loads(metadata[b"storage_metadata"])[0])
        if self._kind == "IVF_PQ":
            words = index_pb2.Tensor.FromString(self._rows.read_global_buffer(self._about["codebook_position"]))
            parts = self._about["num_sub_vectors"]
            self._words = _matrix(words).reshape(parts, 1 << self._about["nbits"], DIM // parts)

    def distances(self, query: np.ndarray[Any, Any], num_partitions: int) -> np.ndarray[Any, Any]:
        """Distances of all rows of the nearest partitions, ascending."""
        if self._metric == "cosine":
            query = query / np.linalg.norm(query)
        away = -(self._centroids @ query) if self._metric == "dot" else ((self._centroids - query) ** 2).sum(axis=1)
        away[np.array(self._lengths) == 0] = np.inf
        chosen = np.argsort(away, kind="stable")[:num_partitions].tolist()
        return np.sort(
            np.concatenate([self._of_partition(query, number) for number in chosen if self._lengths[number]])
        )

    def _of_partition(self, query: np.ndarray[Any, Any], number: int) -> np.ndarray[Any, Any]:
        table = self._rows.read_range(self._offsets[number], self._lengths[number]).to_table().combine_chunks()
        values = table.column(1).chunk(0).flatten().to_numpy().reshape(len(table), -1)
        if self._kind == "IVF_FLAT":
            dots = values @ query
            return ((values - query) ** 2).sum(axis=1) if self._metric == "l2" else 1 - dots
        if self._kind == "IVF_SQ":
            low, high = self._about["bounds"]["start"], self._about["bounds"]["end"]
            step = (high - low) / 255
            if self._metric == "dot":
                return 1 - (values * step + low) @ query
            code = np.clip((query.astype("f8") - low) / step, 0, 255).astype("u1")
            return ((values.astype("i4") - code) ** 2).sum(axis=1) * step * step
        assert self._about["transposed"]
        values = values.reshape(-1).reshape(-1, len(values)).T
        parts, _, width = self._words.shape
        if self._about["nbits"] == 4:
            values = np.stack([values & 15, values >> 4], axis=2).reshape(len(values), parts)
        target = (query if self._metric == "dot" else query - self._centroids[number]).reshape(parts, 1, width)
        table_of = (self._words * target).sum(axis=2)
        table_of = 1 / parts - table_of if self._metric == "dot" else ((self._words - target) ** 2).sum(axis=2)
        return table_of[np.arange(parts), values].sum(axis=1)


def _matrix(tensor: index_pb2.Tensor) -> np.ndarray[Any, Any]:
    return np.frombuffer(tensor.data, _TYPES[tensor.data_type]).reshape([*tensor.shape])


def checks(kind: str, options: dict[str, Any], metric: str, *, stable: bool, num_queries: int) -> Iterator[bool]:
    """Checks of one table: a search each, and one after appends, deletions, an update and a compaction by pylance."""
    rng = np.random.default_rng(4)
    x = (rng.normal(size=(ROWS + MORE, DIM)) * rng.uniform(0.5, 2, (ROWS + MORE, 1))).astype("f4")

    def rows(first: int, last: int) -> pa.Table:
        lists = pa.FixedSizeListArray.from_arrays(pa.array(x[first:last].ravel()), DIM)
        return pa.table({"id": range(first, last), "v": lists})

    with tempfile.TemporaryDirectory() as uri:
        lance_io.write_dataset(rows(0, ROWS), uri, max_rows_per_file=1000, enable_stable_row_ids=stable)
        lance_io.dataset(uri).create_index("v", kind, "x", metric, num_partitions=8, **options)
        peer = lance.dataset(uri)
        (segment,) = peer.describe_indices()[0].segments
        index = PlainIndex(Path(uri) / "_indices" / segment.uuid)
        for number in range(num_queries):
            query, partitions = rng.normal(size=DIM).astype("f4"), (1, 3, 8)[number % 3]
            near = {"column": "v", "q": query, "k": 10, "nprobes": partitions}
            scanner = peer.scanner(nearest=near, columns=["_distance"], with_row_id=True)
            theirs = scanner.to_table()["_distance"].to_numpy()
            expected = index.distances(query, partitions)[:10]
            yield "ANNSubIndex: name=x" in scanner.explain_plan(True) and np.allclose(
                theirs, expected, rtol=2e-4, atol=2e-4
            )
        assert peer.stats.index_stats("x")["num_indexed_rows"] == ROWS
        peer = lance.write_dataset(rows(ROWS, ROWS + MORE), uri, mode="append")
        peer.delete("id % 7 = 3")
        peer.optimize.optimize_indices()
        assert lance.dataset(uri).stats.index_stats("x")["num_unindexed_rows"] == 0
        lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=100_000)
        near = {"column": "v", "q": x[1], "k": 5}
        found = [
            {*lance.dataset(uri).to_table(["id"], nearest=near | more)["id"].to_pylist()}
            for more in ({"nprobes": 8, "refine_factor": 700}, {"use_index": False, "metric": metric})
        ]
        yield found[0] == found[1]
