"""Commits of prepared operations, by URI and by dataset: each makes the version that pylance makes there.

A commit is made for one version (`read_version`), to a target: a place, or a dataset that is open at some version. What
is attached follows the newest version whatever the target; what is detached builds on the target, or on the version
that it was made for.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from tests.products import thinned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LIBRARIES = (lance, lance_io)
IN_NO_SEQUENCE = 1 << 63


def rows(*values: int) -> pa.Table:
    return pa.table({"a": pa.array(values, pa.int64()), "s": [str(one) for one in values]})


def append(library: Any, uri: str, *values: int) -> Any:
    return library.LanceOperation.Append([library.fragment.LanceFragment.create(uri, rows(*values))])


# -- the table: its versions 1 to 4, a branch with versions 2 to 4, and a detached version of each ---------------------


@dataclass(frozen=True)
class Line:
    """A line of versions: where its folder is below the table's, versions of it to be made for."""

    below: str
    versions: dict[str, int]


@dataclass(frozen=True)
class Table:
    folder: Path
    lines: dict[str, Line]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    folder = tmp_path_factory.mktemp("places")
    uri = f"{folder}/t.lance"
    main = lance.write_dataset(rows(1, 2, 3), uri)
    main.insert(rows(4, 5))
    main.tags.create("old", 2)
    branch = main.create_branch("side", 2)
    branch.insert(rows(10, 11))
    branch.update_config({"of": "side"})
    main.update_config({"k": "v"})
    main.insert(rows(6))
    lines = {}
    for name, one, value in (("main", main, 77), ("side", branch, 88)):
        below = "" if name == "main" else "/tree/side"
        added = append(lance, uri + below, value)
        detached = lance.LanceDataset.commit(one, added, read_version=4, detached=True)
        lines[name] = Line(below, {"first": 2, "newest": 4, "detached": detached.version, "missing": 9})
    return Table(folder, lines)


# what is committed to, given the library, the table's URI and its line
TARGETS: dict[str, tuple[str, Callable[[Any, str, Line], Any]]] = {
    "uri": ("main", lambda library, uri, line: uri),
    "newest": ("main", lambda library, uri, line: library.dataset(uri)),
    "tag": ("main", lambda library, uri, line: library.dataset(uri, version="old")),
    "detached": ("main", lambda library, uri, line: library.dataset(uri, version=line.versions["detached"])),
    "branch by uri": ("side", lambda library, uri, line: f"{uri}/tree/side"),
    "branch": ("side", lambda library, uri, line: library.dataset(uri).checkout_version(("side", None))),
    "old on branch": ("side", lambda library, uri, line: library.dataset(uri).checkout_version(("side", 3))),
    "detached on branch": (
        "side",
        lambda library, uri, line: library.dataset(f"{uri}/tree/side", version=line.versions["detached"]),
    ),
}


# an operation, made by a library on a version that is open; uri is its line's folder
def rewritten(library: Any, made_for: Any, uri: str) -> Any:
    operations, (first, *_) = library.LanceOperation, made_for.get_fragments()
    new = library.fragment.LanceFragment.create(uri, rows(60))
    return operations.Rewrite([operations.RewriteGroup([first.metadata], [new])], [])


def replaced(library: Any, made_for: Any, uri: str) -> Any:
    operations, (first, *_) = library.LanceOperation, made_for.get_fragments()
    (file,) = library.fragment.LanceFragment.create(uri, rows(61, 62, 63)).files
    return operations.DataReplacement([operations.DataReplacementGroup(first.fragment_id, file)])


OPERATIONS: dict[str, Callable[[Any, Any, str], Any]] = {
    "Append": lambda library, made_for, uri: append(library, uri, 60),
    "Overwrite": lambda library, made_for, uri: library.LanceOperation.Overwrite(
        rows(1).schema, [library.fragment.LanceFragment.create(uri, rows(60))]
    ),
    "Overwrite, with field ids": lambda library, made_for, uri: library.LanceOperation.Overwrite(
        made_for.lance_schema, [library.fragment.LanceFragment.create(uri, rows(60))]
    ),
    "Delete": lambda library, made_for, uri: library.LanceOperation.Delete([], [0], "a < 4"),
    "Delete, some rows": lambda library, made_for, uri: library.LanceOperation.Delete(
        [made_for.get_fragment(0).delete("a = 2")], [], "a = 2"
    ),
    "Update": lambda library, made_for, uri: library.LanceOperation.Update(
        removed_fragment_ids=[0],
        new_fragments=[library.fragment.LanceFragment.create(uri, rows(60))],
        updated_fragments=[],
        fields_modified=[],
    ),
    "Merge": lambda library, made_for, uri: library.LanceOperation.Merge(
        [one.metadata for one in made_for.get_fragments()], made_for.lance_schema
    ),
    "Merge, without field ids": lambda library, made_for, uri: library.LanceOperation.Merge(
        [one.metadata for one in made_for.get_fragments()], made_for.schema
    ),
    "Project": lambda library, made_for, uri: library.LanceOperation.Project(made_for.lance_schema),
    "Project, without field ids": lambda library, made_for, uri: library.LanceOperation.Project(
        pa.schema([made_for.schema.field("a")])
    ),
    "Restore": lambda library, made_for, uri: library.LanceOperation.Restore(2),
    "Rewrite": rewritten,
    "DataReplacement": replaced,
    "UpdateConfig": lambda library, made_for, uri: library.LanceOperation.UpdateConfig(
        config_updates=library.LanceOperation.UpdateMap({"n": "m"}, False)
    ),
    "CreateIndex": lambda library, made_for, uri: library.LanceOperation.CreateIndex([], []),
}
PARTS = ("BaseOperation", "DataReplacementGroup", "RewriteGroup", "RewrittenIndex", "UpdateMap")
NOT_COMMITTED = ("Clone", "DataOverlay", "DataOverlayFile", "DataOverlayGroup")


def test_every_operation_is_tried() -> None:
    known = {one for one in dir(lance_io.LanceOperation) if not one.startswith("_")}
    assert known - {*PARTS, *NOT_COMMITTED} == {one.partition(",")[0] for one in OPERATIONS}


def facts(found: Any) -> Any:
    number = "detached" if found.version >= IN_NO_SEQUENCE else found.version
    content = sorted(found.to_table()["a"].to_pylist())
    return number, content, found.config(), found.schema, found.uri, [one.fragment_id for one in found.get_fragments()]


def cases() -> Iterator[tuple[str, str, Any, bool]]:
    """Target, its line, the version that the operation is made for, whether it is detached."""
    for target, (line, _) in TARGETS.items():
        yield from ((target, line, made_for, True) for made_for in (None, "first", "newest", "detached"))
        yield from ((target, line, made_for, False) for made_for in (None, "first", "detached"))
    yield from ((target, "main", "missing", detached) for target in ("uri", "tag") for detached in (True, False))


def committed(library: Any, table: Table, kind: str, case: tuple[str, str, Any, bool], folder: Path) -> Any:
    """What a commit gives or raises, and the table that it was made to afterwards."""
    target, name, made_for, detached = case
    line, uri = table.lines[name], f"{folder}/t.lance"
    own = uri + line.below
    version = None if made_for is None else line.versions[made_for]
    opened = library.dataset(own, version=None if made_for in (None, "missing") else version)
    operation = OPERATIONS[kind](library, opened, own)
    chosen = TARGETS[target][1](library, uri, line)
    answer: Any
    try:
        answer = facts(library.LanceDataset.commit(chosen, operation, read_version=version, detached=detached))
    except (ValueError, OSError, RuntimeError) as error:
        answer = error
    held = None if isinstance(chosen, str) else facts(chosen)
    return answer, held, facts(lance.dataset(own))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", OPERATIONS)
def test_commits(kind: str, table: Table, tmp_path: Path) -> None:
    """The version that it gives, the dataset that it was made to, and the line afterwards: cases take turns."""
    folder = tmp_path / "copy"
    used = True
    for case in [case for each, case in thinned(OPERATIONS, cases()) if each == kind]:
        found = []
        for library in LIBRARIES:
            if used or not case[-1]:  # what is detached leaves the lines as they are
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(table.folder, folder)
            used = not case[-1]
            found.append(committed(library, table, kind, case, folder))
        (theirs, *their_table), (ours, *our_table) = found
        if isinstance(theirs, Exception):
            assert isinstance(ours, (ValueError, OSError)), (case, theirs)
        else:
            assert ours == theirs, case
        assert our_table == their_table, case
