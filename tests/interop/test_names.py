"""Columns and members of unusual names: both libraries write, read, project, take and filter them alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import SchemaError

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


@pytest.mark.parametrize("name", ["", "a`b"], ids=repr)
def test_names_that_pylance_writes_but_does_not_read_are_refused(name: str, tmp_path: Path) -> None:
    rows = pa.table([NUMBERS], names=[name])
    lance.write_dataset(rows, tmp_path / "theirs")
    with pytest.raises(ValueError, match="No field named"):
        lance.dataset(tmp_path / "theirs").to_table()
    with pytest.raises(SchemaError, match="name"):
        lance_io.write_dataset(rows, tmp_path / "ours")
    assert lance_io.dataset(tmp_path / "theirs").to_table() == rows
