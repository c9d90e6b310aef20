"""Data frames: a scan as a `pandas.DataFrame`, blob columns included."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lance_io.dataset import execute
from lance_io.dataset.blobfile import BUFFER_BYTES, take_blobs
from lance_io.dataset.blobs import is_blob
from lance_io.dataset.scan import scan_projection
from lance_io.dataset.system import ROW_ADDRESS
from lance_io.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

    from lance_io.dataset.options import ScanOptions
    from lance_io.dataset.state import DatasetState

_MODES = ("lazy", "bytes", "descriptions")


def to_pandas(state: DatasetState, options: ScanOptions, blob_mode: str, keywords: dict[str, Any]) -> pd.DataFrame:
    """Run a scan and make a data frame of it; see `LanceScanner.to_pandas`."""
    if blob_mode not in _MODES:
        raise UsageError("blob_mode must be one of: 'lazy', 'bytes', 'descriptions'")
    if blob_mode == "bytes":
        options = replace(options, blob_handling="all_binary")
    projection = scan_projection(state, options)
    lazy = [
        one.name
        for one in projection.outputs
        if not one.is_system and len(one.path) == 1 and is_blob(state.schema.field(one.path[0]))
    ]
    if blob_mode != "lazy" or not lazy or options.blob_handling is not None:
        return execute.collect(state, options, projection.arrow_schema).to_pandas(**keywords)
    asked = replace(options, with_row_address=True)
    table = execute.collect(state, asked, scan_projection(state, asked).arrow_schema)
    rows = table.column(ROW_ADDRESS).to_numpy()
    frame = table.select(projection.arrow_schema.names).to_pandas(**keywords)
    for output in projection.outputs:
        if output.name in lazy:
            files = take_blobs(state, output.path[0], None, rows, None, BUFFER_BYTES)
            frame[output.name] = execute.run(state, files)
    return frame
