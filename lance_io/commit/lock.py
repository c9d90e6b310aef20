"""Committing under a lock of the user's, for stores that keep no promise of their own.

    lock(version)       a context manager; what entering it raises, of any class, ends the commit
    HEAD final name     there: the number is taken
    PUT                 unconditional
    release             what that raises comes to the caller once all is done that follows a version

The lock must be one that all writers of the table take. A PUT whose answer was lost is read back while it is held.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from lance_io.commit.handler import Created, NewVersion, Taken
from lance_io.commit.put_absent import PutAbsentHandler, read_back, unknown_outcome
from lance_io.errors import CommitHandlerError, NotFound, StoreError
from lance_io.plans.plan import Call
from lance_io.plans.store_requests import Put, Read
from lance_io.redaction import get_logger
from lance_io.runtime.pool import LastingPool
from lance_io.store.failures import Unsent

if TYPE_CHECKING:
    from lance_io.commit.handler import StagedObjects
    from lance_io.commit.latest import VersionFile
    from lance_io.plans.plan import Plan
    from lance_io.store.url import Location

T = TypeVar("T")

_logger = get_logger(__name__)

CommitLock: TypeAlias = Callable[[int], AbstractContextManager[Any]]
"""Takes the version that is to be committed, gives the lock for it."""


def hold_lock(lock: CommitLock, version: int, work: Plan[T], uri: str) -> Plan[tuple[T, CommitHandlerError | None]]:
    """Do something under the lock for a version, which is entered and left in one thread.

    uri  of the table, for errors

    Gives the outcome, and what the lock raised when it was left: that says nothing of what was done. Raises
    `CommitHandlerError` where entering it raises anything; nothing has been done then. What `work` raises comes as it
    is, and what the lock raises then is logged only.
    """
    threads = LastingPool(1, "lance-io-lock")
    try:
        try:
            held = lock(version)
            yield Call(held.__enter__, threads)
        except Exception as error:
            raise _handler_error(error, uri) from error
        try:
            outcome = yield from work
        except BaseException:
            failure = yield from _leave(held, version, threads, uri, *sys.exc_info())
            if failure is not None:
                _logger.warning("version %d: the commit lock was not released: %s", version, failure)
            raise
        return outcome, (yield from _leave(held, version, threads, uri, None, None, None))
    finally:
        threads.shutdown(wait=False)


def _leave(
    held: AbstractContextManager[Any], version: int, threads: LastingPool, uri: str, *failure: Any
) -> Plan[CommitHandlerError | None]:
    try:
        yield Call(partial(held.__exit__, *failure), threads)
    except Exception as error:
        raised = _handler_error(error, uri, f"; the lock for version {version} was left, what was done under it stays")
        raised.__cause__ = error
        return raised
    return None


def _handler_error(error: Exception, uri: str, more: str = "") -> CommitHandlerError:
    return CommitHandlerError(f"Error from commit handler: {type(error).__name__}: {error}{more}", path=uri)


@dataclass(frozen=True)
class LockHandler:
    """A commit lock; see the module. It is entered and left in one thread."""

    lock: CommitLock
    _names: PutAbsentHandler = field(default_factory=PutAbsentHandler, repr=False)

    records_versions = False

    @property
    def answers_sync(self) -> bool:
        """The lock may block, in the caller's thread as in any other."""
        return True

    @property
    def decides_by_name(self) -> bool:
        """Under the lock it is looked for the file of that name."""
        return True

    def check(self, place: Location) -> None:
        """Under the lock any store will do."""

    def prepare(self, place: Location) -> Plan[None]:
        """Nothing is asked of the store."""
        yield from ()

    def create(self, place: Location, new: NewVersion) -> Plan[Created | Taken]:
        """Put the manifest file under the lock; see `CommitHandler`."""
        outcome, failure = yield from hold_lock(self.lock, new.version, _put(place, new), place.uri)
        if failure is None:
            return outcome
        if isinstance(outcome, Taken):
            raise failure
        return replace(outcome, failure=failure)

    def find_latest(self, place: Location) -> Plan[VersionFile]:
        """By the listing."""
        return (yield from self._names.find_latest(place))

    def find_latest_and(self, place: Location, use: Callable[[VersionFile], Plan[T]]) -> Plan[tuple[VersionFile, T]]:
        """By the listing."""
        return (yield from self._names.find_latest_and(place, use))

    def find_version(self, place: Location, version: int) -> Plan[VersionFile]:
        """By its names."""
        return (yield from self._names.find_version(place, version))

    def list_after(self, place: Location, version: int) -> Plan[list[VersionFile]]:
        """By the listing."""
        return (yield from self._names.list_after(place, version))

    def forget(self, place: Location) -> Plan[int]:
        """Nothing is recorded elsewhere."""
        return (yield from self._names.forget(place))

    def sort_staged(self, place: Location, staged: Sequence[tuple[int, str]]) -> Plan[StagedObjects | None]:
        """Nothing is known of what commits through a database have left."""
        return (yield from self._names.sort_staged(place, staged))


def _put(place: Location, new: NewVersion) -> Plan[Created | Taken]:
    store, key = place.store, new.key(place)
    try:
        there = yield Read(store, key)
        return Taken(there)
    except NotFound:
        pass
    try:
        meta = yield Put(store, key, new.data, durability=new.durability)
    except StoreError as error:
        there = yield from read_back(store, key, error, unknown=True)
        if there is None and (isinstance(error, Unsent) or not error.retryable):
            raise
        if there is None or not new.is_in(there):  # the PUT may still arrive
            raise unknown_outcome(key, error) from error
        return (yield from PutAbsentHandler().found(place, new, there))
    return Created(new.file(meta))
