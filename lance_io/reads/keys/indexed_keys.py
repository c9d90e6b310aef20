"""Rows of keys straight from an index that covers every fragment: pages of the index, addresses, one take.

Such a look-up plans no scan. Where the index leaves fragments out or has lost rows, or the keys have very many rows, a
scan finds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lance_io.index.questions import OneOf
from lance_io.plans.plan import Together
from lance_io.reads.index.indexed_rows import rows_of_question
from lance_io.reads.rows.deletions_and_ids import load_live
from lance_io.reads.rows.row_arithmetic import OFFSET_BITS, OFFSET_MASK, Grouped, group_rows
from lance_io.reads.scan.index_scan import OPENED_FRAGMENTS_MAX
from lance_io.reads.takes.take_rows import take_grouped

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_io.index.rows.row_set import RowSet
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.table_indices import TableIndex
    from lance_io.reads.takes.take_rows import PreparedTake
    from lance_io.reads.version.state import DatasetState


def take_keys(
    state: DatasetState, index: TableIndex, values: pa.Array, take: PreparedTake, rows_max: int
) -> Plan[pa.Table | None]:
    """The rows that have one of some values, in the order of the table; None if a scan has to find them.

    index     a BTREE or BITMAP that covers every fragment
    values    of its column's type, each once, without nulls and floats
    take      reads the columns of the result
    rows_max  bounds the rows that are read of index files, and those of the result: a scan finds more in less memory

    The data files of few fragments of a bucket are opened beside the index, which saves a round.
    Raises `FormatError` for a damaged index, naming it and its file.
    """
    search = rows_of_question(state, index, OneOf(values), rows_max)
    fragment_indexes = state.all_fragment_indexes
    if state.is_local or take.reader is None or len(fragment_indexes) > OPENED_FRAGMENTS_MAX:
        rows = yield from search
    else:
        rows, _ = yield Together[Any]([search, take.reader.open_files(fragment_indexes)])
    if rows is None:
        return None
    return (yield from take_grouped(state, (yield from _live_rows(state, rows)), take))


def _live_rows(state: DatasetState, rows: RowSet) -> Plan[Grouped]:
    """Rows of the table that are not deleted, in its order."""
    addresses = rows.rows().astype(np.int64)
    groups = group_rows(state.find_fragment_indexes(addresses >> OFFSET_BITS), addresses & OFFSET_MASK).groups
    touched = [fragment_index for fragment_index, _ in groups if state.has_deletions[fragment_index]]
    if touched:
        live = yield from load_live(state, touched)
        kept = [
            (index, offsets[~live[index].is_deleted(offsets)] if index in live else offsets)
            for index, offsets in groups
        ]
        groups = tuple((index, offsets) for index, offsets in kept if len(offsets))
    return Grouped(groups, None)
