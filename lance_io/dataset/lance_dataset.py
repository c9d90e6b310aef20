"""One table version, open: `LanceDataset`, with pylance's names, and `AsyncDataset`, which is the same, awaitable.

`SyncDataset` has the methods of `LanceDataset`, which is that and a `pyarrow.dataset.Dataset`, whose module takes 0.2 s
to load (`bases.py`): the class is made when it is first asked for. `lance_io.dataset` gives an `OpenedDataset` where
nothing has loaded that module yet, which is a `LanceDataset` to all who ask.

Every asynchronous method is a coroutine that runs on the engine's loop, whatever loop awaits it; cancelling the caller
cancels it there. `async for` over batches that ends early (`break`, an exception, `aclose`) cancels the reads under
way.

What the methods do are plans of the folders, `scanner.py` and `fragment.py`; those that change the table are in
`dataset/change_methods.py`. Modules that an open dataset does not need are loaded when a method does.
"""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypedDict, cast

import pyarrow as pa

from lance_io import runtime
from lance_io.dataset.change_methods import AsyncDatasetChanges, DatasetChanges
from lance_io.dataset.clone_methods import AsyncDatasetClones, DatasetClones
from lance_io.dataset.opening import Opening
from lance_io.errors import UsageError
from lance_io.limits import COMMIT_TIMEOUT
from lance_io.not_offered import DatasetNotOffered
from lance_io.plans.lazy_module import later, later_plans
from lance_io.reads.open_version import check_out, latest_of, open_options, open_steps
from lance_io.reads.properties import DatasetProperties
from lance_io.reads.run_plan import run, run_async, run_sync
from lance_io.reads.scan.scan_arguments import SCAN_KEYWORDS
from lance_io.reads.scan.scan_statistics import IoMeter
from lance_io.reads.takes.take_rows import sample, take_positions, take_row_ids, warm
from lance_io.redaction import hide_secrets
from lance_io.store.offers import offers_sync_reads
from lance_io.store.provided_options import gather_provider
from lance_io.store.url import load_client, uri_on

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from datetime import timedelta
    from os import PathLike
    from typing import Self

    import pandas as pd
    from typing_extensions import Unpack

    from lance_io.changes.edits import commit_operation as commits
    from lance_io.changes.operations.lance_operation import LanceOperation, Transaction
    from lance_io.changes.write import run_write as writes
    from lance_io.dataset import bases, tags_and_branches
    from lance_io.dataset import fragment as fragments
    from lance_io.dataset import scanner as scanners
    from lance_io.dataset import sql_query as queries
    from lance_io.dataset import version_delta as deltas
    from lance_io.dataset.fragment import AsyncFragment, LanceFragment
    from lance_io.dataset.scanner import AsyncScanner, LanceScanner, SyncScanner
    from lance_io.dataset.sql_query import AsyncSqlQueryBuilder, SqlQueryBuilder
    from lance_io.dataset.tags_and_branches import Branches, Tags
    from lance_io.dataset.version_delta import AsyncDatasetDelta, DatasetDelta
    from lance_io.io import scheduler
    from lance_io.reads.checks import validation
    from lance_io.reads.metadata import describe, file_listing, table_statistics
    from lance_io.reads.metadata.describe import Version, VersionRef
    from lance_io.reads.metadata.file_listing import Progress
    from lance_io.reads.metadata.table_statistics import AsyncStats, LanceStats
    from lance_io.reads.open_version import Ref
    from lance_io.reads.run_plan import Timeout
    from lance_io.reads.scan.scan_arguments import ScanKeywords
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.takes import blob_file
    from lance_io.reads.takes import take_items as item_takes
    from lance_io.reads.takes.blob_file import AsyncBlobFile, BlobFile
    from lance_io.reads.version.column_lists import Columns, Selection
    from lance_io.reads.version.state import DatasetState
else:
    bases = later("lance_io.dataset.bases")
    fragments = later("lance_io.dataset.fragment")
    item_takes = later_plans("lance_io.reads.takes.take_items")
    scanners = later("lance_io.dataset.scanner")
    blob_file = later_plans("lance_io.reads.takes.blob_file")
    commits = later("lance_io.changes.edits.commit_operation")
    queries = later("lance_io.dataset.sql_query")
    deltas = later("lance_io.dataset.version_delta")
    describe = later_plans("lance_io.reads.metadata.describe")
    file_listing = later_plans("lance_io.reads.metadata.file_listing")
    table_statistics = later("lance_io.reads.metadata.table_statistics")
    tags_and_branches = later_plans("lance_io.dataset.tags_and_branches")
    validation = later_plans("lance_io.reads.checks.validation")
    writes = later("lance_io.changes.write.run_write")
    scheduler = later("lance_io.io.scheduler")

# what methods of `AsyncDataset` use that are no coroutines, imported before they are called: they may be on a loop
_USED_BY_FUNCTIONS: Final = (fragments.__name__, scanners.__name__, scheduler.__name__)


class _Dataset(DatasetProperties):
    """What both faces of a dataset have in common."""

    @classmethod
    def _of(cls, state: DatasetState, meter: IoMeter | None = None) -> Self:
        dataset: Self = cls.__new__(cls)
        dataset._state = state
        dataset._meter = meter or IoMeter(state.location.store)
        return dataset

    def _asked(self, *given: Any, **options: Any) -> ScanOptions:
        """The options of a scan, with the dataset's defaults; parameters as for `scanner`."""
        return scanners.make_options(self._state.default_scan_options, *given, **options)

    def _places(self, filter: Any) -> Sequence[int]:
        """Places of the fragments, as `get_fragments` gives them."""
        if filter is not None:
            raise UsageError("get_fragments() does not support filter yet")
        return self._state.all_places

    def __copy__(self) -> Self:
        return type(self)._of(self._state)


class BulkCommitResult(TypedDict):
    """What `LanceDataset.commit_batch` gives.

    dataset  the new version
    merged   the operation that it is, of all that were given
    """

    dataset: LanceDataset
    merged: Transaction


class SyncDataset(_Dataset, DatasetChanges, DatasetClones, DatasetNotOffered):
    """A snapshot of a table: it does not see later commits until `checkout_latest`.

    Parameters as for `lance_io.dataset`.
    """

    def __init__(
        self, uri: str | PathLike[str], version: Ref | None = None, *, timeout: Timeout = None, **options: Any
    ) -> None:
        checked = open_options(uri, version, **options)
        self._meter = IoMeter(checked.location.store)
        answers_sync = offers_sync_reads(checked.location.store)
        super().__init__(run_sync(open_steps(checked), timeout, answers_sync=answers_sync))

    @property
    def stats(self) -> LanceStats:
        """Statistics of the table."""
        return table_statistics.LanceStats(self._state)

    # -- versions ----------------------------------------------------------------------------------------------------

    @property
    def latest_version(self) -> int:
        """Number of the newest version of the branch, asked from the store now."""
        return self._run(latest_of(self._state))

    def versions(self) -> list[Version]:
        """All versions of the branch, oldest first; reads every manifest."""
        return self._run(describe.describe_versions(self._state.location))

    def version_refs(self) -> list[VersionRef]:
        """Numbers of all versions of the branch, oldest first; one listing."""
        return self._run(describe.version_refs(self._state.location))

    def all_files(self) -> pa.RecordBatchReader:
        """All files below the table's folder, with size and time: `base_uri`, `path`, `size_bytes`, `last_modified`."""
        return self._run(file_listing.all_files(self._state))

    def tracked_files(
        self, *, min_version: int | None = None, progress: Progress | None = None
    ) -> pa.RecordBatchReader:
        """The files that the versions of the branch refer to: `version`, `base_uri`, `path`, `type`.

        min_version  only versions from this one on
        progress     told (versions read, versions in all) now and then
        """

        @runtime.shared
        def batches(state: DatasetState) -> Iterator[pa.RecordBatch]:
            for portion in run(state, file_listing.tracked_versions(state, min_version)):
                yield run(state, file_listing.tracked_files(state, portion))
                portion.tell(progress)

        return pa.RecordBatchReader.from_batches(file_listing.TRACKED_FILES, batches(self._state))

    def checkout_version(self, version: Ref, *, timeout: Timeout = None) -> Self:
        """Another version, tag or `(branch, version)` of the same table, as a new object."""
        meter = IoMeter(self._state.location.store)
        return type(self)._of(self._run(check_out(self._state, version), timeout), meter)

    def checkout_latest(self, *, timeout: Timeout = None) -> None:
        """Move this object to the newest version of its branch."""
        begun = self._state
        self._move_to(self._run(check_out(begun, None), timeout), begun)

    @property
    def tags(self) -> Tags:
        """The table's tags."""
        return tags_and_branches.Tags(self._state)

    @property
    def branches(self) -> Branches:
        """The table's branches."""
        return tags_and_branches.Branches(self._state)

    def delta(
        self,
        compared_against: int | None = None,
        *,
        begin_version: int | None = None,
        end_version: int | None = None,
    ) -> DatasetDelta:
        """What changed after one version, up to another: rows inserted, updated and deleted, and transactions.

        compared_against  the version to compare this one with, an older or a newer one; or
        begin_version, end_version  two versions of the branch

        Rows come as they are in this version. Raises `ValueError` unless one of the two ways is taken.
        """
        chosen = deltas.version_range(self._state, compared_against, begin_version, end_version)
        return deltas.DatasetDelta(self._state, *chosen)

    def sql(self, sql: str) -> SqlQueryBuilder:
        """A SELECT over this version, in the dialect of DuckDB, which answers it: `pip install 'lance_io[sql]'`.

        The table is called `dataset` in it. `ds.sql("SELECT ...").build().to_batch_records()` runs it; columns and
        conditions are pushed into the scan. It can read nothing but the table. Its dialect is not that of filters.
        """
        return queries.SqlQueryBuilder(self._state, sql)

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
        nearest                a vector search, as a dict of the parameters of `ScannerBuilder.nearest`
        prefilter              whether that looks only at rows that pass the filter; else what it found is filtered
        timeout                seconds, or a `timedelta`, that a run of the scan may take, the caller's own time between
                               batches included; then it is cancelled and frees what it holds. Batches that were read
                               by then still come, and `DeadlineExceeded` after them
        """
        return scanners.LanceScanner._of(self._state, self._asked(columns, filter, limit, offset, **options))

    def _scan(self, *given: Any, **options: Any) -> SyncScanner:
        """A scan that nobody sees: it need not be a scanner of pyarrow's, which takes long to load.

        One that computes is: functions of pyarrow load pandas where that is installed, which `bases.py` has done by a
        thread, so that no Ctrl-C ends it half way.
        """
        wanted = self._asked(*given, **options)
        computes = wanted.filter is not None or isinstance(wanted.columns, dict) or wanted.nearest is not None
        return (scanners.LanceScanner if computes else scanners.SyncScanner)._of(self._state, wanted)

    def to_table(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Unpack[ScanKeywords],
    ) -> pa.Table:
        """The rows as a table; parameters as for `scanner`."""
        return self._scan(columns, filter, limit, offset, **options).to_table()

    def to_batches(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Unpack[ScanKeywords],
    ) -> Iterator[pa.RecordBatch]:
        """The rows batch by batch; parameters as for `scanner`."""
        return self._scan(columns, filter, limit, offset, **options).to_batches()

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
        return self._scan(columns, filter, limit, offset, **scan).to_pandas(blob_mode=blob_mode, **options)

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """The first rows; keywords as for `scanner`."""
        return self._scan(**{**options, "limit": num_rows}).to_table()

    def slice(self, start: int, end: int, columns: Columns = None, *, timeout: Timeout = None) -> pa.Table:
        """Rows `start` to `end` by position. Raises `ValueError` unless `0 <= start <= end`."""
        offset, limit = scanners.row_window(start, end)
        return self._scan(columns, offset=offset, limit=limit, timeout=timeout).to_table()

    def count_rows(self, filter: Any = None, **options: Any) -> int:
        """Number of rows, or of those that pass a filter, whatever `default_scan_options` say; no filter, no reads."""
        wanted = scanners.make_options(None, filter=filter, **options)
        return scanners.SyncScanner._of(self._state, wanted).count_rows()

    def __len__(self) -> int:
        return self.count_rows()

    # -- random access -----------------------------------------------------------------------------------------------

    def take(self, indices: Any, columns: Selection = None, *, timeout: Timeout = None) -> pa.Table:
        """Rows by position, in the order asked, repetitions included.

        indices  numbers below `count_rows()`: list, range, numpy or Arrow array
        timeout  seconds, or a `timedelta`, after which the call is cancelled with `DeadlineExceeded`
        Raises `OverflowError` for a negative number and `OSError` for one that is too large.
        """
        return self._run(take_positions(self._state, indices, columns), timeout)

    def take_items(self, column: str, items: Any, *, timeout: Timeout = None) -> pa.ChunkedArray:
        """Single items of lists, such as `rows[50][17]`, in the order asked, repetitions included.

        column   a list or vector, also a dotted path to one in structs
        items    pairs of a row, by position as in `take`, and an item of its list, both from 0 on: a list, or a numpy
                 array of shape (n, 2)
        timeout  seconds, or a `timedelta`, after which the call is cancelled with `DeadlineExceeded`

        A value for each pair, of the type of the items: null where the list is null or has no such item. Where pages
        allow it, just the chunk or value that holds an item is read (docs/filters.md).

        Raises `OverflowError` for a negative number, `OSError` for a row that is too large, `BindError` for an unknown
        column, `UsageError` for a column that is no list, and `TypeError` for what is no pair of numbers.
        """
        return self._run(item_takes.take_items(self._state, column, items), timeout)

    def _take_rows(
        self, row_ids: Any, columns: Selection = None, *, ignore_deletions: bool = False, **kwargs: Any
    ) -> pa.Table:
        """Rows by row id, in the order asked; ids of deleted rows are left out."""
        return self._run(take_row_ids(self._state, row_ids, columns))

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
        plan = sample(self._state, num_rows, columns, randomize_order=randomize_order)
        return self._run(plan, timeout)

    def warm(self, columns: Selection = None, *, timeout: Timeout = None) -> None:
        """Do ahead of the first take what it would need: connections, and all that locates rows of these columns.

        The metadata and page indexes of the data files, the deleted rows and the row id index go to the search cache,
        until three quarters of it are filled; a take of these columns then asks for rows only. Nothing is kept for a
        scan, which needs none of it.

        columns  as for `take`; None for all
        timeout  as for `take`; what has been read until then stays
        """
        self._run(warm(self._state, columns), timeout)

    # -- fragments ---------------------------------------------------------------------------------------------------

    def get_fragments(self, filter: Any = None) -> list[LanceFragment]:
        """The fragments, in the order of the manifest."""
        return [fragments.LanceFragment._of(self._state, place) for place in self._places(filter)]

    def get_fragment(self, fragment_id: int) -> LanceFragment | None:
        """The fragment with this id, or None."""
        place = self._state.place_of(fragment_id)
        return None if place is None else fragments.LanceFragment._of(self._state, place)

    def validate(self) -> None:
        """Check that all files of the version are there, those of blobs, too, and agree with the manifest.

        Reads metadata and descriptions of blobs, no rows.

        Raises `FormatError` for what does not agree, `OSError` for a file that is missing.
        """
        self._run(validation.validate(self._state, self._state.all_places))

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
        plan = blob_file.take_blobs(self._state, blob_column, ids, addresses, indices, buffer_size)
        return self._run(plan, timeout)

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
        return self._run(blob_file.read_blobs(self._state, blob_column, ids, addresses, indices), timeout)

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
        return self._run(blob_file.read_blob_ranges(self._state, blob_column, requests, selector), timeout)

    # -- commits ----------------------------------------------------------------------------------------------------

    @staticmethod
    def commit(
        base_uri: str | PathLike[str] | LanceDataset,
        operation: LanceOperation.BaseOperation | Transaction,
        read_version: int | None = None,
        commit_lock: Any = None,
        storage_options: dict[str, str] | None = None,
        enable_v2_manifest_paths: bool | None = None,
        detached: bool | None = False,
        max_retries: int = 20,
        *,
        commit_message: str | None = None,
        enable_stable_row_ids: bool | None = None,
        namespace_client: Any = None,
        table_id: list[str] | None = None,
        namespace_client_managed_versioning: bool = False,
        base_store_params: Any = None,
        commit_timeout: timedelta | None = COMMIT_TIMEOUT,
        filesystem: Any = None,
        skip_auto_cleanup: bool = False,
        storage_options_provider: Any = None,
    ) -> LanceDataset:
        """Commit an operation that was prepared somewhere; gives the version that it makes.

        base_uri      the table, or an open dataset (which stays at its version)
        operation     one of `LanceOperation`, or a whole `Transaction`: committing the same one again is recognised,
                      also that of a `CommitUnknownError`
        read_version  version that the operation was made for; not needed for `Overwrite` and `Restore`
        detached      make a version outside of the sequence, which only its number finds
        max_retries   attempts at most; 0 with an `Overwrite`: `read_version` must still be the newest
        commit_timeout  no further attempt after this time
        filesystem    of fsspec or pyarrow, or a store of obstore's, on which `base_uri` is a path
        skip_auto_cleanup  no cleanup follows, whatever the table's configuration says
        storage_options_provider  as for `dataset`

        Raises `CommitConflictError` for changes of other writers that do not go together with it, `OSError` when
        there is no table and the operation is no `Overwrite`, and for one that does not fit the table or its files.
        """
        return new_dataset(commits.run_commit(locals()))

    @staticmethod
    def commit_batch(
        dest: str | PathLike[str] | LanceDataset,
        transactions: list[Transaction],
        commit_lock: Any = None,
        storage_options: dict[str, str] | None = None,
        enable_v2_manifest_paths: bool | None = None,
        detached: bool | None = False,
        max_retries: int = 20,
        base_store_params: Any = None,
        commit_timeout: timedelta | None = COMMIT_TIMEOUT,
        *,
        filesystem: Any = None,
        storage_options_provider: Any = None,
    ) -> BulkCommitResult:
        """Commit several appends as one; gives `{"dataset": ..., "merged": ...}`."""
        given = commits.batch_commit(locals())
        return {"dataset": new_dataset(commits.run_commit(given)), "merged": given["operation"]}

    # -- interop -----------------------------------------------------------------------------------------------------

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._scan().__arrow_c_stream__(requested_schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._of, (self._state,)

    def __repr__(self) -> str:
        return f"<LanceDataset {hide_secrets(self._state.location.uri)} version {self.version}>"

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

    class LanceDataset(SyncDataset, bases.Dataset):  # type: ignore[misc]
        """A snapshot of a table; see `SyncDataset`."""


def __getattr__(name: str) -> Any:
    if name == "LanceDataset":
        return _lance_dataset()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _lance_dataset() -> type[LanceDataset]:
    # pyarrow's constructor would want a C++ dataset; every inherited method is overridden
    made: type[LanceDataset] = bases.subclass(SyncDataset, bases.Dataset)
    return made


class OpenedDataset(SyncDataset):
    """A `LanceDataset` that has not loaded pyarrow's dataset module.

    Asked for its class, as by `isinstance`, it names `LanceDataset`, which loads that; only `type` tells them apart.
    """

    __class__ = property(lambda _: _lance_dataset())


def dataset_class() -> type[LanceDataset]:
    """The class of new datasets: an actual subclass of pyarrow's where that is loaded already, or DuckDB is.

    DuckDB looks at the type, not at the class that it names: of others it reads all columns, as a stream.
    """
    is_wanted = not sys.modules.keys().isdisjoint(("pyarrow._dataset", "duckdb"))
    return _lance_dataset() if is_wanted else cast("type[LanceDataset]", OpenedDataset)


def new_dataset(state: DatasetState) -> LanceDataset:
    """The dataset of a version that was opened or made."""
    return dataset_class()._of(state)


class AsyncDataset(_Dataset, AsyncDatasetChanges, AsyncDatasetClones, DatasetNotOffered):
    """A snapshot of a table version. Made by `AsyncDataset.open`, or from a `LanceDataset` by `AsyncDataset.of`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        raise TypeError(
            "an AsyncDataset is opened by `await AsyncDataset.open(uri)` or `async with AsyncDataset.open(uri) as ds`, "
            "not by its class: a constructor cannot be awaited"
        )

    @staticmethod
    def open(
        uri: str | PathLike[str], version: Ref | None = None, *, timeout: Timeout = None, **options: Any
    ) -> Opening[AsyncDataset]:
        """Open a table; keywords as for `lance_io.dataset`. A coroutine, which `async with` takes too."""
        return Opening(partial(_open, uri, version, timeout, options))

    @classmethod
    def of(cls, dataset: LanceDataset) -> Self:
        """The same table version as a `LanceDataset`, sharing its caches."""
        runtime.load_modules_sync(*_USED_BY_FUNCTIONS)
        return cls._of(dataset._state)

    def to_sync(self) -> LanceDataset:
        """The same table version for plain code, sharing the caches; it outlives this object's `aclose`."""
        return new_dataset(replace(self._state, schedulers=None))

    async def aclose(self) -> None:
        """Cancel the reads under way, of calls and of batches, wait until they have ended and free what they hold.

        Those who await them, and those who read on, get a `RuntimeError`, and so does every later call that reads or
        changes the table, of this object and of whatever came from it: nothing is written. Of a dataset that was made
        by `of` all go on: they are also those of the `LanceDataset`.
        """
        if self._state.schedulers is not None:
            await runtime.wrap(self._state.schedulers.aclose())
        self._state.release()

    # -- versions ----------------------------------------------------------------------------------------------------

    async def latest_version(self) -> int:
        """Number of the newest version of the branch."""
        return await self._run(latest_of(self._state))

    async def versions(self) -> list[Version]:
        """All versions of the branch, oldest first; reads every manifest."""
        return await self._run(describe.describe_versions(self._state.location))

    async def all_files(self) -> pa.RecordBatchReader:
        """See `LanceDataset.all_files`."""
        return await self._run(file_listing.all_files(self._state))

    @runtime.shared_async
    async def tracked_files(
        self, *, min_version: int | None = None, progress: Progress | None = None
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `LanceDataset.tracked_files`; batch by batch, for `async for`."""
        state = self._state
        for portion in await self._run(file_listing.tracked_versions(state, min_version)):
            yield await self._run(file_listing.tracked_files(state, portion))
            portion.tell(progress)

    async def version_refs(self) -> list[VersionRef]:
        """Numbers of all versions of the branch, oldest first."""
        return await self._run(describe.version_refs(self._state.location))

    async def tags(self) -> dict[str, Any]:
        """The table's tags by name."""
        return await self._run(tags_and_branches.list_tags(self._state))

    async def branches(self) -> dict[str, Any]:
        """The table's branches by name."""
        return await self._run(tags_and_branches.list_branches(self._state))

    async def checkout_version(self, version: Ref, *, timeout: Timeout = None) -> AsyncDataset:
        """Another version, tag or `(branch, version)` of the same table, as a new object."""
        meter = IoMeter(self._state.location.store)
        return type(self)._of(await self._run(check_out(self._state, version), timeout), meter)

    async def checkout_latest(self, *, timeout: Timeout = None) -> None:
        """Move this object to the newest version of its branch."""
        begun = self._state
        self._move_to(await self._run(check_out(begun, None), timeout), begun)

    def delta(
        self,
        compared_against: int | None = None,
        *,
        begin_version: int | None = None,
        end_version: int | None = None,
    ) -> AsyncDatasetDelta:
        """What changed after one version, up to another; see `LanceDataset.delta`."""
        chosen = deltas.version_range(self._state, compared_against, begin_version, end_version)
        return deltas.AsyncDatasetDelta(self._state, *chosen)

    def sql(self, sql: str) -> AsyncSqlQueryBuilder:
        """A SELECT over this version; see `LanceDataset.sql`."""
        return queries.AsyncSqlQueryBuilder(self._state, sql)

    # -- scans -------------------------------------------------------------------------------------------------------

    def scanner(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Unpack[ScanKeywords],
    ) -> AsyncScanner:
        """A scan; parameters as for `LanceDataset.scanner`."""
        return scanners.AsyncScanner(self._state, self._asked(columns, filter, limit, offset, **options))

    async def to_table(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Any,
    ) -> pa.Table:
        """The rows as a table; parameters as for `LanceDataset.scanner`."""
        return await self.scanner(columns, filter, limit, offset, **options).to_table()

    def to_batches(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Any,
    ) -> AsyncIterator[pa.RecordBatch]:
        """The rows batch by batch, for `async for`; parameters as for `LanceDataset.scanner`."""
        return self.scanner(columns, filter, limit, offset, **options).to_batches()

    async def head(self, num_rows: int, **options: Any) -> pa.Table:
        """The first rows."""
        return await self.scanner(**{**options, "limit": num_rows}).to_table()

    async def slice(self, start: int, end: int, columns: Columns = None, *, timeout: Timeout = None) -> pa.Table:
        """Rows `start` to `end` by position. Raises `ValueError` unless `0 <= start <= end`."""
        offset, limit = scanners.row_window(start, end)
        return await self.scanner(columns, offset=offset, limit=limit, timeout=timeout).to_table()

    async def count_rows(self, filter: Any = None, **options: Any) -> int:
        """Number of rows; see `LanceDataset.count_rows`."""
        wanted = scanners.make_options(None, filter=filter, **options)
        return await scanners.AsyncScanner(self._state, wanted).count_rows()

    async def to_pandas(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        *,
        blob_mode: str = "lazy",
        **options: Any,
    ) -> pd.DataFrame:
        """The rows as a data frame; parameters as for `LanceDataset.to_pandas`."""
        scan = {name: options.pop(name) for name in list(options) if name in SCAN_KEYWORDS}
        return await self.scanner(columns, filter, limit, offset, **scan).to_pandas(blob_mode=blob_mode, **options)

    # -- fragments ---------------------------------------------------------------------------------------------------

    def get_fragments(self, filter: Any = None) -> list[AsyncFragment]:
        """The fragments, in the order of the manifest; nothing is read."""
        return [fragments.AsyncFragment(self._state, place) for place in self._places(filter)]

    def get_fragment(self, fragment_id: int) -> AsyncFragment | None:
        """The fragment with this id, or None."""
        place = self._state.place_of(fragment_id)
        return None if place is None else fragments.AsyncFragment(self._state, place)

    async def validate(self) -> None:
        """Check that all files of the version are there and agree with the manifest; see `LanceDataset.validate`."""
        await self._run(validation.validate(self._state, self._state.all_places))

    @property
    def stats(self) -> AsyncStats:
        """Statistics of the table."""
        return table_statistics.AsyncStats(self._state)

    # -- random access -----------------------------------------------------------------------------------------------

    async def take(self, indices: Any, columns: Selection = None, *, timeout: Timeout = None) -> pa.Table:
        """Rows by position, in the order asked; `timeout` and errors as `LanceDataset.take`."""
        return await self._run(take_positions(self._state, indices, columns), timeout)

    async def take_items(self, column: str, items: Any, *, timeout: Timeout = None) -> pa.ChunkedArray:
        """Single items of lists; parameters, result and errors as `LanceDataset.take_items`."""
        return await self._run(item_takes.take_items(self._state, column, items), timeout)

    async def _take_rows(self, row_ids: Any, columns: Selection = None) -> pa.Table:
        """Rows by row id; ids of deleted rows are left out."""
        return await self._run(take_row_ids(self._state, row_ids, columns))

    async def sample(
        self, num_rows: int, columns: Selection = None, randomize_order: bool = True, *, timeout: Timeout = None
    ) -> pa.Table:
        """A random sample without repetitions."""
        plan = sample(self._state, num_rows, columns, randomize_order=randomize_order)
        return await self._run(plan, timeout)

    async def warm(self, columns: Selection = None, *, timeout: Timeout = None) -> None:
        """Do ahead of the first take what it would need; see `LanceDataset.warm`."""
        await self._run(warm(self._state, columns), timeout)

    async def take_blobs(
        self, blob_column: str, ids: Any = None, addresses: Any = None, indices: Any = None, *, timeout: Timeout = None
    ) -> list[AsyncBlobFile | None]:
        """Blobs as awaitable files, None where the blob is null; all as for `LanceDataset.take_blobs`."""
        found = await self._run(blob_file.take_blobs(self._state, blob_column, ids, addresses, indices, 0), timeout)
        return [None if blob is None else blob_file.AsyncBlobFile(blob) for blob in found]

    @asynccontextmanager
    async def take_blob(self, blob_column: str, index: int) -> AsyncIterator[AsyncBlobFile]:
        """`async with table.take_blob("column", 7) as file`: the blob of one row, by position; closed at the end.

        Raises `ValueError` for a null.
        """
        (blob,) = await self.take_blobs(blob_column, indices=[index])
        if blob is None:
            raise UsageError(f"the blob of row {index} in column {blob_column!r} is null")
        async with blob:
            yield blob

    async def read_blobs(
        self, blob_column: str, ids: Any = None, addresses: Any = None, indices: Any = None, *, timeout: Timeout = None
    ) -> list[tuple[int, bytes | None]]:
        """The bytes of blobs, as `(row address, bytes or None)`."""
        return await self._run(blob_file.read_blobs(self._state, blob_column, ids, addresses, indices), timeout)

    async def read_blob_ranges(
        self, blob_column: str, requests: Any, *, selector: str, timeout: Timeout = None
    ) -> list[tuple[int, int, bytes | None]]:
        """Ranges of blobs, as `(number of the request, row address, bytes or None)`."""
        return await self._run(blob_file.read_blob_ranges(self._state, blob_column, requests, selector), timeout)

    # -- writes and commits -------------------------------------------------------------------------------------------

    @staticmethod
    async def write(
        data_obj: Any, uri: Any = None, schema: Any = None, mode: str = "create", **options: Any
    ) -> AsyncDataset:
        """Write rows to a table; keywords as for `write_dataset`.

        data_obj  also an asynchronous iterable of record batches, which is advanced on the calling loop
        """
        await runtime.load_modules(writes.__name__, *_USED_BY_FUNCTIONS)
        return AsyncDataset._of(_closing(await writes.write_table_async(data_obj, uri, schema, mode, **options)))

    @staticmethod
    async def commit(
        base_uri: Any,
        operation: LanceOperation.BaseOperation | Transaction,
        read_version: int | None = None,
        commit_lock: Any = None,
        storage_options: dict[str, str] | None = None,
        enable_v2_manifest_paths: bool | None = None,
        detached: bool | None = False,
        max_retries: int = 20,
        **options: Any,
    ) -> AsyncDataset:
        """Commit an operation that was prepared somewhere; see `LanceDataset.commit`."""
        given = {name: value for name, value in locals().items() if name != "options"}
        await runtime.load_modules(commits.__name__, *_USED_BY_FUNCTIONS)
        return AsyncDataset._of(_closing(await commits.run_commit_async({**given, **options})))

    @staticmethod
    async def commit_batch(
        dest: Any,
        transactions: list[Transaction],
        commit_lock: Any = None,
        storage_options: dict[str, str] | None = None,
        enable_v2_manifest_paths: bool | None = None,
        detached: bool | None = False,
        max_retries: int = 20,
        base_store_params: Any = None,
        commit_timeout: timedelta | None = COMMIT_TIMEOUT,
        *,
        filesystem: Any = None,
        storage_options_provider: Any = None,
    ) -> dict[str, Any]:
        """Commit several appends as one; see `LanceDataset.commit_batch`."""
        given = locals()
        await runtime.load_modules(commits.__name__, *_USED_BY_FUNCTIONS)
        given = commits.batch_commit(given)
        state = _closing(await commits.run_commit_async(given))
        return {"dataset": AsyncDataset._of(state), "merged": given["operation"]}

    # -- interop -----------------------------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self._state, self._state.schedulers is not None)

    def __repr__(self) -> str:
        return f"<AsyncDataset {hide_secrets(self._state.location.uri)} version {self.version}>"


async def _open(uri: str | PathLike[str], version: Ref, timeout: Timeout, options: dict[str, Any]) -> AsyncDataset:
    await runtime.load_modules("lance_io.commit.table_location", *_USED_BY_FUNCTIONS)
    uri = uri_on(options.pop("filesystem", None), uri)
    options = gather_provider(options)
    await load_client(uri, options.get("storage_options"))
    checked = open_options(uri, version, **options)
    meter = IoMeter(checked.location.store)
    answers_sync = offers_sync_reads(checked.location.store)
    state = await run_async(open_steps(checked), timeout, answers_sync=answers_sync)
    return AsyncDataset._of(_closing(state), meter)


def _closing(state: DatasetState) -> DatasetState:
    """The state of a dataset whose `aclose` ends its reads."""
    return replace(state, schedulers=scheduler.OpenSchedulers("the dataset"))


def _unpickled(cls: type[AsyncDataset], state: DatasetState, is_closing: bool) -> AsyncDataset:
    return cls._of(_closing(state) if is_closing else state)
