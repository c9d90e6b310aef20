"""A server of our own on a free port of 127.0.0.1: its program, its process, its end.

A program is the one of that name on PATH, else the one in the user's cache, else it is built there, at a pinned
version, once. That takes some minutes and says so on stderr.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lance-io" / "bin"
READY_S = 30.0
PAUSE_S = 0.05  # between two looks whether it is ready


class ServerError(RuntimeError):
    """There is no server, and the message says what to do about it."""


class Program(Protocol):
    """What a server's process runs."""

    def find(self) -> Path:
        """Its executable; built if need be. Raises `ServerError`."""


@dataclass(frozen=True)
class GoProgram:
    """A program that Go builds.

    name     of its executable
    package  import path
    version  pinned
    instead  another way to such a server, as a line of a message
    """

    name: str
    package: str
    version: str
    instead: str

    def find(self) -> Path:
        """See `Program`."""
        if on_path := shutil.which(self.name):
            return Path(on_path)
        cached = CACHE / self.name
        if not os.access(cached, os.X_OK):
            self._build()
        return cached

    def _build(self) -> None:
        go = shutil.which("go")
        if go is None:
            raise ServerError(
                f"the tests need {self.name} and there is none: not on PATH, not in {CACHE}, and no Go to build it.\n"
                "  Go:      https://go.dev/dl/ (the build takes some minutes, once)\n"
                f"  PATH:    any '{self.name}'\n"
                f"  Docker:  {self.instead}"
            )
        print(f"building {self.name} {self.version} into {CACHE}: some minutes, once", file=sys.stderr, flush=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:  # named at the end, so that half a build is never found
            command = [go, "install", "-ldflags", "-s -w", f"{self.package}@{self.version}"]
            done = subprocess.run(command, env={**os.environ, "GOBIN": folder, "GOFLAGS": ""}, check=False)
            if done.returncode:
                raise ServerError(f"building {self.name} failed: {shlex.join(command)} ended with {done.returncode}")
            os.replace(Path(folder) / self.name, CACHE / self.name)


class LocalServer:
    """A server on a free port; a context manager, and ended with this process at the latest.

    Those of a kind say what they run, how they are told a port, when they are ready and what has to be in them.

    endpoint  where it is, once it was started
    folder    of its own, temporary, as long as it runs
    """

    title: ClassVar[str]  # for messages
    program: ClassVar[Program]

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = ""

    # -- what each kind says --------------------------------------------------------------------------------------

    def command(self, port: int) -> Sequence[str]:
        """Arguments of the program; folders that they name are made here."""
        raise NotImplementedError

    def settings(self) -> Mapping[str, str]:
        """Variables of its environment, beside those of this process."""
        return {}

    def is_up(self) -> bool:
        """Whether the server at `endpoint` answers."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Make what has to be in it."""

    @property
    def url_scheme(self) -> str:
        """`http`, or `https` for a server that speaks TLS."""
        return "http"

    # -- the process ------------------------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """See the class's description."""
        assert self._folder is not None
        return self._folder

    @property
    def pid(self) -> int:
        """Of the server's process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        """Start, wait until it serves, prepare it. Raises `ServerError` with the server's own words."""
        executable = self.program.find()
        self._folder = Path(tempfile.mkdtemp(prefix="lance-io-server-"))
        atexit.register(self.stop)
        for attempts_left in (2, 1, 0):  # somebody may take the free port before the server does
            try:
                self._start_on(executable, free_port())
                break
            except ServerError:
                self._end_process()
                if not attempts_left:
                    self.stop()
                    raise
        self.prepare()
        return self

    def _start_on(self, executable: Path, port: int) -> None:
        log = self.folder / "log"
        command = [str(executable), *self.command(port)]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, env={**os.environ, **self.settings()}, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self.endpoint = f"{self.url_scheme}://127.0.0.1:{port}"
        deadline = time.monotonic() + READY_S
        while not self.is_up():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerError(f"{self.title} does not come up:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(PAUSE_S)

    def stop(self) -> None:
        """End the process and remove its data; harmless a second time."""
        atexit.unregister(self.stop)
        self._end_process()
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def leave_running(self) -> None:
        """Do not stop it when this program ends."""
        atexit.unregister(self.stop)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def answer_of(url: str, authority: Path | None = None) -> str | None:
    """What a server says there; None without an answer or with a refusal.

    authority  the certificate that vouches for it
    """
    trust = None if authority is None else ssl.create_default_context(cafile=authority)
    try:
        with urllib.request.urlopen(url, timeout=2, context=trust) as answer:
            return str(answer.read(), "utf-8")
    except (urllib.error.URLError, OSError):
        return None


def free_port() -> int:
    """A port that nobody listens at, for now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
