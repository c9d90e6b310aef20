"""Tables on filesystems of fsspec, pyarrow and obstore: same rows, few requests, promises kept or refused."""

from __future__ import annotations

import asyncio
import errno
import os
import pickle
import threading
import traceback
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import fsspec
import lance
import obstore.store
import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from fsspec.implementations.cached import SimpleCacheFileSystem
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.registry import _registry

import lance_io
from lance_io.errors import (
    AccessDenied,
    AlreadyExists,
    CommitUnknownError,
    LanceError,
    NotFound,
    StoreError,
    UnsupportedError,
    UsageError,
)
from lance_io.io.stats import io_stats
from lance_io.redaction import hide_secrets
from lance_io.store.failures import OutcomeUnknown, StoreFull, Throttled, Transient
from lance_io.store.filesystem import filesystem_calls
from lance_io.store.filesystem.filesystem_store import TEMPORARY_PREFIX
from lance_io.store.filesystem.fsspec_calls import twin_of
from lance_io.store.filesystem.resolve import open_filesystem
from lance_io.store.url import FilesystemUri, resolve_uri
from tests.store.bucketfs import BucketFileSystem, GuestFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ROWS = pa.table({"id": range(1000), "text": [f"row {n}" for n in range(1000)]})
SECRET = "hunter22-very-secret"
VOUCHED = {"exclusive_create": "true"}
LOCAL: dict[str, Callable[[Path], tuple[Any, str]]] = {
    "fsspec": lambda root: (fsspec.filesystem("file"), f"{root}/t.lance"),
    "fsspec-wrapper": lambda root: (AsyncFileSystemWrapper(fsspec.filesystem("file")), f"{root}/t.lance"),
    "fsspec-folder": lambda root: (DirFileSystem(str(root), fsspec.filesystem("file")), "t.lance"),
    "pyarrow": lambda root: (pafs.LocalFileSystem(), f"{root}/t.lance"),
    "pyarrow-folder": lambda root: (pafs.SubTreeFileSystem(str(root), pafs.LocalFileSystem()), "t.lance"),
    "pyarrow-fsspec": lambda root: (
        pafs.PyFileSystem(pafs.FSSpecHandler(fsspec.filesystem("file"))),
        f"{root}/t.lance",
    ),
    "obstore": lambda root: (obstore.store.LocalStore(str(root)), "t.lance"),
}


@pytest.fixture(autouse=True)
def _empty_buckets() -> Iterator[None]:
    yield
    BucketFileSystem.clear()
    fsspec.filesystem("memory").store.clear()


@pytest.fixture
def bucket() -> BucketFileSystem:
    return BucketFileSystem(secret=SECRET)


def written(fs: Any, path: str = "b/t.lance", options: dict[str, str] | None = None) -> lance_io.LanceDataset:
    options = VOUCHED if options is None and isinstance(fs, BucketFileSystem) else options
    return lance_io.write_dataset(ROWS, path, filesystem=fs, storage_options=options)


def opened(fs: Any, path: str = "b/t.lance") -> lance_io.LanceDataset:
    return lance_io.dataset(path, filesystem=fs, storage_options=VOUCHED)


# -- the same table ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LOCAL)
def test_pylance_reads_what_was_written_through_a_filesystem(kind: str, tmp_path: Path) -> None:
    fs, path = LOCAL[kind](tmp_path)
    ds = lance_io.write_dataset(ROWS, path, filesystem=fs)
    ds.insert(ROWS)
    ds.delete("id >= 500")
    ds.tags.create("now")
    theirs = lance.dataset(str(tmp_path / "t.lance"))
    assert theirs.version == ds.version == 3
    assert theirs.to_table() == lance_io.dataset(path, "now", filesystem=fs).to_table()
    lance.write_dataset(ROWS.slice(0, 10), str(tmp_path / "t.lance"), mode="append")
    assert lance_io.dataset(path, filesystem=fs).to_table() == lance.dataset(str(tmp_path / "t.lance")).to_table()
    assert not [name for _, _, names in os.walk(tmp_path) for name in names if name.startswith(TEMPORARY_PREFIX)]


@pytest.mark.parametrize("kind", LOCAL)
async def test_coroutines_do_the_same(kind: str, tmp_path: Path) -> None:
    fs, path = LOCAL[kind](tmp_path)
    await lance_io.AsyncDataset.write(ROWS, path, filesystem=fs)
    await lance_io.AsyncDataset.write(ROWS, path, mode="append", filesystem=fs)
    async with lance_io.AsyncDataset.open(path, filesystem=fs) as ds:
        taken = await asyncio.gather(*(ds.take([n, 1000 + n], columns=["text"]) for n in range(20)))
        assert await ds.to_table() == pa.concat_tables([ROWS, ROWS])
    assert taken[7] == ROWS.select(["text"]).take([7, 7])
    await lance_io.AsyncDataset.drop(path, filesystem=fs)
    with pytest.raises(ValueError, match=r"t\.lance"):
        await lance_io.AsyncDataset.open(path, filesystem=fs)


@pytest.mark.parametrize("kind", ["fsspec", "pyarrow", "obstore"])
async def test_files_by_themselves(kind: str, tmp_path: Path) -> None:
    fs, _ = LOCAL[kind](tmp_path)
    root = "" if kind == "obstore" else f"{tmp_path}/"
    with lance_io.file.LanceFileWriter(f"{root}a.lance", ROWS.schema, filesystem=fs) as writer:
        writer.write_batch(ROWS)
    async with lance_io.file.AsyncFileWriter(f"{root}b.lance", ROWS.schema, filesystem=fs) as writer:
        await writer.write_batch(ROWS)
    assert lance.file.LanceFileReader(str(tmp_path / "b.lance")).read_all().to_table() == ROWS
    assert lance_io.file.LanceFileReader(f"{root}a.lance", filesystem=fs).read_all().to_table() == ROWS
    async with lance_io.file.AsyncFileReader(f"{root}a.lance", filesystem=fs) as reader:
        assert reader.num_rows() == 1000
    session = lance_io.file.LanceFileSession(root or "/", filesystem=fs)
    assert session.list() == ["a.lance", "b.lance"]
    assert session.open_reader("b.lance").num_rows() == 1000


def test_transactions_of_others_are_committed(bucket: BucketFileSystem) -> None:
    written(bucket)
    fragments = lance_io.fragment.write_fragments(ROWS, "b/t.lance", filesystem=bucket, storage_options=VOUCHED)
    operation = lance_io.LanceOperation.Append(fragments)
    ds = lance_io.LanceDataset.commit("b/t.lance", operation, 1, filesystem=bucket, storage_options=VOUCHED)
    assert (ds.version, ds.count_rows()) == (2, 2000)


def test_a_large_file_goes_up_in_one_piece(bucket: BucketFileSystem) -> None:
    rows = pa.table({"noise": pa.array([os.urandom(1 << 20) for _ in range(20)], pa.binary())})
    ds = lance_io.write_dataset(rows, "b/t.lance", filesystem=bucket, storage_options=VOUCHED)
    assert [path for operation, path in BucketFileSystem.calls if operation == "put" and "/data/" in path] == [
        f"b/t.lance/data/{ds.get_fragments()[0].metadata.files[0].path}"
    ]
    assert ds.to_table() == rows


# -- requests, listings, loops -----------------------------------------------------------------------------------------


def test_requests_of_a_table(bucket: BucketFileSystem) -> None:
    def counted(work: Callable[[], Any]) -> list[str]:
        BucketFileSystem.calls.clear()
        work()
        return [operation for operation, _ in BucketFileSystem.calls]

    written(bucket)
    assert counted(lambda: opened(bucket)) == ["list", "get"]
    ds = opened(bucket)
    assert counted(ds.count_rows) == []
    ds.take([1])
    assert counted(lambda: ds.take([2], columns=["id"])) == ["get"]
    assert counted(lambda: ds.take([2, 900], columns=["id"])) == ["get"]
    assert sorted(counted(lambda: ds.insert(ROWS))) == ["create", "list", "put", "put"]


def test_rounds_of_a_warm_take(bucket: BucketFileSystem) -> None:
    written(bucket)
    ds = opened(bucket)
    ds.take([0])
    with io_stats() as stats:
        ds.take([5, 999])
    assert stats.rounds == 1


def test_a_listing_is_never_the_one_that_somebody_keeps(bucket: BucketFileSystem) -> None:
    written(bucket)
    folder = "b/t.lance/_versions"
    before = bucket.ls(folder)  # which the user's instance keeps
    opened(bucket).insert(ROWS)
    assert opened(bucket).version == 2
    assert opened(BucketFileSystem(secret="other")).count_rows() == 2000
    assert bucket.ls(folder) == before


def test_each_loop_has_a_twin(bucket: BucketFileSystem) -> None:
    """The fake refuses an instance that is used on two loops: the user's own, the engine's and others."""
    written(bucket)
    assert bucket.cat_file(next(iter(BucketFileSystem.objects("b"))))  # on fsspec's own loop
    store = open_filesystem(BucketFileSystem(secret=SECRET, asynchronous=True), {})
    for _ in range(2):
        metas = asyncio.run(_listed(store, "b/t.lance/_versions/"))
        assert [meta.name.endswith(".manifest") for meta in metas] == [True]
    folder = DirFileSystem("b", bucket)
    assert lance_io.dataset("t.lance", filesystem=folder).count_rows() == 1000


async def _listed(store: Any, prefix: str) -> list[Any]:
    return [meta async for meta in store.list(prefix)]


class BlobFileSystem(BucketFileSystem):
    """Has the schemes and arguments of adlfs, which no test can have beside it: it is not among what tests install."""

    protocol = ("abfs", "az", "abfss")
    _pipe_file = BucketFileSystem._pipe_file  # its own, so that the service decides

    def __init__(self, account_name: str, account_key: str, **options: Any) -> None:
        super().__init__(account_name=account_name, account_key=account_key, **options)


@pytest.mark.parametrize(
    "make",
    [
        lambda: fsspec.filesystem("gs", token="anon", skip_instance_cache=True),
        lambda: BlobFileSystem("a", "YWJj", skip_instance_cache=True),
    ],
    ids=["gcsfs", "like adlfs"],
)
def test_twins_are_made_by_the_known_libraries(make: Callable[[], Any]) -> None:
    fs = make()
    store = open_filesystem(fs, {})
    assert store.capabilities.conditional_create and store.capabilities.create_unproven
    assert "YWJj" not in repr(store) + store.identity

    async def twin() -> Any:
        return twin_of(fs)

    made = asyncio.run(twin())
    assert made is not fs and made.asynchronous and not made.dircache.use_listings_cache


# -- cancellation, processes -------------------------------------------------------------------------------------------


async def test_a_cancelled_take_ends_its_requests(bucket: BucketFileSystem) -> None:
    await asyncio.to_thread(written, bucket)
    begun, ended = threading.Event(), threading.Event()

    async def stall(operation: str, path: str) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with lance_io.AsyncDataset.open("b/t.lance", filesystem=bucket) as ds:
        BucketFileSystem.hook = stall
        task = asyncio.create_task(ds.take([3]))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(ended.wait)
        assert ds._state.location.store.stats.in_flight == 0
        BucketFileSystem.hook = None
        assert (await ds.take([3])).num_rows == 1
        BucketFileSystem.hook = stall
        with pytest.raises(lance_io.errors.DeadlineExceeded):
            await ds.take([600, 4], timeout=0.01)


async def test_a_cancelled_write_of_a_blocking_filesystem_leaves_nothing(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Slow(type(fsspec.filesystem("file"))):
        def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
            begun.set()
            go_on.wait()
            super().pipe_file(path, value, mode, **options)

    store = open_filesystem(Slow(), {})
    task = asyncio.create_task(store.put(f"{tmp_path}/object", b"12345"))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()  # what a thread writes is waited for, and removed then
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["fsspec", "fsspec-folder", "pyarrow", "pyarrow-folder", "obstore"])
def test_a_dataset_travels_with_its_filesystem(kind: str, tmp_path: Path) -> None:
    fs, path = LOCAL[kind](tmp_path)
    ds = lance_io.write_dataset(ROWS, path, filesystem=fs)
    again = pickle.loads(pickle.dumps(ds))
    assert again.to_table() == ROWS
    assert again.take([3]) == ROWS.take([3])


def _in_child(work: Callable[[], bytes]) -> bytes:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, work())
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return told


@pytest.mark.parametrize("kind", ["bucket", "fsspec", "pyarrow", "obstore"])
def test_a_forked_child_reads_or_is_told(kind: str, tmp_path: Path, bucket: BucketFileSystem) -> None:
    fs, path = (bucket, "b/t.lance") if kind == "bucket" else LOCAL[kind](tmp_path)
    ds = written(fs, path)
    ds.take([1])

    def work() -> bytes:
        again = lance_io.dataset(path, filesystem=fs)
        return b"%d %d" % (ds.take([7])["id"][0].as_py(), again.count_rows())

    told = _in_child(work)
    if kind == "obstore":
        assert told.startswith(b"ForkedRuntimeError: ") and b"spawn" in told
    else:
        assert told == b"7 1000"
    assert ds.take([8])["id"].to_pylist() == [8]


# -- writers, with and without a promise -------------------------------------------------------------------------------


class Locks:
    """A commit lock for threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.versions: list[int] = []

    def __call__(self, version: int) -> threading.Lock:
        self.versions.append(version)
        return self.lock


def _append_beside(add: Callable[[int], Any], writers: int = 8, rounds: int = 3) -> None:
    with ThreadPoolExecutor(writers) as pool:
        for _ in range(rounds):
            list(pool.map(add, range(writers)))


@pytest.mark.parametrize("kind", ["bucket", "fsspec", "pyarrow", "obstore", "obstore-memory"])
def test_writers_beside_each_other_lose_nothing(kind: str, tmp_path: Path, bucket: BucketFileSystem) -> None:
    if kind == "obstore-memory":
        fs, path = obstore.store.MemoryStore(), "t.lance"
    else:
        fs, path = (bucket, "b/t.lance") if kind == "bucket" else LOCAL[kind](tmp_path)
    options = VOUCHED if kind == "bucket" else None
    written(fs, path, options)

    def add(writer: int) -> None:
        rows = ROWS.slice(writer, 1)
        lance_io.write_dataset(rows, path, mode="append", filesystem=fs, storage_options=options)

    _append_beside(add)
    ds = lance_io.dataset(path, filesystem=fs)
    assert (ds.version, ds.count_rows()) == (25, 1024)


def _unable(kind: str) -> tuple[Any, dict[str, str] | None]:
    if kind == "memory":
        return fsspec.filesystem("memory"), None
    if kind == "bucket":  # nobody vouches
        return BucketFileSystem(secret=SECRET), {}
    return BucketFileSystem(secret=SECRET, honours_create=False), VOUCHED  # it is tried, and does not hold


@pytest.mark.parametrize("kind", ["memory", "bucket", "bucket-that-overwrites"])
def test_without_a_promise_it_takes_a_lock(kind: str) -> None:
    fs, options = _unable(kind)
    with pytest.raises(UnsupportedError, match="commit_lock") as caught:
        lance_io.write_dataset(ROWS, "b/t.lance", filesystem=fs, storage_options=options)
    assert SECRET not in str(caught.value)
    store = open_filesystem(fs, options)
    assert asyncio.run(_listed(store, store.key_of("b/t.lance") + "/")) == []  # nothing stays behind
    locks = Locks()
    how: dict[str, Any] = {"filesystem": fs, "storage_options": options, "commit_lock": locks}
    lance_io.write_dataset(ROWS, "b/t.lance", **how)

    def add(writer: int) -> None:
        lance_io.write_dataset(ROWS.slice(writer, 1), "b/t.lance", mode="append", **how)

    _append_beside(add, rounds=2)
    ds = lance_io.dataset("b/t.lance", filesystem=fs)
    assert (ds.version, ds.count_rows()) == (17, 1016)
    assert set(locks.versions) >= set(range(1, 18))


@pytest.mark.parametrize("replaces", [True, False])
def test_a_filesystem_with_renames_shows_nothing_half_done(replaces: bool) -> None:
    memory: Any = type(fsspec.filesystem("memory"))
    seen: list[str] = []

    class Renaming(memory):
        protocol = "sftp" if replaces else "smb"
        cachable = False

        def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
            seen.append(path)
            super().pipe_file(path, value[: len(value) // 2])
            super().pipe_file(path, value)

        def mv(self, path1: str, path2: str, **options: Any) -> None:
            if not replaces and self.exists(path2):
                raise FileExistsError(path2)
            if type(self).fails in path2:
                raise OSError("the connection is lost")
            self.store[path2] = self.store.pop(path1)

        fails = "nothing"

    fs, locks = Renaming(), Locks()
    how: dict[str, Any] = {"filesystem": fs, "commit_lock": locks}
    lance_io.write_dataset(ROWS, "/b/t.lance", **how)
    with pytest.raises(UnsupportedError, match="commit_lock"):
        lance_io.dataset("/b/t.lance", filesystem=fs).tags.create("now", 1)
    ds = lance_io.dataset("/b/t.lance", **how)
    ds.tags.create("now", 1)
    with pytest.raises(ValueError, match="exists"):
        ds.tags.create("now", 1)
    lance_io.write_dataset(ROWS, "/b/t.lance", mode="append", **how)
    ds.tags.update("now", 2)
    assert lance_io.dataset("/b/t.lance", "now", filesystem=fs).count_rows() == 2000
    assert all(path.rpartition("/")[2].startswith(TEMPORARY_PREFIX) for path in seen)
    for part in ("/data/", "/_transactions/", "/_versions/"):
        Renaming.fails = part
        with pytest.raises(OSError, match=r"lost|may or may not"):
            lance_io.write_dataset(ROWS, "/b/t.lance", mode="append", **how)
        Renaming.fails = "nothing"
        assert lance_io.dataset("/b/t.lance", filesystem=fs).to_table().num_rows == 2000
    assert not [path for path in fs.store if TEMPORARY_PREFIX in path]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_write_leaves_the_old_version_or_the_new_one(when: str, bucket: BucketFileSystem) -> None:
    written(bucket)
    seen = 0
    for crash_at in range(1, 5):
        count = 0

        async def fail(operation: str, path: str, crash_at: int = crash_at) -> None:
            nonlocal count
            if operation in ("put", "create"):
                count += 1
                if count == crash_at:
                    raise ConnectionError(f"lost, as {SECRET} knows")

        before = opened(bucket).count_rows()
        setattr(BucketFileSystem, "hook" if when == "before" else "after", fail)
        try:
            opened(bucket).insert(ROWS.slice(0, 1))
        except LanceError as error:
            assert SECRET not in "".join(traceback.format_exception(error))
            assert not isinstance(error, CommitUnknownError)
            failed = True
        else:
            failed = False
        BucketFileSystem.hook = BucketFileSystem.after = None
        now = opened(bucket)
        assert now.count_rows() == now.to_table().num_rows == before + (not failed)
        seen += count >= crash_at
    assert seen >= 3  # data file, transaction, manifest


# -- what is refused, and what is never shown --------------------------------------------------------------------------


def test_no_credential_is_shown(bucket: BucketFileSystem) -> None:
    ds = written(bucket)
    store = ds._state.location.store
    shown = [repr(ds), repr(ds._state), repr(ds._state.location), repr(store), store.identity, str(ds.uri)]
    key = next(name for name in BucketFileSystem.objects("b") if name.endswith(".lance"))

    async def reads() -> None:
        with pytest.raises(StoreError) as caught:
            await store.get_range(key, 1 << 40, (1 << 40) + 1)
        shown.append("".join(traceback.format_exception(caught.value)))

        async def refuse(operation: str, path: str) -> None:
            raise RuntimeError(f"GET https://me:pw9999@host/x?X-Signature=99aa {SECRET}")

        BucketFileSystem.hook = refuse
        for work in (store.get(key), store.put(key, b""), store.put(key, b"", if_absent=True), store.delete([key])):
            with pytest.raises(StoreError, match="RuntimeError: GET https") as caught:
                await work
            shown.extend(["".join(traceback.format_exception(caught.value)), repr(pickle.dumps(caught.value))])

    asyncio.run(reads())
    for text in shown:
        assert SECRET not in text and "pw9999" not in text and "99aa" not in text


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, NotFound), (403, AccessDenied), (412, AlreadyExists), (503, OutcomeUnknown), (500, OutcomeUnknown)],
)
def test_the_status_of_an_answer_counts(status: int, kind: type[LanceError], bucket: BucketFileSystem) -> None:
    class ClientError(Exception):
        """As libraries of services have them."""

    async def refuse(operation: str, path: str) -> None:
        error = ClientError("the text says nothing")
        error.status_code = status  # type: ignore[attr-defined]
        raise error

    BucketFileSystem.hook = refuse
    store = open_filesystem(bucket, VOUCHED)
    with pytest.raises(kind):
        asyncio.run(store.put("b/object", b"", if_absent=True))
    if status >= 500:
        with pytest.raises(Throttled if status == 503 else Transient):
            asyncio.run(store.put("b/object", b""))


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), OSError(errno.EDQUOT, "used up")], ids=str)
def test_a_filesystem_without_room_is_not_asked_again(error: OSError, bucket: BucketFileSystem) -> None:
    asked = []

    async def refuse(operation: str, path: str) -> None:
        asked.append(operation)
        raise error

    BucketFileSystem.hook = refuse
    store = open_filesystem(bucket, VOUCHED)
    with pytest.raises(StoreFull) as caught:
        asyncio.run(store.put("b/object", b""))
    assert not caught.value.retryable and len(asked) == 1


def test_what_counts_as_a_secret() -> None:
    options = {"client_kwargs": {"aws_secret_access_key": "abcdefgh"}, "host": "example.org", "password": ["1234", "x"]}
    assert sorted(filesystem_calls.secret_texts(options)) == ["1234", "abcdefgh"]
    assert hide_secrets("a abcdefgh b", filesystem_calls.secret_texts(options)) == "a *** b"
    assert hide_secrets("http://u:p@h/k?sig=1 is gone") == "http://***@h/k?*** is gone"


def test_what_is_no_filesystem_for_tables(tmp_path: Path, bucket: BucketFileSystem) -> None:
    with pytest.raises(UsageError, match=r"builtins\.int"):
        lance_io.dataset("t.lance", filesystem=7)
    with pytest.raises(UsageError, match="cache"):
        lance_io.dataset("t.lance", filesystem=SimpleCacheFileSystem(fs=fsspec.filesystem("memory")))
    with pytest.raises(UsageError, match="aws_region"):
        lance_io.dataset("t.lance", filesystem=bucket, storage_options={"aws_region": "x"})
    with pytest.raises(UsageError, match="s3://"):
        lance_io.dataset("s3://b/t.lance", filesystem=bucket)
    with pytest.raises(UsageError, match="URL"):
        lance_io.dataset("s3://b/t.lance", filesystem=obstore.store.MemoryStore())
    with pytest.raises(UsageError, match="open dataset"):
        lance_io.write_dataset(ROWS, written(bucket), mode="append", filesystem=bucket)
    with pytest.raises(UsageError, match="only for fsspec filesystems"):
        lance_io.dataset("t.lance", filesystem=pafs.LocalFileSystem(), storage_options=VOUCHED)
    with pytest.raises(NotFound):
        resolve_uri(FilesystemUri("b/none", bucket)).store.stats.error("get")
        asyncio.run(open_filesystem(bucket, {}).head("b/none"))


# -- URLs that fsspec opens --------------------------------------------------------------------------------------------


@pytest.fixture
def guest() -> Iterator[None]:
    fsspec.register_implementation("guestfs", GuestFileSystem, clobber=True)
    yield
    _registry.pop("guestfs")


@pytest.mark.usefixtures("guest")
async def test_a_url_of_a_protocol_that_fsspec_knows() -> None:
    options = {"secret": SECRET, **VOUCHED}
    ds = await asyncio.to_thread(lance_io.write_dataset, ROWS, "guestfs://b/t.lance", storage_options=options)
    assert "b/t.lance/_versions" in str(GuestFileSystem.objects("b").keys())
    assert SECRET not in repr(ds) + ds._state.location.store.identity
    async with lance_io.AsyncDataset.open("guestfs://b/t.lance", storage_options=options) as again:
        assert await again.to_table() == ROWS
    assert pickle.loads(pickle.dumps(ds)).count_rows() == 1000
    with pytest.raises(UnsupportedError, match="commit_lock"):
        await lance_io.AsyncDataset.write(ROWS, "guestfs://b/t.lance", mode="append")


def test_a_table_in_an_archive(tmp_path: Path) -> None:
    lance.write_dataset(ROWS, str(tmp_path / "t.lance"))
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for path in sorted((tmp_path / "t.lance").rglob("*")):
            archive.write(path, path.relative_to(tmp_path))
    url = f"zip://t.lance::{tmp_path / 'x.zip'}"
    assert lance_io.dataset(url).to_table() == ROWS
    assert lance_io.dataset(url).take([5, 999]) == ROWS.take([5, 999])
    with zipfile.ZipFile(tmp_path / "y.zip", "w") as archive:
        archive.write(tmp_path / "x.zip", "other")
    with pytest.raises(ValueError, match=r"t\.lance"):
        lance_io.dataset(f"zip://t.lance::{tmp_path / 'y.zip'}")


def test_protocols_that_cannot_be_opened() -> None:
    with pytest.raises(UsageError, match="No object store provider found for scheme: 'nosuch'"):
        lance_io.dataset("nosuch://b/t.lance")
    with pytest.raises(UsageError, match="cache"):
        lance_io.dataset("simplecache://x::memory://t.lance")
    with pytest.raises(ModuleNotFoundError, match="hf://"):
        lance_io.dataset("hf://datasets/a/b/t.lance")


@pytest.mark.usefixtures("guest")
def test_a_manifest_cannot_have_credentials_sent_elsewhere(tmp_path: Path) -> None:
    base = lance.dataset(lance.write_dataset(ROWS, str(tmp_path / "t.lance")).uri).shallow_clone(
        str(tmp_path / "clone.lance"), 1
    )
    assert base.count_rows() == 1000
    ds = lance_io.dataset(str(tmp_path / "clone.lance"))
    paths = {n: replace(one, path="guestfs://evil/t.lance") for n, one in ds._state.manifest.base_paths.items()}
    state = replace(ds._state, manifest=replace(ds._state.manifest, base_paths=paths))
    with pytest.raises(UnsupportedError, match="base_store_params"):
        state.object_keys.base_folder(next(iter(paths.values())))
