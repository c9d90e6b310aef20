"""Queues of appends that wait for a group, one for each table as callers reach it; see `group_append.py`.

One group of a queue is under way at a time, and holds up the next one no longer than its lease.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Final

from lance_io.changes.write.group_commit import commit_group, create_table
from lance_io.changes.write.group_version import VERSIONS_NEAR
from lance_io.limits import MIB
from lance_io.plans.plan import Wait
from lance_io.reads.run_plan import begin_plan
from lance_io.records import dataclass
from lance_io.redaction import get_logger
from lance_io.store.forking import survive_fork
from lance_io.store.offers import offers_sync_writes

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from lance_io.changes.write.group_version import GroupAppend, MadeVersions
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.store.api import ObjectStore

GROUP_BYTES_MAX: Final = 64 * MIB  # of rows in one group
GROUP_APPENDS_MAX: Final = 1024
PULLED_BYTES_MAX: Final = 64 * MIB  # of rows out of iterators that wait in this process; tables are in memory anyhow
LEASE_S: Final = 2.0  # a group that takes longer does not hold up the next one

_logger = get_logger(__name__)


class Group:
    """Appends that become one version.

    appends  none until it has begun
    until    when the next group need not wait for it any longer, by the monotonic clock
    over     once nothing of it is under way any more
    """

    def __init__(self, queue: AppendQueue) -> None:
        self.queue = queue
        self.appends: list[GroupAppend] = []
        self.until = time.monotonic() + LEASE_S
        self.over: Future[None] = Future()
        self.cancel: Callable[[], None] | None = None


@dataclass(eq=False)
class AppendQueue:
    """Appends to one table that may become one version.

    store    as the first of them reaches it
    waiting  for a group
    group    that is under way and has not outlived its lease
    made     what groups have made, while there is always another one
    """

    key: Hashable
    store: ObjectStore
    waiting: deque[GroupAppend] = field(default_factory=deque)
    group: Group | None = None
    made: MadeVersions | None = None


class Groups:
    """The groups of all tables. Any thread, any loop; a forked child starts anew."""

    def __init__(self) -> None:
        self.start_over()
        survive_fork(self)

    def start_over(self) -> None:
        """Nobody waits (after a fork)."""
        self._lock = threading.RLock()  # not a plain one: the collector may end a caller's plan wherever it runs
        self._queues: dict[Hashable, list[AppendQueue]] = {}
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

    def _queue(self, append: GroupAppend) -> AppendQueue:
        key, store = _key(append), append.target.location.store
        queues = self._queues.setdefault(key, [])
        for queue in queues:
            if _is_same(queue.store, store):
                return queue
        queues.append(AppendQueue(key, store))
        return queues[-1]

    def _forget(self, queue: AppendQueue) -> None:
        """Nobody waits there: a queue is made anew when somebody comes."""
        queues = self._queues.get(queue.key)
        if queues is None or queue.waiting or queue.group is not None or queue not in queues:
            return
        queues.remove(queue)
        if not queues:
            del self._queues[queue.key]

    def _go_on(self, queue: AppendQueue) -> None:
        """Begin a group, if somebody waits and none is under way, or for too long."""
        if not queue.waiting:
            self._forget(queue)
            return
        if queue.group is not None and time.monotonic() < queue.group.until:
            return
        group = queue.group = Group(queue)
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

    def _take(self, group: Group) -> None:
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

    def _serve(self, group: Group) -> Plan[None]:
        self._take(group)
        if not group.appends:  # they have left
            return
        absent = yield from commit_group(group.appends, group.queue)
        if absent:
            self._put_back(absent[1:])
            yield from create_table(absent[0])

    def _end(self, group: Group, error: BaseException | None) -> None:
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
