"""Pieces: the units that a scan reads and decodes, one page or a part of a page each.

Pages are read whole, in one round and without caching, even if a few rows are not wanted. A page larger than twice
`SCAN_PIECE_BYTES` is cut into pieces of about that size, so that memory stays bounded for any page size. Pieces are
smaller when the process's memory budget is full, because every scan holds a piece of each column. The index of such a
page comes from the search cache, or is read once before the first piece and cached, as for takes. Pieces of one page
read disjoint bytes (one exception: `encodings/cuts.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io import limits
from lance_io._kernels import DamagedError
from lance_io.encodings.api import ArrayLayout, RowSelection
from lance_io.encodings.cuts import cut_page
from lance_io.encodings.decoded_size import (
    FSST_GROWTH,
    can_measure,
    decoded_bound,
    dictionary_bound,
    has_packed_dictionary,
    read_measured,
    scan_fetched,
)
from lance_io.encodings.rounds import fetch, together
from lance_io.encodings.v2_1 import miniblock
from lance_io.encodings.v2_1.constant import NullPage
from lance_io.encodings.v2_1.fullzip import FullZipPage
from lance_io.encodings.v2_1.miniblock import MiniBlockPage
from lance_io.encodings.v2_1.page import damage_error
from lance_io.encodings.v2_2 import constant
from lance_io.encodings.v2_2.constant import ConstantPage
from lance_io.errors import FormatError
from lance_io.file.file_steps import Tail, serve_from_tail, side_by_side
from lance_io.file.open.column_pages import OnlyPage
from lance_io.file.scan.decoded_parts import Allowance, DeferredParts
from lance_io.file.scan.slow_start import FINE_BYTES_MIN, NOWHERE
from lance_io.format.error_context import FILE_ERRORS, FileError, add_location, add_row_location
from lance_io.format.version import V0_1, V2_0
from lance_io.levels.row_bytes import fixed_bits
from lance_io.spans import Fetched, Ranges

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lance_io.encodings.api import PageIndex, PageLayout
    from lance_io.encodings.decoded_size import MeasuredPage
    from lance_io.file.file_steps import FilesSteps, FileSteps
    from lance_io.file.open.column_pages import Column
    from lance_io.file.open.projected_pages import TableFile
    from lance_io.file.scan.slow_start import Borders
    from lance_io.io.cache import SearchCache
    from lance_io.spans import Steps
TEXT_BYTES_MORE: Final = 64  # overhead of a value in a page of one value, besides its bytes
CONSTANT_PIECES_MAX: Final = 64  # pieces per page of constants; larger pieces are decoded in parts
NEARLY_ALL: Final = 7 / 8  # from this share of the rows on, reading the whole page beats a round for its index


@dataclass(slots=True, eq=False)
class Piece:
    """Unit of a scan: rows of one page.

    row_start, row_end  rows of the file
    num_bytes           approximate bytes to read
    tail                end of the file, which serves the ranges inside it
    is_whole            whether the piece is the whole page
    index               index of a page that was cut; None to read it if needed
    known_bytes         `expected_bytes`, -1 until they are computed
    part_rows           for a page of constants: rows to decode at once, fewer than the piece has; 0 for all
    """

    file: TableFile
    column: Column
    number: int
    row_start: int
    row_end: int
    num_bytes: int
    tail: Tail | None
    is_whole: bool
    index: PageIndex | None = None
    _page: PageLayout | None = None
    _bound: int | None = -1
    known_bytes: int = -1
    part_rows: int = 0

    @property
    def bound(self) -> int | None:
        """Upper bound of its decoded bytes; None if it depends on the bytes of the page."""
        if self._bound == -1:
            start, end = self.slots
            self._bound = decoded_bound(self.page, end - start, self.num_bytes)
        return self._bound

    def expect(self, growth: float) -> None:
        """Lower the estimate of its decoded bytes to this many for each stored byte."""
        self.known_bytes = max(self.num_bytes, min(self.expected_bytes, int(growth * self.num_bytes)))

    @property
    def expected_bytes(self) -> int:
        """Estimate of its decoded bytes, which jobs count."""
        expected_bytes = self.known_bytes
        if expected_bytes < 0:
            bound = self.bound
            if bound is None:
                bound = limits.SCAN_GROWTH * self.num_bytes
            elif bound > FSST_GROWTH * self.num_bytes:  # hardly any text grows this much
                start, end = self.slots
                bound = decoded_bound(self.page, end - start, self.num_bytes, usual=True) or bound
            if self.part_rows:
                bound = min(bound, limits.SCAN_DECODED_BYTES)
            expected_bytes = self.known_bytes = max(self.num_bytes, bound)
            if self.is_whole and len(self.column.row_starts) == 2 and not self.is_constant:
                self.column.only_page = OnlyPage(self.num_bytes, self.bound, expected_bytes)
        return expected_bytes

    @property
    def page(self) -> PageLayout:
        """Layout of the page."""
        page = self._page
        if page is None:
            page = self._page = self.column.pages[self.number]
        return page

    @property
    def joined_kind(self) -> Any:
        """The module or object that decodes it together with others of its kind, see `_decode_joined`; or None."""
        if not self.is_whole or self.index is not None:
            return None
        page, bound = self.page, self.bound
        if (bound is None and not has_packed_dictionary(page)) or (bound or 0) > limits.SCAN_BOUND_BYTES:
            return None
        if type(page) is MiniBlockPage:
            return None if page.keeps_indices else miniblock
        if type(page) is ConstantPage:
            return constant if page.is_plain else None
        if not isinstance(page, ArrayLayout) or page.whole is None:
            return None
        from lance_io.encodings.v2_0 import whole  # imports the readers of 2.0, which new tables do not need

        return whole

    @property
    def slots(self) -> tuple[int, int]:
        """First and end slot in the page."""
        first, per_row = int(self.column.row_starts[self.number]), self.column.path.slots_per_row
        return (self.row_start - first) * per_row, (self.row_end - first) * per_row

    def steps(self, allowance: Allowance | None = None) -> Steps[Any]:
        """Read and decode it: one round, two for a smaller part of a page that was not cut and has an index.

        allowance  limit of the decoded bytes; None for no limit

        A piece that exceeds the allowance returns `DeferredParts`.
        """
        if allowance is not None and not self.part_rows and not self.is_to_measure:
            allowance.use(self.bound or 0)
            allowance = None
        if allowance is not None and self.part_rows:
            steps: Steps[Any] = self._read_constants()
        elif allowance is not None and self.is_to_measure:
            steps = self._measure(allowance)
        elif self.index is None and self.is_whole:
            steps = self.page.scan()
        elif self.index is None and self._wants_nearly_all and self.page.index_ranges() is not None:
            steps = self._scan_and_slice()
        else:
            steps = _read_span(self.page, self.index, *self.slots)
        try:
            return (yield from (steps if self.tail is None else serve_from_tail(self.tail, steps)))
        except FILE_ERRORS as error:
            raise self.locate(error) from error.__cause__

    @property
    def is_to_measure(self) -> bool:
        """Whether its decoded size must be measured from its bytes."""
        bound = self.bound
        return (bound is None or bound > limits.SCAN_BOUND_BYTES) and self._can_measure

    @property
    def _can_measure(self) -> bool:
        page = self.page
        return can_measure(page) and (self._wants_nearly_all or not isinstance(page, ArrayLayout))

    def _measure(self, allowance: Allowance) -> Steps[Any]:
        page, (start, end) = self.page, self.slots
        is_whole = self.is_whole or self._wants_nearly_all
        measured = yield from read_measured(page, self.index, start, end, is_whole=is_whole)
        at_hand = Tail(measured.start, measured.data)
        if allowance.grants(max(measured.num_bytes, self.num_bytes), self.expected_bytes):
            if self.is_whole and measured.whole is not None:
                return scan_fetched(page, measured.whole)
            index, _ = measured.find_parts()
            return (yield from serve_from_tail(at_hand, _read_span(page, index, start, end)))
        return DeferredParts(self._parts(measured, at_hand), len(measured.data))

    def _parts(self, measured: MeasuredPage, at_hand: Tail) -> Iterator[Piece]:
        per_row, first_row = self.column.path.slots_per_row, int(self.column.row_starts[self.number])
        index, parts = measured.find_parts()
        for low, high, bound in parts.cut(limits.SCAN_PART_BYTES, per_row):
            rows = first_row + low // per_row, first_row + high // per_row
            yield self._part(*rows, at_hand, index, bound)

    def _part(self, row_start: int, row_end: int, at_hand: Tail | None, index: PageIndex | None, bound: int) -> Piece:
        """A piece of some of its rows, whose bytes have been read."""
        return Piece(
            self.file, self.column, self.number, row_start, row_end, 0, at_hand, False, index, self.page, bound
        )

    @property
    def _wants_nearly_all(self) -> bool:
        starts = self.column.row_starts
        return self.row_end - self.row_start >= NEARLY_ALL * int(starts[self.number + 1] - starts[self.number])

    def _scan_and_slice(self) -> Steps[pa.Array]:
        array = yield from self.page.scan()
        first, end = self.column.row_starts[self.number : self.number + 2].tolist()
        if len(array) != end - first:
            raise FormatError(f"{len(array)} rows decoded; the page has {end - first}")
        return array.slice(self.row_start - first, self.row_end - self.row_start)

    def cut(self, piece_bytes: int, cache: SearchCache, borders: Borders | None = None) -> Steps[list[Piece]]:
        """Cut it into pieces; returns itself if it is small. One round if the page's index is not cached.

        borders  further rows to cut at
        """
        if self.is_constant:
            return self._cut_constant()
        wanted = NOWHERE if borders is None else borders.rows(self.row_start, self.row_end, self.num_bytes)
        fine_bytes = piece_bytes
        if len(wanted):
            share = self.num_bytes * (int(wanted[0]) - self.row_start) // (self.row_end - self.row_start)
            fine_bytes = min(piece_bytes, max(FINE_BYTES_MIN, share))
        elif self.num_bytes <= 2 * piece_bytes:
            return [self]
        page, key = self.page, self.column.keys[self.number]
        known = cache.get(key)
        try:
            cuts = yield from serve_from_tail(self.tail, cut_page(page, *self.slots, fine_bytes, known))
        except FILE_ERRORS as error:
            raise self.locate(error) from error.__cause__
        if known is None and cuts is not None and cuts.index is not None and page.index_ranges() is not None:
            cache.put(key, cuts.index, cuts.index.nbytes)
        if cuts is None:
            return [self]
        rows = cuts.slots // self.column.path.slots_per_row + int(self.column.row_starts[self.number])
        sizes = cuts.sizes
        if borders is not None and len(wanted):
            selected = borders.select(rows, sizes, wanted, piece_bytes)
            rows, sizes = rows[selected], np.add.reduceat(sizes, selected[:-1])
        return [
            Piece(self.file, self.column, self.number, start, end, size, self.tail, False, cuts.index)
            for start, end, size in zip(rows[:-1].tolist(), rows[1:].tolist(), sizes.tolist(), strict=True)
            if start < end
        ]

    @property
    def is_constant(self) -> bool:
        """Whether few stored bytes stand for more values than may be decoded at once."""
        if type(self.page) in (MiniBlockPage, FullZipPage):
            return False
        bits = fixed_bits(self.column.path.leaf_type)
        most_bytes = bits / 8 if bits is not None else self.column.pages.num_bytes(self.number) + TEXT_BYTES_MORE
        if (self.row_end - self.row_start) * most_bytes <= limits.SCAN_DECODED_BYTES:
            return False  # fast path: without looking at the page
        page = self.page
        if isinstance(page, NullPage):
            is_cut = len(page.source.buffer_sizes) <= 1  # no levels
        else:
            has_rows = isinstance(page, ArrayLayout) and getattr(page, "row_bits", None) is not None
            is_cut = has_rows and not self._can_measure
        return is_cut and (self.bound or 0) > max(limits.SCAN_DECODED_BYTES, 2 * self.num_bytes)

    def _cut_constant(self) -> list[Piece]:
        """Pieces of as many rows as are decoded at once, or of more rows to limit their number. Each reads the few
        bytes that all of them need.
        """
        rows = self.row_end - self.row_start
        part_rows = max(1, rows * limits.SCAN_PART_BYTES // max(1, self.bound or 1))
        step = part_rows * -(-rows // (part_rows * CONSTANT_PIECES_MAX))
        pieces = []
        for start in range(self.row_start, self.row_end, step):
            end = min(start + step, self.row_end)
            share = self.num_bytes * (end - start) // rows
            piece = Piece(self.file, self.column, self.number, start, end, share, self.tail, False)
            piece.part_rows = part_rows if step > part_rows else 0
            pieces.append(piece)
        return pieces

    def _read_constants(self) -> Steps[Any]:
        """Read the bytes that all of its rows need, in one round; parts are decoded on demand."""
        page, (start, end) = self.page, self.slots
        part_end = start + self.part_rows * self.column.path.slots_per_row
        if _first_ranges(page, start, part_end) is None:
            return DeferredParts(self._constant_parts(None), 0)
        wanted = _first_ranges(page, start, end)
        assert wanted is not None, "all rows need the bytes that a part needs"
        first, until = int(wanted.starts.min()), int(wanted.ends.max())
        if until - first > 2 * self.column.pages.num_bytes(self.number):  # damage, or other buffers in between
            return (yield from _read_span(page, None, start, end))
        fetched = yield Ranges.of((first, until), keep=True)
        data = fetched.piece(0, until - first)
        return DeferredParts(self._constant_parts(Tail(first, data)), len(data))

    def _constant_parts(self, at_hand: Tail | None) -> Iterator[Piece]:
        rows_bound = self.bound or 0
        for start in range(self.row_start, self.row_end, self.part_rows):
            end = min(start + self.part_rows, self.row_end)
            bound = rows_bound * (end - start) // (self.row_end - self.row_start)
            yield self._part(start, end, at_hand, None, bound)

    def locate(self, error: FileError) -> FileError:
        """Add column, page and file to an error, and the rows to an error about sizes."""
        add_row_location(error, self.row_start, self.row_end - 1)
        return add_location(error, f"{self.column.where}, page {self.number}", self.file.key)


class WholeFiles(ABC):
    """Decodes pieces of whole files from all bytes of these files together."""

    @abstractmethod
    def decode_groups(self, files: Sequence[tuple[Sequence[Piece], Fetched]]) -> list[pa.Array]:
        """One array per piece. Raises FormatError and UnsupportedError that name the location.

        files  pieces of one file each, and all bytes of the file
        """


def read_group(group: Sequence[Piece], allowance: Allowance | None = None) -> Steps[list[Any]]:
    """Read and decode pieces of one file as `Piece.steps`; one kernel call decodes all whole pages that allow it.

    allowance  limit of their job

    Returns an array per piece, or `DeferredParts`.
    """
    allowance = allowance or Allowance(limits.SCAN_DECODED_BYTES)
    joined, others = _split_joined(group)
    if len(joined) < 2:
        return (yield from together([piece.steps(allowance) for piece in group]))
    allowance.use(sum([group[at].bound or 0 for at in joined]))
    arrays, *rest = yield from together(
        [_read_joined([group[at] for at in joined], allowance), *[group[at].steps(allowance) for at in others]]
    )
    by_position = dict(zip([*joined, *others], [*arrays, *rest], strict=True))
    return [by_position[at] for at in range(len(group))]


def read_groups(groups: Sequence[Sequence[Piece]], allowance: Allowance) -> FilesSteps[list[Any]]:
    """`read_group` for groups of several files; one array per piece in order, or `DeferredParts`.

    After the last round, one kernel call decodes all whole pages that allow it, of all files.
    """
    split = [_split_joined(group) for group in groups]
    fetched = yield from side_by_side(
        [(group[0].file, _fetch_group(group, *parts, allowance)) for group, parts in zip(groups, split, strict=True)]
    )
    decoded = iter(_decode_joined([joined for joined, _ in fetched if joined is not None and joined[0]]))
    result: list[Any] = []
    for group, (_, alone) in zip(groups, fetched, strict=True):
        result += [alone[at] if at in alone else next(decoded) for at in range(len(group))]
    return result


def _split_joined(group: Sequence[Piece]) -> tuple[list[int], list[int]]:
    """Positions of the pieces that one call can decode together, and of the others."""
    kinds = [piece.joined_kind for piece in group]
    first = next((kind for kind in kinds if kind is not None), None)
    joined = [at for at, kind in enumerate(kinds) if kind is first] if first is not None else []
    return joined, [at for at, kind in enumerate(kinds) if kind is not first or first is None]


def _fetch_group(
    group: Sequence[Piece], joined: list[int], others: list[int], allowance: Allowance
) -> Steps[tuple[tuple[list[Piece], Fetched] | None, dict[int, Any]]]:
    """The joined pieces of a group with their fetched bytes, and the arrays of the others by position."""
    allowance.use(sum([group[at].bound or 0 for at in joined]))
    steps = [group[at].steps(allowance) for at in others]
    if not joined:
        return None, dict(zip(others, (yield from together(steps)), strict=True))
    pieces = [group[at] for at in joined]
    ranges = _whole_ranges(pieces)
    if not len(ranges):  # the metadata have the values
        return (pieces, Fetched(b"", ranges.starts)), dict(zip(others, (yield from together(steps)), strict=True))
    is_certain = all([piece.bound is not None for piece in pieces])
    if not others and is_certain:
        return (pieces, (yield from serve_from_tail(group[0].tail, fetch(ranges)))), {}
    ranges.keep = True  # the others may take more rounds, and these bytes are decoded after the last round
    fetched, *arrays = yield from together([serve_from_tail(group[0].tail, fetch(ranges)), *steps])
    alone = dict(zip(others, arrays, strict=True))
    if not is_certain and (large := _too_large(pieces, fetched)):
        alone.update(zip([joined[at] for at in large], (yield from _read_large(pieces, large, allowance)), strict=True))
        pieces, fetched = _without(pieces, fetched, large)
    return (pieces, fetched), alone


def _read_joined(group: list[Piece], allowance: Allowance) -> Steps[list[Any]]:
    ranges = _whole_ranges(group)
    if not len(ranges):
        return _decode_joined([(group, Fetched(b"", ranges.starts))])
    fetched = yield from serve_from_tail(group[0].tail, fetch(ranges))
    large = _too_large(group, fetched)
    if not large:
        return _decode_joined([(group, fetched)])
    pieces, fetched = _without(group, fetched, large)
    decoded = iter(_decode_joined([(pieces, fetched)] if pieces else []))
    alone = dict(zip(large, (yield from _read_large(group, large, allowance)), strict=True))
    return [alone[at] if at in alone else next(decoded) for at in range(len(group))]


def _read_large(group: list[Piece], positions: list[int], allowance: Allowance) -> Steps[list[Any]]:
    """Read again, one by one, the pieces that are too large to decode with others."""
    return (yield from together([group[at].steps(allowance) for at in positions]))


def _too_large(group: list[Piece], fetched: Fetched) -> list[int]:
    """Positions of the pages whose fetched bytes would decode to too many bytes."""
    positions, number = [], 0
    for at, piece in enumerate(group):
        page: Any = piece.page
        if piece.bound is None:
            compressed = fetched.piece(number + 2, page.source.buffer_sizes[2])
            if dictionary_bound(page, compressed) > limits.SCAN_DECODED_BYTES:
                positions.append(at)
            number += len(page.source.buffer_sizes)
        elif type(page) is MiniBlockPage:
            number += len(page.source.buffer_sizes)
    return positions


def _without(group: list[Piece], fetched: Fetched, positions: list[int]) -> tuple[list[Piece], Fetched]:
    """Mini-block pages with their fetched bytes, without those at `positions`."""
    counts = [len(piece.page.source.buffer_sizes) for piece in group]  # type: ignore[attr-defined]
    is_left = np.isin(np.repeat(np.arange(len(group)), counts), positions, invert=True)
    pieces = [piece for at, piece in enumerate(group) if at not in positions]
    return pieces, Fetched(fetched.buffer, fetched.offsets[is_left])


def _whole_ranges(group: list[Piece]) -> Ranges:
    if isinstance(group[0].joined_kind, WholeFiles):
        return Ranges.of((0, group[0].file.size_bytes))
    ranges: Ranges = group[0].joined_kind.whole_ranges([piece.page for piece in group])
    return ranges


def _decode_joined(files: list[tuple[list[Piece], Fetched]]) -> list[pa.Array]:
    """All rows of the pages of some files, from the bytes of `_whole_ranges`; one kernel call per kind."""
    arrays: list[pa.Array] = []
    for kind, run in groupby(files, lambda item: item[0][0].joined_kind):
        groups = list(run)
        if isinstance(kind, WholeFiles):
            arrays += kind.decode_groups(groups)
            continue
        if kind is constant:
            arrays += [array for group, fetched in groups for array in _constants(group, fetched)]
            continue
        try:
            arrays += kind.decode_whole([([piece.page for piece in group], fetched) for group, fetched in groups])
        except DamagedError as error:
            at = error.args[1] if len(error.args) > 1 else 0
            pieces = [piece for group, _ in groups for piece in group]
            raise pieces[at].locate(damage_error(error)) from None
    return arrays


def _constants(group: list[Piece], fetched: Fetched) -> list[pa.Array]:
    """All rows of pages of one value each, from their buffers, if they have any."""
    arrays, number = [], 0
    for piece in group:
        page: Any = piece.page
        part = None
        if page.source.buffer_sizes:
            part = fetched.piece(number, page.source.buffer_sizes[0])
            number += 1
        try:
            arrays.append(page.whole(part))
        except FILE_ERRORS as error:
            raise piece.locate(error) from error.__cause__
    return arrays


def _first_ranges(page: PageLayout, start: int, end: int) -> Ranges | None:
    """The ranges of the first round of reading some slots; None if no bytes are needed (then this decodes them)."""
    steps = _read_span(page, None, start, end)
    try:
        return next(steps)
    except StopIteration:
        return None
    finally:
        steps.close()


def _read_span(page: PageLayout, index: PageIndex | None, start: int, end: int) -> Steps[pa.Array]:
    finds_index = isinstance(page, ArrayLayout)
    ranges = page.index_ranges() if index is None and not finds_index else None
    if ranges is not None:
        index = page.load_index((yield ranges))
    return (yield from page.read(index, RowSelection.span(start, end)))


def column_pieces(
    file: TableFile,
    columns: Sequence[Column],
    row_start: int,
    row_end: int,
    tail: Tail | None,
    piece_bytes: int,
    cache: SearchCache,
    borders: Borders | None = None,
) -> FileSteps[list[list[Piece]]]:
    """The pieces of columns with rows `row_start` to `row_end` of the file, in row order.

    piece_bytes  pages larger than twice this are cut into pieces of about this size
    borders      further rows to cut at, for a scan with a slow start

    At most one round, for uncached indexes of the pages to cut. Raises FormatError.
    """
    pages = [_by_page(file, column, row_start, row_end, tail) for column in columns]
    if borders is None and not any(
        piece.num_bytes > 2 * piece_bytes or piece.is_constant for column in pages for piece in column
    ):
        return pages
    parts = yield from together([piece.cut(piece_bytes, cache, borders) for column in pages for piece in column])
    remaining = iter(parts)
    return [[part for _ in column for part in next(remaining)] for column in pages]


def _by_page(file: TableFile, column: Column, row_start: int, row_end: int, tail: Tail | None) -> list[Piece]:
    if row_end > file.num_rows:
        raise FormatError(f"rows up to {row_end} wanted; the file has {file.num_rows}", path=file.key)
    first, borders = 0, column.row_starts
    if row_start == 0 and row_end == file.num_rows > 0 and len(borders) == 2:  # the usual case: one page with all rows
        return [Piece(file, column, 0, 0, row_end, column.pages.num_bytes(0), tail, True)]
    if row_start > 0 or row_end < file.num_rows:
        first = max(int(borders.searchsorted(row_start, side="right")) - 1, 0)
        borders = borders[first : int(borders.searchsorted(row_end, side="left")) + 1]
    result = []
    for number, (low, high) in enumerate(pairwise(borders.tolist()), first):
        start, end = max(low, row_start), min(high, row_end)
        if start < end:
            size = column.pages.num_bytes(number)
            is_whole = end - start == high - low
            share = size if end - start >= NEARLY_ALL * (high - low) else size * (end - start) // (high - low)
            result.append(Piece(file, column, number, start, end, share, tail, is_whole))
    return result


def fits_group(piece: Piece, first: Piece, num_bytes: int, bytes_max: int, expected_bytes: int = 0) -> bool:
    """Whether to read and decode a piece together with the group before it.

    Small files have many small pages: handing each to a thread costs more than decoding it.

    first           first piece of the group
    num_bytes       bytes of the group
    bytes_max       limit for the group; higher for leaves below one list, because each would read its ends
    expected_bytes  decoded bytes of the group
    """
    if piece.file is not first.file:
        return False
    if piece.file.version == V0_1 and piece.row_start == first.row_start:  # there, the pages of all columns alternate
        bytes_max = limits.SCAN_PIECE_BYTES
    if bytes_max > 0 and _is_sibling(piece, first):
        bytes_max = max(bytes_max, limits.SCAN_SIBLINGS_BYTES)
    if num_bytes + piece.num_bytes > bytes_max:
        return False
    if expected_bytes + piece.expected_bytes > max(bytes_max, limits.SCAN_DECODED_BYTES):
        return False
    follows = piece.is_whole and first.is_whole and piece.row_end - first.row_start <= limits.SCAN_JOB_ROWS
    return follows or piece.row_start == first.row_start


def _is_sibling(piece: Piece, first: Piece) -> bool:
    """Whether two pieces of a file are the same rows of two leaves below one list of version 2.0."""
    if piece.file.version != V2_0 or piece.row_start != first.row_start:
        return False
    if piece.index is not None or first.index is not None:  # a page index includes the ends
        return False
    page, other = piece.page, first.page
    if not isinstance(page, ArrayLayout) or not isinstance(other, ArrayLayout):
        return False
    return page.shared_offset is not None and page.shared_offset == other.shared_offset


def fits_job(piece: Piece, num_rows: int, num_bytes: int, expected_bytes: int) -> bool:
    """Whether to add a piece to a job with pieces of earlier files, which have these rows and bytes together."""
    num_rows += piece.row_end - piece.row_start
    if expected_bytes + piece.expected_bytes > limits.SCAN_DECODED_BYTES:
        return False
    return num_rows <= limits.SCAN_JOB_ROWS and num_bytes + piece.num_bytes <= limits.SCAN_FILES_BYTES
