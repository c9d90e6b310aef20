"""Manifests under two names: renamings that end after each of their writes, and drawn orders of writers beside them.

A table whose manifests have V1 names, from version 1 or from version 5 on, up to 7. The V1 name of version 1 sorts in
front of all V2 names, the others behind them. Whatever is done where a renaming has ended, nothing is lost, doubled or
out of date, and another renaming finishes.

`LANCE_IO_ORDERS` says how many orders are drawn.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lance_io
from lance_io import runtime
from lance_io.changes.write.write_fragments import write_fragments_async
from lance_io.commit.pins import VALID_S
from lance_io.commit.put_absent import PutAbsentHandler
from lance_io.commit.target import SystemClock
from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.errors import CommitConflictError, FormatError
from lance_io.reads.version.session import Session
from lance_io.store.local.disk import LocalStore
from lance_io.store.url import Location
from lance_io.table.manifest.paths import parse_manifest_name
from lance_io.testing.faults import Crashed, Fault, FaultyStore
from lance_io.testing.turnstile import TurnstileLoop
from tests.simulate.test_crashes import run
from tests.simulate.test_orders import NOW, Door, Runs, any_request, loop_time
from tests.simulate.world import SCHEMA, URI, World, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.servers import S3Server

ORDERS = int(os.environ.get("LANCE_IO_ORDERS", "40"))
NUM_VERSIONS = 7
ROWS = [*range(NUM_VERSIONS)]
FIRSTS = pytest.mark.parametrize("first", [1, 5])


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, bytes]]:
    """The files of the tables, by the number of their first version. Row n came with version n + 1."""
    found = {}
    for first in (1, 5):
        folder = tmp_path_factory.mktemp("old") / "t"
        for number in ROWS:
            mode = "append" if number else "create"
            lance_io.write_dataset(pa.table({"a": [number]}), folder, mode=mode, enable_v2_manifest_paths=False)
        if first > 1:
            old = [*range(1, first)]
            lance_io.dataset(folder).cleanup_old_versions(older_than=timedelta(0), versions=old)
        (folder / "_versions" / "latest_version_hint.json").unlink()
        files = [path for path in folder.rglob("*") if path.is_file()]
        found[first] = {str(path.relative_to(folder)): path.read_bytes() for path in files}
        assert len([name for name in found[first] if name.endswith(".manifest")]) == NUM_VERSIONS + 1 - first
    return found


@dataclass
class Place:
    """Where a table is, and how processes see it."""

    uri: str
    location: Location

    def session(self, script: Mapping[int, Fault] | None = None) -> tuple[Session, FaultyStore]:
        """That of a new process, whose writes fail as a script says."""
        store = FaultyStore(self.location.store, script or {})
        session = Session()
        session._handlers[store] = PutAbsentHandler()
        session.locate = lambda uri, options: Location(store, self.location.path, self.uri)
        return session, store

    async def fill(self, files: Mapping[str, bytes]) -> None:
        """Put the files of a table there."""
        for name, data in files.items():
            await self.location.store.put(self.location.key(*name.split("/")), data)

    async def names(self) -> list[str]:
        """Of the manifests."""
        listed = [meta async for meta in self.location.store.list(self.location.key("_versions", ""))]
        return [meta.name for meta in listed if parse_manifest_name(meta.name) is not None]

    async def copy_to(self, folder: Path) -> str:
        """The table on local disk, for pylance."""
        async for meta in self.location.store.list(self.location.key("")):
            path = folder / meta.key[len(self.location.key("")) :]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes((await self.location.store.get(meta.key))[0]))
        return str(folder)


async def migrate(place: Place, script: Mapping[int, Fault] | None = None) -> FaultyStore:
    """A renaming by a process of its own, to its end."""
    session, store = place.session(script)
    try:
        await (await AsyncDataset.open(place.uri, session=session)).migrate_manifest_paths_v2()
    except Crashed:
        assert script
    return store


class Afterwards:
    """What others do with a table, each in a process of its own, and what must be true then."""

    def __init__(self, place: Place, first: int) -> None:
        self.place = place
        self.versions = {number + 1: [*range(number + 1)] for number in range(first - 1, NUM_VERSIONS)}

    async def open(self, version: int | None = None) -> AsyncDataset:
        return await AsyncDataset.open(self.place.uri, version, session=self.place.session()[0])

    async def read(self) -> None:
        """The newest version, every other by its number, and their list."""
        newest = await self.open()
        assert newest.version == max(self.versions)
        assert await newest.latest_version() == max(self.versions)
        assert [one["version"] for one in await newest.versions()] == sorted(self.versions)
        for version in {max(self.versions), min(self.versions)}:
            found = await (await self.open(version)).to_table()
            assert sorted(found["a"].to_pylist()) == self.versions[version]

    async def append(self) -> None:
        """A row, once, in the next version."""
        newest = max(self.versions)
        row = pa.table({"a": [100 + newest]})
        made = await AsyncDataset.write(row, self.place.uri, mode="append", session=self.place.session()[0])
        assert made.version == newest + 1
        self.versions[newest + 1] = [*self.versions[newest], 100 + newest]

    async def append_by(self, stale: AsyncDataset) -> None:
        """The same by a handle that was open before the renaming began."""
        newest = max(self.versions)
        await stale.insert(pa.table({"a": [100 + newest]}))
        assert stale.version == newest + 1
        self.versions[newest + 1] = [*self.versions[newest], 100 + newest]

    async def clean(self) -> None:
        """All versions but the newest, and those that the note of the renaming spares for ten minutes."""
        table = await self.open()
        await table.cleanup_old_versions(older_than=timedelta(0))
        left = {one["version"] for one in await table.versions()}
        assert max(self.versions) in left <= {*self.versions}
        self.versions = {version: there for version, there in self.versions.items() if version in left}

    async def migrate(self) -> None:
        """It finishes."""
        await migrate(self.place)
        assert {parse_manifest_name(name).scheme for name in await self.place.names()} == {"V2"}
        assert len(await self.place.names()) == len(self.versions)


ALL_IN_TURN = ("read", "append", "read", "clean", "read", "migrate", "read", "append", "read")
SEQUENCES = (
    ("append_by", "migrate", "read"),
    ("clean", "append", "read", "migrate", "read"),
    ("migrate", "clean", "append_by", "read"),
)


async def stop_everywhere(
    make: Callable[[], Place], files: Mapping[str, bytes], first: int, folder: Path, sequences: Any = ()
) -> None:
    """End a renaming after each of its writes, and do everything else afterwards."""
    number = 0
    while True:
        num_writes = 0
        chosen = (ALL_IN_TURN, *(sequences[number % len(sequences) :][:1] if sequences else ()))
        for at, sequence in enumerate(chosen):
            place = make()
            await place.fill(files)
            after = Afterwards(place, first)
            stale = await after.open()
            num_writes = len((await migrate(place, {number: Fault.CRASH})).seen)
            for step in sequence:
                await getattr(after, step)(*([stale] if step == "append_by" else []))
            copied = lance.dataset(await place.copy_to(folder / f"{number}-{at}"))
            assert [one["version"] for one in copied.versions()] == sorted(after.versions)
            assert sorted(copied.to_table()["a"].to_pylist()) == after.versions[max(after.versions)]
        if number >= num_writes:
            assert num_writes >= 4  # a note, copies, removals
            return
        number += 1


@FIRSTS
async def test_a_renaming_may_end_anywhere_in_memory(
    tables: dict[int, dict[str, bytes]], tmp_path: Path, first: int
) -> None:
    def make() -> Place:
        world = World()
        return Place(URI, world.place)

    await stop_everywhere(make, tables[first], first, tmp_path, SEQUENCES)


@FIRSTS
async def test_a_renaming_may_end_anywhere_on_local_disk(
    tables: dict[int, dict[str, bytes]], tmp_path: Path, first: int
) -> None:
    numbers = iter(range(1000))

    def make() -> Place:
        uri = str(tmp_path / f"t{next(numbers)}")
        return Place(uri, Location(LocalStore(), uri, uri))

    await stop_everywhere(make, tables[first], first, tmp_path / "copies")


@FIRSTS
async def test_a_renaming_may_end_anywhere_on_s3(
    tables: dict[int, dict[str, bytes]], tmp_path: Path, first: int, s3: S3Server, s3_uri: str
) -> None:
    from lance_io.commit.table_location import open_location

    numbers = iter(range(1000))
    bucket, _ = open_location(s3_uri, s3.options())

    def make() -> Place:
        number = next(numbers)
        uri = f"{s3_uri}/{number}"
        return Place(uri, Location(bucket.store, bucket.key(str(number)), uri))

    await stop_everywhere(make, tables[first], first, tmp_path)
    await bucket.store.aclose()


# -- drawn orders ------------------------------------------------------------------------------------------------------


@pytest.fixture
def one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left to chance but the order; no pause lasts, for a turnstile's time is virtual."""
    monkeypatch.setattr("lance_io.commit.put_absent.FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(SystemClock, "time_ns", lambda self: int(NOW.seconds * 1e9))
    monkeypatch.setattr(SystemClock, "monotonic", lambda self: loop_time())
    monkeypatch.setattr(SystemClock, "random", lambda self: 0.0)


@dataclass
class Party:
    """One who changes the table beside others; each is a process of its own.

    handle  that was open before all others began
    ready   transactions whose rows are written
    made    versions that it was told are committed; rows: their rows
    """

    name: str
    number: int
    session: Session
    handle: Any = None
    ready: list[tuple[int, Any]] = field(default_factory=list)
    made: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    async def prepare(self) -> None:
        """Open the table, and write rows: that takes threads, which nobody puts in order."""
        self.handle = await AsyncDataset.open(URI, session=self.session)
        if "append" in self.name:
            for number in (1000 + 10 * self.number, 1001 + 10 * self.number):
                how = {"mode": "append", "session": self.session, "return_transaction": True}
                self.ready.append((number, await write_fragments_async(rows(number, 1), URI, SCHEMA, **how)))

    async def act(self) -> None:
        """Do it."""
        await getattr(self, self.name.replace(" ", "_"))()

    async def migrate(self) -> None:
        await self.handle.migrate_manifest_paths_v2()

    async def clean(self) -> None:
        await self.handle.cleanup_old_versions(timedelta(hours=1))

    async def append(self) -> None:
        """By the handle that was open before, and then by its own version."""
        for row, transaction in self.ready:
            self.handle = await AsyncDataset.commit(self.handle, transaction)
            self._tell(row)

    async def append_anew(self) -> None:
        """By the URI."""
        for row, transaction in self.ready:
            self.handle = await AsyncDataset.commit(URI, transaction, session=self.session)
            self._tell(row)

    async def open_and_append(self) -> None:
        """By a handle that is opened in between."""
        for row, transaction in self.ready:
            self.handle = await AsyncDataset.open(URI, session=self.session)
            self.handle = await AsyncDataset.commit(self.handle, transaction)
            self._tell(row)

    def _tell(self, row: int) -> None:
        self.rows.append(row)
        self.made.append(self.handle.version)

    async def configure(self) -> None:
        """By the handle that was open before, which builds on its version."""
        await self.handle.update_config({f"key{self.number}": "there"})
        self.made.append(self.handle.version)


WRITERS = ("append", "append anew", "open and append", "configure")
_histories: dict[tuple[int, bool], World] = {}


def old_world(first: int, tables: dict[int, dict[str, bytes]], *, half_done: bool) -> World:
    """The table a day ago; half done: as another library's renaming left it that began with the oldest version."""
    key = first, half_done
    if key not in _histories:
        world = World()
        store: Any = world.place.store
        store._clock = lambda: NOW.seconds - 24 * 3600
        for name, data in tables[first].items():
            number = name.removeprefix("_versions/").removesuffix(".manifest")
            if half_done and number.isdecimal() and int(number) < 6:
                name = f"_versions/{2**64 - 1 - int(number):020d}.manifest"
            store.put_sync(world.place.key(*name.split("/")), data)
        _histories[key] = world
    world = _histories[key].copy()
    world.place.store._clock = lambda: NOW.seconds  # type: ignore[attr-defined]
    return world


def run_parties(data: st.DataObject, world: World, names: list[str], *, dying: bool) -> list[tuple[Party, Any]]:
    """All parties at once, step by step as it is drawn; what came of each."""
    turnstile = Runs(data).turnstile
    doors, parties = [], []
    for number, name in enumerate(names):
        door = Door(world.place.store, turnstile, str(number), number)
        ends_at = data.draw(st.none() | st.integers(1, 15), f"end of {name}") if dying else None
        store = FaultyStore(door, {}, any_request)
        parties.append(Party(name, number, world.session(store)))
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


@pytest.mark.usefixtures("one_clock")
@pytest.mark.parametrize("dying", [False, True], ids=["all live", "some die"])
@settings(max_examples=max(ORDERS // 2, 1))
@given(data=st.data())
def test_of_two_names_of_a_number_one_is_acknowledged(
    tables: dict[int, dict[str, bytes]], data: st.DataObject, dying: bool
) -> None:
    first, half_done = data.draw(st.sampled_from([1, 5])), data.draw(st.booleans())
    world = old_world(first, tables, half_done=half_done)
    names = ["migrate", *data.draw(st.lists(st.sampled_from(WRITERS), min_size=2, max_size=3))]
    names += data.draw(st.lists(st.sampled_from(["migrate", "clean", *WRITERS]), max_size=1))
    outcomes = run_parties(data, world, names, dying=dying)
    world.check()
    for party, outcome in outcomes:
        is_expected = outcome is None or isinstance(outcome, Crashed) or is_taken_back(outcome)
        assert is_expected or (party.name == "migrate" and is_of_two(outcome)), (party.name, outcome)
    version, there = world.newest()
    finish(world, is_anyone_dead=dying)
    assert world.check() == (version, there)
    assert len(set(there)) == len(there), "rows are there twice"
    assert {*ROWS} <= {*there}, "old rows are lost"
    told = [number for party, _ in outcomes for number in party.made]
    assert len(set(told)) == len(told), "two were told of one number"
    assert set(told) <= {one.version for one in world.manifests()}
    config = world.open().config()
    for party, outcome in outcomes:
        assert {*party.rows} <= {*there}, f"{party.name}: lost"
        assert not party.made or party.name != "configure" or config[f"key{party.number}"] == "there"
        if is_taken_back(outcome) and party.name == "configure":
            assert f"key{party.number}" not in config
    store: Any = world.place.store
    named = [parse_manifest_name(meta.name) for meta in store.list_sync(world.place.key("_versions", ""))]
    assert {name.scheme for name in named if name is not None} == {"V2"}


def is_of_two(outcome: Any) -> bool:
    """Whether a renaming has met a manifest that its writer had not taken back yet."""
    return isinstance(outcome, FormatError) and "two manifests that differ" in str(outcome)


def finish(world: World, *, is_anyone_dead: bool) -> None:
    """A renaming, beside nobody. Who died before taking a manifest back has left one of two, which a user removes."""
    outcome = run(world.session(), migrate_world)
    if isinstance(outcome, CommitConflictError) and "a cleanup is about to remove" in str(outcome):
        assert is_anyone_dead  # it has died, and what it announced counts for ten minutes
        NOW.seconds += VALID_S + 1
        outcome = run(world.session(), migrate_world)
        NOW.seconds -= VALID_S + 1
    if outcome is None:
        return
    assert is_anyone_dead and is_of_two(outcome), outcome
    store: Any = world.place.store
    for meta in store.list_sync(world.place.key("_versions", "")):
        name = parse_manifest_name(meta.name)
        if name is not None and name.scheme == "V1":
            assert store.get_sync(world.place.key("_versions", f"{2**64 - 1 - name.version:020d}.manifest"))
            store.delete_sync((meta.key,))
    assert run(world.session(), migrate_world) is None


def is_taken_back(outcome: Any) -> bool:
    """Whether a handle stood on a version that its writer has taken back."""
    return isinstance(outcome, CommitConflictError) and "was taken back" in str(outcome)


async def migrate_world(session: Session) -> None:
    await (await AsyncDataset.open(URI, session=session)).migrate_manifest_paths_v2()
