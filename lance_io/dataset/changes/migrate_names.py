"""Naming the manifests of old tables in the new way, V2, by which a short listing finds the newest (spec: table, 3).

    for some at once   GET of the manifest || ...; create it under its new name || ...
    then               remove those of the old names

While both are there no reader finds the newest version, in either library: this is not for tables that somebody writes
to. What was interrupted goes on when it is called again, by a handle that was opened before, or by a version's number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lance_io.commit.handler import Taken
from lance_io.commit.latest import versions_prefix
from lance_io.commit.put_absent import create_once
from lance_io.errors import FormatError, UnsupportedError
from lance_io.plans.plan import Together
from lance_io.plans.store_requests import List, Read, Remove
from lance_io.store.api import DIRECTLY_BELOW
from lance_io.table.manifest.paths import VERSIONS, manifest_name, parse_manifest_name

if TYPE_CHECKING:
    from lance_io.commit.handler import CommitHandler
    from lance_io.dataset.version.state import DatasetState
    from lance_io.plans.plan import Plan
    from lance_io.store.api import ObjectMeta
    from lance_io.store.url import Location

_MANIFESTS_AT_ONCE: Final = 64


def migrate_names(state: DatasetState) -> Plan[None]:
    """Name all manifests of the open branch in the new way; see `LanceDataset.migrate_manifest_paths_v2`."""
    place = state.location
    _refuse_databases(place, state.session.handler(place))
    while old := (yield from _find_old_names(place)):
        for start in range(0, len(old), _MANIFESTS_AT_ONCE):
            yield Together([_copy(place, version, key) for version, key in old[start : start + _MANIFESTS_AT_ONCE]])
        yield Remove(place.store, tuple(key for _, key in old))


def _refuse_databases(place: Location, handler: CommitHandler) -> None:
    from lance_io.commit.external import ExternalHandler

    if isinstance(handler, ExternalHandler):
        raise UnsupportedError(
            f"{place.uri}: the names of its manifests are in a database, which this does not change", path=place.uri
        )


def _find_old_names(place: Location) -> Plan[list[tuple[int, str]]]:
    """Versions whose manifests have old names, oldest first, with their keys."""
    metas: list[ObjectMeta] = yield List(place.store, versions_prefix(place.path), DIRECTLY_BELOW)
    named = [(meta, name) for meta in metas if (name := parse_manifest_name(meta.name)) is not None]
    return sorted((name.version, meta.key) for meta, name in named if name.scheme == "V1")


def _copy(place: Location, version: int, key: str) -> Plan[None]:
    data = bytes((yield Read(place.store, key)))
    new = place.key(VERSIONS, manifest_name(version, "V2"))
    created = yield from create_once(place.store, new, data, lambda there: bytes(there) == data)
    if isinstance(created, Taken):
        raise FormatError(
            f"version {version} has two manifests that differ, one in each naming: {key} is left", path=new
        )
