"""What a manifest says, in the values that pylance hands out."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from lance_io.commit.latest import list_versions
from lance_io.dataset.version.fragment_metadata import (
    DataFile,
    DeletionFile,
    FragmentMetadata,
    RowDatasetVersionMeta,
    RowIdMeta,
)
from lance_io.dataset.version.timestamps import local_time
from lance_io.dataset.version.versions import all_summaries

if TYPE_CHECKING:
    from datetime import datetime

    from lance_io.plans.plan import Plan
    from lance_io.store.url import Location
    from lance_io.table.manifest import fragment as fragments
    from lance_io.table.manifest.fragment import Fragment
    from lance_io.table.manifest.manifest import Manifest


class Version(TypedDict):
    """One version: number, time of the commit (naive, local), totals as text."""

    version: int
    timestamp: datetime
    metadata: dict[str, str]


class VersionRef(TypedDict):
    """The number of a version."""

    version: int


def describe_version(manifest: Manifest) -> Version:
    """The open version as `versions` describes it."""
    time = local_time(manifest.timestamp)
    return Version(version=manifest.version, timestamp=time, metadata=dict(sorted(manifest.summary().items())))


def describe_versions(location: Location) -> Plan[list[Version]]:
    """All versions, oldest first."""
    found = yield from all_summaries(location)
    return [
        Version(version=version, timestamp=local_time(time), metadata=dict(sorted(totals.items())))
        for version, time, totals in found
    ]


def version_refs(location: Location) -> Plan[list[VersionRef]]:
    """Numbers of all versions, oldest first."""
    return [VersionRef(version=file.version) for file in (yield from list_versions(location.store, location.path))]


def fragment_metadata(fragment: Fragment) -> FragmentMetadata:
    """A fragment as the caller's own copy."""
    deletion = fragment.deletion_file
    created, updated = fragment.created_at_versions, fragment.last_updated_at_versions
    return FragmentMetadata(
        id=fragment.id,
        files=[
            DataFile(
                path=file.path,
                fields=list(file.fields),
                column_indices=list(file.column_indices),
                file_major_version=file.version.major,
                file_minor_version=file.version.minor,
                file_size_bytes=file.size_bytes,
                base_id=file.base_id,
            )
            for file in fragment.files
        ],
        physical_rows=fragment.physical_rows or 0,
        deletion_file=None if deletion is None else _deletion_file(deletion),
        row_id_meta=None if fragment.row_ids is None else RowIdMeta(fragment.row_ids),
        created_at_version_meta=None if created is None else RowDatasetVersionMeta(created),
        last_updated_at_version_meta=None if updated is None else RowDatasetVersionMeta(updated),
    )


def _deletion_file(file: fragments.DeletionFile) -> DeletionFile:
    return DeletionFile(
        read_version=file.read_version,
        id=file.id,
        file_type="array" if file.kind == "arrow" else "bitmap",
        num_deleted_rows=file.num_deleted_rows or 0,
        base_id=file.base_id,
    )
