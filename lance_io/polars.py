"""Tables in polars queries: `lance_io.polars.scan` returns a lazy frame that reads only what its query needs.

`scan` loads polars on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.dataset.lance_dataset import SyncDataset
from lance_io.dataset.open_dataset import dataset
from lance_io.dataset.polars_source import lazy_frame

if TYPE_CHECKING:
    from os import PathLike

    import polars as pl
    import pyarrow.compute as pc

    from lance_io.reads.open_version import Ref

__all__ = ["scan"]


def scan(
    uri: str | PathLike[str] | SyncDataset,
    version: Ref | None = None,
    filter: str | pc.Expression | None = None,
    **options: Any,
) -> pl.LazyFrame:
    """Open a version of a table as a lazy frame of polars.

    A query reads only the columns that it needs. `head` and `limit` read only the rows that they return. polars
    evaluates the query's filter before the other columns are read.

    Args:
        uri: The table, or an open dataset.
        version: Number, tag or `(branch, version)`; None for the newest. All runs of the frame read the version that is
            opened here.
        filter: Rows of the frame, as for `LanceDataset.scanner`.
        options: As for `lance_io.dataset`: `storage_options`, `filesystem`, `session` ...

    Returns:
        A lazy frame over the version.

    Raises:
        ValueError: See `lance_io.dataset`.
        BindError: The filter does not fit the schema.
        UnsupportedError: polars does not have the type of a column.
        ModuleNotFoundError: polars is not installed.
    """
    if isinstance(uri, SyncDataset):
        table = uri if version is None else uri.checkout_version(version)
    else:
        table = dataset(uri, version, **options)
    return lazy_frame(table, filter)
