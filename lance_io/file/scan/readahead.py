"""Scans: pages read and decoded ahead, batches cut from them in row order.

    spans -> files opened -> pieces (a page of a leaf column each), ordered by first row -> read and decoded ahead on
    the CPU pool -> one queue of arrays per leaf -> batches

    here        what both drivers begin with: the pieces of a file, and how far to go ahead
    scan_sync    the driver in the caller's thread
    scan_async  the driver on the engine's loop; which runs several for scans without order
    batches     what is made of decoded pieces

A batch over decoded pages is a slice; rows are copied only where a batch crosses the border of two pages. Memory is
bounded twice. At most `Readahead.pieces` are decoded before they are needed, so what is decoded is one page per leaf
column and those. What is read and not yet decoded is held to `io_buffer_bytes`: only the piece that the consumer waits
for may go over it. A consumer that stops asking thus stops the reading.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lance_io import limits
from lance_io.file.open.open_file import open_cached
from lance_io.file.scan.page_slices import column_pieces
from lance_io.file.scan.slow_start import SlowStart
from lance_io.format.version import V0_1
from lance_io.lazy_names import later

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.file.file_steps import FileSteps
    from lance_io.file.open.file_source import FragmentSource, ReadContext
    from lance_io.file.open.leaf_projection import FileColumns
    from lance_io.file.scan import batch_pieces
    from lance_io.file.scan.page_slices import Piece
    from lance_io.file.scan.read_gate import ReadGate
    from lance_io.file.scan.slow_start import Borders, Pace
    from lance_io.io.scheduler import Merge
    from lance_io.store.profile import StoreProfile

    Span = tuple[FragmentSource, int, int]
else:
    batch_pieces = later("lance_io.file.scan.batch_pieces")  # with all that reads 0.1, which few tables need

PIECES_AHEAD: Final = 2 * (os.cpu_count() or 1)  # keeps every core busy while the consumer looks at a batch
SPANS_AHEAD: Final = 8  # fragments begun ahead on the engine's loop, as far as pieces and budget go
KEPT_FILES_MAX: Final = 4096  # a scan of more files keeps only their metadata: the collector visits all that is kept
SPANS_AHEAD_MAX: Final = 64  # and of those whose files all fit what may be read ahead


@dataclass(frozen=True, slots=True)
class Readahead:
    """How far a scan goes ahead of its consumer, at least 1 each.

    pieces  decoded before they are needed, or jobs of small ones
    spans   begun behind the one that the consumer is in; None for as many as the driver sees fit
    is_asked_for  the caller gave `pieces`: small ones then do not share jobs, so that their number is what was asked
    first_rows    of the first batch, of a scan that begins with that; None for one that goes ahead at once
    gate          bounds the scan instead
    merge         which gaps are read over on stores that are waited for: those of a take, where others may be wanted
    """

    pieces: int = PIECES_AHEAD
    spans: int | None = None
    is_asked_for: bool = False
    first_rows: int | None = None
    gate: ReadGate | None = None
    merge: Merge = "scan"

    def pace(self, spans: Sequence[Span], profile: StoreProfile) -> Pace | None:
        """How far a scan of these spans may go ahead; None as far as the other bounds allow."""
        if self.gate is not None:
            return self.gate
        return None if self.first_rows is None else SlowStart(spans, self.first_rows, profile)

    @property
    def spans_on_loop(self) -> int:
        """Spans begun by drivers that wait for their bytes."""
        return self.spans or SPANS_AHEAD


DEFAULT_READAHEAD: Final = Readahead()


def readahead(
    pieces: int | None,
    spans: int | None,
    first_rows: int | None = None,
    gate: ReadGate | None = None,
    merge: Merge = "scan",
) -> Readahead:
    """What was asked for, and defaults for the rest."""
    return Readahead(
        pieces or PIECES_AHEAD,
        spans or None,
        is_asked_for=pieces is not None,
        first_rows=first_rows,
        gate=gate,
        merge=merge,
    )


def _piece_bytes(context: ReadContext) -> int:
    """Above which size pages are cut: the less there is left of what may be held, the smaller pieces are.

    Every open scan holds a piece of each column, whether anybody advances it or not. As long as half is free, they are
    as large as they get; then they shrink fast, so that hundreds of scans come near the bound and hardly over it. On
    stores that are waited for a read is never much shorter than the gaps that scans read over.
    """
    pool = context.pool
    share = min(1.0, 2 * max(0, pool.avail_bytes) / max(1, pool.capacity_bytes))
    least = max(limits.SCAN_PIECE_BYTES_MIN, context.store.profile.scan_gap_bytes // 4)
    return min(limits.SCAN_PIECE_BYTES, max(least, int(limits.SCAN_PIECE_BYTES * share**4)))


def file_pieces(
    context: ReadContext,
    here: FileColumns,
    span: Span,
    *,
    keep: bool = True,
    borders: Borders | None = None,
) -> FileSteps[list[tuple[int, Piece]]]:
    """The pieces of one file, each with its leaf's field id.

    keep     whether columns and pages are remembered with the file, for who reads it next
    borders  where large pieces are cut, too, of a scan that begins with few rows; see `SlowStart`
    """
    source, start, end = span
    is_whole = end - start == source.num_rows and len(here.columns) == len(here.ref.columns)
    file, tail = yield from open_cached(context, here.ref, here.columns, is_whole=is_whole)
    if file.version == V0_1:
        whole = batch_pieces.whole_pieces(file, here, start, end, tail)
        if whole is not None:
            return [(leaf_id, piece) for leaf_id, column in zip(here.leaf_ids, whole, strict=True) for piece in column]
    wanted, piece_bytes = file.view(here, keep=keep).columns, _piece_bytes(context)
    if file.version == V0_1:
        columns = batch_pieces.batch_pieces(file, wanted, start, end, tail, piece_bytes, borders)
    else:
        columns = yield from column_pieces(file, wanted, start, end, tail, piece_bytes, context.cache, borders)
    return [(leaf_id, piece) for leaf_id, column in zip(here.leaf_ids, columns, strict=True) for piece in column]


def in_row_order(found: list[tuple[int, Piece]]) -> list[tuple[int, Piece]]:
    """Pieces in the order in which batches need them."""
    return sorted(found, key=lambda one: one[1].row_start)


def group_bytes(num_cpus: int) -> int:
    """How much of a file is read and decoded in one go: more where no other thread could take a part of it."""
    return limits.SCAN_JOB_BYTES if num_cpus == 1 else limits.SCAN_GROUP_BYTES
