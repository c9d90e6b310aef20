"""Shared by conversions in both directions: takes arrays of lists and maps apart and rebuilds them.

A conversion maps an array to an array; unchanged values are zero-copy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa

from lance_io.levels import lists
from lance_io.levels.lists import validity

if TYPE_CHECKING:
    from lance_io.spans import IntArray

Convert: TypeAlias = Callable[[pa.Array], pa.Array]
EVEN_ROWS_MAX: Final = 1 << 16  # rows of vectors whose offsets are kept for the next batch


def items_of(array: pa.Array) -> tuple[pa.Array, IntArray]:
    """The items of a list array of any form, only those that its rows refer to, and i64[n + 1] offsets into them."""
    if not pa.types.is_fixed_size_list(array.type):
        return lists.items_of(array)
    return vector_items(array), np.arange(len(array) + 1, dtype=np.int64) * array.type.list_size


def vector_items(array: pa.Array) -> pa.Array:
    """The items of a fixed-size list array, only those of its rows."""
    size = array.type.list_size
    return array.values.slice(array.offset * size, len(array) * size)


def list_convert(target: pa.DataType, convert: Convert) -> Convert:
    """A conversion to lists of type `target`; `convert` converts the items."""
    width = np.int64 if pa.types.is_large_list(target) else np.int32

    def rebuilt(array: pa.Array) -> pa.Array:
        if width is np.int32 and pa.types.is_fixed_size_list(array.type) and len(array) <= EVEN_ROWS_MAX:
            items, offsets = vector_items(array), _even_offsets(len(array), array.type.list_size)
        else:
            items, bounds = items_of(array)
            if bounds[-1] > np.iinfo(width).max:
                raise _too_many_items(int(bounds[-1]))
            offsets = pa.py_buffer(bounds.astype(width))
        buffers = [validity(array), offsets]
        return pa.Array.from_buffers(target, len(array), buffers, array.null_count, children=[convert(items)])

    return rebuilt


@lru_cache(maxsize=4)
def _even_offsets(num_rows: int, size: int) -> pa.Buffer:
    """The offsets of lists of one size. Batches of vectors have the same number of rows, mostly."""
    if num_rows * size > np.iinfo(np.int32).max:
        raise _too_many_items(num_rows * size)
    return pa.py_buffer((np.arange(num_rows + 1, dtype=np.int64) * size).astype(np.int32))


def _too_many_items(num_items: int) -> pa.ArrowInvalid:
    return pa.ArrowInvalid(f"{num_items} items in one batch of lists; ask for smaller ones with batch_bytes")


def rebuilt_map(array: pa.Array, keys: Convert, values: Convert, target: pa.DataType) -> pa.Array:
    """The map array converted to type `target`, with `keys` and `values` as conversions."""
    items, offsets = items_of(array)
    entries = pa.struct([target.key_field, target.item_field])
    children = [keys(items.field(0)), values(items.field(1))]
    pairs = pa.Array.from_buffers(entries, len(items), [None], 0, children=children)
    buffers = [validity(array), pa.py_buffer(offsets.astype(np.int32))]
    return pa.Array.from_buffers(target, len(array), buffers, array.null_count, children=[pairs])
