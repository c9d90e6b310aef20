"""Where a table is, and what a process reaches it with; how plans about it are run there."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lance_io.errors import LanceError, NotFound
from lance_io.lazy_names import later
from lance_io.limits import METADATA_CACHE_BYTES
from lance_io.reads.run_plan import run_on
from lance_io.reads.version.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lance_io.reads.version import versions
    from lance_io.store.url import Location
else:
    versions = later("lance_io.reads.version.versions")  # which tasks that go well do not need

_session: Session | None = None
_session_pid = 0


def process_session(metadata_cache_bytes: int = METADATA_CACHE_BYTES) -> Session:
    """The session that all tasks of this process share; a forked child has its own.

    Nothing is made before somebody asks: an engine may fork its workers from a process that has imported this.

    metadata_cache_bytes  bound of its cache, for the one that asks first
    """
    global _session, _session_pid
    if _session is None or _session_pid != os.getpid():
        _session = Session(metadata_cache_size_bytes=metadata_cache_bytes)
        _session_pid = os.getpid()
    return _session


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A table's place as this process reaches it. Every process makes its own, from what travels with its task.

    uri              of the table
    storage_options  credentials and settings of the store
    session          what is kept from task to task: connections, metadata of files, deletion vectors
    """

    uri: str
    storage_options: Mapping[str, str] = field(repr=False)
    session: Session = field(repr=False)

    @classmethod
    def of_process(
        cls, uri: str, storage_options: Mapping[str, str], metadata_cache_bytes: int = METADATA_CACHE_BYTES
    ) -> TablePlace:
        """The place in the session of this process.

        metadata_cache_bytes  of this session, where it is made by this call
        """
        return cls(uri, storage_options, process_session(metadata_cache_bytes))

    @property
    def location(self) -> Location:
        """The table's folder."""
        return self.session.locate(self.uri, self.storage_options)


@contextmanager
def cleanups_told(location: Location, version: int) -> Iterator[None]:
    """Where something is not found in the block, and the version neither, say that a cleanup has removed it.

    A cleanup removes manifests before files: of a version whose files it has removed, the manifest is gone.
    """
    try:
        yield
    except NotFound as error:
        try:
            told = run_on(location.store, versions.removed_by_cleanup(location, version))
        except LanceError:  # the table itself is gone, or nobody can tell
            raise error from None
        if told is None:
            raise
        advice = "Load the table again; cleanups should keep versions for longer than queries use them"
        raise NotFound(f"{told}. {advice}", path=location.uri) from error
