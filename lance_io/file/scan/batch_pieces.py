"""Pieces of a scan of a file of version 0.1: runs of its batches, the same rows in all columns.

The pages of a batch lie side by side, followed by those of the next batch. So pieces of all columns with the same
batches are one large read, and one kernel call decodes each piece, regardless of its number of batches.

Opening a small file reads all of it; one kernel call decodes all such files of a job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from lance_io.encodings.v0_1.whole_leaf import WholeLeaf, decode_files
from lance_io.errors import FormatError
from lance_io.file.file_steps import Tail
from lance_io.file.open.column_pages import where
from lance_io.file.scan.page_slices import Piece, WholeFiles
from lance_io.limits import SCAN_JOB_BYTES, SCAN_JOB_ROWS
from lance_io.spans import Fetched

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_io.file.open.batched_file import BatchedFile
    from lance_io.file.open.column_pages import Column
    from lance_io.file.open.leaf_projection import FileColumns, LeafColumns
    from lance_io.file.open.projected_pages import TableFile
    from lance_io.file.scan.decoded_parts import Allowance
    from lance_io.file.scan.slow_start import Borders
    from lance_io.levels.path import LeafPath
    from lance_io.spans import IntArray, Steps


# -- all of small files ----------------------------------------------------------------------------------------------


class _WholeColumn:
    """A column that many files share, for pieces of all of its rows.

    where  name of the column for error messages
    pages  its only page, which defines the decoding
    """

    __slots__ = ("index", "leaf", "pages", "path", "where")

    def __init__(self, index: int, path: LeafPath, leaf: WholeLeaf) -> None:
        self.index = index
        self.path = path
        self.leaf = leaf
        self.pages = (leaf,)
        self.where = where(index, path)


class _WholeBatchedFiles(WholeFiles):
    """Files of version 0.1."""

    def decode_groups(self, files: Sequence[tuple[Sequence[Piece], Fetched]]) -> list[pa.Array]:
        """See `WholeFiles`: one kernel call. A file that it refuses falls back to the general reader for the error."""
        wanted: list[Any] = []
        for group, fetched in files:
            file = cast("BatchedFile", group[0].file)
            table = file.page_table
            location = int(fetched.offsets[0]), file.size_bytes
            described = (fetched.buffer, *location, file.metadata.row_starts, table.data)
            wanted.append((described, table.first_id, [piece.page for piece in group]))
        arrays: list[pa.Array] = []
        for (group, fetched), decoded in zip(files, decode_files(wanted), strict=True):
            arrays += _decode_one_by_one(group, fetched) if decoded is None else decoded
        return arrays


_WHOLE_FILES: Final = _WholeBatchedFiles()


@dataclass(slots=True, eq=False)
class WholePiece(Piece):
    """All rows of a column of a file that has been read whole: column `at` of `file_columns`."""

    file_columns: FileColumns | None = None
    at: int = 0

    @property
    def bound(self) -> int:
        """See `Piece`; values are not compressed."""
        return self.num_bytes + 8 * (self.row_end - self.row_start)

    @property
    def expected_bytes(self) -> int:
        """See `Piece`."""
        return self.bound

    @property
    def joined_kind(self) -> WholeFiles:
        """See `Piece`."""
        return _WHOLE_FILES

    def steps(self, allowance: Allowance | None = None) -> Steps[pa.Array]:
        """Decode the piece alone: all bytes are in the tail."""
        assert self.tail is not None, "opening the file has read all of it"
        yield from ()  # no round; makes this a generator, as `Piece` requires
        (array,) = _WHOLE_FILES.decode_groups([([self], Fetched(self.tail.buffer, np.zeros(1, dtype=np.int64)))])
        return array


def whole_pieces(
    file: TableFile, file_columns: FileColumns, row_start: int, row_end: int, tail: Tail | None
) -> list[list[Piece]] | None:
    """The pieces of all rows of a file whose tail is the whole file; None for other files and unsupported columns."""
    if tail is None or tail.start or row_start or row_end != file.num_rows or not 0 < row_end <= SCAN_JOB_ROWS:
        return None
    columns = _whole_columns(file_columns.leaf_columns)
    if not columns or not cast("BatchedFile", file).has_ids(file_columns.ref):
        return None
    num_bytes = file.size_bytes // len(columns)
    return [
        [
            WholePiece(
                file, cast("Column", column), 0, 0, row_end, num_bytes, tail, True, file_columns=file_columns, at=at
            )
        ]
        for at, column in enumerate(columns)
    ]


def _whole_columns(leaf_columns: LeafColumns) -> Sequence[_WholeColumn]:
    """The columns of these leaves; empty if any column is unsupported."""
    columns: Sequence[_WholeColumn] | None = leaf_columns.derived.get("0.1")
    if columns is None:
        leaves = [WholeLeaf.of(path) for path in leaf_columns.paths]
        parts = zip(leaf_columns.columns, leaf_columns.paths, leaves, strict=True)
        supported = [_WholeColumn(index, path, leaf) for index, path, leaf in parts if leaf is not None]
        columns = leaf_columns.derived["0.1"] = supported if len(supported) == len(leaves) else ()
    return columns


def _decode_one_by_one(group: Sequence[Piece], fetched: Fetched) -> list[pa.Array]:
    """Fallback for files that the kernel refuses: decode piece by piece, which raises the precise error."""
    file = group[0].file
    tail = Tail(0, fetched.piece(0, file.size_bytes))
    arrays = []
    for piece in group:
        assert isinstance(piece, WholePiece)
        assert piece.file_columns is not None
        column = file.view(piece.file_columns).columns[piece.at]
        steps = Piece(file, column, 0, 0, file.num_rows, piece.num_bytes, tail, True).steps()
        try:
            next(steps)
        except StopIteration as done:
            arrays.append(done.value)
        else:
            raise AssertionError("the tail has all bytes of the file")
    return arrays


# -- runs of batches -------------------------------------------------------------------------------------------------


def batch_pieces(
    file: TableFile,
    columns: Sequence[Column],
    row_start: int,
    row_end: int,
    tail: Tail | None,
    piece_bytes: int,
    borders: Borders | None = None,
) -> list[list[Piece]]:
    """The pieces of columns with rows `row_start` to `row_end`, in row order; see `column_pieces`.

    piece_bytes  target size over all columns; larger batches are cut
    borders      further rows to cut at, moved to the next batch border: see `column_pieces`
    """
    if row_end > file.num_rows:
        raise FormatError(f"rows up to {row_end} wanted; the file has {file.num_rows}", path=file.key)
    if row_start >= row_end:
        return [[] for _ in columns]
    leaves: list[Any] = [column.pages[0] for column in columns]
    row_starts = leaves[0].row_starts
    sizes = [leaf.batch_bytes for leaf in leaves]
    cuts = _cuts(row_starts, np.sum(sizes, axis=0), row_start, row_end, min(piece_bytes, SCAN_JOB_BYTES))
    if borders is not None:
        num_bytes = int(np.sum(sizes)) * (row_end - row_start) // max(1, file.num_rows)
        wanted = row_starts[np.searchsorted(row_starts, borders.rows(row_start, row_end, num_bytes))]
        cuts = np.union1d(cuts, wanted[wanted < row_end])
    is_whole = cuts.tolist() == [0, file.num_rows]  # the usual case for small files
    by_column = []
    for column, batch_bytes in zip(columns, sizes, strict=True):
        if is_whole:
            by_column.append([Piece(file, column, 0, 0, file.num_rows, int(batch_bytes.sum()), tail, True)])
            continue
        bytes_before = np.interp(cuts, row_starts, np.append(0, np.cumsum(batch_bytes))).astype(np.int64)
        by_column.append(
            [
                Piece(file, column, 0, start, end, size, tail, end - start == file.num_rows)
                for start, end, size in zip(
                    cuts[:-1].tolist(), cuts[1:].tolist(), np.diff(bytes_before).tolist(), strict=True
                )
            ]
        )
    return by_column


def _cuts(row_starts: IntArray, batch_bytes: IntArray, start: int, end: int, piece_bytes: int) -> IntArray:
    """First row of each piece and end of the last: batch borders, and rows inside large batches."""
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
