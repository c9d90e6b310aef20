"""Versions that tags, branches and clones refer to: resolves references, and pins the version during the change.

Tags and branches are small files, created with the store's conditional put.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from lance_io.commit.handler import Taken
from lance_io.commit.latest import missing_version
from lance_io.commit.pins import while_pinned
from lance_io.commit.put_absent import create_once
from lance_io.commit.target import SystemClock
from lance_io.errors import AlreadyExists, NotFound, UsageError
from lance_io.lazy_names import lazy_module
from lance_io.plans.store_requests import Put, Read
from lance_io.reads.open_version import check_number, tag_of
from lance_io.reads.version.object_keys import branch_location
from lance_io.table.manifest.refs import MAIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.commit import lock as locks
    from lance_io.commit.latest import VersionFile
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.store.api import ObjectMeta
    from lance_io.store.url import Location
else:
    locks = lazy_module("lance_io.commit.lock")

T = TypeVar("T")


class RefConflict(AlreadyExists, UsageError):
    """A tag or branch of this name exists already; pylance raises `ValueError`, and for branches `OSError`."""


def create_ref(state: DatasetState, key: str, content: bytes, version: int) -> Plan[ObjectMeta | Taken]:
    """Create the file of a tag or branch unless it exists: with a conditional put, else under the user's lock.

    version  number of a version, the argument of the user's lock

    Raises `CommitHandlerError` for an error of the lock; if the lock fails on exit, the file stays.
    """
    store = state.root.store
    if store.capabilities.conditional_create or state.commit_lock is None:
        return (yield from create_once(store, key, content, lambda there: bytes(there) == content))

    def look_and_put() -> Plan[ObjectMeta | Taken]:
        try:
            return Taken((yield Read(store, key)))
        except NotFound:
            created: ObjectMeta = yield Put(store, key, content)
            return created

    outcome, failure = yield from locks.run_under_lock(state.commit_lock, version, look_and_put(), state.root.uri)
    if failure is not None:
        raise failure
    return outcome


def hold_version(state: DatasetState, reference: Any, use: Callable[[str | None, VersionFile], Plan[T]]) -> Plan[T]:
    """Resolve a reference and call `use` while the version is pinned against cleanups.

    use  called with the branch, None for the main one, and the manifest file
    """
    branch, version = yield from _resolve(state, reference)
    location = branch_location(state.root, branch)
    if version is None:
        version = (yield from _file(state, branch, location, None)).version

    def work() -> Plan[T]:
        return (yield from use(branch, (yield from _file(state, branch, location, version))))

    return (yield from while_pinned(location, version, SystemClock(), work()))


def find_version(state: DatasetState, reference: Any) -> Plan[tuple[str | None, VersionFile]]:
    """Branch, None for the main one, and manifest file of a referenced version. Raises `NotFound`."""
    branch, version = yield from _resolve(state, reference)
    return branch, (yield from _file(state, branch, branch_location(state.root, branch), version))


def _resolve(state: DatasetState, reference: Any) -> Plan[tuple[str | None, int | None]]:
    """Branch and version, None for its newest.

    reference  version, tag, `(branch, version)`, or None for the open version
    """
    branch: str | None
    version: int | None
    if reference is None:
        branch, version = state.manifest.branch, state.manifest.version
    elif isinstance(reference, str):
        tag = yield from tag_of(state.root, reference)
        branch, version = tag.branch, tag.version
    elif isinstance(reference, tuple):
        if len(reference) != 2:
            raise UsageError(f"expected (branch, version), found {reference!r}")
        branch, version = reference
    else:
        branch, version = state.manifest.branch, check_number(reference)
    return None if branch == MAIN else branch, version


def _file(state: DatasetState, branch: str | None, location: Location, version: int | None) -> Plan[VersionFile]:
    """The manifest file of a version, None for the newest. Raises `NotFound`."""
    handler = state.session.handler(location)
    try:
        if version is None:
            return (yield from handler.find_latest(location))
        return (yield from handler.find_version(location, version))
    except NotFound as error:
        shown = f"{branch or MAIN}:{'latest' if version is None else version}"
        text = f"Version not found error: version {shown} does not exist in {location.uri}"
        if version is not None:
            text += f". {missing_version(location.uri, version)}"
        raise NotFound(text, path=location.uri) from error
