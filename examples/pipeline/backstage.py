"""The other processes of the pipeline, each running during a `with` block: a MinIO server and the service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1]))  # the checkout: its servers

from servers import minio  # noqa: E402

READY_S = 60.0
END_S = 10.0
AGAIN_S = 0.05


def keep_interrupts() -> None:
    """Make sure that no Ctrl-C is lost.

    Python drops a `KeyboardInterrupt` that it raises in a destructor or in the callback of a weak reference. This hook
    raises it again a moment later.
    """

    def report(dropped: sys.UnraisableHookArgs) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        else:
            sys.__unraisablehook__(dropped)

    signal.signal(signal.SIGALRM, signal.default_int_handler)
    sys.unraisablehook = report


@contextmanager
def bucket() -> Iterator[tuple[str, str]]:
    """Endpoint and URI of a bucket; the environment of later processes gets its address and credentials.

    Starts a server, unless `LANCE_IO_TEST_S3_ENDPOINT` names a running one.
    """
    with ExitStack() as stack:
        endpoint = os.environ.get("LANCE_IO_TEST_S3_ENDPOINT")
        if endpoint:
            minio.prepare(endpoint)
        else:
            endpoint = stack.enter_context(minio.MinioServer()).endpoint
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            del os.environ[name]  # the user's own credentials must not reach this server
        os.environ |= {**minio.environment(endpoint), "AWS_EC2_METADATA_DISABLED": "true"}
        yield endpoint, f"s3://{minio.BUCKET}"


class Service:
    """The service of `service.py`, in a separate process."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str) -> Any:
        """The service's answer to a GET. Raises `OSError` if the request fails."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=READY_S) as answer:
            return json.load(answer)

    def wait_for(self, version: int) -> dict[str, Any]:
        """Wait until the service has this version or a newer one; returns its `/table`. Raises `TimeoutError`."""
        deadline = time.monotonic() + READY_S
        while True:
            answer: dict[str, Any] = self.ask("/table")
            if answer["version"] >= version:
                return answer
            if time.monotonic() > deadline:
                raise TimeoutError(f"the service is still at version {answer['version']}, not at {version}")
            time.sleep(0.05)


@contextmanager
def running_service(uri: str, log: IO[str]) -> Iterator[Service]:
    """Start the service of a table; end it with the block."""
    command = [sys.executable, str(HERE / "service.py"), uri]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            raise RuntimeError(f"the service did not start, it ended with {process.wait()}")
        yield Service(url)
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
