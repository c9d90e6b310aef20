"""What `LanceDataset` does, in plain code, with pylance's names.

`SyncDataset` has the methods. `LanceDataset` is that and a `pyarrow.dataset.Dataset`, whose module takes 0.2 s to load
(`bases.py`): the class is made when it is first asked for. `lance_io.dataset` gives an `OpenedDataset` where nothing
has loaded that module yet, which is a `LanceDataset` to all who ask.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NoReturn, cast

from lance_io.dataset.changes.change_methods import DatasetChanges
from lance_io.dataset.not_offered import DatasetNotOffered
from lance_io.dataset.properties import DatasetFacts
from lance_io.dataset.rows.take_rows import sample_positions, take_positions, take_row_ids, warm
from lance_io.dataset.run_plan import run
from lance_io.dataset.scan.scan_arguments import SCAN_KEYWORDS
from lance_io.dataset.scan.scan_statistics import IoMeter
from lance_io.dataset.version.open_version import checked_out, latest_of, open_steps
from lance_io.errors import UsageError
from lance_io.plans.plan import drive_async, drive_sync

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import timedelta
    from os import PathLike
    from typing import Self

    import pandas as pd
    import pyarrow as pa
    from typing_extensions import Unpack

    from lance_io.dataset.blobs.blob_file import BlobFile
    from lance_io.dataset.fragment import LanceFragment
    from lance_io.dataset.scan.scan_arguments import ScanKeywords
    from lance_io.dataset.scanner import LanceScanner
    from lance_io.dataset.version.column_lists import Columns, Selection
    from lance_io.dataset.version.describe import Version, VersionRef
    from lance_io.dataset.version.file_listing import Progress
    from lance_io.dataset.version.open_version import OpenOptions
    from lance_io.dataset.version.state import DatasetState
    from lance_io.dataset.version.table_statistics import LanceStats
    from lance_io.dataset.version.tags_and_branches import Branches, Tags

    Ref = int | str | tuple[str | None, int | None]
    Timeout = float | timedelta | None


class SyncDataset(DatasetFacts, DatasetChanges, DatasetNotOffered):
    """A snapshot of a table: it does not see later commits until `checkout_latest`.

    Parameters as for `lance_io.dataset`.
    """

    def __init__(
        self, uri: str | PathLike[str], version: Ref | None = None, *, timeout: Timeout = None, **options: Any
    ) -> None:
        from lance_io.dataset.open_dataset import open_options

        checked = open_options(uri, version, **options)
        self._meter = IoMeter(checked.location.store)
        self._state = _opened(checked, timeout)

    @classmethod
    def _of(cls, state: DatasetState, meter: IoMeter | None = None) -> Self:
        dataset: Self = cls.__new__(cls)
        dataset._state = state
        dataset._meter = meter or IoMeter(state.location.store)
        return dataset

    @property
    def stats(self) -> LanceStats:
        """Statistics of the table."""
        from lance_io.dataset.version.table_statistics import LanceStats

        return LanceStats(self._state)

    # -- versions ----------------------------------------------------------------------------------------------------

    @property
    def latest_version(self) -> int:
        """Number of the newest version of the branch, asked from the store now."""
        return run(self._state, latest_of(self._state))

    def versions(self) -> list[Version]:
        """All versions of the branch, oldest first; reads every manifest."""
        from lance_io.dataset.version.describe import describe_versions

        return run(self._state, describe_versions(self._state.location))

    def version_refs(self) -> list[VersionRef]:
        """Numbers of all versions of the branch, oldest first; one listing."""
        from lance_io.dataset.version.describe import version_refs

        return run(self._state, version_refs(self._state.location))

    def all_files(self) -> pa.RecordBatchReader:
        """All files below the table's folder, with size and time: `base_uri`, `path`, `size_bytes`, `last_modified`."""
        from lance_io.dataset.version import file_listing as files

        return files.reader(files.ALL_FILES, [run(self._state, files.all_files(self._state))])

    def tracked_files(
        self, *, min_version: int | None = None, progress: Progress | None = None
    ) -> pa.RecordBatchReader:
        """The files that the versions of the branch refer to: `version`, `base_uri`, `path`, `type`.

        min_version  only versions from this one on
        progress     told (versions read, versions in all) now and then
        """
        from lance_io.dataset.version import file_listing as files

        def batches() -> Iterator[pa.RecordBatch]:
            for portion in run(state, files.tracked_versions(state, min_version)):
                yield run(state, files.tracked_files(state, portion.files))
                if progress is not None:
                    progress(portion.num_read, portion.num_versions)

        state = self._state
        return files.reader(files.TRACKED_FILES, batches())

    def checkout_version(self, version: Ref, *, timeout: Timeout = None) -> Self:
        """Another version, tag or `(branch, version)` of the same table, as a new object."""
        meter = IoMeter(self._state.location.store)
        return type(self)._of(run(self._state, checked_out(self._state, version), timeout), meter)

    def checkout_latest(self, *, timeout: Timeout = None) -> None:
        """Move this object to the newest version of its branch."""
        self._state = run(self._state, checked_out(self._state, None), timeout)

    @property
    def tags(self) -> Tags:
        """The table's tags."""
        from lance_io.dataset.version.tags_and_branches import Tags

        return Tags(self._state)

    @property
    def branches(self) -> Branches:
        """The table's branches."""
        from lance_io.dataset.version.tags_and_branches import Branches

        return Branches(self._state)

    # -- scans -------------------------------------------------------------------------------------------------------

    def scanner(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Unpack[ScanKeywords],
    ) -> LanceScanner:
        """A scan, to be run by its methods.

        columns   names (`n.x` for a member, `blob.size` for what describes a blob), or a dict of new names and
                  expressions; None for all columns
        filter    SQL text or a boolean `pyarrow.compute` expression, see docs/filters.md
        limit, offset          row window, after the filter
        batch_size             rows per batch (8192); `strict_batch_size` lets batches span fragments
        with_row_id, with_row_address  append `_rowid`, `_rowaddr`
        fragments              scan only these `LanceFragment`s, in this order
        order_by               names or `ColumnOrdering`s
        late_materialization   True, False or the columns to read only for rows that pass the filter
        blob_handling          "blobs_descriptions" or "all_binary"
        include_deleted_rows   show deleted rows, with a null row id
        io_buffer_size         bytes read and not yet consumed
        scan_stats_callback    called with `ScanStatistics` when a scan is over
        timeout                seconds, or a `timedelta`, that a run of the scan may take, the caller's own time between
                               batches included; then it is cancelled and frees what it holds. Batches that were read
                               by then still come, and `DeadlineExceeded` after them
        """
        given: dict[str, Any] = {"columns": columns, "filter": filter, "limit": limit, "offset": offset, **options}
        return self._scan(given, self._state.default_scan_options)

    def _scan(self, given: dict[str, Any], defaults: Mapping[str, Any] | None) -> LanceScanner:
        from lance_io.dataset.scan.scan_options import asked_options
        from lance_io.dataset.scanner import LanceScanner

        return LanceScanner._of(self._state, asked_options(given), defaults)

    def to_table(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Unpack[ScanKeywords],
    ) -> pa.Table:
        """The rows as a table; parameters as for `scanner`."""
        return self.scanner(columns, filter, limit, offset, **options).to_table()

    def to_batches(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Unpack[ScanKeywords],
    ) -> Iterator[pa.RecordBatch]:
        """The rows batch by batch; parameters as for `scanner`."""
        return self.scanner(columns, filter, limit, offset, **options).to_batches()

    def to_pandas(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        *,
        blob_mode: str = "lazy",
        **options: Any,
    ) -> pd.DataFrame:
        """The rows as a data frame; scan keywords as for `scanner`, others go to `pyarrow.Table.to_pandas`."""
        scan = {name: options.pop(name) for name in list(options) if name in SCAN_KEYWORDS}
        return self.scanner(columns, filter, limit, offset, **scan).to_pandas(blob_mode=blob_mode, **options)

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """The first rows; keywords as for `scanner`."""
        return self.scanner(**{**options, "limit": num_rows}).to_table()

    def slice(self, start: int, end: int, columns: Columns = None, *, timeout: Timeout = None) -> pa.Table:
        """Rows `start` to `end` by position. Raises `ValueError` unless `0 <= start <= end`."""
        if start < 0:
            raise UsageError(f"start must be non-negative, got {start}")
        if end < start:
            raise UsageError(f"end ({end}) must be >= start ({start})")
        return self.scanner(columns, offset=start, limit=end - start, timeout=timeout).to_table()

    def count_rows(self, filter: Any = None, **options: Any) -> int:
        """Number of rows, or of those that pass a filter, whatever `default_scan_options` say; no filter, no reads."""
        from lance_io.dataset.scan.execute import count
        from lance_io.dataset.scan.scan_options import asked_options

        return count(self._state, asked_options({"filter": filter, **options}).with_defaults(None))

    def __len__(self) -> int:
        return self.count_rows()

    # -- random access -----------------------------------------------------------------------------------------------

    def take(self, indices: Any, columns: Selection = None, *, timeout: Timeout = None) -> pa.Table:
        """Rows by position, in the order asked, repetitions included.

        indices  numbers below `count_rows()`: list, range, numpy or Arrow array
        timeout  seconds, or a `timedelta`, after which the call is cancelled with `DeadlineExceeded`
        Raises `OverflowError` for a negative number and `OSError` for one that is too large.
        """
        return run(self._state, take_positions(self._state, indices, columns), timeout)

    def _take_rows(
        self, row_ids: Any, columns: Selection = None, *, ignore_deletions: bool = False, **kwargs: Any
    ) -> pa.Table:
        """Rows by row id, in the order asked; ids of deleted rows are left out."""
        return run(self._state, take_row_ids(self._state, row_ids, columns))

    def sample(
        self,
        num_rows: int,
        columns: Selection = None,
        randomize_order: bool = True,
        *,
        timeout: Timeout = None,
        **kwargs: Any,
    ) -> pa.Table:
        """A random sample without repetitions. Raises `ValueError` when it is larger than the table."""
        positions = sample_positions(num_rows, self.count_rows(), randomize_order=randomize_order)
        return self.take(positions, columns, timeout=timeout)

    def warm(self, columns: Selection = None, *, timeout: Timeout = None) -> None:
        """Do ahead of the first take what it would need: connections, and all that locates rows of these columns.

        The metadata and page indexes of the data files, the deleted rows and the row id index go to the search cache,
        until three quarters of it are filled; a take of these columns then asks for rows only. Nothing is kept for a
        scan, which needs none of it.

        columns  as for `take`; None for all
        timeout  as for `take`; what has been read until then stays
        """
        run(self._state, warm(self._state, columns), timeout)

    # -- fragments ---------------------------------------------------------------------------------------------------

    def get_fragments(self, filter: Any = None) -> list[LanceFragment]:
        """The fragments, in the order of the manifest."""
        if filter is not None:
            raise UsageError("get_fragments() does not support filter yet")
        from lance_io.dataset.fragment import LanceFragment

        return [LanceFragment._of(self._state, place) for place in self._state.all_places]

    def get_fragment(self, fragment_id: int) -> LanceFragment | None:
        """The fragment with this id, or None."""
        from lance_io.dataset.fragment import LanceFragment

        place = self._state.place_of(fragment_id)
        return None if place is None else LanceFragment._of(self._state, place)

    def validate(self) -> None:
        """Check that all files of the version are there and agree with the manifest; reads metadata, no rows.

        Raises `FormatError` for what does not agree, `OSError` for a file that is missing.
        """
        from lance_io.dataset.version.validation import validate

        run(self._state, validate(self._state, self._state.all_places))

    # -- blobs -------------------------------------------------------------------------------------------------------

    def take_blobs(
        self,
        blob_column: str,
        ids: Any = None,
        addresses: Any = None,
        indices: Any = None,
        *,
        buffer_size: int = 1 << 19,
        timeout: Timeout = None,
    ) -> list[BlobFile | None]:
        """Blobs as files, None where the blob is null: one for each row asked for, in that order.

        ids, addresses, indices  row ids, row addresses or positions: exactly one of them
        buffer_size              bytes read ahead by small sequential reads
        Raises `ValueError` for rows that were deleted or never existed.
        """
        from lance_io.dataset.blobs.blob_file import take_blobs

        files = take_blobs(self._state, blob_column, ids, addresses, indices, buffer_size)
        return run(self._state, files, timeout)

    def read_blobs(
        self,
        blob_column: str,
        ids: Any = None,
        addresses: Any = None,
        indices: Any = None,
        *,
        io_buffer_size: int | None = None,
        preserve_order: bool | None = None,
        timeout: Timeout = None,
    ) -> list[tuple[int, bytes | None]]:
        """The bytes of blobs, as `(row address, bytes or None)`; selectors as for `take_blobs`."""
        from lance_io.dataset.blobs.blob_file import read_blobs

        found = read_blobs(self._state, blob_column, ids, addresses, indices, preserve_order)
        return run(self._state, found, timeout)

    def read_blob_ranges(
        self,
        blob_column: str,
        requests: Any,
        *,
        selector: str,
        io_buffer_size: int | None = None,
        preserve_order: bool | None = None,
        timeout: Timeout = None,
    ) -> list[tuple[int, int, bytes | None]]:
        """Ranges of blobs, as `(number of the request, row address, bytes or None)`.

        requests  `(row, offset, length)`, the row as `selector` ("ids", "addresses", "indices") says
        """
        from lance_io.dataset.blobs.blob_file import read_blob_ranges

        found = read_blob_ranges(self._state, blob_column, requests, selector, preserve_order)
        return run(self._state, found, timeout)

    # -- interop -----------------------------------------------------------------------------------------------------

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.scanner().__arrow_c_stream__(requested_schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._of, (self._state,)

    def __copy__(self) -> Self:
        return type(self)._of(self._state)

    def __repr__(self) -> str:
        return f"<LanceDataset {self._state.location.uri} version {self.version}>"

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    # -- inherited from pyarrow and not offered ----------------------------------------------------------------------

    def filter(self, expression: object) -> NoReturn:
        """Not offered; use `scanner(filter=...)`."""
        raise NotImplementedError("filter: use scanner(filter=...)")

    def join(self, *args: object, **kwargs: object) -> NoReturn:
        """Not offered; join tables."""
        raise NotImplementedError("join: use to_table() and join tables")

    def join_asof(self, *args: object, **kwargs: object) -> NoReturn:
        """Not offered; join tables."""
        raise NotImplementedError("join_asof: use to_table() and join tables")

    def sort_by(self, *args: object, **kwargs: object) -> NoReturn:
        """Not offered; use `scanner(order_by=...)`."""
        raise NotImplementedError("sort_by: use scanner(order_by=...)")

    def replace_schema(self, schema: object) -> NoReturn:
        """Not offered: the schema is the table's."""
        raise NotImplementedError("Cannot replace the schema of a dataset")

    @property
    def partition_expression(self) -> NoReturn:
        """Not offered: tables are not partitioned."""
        raise NotImplementedError("partitioning not yet supported")

    def _get_fragments(self, filter: Any) -> Iterator[LanceFragment]:
        return iter(self.get_fragments(filter))

    def _scanner_options(self, options: Mapping[str, Any]) -> NoReturn:
        raise NotImplementedError("use scanner()")

    def _scan_options(self, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError("use scanner()")


if TYPE_CHECKING:
    from lance_io.dataset.bases import Dataset

    class LanceDataset(SyncDataset, Dataset):  # type: ignore[misc]
        """A snapshot of a table; see `SyncDataset`."""


def __getattr__(name: str) -> Any:
    if name == "LanceDataset":
        return _lance_dataset()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _lance_dataset() -> type[LanceDataset]:
    from lance_io.dataset import bases

    # pyarrow's constructor would want a C++ dataset; every inherited method is overridden
    made: type[LanceDataset] = bases.subclass(SyncDataset, bases.Dataset)
    return made


class OpenedDataset(SyncDataset):
    """A `LanceDataset` that has not loaded pyarrow's dataset module.

    Asked for its class, as by `isinstance`, it names `LanceDataset`, which loads that; only `type` tells them apart.
    """

    __class__ = property(lambda _: _lance_dataset())


def dataset_class() -> type[LanceDataset]:
    """The class of new datasets: an actual subclass of pyarrow's where that is loaded already."""
    return _lance_dataset() if "pyarrow._dataset" in sys.modules else cast("type[LanceDataset]", OpenedDataset)


def _opened(options: OpenOptions, timeout: Timeout) -> DatasetState:
    from lance_io import runtime
    from lance_io.store.api import offers_sync_reads

    plan = open_steps(options)
    if timeout is None and offers_sync_reads(options.location.store):
        return drive_sync(plan)
    return runtime.run(runtime.within(runtime.seconds(timeout), drive_async(plan)))
