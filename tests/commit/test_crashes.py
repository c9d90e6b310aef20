"""Every write of a commit refused, its answer lost, or its process gone: the table is the old one or the new one.

Run once to count the writes, then once for every write and fault. A fresh process (`survivors`) looks at what is left.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lance_io.commit.commit_loop import commit
from lance_io.commit.commit_request import CommitRequest
from lance_io.commit.external import ExternalHandler
from lance_io.commit.first_version import create_table
from lance_io.commit.put_absent import PutAbsentHandler
from lance_io.commit.target import CommitTarget
from lance_io.errors import LanceError, NotFound
from lance_io.plans.plan import drive_async, drive_sync
from lance_io.plans.store_requests import Read
from lance_io.store.failures import Transient
from lance_io.store.memory import MemoryStore
from lance_io.store.url import Location
from lance_io.table.manifest.manifest import Manifest, decode_manifest
from lance_io.table.transaction import operations as ops
from lance_io.table.transaction.transaction import Transaction
from lance_io.testing.faults import Crashed, Fault, FaultyStore
from lance_io.testing.manifest_rows import MemoryManifestStore
from tests.commit.tables import Sample
from tests.commit.test_commit_loop import QuickClock

if TYPE_CHECKING:
    from collections.abc import Callable

FAULTS = (Fault.REFUSED, Fault.LOST_ANSWER, Fault.CRASH)
WRITES_MAX = 12


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return Sample(tmp_path_factory.mktemp("sample") / "t")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lance_io.commit.put_absent.FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr("lance_io.commit.external.FIRST_PAUSE_S", 0.0)


class FaultyRows(MemoryManifestStore):
    """Rows whose writes count among those of the store."""

    def __init__(self, inner: MemoryManifestStore, store: FaultyStore) -> None:
        super().__init__()
        self.rows = inner.rows
        self._store = store

    def put_if_absent(self, base: str, row: Any) -> Any:
        yield _Counted(self._store, super().put_if_absent(base, row))

    def put_if_present(self, base: str, row: Any) -> Any:
        yield _Counted(self._store, super().put_if_present(base, row))


class _Counted:
    def __init__(self, store: FaultyStore, plan: Any) -> None:
        self._store, self._plan = store, plan

    def answer_sync(self) -> None:
        raise AssertionError

    async def answer_async(self) -> None:
        from lance_io.testing.wrap import Request

        async def send() -> None:
            drive_sync(self._plan)

        await self._store.request(Request("put", "a row"), send)


class World:
    """A store, perhaps with a database, that outlives the processes which write to it."""

    def __init__(self, *, database: bool) -> None:
        self.place = Location(MemoryStore(), "t", "memory://t")
        self.rows = MemoryManifestStore() if database else None

    def target(self, store: FaultyStore | None = None) -> CommitTarget:
        """The world as one process sees it, through a faulty store or the right one."""
        place = self.place if store is None else replace(self.place, store=store)
        if self.rows is None:
            return CommitTarget(place, PutAbsentHandler(), clock=QuickClock())
        rows = self.rows if store is None else FaultyRows(self.rows, store)
        return CommitTarget(place, ExternalHandler(rows), clock=QuickClock())

    def newest(self) -> Manifest | None:
        """What a fresh process opens."""
        target = self.target()
        try:
            file = drive_sync(target.handler.find_latest(target.location))
        except NotFound:
            return None
        return decode_manifest(Read(self.place.store, file.key).answer_sync())

    def check(self) -> None:
        """Everything that the newest version names is there."""
        manifest = self.newest()
        if manifest is not None:
            self.place.store.head_sync(self.place.key("_transactions", manifest.transaction_file))  # type: ignore[attr-defined]


def create(sample: Sample) -> tuple[Transaction, bool]:
    return sample.overwrite(0), True


def append(sample: Sample) -> tuple[Transaction, bool]:
    return sample.append(1), False


def overwrite(sample: Sample) -> tuple[Transaction, bool]:
    return sample.overwrite(1), False


def delete(sample: Sample) -> tuple[Transaction, bool]:
    return Transaction(1, ops.Delete((), (0,), "all")), False


def restore(sample: Sample) -> tuple[Transaction, bool]:
    return Transaction(1, ops.Restore(1)), False


async def attempt(target: CommitTarget, transaction: Transaction, *, creates: bool) -> Any:
    request = CommitRequest(transaction)
    return await drive_async(create_table(target, request) if creates else commit(target, request))


@pytest.mark.parametrize("database", [False, True], ids=["put-absent", "database"])
@pytest.mark.parametrize("make", [create, append, overwrite, delete, restore])
@pytest.mark.parametrize("fault", FAULTS)
async def test_every_write_may_fail(
    sample: Sample, make: Callable[[Sample], tuple[Transaction, bool]], fault: Fault, database: bool
) -> None:
    counted = False
    for number in range(WRITES_MAX):
        world = World(database=database)
        transaction, creates = make(sample)
        old = None if creates else sample.create_sync(world.target()).manifest
        store = FaultyStore(world.place.store, {number: fault})
        outcome: BaseException | None = None
        try:
            await attempt(world.target(store), transaction, creates=creates)
        except (LanceError, Crashed) as error:
            outcome = error
        new = world.newest()
        world.check()
        old_version = 0 if old is None else old.version
        assert (0 if new is None else new.version) in (old_version, old_version + 1)
        if outcome is None:
            assert new is not None and new.version == old_version + 1
        if isinstance(outcome, Transient) and fault is Fault.REFUSED:
            assert (0 if new is None else new.version) == old_version  # an error that is sure of it
        # the same transaction again, by another process: applied once, whatever happened before
        again = await attempt(world.target(), transaction, creates=creates)
        assert again.manifest.version == old_version + 1
        world.check()
        newest = world.newest()
        assert newest is not None and newest.version == old_version + 1
        assert newest.transaction_file.endswith(f"{transaction.uuid}.txn")
        if len(store.seen) <= number:
            counted = True
            break
    assert counted, "a commit makes fewer writes than WRITES_MAX"


async def test_the_fault_is_met(sample: Sample) -> None:
    """A lost answer to the deciding write really is one."""
    world = World(database=False)
    store = FaultyStore(world.place.store, {1: Fault.CRASH})
    with pytest.raises(Crashed):
        await attempt(world.target(store), sample.overwrite(0), creates=True)
    assert [request.operation for request in store.seen] == ["put", "put_create"]
    assert asyncio.get_running_loop() is not None and world.newest() is not None
