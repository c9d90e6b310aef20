"""Counts of the package's structure, and of the way of a call through it, for the ratchets of `test_house.py`."""

from __future__ import annotations

import ast
import os
import sys
import threading
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

PACKAGE = Path(__file__).resolve().parents[1] / "lance_io"
LEFT_OUT = ("proto", "testing")  # generated code, and helpers of tests
LAZY = ("lazy_module", "lazy_plans")
Graph = dict[str, set[str]]


def modules() -> dict[str, Path]:
    """The package's modules by name."""
    paths = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if parts[1] not in LEFT_OUT:
            paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


class Imports(ast.NodeVisitor):
    """The imports of one module, but for those that only type checkers see.

    top     modules imported at the top
    hidden  modules imported in functions
    lazy    modules that `lazy_module` loads
    num_hidden  statements in functions
    """

    def __init__(self, name: str, known: dict[str, Path]) -> None:
        self.top: set[str] = set()
        self.hidden: set[str] = set()
        self.lazy: set[str] = set()
        self.num_hidden = 0
        self._name, self._known, self._depth = name, known, 0
        self.visit(ast.parse(known[name].read_text()))

    def visit_If(self, node: ast.If) -> None:
        """Skip what is for type checkers."""
        for child in node.orelse if "TYPE_CHECKING" in ast.dump(node.test) else (*node.body, *node.orelse):
            self.visit(child)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Count imports inside as hidden."""
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Import(self, node: ast.Import) -> None:
        """`import a.b`."""
        self._add([alias.name for alias in node.names])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """`from a import b`."""
        self._add([f"{node.module}.{alias.name}" for alias in node.names])

    def visit_Call(self, node: ast.Call) -> None:
        """`lazy_module("a.b")`."""
        if isinstance(node.func, ast.Name) and node.func.id in LAZY:
            self.lazy |= {ast.literal_eval(argument) for argument in node.args} & self._known.keys()
        self.generic_visit(node)

    def _add(self, names: list[str]) -> None:
        targets = {target for name in names if (target := self._resolve(name)) not in (None, self._name, "lance_io")}
        (self.hidden if self._depth else self.top).update(filter(None, targets))
        self.num_hidden += bool(targets and self._depth)

    def _resolve(self, name: str) -> str | None:
        while name and name not in self._known:
            name = name.rpartition(".")[0]
        return name or None


@cache
def imports() -> dict[str, Imports]:
    """The imports of every module."""
    known = modules()
    return {name: Imports(name, known) for name in known}


def depth(graph: Graph) -> int:
    """Modules on the longest chain of imports at the top of modules."""
    depths: dict[str, int] = {}

    def measure(name: str) -> int:
        if name not in depths:
            depths[name] = 1  # of a circle, which other tests refuse
            depths[name] = 1 + max(map(measure, graph[name]), default=0)
        return depths[name]

    sys.setrecursionlimit(max(sys.getrecursionlimit(), 10_000))
    return max(map(measure, graph))


def folder_graph(graph: Graph) -> Graph:
    """Imports between folders of the package; a folder and those inside of it do not count."""
    folders: Graph = defaultdict(set)
    known = modules()

    def folder(name: str) -> str:
        return name if known[name].name == "__init__.py" else name.rpartition(".")[0]

    for name, others in graph.items():
        for a, b in ((folder(name), folder(other)) for other in others):
            if "lance_io" not in (a, b) and not f"{a}.".startswith(f"{b}.") and not f"{b}.".startswith(f"{a}."):
                folders[a].add(b)
    return folders


def in_circles(graph: Graph) -> set[str]:
    """Nodes that can be reached from themselves, or lie between such."""
    left = {name: set(others) for name, others in graph.items()}
    while ends := [name for name, others in left.items() if not others & left.keys()]:
        for name in ends:
            del left[name]
    return {*left}


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Functions of a file, and their lines without the docstring."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node, clean=False) or ""
            yield node.name, (node.end_lineno or 0) - node.lineno + 1 - len(docstring.splitlines())


def folder_sizes() -> Counter[str]:
    """Modules of each folder; the root's, most of which only re-export names, are left out."""
    return Counter(str(path.parent.relative_to(PACKAGE)) for path in modules().values() if path.parent != PACKAGE)


def module_changes(operation: Callable[[], object]) -> int:
    """How often a call goes from one module of the package to another, in all threads."""
    changes, last, root = 0, "", f"{PACKAGE}{os.sep}"

    def hook(frame: FrameType, event: str, _: object) -> None:
        nonlocal changes, last
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(root):
            changes += path != last
            last = path

    threading.setprofile(hook)
    sys.setprofile(hook)
    try:
        operation()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return changes
