"""What an open table version knows without asking the store: what synchronous and asynchronous classes share."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from lance_io.lazy_names import later
from lance_io.store.provided_options import source_of

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_io.reads.metadata import describe
    from lance_io.reads.metadata import lance_schema as lance_schemas
    from lance_io.reads.metadata.describe import Version
    from lance_io.reads.metadata.fragment_metadata import DataFile, FragmentMetadata
    from lance_io.reads.metadata.lance_schema import LanceSchema
    from lance_io.reads.scan import scan_options, scan_plan
    from lance_io.reads.scan.scan_statistics import IoMeter, IOStats
    from lance_io.reads.version.session import Session
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.manifest import BasePath, Manifest
else:
    scan_options = later("lance_io.reads.scan.scan_options")
    scan_plan = later("lance_io.reads.scan.scan_plan")
    describe = later("lance_io.reads.metadata.describe")
    lance_schemas = later("lance_io.reads.metadata.lance_schema")


_moving = threading.Lock()  # of the versions of open tables, for as long as an attribute is set


def _start_over() -> None:
    global _moving
    _moving = threading.Lock()


os.register_at_fork(after_in_child=_start_over)


class DatasetProperties:
    """Properties of the version, counters, session."""

    _state: DatasetState
    _meter: IoMeter

    def _move_to(self, made: DatasetState, begun: DatasetState) -> None:
        """Go on with the version that a call made, which began at another one.

        Calls of several threads or tasks may end in any order: none takes the object back behind what another one,
        that ended before it, has made.
        """
        with _moving:
            now = self._state
            if now is begun or made.manifest.version >= now.manifest.version:
                self._state = made

    @property
    def uri(self) -> str:
        """Where it is, as it was opened."""
        return self._state.given_uri

    @property
    def schema(self) -> pa.Schema:
        """Schema of a scan with the default scan options."""
        if not self._state.default_scan_options:
            return self._state.arrow_schema
        options = scan_options.scan_options().with_defaults(self._state.default_scan_options)
        return scan_plan.scan_projection(self._state, options).arrow_schema

    @property
    def lance_schema(self) -> LanceSchema:
        """The schema with field ids."""
        return lance_schemas.LanceSchema(self._state.schema)

    @property
    def _manifest(self) -> Manifest:
        return self._state.manifest

    @property
    def data_storage_version(self) -> str:
        """File version of new data, such as "2.1"."""
        return self._state.data_storage_version

    @property
    def max_field_id(self) -> int:
        """The largest field id in use."""
        return self._state.max_field_id

    @property
    def has_stable_row_ids(self) -> bool:
        """Whether row ids survive updates and compaction."""
        return self._state.has_stable_row_ids

    @property
    def has_index(self) -> bool:
        """Whether the table has indices (which this release does not use)."""
        return self._state.has_index

    @property
    def metadata(self) -> dict[str, str]:
        """Table metadata, free for users."""
        return dict(self._manifest.table_metadata)

    @property
    def schema_metadata(self) -> dict[str, str]:
        """Metadata of the schema."""
        return {key: value.decode("utf-8", "replace") for key, value in self._state.schema.metadata.items()}

    def config(self) -> dict[str, str]:
        """Table configuration."""
        return dict(self._manifest.config)

    @property
    def initial_storage_options(self) -> dict[str, str] | None:
        """Storage options as given at opening."""
        return self._state.storage_options_copy()

    def latest_storage_options(self) -> dict[str, str] | None:
        """Storage options in use: those given at opening, and before them what a provider gave last."""
        source = source_of(self._state.storage_options)
        given = self._state.storage_options_copy()
        return given if source is None or source.latest is None else {**(given or {}), **source.latest.options}

    def base_paths(self) -> dict[int, BasePath]:
        """Places other than the table's own that the version declares for its files, by id; files need not be there."""
        return dict(self._manifest.base_paths)

    def session(self) -> Session:
        """The session, for sharing caches with other datasets."""
        return self._state.session

    def io_stats_snapshot(self) -> IOStats:
        """Requests and bytes of the dataset, its opening included, or since `io_stats_incremental` was last asked."""
        return self._meter.snapshot()

    def io_stats_incremental(self) -> IOStats:
        """Requests and bytes since this was last asked, at first since before the opening."""
        return self._meter.incremental()

    @property
    def version(self) -> int:
        """Number of the version that is open."""
        return self._manifest.version

    def get_version(self) -> Version:
        """The open version as `versions` describes it."""
        return describe.describe_version(self._manifest)

    def fragment_ids(self) -> set[int]:
        """Ids of all fragments."""
        return set(self._state.fragment_ids)


class FragmentProperties:
    """What the manifest says about a fragment."""

    _state: DatasetState
    _place: int

    @property
    def fragment_id(self) -> int:
        """Its id, unique in the table."""
        return self._state.fragment_ids[self._place]

    @property
    def metadata(self) -> FragmentMetadata:
        """What the manifest says about it."""
        return describe.fragment_metadata(self._state.manifest.fragments[self._place])

    @property
    def schema(self) -> pa.Schema:
        """Schema of the dataset."""
        return self._state.arrow_schema

    @property
    def physical_schema(self) -> pa.Schema:
        """Raises `NotImplementedError`, as in pylance; see `schema`.

        `pyarrow.dataset.Scanner.from_fragment` asks for it first, and then reads a fragment of C++ that is not there.
        """
        raise NotImplementedError("a fragment of a Lance table has the schema of its table: ask for `schema`")

    @property
    def physical_rows(self) -> int:
        """Rows in the data files, deleted ones included."""
        return int(self._state.physical_rows[self._place])

    def data_files(self) -> list[DataFile]:
        """Its data files."""
        return self.metadata.files

    def deletion_file(self) -> str | None:
        """Path of the deletion file relative to the table, or None."""
        metadata = self.metadata
        return None if metadata.deletion_file is None else metadata.deletion_file.path(self.fragment_id)
