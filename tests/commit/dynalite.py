"""dynalite, a DynamoDB that runs here: on PATH or in the user's cache, else put there by npm, at a pinned version.

`LANCE_IO_TEST_DYNAMODB_ENDPOINT` names one that runs already. A server that cannot start fails the test that asked for
it: nothing is skipped.
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = "4.0.0"
READY_S = 60.0
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
    server, port = _started()
    with server:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(READY_S)


def _started() -> tuple[subprocess.Popen[bytes], int]:
    """A server that answers, and its port; another program may be faster to take a port that was free."""
    options = ["--host", "127.0.0.1", "--createTableMs", "0", "--deleteTableMs", "0"]
    for _ in range(5):
        port = _free_port()
        command = [program(), *options, "--port", str(port)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if _is_ready(server):
            return server, port
        server.kill()
        server.wait()
    raise RuntimeError("dynalite does not start")


def _is_ready(server: subprocess.Popen[bytes]) -> bool:
    """Wait for the line that it prints as soon as it listens; False when it ends without."""
    assert server.stdout is not None
    return bool(select.select([server.stdout], [], [], READY_S)[0] and server.stdout.readline())
