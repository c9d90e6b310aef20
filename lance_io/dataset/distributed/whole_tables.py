"""Whole tables: opened for changes that one process makes, dropped, renamed; and folders of tables."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

from lance_io.dataset.distributed.table_place import TABLE_SUFFIX, TablePlace
from lance_io.dataset.lance_dataset import LanceDataset
from lance_io.errors import AlreadyExists, FormatError, NotFound, UnsupportedError
from lance_io.plans.store_requests import Head, List, Put, Read, Remove, RemoveEmptyFolders
from lance_io.reads.run_plan import run_on, run_sync
from lance_io.store.api import NAMES_DIRECTLY_BELOW
from lance_io.store.offers import HoldsFolders, offers_sync_writes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.plans.plan import Plan
    from lance_io.store.api import ObjectMeta, ObjectStore
    from lance_io.store.url import Location

FOLDER_FILE: Final = "_namespace.json"
_FOLDER_FILE_BYTES_MAX: Final = 1 << 20
_HIDDEN: Final = (".", "_")


def open_dataset(table: TablePlace) -> LanceDataset:
    """Open the newest version of a table.

    Args:
        table: The table.

    Returns:
        The table, with the session of this process.

    Raises:
        ValueError: There is no table.
    """
    return LanceDataset(table.uri, storage_options=dict(table.storage_options) or None, session=table.session)


def drop_table(table: TablePlace) -> bool:
    """Remove a table with all of its files.

    Args:
        table: The table.

    Returns:
        Whether there was one.
    """
    try:
        LanceDataset.drop(table.uri, dict(table.storage_options) or None)
    except NotFound:
        return False
    return True


def rename_table(table: TablePlace, uri: str) -> None:
    """Move the folder of a table on a local disk, in one step.

    Args:
        table: The table.
        uri: Its new URI.

    Raises:
        UnsupportedError: The table is not on a local disk; on an object store no step renames a folder.
        AlreadyExists: There is something at the new URI.
        NotFound: There is no table.
    """
    source, target = _local_path(table.uri), _local_path(uri)
    if source is None or target is None:
        raise UnsupportedError(
            f"{table.uri} is not on a local disk, where one step renames a folder: write its rows to a new table"
        )
    if not os.path.isdir(source):
        raise NotFound(f"there is no table at {table.uri}", path=table.uri)
    if os.path.lexists(target):
        raise AlreadyExists(f"there is something at {uri}", path=uri)
    os.rename(source, target)


def _local_path(uri: str) -> str | None:
    path = uri.removeprefix("file://")
    return None if "://" in path else path


class TableFolder:
    """A folder of tables, and of other such folders: a namespace of SQL.

    A small object in it, `_namespace.json`, has its properties, and keeps the folder while nothing else is in it. A
    folder without this object is one, too, if anything is in it.

    Args:
        folder: The folder, as if it were a table.
    """

    def __init__(self, folder: TablePlace) -> None:
        self._folder = folder
        self._location = folder.location

    def folders(self) -> list[str]:
        """Names of the folders of tables in it, sorted. Those that begin with a dot or `_` are none."""
        entries = run_on(self._location.store, _entries(self._location))
        return sorted(entry.name for entry in entries if _is_folder_of_tables(entry))

    def properties(self) -> dict[str, str] | None:
        """The properties; None if there is no such folder.

        Raises:
            FormatError: The object that should have them has something else.
        """
        return run_on(self._location.store, _properties(self._location))

    def write(self, properties: Mapping[str, str]) -> None:
        """Create the folder, or replace its properties.

        Args:
            properties: All of its properties.
        """
        store, text = self._location.store, json.dumps({"properties": dict(properties)}, sort_keys=True)
        self._run(_put(store, self._location.key(FOLDER_FILE), text.encode()))

    def drop(self, *, with_tables: bool = False) -> list[str]:
        """Remove the folder, unless more is in it than may go.

        Args:
            with_tables: True removes the tables in it as well, and the folders of tables.

        Returns:
            Names of what keeps the folder, of which nothing is removed then; none if it has gone.
        """
        kept = self._strangers() if with_tables else self._names()
        if not kept:
            self._remove()
        return kept

    def _names(self) -> list[str]:
        entries = run_on(self._location.store, _entries(self._location))
        return [entry.name for entry in entries if entry.is_folder or entry.name != FOLDER_FILE]

    def _strangers(self) -> list[str]:
        """Paths in it and in its folders that belong to no table."""
        strangers: list[str] = []
        for entry in run_on(self._location.store, _entries(self._location)):
            if _is_folder_of_tables(entry) and not self._is_link(entry):
                strangers += [f"{entry.name}/{name}" for name in self._below(entry.name)._strangers()]
            elif not _is_table(entry) and (entry.is_folder or entry.name != FOLDER_FILE):
                strangers.append(entry.name)
        return strangers

    def _is_link(self, entry: ObjectMeta) -> bool:
        """Whether a folder is a link, behind which tables of others are."""
        return isinstance(self._location.store, HoldsFolders) and os.path.islink(entry.key.rstrip("/"))

    def _remove(self) -> None:
        """Remove the tables and folders in it, then itself."""
        for entry in run_on(self._location.store, _entries(self._location)):
            if _is_table(entry):
                drop_table(self._inner(entry.name))
            elif _is_folder_of_tables(entry) and not self._is_link(entry):
                self._below(entry.name)._remove()
        self._run(_remove_empty(self._location))

    def _inner(self, name: str) -> TablePlace:
        folder = self._folder
        return TablePlace(f"{folder.uri.rstrip('/')}/{name}", folder.storage_options, folder.session)

    def _below(self, name: str) -> TableFolder:
        return TableFolder(self._inner(name))

    def _run(self, plan: Plan[None]) -> None:
        run_sync(plan, answers_sync=offers_sync_writes(self._location.store))


def _is_table(entry: ObjectMeta) -> bool:
    return entry.is_folder and entry.name.endswith(TABLE_SUFFIX) and not entry.name.startswith(_HIDDEN)


def _is_folder_of_tables(entry: ObjectMeta) -> bool:
    return entry.is_folder and not entry.name.endswith(TABLE_SUFFIX) and not entry.name.startswith(_HIDDEN)


def _entries(location: Location) -> Plan[list[ObjectMeta]]:
    """The entries directly in a folder."""
    entries: list[ObjectMeta] = yield List(location.store, location.key(""), NAMES_DIRECTLY_BELOW)
    return entries


def _properties(location: Location) -> Plan[dict[str, str] | None]:
    key = location.key(FOLDER_FILE)
    try:
        meta: ObjectMeta = yield Head(location.store, key)
    except NotFound:
        return {} if (yield from _entries(location)) else None
    if meta.size_bytes > _FOLDER_FILE_BYTES_MAX:
        raise FormatError(f"expected at most {_FOLDER_FILE_BYTES_MAX} bytes, found {meta.size_bytes}", path=key)
    text = bytes((yield Read(location.store, key)))
    try:
        properties = json.loads(text)["properties"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(f"expected properties of a folder of tables, found {text[:80]!r}", path=key) from error
    if not isinstance(properties, dict) or not all(isinstance(value, str) for value in properties.values()):
        raise FormatError(f"expected properties that are texts, found {text[:80]!r}", path=key)
    return properties


def _put(store: ObjectStore, key: str, data: bytes) -> Plan[None]:
    yield Put(store, key, data)


def _remove_empty(location: Location) -> Plan[None]:
    """Remove the object of a folder, and where folders stay without objects the folder."""
    yield Remove(location.store, (location.key(FOLDER_FILE),))
    if isinstance(location.store, HoldsFolders):
        yield RemoveEmptyFolders(location.store, location.path)
