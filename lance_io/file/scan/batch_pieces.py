"""The pieces of a scan of a file of version 0.1: runs of its batches, the same rows in all columns.

The pages of a batch lie side by side, and those of the next one behind them. So pieces of all columns that begin and
end with the same batches are one large read, and each of them is decoded by one kernel call, however many they are.

Small files, which are at hand as a whole once they are open, are decoded by one kernel call for all of a job.
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
    """A column that many files have, as pieces of all of its rows know it.

    where  the column, for messages
    pages  the one that says how it is decoded
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
        """See `WholeFiles`: one kernel call; what that refuses is read in general, which says what is wrong."""
        wanted: list[Any] = []
        for group, fetched in files:
            file = cast("BatchedFile", group[0].file)
            table = file.page_table
            place = int(fetched.offsets[0]), file.size_bytes
            one = (fetched.buffer, *place, file.metadata.row_starts, table.data)
            wanted.append((one, table.first_id, [piece.page for piece in group]))
        arrays: list[pa.Array] = []
        for (group, fetched), found in zip(files, decode_files(wanted), strict=True):
            arrays += _one_by_one(group, fetched) if found is None else found
        return arrays


_WHOLE_FILES: Final = _WholeBatchedFiles()


@dataclass(slots=True, eq=False)
class WholePiece(Piece):
    """All rows of a column of a file that is at hand as a whole; `here` says which file, `at` which of its columns."""

    here: FileColumns | None = None
    at: int = 0

    @property
    def bound(self) -> int:
        """See `Piece`: nothing is compressed."""
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
        """Decode it by itself: all bytes are at hand."""
        assert self.tail is not None, "the file was read to open it"
        yield from ()  # no round; it makes this a generator, which `Piece` asks for
        (array,) = _WHOLE_FILES.decode_groups([([self], Fetched(self.tail.buffer, np.zeros(1, dtype=np.int64)))])
        return array


def whole_pieces(
    file: TableFile, here: FileColumns, row_start: int, row_end: int, tail: Tail | None
) -> list[list[Piece]] | None:
    """The pieces of all rows of a file of which the tail is all; None for others, and for columns of another kind."""
    if tail is None or tail.start or row_start or row_end != file.num_rows or not 0 < row_end <= SCAN_JOB_ROWS:
        return None
    columns = _whole_columns(here.of_leaves)
    if not columns or not cast("BatchedFile", file).has_ids(here.ref):
        return None
    num_bytes = file.size_bytes // len(columns)
    return [
        [WholePiece(file, cast("Column", column), 0, 0, row_end, num_bytes, tail, True, here=here, at=at)]
        for at, column in enumerate(columns)
    ]


def _whole_columns(of_leaves: LeafColumns) -> Sequence[_WholeColumn]:
    """Empty where some are of another kind."""
    found: Sequence[_WholeColumn] | None = of_leaves.made.get("0.1")
    if found is None:
        leaves = [WholeLeaf.of(path) for path in of_leaves.paths]
        columns = zip(of_leaves.columns, of_leaves.paths, leaves, strict=True)
        made = [_WholeColumn(index, path, leaf) for index, path, leaf in columns if leaf is not None]
        found = of_leaves.made["0.1"] = made if len(made) == len(leaves) else ()
    return found


def _one_by_one(group: Sequence[Piece], fetched: Fetched) -> list[pa.Array]:
    """What the kernel refuses: read in general, which says what is wrong."""
    file = group[0].file
    tail = Tail(0, fetched.piece(0, file.size_bytes))
    arrays = []
    for piece in group:
        assert isinstance(piece, WholePiece)
        assert piece.here is not None
        column = file.view(piece.here).columns[piece.at]
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
    """The pieces of some columns that hold rows `row_start` to `row_end`, in row order; `column_pieces` has the rest.

    piece_bytes  of all columns together; where that is less than a batch, it is cut
    borders      where else, at the borders of batches behind: see `column_pieces`
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
