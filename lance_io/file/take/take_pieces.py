"""Large takes, piece by piece: rows are split by their estimated decoded size.

    open files, load indexes   as for any take, once for all pieces
    first piece                as many rows as the page estimate allows (`FileView.row_bytes`): mostly all of them
    further pieces             as many rows as the sizes of earlier pieces allow, one data round each
    too large a piece          is dropped as soon as its size shows, before or during decoding; then one row is read,
                               and up to eight times as many with each further piece

So small takes have no overhead, and a large take holds one piece besides its results. Compressed frames announce the
size of their values, but only once they are fetched: a piece that turns out too large costs one more data round.
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
WHOLE_BYTES: Final = 40 * MIB  # takes up to this size are one piece: decoding, joining and ordering hold three copies
PIECE_BYTES: Final = 16 * MIB  # per piece of larger takes: more bytes at once raise the throughput only little
_GROWTH: Final = 8  # the next piece has at most this many times the rows, after rows smaller than expected
_TOLERANCE: Final = 1.2  # times `WHOLE_BYTES`: limit for several rows that were expected to be smaller


class PiecewiseTake:
    """A take that reads piece after piece. Parameters as for `take_files.take`.

    piece_bytes  approximate bytes of a piece, exceeded only by a single larger row; None for one piece if the take is
                 small, `ANY_BYTES` for one piece of any size
    items        list items of the rows of each pick, None for whole rows: see `prepare_files`
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
        self._counts = [len(rows) for _, rows in picks]
        self._layout = layout
        self._piece_bytes = piece_bytes
        self._items = items
        self._by_pick: list[list[FileTake]] | None = None
        self._at = 0  # index of the next pick
        self._start = 0  # its next row
        self._scale = 1.0  # ratio of actual to expected bytes of rows
        self._num_rows_max: int | None = None  # of the next piece

    @property
    def is_done(self) -> bool:
        """Whether all rows have been read."""
        return self._at == len(self._picks)

    def _expected_bytes(self) -> float:
        """Approximate bytes of all rows."""
        num_bytes = 0.0
        for files, count in zip(self._by_pick or (), self._counts, strict=True):
            for file in files:
                num_bytes += count * file.row_bytes
        return num_bytes

    def next(self) -> FilesSteps[tuple[int, list[Pick], Taken]]:
        """The next piece: its number of rows, its picks, in order, and their fields."""
        if self._by_pick is None:
            self._by_pick = yield from prepare_files(self._context, self._projection, self._picks, self._items)
            if self._piece_bytes is None and self._expected_bytes() > WHOLE_BYTES:
                self._piece_bytes = PIECE_BYTES
        while True:
            start = self._at, self._start
            try:
                if self._piece_bytes is not None:
                    return (yield from self._some_rows())
                num_rows = sum(self._counts)
                taken = yield from self._read(self._by_pick, self._counts, num_rows)
                self._at = len(self._picks)
                return num_rows, list(self._picks), taken
            except PieceTooLargeError:
                self._piece_bytes = PIECE_BYTES
                self._at, self._start = start
                self._num_rows_max = 1  # a single row may have any size

    def _read(self, by_pick: list[list[FileTake]], counts: list[int], num_rows: int) -> FilesSteps[Taken]:
        is_bounded = num_rows > 1 and self._piece_bytes != ANY_BYTES and not self._projection.has_width
        room = DecodeRoom(int(_TOLERANCE * WHOLE_BYTES)) if is_bounded else None
        return read_prepared(self._context, self._projection, by_pick, counts, self._layout, room)

    def _some_rows(self) -> FilesSteps[tuple[int, list[Pick], Taken]]:
        assert self._by_pick is not None, "files are open"
        assert self._piece_bytes is not None, "otherwise the first piece has all rows"
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
        num_rows = sum(counts)
        taken = yield from self._read(parts, counts, num_rows)
        if not self.is_done:
            self._update_estimate(taken, expected_bytes)
        return num_rows, picks, taken

    def _update_estimate(self, taken: Taken, expected_bytes: float) -> None:
        """Scale the estimate for the next piece by the actual size of this one."""
        if self._num_rows_max is not None:
            self._num_rows_max = min(_GROWTH * self._num_rows_max, sys.maxsize)
        if expected_bytes:
            arrays = taken if isinstance(taken, list) else taken.columns
            ratio = max(1.0, sum(map(memory_bytes, arrays))) / expected_bytes
            self._scale *= max(1 / _GROWTH, ratio)
