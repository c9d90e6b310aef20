"""`AsyncScanner`: one scan, awaitable; what `LanceScanner` is in plain code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lance_io import runtime
from lance_io.dataset.scan import execute
from lance_io.dataset.scan.scan_options import limited
from lance_io.dataset.scan.scan_plan import explain, plan_scan, scan_projection
from lance_io.io.stats import io_stats
from lance_io.plans.plan import drive_async

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    import pandas as pd
    import pyarrow as pa

    from lance_io.dataset.scan.io_plan import IoPlan
    from lance_io.dataset.scan.scan_options import ScanOptions
    from lance_io.dataset.version.state import DatasetState


class AsyncScanner:
    """One scan of an `AsyncDataset` or `AsyncFragment`; may be run any number of times, also by `async for`."""

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

    async def _schema(self) -> pa.Schema:
        """`projected_schema`; texts are parsed in a thread, and the parser is imported there."""
        if isinstance(self._options.columns, Mapping):
            await runtime.in_thread(scan_projection, self._state, self._options)  # which is kept
        return self.projected_schema

    async def to_table(self) -> pa.Table:
        """All rows."""
        schema = await self._schema()
        return await execute.collect_async(self._state, self._options, schema)

    async def to_batches(self) -> AsyncGenerator[pa.RecordBatch, None]:
        """The rows batch by batch; leaving the loop early cancels the reads under way."""
        schema = await self._schema()
        found = execute.stream_async(self._state, self._options, schema)
        try:
            async for batch in found:
                yield batch
        finally:
            await found.aclose()

    def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        return self.to_batches()

    async def to_pandas(self, *, blob_mode: str = "lazy", **kwargs: Any) -> pd.DataFrame:
        """The rows as a data frame; parameters as for `LanceScanner.to_pandas`."""
        await runtime.loaded("lance_io.dataset.scan.data_frames")
        from lance_io.dataset.scan.data_frames import to_pandas_async

        return await to_pandas_async(self._state, self._options, blob_mode, kwargs)

    async def head(self, num_rows: int) -> pa.Table:
        """The first rows of the scan."""
        return await AsyncScanner(self._state, limited(self._options, num_rows)).to_table()

    async def count_rows(self) -> int:
        """How many rows the scan gives."""
        return await execute.count_async(self._state, self._options)

    async def explain_plan(self, verbose: bool = False) -> str:
        """What the scan will read, as text."""
        plan = await runtime.wrap(drive_async(plan_scan(self._state, self._options)))
        return explain(self._state, plan, self._options)

    async def explain_io(self, *, cold: bool = False) -> IoPlan:
        """The requests of the scan, round by round; see `LanceScanner.explain_io`."""
        await runtime.loaded("lance_io.dataset.scan.explain")
        from lance_io.dataset.scan.explain import explain_scan

        return await runtime.wrap(drive_async(explain_scan(self._state, self._options, cold=cold)))

    async def analyze_plan(self, count_rows: bool = False) -> str:
        """Run the scan and say what it read, as text."""
        with io_stats() as spent:
            num_rows = await self.count_rows() if count_rows else (await self.to_table()).num_rows
        return f"{await self.explain_plan()}{execute.metrics(num_rows, spent)}"

    def __repr__(self) -> str:
        return f"<AsyncScanner of {self._state.location.uri} version {self._state.manifest.version}>"
