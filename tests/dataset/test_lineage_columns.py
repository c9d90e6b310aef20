"""`_row_created_at_version` and `_row_last_updated_at_version`: what pylance says of each row, after every change.

The same changes are made by pylance, by us, and by both in turn; every version is then read by both.
"""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from collections.abc import Callable

CREATED, UPDATED = "_row_created_at_version", "_row_last_updated_at_version"
LINEAGE = ["k", "_rowid", CREATED, UPDATED]
FORMATS = ["2.0", "2.2"]
WRITERS = {"pylance": [lance], "lance_io": [lance_io], "both": [lance, lance_io], "both, other": [lance_io, lance]}


def rows(start: int, end: int, text: str = "new") -> pa.Table:
    """A key and two other columns."""
    numbers = range(start, end)
    return pa.table({"k": pa.array(numbers, pa.int64()), "v": [i * 10 for i in numbers], "s": [text for _ in numbers]})


def merged(table: Any, source: pa.Table, mode: str = "auto") -> None:
    """An upsert; by columns only rows that are there."""
    merge = table.merge_insert("k").when_matched_update_all().write_mode(mode)
    (merge if mode == "rewrite_columns" else merge.when_not_matched_insert_all()).execute(source)


CHANGES: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("append", lambda library, table: library.write_dataset(rows(60, 100), table.uri, mode="append")),
    ("update", lambda _, table: table.update({"v": "v + 1"}, "k % 10 = 3")),
    ("delete", lambda _, table: table.delete("k % 10 = 5")),
    ("merge", lambda _, table: merged(table, rows(90, 110, "merged"))),
    ("update again", lambda _, table: table.update({"s": "'again'"}, "k between 10 and 95 and k % 4 = 0")),
    ("column by SQL", lambda _, table: table.add_columns({"w": "v * 2"})),
    ("column of nulls", lambda _, table: table.add_columns(pa.field("n", pa.int8()))),
    ("merge of columns", lambda _, table: merged(table, rows(3, 40).select(["k", "v"]), "rewrite_columns")),
    ("cast", lambda _, table: table.alter_columns({"path": "w", "data_type": pa.int32()})),
    ("rename", lambda _, table: table.alter_columns({"path": "w", "name": "x"})),
    ("update of some columns", lambda _, table: merged(table, rows(100, 120, "part").select(["s", "k"]))),
    ("compaction", lambda _, table: table.optimize.compact_files(target_rows_per_fragment=45)),
    ("drop", lambda _, table: table.drop_columns(["n"])),
    ("delete after compaction", lambda _, table: table.delete("k < 10 or k % 30 = 1")),
    ("update after compaction", lambda _, table: table.update({"v": "0"}, "k % 6 = 0")),
    ("matched rows deleted", lambda _, table: table.merge_insert("k").when_matched_delete().execute(rows(20, 26))),
    ("append after all", lambda library, table: library.write_dataset(tail(table), table.uri, mode="append")),
    ("compaction of all", lambda _, table: table.optimize.compact_files()),
    ("restore", lambda library, table: library.dataset(table.uri, version=5).restore()),
    ("update after restore", lambda _, table: table.update({"v": "-1"}, "k < 50")),
]


def tail(table: Any) -> pa.Table:
    """Rows for a table that got columns."""
    return rows(200, 203).append_column("x", pa.array([1, 2, None], pa.int32())).select(table.schema.names)


def written(libraries: list[Any], uri: str, version: str) -> None:
    """A table after all changes, by libraries in turn."""
    turns = cycle(libraries)
    options: dict[str, Any] = {"max_rows_per_file": 25, "enable_stable_row_ids": True, "data_storage_version": version}
    next(turns).write_dataset(rows(0, 60, "first"), uri, **options)
    for _, change in CHANGES:
        library = next(turns)
        change(library, library.dataset(uri))


@pytest.fixture(scope="module", params=[(who, version) for version in FORMATS for who in WRITERS], ids=str)
def uri(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table that was changed in all ways, by one library or by both."""
    who, version = request.param
    place = str(tmp_path_factory.mktemp("lineage") / "t")
    written(WRITERS[who], place, version)
    return place


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same table, by pylance alone."""
    place = str(tmp_path_factory.mktemp("reference") / "t")
    written([lance], place, "2.2")
    return place


READS: dict[str, Callable[[Any], Any]] = {
    "scan": lambda table: table.to_table(columns=LINEAGE),
    "only these": lambda table: table.to_table(columns=[UPDATED, CREATED]),
    "small batches": lambda table: table.to_table(columns=LINEAGE, batch_size=7),
    "filter by creation": lambda table: table.to_table(columns=LINEAGE, filter=f"{CREATED} > 1"),
    "filter by update": lambda table: table.to_table(columns=LINEAGE, filter=f"{UPDATED} between 3 and 8"),
    "filter by both": lambda table: table.to_table(columns=["v"], filter=f"{CREATED} < {UPDATED} and k % 2 = 0"),
    "filter of a column": lambda table: table.to_table(columns=LINEAGE, filter="k % 3 = 0"),
    "limit": lambda table: table.to_table(columns=LINEAGE, limit=20, offset=11),
    "limit after a filter": lambda table: table.to_table(columns=LINEAGE, filter=f"{UPDATED} > 2", limit=5, offset=2),
    "count": lambda table: table.count_rows(f"{UPDATED} = {CREATED}"),
    "fragments": lambda table: [one.to_table(columns=LINEAGE).to_pydict() for one in table.get_fragments()],
    "ordered": lambda table: table.scanner(columns=LINEAGE, order_by=["k"]).to_table(),
}


@pytest.mark.parametrize("read", READS)
def test_every_version_reads_as_by_pylance(uri: str, read: str) -> None:
    for one in lance.dataset(uri).versions():
        theirs, ours = (library.dataset(uri, version=one["version"]) for library in (lance, lance_io))
        wanted, found = READS[read](theirs), READS[read](ours)
        if isinstance(wanted, pa.Table):
            assert found.schema == wanted.schema
            assert found.to_pydict() == wanted.to_pydict(), one
        else:
            assert found == wanted, one


def test_takes_give_what_scans_of_pylance_do(uri: str) -> None:  # whose own takes of these columns fail
    for one in lance.dataset(uri).versions():
        table = lance_io.dataset(uri, version=one["version"])
        scanned = lance.dataset(uri, version=one["version"]).to_table(columns=LINEAGE)
        places = [7, 0, 31, 7, scanned.num_rows - 1]
        wanted = scanned.take(places).to_pydict()
        assert table.take(places, columns=LINEAGE).to_pydict() == wanted
        assert table._take_rows(wanted["_rowid"], columns=LINEAGE).to_pydict() == wanted
        by_key = {row["k"]: row for row in scanned.to_pylist()}
        for fragment in table.get_fragments():
            assert all(by_key[row["k"]] == row for row in fragment.take([0, 1], columns=LINEAGE).to_pylist())


def test_every_version_is_that_of_pylance(uri: str, reference: str) -> None:
    versions = [one["version"] for one in lance.dataset(reference).versions()]
    assert [one["version"] for one in lance.dataset(uri).versions()] == versions
    for version in versions:
        wanted, found = (lance.dataset(place, version).to_table(columns=LINEAGE) for place in (reference, uri))
        assert found.sort_by("k").to_pydict() == wanted.sort_by("k").to_pydict(), version
