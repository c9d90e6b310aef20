"""versitygw, which speaks S3 over a folder: a second implementation, by others than MinIO's.

Prepared means: the bucket `lance-io`, which is the owner's. Everybody is the owner here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from servers.local_server import GoProgram, LocalServer, answer_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from servers.local_server import Program

USER, SECRET = "lance-io-versity", "lance-io-versity-secret"
BUCKET = "lance-io"
REGION = "us-east-1"
RUNNING = "LANCE_IO_TEST_VERSITY_ENDPOINT"  # the variable that names a server which runs already


class VersityServer(LocalServer):
    """See `LocalServer`."""

    title: ClassVar = "versitygw"
    program: ClassVar[Program] = GoProgram(
        "versitygw",
        "github.com/versity/versitygw/cmd/versitygw",
        "v1.8.0",
        f"docker compose up -d --wait versity, then {RUNNING}=http://127.0.0.1:7070",
    )

    def command(self, port: int) -> Sequence[str]:
        """See `LocalServer`."""
        for name in ("users", "data"):
            (self.folder / name).mkdir(exist_ok=True)
        gateway = ["--port", f"127.0.0.1:{port}", "--iam-dir", str(self.folder / "users"), "--health", "/health"]
        return [*gateway, "--quiet", "--keep-alive", "posix", str(self.folder / "data")]

    def settings(self) -> Mapping[str, str]:
        """See `LocalServer`."""
        return {"ROOT_ACCESS_KEY": USER, "ROOT_SECRET_KEY": SECRET, "VGW_REGION": REGION}

    def is_up(self) -> bool:
        """See `LocalServer`."""
        return is_ready(self.endpoint)

    def prepare(self) -> None:
        """See `LocalServer`."""
        prepare(self.endpoint)


def is_ready(endpoint: str) -> bool:
    """Does a server answer there?"""
    return answer_of(f"{endpoint}/health") is not None


def prepare(endpoint: str) -> None:
    """Make the bucket, where it is not there yet."""
    from minio import Minio

    host = endpoint.removeprefix("http://").rstrip("/")
    client = Minio(endpoint=host, access_key=USER, secret_key=SECRET, region=REGION, secure=False)
    if not client.bucket_exists(bucket_name=BUCKET):
        client.make_bucket(bucket_name=BUCKET)


def environment(endpoint: str) -> dict[str, str]:
    """The variables by which the tests, lance_io and the AWS tools find the server."""
    return {
        RUNNING: endpoint,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": USER,
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }
