"""Uploads: parts and their order, bounded memory, failures and cancellation at every point, what is flushed when."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import threading
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_io.errors import AccessDenied, AlreadyExists, StoreError, UsageError
from lance_io.limits import MIB
from lance_io.store.failures import OutcomeUnknown, Transient
from lance_io.store.local import atomic_writes
from lance_io.store.local.disk import LocalStore
from lance_io.store.memory import MemoryStore
from lance_io.store.upload import PART_BYTES, PARTS_MAX, PartUpload, part_bytes_of
from lance_io.store.url import resolve_uri
from lance_io.testing.faults import Fault, FaultyStore
from lance_io.testing.latency import run_virtual
from lance_io.testing.record import RecordingStore
from lance_io.testing.wrap import Request, WrappedStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from lance_io.store.api import Durability

# -- parts ------------------------------------------------------------------------------------------------------------


def test_parts_are_equal_and_grow_late() -> None:
    sizes = [part_bytes_of(number, None, equal=False) for number in range(PARTS_MAX)]
    assert set(sizes[:5000]) == {16 * MIB}
    assert sizes == sorted(sizes)
    assert sum(sizes) > 1 << 40
    assert {part_bytes_of(number, None, equal=True) for number in range(PARTS_MAX)} == {16 * MIB}


@given(st.integers(0, 5 << 40), st.booleans())
def test_a_hint_makes_room(hint: int, equal: bool) -> None:
    size = part_bytes_of(0, hint, equal=equal)
    assert size * PARTS_MAX >= hint and size % MIB == 0 and size >= PART_BYTES
    assert size == PART_BYTES or size * PARTS_MAX < 2 * hint + PARTS_MAX * MIB


@given(st.lists(st.integers(0, 60)), st.integers(1, 20), st.integers(1, 4), st.integers(0, 9))
def test_any_cut_gives_the_same_object(sizes: list[int], part_bytes: int, in_flight: int, seed: int) -> None:
    """Parts that arrive in any order, at most so many at once."""
    generator, under_way, peak = random.Random(seed), 0, 0

    class Shuffling(WrappedStore):
        async def request(self, request: Request, send: Callable[[], Awaitable[Any]]) -> Any:
            nonlocal under_way, peak
            under_way += 1
            peak = max(peak, under_way)
            await asyncio.sleep(generator.random())
            under_way -= 1
            return await send()

    inner = MemoryStore()
    pieces = [generator.randbytes(size) for size in sizes]

    async def write() -> None:
        upload = PartUpload(Shuffling(inner), "x", part_bytes=part_bytes, parts_in_flight=in_flight)
        for piece in pieces:
            await upload.write([piece[:7], piece[7:]])
        await upload.close()

    run_virtual(write)
    assert inner.get_sync("x") == b"".join(pieces)
    assert peak <= in_flight


async def test_more_parts_than_a_store_takes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lance_io.store.upload.PARTS_MAX", 3)
    store = MemoryStore()
    upload = PartUpload(store, "x", part_bytes=2)
    await upload.write([bytes(8)])
    with pytest.raises(UsageError, match="content_length_hint"):
        await upload.write([bytes(1)])
    assert store.list_sync("") == []


async def test_memory_is_nine_parts_whatever_the_size() -> None:
    class Slow(WrappedStore):
        """Takes parts and forgets them, one turn of the loop late."""

        async def put_multipart(self, key: str, **_: Any) -> Any:
            return self

        async def write_part(self, number: int, offset_bytes: int, data: bytes) -> None:
            await asyncio.sleep(0.001)

        async def complete(self) -> None:
            return None

        async def abort(self) -> None:
            return None

    part_bytes = 1 << 18
    upload = PartUpload(Slow(MemoryStore()), "x", part_bytes=part_bytes)
    piece = bytes(100_000)
    tracemalloc.start()
    try:
        for _ in range(300):
            await upload.write([piece])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    await upload.close()
    assert 8 * part_bytes < peak < 10 * part_bytes


# -- failures ---------------------------------------------------------------------------------------------------------


def _writes_of(upload: PartUpload) -> Any:
    async def write() -> None:
        async with upload:
            for _ in range(5):
                await upload.write([bytes(10)])
            await upload.close()

    return write()


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST_ANSWER])
@pytest.mark.parametrize("call", range(7))  # start, five parts, end
async def test_a_failure_at_any_point_removes_all(call: int, fault: Fault) -> None:
    inner = MemoryStore()
    recording = RecordingStore(inner)
    with pytest.raises(Transient):
        await _writes_of(PartUpload(FaultyStore(recording, {call: fault}), "x", part_bytes=10, parts_in_flight=2))
    applied = fault is Fault.LOST_ANSWER
    assert [meta.key for meta in inner.list_sync("")] == (["x"] if applied and call == 6 else [])
    aborted = recording.log.count("delete x")
    assert aborted == (0 if call == 0 else 1)


@pytest.mark.parametrize("seconds", [0.5, 1.5, 2.5, 5.5])
@pytest.mark.parametrize("times", [1, 3])
def test_cancelling_at_any_point_removes_all(seconds: float, times: int) -> None:
    from lance_io.testing.latency import LatencyStore

    inner = MemoryStore()
    recording = RecordingStore(inner)

    async def run() -> None:
        writing = asyncio.create_task(
            _writes_of(PartUpload(LatencyStore(recording), "x", part_bytes=10, parts_in_flight=1))
        )
        await asyncio.sleep(seconds)
        for _ in range(times):  # cancelling again does not cancel the removal
            writing.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert recording.log[-1] == "delete x"
        assert inner.list_sync("") == []
        await asyncio.sleep(5)

    run_virtual(run)
    assert recording.log[-1] == "delete x"
    assert inner.list_sync("") == []


async def test_an_abort_that_fails_is_told_and_hides_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(WrappedStore):
        async def request(self, request: Request, send: Callable[[], Awaitable[Any]]) -> Any:
            if request.operation == "delete":
                raise AccessDenied("no deletes here", path=request.key)
            if request.num_bytes == 10:
                raise StoreError("no parts here", path=request.key)
            return await send()

    upload = PartUpload(Refusing(MemoryStore()), "x", part_bytes=10)
    with pytest.raises(StoreError, match="no parts here") as caught:
        await _writes_of(upload)
    assert "no deletes here" in caught.value.__notes__[0]
    assert "no deletes here" in caplog.text


# -- local disk: all or nothing ---------------------------------------------------------------------------------------


def _fail_from_write(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The n-th write call finds the disk full, having written half."""
    real, calls = os.pwritev, iter(range(1000))

    def pwritev(fd: int, views: list[memoryview], offset: int) -> int:
        if next(calls) < number:
            return real(fd, views[:1], offset)  # short writes are right answers
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("lance_io.store.local.atomic_writes.os.pwritev", pwritev)


@pytest.mark.parametrize("number", [0, 1, 5])
async def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    store = LocalStore()
    _fail_from_write(monkeypatch, number)
    with store.open_upload_sync(f"{tmp_path}/a") as upload, pytest.raises(StoreError, match="No space left"):
        for _ in range(9):
            upload.write([b"12", b"", b"345"])
    monkeypatch.undo()
    _fail_from_write(monkeypatch, number)
    with pytest.raises(StoreError, match="No space left"):
        await _writes_of(PartUpload(store, f"{tmp_path}/a", part_bytes=7))
    assert os.listdir(tmp_path) == []
    await store.aclose()


@pytest.mark.parametrize("times", [1, 3])
async def test_a_cancelled_write_ends_before_its_file_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """A thread that still writes must never find its descriptor closed, or worse, taken by another file."""
    real, working, go_on, order = os.pwritev, threading.Event(), threading.Event(), []

    def pwritev(fd: int, views: list[memoryview], offset: int) -> int:
        working.set()
        assert go_on.wait(60)
        order.append(os.path.exists(f"/proc/self/fd/{fd}"))
        return real(fd, views, offset)

    monkeypatch.setattr("lance_io.store.local.atomic_writes.os.pwritev", pwritev)
    store = LocalStore()
    for upload in (
        await store.open_upload(f"{tmp_path}/a"),
        PartUpload(store, f"{tmp_path}/b", part_bytes=5, parts_in_flight=1),
    ):
        working.clear()
        go_on.clear()
        writing = asyncio.create_task(upload.write([b"12345"] * 3))
        await asyncio.to_thread(working.wait, 60)
        for _ in range(times):
            writing.cancel()
            await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert os.listdir(tmp_path) == []
        await upload.abort()
    assert os.listdir(tmp_path) == []
    assert all(order) and len(order) >= 2
    await store.aclose()


async def test_an_upload_that_is_cancelled_while_it_opens_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, opened, go_on = os.open, threading.Event(), threading.Event()

    def slow(path: str, *arguments: Any) -> int:
        fd = real(path, *arguments)
        opened.set()
        assert go_on.wait(60)
        return fd

    store = LocalStore(durability="none")
    for open_it in (store.open_upload, store.put_multipart):
        opened.clear()
        go_on.clear()
        with monkeypatch.context() as patched:
            patched.setattr("lance_io.store.local.atomic_writes.os.open", slow)
            opening = asyncio.create_task(open_it(f"{tmp_path}/a"))
            await asyncio.to_thread(opened.wait, 60)
            opening.cancel()
            await asyncio.sleep(0)
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await opening
        assert os.listdir(tmp_path) == []
    await store.aclose()


def test_short_writes_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev

    def pwritev(fd: int, views: list[memoryview], offset: int) -> int:
        return real(fd, [b"".join(views)[: 1 + offset % 7]], offset)

    monkeypatch.setattr("lance_io.store.local.atomic_writes.os.pwritev", pwritev)
    content = random.Random(1).randbytes(500)
    LocalStore().put_sync(f"{tmp_path}/a", content)
    with LocalStore().open_upload_sync(f"{tmp_path}/b") as upload:
        upload.write([content[:100], b"", content[100:103], content[103:]])
        upload.close()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == content


# -- local disk: what is flushed, and when ----------------------------------------------------------------------------


NAMED = "replace" if atomic_writes._renameat2 is None else "rename"  # without flushing


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The system calls that decide about durability, in order, with names relative to `tmp_path`."""
    seen: list[str] = []

    def short(path: str) -> str:
        name = os.path.relpath(path, tmp_path)
        return "temporary" if "/.lance-io-" in path else name

    def spy(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: Any, **named: Any) -> Any:
            paths = [os.readlink(f"/proc/self/fd/{a}") if isinstance(a, int) else a for a in arguments]
            seen.append(" ".join([name, *map(short, paths)]))
            return real(*arguments, **named)

        monkeypatch.setattr(f"lance_io.store.local.atomic_writes.os.{name}", call)

    real_rename = atomic_writes.rename_new

    def rename_new(one: str, other: str) -> bool:
        done = real_rename(one, other)
        if done:
            seen.append(f"rename {short(one)} {short(other)}")
        return done

    for name in ("fsync", "link", "replace"):
        spy(name)
    monkeypatch.setattr("lance_io.store.local.atomic_writes.rename_new", rename_new)
    return seen


@pytest.mark.parametrize("if_absent", [False, True])
def test_contents_are_flushed_before_the_name_and_the_name_after(
    tmp_path: Path, calls: list[str], if_absent: bool
) -> None:
    store = LocalStore()
    name = "link" if if_absent else "replace"
    expected = ["fsync temporary", f"{name} temporary t/data/file", "fsync t/data"]
    store.put_sync(f"{tmp_path}/t/data/file", b"1", if_absent=if_absent)
    assert calls[-3:] == expected
    assert calls[:-3] == ["fsync t", "fsync ."]  # both folders are new
    calls.clear()
    with store.open_upload_sync(f"{tmp_path}/t/data/other", if_absent=if_absent) as upload:
        upload.write([b"1"])
        upload.close()
    assert calls == [line.replace("file", "other") for line in expected]


def test_files_that_are_written_together_share_the_flush_of_their_folder(tmp_path: Path, calls: list[str]) -> None:
    """Each is flushed before it has its name, and all names before it is over."""
    store = LocalStore()
    store.put_sync(f"{tmp_path}/t/first", b"1")
    calls.clear()
    contents = {f"{tmp_path}/t/{number}": b"%d" % number for number in range(3)}
    store.put_many_sync(contents)
    named = [f"replace temporary t/{number}" for number in range(3)]
    assert calls == [*["fsync temporary"] * 3, *named, "fsync t"]
    assert [store.get_sync(key) for key in contents] == [*contents.values()]
    calls.clear()
    store.put_many_sync(contents, durability="none")
    assert not any(call.startswith("fsync") for call in calls)


def test_more_files_than_may_be_open_are_written_together(tmp_path: Path, calls: list[str]) -> None:
    store, folders = LocalStore(), ("one", "other")
    contents = {f"{tmp_path}/{folders[number % 2]}/{number}": bytes([number % 256]) for number in range(600)}
    store.put_many_sync(contents)
    assert calls.count("fsync temporary") == 600
    assert [calls.count(f"fsync {folder}") for folder in folders] == [1, 1]
    assert sorted(calls[-2:]) == ["fsync one", "fsync other"]
    assert [store.get_sync(key) for key in contents] == [*contents.values()]
    assert store.stats._in_flight == 0


@pytest.mark.parametrize("failing", ["fsync", "replace", "pwritev"])
def test_a_failure_among_files_that_are_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Its error names the file, and no temporary one stays; what has its name is whole."""
    store, number = LocalStore(), 0
    store.put_sync(f"{tmp_path}/t/first", b"1")
    real = getattr(os, failing)

    def fail(*arguments: Any) -> Any:
        nonlocal number
        number += 1
        if number == 2:
            raise OSError(errno.EIO, "Input/output error")
        return real(*arguments)

    monkeypatch.setattr(f"lance_io.store.local.atomic_writes.os.{failing}", fail)
    contents = {f"{tmp_path}/t/{number}": b"%d" % number for number in range(3)}
    with pytest.raises(StoreError, match="t/1"):
        store.put_many_sync(contents)
    there = sorted(set(os.listdir(tmp_path / "t")) - {"first"})
    assert there == (["0"] if failing == "replace" else [])
    assert store.stats._in_flight == 0


@pytest.mark.parametrize("can_rename", [True, False])
def test_durability_none_flushes_nothing(
    tmp_path: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch, can_rename: bool
) -> None:
    if not can_rename:
        monkeypatch.setattr("lance_io.store.local.atomic_writes._renameat2", None)
    store = resolve_uri(str(tmp_path), {"Durability": "none"}).store
    assert isinstance(store, LocalStore)
    store.put_sync(f"{tmp_path}/t/data/file", b"1", if_absent=True)
    with store.open_upload_sync(f"{tmp_path}/t/data/other") as upload:
        upload.close()
    store.delete_sync([f"{tmp_path}/t/data/other"])
    how = ("rename", "rename") if can_rename else ("link", "replace")
    assert calls == [f"{how[0]} temporary t/data/file", f"{how[1]} temporary t/data/other"]
    calls.clear()
    store.put_sync(f"{tmp_path}/t/data/third", b"1", durability="full")
    assert calls[-1] == "fsync t/data"


def test_a_call_may_ask_for_less(tmp_path: Path, calls: list[str]) -> None:
    LocalStore().put_sync(f"{tmp_path}/file", b"1", durability="none")
    assert calls == [f"{NAMED} temporary file"]


async def test_the_asynchronous_writes_flush_the_same(tmp_path: Path, calls: list[str]) -> None:
    store = LocalStore()
    await store.put(f"{tmp_path}/a", b"1", if_absent=True)
    calls.clear()
    await store.put(f"{tmp_path}/b", b"1", if_absent=True)
    await _writes_of(PartUpload(store, f"{tmp_path}/c", part_bytes=10))
    await store.put(f"{tmp_path}/d", b"1", durability="none")
    await store.delete([f"{tmp_path}/a"])
    assert calls == [
        *("fsync temporary", "link temporary b", "fsync ."),
        *("fsync temporary", "replace temporary c", "fsync ."),
        f"{NAMED} temporary d",
        "fsync .",
    ]
    await store.aclose()


def test_folders_are_durable_before_what_is_in_them(tmp_path: Path, calls: list[str]) -> None:
    store = LocalStore()
    store.put_sync(f"{tmp_path}/a/b/c/d/file", b"1")
    assert calls[:4] == ["fsync a/b/c", "fsync a/b", "fsync a", "fsync ."]
    calls.clear()
    LocalStore().put_sync(f"{tmp_path}/a/b/c/d/file", b"1")
    assert len(calls) == 3  # known now, in the whole process
    import shutil

    shutil.rmtree(tmp_path / "a")
    calls.clear()
    store.put_sync(f"{tmp_path}/a/b/c/d/file", b"1")
    assert calls[:4] == ["fsync a/b/c", "fsync a/b", "fsync a", "fsync ."]


def test_a_name_that_may_not_be_durable_is_an_unknown_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore()
    store.put_sync(f"{tmp_path}/a", b"1")
    real = os.fsync

    def fsync(fd: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EIO, "Input/output error")
        real(fd)

    monkeypatch.setattr("lance_io.store.local.atomic_writes.os.fsync", fsync)
    with pytest.raises(OutcomeUnknown, match="could not be flushed"):
        store.put_sync(f"{tmp_path}/b", b"1", if_absent=True)
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize("durability", ["full", "none"])
def test_one_of_many_threads_creates(tmp_path: Path, durability: Durability) -> None:
    from concurrent.futures import ThreadPoolExecutor

    store = LocalStore(durability=durability)

    def create(number: int) -> int | None:
        try:
            store.put_sync(f"{tmp_path}/new/folder/file", b"%d" % number, if_absent=True)
        except AlreadyExists:
            return None
        return number

    with ThreadPoolExecutor(16) as pool:
        winners = [number for number in pool.map(create, range(64)) if number is not None]
    assert len(winners) == 1
    assert (tmp_path / "new/folder/file").read_bytes() == b"%d" % winners[0]
    assert os.listdir(tmp_path / "new/folder") == ["file"]


def test_an_unknown_durability_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected 'full' or 'none', found 'half'"):
        resolve_uri(str(tmp_path), {"durability": "half"})
