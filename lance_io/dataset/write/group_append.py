"""Group commit: appends of one process to one table that wait together become one version.

    caller    its rows, pulled and checked where it is  ->  joins the queue of the table, waits
    group     takes all that wait: rows of one schema into one data file, all files into one Append, one commit
    caller    the version that holds its rows, or what became of them

One group of a queue is under way at a time; whoever comes meanwhile is in the next one. So nothing waits for a clock,
and the slower the store, the larger the groups. A group is driven beside its callers (`begin_plan`), none of which it
belongs to: who is cancelled leaves it. Before the group has begun that is all. Afterwards the rows of others are with
its own; then it comes back when the group has ended, and only a group that all have left is cancelled.

What fails for one does not fail for others:

    rows that do not fit the table      their caller is told, before anything is written
    rows that cannot be encoded         halves are tried until it is known whose they are
    a conflict, callers having opened different versions    the callers of each version are committed by themselves
    what the store says                 it says to all

A queue is that of a table, as a caller reaches it (`_key`): what a transaction says, credentials, what makes versions
visible. `docs/writing.md` has what is promised.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from copy import copy
from dataclasses import field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

from lance_io.commit.commit_counts import COMMITS
from lance_io.commit.commit_files import CommitFiles
from lance_io.commit.loop import CommitRequest, commit
from lance_io.commit.target import Listing
from lance_io.dataset.lazy_module import later_plans
from lance_io.dataset.run_plan import begin_plan
from lance_io.dataset.version.row_counts import with_row_counts
from lance_io.dataset.write.data_files import NextBatch
from lance_io.dataset.write.input_data import Rows
from lance_io.dataset.write.schema_fit import check_mixture, fit_schema, schema_of
from lance_io.dataset.write.write_rows import new_files, write_rows
from lance_io.errors import CommitConflictError, LanceError, NotFound, SchemaError, UnsupportedError, UsageError
from lance_io.format.version import V0_1
from lance_io.limits import MIB
from lance_io.plans.plan import RollBackOnError, Wait
from lance_io.records import dataclass
from lance_io.redaction import get_logger
from lance_io.store.api import offers_sync_writes
from lance_io.store.forking import survive_fork
from lance_io.table.transaction.operations import Append
from lance_io.table.transaction.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lance_io.commit.latest import VersionFile
    from lance_io.commit.target import CommittedVersion
    from lance_io.dataset.changes import remove_versions as cleanups
    from lance_io.dataset.version.state import DatasetState
    from lance_io.dataset.write.data_files import NewFiles
    from lance_io.dataset.write.input_data import AsyncRows
    from lance_io.dataset.write.write_rows import WriteOptions, WriteTarget
    from lance_io.format.schema import Schema
    from lance_io.format.version import FileVersion
    from lance_io.plans.plan import Plan
    from lance_io.store.api import ObjectStore
    from lance_io.table.manifest.manifest import Manifest
else:
    cleanups = later_plans("lance_io.dataset.changes.remove_versions")

APPEND_BYTES_MAX: Final = 8 * MIB  # of rows that may share a file; more fill pages, and gain nothing by sharing one
GROUP_BYTES_MAX: Final = 64 * MIB  # of rows in one group
GROUP_APPENDS_MAX: Final = 1024
PULLED_BYTES_MAX: Final = 64 * MIB  # of rows out of iterators that wait in this process; tables are in memory anyhow
VERSIONS_NEAR: Final = 64  # between those that callers of one group have open: others have to be read for the oldest
LEASE_S: Final = 2.0  # a group that takes longer does not hold up the next one

_logger = get_logger(__name__)


# -- rows that wait ---------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class GroupAppend:
    """The rows of one caller.

    schema     of the batches
    num_bytes  of the batches, about
    done       the version that holds them
    group      that they are in, once one has taken them
    has_left   whether the caller was cancelled
    """

    target: WriteTarget
    schema: pa.Schema
    batches: Sequence[pa.RecordBatch]
    num_bytes: int
    options: WriteOptions
    done: Future[DatasetState] = field(default_factory=Future)
    group: _Group | None = None
    has_left: bool = False

    def __post_init__(self) -> None:
        self.given: Schema = schema_of(self.schema)
        self.schema_bytes: bytes = self.schema.serialize().to_pybytes()

    def fail(self, error: Exception, *, is_shared: bool = False) -> None:
        """Tell the caller, unless it knows already.

        is_shared  the error is told to others too: each gets one of its own, whose cause this one is
        """
        if self.done.done():
            return
        own = error
        if is_shared:
            with suppress(Exception):  # one of somebody else's that cannot be made anew
                own = copy(error)
                own.__cause__ = error
        self.done.set_exception(own)


def append_in_group(append: GroupAppend) -> Plan[DatasetState]:
    """Append rows together with whatever else waits; gives the version that holds them.

    Errors are those of `write_rows`.
    """
    append.target.handler.check(append.target.location)

    def leave(_: BaseException) -> Plan[None]:
        yield from GROUPS.leave(append)

    state: DatasetState = yield RollBackOnError(GROUPS.wait(append), leave)
    return state


class PulledRows:
    """Rows that were pulled out of what a caller has given.

    batches    so far
    num_bytes  of them, about
    is_all     whether that is all of them; otherwise they are too many to wait in memory, and not for a group
    """

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.num_bytes = 0
        self.is_all = False
        self._reserved_bytes = 0

    def pull(self, rows: Rows | AsyncRows) -> Plan[None]:
        """Pull batches, until these are all or too many."""
        is_held = isinstance(rows, Rows) and rows.is_held
        while (batch := (yield NextBatch(rows))) is not None:
            num_bytes = batch.get_total_buffer_size()
            if num_bytes > APPEND_BYTES_MAX:  # or a slice of something large
                num_bytes = batch.nbytes
            self.batches.append(batch)
            self.num_bytes += num_bytes
            if self.num_bytes > APPEND_BYTES_MAX or not (is_held or self._reserve(num_bytes)):
                return
        self.is_all = True

    def _reserve(self, num_bytes: int) -> bool:
        is_room = GROUPS.reserve(num_bytes)
        self._reserved_bytes += num_bytes * is_room
        return is_room

    def release(self) -> None:
        """They no longer wait."""
        num_bytes, self._reserved_bytes = self._reserved_bytes, 0
        GROUPS.release(num_bytes)


# -- queues -----------------------------------------------------------------------------------------------------------


class _Group:
    """Appends that become one version.

    appends  none until it has begun
    until    when the next group need not wait for it any longer, by the monotonic clock
    over     once nothing of it is under way any more
    """

    def __init__(self, queue: _Queue) -> None:
        self.queue = queue
        self.appends: list[GroupAppend] = []
        self.until = time.monotonic() + LEASE_S
        self.over: Future[None] = Future()
        self.cancel: Callable[[], None] | None = None


@dataclass(frozen=True)
class _Made:
    """Versions that groups of one queue have made, one after the other and with no other between them.

    An append that was made for one of them may as well have been made for the last: nothing but rows has come.

    names  of the transactions that made them, and the version before the first, by version
    """

    last: CommittedVersion
    names: Mapping[int, str]

    @classmethod
    def of(cls, last: CommittedVersion, base: Manifest, before: _Made | None) -> _Made:
        """With one more, which was made for `base`; without those before it, if it does not follow them."""
        version = last.manifest.version
        names: dict[int, str] = {}
        if before is not None and before.last.manifest.version + 1 == version:
            names = {each: name for each, name in before.names.items() if each + VERSIONS_NEAR > version}
        elif base.version + 1 == version:
            names = {base.version: base.transaction_file}
        return cls(last, {**names, version: last.manifest.transaction_file})

    def newest_for(self, base: Manifest) -> Manifest:
        """What an append may be made for that was made for `base`."""
        return self.last.manifest if self.names.get(base.version) == base.transaction_file else base


@dataclass(eq=False)
class _Queue:
    """Appends to one table that may become one version.

    store    as the first of them reaches it
    waiting  for a group
    group    that is under way and has not outlived its lease
    made     what groups have made, while there is always another one
    """

    key: Hashable
    store: ObjectStore
    waiting: deque[GroupAppend] = field(default_factory=deque)
    group: _Group | None = None
    made: _Made | None = None


class Groups:
    """The groups of all tables. Any thread, any loop; a forked child starts anew."""

    def __init__(self) -> None:
        self.start_over()
        survive_fork(self)

    def start_over(self) -> None:
        """Nobody waits (after a fork)."""
        self._lock = threading.RLock()  # not a plain one: the collector may end a caller's plan wherever it runs
        self._queues: dict[Hashable, list[_Queue]] = {}
        self._pulled_bytes = 0

    def reserve(self, num_bytes: int) -> bool:
        """Make room for rows out of an iterator; whether there was any."""
        with self._lock:
            is_room = self._pulled_bytes + num_bytes <= PULLED_BYTES_MAX
            self._pulled_bytes += num_bytes * is_room
            return is_room

    def release(self, num_bytes: int) -> None:
        """Give room back."""
        with self._lock:
            self._pulled_bytes = max(0, self._pulled_bytes - num_bytes)

    def num_waiting(self) -> int:
        """Appends that are in no group yet."""
        with self._lock:
            return sum(len(queue.waiting) for queues in self._queues.values() for queue in queues)

    def wait(self, append: GroupAppend) -> Plan[DatasetState]:
        """Join a queue and wait for what becomes of the rows."""
        with self._lock:
            queue = self._queue(append)
            queue.waiting.append(append)
            self._go_on(queue)
        while not append.done.done():
            try:
                yield Wait(append.done, LEASE_S)
            except TimeoutError:  # or one that the append has failed with
                with self._lock:
                    self._go_on(queue)
        return append.done.result()

    def leave(self, append: GroupAppend) -> Plan[None]:
        """The caller was cancelled: it comes back when its rows are sure to be in a version or in none."""
        with self._lock:
            append.has_left = True
            for queue in self._queues.get(_key(append), ()):
                if append in queue.waiting:
                    queue.waiting.remove(append)
                    self._forget(queue)
                    return
            group = append.group
            if group is not None and group.cancel is not None and all(one.has_left for one in group.appends):
                group.cancel()
        if group is not None:
            yield Wait(group.over)

    def _queue(self, append: GroupAppend) -> _Queue:
        key, store = _key(append), append.target.location.store
        queues = self._queues.setdefault(key, [])
        for queue in queues:
            if _is_same(queue.store, store):
                return queue
        queues.append(_Queue(key, store))
        return queues[-1]

    def _forget(self, queue: _Queue) -> None:
        """Nobody waits there: a queue is made anew when somebody comes."""
        queues = self._queues.get(queue.key)
        if queues is None or queue.waiting or queue.group is not None or queue not in queues:
            return
        queues.remove(queue)
        if not queues:
            del self._queues[queue.key]

    def _go_on(self, queue: _Queue) -> None:
        """Begin a group, if somebody waits and none is under way, or for too long."""
        if not queue.waiting:
            self._forget(queue)
            return
        if queue.group is not None and time.monotonic() < queue.group.until:
            return
        group = queue.group = _Group(queue)
        answers_sync = queue.waiting[0].target.answers_sync
        try:
            group.cancel = begin_plan(self._serve(group), partial(self._end, group), answers_sync=answers_sync)
        except BaseException as error:
            queue.group = None
            if isinstance(error, Exception):  # threads and loops that have ended take nothing
                while queue.waiting:
                    queue.waiting.popleft().fail(error, is_shared=True)
            self._forget(queue)
            raise

    def _take(self, group: _Group) -> None:
        """Those that wait are the group's, up to its bounds; who opened a version far from that of the first waits."""
        queue = group.queue
        with self._lock:
            others: deque[GroupAppend] = deque()
            num_bytes, opened = 0, None
            while queue.waiting and len(group.appends) < GROUP_APPENDS_MAX:
                append = queue.waiting.popleft()
                manifest = append.target.manifest
                if opened is None and manifest is not None:
                    opened = manifest.version
                if manifest is not None and opened is not None and abs(manifest.version - opened) > VERSIONS_NEAR:
                    others.append(append)
                    continue
                if group.appends and num_bytes + append.num_bytes > GROUP_BYTES_MAX:
                    others.append(append)
                    break
                num_bytes += append.num_bytes
                append.group = group
                group.appends.append(append)
            queue.waiting.extendleft(reversed(others))

    def _put_back(self, appends: Sequence[GroupAppend]) -> None:
        """Let appends of a group wait for the next one."""
        with self._lock:
            for append in reversed(appends):
                group = append.group
                assert group is not None
                group.appends.remove(append)
                if not append.has_left:
                    append.group = None
                    group.queue.waiting.appendleft(append)

    def _serve(self, group: _Group) -> Plan[None]:
        self._take(group)
        if not group.appends:  # they have left
            return
        absent = yield from _append(group.appends, group.queue)
        if absent:
            self._put_back(absent[1:])
            yield from _create(absent[0])

    def _end(self, group: _Group, error: BaseException | None) -> None:
        """A group has ended, and whoever waits is told."""
        if not isinstance(error, Exception):  # it was cancelled, and not because all have left
            error = RuntimeError("the process is shutting down, or the group of appends was cancelled, before it ended")
        told = [append for append in group.appends if not append.done.done()]
        for append in told:
            append.fail(error, is_shared=len(told) > 1)
        with self._lock:
            queue = group.queue
            if queue.group is group:
                queue.group = None
            try:
                self._go_on(queue)
            except Exception as failure:
                _logger.warning("no group can begin any more: %s", failure)
        group.over.set_result(None)


def _key(append: GroupAppend) -> Hashable:
    """What appends of one version have in common, but for how they reach the store."""
    target, options = append.target, append.options
    place, handler = target.location, target.handler
    lock = getattr(handler, "lock", None)  # a user's, which may have no hash
    decides = handler if lock is None else (type(handler), id(lock))
    return place.store.identity, place.path, decides, options.durability, tuple(sorted(options.properties.items()))


def _is_same(store: ObjectStore, other: ObjectStore) -> bool:
    """Whether what one caller writes may be written by another: the same store, reached in the same way."""
    if store is other:
        return True
    if type(store) is not type(other) or store.identity != other.identity:
        return False
    if offers_sync_writes(store):
        return bool(getattr(store, "durability", None) == getattr(other, "durability", None))
    origin = getattr(store, "origin", None)
    return origin is not None and origin == getattr(other, "origin", None)


GROUPS: Final = Groups()
"""Those of this process."""


# -- one version ------------------------------------------------------------------------------------------------------


def _append(appends: Sequence[GroupAppend], queue: _Queue) -> Plan[Sequence[GroupAppend]]:
    """Commit the rows of all appends, and tell each what became of its own.

    Gives those by URI for which there is no table yet. Raises what concerns all that have not been told.
    """
    version = _Version(appends, queue.made)
    try:
        committed: CommittedVersion | None = yield RollBackOnError(version.write(), version.roll_back)
    except (CommitConflictError, NotFound) as error:
        if len(version.opened) < 2 or not version.made.may_remove:
            raise
        return (yield from _append_apart(version, queue, error))
    if committed is not None:
        COMMITS.add_group(len(version.written))
        if queue.made is None or queue.made.last.manifest.version < committed.manifest.version:
            assert version.base is not None
            queue.made = _Made.of(committed, version.base, queue.made)
        states = [append.target.state(committed) for append in version.written]
        is_asked_for = not all(append.options.skip_auto_cleanup for append in version.written)
        if is_asked_for and states[0].manifest.config:
            yield from cleanups.after_commit(states[0])
        for append, state in zip(version.written, states, strict=True):
            append.done.set_result(state)
    return version.absent


def _append_apart(version: _Version, queue: _Queue, error: LanceError) -> Plan[Sequence[GroupAppend]]:
    """The callers of each version by themselves: some of them may be too old for what came since."""
    _logger.info("a group of appends to several versions is split: %s", error)
    absent: list[GroupAppend] = []
    for opened in version.opened:
        apart = [append for append in opened if not append.done.done()]
        if not apart:
            continue
        try:
            absent += yield from _append(apart, queue)
        except Exception as failure:
            for append in apart:
                append.fail(failure, is_shared=len(apart) > 1)
    return absent


def _create(append: GroupAppend) -> Plan[None]:
    """Append to a table that is not there: that makes it."""
    rows = Rows(append.schema, iter(append.batches), _count_rows([append]), is_held=True)
    append.done.set_result((yield from write_rows(append.target, rows, append.options)))


def _count_rows(appends: Sequence[GroupAppend]) -> int:
    return sum(batch.num_rows for append in appends for batch in append.batches)


@dataclass(eq=False)
class _Unit:
    """Appends whose rows go into one data file, or as many as its bounds make of it."""

    schema: Schema
    file_version: FileVersion
    appends: list[GroupAppend]

    def halves(self) -> Iterator[_Unit]:
        """Two of half as many appends each."""
        middle = len(self.appends) // 2
        for part in (self.appends[:middle], self.appends[middle:]):
            yield _Unit(self.schema, self.file_version, part)


class _Version:
    """One version that is to hold the rows of appends.

    opened   appends by the version that they were made for: one that a caller has open, or the newest
    written  appends whose rows are in files
    absent   appends by URI, where there is no table
    base     the newest version that an append was made for
    made     what was written for the commit, and its outcome
    """

    def __init__(self, appends: Sequence[GroupAppend], made: _Made | None) -> None:
        self.appends = appends
        self._made = made
        self.opened: list[list[GroupAppend]] = []
        self.written: list[GroupAppend] = []
        self.absent: list[GroupAppend] = []
        self.base: Manifest | None = None
        self.made = CommitFiles()
        self._target = appends[0].target
        self._options = appends[0].options
        self._files: list[NewFiles] = []

    def write(self) -> Plan[CommittedVersion | None]:
        """Write the rows and commit them; None where no append is left."""
        listing, newest = yield from self._find_newest()
        bases = self._find_bases(newest)
        for unit in self._units(bases):
            yield from self._write_unit(unit)
        if not self.written:
            return None
        base = max((bases[id(append)] for append in self.written), key=lambda one: one.version)
        self.base = base
        if 0 in base.fragments.physical_rows:  # of an old release: from here on manifests say it
            base = (yield from with_row_counts(self._target.opened(base))).manifest
        read_version = min(bases[id(append)].version for append in self.written)
        fragments = tuple(fragment for files in self._files for fragment in files.fragments)
        request = CommitRequest(
            Transaction(read_version, Append(fragments), properties=self._options.properties),
            base=base,
            listing=listing,
            files=self.made,
            alongside=[files.publish(self.made) for files in self._files],
        )
        return (yield from commit(self._target.commit_target(durability=self._options.durability), request))

    def roll_back(self, cause: BaseException) -> Plan[None]:
        """Remove the files, if no version can refer to them."""
        for files in self._files:
            yield from files.roll_back(cause)

    def _find_newest(self) -> Plan[tuple[Listing | None, Manifest | None]]:
        """The newest version, if somebody has none open."""
        if all(append.target.manifest is not None for append in self.appends):
            return None, None
        taken_at = self._target.commit_target().clock.monotonic()
        try:
            found = yield from self._target.handler.find_latest_and(self._target.location, self._manifest_in)
        except NotFound:
            self.absent = [append for append in self.appends if append.target.manifest is None]
            return None, None
        newest, manifest = found
        return Listing([newest], newest.version, taken_at), manifest

    def _manifest_in(self, newest: VersionFile) -> Plan[Manifest]:
        """What is in the newest version, which may be the last one that was made here."""
        if self._made is not None and self._made.last.file == newest and newest.etag is not None:
            return self._made.last.manifest
        return (yield from self._target.manifest_in(newest))

    def _find_bases(self, newest: Manifest | None) -> dict[int, Manifest]:
        """The version that each append is made for, by its `id`."""
        bases: dict[int, Manifest] = {}
        opened: dict[Hashable, list[GroupAppend]] = {}
        for append in self.appends:
            base = append.target.manifest or newest
            if base is not None:
                base = base if self._made is None else self._made.newest_for(base)
                bases[id(append)] = base
                opened.setdefault((base.version, base.transaction_file), []).append(append)
        self.opened = list(opened.values())
        return bases

    def _units(self, bases: dict[int, Manifest]) -> list[_Unit]:
        """Appends by the file that they go into; those that do not fit the table are told."""
        units: dict[Hashable, list[_Unit]] = {}
        for append in self.appends:
            base = bases.get(id(append))
            if base is None:
                continue
            options = append.options
            version = options.version or base.data_version
            try:
                check_mixture(version, base.data_version)
                schema = fit_schema(append.given, base.schema, version)
            except Exception as error:
                append.fail(error)
                continue
            alone = id(append) if version == V0_1 else None  # its dictionaries and lost nulls are those of one write
            key = (append.schema_bytes, version, options.limits, id(options.progress), alone)
            alike = units.setdefault(key, [])
            unit = next((one for one in alike if one.schema is schema or one.schema == schema), None)
            if unit is None:
                alike.append(_Unit(schema, version, [append]))
            else:
                unit.appends.append(append)
        return [unit for alike in units.values() for unit in alike]

    def _write_unit(self, unit: _Unit) -> Plan[None]:
        appends = unit.appends
        batches = chain.from_iterable(append.batches for append in appends)
        rows = Rows(appends[0].schema, iter(batches), _count_rows(appends), is_held=True)
        try:
            files = new_files(self._target, unit.schema, unit.file_version, appends[0].options)
            yield RollBackOnError(files.write(rows), files.roll_back)
        except Exception as error:
            if _is_of_store(error):
                raise
            if len(appends) == 1:
                appends[0].fail(error)
                return
            for half in unit.halves():
                yield from self._write_unit(half)
        else:
            self._files.append(files)
            self.written += appends


def _is_of_store(error: Exception) -> bool:
    """Whether a failure to write concerns whatever is written there, and not just these rows."""
    if isinstance(error, LanceError):
        return not isinstance(error, (SchemaError, UnsupportedError, UsageError))
    return isinstance(error, (OSError, MemoryError))
