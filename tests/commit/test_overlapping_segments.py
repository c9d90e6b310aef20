"""Segments of one index that cover one fragment: pylance commits them, and then ends at a question about the index."""

from __future__ import annotations

import shutil
import uuid
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from lance.dataset import Index as PeerIndex

import lance_io
from lance_io.errors import CommitConflictError, OperationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

DETAILS = ("/lance.table.BTreeIndexDetails", b"")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Four fragments of five rows, and an index `x` that knows them."""
    table = lance.write_dataset(pa.table({"a": range(20), "b": range(20)}), tmp_path / "t", max_rows_per_file=5)
    table.create_scalar_index("a", "BTREE", name="x")
    return str(tmp_path / "t")


def segments(uri: str, name: str = "x") -> list[str]:
    """UUIDs of the segments of an index."""
    described = lance_io.dataset(uri).describe_indices()
    return [str(one.uuid) for index in described if index.name == name for one in index.segments]


def segment(library: Any, uri: str, covered: set[int], name: str = "x") -> Any:
    """One more segment, with files of its own."""
    folder, new = f"{uri}/_indices", str(uuid.uuid4())
    shutil.copytree(f"{folder}/{segments(uri)[0]}", f"{folder}/{new}")
    kind = PeerIndex if library is lance else lance_io.Index
    return kind(new, name, [0], 2, covered, 0, index_details=DETAILS)


def removed(uri: str, name: str = "x") -> list[Any]:
    """The segments of a name, as values to be removed."""
    return [lance_io.Index(one, name, [0], 2, set(), 0, index_details=DETAILS) for one in segments(uri, name)]


def create(library: Any, uri: str, new: Sequence[Any], gone: Sequence[Any] = (), **how: Any) -> None:
    how = {"read_version": library.dataset(uri).version, **how}
    library.LanceDataset.commit(uri, library.LanceOperation.CreateIndex([*new], [*gone]), **how)


@pytest.mark.parametrize("is_detached", [False, True])
@pytest.mark.parametrize("covered", [{0, 1, 2, 3}, {3}, {3, 9}])
def test_what_is_covered_is_not_covered_again(uri: str, covered: set[int], is_detached: bool) -> None:
    with pytest.raises(OperationError, match=r"index 'x': its segments .* both cover fragment [03]"):
        create(lance_io, uri, [segment(lance_io, uri, covered)], detached=is_detached)
    assert lance.dataset(uri).version == 2
    assert lance.dataset(uri).stats.index_stats("x")["num_indexed_rows"] == 20


@pytest.mark.parametrize("is_turned", [False, True])
def test_segments_of_one_commit_are_disjoint(uri: str, is_turned: bool) -> None:
    new = [segment(lance_io, uri, {0, 1}, "y"), segment(lance_io, uri, {1, 2, 3}, "y")]
    with pytest.raises(OperationError, match=r"index 'y': its segments .* both cover fragment 1"):
        create(lance_io, uri, new[::-1] if is_turned else new)
    with pytest.raises(OperationError, match="index 'y': there is a segment"):
        create(lance_io, uri, new[:1] * 2)
    create(lance_io, uri, [new[0], segment(lance_io, uri, {2, 3}, "y")])
    assert lance.dataset(uri).stats.index_stats("y")["num_indices"] == 2


def test_a_segment_is_added_once(uri: str) -> None:
    with pytest.raises(OperationError, match=r"there is a segment .* already"):
        create(lance_io, uri, removed(uri))


def test_what_the_commit_removes_does_not_count(uri: str) -> None:
    gone = removed(uri)
    create(lance_io, uri, [segment(lance_io, uri, {0, 1}), segment(lance_io, uri, {2, 3})], gone)
    table = lance.dataset(uri)
    assert table.stats.index_stats("x")["num_indices"] == 2
    assert table.to_table(filter="a in (2, 17)")["a"].to_pylist() == [2, 17]


def test_fragments_of_a_compaction_that_left_indices_alone_are_covered(uri: str) -> None:
    """The old segment names fragments that are gone; the record of moved rows says that it knows the new one."""
    lance.write_dataset(pa.table({"a": range(20, 25), "b": range(5)}), uri, mode="append")
    lance_io.dataset(uri).optimize.compact_files(target_rows_per_fragment=20, defer_index_remap=True)
    ids = [fragment.fragment_id for fragment in lance.dataset(uri).get_fragments()]
    assert ids == [4, 5]
    with pytest.raises(OperationError, match="both cover fragment 5"):
        create(lance_io, uri, [segment(lance_io, uri, {4, 5})])
    create(lance_io, uri, [segment(lance_io, uri, {4})])
    assert lance.dataset(uri).stats.index_stats("x")["num_indices"] == 2


def test_what_others_built_meanwhile_counts(uri: str) -> None:
    """Made for a version before the index, whose segments are found when it is committed."""
    late = segment(lance_io, uri, {1})
    with pytest.raises((OperationError, CommitConflictError)):
        create(lance_io, uri, [late], read_version=1)
    lance_io.dataset(uri).update_config({"k": "v"})
    lance_io.dataset(uri).cleanup_old_versions(versions=[1, 2])
    with pytest.raises((OperationError, CommitConflictError)):
        create(lance_io, uri, [late], read_version=1)
    with pytest.raises(OperationError, match="both cover fragment 1"):
        create(lance_io, uri, [late], read_version=3)
    assert len(segments(uri)) == 1


CHANGES: dict[str, Callable[[Any, str], Any]] = {
    "append": lambda one, uri: lance_io.write_dataset(pa.table({"a": [20], "b": [20]}), uri, mode="append"),
    "delete": lambda one, _: one.delete("a = 19"),
    "update": lambda one, _: one.update({"b": "b + 1"}, where="a = 2"),
    "merge": lambda one, _: one.merge_insert("a").when_matched_update_all().execute(pa.table({"a": [3], "b": [0]})),
    "add columns": lambda one, _: one.add_columns({"c": "a + b"}),
    "drop columns": lambda one, _: one.drop_columns(["b"]),
    "compact": lambda one, _: one.optimize.compact_files(target_rows_per_fragment=100),
    "config": lambda one, _: one.update_config({"k": "v"}),
    "restore": lambda one, _: one.restore(),
    "another index": lambda one, uri: create(lance_io, uri, [segment(lance_io, uri, {0, 1}, "y")]),
    "overwrite": lambda one, uri: lance_io.write_dataset(pa.table({"a": [1]}), uri, mode="overwrite"),
}


@pytest.fixture
def overlapping(uri: str) -> str:
    """The table, with a second segment of pylance's that covers two of the fragments, too."""
    create(lance, uri, [segment(lance, uri, {1, 2})])
    assert len(segments(uri)) == 2
    return uri


@pytest.mark.parametrize("name", CHANGES)
def test_a_table_that_has_such_segments_is_changed(overlapping: str, name: str) -> None:
    before = lance_io.dataset(overlapping).version
    CHANGES[name](lance_io.dataset(overlapping), overlapping)
    assert lance_io.dataset(overlapping).version > before


@pytest.mark.parametrize("how", ["drop", "replace", "pylance", "more"])
def test_such_segments_go(overlapping: str, how: str) -> None:
    """A segment more is taken if it covers what none does."""
    if how == "more":
        CHANGES["append"](None, overlapping)
        create(lance_io, overlapping, [segment(lance_io, overlapping, {4})])
        with pytest.raises(OperationError, match="both cover fragment 2"):
            create(lance_io, overlapping, [segment(lance_io, overlapping, {2})])
        assert len(segments(overlapping)) == 3
    if how in ("drop", "more"):
        lance_io.dataset(overlapping).drop_index("x")
        assert lance.dataset(overlapping).describe_indices() == []
        return
    if how == "replace":
        create(lance_io, overlapping, [segment(lance_io, overlapping, {0, 1, 2, 3})], removed(overlapping))
    else:
        lance.dataset(overlapping).create_scalar_index("a", "BTREE", name="x")
    stats = lance.dataset(overlapping).stats.index_stats("x")
    assert (stats["num_indices"], stats["num_indexed_rows"]) == (1, 20)
