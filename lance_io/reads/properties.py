"""Properties of an open version that need no request. Synchronous and asynchronous classes share them."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from lance_io.lazy_names import lazy_module
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
    scan_options = lazy_module("lance_io.reads.scan.scan_options")
    scan_plan = lazy_module("lance_io.reads.scan.scan_plan")
    describe = lazy_module("lance_io.reads.metadata.describe")
    lance_schemas = lazy_module("lance_io.reads.metadata.lance_schema")


_moving = threading.Lock()  # guards moves of all open tables; held while an attribute is set


def _start_over() -> None:
    global _moving
    _moving = threading.Lock()


os.register_at_fork(after_in_child=_start_over)


class DatasetProperties:
    """Properties of the version, request counters, session."""

    _state: DatasetState
    _meter: IoMeter

    def _move_to(self, new: DatasetState, begun: DatasetState) -> None:
        """Move to the version `new` of a call that began at `begun`.

        Calls of several threads or tasks may end in any order. No call moves the object back behind a newer version.
        """
        with _moving:
            now = self._state
            if now is begun or new.manifest.version >= now.manifest.version:
                self._state = new

    @property
    def uri(self) -> str:
        """URI of the table, as given when it was opened."""
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
        """Schema with field ids."""
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
        """Largest field id in use."""
        return self._state.max_field_id

    @property
    def has_stable_row_ids(self) -> bool:
        """Whether row ids survive updates and compaction."""
        return self._state.has_stable_row_ids

    @property
    def has_index(self) -> bool:
        """Whether the table has indices. This release does not use them."""
        return self._state.has_index

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of the table, free for users."""
        return dict(self._manifest.table_metadata)

    @property
    def schema_metadata(self) -> dict[str, str]:
        """Metadata of the schema."""
        return {key: value.decode("utf-8", "replace") for key, value in self._state.schema.metadata.items()}

    def config(self) -> dict[str, str]:
        """Configuration of the table.

        Returns:
            Text by key.
        """
        return dict(self._manifest.config)

    @property
    def initial_storage_options(self) -> dict[str, str] | None:
        """Storage options as given when the table was opened."""
        return self._state.storage_options_copy()

    def latest_storage_options(self) -> dict[str, str] | None:
        """Storage options in use: those given when the table was opened, overridden by the provider's latest ones.

        Returns:
            Text by name; None if there are none.
        """
        source = source_of(self._state.storage_options)
        given = self._state.storage_options_copy()
        return given if source is None or source.latest is None else {**(given or {}), **source.latest.options}

    def base_paths(self) -> dict[int, BasePath]:
        """Base paths that the version declares: other folders for its files. They need not exist.

        Returns:
            Base paths by id.
        """
        return dict(self._manifest.base_paths)

    def session(self) -> Session:
        """The session; other datasets can share its caches."""
        return self._state.session

    def io_stats_snapshot(self) -> IOStats:
        """Count requests and bytes since before the table was opened, or since the last `io_stats_incremental`.

        Returns:
            The counts.
        """
        return self._meter.snapshot()

    def io_stats_incremental(self) -> IOStats:
        """Count requests and bytes since the last call; the first call counts from before the table was opened.

        Returns:
            The counts.
        """
        return self._meter.incremental()

    @property
    def version(self) -> int:
        """Number of the open version."""
        return self._manifest.version

    def get_version(self) -> Version:
        """Describe the open version as `versions` does.

        Returns:
            Number, local time of the commit, totals.
        """
        return describe.describe_version(self._manifest)

    def fragment_ids(self) -> set[int]:
        """Ids of all fragments."""
        return set(self._state.fragment_ids)


class FragmentProperties:
    """Properties of a fragment, from the manifest."""

    _state: DatasetState
    _fragment_index: int

    @property
    def fragment_id(self) -> int:
        """Id of the fragment, unique in the table."""
        return self._state.fragment_ids[self._fragment_index]

    @property
    def metadata(self) -> FragmentMetadata:
        """The manifest's description of the fragment."""
        return describe.fragment_metadata(self._state.manifest.fragments[self._fragment_index])

    @property
    def schema(self) -> pa.Schema:
        """Schema of the dataset."""
        return self._state.arrow_schema

    @property
    def physical_schema(self) -> pa.Schema:
        """Not supported, as in pylance. Use `schema`.

        `pyarrow.dataset.Scanner.from_fragment` requests this first; without the error it would read a C++ fragment that
        does not exist.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("a fragment of a Lance table has the schema of its table: use `schema`")

    @property
    def physical_rows(self) -> int:
        """Rows in the data files, including deleted ones."""
        return int(self._state.physical_rows[self._fragment_index])

    def data_files(self) -> list[DataFile]:
        """Data files of the fragment."""
        return self.metadata.files

    def deletion_file(self) -> str | None:
        """Path of the deletion file, relative to the table; None if there is none."""
        metadata = self.metadata
        return None if metadata.deletion_file is None else metadata.deletion_file.path(self.fragment_id)
