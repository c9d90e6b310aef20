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
import pyarrow as pa
import pytest

import lance_io
import lance_io.debug
from lance_io.dataset.compaction.optimizer import DatasetOptimizer
from lance_io.dataset.merge.merge_builder import MergeInsertBuilder
from lance_io.dataset.not_offered import DatasetNotOffered
from lance_io.dataset.version.table_statistics import LanceStats
from lance_io.dataset.version.tags_and_branches import Branches, Tags
from lance_io.dataset.version_delta import DatasetDelta

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
LIBRARIES = (lance, lance_io)


def rows(*values: int) -> pa.Table:
    return pa.table({"a": pa.array(values, pa.int64()), "s": [str(one) for one in values]})


@dataclass
class History:
    """A table of six versions and a branch of three, each line with a detached version, and a tag of version 2."""

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
    uri = f"{folder}/t.lance"
    table = lance.write_dataset(rows(1, 2, 3), uri, enable_stable_row_ids=True)
    table.insert(rows(4, 5))
    table.tags.create("old", 2)
    table.delete("a = 1")
    table.update({"s": "'x'"}, where="a = 4")
    table.update_config({"k": "v"})
    table.insert(rows(6))
    branch = table.create_branch("side", 3)
    branch.insert(rows(10, 11))
    branch.delete("a = 10")
    append = lance.LanceOperation.Append([lance.fragment.LanceFragment.create(uri, rows(77))])
    detached = lance.LanceDataset.commit(table, append, read_version=6, detached=True)
    return History(folder, detached.version)


# -- what is read ------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value without what two libraries say in their own ways."""
    if isinstance(value, pa.Table):
        return value.to_pylist()
    if isinstance(value, pa.RecordBatchReader):
        return value.read_all().to_pylist()
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if hasattr(value, "read_version") and hasattr(value, "operation"):
        return value.read_version, type(value.operation).__name__
    return value


def opened(table: Any) -> Any:
    return table.version, table.uri, table.count_rows()


def fragments(table: Any) -> list[Any]:
    return [table.get_fragment(number) for number in sorted(table.fragment_ids())]


def refs(entries: Any) -> Any:
    return {name: {k: one[k] for k in one if k.endswith(("version", "branch"))} for name, one in entries.items()}


READS: dict[str, Callable[[Any], Any]] = {
    "LanceDataset.all_files": lambda t: sorted(one["path"] for one in t.all_files().read_all().to_pylist()),
    "LanceDataset.base_paths": lambda t: sorted((one.path, one.name) for one in t.base_paths().values()),
    "LanceDataset.checkout_latest": lambda t: (t.checkout_latest(), opened(t)),
    "LanceDataset.checkout_version: number": lambda t: opened(t.checkout_version(4)),
    "LanceDataset.checkout_version: first": lambda t: opened(t.checkout_version(1)),
    "LanceDataset.checkout_version: tag": lambda t: opened(t.checkout_version("old")),
    "LanceDataset.checkout_version: branch": lambda t: opened(t.checkout_version(("side", None))),
    "LanceDataset.checkout_version: on branch": lambda t: opened(t.checkout_version(("side", 4))),
    "LanceDataset.checkout_version: on main": lambda t: opened(t.checkout_version((None, 4))),
    "LanceDataset.checkout_version: main": lambda t: opened(t.checkout_version((None, None))),
    "LanceDataset.config": lambda t: t.config(),
    "LanceDataset.count_rows": lambda t: (t.count_rows(), t.count_rows("a > 3")),
    "LanceDataset.data_storage_version": lambda t: t.data_storage_version,
    "LanceDataset.describe_indices": lambda t: t.describe_indices(),
    "LanceDataset.fragment_ids": lambda t: sorted(t.fragment_ids()),
    "LanceDataset.get_fragment": lambda t: [one and one.count_rows() for one in map(t.get_fragment, range(5))],
    "LanceDataset.get_fragments": lambda t: [one.fragment_id for one in t.get_fragments()],
    "LanceDataset.get_transactions": lambda t: plain(t.get_transactions()),
    "LanceDataset.get_transactions: some": lambda t: plain(t.get_transactions(2)),
    "LanceDataset.get_transactions: none": lambda t: plain(t.get_transactions(0)),
    "LanceDataset.get_transactions: wrong": lambda t: t.get_transactions(-1),
    "LanceDataset.get_version": lambda t: t.get_version(),
    "LanceDataset.has_index": lambda t: t.has_index,
    "LanceDataset.has_stable_row_ids": lambda t: t.has_stable_row_ids,
    "LanceDataset.head": lambda t: plain(t.head(2)),
    "LanceDataset.lance_schema": lambda t: [field.id() for field in t.lance_schema.fields()],
    "LanceDataset.latest_version": lambda t: t.latest_version,
    "LanceDataset.list_indices": lambda t: t.list_indices(),
    "LanceDataset.max_field_id": lambda t: t.max_field_id,
    "LanceDataset.metadata": lambda t: t.metadata,
    "LanceDataset.read_transaction: first": lambda t: plain(t.read_transaction(1)),
    "LanceDataset.read_transaction: third": lambda t: plain(t.read_transaction(3)),
    "LanceDataset.read_transaction: own": lambda t: plain(t.read_transaction(t.version)),
    "LanceDataset.read_transaction: newest": lambda t: plain(t.read_transaction(6)),
    "LanceDataset.sample": lambda t: t.sample(2, randomize_order=False).num_rows,
    "LanceDataset.scanner": lambda t: plain(t.scanner(filter="a > 2", with_row_id=True).to_table()),
    "LanceDataset.schema": lambda t: t.schema,
    "LanceDataset.schema_metadata": lambda t: t.schema_metadata,
    "LanceDataset.slice": lambda t: plain(t.slice(1, 3)) if hasattr(t, "slice") else None,
    "LanceDataset.sql": lambda t: plain(
        pa.Table.from_batches(t.sql("SELECT a FROM dataset ORDER BY a").build().to_batch_records())
    ),
    "LanceDataset.take": lambda t: plain(t.take([1, 0])),
    "LanceDataset.to_batches": lambda t: plain(pa.Table.from_batches(t.to_batches())),
    "LanceDataset.to_pandas": lambda t: t.to_table().to_pandas().to_dict(),
    "LanceDataset.to_table": lambda t: plain(t.to_table()),
    "LanceDataset.tracked_files": lambda t: sorted(
        (one["version"], one["type"], one["path"]) for one in t.tracked_files().read_all().to_pylist()
    ),
    "LanceDataset.uri": lambda t: t.uri,
    "LanceDataset.validate": lambda t: t.validate(),
    "LanceDataset.version": lambda t: t.version,
    "LanceDataset.version_refs": lambda t: t.version_refs(),
    "LanceDataset.versions": lambda t: [(one["version"], one["metadata"]) for one in t.versions()],
    "LanceDataset.delta": lambda t: t.delta(1) and None,
    "LanceDataset.branches": lambda t: refs(t.branches.list()),
    "LanceDataset.tags": lambda t: refs(t.tags.list()),
    "LanceDataset.stats": lambda t: t.stats and None,
    "LanceDataset.optimize": lambda t: t.optimize and None,
    "LanceFragment.count_rows": lambda t: [one.count_rows("a > 2") for one in fragments(t)],
    "LanceFragment.data_files": lambda t: [[file.path for file in one.data_files()] for one in fragments(t)],
    "LanceFragment.deletion_file": lambda t: [one.deletion_file() for one in fragments(t)],
    "LanceFragment.fragment_id": lambda t: [one.fragment_id for one in fragments(t)],
    "LanceFragment.head": lambda t: plain([one.head(1) for one in fragments(t)]),
    "LanceFragment.metadata": lambda t: [one.metadata.physical_rows for one in fragments(t)],
    "LanceFragment.num_deletions": lambda t: [one.num_deletions for one in fragments(t)],
    "LanceFragment.open_session": lambda t: [plain(one.open_session().take([0])) for one in fragments(t)],
    "LanceFragment.physical_rows": lambda t: [one.physical_rows for one in fragments(t)],
    "LanceFragment.scanner": lambda t: plain([one.scanner(columns=["a"]).to_table() for one in fragments(t)]),
    "LanceFragment.schema": lambda t: [one.schema for one in fragments(t)],
    "LanceFragment.take": lambda t: plain([one.take([0]) for one in fragments(t)]),
    "LanceFragment.to_batches": lambda t: plain([pa.Table.from_batches(one.to_batches()) for one in fragments(t)]),
    "LanceFragment.to_table": lambda t: plain([one.to_table() for one in fragments(t)]),
    "LanceFragment.validate": lambda t: [one.validate() for one in fragments(t)],
    "Tags.get_version": lambda t: t.tags.get_version("old"),
    "Tags.list": lambda t: refs(t.tags.list()),
    "Tags.list_ordered": lambda t: refs(dict(t.tags.list_ordered())),
    "Branches.list": lambda t: refs(t.branches.list()),
    "Branches.list_ordered": lambda t: refs(dict(t.branches.list_ordered())),
    "LanceStats.data_stats": lambda t: [(one.id, one.bytes_on_disk) for one in t.stats.data_stats().fields],
    "LanceStats.dataset_stats": lambda t: dict(t.stats.dataset_stats()),
    "debug.list_transactions": lambda t: len(
        (lance if isinstance(t, lance.LanceDataset) else lance_io).debug.list_transactions(t, 3)
    ),
}
DELTAS: dict[str, dict[str, int]] = {
    "older": {"compared_against": 1},
    "newer": {"compared_against": 6},
    "two": {"begin_version": 2, "end_version": 5},
    "two, the other way": {"begin_version": 5, "end_version": 2},
}
for method in ("list_transactions", "get_inserted_rows", "get_updated_rows", "get_deleted_row_ids"):
    for what, chosen in DELTAS.items():
        READS[f"DatasetDelta.{method}: {what}"] = lambda t, method=method, chosen=chosen: plain(
            getattr(t.delta(**chosen), method)()
        )


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


def append(library: Any, folder: str, *values: int) -> Any:
    return library.LanceOperation.Append([library.fragment.LanceFragment.create(folder, rows(*values))])


def committed(made: Any) -> Any:
    return made.version, made.uri, plain(made.to_table())


def made_clone(table: Any, how: str, folder: str) -> Any:
    made = getattr(table, how)(f"{folder.partition('/t.lance')[0]}/clone.lance", 4)
    return made.version, made.count_rows()


def made_branch(table: Any, *reference: Any) -> Any:
    made = table.create_branch("new", *reference)
    return made.version, made.count_rows(), made.uri


def made_tag(table: Any, *reference: Any) -> Any:
    table.tags.create("new", *reference)
    return refs({"new": table.tags.list()["new"]})


def moved_tag(table: Any, *reference: Any) -> Any:
    table.tags.update("old", *reference)
    return refs({"old": table.tags.list()["old"]})


def cleaned(table: Any, **options: Any) -> Any:
    table.cleanup_old_versions(older_than=timedelta(0), error_if_tagged_old_versions=False, **options)


KEYED = pa.table({"a": pa.array([2, 3], pa.int64()), "m": [1, 2]})
CHANGES: dict[str, Callable[[Any, Any, str], Any]] = {
    "LanceDataset.add_bases": lambda lib, t, at: committed(t.add_bases([lib.DatasetBasePath(f"{at}/more", "more")])),
    "LanceDataset.add_columns": lambda lib, t, at: t.add_columns({"b": "a + 1"}),
    "LanceDataset.alter_columns": lambda lib, t, at: t.alter_columns({"path": "a", "name": "z"}),
    "LanceDataset.cleanup_old_versions": lambda lib, t, at: cleaned(t, retain_versions=3),
    "LanceDataset.commit": lambda lib, t, at: committed(
        lib.LanceDataset.commit(t, append(lib, at, 60), read_version=t.version)
    ),
    "LanceDataset.commit_batch": lambda lib, t, at: committed(
        lib.LanceDataset.commit_batch(t, [lib.Transaction(t.version, append(lib, at, 60))])["dataset"]
    ),
    "LanceDataset.create_branch": lambda lib, t, at: made_branch(t),
    "LanceDataset.create_branch: number": lambda lib, t, at: made_branch(t, 4),
    "LanceDataset.create_branch: tag": lambda lib, t, at: made_branch(t, "old"),
    "LanceDataset.deep_clone": lambda lib, t, at: made_clone(t, "deep_clone", at),
    "LanceDataset.delete": lambda lib, t, at: t.delete("a = 2"),
    "LanceDataset.delete: newer rows": lambda lib, t, at: t.delete("a = 6"),
    "LanceDataset.delete_config_keys": lambda lib, t, at: t.delete_config_keys(["other"]),
    "LanceDataset.drop": lambda lib, t, at: lib.LanceDataset.drop(at),
    "LanceDataset.drop_columns": lambda lib, t, at: t.drop_columns(["s"]),
    "LanceDataset.drop_index": lambda lib, t, at: t.drop_index("none"),
    "LanceDataset.insert": lambda lib, t, at: t.insert(rows(50)),
    "LanceDataset.insert: instead": lambda lib, t, at: t.insert(rows(50), mode="overwrite"),
    "LanceDataset.merge": lambda lib, t, at: t.merge(KEYED, "a"),
    "LanceDataset.merge_insert": lambda lib, t, at: (
        t.merge_insert("a").when_matched_update_all().when_not_matched_insert_all().execute(rows(2, 90))
    ),
    "LanceDataset.replace_field_metadata": lambda lib, t, at: t.replace_field_metadata("a", {"q": "w"}),
    "LanceDataset.replace_schema_metadata": lambda lib, t, at: t.replace_schema_metadata({"q": "w"}),
    "LanceDataset.restore": lambda lib, t, at: t.restore(),
    "LanceDataset.shallow_clone": lambda lib, t, at: made_clone(t, "shallow_clone", at),
    "LanceDataset.truncate_table": lambda lib, t, at: t.truncate_table(),
    "LanceDataset.update": lambda lib, t, at: t.update({"s": "'u'"}, where="a = 5"),
    "LanceDataset.update_config": lambda lib, t, at: t.update_config({"q": "w"}),
    "LanceDataset.update_field_metadata": lambda lib, t, at: t.update_field_metadata({"a": {"q": "w"}}),
    "LanceDataset.update_metadata": lambda lib, t, at: t.update_metadata({"q": "w"}),
    "LanceDataset.update_schema_metadata": lambda lib, t, at: t.update_schema_metadata({"q": "w"}),
    "write_dataset: append": lambda lib, t, at: committed(lib.write_dataset(rows(50), t, mode="append")),
    "write_dataset: overwrite": lambda lib, t, at: committed(lib.write_dataset(rows(50), t, mode="overwrite")),
    "write_dataset: create": lambda lib, t, at: lib.write_dataset(rows(50), t, mode="create"),
    "LanceFragment.create_from_file": lambda lib, t, at: (
        lib.fragment.LanceFragment.create_from_file(append(lib, at, 60).fragments[0].files[0].path, t, 0).physical_rows
    ),
    "LanceFragment.create": lambda lib, t, at: lib.fragment.LanceFragment.create(at, rows(60)).physical_rows,
    "LanceFragment.delete": lambda lib, t, at: t.get_fragment(0).delete("a = 2").num_deletions,
    "LanceFragment.merge": lambda lib, t, at: t.get_fragment(0).merge(KEYED, "a")[1].to_pyarrow().names,
    "LanceFragment.merge_columns": lambda lib, t, at: (
        t.get_fragment(0).merge_columns({"b": "a + 1"})[1].to_pyarrow().names
    ),
    "LanceFragment.update_columns": lambda lib, t, at: t.get_fragment(0).update_columns(rows(2, 3), "a", "a")[1],
    "Tags.create": lambda lib, t, at: made_tag(t),
    "Tags.create: number": lambda lib, t, at: made_tag(t, 4),
    "Tags.create: tag": lambda lib, t, at: made_tag(t, "old"),
    "Tags.create: on branch": lambda lib, t, at: made_tag(t, ("side", 4)),
    "Tags.create: branch": lambda lib, t, at: made_tag(t, ("side", None)),
    "Tags.create: main": lambda lib, t, at: made_tag(t, (None, None)),
    "Tags.update": lambda lib, t, at: moved_tag(t),
    "Tags.update: number": lambda lib, t, at: moved_tag(t, 4),
    "Tags.delete": lambda lib, t, at: (t.tags.delete("old"), t.tags.list()),
    "Tags.replace_metadata": lambda lib, t, at: (
        t.tags.replace_metadata("old", {"k": "v"}),
        t.tags.list()["old"]["metadata"],
    ),
    "Branches.delete": lambda lib, t, at: (t.branches.delete("side"), t.branches.list()),
    "Branches.replace_metadata": lambda lib, t, at: (
        t.branches.replace_metadata("side", {"k": "v"}),
        t.branches.list()["side"]["metadata"],
    ),
    "DatasetOptimizer.compact_files": lambda lib, t, at: t.optimize.compact_files().fragments_removed,
    "DatasetOptimizer.enable_auto_cleanup": lambda lib, t, at: t.optimize.enable_auto_cleanup(
        {"interval": 5, "older_than_seconds": 10}
    ),
    "DatasetOptimizer.disable_auto_cleanup": lambda lib, t, at: t.optimize.disable_auto_cleanup(),
    "MergeInsertBuilder.execute": lambda lib, t, at: t.merge_insert("a").when_matched_delete().execute(rows(3)),
    "MergeInsertBuilder.execute_uncommitted": lambda lib, t, at: plain(
        t.merge_insert("a").when_matched_update_all().execute_uncommitted(rows(3))[0]
    ),
}

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
        "LanceDataset.warm LanceFragment.delete_rows"
    ),
    "tells in words of its own; test_explain.py, test_cleaning.py": (
        "MergeInsertBuilder.analyze_plan MergeInsertBuilder.explain_plan LanceDataset.explain_cleanup_old_versions"
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
