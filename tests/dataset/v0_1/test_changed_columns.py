"""New values in tables of file version 0.1: added and cast columns, joins and merges, as by pylance on a copy.

Files of 0.1 lose nulls. What pylance refuses of them is refused in its words, and one warning tells of the others.
"""

from __future__ import annotations

import shutil
import warnings
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import FormatError

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


def with_null(values: list[Any]) -> pa.RecordBatchReader:
    """Rows for all that are not deleted, the first of them null."""
    return pa.table({"new": [None, *values]}).to_reader()


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
    "SQL of strings": lambda table: table.add_columns({"new": "upper(s)"}),
    "SQL literals": lambda table: table.add_columns({"new": "5", "t": "'text'"}),
    "no SQL": lambda table: table.add_columns({}),
    "SQL null": lambda table: table.add_columns({"new": "cast(null as int)"}),
    "a function": lambda table: table.add_columns(doubled, read_columns=["s"]),
    "a function by batches": lambda table: table.add_columns(doubled, read_columns=["s"], batch_size=7),
    "rows": lambda table: table.add_columns(pa.table({"new": pa.array(range(36))}).to_reader()),
    "rows with null lists": lambda table: table.add_columns(with_null([[i] for i in range(35)])),
    "rows with null integers": lambda table: table.add_columns(with_null(list(range(35)))),
    "too few rows": lambda table: table.add_columns(pa.table({"new": pa.array(range(30))}).to_reader()),
    "members of a struct": lambda table: table.add_columns(
        pa.table({"st": [{"z": i} for i in range(36)]}).to_reader(),
    ),
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
    "items": lambda table: table.alter_columns({"path": "l.item", "data_type": pa.int16()}),
    "items twice": lambda table: (
        table.alter_columns({"path": "l.item", "data_type": pa.int16()}),
        table.alter_columns(
            {"path": "l.item", "data_type": pa.int32()}, {"path": "st.y", "data_type": pa.large_string()}
        ),
    ),
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
    "update of columns, with nulls": update(
        source("k", "s").append_column("i", pa.array([None, 5, None] * 5, pa.int32())), mode="rewrite_columns"
    ),
    "update of members": update(pa.table({"k": [1, 32], "st": [{"x": -1}, {"x": -2}]})),
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


NULLS = "Column 'new' has null values of type: "
REFUSED = {
    "no SQL": "Invalid argument error: must either specify a row count or at least one column",
    "rows with null integers": NULLS,
    "too few rows": "Stream ended before producing values for all rows in dataset",
    "members of a struct": "Column st is a struct col, add sub column is not supported in Lance file version 0.1",
    "a column that is there": "Type conflicts between i(",
    "a join of integers": NULLS,
    "a join of floats": NULLS,
    "a join of bools": NULLS,
    "a join of structs": NULLS,
}
"""How the words of both libraries begin; all other changes are made."""

LOST = {
    "SQL null": "new",
    "rows with null lists": "new",
    "a join of lists": "new",
    "a join of vectors": "new",
    "upsert without integers": "i",
    "upsert without vectors": "v",
    "upsert without lists": "l",
    "upsert without structs": "st",
    "update of columns, with nulls": "i",
}
"""Columns that lose nulls."""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four fragments, with deletions in two."""
    place = tmp_path_factory.mktemp("changed") / "t"
    lance.write_dataset(ROWS, place, max_rows_per_file=10, data_storage_version="legacy").delete("k in (3, 4, 5, 33)")
    return place


def outcome(change: Change, library: Any, place: str) -> tuple[Any, list[str]]:
    """What was said of the change, or the first words of an error of the right class; and the warnings."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            done = change(library.dataset(place))
        except OSError as error:
            done = str(error).removeprefix("Invalid user input: ").removeprefix("LanceError(Arrow): ")
    return done if isinstance(done, dict | str) else None, [str(one.message) for one in told]


def described(table: Any) -> list[Any]:
    """Rows of each fragment, and the fields of its files."""
    return [
        (one.count_rows(), one.physical_rows, [list(file.fields) for file in one.metadata.files])
        for one in table.get_fragments()
    ]


def assert_equal(ours: str, theirs: str) -> None:
    """Both libraries read the same in both tables, which have the same files of the same fields."""
    wanted = lance.dataset(theirs)
    rows = wanted.to_table().sort_by("k").to_pylist()
    for library in (lance, lance_io):
        for place in (ours, theirs):
            found = library.dataset(place)
            assert found.version == wanted.version
            assert found.schema == wanted.schema
            assert found.data_storage_version == "0.1"
            assert found.to_table().sort_by("k").to_pylist() == rows
            assert described(found) == described(wanted)


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_those_of_pylance(table: Path, tmp_path: Path, change: str) -> None:
    theirs, ours = (str(shutil.copytree(table, tmp_path / name)) for name in ("theirs", "ours"))
    known, _ = outcome(CHANGES[change], lance, theirs)
    found, told = outcome(CHANGES[change], lance_io, ours)
    if change in REFUSED:
        assert known.startswith(REFUSED[change])
        assert found.startswith(REFUSED[change])
        assert {one.name for one in (tmp_path / "ours" / "data").iterdir()} == {
            one.name for one in (table / "data").iterdir()
        }
    else:
        assert found == known
    assert [one.partition(" are lost")[0] for one in told] == (
        [f"files of version 0.1 hold no nulls except those of strings; the nulls of {LOST[change]}"]
        if change in LOST
        else []
    )
    assert_equal(ours, theirs)


def test_what_lies_under_nulls_is_not_written(table: Path, tmp_path: Path) -> None:
    """pylance writes it: the values before `nullif`, and the end of the joined text."""
    place = str(shutil.copytree(table, tmp_path / "t"))
    with pytest.warns(UserWarning, match="the nulls of n are lost"):
        lance_io.dataset(place).add_columns({"n": "nullif(i, 6)", "t": "s || '!'"})
    for library in (lance, lance_io):
        found = library.dataset(place).to_table(columns=["i", "s", "n", "t"]).to_pylist()
        assert [row["n"] for row in found] == [0 if row["i"] == 6 else row["i"] for row in found]
        assert [row["t"] for row in found] == [row["s"] and row["s"] + "!" for row in found]


# -- types -------------------------------------------------------------------------------------------------------------

TYPES: dict[str, pa.Array] = {
    "int8": pa.array([1, 2], pa.int8()),
    "halffloat": pa.array([1, 2], pa.float16()),
    "bool": pa.array([True, False]),
    "string": pa.array(["a", "b"]),
    "large_string": pa.array(["a", "b"], pa.large_string()),
    "binary": pa.array([b"a", b"b"]),
    "large_binary": pa.array([b"a", b"b"], pa.large_binary()),
    "fixed_size_binary": pa.array([b"ab", b"cd"], pa.binary(2)),
    "fixed_size_list": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)),
    "list": pa.array([[1], [2, 3]]),
    "large_list": pa.array([[1], [2, 3]], pa.large_list(pa.int64())),
    "struct": pa.array([{"x": 1}, {"x": 2}]),
    "struct with null members": pa.array([{"x": 1}, {"x": None}]),
    "list of null": pa.array([[1], [None]]),
    "date32": pa.array([1, 2], pa.date32()),
    "timestamp": pa.array([1, 2], pa.timestamp("us", "UTC")),
    "duration": pa.array([1, 2], pa.duration("s")),
    "decimal128": pa.array(["1.50", "2.25"]).cast(pa.decimal128(10, 2)),
    "null": pa.nulls(2),
}


def updated(source: pa.Table) -> Change:
    """New values of a column of the first fragment."""

    def change(table: Any) -> None:
        fragment, ids, *_ = table.get_fragments()[0].update_columns(source, left_on="k", right_on="k")
        library = lance if isinstance(table, lance.LanceDataset) else lance_io
        operation = library.LanceOperation.Update(updated_fragments=[fragment], fields_modified=ids)
        library.LanceDataset.commit(table.uri, operation, read_version=table.version)

    return change


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("way", ["joined", "rows", "fragment", "updated"])
@pytest.mark.parametrize("with_nulls", [False, True])
def test_nulls_are_refused_as_by_pylance(tmp_path: Path, name: str, way: str, with_nulls: bool) -> None:
    values = TYPES[name].take(pa.array([0, None if with_nulls else 1, 1, 0]))
    rows = pa.table({"k": range(4)})
    base = rows.append_column("new", TYPES[name].take(pa.array([0, 0, 1, 1]))) if way == "updated" else rows
    lance.write_dataset(base, tmp_path / "t", data_storage_version="legacy")
    source = rows.append_column("new", values)
    ways: dict[str, Change] = {
        "joined": lambda table: table.merge(source.rename_columns(["o", "new"]), left_on="k", right_on="o"),
        "rows": lambda table: table.add_columns(source.select(["new"]).to_reader()),
        "fragment": lambda table: table.get_fragments()[0].merge(source, left_on="k", right_on="k")[0].physical_rows,
        "updated": updated(source),
    }
    theirs, ours = (str(shutil.copytree(tmp_path / "t", tmp_path / name)) for name in ("theirs", "ours"))
    said = []
    for library, place in ((lance, theirs), (lance_io, ours)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            try:
                ways[way](library.dataset(place))
                said.append("")
            except (ValueError, OSError) as error:
                assert isinstance(error, ValueError if way in ("fragment", "updated") else OSError)
                said.append(str(error).removeprefix("Invalid user input: ")[: len(NULLS)])
    assert said[0] == said[1] in ("", NULLS)
    assert_equal(ours, theirs)


# -- what pylance makes of tables that nobody can read then ------------------------------------------------------------


def test_the_first_column_of_a_file_is_not_taken_from_it(tmp_path: Path) -> None:
    rows = pa.table({"a": [[1], [2]], "k": [0, 1], "b": ["x", "y"]})
    lance.write_dataset(rows, tmp_path / "t", data_storage_version="legacy")
    place = str(tmp_path / "t")
    source = pa.table({"k": [1], "a": [[5]]})
    with pytest.raises(OSError, match="cannot be read without their first column"):
        update(source, mode="rewrite_columns")(lance_io.dataset(place))
    with pytest.raises(ValueError, match="Column a is the first of the data file"):
        updated(source)(lance_io.dataset(place))
    with pytest.raises(OSError, match="Cannot cast items or members of the first column"):
        lance_io.dataset(place).alter_columns({"path": "a.item", "data_type": pa.int32()})
    update(source)(lance_io.dataset(place))
    lance_io.dataset(place).alter_columns({"path": "a", "data_type": pa.list_(pa.int32())})
    for library in (lance, lance_io):
        found = library.dataset(place).to_table().sort_by("k").to_pylist()
        assert found == [{"a": [1], "k": 0, "b": "x"}, {"a": [5], "k": 1, "b": "y"}]


def test_a_file_whose_first_column_is_dead_is_refused(tmp_path: Path) -> None:
    """Values of other columns would be read."""
    rows = pa.table({"a": [1, 2], "k": [0, 1], "b": [3, 4]})
    lance.write_dataset(rows, tmp_path / "t", data_storage_version="legacy")
    update(pa.table({"k": [1], "a": [5]}), mode="rewrite_columns")(lance.dataset(tmp_path / "t"))
    with pytest.raises(FormatError, match="its first column is dead"):
        lance_io.dataset(tmp_path / "t").to_table()


def test_members_of_a_struct_that_is_first_are_cast(tmp_path: Path) -> None:
    rows = pa.table({"st": [{"a": [{"b": i}], "x": i} for i in range(4)], "k": range(4)})
    lance.write_dataset(rows, tmp_path / "t", max_rows_per_file=2, data_storage_version="legacy")
    place = str(tmp_path / "t")
    for path, data_type in (("st.x", pa.int32()), ("st.x", pa.int16())):
        lance_io.dataset(place).alter_columns({"path": path, "data_type": data_type})
    for library in (lance, lance_io):
        assert library.dataset(place).to_table().sort_by("k").to_pylist() == rows.to_pylist()
    with pytest.raises(OSError, match="Cannot cast items or members"):
        lance_io.dataset(place).alter_columns({"path": "st.a.item.b", "data_type": pa.int32()})


def test_versions_before_and_after_are_read_in_one_session(table: Path, tmp_path: Path) -> None:
    """Of a file less is read when its last column is dead."""
    place = str(shutil.copytree(table, tmp_path / "t"))
    before = lance_io.dataset(place)
    rows = before.to_table().to_pylist()
    update(source("k", "st"), mode="rewrite_columns")(before)
    after = before.checkout_version(before.latest_version)
    found = after.to_table().sort_by("k").to_pylist()
    assert before.checkout_version(2).to_table().to_pylist() == rows
    assert found == lance.dataset(place).to_table().sort_by("k").to_pylist() != rows


def test_rows_without_a_dictionary_column_have_its_first_value(tmp_path: Path) -> None:
    """As those that pylance inserts; it gives it to rows that it updates, too."""
    rows = pa.table({"k": [0, 1], "d": pa.array(["a", "b"]).dictionary_encode(), "x": [0, 1]})
    lance.write_dataset(rows, tmp_path / "t", data_storage_version="legacy")
    place = str(tmp_path / "t")
    with pytest.warns(UserWarning, match="the nulls of d are lost"):
        upsert(pa.table({"k": [1, 2], "x": [10, 20]}))(lance_io.dataset(place))
    for library in (lance, lance_io):
        found = library.dataset(place).to_table().sort_by("k").to_pylist()
        assert found == [{"k": 0, "d": "a", "x": 0}, {"k": 1, "d": "b", "x": 10}, {"k": 2, "d": "a", "x": 20}]
