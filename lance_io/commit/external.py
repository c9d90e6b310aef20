"""Committing through a database beside the store (spec: commit, section 7).

The database holds one row per version: where its manifest is, and how long. A number is taken when its row can be
created. Object and row are brought together in steps, each of which may be the last one that its writer lived to do:

    1 PUT      staging object `<final name>-<uuid>`
    2 reserve  row -> staging, if there is none of this number      from here on the version exists
    3 COPY     staging -> final name
    4 finalize row -> final name
    5 DELETE   staging

Whoever finds a row that points at a staging object does steps 3 to 5 in its writer's place: all of them can be done
twice. Readers therefore ask the database first; objects without a row are versions only to those who do not know it.

A row is never made twice, and only goes when the table does: those of versions that a cleanup has removed stay, so that
no writer with an old view makes such a version again. The newest row without an object is `ManifestMissing`.
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
    """What the database says about a version.

    path        key of its manifest: the final one, or the staging object
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
    """A table of rows, by table (`base`, the key prefix of its folder) and version. All methods are plans.

    Reads see every write that was answered before they began.
    """

    @property
    def answers_sync(self) -> bool:
        """Whether its requests can be answered without a loop."""

    def check(self) -> Plan[None]:
        """Find out once whether the database table is what it must be. Raises `UsageError`."""

    def get(self, base: str, version: int) -> Plan[Row | None]:
        """The row of a version."""

    def get_latest(self, base: str) -> Plan[Row | None]:
        """The row of the highest version."""

    def put_if_absent(self, base: str, row: Row) -> Plan[None]:
        """Create a row; `AlreadyExists` when there is one, `StoreError` when nobody can tell."""

    def put_if_present(self, base: str, row: Row) -> Plan[None]:
        """Replace a row; `NotFound` when there is none."""

    def list_rows(self, base: str) -> Plan[list[Row]]:
        """All rows of a table, ascending."""

    def remove_same(self, base: str, row: Row) -> Plan[bool]:
        """Remove a row if it still says what `row` does; whether it did."""


@dataclass(frozen=True)
class ExternalHandler:
    """Versions by a database; see the module."""

    rows: ExternalManifestStore

    records_versions = True

    @property
    def answers_sync(self) -> bool:
        """Whether the database does."""
        return self.rows.answers_sync

    @property
    def decides_by_name(self) -> bool:
        """The row of the number does."""
        return False

    def check(self, place: Location) -> None:
        """The database decides, whatever the store."""

    def prepare(self, place: Location) -> Plan[None]:
        """Look at the database table once."""
        yield from self.rows.check()

    # -- writing -----------------------------------------------------------------------------------------------------

    def create(self, place: Location, new: NewVersion) -> Plan[Created | Taken]:
        """Steps 1 to 5; see `CommitHandler`. Detached versions are in no sequence, and have no rows."""
        if new.scheme == "detached":
            return (yield from PutAbsentHandler().create(place, new))
        key = new.key(place)
        staging = f"{key}-{uuid4()}"
        yield Put(place.store, staging, new.data, durability=new.durability)
        row = Row(new.version, staging, len(new.data))
        try:
            taken = yield from self._reserve(place, new, row)
        except CommitUnknownError:
            raise  # the row may be there, and then it needs the object
        except LanceError:
            yield from _remove(place, staging)
            raise
        if taken is not None:
            yield from _remove(place, staging)
            return taken
        try:
            file = yield from self._settle(place, row, new.scheme, new.data)
        except Exception as error:  # of any class: the version exists; the next who meets it does what is left
            _logger.warning("version %d is committed, its manifest will be moved by others: %s", new.version, error)
            file = VersionFile(new.version, new.scheme, staging, len(new.data))
        return Created(file)

    def _reserve(self, place: Location, new: NewVersion, row: Row) -> Plan[Taken | Created | None]:
        """None when the row is ours; otherwise who took the number, which may be an earlier attempt of ours."""
        failure: LanceError | None = None
        for attempt in range(TRIES_MAX):
            try:
                yield from self.rows.put_if_absent(place.path, row)
                return None
            except AlreadyExists as error:
                failure = error
            except StoreError as error:
                failure = error
            except LanceError as error:
                if failure is not None:  # an earlier request may have been carried out
                    raise unknown_outcome(new.key(place), error) from error
                raise
            try:
                there = yield from self.rows.get(place.path, new.version)
            except LanceError as error:
                failure.add_note(f"reading back: {error}")
                there = None
                if isinstance(failure, AlreadyExists):
                    raise unknown_outcome(new.key(place), failure) from error
            if there is not None:
                return None if there.path == row.path else (yield from self._settle_taken(place, new, there))
            yield Pause(random.random() * FIRST_PAUSE_S * 2**attempt)
        assert failure is not None
        raise unknown_outcome(new.key(place), failure) from failure

    def _settle_taken(self, place: Location, new: NewVersion, there: Row) -> Plan[Taken | Created]:
        try:
            file = yield from self._resolve(place, there)
        except NotFound as error:
            raise self._missing(place, there) from error
        data = yield Read(place.store, file.key)
        return Created(file) if new.is_in(data) else Taken(data)

    def _settle(self, place: Location, row: Row, scheme: NamingScheme, data: bytes | None) -> Plan[VersionFile]:
        """Steps 3 to 5 for a row that points at a staging object. Raises `NotFound` when both objects are missing."""
        key = place.key(VERSIONS, manifest_name(row.version, scheme))
        try:
            content = data if data is not None else bytes((yield Read(place.store, row.path)))
        except NotFound:
            meta = yield Head(place.store, key)  # somebody else moved it
            _check_size(row, meta.size_bytes, key)
        else:
            _check_size(row, len(content), row.path)
            meta = yield Put(place.store, key, content)
        try:
            yield from self.rows.put_if_present(place.path, Row(row.version, key, meta.size_bytes))
            yield Remove(place.store, (row.path,))
        except Exception as error:  # of any class: the version can be read
            _logger.warning("version %d: the row or the staging object stays for later: %s", row.version, error)
        return VersionFile(row.version, scheme, key, meta.size_bytes, meta.etag)

    # -- reading -----------------------------------------------------------------------------------------------------

    def find_latest(self, place: Location) -> Plan[VersionFile]:
        """The version of the highest row; without rows, what the store lists."""
        yield from self.rows.check()
        row = yield from self.rows.get_latest(place.path)
        if row is not None:
            return (yield from self._resolve_newest(place, row))
        listed = yield from list_after(place.store, place.path, 0)
        if not listed:
            raise NotFound(f"Dataset at path {place.uri} was not found: it has no versions", path=place.uri)
        return listed[-1]

    def find_latest_and(self, place: Location, use: Callable[[VersionFile], Plan[T]]) -> Plan[tuple[VersionFile, T]]:
        """By the highest row."""
        newest = yield from self.find_latest(place)
        return newest, (yield from use(newest))

    def find_version(self, place: Location, version: int) -> Plan[VersionFile]:
        """One version; an object without a row gets one."""
        yield from self.rows.check()
        row = yield from self.rows.get(place.path, version)
        if row is not None:
            return (yield from self._resolve_old(place, row))
        file = yield from find_version(place.store, place.path, version)
        if not is_detached(version):
            try:
                yield from self.rows.put_if_absent(place.path, Row(version, file.key, file.size_bytes))
            except LanceError as error:  # it can be read without
                _logger.info("version %d was not entered into the database: %s", version, error)
        return file

    def list_after(self, place: Location, version: int) -> Plan[list[VersionFile]]:
        """What the store lists, with the version of the highest row if its object is still to be moved; one round."""
        yield from self.rows.check()
        plans = [self.rows.get_latest(place.path), list_after(place.store, place.path, version)]
        row, listed = yield Together(plans)
        if row is None:
            return cast("list[VersionFile]", listed)
        there = next((file for file in listed if file.version == row.version), None)
        if row.is_final and there is not None:
            _check_size(row, there.size_bytes, there.key)
        elif there is None or not row.is_final:
            newest = yield from self._resolve_newest(place, row)
            listed = [file for file in listed if file.version != row.version]
            if newest.version > version or not listed:
                listed = sorted([*listed, newest], key=lambda file: file.version)
        newer = [file for file in listed if file.version > version]
        return newer or listed[-1:]

    def _resolve_newest(self, place: Location, row: Row) -> Plan[VersionFile]:
        """As `_resolve`, of the highest row. Raises `ManifestMissing` if that stays so without an object."""
        while True:
            try:
                return (yield from self._resolve(place, row))
            except NotFound as error:
                again = yield from self.rows.get_latest(place.path)
                if again is None or again == row:
                    raise self._missing(place, row) from error
                row = again  # others went on meanwhile

    def _resolve_old(self, place: Location, row: Row) -> Plan[VersionFile]:
        """As `_resolve`, of any row. Raises `NotFound` for a version that was removed."""
        try:
            return (yield from self._resolve(place, row))
        except NotFound as error:
            newest = yield from self.rows.get_latest(place.path)
            if newest == row:
                raise self._missing(place, row) from error
            text = f"{missing_version(place.uri, row.version)}: there is no {row.path} any more, as after a cleanup"
            raise NotFound(text, path=place.uri) from error

    def _missing(self, place: Location, row: Row) -> ManifestMissing:
        return ManifestMissing(
            f"{self.rows!r} says that the manifest of version {row.version} is {row.path}, and there is no such "
            "object: "
            "the table's files were removed without its rows, as pylance's drop does, or the object was lost. "
            "LanceDataset.drop with this URI (of a branch: branches.delete) removes the rows, and what is left of the "
            "table; then it can be made anew. To keep the table, put the object back",
            path=place.uri,
        )

    def _resolve(self, place: Location, row: Row) -> Plan[VersionFile]:
        """The manifest that a row stands for, moved to its final name if its writer did not live to do so."""
        name = _name_of(place, row)
        if not row.is_final:
            return (yield from self._settle(place, row, name.scheme, None))
        try:
            meta = yield Head(place.store, row.path)
        except NotFound:
            other = place.key(VERSIONS, manifest_name(row.version, "V1"))
            if other == row.path:
                raise
            meta = yield Head(place.store, other)
            name = ManifestName("V1", row.version)
        _check_size(row, meta.size_bytes, meta.key)
        return VersionFile(row.version, name.scheme, meta.key, meta.size_bytes, meta.etag)

    # -- removing ----------------------------------------------------------------------------------------------------

    def forget(self, place: Location) -> Plan[int]:
        """Remove the rows of versions that have no object; gives how many there were.

        The first version goes last: while its row is there no library makes the table anew. A row that has changed
        since it was read is another writer's, and stays.
        """
        yield from self.rows.check()
        rows = yield from self.rows.list_rows(place.path)
        if not rows:
            return 0
        listed = yield List(place.store, versions_prefix(place.path))
        there = {meta.key for meta in listed}
        dead = [row for row in reversed(rows) if not there & _keys_of(place, row)]
        others, first = dead[:-1], dead[-1:]
        for part in (*(others[start : start + ROWS_AT_ONCE] for start in range(0, len(others), ROWS_AT_ONCE)), first):
            yield Together([self.rows.remove_same(place.path, row) for row in part])
        return len(dead)

    def sort_staged(self, place: Location, staged: Sequence[tuple[int, str]]) -> Plan[StagedObjects]:
        """By their rows. One that names another object is there for good, so that none can come to name this one."""
        yield from self.rows.check()
        found = StagedObjects()
        for start in range(0, len(staged), ROWS_AT_ONCE):
            part = staged[start : start + ROWS_AT_ONCE]
            rows: list[Row | None] = yield Together([self.rows.get(place.path, version) for version, _ in part])
            for (_, key), row in zip(part, rows, strict=True):
                if row is not None:
                    (found.named if row.path == key else found.dead).add(key)
        return found


def _keys_of(place: Location, row: Row) -> set[str]:
    """Where the manifest of a row may be."""
    names = manifest_names(row.version)
    return {row.path, *(place.key(VERSIONS, name) for name in names)}


def _name_of(place: Location, row: Row) -> ManifestName:
    """What the object's name says, which has to be the row's version, in the table's own folder."""
    last = row.path.rpartition("/")[2]
    if row.path != place.key(VERSIONS, last):
        raise FormatError(f"the row of version {row.version} names an object elsewhere: {row.path!r}", path=row.path)
    name = parse_manifest_name(last if row.is_final else last[:-_STAGING_SUFFIX_CHARS])
    if name is None or name.version != row.version:
        raise FormatError(f"the row of version {row.version} names the object {row.path!r}", path=row.path)
    return name


def _check_size(row: Row, size_bytes: int, key: str) -> None:
    if row.size_bytes is not None and row.size_bytes != size_bytes:
        raise FormatError(f"Manifest size mismatch: {size_bytes} bytes, but its row says {row.size_bytes}", path=key)


def _remove(place: Location, key: str) -> Plan[None]:
    try:
        yield Remove(place.store, (key,))
    except LanceError as error:
        _logger.warning("%s stays behind: %s", key, error)
