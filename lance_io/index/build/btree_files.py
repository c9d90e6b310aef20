"""The files of a BTREE (spec: indices, 3.1).

page_data.lance    all pairs in order; a page is `batch_size` of them
page_lookup.lance  of each page the first and the last value, the number of nulls, and its number
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lance_io.index.build.index_file import NewIndexFile, no_metadata
from lance_io.index.build.row_sorter import RowSorter
from lance_io.levels.arrays import numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.index.build.index_file import RowArray, RunStore
    from lance_io.index.build.row_sorter import Pairs

PAGE_ROWS: Final = 4096


class BTreeBuilder:
    """Builds a BTREE. page_rows: rows of a page; the other parameters are as for `RowSorter`."""

    def __init__(self, value_type: pa.DataType, store: RunStore, limit_bytes: int, page_rows: int = PAGE_ROWS) -> None:
        self._type = value_type
        self._page_rows = page_rows
        self._sorter = RowSorter(value_type, store, limit_bytes)

    def add(self, values: pa.Array, rows: RowArray) -> None:
        """See `IndexBuilder`."""
        self._sorter.add(values, rows)

    def files(self) -> Iterator[NewIndexFile]:
        """See `IndexBuilder`."""
        return btree_files(self._type, self._sorter.sorted(), self._page_rows)

    def close(self) -> None:
        """See `IndexBuilder`."""
        self._sorter.close()


def btree_files(value_type: pa.DataType, pairs: Iterator[Pairs], page_rows: int) -> Iterator[NewIndexFile]:
    """The files of sorted pairs."""
    lookup = _Lookup(value_type, page_rows)
    data = pa.schema([pa.field("values", value_type), pa.field("ids", pa.uint64(), nullable=False)])
    yield NewIndexFile("page_data.lance", data, _data_batches(data, pairs, lookup), no_metadata)
    yield NewIndexFile("page_lookup.lance", lookup.schema, iter(lookup.batches()), lookup.metadata)


def _data_batches(schema: pa.Schema, pairs: Iterator[Pairs], lookup: _Lookup) -> Iterator[pa.RecordBatch]:
    for values, rows in pairs:
        lookup.add(values)
        yield pa.RecordBatch.from_arrays([values, numbers(rows)], schema=schema)


class _Lookup:
    """Collects the rows of the lookup file: two values of each page."""

    def __init__(self, value_type: pa.DataType, page_rows: int) -> None:
        self.schema = pa.schema(
            [
                pa.field("min", value_type),
                pa.field("max", value_type),
                pa.field("null_count", pa.uint32(), nullable=False),
                pa.field("page_idx", pa.uint32(), nullable=False),
            ]
        )
        self._page_rows = page_rows
        self._firsts: list[pa.Array] = []
        self._lasts: list[pa.Array] = []
        self._last: pa.Array | None = None  # the last value so far, if its page is not full
        self._num_rows = self._num_nulls = 0

    def add(self, values: pa.Array) -> None:
        """Add values of the data file, in order."""
        num_rows, page_rows = len(values), self._page_rows
        if not num_rows:
            return
        self._firsts.append(_every(values, -self._num_rows % page_rows, page_rows))
        self._lasts.append(_every(values, (-self._num_rows - 1) % page_rows, page_rows))
        self._num_rows += num_rows
        self._num_nulls += values.null_count
        self._last = values.slice(num_rows - 1) if self._num_rows % page_rows else None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of the lookup file, after all values."""
        num_pages = -(-self._num_rows // self._page_rows)
        if not num_pages:
            return
        starts = np.arange(num_pages) * self._page_rows
        sizes = np.minimum(self._num_rows - starts, self._page_rows)
        nulls = np.clip(self._num_nulls - starts, 0, sizes)
        lasts = [*self._lasts] if self._last is None else [*self._lasts, self._last]
        columns = [
            pa.concat_arrays(self._firsts),
            pa.concat_arrays(lasts),
            numbers(nulls).cast(pa.uint32()),
            numbers(np.arange(num_pages)).cast(pa.uint32()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def metadata(self) -> dict[str, str]:
        """The metadata of the lookup file."""
        return {"batch_size": str(self._page_rows), "range_partitioned": "false"}


def _every(values: pa.Array, first: int, step: int) -> pa.Array:
    return values.take(numbers(np.arange(first, len(values), step)))
