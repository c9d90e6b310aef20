"""Drawn interleavings of several writers: whatever the order, every change is in the table once.

Writers of one process take turns, those of several do not; either is drawn as well.

`LANCE_IO_ORDERS` says how many orders are drawn.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io import runtime
from lance_io.commit.commit_queue import CommitQueues
from lance_io.commit.external import ExternalHandler, Row
from lance_io.commit.put_absent import PutAbsentHandler
from lance_io.commit.target import CommitTarget
from lance_io.errors import CommitConflictError
from lance_io.plans.plan import drive_sync
from lance_io.store.memory import MemoryStore
from lance_io.store.url import Location
from lance_io.table.manifest.manifest import decode_manifest
from lance_io.table.transaction import operations as ops
from lance_io.table.transaction.transaction import Transaction
from lance_io.testing.manifest_rows import MemoryManifestStore
from lance_io.testing.turnstile import Turnstile, TurnstileLoop
from tests.commit.tables import Sample, commit_async
from tests.commit.test_commit_loop import QuickClock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from lance_io.commit.handler import CommitHandler

ORDERS = int(os.environ.get("LANCE_IO_ORDERS", "40"))
WRITERS = 3


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return Sample(tmp_path_factory.mktemp("sample") / "t")


class WaitingRows(MemoryManifestStore):
    """Rows whose requests pass the turnstile."""

    def __init__(self, rows: dict[tuple[str, int], Row], turnstile: Turnstile) -> None:
        super().__init__()
        self.rows = rows
        self._turnstile = turnstile

    answers_sync = False

    def _wait(self, label: str) -> Any:
        yield _Wait(self._turnstile, label)

    def get(self, base: str, version: int) -> Any:
        yield from self._wait("get row")
        return (yield from super().get(base, version))

    def get_latest(self, base: str) -> Any:
        yield from self._wait("latest row")
        return (yield from super().get_latest(base))

    def put_if_absent(self, base: str, row: Row) -> Any:
        yield from self._wait("reserve")
        yield from super().put_if_absent(base, row)

    def put_if_present(self, base: str, row: Row) -> Any:
        yield from self._wait("finalize")
        yield from super().put_if_present(base, row)


class _Wait:
    def __init__(self, turnstile: Turnstile, label: str) -> None:
        self._turnstile, self._label = turnstile, label

    def answer_sync(self) -> None:
        raise AssertionError

    async def answer_async(self) -> None:
        await self._turnstile.wait(self._label)


def put_absent(_: Turnstile) -> Callable[[], CommitHandler]:
    return PutAbsentHandler


def external(turnstile: Turnstile) -> Callable[[], CommitHandler]:
    rows: dict[tuple[str, int], Row] = {}
    return lambda: ExternalHandler(WaitingRows(rows, turnstile))


def turns_of(data: st.DataObject) -> list[CommitQueues]:
    """Which process each writer belongs to."""
    processes = [CommitQueues() for _ in range(WRITERS)]
    return [processes[data.draw(st.integers(0, number), f"process of {number}")] for number in range(WRITERS)]


def run(turnstile: Turnstile, writer: Callable[[int], Coroutine[Any, Any, Any]]) -> list[Any]:
    """All writers at once; what came of each."""
    with asyncio.Runner(loop_factory=TurnstileLoop) as runner:
        return runner.run(turnstile.run([writer(number) for number in range(WRITERS)]))


def history(target: CommitTarget) -> list[Any]:
    """All versions by their final names, oldest first."""
    store = target.location.store
    metas = store.list_sync(target.location.key("_versions", ""))  # type: ignore[attr-defined]
    found = [decode_manifest(store.get_sync(meta.key)) for meta in metas if meta.key.endswith(".manifest")]  # type: ignore[attr-defined]
    return sorted(found, key=lambda manifest: manifest.version)


@pytest.mark.parametrize("kind", [put_absent, external])
@settings(max_examples=ORDERS)
@given(data=st.data())
def test_appends_in_any_order_are_all_there_once(
    kind: Callable[[Turnstile], Callable[[], CommitHandler]], sample: Sample, data: st.DataObject
) -> None:
    turnstile = Turnstile(lambda n: data.draw(st.integers(0, n - 1)))
    make = kind(turnstile)
    place = Location(MemoryStore(), "t", "memory://t")
    base = CommitTarget(place, PutAbsentHandler(), clock=QuickClock())
    sample.create_sync(base)
    turns = turns_of(data)

    async def writer(number: int) -> Any:
        store = turnstile.store(place.store, f"w{number}")
        target = replace(base, location=replace(place, store=store), handler=make(), queues=turns[number])
        transaction = replace(sample.append(1), properties={"writer": str(number)})
        return await commit_async(target, transaction)

    done = run(turnstile, writer)
    assert [type(each) for each in done if isinstance(each, BaseException)] == []
    versions = history(base)
    assert [each.version for each in versions] == list(range(1, WRITERS + 2))
    assert versions[-1].fragments.ids == list(range(WRITERS + 1))
    assert sorted(each.manifest.version for each in done) == list(range(2, WRITERS + 2))
    names = {manifest.transaction_file for manifest in versions}
    kept = {meta.name for meta in place.store.list_sync(place.key("_transactions", ""))}  # type: ignore[attr-defined]
    assert len(names) == WRITERS + 1 and kept == names


@settings(max_examples=ORDERS)
@given(data=st.data())
def test_of_several_who_delete_one_fragment_one_wins(sample: Sample, data: st.DataObject) -> None:
    """Raw deletes do not know their rows: the others are told to start over."""
    turnstile = Turnstile(lambda n: data.draw(st.integers(0, n - 1)))
    place = Location(MemoryStore(), "t", "memory://t")
    base = CommitTarget(place, clock=QuickClock())
    sample.create_sync(base)
    turns = turns_of(data)

    async def writer(number: int) -> Any:
        store = turnstile.store(place.store, f"w{number}")
        target = replace(base, location=replace(place, store=store), queues=turns[number])
        operation = ops.Delete((), (0,), "all") if number else ops.Append((sample.another(),))
        return await commit_async(target, Transaction(1, operation))

    done = run(turnstile, writer)
    failed = [each for each in done if isinstance(each, BaseException)]
    assert len(failed) == WRITERS - 2
    assert all(isinstance(each, CommitConflictError) and each.retryable for each in failed)
    newest = history(base)[-1]
    assert (newest.version, newest.fragments.ids) == (3, [1])
    assert drive_sync(base.handler.find_latest(base.location)).version == 3


# -- the turnstile itself ----------------------------------------------------------------------------------------------


def settled(*parties: Callable[[Turnstile], Coroutine[Any, Any, None]]) -> tuple[list[int], list[str]]:
    """How many waited at each choice, of whom the first was let through; and what passed."""
    counts: list[int] = []

    def choose(count: int) -> int:
        counts.append(count)
        return 0

    turnstile = Turnstile(choose)
    with asyncio.Runner(loop_factory=TurnstileLoop) as runner:
        assert runner.run(turnstile.run([party(turnstile) for party in parties])) == [None] * len(parties)
    return counts, turnstile.admitted_labels


async def go(turnstile: Turnstile) -> None:
    await turnstile.wait("at once")


def test_nobody_is_let_through_while_a_thread_works_for_another() -> None:
    async def import_first(turnstile: Turnstile) -> None:
        await runtime.in_thread(time.sleep, 0.02)
        await turnstile.wait("after a thread")

    assert settled(go, import_first) == ([2, 1], ["at once", "after a thread"])
    assert settled(import_first, go) == ([2, 1], ["after a thread", "at once"])


def test_nobody_is_let_through_while_another_has_steps_to_go() -> None:
    async def step(turnstile: Turnstile) -> None:
        for _ in range(1000):
            await asyncio.sleep(0)
        await turnstile.wait("after steps")

    assert settled(go, step) == ([2, 1], ["at once", "after steps"])


def test_time_moves_when_nobody_waits() -> None:
    async def sleep(turnstile: Turnstile) -> None:
        await asyncio.sleep(3600)
        await turnstile.wait("after an hour")

    assert settled(sleep, go) == ([1, 1], ["at once", "after an hour"])
