"""One scan, with pylance's names: `LanceScanner`, a `pyarrow.dataset.Scanner`, `AsyncScanner`, and a builder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

import pyarrow as pa

from lance_io import runtime
from lance_io.errors import UnsupportedError, UsageError
from lance_io.lazy_names import later
from lance_io.not_offered import ScannerBuilderNotOffered
from lance_io.plans.lazy_module import later_plans
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
    from lance_io.dataset.lance_dataset import LanceDataset
    from lance_io.plans.plan import Plan
    from lance_io.reads.scan import data_frames
    from lance_io.reads.scan import explain as explanations
    from lance_io.reads.scan import nearest as searches
    from lance_io.reads.scan import vector_query as vector_queries
    from lance_io.reads.scan.io_plan import IoPlan
    from lance_io.reads.scan.scan_statistics import ScanStatistics
    from lance_io.reads.version.state import DatasetState
    from lance_io.store.costs import RequestCosts
else:
    bases = later("lance_io.dataset.bases")
    data_frames = later("lance_io.reads.scan.data_frames")
    explanations = later_plans("lance_io.reads.scan.explain")
    searches = later_plans("lance_io.reads.scan.nearest")
    vector_queries = later("lance_io.reads.scan.vector_query")

COLUMNS_ON_LOOP_MAX: Final = 64  # some 20 microseconds each, the first time


def fragment_names(fragments: Iterable[Any]) -> tuple[int | FragmentPlace, ...]:
    """What `ScanOptions` call fragments: their ids, or their places in a version whose ids do not tell them apart.

    fragments  `LanceFragment`s or `AsyncFragment`s; `TypeError` for anything else
    """
    names: list[int | FragmentPlace] = []
    for fragment in fragments:
        if not isinstance(fragment, FragmentProperties):
            raise TypeError(f"fragments must be an iterable of LanceFragment. Got {type(fragment)} instead.")
        state = fragment._state
        is_told_apart = not state.shared_ids
        names.append(fragment.fragment_id if is_told_apart else FragmentPlace(state.manifest.version, fragment._place))
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
    """`scan_options` of what a caller gives, who names fragments by themselves; `TypeError` for anything else.

    defaults  `default_scan_options` for what is left open; None for scans that these are not for
    """
    if others.get("fragments") is not None:
        others["fragments"] = fragment_names(others["fragments"])
    return scan_options(columns=columns, filter=filter, limit=limit, offset=offset, **others).with_defaults(defaults)


class _Scan:
    """What both faces of a scan have in common."""

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
    """One scan of a dataset. Made by `LanceDataset.scanner`; may be run any number of times."""

    def __init__(self, *_: object, **__: object) -> None:
        raise TypeError("a scanner is made by dataset.scanner(...)")

    @classmethod
    def _of(cls, state: DatasetState, options: ScanOptions) -> Self:
        # pyarrow's constructor would want a C++ scanner; every inherited method is overridden
        scanner: Self = cls.__new__(cls)
        if options.nearest is not None:  # what does not fit the schema is said now, as in pylance
            vector_queries.vector_column(state.schema, options.nearest)
        scanner._state = state
        scanner._options = options
        return scanner

    def to_table(self) -> pa.Table:
        """All rows, as a table over what was decoded, without copies where there is no filter."""
        return execute.collect(self._state, self._options, self.projected_schema)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in batches of at most `batch_size` rows; few batches are in memory at once.

        Threads may share the iterator: each batch is given once. After an error it raises `UsageError`.
        """
        schema = self.projected_schema  # what does not fit the schema is said now, not at the first batch
        return SharedItems(execute.stream(self._state, self._options, schema))

    def to_reader(self) -> pa.RecordBatchReader:
        """The batches as an Arrow reader.

        Engines take readers, and do not say how many rows they want: it begins with one batch, and reads ahead twice as
        far with what is taken.
        """
        schema = self.projected_schema
        options = replace(self._options, starts_small=True)
        return pa.RecordBatchReader.from_batches(schema, SharedItems(execute.stream(self._state, options, schema)))

    def scan_batches(self) -> NoReturn:
        """Not offered; use `to_batches`."""
        raise NotImplementedError("scan_batches: use to_batches")

    def to_pandas(self, *, blob_mode: str = "lazy", **kwargs: Any) -> pd.DataFrame:
        """The rows as a data frame.

        blob_mode  "lazy": blob columns hold `BlobFile`s, "bytes": their bytes, "descriptions": where they are
        kwargs     handed to `pyarrow.Table.to_pandas`
        """
        return data_frames.to_pandas(self._state, self._options, blob_mode, kwargs)

    def head(self, num_rows: int) -> pa.Table:
        """The first rows of the scan."""
        return type(self)._of(self._state, limit_rows(self._options, num_rows)).to_table()

    def count_rows(self) -> int:
        """How many rows the scan gives. Raises `ValueError` for a scan with a limit or an offset."""
        return execute.count(self._state, self._options)

    def take(self, indices: object) -> NoReturn:
        """Not offered on a scan; use `LanceDataset.take`."""
        raise NotImplementedError("take")

    def explain_plan(self, verbose: bool = False) -> str:
        """What the scan will read, as text."""
        return self._run(self._explain_plan())

    def explain_io(self, *, cold: bool = False, store: str | RequestCosts | None = None) -> IoPlan:
        """The requests of the scan, round by round; reads the metadata that this needs, never data.

        Its `cost` is the time and the money that they are expected to take.
        cold   as if nothing had been read before; otherwise what is in the search cache is not asked for again
        store  as if the table were there: "s3", "s3-express", "gcs", "azure", "minio", or costs of your own
               (`lance_io.store.costs`); None: where it is
        """
        return self._run(self._explain_io(cold=cold, store=store))

    def analyze_plan(self, count_rows: bool = False) -> str:
        """Run the scan and say what it read, as text: rows, ranges of rows, requests and bytes.

        count_rows  run `count_rows` instead
        """
        if count_rows:
            watch = ScanWatch()
            with watch.counting():
                num_rows = execute.count(self._state, self._options, watch)
            return f"{self.explain_plan()}{execute.metrics(num_rows, watch.statistics())}"
        told: list[ScanStatistics] = []
        scan = type(self)._of(self._state, execute.heard_by(self._options, told.append))
        num_rows = scan.to_table().num_rows
        return f"{self.explain_plan()}{execute.metrics(num_rows, told[-1])}"

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._of, (self._state, self._options)

    def __copy__(self) -> Self:
        return type(self)._of(self._state, self._options)

    @staticmethod
    def from_batches(*args: object, **kwargs: object) -> NoReturn:
        """Not offered: a scanner is made by a dataset."""
        raise NotImplementedError("from batches")

    @staticmethod
    def from_dataset(*args: object, **kwargs: object) -> NoReturn:
        """Not offered: a scanner is made by a dataset."""
        raise NotImplementedError("from dataset")

    @staticmethod
    def from_fragment(*args: object, **kwargs: object) -> NoReturn:
        """Not offered: a scanner is made by a fragment."""
        raise NotImplementedError("from fragment")


if TYPE_CHECKING:

    class LanceScanner(SyncScanner, bases.Scanner):  # type: ignore[misc]
        """The public class; see `SyncScanner`."""


def __getattr__(name: str) -> Any:
    if name == "LanceScanner":
        return _lance_scanner()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _lance_scanner() -> type[LanceScanner]:
    made: type[LanceScanner] = bases.subclass(SyncScanner, bases.Scanner)
    return made


class AsyncScanner(_Scan, AsyncFace):
    """One scan of an `AsyncDataset` or `AsyncFragment`; may be run any number of times, also by `async for`."""

    def __init__(self, state: DatasetState, options: ScanOptions) -> None:
        super().__init__(state)
        self._options = options

    async def _schema(self) -> pa.Schema:
        """`projected_schema`; in a thread where texts are parsed, for which the parser is imported, or columns many."""
        if self._options.nearest is not None:
            return await drive_in_thread(lambda: self.projected_schema)
        columns = self._options.columns
        num_columns = len(self._state.schema.fields if columns is None else columns)
        if isinstance(columns, Mapping) or num_columns > COLUMNS_ON_LOOP_MAX:
            return await drive_in_thread(lambda: self.projected_schema)
        return self.projected_schema

    async def to_table(self) -> pa.Table:
        """All rows."""
        return await execute.collect_async(self._state, self._options, await self._schema())

    @shared_async
    async def to_batches(self) -> AsyncGenerator[pa.RecordBatch, None]:
        """The rows batch by batch; leaving the loop early cancels the reads under way.

        Tasks may share the iterator: each batch is given once. A call that is cancelled or fails ends the scan, and
        whoever asks for another batch then gets a `UsageError`.
        """
        found = execute.stream_async(self._state, self._options, await self._schema())
        try:
            async for batch in found:
                yield batch
        finally:
            await found.aclose()

    def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        return self.to_batches()

    async def to_pandas(self, *, blob_mode: str = "lazy", **kwargs: Any) -> pd.DataFrame:
        """The rows as a data frame; parameters as for `LanceScanner.to_pandas`."""
        await runtime.load_modules(data_frames.__name__)
        return await data_frames.to_pandas_async(self._state, self._options, blob_mode, kwargs)

    async def head(self, num_rows: int) -> pa.Table:
        """The first rows of the scan."""
        return await AsyncScanner(self._state, limit_rows(self._options, num_rows)).to_table()

    async def count_rows(self) -> int:
        """How many rows the scan gives."""
        return await execute.count_async(self._state, self._options)

    async def explain_plan(self, verbose: bool = False) -> str:
        """What the scan will read, as text."""
        return await self._run(self._explain_plan())

    async def explain_io(self, *, cold: bool = False, store: str | RequestCosts | None = None) -> IoPlan:
        """The requests of the scan, round by round; see `LanceScanner.explain_io`."""
        return await self._run(self._explain_io(cold=cold, store=store))

    async def analyze_plan(self, count_rows: bool = False) -> str:
        """Run the scan and say what it read, as text; see `LanceScanner.analyze_plan`."""
        if count_rows:
            watch = ScanWatch()
            with watch.counting():
                num_rows = await execute.count_async(self._state, self._options, watch)
            return f"{await self.explain_plan()}{execute.metrics(num_rows, watch.statistics())}"
        told: list[ScanStatistics] = []
        scan = type(self)(self._state, execute.heard_by(self._options, told.append))
        num_rows = (await scan.to_table()).num_rows
        return f"{await self.explain_plan()}{execute.metrics(num_rows, told[-1])}"


class ScannerBuilder(ScannerBuilderNotOffered):
    """Collects the options of a scan; every method returns the builder. `to_scanner` checks and makes it.

    The dataset's `default_scan_options` count only where `apply_defaults` is given them.
    """

    def __init__(self, ds: LanceDataset) -> None:
        self._dataset = ds
        self._given: dict[str, Any] = {}

    def _set(self, name: str, value: Any) -> Self:
        self._given[name] = value
        return self

    def apply_defaults(self, default_opts: dict[str, Any]) -> Self:
        """Set what `default_opts` names, as the methods of the same names would."""
        self._given.update(default_opts)
        return self

    def columns(self, cols: list[str] | dict[str, str] | None = None) -> Self:
        """Output columns."""
        return self._set("columns", cols)

    def filter(self, filter: Any) -> Self:
        """Rows to keep."""
        return self._set("filter", filter)

    def limit(self, n: int | None = None) -> Self:
        """At most so many rows."""
        return self._set("limit", n)

    def offset(self, n: int | None = None) -> Self:
        """Leave out so many rows first."""
        return self._set("offset", n)

    def batch_size(self, batch_size: int) -> Self:
        """Rows per batch."""
        return self._set("batch_size", batch_size)

    def batch_size_bytes(self, batch_size_bytes: int) -> Self:
        """Bytes of values that a batch has at most, unless it is one row."""
        return self._set("batch_size_bytes", batch_size_bytes)

    def batch_readahead(self, nbatches: int | None = None) -> Self:
        """Batches decoded at once."""
        return self._set("batch_readahead", nbatches)

    def fragment_readahead(self, nfragments: int | None = None) -> Self:
        """Fragments read at once."""
        return self._set("fragment_readahead", nfragments)

    def scan_in_order(self, scan_in_order: bool = True) -> Self:
        """Whether rows keep their order; without, fragments in slow stores come as they are ready."""
        return self._set("scan_in_order", scan_in_order)

    def with_fragments(self, fragments: Iterable[Any] | None) -> Self:
        """Scan only these fragments, in this order."""
        return self._set("fragments", None if fragments is None else fragment_names(fragments))

    def with_row_id(self, with_row_id: bool = True) -> Self:
        """Append `_rowid`."""
        return self._set("with_row_id", with_row_id)

    def with_row_address(self, with_row_address: bool = True) -> Self:
        """Append `_rowaddr`."""
        return self._set("with_row_address", with_row_address)

    def io_buffer_size(self, io_buffer_size: int) -> Self:
        """Bytes read and not yet consumed."""
        return self._set("io_buffer_size", io_buffer_size)

    def late_materialization(self, late_materialization: bool | list[str]) -> Self:
        """Which columns are read only for rows that pass the filter."""
        return self._set("late_materialization", late_materialization)

    def blob_handling(self, blob_handling: str | None) -> Self:
        """How blob columns come out."""
        return self._set("blob_handling", blob_handling)

    def include_deleted_rows(self, flag: bool) -> Self:
        """Show deleted rows, with a null row id."""
        return self._set("include_deleted_rows", flag)

    def scan_stats_callback(self, callback: Any) -> Self:
        """Called with statistics when the scan is over."""
        return self._set("scan_stats_callback", callback)

    def strict_batch_size(self, strict_batch_size: bool = False) -> Self:
        """Whether all batches but the last have `batch_size` rows."""
        return self._set("strict_batch_size", strict_batch_size)

    def order_by(self, orderings: Any) -> Self:
        """Sort by these columns."""
        return self._set("order_by", orderings)

    def use_stats(self, use_stats: bool = True) -> Self:
        """Whether statistics may save reads; the rows are the same."""
        return self._set("use_stats", use_stats)

    def use_scalar_index(self, use_scalar_index: bool = True) -> Self:
        """Whether an index may answer the filter; the rows are the same."""
        return self._set("use_scalar_index", use_scalar_index)

    def prefilter(self, prefilter: bool) -> Self:
        """Whether a search looks only at rows that pass the filter; else the filter is for what was found."""
        return self._set("prefilter", prefilter)

    def fast_search(self, flag: bool) -> Self:
        """Whether a search leaves out the fragments that no index covers."""
        return self._set("fast_search", flag)

    def disable_scoring_autoprojection(self, disable: bool = True) -> Self:
        """Whether the result of a search has `_distance` only where it is named."""
        return self._set("disable_scoring_autoprojection", disable)

    def nearest(
        self,
        column: str,
        q: Any,
        k: int | None = None,
        metric: str | None = None,
        nprobes: int | None = None,
        minimum_nprobes: int | None = None,
        maximum_nprobes: int | None = None,
        refine_factor: int | None = None,
        use_index: bool = True,
        ef: int | None = None,
        query_parallelism: int | None = None,
        approx_mode: Literal["fast", "normal", "accurate"] = "normal",
        distance_range: tuple[float | None, float | None] | None = None,
        search_effort: float | None = None,
    ) -> Self:
        """Find the rows whose vectors are nearest to `q`. The search is exact: every vector is looked at.

        column   name or dotted path of a column of vectors (fixed-size lists of float16, float32, float64, bfloat16 or
                 uint8), or of lists of these, where a row's distance is that of its nearest vector, summed over `q`
        q        a vector, or several of them: then k rows are found for each, and `query_index` says for which
        k        rows to find; 10, or the limit of the scan
        metric   "l2" (squared), "cosine", "dot" or "hamming"; without, that of the column's index, or "l2", for uint8
                 "hamming", which is the only one that these have
        use_index  whether the index decides the metric, and what `fast_search` looks at
        distance_range  rows with a distance at or above the first and below the second number count

        The others tune indices, which this release does not read; they are checked and have no effect.
        Raises `TypeError` for values of the wrong type, `ValueError` for others that make no sense.
        """
        query = vector_queries.vector_query(
            column,
            q,
            k=k,
            metric=metric,
            nprobes=nprobes,
            minimum_nprobes=minimum_nprobes,
            maximum_nprobes=maximum_nprobes,
            refine_factor=refine_factor,
            use_index=use_index,
            ef=ef,
            query_parallelism=query_parallelism,
            approx_mode=approx_mode,
            distance_range=distance_range,
            search_effort=search_effort,
        )
        vector_queries.vector_column(self._dataset._state.schema, query)
        return self._set("nearest", query)

    def full_text_search(self, query: object, columns: object = None) -> NoReturn:
        """Full text search; needs an index, which this release does not read."""
        raise UnsupportedError("full_text_search: full text search is not part of this release")

    def to_scanner(self) -> LanceScanner:
        """The scanner. Raises what `scan_options` raises."""
        return _lance_scanner()._of(self._dataset._state, scan_options(**self._given).with_defaults(None))
