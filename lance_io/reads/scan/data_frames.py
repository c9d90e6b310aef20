"""Data frames: a scan as a `pandas.DataFrame`, including blob columns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lance_io import runtime
from lance_io.errors import UsageError
from lance_io.plans.plan import drive_async
from lance_io.reads.run_plan import run
from lance_io.reads.scan import execute
from lance_io.reads.scan.scan_plan import scan_projection
from lance_io.reads.takes.blob_file import BUFFER_BYTES, take_blobs
from lance_io.reads.version.system_columns import ROW_ADDRESS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    import pyarrow as pa

    from lance_io.plans.plan import Plan
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.takes.blob_file import BlobFile
    from lance_io.reads.version.column_lists import Projection
    from lance_io.reads.version.state import DatasetState

_MODES = ("lazy", "bytes", "descriptions")


def to_pandas(state: DatasetState, options: ScanOptions, blob_mode: str, keywords: dict[str, Any]) -> pd.DataFrame:
    """Run a scan and convert it to a data frame; see `LanceScanner.to_pandas`."""
    wanted = _Frame(state, options, blob_mode)
    frame = wanted.frame(execute.collect(state, wanted.options, wanted.schema), keywords)
    for name, files in wanted.blob_files():
        frame[name] = run(state, files)
    return frame


async def to_pandas_async(
    state: DatasetState, options: ScanOptions, blob_mode: str, keywords: dict[str, Any]
) -> pd.DataFrame:
    """`to_pandas` on any loop."""
    wanted = await runtime.in_thread(_Frame, state, options, blob_mode)
    rows = await execute.collect_async(state, wanted.options, wanted.schema)
    frame = await runtime.in_thread(wanted.frame, rows, keywords)
    for name, files in wanted.blob_files():
        frame[name] = await runtime.wrap(drive_async(files))
    return frame


class _Frame:
    """Builder of a data frame.

    options, schema  of the scan that gives its rows, with row addresses if blobs become files
    """

    def __init__(self, state: DatasetState, options: ScanOptions, blob_mode: str) -> None:
        if blob_mode not in _MODES:
            raise UsageError("blob_mode must be one of: 'lazy', 'bytes', 'descriptions'")
        if blob_mode == "bytes" and _shows_blobs(state, scan_projection(state, options)):
            options = replace(options, blob_handling="all_binary")
        self._state = state
        self._projection = scan_projection(state, options)
        self._lazy = [
            (output.name, output.path[0])
            for output in self._projection.outputs
            if len(output.path) == 1 and (field := state.schema.top(output.path[0])) is not None and field.holds_blobs
        ]
        if blob_mode != "lazy" or options.blob_handling is not None:
            self._lazy = []
        self._rows: Any = None
        self.options = replace(options, with_row_address=True) if self._lazy else options
        self.schema = scan_projection(state, self.options).arrow_schema

    def frame(self, table: pa.Table, keywords: dict[str, Any]) -> pd.DataFrame:
        """The frame, with descriptions in blob columns."""
        if self._lazy:
            self._rows = table.column(ROW_ADDRESS).to_numpy()
            table = table.select(self._projection.arrow_schema.names)
        return table.to_pandas(**keywords)

    def blob_files(self) -> Iterator[tuple[str, Plan[list[BlobFile | None]]]]:
        """Column names and their blobs as files."""
        for name, column in self._lazy:
            yield name, take_blobs(self._state, column, None, self._rows, None, BUFFER_BYTES)


def _shows_blobs(state: DatasetState, projection: Projection) -> bool:
    """Whether a column is a blob or holds some; a member of a description, such as `blob.size`, is neither."""
    stored = [output for output in projection.outputs if output.path and state.schema.top(output.path[0]) is not None]
    read = [state.field_at(output.path) for output in stored]
    return any(field.describe_blobs() is not field for field in read)
