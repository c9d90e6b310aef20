"""Takes and scans of projected fields over many fragments.

    take_now, scan_now, read_now   in the caller's thread (decoding on both cores), for stores that offer `SyncReads`
    take, scan, read               on the engine's loop, for every store

A field's leaf columns may lie in several files of a fragment, or in none (then it reads as null). Leaves are read apart
and joined to fields at the end: most fields have one leaf, for which nothing is to be joined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_io.file.take import take
from lance_io.levels.assemble import merge
from lance_io.levels.path import leaf_paths

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    import pyarrow as pa

    from lance_io.file.scan import ScanBatch, Span
    from lance_io.file.source import FileRef, FragmentSource, ReadContext
    from lance_io.format.schema import Field
    from lance_io.levels.path import LeafPath
    from lance_io.spans import IntArray

    Pick = tuple[FragmentSource, IntArray]


@dataclass(frozen=True, slots=True)
class FileColumns:
    """What to read of one file: parallel lists of leaf field ids, column indices and expected leaf types."""

    ref: FileRef
    leaf_ids: list[int]
    columns: list[int]
    types: list[pa.DataType]


class Projection:
    """Projected fields and the leaves they need.

    fields  pruned top-level schema fields, blobs replaced by their descriptions; results come in this order
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        self.fields = [field.described() for field in fields]
        self.paths: list[list[LeafPath]] = [leaf_paths(field) for field in self.fields]
        self.leaves = {path.leaf.id: path for paths in self.paths for path in paths}
        self._located: dict[int, tuple[FragmentSource, list[FileColumns]]] = {}  # by identity: sources are long tuples

    def locate(self, source: FragmentSource) -> list[FileColumns]:
        """Which file of a fragment holds which leaves; leaves that no file has are left out."""
        known = self._located.get(id(source))
        if known is not None:
            return known[1]
        found = []
        for ref in source.files:
            here = [leaf for leaf in self.leaves if leaf in ref.columns]
            if here:
                types = [self.leaves[leaf].leaf_type for leaf in here]
                found.append(FileColumns(ref, here, [ref.columns[leaf] for leaf in here], types))
        self._located[id(source)] = source, found
        return found

    def assemble(self, leaves: dict[int, pa.Array], num_rows: int) -> list[pa.Array]:
        """Field arrays from leaf arrays of `num_rows` each."""
        arrays = []
        for field, paths in zip(self.fields, self.paths, strict=True):
            array = leaves.get(paths[0].leaf.id) if len(paths) == 1 else None
            is_whole = array is not None and (len(paths[0].nodes) == 1 or array.type == field.arrow_type)
            arrays.append(array if is_whole else merge(field, leaves, num_rows))
        return arrays


class TableReader:
    """Reads the projected fields of fragments.

    context  store, cache, scheduler
    fields   pruned top-level fields of the table's schema
    """

    def __init__(self, context: ReadContext, fields: Sequence[Field]) -> None:
        self.context = context
        self.projection = Projection(fields)

    # -- random access -------------------------------------------------------------------------------------------------

    def take_now(self, picks: Sequence[Pick]) -> list[pa.Array]:
        """Rows of fragments, one array per field, fragments one after the other.

        picks  (fragment, i64[n] physical offsets, ascending, each once)
        """
        from lance_io.file.drive import take_now

        return take_now(take(self.context, self.projection, picks), self.context)

    async def take(self, picks: Sequence[Pick]) -> list[pa.Array]:
        """The same on the engine's loop; files are read side by side."""
        from lance_io.file.drive import take_later

        return await take_later(take(self.context, self.projection, picks), self.context)

    # -- scans -------------------------------------------------------------------------------------------------

    def scan_now(
        self,
        spans: Sequence[Span],
        batch_rows: int | None,
        *,
        in_order: bool = True,
        pieces_ahead: int | None = None,
        spans_ahead: int | None = None,
    ) -> Iterator[ScanBatch]:
        """Batches of physical row ranges, in order; batches never reach over a span.

        spans         (fragment, first row, end row), physical
        batch_rows    rows per batch (the last of a span may have fewer), None for pieces as large as they are decoded
        pieces_ahead  pages (or parts of large ones) decoded before they are needed, of all columns together; None for
                      twice as many as there are cores
        spans_ahead   spans begun behind the one that is being given, as far as the pieces go; None for 8
        """
        from lance_io.file.scan import readahead, scan_now

        return scan_now(self.context, self.projection, spans, batch_rows, readahead(pieces_ahead, spans_ahead))

    def scan(
        self,
        spans: Sequence[Span],
        batch_rows: int | None,
        *,
        in_order: bool = True,
        pieces_ahead: int | None = None,
        spans_ahead: int | None = None,
    ) -> AsyncGenerator[ScanBatch, None]:
        """The same on the engine's loop; the bytes of all spans ahead are requested, as far as the budget goes."""
        from lance_io.file.scan import readahead, scan

        return scan(self.context, self.projection, spans, batch_rows, readahead(pieces_ahead, spans_ahead))

    def read_now(self, spans: Sequence[Span]) -> list[pa.ChunkedArray]:
        """Whole columns of physical row ranges: decoded pages as chunks, without a copy."""
        from lance_io.file.scan import read_now

        return read_now(self.context, self.projection, spans)

    async def read(self, spans: Sequence[Span]) -> list[pa.ChunkedArray]:
        """The same on the engine's loop."""
        from lance_io.file.scan import read

        return await read(self.context, self.projection, spans)
