"""The servers behind the proxy, one for each protocol: how objects get there, and the options that reach them.

s3     MinIO, whose data is kept between runs
gcs    fake-gcs-server, in memory; it asks nobody who they are. pylance reads from it, and cannot write to it
azure  Azurite, in memory

Everybody may read data files, or the proxy could not fetch them.
"""

from __future__ import annotations

import json
import urllib.request
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.parse import quote

from servers import azurite, fake_gcs, minio

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from servers.local_server import LocalServer

ANSWER_S = 60.0


class Backend(ABC):
    """A running server with a bucket; a context manager.

    name    of its protocol, as the proxy knows it
    scheme  of URIs
    bucket  that tables are in
    """

    name: ClassVar[str]
    scheme: ClassVar[str]
    bucket: ClassVar[str]

    def __init__(self, server: LocalServer) -> None:
        self._server = server

    def __enter__(self) -> Self:
        self._server.__enter__()
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.__exit__(kind, error, trace)

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return self._server.endpoint

    @abstractmethod
    def open(self) -> None:
        """Let everybody read."""

    @abstractmethod
    def options(self, endpoint: str) -> dict[str, str]:
        """Storage options of both libraries, by way of the proxy that listens there."""

    @abstractmethod
    def put(self, key: str, path: Path) -> None:
        """Copy a file into the bucket."""

    @abstractmethod
    def keys(self, prefix: str) -> list[str]:
        """Of all objects whose keys begin so."""

    @abstractmethod
    def remove(self, key: str) -> None:
        """Remove an object."""

    def path(self, key: str) -> str:
        """By which anybody gets an object."""
        return f"/{self.bucket}/{quote(key)}"


class S3Backend(Backend):
    """MinIO, with its data in a folder."""

    name, scheme, bucket = "s3", "s3", minio.BUCKET

    def __init__(self, cache: Path) -> None:
        super().__init__(minio.MinioServer(cache / "latency" / "server"))

    def open(self) -> None:
        from minio import Minio

        self._client: Any = Minio(
            endpoint=self.endpoint.split("://")[1],
            access_key=minio.ROOT_USER,
            secret_key=minio.ROOT_SECRET,
            secure=False,
        )
        read = {"Effect": "Allow", "Principal": {"AWS": ["*"]}, "Action": ["s3:GetObject"]}
        policy = {"Version": "2012-10-17", "Statement": [{**read, "Resource": [f"arn:aws:s3:::{self.bucket}/*"]}]}
        self._client.set_bucket_policy(bucket_name=self.bucket, policy=json.dumps(policy))

    def options(self, endpoint: str) -> dict[str, str]:
        return {
            "aws_endpoint": endpoint,
            "allow_http": "true",
            "aws_region": minio.REGION,
            "aws_access_key_id": minio.USER,
            "aws_secret_access_key": minio.USER_SECRET,
        }

    def put(self, key: str, path: Path) -> None:
        self._client.fput_object(bucket_name=self.bucket, object_name=key, file_path=str(path))

    def keys(self, prefix: str) -> list[str]:
        found = self._client.list_objects(bucket_name=self.bucket, prefix=prefix, recursive=True)
        return [str(item.object_name) for item in found]

    def remove(self, key: str) -> None:
        self._client.remove_object(bucket_name=self.bucket, object_name=key)


class GcsBackend(Backend):
    """fake-gcs-server."""

    name, scheme, bucket = "gcs", "gs", fake_gcs.BUCKET

    def __init__(self, cache: Path) -> None:
        super().__init__(fake_gcs.FakeGcsServer())

    def open(self) -> None:
        """Everybody may do everything."""

    def options(self, endpoint: str) -> dict[str, str]:
        # pylance asks for a token even where none is wanted.
        anonymous = {"google_skip_signature": "true", "google_storage_token": "nobody's"}
        return {"google_base_url": endpoint, "allow_http": "true", **anonymous}

    def put(self, key: str, path: Path) -> None:
        url = f"{self.endpoint}/upload/storage/v1/b/{self.bucket}/o?uploadType=media&name={quote(key, safe='')}"
        headers = {"Content-Type": "application/octet-stream"}
        asked = urllib.request.Request(url, data=path.read_bytes(), headers=headers, method="POST")
        urllib.request.urlopen(asked, timeout=ANSWER_S).close()

    def keys(self, prefix: str) -> list[str]:
        url = f"{self.endpoint}/storage/v1/b/{self.bucket}/o?prefix={quote(prefix, safe='')}"
        with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
            return [item["name"] for item in json.load(answer).get("items", ())]

    def remove(self, key: str) -> None:
        url = f"{self.endpoint}/storage/v1/b/{self.bucket}/o/{quote(key, safe='')}"
        urllib.request.urlopen(urllib.request.Request(url, method="DELETE"), timeout=ANSWER_S).close()


class AzureBackend(Backend):
    """Azurite."""

    name, scheme, bucket = "azure", "az", azurite.BUCKET

    def __init__(self, cache: Path) -> None:
        super().__init__(azurite.AzuriteServer())

    def open(self) -> None:
        from azure.storage.blob import ContainerClient

        account = {"account_name": azurite.ACCOUNT, "account_key": azurite.ACCOUNT_KEY}
        self._client: Any = ContainerClient(f"{self.endpoint}/{azurite.ACCOUNT}", self.bucket, credential=account)
        self._client.set_container_access_policy(signed_identifiers={}, public_access="blob")

    def options(self, endpoint: str) -> dict[str, str]:
        account = {"account_name": azurite.ACCOUNT, "account_key": azurite.ACCOUNT_KEY}
        return {"azure_endpoint": f"{endpoint}/{azurite.ACCOUNT}", "allow_http": "true", **account}

    def put(self, key: str, path: Path) -> None:
        self._client.upload_blob(key, path.read_bytes(), overwrite=True)

    def keys(self, prefix: str) -> list[str]:
        return list(self._client.list_blob_names(name_starts_with=prefix))

    def remove(self, key: str) -> None:
        self._client.delete_blob(key)

    def path(self, key: str) -> str:
        return f"/{azurite.ACCOUNT}{super().path(key)}"


BACKENDS: dict[str, type[S3Backend] | type[GcsBackend] | type[AzureBackend]] = {
    each.name: each for each in (S3Backend, GcsBackend, AzureBackend)
}
