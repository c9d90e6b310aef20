"""Renames manifests of old tables to V2 names, with which a short listing finds the newest version (spec: table, 3).

    groups of manifests, newest first        pin their names (`pins.py`)
    the newest of a group, then the others   GET of the manifest; create it with its new name
    then                                     remove the old names

Readers and writers find the newest version at any time and continue meanwhile (`commit/other_names.py`). Another call
completes an interrupted migration, also one by pylance. pylance refuses tables with names of both kinds.

If two different manifests have the same number, both are kept; an error reports them after all others are renamed.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from lance_io.commit.latest import versions_prefix
from lance_io.commit.manifest_reads import recorded_transaction
from lance_io.commit.other_names import decide, is_same_commit
from lance_io.commit.pins import pin_names, release, release_expired
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
_CHECKS_MAX: Final = 5  # of manifests that differ: a writer may be about to remove its own
_FIRST_PAUSE_S: Final = 0.2
_SHOWN_MAX: Final = 5


def rename_manifests(state: DatasetState) -> Plan[None]:
    """Rename all manifests of the open branch; see `LanceDataset.migrate_manifest_paths_v2`."""
    location, handler = state.location, state.session.handler(state.location)
    if not handler.decides_by_name:
        text = f"{location.uri}: cannot rename manifests whose names are in an external commit store"
        raise UnsupportedError(text, path=location.uri)
    clock, num_checks = SystemClock(), 0
    while old := (yield from _find_old_names(location)):
        differing: list[tuple[int, str]] = []
        for start in range(0, len(old), _MANIFESTS_AT_ONCE):
            differing += yield from _rename(location, handler, old[start : start + _MANIFESTS_AT_ONCE], clock)
        if len(differing) == len(old):
            num_checks += 1
            if num_checks == _CHECKS_MAX:
                raise (yield from _two_commits(location, differing))
            yield Pause(clock.random() * _FIRST_PAUSE_S * 2**num_checks)
    yield from release_expired(location)


def _find_old_names(location: Location) -> Plan[list[tuple[int, str]]]:
    """Versions whose manifests have old names, newest first, with their keys."""
    metas: list[ObjectMeta] = yield List(location.store, versions_prefix(location.path), NAMES_DIRECTLY_BELOW)
    named = [(meta, name) for meta in metas if (name := parse_manifest_name(meta.name)) is not None]
    return sorted(((name.version, meta.key) for meta, name in named if name.scheme == "V1"), reverse=True)


def _rename(
    location: Location, handler: CommitHandler, old: Sequence[tuple[int, str]], clock: Clock
) -> Plan[list[tuple[int, str]]]:
    """Rename some manifests, newest first; returns those that stay because another manifest has their number."""
    note = yield from pin_names(location, old[-1][0], old[0][0], clock)
    try:
        newest = yield from _copy(location, handler, *old[0])
        others: list[bool] = yield Together([_copy(location, handler, version, key) for version, key in old[1:]])
        is_done = [newest, *others]
        done = tuple(key for (_, key), is_copied in zip(old, is_done, strict=True) if is_copied)
        if done and note.is_fresh(clock):
            yield Remove(location.store, done)
    except Exception:
        yield from release(location, note)
        raise
    yield from release(location, note)
    return [named for named, is_copied in zip(old, is_done, strict=True) if not is_copied]


def _copy(location: Location, handler: CommitHandler, version: int, key: str) -> Plan[bool]:
    """Copy a manifest to its new name; False if a different manifest has that name."""
    try:
        data: Buffer = yield Read(location.store, key)
    except NotFound:
        return True  # another process renamed it, or removed the version
    there = yield from decide(location, handler, version, data)
    return there is not None and is_same_commit(data, there)


# -- different manifests with the same number --------------------------------------------------------------------------


def _two_commits(location: Location, differing: Sequence[tuple[int, str]]) -> Plan[FormatError]:
    """The error that describes the commits of both names."""
    shown = []
    for version, key in differing[:_SHOWN_MAX]:
        newer = location.key(VERSIONS, manifest_name(version, "V2"))
        older, other = yield Together([_describe_commit(location, version, each) for each in (key, newer)])
        names = manifest_name(version, "V2"), manifest_name(version, "V1")
        shown.append(f"version {version} is {other} by {names[0]}, and {older} by {names[1]}")
    more = f"; and {len(differing) - _SHOWN_MAX} more" if len(differing) > _SHOWN_MAX else ""
    return FormatError(
        f"two manifests that differ have the same number, one in each naming: {'; '.join(shown)}{more}. All others "
        "have their new names. Readers use the first of each, and both are kept. Move the unwanted one away, and call "
        "this again",
        path=location.uri,
    )


def _describe_commit(location: Location, version: int, key: str) -> Plan[str]:
    """A description of the commit that wrote a manifest."""
    try:
        data: Buffer = yield Read(location.store, key)
        manifest = decode_manifest(data)
        transaction = yield from recorded_transaction(location, key, manifest, data)
    except LanceError as error:
        return f"unreadable ({error})"
    time = datetime.fromtimestamp(manifest.timestamp_ns // 10**9, UTC).isoformat()
    number = "" if manifest.version == version else f", whose content has version {manifest.version}"
    if transaction is None:
        return f"an unknown change of {time}{number}"
    return f"{transaction.name} {transaction.uuid} of {time}{number}"
