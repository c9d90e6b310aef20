"""Whatever fails after the write that decides a commit: the version that is there has all of its files.

Each change of a table fails at a later step: at a request, at the release of a lock, at a listener, or wherever the
package calls one of its functions. Then a fresh process reads the table: it is the old one or the new one, every file
that a version names is there, and another change succeeds.

`LANCE_IO_SIMULATE` is how many of the steps are tried, 50 for all.
"""

from __future__ import annotations

import random
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import lance_io
from lance_io.commit.lock import LockHandler
from lance_io.commit.target import SystemClock
from lance_io.errors import AccessDenied, CommitConflictError, NotFound
from lance_io.io import trace_events
from lance_io.store.failures import Transient
from tests.seeds import seed_of
from tests.simulate.chain_calls import CALLS
from tests.simulate.chain_world import ChainWorld, Change, Party, SeenStore
from tests.simulate.test_chains import world_of
from tests.simulate.world import SIZE, URI

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from lance_io.testing.wrap import Request

NAMES: Final = (
    "append",
    "group-append",
    "commit-append",
    "distributed",
    "delete",
    "update",
    "merge",
    "patch",
    "compact",
    "compact-deferred",
    "add-function",
    "cast",
    "drop",
    "restore",
)
COMMITS: Final = {"compact": 2, "compact-deferred": 2}  # how many a call makes
ROOT: Final = str(Path(lance_io.__file__).parent)
ROOMS: Final = tuple(f"{ROOT}/{room}/" for room in ("dataset", "changes", "reads"))
STEPS: Final = 2 * SIZE**2  # of those where functions are called


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trying again is at once."""
    monkeypatch.setattr(SystemClock, "random", lambda self: 0.0)
    monkeypatch.setattr("lance_io.commit.put_absent.FIRST_PAUSE_S", 0.0)


def conflict() -> CommitConflictError:
    """What a step may say that has nothing to do with the version that is there."""
    return CommitConflictError("scripted: another one was faster")


class DecidedStore(SeenStore):
    """Knows when the deciding write of the n-th commit was applied; then `later` is called with each request."""

    def __init__(self, inner: Any, commits: int) -> None:
        super().__init__(inner, 0)
        self._left = commits
        self.later: Callable[[Request], None] = lambda _: None
        self.refuses: Exception | None = None  # what the deciding write raises instead of being made
        self.loses: Exception | None = None  # or after it was made
        self.decided = 0

    @property
    def is_decided(self) -> bool:
        """Whether the version is there, or was refused."""
        return self._left == 0

    def _record_request(self, request: Request) -> None:
        if self.is_decided:
            self.later(request)

    def put_sync(self, key: str, data: Any, **options: Any) -> Any:
        """Write an object."""
        decides = not self.is_decided and "/_versions/" in key and key.endswith(".manifest")
        if decides and self._left == 1 and self.refuses is not None:
            self._left -= 1
            raise self.refuses
        meta = super().put_sync(key, data, **options)
        self._left -= decides
        if decides and self.is_decided and self.loses is not None:
            raise self.loses
        return meta


def party_of(world: ChainWorld, name: str) -> tuple[Party, DecidedStore]:
    """One who makes a change, and the store as seen by it."""
    store = DecidedStore(world.store, COMMITS.get(name, 1))
    party = Party(world, Change(name), store, world.session(store))
    return party, store


def attempt(name: str, party: Party) -> BaseException | None:
    """What the change raises."""
    try:
        CALLS[name](party)
    except (Exception, KeyboardInterrupt) as error:
        return error
    return None


_expected: dict[str, tuple[int, Any]] = {}


def expected(name: str) -> tuple[int, Any]:
    """Number and content of the version that the change makes when nothing fails."""
    if name not in _expected:
        world = world_of(stable=False, database=False)
        party, store = party_of(world, name)
        assert attempt(name, party) is None and store.is_decided
        _expected[name] = content(world)
    return _expected[name]


def content(world: ChainWorld) -> tuple[int, Any]:
    """Number and rows of the newest version, as a fresh process reads them; all versions are whole."""
    for manifest in world.manifests():
        world._check_files(manifest)
    table = world.open()
    return table.version, sorted(table.to_table().to_pylist(), key=lambda row: row["a"])


def check(world: ChainWorld, name: str, *, committed: bool = True) -> None:
    """The table is the new one, or the one before, and can be changed."""
    new = expected(name)
    if committed:
        assert content(world) == new
    else:
        assert content(world)[0] < new[0]
        assert content(world)[1] == content(world_of(stable=False, database=False))[1]
    world.open().delete("a = 12")
    version, rows = content(world)
    assert 12 not in {row["a"] for row in rows}
    assert world.open(version - 1).count_rows() == len(rows) + 1


# -- requests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault", [AccessDenied, Transient, RuntimeError, KeyboardInterrupt], ids=lambda one: one.__name__
)
@pytest.mark.parametrize("name", NAMES)
def test_later_requests_may_fail(name: str, fault: type[BaseException]) -> None:
    """All of them; and each alone."""
    number, count = -1, 1
    while number < count:
        world = world_of(stable=False, database=False)
        party, store = party_of(world, name)
        seen: list[Request] = []

        def later(request: Request, seen: list[Request] = seen, number: int = number) -> None:
            seen.append(request)
            if number in (-1, len(seen) - 1):
                raise fault(f"scripted: {request}")

        store.later = later
        error = attempt(name, party)
        assert isinstance(error, (fault, type(None), OSError))
        check(world, name)
        count, number = max(count, len(seen)) if number < 0 else count, number + 1


# -- locks -----------------------------------------------------------------------------------------------------------


class FailingLock:
    """A commit lock that fails at its release of the n-th commit."""

    def __init__(self, fault: BaseException, commits: int) -> None:
        self.fault, self.left, self.released = fault, commits, 0

    @contextmanager
    def __call__(self, version: int) -> Iterator[None]:
        try:
            yield
        finally:
            self.left -= 1
            if self.left == 0:
                self.released += 1
                raise self.fault


LOCK_FAULTS: Final = (RuntimeError("the lock"), AccessDenied("the lock"), conflict(), NotFound("the lock"))


def locked(world: ChainWorld, name: str, fault: BaseException) -> tuple[Party, DecidedStore, FailingLock]:
    """One who commits under a lock that fails."""
    party, store = party_of(world, name)
    lock = FailingLock(fault, COMMITS.get(name, 1))
    party.session._handlers[store] = LockHandler(lock)
    party.table = lance_io.dataset(URI, session=party.session)
    return party, store, lock


@pytest.mark.parametrize("fault", LOCK_FAULTS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("name", NAMES)
def test_a_lock_may_fail_at_its_release(name: str, fault: BaseException) -> None:
    world = world_of(stable=False, database=False)
    party, _, lock = locked(world, name, fault)
    attempt(name, party)
    assert lock.released
    check(world, name)


@pytest.mark.parametrize("fault", LOCK_FAULTS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("name", NAMES)
def test_a_lock_may_fail_behind_a_write_that_failed(name: str, fault: BaseException) -> None:
    """Refused, nothing is there; with its answer lost, and nothing to be read, the version is."""
    for refused in (True, False):
        world = world_of(stable=False, database=False)
        party, store, lock = locked(world, name, fault)
        if refused:
            store.refuses = AccessDenied("scripted: refused")
        else:
            store.loses = Transient("scripted: the answer was lost")
            store.later = _fail_reading
        error = attempt(name, party)
        assert error is not None and lock.released
        store.later = lambda _: None
        check(world, name, committed=not refused)


def _fail_reading(request: Request) -> None:
    if request.operation in ("get", "head", "list"):
        raise Transient(f"scripted: {request}")


# -- listeners and every other step ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [RuntimeError("a listener"), conflict()], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("name", NAMES)
def test_listeners_may_fail(name: str, fault: Exception) -> None:
    world = world_of(stable=False, database=False)
    party, store = party_of(world, name)
    told = []

    def listen(event: Any) -> None:
        if store.is_decided:
            told.append(event)
            raise fault

    stop = trace_events.listen(listen)
    try:
        attempt(name, party)
    finally:
        stop()
    assert told
    check(world, name)


class Fuse:
    """Raises where the n-th function of the package is called after the deciding write, or a plan of it goes on.

    below  the folder whose functions count
    seen   how many there were
    """

    def __init__(self, store: DecidedStore, number: int, fault: BaseException, below: str) -> None:
        self._store, self._number, self._fault, self._below = store, number, fault, below
        self.seen = 0

    def trace(self, frame: FrameType, event: str, _: Any) -> None:
        """For `sys.settrace`."""
        if event != "call" or not self._store.is_decided or not frame.f_code.co_filename.startswith(self._below):
            return
        self.seen += 1
        if self.seen - 1 == self._number:
            raise self._fault


def _burn(name: str, number: int, fault: BaseException, below: str) -> int:
    """A change that fails at a step; gives how many steps there were until then."""
    world = world_of(stable=False, database=False)
    party, store = party_of(world, name)
    fuse = Fuse(store, number, fault, below)
    earlier = sys.gettrace()
    sys.settrace(fuse.trace)
    try:
        attempt(name, party)
    finally:
        sys.settrace(earlier)
    check(world, name)
    return fuse.seen


@pytest.mark.parametrize(
    ("fault", "below"),
    [
        (RuntimeError("scripted"), f"{ROOT}/"),
        (KeyboardInterrupt("scripted"), f"{ROOT}/"),
        (conflict(), ROOMS),  # further below it would be an answer of the store, or of the handler
        (AccessDenied("scripted"), ROOMS),
    ],
    ids=["RuntimeError", "KeyboardInterrupt", "CommitConflictError", "AccessDenied"],
)
@pytest.mark.parametrize("name", NAMES)
def test_any_later_step_may_fail(name: str, fault: BaseException, below: str) -> None:
    count = _burn(name, -1, fault, below)
    assert count
    dice = random.Random(seed_of(f"steps {name} {fault!r}"))
    for number in sorted(dice.sample(range(count), min(STEPS, count))):
        _burn(name, number, fault, below)
