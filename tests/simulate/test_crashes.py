"""Every request of every change refused, its answer lost, or its process gone, through the public interface.

Each case runs once to count its requests, then once for every one of them that writes and every fault. Afterwards the
table is the old one or the new one and whole; trying again gives every row once. Besides, scripts of two faults, on
reads as well, are drawn.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from lance_io import runtime
from lance_io.changes.upkeep.held_versions import RefConflict
from lance_io.changes.write.write_fragments import write_fragments_async
from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.errors import AccessDenied, CommitUnknownError, LanceError
from lance_io.table.manifest.paths import parse_manifest_name
from lance_io.testing.faults import Crashed, Fault, FaultyStore, is_write
from lance_io.testing.latency import run_virtual
from tests.seeds import seed_of
from tests.simulate.world import CASES, SCHEMA, SIZE, URI, Case, World, append, commit_of, create, rows

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lance_io.reads.version.session import Session
    from lance_io.testing.wrap import Request

SCRIPTS = 4 * SIZE  # per case
FAULTS = (Fault.REFUSED, Fault.LOST_ANSWER, Fault.CRASH)
REQUESTS_MAX = 60


def run(session: Session, change: Callable[[Session], Awaitable[Any]]) -> BaseException | None:
    """What a change raised; time does not pass for pauses."""

    async def body() -> BaseException | None:
        import asyncio

        with runtime.use_loop(asyncio.get_running_loop()):
            try:
                await change(session)
            except (LanceError, Crashed) as error:
                return error
        return None

    return run_virtual(body)[0]


_worlds: dict[tuple[Any, bool], World] = {}


def world_of(case: Case, *, database: bool) -> World:
    """The world before the change of a case."""
    key = (case.before, database)
    if key not in _worlds:
        world = World(rows={} if database else None)
        for change in case.before:
            assert run(world.session(), change) is None
        _worlds[key] = world
    return _worlds[key].copy()


def any_request(_: Request) -> bool:
    """Reads count, too."""
    return True


def num_requests(case: Case, counts: Callable[[Request], bool], *, database: bool) -> int:
    """How many requests the change makes when nothing fails; checks the case itself, too."""
    world = world_of(case, database=database)
    store = FaultyStore(world.place.store, counts=counts)
    version = world.newest()[0]
    assert run(world.session(store), case.change) is None
    assert world.check() == (version + case.commits, list(case.after))
    assert 0 < len(store.seen) < REQUESTS_MAX
    return len(store.seen)


def check_faults(case: Case, script: dict[int, Fault], counts: Callable[[Request], bool], *, database: bool) -> None:
    """Run the change under faults, look at what is left, try again, look again."""
    world = world_of(case, database=database)
    old_version, old = world.newest()
    expected = (old_version + case.commits, list(case.after))
    store = FaultyStore(world.place.store, script, counts)
    session, change = world.session(store), case.change
    for _ in range(len(script) + 1):
        outcome = run(session, change)
        left = world.check()
        assert left in ((old_version, old), expected), outcome
        if outcome is None:
            break
        if isinstance(outcome, CommitUnknownError):
            if outcome.transaction is None:
                return  # a tag: it may be there
            change = commit_of(outcome)
        elif isinstance(outcome, Crashed):
            session = world.session()
            if left == expected and case.commits:
                return  # nobody is left who would try again
        elif isinstance(outcome, RefConflict) and store.is_crashed:
            return  # what a process that is gone has named is nobody else's
        else:
            assert not case.commits or left == (old_version, old), f"committed, but told otherwise: {outcome!r}"
    assert outcome is None, f"trying again did not help: {outcome!r}"
    assert left == expected


@pytest.mark.parametrize("database", [False, True], ids=["put-absent", "database"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("fault", FAULTS)
def test_every_write_may_fail(case: Case, fault: Fault, database: bool) -> None:
    for number in range(num_requests(case, is_write, database=database)):
        check_faults(case, {number: fault}, is_write, database=database)


@pytest.mark.parametrize("database", [False, True], ids=["put-absent", "database"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_two_requests_may_fail(case: Case, database: bool) -> None:
    dice = random.Random(seed_of(f"{case.name} {database}"))
    count = num_requests(case, any_request, database=database) + 4  # what is done about the first fault
    for _ in range(SCRIPTS):
        script = {dice.randrange(count): dice.choice(FAULTS) for _ in range(2)}
        check_faults(case, script, any_request, database=database)


# -- the same transaction, again and again ---------------------------------------------------------------------------


@pytest.mark.parametrize("database", [False, True], ids=["put-absent", "database"])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_same_transaction_is_applied_once(mode: str, fault: Fault, database: bool) -> None:
    """Files first, then as many commits of one transaction as it takes, by this process and by others."""
    before = () if mode == "overwrite" else (create,)
    case = Case(mode, append, before, ())
    number, count = 0, 1
    while number < count:
        world = world_of(case, database=database)
        old_version, old = world.newest()
        made: list[Any] = []

        async def write(session: Session, made: list[Any] = made) -> None:
            options = {"session": session, "return_transaction": True}
            made.append(await write_fragments_async(rows(50), URI, SCHEMA, mode=mode, **options))

        async def commit(session: Session, made: list[Any] = made) -> None:
            await AsyncDataset.commit(URI, made[0], session=session)

        assert run(world.session(), write) is None
        if number == 0:
            rehearsal = world.copy()
            counting = FaultyStore(rehearsal.place.store, counts=any_request)
            assert run(rehearsal.session(counting), commit) is None
            count = len(counting.seen)
        store = FaultyStore(world.place.store, {number: fault}, any_request)
        session = world.session(store)
        new = sorted([*old, *range(50, 56)])
        while (outcome := run(session, commit)) is not None:
            assert world.check() in ((old_version, old), (old_version + 1, new))
            if isinstance(outcome, Crashed):
                break
        assert run(world.session(), commit) is None
        assert world.check() == (old_version + 1, new)
        assert run(world.session(), append) is None
        assert run(world.session(), commit) is None  # recognised below the newest version, too
        assert world.check() == (old_version + 2, sorted([*new, *range(10, 16)]))
        number += 1


@pytest.mark.parametrize("database", [False, True], ids=["put-absent", "database"])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_failing_to_commit_again_damages_nothing(mode: str, database: bool) -> None:
    """What a call wrote that fails may be what an earlier one has committed."""
    world = world_of(Case(mode, append, () if mode == "overwrite" else (create,), ()), database=database)
    made: list[Any] = []

    async def write(session: Session) -> None:
        made.append(
            await write_fragments_async(rows(50), URI, SCHEMA, mode=mode, session=session, return_transaction=True)
        )

    async def commit(session: Session) -> None:
        await AsyncDataset.commit(URI, made[0], session=session)

    assert run(world.session(), write) is None
    assert run(world.session(), commit) is None
    committed = world.newest()
    for number in range(REQUESTS_MAX):
        for fault in FAULTS:
            store = FaultyStore(world.place.store, {number: fault}, any_request)
            run(world.session(store), commit)
            assert world.check() == committed
        if len(store.seen) <= number:
            return
    raise AssertionError("it makes fewer requests")


def test_writing_again_is_another_append() -> None:
    """What a process that is gone had committed, nobody recognises by its rows."""
    world = world_of(Case("append", append, (create,), ()), database=False)
    store = FaultyStore(world.place.store, {3: Fault.CRASH})
    assert isinstance(run(world.session(store), append), Crashed)
    assert world.newest()[0] == 2
    assert run(world.session(), append) is None
    assert world.newest() == (3, sorted([*range(6), *range(10, 16), *range(10, 16)]))


def test_retrying_by_the_same_open_table() -> None:
    """An open table that failed to append appends when it is told to again."""
    world = world_of(Case("append", append, (create,), ()), database=False)
    store = FaultyStore(world.place.store, {0: Fault.REFUSED, 3: Fault.LOST_ANSWER})
    tables: list[AsyncDataset] = []

    async def insert(session: Session) -> None:
        if not tables:
            tables.append(await AsyncDataset.open(URI, session=session))
        await tables[0].insert(rows(10), schema=SCHEMA)

    session = world.session(store)
    while run(session, insert) is not None:
        world.check()
    assert world.newest() == (2, [*range(6), *range(10, 16)])


class Denied(FaultyStore):
    """The answer to the deciding write is lost, and then nothing may be read any more."""

    async def request(self, request: Request, send: Callable[[], Awaitable[Any]]) -> Any:
        """Carry out a request, unless it is a read after the deciding write."""
        if request.operation in self.denied and any(each.operation == "put_create" for each in self.seen):
            raise AccessDenied("the token has expired", path=request.key)
        return await super().request(request, send)

    denied: frozenset[str] = frozenset({"get", "head"})


@pytest.mark.parametrize("happened", [False, True])
@pytest.mark.parametrize("case", [case for case in CASES if case.commits], ids=lambda case: case.name)
def test_an_unknown_commit_is_made_sure(case: Case, happened: bool) -> None:
    """Its error has the transaction, whatever the change was: committing that gives the version, once."""
    world = world_of(case, database=False)
    session, version = world.session(), world.newest()[0]

    def is_decisive(request: Request) -> bool:
        return request.operation == "put_create" or (request.operation == "get" and is_new(request.key))

    def is_new(key: str) -> bool:
        name = parse_manifest_name(key.rpartition("/")[2])
        return "/_versions/" in key and name is not None and name.version == version + 1

    faults = {0: Fault.LOST_ANSWER if happened else Fault.REFUSED, **dict.fromkeys(range(1, 20), Fault.REFUSED)}
    unknown = run(world.session(FaultyStore(world.place.store, faults, is_decisive)), case.change)
    assert isinstance(unknown, CommitUnknownError)
    assert world.newest()[0] == version + happened
    for _ in range(2):
        assert run(session, commit_of(unknown)) is None
        assert world.check() == (version + 1, list(case.after))


@pytest.mark.parametrize("denied", ["get", "head"])
def test_a_commit_that_cannot_be_read_back_keeps_its_files(denied: str) -> None:
    world = world_of(Case("append", append, (create,), ()), database=False)
    store = Denied(world.place.store, {3: Fault.LOST_ANSWER})
    store.denied = frozenset({denied})
    outcome = run(world.session(store), append)
    assert isinstance(outcome, CommitUnknownError if denied == "get" else type(None))
    assert world.check() == (2, [*range(6), *range(10, 16)])
