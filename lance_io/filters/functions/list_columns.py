"""Helpers for columns of lists and maps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lance_io.filters.elementwise import broadcast
from lance_io.levels.portable import taken

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.filters.elementwise import Value


def lists_of_rows(*values: Value) -> pa.Array:
    """The values side by side: for each row a list of one item of each."""
    columns = broadcast(*values)
    num_rows, num_items = len(columns[0]), len(columns)
    order = np.arange(num_rows * num_items).reshape(num_items, num_rows).T.reshape(-1)
    offsets = np.arange(0, num_rows * num_items + 1, num_items, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), taken(pa.concat_arrays(columns), pa.array(order)))


def in_same_layout(compute: Callable[..., Value]) -> Callable[..., Value]:
    """Wrap a function of lists to return large lists if an argument is one."""

    def computed(*values: Value) -> Value:
        result = compute(*values)
        is_large = any(pa.types.is_large_list(value.type) for value in values)
        return result.cast(pa.large_list(result.type.value_type)) if is_large else result

    return computed


def map_entries(maps: Value) -> pa.ListArray:
    """The entries as lists of structs of key and value. Raises pa.ArrowTypeError for other types than maps."""
    (array,) = broadcast(maps)
    if not pt.is_map(array.type):
        raise pa.ArrowTypeError(f"a map is needed, found {array.type}")
    entry = pa.struct([array.type.key_field, array.type.item_field])
    return array.cast(pa.list_(pa.field("item", entry, nullable=False)))
