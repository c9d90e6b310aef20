"""Restores, tags, cleanups, appends and deletes of fresh and of stale handles beside each other, in drawn orders.

A table with a history that is a day old, an index, and one party that cleans it up beside others that build on old
versions, in one process or in several, some of which die. Each request of each party is one step of the order.
Afterwards every version is whole, every change that succeeded is there once, and every tag names a version.

`LANCE_IO_ORDERS` says how many orders are drawn.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io import runtime
from lance_io.changes.upkeep.change_tags import create_tag
from lance_io.changes.write.write_fragments import write_fragments_async
from lance_io.commit.commit_loop import commit
from lance_io.commit.commit_request import CommitRequest
from lance_io.commit.target import CommitTarget, SystemClock
from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.errors import CommitConflictError, NotFound
from lance_io.plans.plan import drive_async
from lance_io.store.failures import StoreFull
from lance_io.table.manifest.index_section import IndexMetadata, decode_indices
from lance_io.table.transaction import operations as ops
from lance_io.table.transaction.transaction import Transaction
from lance_io.testing.faults import Crashed, Fault, FaultyStore
from lance_io.testing.turnstile import Turnstile, TurnstileLoop, TurnstileStore
from tests.simulate.world import SCHEMA, URI, World, create, numbers, overwrite, rows

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from lance_io.reads.version.session import Session
    from lance_io.testing.wrap import Request

pytestmark = pytest.mark.filterwarnings("ignore:index .by_a")  # an entry without details, as old releases wrote them
ORDERS = int(os.environ.get("LANCE_IO_ORDERS", "40"))
DAY_S = 24 * 3600
FIRST = list(range(6))


@dataclass
class Now:
    """The time of all clocks, seconds since the epoch."""

    seconds: float = 1_800_000_000.0


NOW = Now()


@pytest.fixture(autouse=True)
def one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left to chance but the order."""
    monkeypatch.setattr(SystemClock, "time_ns", lambda self: int(NOW.seconds * 1e9))
    monkeypatch.setattr(SystemClock, "monotonic", lambda self: loop_time())
    monkeypatch.setattr(SystemClock, "random", lambda self: 0.0)


def loop_time() -> float:
    """Of the loop that this is called on, which a turnstile's moves when nobody can; no other time passes."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return 0.0


# -- the table -------------------------------------------------------------------------------------------------------


@dataclass
class History:
    """A table, the rows of all its versions, an append that was committed, and what is true of it for good.

    is_same  whether the newest version has data of the first one
    """

    world: World
    contents: dict[int, list[int]]
    committed: Any
    is_same: bool


async def index(session: Session) -> None:
    """A segment of an index, with one file."""
    state = (await AsyncDataset.open(URI, session=session))._state
    uuid = str(uuid4())
    await state.location.store.put(state.location.key("_indices", uuid, "page.lance"), b"an index")
    entry = IndexMetadata(uuid, f"by_a {uuid}", (0,), state.manifest.version, frozenset(state.fragment_ids))
    target = CommitTarget(state.location, session.handler(state.location))
    transaction = Transaction(state.manifest.version, ops.CreateIndex((entry,)))
    await drive_async(commit(target, CommitRequest(transaction, base=state.manifest)))


async def append_more(session: Session) -> None:
    await AsyncDataset.write(rows(30), URI, SCHEMA, "append", session=session)


async def restore_first(session: Session) -> None:
    await (await AsyncDataset.open(URI, 1, session=session)).restore()


CHANGES = {"append": append_more, "overwrite": overwrite, "restore": restore_first, "index": index}
_histories: dict[tuple[Any, ...], History] = {}


def history(changes: tuple[str, ...], *, database: bool) -> History:
    """The table after an append that is known and some changes, all a day ago."""
    known = _histories.get((changes, database))
    if known is None:
        known = _histories[changes, database] = _made(changes, database=database)
    world = known.world.copy()
    world.place.store._clock = lambda: NOW.seconds  # type: ignore[attr-defined]
    return replace(known, world=world)


def _made(changes: tuple[str, ...], *, database: bool) -> History:
    world = World(rows={} if database else None)
    world.place.store._clock = lambda: NOW.seconds - DAY_S  # type: ignore[attr-defined]

    async def make() -> Any:
        session = world.session()
        with runtime.use_loop(asyncio.get_running_loop()):
            await create(session)
            await index(session)
            how = {"mode": "append", "session": session, "return_transaction": True}
            transaction = await write_fragments_async(rows(10), URI, SCHEMA, **how)
            await AsyncDataset.commit(URI, transaction, session=session)
            for change in changes:
                await CHANGES[change](session)
            return transaction

    NOW.seconds -= DAY_S
    try:
        transaction = asyncio.run(make())
    finally:
        NOW.seconds += DAY_S
    contents = {each.version: numbers(world.open(each.version)) for each in world.manifests()}
    ends = [change for change in changes if change in ("overwrite", "restore")]
    return History(world, contents, transaction, not ends or ends[-1] == "restore")


# -- the parties -----------------------------------------------------------------------------------------------------


@dataclass
class Party:
    """Somebody who does one thing to the table.

    prepare   what it does before all others begin; its result is given to `act`
    number    tells its rows from those of others
    version   that it made
    """

    name: str
    number: int
    session: Session
    history: History
    store: FaultyStore
    handle: Any = None
    version: int | None = None
    rows: list[int] = field(default_factory=list)

    async def prepare(self) -> None:
        """Open what is at hand when the others begin."""
        stale = self.name in ("restore", "tag", "stale append", "stale delete")
        self.handle = await AsyncDataset.open(URI, 1 if stale else None, session=self.session)

    async def act(self) -> None:
        """Do it."""
        await getattr(self, self.name.replace(" ", "_"))()

    async def restore(self) -> None:
        self.version = (await self.handle.restore() or self.handle).version

    async def tag(self) -> None:
        await drive_async(create_tag(self.handle._state, f"party{self.number}", 1))

    async def clean(self) -> None:
        hour = timedelta(hours=1)
        await self.handle.cleanup_old_versions(hour, error_if_tagged_old_versions=False)

    async def append(self) -> None:
        await self._insert()

    async def stale_append(self) -> None:
        await self._insert()

    async def _insert(self) -> None:
        first = 1000 + 10 * self.number
        self.rows = [*range(first, first + 6)]
        await self.handle.insert(rows(first), schema=SCHEMA)
        self.version = self.handle.version

    async def delete(self) -> None:
        await self.handle.delete("a < 2")

    async def stale_delete(self) -> None:
        await self.handle.delete("a < 2", conflict_retries=100)

    async def repeat(self) -> None:
        await AsyncDataset.commit(URI, self.history.committed, session=self.session)


PARTIES = ("restore", "tag", "clean", "append", "stale append", "delete", "stale delete", "repeat")


class Door(TurnstileStore):
    """A turnstile that is open until all parties have come in."""

    is_open = True

    def __init__(self, inner: Any, turnstile: Turnstile, name: str, process: int) -> None:
        super().__init__(inner, turnstile, name)
        self._process = process

    @property
    def identity(self) -> str:
        """Parties of several processes know nothing of each other."""
        return f"{self.inner.identity}#{self._process}"

    async def request(self, request: Request, send: Callable[[], Awaitable[Any]]) -> Any:
        """Wait, then pass on."""
        return await (send() if self.is_open else super().request(request, send))


class Roomless(FaultyStore):
    """A store that has no room for the next notes of a cleanup.

    refusals  how many more it refuses
    """

    refusals = 0

    async def request(self, request: Request, send: Callable[[], Awaitable[Any]]) -> Any:
        """Refuse notes, and pass on everything else."""
        if self.refusals and "/.cleanup-intent-" in request.key and request.operation == "put":
            self.refusals -= 1
            raise StoreFull("scripted: there is no room", path=request.key)
        return await super().request(request, send)


def any_request(_: Request) -> bool:
    return True


class Runs:
    """An order in which parties may make many steps in a row: drawn are who goes, and for how long."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data
        self._name, self._left = "", 0
        self.turnstile = Turnstile(self.choose)

    def choose(self, count: int) -> int:
        """See `Turnstile`."""
        names = [label.split()[0] for label in self.turnstile.waiting_labels]
        if self._left and self._name in names:
            self._left -= 1
            return names.index(self._name)
        chosen = self._data.draw(st.integers(0, count - 1), "who goes")
        self._name, self._left = names[chosen], self._data.draw(st.sampled_from([0, 1, 4, 40]), "for how long")
        return chosen


def run_parties(
    data: st.DataObject, past: History, names: list[str], *, dying: bool
) -> list[tuple[Party, BaseException | None]]:
    """All parties at once, step by step as it is drawn; what came of each."""
    turnstile = Runs(data).turnstile
    doors, parties = [], []
    for number, name in enumerate(names):
        door = Door(
            past.world.place.store, turnstile, str(number), data.draw(st.integers(0, number), f"process of {name}")
        )
        ends_at = data.draw(st.none() | st.integers(1, 15), f"end of {name}") if dying else None
        store = Roomless(door, {}, any_request)
        if name == "clean" and not dying:  # a tag that comes at the wrong moment is put right, if the cleanup lives
            store.refusals = data.draw(st.sampled_from([0, 0, 1, 2, 4, 6, 1000]), "notes without room")
        parties.append(Party(name, number, past.world.session(store), past, store))
        doors.append((door, store, ends_at))

    async def everything() -> list[Any]:
        with runtime.use_loop(asyncio.get_running_loop()):
            for party in parties:
                await party.prepare()
            for door, store, ends_at in doors:
                door.is_open = False
                if ends_at is not None:
                    store._script[len(store.seen) + ends_at] = Fault.CRASH
            return await turnstile.run([party.act() for party in parties])

    with asyncio.Runner(loop_factory=TurnstileLoop) as runner:
        done = runner.run(everything())
    return list(zip(parties, done, strict=True))


def added_since(past: History) -> Iterator[tuple[int, list[int], list[int]]]:
    """The versions that the parties made: number, rows before, rows after."""
    world = past.world
    before = past.contents[max(past.contents)]
    for manifest in world.manifests():
        if manifest.version > max(past.contents):
            after = numbers(world.open(manifest.version))
            yield manifest.version, before, after
            before = after


def check_indices(world: World) -> None:
    """The files of every index are there."""
    store: Any = world.place.store
    for manifest in world.manifests():
        for entry in decode_indices(manifest.index_section) if manifest.index_section else ():
            store.head_sync(world.place.key("_indices", entry.uuid, "page.lance"))


ALLOWED = (CommitConflictError, NotFound)


@pytest.mark.parametrize("dying", [False, True], ids=["all live", "some die"])
@pytest.mark.parametrize("database", [False, True], ids=["put-absent", "database"])
@settings(max_examples=ORDERS)
@given(data=st.data())
def test_nothing_is_lost_beside_a_cleanup(data: st.DataObject, database: bool, dying: bool) -> None:
    changes = data.draw(st.lists(st.sampled_from(sorted(CHANGES)), min_size=1, max_size=3, unique=True).map(tuple))
    past = history(changes, database=database)
    others = data.draw(st.lists(st.sampled_from(PARTIES), min_size=1, max_size=3))
    past.world.place.store.put_sync(past.world.place.key("data", "young.lance"), b"it tells the time")  # type: ignore[attr-defined]
    outcomes = run_parties(data, past, ["clean", *others], dying=dying)
    past.world.check()
    check_indices(past.world)
    made = {version: (before, after) for version, before, after in added_since(past)}
    assert all(len(set(after)) == len(after) for _, after in made.values()), "rows are there twice"
    tags = past.world.open().tags.list()
    for party, outcome in outcomes:
        assert outcome is None or isinstance(outcome, (*ALLOWED, Crashed)), outcome
        if party.name == "clean" or (party.name == "append" and "restore" not in others):
            assert outcome is None or isinstance(outcome, Crashed), outcome  # nothing may stop it
        if party.name == "restore" and outcome is None:
            assert any(after == FIRST for _, after in made.values())
        if party.name == "tag" and outcome is None:
            assert tags[f"party{party.number}"]["version"] == 1
        if party.rows:
            versions = [
                version for version, (before, after) in made.items() if party.rows[0] in set(after) - set(before)
            ]
            assert len(versions) <= 1 or "restore" in others
            if outcome is None:
                before, after = made[party.version]
                assert after == sorted([*before, *party.rows])
                assert "stale" not in party.name or past.is_same or set(before) & set(FIRST)
            elif not isinstance(outcome, Crashed):
                assert not versions, f"it failed and is there: {outcome}"
