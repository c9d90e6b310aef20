"""Compaction, each of its writes refused, its answer lost, or its process gone: the same rows, before or after it.

It makes two versions, so that one more state is right than for other changes: ids are reserved, and nothing else has
changed. Whatever happened, compacting again makes one fragment of all rows.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.errors import CommitConflictError, CommitUnknownError
from lance_io.optimize import AsyncCompaction
from lance_io.testing.faults import Crashed, Fault, FaultyStore, is_write
from tests.seeds import seed_of
from tests.simulate.test_crashes import any_request, run
from tests.simulate.world import FIRST, SECOND, SIZE, URI, World, append, create, delete_one

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.reads.version.session import Session
    from lance_io.testing.wrap import Request

FAULTS = (Fault.REFUSED, Fault.LOST_ANSWER, Fault.CRASH)
ROWS = list((*FIRST[1:], *SECOND))


async def compact(session: Session) -> None:
    """All fragments into one, with the row that is deleted gone."""
    table = await AsyncDataset.open(URI, session=session)
    await table.optimize.compact_files()


async def compact_in_steps(session: Session) -> None:
    """The same, each task executed by a process of its own."""
    table = await AsyncDataset.open(URI, session=session)
    plan = await AsyncCompaction.plan(table, {"target_rows_per_fragment": 4})
    results = []
    for task in plan.tasks:
        worker = await AsyncDataset.open(URI, session=session)
        results.append(await task.execute_async(worker))
    await AsyncCompaction.commit(table, results)


def world_with_rows(*, database: bool) -> World:
    world = World(rows={} if database else None)
    for change in (create, append, delete_one):
        assert run(world.session(), change) is None
    return world


def count_requests(change: Callable[[Session], Any], counts: Callable[[Request], bool], *, database: bool) -> int:
    world = world_with_rows(database=database)
    store = FaultyStore(world.place.store, counts=counts)
    version = world.newest()[0]
    assert run(world.session(store), change) is None
    assert world.newest() == (version + 2, ROWS)
    return len(store.seen)


def check_faults(
    change: Callable[[Session], Any], script: dict[int, Fault], counts: Callable[[Request], bool], *, database: bool
) -> None:
    world = world_with_rows(database=database)
    version = world.newest()[0]
    store = FaultyStore(world.place.store, script, counts)
    outcome = run(world.session(store), change)
    world.check()
    newest, rows = world.newest()
    assert rows == ROWS, outcome
    num_fragments = len(world.open().get_fragments())
    assert newest in (version, version + 1, version + 2)
    assert (num_fragments < 4) == (newest == version + 2)
    if outcome is None:
        assert newest == version + 2
    elif newest == version + 2:  # it was made, and nobody was told
        assert isinstance(outcome, (Crashed, CommitUnknownError)) or store.is_crashed, outcome
    for _ in range(3):
        outcome = run(world.session(), compact)
        if outcome is None:
            break
        assert isinstance(outcome, CommitConflictError)
    assert outcome is None
    world.check()
    assert (world.newest()[1], len(world.open().get_fragments())) == (ROWS, 1)


@pytest.mark.parametrize("database", [False, True], ids=["put-absent", "database"])
@pytest.mark.parametrize("change", [compact, compact_in_steps])
@pytest.mark.parametrize("fault", FAULTS)
def test_every_write_may_fail(change: Callable[[Session], Any], fault: Fault, *, database: bool) -> None:
    for number in range(count_requests(change, is_write, database=database)):
        check_faults(change, {number: fault}, is_write, database=database)


@pytest.mark.parametrize("database", [False, True], ids=["put-absent", "database"])
def test_two_requests_may_fail(*, database: bool) -> None:
    dice = random.Random(seed_of(f"compaction {database}"))
    count = count_requests(compact, any_request, database=database) + 4
    for _ in range(4 * SIZE):
        script = {dice.randrange(count): dice.choice(FAULTS) for _ in range(2)}
        check_faults(compact, script, any_request, database=database)


def test_a_lost_task_alone_is_executed_again() -> None:
    """The results of the others stay good, and its own first attempt leaves files that nobody refers to."""
    world = world_with_rows(database=False)

    async def lose_one(session: Session) -> None:
        table = await AsyncDataset.open(URI, session=session)
        plan = await AsyncCompaction.plan(table, {"target_rows_per_fragment": 4})
        first, second = plan.tasks
        result = await first.execute_async(table)
        await second.execute_async(table)  # whose answer is lost with its worker
        reads = world.place.store.stats.snapshot()
        again = await second.execute_async(await AsyncDataset.open(URI, session=world.session()))
        wanted = {file.path for fragment in second.fragments for file in fragment.files}
        assert (world.place.store.stats.snapshot() - reads)["get"].requests >= len(wanted)
        await AsyncCompaction.commit(table, [result, again])

    version = world.newest()[0]
    assert run(world.session(), lose_one) is None
    assert world.newest() == (version + 2, ROWS)
    world.check()
    assert len(world.open().get_fragments()) == 2
