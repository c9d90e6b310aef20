"""The user pages name tests that exist, in comments alone; links between pages lead to files and headings."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import doc_tests
from scripts.doc_tests import CODE, COMMENT, DOCS, HEADING, PAGE, USER_PAGES, made_page, names_in, slug_of, visible

CHECKOUT = Path(__file__).resolve().parents[1]
PAGES = [
    *(CHECKOUT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")),
    *sorted(DOCS.rglob("*.md")),
]
NAME = re.compile(r"`(?:[\w/]+\.py::)?test_\w+`|\w\.py::|\btests?/[\w/]*test_\w+\.py|`[\w/]*test_\w+\.py`")


def functions_of(path: Path) -> set[str]:
    """The test functions of a file, those of classes among them."""
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def anchors_of(path: Path) -> set[str]:
    """The anchors of the headings of a page."""
    return {slug_of(heading) for heading in HEADING.findall(CODE.sub("", path.read_text()))}


def test_the_stored_page_is_current() -> None:
    assert PAGE.read_text() == made_page(), "run python scripts/doc_tests.py"


def test_a_page_that_differs_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doc_tests, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(sys, "argv", ["doc_tests.py", "--check"])
    with pytest.raises(SystemExit, match=r"run python scripts/doc_tests\.py$"):
        doc_tests.main()
    monkeypatch.setattr(sys, "argv", ["doc_tests.py"])
    doc_tests.main()
    assert (tmp_path / "page.md").read_text() == made_page()


def test_the_script_needs_only_the_standard_library() -> None:
    command = [sys.executable, "-S", str(CHECKOUT / "scripts" / "doc_tests.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", USER_PAGES)
def test_every_test_that_is_named_exists(name: str) -> None:
    for file, function in names_in((DOCS / f"{name}.md").read_text()):
        path = CHECKOUT / "tests" / file
        assert path.is_file(), file
        assert not function or function in functions_of(path), f"{file}::{function}"


@pytest.mark.parametrize("name", USER_PAGES)
def test_readers_see_no_names_of_tests(name: str) -> None:
    text = (DOCS / f"{name}.md").read_text()
    assert NAME.findall(visible(text)) == []
    assert text.count("<!--") == len(COMMENT.findall(text))


def test_names_of_tests_would_be_found() -> None:
    for text in ("(`test_x`)", "`a/test_b.py::test_c`", "`a/test_b.py`", "tests/test_b.py", "`b.py::test_c`"):
        assert NAME.search(visible(text)), text
        assert not NAME.search(visible(f"Rows.\n<!-- tests: {text} -->"))


def test_every_page_with_such_comments_is_listed() -> None:
    found = {path.stem for path in DOCS.rglob("*.md") if COMMENT.search(CODE.sub("", path.read_text()))}
    assert found <= {*USER_PAGES} and len(found) > 8
    named = [name for page in USER_PAGES for name in names_in((DOCS / f"{page}.md").read_text())]
    assert len({*named}) > 140


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_links_between_pages_lead_to_files_and_headings(path: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", CODE.sub("", path.read_text())):
        if re.match(r"\w+:", link):
            continue
        target, _, heading = link.partition("#")
        other = path.parent / target if target else path
        assert other.exists(), link
        assert not heading or heading in anchors_of(other), link
