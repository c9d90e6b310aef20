"""The pieces of a scan of a file of version 0.1: runs of its batches, the same rows in all columns.

The pages of a batch lie side by side, and those of the next one behind them. So pieces of all columns that begin and
end with the same batches are one large read, and each of them is decoded by one kernel call, however many they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lance_io.errors import FormatError
from lance_io.file.scan.page_slices import Piece
from lance_io.limits import SCAN_JOB_BYTES, SCAN_JOB_ROWS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.file.file_steps import Tail
    from lance_io.file.open.column_pages import Column
    from lance_io.file.open.projected_pages import TableFile
    from lance_io.spans import IntArray


def batch_pieces(
    file: TableFile, columns: Sequence[Column], row_start: int, row_end: int, tail: Tail | None, piece_bytes: int
) -> list[list[Piece]]:
    """The pieces of some columns that hold rows `row_start` to `row_end`, in row order; `column_pieces` has the rest.

    piece_bytes  of all columns together; where that is less than a batch, it is cut
    """
    if row_end > file.num_rows:
        raise FormatError(f"rows up to {row_end} wanted; the file has {file.num_rows}", path=file.key)
    if row_start >= row_end:
        return [[] for _ in columns]
    leaves: list[Any] = [column.pages[0] for column in columns]
    row_starts = leaves[0].row_starts
    sizes = [leaf.batch_bytes for leaf in leaves]
    cuts = _cuts(row_starts, np.sum(sizes, axis=0), row_start, row_end, min(piece_bytes, SCAN_JOB_BYTES))
    is_whole = cuts.tolist() == [0, file.num_rows]  # of many small files, most are
    found = []
    for column, of_column in zip(columns, sizes, strict=True):
        if is_whole:
            found.append([Piece(file, column, 0, 0, file.num_rows, int(of_column.sum()), tail, True)])
            continue
        bytes_before = np.interp(cuts, row_starts, np.append(0, np.cumsum(of_column))).astype(np.int64)
        found.append(
            [
                Piece(file, column, 0, start, end, size, tail, end - start == file.num_rows)
                for start, end, size in zip(
                    cuts[:-1].tolist(), cuts[1:].tolist(), np.diff(bytes_before).tolist(), strict=True
                )
            ]
        )
    return found


def _cuts(row_starts: IntArray, batch_bytes: IntArray, start: int, end: int, piece_bytes: int) -> IntArray:
    """Rows at which pieces begin, and where the last ends: borders of batches, and others in those that are large."""
    before = np.append(0, np.cumsum(batch_bytes))
    low, high = np.interp([start, end], row_starts, before)
    count = max(1, int((high - low) / max(1, piece_bytes)), (end - start) // SCAN_JOB_ROWS)
    if count == 1:
        return np.array([start, end], dtype=np.int64)
    targets = np.interp(low + (high - low) * np.arange(1, count) / count, before, row_starts).astype(np.int64)
    nearest = row_starts[np.searchsorted(row_starts, targets).clip(0, len(row_starts) - 1)]
    at = np.searchsorted(row_starts, targets, side="right") - 1
    is_large = batch_bytes[at.clip(0, len(batch_bytes) - 1)] > 2 * piece_bytes
    cuts: IntArray = np.unique(np.concatenate(([start], np.where(is_large, targets, nearest), [end])))
    return cuts[(cuts >= start) & (cuts <= end)]
