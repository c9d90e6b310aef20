"""Commits of one process to one table run one after the other and pass their results on.

Writers in different processes detect each other by a lost attempt; writers in one process need not. Each uploads the
files of its change at any time, and then waits in a queue until the commits before it have created their manifests.
The queue hands these manifests over, so that the next commit builds on the newest without a listing or a read.

Correctness does not depend on the queue: create-if-absent decides here as it does between processes. A place at the
head of the queue is only a lease. A commit that holds it for longer than `LEASE_S`, because a store does not answer
or because a callback inside the commit commits to the same table, goes on without it, and the next one starts.

When no commit to a table is under way, only the number of its newest version is kept: listings from before that
version are stale and repeated.
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

LEASE_S: Final = 2.0  # several times the duration of the last rounds of a commit to a distant store
CHAIN_VERSIONS_MAX: Final = 64
TABLES_MAX: Final = 256  # tables whose newest version is remembered


@dataclass(frozen=True, slots=True)
class LocalCommit:
    """A version that a commit of this process created.

    base  the manifest file of the version before it, on which it was built
    """

    base: VersionFile
    file: VersionFile
    transaction: Transaction


@dataclass(frozen=True, slots=True)
class CommitChain:
    """Consecutive versions that commits of this process created, each built on the one before.

    manifest  of the last one
    sent_at   time just before the last one was created, when its base was still the newest version
    """

    versions: tuple[LocalCommit, ...]
    manifest: Manifest
    sent_at: float


@dataclass(slots=True)
class _Table:
    """State that the commits to one table share.

    num_commits   commits under way
    queue         the waiting ones; the first one holds the lease
    chain         their newest versions
    newest        number of the newest version of this process
    committed_at  when it was known to exist
    rivals        writers of other processes
    """

    num_commits: int = 0
    queue: deque[QueueTicket] = field(default_factory=deque)
    chain: CommitChain | None = None
    newest: int = 0
    committed_at: float = 0.0
    rivals: Rivals = field(default_factory=Rivals)


class CommitQueues:
    """The commit queues of all tables. Works from any thread and loop; a forked child starts with empty queues."""

    def __init__(self) -> None:
        self.start_over()
        survive_fork(self)

    def start_over(self) -> None:
        """Drop all queues (after a fork)."""
        self.lock = threading.RLock()  # reentrant: the garbage collector may end a commit at any point
        self._tables: OrderedDict[tuple[str, str], _Table] = OrderedDict()

    @contextmanager
    def commit(self, location: Location, clock: Clock) -> Iterator[QueueTicket]:
        """A commit to the table at `location`, under way inside the block; `clock` measures its lease."""
        table = self._table(location)
        ticket = QueueTicket(self, table, clock)
        try:
            yield ticket
        finally:
            ticket.end()
            with self.lock:
                table.num_commits -= 1
                if not table.num_commits:
                    table.chain = None

    def local_manifest(self, location: Location, file: VersionFile) -> Manifest | None:
        """The manifest of a version of the table at `location`, if commits under way hold it in memory."""
        with self.lock:
            table = self._tables.get(_key(location))
        chain = None if table is None else table.chain
        if chain is None or file.etag is None or chain.versions[-1].file != file:
            return None
        return chain.manifest

    def _table(self, location: Location) -> _Table:
        key = _key(location)
        with self.lock:
            table = self._tables.setdefault(key, _Table())
            table.num_commits += 1
            self._tables.move_to_end(key)
            if len(self._tables) > TABLES_MAX:
                self._tables.popitem(last=False)  # its commits under way still share it
            return table


def _key(location: Location) -> tuple[str, str]:
    return location.store.identity, location.path


COMMIT_QUEUES: Final = CommitQueues()
"""The queues of this process."""


class QueueTicket:
    """The place of one commit in the queue of its table.

    admitted  done as soon as the commit may go on; stays done
    rivals    statistics on writers of other processes that commit to the table
    """

    def __init__(self, queues: CommitQueues, table: _Table, clock: Clock) -> None:
        self._queues = queues
        self._clock = clock
        self._table = table
        self.admitted: Future[None] = Future()
        self.rivals = table.rivals
        self._until = 0.0

    def wait(self) -> Plan[None]:
        """Join the queue at its end and wait for admission."""
        with self._queues.lock:
            self._table.queue.append(self)
            self._admit_first()
        while not self.admitted.done():
            try:
                yield Wait(self.admitted, LEASE_S)
            except TimeoutError:
                with self._queues.lock:
                    self._admit_first()

    def _admit_first(self) -> None:
        """Admit the first one whose predecessors are done or past their lease."""
        queue, now = self._table.queue, self._clock.monotonic()
        while queue and queue[0].admitted.done() and queue[0]._until <= now:
            queue.popleft()
        if queue and not queue[0].admitted.done():
            queue[0]._until = now + LEASE_S
            queue[0].admitted.set_result(None)

    def end(self) -> None:
        """Leave the queue, waiting or not, and admit the next one."""
        with self._queues.lock:
            if self in self._table.queue:
                self._table.queue.remove(self)
                self._admit_first()

    # -- versions of this process; times are those of the commits' clock ---------------------------------------------

    def commits_after(self, newest: VersionFile) -> CommitChain | None:
        """The versions of this process after `newest`; None unless they are sure to be all versions after it."""
        chain = self._table.chain
        if chain is None or newest.etag is None:  # without an etag it may be another file of this name
            return None
        start = next((index for index, commit in enumerate(chain.versions) if commit.base == newest), None)
        return None if start is None else replace(chain, versions=chain.versions[start:])

    @property
    def committed_at(self) -> float:
        """When this process created its last version; 0 if it has created none."""
        return self._table.committed_at

    def is_foreign(self, newest: VersionFile) -> bool:
        """Whether another process created that version, after the last one of this process."""
        return newest.version > self._table.newest > 0

    def is_stale(self, newest: VersionFile, taken_at: float) -> bool:
        """Whether a listing of that time, whose newest version is `newest`, misses a version of this process."""
        return self._table.committed_at >= taken_at and self._table.newest > newest.version

    def publish(self, commit: LocalCommit, manifest: Manifest, *, sent_at: float, committed_at: float) -> None:
        """Hand the new version over to the commits behind this one, and leave the queue."""
        with self._queues.lock:
            chain = self._table.chain
            last = None if chain is None else chain.versions[-1].file
            if last is None or last.version < commit.file.version:  # else the lease ended, and others went on
                earlier = chain.versions if chain is not None and last == commit.base else ()
                self._table.chain = CommitChain((*earlier, commit)[-CHAIN_VERSIONS_MAX:], manifest, sent_at)
                self._table.newest, self._table.committed_at = commit.file.version, committed_at
            self.end()
