"""Commits of one process to one table take turns, and tell each other what they made.

Writers in several processes learn from a lost attempt that another was faster; those in one process need not. Each
uploads what belongs to its change whenever it likes, and then waits until those before it have created their
manifests. Which these were it is told, so that it builds on the newest without listing or reading anything.

Nothing depends on it: create-if-absent decides here as it does between processes. So a turn is a lease only. Whoever
has it for longer than `LEASE_S`, because a store does not answer or because a callback inside the commit commits to
the same table, goes on without it, and the next one is let through.

What was told is forgotten when no commit to the table is under way, but for the number of the newest version: a
listing that was made before that version is made again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

from lance_io.commit.rivals import Rivals
from lance_io.plans.plan import Wait
from lance_io.records import dataclass
from lance_io.store.forking import survive_fork

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.commit.latest import VersionFile
    from lance_io.commit.target import Clock
    from lance_io.plans.plan import Plan
    from lance_io.store.url import Location
    from lance_io.table.manifest.manifest import Manifest
    from lance_io.table.transaction.transaction import Transaction

LEASE_S: Final = 2.0  # several times what the last rounds of a commit to a distant store take
VERSIONS_TOLD_MAX: Final = 64
TABLES_MAX: Final = 256  # whose newest version is remembered


@dataclass(frozen=True, slots=True)
class Made:
    """A version that a commit of this process made.

    base  the manifest file of the version before it, on which it was built
    """

    base: VersionFile
    file: VersionFile
    transaction: Transaction


@dataclass(frozen=True, slots=True)
class Told:
    """Versions that commits of this process made, each on the one before.

    manifest  of the last one
    asked_at  when that was about to be created: it was the newest then
    """

    versions: tuple[Made, ...]
    manifest: Manifest
    asked_at: float


@dataclass(slots=True)
class _Table:
    """What the commits to one table share.

    num_commits  that are under way
    queue        of these, those that wait; the first one has the turn
    told         what they made
    newest       number of the newest version that was made
    made_at      when it was known to be there
    rivals       other processes
    """

    num_commits: int = 0
    queue: deque[Turn] = field(default_factory=deque)
    told: Told | None = None
    newest: int = 0
    made_at: float = 0.0
    rivals: Rivals = field(default_factory=Rivals)


class Turns:
    """The turns at all tables. Any thread, any loop; a forked child starts anew."""

    def __init__(self) -> None:
        self.start_over()
        survive_fork(self)

    def start_over(self) -> None:
        """Nobody is under way (after a fork)."""
        self.lock = threading.RLock()  # not a plain one: the collector may end a commit wherever it runs
        self._tables: OrderedDict[tuple[str, str], _Table] = OrderedDict()

    @contextmanager
    def commit(self, place: Location, clock: Clock) -> Iterator[Turn]:
        """A commit to the table at `place`, under way inside the block; `clock` says when its lease ends."""
        table = self._table(place)
        turn = Turn(self, table, clock)
        try:
            yield turn
        finally:
            turn.end()
            with self.lock:
                table.num_commits -= 1
                if not table.num_commits:
                    table.told = None

    def manifest_in(self, place: Location, file: VersionFile) -> Manifest | None:
        """What is in the file of a version of the table at `place`, if commits under way have it in memory."""
        with self.lock:
            table = self._tables.get(_key(place))
        told = None if table is None else table.told
        if told is None or file.etag is None or told.versions[-1].file != file:
            return None
        return told.manifest

    def _table(self, place: Location) -> _Table:
        key = _key(place)
        with self.lock:
            table = self._tables.setdefault(key, _Table())
            table.num_commits += 1
            self._tables.move_to_end(key)
            if len(self._tables) > TABLES_MAX:
                self._tables.popitem(last=False)  # commits under way there go on among themselves
            return table


def _key(place: Location) -> tuple[str, str]:
    return place.store.identity, place.path


TURNS: Final = Turns()
"""Those of this process."""


class Turn:
    """The turn of one commit.

    came    done when the commit may go on, now and from now on
    rivals  what this process knows of others that commit to the table
    """

    def __init__(self, turns: Turns, table: _Table, clock: Clock) -> None:
        self._turns = turns
        self._clock = clock
        self._table = table
        self.came: Future[None] = Future()
        self.rivals = table.rivals
        self._until = 0.0

    def wait(self) -> Plan[None]:
        """Wait for the turn, behind those that wait already."""
        with self._turns.lock:
            self._table.queue.append(self)
            self._let_through()
        while not self.came.done():
            try:
                yield Wait(self.came, LEASE_S)
            except TimeoutError:
                with self._turns.lock:
                    self._let_through()

    def _let_through(self) -> None:
        """Let the first one through, behind those whose lease has ended."""
        queue, now = self._table.queue, self._clock.monotonic()
        while queue and queue[0].came.done() and queue[0]._until <= now:
            queue.popleft()
        if queue and not queue[0].came.done():
            queue[0]._until = now + LEASE_S
            queue[0].came.set_result(None)

    def end(self) -> None:
        """Let the next one through; this one no longer waits if it does."""
        with self._turns.lock:
            if self in self._table.queue:
                self._table.queue.remove(self)
                self._let_through()

    # -- what was made; times are those of the commits' clock -------------------------------------------------------

    def told_since(self, newest: VersionFile) -> Told | None:
        """The versions made since that one was the newest, if it is known that there are no others."""
        told = self._table.told
        if told is None or newest.etag is None:  # without an etag it may be another file of this name
            return None
        start = next((number for number, made in enumerate(told.versions) if made.base == newest), None)
        return None if start is None else replace(told, versions=told.versions[start:])

    @property
    def made_at(self) -> float:
        """When this process made its last version; 0 when it has made none."""
        return self._table.made_at

    def is_of_others(self, newest: VersionFile) -> bool:
        """Whether another process has made that version, after the last one that this process made."""
        return newest.version > self._table.newest > 0

    def outdates(self, newest: VersionFile, taken_at: float) -> bool:
        """Whether a listing taken at that time, in which that version is the newest, misses one of this process."""
        return self._table.made_at >= taken_at and self._table.newest > newest.version

    def tell(self, made: Made, manifest: Manifest, *, asked_at: float, made_at: float) -> None:
        """Tell the others what this commit made, and end the turn."""
        with self._turns.lock:
            told = self._table.told
            last = None if told is None else told.versions[-1].file
            if last is None or last.version < made.file.version:  # else the lease ended, and others went on
                earlier = told.versions if told is not None and last == made.base else ()
                self._table.told = Told((*earlier, made)[-VERSIONS_TOLD_MAX:], manifest, asked_at)
                self._table.newest, self._table.made_at = made.file.version, made_at
            self.end()
