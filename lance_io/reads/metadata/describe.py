"""Entries of a manifest as pylance's public values, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, TypeVar

from lance_io.commit.latest import list_versions
from lance_io.errors import UnsupportedError, UsageError
from lance_io.format.version import VERSION_OF_PAIR
from lance_io.reads.metadata.fragment_metadata import (
    DataFile,
    DeletionFile,
    FragmentMetadata,
    RowDatasetVersionMeta,
    RowIdMeta,
)
from lance_io.reads.version.timestamps import local_time
from lance_io.reads.version.versions import all_summaries
from lance_io.table.manifest import fragment as stored

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lance_io.plans.plan import Plan
    from lance_io.reads.version.session import Session
    from lance_io.store.url import Location
    from lance_io.table.manifest.fragment import Fragment
    from lance_io.table.manifest.manifest import Manifest

T = TypeVar("T")


class Version(TypedDict):
    """One version.

    Attributes:
        version: Number.
        timestamp: Local time of the commit, without a time zone.
        metadata: Totals, as text.
    """

    version: int
    timestamp: datetime
    metadata: dict[str, str]


class VersionRef(TypedDict):
    """The number of a version."""

    version: int


def describe_version(manifest: Manifest) -> Version:
    """Describe the open version as `versions` does."""
    time = local_time(manifest.timestamp)
    return Version(version=manifest.version, timestamp=time, metadata=dict(sorted(manifest.summary().items())))


def describe_versions(location: Location, session: Session) -> Plan[list[Version]]:
    """All versions, oldest first."""
    summaries = yield from all_summaries(location, session)
    return [
        Version(version=version, timestamp=local_time(time), metadata=dict(sorted(totals.items())))
        for version, time, totals in summaries
    ]


def version_refs(location: Location) -> Plan[list[VersionRef]]:
    """Numbers of all versions, oldest first."""
    return [VersionRef(version=file.version) for file in (yield from list_versions(location.store, location.path))]


# -- fragments: as commits work with them, and as the caller's own copies --------------------------------------------


def fragment_metadata(fragment: Fragment) -> FragmentMetadata:
    """A fragment as a copy for the caller."""
    deletion = fragment.deletion_file
    return FragmentMetadata(
        id=fragment.id,
        files=[data_file(file) for file in fragment.files],
        physical_rows=fragment.physical_rows or 0,
        deletion_file=None
        if deletion is None
        else DeletionFile(
            read_version=deletion.read_version,
            id=deletion.id,
            file_type="array" if deletion.kind == "arrow" else "bitmap",
            num_deleted_rows=deletion.num_deleted_rows or 0,
            base_id=deletion.base_id,
        ),
        row_id_meta=_lineage(RowIdMeta, fragment.row_ids, fragment, stored.ROW_IDS_FIELD),
        created_at_version_meta=_lineage(
            RowDatasetVersionMeta, fragment.created_at_versions, fragment, stored.CREATED_AT_FIELD
        ),
        last_updated_at_version_meta=_lineage(
            RowDatasetVersionMeta, fragment.last_updated_at_versions, fragment, stored.UPDATED_AT_FIELD
        ),
    )


def _lineage(kind: Callable[[bytes | None], T], data: bytes | None, fragment: Fragment, field_id: int) -> T | None:
    return kind(data) if data is not None or field_id in fragment.spilled else None


def stored_fragment(fragment: FragmentMetadata) -> Fragment:
    """A fragment as the commit code represents it. Raises `UnsupportedError` for overlay files."""
    if fragment.overlays:
        raise UnsupportedError("fragments with overlay files are not part of this release")
    deletion = fragment.deletion_file
    row_ids, created, updated = (
        fragment.row_id_meta,
        fragment.created_at_version_meta,
        fragment.last_updated_at_version_meta,
    )
    fields = (stored.ROW_IDS_FIELD, stored.CREATED_AT_FIELD, stored.UPDATED_AT_FIELD)
    lineage = zip(fields, (row_ids, created, updated), strict=True)
    return stored.Fragment(
        id=fragment.id,
        files=tuple(stored_file(file) for file in fragment.files),
        deletion_file=None
        if deletion is None
        else stored.DeletionFile(
            kind=_deletion_kind(deletion.file_type),
            read_version=deletion.read_version,
            id=deletion.id,
            num_deleted_rows=deletion.num_deleted_rows,
            base_id=deletion.base_id,
        ),
        physical_rows=fragment.physical_rows,
        row_ids=None if row_ids is None else row_ids.data,
        created_at_versions=None if created is None else created.data,
        last_updated_at_versions=None if updated is None else updated.data,
        spilled=frozenset(field_id for field_id, meta in lineage if meta is not None and meta.data is None),
    )


def _deletion_kind(file_type: str) -> stored.DeletionKind:
    if file_type not in ("array", "bitmap"):
        raise UsageError(f"file_type of a deletion file must be array or bitmap, got {file_type!r}")
    return "arrow" if file_type == "array" else "bitmap"


def data_file(file: stored.DataFile) -> DataFile:
    """A data file as a copy for the caller."""
    return DataFile._of(file)


def stored_file(file: DataFile) -> stored.DataFile:
    """A data file as the commit code represents it."""
    return stored.DataFile(
        path=file.path,
        fields=tuple(file.fields),
        column_indices=tuple(file.column_indices),
        version=VERSION_OF_PAIR[file.file_major_version, file.file_minor_version],
        size_bytes=file.file_size_bytes,
        base_id=file.base_id,
    )
