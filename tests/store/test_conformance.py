"""Memory, local disk and S3 pass one suite; each has a back door that does not go through the store."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import pytest_asyncio
from minio.error import S3Error

from lance_io.limits import MIB
from lance_io.store.disk_cache.cached_store import CachedStore
from lance_io.store.disk_cache.disk_cache import DiskCache
from lance_io.store.local.disk import LocalStore
from lance_io.store.memory import MemoryStore
from lance_io.store.url import open_store
from lance_io.testing.conformance import Place, StoreConformance
from lance_io.testing.faults import FaultyStore
from lance_io.testing.record import record
from minio import Minio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from lance_io.store.api import ObjectStore
    from tests.servers import S3Server


def _memory_place(store: Any, inner: MemoryStore) -> Place:
    def read(key: str) -> bytes | None:
        return inner._objects[key][0] if key in inner._objects else None

    return Place(store, "some/folder", lambda key, data: inner.put_sync(key, data) and None, read)


class TestMemory(StoreConformance):
    @pytest.fixture
    def place(self) -> Place:
        store = MemoryStore()
        return _memory_place(store, store)


class TestWrappers(StoreConformance):
    """The wrappers of `lance_io.testing` are stores."""

    @pytest.fixture
    def place(self) -> Place:
        inner = MemoryStore()
        return _memory_place(record(FaultyStore(inner)), inner)


class TestDiskCached(StoreConformance):
    """A store behind a disk cache is one."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        inner = MemoryStore()
        cache = DiskCache(str(tmp_path), 8 * MIB)
        return _memory_place(CachedStore(record(inner), cache, "me"), inner)


class TestLocal(StoreConformance):
    @pytest.fixture
    async def place(self, tmp_path: Path) -> AsyncIterator[Place]:
        def write(key: str, data: bytes) -> None:
            Path(key).parent.mkdir(parents=True, exist_ok=True)
            Path(f"{key}.new").write_bytes(data)
            os.replace(f"{key}.new", key)

        def read(key: str) -> bytes | None:
            return Path(key).read_bytes() if Path(key).exists() else None

        store = LocalStore()
        yield Place(store, str(tmp_path / "folder"), write, read)
        await store.aclose()


@pytest.fixture(scope="module")
def back_door(s3: S3Server) -> Minio:
    """Another client of the same server, under another user."""
    host = s3.endpoint.removeprefix("http://")
    return Minio(endpoint=host, access_key=s3.root_user, secret_key=s3.root_secret, secure=False, region=s3.region)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def s3_stores(s3: S3Server) -> AsyncIterator[Callable[..., ObjectStore]]:
    """One store per set of options."""
    made: dict[str, ObjectStore] = {}

    def store_of(**options: str) -> ObjectStore:
        name = str(options)
        if name not in made:
            made[name] = open_store(f"s3://{s3.bucket}", s3.options(**options)).store
        return made[name]

    yield store_of
    for store in made.values():
        await store.aclose()


@pytest.mark.asyncio(loop_scope="module")  # one client for all: making one costs more than most of these tests
class _OnMinio(StoreConformance):
    OPTIONS: ClassVar[dict[str, str]]

    @pytest.fixture
    def place(self, s3: S3Server, s3_prefix: str, back_door: Minio, s3_stores: Callable[..., ObjectStore]) -> Place:
        def write(key: str, data: bytes) -> None:
            back_door.put_object(bucket_name=s3.bucket, object_name=key, data=io.BytesIO(data), length=len(data))

        def read(key: str) -> bytes | None:
            try:
                answer = back_door.get_object(bucket_name=s3.bucket, object_name=key)
            except S3Error as error:
                assert error.code == "NoSuchKey"
                return None
            with answer:
                data: bytes = answer.read()
                answer.release_conn()
                return data

        return Place(s3_stores(**self.OPTIONS), s3_prefix, write, read)


class TestS3(_OnMinio):
    OPTIONS: ClassVar = {}


class TestS3ThroughAiobotocore(_OnMinio):
    """The slow way of reading, for services that need all of botocore."""

    OPTIONS: ClassVar = {"fast_get": "false"}


del StoreConformance, _OnMinio  # tests to inherit, not to run
