"""Removing a table with all of its files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lance_io.commit.cleanup_reads import unfinished_files
from lance_io.dataset.run_plan import run_async, run_sync
from lance_io.dataset.version.session import Session
from lance_io.errors import NotFound
from lance_io.plans.store_requests import List, OwnFiles, Remove, RemoveEmptyFolders
from lance_io.store.api import HoldsFolders, SyncReads
from lance_io.store.storage_options import options_of
from lance_io.store.url import load_client

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from lance_io.plans.plan import Plan
    from lance_io.store.url import Location

    Place = str | PathLike[str]

KEYS_AT_ONCE: Final = 10_000


def drop(uri: Place, storage_options: Mapping[str, str] | None, ignore_not_found: bool | None) -> None:
    """See `LanceDataset.drop`."""
    location = Session().locate(uri, options_of(storage_options))
    run_sync(_drop(location, ignore_not_found), answers_sync=isinstance(location.store, SyncReads))


async def drop_async(uri: Place, storage_options: Mapping[str, str] | None, ignore_not_found: bool | None) -> None:
    """See `AsyncDataset.drop`."""
    await load_client(uri, storage_options)
    await run_async(_drop(Session().locate(uri, options_of(storage_options)), ignore_not_found))


def _drop(location: Location, ignore_not_found: bool | None) -> Plan[None]:
    """Manifests first: a drop that is interrupted leaves garbage, not versions whose files are missing.

    What is behind a link in the table's folder is not the table's; the link is.
    """
    if isinstance(location.store, HoldsFolders):
        keys = [*(yield OwnFiles(location.store, location.path))]
    else:
        found = yield List(location.store, location.key("") if location.path else "")
        unfinished = yield from unfinished_files(location)
        keys = [meta.key for meta in (*found, *unfinished.values())]
    if not keys and not ignore_not_found:
        raise NotFound(f"Not found: {location.uri}: there is no table to drop", path=location.uri)
    versions = location.key("_versions") + "/"
    keys.sort(key=lambda key: (not key.startswith(versions), key))
    for start in range(0, len(keys), KEYS_AT_ONCE):
        yield Remove(location.store, keys[start : start + KEYS_AT_ONCE])
    if isinstance(location.store, HoldsFolders):
        yield RemoveEmptyFolders(location.store, location.path)
