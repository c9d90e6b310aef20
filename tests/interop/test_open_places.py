"""Every call on a version that is not the newest of the main branch, beside pylance: an old one, by number and by tag,
a branch and an old version of it, by the table's URI and by the branch's own, and a detached version.

The names are drawn from the classes: a new one is tried here, or says in `ELSEWHERE` why it need not be.
"""

from __future__ import annotations

import pickle
import shutil
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import lance
import lance.debug
import pytest

import lance_io
import lance_io.debug
from lance_io.changes.merge.merge_builder import MergeInsertBuilder
from lance_io.dataset.optimizer import DatasetOptimizer
from lance_io.dataset.tags_and_branches import Branches, Tags
from lance_io.dataset.version_delta import DatasetDelta
from lance_io.not_offered import DatasetNotOffered
from lance_io.reads.metadata.table_statistics import LanceStats
from tests.interop.table_calls import CHANGES, READS, make_history, opened, plain, refs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
LIBRARIES = (lance, lance_io)


@dataclass
class History:
    """The table of `make_history`."""

    folder: Path
    detached: int

    def open(self, library: Any, folder: Path, place: str) -> Any:
        """The table in `folder` at a place; what `PLACES` names."""
        uri = f"{folder}/t.lance"
        if place == "detached":
            return library.dataset(uri, version=self.detached)
        return PLACES[place](library, uri)


PLACES: dict[str, Callable[[Any, str], Any]] = {
    "number": lambda library, uri: library.dataset(uri, version=2),
    "later number": lambda library, uri: library.dataset(uri).checkout_version(5),
    "tag": lambda library, uri: library.dataset(uri, version="old"),
    "branch": lambda library, uri: library.dataset(uri).checkout_version(("side", None)),
    "branch by uri": lambda library, uri: library.dataset(f"{uri}/tree/side"),
    "old on branch": lambda library, uri: library.dataset(uri).checkout_version(("side", 4)),
    "old on branch by uri": lambda library, uri: library.dataset(f"{uri}/tree/side", version=4),
    "first on branch": lambda library, uri: library.dataset(uri).checkout_version(("side", 3)),
    "detached": lambda library, uri: None,
}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    folder = tmp_path_factory.mktemp("history")
    return History(folder, make_history(lance, f"{folder}/t.lance"))


# -- what is read ------------------------------------------------------------------------------------------------------
def outcome(call: Callable[[], Any]) -> tuple[str, Any]:
    try:
        return "gives", call()
    except BaseException as error:
        return "raises", error


def assert_same(ours: tuple[str, Any], theirs: tuple[str, Any]) -> None:
    """The same value, or errors that the same handler catches."""
    assert not isinstance(theirs[1], (TypeError, AttributeError)), theirs  # a call that is none
    if theirs[0] == ours[0] == "raises":
        assert isinstance(ours[1], (type(theirs[1]), OSError)), (ours, theirs)
    else:
        assert ours == theirs or _but_for_times(ours[1]) == _but_for_times(theirs[1])


def _but_for_times(value: Any) -> Any:
    """Without the microsecond that pylance loses of some times: it divides nanoseconds as floating point numbers."""
    if isinstance(value, dict):
        return {key: _but_for_times(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_but_for_times(each) for each in value]
    return Moment(value) if isinstance(value, datetime) else value


class Moment:
    """A time that equals those which are a microsecond away."""

    def __init__(self, time: datetime) -> None:
        self.time = time

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Moment) and abs(self.time - other.time) <= timedelta(microseconds=1)

    __hash__ = None

    def __repr__(self) -> str:
        return repr(self.time)


def read_at(history: History, library: Any, place: str, read: Callable[[Any], Any]) -> Any:
    return read(history.open(library, history.folder, place))


@pytest.mark.parametrize("place", PLACES)
def test_reads(place: str, history: History) -> None:
    for name, read in READS.items():
        theirs, ours = (outcome(partial(read_at, history, library, place, read)) for library in LIBRARIES)
        try:
            assert_same(ours, theirs)
        except AssertionError as error:
            error.add_note(f"{name} at {place}")
            raise


@pytest.mark.parametrize("place", PLACES)
def test_pickles(place: str, history: History) -> None:
    """pylance cannot read what it has pickled of a branch that was opened by the table's URI."""
    table = history.open(lance_io, history.folder, place)
    assert opened(pickle.loads(pickle.dumps(table))) == opened(table)


# -- what is changed ---------------------------------------------------------------------------------------------------


# each takes the library, the table at its place, and the folder that holds its line of versions
CHANGED_AT = {"tag": "", "branch": "/tree/side", "old on branch by uri": "/tree/side", "detached": ""}


ELSEWHERE = {
    "has nothing to do with a version": (
        "LanceDataset.filter LanceDataset.join LanceDataset.join_asof LanceDataset.partition_expression "
        "LanceDataset.replace_schema LanceDataset.sort_by LanceDataset.session LanceDataset.initial_storage_options "
        "LanceDataset.latest_storage_options LanceDataset.io_stats_incremental LanceDataset.io_stats_snapshot "
        "LanceFragment.partition_expression LanceFragment.physical_schema MergeInsertBuilder.conflict_retries "
        "MergeInsertBuilder.retry_timeout MergeInsertBuilder.data_storage_version MergeInsertBuilder.use_index "
        "MergeInsertBuilder.write_mode MergeInsertBuilder.target_bases MergeInsertBuilder.target_all_bases "
        "MergeInsertBuilder.mark_sstables_as_compacted MergeInsertBuilder.when_matched_fail "
        "MergeInsertBuilder.when_not_matched_by_source_delete DatasetOptimizer.optimize_indices"
    ),
    "is part of another call": (
        "MergeInsertBuilder.when_matched_delete MergeInsertBuilder.when_matched_update_all "
        "MergeInsertBuilder.when_not_matched_insert_all"
    ),
    "reads by the same plan as scans and takes": (
        "LanceDataset.read_blobs LanceDataset.read_blob_ranges LanceDataset.take_blobs LanceFragment.to_pandas "
        "LanceDataset.take_items LanceDataset.warm LanceFragment.delete_rows LanceDataset.get "
        "LanceDataset.prewarm_index"
    ),
    "tells in words of its own; test_explain.py, test_cleaning.py": (
        "MergeInsertBuilder.analyze_plan MergeInsertBuilder.explain_plan LanceDataset.explain_cleanup_old_versions"
    ),
    "builds and keeps indices, by the plans of scans and commits; tests/index": (
        "LanceDataset.create_scalar_index LanceDataset.create_index_uncommitted LanceDataset.index_statistics "
        "LanceDataset.create_index LanceDataset.get_ivf_model LanceDataset.centroids "
        "LanceDataset.merge_existing_index_segments LanceDataset.commit_existing_index_segments "
        "LanceDataset.merge_index_metadata LanceStats.index_stats"
    ),
    "moves the dataset to the newest version in pylance, and here leaves it": "LanceDataset.migrate_manifest_paths_v2",
}
CLASSES = {
    "LanceDataset": lance_io.LanceDataset,
    "LanceFragment": lance_io.LanceFragment,
    **{one.__name__: one for one in (Tags, Branches, LanceStats, DatasetDelta, DatasetOptimizer, MergeInsertBuilder)},
}


def test_every_name_is_tried() -> None:
    names = {f"{name}.{one}" for name, kind in CLASSES.items() for one in dir(kind) if not one.startswith("_")}
    names -= {f"LanceDataset.{one}" for one in dir(DatasetNotOffered)}
    tried = {one.partition(":")[0] for one in (*READS, *CHANGES)}
    passed_over = {one for listed in ELSEWHERE.values() for one in listed.split()}
    assert not tried & passed_over
    assert names == {one for one in tried | passed_over if one.partition(".")[0] in CLASSES}


def lines(folder: Path) -> Any:
    """What the lines of a table hold, as pylance reads them."""
    found: dict[str | None, Any] = {}
    for branch in (None, *lance.dataset(f"{folder}/t.lance").branches.list()):
        table = lance.dataset(f"{folder}/t.lance").checkout_version((branch, None))
        found[branch] = facts(table)
    return found


def facts(table: Any) -> Any:
    return (
        table.version,
        table.uri,
        sorted(plain(table.to_table()), key=str),
        table.config(),
        table.metadata,
        table.schema,
        [field.metadata for field in table.schema],
        sorted(refs(table.tags.list()).items()),
    )


@pytest.mark.parametrize("place", CHANGED_AT)
def test_changes(place: str, history: History, tmp_path: Path) -> None:
    """The answer, the table that it was asked of, and all lines of the table afterwards."""
    for name, change in CHANGES.items():
        if (place, name) in THEIRS:
            continue
        found = []
        for library in LIBRARIES:
            folder = tmp_path / "copy"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(history.folder, folder)
            table = history.open(library, folder, place)
            answer = outcome(partial(change, library, table, f"{folder}/t.lance{CHANGED_AT[place]}"))
            found.append((answer, outcome(partial(facts, table)), outcome(partial(lines, folder))))
        for theirs, ours in zip(*found, strict=True):
            try:
                assert_same(ours, theirs)
            except AssertionError as error:
                error.add_note(f"{name} at {place}")
                raise


# what pylance does to its tables there, with the reason not to follow
THEIRS = {
    ("detached", "LanceDataset.cleanup_old_versions"): "removes the newest versions, whose rows are lost",
    ("detached", "LanceDataset.create_branch"): "makes a branch that it cannot open afterwards",
    ("tag", "DatasetOptimizer.compact_files"): "is refused, and leaves a version with reserved ids",
    ("old on branch by uri", "DatasetOptimizer.compact_files"): "is refused, and leaves a version with reserved ids",
}
