"""A table as an IO source of polars, which pushes down columns, row limits and predicates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.errors import UnsupportedError
from lance_io.filters.mask_filter import MaskFilter
from lance_io.levels.arrays import booleans

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    import polars as pl

    from lance_io.dataset.lance_dataset import SyncDataset

_ROW: Final = "\0row"  # no column has that name


def polars_module() -> ModuleType:
    """Import polars. Raises `ModuleNotFoundError` with the install command."""
    try:
        import polars
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "lance_io.polars needs the package polars: pip install 'lance_io[polars]'", name="polars"
        ) from error
    return polars


def lazy_frame(table: SyncDataset, filter: Any) -> pl.LazyFrame:
    """The rows of a version that pass a filter; see `lance_io.polars.scan`."""
    polars = polars_module()
    source = PolarsSource(table, filter)
    schema = source.schema()
    table.scanner(filter=filter, limit=0).to_table()  # raises for an invalid filter before polars runs the query
    name = f"{type(table).__name__} version {table.version}"
    frame: pl.LazyFrame = polars.io.plugins.register_io_source(source, schema=schema, is_pure=True, explain_name=name)
    return frame


@dataclass(frozen=True, eq=False)
class PolarsSource:
    """The generator that polars calls: an open version, and a filter applied before everything else."""

    table: SyncDataset
    filter: Any

    def schema(self) -> pl.Schema:
        """The columns with their types in polars. Raises `UnsupportedError` for a type that polars lacks."""
        polars = polars_module()
        types = {}
        for field in self.table.schema:
            try:
                frame = polars.from_arrow(pa.schema([field]).empty_table())
                # polars imports some types that it does not store
                types[field.name] = polars.DataFrame(schema=frame.schema).schema[field.name]
            except (polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
                raise UnsupportedError(
                    f'polars has no type for column "{field.name}", {field.type}: take the other columns from '
                    f"`dataset.scanner(columns=[...]).to_reader()`: {error}"
                ) from error
        schema: pl.Schema = polars.Schema(types)
        return schema

    def __call__(
        self,
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        """Read the rows, frame by frame.

        If all columns of a predicate are stored as they are shown, the scan applies it as a filter that polars
        computes, and reads the other columns late, for the rows that pass. The scan stops once `n_rows` rows have been
        read.

        Args:
            with_columns: Names; None for all columns.
            predicate: Condition on the first `n_rows` rows; None for all.
            n_rows: Maximum number of rows; None for all.
            batch_size: A hint, ignored: the values decide the size of batches.

        Yields:
            Frames with the columns `with_columns`.
        """
        polars = polars_module()
        names = self.table.schema.names if with_columns is None else with_columns
        extra = [] if predicate is None else [name for name in predicate.meta.root_names() if name not in names]
        filter, rest = self.filter, predicate
        if predicate is not None and n_rows is None and self._is_plain(predicate.meta.root_names()):
            filter, rest, extra = self._masked(predicate), None, []
        wanted = [*names, *extra]
        columns = [f"`{name.replace('`', '``')}`" for name in wanted]
        scanner = self.table.scanner(columns=columns, filter=filter, limit=n_rows)
        with scanner.to_reader() as reader:
            for batch in reader:
                frame = polars.from_arrow(batch.rename_columns(wanted))  # the scan names columns by their quoted paths
                yield frame if rest is None else frame.filter(rest).select(names)

    def _is_plain(self, names: list[str]) -> bool:
        """Whether these columns, at least one, are stored as they are shown."""
        stored, shown = self.table._state.stored_schema, self.table.schema
        return bool(names) and all(stored.field(name).type == shown.field(name).type for name in names)

    def _masked(self, predicate: pl.Expr) -> MaskFilter:
        names = tuple(predicate.meta.root_names())
        return MaskFilter(names, partial(_mask, predicate), self.filter)


def _mask(predicate: pl.Expr, batch: pa.RecordBatch) -> pa.BooleanArray:
    """The rows that polars keeps."""
    frame = polars_module().from_arrow(batch).with_row_index(_ROW)
    kept = np.zeros(batch.num_rows, dtype=np.bool_)
    kept[frame.filter(predicate)[_ROW].to_numpy()] = True
    return booleans(kept)
