"""Commit handlers make versions visible: the interface to the commit loop and to readers.

    put_absent.py  the store decides, by conditional creation of an object
    lock.py        the user's lock decides
    external.py    a database beside the store decides

A handler has no state about tables, so that one handler serves all tables of a store.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lance_io.commit.latest import VersionFile
from lance_io.errors import LanceError
from lance_io.records import dataclass
from lance_io.table.manifest.manifest import decode_origin
from lance_io.table.manifest.paths import VERSIONS, ManifestName, NamingScheme, manifest_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_io.errors import CommitHandlerError
    from lance_io.plans.plan import Plan
    from lance_io.store.api import Buffer, Durability, ObjectMeta
    from lance_io.store.url import Location
    from lance_io.table.manifest.manifest import Manifest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A manifest file to make visible.

    uuid        UUID of its transaction; identifies it in retries
    durability  of its file; None for the store's default
    is_mixed    whether the listing before it showed names of both schemes; see `VersionFile`
    base        the version that it builds on, of the same sequence; None for the first one
    """

    version: int
    scheme: NamingScheme
    data: bytes
    uuid: str
    durability: Durability | None = None
    is_mixed: bool = False
    base: Manifest | None = None

    def key(self, location: Location) -> str:
        """Key of its file."""
        return location.key(VERSIONS, manifest_name(self.version, self.scheme))

    def file(self, meta: ObjectMeta) -> VersionFile:
        """The file, after its creation."""
        return VersionFile(self.version, self.scheme, meta.key, meta.size_bytes, meta.etag)

    def is_in(self, data: Buffer) -> bool:
        """Whether `data` is this file, or another attempt to commit the same transaction."""
        if bytes(data) == self.data:
            return True
        try:
            name = decode_origin(data).transaction_file
        except LanceError:
            return False
        return name.partition("-")[2] == f"{self.uuid}.txn"


@dataclass(frozen=True, slots=True)
class Created:
    """The version is visible, and ours.

    failure  error that the commit lock raised on release; the caller raises it once all else is done
    """

    file: VersionFile
    failure: CommitHandlerError | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """Another writer created a version of this number.

    data  the manifest file that won, None if it was not read
    """

    data: Any = None


@dataclass()
class StagedObjects:
    """Staging objects, by key.

    named  manifests of existing versions
    dead   objects that can no longer become a manifest; objects in neither set still can
    """

    named: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)


class CommitHandler(Protocol):
    """Makes versions visible; all methods are plans."""

    @property
    def answers_sync(self) -> bool:
        """Whether its own requests can be answered without an event loop."""

    @property
    def decides_by_name(self) -> bool:
        """Whether the manifest file alone makes a version exist, so that its two names could be two versions."""

    def check(self, location: Location) -> None:
        """Raise `UnsupportedError` if it is known, without a request, not to work here.

        A change calls this before it writes anything.
        """

    def prepare(self, location: Location) -> Plan[None]:
        """Check once whether it works here; may run concurrently with anything before `create`.

        Raises `UnsupportedError` if it does not.
        """

    def create(self, location: Location, new: NewVersion) -> Plan[Created | Taken]:
        """Make a version visible, unless its number is taken.

        Raises `CommitUnknownError` if it may or may not be visible; after any other error it is not.
        """

    def find_latest(self, location: Location) -> Plan[VersionFile]:
        """The newest version. Raises `NotFound` if there is none."""

    def find_latest_and(self, location: Location, use: Callable[[VersionFile], Plan[T]]) -> Plan[tuple[VersionFile, T]]:
        """The newest version, and the result of `use`, which may be called twice; see `latest.py`."""

    def find_version(self, location: Location, version: int) -> Plan[VersionFile]:
        """One version. Raises `NotFound`."""

    @property
    def records_versions(self) -> bool:
        """Whether versions are recorded beside the store, by tables and branches."""

    def list_after(self, location: Location, version: int) -> Plan[list[VersionFile]]:
        """The versions above `version`, and the newest in any case; ascending, empty if there is no table."""

    def forget(self, location: Location) -> Plan[int]:
        """Remove the records beside the store of versions whose files are gone; returns their number."""

    def classify_staged(self, location: Location, staged: Sequence[tuple[int, str]]) -> Plan[StagedObjects | None]:
        """Find out which staging objects are manifests of versions, and which can no longer become manifests.

        staged  version and key of each staging object
        Returns None if there are no records about staging objects.
        """


def named(location: Location, name: ManifestName) -> str:
    """Key of a manifest."""
    return location.key(VERSIONS, manifest_name(name.version, name.scheme))
