"""`update`, `add-column`, `drop-column`, `branch`, `clone` and `diff`, by what pylance finds afterwards."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from lance_io.cli import change_columns
from lance_io.cli.main import app

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Two columns of 100 rows in two fragments and versions, with stable row ids; the first version has a tag."""
    place = str(tmp_path / "t")
    rows = pa.table({"a": range(100), "b": [i * 2 for i in range(100)]})
    lance.write_dataset(rows.slice(0, 60), place, enable_stable_row_ids=True).tags.create("first", 1)
    lance.write_dataset(rows.slice(60), place, mode="append")
    return place


def column(uri: str, name: str, version: Any = None) -> list[Any]:
    """A column, in the order of the first one."""
    table = lance.dataset(uri)
    table = table if version is None else table.checkout_version(version)
    found: list[Any] = table.to_table().sort_by("a")[name].to_pylist()
    return found


def test_update(run: Any, uri: str) -> None:
    command = ("update", uri, "b=a + 1000", "--where", "a < 3")
    dry = {"version": 2, "num_rows_updated": 0, "num_matching_rows": 3}
    assert run(*command, "--dry-run", "--json").report == dry
    assert "3 rows would be updated" in run(*command, "--dry-run").out
    assert run(*command, "--json").report == {"version": 3, "num_rows_updated": 3, "num_matching_rows": 3}
    assert column(uri, "b")[:4] == [1000, 1001, 1002, 6]
    assert run("update", uri, "a=b", "b = a", "--yes").out == "version 4: 100 rows updated\n"
    assert run("update", uri, "b", "-y").code == 2
    assert run("update", uri, "b=1", "b=2", "-y").code == 2
    assert run("update", uri, "c=1", "-y").code == 1 or run("update", uri, "c=1", "-y").code == 2
    assert lance.dataset(uri).version == 4


@pytest.mark.parametrize(("answer", "updated"), [("n\n", 0), ("y\n", 10)])
def test_update_asks_on_a_terminal(uri: str, monkeypatch: pytest.MonkeyPatch, answer: str, updated: int) -> None:
    monkeypatch.setattr(change_columns, "is_interactive", lambda: True)
    ran = CliRunner().invoke(app, ["update", uri, "b=-1", "-w", "a < 10"], input=answer)
    assert f"Update 10 rows of {uri}?" in ran.stderr
    assert column(uri, "b").count(-1) == updated


def test_columns(run: Any, uri: str) -> None:
    added = {"version": 3, "column": "c", "type": "int64", "nullable": True}
    assert run("add-column", uri, "c", "a * 3", "--json").report == added
    assert column(uri, "c") == [i * 3 for i in range(100)]
    assert run("add-column", uri, "d", "--type", "string").out == "version 4: column d of type string\n"
    assert column(uri, "d") == [None] * 100
    for wrong in (["e"], ["e", "a", "--type", "int8"], ["e", "--type", "thing"]):
        assert run("add-column", uri, *wrong).code == 2
    dropped = {"version": 5, "dropped": ["b", "d"], "columns": ["a", "c"]}
    assert run("drop-column", uri, "b", "d", "--json").report == dropped
    assert lance.dataset(uri).schema.names == ["a", "c"]
    assert run("drop-column", uri, "nope").code in (1, 2)
    assert "without c" in run("drop-column", uri, "c").out


def test_branches(run: Any, uri: str) -> None:
    assert run("branch", uri, "list").out == "no branches\n"
    made = run("branch", uri, "create", "side", "--version", "1", "--json").report
    assert made == {"action": "create", "branch": "side", "version": 1, "uri": f"{uri}/tree/side"}
    assert run("delete", f"{uri}/tree/side", "a >= 50", "-y").out == "version 2: 10 rows deleted\n"
    assert "begins with version 2" in run("branch", uri, "create", "inner", "--of", "side").out
    assert run("branch", uri, "create", "tagged", "--tag", "first").code == 0
    assert column(uri, "a", ("inner", None)) == [*range(50)]
    listed = {one["name"]: one for one in run("branch", uri, "list", "--json").report["branches"]}
    assert {name: (one["newest_version"], one["parent_branch"]) for name, one in listed.items()} == {
        "inner": (2, "side"),
        "side": (2, None),
        "tagged": (1, None),
    }
    assert "inner" in run("branch", uri, "list").out
    assert run("branch", uri, "delete", "side").code == 1
    for name in ("inner", "side", "tagged"):
        assert run("branch", uri, "delete", name).out == f"branch {name} is gone\n"
    assert lance.dataset(uri).branches.list() == {}
    for wrong in (
        ["list", "x"],
        ["create"],
        ["delete", "x", "--version", "1"],
        ["create", "x", "--tag", "f", "-v", "1"],
    ):
        assert run("branch", uri, *wrong).code == 2


def test_clones(run: Any, uri: str, tmp_path: Path) -> None:
    shallow, deep = str(tmp_path / "shallow"), str(tmp_path / "deep")
    assert "whose files stay there" in run("clone", uri, shallow, "--tag", "first").out
    assert run("clone", uri, deep, "--deep", "--json").report == {
        "uri": deep,
        "source": uri,
        "version": 2,
        "deep": True,
    }
    assert column(shallow, "a") == [*range(60)]
    shutil.rmtree(uri)
    assert column(deep, "a") == [*range(100)]
    assert run("clone", deep, deep).code == 1


def test_diff(run: Any, uri: str) -> None:
    table = lance.dataset(uri)
    table.delete("a < 5")
    table.update({"b": "0"}, where="a = 7")
    table.add_columns({"c": "a"})
    table.alter_columns({"path": "b", "name": "bb"})
    report = run("diff", uri, "1", "--json").report
    assert (report["begin_version"], report["end_version"]) == (1, 6)
    assert (report["rows_inserted"], report["rows_deleted"]) == (40, 5)
    delta = lance.dataset(uri).delta(compared_against=1)
    assert report["rows_updated"] == delta.get_updated_rows().read_all().num_rows
    assert (report["num_rows_before"], report["num_rows_after"]) == (60, 95)
    assert (report["columns_added"], report["columns_renamed"]) == (["c"], [["b", "bb"]])
    assert (report["columns_dropped"], report["columns_retyped"]) == ([], [])
    shown = run("diff", uri, "2", "4").out
    assert "100 -> 95" in shown
    plain = f"{uri}-plain"
    lance.write_dataset(pa.table({"a": range(10)}), plain).delete("a = 1")
    report = run("diff", plain, "1", "2", "--json").report
    assert (report["rows_inserted"], report["rows_gone_from_old_places"]) == (None, 1)
    assert "stable row ids" in run("diff", plain, "1").out
    assert run("diff", plain, "9").code == 1
