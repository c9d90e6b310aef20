"""Columns and members of unusual names: both libraries write, read, project, take and filter them alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import lance
import lance.file
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES: Final = [
    *(" ", "a b", 'a"b', "a'b", "a\nb", "a\\b", "a,b", "x/y", "-", "{}", "[0]", "1a", "A", "n" * 1000, "ä"),
    *("select", "from", "order", "null", "true", "_distance", "_score", "__x", "@x", "a@x", "#x", "a#", "a$"),
]
BARE: Final = ["A", "ä", "_distance", "__x", "@x", "a@x", "#x", "a#", "a$", "n" * 1000]  # need no quotes
NUMBERS: Final = pa.array([1, 2, 3])


def _column(name: str) -> dict[str, Callable[[Any], pa.Table | int]]:
    return {
        "all": lambda table: table.to_table(),
        "column": lambda table: table.to_table(columns=[name]),
        "take": lambda table: table.take([2, 0], columns=[name]),
        "filter": lambda table: table.to_table(filter=f"`{name}` > 1"),
        "count": lambda table: table.count_rows(f"`{name}` > 1"),
        "computed": lambda table: table.to_table(columns={"q": f"`{name}` + 1"}),
        "bare": lambda table: table.to_table(filter=f"{name} > 1" if name in BARE else "true"),
    }


def _member(name: str) -> dict[str, Callable[[Any], pa.Table | int]]:
    return {
        "all": lambda table: table.to_table(),
        "column": lambda table: table.to_table(columns=[f"s.`{name}`"]),
        "filter": lambda table: table.to_table(filter=f"s.`{name}` > 1"),
        "index": lambda table: table.to_table(filter="s['{}'] > 1".format(name.replace("'", "''"))),
        "bare": lambda table: table.to_table(filter=f"s.{name} > 1" if name in BARE else "true"),
    }


@pytest.mark.parametrize("form", ["column", "member"])
def test_unusual_names(form: str, tmp_path: Path) -> None:
    rows = pa.table([NUMBERS] * len(NAMES), names=NAMES)
    if form == "member":
        rows = pa.table({"s": rows.to_struct_array()})
    for library in (lance, lance_io):
        path = str(tmp_path / library.__name__)
        library.write_dataset(rows, path)
        theirs, ours = lance.dataset(path), lance_io.dataset(path)
        for name in NAMES:
            for what, read in (_column(name) if form == "column" else _member(name)).items():
                assert read(ours) == read(theirs), (name, what)


@pytest.mark.parametrize("name", ["", "a`b", "`", "`a`"], ids=repr)
@pytest.mark.parametrize("form", ["column", "member"])
def test_names_that_pylance_writes_but_hardly_reads(form: str, name: str, tmp_path: Path) -> None:
    """Tables of both are the same and are read alike here; from pylance come members, by their struct."""
    rows = pa.table([NUMBERS], names=[name])
    if form == "member":
        rows = pa.table({"s": rows.to_struct_array()})
    quoted = "`" + name.replace("`", "``") + "`"
    path = quoted if form == "column" else f"s.{quoted}"
    found = []
    for library in (lance, lance_io):
        table = lance_io.write_dataset(rows, tmp_path / "ours") if library is lance_io else _theirs(rows, tmp_path)
        found.append([(field.name(), field.id()) for field in lance.dataset(table.uri).lance_schema.fields()])
        assert lance.file.LanceFileReader(_only_file(table)).read_all().to_table() == rows
        if form == "member":
            assert lance.dataset(table.uri).to_table() == rows
        assert table.to_table() == rows
        assert table.take([2, 0]) == rows.take([2, 0])
        assert table.to_table(columns=rows.column_names) == rows
        assert table.to_table(columns=[path]).column(0).to_pylist() == [1, 2, 3]
        assert table.to_table(columns={"q": f"{path} + 1"}).to_pydict() == {"q": [2, 3, 4]}
        assert table.take([1], columns=[path]) == rows.slice(1, 1)
        assert table.to_table(filter=f"{path} > 1") == rows.slice(1)
        assert lance_io.write_dataset(rows, table.uri, mode="append").count_rows(f"{path} > 1") == 4
    assert found[0] == found[1]


def _theirs(rows: pa.Table, folder: Path) -> lance_io.LanceDataset:
    lance.write_dataset(rows, folder / "theirs")
    return lance_io.dataset(folder / "theirs")


def _only_file(table: lance_io.LanceDataset) -> str:
    return f"{table.uri}/data/{table.get_fragments()[0].data_files()[0].path}"


@pytest.mark.parametrize("second", [[4, 5, 6], ["x", "y", "z"]], ids=["one type", "two types"])
@pytest.mark.parametrize("nesting", ["s", "deep.s", "list"])
def test_members_of_one_name(second: list[Any], nesting: str, tmp_path: Path) -> None:
    """A path means the first of them. pylance writes such structs, and reads them from files alone."""
    structs: pa.Array = pa.StructArray.from_arrays([NUMBERS, pa.array(second)], ["x", "x"])
    if nesting == "list":
        rows = pa.table({"l": pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), structs)})
    else:
        nested = pa.StructArray.from_arrays([structs], ["s"]) if nesting == "deep.s" else structs
        rows = pa.table({nesting.partition(".")[0]: nested})
    found = []
    for library in (lance, lance_io):
        table = lance_io.write_dataset(rows, tmp_path / "ours") if library is lance_io else _theirs(rows, tmp_path)
        found.append([(field.name(), field.id()) for field in lance.dataset(table.uri).lance_schema.fields()])
        assert lance.file.LanceFileReader(_only_file(table)).read_all().to_table() == rows
        assert table.to_table() == rows
        assert table.take([2, 0]) == rows.take([2, 0])
        if nesting != "list":
            assert table.to_table(columns=[f"{nesting}.x"]).column(0).to_pylist() == [1, 2, 3]
            assert table.to_table(columns={"q": f"{nesting}.x + 1"}).to_pydict() == {"q": [2, 3, 4]}
            assert table.to_table(filter=f"{nesting}.x > 1") == rows.slice(1)
        assert lance_io.write_dataset(rows, table.uri, mode="append").to_table() == pa.concat_tables([rows, rows])
    assert found[0] == found[1]
