"""Which rows of an index count: those that exist, in fragments that their segment covers, and that a filter allows.

Row numbers of index files become addresses first (spec: indices, 1.3). With stable row ids the order matters: an
updated row keeps its id, and an old entry leads to its new place in another fragment.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lance_io.index.details import Space
from lance_io.index.rows.moves import moved_addresses
from lance_io.reads.rows.deletions_and_ids import load_live, load_row_id_index
from lance_io.reads.rows.row_arithmetic import OFFSET_BITS, OFFSET_MASK
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy.typing as npt

    from lance_io.index.rows.moves import Move
    from lance_io.index.rows.row_set import RowSet
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.table_indices import IndexPart
    from lance_io.reads.rows.row_arithmetic import LiveRows
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray
    from lance_io.table.manifest.row_ids import RowIdIndex

    BoolArray = npt.NDArray[np.bool_]


class PartedIndex(Protocol):
    """An index whose segments name rows."""

    @property
    def parts(self) -> Sequence[IndexPart[Any]]:
        """Its segments that cover fragments."""

    @property
    def moves(self) -> Sequence[Move]:
        """By which addresses in their files become current ones, oldest first."""


@dataclass(frozen=True, slots=True, eq=False)
class LiveEntries:
    """Finds the live rows of an index.

    live     rows of the searched fragments with deletions, by fragment index
    row_ids  by which ids become addresses; None for an index of addresses
    chosen   mask of the searched fragments, by fragment index
    masks    of those that a segment covers, too, by its UUID
    allowed  addresses that a filter allows; None for all
    """

    state: DatasetState
    index: PartedIndex
    live: Mapping[int, LiveRows]
    row_ids: RowIdIndex | None
    chosen: BoolArray
    masks: Mapping[str, BoolArray]
    allowed: RowSet | None = None

    def find(self, part: IndexPart[Any], rows: npt.NDArray[np.uint64]) -> tuple[BoolArray, IntArray]:
        """Which rows of a segment count, and the addresses of all (of those that do not count, any number)."""
        addresses, counts = self._locate(rows)
        # Neighbours mostly are of one fragment: what holds for it is found once for each run of them.
        fragment_ids = addresses >> OFFSET_BITS
        firsts = np.flatnonzero(np.r_[True, fragment_ids[1:] != fragment_ids[:-1]][: len(rows)])
        lengths = np.diff(firsts, append=len(rows))
        fragment_indexes = self.state.find_fragment_indexes(fragment_ids[firsts])
        covered = (fragment_indexes >= 0) & self.masks[part.uuid][fragment_indexes]
        num_rows = np.where(covered, self.state.physical_rows[fragment_indexes], 0)
        counts &= addresses < np.repeat((fragment_ids[firsts] << OFFSET_BITS) + num_rows, lengths)
        if self.row_ids is None and self.live:  # ids of deleted rows lead to no address
            of_rows = np.repeat(np.where(covered, fragment_indexes, -1), lengths)
            for fragment_index in np.unique(fragment_indexes[covered]).tolist():
                if fragment_index in self.live:
                    here = np.flatnonzero(of_rows == fragment_index)
                    counts[here] &= ~self.live[fragment_index].is_deleted(addresses[here] & OFFSET_MASK)
        if self.allowed is not None:
            counts &= self.allows(addresses)
        return counts, addresses

    def _locate(self, rows: npt.NDArray[np.uint64]) -> tuple[IntArray, BoolArray]:
        """The addresses of rows, and which of them exist as far as ids and moves say; of others, numbers from 0 on."""
        if self.row_ids is None and not self.index.moves:
            addresses, counts = rows.view(np.int64), np.ones(len(rows), np.bool_)
        else:
            looked_up = moved_addresses(rows, self.index.moves) if self.row_ids is None else self.row_ids.lookup(rows)
            addresses, counts = looked_up[0].view(np.int64), looked_up[1]
        if len(rows) and addresses.min() < 0:  # from 1 << 63 on
            counts = counts & (addresses >= 0)
            addresses = np.maximum(addresses, 0)
        return addresses, counts

    def allows(self, addresses: IntArray) -> BoolArray:
        """Which addresses the filter allows, if there is one."""
        assert self.allowed is not None, "asked for where there is one"
        return contains(self.allowed, addresses.view(np.uint64))

    def without_filter(self) -> LiveEntries:
        """The live rows whether or not a filter allows them."""
        return replace(self, allowed=None)


def _covered(state: DatasetState, part: IndexPart[Any], chosen: BoolArray) -> BoolArray:
    covered = np.zeros(len(chosen), np.bool_)
    covered[state.find_fragment_indexes(np.array(sorted(part.covered), np.int64))] = True
    return covered & chosen


def contains(rows: RowSet, numbers: npt.NDArray[np.uint64]) -> BoolArray:
    """Whether each number is in a set."""
    if rows.is_empty:
        return np.zeros(len(numbers), np.bool_)
    runs = np.searchsorted(rows.starts, numbers, side="right") - 1
    inside: BoolArray = (runs >= 0) & (numbers < rows.ends[np.maximum(runs, 0)])
    return inside


@dataclass(frozen=True, slots=True, eq=False)
class SettledRows:
    """The fragments of searches of one column by an index, of which a search computes nothing again.

    chosen   mask of the searched fragments, by fragment index
    touched  those of them with deletions
    masks    of those that a segment covers, too, by its UUID
    """

    chosen: BoolArray
    touched: tuple[int, ...]
    masks: Mapping[str, BoolArray]

    @classmethod
    def of(cls, state: DatasetState, index: PartedIndex, fragment_indexes: Collection[int]) -> SettledRows:
        """Searches of some fragments."""
        chosen = np.zeros(len(state.fragment_ids), np.bool_)
        chosen[[*fragment_indexes]] = True
        touched = tuple(number for number in fragment_indexes if state.has_deletions[number])
        return cls(chosen, touched, {part.uuid: _covered(state, part, chosen) for part in index.parts})

    def load_entries(self, state: DatasetState, index: PartedIndex) -> Plan[LiveEntries]:
        """The live rows of the index in these fragments; reads their deletion files, or the row ids of the table."""
        if any([part.space is Space.IDS for part in index.parts]):
            row_ids = yield from load_row_id_index(state)
            return LiveEntries(state, index, {}, row_ids, self.chosen, self.masks)
        live = (yield from load_live(state, self.touched)) if self.touched else {}
        return LiveEntries(state, index, live, None, self.chosen, self.masks)


def load_live_entries(state: DatasetState, index: PartedIndex, fragment_indexes: Collection[int]) -> Plan[LiveEntries]:
    """The live rows of an index in some fragments, for a single search."""
    return SettledRows.of(state, index, fragment_indexes).load_entries(state, index)
