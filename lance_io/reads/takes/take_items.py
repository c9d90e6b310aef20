"""Single items of lists: `rows[50][17]`, without reading the lists if their pages allow it.

    (row, item) pairs -> distinct and ascending -> rows of fragments -> one read, as of any take -> the requested order

Each pair is a row of the underlying take, whose list holds that one item.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_io.errors import UsageError
from lance_io.file.row_indices import row_numbers
from lance_io.levels.item_lists import pick_items
from lance_io.reads.rows.item_columns import is_plain_list
from lance_io.reads.rows.row_arithmetic import Grouped
from lance_io.reads.takes.take_rows import group_positions, prepare_columns, take_grouped
from lance_io.reads.version.column_lists import column_path, extract, fields_along
from lance_io.spans import distinct

if TYPE_CHECKING:
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray


def take_items(state: DatasetState, column: str, items: Any) -> Plan[pa.ChunkedArray]:
    """See `LanceDataset.take_items`."""
    rows, numbers = item_pairs(items)
    path = column_path(state.schema, column)
    field = fields_along(state.schema, path)[-1]
    is_vector = field.logical_type.startswith("fixed_size_list:")
    if not is_plain_list(field) and not is_vector:
        raise UsageError(
            f"take_items takes items of lists, column {column!r} is a {field.logical_type}: use take for its rows"
        )
    take = yield from prepare_columns(state, [column])
    wanted, order = _distinct_pairs(rows, numbers)
    of_rows = distinct(wanted[0])
    grouped = yield from group_positions(state, of_rows)
    counts = np.bincount(of_rows.searchsorted(wanted[0]), minlength=len(of_rows))
    if is_vector:  # all of a row lies together, so each page is requested once
        restore = np.arange(len(of_rows), dtype=np.int64).repeat(counts)[order]
        table = yield from take_grouped(state, replace(grouped, restore=restore), take)
        return _pick_items(table, path, wanted[1][order])
    assert take.columns.reads is not None, "a stored column"
    groups, by_group, row, pair = [], [], 0, 0
    for fragment_index, offsets in grouped.groups:
        repeated = offsets.repeat(counts[row : row + len(offsets)])
        groups.append((fragment_index, repeated))
        by_group.append(dict.fromkeys(take.columns.reads.leaves, wanted[1][pair : pair + len(repeated)].reshape(-1, 1)))
        row, pair = row + len(offsets), pair + len(repeated)
    is_ordered = bool((order == np.arange(len(order))).all())
    table = yield from take_grouped(state, Grouped(tuple(groups), None if is_ordered else order), take, by_group)
    return _pick_items(table, path, np.zeros(table.num_rows, dtype=np.int64))


def item_pairs(items: Any) -> tuple[IntArray, IntArray]:
    """Rows and items of pairs, i64[n] each.

    Raises `TypeError` unless `items` are pairs of integers, and `OverflowError` for a negative number.
    """
    if isinstance(items, np.ndarray):
        if items.ndim != 2 or items.shape[1] != 2:
            raise TypeError(f"items must be pairs of a row and an item, got an array of shape {items.shape}")
        return row_numbers(items[:, 0]), row_numbers(items[:, 1])
    pairs = list(items)
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"items must be pairs of a row and an item, got {pair!r}")
    return row_numbers([row for row, _ in pairs]), row_numbers([item for _, item in pairs])


def _distinct_pairs(rows: IntArray, items: IntArray) -> tuple[tuple[IntArray, IntArray], IntArray]:
    """The distinct pairs, ascending, and the index of each requested pair among them."""
    by_pair = np.lexsort((items, rows))
    rows, items = rows[by_pair], items[by_pair]
    is_first = np.ones(len(rows), dtype=np.bool_)
    is_first[1:] = (rows[1:] != rows[:-1]) | (items[1:] != items[:-1])
    order = np.empty(len(rows), dtype=np.int64)
    order[by_pair] = np.cumsum(is_first) - 1
    return (rows[is_first], items[is_first]), order


def _pick_items(table: pa.Table, path: tuple[str, ...], items: IntArray) -> pa.ChunkedArray:
    """One item of each row's list."""
    chunks, start = [], 0
    for batch in table.to_batches():
        lists = extract(batch.column(0), path[1:])
        rows = np.arange(len(lists), dtype=np.int64)
        chunks.append(pick_items(lists, rows, items[start : start + len(lists)]))
        start += len(lists)
    dtype = table.schema.field(0).type
    for name in path[1:]:
        dtype = dtype.field(name).type
    return pa.chunked_array(chunks, dtype.value_type)
