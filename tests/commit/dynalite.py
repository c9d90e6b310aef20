"""dynalite, a DynamoDB that runs here: on PATH or in the user's cache, else put there by npm, at a pinned version.

`LANCE_IO_TEST_DYNAMODB_ENDPOINT` names one that runs already. A server that cannot start fails the test that asked for
it: nothing is skipped.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = "4.0.0"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lance-io" / f"dynalite-{VERSION}"


def program() -> str:
    """Path of the program, installed if need be."""
    if found := shutil.which("dynalite"):
        return found
    cached = CACHE / "node_modules" / ".bin" / "dynalite"
    if not cached.exists():
        _install()
    return str(cached)


def _install() -> None:
    """Elsewhere first, then into the cache at once: several test processes may do this at the same time."""
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError("tests of s3+ddb:// need dynalite, and to install it npm; neither was found")
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE.parent) as folder:
        command = [npm, "install", "--no-audit", "--no-fund", f"dynalite@{VERSION}"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
        with suppress(OSError):  # another process was faster
            (Path(folder) / "node_modules").rename(_made(CACHE) / "node_modules")


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def dynalite_server() -> Iterator[str]:
    """The endpoint of a running server."""
    if running := os.environ.get("LANCE_IO_TEST_DYNAMODB_ENDPOINT"):
        yield running
        return
    port = _free_port()
    command = [program(), "--host", "127.0.0.1", "--port", str(port), "--createTableMs", "0", "--deleteTableMs", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait(server, port)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(10)


def _wait(server: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(200):
        if server.poll() is not None:
            raise RuntimeError(f"dynalite ended with status {server.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError("dynalite does not answer")
