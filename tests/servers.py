"""Servers that tests talk to, found or started, all on 127.0.0.1.

MinIO: `LANCE_IO_TEST_S3_ENDPOINT` names one that runs already; otherwise one is started by `minio/server.py`. A server
that cannot start fails the test that asked for it: nothing is skipped.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]


def load_minio_module() -> Any:
    """`minio/server.py`, by path: the folder has the name of an installed package."""
    name = "lance_io_minio_server"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "minio" / "server.py")
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


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

    def root_options(self, **more: str) -> dict[str, str]:
        """Storage options of the server's owner."""
        return self.options(aws_access_key_id=self.root_user, aws_secret_access_key=self.root_secret, **more)


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """The server of the environment, or a new one for the time of the block."""
    module = load_minio_module()
    if running := os.environ.get("LANCE_IO_TEST_S3_ENDPOINT"):
        if not module.is_ready(running):
            raise RuntimeError(f"LANCE_IO_TEST_S3_ENDPOINT names {running}, but no MinIO server answers there")
        module.prepare(running)
        yield _described(module, running)
        return
    with module.MinioServer() as server:
        yield _described(module, server.endpoint)


def _described(module: Any, endpoint: str) -> S3Server:
    return S3Server(
        endpoint=endpoint,
        user=module.USER,
        secret=module.USER_SECRET,
        root_user=module.ROOT_USER,
        root_secret=module.ROOT_SECRET,
        bucket=module.BUCKET,
        private_bucket=module.PRIVATE_BUCKET,
        region=module.REGION,
    )
