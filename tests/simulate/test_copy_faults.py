"""Clones and the renaming of manifests, each of their writes refused, its answer lost, or its process gone.

A clone is there as a whole or not at all, and its source is what it was. Manifests are under one of their names or
both; calling again, by a version's number, ends the renaming, and every version is what it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import lance_io
from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.errors import AlreadyExists
from lance_io.testing.faults import Crashed, Fault, FaultyStore
from tests.simulate.test_crashes import FAULTS, run
from tests.simulate.world import FIRST, SCHEMA, SECOND, URI, World, append, create, delete_one, numbers, rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.reads.version.session import Session

CLONE = "memory://clone"
ROWS = [*FIRST[1:], *SECOND]


async def shallow_clone(session: Session) -> None:
    """A table that refers to the files of the other one."""
    await (await AsyncDataset.open(URI, session=session)).shallow_clone(CLONE, 3)


async def deep_clone(session: Session) -> None:
    """A table with copies of them."""
    await (await AsyncDataset.open(URI, session=session)).deep_clone(CLONE, 3)


def world_after(*changes: Callable[[Session], Any]) -> World:
    world = World()
    for change in changes:
        assert run(world.session(), change) is None
    return world


def find_clone(world: World) -> list[int] | None:
    """The clone's rows, None when there is no such table."""
    try:
        table = lance_io.dataset(CLONE, session=world.session())
    except ValueError:
        return None
    assert table.version == 3
    return numbers(table)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("clone", [shallow_clone, deep_clone])
def test_a_clone_is_there_or_not(clone: Callable[[Session], Any], fault: Fault) -> None:
    before, number = world_after(create, append, delete_one), 0
    while True:
        world = before.copy()
        store = FaultyStore(world.place.store, {number: fault})
        outcome = run(world.session(store), clone)
        assert world.check() == (3, ROWS)
        found = find_clone(world)
        assert found in (None, ROWS)
        if outcome is None:
            assert found == ROWS
        if found is None:
            assert isinstance(outcome, Crashed) or fault is not Fault.CRASH
        again = run(world.session(), clone)
        assert isinstance(again, AlreadyExists) if found else again is None
        assert find_clone(world) == ROWS
        if number >= len(store.seen):
            assert outcome is None
            assert number > 0
            return
        number += 1


async def create_old(session: Session) -> None:
    """Rows 0 to 5 in a table whose manifests have old names."""
    await AsyncDataset.write(rows(0), URI, SCHEMA, session=session, max_rows_per_file=3, enable_v2_manifest_paths=False)


async def migrate(session: Session) -> None:
    """New names, by a handle that no listing decides."""
    await (await AsyncDataset.open(URI, 3, session=session)).migrate_manifest_paths_v2()


@pytest.mark.parametrize("fault", FAULTS)
def test_renaming_goes_on(fault: Fault) -> None:
    before, number = world_after(create_old, append, delete_one), 0
    while True:
        world = before.copy()
        store = FaultyStore(world.place.store, {number: fault})
        outcome = run(world.session(store), migrate)
        for version, there in enumerate(([*FIRST], [*FIRST, *SECOND], ROWS), 1):
            assert numbers(world.open(version)) == there
        if outcome is not None:
            assert run(world.session(), migrate) is None
        assert world.check() == (3, ROWS)
        names = [key.rpartition("/")[2] for key in world.place.store._objects if "/_versions/" in key]  # type: ignore[attr-defined]
        assert sorted(name for name in names if name.endswith(".manifest")) == [
            f"{2**64 - 1 - version:020d}.manifest" for version in (3, 2, 1)
        ]
        if number >= len(store.seen):
            assert outcome is None
            assert number > 0
            return
        number += 1
