"""The least and the greatest value of a column, by its index, exactly or not at all.

    B-tree     each entry is a live row: the ends of its lookup. Otherwise pages from its ends on, up to a live row
    zone map   no row of its fragments is deleted: the bounds of their zones

Both have to cover all fragments, with at least as many rows as these. Nulls do not count. NaN is no extreme: there is
no answer then, as orders differ.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow.types as pt

from lance_io.index.details import Kind, Space
from lance_io.index.scalar.btree import BTree
from lance_io.index.scalar.key_order import key_of
from lance_io.index.scalar.zone_maps import ZoneMap
from lance_io.reads.index.indexed_rows import whole_indices
from lance_io.reads.index.segments import open_segments, search_segments
from lance_io.reads.index.table_indices import load_table_indices
from lance_io.reads.rows.deletions_and_ids import load_live, load_live_counts, load_row_id_index
from lance_io.reads.rows.row_arithmetic import OFFSET_BITS
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from lance_io.index.questions import Segment
    from lance_io.index.rows.row_set import U64Array
    from lance_io.index.scalar.btree import PageValues
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.segments import Part
    from lance_io.reads.index.table_indices import Path, TableIndex
    from lance_io.reads.version.state import DatasetState

PAGES_MAX: Final = 8  # from each end of a B-tree: a round each


@dataclass(frozen=True, slots=True, eq=False)
class Extremes:
    """The least and the greatest value of a column; None if all rows are null, or there are none."""

    least: pa.Scalar | None
    greatest: pa.Scalar | None


def column_extremes(state: DatasetState, path: Path) -> Plan[Extremes | None]:
    """The extremes of the live rows of a column; None if no index says them exactly.

    Reads no data file. Raises `FormatError` for a damaged index, naming it and its file.
    """
    known = yield from load_table_indices(state)
    for kind, read in ((Kind.BTREE, _of_btree), (Kind.ZONE_MAP, _of_zones)):
        for index in known.indices:
            if index.path != path or index.kind is not kind or index.json_path is not None:
                continue
            if not index.covered.issuperset(state.fragment_ids) or (known.moves and not _names_ids(index)):
                continue
            segments = yield from open_segments(state, [(index, part) for part in index.parts])
            by_uuid = {part.uuid: segment for part, segment in zip(index.parts, segments, strict=True)}
            if not (yield from whole_indices(state, [index], by_uuid)):
                continue
            extremes = yield from read(state, index, segments)
            if extremes is not None:
                return extremes
    return None


def _names_ids(index: TableIndex) -> bool:
    return all(part.space is Space.IDS for part in index.parts)


def _of_zones(state: DatasetState, index: TableIndex, segments: Sequence[Segment]) -> Plan[Extremes | None]:
    counts = yield from load_live_counts(state, state.all_fragment_indexes)
    dtype = index.field.arrow_type
    if sum(counts) < int(state.physical_rows.sum()) or pt.is_dictionary(dtype):
        return None
    bounds = []
    for part, segment in zip(index.parts, segments, strict=True):
        assert isinstance(segment, ZoneMap), "its kind says so"
        ends = segment.bounds(part.covered, dtype)
        if ends is None:
            return None
        bounds.append(ends)
    return _joined(bounds)


def _of_btree(state: DatasetState, index: TableIndex, segments: Sequence[Segment]) -> Plan[Extremes | None]:
    ends = []
    for part, segment in zip(index.parts, segments, strict=True):
        assert isinstance(segment, BTree), "its kind says so"
        live = sum((yield from load_live_counts(state, state.fragment_indexes_of([*part.covered]))))
        ends.append(_Ends(state, (index, part), segment, is_all_live=segment.num_rows == live))
    for _ in range(PAGES_MAX):
        pending = [each for each in ends if each.pages()]
        if not pending:
            break
        searches: list[Any] = [(each.part, each.segment.read_pages(each.pages())) for each in pending]
        answers: list[Any] = yield from search_segments(state, searches)
        for each, pages in zip(pending, answers, strict=True):
            yield from each.add(pages)
    is_known = not any(each.pages() for each in ends)
    return _joined((each.least, each.greatest) for each in ends) if is_known else None


class _Ends:
    """The extremes of the live rows of a segment, as far as they are known."""

    def __init__(self, state: DatasetState, part: Part, segment: BTree, *, is_all_live: bool) -> None:
        self.part = part
        self.segment = segment
        self.least, self.greatest = segment.ends if is_all_live else (None, None)
        self._state = state
        self._first, self._last = segment.first_value_page, len(segment.null_counts) - 1

    def pages(self) -> list[int]:
        """The pages to read next, ascending; none if all is known."""
        if self._first > self._last:
            return []
        wanted = [*([self._first] if self.least is None else ()), *([self._last] if self.greatest is None else ())]
        return sorted({*wanted})

    def add(self, pages: Sequence[PageValues]) -> Plan[None]:
        """Look for live rows in the pages that were wanted."""
        numbers_of_pages = self.pages()
        wants_least, wants_greatest = self.least is None, self.greatest is None
        for number, page in zip(numbers_of_pages, pages, strict=True):
            alive = np.flatnonzero((yield from self._is_live(page.rows)))
            if wants_least and number == self._first and len(alive):
                self.least = page.values[int(alive[0])]
            if wants_greatest and number == self._last and len(alive):
                self.greatest = page.values[int(alive[-1])]
        self._first += wants_least and self.least is None
        self._last -= wants_greatest and self.greatest is None

    def _is_live(self, rows: U64Array) -> Plan[npt.NDArray[np.bool_]]:
        """Which rows are live and covered by the segment."""
        state, part = self._state, self.part[1]
        is_live = np.ones(len(rows), np.bool_)
        if part.space is Space.IDS:
            rows, is_live = (yield from load_row_id_index(state)).lookup(rows)
        fragment_ids = (rows >> np.uint64(OFFSET_BITS)).astype(np.int64)
        is_live = is_live & np.isin(fragment_ids, np.array([*part.covered], np.int64))
        offsets = (rows & np.uint64((1 << OFFSET_BITS) - 1)).astype(np.int64)
        here = np.unique(fragment_ids[is_live])
        indexes = state.find_fragment_indexes(here).tolist()
        live = yield from load_live(state, indexes)
        for fragment_id, fragment_index in zip(here.tolist(), indexes, strict=True):
            rows_of = np.flatnonzero(is_live & (fragment_ids == fragment_id))
            if live[fragment_index].deleted is not None:
                is_live[rows_of] = ~live[fragment_index].is_deleted(offsets[rows_of])
        return is_live


def _joined(ends: Iterable[tuple[pa.Scalar | None, pa.Scalar | None]]) -> Extremes | None:
    """The extremes of parts; None if one of them is NaN."""
    known = [*ends]
    lows = [low for low, _ in known if low is not None]
    highs = [high for _, high in known if high is not None]
    if any(_is_nan(value) for value in (*lows, *highs)):
        return None
    return Extremes(min(lows, key=key_of, default=None), max(highs, key=key_of, default=None))


def _is_nan(value: pa.Scalar) -> bool:
    return pt.is_floating(value.type) and math.isnan(value.as_py())
