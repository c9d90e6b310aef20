"""Tables on Azurite through adlfs: the service decides between writers, pylance reads and writes the same tables."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import subprocess
import sys
import threading
import traceback
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from adlfs import AzureBlobFileSystem  # type: ignore[import-untyped]
from azure.core.exceptions import ResourceNotFoundError
from azure.storage.blob import ContainerClient

import lance_io
from lance_io import AsyncDataset
from lance_io.errors import AccessDenied, NotFound, UnsupportedError
from lance_io.runtime import run
from lance_io.store.filesystem.fsspec_calls import FsspecCalls, _close, _detach_broken_finalizers, twin_of
from lance_io.store.filesystem.resolve import open_filesystem
from lance_io.testing.conformance import ODD_NAMES, Place, StoreConformance
from tests.listening import ANSWER_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from azure.core.credentials import AccessToken

    from tests.servers import AzureServer

pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # aiohttp, of blocks in memory

ROWS = pa.table({"id": range(1000), "text": [f"row {number}" for number in range(1000)]})
# adlfs reads a name as a URL: it moves text between `?` and `#` to the end.
NAMES = [*(name for name in ODD_NAMES if not ("?" in name and "#" in name)), "a=b&c?d", "d#e"]
CHECKOUT = Path(__file__).resolve().parents[2]
WRITERS = 8


def connection_to(azure: AzureServer, key: str | None = None) -> str:
    """The connection string of the account: adlfs reaches servers without TLS by no other argument."""
    return (
        f"DefaultEndpointsProtocol=http;AccountName={azure.account};AccountKey={key or azure.account_key};"
        f"BlobEndpoint={azure.endpoint}/{azure.account};"
    )


def filesystem_of(azure: AzureServer, kind: type[Any] = AzureBlobFileSystem, **more: Any) -> Any:
    """An instance that no other test has."""
    return kind(connection_string=connection_to(azure), skip_instance_cache=True, **more)


@pytest.fixture
def fs(azure: AzureServer) -> Any:
    """A filesystem of adlfs."""
    return filesystem_of(azure)


@pytest.fixture
def path(azure: AzureServer, s3_prefix: str) -> str:
    """The path of a new table."""
    return f"{azure.container}/{s3_prefix}/t.lance"


def peer(azure: AzureServer, path: str, version: int | None = None) -> Any:
    """The table, opened by pylance with its own client."""
    return lance.dataset(f"az://{path}", version, storage_options=azure.options())


# -- the same table ----------------------------------------------------------------------------------------------------


def test_pylance_reads_each_version_that_is_written_through_adlfs(azure: AzureServer, fs: Any, path: str) -> None:
    table = lance_io.write_dataset(ROWS, path, filesystem=fs)
    table.insert(ROWS)
    assert table.delete("id >= 500")["num_deleted_rows"] == 1000
    lance_io.write_dataset(ROWS.slice(7, 1), path, mode="append", filesystem=fs)
    table = lance_io.dataset(path, filesystem=fs)
    table.tags.create("shorter", 3)
    assert [version["version"] for version in table.versions()] == [1, 2, 3, 4]
    assert [version["version"] for version in peer(azure, path).versions()] == [1, 2, 3, 4]
    for version, num_rows in ((1, 1000), (2, 2000), (3, 1000), (4, 1001)):
        ours = lance_io.dataset(path, version, filesystem=fs).to_table()
        assert ours == peer(azure, path, version).to_table()
        assert ours.num_rows == num_rows
    theirs = peer(azure, path)
    assert table.take([0, 499, 500, 1000]) == theirs.take([0, 499, 500, 1000])
    wanted: dict[str, Any] = {"columns": ["text"], "filter": "id % 100 = 7 AND text != 'row 107'"}
    scanned = table.to_table(**wanted)
    assert scanned == theirs.to_table(**wanted)
    assert Counter(scanned["text"].to_pylist()) == {"row 7": 3, "row 207": 2, "row 307": 2, "row 407": 2}
    assert table.count_rows("id < 10") == theirs.count_rows("id < 10") == 21
    assert theirs.tags.list()["shorter"]["version"] == 3
    assert lance_io.dataset(path, "shorter", filesystem=fs).count_rows() == 1000


def test_tables_of_pylance_are_read_and_changed_through_adlfs(azure: AzureServer, fs: Any, path: str) -> None:
    options = azure.options()
    theirs = lance.write_dataset(ROWS, f"az://{path}", max_rows_per_file=300, storage_options=options)
    theirs.delete("id = 5 OR id >= 990")
    table = lance_io.dataset(path, filesystem=fs)
    kept = ROWS.filter(pc.field("id") != 5).slice(0, 989)
    assert table.to_table() == kept
    assert table.take([4, 5, 988, 5]) == kept.take([4, 5, 988, 5])
    assert table.to_table(filter="id > 3 AND id < 8")["id"].to_pylist() == [4, 6, 7]
    assert [len(fragment.deletion_file() or "") > 0 for fragment in table.get_fragments()] == [True, False, False, True]
    table.insert(ROWS.slice(5, 1))
    table.update({"text": "'new'"}, where="id = 5")
    theirs = peer(azure, path)
    assert theirs.version == table.version == 4
    assert theirs.to_table() == table.to_table()
    assert theirs.to_table(filter="id = 5").to_pylist() == [{"id": 5, "text": "new"}]


@pytest.mark.parametrize("scheme", ["", "az://", "abfs://", "abfss://"])
def test_a_table_has_a_path_or_a_url(scheme: str, azure: AzureServer, fs: Any, path: str) -> None:
    lance_io.write_dataset(ROWS, f"{scheme}{path}", filesystem=fs)
    assert lance_io.dataset(f"{scheme}{path}/", filesystem=fs).to_table() == peer(azure, path).to_table() == ROWS


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_coroutines_do_the_same(asynchronous: bool, azure: AzureServer, path: str) -> None:
    """However the instance was made, and on the loop that runs the test."""
    fs = filesystem_of(azure, asynchronous=asynchronous)
    _detach_broken_finalizers(fs)  # this one is the test's, and would fail when the tests end
    await AsyncDataset.write(ROWS, path, filesystem=fs)
    await AsyncDataset.write(ROWS, path, mode="append", filesystem=fs)
    async with AsyncDataset.open(path, filesystem=fs) as table:
        taken = await asyncio.gather(*(table.take([number, 1000 + number]) for number in range(20)))
        assert taken[7] == ROWS.take([7, 7])
        assert await table.to_table() == pa.concat_tables([ROWS, ROWS])
        assert (await table.to_table(filter="id = 3"))["text"].to_pylist() == ["row 3", "row 3"]
        assert (await table.delete("id >= 10"))["num_deleted_rows"] == 1980
        assert [version["version"] for version in await table.versions()] == [1, 2, 3]
        ours = await table.to_table()
    assert ours == (await asyncio.to_thread(peer, azure, path)).to_table()
    await AsyncDataset.drop(path, filesystem=fs)
    with pytest.raises(ValueError, match=r"t\.lance"):
        await AsyncDataset.open(path, filesystem=fs)


def test_a_large_file_goes_up_from_a_temporary_file(azure: AzureServer, fs: Any, path: str) -> None:
    rows = pa.table({"noise": pa.array([os.urandom(1 << 20) for _ in range(20)], pa.binary())})
    table = lance_io.write_dataset(rows, path, filesystem=fs)
    assert table.to_table() == peer(azure, path).to_table() == rows
    assert table.take([3, 19]) == rows.take([3, 19])


def test_no_listing_comes_from_the_cache_of_the_instance(fs: Any, path: str) -> None:
    lance_io.write_dataset(ROWS, path, filesystem=fs)
    before = fs.ls(f"{path}/_versions")  # which adlfs keeps
    lance_io.dataset(path, filesystem=fs).insert(ROWS)
    assert lance_io.dataset(path, filesystem=fs).version == 2
    assert fs.ls(f"{path}/_versions") == before
    assert len(filesystem_of_same(fs).ls(f"{path}/_versions")) == 2


def filesystem_of_same(fs: Any) -> Any:
    """Another instance with the same arguments."""
    return type(fs)(**fs.storage_options, skip_instance_cache=True)


# -- writers -----------------------------------------------------------------------------------------------------------


class MeetingFileSystem(AzureBlobFileSystem):
    """Two creators of the first manifest wait for each other, so that both send before either has an answer.

    outcomes  of all creations of manifests: the name, and whether the file was created
    """

    barrier: ClassVar[threading.Barrier]
    first: ClassVar[str | None]
    outcomes: ClassVar[list[tuple[str, bool]]]

    @classmethod
    def begin(cls) -> None:
        """The next manifest is the first one."""
        cls.barrier, cls.first, cls.outcomes = threading.Barrier(2), None, []

    async def _pipe_file(self, path: str, value: bytes, **how: Any) -> Any:
        if how.get("mode") != "create" or not path.endswith(".manifest"):
            return await super()._pipe_file(path, value, **how)
        kind = type(self)
        kind.first = kind.first or path
        if path == kind.first:
            await asyncio.to_thread(kind.barrier.wait, ANSWER_S)
        try:
            created = await super()._pipe_file(path, value, **how)
        except FileExistsError:
            kind.outcomes.append((path, False))
            raise
        kind.outcomes.append((path, True))
        return created


def test_one_of_two_commits_that_meet_gets_the_version_and_the_other_one_the_next(
    azure: AzureServer, fs: Any, path: str
) -> None:
    lance_io.write_dataset(ROWS, path, filesystem=fs)
    MeetingFileSystem.begin()
    changes: list[Callable[[Any], Any]] = [
        lambda table: table.insert(ROWS.slice(0, 5)),
        lambda table: table.delete("id >= 900"),
    ]
    tables = [lance_io.dataset(path, filesystem=filesystem_of(azure, MeetingFileSystem)) for _ in changes]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda change, table: change(table), changes, tables))
    names = [name for name, _ in MeetingFileSystem.outcomes]
    assert len(names) == 3 and len(set(names)) == 2
    created = [name for name, is_created in MeetingFileSystem.outcomes if is_created]
    assert sorted(created) == sorted(set(names))  # each version once
    theirs = peer(azure, path)
    assert theirs.version == 3
    assert sorted(theirs.to_table()["id"].to_pylist()) == sorted([*range(900), *range(5)])
    assert lance_io.dataset(path, filesystem=fs).to_table() == theirs.to_table()


def test_one_of_two_creations_that_meet_makes_the_table(azure: AzureServer, fs: Any, path: str) -> None:
    MeetingFileSystem.begin()

    def create(first: int) -> BaseException | None:
        try:
            lance_io.write_dataset(ROWS.slice(first, 10), path, filesystem=filesystem_of(azure, MeetingFileSystem))
        except OSError as error:
            return error
        return None

    with ThreadPoolExecutor(2) as pool:
        errors = list(pool.map(create, (0, 500)))
    assert sorted(is_created for _, is_created in MeetingFileSystem.outcomes) == [False, True]
    (winner,) = [first for first, error in zip((0, 500), errors, strict=True) if error is None]
    theirs = peer(azure, path)
    assert (theirs.version, theirs.to_table()) == (1, ROWS.slice(winner, 10))
    (refusal,) = [error for error in errors if error is not None]
    assert "exists" in str(refusal)


def test_writers_with_three_clients_lose_nothing(azure: AzureServer, fs: Any, path: str) -> None:
    lance_io.write_dataset(ROWS, path, filesystem=fs)
    uri, options = f"az://{path}", azure.options()

    def add(writer: int) -> None:
        rows = ROWS.slice(writer, 1)
        if writer % 4 == 0:
            lance.write_dataset(rows, uri, mode="append", storage_options=options)
        elif writer % 4 == 1:
            lance_io.write_dataset(rows, uri, mode="append", storage_options=options)
        else:
            lance_io.write_dataset(rows, path, mode="append", filesystem=fs)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(add, range(WRITERS)))
    table = lance_io.dataset(path, filesystem=fs)
    assert table.version == 1 + WRITERS
    ids = Counter(table.to_table()["id"].to_pylist())
    assert ids == Counter([*range(1000), *range(WRITERS)])
    assert table.to_table() == peer(azure, path).to_table()


class RepeatingFileSystem(AzureBlobFileSystem):
    """Sends each creation of a manifest twice, as the client below adlfs does after a lost answer."""

    repeated: ClassVar[list[str]] = []

    async def _pipe_file(self, path: str, value: bytes, **how: Any) -> Any:
        if how.get("mode") == "create" and path.endswith(".manifest"):
            await super()._pipe_file(path, value, **how)
            self.repeated.append(path)
        return await super()._pipe_file(path, value, **how)


def test_a_commit_whose_first_answer_was_lost_is_recognised(azure: AzureServer, path: str) -> None:
    fs = filesystem_of(azure, RepeatingFileSystem)
    lance_io.write_dataset(ROWS, path, filesystem=fs)
    lance_io.write_dataset(ROWS.slice(0, 5), path, mode="append", filesystem=fs)
    assert len([name for name in RepeatingFileSystem.repeated if name.startswith(path)]) == 2
    theirs = peer(azure, path)
    assert (theirs.version, theirs.count_rows()) == (2, 1005)


class OverwritingFileSystem(AzureBlobFileSystem):
    """Ignores the condition of a creation, as an emulator may."""

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **how: Any) -> Any:
        return await super()._pipe_file(path, value, **how)


def test_a_service_that_ignores_the_condition_needs_a_lock(azure: AzureServer, path: str) -> None:
    """The trial finds out before the first commit, and leaves no file behind."""
    fs = filesystem_of(azure, OverwritingFileSystem)
    with pytest.raises(UnsupportedError, match="commit_lock") as caught:
        lance_io.write_dataset(ROWS, path, filesystem=fs)
    assert azure.account_key not in str(caught.value)
    assert filesystem_of(azure).find(path) == []
    lock, versions = threading.Lock(), []

    def commit_lock(version: int) -> threading.Lock:
        versions.append(version)
        return lock

    how: dict[str, Any] = {"filesystem": fs, "commit_lock": commit_lock}
    lance_io.write_dataset(ROWS, path, **how)
    with ThreadPoolExecutor(WRITERS) as pool:
        list(
            pool.map(
                lambda writer: lance_io.write_dataset(ROWS.slice(writer, 1), path, mode="append", **how), range(WRITERS)
            )
        )
    theirs = peer(azure, path)
    assert (theirs.version, theirs.count_rows()) == (1 + WRITERS, 1000 + WRITERS)
    assert set(versions) >= set(range(1, 2 + WRITERS))


# -- processes, sessions, secrets --------------------------------------------------------------------------------------


def test_a_table_travels_with_its_filesystem(fs: Any, path: str) -> None:
    table = lance_io.write_dataset(ROWS, path, filesystem=fs)
    again = pickle.loads(pickle.dumps(table))
    assert again.to_table() == ROWS
    assert again.insert(ROWS) is None and again.count_rows() == 2000


def test_a_forked_child_reads_with_clients_of_its_own(fs: Any, path: str) -> None:
    table = lance_io.write_dataset(ROWS, path, filesystem=fs)
    assert table.take([1])["id"].to_pylist() == [1]
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            again = lance_io.dataset(path, filesystem=fs)
            os.write(writing, b"%d %d" % (table.take([7])["id"][0].as_py(), again.count_rows()))
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    assert answer == b"7 1000"
    assert table.take([8])["id"].to_pylist() == [8]


class Credential:
    """A token credential that counts how often it is closed."""

    def __init__(self) -> None:
        self.num_closed = 0

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """No request asks for it."""
        raise AssertionError(scopes)

    async def close(self) -> None:
        """Count."""
        self.num_closed += 1


async def test_a_twin_is_collected_and_its_own_credential_closed() -> None:
    """The finalizer of adlfs would keep it, and fail when the process ends; the user's credential stays open."""
    given, own = Credential(), Credential()
    by_user = twin_of(AzureBlobFileSystem("account", credential=given, skip_instance_cache=True))
    by_adlfs = twin_of(AzureBlobFileSystem("account", anon=True, skip_instance_cache=True))
    by_adlfs.credential = own
    for twin in (by_user, by_adlfs):
        await _close(twin)
    assert (given.num_closed, own.num_closed) == (0, 1)
    references = [weakref.ref(by_user), weakref.ref(by_adlfs)]
    del by_user, by_adlfs, twin
    gc.collect()
    assert [reference() for reference in references] == [None, None]


PROGRAM = """
import sys
import adlfs, pyarrow
import lance_io
connection, path = sys.stdin.read().split()
fs = adlfs.AzureBlobFileSystem(connection_string=connection)
rows = pyarrow.table({"a": range(10)})
table = lance_io.write_dataset(rows, path, filesystem=fs)
assert table.take([3])["a"].to_pylist() == [3]
try:
    lance_io.dataset(path + "/no-such-table", filesystem=fs)
except ValueError:
    print("done")
"""


def test_a_program_that_ends_leaves_no_session_open(azure: AzureServer, path: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", PROGRAM],
        input=f"{connection_to(azure)} {path}",
        capture_output=True,
        text=True,
        check=False,
        cwd=CHECKOUT,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


def test_refusals_show_no_credentials(azure: AzureServer, path: str) -> None:
    key = "d3Jvbmcga2V5IG9mIGEgdGVzdA=="
    fs = AzureBlobFileSystem(connection_string=connection_to(azure, key), skip_instance_cache=True)
    store = open_filesystem(fs, {})
    shown = [repr(store), store.identity]
    for work in (store.get(path), store.put(path, b"1"), store.put(path, b"1", if_absent=True), store.head(path)):
        with pytest.raises(AccessDenied) as caught:
            run(work)
        shown.append("".join(traceback.format_exception(caught.value)))
    with pytest.raises(AccessDenied) as opening:
        lance_io.dataset(path, filesystem=fs)
    shown.append("".join(traceback.format_exception(opening.value)))
    assert [text for text in shown if key in text] == []
    assert isinstance(store.calls, FsspecCalls)
    assert connection_to(azure, key) in store.calls.secrets  # so no message could show it


def test_a_table_that_does_not_exist(azure: AzureServer, fs: Any, path: str) -> None:
    for missing in (path, "no-such-container/t.lance"):
        with pytest.raises((ValueError, NotFound)) as caught:
            lance_io.dataset(missing, filesystem=fs)
        assert azure.account_key not in str(caught.value)


# -- the store ---------------------------------------------------------------------------------------------------------


class TestAdlfs(StoreConformance):
    """The promises of all stores, see `docs/conformance.md`."""

    @pytest.fixture
    def container(self, azure: AzureServer) -> Iterator[ContainerClient]:
        """The back door."""
        with ContainerClient.from_connection_string(connection_to(azure), azure.container) as client:
            yield client

    @pytest.fixture
    async def place(self, azure: AzureServer, container: ContainerClient, s3_prefix: str) -> AsyncIterator[Place]:
        """A folder in the container of the tests."""

        def name_of(key: str) -> str:
            return key.removeprefix(f"{azure.container}/")

        def write(key: str, data: bytes) -> None:
            container.upload_blob(name_of(key), data, overwrite=True)

        def read(key: str) -> bytes | None:
            try:
                return container.download_blob(name_of(key)).readall()
            except ResourceNotFoundError:
                return None

        store = open_filesystem(filesystem_of(azure), {})
        yield Place(store, f"{azure.container}/{s3_prefix}", write, read)
        await store.aclose()

    @pytest.mark.parametrize("name", NAMES)
    async def test_odd_names(self, folder: Place, name: str) -> None:
        await super().test_odd_names(folder, name)

    @pytest.mark.parametrize("name", ["copy", *NAMES])
    async def test_copy(self, folder: Place, name: str) -> None:
        await super().test_copy(folder, name)


del StoreConformance  # tests to inherit, not to run
