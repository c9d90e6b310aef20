"""`TableVersion`: one version of a table, open in the process that plans. What tasks need of it travels with them."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from lance_io.commit.record import transaction_of
from lance_io.dataset.distributed.job_history import newest_manifest
from lance_io.dataset.distributed.scan_request import ScanRequest, scan_projection
from lance_io.dataset.distributed.table_place import cleanups_told
from lance_io.dataset.distributed.table_scan import TableScan, recall_state
from lance_io.errors import NotFound
from lance_io.lazy_names import later
from lance_io.reads.open_version import open_options, open_steps
from lance_io.reads.run_plan import run_on
from lance_io.reads.scan.scan_options import scan_options
from lance_io.reads.version.object_keys import branch_location
from lance_io.reads.version.state import DatasetState
from lance_io.reads.version.timestamps import latest_at
from lance_io.reads.version.versions import manifest_times
from lance_io.table.manifest.partial_manifest import decode_whole, serialized_whole
from lance_io.table.transaction import operations as ops

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

    from lance_io.dataset.distributed import scan_parts
    from lance_io.dataset.distributed.scan_request import ScanPart
    from lance_io.dataset.distributed.table_place import TablePlace
    from lance_io.reads.scan import execute
else:  # who only wants to know what a version is like reads nothing of it
    scan_parts = later("lance_io.dataset.distributed.scan_parts")
    execute = later("lance_io.reads.scan.execute")

CARRIED_BYTES_MAX: Final = 1 << 20  # of a manifest; a longer one is read again, not held wherever a version is named
PARTS_MAX: Final = 10_000

_NOTHING_NEW: Final = (
    ops.Rewrite,
    ops.CreateIndex,
    ops.ReserveFragments,
    ops.UpdateConfig,
    ops.UpdateBases,
    ops.UpdateMemWalState,
    ops.Project,
)


@dataclass(frozen=True, slots=True)
class VersionChange:
    """How a version differs from the one before it.

    operation  name of what made it
    added      places of the fragments that it added, where it changed nothing of the rows that were there; else None
    may_extend whether it may have done nothing but add columns: `TableVersion.extends` tells
    """

    operation: str
    added: tuple[int, ...] | None
    may_extend: bool = False


class TableVersion:
    """One version of a table, whatever is committed later. Made by `open` or `from_bytes`.

    place  where the table is
    """

    def __init__(self, place: TablePlace, state: DatasetState) -> None:
        self.place = place
        self._state = state

    @classmethod
    def open(cls, place: TablePlace, ref: Any = None, *, at: datetime | None = None) -> TableVersion:
        """A version by number, tag or `(branch, number)`; None is the newest.

        at  the newest version that was committed at or before this time, UTC unless it has a zone
        Raises what opening a table raises, and `NotFound` when no version is as old as `at`; of a version that a
        cleanup has removed, it says that.
        """
        opening = open_options(place.uri, ref, storage_options=place.storage_options, session=place.session)
        store = opening.location.store
        if ref is None and at is not None:
            times = run_on(store, manifest_times(opening.location, place.session))
            return cls.open(place, _newest_at(times, at, opening.location.uri))
        branch, version = ref if isinstance(ref, tuple) else (None, ref)
        if not isinstance(version, int):
            return cls(place, run_on(store, open_steps(opening)))
        with cleanups_told(branch_location(opening.location, branch), version):
            return cls(place, run_on(store, open_steps(opening)))

    @classmethod
    def newest(cls, place: TablePlace) -> TableVersion | None:
        """The newest version, None where there is no table."""
        location = place.location
        manifest = run_on(location.store, newest_manifest(location, place.session))
        if manifest is None:
            return None
        state = DatasetState(
            location=location,
            root=location,
            manifest=manifest,
            session=place.session,
            given_uri=place.uri,
            storage_options=place.storage_options,
        )
        return cls(place, state)

    @classmethod
    def from_bytes(cls, place: TablePlace, named: bytes) -> TableVersion:
        """The version that `to_bytes` has named, in another process; without a request unless its manifest is long."""
        branch, version, manifest = pickle.loads(named)
        if manifest is None:
            return cls.open(place, (branch, version))
        return cls(place, recall_state(place, branch, (manifest,), lambda _: decode_whole(manifest)))

    def to_bytes(self) -> bytes:
        """Names the version to other processes, with its manifest if that is not longer than 1 MiB."""
        manifest = serialized_whole(self._state.manifest, CARRIED_BYTES_MAX)
        return pickle.dumps((self.branch, self.version, manifest))

    # -- what it is like ---------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Its number."""
        return self._state.manifest.version

    @property
    def branch(self) -> str | None:
        """Its branch, None for the main one."""
        return self._state.manifest.branch

    @property
    def config(self) -> Mapping[str, str]:
        """The table's config."""
        return self._state.manifest.config

    @property
    def column_names(self) -> tuple[str, ...]:
        """Its columns at the top level."""
        return tuple(self._state.schema.names)

    @property
    def fragment_ids(self) -> list[int]:
        """Ids of its fragments, by place."""
        return self._state.fragment_ids

    def fragment_size(self, place: int) -> tuple[int, int]:
        """Live rows and bytes of a fragment; the deleted ones count where the manifest does not say how many."""
        fragment = self._state.manifest.fragments[place]
        rows = fragment.num_rows if fragment.num_rows is not None else fragment.physical_rows or 0
        return rows, sum(file.size_bytes or 0 for file in fragment.files)

    # -- scans -------------------------------------------------------------------------------------------------------

    def scan(
        self,
        *,
        columns: Sequence[tuple[str, ...]] | None = None,
        names: Sequence[str] | None = None,
        filter: str | None = None,
        limit: int | None = None,
        with_row_id: bool = False,
        with_row_address: bool = False,
        with_fragment_id: bool = False,
        blobs_as_bytes: bool = True,
    ) -> TableScan:
        """A scan, to be cut into parts and sent to tasks.

        columns   paths of names, from the top-level column down; members of structs are called by their path. None for
                  all columns
        names     which of them, in this order, by what they are called; None for all
        filter    SQL predicate; it is checked when the parts are made
        limit     at most so many rows of the whole scan
        with_...  append `_rowid`, `_rowaddr`, `_fragid`
        blobs_as_bytes  False gives descriptions of blobs

        Raises `BindError` for columns that the table lacks, or that occur twice, and `UnsupportedError` for
        `_rowoffset`, which a task cannot know.
        """
        request = ScanRequest(
            columns=None if columns is None else tuple(columns),
            names=None if names is None else tuple(names),
            filter=filter,
            limit=limit,
            with_row_id=with_row_id,
            with_row_address=with_row_address,
            with_fragment_id=with_fragment_id,
            blobs_as_bytes=blobs_as_bytes,
        )
        return TableScan.of(self._state, request)

    def schema_of(self, scan: TableScan) -> pa.Schema:
        """The Arrow schema of a scan's batches."""
        return scan_projection(self._state, scan.request).arrow_schema

    def parts(
        self,
        scan: TableScan,
        *,
        part_bytes: int,
        num_parts: int | None = None,
        max_parts: int = PARTS_MAX,
        places: Sequence[int] | None = None,
    ) -> tuple[ScanPart, ...]:
        """A scan cut into parts of about the same bytes, in the order of the table's rows; at least one, which may have
        no rows.

        part_bytes  decoded bytes of the columns that are read, per part
        num_parts   exactly so many parts instead
        max_parts   parts become larger rather than more
        places      of the fragments to be read, None for all

        A limit without a filter cuts the ranges; with a filter there is one part, for only one scan in order knows
        which rows come first. Raises what compiling the filter raises.
        """
        with cleanups_told(self._state.location, self.version):
            return scan_parts.plan_parts(
                self._state, scan, part_bytes=part_bytes, num_parts=num_parts, max_parts=max_parts, places=places
            )

    def live_rows(self, parts: Sequence[ScanPart]) -> list[int]:
        """How many rows each part gives, but for those that a filter drops; reads deletion files of cut fragments."""
        return run_on(self._state.location.store, scan_parts.live_rows(self._state, parts))

    def num_requests(self, scan: TableScan, part: ScanPart) -> int:
        """What a task asks of the store to read a part, about; reads the metadata of the data files."""
        return scan_parts.num_requests(self.place, scan, part)

    def count(self, scan: TableScan, *, io_buffer_bytes: int | None = None) -> int:
        """How many rows a scan gives: by the manifest, or with a filter by reading its columns in this process."""
        request = scan.request
        options = scan_options(columns=[], filter=request.filter, io_buffer_size=io_buffer_bytes)
        rows = execute.count(self._state, options)
        return rows if request.limit is None else min(rows, request.limit)

    # -- history -----------------------------------------------------------------------------------------------------

    def change(self) -> VersionChange | None:
        """How the version differs from the one before it; None when no record of that is left."""
        location = self._state.location
        plan = transaction_of(location, self._state.session.handler(location), self.version)
        transaction = run_on(location.store, plan)
        if transaction is None:
            return None
        operation, added = transaction.operation, None
        if isinstance(operation, ops.Append):
            added = _places_of(self._state, operation)
        elif isinstance(operation, (ops.Overwrite, ops.Clone)) and self.version == 1:
            added = tuple(self._state.all_places)
        elif isinstance(operation, _NOTHING_NEW):
            added = ()
        return VersionChange(transaction.name, added, may_extend=isinstance(operation, ops.Merge))

    def extends(self, before: TableVersion) -> bool:
        """Whether the schema is that of an earlier version with nullable columns more."""
        old, new = before._state.schema, self._state.schema
        known = {field.id for field in old.fields}
        kept = tuple(field for field in new.fields if field.id in known)
        return kept == old.fields and all(field.nullable for field in new.fields if field.id not in known)


def _newest_at(times: Mapping[int, datetime], moment: datetime, uri: str) -> int:
    """The newest version that was committed at or before a moment."""
    at = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    newest = latest_at(times, at)
    if newest is None:
        raise NotFound(f"no version is as old as {at.isoformat()}; the first is of {min(times.values())}", path=uri)
    return newest


def _places_of(state: DatasetState, operation: ops.Append) -> tuple[int, ...]:
    """Where the fragments of an append are in its version: told by their files."""
    paths = {file.path for fragment in operation.fragments for file in fragment.files}
    fragments = state.manifest.fragments
    tail = range(max(0, len(fragments) - len(operation.fragments)), len(fragments))
    found = tuple(place for place in tail if any(file.path in paths for file in fragments[place].files))
    if len(found) == len(operation.fragments):
        return found
    return tuple(place for place in range(len(fragments)) if any(file.path in paths for file in fragments[place].files))
