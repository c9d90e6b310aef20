"""A table with an index, and every call that changes one: made by a handle that missed what another call committed.

version 1   rows 0..29 in three fragments: `a`, `b`, `c`, `d`
version 2   column `z`, in files of its own
version 3   an index on `c`
version 4   a config key
version 5   row 29 deleted

Calls of rows are made once, without trying again, so that the verdict of each pair is seen. Row calls of one fragment
touch different rows of it, unless they are the same call.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa

import lance_io
from lance_io.errors import CommitConflictError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Call = Callable[[Any], Any]

READ_VERSION: Final = 5
LIBRARIES: Final = {"pylance": lance, "ours": lance_io}
NUM_ROWS: Final = 30


def rows(start: int, end: int) -> pa.Table:
    """The four columns; `d` may be null and is not."""
    ids = range(start, end)
    columns = {"a": pa.array(ids, pa.int64()), "b": pa.array(ids, pa.int32()), "c": [f"c{i}" for i in ids]}
    return pa.table({**columns, "d": pa.array(ids, pa.int32())})


class Table:
    """The table, and copies of its history that share its files."""

    def __init__(self, root: Path, *, stable: bool = False) -> None:
        self.root = root
        self.base = root / "base"
        lance.write_dataset(rows(0, NUM_ROWS), self.base, max_rows_per_file=10, enable_stable_row_ids=stable)
        dataset = lance.dataset(self.base)
        dataset.add_columns({"z": "a * 2"})
        dataset.create_scalar_index("c", "BTREE")
        dataset.update_config({"k0": "v0"})
        dataset.delete("a = 29")
        assert dataset.version == READ_VERSION
        self._copies = 0

    def copy(self) -> Path:
        """A table that begins as the base is."""
        self._copies += 1
        folder = self.root / f"copy-{self._copies}"
        folder.mkdir()
        for shared in ("data", "_deletions", "_indices"):
            os.symlink(self.base / shared, folder / shared)
        for own in ("_versions", "_transactions"):
            shutil.copytree(self.base / own, folder / own)
        return folder


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


def _add_base(dataset: Any) -> None:
    module = lance if isinstance(dataset, lance.LanceDataset) else lance_io
    dataset.add_bases([module.DatasetBasePath("/elsewhere", "elsewhere")])


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
    "tag": lambda one: one.tags.create("named", 2),
    "branch": lambda one: one.create_branch("side", 2),
}
BY_PYLANCE_ONLY: Final = frozenset({"create-index"})
VERSIONS_OF: Final = {"compact": 2, "tag": 0, "branch": 0}  # that a call makes; others make one


def outcome(call: Call, dataset: Any) -> str:
    """What came of a call: "." if it was made, "R" or "I" for the kinds of conflict, "E" for what no longer fits."""
    try:
        call(dataset)
    except (CommitConflictError, OSError, RuntimeError, ValueError) as error:
        text = str(error)
        if "Retryable commit conflict" in text or "Too many concurrent writers" in text:
            return "R"
        return "I" if "ncompatible transaction" in text else "E"
    return "."


def run_pair(table: Table, first: Any, other: str, second: Any, mine: str) -> tuple[str, object]:
    """What came of `mine` on a handle that missed `other`, each by a library, and what the table holds then."""
    folder = str(table.copy())
    stale = second.dataset(folder)
    CALLS[other](first.dataset(folder))
    verdict = outcome(CALLS[mine], stale)
    made = VERSIONS_OF.get(other, 1) + (VERSIONS_OF.get(mine, 1) if verdict == "." else 0)
    facts = [_facts(one.dataset(folder)) for one in LIBRARIES.values()]
    assert facts[0] == facts[1]
    if verdict == "." or mine != "compact":  # whose reservation may be there
        again = (mine, other) == ("drop-index", "compact")  # which may find another segment, and drops that, too
        assert READ_VERSION + made <= facts[0][0] <= READ_VERSION + made + again
    return verdict, facts[0][1:]


def _facts(dataset: Any) -> tuple[Any, ...]:
    found = dataset.to_table()
    indices = sorted(one.name for one in dataset.describe_indices())
    shown = sorted(map(repr, found.to_pylist()))
    described = (dict(dataset.config()), dict(dataset.metadata), str(found.schema), indices)
    return (dataset.version, shown, *described, sorted(dataset.tags.list()), sorted(dataset.branches.list()))
