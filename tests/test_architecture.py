"""What docs/architecture.md and CONTRIBUTING.md say of files and functions is so."""

from __future__ import annotations

import re
from functools import reduce
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
QUESTIONS = re.findall(
    r"^\| .*\? \| `(lance_io/[\w/]+)\.py` \| `([\w.]+)` \| `(tests/[\w/]+\.py)` \|$", ARCHITECTURE, re.MULTILINE
)


def test_there_are_ten_questions() -> None:
    assert len(QUESTIONS) == 10
    assert len(ARCHITECTURE.splitlines()) <= 200


@pytest.mark.parametrize(("module", "function", "test"), QUESTIONS)
def test_a_question_is_answered_by_one_function(module: str, function: str, test: str) -> None:
    answer = reduce(getattr, function.split("."), import_module(module.replace("/", ".")))
    assert callable(answer)
    assert answer.__module__ == module.replace("/", ".")
    assert (ROOT / test).exists()


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_files_that_are_named_are_there(page: str) -> None:
    text = (ROOT / page).read_text()
    named = set(re.findall(r"(?<![\w/.])((?:[a-z_][\w.]*/)+(?:\w+\.(?:pyi|py|rs|md|toml))?)", text))
    named = {one for one in named if not one.startswith((".venv", "http"))}
    package = ROOT / "lance_io"
    rooms = [package / room for room in ("changes", "dataset", "filters", "reads", "store")]
    folders = (ROOT, ROOT / "docs", package, *rooms)
    missing = [one for one in sorted(named) if not any((folder / one).exists() for folder in folders)]
    assert not missing
    assert len(named) > 20
