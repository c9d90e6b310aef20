"""A table of three versions, and one operation of each kind made for the third: by pylance, and as our transactions.

version 1   rows 0..299 in three fragments
version 2   a config key
version 3   row 299 deleted
"""

from __future__ import annotations

import os
import shutil
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from lance import LanceOperation as Op
from lance.dataset import Index
from lance.fragment import write_fragments

from lance_io.commit.target import CommitTarget
from lance_io.errors import CommitConflictError
from lance_io.store.url import resolve_uri
from lance_io.table.manifest.index_section import decode_indices
from lance_io.table.manifest.manifest import Manifest, decode_manifest, read_section
from lance_io.table.manifest.row_ids import decode_row_ids, decode_row_versions
from lance_io.table.transaction.transaction import Transaction, decode_transaction
from tests.commit.tables import commit_sync

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

READ_VERSION = 3
APPEND_AGAIN = "append again"  # of another data file
KINDS = (
    "append",
    "delete",
    "update",
    "overwrite",
    "create-index",
    "rewrite",
    "merge",
    "project",
    "restore",
    "update-config",
    "replace-data",
    "update-bases",
)


def rows(start: int, end: int) -> pa.Table:
    """Three columns that tell where they are from."""
    ids = range(start, end)
    return pa.table({"id": pa.array(ids, pa.int64()), "x": [float(i) for i in ids], "s": [f"s{i}" for i in ids]})


class World:
    """The table, and tables that begin as copies of it and share its files."""

    def __init__(self, root: Path, *, stable: bool = False) -> None:
        self.root = root
        self.base = root / "base"
        lance.write_dataset(rows(0, 300), self.base, max_rows_per_file=100, enable_stable_row_ids=stable)
        lance.dataset(self.base).update_config({"k0": "v0"})
        lance.dataset(self.base).delete("id = 299")
        self.dataset = lance.dataset(self.base)
        assert self.dataset.version == READ_VERSION
        self._copies = 0
        self.operations = self._operations()
        self.transactions = {kind: self._transaction(kind) for kind in (*KINDS, APPEND_AGAIN)}

    # -- tables ------------------------------------------------------------------------------------------------------

    def copy(self) -> Path:
        """A table with the history of the base; data and deletion files are the same ones."""
        self._copies += 1
        folder = self.root / f"copy-{self._copies}"
        folder.mkdir()
        for shared in ("data", "_deletions"):
            os.symlink(self.base / shared, folder / shared)
        for own in ("_versions", "_transactions"):
            shutil.copytree(self.base / own, folder / own)
        return folder

    def commit_by_pylance(self, folder: Path, kind: str) -> None:
        """Commit an operation as pylance does."""
        if kind == "update-bases":  # which has no public form
            lance.dataset(folder, version=READ_VERSION).add_bases([lance.DatasetBasePath("/base", "base")])
            return
        lance.LanceDataset.commit(folder, self.operations[kind](), read_version=READ_VERSION)

    def commit_by_us(self, folder: Path, kind: str) -> None:
        """Commit the same operation; each time as a transaction of its own."""
        transaction = replace(self.transactions[kind], uuid=str(uuid.uuid4()))
        commit_sync(CommitTarget(resolve_uri(str(folder), {"durability": "none"})), transaction)

    # -- operations --------------------------------------------------------------------------------------------------

    def _operations(self) -> dict[str, Callable[[], Any]]:
        dataset = self.dataset
        fragments = [each.metadata for each in dataset.get_fragments()]
        new, newer = (write_fragments(rows(1000, 1010), self.base, schema=dataset.schema) for _ in range(2))
        other_file = write_fragments(rows(0, 100), self.base, schema=dataset.schema)[0].files[0]
        compacted = replace(fragments[0], id=10, files=[other_file])
        merged, merged_schema = self._changed("merged", lambda one: one.add_columns({"y": "x * 2"}))
        _, dropped_schema = self._changed("dropped", lambda one: one.drop_columns(["s"]))
        fewer, _ = self._changed("fewer", lambda one: one.delete("id = 5"))
        updated, _ = self._changed("updated", lambda one: one.update({"x": "x + 1"}, "id = 6"))
        unstamped = {"created_at_version_meta": None, "last_updated_at_version_meta": None}
        index = {"fields": [0], "dataset_version": READ_VERSION, "fragment_ids": {0, 1, 2}, "index_version": 0}
        index["index_details"] = ("/lance.table.BitmapIndexDetails", b"")
        return {
            "append": lambda: Op.Append(new),
            APPEND_AGAIN: lambda: Op.Append(newer),
            "delete": lambda: Op.Delete(fewer[:1], [], "id = 5"),
            "update": lambda: Op.Update(
                removed_fragment_ids=[],
                updated_fragments=updated[:1],
                new_fragments=[replace(updated[-1], id=0, **unstamped)],
                fields_modified=[],
                fields_for_preserving_frag_bitmap=[1],
                update_mode="rewrite_rows",
            ),
            "overwrite": lambda: Op.Overwrite(dataset.schema, new),
            "create-index": lambda: Op.CreateIndex([Index(uuid=str(uuid.uuid4()), name="by id", **index)], []),
            "rewrite": lambda: Op.Rewrite([Op.RewriteGroup(fragments[:1], [compacted])], []),
            "merge": lambda: Op.Merge(merged, merged_schema),
            "project": lambda: Op.Project(dropped_schema),
            "restore": lambda: Op.Restore(2),
            "update-config": lambda: Op.UpdateConfig(config_updates=Op.UpdateMap({"k1": "v1"}, False)),
            "replace-data": lambda: Op.DataReplacement([Op.DataReplacementGroup(0, other_file)]),
        }

    def _changed(self, name: str, change: Callable[[lance.LanceDataset], Any]) -> tuple[list[Any], Any]:
        """Fragments and schema after a change of a copy, whose new files are put among those of the base."""
        folder = self.root / name
        shutil.copytree(self.base, folder)
        change(lance.dataset(folder))
        for shared in ("data", "_deletions"):
            shutil.copytree(folder / shared, self.base / shared, dirs_exist_ok=True)
        changed = lance.dataset(folder)
        return [each.metadata for each in changed.get_fragments()], changed.lance_schema

    def _transaction(self, kind: str) -> Transaction:
        folder = self.copy()
        self.commit_by_pylance(folder, kind)
        return version_of(folder, READ_VERSION + 1)[1]


def outcome(commit: Callable[[], None]) -> str:
    """What came of a commit: "ok", or the kind of conflict by its message, which is all that pylance tells."""
    try:
        commit()
    except (CommitConflictError, OSError, RuntimeError, ValueError) as error:
        if "Retryable commit conflict" in str(error):
            return "retryable"
        if "incompatible with concurrent transaction" in str(error):
            return "incompatible"
        raise
    return "ok"


def version_of(folder: Path, version: int) -> tuple[Manifest, Transaction]:
    """A version and the transaction inside of it."""
    for path in (folder / "_versions").glob("*.manifest"):
        data = path.read_bytes()
        manifest = decode_manifest(data)
        if manifest.version == version:
            assert manifest.transaction_offset is not None
            return manifest, decode_transaction(read_section(data, manifest.transaction_offset, what="transaction"))
    raise AssertionError(f"no version {version} in {folder}")


def content(manifest: Manifest) -> tuple[str, list[Any]]:
    """Everything a manifest says but who wrote it, when, and random names; row ids and versions one by one."""
    message = type(manifest.message)()
    message.CopyFrom(manifest.message)
    for name in ("writer_version", "timestamp", "index_section", "transaction_section"):
        message.ClearField(name)
    message.transaction_file = message.transaction_file.partition("-")[0]
    for fragment in message.fragments:
        sequences = (
            ("inline_row_ids", decode_row_ids),
            ("inline_created_at_versions", decode_row_versions),
            ("inline_last_updated_at_versions", decode_row_versions),
        )
        for name, decode in sequences:
            if fragment.HasField(name):
                values = decode(getattr(fragment, name), fragment.physical_rows)
                setattr(fragment, name, str(values.tolist()).encode())
    indices = decode_indices(manifest.index_section) if manifest.index_section is not None else []
    return str(message), [(one.name, one.fields, one.dataset_version, one.fragment_ids) for one in indices]
