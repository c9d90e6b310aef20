"""Readahead of scans: pages are read and decoded ahead, and batches are cut from them in row order.

    spans -> open files -> pieces (one page of a leaf column each), ordered by first row -> read and decode ahead on the
    CPU pool -> one queue of arrays per leaf -> batches

    readahead   start of both drivers: the pieces of a file, and the limits of the readahead
    scan_sync   driver in the caller's thread
    scan_async  driver on the engine's loop; runs several at once for unordered scans
    batches     batches from decoded pieces

A batch is a zero-copy slice of decoded pages; rows are copied only if a batch crosses a page border. Two limits bound
the memory. At most `Readahead.pieces` are decoded ahead, besides one page per leaf column in use. Bytes read and not
yet decoded stay within `io_buffer_bytes`; only the piece that the consumer waits for may exceed it. This is the
backpressure: a consumer that stops reading batches stops the reads.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lance_io import limits
from lance_io.file.open.open_file import open_cached
from lance_io.file.scan.page_slices import Piece, column_pieces
from lance_io.file.scan.slow_start import SlowStart
from lance_io.format.version import V0_1
from lance_io.lazy_names import lazy_module

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.file.file_steps import FileSteps, Tail
    from lance_io.file.open.column_pages import Column
    from lance_io.file.open.file_source import FragmentSource, ReadContext
    from lance_io.file.open.leaf_projection import FileColumns
    from lance_io.file.open.projected_pages import TableFile
    from lance_io.file.scan import batch_pieces
    from lance_io.file.scan.read_gate import ReadGate
    from lance_io.file.scan.slow_start import Borders, Pace
    from lance_io.io.scheduler import Merge
    from lance_io.store.profile import StoreProfile

    Span = tuple[FragmentSource, int, int]
else:
    batch_pieces = lazy_module("lance_io.file.scan.batch_pieces")  # imports the readers of 0.1, which few tables need

PIECES_AHEAD: Final = 2 * (os.cpu_count() or 1)  # keeps every core busy while the consumer processes a batch
SPANS_AHEAD: Final = 8  # fragments to start ahead on the engine's loop, within the limits of pieces and budget
KEPT_FILES_MAX: Final = 4096  # a scan of more files caches only their metadata, to keep garbage collection fast
SPANS_AHEAD_MAX: Final = 64  # fragments to start ahead if all their files fit the readahead budget


@dataclass(frozen=True, slots=True)
class Readahead:
    """Limits of a scan's readahead, at least 1 each.

    pieces       number of pieces to decode ahead; small pieces share a job, which counts as one
    spans        spans to start ahead of the consumer's current one; None lets the driver choose
    is_explicit  whether the caller set `pieces`: small pieces then do not share jobs, so that the count is exact
    first_rows   rows of the first batch, for a scan with a slow start; None for the full readahead at once
    gate         limits the rows read ahead, in place of the slow start of `first_rows`
    merge        which gaps a read spans on stores with latency: those of scans, or the smaller ones of takes ("take"),
                 for scans that may not need the bytes in the gaps
    """

    pieces: int = PIECES_AHEAD
    spans: int | None = None
    is_explicit: bool = False
    first_rows: int | None = None
    gate: ReadGate | None = None
    merge: Merge = "scan"

    def pace(self, spans: Sequence[Span], profile: StoreProfile) -> Pace | None:
        """The row limit of a scan of these spans; None if only the other limits apply."""
        if self.gate is not None:
            return self.gate
        return None if self.first_rows is None else SlowStart(spans, self.first_rows, profile)

    @property
    def spans_on_loop(self) -> int:
        """Spans to start ahead on the engine's loop."""
        return self.spans or SPANS_AHEAD


DEFAULT_READAHEAD: Final = Readahead()


def readahead(
    pieces: int | None,
    spans: int | None,
    first_rows: int | None = None,
    gate: ReadGate | None = None,
    merge: Merge = "scan",
) -> Readahead:
    """A `Readahead`, with defaults for None."""
    return Readahead(
        pieces or PIECES_AHEAD,
        spans or None,
        is_explicit=pieces is not None,
        first_rows=first_rows,
        gate=gate,
        merge=merge,
    )


def _piece_bytes(context: ReadContext) -> int:
    """Size of pieces, above which pages are cut. Pieces shrink as the memory budget fills.

    Every open scan holds a piece of each column, even if it is idle. While half of the budget is free, pieces have full
    size; then they shrink fast, so that hundreds of scans approach the budget and hardly exceed it. On stores with
    latency, a read is never much shorter than the gaps that scans read over.
    """
    pool = context.pool
    free_share = min(1.0, 2 * max(0, pool.avail_bytes) / max(1, pool.capacity_bytes))
    min_bytes = max(limits.SCAN_PIECE_BYTES_MIN, context.store.profile.scan_gap_bytes // 4)
    return min(limits.SCAN_PIECE_BYTES, max(min_bytes, int(limits.SCAN_PIECE_BYTES * free_share**4)))


def file_pieces(
    context: ReadContext,
    file_columns: FileColumns,
    span: Span,
    *,
    keep: bool = True,
    borders: Borders | None = None,
) -> FileSteps[list[tuple[int, Piece]]]:
    """The pieces of one file, each with its leaf's field id.

    keep     whether to cache columns and pages with the file for further reads
    borders  rows at which large pieces are cut additionally, for a scan with a slow start; see `SlowStart`
    """
    source, start, end = span
    is_whole = end - start == source.num_rows and len(file_columns.columns) == len(file_columns.ref.columns)
    file, tail = yield from open_cached(context, file_columns.ref, file_columns.columns, is_whole=is_whole)
    if context.ends is not None:
        tail = context.ends.kept(file_columns.ref.key, tail)
    if file.version == V0_1:
        whole = batch_pieces.whole_pieces(file, file_columns, start, end, tail)
        if whole is not None:
            return [
                (leaf_id, piece)
                for leaf_id, column in zip(file_columns.leaf_ids, whole, strict=True)
                for piece in column
            ]
    wanted, piece_bytes = file.view(file_columns, keep=keep).columns, _piece_bytes(context)
    if file.version == V0_1:
        columns = batch_pieces.batch_pieces(file, wanted, start, end, tail, piece_bytes, borders)
    elif borders is None and (pieces := _only_pages(file, wanted, start, end, tail, piece_bytes)) is not None:
        return list(zip(file_columns.leaf_ids, pieces, strict=True))
    else:
        columns = yield from column_pieces(file, wanted, start, end, tail, piece_bytes, context.cache, borders)
    return [
        (leaf_id, piece) for leaf_id, column in zip(file_columns.leaf_ids, columns, strict=True) for piece in column
    ]


def _only_pages(
    file: TableFile, columns: Sequence[Column], row_start: int, row_end: int, tail: Tail | None, piece_bytes: int
) -> list[Piece] | None:
    """The pieces of all rows of a file whose columns have one page each, from facts that an earlier scan has kept.

    None for other files and rows, and if a page is to be cut or no scan has measured it: `column_pieces` then decides.
    """
    if row_start or not 0 < row_end == file.num_rows:
        return None
    pieces = []
    for column in columns:
        page = column.only_page
        if page is None or page.num_bytes > 2 * piece_bytes:
            return None
        sizes = page.bound, page.expected_bytes
        pieces.append(Piece(file, column, 0, 0, row_end, page.num_bytes, tail, True, None, None, *sizes))
    return pieces


def in_row_order(pieces: list[tuple[int, Piece]]) -> list[tuple[int, Piece]]:
    """Sort pieces, with their leaf ids, into the order in which batches need them."""
    starts = [piece.row_start for _, piece in pieces]
    if starts == sorted(starts):  # fast path: such as one page of each column
        return pieces
    return sorted(pieces, key=lambda item: item[1].row_start)


def group_bytes(num_cpus: int) -> int:
    """Bytes of a file to read and decode in one job: more on one CPU, where no other thread shares the work."""
    return limits.SCAN_JOB_BYTES if num_cpus == 1 else limits.SCAN_GROUP_BYTES
