"""New values in tables of file version 0.1: added and cast columns, joins and merges, as by pylance on a copy."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Change = Callable[[Any], Any]

ROWS = pa.table(
    {
        "k": pa.array(range(40), pa.int64()),
        "i": pa.array([i * 3 for i in range(40)], pa.int32()),
        "f": [i / 4 for i in range(40)],
        "s": [None if i % 7 == 0 else f"text {i % 5}" for i in range(40)],
        "v": pa.array([[float(i), 1.0] for i in range(40)], pa.list_(pa.float32(), 2)),
        "l": [list(range(i % 3)) for i in range(40)],
        "st": [{"x": i, "y": f"y{i}"} for i in range(40)],
    }
)


def source(*names: str, start: int = 30, end: int = 45) -> pa.Table:
    """Rows of a merge: ten that are there, five that are new."""
    numbers = range(start, end)
    whole = pa.table(
        {
            "k": pa.array(numbers, pa.int64()),
            "i": pa.array([-i for i in numbers], pa.int32()),
            "f": [i * 2.0 for i in numbers],
            "s": [f"new {i}" for i in numbers],
            "v": pa.array([[0.5, float(i)] for i in numbers], pa.list_(pa.float32(), 2)),
            "l": [[i] for i in numbers],
            "st": [{"x": -i, "y": "new"} for i in numbers],
        }
    )
    return whole.select(names) if names else whole


def joined(column: pa.Array, keys: range) -> Change:
    """A left join with a column of these keys."""
    other = pa.table({"other": pa.array(keys, pa.int64()), "new": column})
    return lambda table: table.merge(other, left_on="k", right_on="other")


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A function for `add_columns`."""
    values = [None if value is None else value * 2 for value in batch.column("s").to_pylist()]
    return pa.record_batch([pa.array(values, pa.string())], names=["twice"])


def upsert(new: pa.Table, **how: Any) -> Change:
    """Update what matches, insert the rest."""
    return lambda table: (
        table.merge_insert("k")
        .when_matched_update_all(how.get("condition"))
        .when_not_matched_insert_all()
        .write_mode(how.get("mode", "auto"))
        .execute(new)
    )


def update(new: pa.Table, **how: Any) -> Change:
    """Only update what matches."""
    return lambda table: (
        table.merge_insert("k").when_matched_update_all().write_mode(how.get("mode", "auto")).execute(new)
    )


CHANGES: dict[str, Change] = {
    "SQL of integers": lambda table: table.add_columns({"new": "i * 2", "more": "f + 1"}),
    "SQL of strings": lambda table: table.add_columns({"new": "s || '!'"}),
    "SQL literals": lambda table: table.add_columns({"new": "5", "t": "'text'"}),
    "SQL with null integers": lambda table: table.add_columns({"new": "nullif(i, 6)"}),
    "SQL null": lambda table: table.add_columns({"new": "cast(null as int)"}),
    "a function": lambda table: table.add_columns(doubled, read_columns=["s"]),
    "a function by batches": lambda table: table.add_columns(doubled, read_columns=["s"], batch_size=7),
    "rows": lambda table: table.add_columns(pa.table({"new": pa.array(range(36))}).to_reader()),
    "too few rows": lambda table: table.add_columns(pa.table({"new": pa.array(range(30))}).to_reader()),
    "a column that is there": lambda table: table.add_columns({"i": "1"}),
    "a join of all": joined(pa.array(range(40)), range(40)),
    "a join of strings": joined(pa.array([f"j{i}" for i in range(20)]), range(20)),
    "a join of integers": joined(pa.array(range(20)), range(20)),
    "a join of floats": joined(pa.array([i / 2 for i in range(20)]), range(20)),
    "a join of bools": joined(pa.array([True] * 20), range(20)),
    "a join of lists": joined(pa.array([[i] for i in range(20)]), range(20)),
    "a join of vectors": joined(pa.array([[1.0, 2.0]] * 20, pa.list_(pa.float32(), 2)), range(20)),
    "a join of structs": joined(pa.array([{"x": i} for i in range(20)]), range(20)),
    "wider integers": lambda table: table.alter_columns({"path": "i", "data_type": pa.int64()}),
    "narrower integers": lambda table: table.alter_columns({"path": "i", "data_type": pa.int16()}),
    "too narrow integers": lambda table: table.alter_columns({"path": "i", "data_type": pa.int8()}),
    "large strings": lambda table: table.alter_columns({"path": "s", "data_type": pa.large_string(), "name": "t"}),
    "narrower floats": lambda table: table.alter_columns({"path": "f", "data_type": pa.float32()}),
    "a member": lambda table: table.alter_columns({"path": "st.x", "data_type": pa.int32()}),
    "upsert": upsert(source()),
    "upsert if": upsert(source(), condition="source.k > 35"),
    "upsert without strings": upsert(source("k", "i", "f", "v", "l", "st")),
    "upsert without integers": upsert(source("k", "f", "s", "v", "l", "st")),
    "upsert without vectors": upsert(source("k", "i", "f", "s", "l", "st")),
    "upsert without lists": upsert(source("k", "i", "f", "s", "v", "st")),
    "upsert without structs": upsert(source("k", "i", "f", "s", "v", "l")),
    "update of one column": update(source("k", "i")),
    "update of some columns": update(source("s", "k", "st")),
    "update of columns": update(source("k", "i", "s"), mode="rewrite_columns"),
    "update of whole rows": update(source("k", "s"), mode="rewrite_rows"),
    "update of all": update(source()),
    "update of nothing": update(source(start=100, end=103)),
    "insert": lambda table: table.merge_insert("k").when_not_matched_insert_all().execute(source()),
    "delete": lambda table: table.merge_insert("k").when_matched_delete().execute(source("k")),
    "delete the rest": lambda table: (
        table.merge_insert("k")
        .when_matched_update_all()
        .when_not_matched_by_source_delete("i > 30")
        .execute(source("k", "f"))
    ),
    "two changes": lambda table: (
        table.add_columns({"new": "i * 2"}),
        table.alter_columns({"path": "new", "data_type": pa.int64()}),
        upsert(source().append_column("new", pa.array(range(15), pa.int64())))(table),
        table.delete("k % 4 = 1"),
        table.drop_columns(["i"]),
    ),
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four fragments, with deletions in two."""
    place = tmp_path_factory.mktemp("changed") / "t"
    lance.write_dataset(ROWS, place, max_rows_per_file=10, data_storage_version="legacy").delete("k in (3, 4, 5, 33)")
    return place


def outcome(change: Change, library: Any, place: str) -> Any:
    """The class of the error, or what was said of the change."""
    try:
        done = change(library.dataset(place))
    except Exception as error:
        return f"{next(one for one in (OSError, ValueError, TypeError, Exception) if isinstance(error, one))}"
    return done if isinstance(done, dict) else None


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_those_of_pylance(table: Path, tmp_path: Path, change: str) -> None:
    theirs, ours = (str(shutil.copytree(table, tmp_path / name)) for name in ("theirs", "ours"))
    known = outcome(CHANGES[change], lance, theirs)
    assert outcome(CHANGES[change], lance_io, ours) == known
    wanted = lance.dataset(theirs)
    for library in (lance, lance_io):
        found = library.dataset(ours)
        assert found.version == wanted.version
        assert found.schema == wanted.schema
        assert found.data_storage_version == wanted.data_storage_version == "0.1"
        rows = [one.to_table().sort_by("k").to_pylist() for one in (found, wanted)]
        assert rows[0] == rows[1]
        fragments = [
            [(one.count_rows(), one.physical_rows, len(one.metadata.files)) for one in each.get_fragments()]
            for each in (found, wanted)
        ]
        assert fragments[0] == fragments[1]
