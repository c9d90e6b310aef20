"""How versions become visible: what every way of committing offers to the commit loop and to readers.

    put_absent.py  the store lets one of many creators of an object win
    lock.py        the user's lock does
    external.py    a database does, beside the store

A handler is free of state about tables, so that one serves all tables of a store.
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
    """A manifest file that is to be made visible.

    uuid        of its transaction, by which it is recognised
    durability  of its file; None is the store's
    is_mixed    whether the listing that it follows showed names of both kinds; see `VersionFile`
    base        the version that it is built on, of the same sequence; None for the first one
    """

    version: int
    scheme: NamingScheme
    data: bytes
    uuid: str
    durability: Durability | None = None
    is_mixed: bool = False
    base: Manifest | None = None

    def key(self, place: Location) -> str:
        """Key of its file."""
        return place.key(VERSIONS, manifest_name(self.version, self.scheme))

    def file(self, meta: ObjectMeta) -> VersionFile:
        """The file, once it is there."""
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

    failure  what a commit lock raised when it was left, for the caller to hear once all else is done
    """

    file: VersionFile
    failure: CommitHandlerError | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """Another writer made a version of this number.

    data  the manifest file that won, None when it was not read
    """

    data: Any = None


@dataclass()
class StagedObjects:
    """Staging objects, by key.

    named  are the manifests of versions
    dead   can become none any more, whoever wrote them; others still may
    """

    named: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)


class CommitHandler(Protocol):
    """A way of making versions visible; all methods are plans."""

    @property
    def answers_sync(self) -> bool:
        """Whether its own requests can be answered without a loop."""

    @property
    def decides_by_name(self) -> bool:
        """Whether a version is there as soon as there is a file of its name, so that two names are two."""

    def check(self, place: Location) -> None:
        """Raise `UnsupportedError` where it is known, without a request, that it does not work here.

        A change asks before it writes anything.
        """

    def prepare(self, place: Location) -> Plan[None]:
        """Find out once whether it works here; may run beside anything before `create`.

        Raises `UnsupportedError` when it does not.
        """

    def create(self, place: Location, new: NewVersion) -> Plan[Created | Taken]:
        """Make a version visible, unless its number is taken.

        Raises `CommitUnknownError` when there is no telling whether it is visible; after any other error it is not.
        """

    def find_latest(self, place: Location) -> Plan[VersionFile]:
        """The newest version. Raises `NotFound` when there is none."""

    def find_latest_and(self, place: Location, use: Callable[[VersionFile], Plan[T]]) -> Plan[tuple[VersionFile, T]]:
        """The newest version, and what `use` makes of it, which may be asked for twice; see `latest.py`."""

    def find_version(self, place: Location, version: int) -> Plan[VersionFile]:
        """One version. Raises `NotFound`."""

    @property
    def records_versions(self) -> bool:
        """Whether versions are recorded beside the store, by tables and branches."""

    def list_after(self, place: Location, version: int) -> Plan[list[VersionFile]]:
        """The versions above `version`, and the newest in any case; ascending, empty without a table."""

    def forget(self, place: Location) -> Plan[int]:
        """Remove what is recorded beside the store of versions whose files are gone; gives how many these were."""

    def sort_staged(self, place: Location, staged: Sequence[tuple[int, str]]) -> Plan[StagedObjects | None]:
        """What becomes of staging objects, given by version and key; None where nobody knows."""


def named(place: Location, name: ManifestName) -> str:
    """Key of a manifest."""
    return place.key(VERSIONS, manifest_name(name.version, name.scheme))
