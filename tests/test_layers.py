"""Imports point down, and the pure rooms do no I/O: the contract in `.importlinter` holds.

`make check` runs the same contract; here a broken arrow also shows up next to the tests of the change that drew it.
The contract looks past what the package's root re-exports, because `from lance_io import _kernels` is an import of the
root, too; that inner modules take no public name from there is a test of its own.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import lance_io

CHECKOUT = Path(__file__).resolve().parents[1]


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
