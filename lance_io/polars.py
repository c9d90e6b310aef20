"""Tables in queries of polars: `lance_io.polars.scan` gives a lazy frame, which reads what its query needs.

polars is loaded when `scan` is called.
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
    """A version of a table as a lazy frame of polars.

    uri      the table, or an open dataset
    version  number, tag or `(branch, version)`; the newest by default. All runs of the frame read the version that is
             opened here
    filter   rows of the frame, as for `LanceDataset.scanner`
    options  as for `lance_io.dataset`: `storage_options`, `filesystem`, `session` ...

    Of the columns those are read that a query needs; `head` and `limit` read the rows that they give; a condition of
    the query is computed, by polars, before columns that it does not name are read.

    Raises what `lance_io.dataset` raises, `BindError` for a filter that does not fit, `UnsupportedError` for a column
    of a type that polars has not, `ModuleNotFoundError` where polars is not installed.
    """
    if isinstance(uri, SyncDataset):
        table = uri if version is None else uri.checkout_version(version)
    else:
        table = dataset(uri, version, **options)
    return lazy_frame(table, filter)
