"""The commit loop (spec: commit, section 3; decisions on rounds and back-off in the project's own notes).

    round 1   LIST   ||  the transaction file  ||  uploads that the caller has not finished
    round 2   GET of the newer versions (none: no round); beside round 1 if a fresh listing is at hand
    round 3   the deletion files of a rebase, if several writers deleted rows of one fragment (rare)
    queue     wait behind earlier commits of this process to the table (`commit_queue.py`)
    last      create the manifest, if its number is free

A Restore first pins the version that it restores and looks for cleanups (`pins.py`): two more rounds. A detached
commit does the same with its base, which need not be the newest version.

If a cleanup has removed versions between the transaction's read version and the newest, their transactions are not
available for the conflict check: `table/transaction/continuity.py` compares the two manifests instead.

A listing older than 30 s is repeated before the manifest is created. A cleanup may have removed versions that it does
not show, and a version under such a number would be invisible to readers. An attempt that loses the race backs off
and starts over from the newest version.

Once the manifest is sent, the commit runs to its end even if it is cancelled.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from lance_io.commit.commit_counts import COMMITS
from lance_io.commit.commit_files import CommitFiles
from lance_io.commit.commit_queue import LocalCommit, QueueTicket
from lance_io.commit.commit_request import CommitRequest, encode_next_manifest, report_version
from lance_io.commit.deciding_write import write_deciding
from lance_io.commit.fetched_versions import FetchedVersions
from lance_io.commit.handler import Created, NewVersion, Taken
from lance_io.commit.latest import missing_version
from lance_io.commit.manifest_reads import recorded_transaction
from lance_io.commit.other_names import is_undecided, list_decided
from lance_io.commit.pins import pin_version, release
from lance_io.commit.rebase_reads import rebase
from lance_io.commit.removed_versions import MISSING_SHOWN, Gap
from lance_io.commit.target import (
    FIRST_PAUSE_S,
    LISTING_AGE_MAX_S,
    PAUSE_MAX_S,
    STALLS_MAX,
    CommittedVersion,
    Listing,
)
from lance_io.errors import (
    CommitConflictError,
    CommitUnknownError,
    NotFound,
    OperationError,
    UsageError,
)
from lance_io.plans.plan import Pause, RollBackOnError, Together
from lance_io.table.manifest.manifest import Manifest, decode_origin
from lance_io.table.manifest.paths import DETACHED_BIT, is_detached
from lance_io.table.transaction.conflicts import check_conflict
from lance_io.table.transaction.named_files import named_files, small_files
from lance_io.table.transaction.operations import Append, Clone, Delete, Overwrite, Restore, Update
from lance_io.table.transaction.rebase import Rebased, adapt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.commit.latest import VersionFile
    from lance_io.commit.pins import Pin
    from lance_io.commit.target import CommitTarget
    from lance_io.plans.plan import Plan
    from lance_io.table.transaction.transaction import Transaction

BEHIND_MAX = 3  # reading this many newer versions takes no longer than an attempt
VERSIONS_AT_ONCE = 64  # newer versions that are read concurrently and held in memory


def commit(target: CommitTarget, request: CommitRequest) -> Plan[CommittedVersion]:
    """Commit a change to an existing table. Idempotent: the same request is applied once, however often it is made.

    Raises `CommitConflictError` if a concurrent change conflicts with this one (`retryable`: repeating the whole
    operation may help), `CommitUnknownError` if the deciding write got no answer and reading back failed,
    `CommitHandlerError` if the lock raises, also on release when the version already exists, and `NotFound` if there
    is no table.
    """
    target.handler.check(target.location)
    loop = _Loop(target, request)
    try:
        committed: CommittedVersion = yield RollBackOnError(loop.run(), loop.roll_back)
    except CommitUnknownError as error:
        COMMITS.add(request.transaction.name, unknown=1)
        error.transaction = request.transaction
        raise
    except CommitConflictError:
        COMMITS.add(request.transaction.name, conflicts=1)
        raise
    if committed.attempts:  # 0: an earlier call had committed it
        report_version(target, request, committed)
    if committed.failure is not None:
        raise committed.failure
    return committed


class _Loop:
    """The state of one commit.

    files     files of this commit: those of the change, transaction files, files of a rebase
    fetched   manifest files that were read, by version
    since     changes after this version count as concurrent; the base if the transaction was made for no version (0)
    checked   versions up to this one are checked for conflicts
    made_on   the version for which the deletion files of a Delete or Update were written
    adapted   whether the transaction differs from the one in its file
    missing   newer versions that a cleanup removed before they were checked
    pin       pin of the restored version
    began     start of the attempt: its listing (`began_with_listing`), or its admission from the queue
    ticket    place of this commit in the queue of the process
    local_transactions  transactions of newer versions that other commits of this process created
    """

    ticket: QueueTicket

    def __init__(self, target: CommitTarget, request: CommitRequest) -> None:
        self.target = target
        self.request = request
        self.transaction = request.transaction
        self.base = request.base
        self.listing = request.listing
        self.files = request.files or CommitFiles()
        self.pending = [
            *request.alongside,
            *self.files.puts(target.location.store, self.files.contents, target.durability),
        ]
        self.fetched = FetchedVersions(target)
        self.local_transactions: dict[int, Transaction] = {}
        self.since = self.transaction.read_version
        if not self.since and self.base is not None and isinstance(self.transaction.operation, (Append, Overwrite)):
            self.since = self.base.version
        self.checked = self.transaction.read_version if request.is_repeated else self.since
        self.prepared = False
        self.made_on = request.base
        self.adapted = False
        self.missing: list[int] = []
        self.pin: Pin | None = None
        self.began, self.began_with_listing = 0.0, False
        if isinstance(self.transaction.operation, Clone):
            raise UsageError("a Clone makes the first version of a table or branch, not one that follows another")
        if is_detached(self.transaction.read_version) and not request.detached:
            raise OperationError(
                f"version {self.transaction.read_version} is detached: no version can follow it. Check out one of the "
                "table's versions and make the change there, restore the detached one, or commit with detached=True"
            )
        if request.affected is not None and (self.base is None or self.base.version != self.checked):
            raise UsageError("to merge deleted rows, the version that the transaction was made for is needed")

    # -- the loop ----------------------------------------------------------------------------------------------------

    def run(self) -> Plan[CommittedVersion]:
        """Attempt the commit until it is decided, queued behind other commits of this process."""
        with self.target.queues.commit(self.target.location, self.target.clock) as self.ticket:
            committed = yield from self._attempts()
        yield from self._release()
        return committed

    def roll_back(self, _: BaseException) -> Plan[None]:
        """Remove the files that no version can name. If the commit may have succeeded, they and the pin stay."""
        if self.files.outcome == "sent":
            return
        first = {self.target.location.key(self.request.transaction.path)} if self.request.is_repeated else ()
        yield from self.files.roll_back(self.target.location.store, first)
        yield from self._release()

    def _attempts(self) -> Plan[CommittedVersion]:
        clock, request = self.target.clock, self.request
        started = clock.monotonic()
        attempts = stalls = newest = 0
        while True:
            committed = yield from self._gather()
            if committed is not None:
                return committed
            committed = yield from self._attempt(attempts + 1)
            if committed is not None:
                return committed
            attempts += 1
            COMMITS.add(request.transaction.name, races=1)
            seen = self.base.version if self.base is not None else 0
            stalls = 0 if seen > newest else stalls + 1
            newest = max(newest, seen)
            if request.is_strict or (request.max_retries is not None and attempts >= max(request.max_retries, 1)):
                raise self._exhausted_error(f"Failed to commit the transaction after {attempts} retries.")
            if clock.monotonic() - started > request.timeout_s or stalls > STALLS_MAX:
                raise self._exhausted_error(f"too much write contention: {attempts} attempts, all of them second")
            yield Pause(clock.random() * min(self._pause_max_s(attempts, stalls), PAUSE_MAX_S))
            self.listing = None

    def _pause_max_s(self, attempts: int, stalls: int) -> float:
        """Upper bound of the pause before the next attempt."""
        if stalls:  # the winner's version is not visible: it need not be a writer that finishes soon
            return FIRST_PAUSE_S * 2.0**attempts
        self.ticket.rivals.record_loss()
        return self.ticket.rivals.pause_max_s(attempts, self.request.max_retries)

    def _exhausted_error(self, text: str) -> CommitConflictError:
        return CommitConflictError(text, path=self.target.location.uri, retryable=True)

    # -- the base of an attempt --------------------------------------------------------------------------------------

    def _gather(self) -> Plan[CommittedVersion | None]:
        """Bring base and transaction up to date; returns the version if an earlier call committed it already."""
        yield from self._pin()
        if self.request.detached and self.base is not None:
            yield from self._gather_detached(self.base)
            return None
        while True:
            yield from self._round(fresh=self._is_fresh())
            if not self._is_fresh():
                continue
            newest = self._newest()
            yield from self._fetch(newest)
            if not self.ticket.admitted.done():
                yield from self.ticket.wait()
                yield_max_s = self._next_yield_max_s(newest)
                self._merge_local_commits(newest)
                yield from self._yield_to_rivals(yield_max_s)
                continue
            num_read = sum(file.version in self.fetched for file in self._unchecked)
            committed = yield from self._check(newest)
            if committed is not None:
                return committed
            if self._unchecked:
                continue
            self._settle_base(newest)
            if num_read > BEHIND_MAX and self.target.answers_sync:
                self.listing = None  # they were read one by one, and other writers went on in the meantime
                continue
            committed = yield from self._bridge(newest)
            if committed is not None:
                return committed
            yield from self._rebase()
            if self._is_fresh() and not (yield from self._pin()):
                return None

    def _pin(self) -> Plan[bool]:
        """Pin the old version that is built on, unless a fresh pin exists; whether a pin was written."""
        version, earlier = self._old_version, self.pin
        if version is None or is_detached(version) or (earlier is not None and earlier.is_fresh(self.target.clock)):
            return False
        self.pin = yield from pin_version(self.target.location, version, self.target.clock)
        self.fetched.pop(version, None)  # read it again: a cleanup may have removed it before the pin
        if earlier is not None:
            yield from release(self.target.location, earlier)
        return True

    def _release(self) -> Plan[None]:
        """Remove the pin."""
        pin, self.pin = self.pin, None
        if pin is not None:
            yield from release(self.target.location, pin)

    def _next_yield_max_s(self, newest: VersionFile) -> float:
        """Upper bound of the time that this process yields to others after its last version."""
        rivals, base = self.ticket.rivals, self.base
        if self.ticket.is_foreign(newest) and base is not None and base.version == newest.version:
            rivals.record_version(base.writer)
        return rivals.next_yield_max_s()

    def _yield_to_rivals(self, yield_max_s: float) -> Plan[None]:
        """Pause for other processes if this one committed a moment ago."""
        clock = self.target.clock
        if yield_max_s:
            pause_s = self.ticket.committed_at + clock.random() * yield_max_s - clock.monotonic()
            if pause_s > 0:
                yield Pause(pause_s)
                self.listing = None
        self.began = clock.monotonic()

    def _merge_local_commits(self, newest: VersionFile) -> None:
        """Add the versions that other commits of this process created to the listing, or drop a stale listing."""
        assert self.listing is not None
        chain = self.ticket.commits_after(newest)
        if chain is not None:
            files = [commit.file for commit in chain.versions]
            self.local_transactions = {commit.file.version: commit.transaction for commit in chain.versions}
            self.listing = Listing([*self.listing.versions, *files], self.listing.after, chain.sent_at)
            self.base = chain.manifest
        elif self.ticket.is_stale(newest, self.listing.taken_at):
            self.listing = None

    def _gather_detached(self, base: Manifest) -> Plan[None]:
        """Gather for a detached version, which builds on its writer's version even if newer ones exist."""
        yield from self._round(fresh=True)
        if self.pin is not None:
            yield from self.target.handler.find_version(self.target.location, base.version)
        if base.index_offset is not None and base.index_section is None:
            yield from self.fetched.find(base.version)
            self.base = self.fetched.manifest(base.version)
        if self._restored is not None and self._restored not in self.fetched:
            yield from self.fetched.find(self._restored)

    def _is_fresh(self) -> bool:
        listing = self.listing
        if listing is None or self.target.clock.monotonic() - listing.taken_at > LISTING_AGE_MAX_S:
            return False
        newest = listing.newest
        if newest is not None and newest.is_mixed and is_undecided(newest):
            return False
        return listing.after <= self.checked or newest is None or newest.version <= self.checked

    def _round(self, *, fresh: bool) -> Plan[None]:
        """Run everything that has no dependencies concurrently; includes a listing unless it is `fresh`."""
        plans, self.pending = self.pending, []
        location, key = self.target.location, self.target.location.key(self.transaction.path)
        if not self.files.has(key):
            plans += self.files.puts(location.store, {key: self.transaction.data}, self.target.durability)
        if not self.prepared:
            self.prepared = True
            plans.append(self.target.handler.prepare(self.target.location))
        if not fresh:
            plans.append(self._list())
        elif not self.request.detached:
            plans += self._missing(self._newest())
        if plans:
            yield Together(plans)

    def _list(self) -> Plan[None]:
        taken_at = self.target.clock.monotonic()
        if self.ticket.admitted.done():
            self.began, self.began_with_listing = taken_at, True
        after = self.checked if self.base is None else min(self.checked, self.base.version)
        versions = yield from list_decided(self.target, after, self.base)
        self.listing = Listing(versions, after, taken_at)

    def _newest(self) -> VersionFile:
        assert self.listing is not None
        newest = self.listing.newest
        location = self.target.location
        if newest is None:
            raise NotFound(f"Dataset at path {location.uri} was not found: it has no versions", path=location.uri)
        if newest.version < self.transaction.read_version:
            raise NotFound(
                f"{missing_version(location.uri, self.transaction.read_version)}, which the transaction was made for; "
                f"the newest is {newest.version}",
                path=location.uri,
            )
        return newest

    def _fetch(self, newest: VersionFile) -> Plan[None]:
        """Read the newer versions concurrently."""
        plans = self._missing(newest)
        if plans:
            yield Together(plans)

    def _missing(self, newest: VersionFile) -> list[Plan[None]]:
        """Plans that read the newer versions that are not read yet."""
        assert self.listing is not None
        unchecked = self._unchecked
        wanted = [*unchecked[:VERSIONS_AT_ONCE]]
        if len(wanted) == len(unchecked) and not self._holds(newest) and newest not in wanted:
            wanted.append(newest)
        plans = [self._read(file.version, file.key) for file in wanted if not self._is_known(file)]
        if self._restored is not None and self._restored not in self.fetched:
            plans.append(self.fetched.find(self._restored))
        return plans

    @property
    def _old_version(self) -> int | None:
        """The version that this commit needs and a cleanup may remove: the restored one, or a detached one's base."""
        if self._restored is None and self.request.detached and self.base is not None:
            return self.base.version
        return self._restored

    @property
    def _restored(self) -> int | None:
        """Number of the version to restore."""
        operation = self.transaction.operation
        return operation.version if isinstance(operation, Restore) else None

    @property
    def _unchecked(self) -> Sequence[VersionFile]:
        """The newer versions that are not yet checked for conflicts."""
        if self.request.detached or self.listing is None:
            return ()
        return [file for file in self.listing.versions if file.version > self.checked]

    def _is_known(self, file: VersionFile) -> bool:
        """Whether the transaction of a version can be had without a read."""
        return file.version in self.fetched or file.version in self.local_transactions

    def _holds(self, newest: VersionFile) -> bool:
        """Whether the base is the newest version, including its index section."""
        base = self.base
        if base is None or base.version != newest.version:
            return False
        return base.index_offset is None or base.index_section is not None

    def _read(self, version: int, key: str) -> Plan[None]:
        """Read a newer version. Unless it is the newest, a cleanup may have removed it in the meantime."""
        is_newest = self.listing is not None and version == self.listing.versions[-1].version
        yield from self.fetched.read(version, key, may_be_gone=not is_newest)

    # -- other writers -----------------------------------------------------------------------------------------------

    def _check(self, newest: VersionFile) -> Plan[CommittedVersion | None]:
        """Check newer versions for conflicts; returns the version if one of them is this very transaction."""
        for file in self._unchecked[:VERSIONS_AT_ONCE]:
            self.missing += range(self.checked + 1, file.version)[:MISSING_SHOWN]
            self.checked = file.version
            if not self._is_known(file):  # a cleanup removed it in the meantime
                self.missing.append(file.version)
                continue
            other = yield from self._transaction_in(file)
            if other is not None and other.uuid == self.transaction.uuid and other.name == self.transaction.name:
                if file.version not in self.fetched:
                    yield from self._read(file.version, file.key)
                self.files.outcome = "committed"
                yield from self._keep_only(other)
                return CommittedVersion(file, self.fetched.manifest(file.version), other, attempts=0)
            if other is not None and file.version > self.since and not self.request.is_strict:
                self._adapt(other, file.version)
            if file.version not in (newest.version, self._restored):
                self.fetched.pop(file.version, None)
        if self.request.is_strict and not self._unchecked and newest.version > self.transaction.read_version:
            raise CommitConflictError(
                f"Commit conflict for version {newest.version}: version {self.transaction.read_version} was to be "
                "overwritten, which is no longer the newest",
                path=self.target.location.uri,
                retryable=True,
            )
        return None

    def _adapt(self, other: Transaction, version: int) -> None:
        """Check the transaction for a conflict with another one, and adapt it to the changes of that one."""
        check_conflict(self.transaction, other, version=version, knows_rows=self.request.affected is not None)
        if self.request.followed_by is not None:
            check_conflict(self.request.followed_by, other, version=version, knows_rows=False)
        adapted = adapt(self.transaction, other)
        self.adapted = self.adapted or adapted is not self.transaction
        self.transaction = adapted

    def _transaction_in(self, file: VersionFile) -> Plan[Transaction | None]:
        """The transaction of a version; None if there is no record of it and none is needed."""
        if file.version in self.local_transactions:
            return self.local_transactions[file.version]
        location, data = self.target.location, self.fetched[file.version]
        origin = self.fetched.decode(file.version, decode_origin)
        if self.ticket.is_foreign(file):
            self.ticket.rivals.record_version(origin.writer)
        transaction = yield from recorded_transaction(location, file.key, origin, data)
        if transaction is not None or file.version <= self.since:
            return transaction
        raise CommitConflictError(
            f"Dataset version {file.version} does not have a transaction file, so it is unknown whether "
            f"{self.transaction.name} conflicts with it",
            path=location.uri,
        )

    def _keep_only(self, transaction: Transaction) -> Plan[None]:
        """Remove the small files that `transaction` does not name."""
        location = self.target.location
        yield from self.files.remove_except(location.store, {location.key(path) for path in small_files(transaction)})

    def _settle_base(self, newest: VersionFile) -> None:
        """Make the newest version the base, with its index section, and drop other manifests that were read."""
        if not self._holds(newest):
            self.base = self.fetched.manifest(newest.version)
        if self.fetched:
            self.fetched.keep_only(self._restored)

    def _bridge(self, newest: VersionFile) -> Plan[CommittedVersion | None]:
        """Check the transaction against versions that a cleanup removed before they could be read.

        Returns the newest version if it already includes the transaction.
        """
        if not self.missing or self.request.detached:
            return None
        base, transaction = self.base, self.transaction
        assert base is not None
        gap = Gap(self.target, self.request, transaction, self.since, self.missing)
        if not (yield from gap.holds_transaction(base)):
            return None
        self.files.outcome = "committed"
        yield from self.files.remove_except(self.target.location.store, ())
        return CommittedVersion(newest, base, transaction, attempts=0)

    def _rebase(self) -> Plan[None]:
        """Rebase a Delete or Update onto the base: its fragment metadata is valid for one version only."""
        base = self.base
        assert base is not None
        change = Rebased(self.transaction, {})
        is_rows = isinstance(self.transaction.operation, (Delete, Update))
        if is_rows and not self.request.detached and self.transaction.read_version < base.version:
            change = yield from rebase(
                self.target.location, self.transaction, self.made_on, base, self.request.affected
            )
        elif not self.adapted:
            return
        self.made_on, self.adapted = base, False
        self.transaction = change.transaction
        location = self.target.location
        contents = {location.key(self.transaction.path): self.transaction.data}
        contents |= {location.key(path): content for path, content in change.files.items()}
        yield Together(self.files.puts(location.store, contents, self.target.durability))
        yield from self._keep_only(self.transaction)

    # -- the deciding write ------------------------------------------------------------------------------------------

    def _attempt(self, attempt: int) -> Plan[CommittedVersion | None]:
        """Try to create the next version; None if another writer was faster."""
        assert self.base is not None
        target, transaction = self.target, self.transaction
        newest = self.listing.newest if self.listing is not None else None
        version, scheme = self.base.version + 1, newest.scheme if newest is not None else target.scheme
        if self.request.detached:
            version, scheme = secrets.randbits(63) | DETACHED_BIT, "detached"
        restored = None if self._restored is None else self.fetched.manifest(self._restored)
        file = encode_next_manifest(target, self.base, self.request, transaction, version=version, restored=restored)
        is_mixed = newest is not None and newest.is_mixed
        new = NewVersion(version, scheme, file.data, transaction.uuid, target.durability, is_mixed, self.base)
        sent_at = target.clock.monotonic()

        def publish(created: VersionFile) -> None:
            if newest is not None and self.ticket.admitted.done():
                commit = LocalCommit(newest, created, transaction)
                self.ticket.publish(commit, file.manifest, sent_at=sent_at, committed_at=target.clock.monotonic())

        self.files.check_named(target.location, lambda: named_files(transaction))
        outcome = yield from write_deciding(target, new, self.files, publish)
        self.ticket.rivals.record_attempt(
            target.clock.monotonic() - self.began, began_with_listing=self.began_with_listing
        )
        if isinstance(outcome, Created):
            return CommittedVersion(outcome.file, file.manifest, transaction, attempt, outcome.failure)
        assert isinstance(outcome, Taken)
        if outcome.data is not None:
            self.fetched[version] = bytes(outcome.data)
        return None
