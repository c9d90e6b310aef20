"""Commits of one process to one table: none is in vain, and none waits for ever for another."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lance_io
from lance_io.commit.commit_queue import COMMIT_QUEUES, CommitQueues, LocalCommit
from lance_io.commit.lock import LockHandler
from lance_io.commit.put_absent import PutAbsentHandler
from lance_io.commit.target import CommitTarget, Listing, SystemClock
from lance_io.errors import CommitConflictError
from lance_io.plans.plan import drive_sync
from lance_io.store.local.disk import LocalStore
from lance_io.store.memory import MemoryStore
from lance_io.store.url import Location, resolve_uri
from lance_io.table.transaction import operations as ops
from lance_io.table.transaction.transaction import Transaction
from lance_io.testing.wrap import Request, WrappedStore
from tests.commit.tables import ROWS, Sample, commit_async, commit_sync

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

WRITERS = 8
COMMITS = 6  # of each of them


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return Sample(tmp_path_factory.mktemp("sample") / "t")


@pytest.fixture
def target() -> CommitTarget:
    return CommitTarget(Location(MemoryStore(), "t", "memory://t"), queues=CommitQueues())


@pytest.fixture
def local(tmp_path: Path) -> CommitTarget:
    return CommitTarget(
        Location(LocalStore(durability="none"), f"{tmp_path}/t", f"{tmp_path}/t"), queues=CommitQueues()
    )


@pytest.fixture(autouse=True)
def long_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is."""
    monkeypatch.setattr("lance_io.commit.commit_queue.LEASE_S", 100.0)


@pytest.fixture
def short_lease(long_lease: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lance_io.commit.commit_queue.LEASE_S", 0.02)


def counts(target: CommitTarget) -> dict[str, int]:
    """Requests so far: manifests tried to be created, listings, reads."""
    seen = target.location.store.stats.snapshot()
    return {name: seen[name].requests for name in ("put_create", "list", "get")}


def newest(target: CommitTarget) -> Any:
    return drive_sync(target.handler.find_latest(target.location))


def queue(target: CommitTarget) -> Any:
    return target.queues._tables[target.location.store.identity, target.location.path].queue


# -- no attempt in vain ----------------------------------------------------------------------------------------------


def test_threads_make_one_attempt_a_commit(local: CommitTarget, sample: Sample) -> None:
    base = sample.create_sync(local).manifest
    before = counts(local)["put_create"]

    def write() -> list[int]:
        held, attempts = base, []
        for _ in range(COMMITS):
            done = commit_sync(local, sample.append(held.version), base=held)
            held = done.manifest
            attempts.append(done.attempts)
        return attempts

    with ThreadPoolExecutor(WRITERS) as threads:
        attempts = [each for done in [threads.submit(write) for _ in range(WRITERS)] for each in done.result()]
    assert attempts == [1] * WRITERS * COMMITS
    assert counts(local)["put_create"] - before == WRITERS * COMMITS
    last = newest(local)
    assert last.version == 1 + WRITERS * COMMITS
    assert (os.listdir(f"{local.location.path}/_versions").count("latest_version_hint.json"), last.version) == (1, 49)


def test_so_do_appends_by_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[int] = []
    create = PutAbsentHandler.create

    def counted(self: Any, place: Any, new: Any) -> Any:
        attempts.append(new.version)
        return create(self, place, new)

    monkeypatch.setattr(PutAbsentHandler, "create", counted)
    rows = pa.table({"a": [1]})
    lance_io.write_dataset(rows, tmp_path / "t", durability="none")
    append = {"mode": "append", "durability": "none"}
    with ThreadPoolExecutor(WRITERS) as threads:
        for done in [threads.submit(lance_io.write_dataset, rows, tmp_path / "t", **append) for _ in range(40)]:
            done.result()
    assert sorted(attempts) == list(range(1, 42))
    assert lance_io.dataset(tmp_path / "t").count_rows() == 41


async def test_coroutines_and_threads_take_turns_with_each_other(local: CommitTarget, sample: Sample) -> None:
    sample.create_sync(local)
    before = counts(local)["put_create"]
    later = [commit_async(local, sample.append(1)) for _ in range(WRITERS)]
    now = [asyncio.to_thread(commit_sync, local, sample.append(1)) for _ in range(WRITERS)]
    done = await asyncio.gather(*later, *now)
    assert [each.attempts for each in done] == [1] * 2 * WRITERS
    assert counts(local)["put_create"] - before == 2 * WRITERS
    assert newest(local).version == 1 + 2 * WRITERS


async def test_who_waited_reads_nothing(target: CommitTarget, sample: Sample) -> None:
    """Each lists beside its uploads, before its turn; what came since it is told."""
    base = sample.create_sync(target).manifest
    before = counts(target)
    done = await asyncio.gather(*(commit_async(target, sample.append(1), base=base) for _ in range(WRITERS)))
    after = counts(target)
    assert [each.manifest.version for each in done] == list(range(2, 2 + WRITERS))
    assert {name: after[name] - before[name] for name in after} == {"put_create": WRITERS, "list": WRITERS, "get": 0}
    assert done[-1].manifest.fragments.ids == list(range(WRITERS + 1))


async def test_what_was_told_is_checked_like_what_is_read(target: CommitTarget, sample: Sample) -> None:
    base = sample.create_sync(target).manifest
    first, second = await asyncio.gather(
        commit_async(target, sample.overwrite(1), base=base),
        commit_async(target, sample.append(1), base=base),
        return_exceptions=True,
    )
    assert not isinstance(first, BaseException)
    assert isinstance(second, CommitConflictError)
    transaction = sample.append(2)
    twice = await asyncio.gather(*(commit_async(target, transaction, base=first.manifest) for _ in range(2)))
    assert [each.attempts for each in twice] == [1, 0]
    assert twice[0].manifest == twice[1].manifest


def test_a_listing_from_before_the_last_commit_is_made_again(target: CommitTarget, sample: Sample) -> None:
    """Nobody was under way in between, so nothing was kept that could be told."""
    created = sample.create_sync(target)
    listing = Listing([created.file], 1, target.clock.monotonic())
    commit_sync(target, sample.append(1))
    done = commit_sync(target, sample.append(1), base=created.manifest, listing=listing)
    assert (done.attempts, done.manifest.version) == (1, 3)


def test_an_append_by_uri_beside_another_reads_no_manifest() -> None:
    uri, rows = "shared-memory://test_turns/t", pa.table({"a": [1]})
    lance_io.write_dataset(rows, uri)
    location = resolve_uri(uri)
    stats = location.store.stats
    with COMMIT_QUEUES.commit(location, SystemClock()):
        lance_io.write_dataset(rows, uri, mode="append")
        before = stats.snapshot()
        appended = lance_io.write_dataset(rows, uri, mode="append")
        made = stats.snapshot() - before
        assert made["get"].requests == 0
    assert (appended.version, appended.count_rows()) == (3, 3)
    before = stats.snapshot()
    lance_io.write_dataset(rows, uri, mode="append")
    assert (stats.snapshot() - before)["get"].requests == 1


def test_a_table_made_anew_is_not_built_on_the_old_one(target: CommitTarget, sample: Sample) -> None:
    store = target.location.store
    assert isinstance(store, MemoryStore)
    with target.queues.commit(target.location, target.clock):  # what is told is kept
        sample.create_sync(target)
        for _ in range(3):
            commit_sync(target, sample.append(1))
        store.delete_sync([meta.key for meta in store.list_sync("")])
        again = sample.create_sync(replace(target, queues=CommitQueues()))
        done = commit_sync(target, sample.append(1), base=again.manifest)
        assert (done.manifest.version, done.manifest.fragments.ids) == (2, [0, 1])
        assert done.manifest.transaction_file == done.transaction.file_name


def test_other_processes_are_met_as_ever(target: CommitTarget, sample: Sample) -> None:
    """Versions of another process lie between those that were told."""
    base = sample.create_sync(target).manifest
    elsewhere = replace(target, queues=CommitQueues())
    with target.queues.commit(target.location, target.clock):
        for number in range(6):
            where = elsewhere if number % 2 else target
            assert commit_sync(where, sample.append(1), base=base).manifest.version == number + 2
    assert newest(target).version == 7


def test_what_is_kept_is_bounded(target: CommitTarget, sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lance_io.commit.commit_queue.CHAIN_VERSIONS_MAX", 3)
    monkeypatch.setattr("lance_io.commit.commit_queue.TABLES_MAX", 2)
    base = sample.create_sync(target)
    with target.queues.commit(target.location, target.clock) as watcher:
        files = [base.file, *(commit_sync(target, sample.append(1)).file for _ in range(5))]
        told = [watcher.commits_after(file) for file in files]
        assert [None if each is None else len(each.versions) for each in told] == [None, None, 3, 2, 1, None]
    for name in "abc":
        with target.queues.commit(replace(target.location, path=name), target.clock):
            pass
    assert len(target.queues._tables) == 2
    assert watcher.commits_after(files[3]) is None


# -- nobody waits for ever -------------------------------------------------------------------------------------------


class Stuck(WrappedStore):
    """The first deciding write does not answer before it is told to."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.sent, self.answer = asyncio.Event(), asyncio.Event()

    async def request(self, request: Request, send: Callable[[], Awaitable[Any]]) -> Any:
        if request.operation == "put_create" and not self.sent.is_set():
            self.sent.set()
            await self.answer.wait()
        return await send()


def stuck(target: CommitTarget) -> tuple[CommitTarget, Stuck]:
    store = Stuck(target.location.store)
    return replace(target, location=replace(target.location, store=store)), store


@pytest.mark.usefixtures("short_lease")
async def test_a_write_that_hangs_holds_nobody_up(target: CommitTarget, sample: Sample) -> None:
    sample.create_sync(target)
    slow, store = stuck(target)
    first = asyncio.ensure_future(commit_async(slow, sample.append(1)))
    await store.sent.wait()
    others = await asyncio.gather(*(commit_async(target, sample.append(1)) for _ in range(3)))
    await asyncio.to_thread(commit_sync, target, sample.append(1))
    assert sorted(each.manifest.version for each in others) == [2, 3, 4]
    store.answer.set()
    done = await first
    assert (done.manifest.version, done.attempts) == (6, 2)


async def test_turns_come_in_order_and_pass_over_who_gave_up(target: CommitTarget, sample: Sample) -> None:
    sample.create_sync(target)
    slow, store = stuck(target)
    first = asyncio.ensure_future(commit_async(slow, sample.append(1)))
    await store.sent.wait()
    waiting = [asyncio.ensure_future(commit_async(target, sample.append(1))) for _ in range(4)]
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(queue(target)) == 5
    waiting[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting[1]
    assert not any(waiting[number].done() for number in (0, 2, 3))
    store.answer.set()
    done = [await each for each in (first, waiting[0], waiting[2], waiting[3])]
    assert [each.manifest.version for each in done] == [2, 3, 4, 5]


async def test_a_commit_that_is_cancelled_when_it_decides_is_told_of(target: CommitTarget, sample: Sample) -> None:
    sample.create_sync(target)
    slow, store = stuck(target)
    first = asyncio.ensure_future(commit_async(slow, sample.append(1)))
    await store.sent.wait()
    second = asyncio.ensure_future(commit_async(target, sample.append(1)))
    await asyncio.sleep(0)
    first.cancel()
    store.answer.set()
    with pytest.raises(asyncio.CancelledError):
        await first
    done = await second
    assert (done.manifest.version, done.attempts) == (3, 1)


class Broken(PutAbsentHandler):
    def create(self, place: Any, new: Any) -> Any:
        yield from ()
        raise OSError("no")


def test_who_fails_lets_the_next_one_through(target: CommitTarget, sample: Sample) -> None:
    sample.create_sync(target)
    broken = replace(target, handler=Broken())
    for _ in range(2):
        with pytest.raises(OSError, match="no"):
            commit_sync(broken, sample.append(1))
    assert commit_sync(target, sample.append(1)).attempts == 1
    assert not queue(target)


@pytest.mark.usefixtures("short_lease")
def test_a_commit_inside_a_commit_goes_on(target: CommitTarget, sample: Sample) -> None:
    sample.create_sync(target)
    inner: list[int] = []

    @contextmanager
    def lock(version: int) -> Iterator[None]:
        if not inner:
            inner.append(commit_sync(target, sample.append(1)).manifest.version)
        yield

    done = commit_sync(replace(target, handler=LockHandler(lock)), sample.append(1))
    assert (inner, done.manifest.version) == ([2], 3)


def test_a_forked_child_waits_for_nobody(local: CommitTarget, sample: Sample) -> None:
    """Neither for the lock nor for the turn that a thread of its parent has."""
    sample.create_sync(local)
    release, has_turn = threading.Event(), threading.Event()

    def hold() -> None:
        with local.queues.commit(local.location, local.clock) as turn:
            drive_sync(turn.wait())
            with local.queues.lock:
                has_turn.set()
                release.wait()

    with ThreadPoolExecutor(1) as threads:
        holder = threads.submit(hold)
        has_turn.wait()
        child = os.fork()
        if not child:
            status = 1
            try:
                status = 0 if commit_sync(local, sample.append(1)).attempts == 1 else 2
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        release.set()
        holder.result()
    assert os.waitstatus_to_exitcode(status) == 0
    done = commit_sync(local, sample.append(1))
    assert (done.manifest.version, sum(done.manifest.fragments.num_rows)) == (3, 3 * ROWS)


def test_a_commit_whose_lease_ended_tells_nothing_old(target: CommitTarget, sample: Sample) -> None:
    """Others went on meanwhile: what is told stays the newest."""
    created = sample.create_sync(target)
    with target.queues.commit(target.location, target.clock) as late:
        second = commit_sync(target, sample.append(1))
        third = commit_sync(target, sample.append(1))
        made = LocalCommit(created.file, second.file, second.transaction)
        late.publish(made, second.manifest, sent_at=0.0, committed_at=0.0)
        told = late.commits_after(created.file)
        assert told is not None
        assert told.manifest == third.manifest


async def test_a_restore_after_what_was_told(target: CommitTarget, sample: Sample) -> None:
    base = sample.create_sync(target).manifest
    delete = commit_async(target, Transaction(1, ops.Delete((), (0,), "all")), base=base)
    restore = commit_async(target, Transaction(1, ops.Restore(1)), base=base)
    deleted, restored = await asyncio.gather(delete, restore)
    assert (len(deleted.manifest.fragments), restored.manifest.fragments.ids) == (0, [0])
    assert (restored.manifest.version, restored.attempts) == (3, 1)
