"""`TableVersion`: one version of a table, open in the planner. Parts and scans carry the tasks' share of it."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from lance_io.commit.manifest_reads import transaction_of
from lance_io.dataset.distributed.job_history import newest_manifest
from lance_io.dataset.distributed.scan_request import ScanRequest, scan_projection
from lance_io.dataset.distributed.table_place import explain_missing_version
from lance_io.dataset.distributed.table_scan import TableScan, recall_state
from lance_io.errors import NotFound
from lance_io.lazy_names import lazy_module
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

    from lance_io.dataset.distributed import added_columns, exact_answers, metadata_tables, scan_parts
    from lance_io.dataset.distributed.scan_parts import PlannedParts
    from lance_io.dataset.distributed.scan_request import ScanPart, SortKey
    from lance_io.dataset.distributed.table_place import TablePlace
    from lance_io.reads.scan import execute
else:  # looking at properties of a version reads nothing
    added_columns = lazy_module("lance_io.dataset.distributed.added_columns")
    exact_answers = lazy_module("lance_io.dataset.distributed.exact_answers")
    metadata_tables = lazy_module("lance_io.dataset.distributed.metadata_tables")
    scan_parts = lazy_module("lance_io.dataset.distributed.scan_parts")
    execute = lazy_module("lance_io.reads.scan.execute")

CARRIED_BYTES_MAX: Final = 1 << 20  # of a manifest; `from_bytes` reads a longer one again
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
    """The difference between a version and the one before it.

    Attributes:
        operation: Name of the version's operation.
        added: Indexes of the fragments that it added, if it changed no existing rows; else None.
        may_extend: Whether it may only have added columns; `TableVersion.extends` decides.
    """

    operation: str
    added: tuple[int, ...] | None
    may_extend: bool = False


class TableVersion:
    """One version of a table; later commits do not change it. Create it with `open`, `newest` or `from_bytes`.

    Args:
        place: The table.
        state: State of the version.
        carries_all: True makes `to_bytes` carry a manifest of any length: no store has it.
    """

    def __init__(
        self,
        place: TablePlace,  # plain: public parameter
        state: DatasetState,
        *,
        carries_all: bool = False,
    ) -> None:
        self.place = place  # plain: public attribute
        self._state = state
        self._carried_max = (1 << 62) if carries_all else CARRIED_BYTES_MAX

    @classmethod
    def open(
        cls,
        place: TablePlace,  # plain: public parameter
        ref: Any = None,
        *,
        at: datetime | None = None,
    ) -> TableVersion:
        """Open a version.

        Args:
            place: The table.
            ref: Number, tag or `(branch, number)`; None for the newest.
            at: Open the newest version committed at or before this time, UTC without a zone; for a `ref` of None.

        Raises:
            ValueError: The table, version or tag does not exist.
            NotFound: No version is as old as `at`, or a cleanup has removed the version; the message says which.
        """
        opening = open_options(place.uri, ref, storage_options=place.storage_options, session=place.session)
        store = opening.location.store
        if ref is None and at is not None:
            times = run_on(store, manifest_times(opening.location, place.session))
            return cls.open(place, _newest_at(times, at, opening.location.uri))
        branch, version = ref if isinstance(ref, tuple) else (None, ref)
        if not isinstance(version, int):
            return cls(place, run_on(store, open_steps(opening)))
        with explain_missing_version(branch_location(opening.location, branch), version):
            return cls(place, run_on(store, open_steps(opening)))

    @classmethod
    def newest(cls, place: TablePlace) -> TableVersion | None:  # plain: public parameter
        """Open the newest version.

        Args:
            place: The table.

        Returns:
            The version; None if there is no table.
        """
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
    def from_bytes(cls, place: TablePlace, named: bytes) -> TableVersion:  # plain: public parameter
        """Open the version that another process named with `to_bytes`. Needs no request unless its manifest is longer
        than 1 MiB.

        Args:
            place: The table.
            named: Bytes from `to_bytes`.
        """
        branch, version, manifest = pickle.loads(named)
        if manifest is None:
            return cls.open(place, (branch, version))
        return cls(place, recall_state(place, branch, (manifest,), lambda _: decode_whole(manifest)))

    def to_bytes(self) -> bytes:
        """Name the version for other processes, including its manifest if that has at most 1 MiB."""
        manifest = serialized_whole(self._state.manifest, self._carried_max)
        return pickle.dumps((self.branch, self.version, manifest))

    # -- properties --------------------------------------------------------------------------------------------------

    @property
    def state(self) -> DatasetState:
        """State of the version, for the modules of this folder."""
        return self._state

    @property
    def version(self) -> int:
        """Number of the version."""
        return self._state.manifest.version

    @property
    def branch(self) -> str | None:
        """Branch of the version; None for the main one."""
        return self._state.manifest.branch

    @property
    def config(self) -> Mapping[str, str]:
        """Configuration of the table."""
        return self._state.manifest.config

    @property
    def arrow_schema(self) -> pa.Schema:
        """Schema of all columns, as they are stored."""
        return self._state.schema.to_arrow()

    @property
    def has_stable_row_ids(self) -> bool:
        """Whether rows keep their ids when they move."""
        return self._state.has_stable_row_ids

    @property
    def data_storage_version(self) -> str:
        """Version of the files."""
        return self._state.manifest.data_version.name

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the top-level columns."""
        return tuple(self._state.schema.names)

    @property
    def fragment_ids(self) -> list[int]:
        """Ids of the fragments, by index."""
        return self._state.fragment_ids

    def fragment_size(self, place: int) -> tuple[int, int]:  # plain: public parameter
        """Size of a fragment.

        Args:
            place: Index of the fragment.

        Returns:
            Live rows and bytes. Rows include deleted ones if the manifest does not count these.
        """
        fragment = self._state.manifest.fragments[place]
        rows = fragment.num_rows if fragment.num_rows is not None else fragment.physical_rows or 0
        return rows, sum(file.size_bytes or 0 for file in fragment.files)

    # -- scans -------------------------------------------------------------------------------------------------------

    def scan(
        self,
        *,
        columns: Sequence[tuple[str, ...]] | None = None,
        names: Sequence[str] | None = None,
        members: Sequence[tuple[str, ...]] = (),
        filter: str | None = None,
        limit: int | None = None,
        offset: int = 0,
        order: Sequence[SortKey] = (),
        with_row_id: bool = False,
        with_row_address: bool = False,
        with_fragment_id: bool = False,
        row_versions: Sequence[str] = (),
        blobs_as_bytes: bool = True,
    ) -> TableScan:
        """Define a scan, to be cut into parts and sent to tasks.

        Args:
            columns: Paths as tuples of names, from the top-level column down; a member of a struct is named by its
                path. None for all columns.
            names: Names of the columns to keep, in this order; None for all.
            members: Paths of the members of structs to keep; a struct that none names is whole. With `columns` of None.
            filter: SQL predicate, checked when the parts are made.
            limit: Maximum number of rows of the whole scan.
            offset: Rows to leave out before the first one; without a filter.
            order: Sort keys, as paths, whether they ascend, and whether nulls come first. Each part then has its first
                `limit` rows in this order, sorted by no one: read the sort keys of all its rows, and other columns
                only of these. Cut the parts from the same scan without an order and a limit.
            with_row_id: True appends `_rowid`.
            with_row_address: True appends `_rowaddr`.
            with_fragment_id: True appends `_fragid`.
            row_versions: Names of the columns of versions to append: `_row_created_at_version`,
                `_row_last_updated_at_version`.
            blobs_as_bytes: False reads descriptions of blobs.

        Returns:
            The scan.

        Raises:
            BindError: The table lacks a column, or a column occurs twice.
            UnsupportedError: A column is `_rowoffset`, which a task cannot compute.
        """
        request = ScanRequest(
            columns=None if columns is None else tuple(columns),
            names=None if names is None else tuple(names),
            members=tuple(members),
            filter=filter,
            limit=limit,
            offset=offset,
            order=tuple(order),
            row_versions=tuple(row_versions),
            with_row_id=with_row_id,
            with_row_address=with_row_address,
            with_fragment_id=with_fragment_id,
            blobs_as_bytes=blobs_as_bytes,
        )
        return TableScan.of(self._state, request)

    def schema_of(self, scan: TableScan) -> pa.Schema:
        """The Arrow schema of a scan's batches.

        Args:
            scan: The scan.
        """
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
        """Cut a scan into parts of about the same bytes, in the order of the table's rows.

        A limit without a filter shortens the ranges. A limit with a filter leads to one part, because only a single
        scan in order can tell which rows come first.

        Args:
            scan: The scan.
            part_bytes: Decoded bytes of the columns read, per part.
            num_parts: Return exactly this many parts; None lets `part_bytes` decide.
            max_parts: Maximum number of parts; parts grow instead.
            places: Indexes of the fragments to read; None for all.

        Returns:
            At least one part, possibly without rows.

        Raises:
            BindError: The filter does not fit the schema.
            UnsupportedError: The filter names `_rowoffset`, which a task cannot compute.
            NotFound: A cleanup has removed the version.
        """
        return self.plan_parts(
            scan, part_bytes=part_bytes, num_parts=num_parts, max_parts=max_parts, places=places
        ).parts

    def plan_parts(
        self,
        scan: TableScan,
        *,
        part_bytes: int,
        num_parts: int | None = None,
        max_parts: int = PARTS_MAX,
        places: Sequence[int] | None = None,
    ) -> PlannedParts:
        """Cut a scan like `parts`; also says whether indices answer its filter.

        Indices are asked here, once, and not by tasks. One that would read more than a million of its rows for the
        answer is not asked: tasks examine all rows together faster than the planner reads such an index.

        Args:
            scan: The scan.
            part_bytes: Decoded bytes of the columns read, per part.
            num_parts: Return exactly this many parts; None lets `part_bytes` decide.
            max_parts: Maximum number of parts; parts grow instead.
            places: Indexes of the fragments to read; None for all.

        Raises:
            BindError: The filter does not fit the schema.
            UnsupportedError: The filter names `_rowoffset`, which a task cannot compute.
            NotFound: A cleanup has removed the version.
            OSError: A file of an index is damaged.
        """
        with explain_missing_version(self._state.location, self.version):
            return scan_parts.plan_parts(
                self._state,
                scan,
                part_bytes=part_bytes,
                num_parts=num_parts,
                max_parts=max_parts,
                fragment_indexes=places,
            )

    def live_rows(self, parts: Sequence[ScanPart]) -> list[int]:
        """Count the rows of each part that are not deleted; a filter does not count, but where indices name its rows.
        Reads deletion files of cut fragments.

        Args:
            parts: The parts.
        """
        return run_on(self._state.location.store, scan_parts.live_rows(self._state, parts))

    def num_requests(self, scan: TableScan, part: ScanPart) -> int:
        """Estimate the requests of a task that reads a part; a bound where indices name its rows. Reads the metadata of
        the data files.

        Args:
            scan: The scan.
            part: The part.
        """
        return scan_parts.num_requests(self.place, scan, part)

    def count(self, scan: TableScan, *, io_buffer_bytes: int | None = None) -> int:
        """Count the rows of a scan. With a filter, this process reads the filter's columns; else the manifest answers.

        Args:
            scan: The scan.
            io_buffer_bytes: Maximum bytes read ahead; None for the default.
        """
        request = scan.request
        options = scan_options(columns=[], filter=request.filter, io_buffer_size=io_buffer_bytes)
        rows = execute.count(self._state, options)
        return rows if request.limit is None else min(rows, request.limit)

    @property
    def has_indices(self) -> bool:
        """Whether the table may have indices."""
        return self._state.has_index

    def exact_count(self, filter: str | None) -> int | None:
        """The number of rows that pass a filter, if the manifest or indices say it; None if data had to be read.

        Args:
            filter: SQL predicate, None for all rows.

        Raises:
            BindError: The filter does not fit the schema.
            OSError: A file of an index is damaged.
        """
        return run_on(self._state.location.store, exact_answers.exact_count(self._state, filter))

    def exact_extremes(self, path: Sequence[str]) -> tuple[pa.Scalar | None, pa.Scalar | None] | None:
        """The least and the greatest value of a column, if an index says them.

        Args:
            path: Path of the column.

        Returns:
            Both, None for a column of nulls; None if no index says them: where it does not cover all rows, or floats
            have a NaN.

        Raises:
            OSError: A file of an index is damaged.
        """
        return run_on(self._state.location.store, exact_answers.exact_extremes(self._state, tuple(path)))

    def metadata(self, name: str) -> pa.Table:
        """A table about the version: `history` (of all versions, oldest first), `fragments`, `files` or `indices`.

        Args:
            name: Its name.

        Raises:
            UsageError: There is no such table.
        """
        return metadata_tables.metadata_table(self._state, name)

    # -- history -----------------------------------------------------------------------------------------------------

    def change(self) -> VersionChange | None:
        """The difference from the version before; None if the table no longer has the record."""
        location = self._state.location
        plan = transaction_of(location, self._state.session.handler(location), self.version)
        transaction = run_on(location.store, plan)
        if transaction is None:
            return None
        operation, added = transaction.operation, None
        if isinstance(operation, ops.Append):
            added = _added_fragments(self._state, operation)
        elif isinstance(operation, (ops.Overwrite, ops.Clone)) and self.version == 1:
            added = tuple(self._state.all_fragment_indexes)
        elif isinstance(operation, _NOTHING_NEW):
            added = ()
        return VersionChange(transaction.name, added, may_extend=isinstance(operation, ops.Merge))

    def extends(self, before: TableVersion) -> bool:
        """Whether the schema equals that of an earlier version plus nullable columns.

        Args:
            before: The earlier version.
        """
        old, new = before._state.schema, self._state.schema
        known = {field.id for field in old.fields}
        kept = tuple(field for field in new.fields if field.id in known)
        return kept == old.fields and all(field.nullable for field in new.fields if field.id not in known)

    def added_to(self, before: TableVersion) -> tuple[int, ...] | None:
        """Indexes of the fragments that an earlier version lacks.

        Args:
            before: The earlier version.

        Returns:
            The indexes; None if rows of the earlier version have been deleted since.
        """
        old = {fragment.id: fragment.deletion_file for fragment in before._state.manifest.fragments}
        new = {fragment.id: fragment.deletion_file for fragment in self._state.manifest.fragments}
        if any(fragment_id not in new or new[fragment_id] != file for fragment_id, file in old.items()):
            return None
        return tuple(index for index, fragment_id in enumerate(new) if fragment_id not in old)

    # -- further columns ---------------------------------------------------------------------------------------------

    def with_columns(self, fields: Sequence[pa.Field[Any]]) -> TableVersion:
        """This version with columns that no version has yet, null in all rows; commits nothing.

        `commit_rows` with `adds_columns` makes a version of it.

        Args:
            fields: The columns, and structs with members that the table's structs lack.

        Returns:
            The version; `to_bytes` carries its manifest, whatever its length.

        Raises:
            OperationError: A column exists, must not be null, or the table has file version 0.1.
        """
        return TableVersion(self.place, added_columns.with_null_columns(self._state, fields), carries_all=True)


def _newest_at(times: Mapping[int, datetime], moment: datetime, uri: str) -> int:
    """The newest version committed at or before a moment."""
    at = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    newest = latest_at(times, at)
    if newest is None:
        raise NotFound(f"no version is as old as {at.isoformat()}; the first is of {min(times.values())}", path=uri)
    return newest


def _added_fragments(state: DatasetState, operation: ops.Append) -> tuple[int, ...]:
    """Indexes of the fragments of an append in its version, recognised by their files."""
    paths = {file.path for fragment in operation.fragments for file in fragment.files}
    fragments = state.manifest.fragments
    tail = range(max(0, len(fragments) - len(operation.fragments)), len(fragments))
    added = tuple(index for index in tail if any(file.path in paths for file in fragments[index].files))
    if len(added) == len(operation.fragments):
        return added
    return tuple(index for index in range(len(fragments)) if any(file.path in paths for file in fragments[index].files))
