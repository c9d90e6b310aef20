"""The commit loop: what it asks of the store, whom it yields to, and what it does when answers are lost."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_io.commit.commit_loop import commit
from lance_io.commit.commit_queue import CommitQueues
from lance_io.commit.commit_request import CommitRequest
from lance_io.commit.first_version import create_table
from lance_io.commit.handler import Created, NewVersion
from lance_io.commit.lock import LockHandler
from lance_io.commit.put_absent import PutAbsentHandler
from lance_io.commit.target import CommitTarget, Listing, SystemClock
from lance_io.errors import AlreadyExists, CommitConflictError, CommitHandlerError, CommitUnknownError, NotFound
from lance_io.plans.plan import Shielded, ask, drive_async, drive_sync
from lance_io.plans.store_requests import Put
from lance_io.store.memory import MemoryStore
from lance_io.store.url import Location, resolve_uri
from lance_io.table.manifest.deletion_file import decode_deletions, encode_deletions
from lance_io.table.manifest.fragment import DeletionFile
from lance_io.table.manifest.index_section import IndexMetadata, decode_indices
from lance_io.table.manifest.paths import DETACHED_BIT, HINT_NAME
from lance_io.table.transaction import operations as ops
from lance_io.table.transaction.transaction import Transaction, decode_transaction
from lance_io.testing.faults import Fault, FaultyStore
from lance_io.testing.wrap import Request, WrappedStore
from tests.commit.tables import ROWS, Sample, commit_async, commit_sync

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


class QuickClock(SystemClock):
    """No chance, no pauses; time is what the test says."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def random(self) -> float:
        return 0.0


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return Sample(tmp_path_factory.mktemp("sample") / "t")


@pytest.fixture
def target() -> CommitTarget:
    return CommitTarget(Location(MemoryStore(), "t", "memory://t"), clock=QuickClock())


def through(target: CommitTarget, store: Any) -> CommitTarget:
    return replace(target, location=replace(target.location, store=store))


def keys(target: CommitTarget, folder: str) -> list[str]:
    return [meta.name for meta in target.location.store.list_sync(target.location.key(folder, ""))]  # type: ignore[attr-defined]


# -- with pylance ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stable", [False, True])
def test_pylance_reads_what_was_committed_and_commits_on_top(tmp_path: Path, stable: bool) -> None:
    sample = Sample(tmp_path / "sample", stable=stable)
    target = CommitTarget(resolve_uri(str(tmp_path / "t")))
    appended = sample.append(1)
    sample.place_data(target.location, appended)
    from lance_io.table.transaction.apply import Creation

    first = drive_sync(create_table(target, CommitRequest(sample.overwrite(0), creation=Creation(None, stable))))
    lance.dataset(tmp_path / "t").delete("a = 1")
    third = commit_sync(target, appended, base=first.manifest)
    dataset = lance.dataset(tmp_path / "t")
    assert (dataset.version, third.manifest.version, third.attempts) == (3, 3, 1)
    assert dataset.to_table()["a"].to_pylist() == [0, 2, 3, 0, 1, 2, 3]
    assert dataset.has_stable_row_ids == stable
    if stable:
        assert dataset.to_table(with_row_id=True)["_rowid"].to_pylist() == [0, 2, 3, 4, 5, 6, 7]
    hint = json.loads((tmp_path / "t" / "_versions" / HINT_NAME).read_bytes())
    assert hint == {"version": 3}
    assert len(list((tmp_path / "t" / "_transactions").iterdir())) == 3


def test_old_names_are_kept(tmp_path: Path, sample: Sample) -> None:
    lance.write_dataset(pa.table({"a": [1]}), tmp_path / "t", enable_v2_manifest_paths=False)
    target = CommitTarget(resolve_uri(str(tmp_path / "t")))
    assert commit_sync(target, sample.append(1)).file.key.endswith("_versions/2.manifest")
    assert lance.dataset(tmp_path / "t").version == 2


# -- creating --------------------------------------------------------------------------------------------------------


def test_a_table_is_created_once(target: CommitTarget, sample: Sample) -> None:
    sample.create_sync(target)
    with pytest.raises(AlreadyExists):
        drive_sync(create_table(target, CommitRequest(sample.overwrite(0))))
    assert len(keys(target, "_transactions")) == 1


def test_creating_again_with_the_same_transaction_is_recognised(target: CommitTarget, sample: Sample) -> None:
    request = CommitRequest(sample.overwrite(0))
    first = drive_sync(create_table(target, request))
    again = drive_sync(create_table(target, request))
    assert (again.attempts, again.file, again.manifest) == (0, first.file, first.manifest)


def test_no_table_is_created_where_later_versions_are(target: CommitTarget, sample: Sample) -> None:
    """Version 1 was cleaned up: its name is free, but readers would go on seeing version 2."""
    first = sample.create_sync(target)
    commit_sync(target, sample.append(1))
    drive_sync(ask_delete(target, first.file.key))
    with pytest.raises(AlreadyExists):
        drive_sync(create_table(target, CommitRequest(sample.overwrite(0))))


def ask_delete(target: CommitTarget, key: str) -> Any:
    from lance_io.plans.store_requests import Remove

    return ask(Remove(target.location.store, (key,)))


def test_without_a_table_there_is_nothing_to_append_to(target: CommitTarget, sample: Sample) -> None:
    with pytest.raises(NotFound):
        commit_sync(target, sample.append(1))
    assert keys(target, "_transactions") == []


def test_a_version_that_was_read_must_exist(target: CommitTarget, sample: Sample) -> None:
    sample.create_sync(target)
    with pytest.raises(NotFound, match="version 5"):
        commit_sync(target, sample.append(5))


# -- what is asked of the store --------------------------------------------------------------------------------------


class Rounds(WrappedStore):
    """Lets requests through in rounds: all that are there when nothing else moves go together."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.rounds: list[list[str]] = []
        self._gate: asyncio.Future[None] | None = None

    async def request(self, request: Request, send: Callable[[], Awaitable[Any]]) -> Any:
        if self._gate is None:
            gate = self._gate = asyncio.get_running_loop().create_future()
            self.rounds.append([])
            for _ in range(20):  # whoever starts now belongs to this round
                await self._note(request if not self.rounds[-1] else None)
            self._gate = None
            gate.set_result(None)
        else:
            self.rounds[-1].append(self._name(request))
            await self._gate
        return await send()

    async def _note(self, request: Request | None) -> None:
        if request is not None:
            self.rounds[-1].append(self._name(request))
        await asyncio.sleep(0)

    @staticmethod
    def _name(request: Request) -> str:
        return f"{request.operation} {request.key.split('/')[1]}"


async def rounds_of(target: CommitTarget, plan: Callable[[CommitTarget], Any]) -> list[list[str]]:
    store = Rounds(target.location.store)
    await drive_async(plan(through(target, store)))
    return [sorted(each) for each in store.rounds]


async def test_creating_takes_two_rounds(target: CommitTarget, sample: Sample) -> None:
    def plan(target: CommitTarget) -> Any:
        data = ask(Put(target.location.store, target.location.key("data", "x"), b"data"))
        return create_table(target, CommitRequest(sample.overwrite(0), alongside=[data]))

    assert await rounds_of(target, plan) == [
        ["list _versions", "put _transactions", "put data"],
        ["put_create _versions"],
    ]


async def test_appending_with_a_base_takes_two_rounds(target: CommitTarget, sample: Sample) -> None:
    base = sample.create_sync(target).manifest

    def plan(target: CommitTarget) -> Any:
        data = ask(Put(target.location.store, target.location.key("data", "x"), b"data"))
        return commit(target, CommitRequest(sample.append(1), base=base, alongside=[data]))

    assert await rounds_of(target, plan) == [
        ["list _versions", "put _transactions", "put data"],
        ["put_create _versions"],
    ]


async def test_versions_that_came_since_cost_one_round(target: CommitTarget, sample: Sample) -> None:
    base = sample.create_sync(target).manifest
    for _ in range(3):
        commit_sync(target, sample.append(1), base=base)
    assert await rounds_of(target, lambda target: commit(target, CommitRequest(sample.append(1), base=base))) == [
        ["list _versions", "put _transactions"],
        ["get _versions"] * 3,
        ["put_create _versions"],
    ]


async def test_a_fresh_listing_is_not_made_again(target: CommitTarget, sample: Sample) -> None:
    created = sample.create_sync(target)
    listing = Listing([created.file], 1, target.clock.monotonic())
    request = CommitRequest(sample.append(1), base=created.manifest, listing=listing)
    assert await rounds_of(target, lambda target: commit(target, request)) == [
        ["put _transactions"],
        ["put_create _versions"],
    ]


def test_a_listing_that_became_old_during_the_upload_is_made_again(target: CommitTarget, sample: Sample) -> None:
    """Versions 2 and 3 are committed and 2 is cleaned up meanwhile: by the old listing its number is free."""
    created = sample.create_sync(target)
    clock = target.clock
    assert isinstance(clock, QuickClock)

    def slow_upload() -> Any:
        second = commit_sync(target, sample.append(1))
        commit_sync(target, sample.append(1))
        yield from ask_delete(target, second.file.key)
        clock.now_s += 31

    listing = Listing([created.file], 1, clock.monotonic())
    done = commit_sync(target, sample.append(1), base=created.manifest, listing=listing, alongside=[slow_upload()])
    assert done.manifest.version == 4


def test_a_short_listing_that_hides_versions_is_made_longer(target: CommitTarget, sample: Sample) -> None:
    base = sample.create_sync(target).manifest
    for _ in range(20):
        commit_sync(target, sample.append(1))
    done = commit_sync(target, sample.append(1), base=base)
    assert done.manifest.version == 22
    with pytest.raises(CommitConflictError):  # the very first of the 21 is an overwrite
        commit_sync(target, replace(sample.append(0), operation=ops.Delete((), (0,))))


def test_a_writer_far_behind_looks_at_a_few_versions_at_a_time(
    target: CommitTarget, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lance_io.commit.commit_loop.VERSIONS_AT_ONCE", 3)
    base = sample.create_sync(target).manifest
    for _ in range(7):
        commit_sync(target, sample.append(1))
    commit_sync(target, Transaction(8, ops.Delete((), (0,), "all")))
    with pytest.raises(CommitConflictError, match="version 9"):
        commit_sync(target, Transaction(1, ops.Delete((), (0,), "all")), base=base)
    assert commit_sync(target, sample.append(1), base=base).manifest.version == 10
    restored = commit_sync(target, Transaction(1, ops.Restore(4)), base=base)
    assert (restored.manifest.version, restored.manifest.fragments.ids) == (11, [0, 1, 2, 3])


# -- other writers ---------------------------------------------------------------------------------------------------


def test_committing_again_with_the_same_transaction_is_recognised(target: CommitTarget, sample: Sample) -> None:
    sample.create_sync(target)
    transaction = sample.append(1)
    first = commit_sync(target, transaction)
    commit_sync(target, sample.append(1))
    again = commit_sync(target, transaction)
    assert (again.attempts, again.manifest.version) == (0, first.manifest.version)
    assert len(keys(target, "_transactions")) == 3


def test_a_conflict_leaves_no_transaction_file(target: CommitTarget, sample: Sample) -> None:
    sample.create_sync(target)
    commit_sync(target, sample.overwrite(1))
    with pytest.raises(CommitConflictError, match="incompatible with concurrent transaction Overwrite") as caught:
        commit_sync(target, sample.append(1))
    assert not caught.value.retryable
    assert len(keys(target, "_transactions")) == 2


def test_a_failed_upload_leaves_no_transaction_file(target: CommitTarget, sample: Sample) -> None:
    sample.create_sync(target)

    def upload() -> Any:
        yield from ()
        raise pa.ArrowInvalid("no")

    with pytest.raises(pa.ArrowInvalid):
        commit_sync(target, sample.append(1), alongside=[upload()])
    assert len(keys(target, "_transactions")) == 1


async def test_many_writers_each_get_a_version(target: CommitTarget, sample: Sample) -> None:
    base = sample.create_sync(target).manifest
    done = await asyncio.gather(*(commit_async(target, sample.append(1), base=base) for _ in range(12)))
    assert sorted(each.manifest.version for each in done) == list(range(2, 14))
    last = max(done, key=lambda each: each.manifest.version).manifest
    assert last.fragments.ids == list(range(13))
    assert len(keys(target, "_transactions")) == 13


def test_a_strict_overwrite_yields_to_anything(target: CommitTarget, sample: Sample) -> None:
    sample.create_sync(target)
    commit_sync(target, sample.append(1))
    with pytest.raises(CommitConflictError) as caught:
        commit_sync(target, sample.overwrite(1), max_retries=0)
    assert caught.value.retryable
    transaction = sample.overwrite(2)
    assert commit_sync(target, transaction, max_retries=0).manifest.version == 3
    again = commit_sync(target, transaction, max_retries=0)
    assert (again.attempts, again.manifest.version) == (0, 3)
    assert len(keys(target, "_transactions")) == 3


def test_a_new_index_does_not_cover_what_was_rewritten_meanwhile(target: CommitTarget, sample: Sample) -> None:
    base = sample.create_sync(target).manifest
    rewritten = ops.Update(updated_fragments=tuple(base.fragments), fields_modified=(0,), update_mode="rewrite_columns")
    commit_sync(target, Transaction(1, rewritten))
    index = IndexMetadata("00000000-0000-4000-8000-000000000001", "i", (0,), 1, frozenset({0}))
    done = commit_sync(target, Transaction(1, ops.CreateIndex((index,))))
    assert done.manifest.index_section is not None
    assert [one.fragment_ids for one in decode_indices(done.manifest.index_section)] == [frozenset()]
    stored = target.location.store.get_sync(target.location.key(done.transaction.path))  # type: ignore[attr-defined]
    assert decode_transaction(stored) == done.transaction
    assert done.transaction.operation.new_indices[0].fragment_ids == frozenset()


class AlwaysTaken(PutAbsentHandler):
    def create(self, place: Location, new: NewVersion) -> Any:
        from lance_io.commit.handler import Taken

        yield from ()
        return Taken()


def test_attempts_end(target: CommitTarget, sample: Sample) -> None:
    sample.create_sync(target)
    stuck = replace(target, handler=AlwaysTaken())
    with pytest.raises(CommitConflictError, match="after 3 retries") as caught:
        commit_sync(stuck, sample.append(1), max_retries=3)
    assert caught.value.retryable
    with pytest.raises(CommitConflictError, match="contention"):
        commit_sync(stuck, sample.append(1))


def test_a_version_without_any_transaction_conflicts(tmp_path: Path, sample: Sample) -> None:
    target = CommitTarget(resolve_uri(str(tmp_path / "t")))
    sample.create_sync(target)
    second = commit_sync(target, sample.append(1))
    commit_sync(target, sample.append(1))
    # the inline copy is enough
    (tmp_path / "t" / "_transactions" / second.transaction.file_name).unlink()
    commit_sync(target, sample.append(1))


def test_a_detached_version_is_in_no_sequence(target: CommitTarget, sample: Sample) -> None:
    base = sample.create_sync(target).manifest
    commit_sync(target, sample.append(1))
    detached = commit_sync(target, sample.append(1), base=base, detached=True)
    assert detached.manifest.version & DETACHED_BIT
    assert detached.file.scheme == "detached"
    assert len(detached.manifest.fragments) == 2
    assert drive_sync(target.handler.find_latest(target.location)).version == 2


# -- deletions of several --------------------------------------------------------------------------------------------


def delete_rows(target: CommitTarget, base: Any, rows: list[int], fragment_id: int = 0) -> Any:
    """Delete rows of one fragment of `base`."""
    offsets = np.array(rows, dtype=np.uint32)
    fragment = next(each for each in base.fragments if each.id == fragment_id)
    file = DeletionFile("arrow", base.version, 77 + rows[0], len(rows), None)
    name = f"{fragment_id}-{base.version}-{file.id}.arrow"
    target.location.store.put_sync(  # type: ignore[attr-defined]
        target.location.key("_deletions", name), encode_deletions(offsets, "arrow")
    )
    operation = ops.Delete((replace(fragment, deletion_file=file),), (), "rows")
    return commit_sync(target, Transaction(base.version, operation), base=base, affected={fragment_id: offsets})


def test_deletions_of_different_rows_are_merged(tmp_path: Path, sample: Sample) -> None:
    target = CommitTarget(resolve_uri(str(tmp_path / "t")))
    base = sample.create_sync(target).manifest
    delete_rows(target, base, [1])
    merged = delete_rows(target, base, [3])
    file = merged.manifest.fragments[0].deletion_file
    assert file is not None
    assert (file.kind, file.read_version, file.num_deleted_rows, merged.transaction.read_version) == ("bitmap", 2, 2, 2)
    data = (tmp_path / "t" / "_deletions" / f"0-2-{file.id}.bin").read_bytes()
    assert decode_deletions(data, file, ROWS).tolist() == [1, 3]
    assert lance.dataset(tmp_path / "t").to_table()["a"].to_pylist() == [0, 2]
    names = sorted(path.name.partition("-")[0] for path in (tmp_path / "t" / "_transactions").iterdir())
    assert names == ["0", "1", "2"]


def test_a_third_deletion_merges_with_both(target: CommitTarget, sample: Sample) -> None:
    base = sample.create_sync(target).manifest
    for row in (1, 3, 0):
        last = delete_rows(target, base, [row])
    assert last.manifest.fragments[0].num_rows == 1
    emptied = delete_rows(target, base, [2])
    assert (len(emptied.manifest.fragments), emptied.manifest.max_fragment_id) == (0, 0)
    assert emptied.transaction.operation.deleted_fragment_ids == (0,)


def test_deletions_of_one_row_conflict(target: CommitTarget, sample: Sample) -> None:
    base = sample.create_sync(target).manifest
    delete_rows(target, base, [1, 2])
    with pytest.raises(CommitConflictError, match="addresses 2") as caught:
        delete_rows(target, base, [2, 3])
    assert caught.value.retryable
    assert len(keys(target, "_transactions")) == 2


def test_deletions_of_other_fragments_keep_their_files(target: CommitTarget, sample: Sample) -> None:
    sample.create_sync(target)
    base = commit_sync(target, sample.append(1)).manifest
    delete_rows(target, base, [1], fragment_id=0)
    done = delete_rows(target, base, [2], fragment_id=1)
    kinds = [each.deletion_file.kind for each in done.manifest.fragments if each.deletion_file is not None]
    assert (kinds, done.transaction.read_version) == (["arrow", "arrow"], 3)


# -- lost answers ----------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between attempts to put the manifest."""
    monkeypatch.setattr("lance_io.commit.put_absent.FIRST_PAUSE_S", 0.0)


def manifest_puts(request: Request) -> bool:
    return request.operation == "put_create"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST_ANSWER, Fault.THROTTLED])
async def test_an_append_whose_answer_is_lost_is_applied_once(
    target: CommitTarget, sample: Sample, fault: Fault
) -> None:
    base = sample.create_sync(target).manifest
    store = FaultyStore(target.location.store, {0: fault}, counts=manifest_puts)
    done = await commit_async(through(target, store), sample.append(1), base=base)
    assert (done.manifest.version, len(done.manifest.fragments)) == (2, 2)
    newest = drive_sync(target.handler.find_latest(target.location))
    assert (newest.version, done.file) == (2, newest)


@pytest.mark.usefixtures("quick")
async def test_an_answer_that_stays_lost_is_unknown(target: CommitTarget, sample: Sample) -> None:
    base = sample.create_sync(target).manifest
    transaction = sample.append(1)

    def counts(request: Request) -> bool:
        return request.operation == "put_create" or (request.operation == "get" and "_versions" in request.key)

    faults = {0: Fault.LOST_ANSWER, **dict.fromkeys(range(1, 10), Fault.REFUSED)}
    store = FaultyStore(target.location.store, faults, counts=counts)
    with pytest.raises(CommitUnknownError) as caught:
        await commit_async(through(target, store), transaction, base=base)
    assert caught.value.path is not None
    assert len(keys(target, "_transactions")) == 2  # nothing is deleted
    again = commit_sync(target, transaction, base=base)
    assert (again.attempts, again.manifest.version) == (0, 2)


@pytest.mark.usefixtures("quick")
async def test_a_lost_race_after_a_lost_answer_is_a_lost_race(target: CommitTarget, sample: Sample) -> None:
    """The PUT is refused, and before it is made again somebody else takes the number."""
    base = sample.create_sync(target).manifest

    class Overtaken(FaultyStore):
        async def request(self, request: Request, send: Callable[[], Awaitable[Any]]) -> Any:
            if manifest_puts(request) and len(self.seen) == 1:
                commit_sync(replace(target, queues=CommitQueues()), sample.append(1), base=base)
            return await super().request(request, send)

    store = Overtaken(target.location.store, {0: Fault.REFUSED}, counts=manifest_puts)
    done = await commit_async(through(target, store), sample.append(1), base=base)
    assert (done.manifest.version, done.attempts) == (3, 2)


async def test_cancelling_does_not_interrupt_the_deciding_write(target: CommitTarget, sample: Sample) -> None:
    base = sample.create_sync(target).manifest
    reached, go_on = asyncio.Event(), asyncio.Event()

    class Slow(WrappedStore):
        async def request(self, request: Request, send: Callable[[], Awaitable[Any]]) -> Any:
            if manifest_puts(request):
                reached.set()
                await go_on.wait()
            return await send()

    task = asyncio.ensure_future(
        commit_async(through(target, Slow(target.location.store)), sample.append(1), base=base)
    )
    await reached.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert drive_sync(target.handler.find_latest(target.location)).version == 2


async def test_a_shielded_plan_gives_its_result() -> None:
    def plan() -> Any:
        yield from ()
        return 5

    assert await Shielded(plan()).answer_async() == 5
    assert Shielded(plan()).answer_sync() == 5


# -- locks -----------------------------------------------------------------------------------------------------------


class Lock:
    """A commit lock that notes what happens, and refuses the first so many."""

    def __init__(self, refuse: int = 0) -> None:
        self.refuse = refuse
        self.events: list[str] = []

    def __call__(self, version: int) -> Lock:
        self.events.append(f"lock {version}")
        return self

    def __enter__(self) -> None:
        if self.refuse:
            self.refuse -= 1
            raise CommitConflictError("held by another")
        self.events.append("enter")

    def __exit__(self, *error: object) -> None:
        self.events.append("exit" if error[0] is None else "exit with error")


@pytest.mark.parametrize("driver", ["now", "later"])
async def test_a_lock_is_held_around_the_put(target: CommitTarget, sample: Sample, driver: str) -> None:
    lock = Lock(refuse=1)
    locked = replace(target, handler=LockHandler(lock))
    sample.create_sync(target)
    request = CommitRequest(sample.append(1))
    with pytest.raises(CommitHandlerError, match="held by another") as raised:
        drive_sync(commit(locked, request)) if driver == "now" else await drive_async(commit(locked, request))
    assert isinstance(raised.value.__cause__, CommitConflictError) and lock.events == ["lock 2"]
    done = drive_sync(commit(locked, request)) if driver == "now" else await drive_async(commit(locked, request))
    assert (done.manifest.version, done.attempts) == (2, 1)
    assert lock.events == ["lock 2", "lock 2", "enter", "exit"]


def test_under_a_lock_a_taken_number_is_seen(target: CommitTarget, sample: Sample) -> None:
    first = sample.create_sync(target)
    lock = Lock()
    new = NewVersion(1, "V2", b"other", "no such uuid")
    assert not isinstance(drive_sync(LockHandler(lock).create(target.location, new)), Created)
    assert target.location.store.get_sync(first.file.key) != b"other"  # type: ignore[attr-defined]
    assert lock.events[-1] == "exit"
