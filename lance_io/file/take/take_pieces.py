"""Takes of many bytes, piece by piece: rows are cut by what they take once they are decoded.

    files open, indexes there   as for any take, once for all pieces
    first piece                 as many rows as pages let expect (`FileView.row_bytes`): mostly all of them
    each other one              as many as the sizes of those before it let expect, a data round each
    rows that become too much   are given up where that shows, before they are decoded or after some of them; then one
                                row is read, and up to eight times as many with each piece

So a take of little costs what it did, and one of much holds a piece beside what it has given. Frames of values that
compress well say their size, but only once they are fetched: such a take costs a data round more.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from lance_io._kernels import PieceTooLargeError
from lance_io.encodings.decode_room import DecodeRoom
from lance_io.file.take.take_files import FileTake, prepare_files, read_prepared
from lance_io.levels.arrays import memory_bytes
from lance_io.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.file.file_steps import FilesSteps
    from lance_io.file.open.file_source import FragmentSource, ReadContext
    from lance_io.file.open.leaf_projection import Projection
    from lance_io.file.take.take_files import Items, Taken
    from lance_io.levels.layout import BatchLayout
    from lance_io.spans import IntArray

    Pick = tuple[FragmentSource, IntArray]

ANY_BYTES: Final = sys.maxsize
WHOLE_BYTES: Final = 40 * MIB  # of values that are one piece: decoded, joined and ordered they are there three times
PIECE_BYTES: Final = 16 * MIB  # of each piece of more: reading so many at once is about as fast as it gets
_GROWTH: Final = 8  # rows turned out smaller than expected: so much larger pieces at most
_SURPRISE: Final = 1.2  # of `WHOLE_BYTES`: what several rows may become that were expected to be less


class PiecewiseTake:
    """A take whose pieces are asked for one after the other. Parameters as for `take_files.take`.

    piece_bytes  that a piece has about, but for one row that is larger; None for all rows where these are not many,
                 `ANY_BYTES` for all rows in any case
    items        of the rows of each pick, where not all of them is wanted: see `prepare_files`
    """

    def __init__(
        self,
        context: ReadContext,
        projection: Projection,
        picks: Sequence[Pick],
        layout: BatchLayout | None = None,
        piece_bytes: int | None = None,
        items: Sequence[Items] | None = None,
    ) -> None:
        self._context = context
        self._projection = projection
        self._picks = picks
        self._layout = layout
        self._piece_bytes = piece_bytes
        self._items = items
        self._by_pick: list[list[FileTake]] | None = None
        self._at = 0  # the pick whose rows are next
        self._start = 0  # of these
        self._scale = 1.0  # of what rows take to what was expected
        self._num_rows_max: int | None = None  # of the next piece

    @property
    def is_done(self) -> bool:
        """Whether all rows were given."""
        return self._at == len(self._picks)

    def _expected_bytes(self) -> float:
        """Of all rows, about."""
        return sum([len(file.rows) * file.row_bytes for files in self._by_pick or () for file in files])

    def next(self) -> FilesSteps[tuple[list[Pick], Taken]]:
        """The next rows, some of those picked, in their order; and their fields."""
        if self._by_pick is None:
            self._by_pick = yield from prepare_files(self._context, self._projection, self._picks, self._items)
            if self._piece_bytes is None and self._expected_bytes() > WHOLE_BYTES:
                self._piece_bytes = PIECE_BYTES
        while True:
            start = self._at, self._start
            try:
                return (yield from (self._all_rows() if self._piece_bytes is None else self._some_rows()))
            except PieceTooLargeError:
                self._piece_bytes = PIECE_BYTES
                self._at, self._start = start
                self._num_rows_max = 1  # which may be of any size

    def _read(self, by_pick: list[list[FileTake]], num_rows: list[int]) -> FilesSteps[Taken]:
        is_bounded = sum(num_rows) > 1 and self._piece_bytes != ANY_BYTES and not self._projection.has_width
        room = DecodeRoom(int(_SURPRISE * WHOLE_BYTES)) if is_bounded else None
        return read_prepared(self._context, self._projection, by_pick, num_rows, self._layout, room)

    def _all_rows(self) -> FilesSteps[tuple[list[Pick], Taken]]:
        assert self._by_pick is not None, "files are open"
        taken = yield from self._read(self._by_pick, [len(rows) for _, rows in self._picks])
        self._at = len(self._picks)
        return list(self._picks), taken

    def _some_rows(self) -> FilesSteps[tuple[list[Pick], Taken]]:
        assert self._by_pick is not None, "files are open"
        assert self._piece_bytes is not None, "else the first piece was all"
        parts: list[list[FileTake]] = []
        counts: list[int] = []
        picks: list[Pick] = []
        expected_bytes = 0.0
        rows_left = sys.maxsize if self._num_rows_max is None else self._num_rows_max
        while not self.is_done and rows_left:
            source, rows = self._picks[self._at]
            files = self._by_pick[self._at]
            left = min(len(rows) - self._start, rows_left)
            row_bytes = self._scale * sum([file.row_bytes for file in files])
            room = self._piece_bytes - expected_bytes
            count = left if left * row_bytes <= room else int(room / row_bytes)
            if not count and counts:
                break
            start, end = self._start, self._start + max(1, count)
            is_all = end - start == len(rows)
            parts.append(files if is_all else [file.part(start, end) for file in files])
            picks.append((source, rows if is_all else rows[start:end]))
            counts.append(end - start)
            expected_bytes += (end - start) * row_bytes
            rows_left -= end - start
            self._start = end
            if end < len(rows):
                break
            self._at, self._start = self._at + 1, 0
        taken = yield from self._read(parts, counts)
        if not self.is_done:
            self._saw(taken, expected_bytes)
        return picks, taken

    def _saw(self, taken: Taken, expected_bytes: float) -> None:
        """Expect of the next piece what this one has come to."""
        if self._num_rows_max is not None:
            self._num_rows_max = min(_GROWTH * self._num_rows_max, sys.maxsize)
        if expected_bytes:
            arrays = taken if isinstance(taken, list) else taken.columns
            ratio = max(1.0, sum(map(memory_bytes, arrays))) / expected_bytes
            self._scale *= max(1 / _GROWTH, ratio)
