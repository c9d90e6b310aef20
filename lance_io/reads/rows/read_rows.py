"""Requests for data files: chosen rows, columns of a fragment, bytes of objects."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lance_io.encodings.rounds import fetch
from lance_io.file.file_requests import ReadFile
from lance_io.file.table_reader import TableReader
from lance_io.spans import Ranges

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lance_io.file.open.file_source import ReadContext
    from lance_io.file.open.leaf_projection import Projection
    from lance_io.file.take.take_files import Taken
    from lance_io.file.take.take_pieces import PiecewiseTake
    from lance_io.format.schema import Field
    from lance_io.levels.layout import BatchLayout
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import Fetched, IntArray


class RowReader:
    """Reads chosen rows of some fields.

    projection  pruned top-level fields of the table's schema
    context     of the scan that chose the rows; None for that of the version
    """

    def __init__(self, state: DatasetState, projection: Projection, context: ReadContext | None = None) -> None:
        self._sources = state.sources  # not the state: it caches readers, so that would be a cycle
        self._reader = TableReader(context or state.context, projection)
        # The next piece of a take: its number of rows, and their fields.
        self.read_piece = self._reader.take_piece

    def read(self, groups: Sequence[tuple[int, IntArray]], layout: BatchLayout | None = None) -> Plan[Taken]:
        """One array per field, the groups one after the other.

        groups  `(fragment index, i64[n] offsets, ascending and distinct)`
        layout  layout of a batch of these fields. If one step can build the batch, the result is the batch instead of
                arrays
        """
        picks = [(self._sources[fragment_index], offsets) for fragment_index, offsets in groups]
        return self._reader.take(picks, layout)

    def pieces(
        self,
        groups: Sequence[tuple[int, IntArray]],
        layout: BatchLayout | None = None,
        items: Sequence[Mapping[int, IntArray]] | None = None,
    ) -> PiecewiseTake:
        """A take of the same rows for `read_piece`, in several pieces if it is large. items: see `TableReader`."""
        return self._reader.pieces(
            [(self._sources[fragment_index], offsets) for fragment_index, offsets in groups], layout, items
        )

    def open_files(self, fragment_indexes: Sequence[int]) -> Plan[None]:
        """Open the files of these fragments, before it is known which of them have wanted rows."""
        return self._reader.open_files([self._sources[fragment_index] for fragment_index in fragment_indexes])

    def warm(self, fragment_indexes: Sequence[int]) -> Plan[None]:
        """Load the metadata and page indexes that reads of these fragments need, but no rows."""
        return self._reader.warm([self._sources[fragment_index] for fragment_index in fragment_indexes])


def read_columns(state: DatasetState, fields: Sequence[Field], fragment_index: int) -> Plan[list[pa.ChunkedArray]]:
    """All physical rows of some columns of a fragment; only ids and types of the fields matter."""
    source = state.sources[fragment_index]
    return (yield from TableReader(state.context, fields).read([(source, 0, source.num_rows)]))


def read_bytes(context: ReadContext, key: str, ranges: Ranges) -> Plan[Fetched]:
    """Byte ranges of an object that is no Lance file, such as blobs: one buffer, and the start of each range in it."""
    fetched: Fetched = yield ReadFile(context, key, fetch(replace(ranges, keep=True)))
    return fetched


def bytes_of(fetched: Fetched, ranges: Ranges) -> list[bytes]:
    """The ranges as separate byte strings."""
    lengths = (ranges.ends - ranges.starts).tolist()
    return [bytes(fetched.piece(number, length)) for number, length in enumerate(lengths)]


def ranges_of(starts: IntArray, lengths: IntArray) -> Ranges:
    """Ranges from starts and lengths."""
    starts = np.ascontiguousarray(starts, dtype=np.int64)
    return Ranges(starts, starts + lengths)
