"""Versions with two names, V1 and V2: a store's create-if-absent decides per name (decisions: 012-manifest-names.md).

While manifests are renamed, or after an interrupted renaming, a table has names of both schemes. A writer that lists it
then and one that listed it before could create the same number under different names. The V2 name decides:

    the listing showed       a commit creates              and before or after that
    V1 names alone           the V1 name                   looks for V2 names and notes of a renaming. Without any it is
                                                           committed; else it goes on under the V2 name
    names of both schemes,   the V2 name, on a newest      gives the newest version a V2 name if it has none, and lists
    or V1 names and a note   version that has one          again; looks for the V1 name of its own number
    V2 names alone           the V2 name                   nothing: no further request

A process that needs a version decided creates its V2 name with the content of its V1 name (`settle`): a commit that
builds on it, a writer that saw V2 names, a renaming. The first of them wins, and all continue with its content. A
writer that finds its V2 name taken by another removes its V1 name and starts over.

A version that was opened by its V1 name may have been taken back since. So a writer that opened such a version and now
finds V2 names compares the two (`list_decided`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lance_io.commit.handler import Created, NewVersion, Taken, named
from lance_io.commit.latest import versions_prefix
from lance_io.commit.put_absent import unknown_outcome
from lance_io.errors import CommitConflictError, CommitUnknownError, LanceError, NotFound
from lance_io.plans.plan import Together, ask
from lance_io.plans.store_requests import Head, List, Read, Remove
from lance_io.redaction import get_logger
from lance_io.store.api import NAMES_DIRECTLY_BELOW, Selection
from lance_io.table.manifest.manifest import decode_origin, decode_summary
from lance_io.table.manifest.paths import RENAMING, ManifestName, manifest_name, parse_manifest_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_io.commit.handler import CommitHandler
    from lance_io.commit.latest import VersionFile
    from lance_io.commit.target import CommitTarget
    from lance_io.plans.plan import Plan
    from lance_io.store.api import Buffer, ObjectMeta
    from lance_io.store.url import Location
    from lance_io.table.manifest.manifest import Manifest

LISTINGS_MAX: Final = 10  # listings of a table whose newest version has only its V1 name each time
_VERSIONS_AHEAD: Final = 1 << 20  # more than other writers can have created since a listing

_logger = get_logger(__name__)


# -- before a version is created ---------------------------------------------------------------------------------------


def list_decided(target: CommitTarget, after: int, base: Manifest | None) -> Plan[list[VersionFile]]:
    """`CommitHandler.list_after`, after deciding the newest version and checking that `base` was not taken back.

    base  the version that the writer holds

    Raises `CommitConflictError` (retryable) if `base` was taken back, or the newest version stays undecided.
    """
    location, handler = target.location, target.handler
    for _ in range(LISTINGS_MAX):
        versions = yield from handler.list_after(location, after)
        newest = versions[-1] if versions else None
        if newest is None or not handler.decides_by_name:
            return versions
        if not is_undecided(newest):
            yield from _check_base(location, base, newest)
            return versions
        yield from settle(location, handler, newest.version)
    raise CommitConflictError(
        f"the manifests of {location.uri} are being renamed, and others go on to commit under the older "
        "names; try again",
        path=location.uri,
        retryable=True,
    )


def is_undecided(newest: VersionFile) -> bool:
    """Whether another version may still win the number of the newest one: it has only a V1 name, among V2 names."""
    return newest.is_mixed and newest.scheme == "V1"


def _check_base(location: Location, base: Manifest | None, newest: VersionFile) -> Plan[None]:
    """Check that a version read under its V1 name has the content of its V2 name, if there is one."""
    if base is None or not base.has_old_name or newest.scheme != "V2":
        return
    try:
        data: Buffer = yield Read(location.store, named(location, ManifestName("V2", base.version)))
    except NotFound:
        return  # it still has its V1 name, or a cleanup removed it
    if not _is_same(data, base):
        raise CommitConflictError(
            f"version {base.version}, as it was opened, was taken back: while manifests were renamed another writer "
            "made a version of this number. Open the table again, and repeat the operation on its newest version",
            path=location.uri,
            retryable=True,
        )


def _is_same(data: Buffer, manifest: Manifest) -> bool:
    """Whether a manifest file has the transaction and time of `manifest`."""
    timestamp_ns = decode_summary(data)[1]
    return decode_origin(data).transaction_file == manifest.transaction_file and timestamp_ns == manifest.timestamp_ns


def settle(location: Location, handler: CommitHandler, version: int) -> Plan[Buffer | None]:
    """Decide a version by creating its V2 name if it is absent. Returns its content, None if neither name exists.

    Raises the errors of `CommitHandler.create`.
    """
    newer, older = (named(location, ManifestName(scheme, version)) for scheme in ("V2", "V1"))
    decided = yield from _read_if_exists(location, newer)
    if decided is not None:
        return decided
    data = yield from _read_if_exists(location, older)
    if data is None:
        return (yield from _read_if_exists(location, newer))  # it may have been renamed in between
    return (yield from decide(location, handler, version, data))


def decide(location: Location, handler: CommitHandler, version: int, data: Buffer) -> Plan[Buffer | None]:
    """Create the V2 name of a version with the content of its V1 name, if absent. Returns the content of the V2 name.

    None if another process created the V2 name and it is gone again. Raises the errors of `CommitHandler.create`, and
    that of a lock on release.
    """
    new = NewVersion(version, "V2", bytes(data), uuid="")
    outcome: Created | Taken = yield from handler.create(location, new)
    if isinstance(outcome, Created):
        if outcome.failure is not None:
            raise outcome.failure
        return data
    return outcome.data if outcome.data is not None else (yield from _read_if_exists(location, new.key(location)))


def is_same_commit(data: Buffer, other: Buffer) -> bool:
    """Whether two manifest files are equal or of the same transaction."""
    if bytes(data) == bytes(other):
        return True
    try:
        names = [decode_origin(file).transaction_file.partition("-")[2] for file in (data, other)]
    except LanceError:
        return False
    return bool(names[0]) and names[0] == names[1]


def _read_if_exists(location: Location, key: str) -> Plan[Buffer | None]:
    try:
        return (yield Read(location.store, key))
    except NotFound:
        return None


# -- creating it -------------------------------------------------------------------------------------------------------


def create_version(location: Location, handler: CommitHandler, new: NewVersion) -> Plan[Created | Taken]:
    """`CommitHandler.create` that commits at most one of the two names of a number; see the module."""
    if not handler.decides_by_name or new.scheme == "detached":
        return (yield from handler.create(location, new))
    if new.scheme == "V1":
        return (yield from _create_old_name(location, handler, new))
    if new.is_mixed:
        try:
            yield Head(location.store, named(location, ManifestName("V1", new.version)))
        except NotFound:
            pass
        else:
            return Taken((yield from settle(location, handler, new.version)))
    return (yield from handler.create(location, new))


def _create_old_name(location: Location, handler: CommitHandler, new: NewVersion) -> Plan[Created | Taken]:
    """Create a V1 name; if V2 names have appeared, the V2 name decides."""
    outcome = yield from handler.create(location, new)
    if isinstance(outcome, Taken):
        return outcome
    try:
        if not (yield from _has_newer_names(location, new.version)):
            return outcome
        moved = yield from _move(location, handler, new)
    except CommitUnknownError:
        raise
    except LanceError as error:  # its V1 name exists, and others may build on it
        raise unknown_outcome(new.key(location), error) from error
    try:
        yield Remove(location.store, (new.key(location),))
    except LanceError as error:  # the V2 name counts
        _logger.warning("%s stays behind for a renaming: %s", new.key(location), error)
    if isinstance(moved, Created) and moved.failure is None:
        return replace(moved, failure=outcome.failure)
    return moved


def _move(location: Location, handler: CommitHandler, new: NewVersion) -> Plan[Created | Taken]:
    """Create the V2 name of a version that has its V1 name, if its base was not taken back."""
    if new.base is not None:
        data = yield from settle(location, handler, new.base.version)
        if data is None or not _is_same(data, new.base):
            return Taken()
    moved = NewVersion(new.version, "V2", new.data, new.uuid, new.durability)
    return (yield from handler.create(location, moved))


def _has_newer_names(location: Location, version: int) -> Plan[bool]:
    """Whether a V2 name or the note of a renaming exists; on ordered stores two listings of one key."""
    store, prefix = location.store, versions_prefix(location.path)
    if not store.capabilities.ordered_list or store.capabilities.reads_whole_folders:
        entries: list[ObjectMeta] = yield List(store, prefix, NAMES_DIRECTLY_BELOW)
        return any(_indicates_new_names(meta) for meta in entries)
    # V2 names are adjacent in the order: no V1 name of such a small number sorts between them.
    ahead = prefix + manifest_name(version + _VERSIONS_AHEAD, "V2")
    first = Selection(start_after=ahead, limit=1, keys_only=True, plain_names=True)
    note = Selection(limit=1, keys_only=True, plain_names=True)
    listings: Iterable[list[ObjectMeta]] = yield Together(
        [ask(List(store, prefix, first)), ask(List(store, prefix + RENAMING, note))]
    )
    return any(_indicates_new_names(meta) for listing in listings for meta in listing)


def _indicates_new_names(meta: ObjectMeta) -> bool:
    if meta.name.startswith(RENAMING):
        return True
    name = None if meta.is_folder else parse_manifest_name(meta.name)
    return name is not None and name.scheme == "V2"


# -- for cleanups ------------------------------------------------------------------------------------------------------


def without_duplicate_names(named: Iterable[tuple[ObjectMeta, ManifestName]]) -> list[tuple[ObjectMeta, ManifestName]]:
    """Manifests without the V1 names of versions that also have a V2 name."""
    entries = list(named)
    newer = {name.version for _, name in entries if name.scheme == "V2"}
    return [(meta, name) for meta, name in entries if name.scheme != "V1" or name.version not in newer]


def both_names(metas: Iterable[ObjectMeta]) -> tuple[str, ...]:
    """The keys of manifests under both of their names: a removed version must not stay under its other name."""
    keys = []
    for meta in metas:
        name = parse_manifest_name(meta.name)
        keys.append(meta.key)
        if name is not None and name.scheme != "detached":
            folder = meta.key[: -len(meta.name)]
            keys.append(folder + manifest_name(name.version, "V1" if name.scheme == "V2" else "V2"))
    return tuple(keys)
