"""The servers of the tests: each starts on a free port, is found by its variables, and leaves nothing behind."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from servers.__main__ import SERVERS
from servers.local_server import GoProgram, LocalServer, ServerError

CHECKOUT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_is_prepared_and_ends_with_its_folder(name: str) -> None:
    kind, module = SERVERS[name]
    with kind() as server:
        folder, pid = server.folder, server.pid
        assert module.is_ready(server.endpoint)
        module.prepare(server.endpoint)  # once more, as for a server that runs already
        assert module.environment(server.endpoint)[module.RUNNING] == server.endpoint
    assert not folder.exists()
    assert not Path(f"/proc/{pid}").exists()
    assert not module.is_ready(server.endpoint)


def test_one_in_the_background_stays_until_it_is_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "servers", "gcs", "--background"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    told = dict(shlex.split(line)[1].split("=", 1) for line in done.stdout.splitlines())
    try:
        assert SERVERS["gcs"][1].is_ready(told["LANCE_IO_TEST_GCS_ENDPOINT"])
    finally:
        os.kill(int(told["LANCE_IO_GCS_PID"]), signal.SIGTERM)


def test_without_a_program_and_go_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    program = GoProgram("no-such-server", "example.org/none", "v1", "docker compose up -d none")
    with pytest.raises(ServerError, match=r"no-such-server(?s:.)*go\.dev(?s:.)*docker compose up -d none"):
        program.find()


def test_one_that_does_not_come_up_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    quitter = tmp_path / "quitter"
    quitter.write_text("#!/bin/sh\necho no memory left >&2\n")
    quitter.chmod(0o755)

    class Quits(LocalServer):
        title = "the quitter"

        class program:
            @staticmethod
            def find() -> Path:
                return quitter

        def command(self, port: int) -> list[str]:
            return [str(port)]

        def is_up(self) -> bool:
            return False

    server = Quits()
    with pytest.raises(ServerError, match="the quitter does not come up:\nno memory left"):
        server.start()
    with pytest.raises(AssertionError):
        _ = server.folder
