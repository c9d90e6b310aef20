"""Methods of datasets that give rows: scans, takes, samples, blobs. Each runs plans of `reads/`."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from lance_io.errors import UsageError
from lance_io.io import call_metrics
from lance_io.lazy_names import later
from lance_io.plans.lazy_module import later_plans
from lance_io.reads.properties import DatasetProperties
from lance_io.reads.run_plan import AsyncFace, SyncFace
from lance_io.reads.scan.scan_arguments import SCAN_KEYWORDS, named
from lance_io.reads.takes.take_rows import sample, take_positions, take_row_ids, warm

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import pandas as pd
    import pyarrow as pa
    from typing_extensions import Unpack

    from lance_io.dataset import scanner as scanners
    from lance_io.dataset import sql_query as queries
    from lance_io.dataset.scanner import AsyncScanner, LanceScanner, SyncScanner
    from lance_io.dataset.sql_query import AsyncSqlQueryBuilder, SqlQueryBuilder
    from lance_io.reads.run_plan import Timeout
    from lance_io.reads.scan.scan_arguments import ScanKeywords
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.takes import blob_file
    from lance_io.reads.takes import take_items as item_takes
    from lance_io.reads.takes.blob_file import AsyncBlobFile, BlobFile
    from lance_io.reads.version.column_lists import Columns, Selection
else:
    item_takes = later_plans("lance_io.reads.takes.take_items")
    scanners = later("lance_io.dataset.scanner")
    blob_file = later_plans("lance_io.reads.takes.blob_file")
    queries = later("lance_io.dataset.sql_query")


class RowArguments(DatasetProperties):
    """Keywords of scans, for both faces."""

    def _asked(self, *given: Any, **options: Any) -> ScanOptions:
        """The options of a scan, with the dataset's defaults; parameters as for `scanner`."""
        return scanners.make_options(self._state.default_scan_options, *given, **options)

    def _known_count(self) -> int | None:
        """Number of rows without a plan, where the manifest says it and nothing is told of calls."""
        if call_metrics.watchers:
            return None
        state = self._state
        state.check_open()
        return state.num_rows


class DatasetRows(SyncFace, RowArguments):
    """Rows of `LanceDataset`."""

    def sql(self, sql: str) -> SqlQueryBuilder:
        """A SELECT over this version, in the dialect of DuckDB, which answers it: `pip install 'lance_io[sql]'`.

        The table is called `dataset` in it. `ds.sql("SELECT ...").build().to_batch_records()` runs it; columns and
        conditions are pushed into the scan. It can read nothing but the table. Its dialect is not that of filters.
        """
        return queries.SqlQueryBuilder(self._state, sql)

    def scanner(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        *more: Any,
        **options: Unpack[ScanKeywords],
    ) -> LanceScanner:
        """A scan, to be run by its methods.

        Those behind `offset` may be given by position, too, as pylance has them: `nearest`, `batch_size`, ...

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
        wanted = self._asked(columns, filter, limit, offset, **named("scanner", more, options))
        return scanners.LanceScanner._of(self._state, wanted)

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
        *more: Any,
        **options: Unpack[ScanKeywords],
    ) -> pa.Table:
        """The rows as a table; parameters as for `scanner`."""
        return self._scan(columns, filter, limit, offset, **named("to_table", more, options)).to_table()

    def to_batches(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        *more: Any,
        **options: Unpack[ScanKeywords],
    ) -> Iterator[pa.RecordBatch]:
        """The rows batch by batch; parameters as for `scanner`."""
        return self._scan(columns, filter, limit, offset, **named("to_batches", more, options)).to_batches()

    def to_pandas(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        *more: Any,
        blob_mode: str = "lazy",
        **options: Any,
    ) -> pd.DataFrame:
        """The rows as a data frame; scan keywords as for `scanner`, others go to `pyarrow.Table.to_pandas`."""
        options = named("to_pandas", more, options)
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
        if filter is None and not options and (known := self._known_count()) is not None:
            return known
        wanted = scanners.make_options(None, filter=filter, **options)
        return scanners.SyncScanner._of(self._state, wanted).count_rows()

    def __len__(self) -> int:
        return self.count_rows()

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


class AsyncDatasetRows(AsyncFace, RowArguments):
    """Rows of `AsyncDataset`."""

    def sql(self, sql: str) -> AsyncSqlQueryBuilder:
        """A SELECT over this version; see `LanceDataset.sql`."""
        return queries.AsyncSqlQueryBuilder(self._state, sql)

    def scanner(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        *more: Any,
        **options: Unpack[ScanKeywords],
    ) -> AsyncScanner:
        """A scan; parameters as for `LanceDataset.scanner`."""
        wanted = self._asked(columns, filter, limit, offset, **named("scanner", more, options))
        return scanners.AsyncScanner(self._state, wanted)

    async def to_table(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        *more: Any,
        **options: Any,
    ) -> pa.Table:
        """The rows as a table; parameters as for `LanceDataset.scanner`."""
        return await self.scanner(columns, filter, limit, offset, **named("to_table", more, options)).to_table()

    def to_batches(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        *more: Any,
        **options: Any,
    ) -> AsyncIterator[pa.RecordBatch]:
        """The rows batch by batch, for `async for`; parameters as for `LanceDataset.scanner`."""
        return self.scanner(columns, filter, limit, offset, **named("to_batches", more, options)).to_batches()

    async def head(self, num_rows: int, **options: Any) -> pa.Table:
        """The first rows."""
        return await self.scanner(**{**options, "limit": num_rows}).to_table()

    async def slice(self, start: int, end: int, columns: Columns = None, *, timeout: Timeout = None) -> pa.Table:
        """Rows `start` to `end` by position. Raises `ValueError` unless `0 <= start <= end`."""
        offset, limit = scanners.row_window(start, end)
        return await self.scanner(columns, offset=offset, limit=limit, timeout=timeout).to_table()

    async def count_rows(self, filter: Any = None, **options: Any) -> int:
        """Number of rows; see `LanceDataset.count_rows`."""
        if filter is None and not options and (known := self._known_count()) is not None:
            return known
        wanted = scanners.make_options(None, filter=filter, **options)
        return await scanners.AsyncScanner(self._state, wanted).count_rows()

    async def to_pandas(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        *more: Any,
        blob_mode: str = "lazy",
        **options: Any,
    ) -> pd.DataFrame:
        """The rows as a data frame; parameters as for `LanceDataset.to_pandas`."""
        options = named("to_pandas", more, options)
        scan = {name: options.pop(name) for name in list(options) if name in SCAN_KEYWORDS}
        return await self.scanner(columns, filter, limit, offset, **scan).to_pandas(blob_mode=blob_mode, **options)

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
