"""Dropping a table whose versions a database records, ended at each of its requests: dropped again, or made anew."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import pytest

import lance_io
from lance_io.changes.upkeep.drop_table import drop_table
from lance_io.commit.external import ExternalHandler, Row
from lance_io.errors import LanceError, ManifestMissing
from lance_io.plans.plan import drive_async, drive_sync
from lance_io.store.url import Location
from lance_io.testing.faults import Crashed, Fault, FaultyStore
from lance_io.testing.manifest_rows import MemoryManifestStore
from tests.simulate.test_crashes import any_request, run
from tests.simulate.world import URI, CountedRows, World, append, branch, create

if TYPE_CHECKING:
    from lance_io.plans.plan import Plan

FAULTS: Final = (Fault.REFUSED, Fault.LOST_ANSWER, Fault.CRASH)


def made() -> World:
    """Two versions, and a branch."""
    world = World(rows={})
    for change in (create, append, branch):
        assert run(world.session(), change) is None
    assert world.rows is not None and {base for base, _ in world.rows} == {"t", "t/tree/side"}
    return world


async def drop(world: World, store: FaultyStore) -> None:
    database = CountedRows(store)
    database.rows = world.rows or {}
    place = Location(store, world.place.path, world.place.uri)
    await drive_async(drop_table(place, ExternalHandler(database), None))


def is_gone(world: World) -> bool:
    store: Any = world.place.store
    return not world.rows and not store.list_sync("")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_drop_may_end_at_any_request(fault: Fault) -> None:
    for number in range(100):
        world = made()
        store = FaultyStore(world.place.store, {number: fault}, any_request)
        try:
            asyncio.run(drop(world, store))
        except (Crashed, LanceError):
            pass
        else:
            assert is_gone(world)
        if len(store.seen) <= number:
            break
        anew = world.copy()
        outcome = run(anew.session(), create)
        if outcome is None:  # no row was left
            assert anew.newest()[0] == 1 and run(anew.session(), branch) is None
        elif world.rows and not any(one.name.endswith(".manifest") for one in listed(world)):
            assert isinstance(outcome, ManifestMissing), outcome
        if not is_gone(world):
            asyncio.run(drop(world, FaultyStore(world.place.store)))
        assert is_gone(world)
        for change in (create, branch):
            assert run(world.session(), change) is None
        assert world.check()[0] == 1
    else:
        raise AssertionError("a drop makes fewer than 100 requests")


def listed(world: World) -> list[Any]:
    store: Any = world.place.store
    return list(store.list_sync("t/_versions/"))


class Meanwhile(MemoryManifestStore):
    """Rows of which another process makes a table anew, between reading and removing them."""

    world: World

    def list_rows(self, base: str) -> Plan[list[Row]]:
        found = yield from super().list_rows(base)
        if base == "t" and found:
            self.rows.clear()
            other = World(self.world.place, self.rows)
            assert run(other.session(), make_anew) is None
        return found


async def make_anew(session: Any) -> None:
    import pyarrow as pa

    await lance_io.AsyncDataset.write(pa.table({"other": [1, 2, 3]}), URI, session=session)


def test_a_table_that_was_made_anew_meanwhile_stays() -> None:
    world = made()
    rows = Meanwhile()
    rows.world, rows.rows = world, world.rows or {}
    drive_sync(drop_table(world.place, ExternalHandler(rows), None))
    assert world.rows is not None and list(world.rows) == [("t", 1)]
    assert world.open().to_table()["other"].to_pylist() == [1, 2, 3]
