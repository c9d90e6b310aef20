"""Shared by conversions in both directions: takes arrays of lists and maps apart and rebuilds them.

A conversion maps an array to an array; unchanged values are zero-copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from lance_io.levels import lists
from lance_io.levels.lists import validity

if TYPE_CHECKING:
    from lance_io.spans import IntArray

Convert: TypeAlias = Callable[[pa.Array], pa.Array]


def items_of(array: pa.Array) -> tuple[pa.Array, IntArray]:
    """The items of a list array of any form, only those that its rows refer to, and i64[n + 1] offsets into them."""
    if not pa.types.is_fixed_size_list(array.type):
        return lists.items_of(array)
    size = array.type.list_size
    items = array.values.slice(array.offset * size, len(array) * size)
    return items, np.arange(len(array) + 1, dtype=np.int64) * size


def list_convert(target: pa.DataType, convert: Convert) -> Convert:
    """A conversion to lists of type `target`; `convert` converts the items."""
    width = np.int64 if pa.types.is_large_list(target) else np.int32

    def rebuilt(array: pa.Array) -> pa.Array:
        items, offsets = items_of(array)
        if offsets[-1] > np.iinfo(width).max:
            raise pa.ArrowInvalid(
                f"{int(offsets[-1])} items in one batch of lists; ask for smaller ones with batch_bytes"
            )
        buffers = [validity(array), pa.py_buffer(offsets.astype(width))]
        return pa.Array.from_buffers(target, len(array), buffers, array.null_count, children=[convert(items)])

    return rebuilt


def rebuilt_map(array: pa.Array, keys: Convert, values: Convert, target: pa.DataType) -> pa.Array:
    """The map array converted to type `target`, with `keys` and `values` as conversions."""
    items, offsets = items_of(array)
    entries = pa.struct([target.key_field, target.item_field])
    children = [keys(items.field(0)), values(items.field(1))]
    pairs = pa.Array.from_buffers(entries, len(items), [None], 0, children=children)
    buffers = [validity(array), pa.py_buffer(offsets.astype(np.int32))]
    return pa.Array.from_buffers(target, len(array), buffers, array.null_count, children=[pairs])
