"""Methods of datasets that return rows: scans, takes, samples, blobs. Each runs plans of `reads/`."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from lance_io.errors import UsageError
from lance_io.io import call_metrics
from lance_io.lazy_names import lazy_module
from lance_io.plans.lazy_module import lazy_plans
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
    item_takes = lazy_plans("lance_io.reads.takes.take_items")
    scanners = lazy_module("lance_io.dataset.scanner")
    blob_file = lazy_plans("lance_io.reads.takes.blob_file")
    queries = lazy_module("lance_io.dataset.sql_query")


class RowArguments(DatasetProperties):
    """Scan keywords, for both faces."""

    def _make_options(self, *given: Any, **options: Any) -> ScanOptions:
        """Options of a scan, with the dataset's defaults."""
        return scanners.make_options(self._state.default_scan_options, *given, **options)

    def _known_count(self) -> int | None:
        """Number of rows without a plan: if the manifest says it and no metrics watcher listens."""
        if call_metrics.watchers:
            return None
        state = self._state
        state.check_open()
        return state.num_rows


class DatasetRows(SyncFace, RowArguments):
    """Rows of `LanceDataset`."""

    def sql(self, sql: str) -> SqlQueryBuilder:
        """Build a SELECT over this version. DuckDB runs it, in its own dialect: `pip install 'lance_io[sql]'`.

        The query calls the table `dataset` and can read nothing else. Columns and conditions are pushed down into the
        scan. `ds.sql("SELECT ...").build().to_batch_records()` runs it. The dialect differs from that of filters.

        Args:
            sql: One SELECT statement, or an EXPLAIN of one.

        Returns:
            A builder; `build` returns the query.

        Raises:
            TypeError: `sql` is not a string.
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
        """Build a scan; its methods run it. Nothing is read before.

        As in pylance, some keywords may also be given by position behind `offset`: `nearest`, `batch_size`, ...

        Args:
            columns: Names (`n.x` for a member, `blob.size` for a member of a blob's description), or a dict of new
                names and SQL expressions; None for all columns.
            filter: SQL text or a boolean `pyarrow.compute` expression; see docs/filters.md.
            limit: Maximum number of rows, after the filter.
            offset: Number of rows to skip first, after the filter.
            more: Keywords by position, in pylance's order.
            options: Other keywords, as follows.

        Other keywords:

            nearest                 a vector search: a dict of the parameters of `ScannerBuilder.nearest`
            full_text_query         a search for words: the words, `{"query": words, "columns": names}`, or a query of
                                    `lance_io.query`; see docs/indices-text.md
            batch_size              rows per batch, 8,192 by default
            batch_size_bytes        bytes of values per batch
            batch_readahead         batches decoded at once
            fragment_readahead      fragments read at once
            scan_in_order           False lets fragments of slow stores arrive out of order
            strict_batch_size       all batches but the last have `batch_size` rows; they may span fragments
            fragments               scan only these `LanceFragment`s, in this order
            with_row_id, with_row_address  append `_rowid`, `_rowaddr`
            include_deleted_rows    include deleted rows, with a null row id
            late_materialization    True, False, or the columns to read only for rows that pass the filter
            blob_handling           "blobs_descriptions" or "all_binary"
            io_buffer_size          maximum bytes read and not yet consumed
            order_by                names or `ColumnOrdering`s
            prefilter               True searches only rows that pass the filter; False filters the result of the search
            use_stats, use_scalar_index, fast_search, disable_scoring_autoprojection  see `ScannerBuilder`
            scan_stats_callback     called with `ScanStatistics` at the end of each run
            timeout                 seconds, or a `timedelta`, that a run may take, your time between batches included

        After `timeout` the scan is cancelled and frees its memory; batches that were read still arrive, then the scan
        raises `DeadlineExceeded`.

        Returns:
            The scan; you can run it any number of times.

        Raises:
            ValueError: A keyword is unknown or has an invalid value. A run also raises it if a column or the filter
                does not fit the schema.
            TypeError: A keyword has a value of the wrong type, or is given twice.
            NotImplementedError: A keyword needs an index that this release does not read.
        """
        wanted = self._make_options(columns, filter, limit, offset, **named("scanner", more, options))
        return scanners.LanceScanner._of(self._state, wanted)

    def _scan(self, *given: Any, **options: Any) -> SyncScanner:
        """A scan for internal use; it need not derive from pyarrow's scanner, which is slow to load.

        A scan that computes does derive from it. pyarrow's functions load pandas where it is installed; `bases.py`
        loads it in a thread, so that Ctrl-C cannot interrupt the import halfway.
        """
        wanted = self._make_options(*given, **options)
        computes = wanted.filter is not None or isinstance(wanted.columns, dict) or wanted.is_search
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
        """Read the rows as a table. See `LanceDataset.scanner` for the parameters and errors."""
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
        """Read the rows batch by batch. See `LanceDataset.scanner` for the parameters and errors."""
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
        """Read the rows as a data frame.

        Args:
            columns: See `LanceDataset.scanner`.
            filter: See `LanceDataset.scanner`.
            limit: See `LanceDataset.scanner`.
            offset: See `LanceDataset.scanner`.
            more: Scan keywords by position, in pylance's order.
            blob_mode: Blob columns hold `BlobFile`s ("lazy"), their bytes ("bytes") or their descriptions
                ("descriptions").
            options: Other keywords of `scanner`; all further ones go to `pyarrow.Table.to_pandas`.

        Raises:
            ValueError: `blob_mode` or another keyword has an invalid value.
        """
        options = named("to_pandas", more, options)
        scan = {name: options.pop(name) for name in list(options) if name in SCAN_KEYWORDS}
        return self._scan(columns, filter, limit, offset, **scan).to_pandas(blob_mode=blob_mode, **options)

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """Read the first rows.

        Args:
            num_rows: Maximum number of rows.
            options: Other keywords of `scanner`.
        """
        return self._scan(**{**options, "limit": num_rows}).to_table()

    def slice(self, start: int, end: int, columns: Columns = None, *, timeout: Timeout = None) -> pa.Table:
        """Read the rows from one position up to another.

        Args:
            start: Position of the first row.
            end: Position after the last row.
            columns: See `LanceDataset.scanner`.
            timeout: Seconds, or a `timedelta`, after which the call is cancelled.

        Raises:
            ValueError: `0 <= start <= end` does not hold.
            DeadlineExceeded: The call takes longer than `timeout`.
        """
        offset, limit = scanners.row_window(start, end)
        return self._scan(columns, offset=offset, limit=limit, timeout=timeout).to_table()

    def count_rows(self, filter: Any = None, **options: Any) -> int:
        """Count the rows. Ignores `default_scan_options`; without a filter the manifest nearly always answers.

        Args:
            filter: Counts only the rows that pass; see `LanceDataset.scanner`.
            options: Other keywords of `scanner`.

        Raises:
            ValueError: `options` contain a limit or an offset, or the filter does not fit the schema.
        """
        if filter is None and not options and (known := self._known_count()) is not None:
            return known
        wanted = scanners.make_options(None, filter=filter, **options)
        return scanners.SyncScanner._of(self._state, wanted).count_rows()

    def __len__(self) -> int:
        return self.count_rows()

    def take(self, indices: Any, columns: Selection = None, *, timeout: Timeout = None) -> pa.Table:
        """Read rows by position, in the order given, repetitions included.

        Args:
            indices: Positions below `count_rows()`: list, range, numpy or Arrow array.
            columns: Names, or a dict of new names and SQL expressions; None for all columns.
            timeout: Seconds, or a `timedelta`, after which the call is cancelled.

        Returns:
            One row for each position.

        Raises:
            OverflowError: A position is negative.
            OSError: A position is too large.
            DeadlineExceeded: The call takes longer than `timeout`.
        """
        return self._run(take_positions(self._state, indices, columns), timeout)

    def take_items(self, column: str, items: Any, *, timeout: Timeout = None) -> pa.ChunkedArray:
        """Read single items of lists, such as `rows[50][17]`, in the order given, repetitions included.

        Where pages allow it, only the chunk or value that holds an item is read (docs/filters.md).

        Args:
            column: Name of a list or vector column, or a dotted path to one inside structs.
            items: Pairs of a row position, as in `take`, and an item of its list, both from 0: a list, or a numpy array
                of shape (n, 2).
            timeout: Seconds, or a `timedelta`, after which the call is cancelled.

        Returns:
            One value for each pair, of the type of the items; null if the list is null or has no such item.

        Raises:
            OverflowError: A number is negative.
            OSError: A row position is too large.
            BindError: The column does not exist.
            UsageError: The column holds no lists.
            TypeError: `items` are not pairs of integers.
            DeadlineExceeded: The call takes longer than `timeout`.
        """
        return self._run(item_takes.take_items(self._state, column, items), timeout)

    def _take_rows(
        self, row_ids: Any, columns: Selection = None, *, ignore_deletions: bool = False, **kwargs: Any
    ) -> pa.Table:
        """Rows by row id, in the order given; ids of deleted rows are left out."""
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
        """Read a random sample without repetitions.

        Args:
            num_rows: Number of rows.
            columns: See `LanceDataset.take`.
            randomize_order: False returns the rows in the order of the table.
            timeout: Seconds, or a `timedelta`, after which the call is cancelled.
            kwargs: Ignored.

        Raises:
            ValueError: The table has fewer rows than `num_rows`.
            DeadlineExceeded: The call takes longer than `timeout`.
        """
        plan = sample(self._state, num_rows, columns, randomize_order=randomize_order)
        return self._run(plan, timeout)

    def warm(self, columns: Selection = None, *, timeout: Timeout = None) -> None:
        """Prepare later takes of these columns: open connections and load metadata that locates rows.

        Loads metadata and page indexes of the data files, deletion vectors and the row id index into the search cache,
        up to three quarters of its size. A later take of these columns then requests only rows. Scans do not benefit.

        Args:
            columns: See `LanceDataset.take`; None for all columns.
            timeout: Seconds, or a `timedelta`, after which the call is cancelled. The cache keeps the entries loaded by
                then.

        Raises:
            DeadlineExceeded: The call takes longer than `timeout`.
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
        """Open blobs as files.

        Args:
            blob_column: Name of the blob column, or a dotted path to one inside structs.
            ids: Row ids. Give exactly one of `ids`, `addresses` and `indices`.
            addresses: Row addresses.
            indices: Row positions.
            buffer_size: Bytes to read ahead for small sequential reads.
            timeout: Seconds, or a `timedelta`, after which the call is cancelled.

        Returns:
            One file for each requested row, in that order; None for a null.

        Raises:
            ValueError: A row is deleted or never existed, the column holds no blobs, or not exactly one selector is
                given.
            DeadlineExceeded: The call takes longer than `timeout`.
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
        """Read the bytes of blobs.

        Args:
            blob_column: See `LanceDataset.take_blobs`.
            ids: Row ids. Give exactly one of `ids`, `addresses` and `indices`.
            addresses: Row addresses.
            indices: Row positions.
            io_buffer_size: Accepted and ignored.
            preserve_order: Accepted and ignored; the result always has the requested order.
            timeout: Seconds, or a `timedelta`, after which the call is cancelled.

        Returns:
            `(row address, bytes)` for each requested row, in that order; None instead of bytes for a null.

        Raises:
            ValueError: See `LanceDataset.take_blobs`.
            DeadlineExceeded: The call takes longer than `timeout`.
        """
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
        """Read ranges of bytes of blobs.

        Args:
            blob_column: See `LanceDataset.take_blobs`.
            requests: `(row, offset, length)` for each range, offset and length in bytes.
            selector: Meaning of `row`: "ids", "addresses" or "indices".
            io_buffer_size: Accepted and ignored.
            preserve_order: Accepted and ignored; the result always has the requested order.
            timeout: Seconds, or a `timedelta`, after which the call is cancelled.

        Returns:
            `(number of the request, row address, bytes)` for each request; None instead of bytes for a null.

        Raises:
            ValueError: A range ends beyond its blob, `selector` is invalid, or see `LanceDataset.take_blobs`.
            OverflowError: An offset or length is negative.
            DeadlineExceeded: The call takes longer than `timeout`.
        """
        return self._run(blob_file.read_blob_ranges(self._state, blob_column, requests, selector), timeout)


class AsyncDatasetRows(AsyncFace, RowArguments):
    """Rows of `AsyncDataset`: the same names and parameters, awaitable."""

    def sql(self, sql: str) -> AsyncSqlQueryBuilder:
        """Build a SELECT over this version. See `LanceDataset.sql`."""
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
        """Build a scan. See `LanceDataset.scanner`."""
        wanted = self._make_options(columns, filter, limit, offset, **named("scanner", more, options))
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
        """Read the rows as a table. See `LanceDataset.scanner`."""
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
        """Read the rows batch by batch, with `async for`. See `LanceDataset.scanner`."""
        return self.scanner(columns, filter, limit, offset, **named("to_batches", more, options)).to_batches()

    async def head(self, num_rows: int, **options: Any) -> pa.Table:
        """Read the first rows. See `LanceDataset.head`."""
        return await self.scanner(**{**options, "limit": num_rows}).to_table()

    async def slice(self, start: int, end: int, columns: Columns = None, *, timeout: Timeout = None) -> pa.Table:
        """Read the rows from one position up to another. See `LanceDataset.slice`."""
        offset, limit = scanners.row_window(start, end)
        return await self.scanner(columns, offset=offset, limit=limit, timeout=timeout).to_table()

    async def count_rows(self, filter: Any = None, **options: Any) -> int:
        """Count the rows. See `LanceDataset.count_rows`."""
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
        """Read the rows as a data frame. See `LanceDataset.to_pandas`."""
        options = named("to_pandas", more, options)
        scan = {name: options.pop(name) for name in list(options) if name in SCAN_KEYWORDS}
        return await self.scanner(columns, filter, limit, offset, **scan).to_pandas(blob_mode=blob_mode, **options)

    async def take(self, indices: Any, columns: Selection = None, *, timeout: Timeout = None) -> pa.Table:
        """Read rows by position. See `LanceDataset.take`."""
        return await self._run(take_positions(self._state, indices, columns), timeout)

    async def take_items(self, column: str, items: Any, *, timeout: Timeout = None) -> pa.ChunkedArray:
        """Read single items of lists. See `LanceDataset.take_items`."""
        return await self._run(item_takes.take_items(self._state, column, items), timeout)

    async def _take_rows(self, row_ids: Any, columns: Selection = None) -> pa.Table:
        """Rows by row id; ids of deleted rows are left out."""
        return await self._run(take_row_ids(self._state, row_ids, columns))

    async def sample(
        self, num_rows: int, columns: Selection = None, randomize_order: bool = True, *, timeout: Timeout = None
    ) -> pa.Table:
        """Read a random sample without repetitions. See `LanceDataset.sample`."""
        plan = sample(self._state, num_rows, columns, randomize_order=randomize_order)
        return await self._run(plan, timeout)

    async def warm(self, columns: Selection = None, *, timeout: Timeout = None) -> None:
        """Prepare later takes. See `LanceDataset.warm`."""
        await self._run(warm(self._state, columns), timeout)

    async def take_blobs(
        self, blob_column: str, ids: Any = None, addresses: Any = None, indices: Any = None, *, timeout: Timeout = None
    ) -> list[AsyncBlobFile | None]:
        """Open blobs as awaitable files. See `LanceDataset.take_blobs`."""
        blobs = await self._run(blob_file.take_blobs(self._state, blob_column, ids, addresses, indices, 0), timeout)
        return [None if blob is None else blob_file.AsyncBlobFile(blob) for blob in blobs]

    @asynccontextmanager
    async def take_blob(self, blob_column: str, index: int) -> AsyncIterator[AsyncBlobFile]:
        """Open the blob of one row: `async with table.take_blob("column", 7) as file`. The block's end closes it.

        Args:
            blob_column: See `LanceDataset.take_blobs`.
            index: Position of the row.

        Yields:
            The open blob.

        Raises:
            ValueError: The blob is null, or see `LanceDataset.take_blobs`.
        """
        (blob,) = await self.take_blobs(blob_column, indices=[index])
        if blob is None:
            raise UsageError(f"the blob of row {index} in column {blob_column!r} is null")
        async with blob:
            yield blob

    async def read_blobs(
        self, blob_column: str, ids: Any = None, addresses: Any = None, indices: Any = None, *, timeout: Timeout = None
    ) -> list[tuple[int, bytes | None]]:
        """Read the bytes of blobs. See `LanceDataset.read_blobs`."""
        return await self._run(blob_file.read_blobs(self._state, blob_column, ids, addresses, indices), timeout)

    async def read_blob_ranges(
        self, blob_column: str, requests: Any, *, selector: str, timeout: Timeout = None
    ) -> list[tuple[int, int, bytes | None]]:
        """Read ranges of bytes of blobs. See `LanceDataset.read_blob_ranges`."""
        return await self._run(blob_file.read_blob_ranges(self._state, blob_column, requests, selector), timeout)
