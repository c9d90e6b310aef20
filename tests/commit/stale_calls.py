"""A table with an index, and every call that changes one: made by a handle that missed what another call committed.

version 1   rows 0..19 in two fragments: `a`, `b`, `c`, `d`
version 2   an index on `c`
version 3   rows 20..29 in a third fragment, which the index does not cover
version 4   column `z`, in files of its own
version 5   a config key
version 6   row 29 deleted; a tag `fixed` of version 3, and a branch `aside` that leaves version 2

The table with stable row ids has manifests of the older names, so that renaming them does something.

Calls of rows are made once, without trying again, so that the verdict of each pair is seen. Row calls of one fragment
touch different rows of it, unless they are the same call. Calls named `commit-...` commit the operation that pylance
made for another call, each time by `LanceDataset.commit` of the library whose handle it is.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
from lance.fragment import write_fragments

import lance_io
from lance_io.errors import CommitConflictError

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[[Any], Any]

READ_VERSION: Final = 6
LIBRARIES: Final = {"pylance": lance, "ours": lance_io}


def rows(start: int, end: int) -> pa.Table:
    """The four columns; `d` may be null and is not."""
    ids = range(start, end)
    columns = {"a": pa.array(ids, pa.int64()), "b": pa.array(ids, pa.int32()), "c": [f"c{i}" for i in ids]}
    return pa.table({**columns, "d": pa.array(ids, pa.int32())})


class Table:
    """The table, and copies of it whose files are links to its files."""

    def __init__(self, root: Path, *, stable: bool = False) -> None:
        self.root = root
        self.base = root / "base"
        self.is_stable = stable
        options: dict[str, Any] = {"enable_stable_row_ids": stable, "enable_v2_manifest_paths": not stable}
        dataset = lance.write_dataset(rows(0, 20), self.base, max_rows_per_file=10, **options)
        dataset.create_scalar_index("c", "BTREE")
        dataset.insert(rows(20, 30))
        dataset.add_columns({"z": "a * 2"})
        dataset.update_config({"k0": "v0"})
        dataset.delete("a = 29")
        assert dataset.version == READ_VERSION
        dataset.tags.create("fixed", 3)
        dataset.create_branch("aside", 2)
        self._copies = 0
        self._make_operations()

    def copy(self) -> Path:
        """A table that begins as the base is."""
        self._copies += 1
        folder = self.root / f"copy-{self._copies}"
        shutil.copytree(self.base, folder, copy_function=os.link)
        return folder

    def _make_operations(self) -> None:
        """Tables whose newest version is of an operation that calls commit; their files become files of the base."""
        for name in sorted({*COMMITTED.values()}):
            made = self.copy()
            if name == "compact":  # of whose index pylance could not read the operation back
                lance.dataset(made).drop_index("c_idx")
            CALLS[name](lance.dataset(made))
            made.rename(self.root / f"made-{name}")
        new = write_fragments(pa.table({"z": pa.array(range(10), pa.int64())}), self.base, mode="append")
        (self.root / "replacing.json").write_text(json.dumps(new[0].to_json()))
        for made in self.root.glob("made-*"):
            for shared in ("data", "_deletions", "_indices"):
                for path in (made / shared).rglob("*"):
                    place = self.base / path.relative_to(made)
                    if path.is_file() and not place.exists():
                        place.parent.mkdir(parents=True, exist_ok=True)
                        os.link(path, place)


# -- calls -----------------------------------------------------------------------------------------------------------


def _merge(dataset: Any) -> None:
    given = rows(8, 9).append_column("z", pa.array([0], pa.int64()))
    new = rows(100, 101).append_column("z", pa.array([0], pa.int64()))
    builder = dataset.merge_insert("a").when_matched_update_all().when_not_matched_insert_all()
    builder.conflict_retries(0).execute(pa.concat_tables([given, new]))


def _insert_only(dataset: Any) -> None:
    new = rows(110, 111).append_column("z", pa.array([0], pa.int64()))
    dataset.merge_insert("a").when_not_matched_insert_all().conflict_retries(0).execute(new)


def _patch(dataset: Any) -> None:
    given = pa.table({"a": pa.array([9], pa.int64()), "b": pa.array([0], pa.int32())})
    builder = dataset.merge_insert("a").when_matched_update_all().write_mode("rewrite_columns")
    builder.conflict_retries(0).execute(given)


def _restore(dataset: Any) -> None:
    dataset.checkout_version(READ_VERSION - 1).restore()


def _overwrite(dataset: Any) -> None:
    dataset.insert(rows(0, 3), mode="overwrite")


def _library(dataset: Any) -> Any:
    return lance if isinstance(dataset, lance.LanceDataset) else lance_io


def _add_base(dataset: Any) -> None:
    dataset.add_bases([_library(dataset).DatasetBasePath("/elsewhere", "elsewhere")])


def _operation(dataset: Any, name: str) -> Any:
    """What pylance made for a call, or for replacing the data of `z`, as an operation of the library of the handle."""
    library, root = _library(dataset), Path(dataset.uri).parent
    if name != "replace":
        made = library.dataset(str(root / f"made-{name}"))
        operation = made.read_transaction(made.version).operation
        if name == "append":
            operation.fragments = [_with_own_file(dataset, one) for one in operation.fragments]
        return operation
    fragment = library.FragmentMetadata.from_json(json.dumps(json.loads((root / "replacing.json").read_text())))
    kinds = library.LanceOperation
    return kinds.DataReplacement([kinds.DataReplacementGroup(0, fragment.files[0])])


def _with_own_file(dataset: Any, fragment: Any) -> Any:
    """A fragment whose file has a name of its own: a file is added to a table once."""
    values, data = fragment.to_json(), Path(dataset.uri) / "data"
    for file in values["files"]:
        name = f"{uuid.uuid4()}.lance"
        os.link(data / file["path"], data / name)
        file["path"] = name
    return type(fragment).from_json(json.dumps(values))


def _commit(name: str) -> Call:
    def call(dataset: Any) -> None:
        read_version = None if name in ("overwrite", "restore") else READ_VERSION
        _library(dataset).LanceDataset.commit(dataset, _operation(dataset, name), read_version, max_retries=3)

    return call


def _commit_batch(dataset: Any) -> None:
    library = _library(dataset)
    transactions = [library.Transaction(READ_VERSION, _operation(dataset, "append")) for _ in range(2)]
    library.LanceDataset.commit_batch(dataset, transactions)


def _commit_aside(dataset: Any) -> None:
    library = _library(dataset)
    library.LanceDataset.commit(dataset, _operation(dataset, "append"), READ_VERSION, detached=True)


def _commit_metadata(dataset: Any) -> None:
    library = _library(dataset)
    kinds = library.LanceOperation
    entries = kinds.UpdateMap({"k3": "v3"})
    changes = kinds.UpdateConfig(schema_metadata_updates=entries, field_metadata_updates={3: entries})
    library.LanceDataset.commit(dataset, changes, READ_VERSION)


def _commit_segment(dataset: Any) -> None:
    segment = dataset.create_index_uncommitted("b", "BTREE", name="b_idx", fragment_ids=[0])
    dataset.commit_existing_index_segments("b_idx", "b", [segment])


def _clean(dataset: Any) -> None:
    dataset.cleanup_old_versions(timedelta(0), 2, error_if_tagged_old_versions=False)


CALLS: Final[dict[str, Call]] = {
    "append": lambda one: one.insert(rows(200, 203).append_column("z", pa.array([0, 0, 0], pa.int64()))),
    "overwrite": _overwrite,
    "delete": lambda one: one.delete("a = 5", conflict_retries=0),
    "delete-far": lambda one: one.delete("a = 25", conflict_retries=0),
    "delete-fragment": lambda one: one.delete("a < 10", conflict_retries=0),
    "truncate": lambda one: one.truncate_table(),
    "update": lambda one: one.update({"b": "1"}, "a = 6", conflict_retries=0),
    "update-far": lambda one: one.update({"b": "1"}, "a = 26", conflict_retries=0),
    "merge": _merge,
    "insert-only": _insert_only,
    "patch": _patch,
    "add-null": lambda one: one.add_columns(pa.field("n", pa.int64())),
    "add-sql": lambda one: one.add_columns({"n": "a + 1"}),
    "cast": lambda one: one.alter_columns({"path": "d", "data_type": pa.int64()}),
    "join": lambda one: one.merge(pa.table({"a": [1, 2], "n": [1, 2]}), "a"),
    "rename": lambda one: one.alter_columns({"path": "d", "name": "e"}),
    "require": lambda one: one.alter_columns({"path": "d", "nullable": False}),
    "drop": lambda one: one.drop_columns(["z"]),
    "compact": lambda one: one.optimize.compact_files(target_rows_per_fragment=100),
    "restore": _restore,
    "drop-index": lambda one: one.drop_index("c_idx"),
    "create-index": lambda one: one.create_scalar_index("b", "BTREE"),
    "config": lambda one: one.update_config({"k": "v"}),
    "metadata": lambda one: one.update_metadata({"k": "v"}),
    "schema-metadata": lambda one: one.update_schema_metadata({"k": "v"}),
    "field-metadata": lambda one: one.update_field_metadata({"d": {"k": "v"}}),
    "add-base": _add_base,
    "tag": lambda one: one.tags.create("named", 4),
    "branch": lambda one: one.create_branch("side", 4),
    "move-tag": lambda one: one.tags.update("fixed", 4),
    "delete-tag": lambda one: one.tags.delete("fixed"),
    "delete-branch": lambda one: one.branches.delete("aside"),
    "set-config": lambda one: one.update_config({"k0": "v1"}),
    "delete-config": lambda one: one.delete_config_keys(["k0"]),
    "replace-config": lambda one: one.update_config({"k2": "v2"}, replace=True),
    "replace-metadata": lambda one: one.update_schema_metadata({"k2": "v2"}, replace=True),
    "other-field": lambda one: one.update_field_metadata({"b": {"k": "v"}}),
    "clean": _clean,
    "migrate-names": lambda one: one.migrate_manifest_paths_v2(),
    "rebuild-index": lambda one: one.create_scalar_index("c", "BTREE", replace=True),
    "optimize-index": lambda one: one.optimize.optimize_indices(),
    "batch": _commit_batch,
    "detached": _commit_aside,
    "commit-append": _commit("append"),
    "commit-delete": _commit("delete"),
    "commit-update": _commit("update"),
    "commit-patch": _commit("patch"),
    "commit-overwrite": _commit("overwrite"),
    "commit-merge": _commit("add-sql"),
    "commit-project": _commit("drop"),
    "commit-rewrite": _commit("compact"),
    "commit-restore": _commit("restore"),
    "commit-config": _commit("config"),
    "commit-index": _commit("create-index"),
    "commit-replace": _commit("replace"),
    "commit-metadata": _commit_metadata,
    "compact-deferred": lambda one: one.optimize.compact_files(target_rows_per_fragment=100, defer_index_remap=True),
    "stop-cleaning": lambda one: one.optimize.disable_auto_cleanup(),
    "describe-tag": lambda one: one.tags.replace_metadata("fixed", {"k": "v"}),
    "describe-branch": lambda one: one.branches.replace_metadata("aside", {"k": "v"}),
    "index-segment": _commit_segment,
    "begin-log": lambda one: one.initialize_mem_wal(),
}
COMMITTED: Final = {
    "batch": "append",
    "commit-append": "append",
    "commit-delete": "delete",
    "commit-update": "update",
    "commit-patch": "patch",
    "commit-overwrite": "overwrite",
    "commit-merge": "add-sql",
    "commit-project": "drop",
    "commit-rewrite": "compact",
    "commit-restore": "restore",
    "commit-config": "config",
    "commit-index": "create-index",
}
BY_PYLANCE_ONLY: Final = frozenset({"create-index", "rebuild-index", "optimize-index", "index-segment", "begin-log"})
OF_REFS: Final = ("tag", "branch", "move-tag", "delete-tag", "delete-branch", "describe-tag", "describe-branch")
WITHOUT_VERSION: Final = frozenset({*OF_REFS, "clean", "migrate-names", "detached"})
NOT_OF_STABLE: Final = ("detached", "compact-deferred")  # what the table with stable row ids refuses
COMPACTING: Final = ("compact", "compact-deferred")  # whose fragment ids are reserved by a version before


def can_be_run(table: Table, first: str, other: str, second: str, mine: str) -> bool:
    """Whether both libraries have the calls, and leave a table that can be read.

    Older names: pylance makes no detached versions there, and its handles that missed a renaming name what they commit
    by the older rule, after which nobody opens the table. Stable row ids, which that table has, too: compaction cannot
    leave the indices as they are.
    """
    if (first == "ours" and other in BY_PYLANCE_ONLY) or (second == "ours" and mine in BY_PYLANCE_ONLY):
        return False
    return not table.is_stable or not (
        other in NOT_OF_STABLE or (other == "migrate-names" and second == "pylance" and mine != "migrate-names")
    )


def versions_of(name: str) -> int:
    """How many versions a call makes."""
    return 0 if name in WITHOUT_VERSION else 2 if name in COMPACTING else 1


@dataclass(frozen=True)
class Outcome:
    """What came of a call.

    kind   "." if it was made, "R" or "I" for the kinds of conflict, "E" for what no longer fits
    error  what was raised
    """

    kind: str
    error: Exception | None = None

    @property
    def text(self) -> str:
        """What the error says, without what differs from table to table, and where in its source pylance found it."""
        text = re.sub(r",? *(/home|/rustc|/root/\.cargo|rust)/\S+\.rs:\d+(:\d+)?", "", str(self.error or ""))
        text = re.sub(r"copy-\d+", "copy", text)
        return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UUID", text)


def outcome(call: Call, dataset: Any) -> Outcome:
    """What came of a call."""
    try:
        call(dataset)
    except (CommitConflictError, OSError, RuntimeError, ValueError) as error:
        text = str(error)
        if "Retryable commit conflict" in text or "Too many concurrent writers" in text:
            return Outcome("R", error)
        return Outcome("I" if "ncompatible transaction" in text else "E", error)
    return Outcome(".")


def run_pair(table: Table, first: Any, other: str, second: Any, mine: str) -> tuple[Outcome, Facts]:
    """What came of `mine` on a handle that missed `other`, each by a library, and what the table holds then."""
    folder = str(table.copy())
    stale = second.dataset(folder)
    CALLS[other](first.dataset(folder))
    found = outcome(CALLS[mine], stale)
    made = versions_of(other) + (versions_of(mine) if found.kind == "." else 0)
    facts = [facts_of(one.dataset(folder)) for one in LIBRARIES.values()]
    assert facts[0] == facts[1]
    if found.kind == "." or mine not in COMPACTING:  # whose reservation may be there
        again = (mine, other) == ("drop-index", "compact")  # which may find another segment, and drops that, too
        assert READ_VERSION + made <= facts[0].version <= READ_VERSION + made + again
    return found, facts[0]


@dataclass(frozen=True)
class Facts:
    """What a library sees of a table: all that does not depend on random names.

    versions  without the second, which a branch leaves: pylance keeps it for the branch's files, which a copied table
              has not
    """

    version: int
    rows: tuple[str, ...]
    schema: str
    config: str
    metadata: str
    indices: tuple[str, ...]
    tags: str
    branches: str
    bases: str
    versions: tuple[int, ...]


def facts_of(dataset: Any) -> Facts:
    """What its library sees of a table."""
    found = dataset.to_table()
    return Facts(
        dataset.version,
        tuple(sorted(map(repr, found.to_pylist()))),
        found.schema.to_string(show_schema_metadata=True),
        repr(sorted(dataset.config().items())),
        repr(sorted(dataset.metadata.items())),
        tuple(sorted(one.name for one in dataset.describe_indices())),
        repr(sorted((name, tag["version"], tag.get("metadata")) for name, tag in dataset.tags.list().items())),
        repr(sorted((name, one.get("metadata")) for name, one in dataset.branches.list().items())),
        repr(sorted((number, base.name, base.path) for number, base in dataset.base_paths().items())),
        tuple(sorted(one["version"] for one in dataset.versions() if one["version"] != 2)),
    )
