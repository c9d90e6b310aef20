"""Takes of single list items: rows whose lists hold exactly the wanted items. No I/O.

The result has the type of the whole column, so that it is joined, assembled and ordered like any other: each row has a
list of its wanted items, null for an item that its list lacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_io.levels.path import NodeKind

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_io.levels.path import LeafPath
    from lance_io.spans import IntArray


def with_nulls(items: pa.Array, is_there: npt.NDArray[np.bool_]) -> pa.Array:
    """One value per flag: the next item if the flag is set, otherwise null."""
    if is_there.all():
        return items
    return items.take(pa.array(np.cumsum(is_there) - 1, mask=~is_there))


def pick_items(lists: pa.Array, rows: IntArray, items: IntArray) -> pa.Array:
    """Item number `items[i]`, from 0 on, of the list in row `rows[i]`; null if the list lacks it.

    lists  lists of any kind except maps
    """
    is_list = (lists.is_valid().to_numpy(zero_copy_only=False))[rows] if lists.null_count else True
    if pa.types.is_fixed_size_list(lists.type):
        size = lists.type.list_size
        starts, lengths = (lists.offset + rows) * size, np.full(len(rows), size, dtype=np.int64)
    else:
        offsets = lists.offsets.to_numpy().astype(np.int64)
        starts = offsets[rows] if len(rows) else np.empty(0, dtype=np.int64)
        lengths = offsets[rows + 1] - starts if len(rows) else starts
    is_there = is_list & (items >= 0) & (items < lengths)
    return lists.values.take(pa.array(starts + np.where(is_there, items, 0), mask=~is_there))


def pick_along(path: LeafPath, array: pa.Array, rows: IntArray, items: IntArray) -> pa.Array:
    """Items of the outermost lists on a path, as `pick_items`.

    array   array with the nesting of the path
    """
    depth = path.list_depth
    assert depth is not None, "a path through lists"
    for node in path.nodes[:depth]:
        assert node.kind is NodeKind.STRUCT, "lists whose items are taken are inside structs only"
        if array.null_count:
            items = np.where(array.is_valid().to_numpy(zero_copy_only=False)[rows], items, -1)
        array = array.field(0)
    return pick_items(array, rows, items)


def as_lists(path: LeafPath, items: pa.Array, num_rows: int) -> pa.Array:
    """Items, equally many per row, wrapped in the lists and structs of a path, none of which is null."""
    depth = path.list_depth
    assert depth is not None, "a path through lists"
    dtype = path.nodes[depth].arrow_type
    width = np.int64 if pa.types.is_large_list(dtype) else np.int32
    per_row = len(items) // max(1, num_rows)
    offsets = (np.arange(num_rows + 1, dtype=np.int64) * per_row).astype(width)
    array = pa.Array.from_buffers(dtype, num_rows, [None, pa.py_buffer(offsets)], 0, children=[items])
    for node in reversed(path.nodes[:depth]):
        array = pa.Array.from_buffers(node.arrow_type, num_rows, [None], 0, children=[array])
    return array
