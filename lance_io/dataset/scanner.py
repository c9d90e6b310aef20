"""One scan, with pylance's names: `LanceScanner`, a `pyarrow.dataset.Scanner`, and `AsyncScanner`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pyarrow as pa

from lance_io import runtime
from lance_io.errors import UsageError
from lance_io.lazy_names import lazy_module
from lance_io.plans.lazy_module import lazy_plans
from lance_io.plans.plan import drive_in_thread
from lance_io.plans.streams import SharedItems, shared_async
from lance_io.reads.properties import FragmentProperties
from lance_io.reads.run_plan import AsyncFace, SyncFace
from lance_io.reads.scan import execute
from lance_io.reads.scan.scan_options import ScanOptions, limit_rows, scan_options
from lance_io.reads.scan.scan_plan import explain, plan_scan, scan_projection
from lance_io.reads.scan.scan_statistics import ScanWatch
from lance_io.reads.version.state import FragmentPlace
from lance_io.redaction import hide_secrets

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
    from typing import Self

    import pandas as pd

    from lance_io.dataset import bases
    from lance_io.plans.plan import Plan
    from lance_io.reads.scan import data_frames
    from lance_io.reads.scan import explain as explanations
    from lance_io.reads.scan import nearest as searches
    from lance_io.reads.scan import vector_query as vector_queries
    from lance_io.reads.scan.io_plan import IoPlan
    from lance_io.reads.scan.scan_statistics import ScanStatistics
    from lance_io.reads.scan.text import explain_text as text_explanations
    from lance_io.reads.scan.text import text_choice as text_choices
    from lance_io.reads.version.state import DatasetState
    from lance_io.store.costs import RequestCosts
else:
    bases = lazy_module("lance_io.dataset.bases")
    data_frames = lazy_module("lance_io.reads.scan.data_frames")
    explanations = lazy_plans("lance_io.reads.scan.explain")
    searches = lazy_plans("lance_io.reads.scan.nearest")
    text_choices = lazy_module("lance_io.reads.scan.text.text_choice")
    text_explanations = lazy_plans("lance_io.reads.scan.text.explain_text")
    vector_queries = lazy_module("lance_io.reads.scan.vector_query")

COLUMNS_ON_LOOP_MAX: Final = 64  # about 20 microseconds for each column, the first time


def fragment_names(fragments: Iterable[Any]) -> tuple[int | FragmentPlace, ...]:
    """Names of fragments in `ScanOptions`: ids, or indexes in a version whose fragments share ids.

    Raises `TypeError` for anything but `LanceFragment`s or `AsyncFragment`s.
    """
    names: list[int | FragmentPlace] = []
    for fragment in fragments:
        if not isinstance(fragment, FragmentProperties):
            raise TypeError(f"fragments must be an iterable of LanceFragment. Got {type(fragment)} instead.")
        state = fragment._state
        is_told_apart = not state.shared_ids
        names.append(
            fragment.fragment_id if is_told_apart else FragmentPlace(state.manifest.version, fragment._fragment_index)
        )
    return tuple(names)


def row_window(start: int, end: int) -> tuple[int, int]:
    """Offset and limit of a scan of rows by position. Raises `UsageError` unless `0 <= start <= end`."""
    if start < 0:
        raise UsageError(f"start must be non-negative, got {start}")
    if end < start:
        raise UsageError(f"end ({end}) must be >= start ({start})")
    return start, end - start


def make_options(
    defaults: Mapping[str, Any] | None,
    /,
    columns: Any = None,
    filter: Any = None,
    limit: int | None = None,
    offset: int | None = None,
    **others: Any,
) -> ScanOptions:
    """`scan_options` for fragments given as objects; `defaults` fill in the rest, None for scans without defaults."""
    if others.get("fragments") is not None:
        others["fragments"] = fragment_names(others["fragments"])
    return scan_options(columns=columns, filter=filter, limit=limit, offset=offset, **others).with_defaults(defaults)


class _Scan:
    """Properties and plans of a scan, for both faces."""

    _state: DatasetState
    _options: ScanOptions

    @property
    def projected_schema(self) -> pa.Schema:
        """Schema of the result."""
        return scan_projection(self._state, self._options).arrow_schema

    @property
    def dataset_schema(self) -> pa.Schema:
        """Schema of the dataset."""
        return self._state.arrow_schema

    def _explain_plan(self) -> Plan[str]:
        if self._options.full_text_query is not None:
            return (yield from text_explanations.explain_text(self._state, self._options))
        if self._options.nearest is not None:
            return (yield from searches.explain(self._state, self._options))
        plan = yield from plan_scan(self._state, self._options)
        return explain(self._state, plan, self._options)

    def _explain_io(self, *, cold: bool, store: str | RequestCosts | None) -> Plan[IoPlan]:
        return explanations.explain_scan(self._state, self._options, cold=cold, store=store)

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"<{name} of {hide_secrets(self._state.location.uri)} version {self._state.manifest.version}>"


class SyncScanner(_Scan, SyncFace):
    """One scan of a dataset. `LanceDataset.scanner` creates it; you can run it any number of times.

    Raises:
        TypeError: Always, if you call the class.
    """

    def __init__(self, *_: object, **__: object) -> None:
        raise TypeError("a scanner is made by dataset.scanner(...)")

    @classmethod
    def _of(cls, state: DatasetState, options: ScanOptions) -> Self:
        # pyarrow's constructor expects a C++ scanner; this class overrides every inherited method
        scanner: Self = cls.__new__(cls)
        if options.nearest is not None:  # raises now if the query does not fit the schema, as in pylance
            vector_queries.vector_column(state.schema, options.nearest)
        if options.full_text_query is not None:
            text_choices.check_request(state, options.full_text_query)
        scanner._state = state
        scanner._options = options
        return scanner

    def to_table(self) -> pa.Table:
        """Read all rows as a table. Without a filter the table shares the decoded buffers (zero-copy).

        Raises:
            DeadlineExceeded: The scan takes longer than its `timeout`.
        """
        return execute.collect(self._state, self._options, self.projected_schema)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows in batches of at most `batch_size` rows; few batches are in memory at once.

        Threads may share the iterator; each batch is delivered once. After an error the iterator raises `UsageError`.

        Returns:
            An iterator of the batches. Closing it ends the scan.

        Raises:
            DeadlineExceeded: The scan takes longer than its `timeout`.
        """
        schema = self.projected_schema  # raises now, not at the first batch, if the columns do not fit the schema
        return SharedItems(execute.stream(self._state, self._options, schema))

    def to_reader(self) -> pa.RecordBatchReader:
        """Read the batches as an Arrow reader.

        Engines that take readers do not say how many rows they want. So the scan starts with one batch, and doubles its
        readahead as the engine consumes batches.

        Raises:
            DeadlineExceeded: The scan takes longer than its `timeout`.
        """
        schema = self.projected_schema
        options = replace(self._options, starts_small=True)
        return pa.RecordBatchReader.from_batches(schema, SharedItems(execute.stream(self._state, options, schema)))

    def scan_batches(self) -> NoReturn:
        """Not offered. Use `to_batches`.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("scan_batches: use to_batches")

    def to_pandas(self, *, blob_mode: str = "lazy", **kwargs: Any) -> pd.DataFrame:
        """Read the rows as a data frame.

        Args:
            blob_mode: Blob columns hold `BlobFile`s ("lazy"), their bytes ("bytes") or their descriptions
                ("descriptions").
            kwargs: Keywords of `pyarrow.Table.to_pandas`.

        Raises:
            ValueError: `blob_mode` is invalid.
        """
        return data_frames.to_pandas(self._state, self._options, blob_mode, kwargs)

    def head(self, num_rows: int) -> pa.Table:
        """Read the first rows of the scan.

        Args:
            num_rows: Maximum number of rows.

        Raises:
            ValueError: `num_rows` is negative.
        """
        return type(self)._of(self._state, limit_rows(self._options, num_rows)).to_table()

    def count_rows(self) -> int:
        """Count the rows of the scan.

        Raises:
            ValueError: The scan has a limit or an offset.
        """
        return execute.count(self._state, self._options)

    def take(self, indices: object) -> NoReturn:
        """Not offered on a scan. Use `LanceDataset.take`.

        Args:
            indices: Ignored.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("take")

    def explain_plan(self, verbose: bool = False) -> str:
        """Describe the scan as text.

        Args:
            verbose: Accepted and ignored.
        """
        return self._run(self._explain_plan())

    def explain_io(self, *, cold: bool = False, store: str | RequestCosts | None = None) -> IoPlan:
        """Plan the requests of the scan, round by round. Reads the metadata that this needs, no data.

        Args:
            cold: True assumes an empty search cache; False leaves out requests that the cache answers.
            store: Plan as if the table were in this store: "s3", "s3-express", "gcs", "azure", "minio", or costs of
                your own (`lance_io.store.costs`). None for the table's own store.

        Returns:
            The plan. Its `cost` estimates time and money.

        Raises:
            ValueError: `store` is unknown.
        """
        return self._run(self._explain_io(cold=cold, store=store))

    def analyze_plan(self, count_rows: bool = False) -> str:
        """Run the scan and report rows, ranges of rows, requests and bytes as text.

        Args:
            count_rows: True runs `count_rows` instead.
        """
        if count_rows:
            watch = ScanWatch()
            with watch.counting():
                num_rows = execute.count(self._state, self._options, watch)
            return f"{self.explain_plan()}{execute.metrics(num_rows, watch.statistics())}"
        statistics: list[ScanStatistics] = []
        scan = type(self)._of(self._state, execute.with_stats_callback(self._options, statistics.append))
        num_rows = scan.to_table().num_rows
        return f"{self.explain_plan()}{execute.metrics(num_rows, statistics[-1])}"

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._of, (self._state, self._options)

    def __copy__(self) -> Self:
        return type(self)._of(self._state, self._options)

    @staticmethod
    def from_batches(*args: object, **kwargs: object) -> NoReturn:
        """Not offered: a dataset creates scanners.

        Args:
            args: Ignored.
            kwargs: Ignored.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("from batches")

    @staticmethod
    def from_dataset(*args: object, **kwargs: object) -> NoReturn:
        """Not offered: a dataset creates scanners.

        Args:
            args: Ignored.
            kwargs: Ignored.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("from dataset")

    @staticmethod
    def from_fragment(*args: object, **kwargs: object) -> NoReturn:
        """Not offered: a fragment creates scanners.

        Args:
            args: Ignored.
            kwargs: Ignored.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("from fragment")


if TYPE_CHECKING:

    class LanceScanner(SyncScanner, bases.Scanner):  # type: ignore[misc]
        """The public class; see `SyncScanner`."""


def __getattr__(name: str) -> Any:
    if name == "LanceScanner":
        return _lance_scanner()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _lance_scanner() -> type[LanceScanner]:
    public_class: type[LanceScanner] = bases.subclass(SyncScanner, bases.Scanner)
    return public_class


class AsyncScanner(_Scan, AsyncFace):
    """One scan of an `AsyncDataset` or `AsyncFragment`. You can run it any number of times, also with `async for`.

    Args:
        state: State of the dataset.
        options: Options of the scan.
    """

    def __init__(self, state: DatasetState, options: ScanOptions) -> None:
        super().__init__(state)
        self._options = options

    async def _schema(self) -> pa.Schema:
        """`projected_schema`, computed in a thread if it parses text (the parser has to be imported) or has many
        columns.
        """
        if self._options.is_search:
            return await drive_in_thread(lambda: self.projected_schema)
        columns = self._options.columns
        num_columns = len(self._state.schema.fields if columns is None else columns)
        if isinstance(columns, Mapping) or num_columns > COLUMNS_ON_LOOP_MAX:
            return await drive_in_thread(lambda: self.projected_schema)
        return self.projected_schema

    async def to_table(self) -> pa.Table:
        """Read all rows as a table. See `LanceScanner.to_table`."""
        return await execute.collect_async(self._state, self._options, await self._schema())

    @shared_async
    async def to_batches(self) -> AsyncGenerator[pa.RecordBatch, None]:
        """Read the rows batch by batch. Leaving the loop early cancels the reads under way.

        Tasks may share the iterator; each batch is delivered once. A cancelled or failed call ends the scan; later
        calls raise `UsageError`.

        Yields:
            Record batches.

        Raises:
            DeadlineExceeded: The scan takes longer than its `timeout`.
        """
        batches = execute.stream_async(self._state, self._options, await self._schema())
        try:
            async for batch in batches:
                yield batch
        finally:
            await batches.aclose()

    def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        return self.to_batches()

    async def to_pandas(self, *, blob_mode: str = "lazy", **kwargs: Any) -> pd.DataFrame:
        """Read the rows as a data frame. See `LanceScanner.to_pandas`."""
        await runtime.load_modules(data_frames.__name__)
        return await data_frames.to_pandas_async(self._state, self._options, blob_mode, kwargs)

    async def head(self, num_rows: int) -> pa.Table:
        """Read the first rows of the scan. See `LanceScanner.head`."""
        return await AsyncScanner(self._state, limit_rows(self._options, num_rows)).to_table()

    async def count_rows(self) -> int:
        """Count the rows of the scan. See `LanceScanner.count_rows`."""
        return await execute.count_async(self._state, self._options)

    async def explain_plan(self, verbose: bool = False) -> str:
        """Describe the scan as text. See `LanceScanner.explain_plan`."""
        return await self._run(self._explain_plan())

    async def explain_io(self, *, cold: bool = False, store: str | RequestCosts | None = None) -> IoPlan:
        """Plan the requests of the scan. See `LanceScanner.explain_io`."""
        return await self._run(self._explain_io(cold=cold, store=store))

    async def analyze_plan(self, count_rows: bool = False) -> str:
        """Run the scan and report its reads. See `LanceScanner.analyze_plan`."""
        if count_rows:
            watch = ScanWatch()
            with watch.counting():
                num_rows = await execute.count_async(self._state, self._options, watch)
            return f"{await self.explain_plan()}{execute.metrics(num_rows, watch.statistics())}"
        statistics: list[ScanStatistics] = []
        scan = type(self)(self._state, execute.with_stats_callback(self._options, statistics.append))
        num_rows = (await scan.to_table()).num_rows
        return f"{await self.explain_plan()}{execute.metrics(num_rows, statistics[-1])}"
