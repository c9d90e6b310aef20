"""`TablePlace`: a table's URI and storage options, together with the session of the current process."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lance_io.errors import LanceError, NotFound
from lance_io.lazy_names import lazy_module
from lance_io.limits import METADATA_CACHE_BYTES
from lance_io.plans.store_requests import List
from lance_io.reads.run_plan import run_on
from lance_io.reads.version.session import Session
from lance_io.store.api import NAMES_DIRECTLY_BELOW

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from lance_io.plans.plan import Plan
    from lance_io.reads.version import versions
    from lance_io.store.api import ObjectMeta
    from lance_io.store.url import Location
else:
    versions = lazy_module("lance_io.reads.version.versions")  # needed for `version_times`, and after errors

TABLE_SUFFIX: Final = ".lance"

_session: Session | None = None
_session_pid = 0


def process_session(metadata_cache_bytes: int = METADATA_CACHE_BYTES) -> Session:
    """The session that all tasks of this process share; a forked child has its own.

    The first call in a process creates the session. The import of this module does not, because an engine may fork its
    workers after the import.

    metadata_cache_bytes  bound of the session's metadata cache in bytes; later calls ignore it
    """
    global _session, _session_pid
    if _session is None or _session_pid != os.getpid():
        _session = Session(metadata_cache_size_bytes=metadata_cache_bytes)
        _session_pid = os.getpid()
    return _session


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A table's URI and storage options, and the session of this process. A task carries URI and options as arguments.

    Attributes:
        uri: URI of the table.
        storage_options: Credentials and settings of the store.
        session: Connections, cached file metadata and cached deletion vectors. All tasks of the process share them.
    """

    uri: str
    storage_options: Mapping[str, str] = field(repr=False)
    session: Session = field(repr=False)

    @classmethod
    def of_process(
        cls, uri: str, storage_options: Mapping[str, str], metadata_cache_bytes: int = METADATA_CACHE_BYTES
    ) -> TablePlace:
        """Create a `TablePlace` with the session of the current process.

        Args:
            uri: URI of the table.
            storage_options: Credentials and settings of the store.
            metadata_cache_bytes: Bound of the session's metadata cache in bytes, if this call creates the session.
        """
        return cls(uri, storage_options, process_session(metadata_cache_bytes))

    @property
    def location(self) -> Location:
        """The table's folder."""
        return self.session.locate(self.uri, self.storage_options)

    def tables_below(self) -> list[str]:
        """Names of the tables in the folder at `uri`: the names of its subfolders `NAME.lance`, without the suffix."""
        location = self.location
        folders = run_on(location.store, _list_table_folders(location))
        return sorted(name.removesuffix(TABLE_SUFFIX) for name in folders if len(name) > len(TABLE_SUFFIX))

    def version_times(self) -> dict[int, datetime]:
        """Commit times of all versions by version number, oldest version first; empty if there is no table."""
        location = self.location
        return run_on(location.store, versions.manifest_times(location, self.session))


def _list_table_folders(location: Location) -> Plan[list[str]]:
    """List the subfolders that end in `.lance`; returns their names with the suffix."""
    entries: list[ObjectMeta] = yield List(location.store, location.key(""), NAMES_DIRECTLY_BELOW)
    return [entry.name for entry in entries if entry.is_folder and entry.name.endswith(TABLE_SUFFIX)]


@contextmanager
def explain_missing_version(location: Location, version: int) -> Iterator[None]:
    """Context manager for reads of a version: explains a `NotFound` whose cause is that a cleanup removed the version.

    A cleanup removes the manifest of a version before its files. So if the manifest still exists, the cause of the
    `NotFound` is another one, and the error is raised unchanged.
    """
    try:
        yield
    except NotFound as error:
        try:
            explanation = run_on(location.store, versions.removed_by_cleanup(location, version))
        except LanceError:  # a removed table or a failed listing: no explanation
            raise error from None
        if explanation is None:
            raise
        advice = "Load the table again; cleanups should keep versions for longer than queries use them"
        raise NotFound(f"{explanation}. {advice}", path=location.uri) from error
