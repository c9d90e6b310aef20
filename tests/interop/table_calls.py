"""Calls of every public method of a table, as text of programs that share them: what is read, and what changes it.

Nothing here loads a library: a program that has imported `lance_io` alone calls them, too.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
else:

    class Arrow:
        """pyarrow, once something of it is used."""

        def __getattr__(self, name: str) -> Any:
            return getattr(import_module("pyarrow"), name)

    pa = Arrow()


def rows(*values: int) -> pa.Table:
    return pa.table({"a": pa.array(values, pa.int64()), "s": [str(one) for one in values]})


def make_history(library: Any, uri: str) -> int:
    """A table of six versions and a branch of three, each line with a detached version, and a tag of version 2.

    Gives the number of the detached version of the main line.
    """
    table = library.write_dataset(rows(1, 2, 3), uri, enable_stable_row_ids=True)
    table.insert(rows(4, 5))
    table.tags.create("old", 2)
    table.delete("a = 1")
    table.update({"s": "'x'"}, where="a = 4")
    table.update_config({"k": "v"})
    table.insert(rows(6))
    branch = table.create_branch("side", 3)
    branch.insert(rows(10, 11))
    branch.delete("a = 10")
    operation = append(library, uri, 77)
    return int(library.LanceDataset.commit(table, operation, read_version=6, detached=True).version)


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


def is_rows(value: Any) -> bool:
    """Whether `plain` gives its rows."""
    return isinstance(value, (pa.Table, pa.RecordBatchReader))


def opened(table: Any) -> Any:
    return table.version, table.uri, table.count_rows()


def library_of(table: Any) -> Any:
    """The library that made a table."""
    return sys.modules[type(table).__module__.partition(".")[0]]


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
    "debug.list_transactions": lambda t: len(library_of(t).debug.list_transactions(t, 3)),
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


def keyed() -> pa.Table:
    """Rows to join with by `a`."""
    return pa.table({"a": pa.array([2, 3], pa.int64()), "m": [1, 2]})


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
    "LanceDataset.merge": lambda lib, t, at: t.merge(keyed(), "a"),
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
    "LanceFragment.merge": lambda lib, t, at: t.get_fragment(0).merge(keyed(), "a")[1].to_pyarrow().names,
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
