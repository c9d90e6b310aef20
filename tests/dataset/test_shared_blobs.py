"""Blob files that threads and coroutines share: each read gives the next bytes, in whatever order the answers come."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pytest
from lance.blob import blob_array, blob_field

import lance_io
from lance_io.reads.version.session import Session
from lance_io.store.failures import StoreFailure
from lance_io.store.memory import MemoryStore
from lance_io.store.profile import CLOUD
from lance_io.store.url import Location
from lance_io.testing.wrap import WrappedStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from lance_io.testing.wrap import Request

DATA: Final = b"".join(f"line {i:07}\n".encode() for i in range(10_000))
LARGE: Final = 1000  # no read of which is buffered where the buffer is smaller
SECONDS_MAX: Final = 60  # only a hang takes this long


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("blobs") / "t")
    rows = pa.table({"b": blob_array([DATA])}, schema=pa.schema([blob_field("b")]))
    lance.write_dataset(rows, path, data_storage_version="2.2")
    return path


class Desk(WrappedStore):
    """Requests for a blob wait here until a test answers them, by number; without `open` they wait for nobody."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.is_open = True
        self._arrived = threading.Condition()
        self._answers: list[Future[None]] = []

    async def request(self, request: Request, send: Callable[[], Awaitable[Any]]) -> Any:
        if not self.is_open and "/data/" in request.key:
            answer: Future[None] = Future()
            with self._arrived:
                self._answers.append(answer)
                self._arrived.notify_all()
            await asyncio.wrap_future(answer)
        return await send()

    def wait_for(self, number: int) -> None:
        """Until so many requests have come."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self._answers) >= number, SECONDS_MAX)

    @property
    def num_requests(self) -> int:
        return len(self._answers)

    def answer(self, number: int, error: Exception | None = None) -> None:
        """Let a request go on, or fail."""
        future = self._answers[number]
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def close(self) -> None:
        """Nobody waits any more."""
        self.is_open = True
        for future in self._answers:
            if not future.done():
                future.set_result(None)


@pytest.fixture
def desk(uri: str) -> Desk:
    store = MemoryStore(profile=CLOUD)
    for folder, _, names in os.walk(uri):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                store.put_sync("t/" + os.path.relpath(path, uri), file.read())
    return Desk(store)


def session_of(store: Any) -> Session:
    session = Session()
    session.locate = lambda uri, options: Location(store, "t", "memory://t")
    return session


def blob_on(desk: Desk, buffer_size: int) -> Any:
    (file,) = lance_io.dataset("t", session=session_of(desk)).take_blobs("b", indices=[0], buffer_size=buffer_size)
    desk.is_open = False
    return file


@pytest.fixture
def threads(desk: Desk) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool
        desk.close()


def failure() -> StoreFailure:
    return StoreFailure("the disk is gone", path="t", operation="get")


def begun(desk: Desk, threads: ThreadPoolExecutor, file: Any, number: int, size: int = LARGE) -> list[Future[bytes]]:
    """So many large reads that wait for their bytes, in this order."""
    reads = []
    for count in range(1, number + 1):
        reads.append(threads.submit(file.read, size))
        desk.wait_for(count)
    return reads


# -- threads -----------------------------------------------------------------------------------------------------------


def test_threads_read_one_piece_after_the_other(desk: Desk, threads: ThreadPoolExecutor) -> None:
    """Large reads go out together; the answers come in the reverse order."""
    file = blob_on(desk, buffer_size=100)
    reads = begun(desk, threads, file, 3)
    for number in (2, 1, 0):
        desk.answer(number)
        start = number * LARGE
        assert reads[number].result(SECONDS_MAX) == DATA[start : start + LARGE]
    assert file.tell() == 3 * LARGE


def test_small_reads_share_what_is_read_ahead(desk: Desk, threads: ThreadPoolExecutor) -> None:
    file = blob_on(desk, buffer_size=4096)
    reads = [threads.submit(file.read, 100) for _ in range(4)]
    desk.wait_for(1)
    desk.answer(0)
    assert {read.result(SECONDS_MAX) for read in reads} == {DATA[at : at + 100] for at in range(0, 400, 100)}
    assert (desk.num_requests, file.tell()) == (1, 400)


def test_all_that_is_left_is_given_once(desk: Desk, threads: ThreadPoolExecutor) -> None:
    file = blob_on(desk, buffer_size=100)
    (rest,) = begun(desk, threads, file, 1, -1)
    assert (file.read(), file.read(5), file.readinto(bytearray(5)), file.tell()) == (b"", b"", 0, len(DATA))
    desk.answer(0)
    assert rest.result(SECONDS_MAX) == DATA


@pytest.mark.parametrize("buffer_size", [0, 100, 4096])
def test_a_read_that_fails_leaves_the_position(desk: Desk, threads: ThreadPoolExecutor, buffer_size: int) -> None:
    file = blob_on(desk, buffer_size)
    file.seek(300)
    (read,) = begun(desk, threads, file, 1, 2000)
    desk.answer(0, failure())
    with pytest.raises(StoreFailure, match="the disk is gone") as caught:
        read.result(SECONDS_MAX)
    assert not hasattr(caught.value, "__notes__")
    desk.is_open = True
    assert (file.tell(), file.read(2000)) == (300, DATA[300:2300])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_reads_that_fail_say_what_is_missing(desk: Desk, threads: ThreadPoolExecutor, order: tuple[int, int]) -> None:
    """The last of them goes back; one before it cannot, unless that one has."""
    file = blob_on(desk, buffer_size=100)
    reads = begun(desk, threads, file, 2)
    notes = []
    for number in order:
        desk.answer(number, failure())
        error = reads[number].exception(SECONDS_MAX)
        notes.append([*getattr(error, "__notes__", [])])
    if order == (1, 0):
        assert (notes, file.tell()) == ([[], []], 0)
        return
    ((note,), none) = notes
    assert "bytes 0 to 1000 of the blob were not read" in note and "read_range(0, 1000)" in note
    assert (none, file.tell()) == ([], LARGE)


@pytest.mark.parametrize("move", [lambda file: file.seek(5), lambda file: file.seek(-LARGE + 5, io.SEEK_CUR)])
def test_a_read_that_fails_leaves_a_seek(desk: Desk, threads: ThreadPoolExecutor, move: Any) -> None:
    file = blob_on(desk, buffer_size=100)
    (read,) = begun(desk, threads, file, 1)
    assert move(file) == 5
    desk.answer(0, failure())
    assert "read_range(0, 1000)" in read.exception(SECONDS_MAX).__notes__[0]
    assert file.tell() == 5


def test_a_line_belongs_to_one_thread(desk: Desk, threads: ThreadPoolExecutor) -> None:
    """A line is read in several requests here, while another thread wants one."""
    file = blob_on(desk, buffer_size=8)
    first = threads.submit(file.readline)
    desk.wait_for(1)
    second = threads.submit(file.readline)
    desk.is_open = True
    desk.answer(0)
    assert [first.result(SECONDS_MAX), second.result(SECONDS_MAX)] == DATA.splitlines(keepends=True)[:2]


def test_a_line_that_fails_in_its_middle_is_read_again(desk: Desk, threads: ThreadPoolExecutor) -> None:
    file = blob_on(desk, buffer_size=8)
    line = threads.submit(file.readline)
    desk.wait_for(1)
    desk.answer(0)
    desk.wait_for(2)
    desk.answer(1, failure())
    assert isinstance(line.exception(SECONDS_MAX), StoreFailure)
    desk.is_open = True
    assert (file.tell(), file.readline()) == (0, DATA.splitlines(keepends=True)[0])


def test_a_buffer_that_cannot_be_filled_costs_no_bytes(uri: str) -> None:
    for library in (lance, lance_io):
        file = library.dataset(uri).take_blobs("b", indices=[0])[0]
        with pytest.raises(TypeError):
            file.readinto(b"0123456789")
        assert file.read(4) == b"line"


@pytest.mark.parametrize("buffer_size", [100, 1 << 19])
@pytest.mark.parametrize("way", ["read", "readinto", "line"])
def test_each_piece_is_given_once_as_in_pylance(uri: str, way: str, buffer_size: int) -> None:
    """The same of many threads at once, on local disk."""

    def piece(file: Any) -> bytes:
        if way == "readinto":
            buffer = bytearray(13)
            return bytes(buffer[: file.readinto(buffer)])
        return bytes(file.readline() if way == "line" else file.read(13))

    pieces = [DATA[at : at + 13] for at in range(0, len(DATA), 13)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for library in (lance, lance_io) if way == "read" else (lance_io,):
            file = library.dataset(uri).take_blobs("b", indices=[0], buffer_size=buffer_size)[0]
            with ThreadPoolExecutor(4) as pool:
                found = [*pool.map(lambda _, file=file: piece(file), range(1000))]
            assert sorted(found) == pieces[:1000]
            assert file.tell() == 13_000
    finally:
        sys.setswitchinterval(before)


def test_a_child_reads_on_while_a_thread_of_its_parent_reads_ahead(uri: str) -> None:
    """The thread holds the lock of the file at the fork; the child has none such."""
    file = lance_io.dataset(uri).take_blobs("b", indices=[0])[0]
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with file._locked():
            held.set()
            go_on.wait(SECONDS_MAX)

    holding = threading.Thread(target=hold)
    holding.start()
    try:
        assert held.wait(SECONDS_MAX)
        child = os.fork()
        if not child:
            os._exit(0 if file.read(4) == b"line" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        go_on.set()
        holding.join()


# -- coroutines --------------------------------------------------------------------------------------------------------


async def test_gathered_reads_give_one_piece_after_the_other(uri: str) -> None:
    async with lance_io.AsyncDataset.open(uri) as table, table.take_blob("b", 0) as file:
        pieces = await asyncio.gather(*(file.read(LARGE) for _ in range(200)))
        assert pieces == [DATA[at : at + LARGE] for at in range(0, 200 * LARGE, LARGE)]
        assert file.tell() == len(DATA)


async def awaited(desk: Desk) -> Any:
    table = await lance_io.AsyncDataset.open("t", session=session_of(desk))
    (file,) = await table.take_blobs("b", indices=[0])
    desk.is_open = False
    return file


async def test_answers_may_come_in_any_order(desk: Desk) -> None:
    file = await awaited(desk)
    reads = []
    for count in range(1, 4):  # each by itself: reads of neighbours that begin together are one request
        reads.append(asyncio.ensure_future(file.read(LARGE)))
        await asyncio.to_thread(desk.wait_for, count)
    for number in (2, 0, 1):
        desk.answer(number)
    assert await asyncio.gather(*reads) == [DATA[at : at + LARGE] for at in range(0, 3 * LARGE, LARGE)]


async def test_a_read_that_is_cancelled_gives_its_bytes_back(desk: Desk) -> None:
    file = await awaited(desk)
    read = asyncio.ensure_future(file.read(LARGE))
    await asyncio.to_thread(desk.wait_for, 1)
    assert file.tell() == LARGE
    read.cancel()
    await asyncio.wait({read})
    desk.is_open = True
    assert (read.cancelled(), file.tell(), await file.read(LARGE)) == (True, 0, DATA[:LARGE])


async def test_a_cancelled_read_leaves_those_behind_it(desk: Desk) -> None:
    file = await awaited(desk)
    reads = []
    for count in range(1, 3):
        reads.append(asyncio.ensure_future(file.read(LARGE)))
        await asyncio.to_thread(desk.wait_for, count)
    reads[0].cancel()
    desk.answer(1)
    assert await reads[1] == DATA[LARGE : 2 * LARGE]
    await asyncio.wait(reads)
    assert (reads[0].cancelled(), file.tell()) == (True, 2 * LARGE)
