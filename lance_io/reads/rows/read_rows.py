"""Requests to the file room: chosen rows, columns of a fragment, bytes of objects."""

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
    is_local    whether the stores answer in the caller's thread: a round takes no time
    """

    def __init__(self, state: DatasetState, projection: Projection) -> None:
        self._sources = state.sources  # not the state, which remembers readers
        self.is_local = state.is_local
        self._reader = TableReader(state.context, projection)

    def read(self, groups: Sequence[tuple[int, IntArray]], layout: BatchLayout | None = None) -> Plan[Taken]:
        """One array per field, the groups one after the other.

        groups  (place of the fragment, i64[n] offsets, ascending, each once)
        layout  of a batch of these fields, to get that instead of arrays where it can be made at once
        """
        picks = [(self._sources[place], offsets) for place, offsets in groups]
        return self._reader.take(picks, layout)

    def pieces(
        self,
        groups: Sequence[tuple[int, IntArray]],
        layout: BatchLayout | None = None,
        items: Sequence[Mapping[int, IntArray]] | None = None,
    ) -> PiecewiseTake:
        """The same rows, in pieces where they are many bytes: what `read_piece` takes. items: see `TableReader`."""
        return self._reader.pieces([(self._sources[place], offsets) for place, offsets in groups], layout, items)

    def read_piece(self, pieces: PiecewiseTake) -> Plan[tuple[int, Taken]]:
        """The next piece: how many rows, and their fields."""
        return self._reader.take_piece(pieces)

    def warm(self, places: Sequence[int]) -> Plan[None]:
        """Load what reading rows of these fragments needs besides them."""
        return self._reader.warm([self._sources[place] for place in places])


def read_columns(state: DatasetState, fields: Sequence[Field], place: int) -> Plan[list[pa.ChunkedArray]]:
    """All physical rows of some columns of the fragment at `place`; of their fields, ids and types count."""
    source = state.sources[place]
    return (yield from TableReader(state.context, fields).read([(source, 0, source.num_rows)]))


def read_bytes(context: ReadContext, key: str, ranges: Ranges) -> Plan[Fetched]:
    """Byte ranges of one object that is no Lance file, such as blobs: one buffer and where each range starts in it."""
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
