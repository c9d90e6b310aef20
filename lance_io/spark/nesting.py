"""What conversions in both directions share: arrays of lists and maps, taken apart and put together again.

A conversion takes an array and gives one; values that it does not change are shared, not copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Convert: TypeAlias = Callable[[pa.Array], pa.Array]


def validity(array: pa.Array) -> pa.Buffer | None:
    """The bitmap of an array from its first row on, None when nothing is null."""
    if not array.null_count:
        return None
    if array.offset == 0:
        buffer: pa.Buffer | None = array.buffers()[0]
        return buffer
    bits: pa.Buffer = pa.concat_arrays([array.is_valid()]).buffers()[1]
    return bits


def items_of(array: pa.Array) -> tuple[pa.Array, Any]:
    """The items of a list array of any form that its rows refer to, and i64[n + 1] offsets into them."""
    num_rows = len(array)
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        items = array.values.slice(array.offset * size, num_rows * size)
        return items, np.arange(num_rows + 1, dtype=np.int64) * size
    offsets = array.offsets.to_numpy().astype(np.int64)
    if not len(offsets):
        return array.values.slice(0, 0), np.zeros(1, np.int64)
    return array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0])), offsets - offsets[0]


def list_convert(target: pa.DataType, convert: Convert) -> Convert:
    """To lists of type `target`, whose items `convert` makes."""
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
    """A map array of type `target`."""
    offsets = array.offsets.to_numpy()
    first, end = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    entries = pa.struct([target.key_field, target.item_field])
    children = [keys(array.keys.slice(first, end - first)), values(array.items.slice(first, end - first))]
    pairs = pa.Array.from_buffers(entries, end - first, [None], 0, children=children)
    starts = pa.py_buffer((offsets - first).astype(np.int32) if len(offsets) else np.zeros(1, np.int32))
    return pa.Array.from_buffers(target, len(array), [validity(array), starts], array.null_count, children=[pairs])
