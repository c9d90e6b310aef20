"""Servers that tests talk to, found or started, all on 127.0.0.1.

Variables such as `LANCE_IO_TEST_S3_ENDPOINT` name one that runs already; otherwise `servers/` starts one. A server that
cannot start fails the test that asked for it: nothing is skipped.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from servers import azurite, fake_gcs, minio, versity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers.local_server import LocalServer


class TableServer(Protocol):
    """A server that tables are in.

    peer_writes  whether pylance can write there, too
    """

    peer_writes: ClassVar[bool]

    @property
    def endpoint(self) -> str: ...

    def uri(self, path: str) -> str:
        """Of a place."""

    def options(self, **more: str) -> dict[str, str]:
        """Storage options."""

    def through(self, endpoint: str, **more: str) -> dict[str, str]:
        """The same by way of a proxy before the server."""

    def peer_options(self) -> dict[str, str]:
        """Storage options of pylance."""


@dataclass(frozen=True)
class S3Server:
    """A prepared server: `bucket` is open to the restricted user, `private_bucket` to root only."""

    endpoint: str
    user: str
    secret: str
    root_user: str
    root_secret: str
    bucket: str
    private_bucket: str
    region: str
    peer_writes: ClassVar = True

    def uri(self, path: str) -> str:
        """Of a place."""
        return f"s3://{self.bucket}/{path}"

    def options(self, **more: str) -> dict[str, str]:
        """Storage options of the restricted user."""
        return {
            "aws_endpoint": self.endpoint,
            "allow_http": "true",
            "aws_region": self.region,
            "aws_access_key_id": self.user,
            "aws_secret_access_key": self.secret,
            **more,
        }

    def through(self, endpoint: str, **more: str) -> dict[str, str]:
        """The same by way of a proxy before the server."""
        return self.options(aws_endpoint=endpoint, **more)

    def peer_options(self) -> dict[str, str]:
        """Storage options of pylance."""
        return self.options()

    def root_options(self, **more: str) -> dict[str, str]:
        """Storage options of the server's owner."""
        return self.options(aws_access_key_id=self.root_user, aws_secret_access_key=self.root_secret, **more)


@dataclass(frozen=True)
class GcsServer:
    """A server that speaks Google Cloud Storage, and asks nobody who they are.

    Pylance cannot write there: the server does not know its way of PUTs.
    """

    endpoint: str
    bucket: str
    peer_writes: ClassVar = False

    def uri(self, path: str) -> str:
        """Of a place."""
        return f"gs://{self.bucket}/{path}"

    def options(self, **more: str) -> dict[str, str]:
        """Storage options."""
        return {"google_base_url": self.endpoint, "allow_http": "true", "google_skip_signature": "true", **more}

    def through(self, endpoint: str, **more: str) -> dict[str, str]:
        """The same by way of a proxy before the server."""
        return self.options(google_base_url=endpoint, **more)

    def peer_options(self) -> dict[str, str]:
        """Storage options of pylance, which asks for a token even where none is wanted."""
        return self.options(google_storage_token="any")


@dataclass(frozen=True)
class AzureServer:
    """A server that speaks Azure's blob storage. It has one user, the owner of the account."""

    endpoint: str
    account: str
    account_key: str
    container: str
    private_container: str
    peer_writes: ClassVar = True

    def uri(self, path: str) -> str:
        """Of a place."""
        return f"az://{self.container}/{path}"

    def options(self, **more: str) -> dict[str, str]:
        """Storage options of the owner."""
        return {"account_key": self.account_key, **self.anonymous_options(), **more}

    def through(self, endpoint: str, **more: str) -> dict[str, str]:
        """The same by way of a proxy before the server."""
        return self.options(azure_endpoint=f"{endpoint}/{self.account}", **more)

    def peer_options(self) -> dict[str, str]:
        """Storage options of pylance."""
        return self.options()

    def anonymous_options(self, **more: str) -> dict[str, str]:
        """Where it is, for whoever brings credentials of another kind."""
        where = {"azure_endpoint": f"{self.endpoint}/{self.account}", "account_name": self.account}
        return {**where, "allow_http": "true", **more}


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """MinIO: the server of the environment, or a new one for the time of the block."""
    with _running(minio, minio.MinioServer) as endpoint:
        yield S3Server(
            endpoint=endpoint,
            user=minio.USER,
            secret=minio.USER_SECRET,
            root_user=minio.ROOT_USER,
            root_secret=minio.ROOT_SECRET,
            bucket=minio.BUCKET,
            private_bucket=minio.PRIVATE_BUCKET,
            region=minio.REGION,
        )


@contextmanager
def versity_server() -> Iterator[S3Server]:
    """versitygw: the server of the environment, or a new one for the time of the block. It has one user, its owner."""
    with _running(versity, versity.VersityServer) as endpoint:
        yield S3Server(
            endpoint=endpoint,
            user=versity.USER,
            secret=versity.SECRET,
            root_user=versity.USER,
            root_secret=versity.SECRET,
            bucket=versity.BUCKET,
            private_bucket="",
            region=versity.REGION,
        )


@contextmanager
def gcs_server() -> Iterator[GcsServer]:
    """fake-gcs-server: the server of the environment, or a new one for the time of the block."""
    with _running(fake_gcs, fake_gcs.FakeGcsServer) as endpoint:
        yield GcsServer(endpoint, fake_gcs.BUCKET)


@contextmanager
def azure_server() -> Iterator[AzureServer]:
    """Azurite: the server of the environment, or a new one for the time of the block."""
    with _running(azurite, azurite.AzuriteServer) as endpoint:
        yield AzureServer(
            endpoint=endpoint,
            account=azurite.ACCOUNT,
            account_key=azurite.ACCOUNT_KEY,
            container=azurite.BUCKET,
            private_container=azurite.PRIVATE_BUCKET,
        )


@contextmanager
def _running(module: Any, kind: type[LocalServer]) -> Iterator[str]:
    """The endpoint of a prepared server; see `servers/__main__.py` for what a module has."""
    if running := os.environ.get(module.RUNNING):
        if not module.is_ready(running):
            raise RuntimeError(f"{module.RUNNING} names {running}, but no such server answers there")
        module.prepare(running)
        yield running
        return
    with kind() as server:
        yield server.endpoint
