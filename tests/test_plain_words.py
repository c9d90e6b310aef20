"""`scripts/plain_words.py` sees vague words and banned names, and exempts lines that say why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scripts import plain_words

if TYPE_CHECKING:
    from pathlib import Path

VAGUE = "Somebody"  # in two parts, so that this file does not count itself


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty module below a root of its own."""
    monkeypatch.setattr(plain_words, "ROOT", tmp_path)
    return tmp_path / "module.py"


def kinds_of(module: Path, text: str) -> list[tuple[str, int]]:
    module.write_text(text)
    _, _, findings = plain_words.survey(("module.py",), ("module.py",))
    return [(finding.kind, finding.line) for finding in findings]


def test_words_count_in_docstrings_comments_and_texts(module: Path) -> None:
    assert kinds_of(module, f'"""{VAGUE} reads.\n\nIt says what ' + 'is there."""\n') == [("vague", 1), ("what", 3)]
    assert kinds_of(module, f"x = 1  # {VAGUE} reads\n") == [("vague", 1)]
    assert kinds_of(module, f"raise ValueError(f'{VAGUE} {{x}}')\n") == [("vague", 1)]
    assert kinds_of(module, '"""The caller reads the manifest."""\n') == []


@pytest.mark.parametrize(
    "line",
    [
        "found = 1",
        "for one in items: pass",
        "def f(place): pass",
        "self.made = 1",
        "self._told = 1",
        "x = [one for one in items]",
        "with a as place: pass",
        "(found := 1)",
    ],
)
def test_banned_names_are_seen(module: Path, line: str) -> None:
    assert ("name", 1) in kinds_of(module, line + "\n")


@pytest.mark.parametrize("line", ["x = found", "x.place()", "for item in items: pass", "ones = 1", "f(one=1)"])
def test_other_names_and_uses_pass(module: Path, line: str) -> None:
    assert kinds_of(module, line + "\n") == []


def test_a_reason_exempts_a_line(module: Path) -> None:
    assert kinds_of(module, f"found = 1  # {VAGUE}  # plain: the name of pylance's own\n") == []
    assert plain_words.survey(("module.py",), ())[1] == 1
