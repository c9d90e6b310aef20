"""The wheel of this checkout, for the tests of what an installed package does."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
TOOLS = Path(sys.executable).parent


def run(*command: str | Path, **options: object) -> None:
    """Run a command and show what it said when it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def build_wheel(folder: Path) -> Path:
    """A wheel of this checkout in `folder`: seconds where the kernels are compiled already.

    One process at a time: every maturin moves the library through the same file in the folder of the build.
    """
    with (CHECKOUT / "kernels" / "Cargo.toml").open() as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        run(TOOLS / "maturin", "build", "--release", "--locked", "--quiet", "--out", folder, cwd=CHECKOUT)
    (built,) = folder.glob("*.whl")
    return built
