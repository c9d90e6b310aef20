"""Committing under a lock that the user provides, for stores without conditional creation.

    lock(version)       a context manager; any exception on entry ends the commit
    HEAD final name     exists: the number is taken
    PUT                 unconditional
    release             an exception is raised to the caller after the work that follows a commit

All writers of the table must take the same lock. If the answer to the PUT is lost, the object is read back while the
lock is held.
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
"""Returns the lock for the version to commit."""


def run_under_lock(
    lock: CommitLock, version: int, work: Plan[T], uri: str
) -> Plan[tuple[T, CommitHandlerError | None]]:
    """Run `work` under the lock for a version. One thread acquires and releases the lock.

    uri  of the table, for errors

    Returns the result, and the error of the release, if any; the work is done in either case. Raises
    `CommitHandlerError`, before `work` starts, if acquiring the lock fails. Errors of `work` pass unchanged; an error
    of the release is only logged then.
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
        failed = _handler_error(error, uri, f"; releasing the lock for version {version} failed, its changes stay")
        failed.__cause__ = error
        return failed
    return None


def _handler_error(error: Exception, uri: str, more: str = "") -> CommitHandlerError:
    return CommitHandlerError(f"Error from commit handler: {type(error).__name__}: {error}{more}", path=uri)


@dataclass(frozen=True)
class LockHandler:
    """Commits under a lock; see the module. One thread acquires and releases it."""

    lock: CommitLock
    _names: PutAbsentHandler = field(default_factory=PutAbsentHandler, repr=False)

    records_versions = False

    @property
    def answers_sync(self) -> bool:
        """The lock may block, in the caller's thread as in any other."""
        return True

    @property
    def decides_by_name(self) -> bool:
        """`create` looks for the file of that name under the lock."""
        return True

    def check(self, location: Location) -> None:
        """Nothing to check: the lock works with any store."""

    def prepare(self, location: Location) -> Plan[None]:
        """Nothing to prepare: the store need not support anything."""
        yield from ()

    def create(self, location: Location, new: NewVersion) -> Plan[Created | Taken]:
        """Put the manifest file under the lock; see `CommitHandler`."""
        outcome, failure = yield from run_under_lock(self.lock, new.version, _put(location, new), location.uri)
        if failure is None:
            return outcome
        if isinstance(outcome, Taken):
            raise failure
        return replace(outcome, failure=failure)

    def find_latest(self, location: Location) -> Plan[VersionFile]:
        """See `CommitHandler`; reads the listing."""
        return (yield from self._names.find_latest(location))

    def find_latest_and(self, location: Location, use: Callable[[VersionFile], Plan[T]]) -> Plan[tuple[VersionFile, T]]:
        """See `CommitHandler`; reads the listing."""
        return (yield from self._names.find_latest_and(location, use))

    def find_version(self, location: Location, version: int) -> Plan[VersionFile]:
        """See `CommitHandler`; looks for both names."""
        return (yield from self._names.find_version(location, version))

    def list_after(self, location: Location, version: int) -> Plan[list[VersionFile]]:
        """See `CommitHandler`; reads the listing."""
        return (yield from self._names.list_after(location, version))

    def forget(self, location: Location) -> Plan[int]:
        """Nothing to remove: there are no records beside the store."""
        return (yield from self._names.forget(location))

    def classify_staged(self, location: Location, staged: Sequence[tuple[int, str]]) -> Plan[StagedObjects | None]:
        """None: there are no records about staging objects."""
        return (yield from self._names.classify_staged(location, staged))


def _put(location: Location, new: NewVersion) -> Plan[Created | Taken]:
    store, key = location.store, new.key(location)
    try:
        content = yield Read(store, key)
        return Taken(content)
    except NotFound:
        pass
    try:
        meta = yield Put(store, key, new.data, durability=new.durability)
    except StoreError as error:
        content = yield from read_back(store, key, error, unknown=True)
        if content is None and (isinstance(error, Unsent) or not error.retryable):
            raise
        if content is None or not new.is_in(content):  # the PUT may still arrive
            raise unknown_outcome(key, error) from error
        return (yield from PutAbsentHandler().outcome_of(location, new, content))
    return Created(new.file(meta))
