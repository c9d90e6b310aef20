"""The commit loop (spec: commit, section 3; decisions on rounds and back-off in the project's own notes).

    round 1   LIST   ||  the transaction file  ||  whatever the caller still uploads
    round 2   GET of the versions that came since (none: no round); beside round 1 when a fresh listing is at hand
    round 3   the deletion files of a rebase, if rows of one fragment were deleted by several (rarely)
    turn      of those that commit to the table in this process (`commit_queue.py`); the last round is in it
    last      create the manifest, if its number is free

A Restore pins the version that it restores first, and looks for cleanups (`pins.py`): two rounds more. So does a
detached commit with the version that it builds on, which need not be the newest.

Where a cleanup has removed versions between the one that the transaction was made for and the newest, nobody can tell
from transactions whether it fits: `table/transaction/continuity.py` decides by what the two manifests say.

A listing that is older than 30 s when the manifest is to be created is repeated: what it hides may have been cleaned
up, and then the number it calls free is one that readers no longer look at. An attempt that comes second backs off,
and starts over from the newest version.

From the moment at which the manifest is sent, the commit runs to its end even when it is cancelled.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from lance_io.commit.commit_counts import COMMITS
from lance_io.commit.commit_files import CommitFiles
from lance_io.commit.commit_queue import Made, Turn
from lance_io.commit.commit_request import CommitRequest, count_version, encode_next
from lance_io.commit.deciding_write import write_deciding
from lance_io.commit.fetched_versions import FetchedVersions
from lance_io.commit.handler import Created, NewVersion, Taken
from lance_io.commit.latest import missing_version
from lance_io.commit.other_names import is_undecided, list_decided
from lance_io.commit.pins import pin_version, release
from lance_io.commit.rebase_reads import rebase
from lance_io.commit.record import recorded_transaction
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

BEHIND_MAX = 3  # versions that take no longer to be read than an attempt
VERSIONS_AT_ONCE = 64  # that are read side by side and held, of those that came since


def commit(target: CommitTarget, request: CommitRequest) -> Plan[CommittedVersion]:
    """Commit a change of a table that exists.

    Raises `CommitConflictError` when another change does not go together with this one (`retryable` says whether doing
    the whole operation again may help), `CommitUnknownError` when the deciding write got no answer and reading back
    failed, `CommitHandlerError` for what a lock raises, also where it does so when it is left, after the version is
    there, `NotFound` when there is no table. The same request made again is recognised, and applied once.
    """
    target.handler.check(target.place)
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
    if committed.attempts:  # and was not found to be there already
        count_version(target, request, committed)
    if committed.failure is not None:
        raise committed.failure
    return committed


class _Loop:
    """The state of one commit.

    files     what this commit made: the change's files, transaction files, files made by rebasing
    fetched   manifest files that were read, by version
    told      transactions of versions that other commits of this process made meanwhile
    since     the version after which changes of others count: what was made for none (0) begins at the base
    checked   versions up to this one have been looked at
    made_on   the version that the deletion files of a Delete or Update were made on
    adapted   whether the transaction is no longer the one that was written
    missing   versions since, which are gone without having been looked at
    pin       of the version that is restored
    began     when the attempt began: with a listing in the turn (is_whole), or with the turn
    turn      this commit's among those of the process
    """

    turn: Turn

    def __init__(self, target: CommitTarget, request: CommitRequest) -> None:
        self.target = target
        self.request = request
        self.transaction = request.transaction
        self.base = request.base
        self.listing = request.listing
        self.files = request.files or CommitFiles()
        self.pending = [
            *request.alongside,
            *self.files.puts(target.place.store, self.files.contents, target.durability),
        ]
        self.fetched = FetchedVersions(target)
        self.told: dict[int, Transaction] = {}
        self.since = self.transaction.read_version
        if not self.since and self.base is not None and isinstance(self.transaction.operation, (Append, Overwrite)):
            self.since = self.base.version
        self.checked = self.transaction.read_version if request.is_repeated else self.since
        self.prepared = False
        self.made_on = request.base
        self.adapted = False
        self.missing: list[int] = []
        self.pin: Pin | None = None
        self.began, self.is_whole = 0.0, False
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
        """Attempts until one is decided, in turn with other commits of this process."""
        with self.target.turns.commit(self.target.place, self.target.clock) as self.turn:
            committed = yield from self._attempts()
        yield from self._release()
        return committed

    def roll_back(self, _: BaseException) -> Plan[None]:
        """Remove what no version can name; what may have been committed stays, and so does the pin of a restore."""
        if self.files.outcome == "sent":
            return
        first = {self.target.place.key(self.request.transaction.path)} if self.request.is_repeated else ()
        yield from self.files.roll_back(self.target.place.store, first)
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
        """How long to wait at most before the next attempt."""
        if stalls:  # what is in the way cannot be seen: it need not be a writer that will soon be done
            return FIRST_PAUSE_S * 2.0**attempts
        self.turn.rivals.lost()
        return self.turn.rivals.pause_max_s(attempts, self.request.max_retries)

    def _exhausted_error(self, text: str) -> CommitConflictError:
        return CommitConflictError(text, path=self.target.place.uri, retryable=True)

    # -- what an attempt builds on -----------------------------------------------------------------------------------

    def _gather(self) -> Plan[CommittedVersion | None]:
        """Bring base and transaction up to date; gives the version if it turns out to be committed already."""
        yield from self._hold()
        if self.request.detached and self.base is not None:
            yield from self._gather_detached(self.base)
            return None
        while True:
            yield from self._round(fresh=self._is_fresh())
            if not self._is_fresh():
                continue
            newest = self._newest()
            yield from self._fetch(newest)
            if not self.turn.came.done():
                yield from self.turn.wait()
                courtesy_max_s = self._courtesy_max_s(newest)
                self._hear(newest)
                yield from self._give_way(courtesy_max_s)
                continue
            num_read = sum(file.version in self.fetched for file in self._unchecked)
            committed = yield from self._check(newest)
            if committed is not None:
                return committed
            if self._unchecked:
                continue
            self._settle_base(newest)
            if num_read > BEHIND_MAX and self.target.answers_sync:
                self.listing = None  # they were read one after the other, and others have gone on meanwhile
                continue
            committed = yield from self._bridge(newest)
            if committed is not None:
                return committed
            yield from self._rebase()
            if self._is_fresh() and not (yield from self._hold()):
                return None

    def _hold(self) -> Plan[bool]:
        """Pin the old version that is built on, unless cleanups are sure to see it; whether it was done."""
        version, earlier = self._old_version, self.pin
        if version is None or is_detached(version) or (earlier is not None and earlier.is_fresh(self.target.clock)):
            return False
        self.pin = yield from pin_version(self.target.place, version, self.target.clock)
        self.fetched.pop(version, None)  # it has to be there still
        if earlier is not None:
            yield from release(self.target.place, earlier)
        return True

    def _release(self) -> Plan[None]:
        """Let go of the version that was restored."""
        pin, self.pin = self.pin, None
        if pin is not None:
            yield from release(self.target.place, pin)

    def _courtesy_max_s(self, newest: VersionFile) -> float:
        """How long after its last version this process gives way to others at most."""
        rivals, base = self.turn.rivals, self.base
        if self.turn.is_of_others(newest) and base is not None and base.version == newest.version:
            rivals.meet(base.writer)
        return rivals.courtesy_max_s()

    def _give_way(self, courtesy_max_s: float) -> Plan[None]:
        """Let other processes commit, if this one did so a moment ago."""
        clock = self.target.clock
        if courtesy_max_s:
            pause_s = self.turn.made_at + clock.random() * courtesy_max_s - clock.monotonic()
            if pause_s > 0:
                yield Pause(pause_s)
                self.listing = None
        self.began = clock.monotonic()

    def _hear(self, newest: VersionFile) -> None:
        """Bring the listing up to date with what other commits of this process made meanwhile."""
        assert self.listing is not None
        told = self.turn.told_since(newest)
        if told is not None:
            files = [made.file for made in told.versions]
            self.told = {made.file.version: made.transaction for made in told.versions}
            self.listing = Listing([*self.listing.versions, *files], self.listing.after, told.asked_at)
            self.base = told.manifest
        elif self.turn.outdates(newest, self.listing.taken_at):
            self.listing = None

    def _gather_detached(self, base: Manifest) -> Plan[None]:
        """A detached version builds on the one that its writer holds, whatever came since."""
        yield from self._round(fresh=True)
        if self.pin is not None:
            yield from self.target.handler.find_version(self.target.place, base.version)
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
        """Everything that depends on nothing, at once; a listing unless there is a fresh one."""
        plans, self.pending = self.pending, []
        place, key = self.target.place, self.target.place.key(self.transaction.path)
        if not self.files.has(key):
            plans += self.files.puts(place.store, {key: self.transaction.data}, self.target.durability)
        if not self.prepared:
            self.prepared = True
            plans.append(self.target.handler.prepare(self.target.place))
        if not fresh:
            plans.append(self._list())
        elif not self.request.detached:
            plans += self._missing(self._newest())
        if plans:
            yield Together(plans)

    def _list(self) -> Plan[None]:
        taken_at = self.target.clock.monotonic()
        if self.turn.came.done():
            self.began, self.is_whole = taken_at, True
        after = self.checked if self.base is None else min(self.checked, self.base.version)
        versions = yield from list_decided(self.target, after, self.base)
        self.listing = Listing(versions, after, taken_at)

    def _newest(self) -> VersionFile:
        assert self.listing is not None
        newest = self.listing.newest
        place = self.target.place
        if newest is None:
            raise NotFound(f"Dataset at path {place.uri} was not found: it has no versions", path=place.uri)
        if newest.version < self.transaction.read_version:
            raise NotFound(
                f"{missing_version(place.uri, self.transaction.read_version)}, which the transaction was made for; the "
                f"newest is {newest.version}",
                path=place.uri,
            )
        return newest

    def _fetch(self, newest: VersionFile) -> Plan[None]:
        """Read the versions that came since, side by side."""
        plans = self._missing(newest)
        if plans:
            yield Together(plans)

    def _missing(self, newest: VersionFile) -> list[Plan[None]]:
        """Plans that read the versions that came since, and were not read before."""
        assert self.listing is not None
        unchecked = self._unchecked
        wanted = [*unchecked[:VERSIONS_AT_ONCE]]
        if len(wanted) == len(unchecked) and not self._holds(newest) and newest not in wanted:
            wanted.append(newest)
        plans = [self._read(one.version, one.key) for one in wanted if not self._knows(one)]
        if self._restored is not None and self._restored not in self.fetched:
            plans.append(self.fetched.find(self._restored))
        return plans

    @property
    def _old_version(self) -> int | None:
        """A version that this one needs and a cleanup may remove: the restored one, or that below a detached one."""
        if self._restored is None and self.request.detached and self.base is not None:
            return self.base.version
        return self._restored

    @property
    def _restored(self) -> int | None:
        """The version that is to be restored."""
        operation = self.transaction.operation
        return operation.version if isinstance(operation, Restore) else None

    @property
    def _unchecked(self) -> Sequence[VersionFile]:
        """The versions that came since and have not been looked at."""
        if self.request.detached or self.listing is None:
            return ()
        return [file for file in self.listing.versions if file.version > self.checked]

    def _knows(self, file: VersionFile) -> bool:
        """Whether it is known what a version changed."""
        return file.version in self.fetched or file.version in self.told

    def _holds(self, newest: VersionFile) -> bool:
        """Whether the base is the newest version, with all that is needed of it."""
        base = self.base
        if base is None or base.version != newest.version:
            return False
        return base.index_offset is None or base.index_section is not None

    def _read(self, version: int, key: str) -> Plan[None]:
        """Read a version that came since; one that is not the newest may have been cleaned up meanwhile."""
        is_newest = self.listing is not None and version == self.listing.versions[-1].version
        yield from self.fetched.read(version, key, may_be_gone=not is_newest)

    # -- other writers -----------------------------------------------------------------------------------------------

    def _check(self, newest: VersionFile) -> Plan[CommittedVersion | None]:
        """Look at what was committed since; gives the version that turns out to be this very transaction."""
        for file in self._unchecked[:VERSIONS_AT_ONCE]:
            self.missing += range(self.checked + 1, file.version)[:MISSING_SHOWN]
            self.checked = file.version
            if not self._knows(file):  # cleaned up meanwhile
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
                path=self.target.place.uri,
                retryable=True,
            )
        return None

    def _adapt(self, other: Transaction, version: int) -> None:
        """Make sure that the transaction may be committed after another one, and take into account what that did."""
        check_conflict(self.transaction, other, version=version, knows_rows=self.request.affected is not None)
        if self.request.followed_by is not None:
            check_conflict(self.request.followed_by, other, version=version, knows_rows=False)
        adapted = adapt(self.transaction, other)
        self.adapted = self.adapted or adapted is not self.transaction
        self.transaction = adapted

    def _transaction_in(self, file: VersionFile) -> Plan[Transaction | None]:
        """What made a version; None where nobody knows, and nobody needs to."""
        if file.version in self.told:
            return self.told[file.version]
        place, data = self.target.place, self.fetched[file.version]
        origin = self.fetched.decode(file.version, decode_origin)
        if self.turn.is_of_others(file):
            self.turn.rivals.meet(origin.writer)
        found = yield from recorded_transaction(place, file.key, origin, data)
        if found is not None or file.version <= self.since:
            return found
        raise CommitConflictError(
            f"Dataset version {file.version} does not have a transaction file, so nobody can tell whether "
            f"{self.transaction.name} goes together with it",
            path=place.uri,
        )

    def _keep_only(self, transaction: Transaction) -> Plan[None]:
        """Remove the small files that a transaction does not name: the committed one, or this one as it is now."""
        place = self.target.place
        yield from self.files.remove_but(place.store, {place.key(path) for path in small_files(transaction)})

    def _settle_base(self, newest: VersionFile) -> None:
        """The newest version, with its index section; what else was read is no longer needed."""
        if not self._holds(newest):
            self.base = self.fetched.manifest(newest.version)
        if self.fetched:
            self.fetched.keep_only(self._restored)

    def _bridge(self, newest: VersionFile) -> Plan[CommittedVersion | None]:
        """Make sure that the transaction goes together with what nobody knows of versions that are gone.

        Gives the newest version if that has the transaction in it already.
        """
        if not self.missing or self.request.detached:
            return None
        base, transaction = self.base, self.transaction
        assert base is not None
        gap = Gap(self.target, self.request, transaction, self.since, self.missing)
        if not (yield from gap.holds_transaction(base)):
            return None
        self.files.outcome = "committed"
        yield from self.files.remove_but(self.target.place.store, ())
        return CommittedVersion(newest, base, transaction, attempts=0)

    def _rebase(self) -> Plan[None]:
        """Bring a Delete or Update onto the base: what it says about fragments is true of one version only."""
        base = self.base
        assert base is not None
        change = Rebased(self.transaction, {})
        is_rows = isinstance(self.transaction.operation, (Delete, Update))
        if is_rows and not self.request.detached and self.transaction.read_version < base.version:
            change = yield from rebase(self.target.place, self.transaction, self.made_on, base, self.request.affected)
        elif not self.adapted:
            return
        self.made_on, self.adapted = base, False
        self.transaction = change.transaction
        place = self.target.place
        made = {place.key(self.transaction.path): self.transaction.data}
        made |= {place.key(path): content for path, content in change.files.items()}
        yield Together(self.files.puts(place.store, made, self.target.durability))
        yield from self._keep_only(self.transaction)

    # -- the deciding write ------------------------------------------------------------------------------------------

    def _attempt(self, attempt: int) -> Plan[CommittedVersion | None]:
        """Try to create the next version; None when another writer was faster."""
        assert self.base is not None
        target, transaction = self.target, self.transaction
        newest = self.listing.newest if self.listing is not None else None
        version, scheme = self.base.version + 1, newest.scheme if newest is not None else target.scheme
        if self.request.detached:
            version, scheme = secrets.randbits(63) | DETACHED_BIT, "detached"
        restored = None if self._restored is None else self.fetched.manifest(self._restored)
        file = encode_next(target, self.base, self.request, transaction, version=version, restored=restored)
        is_mixed = newest is not None and newest.is_mixed
        new = NewVersion(version, scheme, file.data, transaction.uuid, target.durability, is_mixed, self.base)
        asked_at = target.clock.monotonic()

        def tell(created: VersionFile) -> None:
            if newest is not None and self.turn.came.done():
                made = Made(newest, created, transaction)
                self.turn.tell(made, file.manifest, asked_at=asked_at, made_at=target.clock.monotonic())

        self.files.check_named(target.place, lambda: named_files(transaction))
        outcome = yield from write_deciding(target, new, self.files, tell)
        self.turn.rivals.took(target.clock.monotonic() - self.began, is_whole=self.is_whole)
        if isinstance(outcome, Created):
            return CommittedVersion(outcome.file, file.manifest, transaction, attempt, outcome.failure)
        assert isinstance(outcome, Taken)
        if outcome.data is not None:
            self.fetched[version] = bytes(outcome.data)
        return None
