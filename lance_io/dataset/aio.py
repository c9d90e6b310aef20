"""`AsyncDataset`: what `LanceDataset` is, awaitable. Same names, same parameters, same results.

Every method is a coroutine that runs on the engine's loop, whatever loop awaits it; cancelling the caller cancels it
there. `async for` over batches that ends early (`break`, an exception, `aclose`) cancels the reads under way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from lance_io import runtime
from lance_io.dataset import execute
from lance_io.dataset.asyncblob import AsyncBlobFile
from lance_io.dataset.blobfile import read_blob_ranges, read_blobs, take_blobs
from lance_io.dataset.describe import describe_versions, version_refs
from lance_io.dataset.opening import checked_out, latest_of, open_steps
from lance_io.dataset.options import scan_options
from lance_io.dataset.refs import list_branches, list_tags
from lance_io.dataset.scan import explain, plan_scan, scan_projection
from lance_io.dataset.scanstats import IoMeter
from lance_io.dataset.steps import Plan, drive
from lance_io.dataset.take import sample_positions, take_positions, take_row_ids
from lance_io.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Generator
    from os import PathLike
    from types import TracebackType
    from typing import Self

    import pyarrow as pa
    from typing_extensions import Unpack

    from lance_io.dataset.describe import Version, VersionRef
    from lance_io.dataset.ioplan import IoPlan
    from lance_io.dataset.keywords import ScanKeywords
    from lance_io.dataset.options import ScanOptions
    from lance_io.dataset.projection import Columns
    from lance_io.dataset.scanstats import IOStats
    from lance_io.dataset.state import DatasetState
    from lance_io.dataset.sync import LanceDataset, Ref

T = TypeVar("T")


class Opening:
    """What `AsyncDataset.open` returns: await it for a dataset, or enter it with `async with`."""

    def __init__(self, uri: str | PathLike[str], version: Ref | None, options: dict[str, Any]) -> None:
        self._arguments = (uri, version, options)
        self._dataset: AsyncDataset | None = None

    async def _open(self) -> AsyncDataset:
        from lance_io.dataset.entry import open_options

        uri, version, options = self._arguments
        checked = open_options(uri, version, **options)
        meter = IoMeter(checked.location.store)
        return AsyncDataset(await runtime.wrap(drive(open_steps(checked))), meter)

    def __await__(self) -> Generator[Any, None, AsyncDataset]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncDataset:
        self._dataset = await self._open()
        return self._dataset

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._dataset is not None
        await self._dataset.aclose()


class AsyncDataset:
    """A snapshot of a table version. Made by `AsyncDataset.open`, or from a `LanceDataset` by `AsyncDataset.of`."""

    def __init__(self, state: DatasetState, meter: IoMeter | None = None) -> None:
        self._state = state
        self._meter = meter or IoMeter(state.location.store)

    @staticmethod
    def open(uri: str | PathLike[str], version: Ref | None = None, **options: Any) -> Opening:
        """Open a table; keywords as for `lance_io.dataset`. Await the result, or use it in `async with`."""
        return Opening(uri, version, options)

    @classmethod
    def of(cls, dataset: LanceDataset) -> Self:
        """The same table version as a `LanceDataset`, sharing its caches."""
        return cls(dataset._state)

    def to_sync(self) -> LanceDataset:
        """The same table version for plain code, sharing the caches."""
        from lance_io.dataset.sync import LanceDataset

        return LanceDataset._of(self._state)

    async def aclose(self) -> None:
        """Release what the dataset holds. Calls still under way belong to whoever awaits them."""
        self._state.release()

    async def _run(self, plan: Plan[T]) -> T:
        return await runtime.wrap(drive(plan))

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def uri(self) -> str:
        """Where it is, as it was opened."""
        return self._state.given_uri

    @property
    def version(self) -> int:
        """Number of the version that is open."""
        return self._state.manifest.version

    @property
    def schema(self) -> pa.Schema:
        """Schema of the table."""
        return self._state.arrow_schema

    @property
    def data_storage_version(self) -> str:
        """File version of new data, such as "2.1"."""
        return self._state.data_storage_version

    def io_stats_snapshot(self) -> IOStats:
        """Requests and bytes of the dataset, its opening included, or since `io_stats_incremental` was last asked."""
        return self._meter.snapshot()

    def io_stats_incremental(self) -> IOStats:
        """Requests and bytes since this was last asked, at first since before the opening."""
        return self._meter.incremental()

    async def latest_version(self) -> int:
        """Number of the newest version of the branch."""
        return await self._run(latest_of(self._state))

    async def versions(self) -> list[Version]:
        """All versions of the branch, oldest first; reads every manifest."""
        return await self._run(describe_versions(self._state.location))

    async def version_refs(self) -> list[VersionRef]:
        """Numbers of all versions of the branch, oldest first."""
        return await self._run(version_refs(self._state.location))

    async def tags(self) -> dict[str, Any]:
        """The table's tags by name."""
        return await self._run(list_tags(self._state))

    async def branches(self) -> dict[str, Any]:
        """The table's branches by name."""
        return await self._run(list_branches(self._state))

    async def checkout_version(self, version: Ref) -> AsyncDataset:
        """Another version, tag or `(branch, version)` of the same table, as a new object."""
        meter = IoMeter(self._state.location.store)
        return type(self)(await self._run(checked_out(self._state, version)), meter)

    async def checkout_latest(self) -> None:
        """Move this object to the newest version of its branch."""
        self._state = await self._run(checked_out(self._state, None))

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
        given: dict[str, Any] = {"columns": columns, "filter": filter, "limit": limit, "offset": offset, **options}
        if given.get("fragments") is not None:
            from lance_io.dataset.scanner import fragment_ids

            given["fragments"] = fragment_ids(given["fragments"])
        return AsyncScanner(self._state, scan_options(**given).with_defaults(self._state.default_scan_options))

    async def to_table(self, columns: Columns = None, filter: Any = None, **options: Any) -> pa.Table:
        """The rows as a table; parameters as for `LanceDataset.scanner`."""
        return await self.scanner(columns, filter, **options).to_table()

    def to_batches(self, columns: Columns = None, filter: Any = None, **options: Any) -> AsyncIterator[pa.RecordBatch]:
        """The rows batch by batch, for `async for`; parameters as for `LanceDataset.scanner`."""
        return self.scanner(columns, filter, **options).to_batches()

    async def head(self, num_rows: int, **options: Any) -> pa.Table:
        """The first rows."""
        return await self.scanner(**{**options, "limit": num_rows}).to_table()

    async def slice(self, start: int, end: int, columns: Columns = None) -> pa.Table:
        """Rows `start` to `end` by position. Raises `ValueError` unless `0 <= start <= end`."""
        if start < 0 or end < start:
            raise UsageError(f"expected 0 <= start <= end, got start={start}, end={end}")
        return await self.scanner(columns, offset=start, limit=end - start).to_table()

    async def count_rows(self, filter: Any = None, **options: Any) -> int:
        """Number of rows, or of those that pass a filter; without one nothing is read."""
        return await self.scanner(filter=filter, **options).count_rows()

    # -- random access -----------------------------------------------------------------------------------------------

    async def take(self, indices: Any, columns: Columns = None) -> pa.Table:
        """Rows by position, in the order asked; errors as `LanceDataset.take`."""
        return await self._run(take_positions(self._state, indices, columns))

    async def _take_rows(self, row_ids: Any, columns: Columns = None) -> pa.Table:
        """Rows by row id; ids of deleted rows are left out."""
        return await self._run(take_row_ids(self._state, row_ids, columns))

    async def sample(self, num_rows: int, columns: Columns = None, randomize_order: bool = True) -> pa.Table:
        """A random sample without repetitions."""
        positions = sample_positions(num_rows, await self.count_rows(), randomize_order=randomize_order)
        return await self.take(positions, columns)

    async def take_blobs(
        self, blob_column: str, ids: Any = None, addresses: Any = None, indices: Any = None
    ) -> list[AsyncBlobFile | None]:
        """Blobs as awaitable files, None where the blob is null; selectors as for `LanceDataset.take_blobs`."""
        found = await self._run(take_blobs(self._state, blob_column, ids, addresses, indices, 0))
        return [None if blob is None else AsyncBlobFile(blob) for blob in found]

    async def read_blobs(
        self, blob_column: str, ids: Any = None, addresses: Any = None, indices: Any = None
    ) -> list[tuple[int, bytes | None]]:
        """The bytes of blobs, as `(row address, bytes or None)`."""
        return await self._run(read_blobs(self._state, blob_column, ids, addresses, indices, None))

    async def read_blob_ranges(
        self, blob_column: str, requests: Any, *, selector: str
    ) -> list[tuple[int, int, bytes | None]]:
        """Ranges of blobs, as `(number of the request, row address, bytes or None)`."""
        return await self._run(read_blob_ranges(self._state, blob_column, requests, selector, None))

    def __repr__(self) -> str:
        return f"<AsyncDataset {self._state.location.uri} version {self.version}>"


class AsyncScanner:
    """One scan of an `AsyncDataset`; may be run any number of times, also by `async for`."""

    def __init__(self, state: DatasetState, options: ScanOptions) -> None:
        self._state = state
        self._options = options

    @property
    def projected_schema(self) -> pa.Schema:
        """Schema of the result."""
        return scan_projection(self._state, self._options).arrow_schema

    @property
    def dataset_schema(self) -> pa.Schema:
        """Schema of the dataset."""
        return self._state.arrow_schema

    async def to_table(self) -> pa.Table:
        """All rows."""
        schema = self.projected_schema
        return await execute.collect_async(self._state, self._options, schema)

    async def to_batches(self) -> AsyncGenerator[pa.RecordBatch, None]:
        """The rows batch by batch; leaving the loop early cancels the reads under way."""
        schema = self.projected_schema
        found = execute.stream_async(self._state, self._options, schema)
        try:
            async for batch in found:
                yield batch
        finally:
            await found.aclose()

    def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        return self.to_batches()

    async def count_rows(self) -> int:
        """How many rows the scan gives."""
        return await execute.count_async(self._state, self._options)

    async def explain_plan(self, verbose: bool = False) -> str:
        """What the scan will read, as text."""
        plan = await runtime.wrap(drive(plan_scan(self._state, self._options)))
        return explain(self._state, plan, self._options)

    async def explain_io(self, *, cold: bool = False) -> IoPlan:
        """The requests of the scan, round by round; see `LanceScanner.explain_io`."""
        from lance_io.dataset.explain import explain_scan

        return await runtime.wrap(drive(explain_scan(self._state, self._options, cold=cold)))
