"""Tags: names for versions, created, moved and removed (spec: table, section 1.3)."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lance_io.commit.handler import Taken
from lance_io.commit.pins import holding
from lance_io.commit.put_absent import create_once
from lance_io.commit.target import SystemClock
from lance_io.dataset.version.object_keys import branch_location
from lance_io.dataset.version.open_version import check_number, tag_of
from lance_io.errors import AlreadyExists, CommitUnknownError, NotFound, UsageError
from lance_io.plans.store_requests import Put, Read, Remove
from lance_io.table.manifest.refs import MAIN, Tag, check_tag_name, encode_tag, ref_time, tag_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lance_io.commit.latest import VersionFile
    from lance_io.dataset.version.state import DatasetState
    from lance_io.plans.plan import Plan
    from lance_io.store.api import ObjectMeta
    from lance_io.store.url import Location


class RefConflict(AlreadyExists, UsageError):
    """A tag of that name is there already; pylance raises `ValueError`."""


def create_tag(state: DatasetState, name: str, reference: Any) -> Plan[None]:
    """Name a version; see `Tags.create`."""
    check_tag_name(name)

    def create(branch: str | None, file: VersionFile) -> Plan[None]:
        now = ref_time(time.time_ns())
        tag = encode_tag(Tag(file.version, branch, file.size_bytes, now, now))
        key = state.root.key(tag_path(name))
        try:
            created = yield from _create(state, key, tag, file.version)
        except CommitUnknownError as error:
            text = f"tag {name} may or may not have been created: the answer was lost, and reading it back failed"
            raise CommitUnknownError(text, path=state.root.uri) from error
        if isinstance(created, Taken):
            raise RefConflict(f"Ref conflict error: tag {name} already exists in {state.root.uri}", path=state.root.uri)

    yield from _hold_version(state, reference, create)


def _create(state: DatasetState, key: str, tag: bytes, version: int) -> Plan[ObjectMeta | Taken]:
    """Create the file of a tag unless there is one: as the store lets one of many do it, else under the user's lock."""
    store = state.root.store
    if store.capabilities.conditional_create or state.commit_lock is None:
        return (yield from create_once(store, key, tag, lambda there: bytes(there) == tag))
    from lance_io.commit.lock import hold_lock

    def look_and_put() -> Plan[ObjectMeta | Taken]:
        try:
            return Taken((yield Read(store, key)))
        except NotFound:
            created: ObjectMeta = yield Put(store, key, tag)
            return created

    return (yield from hold_lock(state.commit_lock, version, look_and_put()))


def update_tag(state: DatasetState, name: str, reference: Any) -> Plan[None]:
    """Let a tag name another version; see `Tags.update`."""
    tag = yield from tag_of(state.root, name)

    def move(branch: str | None, file: VersionFile) -> Plan[None]:
        moved = replace(tag, version=file.version, branch=branch, manifest_size=file.size_bytes)
        yield from _write(state, name, replace(moved, updated_at=ref_time(time.time_ns())))

    yield from _hold_version(state, reference, move)


def replace_tag_metadata(state: DatasetState, name: str, metadata: Mapping[str, str]) -> Plan[None]:
    """Give a tag other metadata; see `Tags.replace_metadata`."""
    tag = yield from tag_of(state.root, name)
    yield from _write(state, name, replace(tag, metadata=dict(metadata), updated_at=ref_time(time.time_ns())))


def delete_tag(state: DatasetState, name: str) -> Plan[None]:
    """Remove a tag; see `Tags.delete`."""
    yield from tag_of(state.root, name)
    yield Remove(state.root.store, [state.root.key(tag_path(name))])


def _write(state: DatasetState, name: str, tag: Tag) -> Plan[None]:
    yield Put(state.root.store, state.root.key(tag_path(name)), encode_tag(tag))


def _hold_version(
    state: DatasetState, reference: Any, name: Callable[[str | None, VersionFile], Plan[None]]
) -> Plan[None]:
    """Let `name` name the version that a reference means, which no cleanup removes meanwhile."""
    branch, version = yield from _meant(state, reference)
    location = branch_location(state.root, branch)
    if version is None:
        version = (yield from _file(state, branch, location, None)).version

    def work() -> Plan[None]:
        yield from name(branch, (yield from _file(state, branch, location, version)))

    yield from holding(location, version, SystemClock(), work())


def _meant(state: DatasetState, reference: Any) -> Plan[tuple[str | None, int | None]]:
    """Branch and version, None for its newest: of a version, tag, `(branch, version)`, None for the open version."""
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
        raise NotFound(text, path=location.uri) from error
