"""Versions under two names, V1 and V2, which no store creates only one of (decisions: 012-manifest-names.md).

While manifests are renamed, or after that was interrupted, a table has names of both kinds. Who lists it then, and who
has listed it before, would create the same number under different names. What decides is the V2 name:

    the listing showed       a commit creates              and before or after that
    V1 names alone           the V1 name                   looks for V2 names and notes of a renaming. Without any it is
                                                           committed; else it goes on under the V2 name
    names of both kinds, or  the V2 name, on a newest      gives the newest version a V2 name and lists again, where it
    V1 names and a note      version that has one          has none; looks for the V1 name of its number
    V2 names alone           the V2 name                   nothing: no request more

Whoever needs a version to be decided creates its V2 name with the content of its V1 name (`settle`): a commit that
builds on it, a writer whose look has met V2 names, a renaming. One of them is first, and all go by what is there then.
A writer whose V2 name is taken by another takes its V1 name back, and begins anew.

A version that was opened by its V1 name may have been taken back since. So whoever changes the table after that, and
finds V2 names there, compares (`list_decided`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lance_io.commit.handler import Created, NewVersion, Taken, named
from lance_io.commit.latest import versions_prefix
from lance_io.commit.pins import RENAMING
from lance_io.commit.put_absent import unknown_outcome
from lance_io.errors import CommitConflictError, CommitUnknownError, LanceError, NotFound
from lance_io.plans.plan import Together, ask
from lance_io.plans.store_requests import Head, List, Read, Remove
from lance_io.redaction import get_logger
from lance_io.store.api import NAMES_DIRECTLY_BELOW, Selection
from lance_io.table.manifest.manifest import decode_origin, decode_summary
from lance_io.table.manifest.paths import ManifestName, manifest_name, parse_manifest_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_io.commit.handler import CommitHandler
    from lance_io.commit.latest import VersionFile
    from lance_io.commit.target import CommitTarget
    from lance_io.plans.plan import Plan
    from lance_io.store.api import Buffer, ObjectMeta
    from lance_io.store.url import Location
    from lance_io.table.manifest.manifest import Manifest

LISTINGS_MAX: Final = 10  # of a table whose newest version has only its V1 name each time
_VERSIONS_AHEAD: Final = 1 << 20  # more than other writers can have made since a listing

_logger = get_logger(__name__)


# -- before a version is made ------------------------------------------------------------------------------------------


def list_decided(target: CommitTarget, after: int, base: Manifest | None) -> Plan[list[VersionFile]]:
    """As `CommitHandler.list_after`; the newest version is decided, and `base` is what its number stands for.

    base  the version that the writer holds

    Raises `CommitConflictError` (retryable) where `base` was taken back, or the newest version is never decided.
    """
    place, handler = target.place, target.handler
    for _ in range(LISTINGS_MAX):
        versions = yield from handler.list_after(place, after)
        newest = versions[-1] if versions else None
        if newest is None or not handler.decides_by_name:
            return versions
        if not is_undecided(newest):
            yield from _check_base(place, base, newest)
            return versions
        yield from settle(place, handler, newest.version)
    raise CommitConflictError(
        f"the manifests of {place.uri} are being renamed, and others go on to commit under the older names; try again",
        path=place.uri,
        retryable=True,
    )


def is_undecided(newest: VersionFile) -> bool:
    """Whether the newest version may still turn out to be another: it has only its V1 name, among V2 names."""
    return newest.is_mixed and newest.scheme == "V1"


def _check_base(place: Location, base: Manifest | None, newest: VersionFile) -> Plan[None]:
    """Make sure that a version which was read under its V1 name is the one that its number stands for."""
    if base is None or not base.has_old_name or newest.scheme != "V2":
        return
    try:
        there: Buffer = yield Read(place.store, named(place, ManifestName("V2", base.version)))
    except NotFound:
        return  # it has its V1 name still, or was cleaned up
    if not _is_same(there, base):
        raise CommitConflictError(
            f"version {base.version}, as it was opened, was taken back: while manifests were renamed another writer "
            "made a version of this number. Open the table again, and repeat the operation on its newest version",
            path=place.uri,
            retryable=True,
        )


def _is_same(data: Buffer, manifest: Manifest) -> bool:
    """Whether a manifest file is that of a version which is open."""
    timestamp_ns = decode_summary(data)[1]
    return decode_origin(data).transaction_file == manifest.transaction_file and timestamp_ns == manifest.timestamp_ns


def settle(place: Location, handler: CommitHandler, version: int) -> Plan[Buffer | None]:
    """Decide a version: give it the V2 name, unless something has; gives what is there then. None without either name.

    Raises as `CommitHandler.create` does.
    """
    newer, older = (named(place, ManifestName(scheme, version)) for scheme in ("V2", "V1"))
    there = yield from _read_if_there(place, newer)
    if there is not None:
        return there
    data = yield from _read_if_there(place, older)
    if data is None:
        return (yield from _read_if_there(place, newer))  # it may have been renamed in between
    return (yield from decide(place, handler, version, data))


def decide(place: Location, handler: CommitHandler, version: int, data: Buffer) -> Plan[Buffer | None]:
    """Decide a version for the content of its V1 name, unless it is decided; gives what is there under the V2 name.

    None where the one that others have created is gone again. Raises as `CommitHandler.create` does, and what a lock
    raises when it is left.
    """
    new = NewVersion(version, "V2", bytes(data), uuid="")
    outcome: Created | Taken = yield from handler.create(place, new)
    if isinstance(outcome, Created):
        if outcome.failure is not None:
            raise outcome.failure
        return data
    return outcome.data if outcome.data is not None else (yield from _read_if_there(place, new.key(place)))


def is_same_commit(data: Buffer, other: Buffer) -> bool:
    """Whether two manifest files are one, or of the same transaction."""
    if bytes(data) == bytes(other):
        return True
    try:
        names = [decode_origin(one).transaction_file.partition("-")[2] for one in (data, other)]
    except LanceError:
        return False
    return bool(names[0]) and names[0] == names[1]


def _read_if_there(place: Location, key: str) -> Plan[Buffer | None]:
    try:
        return (yield Read(place.store, key))
    except NotFound:
        return None


# -- making it ---------------------------------------------------------------------------------------------------------


def create_version(place: Location, handler: CommitHandler, new: NewVersion) -> Plan[Created | Taken]:
    """As `CommitHandler.create`; of two names of a number one is committed at most, as the module says."""
    if not handler.decides_by_name or new.scheme == "detached":
        return (yield from handler.create(place, new))
    if new.scheme == "V1":
        return (yield from _create_old_name(place, handler, new))
    if new.is_mixed:
        try:
            yield Head(place.store, named(place, ManifestName("V1", new.version)))
        except NotFound:
            pass
        else:
            return Taken((yield from settle(place, handler, new.version)))
    return (yield from handler.create(place, new))


def _create_old_name(place: Location, handler: CommitHandler, new: NewVersion) -> Plan[Created | Taken]:
    """Create a V1 name; where V2 names have come, the V2 name decides."""
    outcome = yield from handler.create(place, new)
    if isinstance(outcome, Taken):
        return outcome
    try:
        if not (yield from _has_newer_names(place, new.version)):
            return outcome
        moved = yield from _move(place, handler, new)
    except CommitUnknownError:
        raise
    except LanceError as error:  # its V1 name is there, and may be what others build on
        raise unknown_outcome(new.key(place), error) from error
    try:
        yield Remove(place.store, (new.key(place),))
    except LanceError as error:  # the V2 name counts
        _logger.warning("%s stays behind for a renaming: %s", new.key(place), error)
    if isinstance(moved, Created) and moved.failure is None:
        return replace(moved, failure=outcome.failure)
    return moved


def _move(place: Location, handler: CommitHandler, new: NewVersion) -> Plan[Created | Taken]:
    """Create the V2 name of a version whose V1 name is there, if its base is what its number stands for."""
    if new.base is not None:
        there = yield from settle(place, handler, new.base.version)
        if there is None or not _is_same(there, new.base):
            return Taken()
    moved = NewVersion(new.version, "V2", new.data, new.uuid, new.durability)
    return (yield from handler.create(place, moved))


def _has_newer_names(place: Location, version: int) -> Plan[bool]:
    """Whether there is a V2 name, or the note of a renaming; in ordered stores two listings of one key."""
    store, prefix = place.store, versions_prefix(place.path)
    if not store.capabilities.ordered_list or store.capabilities.reads_whole_folders:
        entries: list[ObjectMeta] = yield List(store, prefix, NAMES_DIRECTLY_BELOW)
        return any(_tells_of_new_names(meta) for meta in entries)
    # V2 names sort after one another, and no V1 name of so small a number lies between them.
    ahead = prefix + manifest_name(version + _VERSIONS_AHEAD, "V2")
    first = Selection(start_after=ahead, limit=1, keys_only=True, plain_names=True)
    note = Selection(limit=1, keys_only=True, plain_names=True)
    found: Iterable[list[ObjectMeta]] = yield Together(
        [ask(List(store, prefix, first)), ask(List(store, prefix + RENAMING, note))]
    )
    return any(_tells_of_new_names(meta) for entries in found for meta in entries)


def _tells_of_new_names(meta: ObjectMeta) -> bool:
    if meta.name.startswith(RENAMING):
        return True
    name = None if meta.is_folder else parse_manifest_name(meta.name)
    return name is not None and name.scheme == "V2"


# -- of those who remove versions --------------------------------------------------------------------------------------


def one_name_each(named: Iterable[tuple[ObjectMeta, ManifestName]]) -> list[tuple[ObjectMeta, ManifestName]]:
    """Manifests without the V1 names of versions that have a V2 name, too."""
    every = list(named)
    newer = {name.version for _, name in every if name.scheme == "V2"}
    return [(meta, name) for meta, name in every if name.scheme != "V1" or name.version not in newer]


def both_names(metas: Iterable[ObjectMeta]) -> tuple[str, ...]:
    """The keys of manifests under both of their names: a version that is removed must not stay under the other one."""
    keys = []
    for meta in metas:
        name = parse_manifest_name(meta.name)
        keys.append(meta.key)
        if name is not None and name.scheme != "detached":
            folder = meta.key[: -len(meta.name)]
            keys.append(folder + manifest_name(name.version, "V1" if name.scheme == "V2" else "V2"))
    return tuple(keys)
