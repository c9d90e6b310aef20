"""The other processes of the pipeline, each for the time of a `with` block: a bucket on MinIO, and the service."""

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
    """See to it that no Ctrl-C is lost.

    Python raises `KeyboardInterrupt` wherever it is, and drops the ones that come up in a destructor or in the
    callback of a weak reference: these are raised again a moment later, from wherever it is then.
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
    """Endpoint and URI of a bucket, which every process that is started from here on finds through its environment.

    The server is one of our own, unless `LANCE_IO_TEST_S3_ENDPOINT` names one that runs already.
    """
    with ExitStack() as stack:
        endpoint = os.environ.get("LANCE_IO_TEST_S3_ENDPOINT")
        if endpoint:
            minio.prepare(endpoint)
        else:
            endpoint = stack.enter_context(minio.MinioServer()).endpoint
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            del os.environ[name]  # who the user is elsewhere is nothing to this server
        os.environ |= {**minio.environment(endpoint), "AWS_EC2_METADATA_DISABLED": "true"}
        yield endpoint, f"s3://{minio.BUCKET}"


class Service:
    """The service of `service.py`, in a process of its own."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str) -> Any:
        """What it answers to a GET. Raises `OSError` when it does not, or not well."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=READY_S) as answer:
            return json.load(answer)

    def wait_for(self, version: int) -> dict[str, Any]:
        """Its `/table`, once that is of this version or a newer one. Raises `TimeoutError`."""
        deadline = time.monotonic() + READY_S
        while True:
            told: dict[str, Any] = self.ask("/table")
            if told["version"] >= version:
                return told
            if time.monotonic() > deadline:
                raise TimeoutError(f"the service is still at version {told['version']}, not at {version}")
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
