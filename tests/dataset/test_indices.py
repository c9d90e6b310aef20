"""What the manifest says about indices, as pylance describes them, and taking them out of a table."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.dataset import Index

import lance_io

if TYPE_CHECKING:
    from pathlib import Path

KINDS = (("a", "BTREE"), ("b", "BITMAP"), ("l", "LABEL_LIST"), ("s", "INVERTED"), ("st.x", "BTREE"))
OTHERS = (("s", "NGRAM", "ng"), ("a", "ZONEMAP", "zm"), ("a", "BLOOMFILTER", "bf"))
VECTORS: dict[str, dict[str, Any]] = {
    "flat": {"index_type": "IVF_FLAT", "metric": "cosine"},
    "pq": {"index_type": "IVF_PQ", "num_sub_vectors": 2, "metric": "dot"},
    "sq": {"index_type": "IVF_SQ"},
    "rq": {"index_type": "IVF_RQ"},
    "hnsw": {"index_type": "IVF_HNSW_PQ", "num_sub_vectors": 2},
}


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with indices of many kinds, two segments of one, a fragment without any and deleted rows."""
    path = str(tmp_path_factory.mktemp("indices") / "t")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2400) % 17, pa.float32()), 8)
    rows = pa.table(
        {
            "a": range(300),
            "s": [f"word {i % 7}" for i in range(300)],
            "b": [i % 3 for i in range(300)],
            "l": [[str(i % 4)] for i in range(300)],
            "st": [{"x": i} for i in range(300)],
            "v": vectors,
        }
    )
    table = lance.write_dataset(rows, path, max_rows_per_file=100)
    for column, kind in KINDS:
        table.create_scalar_index(column, kind)
    for column, kind, name in OTHERS:
        table.create_scalar_index(column, kind, name=name)
    for name, options in VECTORS.items():
        table.create_index("v", num_partitions=1, name=name, **options)
    table = lance.write_dataset(rows.slice(0, 5), path, mode="append")
    table.delete("a < 150")
    details = ("/lance.table.BTreeIndexDetails", b"")
    segment = Index(str(UUID(int=7)), "a_idx", [0], table.version, {3}, 0, index_details=details)
    lance.LanceDataset.commit(path, lance.LanceOperation.CreateIndex([segment], []), table.version)
    lance.write_dataset(rows.slice(5, 5), path, mode="append")
    return path


def seen(described: Any) -> dict[str, Any]:
    """All that is said of an index but for its settings."""
    values = {
        name: getattr(described, name)
        for name in ("name", "index_type", "type_url", "fields", "field_names", "num_rows_indexed", "total_size_bytes")
    }
    names = ("uuid", "dataset_version_at_last_update", "index_version", "created_at", "size_bytes", "base_id")
    values["segments"] = [
        [getattr(segment, name) for name in (*names, "covering_fields")] + [sorted(segment.fragment_ids)]
        for segment in described.segments
    ]
    return values


def test_indices_are_described_as_by_pylance(uri: str) -> None:
    theirs, ours = lance.dataset(uri).describe_indices(), lance_io.dataset(uri).describe_indices()
    assert [seen(one) for one in ours] == [seen(one) for one in theirs]
    assert len(ours[0].segments) == 2
    assert [index.details for index in ours] == [index.details for index in theirs]
    with pytest.warns(DeprecationWarning):
        listed = lance_io.dataset(uri).list_indices()
    with pytest.warns(DeprecationWarning):
        expected = lance.dataset(uri).list_indices()
    assert listed == [{**one, "fragment_ids": set(one["fragment_ids"])} for one in expected]


def table_with_index(path: Path) -> str:
    """A small table with two indices."""
    table = lance.write_dataset(pa.table({"a": range(20), "b": range(20)}), path)
    table.create_scalar_index("a", "BTREE")
    table.create_scalar_index("b", "BTREE")
    return str(path)


def test_an_index_is_dropped_as_by_pylance(tmp_path: Path) -> None:
    found = []
    for library in (lance, lance_io):
        uri = table_with_index(tmp_path / library.__name__)
        table = library.dataset(uri)
        with pytest.raises(RuntimeError, match="index not found"):
            table.drop_index("a")
        table.drop_index("a_idx")
        operation = lance.dataset(uri).read_transaction(4).operation
        removed = [(one.name, one.fields, set(one.fragment_ids)) for one in operation.removed_indices]
        left = [one.name for one in lance.dataset(uri).describe_indices()]
        found.append((table.version, removed, operation.new_indices, left))
        assert lance.dataset(uri).to_table(filter="a = 7").num_rows == 1
    assert found[0] == found[1]
    ours = lance_io.dataset(str(tmp_path / "lance_io"))
    with pytest.raises(OSError, match="drop_index"):
        ours.alter_columns({"path": "b", "data_type": pa.int32()})
    asyncio.run(lance_io.AsyncDataset.of(ours).drop_index("b_idx"))
    ours.checkout_latest()
    ours.alter_columns({"path": "b", "data_type": pa.int32()})
    assert ours.describe_indices() == [] == asyncio.run(lance_io.AsyncDataset.of(ours).describe_indices())
    assert ours.cleanup_old_versions(timedelta(0)).index_files_removed == 4


@pytest.mark.parametrize("kind", ["append", "drop", "optimize"])
def test_an_index_is_dropped_beside_others(tmp_path: Path, kind: str) -> None:
    outcomes = []
    for library in (lance, lance_io):
        uri = table_with_index(tmp_path / library.__name__)
        stale, other = library.dataset(uri), lance.dataset(uri)
        if kind == "append":
            lance.write_dataset(pa.table({"a": [1], "b": [1]}), uri, mode="append")
        elif kind == "drop":
            other.drop_index("a_idx")
        else:
            lance.write_dataset(pa.table({"a": [1], "b": [1]}), uri, mode="append")
            lance.dataset(uri).optimize.optimize_indices()
        try:
            stale.drop_index("a_idx")
            outcomes.append("ok")
        except OSError as error:
            outcomes.append("retryable" if "Retryable" in str(error) else str(error))
    assert outcomes[0] == outcomes[1]
