"""Tags made by either library, seen by both."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import LanceError


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Three versions on the main branch and one more on another."""
    path = str(tmp_path / "t.lance")
    table = lance.write_dataset(pa.table({"i": [1, 2, 3]}), path)
    table.delete("i = 1")
    table.delete("i = 2")
    branch = table.create_branch("try/out", 2)
    branch.delete("i = 3")
    return path


def seen(tags: Any) -> dict[str, tuple[Any, ...]]:
    """Tags without their times."""
    return {
        name: (tag["branch"], tag["version"], tag["manifest_size"], tag["metadata"])
        for name, tag in tags.list().items()
    }


def tag_everything(tags: Any) -> None:
    """The same changes through either library."""
    tags.create("now")
    tags.create("one", 1)
    tags.create("by-tag", "one")
    tags.create("elsewhere", ("try/out", 3))
    tags.create("newest.there", ("try/out", None))
    tags.create("moved", 1)
    tags.update("moved", 3)
    tags.create("gone", 1)
    tags.delete("gone")
    tags.create("described", 2)
    tags.replace_metadata("described", {"why": "größer"})


def test_tags_are_those_that_pylance_makes(uri: str, tmp_path: Path) -> None:
    other = tmp_path / "copy.lance"
    shutil.copytree(uri, other)
    tag_everything(lance_io.dataset(uri).tags)
    tag_everything(lance.dataset(other).tags)
    for reader in (lance, lance_io):
        assert seen(reader.dataset(uri).tags) == seen(reader.dataset(str(other)).tags)
    ours = (Path(uri) / "_refs/tags/one.json").read_text()
    theirs = (other / "_refs/tags/one.json").read_text()
    assert list(json.loads(ours)) == list(json.loads(theirs))
    assert [len(line.split(":")[0]) for line in ours.splitlines()] == [
        len(line.split(":")[0]) for line in theirs.splitlines()
    ]
    assert lance.dataset(uri, "moved").version == 3
    times = lance.dataset(uri).tags.list()["moved"]
    assert times["created_at"] < times["updated_at"]


@pytest.mark.parametrize(
    "change",
    [
        lambda tags: tags.create("taken", 1),
        lambda tags: tags.update("missing", 1),
        lambda tags: tags.delete("missing"),
        lambda tags: tags.create("new", 99),
        lambda tags: tags.create("new", "missing"),
        lambda tags: tags.create("bad name", 1),
        lambda tags: tags.create("", 1),
        lambda tags: tags.create("a.lock", 1),
        lambda tags: tags.create("new", ("no-branch", 1)),
    ],
)
def test_what_cannot_be_is_refused_as_by_pylance(uri: str, change: Any) -> None:
    table = lance.dataset(uri)
    table.tags.create("taken", 2)
    before = table.tags.list()
    with pytest.raises((ValueError, OSError)) as theirs:
        change(table.tags)
    with pytest.raises(LanceError) as ours:
        change(lance_io.dataset(uri).tags)
    assert isinstance(ours.value, theirs.type)
    assert lance.dataset(uri).tags.list() == before
