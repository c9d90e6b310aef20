"""Naming the manifests of old tables in the new way, V2, by which a short listing finds the newest (spec: table, 3).

    for some at once, the newest first   note that they are renamed (`pins.py`)
    the newest of them, then the others  GET of the manifest; create it under its new name
    then                                 remove those of the old names

At every moment the newest version is found, by readers and by writers, which go on meanwhile (`commit/other_names.py`).
What was interrupted goes on when it is called again, also what pylance has begun. pylance itself refuses a table as
long as it has names of both kinds.

Two manifests of one number that differ are not decided here: both are left, and named when all others are done.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from lance_io.commit.latest import versions_prefix
from lance_io.commit.other_names import decide, is_same_commit
from lance_io.commit.pins import pin_names, release, release_expired
from lance_io.commit.record import recorded_transaction
from lance_io.commit.target import SystemClock
from lance_io.errors import FormatError, LanceError, NotFound, UnsupportedError
from lance_io.plans.plan import Pause, Together
from lance_io.plans.store_requests import List, Read, Remove
from lance_io.store.api import NAMES_DIRECTLY_BELOW
from lance_io.table.manifest.manifest import decode_manifest
from lance_io.table.manifest.paths import VERSIONS, manifest_name, parse_manifest_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.commit.handler import CommitHandler
    from lance_io.commit.target import Clock
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.store.api import Buffer, ObjectMeta
    from lance_io.store.url import Location

_MANIFESTS_AT_ONCE: Final = 64
_LOOKS_MAX: Final = 5  # at manifests that differ: a writer may be about to take its own back
_FIRST_PAUSE_S: Final = 0.2
_SHOWN_MAX: Final = 5


def migrate_names(state: DatasetState) -> Plan[None]:
    """Name all manifests of the open branch in the new way; see `LanceDataset.migrate_manifest_paths_v2`."""
    place, handler = state.location, state.session.handler(state.location)
    if not handler.decides_by_name:
        raise UnsupportedError(
            f"{place.uri}: the names of its manifests are in a database, which this does not change", path=place.uri
        )
    clock, looks = SystemClock(), 0
    while old := (yield from _find_old_names(place)):
        differing: list[tuple[int, str]] = []
        for start in range(0, len(old), _MANIFESTS_AT_ONCE):
            differing += yield from _rename(place, handler, old[start : start + _MANIFESTS_AT_ONCE], clock)
        if len(differing) == len(old):
            looks += 1
            if looks == _LOOKS_MAX:
                raise (yield from _two_commits(place, differing))
            yield Pause(clock.random() * _FIRST_PAUSE_S * 2**looks)
    yield from release_expired(place)


def _find_old_names(place: Location) -> Plan[list[tuple[int, str]]]:
    """Versions whose manifests have old names, newest first, with their keys."""
    metas: list[ObjectMeta] = yield List(place.store, versions_prefix(place.path), NAMES_DIRECTLY_BELOW)
    named = [(meta, name) for meta in metas if (name := parse_manifest_name(meta.name)) is not None]
    return sorted(((name.version, meta.key) for meta, name in named if name.scheme == "V1"), reverse=True)


def _rename(
    place: Location, handler: CommitHandler, old: Sequence[tuple[int, str]], clock: Clock
) -> Plan[list[tuple[int, str]]]:
    """Rename some manifests, newest first; gives those that are left since there are others of their numbers."""
    note = yield from pin_names(place, old[-1][0], old[0][0], clock)
    try:
        newest = yield from _copy(place, handler, *old[0])
        others: list[bool] = yield Together([_copy(place, handler, version, key) for version, key in old[1:]])
        is_done = [newest, *others]
        done = tuple(key for (_, key), is_copied in zip(old, is_done, strict=True) if is_copied)
        if done and note.is_fresh(clock):
            yield Remove(place.store, done)
    except Exception:
        yield from release(place, note)
        raise
    yield from release(place, note)
    return [one for one, is_copied in zip(old, is_done, strict=True) if not is_copied]


def _copy(place: Location, handler: CommitHandler, version: int, key: str) -> Plan[bool]:
    """Give a manifest its new name; False where another one has that."""
    try:
        data: Buffer = yield Read(place.store, key)
    except NotFound:
        return True  # another was faster, or removed the version
    there = yield from decide(place, handler, version, data)
    return there is not None and is_same_commit(data, there)


# -- what is left ------------------------------------------------------------------------------------------------------


def _two_commits(place: Location, differing: Sequence[tuple[int, str]]) -> Plan[FormatError]:
    """The error that names what was committed under either name."""
    told = []
    for version, key in differing[:_SHOWN_MAX]:
        newer = place.key(VERSIONS, manifest_name(version, "V2"))
        older, other = yield Together([_describe_commit(place, version, one) for one in (key, newer)])
        names = manifest_name(version, "V2"), manifest_name(version, "V1")
        told.append(f"version {version} is {other} by {names[0]}, and {older} by {names[1]}")
    more = f"; and {len(differing) - _SHOWN_MAX} more" if len(differing) > _SHOWN_MAX else ""
    return FormatError(
        f"two manifests that differ have the same number, one in each naming: {'; '.join(told)}{more}. All others have "
        "their new names. Readers take the first of each, and both are left. Move the one away that is not wanted, and "
        "call this again",
        path=place.uri,
    )


def _describe_commit(place: Location, version: int, key: str) -> Plan[str]:
    """What a manifest says about the change that made it."""
    try:
        data: Buffer = yield Read(place.store, key)
        manifest = decode_manifest(data)
        transaction = yield from recorded_transaction(place, key, manifest, data)
    except LanceError as error:
        return f"unreadable ({error})"
    time = datetime.fromtimestamp(manifest.timestamp_ns // 10**9, UTC).isoformat()
    number = "" if manifest.version == version else f", which says that it is version {manifest.version}"
    if transaction is None:
        return f"an unknown change of {time}{number}"
    return f"{transaction.name} {transaction.uuid} of {time}{number}"
