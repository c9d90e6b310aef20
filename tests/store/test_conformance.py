"""Every store passes one suite; each has a back door that does not go through the store."""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

import fsspec
import obstore.store
import pyarrow.fs as pafs
import pytest
import pytest_asyncio
from azure.core.exceptions import ResourceNotFoundError
from azure.storage.blob import ContainerClient
from fsspec.implementations.dirfs import DirFileSystem
from minio import Minio
from minio.error import S3Error

from lance_io.limits import MIB
from lance_io.store.api import ObjectStore
from lance_io.store.disk_cache.cached_store import CachedStore
from lance_io.store.disk_cache.disk_cache import DiskCache
from lance_io.store.filesystem.resolve import open_filesystem
from lance_io.store.local.disk import LocalStore
from lance_io.store.memory import MemoryStore
from lance_io.store.url import resolve_uri
from lance_io.testing.conformance import Place, StoreConformance
from lance_io.testing.faults import FaultyStore
from lance_io.testing.record import record
from scripts.conformance import behaviours, cell_of, page_cells, title_of
from tests.store.bucketfs import BucketFileSystem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.servers import AzureServer, GcsServer, S3Server


CHECKOUT = Path(__file__).resolve().parents[2]
EXACT = {"hedge_percent": "0"}  # a server that answers late is not asked twice: requests are counted


@pytest.fixture(scope="module")
def told() -> dict[tuple[str, str], str]:
    """What the page says of each store and behaviour."""
    return page_cells()


@pytest.fixture(autouse=True)
def as_the_page_says(request: pytest.FixtureRequest, told: dict[tuple[str, str], str]) -> Iterator[None]:
    """What a store lacks is on `docs/conformance.md`, and nothing else."""
    yield
    if request.cls is None:
        return
    found = cell_of(name for name, _ in request.node.user_properties)
    expected = told.get((request.cls.TITLE, title_of(request.function.__name__)))
    assert expected == found, f"docs/conformance.md says {expected}, not {found}: run scripts/conformance.py"


def test_the_page_has_every_store_and_behaviour(told: dict[tuple[str, str], str]) -> None:
    titles = [one.TITLE for name, one in globals().items() if name.startswith("Test")]
    assert [*told] == [(store, title_of(name)) for name in behaviours() for store in titles]
    assert {*told.values()} == {"+", "(+)", "-"}


def test_what_stores_lack_is_explained(told: dict[tuple[str, str], str]) -> None:
    explained = (CHECKOUT / "docs" / "store-promises.md").read_text().partition("## What a store does not promise")[2]
    lacking = {name for (_, name), cell in told.items() if cell != "+"}
    assert {name for name in lacking if name not in explained} == set()


def _memory_place(store: Any, inner: MemoryStore) -> Place:
    def read(key: str) -> bytes | None:
        return inner._objects[key][0] if key in inner._objects else None

    return Place(store, "some/folder", lambda key, data: inner.put_sync(key, data) and None, read)


class TestMemory(StoreConformance):
    TITLE: ClassVar = "memory"

    @pytest.fixture
    def place(self) -> Place:
        store = MemoryStore()
        return _memory_place(store, store)


class TestWrappers(StoreConformance):
    """The wrappers of `lance_io.testing` are stores."""

    TITLE: ClassVar = "wrappers for tests"

    @pytest.fixture
    def place(self) -> Place:
        inner = MemoryStore()
        return _memory_place(record(FaultyStore(inner)), inner)


class TestDiskCached(StoreConformance):
    """A store behind a disk cache is one."""

    TITLE: ClassVar = "disk cache"

    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        inner = MemoryStore()
        cache = DiskCache(str(tmp_path), 8 * MIB)
        return _memory_place(CachedStore(record(inner), cache, "me"), inner)


class TestLocal(StoreConformance):
    TITLE: ClassVar = "local disk"

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

    TITLE: ClassVar = "fsspec, coroutines"

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
    TITLE: ClassVar = "fsspec `file`"

    def open(self, root: Path) -> ObjectStore:
        return open_filesystem(fsspec.filesystem("file"), {})


class TestFsspecDirectory(_OnDisk):
    TITLE: ClassVar = "fsspec `dir`"
    IS_BELOW = True

    def open(self, root: Path) -> ObjectStore:
        return open_filesystem(DirFileSystem(str(root), fsspec.filesystem("file")), {})


class TestPyArrow(_OnDisk):
    TITLE: ClassVar = "pyarrow"

    def open(self, root: Path) -> ObjectStore:
        return open_filesystem(pafs.LocalFileSystem(), {})


class TestPyArrowBelow(_OnDisk):
    TITLE: ClassVar = "pyarrow subtree"
    IS_BELOW = True

    def open(self, root: Path) -> ObjectStore:
        return open_filesystem(pafs.SubTreeFileSystem(str(root), pafs.LocalFileSystem()), {})


class TestObstore(_OnDisk):
    TITLE: ClassVar = "obstore"
    IS_BELOW = True

    def open(self, root: Path) -> ObjectStore:
        return open_filesystem(obstore.store.LocalStore(str(root)), {})


class TestFsspecMemory(StoreConformance):
    """A blocking filesystem that promises nothing about creating."""

    TITLE: ClassVar = "fsspec `memory`"

    @pytest.fixture
    def place(self) -> Place:
        fs = fsspec.filesystem("memory")

        def read(key: str) -> bytes | None:
            return bytes(fs.cat_file(key)) if fs.exists(key) else None

        return Place(open_filesystem(fs, {}), f"/{uuid.uuid4().hex}/folder", fs.pipe_file, read)


Stores = Callable[..., ObjectStore]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stores() -> AsyncIterator[Stores]:
    """One store per place and set of options."""
    made: dict[str, ObjectStore] = {}

    def store_of(uri: str, options: dict[str, str]) -> ObjectStore:
        name = f"{uri} {options}"
        if name not in made:
            made[name] = resolve_uri(uri, options).store
        return made[name]

    yield store_of
    for store in made.values():
        await store.aclose()


@pytest.mark.asyncio(loop_scope="module")  # one client for all: making one costs more than most of these tests
class _InBucket(StoreConformance):
    """On a server, the fixture `SERVER`."""

    SERVER: ClassVar[str]
    OPTIONS: ClassVar[dict[str, str]] = {}

    @pytest.fixture
    def server(self, request: pytest.FixtureRequest) -> Any:
        return request.getfixturevalue(self.SERVER)


class _OnS3(_InBucket):
    @pytest.fixture
    def place(self, server: S3Server, s3_prefix: str, stores: Stores) -> Place:
        host, region = server.endpoint.removeprefix("http://"), server.region
        keys = {"access_key": server.root_user, "secret_key": server.root_secret}  # another user
        back_door = Minio(endpoint=host, secure=False, region=region, **keys)

        def write(key: str, data: bytes) -> None:
            back_door.put_object(bucket_name=server.bucket, object_name=key, data=io.BytesIO(data), length=len(data))

        def read(key: str) -> bytes | None:
            try:
                answer = back_door.get_object(bucket_name=server.bucket, object_name=key)
            except S3Error as error:
                assert error.code == "NoSuchKey"
                return None
            with answer:
                data: bytes = answer.read()
                answer.release_conn()
                return data

        return Place(stores(f"s3://{server.bucket}", server.options(**EXACT, **self.OPTIONS)), s3_prefix, write, read)


class TestS3(_OnS3):
    TITLE: ClassVar = "S3: MinIO"
    SERVER: ClassVar = "s3"


class TestS3ThroughAiobotocore(_OnS3):
    """As a bucket of S3 Express: aiobotocore reads, too, and listings have no order."""

    TITLE: ClassVar = "S3 Express: MinIO"
    SERVER: ClassVar = "s3"
    OPTIONS: ClassVar = {"s3_express": "true"}


class TestS3OnVersity(_OnS3):
    """S3 as others than MinIO implement it."""

    TITLE: ClassVar = "S3: versitygw"
    SERVER: ClassVar = "versity"


class _OnGcs(_InBucket):
    SERVER: ClassVar = "gcs"

    @pytest.fixture
    def place(self, server: GcsServer, s3_prefix: str, stores: Stores) -> Place:
        def address(key: str, call: str) -> str:
            return f"{server.endpoint}/{call}/{server.bucket}/o{key}"

        def write(key: str, data: bytes) -> None:
            query = urlencode({"uploadType": "media", "name": key})
            asked = Request(address(f"?{query}", "upload/storage/v1/b"), data, {"Content-Type": "some/bytes"})
            urlopen(asked, timeout=60).close()

        def read(key: str) -> bytes | None:
            try:
                with urlopen(address(f"/{quote(key, safe='')}?alt=media", "storage/v1/b"), timeout=60) as answer:
                    data: bytes = answer.read()
                    return data
            except HTTPError as error:
                with error:
                    assert error.code == 404
                return None

        return Place(stores(f"gs://{server.bucket}", server.options(**EXACT, **self.OPTIONS)), s3_prefix, write, read)


class TestGcs(_OnGcs):
    TITLE: ClassVar = "GCS: fake-gcs-server"


class _OnAzurite(_InBucket):
    SERVER: ClassVar = "azure"

    @pytest.fixture
    def place(self, server: AzureServer, s3_prefix: str, azure_back_door: ContainerClient, stores: Stores) -> Place:
        def write(key: str, data: bytes) -> None:
            azure_back_door.upload_blob(key, data, overwrite=True)

        def read(key: str) -> bytes | None:
            try:
                return azure_back_door.download_blob(key).readall()
            except ResourceNotFoundError:
                return None

        store = stores(f"az://{server.container}", server.options(**EXACT, **self.OPTIONS))
        return Place(store, s3_prefix, write, read)


class TestAzure(_OnAzurite):
    TITLE: ClassVar = "Azure: Azurite"


@pytest.fixture(scope="module")
def azure_back_door(azure: AzureServer) -> Iterator[ContainerClient]:
    """Another client of the same server."""
    account = f"{azure.endpoint}/{azure.account}"
    with ContainerClient(account, azure.container, azure.account_key) as client:
        yield client


del StoreConformance, _OnDisk, _InBucket, _OnS3, _OnGcs, _OnAzurite  # tests to inherit, not to run
