"""Checksums of the values of a leaf column, independent of row order and of page borders. No I/O.

Hashes cover visible items that are not null; nulls and lists without items count as level entries. Two sets of pages
with the same rows have equal sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lance_io import _kernels
from lance_io.errors import OperationError
from lance_io.levels.lists import visible_items
from lance_io.levels.path import DEFINITION_LEVELS, LIST_LAYERS
from lance_io.levels.portable import kept
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.levels.leafpage import LeafPage

_WRAP: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class LeafSums:
    """Sums over some rows of a leaf column.

    num_rows    rows (slots, below a fixed-size list of structs)
    num_levels  level entries: items, null and empty lists, null structs
    num_values  items that are not null
    hashes      sum of their hashes, modulo 2^64
    """

    num_rows: int = 0
    num_levels: int = 0
    num_values: int = 0
    hashes: int = 0

    def __add__(self, other: LeafSums) -> LeafSums:
        return LeafSums(
            self.num_rows + other.num_rows,
            self.num_levels + other.num_levels,
            self.num_values + other.num_values,
            (self.hashes + other.hashes) & _WRAP,
        )


def check_sums(received: Mapping[int, LeafSums], written: Mapping[int, LeafSums], path: str) -> None:
    """Raise `OperationError` if the rows that a writer received differ from those in its pages.

    received, written  sums by column of the file (in version 0.1 by field id)
    path               object key of the file
    """
    for column, sums in received.items():
        in_pages = written.get(column, LeafSums())
        if sums != in_pages:
            raise OperationError(
                f"column {column}: the received rows add up to {sums}, those in pages to {in_pages}. "
                "This is a fault of this library or of this machine's memory; nothing was committed",
                path=path,
            )


def sum_page(page: LeafPage) -> LeafSums:
    """The sums of the rows of a page."""
    values = page.values
    if page.definition is not None:
        slots = page.definition[page.definition <= _slot_levels(page.layers)]
        if slots.any():
            values = kept(values, pa.array(slots == 0))
    return LeafSums(page.num_rows, page.num_levels, len(values), sum_values(values))


def sum_flat(values: pa.Array) -> LeafSums:
    """The sums of the values of a column without levels, as in files of version 2.0."""
    return LeafSums(len(values), len(values), len(values) - _num_nulls(values), sum_values(values))


def _num_nulls(values: pa.Array) -> int:
    return len(values) if pa.types.is_null(values.type) else values.null_count


def _slot_levels(layers: tuple[int, ...]) -> int:
    """The highest definition level of entries with a slot among the values, that is, of entries inside lists."""
    level = 0
    for layer in layers:
        if layer in LIST_LAYERS:
            break
        level += DEFINITION_LEVELS[layer]
    return level


def sum_values(values: pa.Array) -> int:
    """The sum of the hashes of all values that are not null; vectors count by their items."""
    dtype = values.type
    if pa.types.is_null(dtype) or not len(values):
        return 0
    if pa.types.is_dictionary(dtype):
        return sum_values(values.dictionary_decode())
    if pa.types.is_struct(dtype):
        return sum(sum_values(values.field(i)) for i in range(dtype.num_fields)) & _WRAP
    if pa.types.is_fixed_size_list(dtype):
        size = dtype.list_size
        return sum_values(values.values.slice(values.offset * size, len(values) * size))
    if values.null_count:
        values = kept(values, values.is_valid())
    if pa.types.is_boolean(dtype):
        values = values.cast(pa.uint8())
    buffers, length = values.buffers(), len(values)
    if (is_wide := _OFFSETS.get(dtype.id)) is not None:
        return _kernels.sum_hashes_variable(buffers[2] or b"", buffers[1], is_wide, values.offset, length)
    return _kernels.sum_hashes(buffers[1], values.type.bit_width // 8, values.offset, length)


_OFFSETS: Final = {
    pa.string().id: False,
    pa.binary().id: False,
    pa.large_string().id: True,
    pa.large_binary().id: True,
}


def sum_array(array: pa.Array) -> tuple[int, int]:
    """The number of nulls at all depths of an array of any type, and the sum of the hashes of its values.

    The lengths of lists count as values. Values under nulls do not count.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    dtype = array.type
    num_nulls = _num_nulls(array)
    if pa.types.is_struct(dtype):
        return _add(num_nulls, [sum_array(member) for member in array.flatten()])
    if pa.types.is_fixed_size_list(dtype):
        present = kept(array, array.is_valid()) if num_nulls else array
        items = present.values.slice(present.offset * dtype.list_size, len(present) * dtype.list_size)
        return _add(num_nulls, [sum_array(items)])
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_map(dtype):
        items, offsets = visible_items(array)
        lengths = np.diff(offsets)
        return _add(num_nulls, [sum_array(items), (0, _kernels.sum_hashes(lengths, 8, 0, len(lengths)))])
    return num_nulls, sum_values(array)


def _add(num_nulls: int, parts: list[tuple[int, int]]) -> tuple[int, int]:
    return num_nulls + sum(nulls for nulls, _ in parts), sum(hashes for _, hashes in parts) & _WRAP
