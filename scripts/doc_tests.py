"""List the tests behind the claims of the user pages, and write `docs/tests-of-pages.md` from them.

    python scripts/doc_tests.py            write the page
    python scripts/doc_tests.py --check    exit 1 if the stored page differs

A page names the tests of a paragraph, list item or table in a comment behind it, with files as below `tests/`:

    <!-- tests: dataset/write/test_keys.py::test_keys_are_set_once, store/test_conformance.py -->

The script needs only the standard library.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
PAGE: Final = DOCS / "tests-of-pages.md"
USER_PAGES: Final = (
    "writing",
    "changing",
    "commits",
    "upkeep",
    "branches",
    "filters",
    "indices",
    "indices-text",
    "indices-vectors",
    "storage",
    "clouds",
    "credentials",
    "filesystems",
    "disk-cache",
    "store-promises",
    "operations",
)
CODE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
COMMENT: Final = re.compile(r"<!-- tests: (.*?) -->", re.DOTALL)
HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)

INTRODUCTION: Final = """# Tests of the pages

The tests that show the claims of the pages for users, by page and section; files are below `tests/`. Behind the
name of a file, "all" stands for all of its tests. `scripts/doc_tests.py` makes this page from comments in those pages.
"""


@dataclass
class Section:
    """A heading of a page, and the tests below it: by file, in the order of the page; "" stands for all of the file."""

    heading: str
    tests: dict[str, list[str]] = field(default_factory=dict)


def slug_of(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def names_in(text: str) -> Iterator[tuple[str, str]]:
    """File and function (or "") of each test in the comments of a text."""
    for comment in COMMENT.finditer(text):
        for name in comment[1].split(","):
            file, _, function = name.strip().partition("::")
            yield file, function


def visible(text: str) -> str:
    """A page as its readers see it."""
    return re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)


def sections_of(text: str) -> Iterator[Section]:
    """Each heading of a page; comments in code are part of the code."""
    text = CODE.sub("", text)
    headings = [*HEADING.finditer(text)]
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    for heading, end in zip(headings, ends, strict=True):
        section = Section(heading[1])
        for file, function in names_in(text[heading.end() : end]):
            functions = section.tests.setdefault(file, [])
            if function not in functions:
                functions.append(function)
        yield section


def page_lines() -> Iterator[str]:
    """The page, line by line."""
    for name in USER_PAGES:
        sections = [*sections_of((DOCS / f"{name}.md").read_text())]
        if any(section.tests for section in sections):
            yield f"\n## [{sections[0].heading}]({name}.md)"
        for section in sections:
            if section.tests:
                yield f"\n### [{section.heading}]({name}.md#{slug_of(section.heading)})\n"
            for file, functions in section.tests.items():
                yield f"- [{file}](../tests/{file}){', all' if '' in functions else ''}"
                yield from (f"  - `{function}`" for function in functions if function)


def made_page() -> str:
    """The page, from the comments as they are now."""
    return INTRODUCTION + "\n".join(page_lines()) + "\n"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    page = made_page()
    if not arguments.check:
        PAGE.write_text(page)
    elif not PAGE.exists() or page != PAGE.read_text():
        sys.exit(f"{PAGE} differs from the comments: run python scripts/doc_tests.py")


if __name__ == "__main__":
    main()
