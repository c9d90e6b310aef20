"""Queues of appends that wait for a group, one for each table and way to reach it; see `group_append.py`.

One group of a queue runs at a time. It delays the next group no longer than its lease.
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

    from lance_io.changes.write.group_version import GroupAppend, RecentVersions
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.store.api import ObjectStore

GROUP_BYTES_MAX: Final = 64 * MIB  # of rows in one group
GROUP_APPENDS_MAX: Final = 1024
PULLED_BYTES_MAX: Final = 64 * MIB  # of waiting rows pulled from iterators; tables are in memory anyway
LEASE_S: Final = 2.0  # after this time the next group starts beside a running one

_logger = get_logger(__name__)


class Group:
    """Appends that become one version.

    appends  empty until the group starts
    until    end of its lease, by the monotonic clock: then the next group may start
    over     resolves when the group has ended
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

    store    store client of the first append
    waiting  appends without a group
    group    the running group
    recent   versions that groups of this queue have committed; lost when the queue is empty
    """

    key: Hashable
    store: ObjectStore
    waiting: deque[GroupAppend] = field(default_factory=deque)
    group: Group | None = None
    recent: RecentVersions | None = None


class Groups:
    """The groups of all tables. Safe to use from any thread and loop; a forked child starts empty."""

    def __init__(self) -> None:
        self.start_over()
        survive_fork(self)

    def start_over(self) -> None:
        """Drop all queues (after a fork)."""
        self._lock = threading.RLock()  # reentrant: the garbage collector may close a caller's plan inside the lock
        self._queues: dict[Hashable, list[AppendQueue]] = {}
        self._pulled_bytes = 0

    def reserve(self, num_bytes: int) -> bool:
        """Reserve memory for rows of an iterator; returns whether it was available."""
        with self._lock:
            is_room = self._pulled_bytes + num_bytes <= PULLED_BYTES_MAX
            self._pulled_bytes += num_bytes * is_room
            return is_room

    def release(self, num_bytes: int) -> None:
        """Release reserved memory."""
        with self._lock:
            self._pulled_bytes = max(0, self._pulled_bytes - num_bytes)

    def num_waiting(self) -> int:
        """Number of appends that are in no group yet."""
        with self._lock:
            return sum(len(queue.waiting) for queues in self._queues.values() for queue in queues)

    def wait(self, append: GroupAppend) -> Plan[DatasetState]:
        """Join a queue and wait until the rows are in a version."""
        with self._lock:
            queue = self._queue(append)
            queue.waiting.append(append)
            self._begin_group(queue)
        while not append.done.done():
            try:
                yield Wait(append.done, LEASE_S)
            except TimeoutError:  # of the wait, or the error of the append itself
                with self._lock:
                    self._begin_group(queue)
        return append.done.result()

    def leave(self, append: GroupAppend) -> Plan[None]:
        """Cancel an append; returns when it is certain whether a version holds its rows."""
        with self._lock:
            append.is_cancelled = True
            for queue in self._queues.get(_key(append), ()):
                if append in queue.waiting:
                    queue.waiting.remove(append)
                    self._remove_if_idle(queue)
                    return
            group = append.group
            if group is not None and group.cancel is not None and all(member.is_cancelled for member in group.appends):
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

    def _remove_if_idle(self, queue: AppendQueue) -> None:
        """Remove a queue without appends and groups; the next append creates a new one."""
        queues = self._queues.get(queue.key)
        if queues is None or queue.waiting or queue.group is not None or queue not in queues:
            return
        queues.remove(queue)
        if not queues:
            del self._queues[queue.key]

    def _begin_group(self, queue: AppendQueue) -> None:
        """Start a group if appends wait and no group runs within its lease."""
        if not queue.waiting:
            self._remove_if_idle(queue)
            return
        if queue.group is not None and time.monotonic() < queue.group.until:
            return
        group = queue.group = Group(queue)
        answers_sync = queue.waiting[0].target.answers_sync
        try:
            group.cancel = begin_plan(self._serve(group), partial(self._end, group), answers_sync=answers_sync)
        except BaseException as error:
            queue.group = None
            if isinstance(error, Exception):  # threads and loops have shut down
                while queue.waiting:
                    queue.waiting.popleft().fail(error, is_shared=True)
            self._remove_if_idle(queue)
            raise

    def _take(self, group: Group) -> None:
        """Move waiting appends into the group, up to its limits.

        An append whose open version is more than `VERSIONS_NEAR` from the first one's stays in the queue.
        """
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
        """Return appends of a group to the queue."""
        with self._lock:
            for append in reversed(appends):
                group = append.group
                assert group is not None
                group.appends.remove(append)
                if not append.is_cancelled:
                    append.group = None
                    group.queue.waiting.appendleft(append)

    def _serve(self, group: Group) -> Plan[None]:
        self._take(group)
        if not group.appends:  # all were cancelled
            return
        absent = yield from commit_group(group.appends, group.queue)
        if absent:
            self._put_back(absent[1:])
            yield from create_table(absent[0])

    def _end(self, group: Group, error: BaseException | None) -> None:
        """Called when a group has ended: fails its unfinished appends and starts the next group."""
        if not isinstance(error, Exception):  # cancelled by a shutdown: cancelled callers do not read their result
            error = RuntimeError("the process is shutting down, or the group of appends was cancelled, before it ended")
        unfinished = [append for append in group.appends if not append.done.done()]
        for append in unfinished:
            append.fail(error, is_shared=len(unfinished) > 1)
        with self._lock:
            queue = group.queue
            if queue.group is group:
                queue.group = None
            try:
                self._begin_group(queue)
            except Exception as failure:
                _logger.warning("cannot start the next group of appends: %s", failure)
        group.over.set_result(None)


def _key(append: GroupAppend) -> Hashable:
    """Properties that appends of one queue share, except for the store client (`_is_same`)."""
    target, options = append.target, append.options
    location, handler = target.location, target.handler
    lock = getattr(handler, "lock", None)  # a user's lock may not be hashable
    decides = handler if lock is None else (type(handler), id(lock))
    properties = tuple(sorted(options.properties.items()))
    return location.store.identity, location.path, decides, options.durability, properties


def _is_same(store: ObjectStore, other: ObjectStore) -> bool:
    """Whether one caller may write for another: the same store, reached with the same credentials and options."""
    if store is other:
        return True
    if type(store) is not type(other) or store.identity != other.identity:
        return False
    if offers_sync_writes(store):
        return bool(getattr(store, "durability", None) == getattr(other, "durability", None))
    origin = getattr(store, "origin", None)
    return origin is not None and origin == getattr(other, "origin", None)


GROUPS: Final = Groups()
"""The groups of this process."""
