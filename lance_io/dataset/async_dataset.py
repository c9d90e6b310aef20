"""`AsyncDataset`: what `LanceDataset` is, awaitable. Same names, same parameters, same results.

Every method is a coroutine that runs on the engine's loop, whatever loop awaits it; cancelling the caller cancels it
there. `async for` over batches that ends early (`break`, an exception, `aclose`) cancels the reads under way.
"""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from lance_io import runtime
from lance_io.dataset.async_fragments import AsyncFragment
from lance_io.dataset.async_scanner import AsyncScanner
from lance_io.dataset.blobs.async_blob_file import AsyncBlobFile
from lance_io.dataset.blobs.blob_file import read_blob_ranges, read_blobs, take_blobs
from lance_io.dataset.changes.change_methods import AsyncDatasetChanges
from lance_io.dataset.not_offered import DatasetNotOffered
from lance_io.dataset.properties import DatasetFacts
from lance_io.dataset.rows.take_rows import sample_positions, take_positions, take_row_ids, warm
from lance_io.dataset.run_plan import run_async
from lance_io.dataset.scan.scan_arguments import SCAN_KEYWORDS
from lance_io.dataset.scan.scan_options import asked_options
from lance_io.dataset.scan.scan_statistics import IoMeter
from lance_io.dataset.version.describe import describe_versions, version_refs
from lance_io.dataset.version.open_version import checked_out, latest_of, open_steps
from lance_io.dataset.version.table_statistics import AsyncStats
from lance_io.dataset.version.tags_and_branches import list_branches, list_tags
from lance_io.dataset.version.validation import validate
from lance_io.errors import UsageError
from lance_io.store.url import load_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Mapping
    from datetime import timedelta
    from os import PathLike
    from types import TracebackType
    from typing import Self

    import pandas as pd
    import pyarrow as pa
    from typing_extensions import Unpack

    from lance_io.dataset.lance_dataset import LanceDataset, Ref
    from lance_io.dataset.scan.scan_arguments import ScanKeywords
    from lance_io.dataset.version.column_lists import Columns, Selection
    from lance_io.dataset.version.describe import Version, VersionRef
    from lance_io.dataset.version.file_listing import Progress
    from lance_io.dataset.version.state import DatasetState
    from lance_io.plans.plan import Plan

    Timeout = float | timedelta | None

T = TypeVar("T")


class Opening(Coroutine[Any, Any, "AsyncDataset"]):
    """What `AsyncDataset.open` returns: a coroutine that gives the dataset, to be entered by `async with` as well.

    To the event loop it is a coroutine as those of `async def` are: `asyncio.run` and tasks take it. But nothing exists
    before it is begun, so that one that is left alone needs no closing and warns of nothing.
    """

    def __init__(
        self, uri: str | PathLike[str], version: Ref | None, timeout: Timeout, options: dict[str, Any]
    ) -> None:
        self._arguments = (uri, version, timeout, options)
        self._running: Coroutine[Any, Any, AsyncDataset] | None = None
        self._dataset: AsyncDataset | None = None

    def __await__(self) -> Generator[Any, None, AsyncDataset]:
        return _opened(*self._arguments).__await__()

    def _begun(self) -> Coroutine[Any, Any, AsyncDataset]:
        if self._running is None:
            self._running = _opened(*self._arguments)
        return self._running

    def send(self, value: Any, /) -> Any:
        """Run it up to where it waits; for event loops, as the two below."""
        return self._begun().send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error where it waits."""
        return self._begun().throw(*error)

    def close(self) -> None:
        """Give it up."""
        self._begun().close()

    async def __aenter__(self) -> AsyncDataset:
        self._dataset = await _opened(*self._arguments)
        return self._dataset

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._dataset is not None
        await self._dataset.aclose()


async def _opened(
    uri: str | PathLike[str], version: Ref | None, timeout: Timeout, options: dict[str, Any]
) -> AsyncDataset:
    await runtime.loaded(
        "lance_io.commit.table_location", "lance_io.dataset.version.timestamps", "lance_io.dataset.version.session"
    )
    await load_client(uri)
    from lance_io.dataset.open_dataset import open_options

    checked = open_options(uri, version, **options)
    meter = IoMeter(checked.location.store)
    state = await run_async(open_steps(checked), timeout)
    return AsyncDataset._of(_closing(state), meter)


def _closing(state: DatasetState) -> DatasetState:
    """The state of a dataset whose `aclose` ends its reads."""
    from lance_io.io.scheduler import OpenSchedulers

    return replace(state, schedulers=OpenSchedulers("the dataset"))


class AsyncDataset(DatasetFacts, AsyncDatasetChanges, DatasetNotOffered):
    """A snapshot of a table version. Made by `AsyncDataset.open`, or from a `LanceDataset` by `AsyncDataset.of`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        raise TypeError(
            "an AsyncDataset is opened by `await AsyncDataset.open(uri)` or `async with AsyncDataset.open(uri) as ds`, "
            "not by its class: a constructor cannot be awaited"
        )

    @classmethod
    def _of(cls, state: DatasetState, meter: IoMeter | None = None) -> Self:
        dataset: Self = cls.__new__(cls)
        dataset._state = state
        dataset._meter = meter or IoMeter(state.location.store)
        return dataset

    @staticmethod
    def open(
        uri: str | PathLike[str], version: Ref | None = None, *, timeout: Timeout = None, **options: Any
    ) -> Opening:
        """Open a table; keywords as for `lance_io.dataset`. A coroutine, which `async with` takes too."""
        return Opening(uri, version, timeout, options)

    @classmethod
    def of(cls, dataset: LanceDataset) -> Self:
        """The same table version as a `LanceDataset`, sharing its caches."""
        return cls._of(dataset._state)

    def to_sync(self) -> LanceDataset:
        """The same table version for plain code, sharing the caches; it outlives this object's `aclose`."""
        from lance_io.dataset.lance_dataset import dataset_class

        return dataset_class()._of(replace(self._state, schedulers=None))

    async def aclose(self) -> None:
        """Cancel the reads under way, of calls and of batches, wait until they have ended and free what they hold.

        Those who await them, and those who read on, get a `RuntimeError`. Of a dataset that was made by `of` the reads
        go on: they are also those of the `LanceDataset`.
        """
        if self._state.schedulers is not None:
            await runtime.wrap(self._state.schedulers.aclose())
        self._state.release()

    async def _run(self, plan: Plan[T], timeout: Timeout = None) -> T:
        return await run_async(plan, timeout)

    # -- versions ----------------------------------------------------------------------------------------------------

    async def latest_version(self) -> int:
        """Number of the newest version of the branch."""
        return await self._run(latest_of(self._state))

    async def versions(self) -> list[Version]:
        """All versions of the branch, oldest first; reads every manifest."""
        return await self._run(describe_versions(self._state.location))

    async def all_files(self) -> pa.RecordBatchReader:
        """See `LanceDataset.all_files`."""
        await runtime.loaded("lance_io.dataset.version.file_listing")
        from lance_io.dataset.version import file_listing as files

        return files.reader(files.ALL_FILES, [await self._run(files.all_files(self._state))])

    async def tracked_files(
        self, *, min_version: int | None = None, progress: Progress | None = None
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `LanceDataset.tracked_files`; batch by batch, for `async for`."""
        await runtime.loaded("lance_io.dataset.version.file_listing")
        from lance_io.dataset.version import file_listing as files

        for portion in await self._run(files.tracked_versions(self._state, min_version)):
            yield await self._run(files.tracked_files(self._state, portion.files))
            if progress is not None:
                progress(portion.num_read, portion.num_versions)

    async def version_refs(self) -> list[VersionRef]:
        """Numbers of all versions of the branch, oldest first."""
        return await self._run(version_refs(self._state.location))

    async def tags(self) -> dict[str, Any]:
        """The table's tags by name."""
        return await self._run(list_tags(self._state))

    async def branches(self) -> dict[str, Any]:
        """The table's branches by name."""
        return await self._run(list_branches(self._state))

    async def checkout_version(self, version: Ref, *, timeout: Timeout = None) -> AsyncDataset:
        """Another version, tag or `(branch, version)` of the same table, as a new object."""
        meter = IoMeter(self._state.location.store)
        return type(self)._of(await self._run(checked_out(self._state, version), timeout), meter)

    async def checkout_latest(self, *, timeout: Timeout = None) -> None:
        """Move this object to the newest version of its branch."""
        self._state = await self._run(checked_out(self._state, None), timeout)

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
        return self._scan(given, self._state.default_scan_options)

    def _scan(self, given: dict[str, Any], defaults: Mapping[str, Any] | None) -> AsyncScanner:
        return AsyncScanner(self._state, asked_options(given).with_defaults(defaults))

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
        if start < 0 or end < start:
            raise UsageError(f"expected 0 <= start <= end, got start={start}, end={end}")
        return await self.scanner(columns, offset=start, limit=end - start, timeout=timeout).to_table()

    async def count_rows(self, filter: Any = None, **options: Any) -> int:
        """Number of rows; see `LanceDataset.count_rows`."""
        return await self._scan({"filter": filter, **options}, None).count_rows()

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
        if filter is not None:
            raise UsageError("get_fragments() does not support filter yet")
        return [AsyncFragment(self._state, place) for place in self._state.all_places]

    def get_fragment(self, fragment_id: int) -> AsyncFragment | None:
        """The fragment with this id, or None."""
        place = self._state.place_of(fragment_id)
        return None if place is None else AsyncFragment(self._state, place)

    async def validate(self) -> None:
        """Check that all files of the version are there and agree with the manifest; see `LanceDataset.validate`."""
        await self._run(validate(self._state, self._state.all_places))

    @property
    def stats(self) -> AsyncStats:
        """Statistics of the table."""
        return AsyncStats(self._state)

    # -- random access -----------------------------------------------------------------------------------------------

    async def take(self, indices: Any, columns: Selection = None, *, timeout: Timeout = None) -> pa.Table:
        """Rows by position, in the order asked; `timeout` and errors as `LanceDataset.take`."""
        return await self._run(take_positions(self._state, indices, columns), timeout)

    async def _take_rows(self, row_ids: Any, columns: Selection = None) -> pa.Table:
        """Rows by row id; ids of deleted rows are left out."""
        return await self._run(take_row_ids(self._state, row_ids, columns))

    async def sample(
        self, num_rows: int, columns: Selection = None, randomize_order: bool = True, *, timeout: Timeout = None
    ) -> pa.Table:
        """A random sample without repetitions."""
        draw = partial(sample_positions, num_rows, await self.count_rows(), randomize_order=randomize_order)
        positions = await runtime.in_thread(draw)
        return await self.take(positions, columns, timeout=timeout)

    async def warm(self, columns: Selection = None, *, timeout: Timeout = None) -> None:
        """Do ahead of the first take what it would need; see `LanceDataset.warm`."""
        await self._run(warm(self._state, columns), timeout)

    async def take_blobs(
        self, blob_column: str, ids: Any = None, addresses: Any = None, indices: Any = None, *, timeout: Timeout = None
    ) -> list[AsyncBlobFile | None]:
        """Blobs as awaitable files, None where the blob is null; all as for `LanceDataset.take_blobs`."""
        found = await self._run(take_blobs(self._state, blob_column, ids, addresses, indices, 0), timeout)
        return [None if blob is None else AsyncBlobFile(blob) for blob in found]

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
        return await self._run(read_blobs(self._state, blob_column, ids, addresses, indices, None), timeout)

    async def read_blob_ranges(
        self, blob_column: str, requests: Any, *, selector: str, timeout: Timeout = None
    ) -> list[tuple[int, int, bytes | None]]:
        """Ranges of blobs, as `(number of the request, row address, bytes or None)`."""
        return await self._run(read_blob_ranges(self._state, blob_column, requests, selector, None), timeout)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self._state, self._state.schedulers is not None)

    def __copy__(self) -> Self:
        return type(self)._of(self._state)

    def __repr__(self) -> str:
        return f"<AsyncDataset {self._state.location.uri} version {self.version}>"


def _unpickled(cls: type[AsyncDataset], state: DatasetState, is_closing: bool) -> AsyncDataset:
    return cls._of(_closing(state) if is_closing else state)
