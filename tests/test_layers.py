"""Imports point down, and the pure rooms do no I/O: the contract in `.importlinter` holds.

`make check` runs the same contract; here a broken arrow also shows up next to the tests of the change that drew it.
The contract looks past what the package's root re-exports, because `from lance_io import _kernels` is an import of the
root, too; that inner modules take no public name from there is a test of its own.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import lance_io

CHECKOUT = Path(__file__).resolve().parents[1]
LAZY = ("lazy_module", "lazy_plans")


def lint_imports(config: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter from the checkout with the contract in `config`."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    return subprocess.run(
        [*command, "--no-cache", "--no-logo", "--config", str(config)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_contract_holds() -> None:
    done = lint_imports(CHECKOUT / ".importlinter")
    assert done.returncode == 0, done.stdout + done.stderr


def test_contract_would_notice_an_upward_import(tmp_path: Path) -> None:
    upside_down = tmp_path / "importlinter.ini"
    upside_down.write_text(
        "[importlinter]\nroot_package = lance_io\n"
        "[importlinter:contract:layers]\nname = upside down\ntype = layers\ncontainers = lance_io\n"
        "layers =\n    errors\n    store\n"
    )
    done = lint_imports(upside_down)
    assert done.returncode == 1
    assert "lance_io.store is not allowed to import" in done.stdout


def test_inner_modules_take_no_public_name_from_the_root() -> None:
    package = CHECKOUT / "lance_io"
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "lance_io":
                assert not {name.name for name in node.names} & {*lance_io.__all__}, f"{path}:{node.lineno}"


def imported(path: Path, modules: set[str]) -> set[str]:
    """Modules that a file imports, wherever: at the top, in functions, by `LAZY`; but not for type checkers only."""
    names = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for child in node.orelse:
                visit(child)
            return
        if isinstance(node, ast.Import):
            names.extend(one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.extend(f"{node.module}.{one.name}" for one in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in LAZY:
            names.extend(ast.literal_eval(one) for one in node.args)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text()))
    return {one for name in names for one in (name, name.rpartition(".")[0]) if one in modules}


def test_no_modules_import_each_other() -> None:
    """Not even in functions, or when something is first used."""
    package = CHECKOUT / "lance_io"
    paths = {".".join(path.relative_to(CHECKOUT).with_suffix("").parts): path for path in package.rglob("*.py")}
    paths = {name: path for name, path in paths.items() if not name.endswith("__init__")}
    graph = {name: imported(path, {*paths}) - {name} for name, path in paths.items()}
    while free := [name for name, others in graph.items() if not others & graph.keys()]:
        for name in free:
            del graph[name]
    assert not graph, f"a circle is among {sorted(graph)}"


def test_texts_name_modules_that_are_there() -> None:
    """`name.py` in the code of the package is a module of it, a script or a test, also after moves and merges."""
    package = CHECKOUT / "lance_io"
    places = (package, CHECKOUT / "scripts", CHECKOUT / "tests")
    paths = {f"/{path.relative_to(CHECKOUT)}" for place in places for path in place.rglob("*.py")}
    for path in package.rglob("*.py"):
        for name in re.findall(r"(?<![\w/.])(?:\.\./)?([\w/]+\.py)\b", path.read_text()):
            assert any(one.endswith(f"/{name}") for one in paths), f"{path} speaks of {name}"
