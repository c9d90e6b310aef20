"""Memory, local disk, S3 and filesystems of other libraries pass one suite; each has a back door around the store."""

from __future__ import annotations

import io
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import fsspec
import obstore.store
import pyarrow.fs as pafs
import pytest
import pytest_asyncio
from fsspec.implementations.dirfs import DirFileSystem
from minio.error import S3Error

from lance_io.store.filesystem.place import open_filesystem
from lance_io.store.local.disk import LocalStore
from lance_io.store.memory import MemoryStore
from lance_io.store.url import open_store
from lance_io.testing.conformance import Place, StoreConformance
from lance_io.testing.faults import FaultyStore
from lance_io.testing.record import record
from minio import Minio
from tests.store.bucketfs import BucketFileSystem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

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


class TestFsspecAsync(StoreConformance):
    """An fsspec filesystem with coroutines, whose service decides who creates."""

    @pytest.fixture
    def place(self) -> Iterator[Place]:
        bucket = uuid.uuid4().hex
        fs = BucketFileSystem(secret="hunter22", asynchronous=True)

        def read(key: str) -> bytes | None:
            found = BucketFileSystem.objects(key).get(key)
            return None if found is None else found[0]

        store = open_filesystem(fs, {"exclusive_create": "true"})
        yield Place(store, f"{bucket}/some/folder", BucketFileSystem.store, read)
        BucketFileSystem.clear()


class _OnDisk(StoreConformance):
    """Other libraries' views of the local disk."""

    IS_BELOW = False  # whether keys are relative to the folder of the test

    def open(self, root: Path) -> ObjectStore:
        raise NotImplementedError

    @pytest.fixture
    async def place(self, tmp_path: Path) -> AsyncIterator[Place]:
        store = self.open(tmp_path)
        root = tmp_path if self.IS_BELOW else Path("/")

        def write(key: str, data: bytes) -> None:
            path = root / key
            path.parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "new").write_bytes(data)
            os.replace(tmp_path / "new", path)

        def read(key: str) -> bytes | None:
            return (root / key).read_bytes() if (root / key).exists() else None

        yield Place(store, "folder" if root == tmp_path else str(tmp_path / "folder"), write, read)
        await store.aclose()


class TestFsspecBlocking(_OnDisk):
    def open(self, root: Path) -> ObjectStore:
        return open_filesystem(fsspec.filesystem("file"), {})


class TestFsspecDirectory(_OnDisk):
    IS_BELOW = True

    def open(self, root: Path) -> ObjectStore:
        return open_filesystem(DirFileSystem(str(root), fsspec.filesystem("file")), {})


class TestPyArrow(_OnDisk):
    def open(self, root: Path) -> ObjectStore:
        return open_filesystem(pafs.LocalFileSystem(), {})


class TestPyArrowBelow(_OnDisk):
    IS_BELOW = True

    def open(self, root: Path) -> ObjectStore:
        return open_filesystem(pafs.SubTreeFileSystem(str(root), pafs.LocalFileSystem()), {})


class TestObstore(_OnDisk):
    IS_BELOW = True

    def open(self, root: Path) -> ObjectStore:
        return open_filesystem(obstore.store.LocalStore(str(root)), {})


class TestFsspecMemory(StoreConformance):
    """A blocking filesystem that promises nothing about creating."""

    @pytest.fixture
    def place(self) -> Place:
        fs = fsspec.filesystem("memory")

        def read(key: str) -> bytes | None:
            return bytes(fs.cat_file(key)) if fs.exists(key) else None

        return Place(open_filesystem(fs, {}), f"/{uuid.uuid4().hex}/folder", fs.pipe_file, read)


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


del StoreConformance, _OnDisk, _OnMinio  # tests to inherit, not to run
