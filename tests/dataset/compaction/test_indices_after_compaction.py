"""pylance's indices after our compaction answer right, and claim no more than they know."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.optimize import Compaction
from lance_io.plans.plan import drive_sync
from lance_io.proto import table_pb2
from lance_io.reads.version.index_entries import load_indices

if TYPE_CHECKING:
    from pathlib import Path

KINDS = ["BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER", "LABEL_LIST", "NGRAM", "IVF_FLAT"]
FILTERS = [
    "a < 9",
    "a = 33",
    "a in (1, 47, 52)",
    "a is null",
    "s = 's7'",
    "contains(s, 's4')",
    "array_has_any(l, ['3'])",
]


def write_table(path: Path, kind: str, *, stable: bool) -> None:
    """Six fragments, of which an index covers four; some rows are deleted, some were updated."""
    for first in range(0, 60, 10):
        numbers = range(first, first + 10)
        rows = pa.table(
            {
                "a": pa.array([None if n % 17 == 0 else n for n in numbers], pa.int64()),
                "s": [f"s{n % 10}" for n in numbers],
                "l": [[str(n % 5), str(n % 7)] for n in numbers],
                "v": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(first * 4, first * 4 + 40, dtype="f4")), 4),
            }
        )
        mode = "append" if first else "create"
        ds = lance.write_dataset(rows, str(path), mode=mode, enable_stable_row_ids=stable)
        if first == 30:
            make_index(ds, kind)
    ds.delete("a = 3 or a = 24")
    ds.update({"s": "'s7'"}, where="a = 12")


def make_index(ds: Any, kind: str) -> None:
    if kind == "IVF_FLAT":
        ds.create_index("v", kind, num_partitions=1)
        return
    column = {"LABEL_LIST": "l", "NGRAM": "s"}.get(kind, "a")
    ds.create_scalar_index(column, kind)


def answers(path: Path) -> list[Any]:
    """What filters give, by pylance with and without its index, and by us."""
    peer = lance.dataset(str(path))
    found = []
    for text in FILTERS:
        by_scan = peer.to_table(columns=["a", "s"], filter=text, use_scalar_index=False).sort_by("a")
        assert peer.to_table(columns=["a", "s"], filter=text).sort_by("a").equals(by_scan), text
        assert lance_io.dataset(str(path)).to_table(columns=["a", "s"], filter=text).sort_by("a").equals(by_scan)
        found.append(by_scan.to_pylist())
    nearest = {"column": "v", "q": np.full(4, 130, "f4"), "k": 5}
    found.append(sorted(str(row) for row in peer.to_table(columns=["a"], nearest=nearest)["a"].to_pylist()))
    return found


def covered(path: Path) -> list[set[int]]:
    """The fragments that each index claims to know."""
    return [{*(index.fragment_ids or ())} for index in drive_sync(load_indices(lance_io.dataset(str(path))._state))]


def known(path: Path) -> set[int]:
    """The fragments that pylance says its indices cover."""
    listed = (index for index in lance.dataset(str(path)).describe_indices() if not index.name.startswith("__"))
    return {one for index in listed for segment in index.segments for one in segment.fragment_ids}


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_answers_stay(tmp_path: Path, kind: str, *, stable: bool) -> None:
    path = tmp_path / "t.lance"
    write_table(path, kind, stable=stable)
    before = answers(path)
    ds = lance_io.dataset(str(path))
    metrics = ds.optimize.compact_files()
    assert metrics.fragments_added == 2  # those that the index knows, and the others
    assert answers(path) == before
    live = {fragment.fragment_id for fragment in ds.get_fragments()}
    assert known(path) & live == live - {max(live)}
    lance.dataset(str(path)).optimize.optimize_indices()
    assert answers(path) == before
    lance.dataset(str(path)).delete("a = 40")
    lance_io.dataset(str(path)).delete("a = 41")
    answers(path)


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP", "NGRAM", "IVF_FLAT"])
def test_indices_that_are_left_as_they_are(tmp_path: Path, kind: str) -> None:
    """The record of where rows went is as pylance's, and pylance finds them by it, again and again."""
    mine, theirs = tmp_path / "t.lance", tmp_path / "theirs.lance"
    write_table(mine, kind, stable=False)
    shutil.copytree(mine, theirs)
    before = answers(mine)
    lance_io.dataset(str(mine)).optimize.compact_files(defer_index_remap=True)
    lance.dataset(str(theirs)).optimize.compact_files(defer_index_remap=True)
    for path in (mine, theirs):
        assert answers(path) == before
    assert record_of(mine) == record_of(theirs)
    assert covered(mine) == covered(theirs)
    for number in range(2):  # a record goes on, whoever compacts, asked or not
        for path in (mine, theirs):
            lance.dataset(str(path)).delete(f"a = {40 + number}")
            lance.write_dataset(lance.dataset(str(path)).to_table(limit=2), str(path), mode="append")
        before = answers(mine)
        metrics = lance_io.dataset(str(mine)).optimize.compact_files()
        lance.dataset(str(theirs)).optimize.compact_files(defer_index_remap=True)
        assert metrics.fragments_removed > 1
        assert answers(mine) == answers(theirs) == before
        assert record_of(mine) == record_of(theirs)
    lance_io.dataset(str(theirs)).optimize.compact_files(materialize_deletions_threshold=0.0)
    answers(theirs)


def record_of(path: Path) -> list[Any]:
    """The fragment reuse index, without what differs from run to run."""
    (entry,) = [one for one in drive_sync(load_indices(lance_io.dataset(str(path))._state)) if one.is_system]
    assert entry.message is not None
    details = table_pb2.FragmentReuseIndexDetails.FromString(entry.message.index_details.value)
    return [entry.name, entry.fragment_ids, entry.dataset_version, str(details)]


def test_stable_row_ids_need_no_record(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    write_table(path, "BITMAP", stable=True)
    for library in (lance, lance_io):
        with pytest.raises(OSError, match="stable row IDs"):
            library.dataset(str(path)).optimize.compact_files(defer_index_remap=True)


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP"])
def test_an_index_made_meanwhile_is_a_conflict(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t.lance"
    write_table(path, "ZONEMAP", stable=False)
    ds = lance_io.dataset(str(path))
    results = [task.execute(ds) for task in Compaction.plan(ds, {}).tasks]
    lance.dataset(str(path)).create_scalar_index("s", kind)
    with pytest.raises(OSError, match="onflict"):
        Compaction.commit(ds, results)
