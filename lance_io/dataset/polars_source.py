"""A table as a source of polars, which tells it the columns, the number of rows and the condition of a query."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.errors import UnsupportedError
from lance_io.levels.arrays import booleans
from lance_io.reads.scan.mask_filter import MaskFilter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    import polars as pl

    from lance_io.dataset.lance_dataset import SyncDataset

_ROW: Final = "\0row"  # no column has that name


def polars_module() -> ModuleType:
    """polars. Raises `ModuleNotFoundError`, which says how to install it."""
    try:
        import polars
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "lance_io.polars needs the package polars: pip install 'lance_io[polars]'", name="polars"
        ) from error
    return polars


def lazy_frame(table: SyncDataset, filter: Any) -> pl.LazyFrame:
    """The rows of a version that pass a filter; parameters and errors as for `lance_io.polars.scan`."""
    polars = polars_module()
    source = PolarsSource(table, filter)
    schema = source.schema()
    table.scanner(filter=filter, limit=0).to_table()  # a wrong filter is told here
    name = f"{type(table).__name__} version {table.version}"
    frame: pl.LazyFrame = polars.io.plugins.register_io_source(source, schema=schema, is_pure=True, explain_name=name)
    return frame


@dataclass(frozen=True, eq=False)
class PolarsSource:
    """What polars asks for rows: an open version, and a filter that its rows pass before anything else."""

    table: SyncDataset
    filter: Any

    def schema(self) -> pl.Schema:
        """The columns as polars has them. Raises `UnsupportedError` for a type that it has not."""
        polars = polars_module()
        found = {}
        for field in self.table.schema:
            try:
                frame = polars.from_arrow(pa.schema([field]).empty_table())
                found[field.name] = polars.DataFrame(schema=frame.schema).schema[field.name]  # some types it only takes
            except (polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
                raise UnsupportedError(
                    f'polars has no type for column "{field.name}", {field.type}: take the other columns from '
                    f"`dataset.scanner(columns=[...]).to_reader()`: {error}"
                ) from error
        schema: pl.Schema = polars.Schema(found)
        return schema

    def __call__(
        self,
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        """The rows, frame by frame.

        with_columns  names, None for all
        predicate     which rows to keep of the first `n_rows`, None for all
        batch_size    a hint, which does not count: batches are as large as their values allow

        A condition on columns that are stored as they are shown is the scan's, computed by polars: other columns are
        read for the rows that pass it. It stops where no more rows are asked for.
        """
        polars = polars_module()
        names = self.table.schema.names if with_columns is None else with_columns
        extra = [] if predicate is None else [one for one in predicate.meta.root_names() if one not in names]
        filter, rest = self.filter, predicate
        if predicate is not None and n_rows is None and self._is_plain(predicate.meta.root_names()):
            filter, rest, extra = self._masked(predicate), None, []
        wanted = [*names, *extra]
        columns = [f"`{name.replace('`', '``')}`" for name in wanted]
        scanner = self.table.scanner(columns=columns, filter=filter, limit=n_rows)
        with scanner.to_reader() as reader:
            for batch in reader:
                frame = polars.from_arrow(batch.rename_columns(wanted))  # which the scan calls as it was asked
                yield frame if rest is None else frame.filter(rest).select(names)

    def _is_plain(self, names: list[str]) -> bool:
        """Whether values of these columns, one at least, are stored as they are shown."""
        stored, shown = self.table._state.stored_schema, self.table.schema
        return bool(names) and all(stored.field(name).type == shown.field(name).type for name in names)

    def _masked(self, predicate: pl.Expr) -> MaskFilter:
        names = tuple(predicate.meta.root_names())
        return MaskFilter(names, partial(_mask, predicate), self.filter)


def _mask(predicate: pl.Expr, batch: pa.RecordBatch) -> pa.BooleanArray:
    """The rows that polars keeps, by what it does with them."""
    frame = polars_module().from_arrow(batch).with_row_index(_ROW)
    kept = np.zeros(batch.num_rows, dtype=np.bool_)
    kept[frame.filter(predicate)[_ROW].to_numpy()] = True
    return booleans(kept)
