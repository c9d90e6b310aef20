"""Removing a table with all of its files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lance_io.commit.cleanups.cleanup_reads import unfinished_files
from lance_io.errors import NotFound
from lance_io.plans.store_requests import List, OwnFiles, Remove, RemoveEmptyFolders
from lance_io.reads.run_plan import run_async, run_sync
from lance_io.reads.version.session import Session
from lance_io.store.offers import HoldsFolders, SyncReads
from lance_io.store.storage_options import options_of
from lance_io.store.url import load_client
from lance_io.table.manifest.paths import BRANCH_TREES, BRANCHES, VERSIONS
from lance_io.table.manifest.refs import ref_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from lance_io.commit.handler import CommitHandler
    from lance_io.plans.plan import Plan
    from lance_io.store.url import Location

    Uri = str | PathLike[str]

KEYS_AT_ONCE: Final = 10_000


def drop(uri: Uri, storage_options: Mapping[str, str] | None, ignore_not_found: bool | None) -> None:
    """See `LanceDataset.drop`."""
    session = Session()
    location = session.locate(uri, options_of(storage_options))
    handler = session.handler(location)
    answers_sync = handler.answers_sync and isinstance(location.store, SyncReads)
    run_sync(drop_table(location, handler, ignore_not_found), answers_sync=answers_sync)


async def drop_async(uri: Uri, storage_options: Mapping[str, str] | None, ignore_not_found: bool | None) -> None:
    """See `AsyncDataset.drop`."""
    await load_client(uri, storage_options)
    session = Session()
    location = session.locate(uri, options_of(storage_options))
    await run_async(drop_table(location, session.handler(location), ignore_not_found))


def drop_table(location: Location, handler: CommitHandler, ignore_not_found: bool | None) -> Plan[None]:
    """Remove a table. Manifests first: an interrupted drop leaves garbage, not versions without their files.

    If an external commit store records versions, its records are removed last: until then no table can be created here,
    and an error says to drop again. Records of branches are removed before the branch files.

    A link in the table's folder is removed, but not its target.
    """
    if isinstance(location.store, HoldsFolders):
        keys = [*(yield OwnFiles(location.store, location.path))]
    else:
        listed = yield List(location.store, location.key("") if location.path else "")
        unfinished = yield from unfinished_files(location)
        keys = [meta.key for meta in (*listed, *unfinished.values())]
    num_forgotten = 0
    if handler.records_versions:
        branches = location.key(BRANCHES, "")
        branch_files = [key for key in keys if key.startswith(branches)]
        names = _branches_in(location, keys)
        yield from _remove(location, [key for key in keys if not key.startswith(branches)])
        for name in names:
            num_forgotten += yield from handler.forget(location.below(BRANCH_TREES, *name.split("/")))
        yield from _remove(location, branch_files)
        num_forgotten += yield from handler.forget(location)
    else:
        yield from _remove(location, keys)
    if not keys and not num_forgotten and not ignore_not_found:
        raise NotFound(f"Not found: {location.uri}: there is no table to drop", path=location.uri)
    if isinstance(location.store, HoldsFolders):
        yield RemoveEmptyFolders(location.store, location.path)


def _branches_in(location: Location, keys: Sequence[str]) -> list[str]:
    """The branches of a table, by branch files and by versions in branch folders."""
    refs, tree, versions = location.key(BRANCHES, ""), location.key(BRANCH_TREES, ""), f"/{VERSIONS}/"
    named = {ref_name(key.removeprefix(refs)) for key in keys if key.startswith(refs)}
    trees = {key.removeprefix(tree).partition(versions)[0] for key in keys if key.startswith(tree) and versions in key}
    return sorted(trees.union(name for name in named if name is not None))


def _remove(location: Location, keys: Sequence[str]) -> Plan[None]:
    """Remove files, manifests of the table first."""
    versions = location.key(VERSIONS, "")
    ordered = sorted(keys, key=lambda key: (not key.startswith(versions), key))
    for start in range(0, len(ordered), KEYS_AT_ONCE):
        yield Remove(location.store, ordered[start : start + KEYS_AT_ONCE])
