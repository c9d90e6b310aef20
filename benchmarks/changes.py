"""Changes of tables that are there: rows updated and merged, on the local disk, nothing flushed on either side.

    change/update/SHARE          a double of a share of the rows is computed anew
    change/merge/KEY/SHARE       a share of rows under known keys, and a tenth as many new ones, by an int or a text key
    change/indexed/KEY/SHARE     the same where the key has a B-tree, which pylance uses and we do not
    change/add/sql, /function    a column more, computed by SQL or by a function of batches
    change/drop                  a column less
    bytes/...                    bytes that the same changes write

A turn changes a copy of the table (links to its files) that it has opened before; the time is that of the change alone.
Before, both contenders make it once, and must leave the same rows. A case more is one more `Change`.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lance_io
from benchmarks.cases import OURS, PYLANCE, Case
from benchmarks.measure import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.measure import Operation, Turn
    from benchmarks.tables import Tables

GOAL, MERGE_GOAL, BYTES_GOAL = 1.0, 1.5, 1 / 1.01
BYTES_ROUNDS: Final = 3
SHARES = {"1%": 100, "10%": 10}
KEYS = {"int": "id", "text": "text"}


@dataclass(frozen=True)
class Change:
    """One change, of a copy of a table.

    table    name of the table
    prepare  changes the table before, by pylance; gives what the change needs besides it
    run      makes the change: of an open dataset of either library, with what was prepared
    goal     how many times as fast as pylance
    """

    name: str
    table: str
    prepare: Callable[[Any, pa.Table], Any]
    run: Callable[[Any, Any], object]
    goal: float | None


OPENERS: dict[str, Callable[[Path], Any]] = {
    OURS: lambda path: lance_io.dataset(path, session=lance_io.Session(), storage_options={"durability": "none"}),
    PYLANCE: lambda path: lance.dataset(path, session=lance.Session()),
}


def changed_rows(rows: pa.Table, part: int, key: str) -> pa.Table:
    """One of `part` rows, at random, with another double; a tenth as many have keys that no row has."""
    rng = np.random.default_rng(7)
    chosen = rows.take(rng.permutation(rows.num_rows)[: max(1, rows.num_rows // part)])
    new = np.arange(chosen.num_rows) % 11 == 10
    known = chosen[key].to_pylist()
    others = range(10**9, 10**9 + len(known)) if key == "id" else [f"-- new {number}" for number in range(len(known))]
    keys = [other if is_new else one for one, other, is_new in zip(known, others, new.tolist(), strict=True)]
    names = chosen.column_names
    chosen = chosen.set_column(
        names.index(key), chosen.schema.field(key), pa.array(keys, chosen.schema.field(key).type)
    )
    return chosen.set_column(names.index("float"), "float", pa.array(rng.random(chosen.num_rows)))


def update_change(label: str, part: int) -> Change:
    """An update of one of `part` rows."""

    def run(dataset: Any, _: None) -> object:
        return dataset.update({"float": "float + 1"}, where=f"id % {part} = 0")

    return Change(f"update/{label}", "one", lambda _dataset, _rows: None, run, GOAL)


def merge_change(label: str, part: int, kind: str, *, indexed: bool = False) -> Change:
    """A merge of one of `part` rows by key."""
    key = KEYS[kind]

    def prepare(dataset: Any, rows: pa.Table) -> pa.Table:
        if indexed:
            dataset.create_scalar_index(key, "BTREE")
        return changed_rows(rows, part, key)

    def run(dataset: Any, source: pa.Table) -> object:
        return dataset.merge_insert(key).when_matched_update_all().when_not_matched_insert_all().execute(source)

    name = f"{'indexed' if indexed else 'merge'}/{kind}/{label}"
    return Change(name, "one", prepare, run, MERGE_GOAL)


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """What `change/add/function` computes."""
    return pa.record_batch([pc.multiply(batch["float"], 2.0)], ["doubled"])


def column_changes() -> Iterator[Change]:
    """A column more, or less."""

    def nothing(_dataset: Any, _rows: pa.Table) -> None:
        """All that these need is the table."""

    def add_by_sql(dataset: Any, _: None) -> object:
        return dataset.add_columns({"doubled": "float * 2.0"})

    def add_by_function(dataset: Any, _: None) -> object:
        return dataset.add_columns(doubled, read_columns=["float"])

    def drop(dataset: Any, _: None) -> object:
        return dataset.drop_columns(["float"])

    yield Change("add/sql", "one", nothing, add_by_sql, GOAL)
    yield Change("add/function", "one", nothing, add_by_function, GOAL)
    yield Change("drop", "one", nothing, drop, GOAL)


def changes() -> Iterator[Change]:
    """Every change."""
    yield update_change("1%", SHARES["1%"])
    for indexed in (False, True):
        for kind in KEYS:
            for label, part in SHARES.items():
                yield merge_change(label, part, kind, indexed=indexed)
    yield from column_changes()


# -- measuring ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prepared:
    """A table as it is before a change, and what the change needs besides it."""

    folder: Path
    given: Any

    def copy(self, path: Path) -> Path:
        """A table of its own, whose files are links."""
        return shutil.copytree(self.folder, path, copy_function=os.link)


def prepared(tables: Tables, change: Change) -> Prepared:
    """The table of a change, written anew by pylance."""
    rows = tables.rows(change.table)
    folder = tables.new_folder() / "before"
    dataset = lance.write_dataset(rows, folder)
    return Prepared(folder, change.prepare(dataset, rows))


def change_turn(change: Change, before: Prepared, who: str, number: int, *, sizes: bool = False) -> Sample:
    """A copy of the table, and the change; its time, or the bytes that it wrote."""
    path = before.copy(before.folder.parent / f"{who}-{number}")
    known = {file.relative_to(path) for file in path.rglob("*")}
    dataset = OPENERS[who](path)
    cpu_before = time.process_time()
    started = time.perf_counter()
    change.run(dataset, before.given)
    value = time.perf_counter() - started
    cpu_s = time.process_time() - cpu_before
    if sizes:
        new = (file for file in path.rglob("*") if file.is_file() and file.relative_to(path) not in known)
        value = float(sum(file.stat().st_size for file in new))
    shutil.rmtree(path)
    return Sample(value, cpu_s)


def require_same(change: Change, before: Prepared) -> None:
    """Raise `AssertionError` unless both contenders leave the same rows."""
    found = []
    for who, opened in OPENERS.items():
        path = before.copy(before.folder.parent / f"{who}-check")
        change.run(opened(path), before.given)
        rows = lance.dataset(path).to_table()
        found.append(rows.sort_by([("id", "ascending"), ("random", "ascending")]))
        shutil.rmtree(path)
    if not found[0].equals(found[1]):
        raise AssertionError(f"{change.name}: lance_io and pylance leave other rows")


def change_cases(tables: Tables) -> Iterator[Case]:
    """The time of every change, then the bytes."""

    @cache
    def before_of(change: Change) -> Prepared:
        made = prepared(tables, change)
        require_same(change, made)
        return made

    def make(change: Change, sizes: bool) -> dict[str, Turn]:
        before = before_of(change)
        return {who: partial(change_turn, change, before, who, sizes=sizes) for who in OPENERS}

    def ours(change: Change) -> Operation:
        before = before_of(change)
        return lambda number: change_turn(change, before, OURS, number)

    for change in changes():
        yield Case(
            f"change/{change.name}", partial(make, change, False), goal=change.goal, profiled=partial(ours, change)
        )
    for change in changes():
        if not change.name.startswith(("indexed", "drop")):
            yield Case(
                f"bytes/{change.name}", partial(make, change, True), "bytes", BYTES_GOAL, rounds_max=BYTES_ROUNDS
            )
