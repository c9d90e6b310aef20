"""The proxy as a process: start it, set what it does to requests, ask what it saw.

with running_proxy("http://127.0.0.1:9000") as proxy:
    proxy.set({"latency": {"median_ms": 30}})
    ...                                         # clients use proxy.endpoint
    stats, records = proxy.stats(), proxy.take_log()
"""

from __future__ import annotations

import http.client
import json
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from benchmarks.latency.requestlog import Record, parse_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FOLDER = Path(__file__).resolve().parent / "proxy"
PROGRAM = FOLDER / "target" / "release" / "latency-proxy"
ANSWER_S = 60.0

Settings = dict[str, Any]
"""As `proxy/src/settings.rs` has them; what is left out has its default."""


class ProxyError(RuntimeError):
    """The proxy cannot be started, or refuses what it was told."""


@dataclass(frozen=True)
class ProxyStats:
    """Since the last reset; what is open, kept and used is as of now."""

    requests: int
    sent_bytes: int
    received_bytes: int
    throttled: int
    disturbed: int
    left: int
    connections: int
    connections_open: int
    in_flight: int
    in_flight_max: int
    kept_bytes: int
    cpu_s: float
    now_us: int


class Proxy:
    """A running proxy.

    endpoint  where clients connect instead of the server
    """

    def __init__(self, port: int, control_port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self._control_port = control_port

    def set(self, settings: Mapping[str, Any]) -> None:
        """Replace all settings; random numbers begin again."""
        self._ask("PUT", "/settings", json.dumps(settings))

    def settings(self) -> Settings:
        """All settings, defaults included."""
        found: Settings = json.loads(self._ask("GET", "/settings"))
        return found

    def stats(self) -> ProxyStats:
        """Counts and processor time."""
        told = json.loads(self._ask("GET", "/stats"))
        return ProxyStats(**{field.name: told[field.name] for field in fields(ProxyStats)})

    def reset(self) -> None:
        """Forget counts and log."""
        self._ask("POST", "/reset")

    def take_log(self) -> list[Record]:
        """Requests whose answers have ended, in that order, since the last time or a reset."""
        records, lost = parse_log(self._ask("GET", "/log"))
        if lost:
            raise ProxyError(f"the proxy's log was full: {lost} requests are not in it; take it more often")
        return records

    def _ask(self, method: str, path: str, body: str | None = None) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self._control_port, timeout=ANSWER_S)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status != 200:
            raise ProxyError(f"the proxy answers {answer.status} to {method} {path}: {text}")
        return text


def executable() -> Path:
    """The program, which `make` builds."""
    if not PROGRAM.exists():
        raise ProxyError(f"there is no {PROGRAM.relative_to(FOLDER.parents[2])}; `make latency-proxy` builds it")
    return PROGRAM


@contextmanager
def running_proxy(server: str, dialect: str = "s3") -> Iterator[Proxy]:
    """A proxy in front of the server at this URL, for the time of the block.

    dialect  what it speaks: `s3`, `gcs`, `azure`
    """
    parts = urlsplit(server)
    command = [str(executable()), f"{parts.hostname}:{parts.port or 80}", dialect]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            ports = json.loads(process.stdout.readline())
            yield Proxy(ports["port"], ports["control_port"])
        finally:
            process.stdin.close()
