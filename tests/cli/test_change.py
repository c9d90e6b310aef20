"""Commands that change a dataset, and the log of changes, compared with what pylance does and sees."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import lance_io
from lance_io.cli import change
from lance_io.cli.main import app
from lance_io.cli.version_log import FragmentContent, changed_rows

if TYPE_CHECKING:
    from collections.abc import Iterable


def numbers(values: Iterable[int]) -> pa.Table:
    """One column."""
    return pa.table({"a": pa.array(values, pa.int64())})


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A table of 100 rows in two fragments and versions."""
    place = str(tmp_path / "t.lance")
    lance.write_dataset(numbers(range(60)), place)
    lance.write_dataset(numbers(range(60, 100)), place, mode="append")
    return place


def values(uri: str, version: int | None = None) -> list[int]:
    """What pylance finds in it."""
    return lance.dataset(uri, version).to_table()["a"].to_pylist()


# -- delete ----------------------------------------------------------------------------------------------------------


def test_delete(run: Any, uri: str) -> None:
    assert run("delete", uri, "a % 7 = 3", "--dry-run", "--json").report == {
        "version": 2,
        "num_deleted_rows": 0,
        "num_matching_rows": 14,
    }
    assert "14 rows would be deleted" in run("delete", uri, "a % 7 = 3", "--dry-run").out
    assert lance.dataset(uri).version == 2
    report = run("delete", uri, "a % 7 = 3", "--yes", "--json").report
    assert report == {"version": 3, "num_deleted_rows": 14, "num_matching_rows": 14}
    assert values(uri) == [i for i in range(100) if i % 7 != 3]
    assert values(uri, 2) == list(range(100))
    assert run("delete", uri, "a >= 60", "-y").out == "version 4: 35 rows deleted\n"
    assert len(lance.dataset(uri).get_fragments()) == 1
    assert run("delete", uri, "b = 3", "-y").code == 1
    assert run("delete", uri, "a = ", "-y").code == 1
    assert lance.dataset(uri).version == 4


@pytest.mark.parametrize(("answer", "deleted"), [("n\n", 0), ("\n", 0), ("y\n", 10)])
def test_delete_asks_on_a_terminal(uri: str, monkeypatch: pytest.MonkeyPatch, answer: str, deleted: int) -> None:
    monkeypatch.setattr(change, "is_interactive", lambda: True)
    ran = CliRunner().invoke(app, ["delete", uri, "a < 10"], input=answer)
    assert f"Delete 10 rows of {uri}?" in ran.stderr
    assert (ran.exit_code == 0) == bool(deleted)
    assert len(values(uri)) == 100 - deleted


# -- tags and versions -------------------------------------------------------------------------------------------------


def test_tags(run: Any, uri: str) -> None:
    assert run("tag", uri, "list").out == "no tags\n"
    assert run("tag", uri, "create", "good", "--version", 1, "--json").report == {
        "action": "create",
        "tag": "good",
        "version": 1,
    }
    assert run("tag", uri, "create", "new").out == "tag new names version 2\n"
    theirs = lance.dataset(uri).tags.list()
    assert {name: entry["version"] for name, entry in theirs.items()} == {"good": 1, "new": 2}
    (first, second) = run("tag", uri, "list", "--json").report["tags"]
    assert (first["name"], first["version"], second["name"]) == ("good", 1, "new")
    assert "good" in run("tag", uri, "list").out
    assert run("tag", uri, "update", "good").out == "tag good now names version 2\n"
    assert lance.dataset(uri, "good").version == 2
    assert run("tag", uri, "delete", "new").out == "tag new is gone; it named version 2\n"
    assert list(lance.dataset(uri).tags.list()) == ["good"]


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["create"], 2, "name"),
        (["list", "x"], 2, "no name"),
        (["delete", "x", "--version", 1], 2, "--version"),
        (["rename", "x"], 2, "rename"),
        (["delete", "x"], 1, "x"),
        (["create", "x", "--version", 9], 1, "9"),
        (["update", "x"], 1, "x"),
        (["create", "a b"], 2, "a b"),
    ],
)
def test_refused_tags(run: Any, uri: str, arguments: list[Any], code: int, word: str) -> None:
    ran = run("tag", uri, *arguments)
    assert ran.code == code
    assert word in ran.err
    assert lance.dataset(uri).tags.list() == {}


def test_tag_that_is_there(run: Any, uri: str) -> None:
    run("tag", uri, "create", "x", "-v", 1)
    assert run("tag", uri, "create", "x").code == 2
    assert lance.dataset(uri, "x").version == 1


def test_restore(run: Any, uri: str) -> None:
    assert run("restore", uri, "--version", 1, "--json").report == {"version": 3, "restored_version": 1}
    assert values(uri) == list(range(60))
    lance.dataset(uri).tags.create("all", 2)
    assert run("restore", uri, "--tag", "all").out == "version 4: what version 2 was\n"
    assert values(uri) == list(range(100))
    assert run("restore", uri).code == 2
    assert run("restore", uri, "--version", 9).code == 1


# -- compact -----------------------------------------------------------------------------------------------------------


def test_compact(run: Any, uri: str) -> None:
    before = values(uri)
    planned = run("compact", uri, "--dry-run", "--json").report
    (task,) = planned["tasks"]
    assert (task["fragment_ids"], task["num_rows"], task["num_new_fragments"]) == ([0, 1], 100, 1)
    sizes = [file.stat().st_size for file in (Path(uri) / "data").iterdir()]
    assert task["bytes_written"] == planned["bytes_written"] == sum(sizes)
    assert 0 < planned["bytes_read"] <= sum(sizes)
    assert planned["requests_written"] == 5  # a file, and two commits of a transaction and a manifest
    priced = run("compact", uri, "--dry-run", "--store", "s3", "--json").report
    assert priced["cost"]["usd"] > 0
    assert "2 fragments would become 1" in run("compact", uri, "--dry-run", "--store", "s3").out
    assert lance.dataset(uri).version == 2
    assert run("compact", uri).out == "version 4: 2 fragments became 1, 2 files became 1\n"
    assert values(uri) == before
    assert run("compact", uri).out == run("compact", uri, "--dry-run").out == "nothing to compact\n"


def test_compact_with_options(run: Any, uri: str) -> None:
    lance.write_dataset(numbers(range(100, 130)), uri, mode="append")
    options = ("--mode", "force_binary_copy", "--verify", "--max-fragments", 3, "--memory-limit", 1 << 26, "--json")
    report = run("compact", uri, "--target-rows", 1000, *options).report
    assert report == {
        "done": True,
        "version": 5,
        "fragments_removed": 3,
        "fragments_added": 1,
        "files_removed": 3,
        "files_added": 1,
    }
    assert run("compact", uri, "--store", "s3").code == 2
    assert run("compact", uri, "--mode", "other").code == 2


# -- cleanup -----------------------------------------------------------------------------------------------------------


def files(uri: str) -> set[str]:
    """Everything in the folder."""
    return {path.relative_to(uri).as_posix() for path in Path(uri).rglob("*") if path.is_file()}


def test_cleanup(run: Any, uri: str) -> None:
    lance.write_dataset(numbers(range(5)), uri, mode="overwrite")
    before = files(uri)
    assert "nothing to remove" in run("cleanup", uri).out
    shown = run("cleanup", uri, "--older-than", "0s")
    assert "nothing was removed: --yes does it" in shown.out
    planned = run("cleanup", uri, "--older-than", "0s", "--dry-run", "--json").report
    assert files(uri) == before
    done = run("cleanup", uri, "--older-than", "0s", "--yes", "--json").report
    assert before - files(uri) == set(planned["files"])
    assert (planned["done"], done["done"]) == (False, True)
    assert {key: planned[key] for key in done if key != "done"} == {key: done[key] for key in done if key != "done"}
    assert (done["old_versions"], done["data_files_removed"], done["failed_deletes"]) == (2, 2, 0)
    assert values(uri) == list(range(5))
    assert [one["version"] for one in lance.dataset(uri).versions()] == [3]


def test_cleanup_is_as_that_of_pylance(run: Any, uri: str, tmp_path: Path) -> None:
    twin = str(tmp_path / "twin.lance")
    for place in (uri, twin):
        if place == twin:
            lance.write_dataset(numbers(range(60)), place)
            lance.write_dataset(numbers(range(60, 100)), place, mode="append")
        lance.dataset(place).delete("a < 5")
        lance.dataset(place).tags.create("kept", 2)
    mine = run("cleanup", uri, "--older-than", "0s", "--yes", "--json").report
    theirs = lance.dataset(twin).cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    assert (mine["old_versions"], mine["data_files_removed"]) == (theirs.old_versions, theirs.data_files_removed)
    assert [one["version"] for one in lance.dataset(uri).versions()] == [2, 3]
    assert "version 2 is kept because of a tag" in run("cleanup", uri, "--older-than", "0s").out


def test_a_cleanup_tells_what_is_too_young_to_go(run: Any, uri: str) -> None:
    for yes in ((), ("--yes",)):
        assert "1 more version(s) are kept only because" in " ".join(
            run("cleanup", uri, "--retain-versions", 1, *yes).out.split()
        )


def test_refused_cleanups(run: Any, uri: str) -> None:
    assert run("cleanup", uri, "--yes", "--dry-run").code == 2
    assert "duration" in run("cleanup", uri, "--older-than", "soon").err
    assert run("cleanup", uri, "--retain-versions", 0).code == 2
    for age in ("99999999999999d", "1000000d"):  # more than Python's timedelta holds; before the year 1
        ran = run("cleanup", uri, "--older-than", age)
        assert (ran.code, age in ran.err) == (2, True)


# -- log ---------------------------------------------------------------------------------------------------------------


def test_log(run: Any, uri: str) -> None:
    lance.dataset(uri).delete("a < 5")
    lance_io.write_dataset(numbers([1]), uri, mode="append", commit_message="one more")
    lance.dataset(uri).update({"a": "a + 1000"}, "a >= 90")
    lance.dataset(uri).optimize.compact_files()
    newest = lance.dataset(uri).version
    found = run("log", uri, "--json").report["versions"]
    assert [one["version"] for one in found] == list(range(newest, 0, -1))
    by_version = {one["version"]: one for one in found}
    for version, one in by_version.items():
        theirs = lance.dataset(uri).read_transaction(version)
        assert type(theirs.operation).__name__ in (one["operation"], "BaseOperation")  # they have no class for some
        assert one["uuid"] == theirs.uuid
        assert one["num_rows"] == lance.dataset(uri, version).count_rows()
    changes = [(one["operation"], one["rows_added"], one["rows_removed"]) for one in reversed(found)]
    assert changes[:5] == [
        ("Overwrite", 60, 0),
        ("Append", 40, 0),
        ("Delete", 0, 5),
        ("Append", 1, 0),
        ("Update", 10, 10),
    ]
    assert all((added, removed) == (0, 0) for _, added, removed in changes[5:])
    assert "Rewrite" in [operation for operation, _, _ in changes]
    assert by_version[4]["message"] == "one more"
    assert by_version[4]["writer"] == f"lance_io {lance_io.__version__}"
    assert by_version[1]["writer"].endswith(lance.__version__)
    assert [one["version"] for one in run("log", uri, "-n", 2, "--version", 3, "--json").report["versions"]] == [3, 2]
    drawn = run("log", uri).out
    assert "one more" in drawn
    assert "+60" in drawn


def test_log_of_what_is_left(run: Any, uri: str) -> None:
    lance.dataset(uri).delete("a < 5")
    lance.dataset(uri).cleanup_old_versions(timedelta(0))
    (only,) = run("log", uri, "--json").report["versions"]
    assert (only["version"], only["operation"], only["rows_added"], only["rows_removed"]) == (3, "Delete", None, None)
    assert "?" in run("log", uri).out


def test_rows_between_versions() -> None:
    def holds(num_rows: int | None, *names: str) -> FragmentContent:
        return FragmentContent(num_rows, frozenset(names))

    assert changed_rows({}, {0: holds(5, "x")}) == (5, 0)
    assert changed_rows({0: holds(5, "x")}, {0: holds(3, "x")}) == (0, 2)
    assert changed_rows({0: holds(3, "x")}, {0: holds(5, "x")}) == (2, 0)
    assert changed_rows({0: holds(5, "x")}, {0: holds(5, "x", "y")}) == (0, 0)  # a column more
    assert changed_rows({0: holds(5, "x")}, {0: holds(7, "y")}) == (7, 5)  # overwritten, same id
    assert changed_rows({0: holds(5, "x"), 1: holds(None, "y")}, {0: holds(5, "x")}) == (0, None)
