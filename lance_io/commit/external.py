"""Committing through a database beside the store (spec: commit, section 7).

The database holds one row per version: key and size of its manifest. Creating the row of a number takes that number.
Object and row are brought together in steps; the writer may die after any of them:

    1 PUT      staging object `<final name>-<uuid>`
    2 reserve  row -> staging, if the number has no row             from here on the version exists
    3 COPY     staging -> final name
    4 finalize row -> final name
    5 DELETE   staging

A reader or writer that meets a row with a staging object does steps 3 to 5 for its writer: they are idempotent.
Readers therefore query the database first; readers without the database see objects without a row as versions, too.

Rows are removed only with the table. The rows of versions that a cleanup has removed stay, so that no writer with a
stale view creates such a version again. If the object of the newest row is missing, that is `ManifestMissing`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast
from uuid import uuid4

from lance_io.commit.handler import Created, NewVersion, StagedObjects, Taken
from lance_io.commit.latest import VersionFile, find_version, list_after, missing_version, versions_prefix
from lance_io.commit.put_absent import PutAbsentHandler, unknown_outcome
from lance_io.errors import (
    AlreadyExists,
    CommitUnknownError,
    FormatError,
    LanceError,
    ManifestMissing,
    NotFound,
    StoreError,
)
from lance_io.plans.plan import Pause, Together
from lance_io.plans.store_requests import Head, List, Put, Read, Remove
from lance_io.redaction import get_logger
from lance_io.table.manifest.paths import (
    VERSIONS,
    ManifestName,
    NamingScheme,
    is_detached,
    manifest_name,
    manifest_names,
    parse_manifest_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_io.plans.plan import Plan
    from lance_io.store.url import Location

T = TypeVar("T")

TRIES_MAX: Final = 4
ROWS_AT_ONCE: Final = 64
FIRST_PAUSE_S: Final = 0.1
_STAGING_SUFFIX_CHARS: Final = 37  # "-" and a UUID

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Row:
    """The database row of a version.

    path        key of its manifest: final name or staging object
    size_bytes  length of the manifest; None in rows of old releases
    """

    version: int
    path: str
    size_bytes: int | None = None

    @property
    def is_final(self) -> bool:
        """Whether it points at the final name."""
        return self.path.endswith(".manifest")


class ExternalManifestStore(Protocol):
    """A database table of rows, by table (`base`, the key prefix of its folder) and version. All methods are plans.

    Reads are strongly consistent: they see every write that was answered before.
    """

    @property
    def answers_sync(self) -> bool:
        """Whether its requests can be answered without an event loop."""

    def check(self) -> Plan[None]:
        """Check the schema of the database table once. Raises `UsageError`."""

    def get(self, base: str, version: int) -> Plan[Row | None]:
        """The row of a version."""

    def get_latest(self, base: str) -> Plan[Row | None]:
        """The row of the highest version."""

    def put_if_absent(self, base: str, row: Row) -> Plan[None]:
        """Create a row. Raises `AlreadyExists` if it exists, `StoreError` if the outcome is unknown."""

    def put_if_present(self, base: str, row: Row) -> Plan[None]:
        """Replace a row. Raises `NotFound` if it does not exist."""

    def list_rows(self, base: str) -> Plan[list[Row]]:
        """All rows of a table, ascending."""

    def remove_same(self, base: str, row: Row) -> Plan[bool]:
        """Remove a row if it is still equal to `row`; whether it was removed."""


@dataclass(frozen=True)
class ExternalHandler:
    """Commits through a database; see the module."""

    rows: ExternalManifestStore

    records_versions = True

    @property
    def answers_sync(self) -> bool:
        """Whether the database can be queried without an event loop."""
        return self.rows.answers_sync

    @property
    def decides_by_name(self) -> bool:
        """False: the row of the number decides."""
        return False

    def check(self, location: Location) -> None:
        """Nothing to check: the database works with any store."""

    def prepare(self, location: Location) -> Plan[None]:
        """Check the database table once."""
        yield from self.rows.check()

    # -- writing -----------------------------------------------------------------------------------------------------

    def create(self, location: Location, new: NewVersion) -> Plan[Created | Taken]:
        """Steps 1 to 5; see `CommitHandler`. Detached versions have no rows."""
        if new.scheme == "detached":
            return (yield from PutAbsentHandler().create(location, new))
        key = new.key(location)
        staging = f"{key}-{uuid4()}"
        yield Put(location.store, staging, new.data, durability=new.durability)
        row = Row(new.version, staging, len(new.data))
        try:
            taken = yield from self._reserve(location, new, row)
        except CommitUnknownError:
            raise  # the row may exist, and then needs the object
        except LanceError:
            yield from _remove(location, staging)
            raise
        if taken is not None:
            yield from _remove(location, staging)
            return taken
        try:
            file = yield from self._settle(location, row, new.scheme, new.data)
        except Exception as error:  # of any class: the version exists; the next reader does the remaining steps
            _logger.warning("version %d is committed, its manifest will be moved by others: %s", new.version, error)
            file = VersionFile(new.version, new.scheme, staging, len(new.data))
        return Created(file)

    def _reserve(self, location: Location, new: NewVersion, row: Row) -> Plan[Taken | Created | None]:
        """Take the number; None if the row is ours, else the version of that number (perhaps of an earlier attempt)."""
        failure: LanceError | None = None
        for attempt in range(TRIES_MAX):
            try:
                yield from self.rows.put_if_absent(location.path, row)
                return None
            except AlreadyExists as error:
                failure = error
            except StoreError as error:
                failure = error
            except LanceError as error:
                if failure is not None:  # an earlier request may have taken effect
                    raise unknown_outcome(new.key(location), error) from error
                raise
            try:
                existing = yield from self.rows.get(location.path, new.version)
            except LanceError as error:
                failure.add_note(f"reading back: {error}")
                existing = None
                if isinstance(failure, AlreadyExists):
                    raise unknown_outcome(new.key(location), failure) from error
            if existing is not None:
                return None if existing.path == row.path else (yield from self._settle_taken(location, new, existing))
            yield Pause(random.random() * FIRST_PAUSE_S * 2**attempt)
        assert failure is not None
        raise unknown_outcome(new.key(location), failure) from failure

    def _settle_taken(self, location: Location, new: NewVersion, existing: Row) -> Plan[Taken | Created]:
        try:
            file = yield from self._resolve(location, existing)
        except NotFound as error:
            raise self._missing(location, existing) from error
        data = yield Read(location.store, file.key)
        return Created(file) if new.is_in(data) else Taken(data)

    def _settle(self, location: Location, row: Row, scheme: NamingScheme, data: bytes | None) -> Plan[VersionFile]:
        """Steps 3 to 5 for a row that points at a staging object. Raises `NotFound` if both objects are missing."""
        key = location.key(VERSIONS, manifest_name(row.version, scheme))
        try:
            content = data if data is not None else bytes((yield Read(location.store, row.path)))
        except NotFound:
            meta = yield Head(location.store, key)  # another process moved it
            _check_size(row, meta.size_bytes, key)
        else:
            _check_size(row, len(content), row.path)
            meta = yield Put(location.store, key, content)
        try:
            yield from self.rows.put_if_present(location.path, Row(row.version, key, meta.size_bytes))
            yield Remove(location.store, (row.path,))
        except Exception as error:  # of any class: the version can be read
            _logger.warning("version %d: the row or the staging object stays for later: %s", row.version, error)
        return VersionFile(row.version, scheme, key, meta.size_bytes, meta.etag)

    # -- reading -----------------------------------------------------------------------------------------------------

    def find_latest(self, location: Location) -> Plan[VersionFile]:
        """The version of the highest row; without rows, the newest one of the listing."""
        yield from self.rows.check()
        row = yield from self.rows.get_latest(location.path)
        if row is not None:
            return (yield from self._resolve_newest(location, row))
        listed = yield from list_after(location.store, location.path, 0)
        if not listed:
            raise NotFound(f"Dataset at path {location.uri} was not found: it has no versions", path=location.uri)
        return listed[-1]

    def find_latest_and(self, location: Location, use: Callable[[VersionFile], Plan[T]]) -> Plan[tuple[VersionFile, T]]:
        """See `CommitHandler`; by the highest row."""
        newest = yield from self.find_latest(location)
        return newest, (yield from use(newest))

    def find_version(self, location: Location, version: int) -> Plan[VersionFile]:
        """One version; an object without a row gets one."""
        yield from self.rows.check()
        row = yield from self.rows.get(location.path, version)
        if row is not None:
            return (yield from self._resolve_old(location, row))
        file = yield from find_version(location.store, location.path, version)
        if not is_detached(version):
            try:
                yield from self.rows.put_if_absent(location.path, Row(version, file.key, file.size_bytes))
            except LanceError as error:  # it can be read without
                _logger.info("version %d was not entered into the database: %s", version, error)
        return file

    def list_after(self, location: Location, version: int) -> Plan[list[VersionFile]]:
        """The listing, plus the version of the highest row if its object is not moved yet; one round."""
        yield from self.rows.check()
        plans = [self.rows.get_latest(location.path), list_after(location.store, location.path, version)]
        row, listed = yield Together(plans)
        if row is None:
            return cast("list[VersionFile]", listed)
        newest_listed = next((file for file in listed if file.version == row.version), None)
        if row.is_final and newest_listed is not None:
            _check_size(row, newest_listed.size_bytes, newest_listed.key)
        else:
            newest = yield from self._resolve_newest(location, row)
            listed = [file for file in listed if file.version != row.version]
            if newest.version > version or not listed:
                listed = sorted([*listed, newest], key=lambda file: file.version)
        newer = [file for file in listed if file.version > version]
        return newer or listed[-1:]

    def _resolve_newest(self, location: Location, row: Row) -> Plan[VersionFile]:
        """`_resolve` for the highest row. Raises `ManifestMissing` if its object does not exist."""
        while True:
            try:
                return (yield from self._resolve(location, row))
            except NotFound as error:
                again = yield from self.rows.get_latest(location.path)
                if again is None or again == row:
                    raise self._missing(location, row) from error
                row = again  # another writer committed in the meantime

    def _resolve_old(self, location: Location, row: Row) -> Plan[VersionFile]:
        """`_resolve` for any row. Raises `NotFound` for a version that a cleanup removed."""
        try:
            return (yield from self._resolve(location, row))
        except NotFound as error:
            newest = yield from self.rows.get_latest(location.path)
            if newest == row:
                raise self._missing(location, row) from error
            text = f"{missing_version(location.uri, row.version)}: there is no {row.path} any more, as after a cleanup"
            raise NotFound(text, path=location.uri) from error

    def _missing(self, location: Location, row: Row) -> ManifestMissing:
        return ManifestMissing(
            f"{self.rows!r} says that the manifest of version {row.version} is {row.path}, and there is no such "
            "object: "
            "the table's files were removed without its rows, as pylance's drop does, or the object was lost. "
            "LanceDataset.drop with this URI (of a branch: branches.delete) removes the rows, and the rest of the "
            "table; then you can create it again. To keep the table, put the object back",
            path=location.uri,
        )

    def _resolve(self, location: Location, row: Row) -> Plan[VersionFile]:
        """The manifest of a row; moves it to its final name if its writer died before that."""
        name = _name_of(location, row)
        if not row.is_final:
            return (yield from self._settle(location, row, name.scheme, None))
        try:
            meta = yield Head(location.store, row.path)
        except NotFound:
            other = location.key(VERSIONS, manifest_name(row.version, "V1"))
            if other == row.path:
                raise
            meta = yield Head(location.store, other)
            name = ManifestName("V1", row.version)
        _check_size(row, meta.size_bytes, meta.key)
        return VersionFile(row.version, name.scheme, meta.key, meta.size_bytes, meta.etag)

    # -- removing ----------------------------------------------------------------------------------------------------

    def forget(self, location: Location) -> Plan[int]:
        """Remove the rows of versions that have no object; returns their number.

        The row of the first version is removed last: as long as it exists no library creates the table again. A row
        that has changed since it was read belongs to another writer, and stays.
        """
        yield from self.rows.check()
        rows = yield from self.rows.list_rows(location.path)
        if not rows:
            return 0
        listed = yield List(location.store, versions_prefix(location.path))
        stored_keys = {meta.key for meta in listed}
        dead = [row for row in reversed(rows) if not stored_keys & _keys_of(location, row)]
        others, first = dead[:-1], dead[-1:]
        for part in (*(others[start : start + ROWS_AT_ONCE] for start in range(0, len(others), ROWS_AT_ONCE)), first):
            yield Together([self.rows.remove_same(location.path, row) for row in part])
        return len(dead)

    def classify_staged(self, location: Location, staged: Sequence[tuple[int, str]]) -> Plan[StagedObjects]:
        """See `CommitHandler`. Rows are permanent: if a row names another object, no row can ever name this one."""
        yield from self.rows.check()
        objects = StagedObjects()
        for start in range(0, len(staged), ROWS_AT_ONCE):
            part = staged[start : start + ROWS_AT_ONCE]
            rows: list[Row | None] = yield Together([self.rows.get(location.path, version) for version, _ in part])
            for (_, key), row in zip(part, rows, strict=True):
                if row is not None:
                    (objects.named if row.path == key else objects.dead).add(key)
        return objects


def _keys_of(location: Location, row: Row) -> set[str]:
    """Possible keys of the manifest of a row."""
    names = manifest_names(row.version)
    return {row.path, *(location.key(VERSIONS, name) for name in names)}


def _name_of(location: Location, row: Row) -> ManifestName:
    """Parse the object's name. Raises `FormatError` unless it is in the table's folder and of the row's version."""
    last = row.path.rpartition("/")[2]
    if row.path != location.key(VERSIONS, last):
        raise FormatError(f"the row of version {row.version} names an object elsewhere: {row.path!r}", path=row.path)
    name = parse_manifest_name(last if row.is_final else last[:-_STAGING_SUFFIX_CHARS])
    if name is None or name.version != row.version:
        raise FormatError(f"the row of version {row.version} names the object {row.path!r}", path=row.path)
    return name


def _check_size(row: Row, size_bytes: int, key: str) -> None:
    if row.size_bytes is not None and row.size_bytes != size_bytes:
        raise FormatError(f"Manifest size mismatch: {size_bytes} bytes, but its row says {row.size_bytes}", path=key)


def _remove(location: Location, key: str) -> Plan[None]:
    try:
        yield Remove(location.store, (key,))
    except LanceError as error:
        _logger.warning("%s stays behind: %s", key, error)
