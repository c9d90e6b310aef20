"""Count words that make prose hard to read, and find names that say nothing: run by `make check`.

    python scripts/plain_words.py                    fails above the limits, or where a name is banned
    python scripts/plain_words.py lance_io/commit    lists each place below these paths

CONTRIBUTING.md has the list and its reasons. A line that ends in `# plain: reason` is exempt; there are at most twenty.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
# Where prose is counted, and where names are looked at.
PROSE = ("lance_io", "kernels/src", "docs", "examples", "scripts", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
NAMED = ("lance_io", "examples", "scripts")
GENERATED = ("lance_io/proto/",)

VAGUE = re.compile(r"\b(somebody|nobody|whoever|whatever|told|anew|so many)\b", re.IGNORECASE)
WHAT = re.compile(r"\bwhat (is|was|it|they|has|the)\b", re.IGNORECASE)
# Names of tests in pages are no prose, nor are programs.
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
# Places in 10,000 words.
VAGUE_MAX = 2.0
WHAT_MAX = 5.0
EXEMPT = "# plain: "
EXEMPT_MAX = 20
BANNED_NAMES = frozenset({"found", "one", "told", "made", "place"})


@dataclass(frozen=True)
class Finding:
    """A place in a file; `kind` is `vague`, `what` or `name`."""

    kind: str
    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def files_below(roots: tuple[str, ...], endings: tuple[str, ...]) -> Iterator[Path]:
    """Files with these endings, without generated ones."""
    for root in roots:
        path = ROOT / root
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            name = file.relative_to(ROOT).as_posix()
            if file.suffix in endings and not name.startswith(GENERATED):
                yield file


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """Comments and texts of a file, each with the line that it begins on."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".rs":
        for number, line in enumerate(source.splitlines(), start=1):
            yield from ((number, part) for part in re.findall(r'//.*|"[^"]*"', line))
    elif path.suffix in (".py", ".pyi"):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING) or is_part_of_text(token):
                yield token.start[0], token.string
    else:
        yield 1, CODE.sub(lambda match: "\n" * match.group().count("\n"), source)


def is_part_of_text(token: tokenize.TokenInfo) -> bool:
    """Whether a token is the fixed part of an f-string (Python 3.12 and later have tokens for these)."""
    return tokenize.tok_name[token.type] == "FSTRING_MIDDLE"


def findings_in_prose(path: Path, exempt: frozenset[int]) -> tuple[int, list[Finding]]:
    """Number of words, and the vague ones among them."""
    num_words, findings = 0, []
    name = path.relative_to(ROOT).as_posix()
    for first, text in prose_of(path):
        num_words += len(WORD.findall(text))
        for kind, pattern in (("vague", VAGUE), ("what", WHAT)):
            for match in pattern.finditer(text):
                line = first + text.count("\n", 0, match.start())
                if line not in exempt:
                    findings.append(Finding(kind, name, line, match.group()))
    return num_words, findings


def bound_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Names of variables, parameters, attributes and fields that a module binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name is not None:
            yield node.lineno, node.name


def findings_in_names(path: Path, exempt: frozenset[int]) -> list[Finding]:
    """Banned names of a module."""
    name = path.relative_to(ROOT).as_posix()
    names = bound_names(ast.parse(path.read_text(encoding="utf-8")))
    return [
        Finding("name", name, line, f"`{bound}` is a banned name")
        for line, bound in names
        if bound.lstrip("_") in BANNED_NAMES and line not in exempt
    ]


def exempt_lines(path: Path) -> frozenset[int]:
    """Lines that say why they are exempt."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return frozenset(number for number, line in enumerate(lines, start=1) if EXEMPT in line)


def survey(prose: tuple[str, ...], named: tuple[str, ...]) -> tuple[int, int, list[Finding]]:
    """Words, exempt lines and findings below these paths."""
    num_words, num_exempt, findings = 0, 0, []
    for path in files_below(prose, (".py", ".pyi", ".rs", ".md")):
        exempt = exempt_lines(path) if path != Path(__file__) else frozenset(range(1, 1000))
        num_exempt += len(exempt) if path != Path(__file__) else 0
        more_words, in_prose = findings_in_prose(path, exempt)
        num_words += more_words
        findings += in_prose
    for path in files_below(named, (".py",)):
        findings += findings_in_names(path, exempt_lines(path))
    return num_words, num_exempt, findings


def main() -> int:
    """Prints what has to change; 1 where something has to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", help="list each place below these paths")
    paths = tuple(parser.parse_args().paths)
    num_words, num_exempt, findings = survey(paths or PROSE, paths or NAMED)
    if paths:
        print(*findings, sep="\n")
    counts = {kind: sum(finding.kind == kind for finding in findings) for kind in ("vague", "what", "name")}
    rates = {kind: counts[kind] / max(num_words, 1) * 10_000 for kind in ("vague", "what")}
    print(f"{num_words} words: vague {rates['vague']:.1f} of at most {VAGUE_MAX}, ", end="")
    print(f"`what is ...` {rates['what']:.1f} of at most {WHAT_MAX} in 10,000; {counts['name']} banned names")
    if num_exempt > EXEMPT_MAX:
        print(f"{num_exempt} lines are exempt, at most {EXEMPT_MAX} may be")
    if not paths:
        print(*(finding for finding in findings if finding.kind == "name"), sep="\n", end="")
    is_plain = rates["vague"] < VAGUE_MAX and rates["what"] < WHAT_MAX and not counts["name"]
    return 0 if is_plain and num_exempt <= EXEMPT_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
