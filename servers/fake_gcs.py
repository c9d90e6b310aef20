"""fake-gcs-server, which speaks Google Cloud Storage (JSON and XML). It asks nobody who they are.

Prepared means: the bucket `lance-io`.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, ClassVar

from servers.local_server import GoProgram, LocalServer, answer_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from servers.local_server import Program

BUCKET = "lance-io"
RUNNING = "LANCE_IO_TEST_GCS_ENDPOINT"  # the variable that names a server which runs already


class FakeGcsServer(LocalServer):
    """See `LocalServer`. Objects are in its memory."""

    title: ClassVar = "fake-gcs-server"
    program: ClassVar[Program] = GoProgram(
        "fake-gcs-server",
        "github.com/fsouza/fake-gcs-server",
        "v1.56.1",
        f"docker compose up -d --wait gcs, then {RUNNING}=http://127.0.0.1:4443",
    )

    def command(self, port: int) -> Sequence[str]:
        """See `LocalServer`."""
        host = f"127.0.0.1:{port}"
        where = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
        return [*where, "-backend", "memory", "-public-host", host, "-external-url", f"http://{host}",
                "-log-level", "warn"]  # fmt: skip

    def is_up(self) -> bool:
        """See `LocalServer`."""
        return is_ready(self.endpoint)

    def prepare(self) -> None:
        """See `LocalServer`."""
        prepare(self.endpoint)


def is_ready(endpoint: str) -> bool:
    """Does a server answer there?"""
    return answer_of(f"{endpoint}/_internal/healthcheck") is not None


def prepare(endpoint: str) -> None:
    """Make the bucket, where it is not there yet."""
    asked = urllib.request.Request(
        f"{endpoint}/storage/v1/b?project=lance-io",
        data=json.dumps({"name": BUCKET}).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        urllib.request.urlopen(asked, timeout=10).close()
    except urllib.error.HTTPError as error:
        with error:
            if error.code != 409:  # it is there
                raise


def environment(endpoint: str) -> dict[str, str]:
    """The variables by which the tests, lance_io and Google's tools find the server, and need not sign in."""
    return {
        RUNNING: endpoint,
        "STORAGE_EMULATOR_HOST": endpoint,
        "GOOGLE_BASE_URL": endpoint,
        "ALLOW_HTTP": "true",
        "GOOGLE_SKIP_SIGNATURE": "true",
    }
