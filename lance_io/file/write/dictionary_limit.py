"""Limits the distinct values in the dictionary columns of a data file to what narrow indices can address.

Each page has its own dictionary, but a reader decodes rows of several pages into one array with one dictionary. A file
with more distinct values than indices of 8 or 16 bits can address could only be read in parts. So a data file of a
table ends before it exceeds the limit. A standalone file has no such limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lance_io.levels.lists import items_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.format.schema import Schema

_NARROW_BITS: Final = 16  # wider indices need no limit: no file has four billion distinct values


def has_narrow_dictionaries(schema: Schema) -> bool:
    """Whether a column, at any depth, is a dictionary with indices of 8 or 16 bits."""
    dictionaries = [field for field in schema.walk() if field.logical_type[:5] == "dict:"]
    return any(field.arrow_type.index_type.bit_width <= _NARROW_BITS for field in dictionaries)


class DictionaryLimit:
    """Tracks the values of the narrow dictionary columns of one file, and reports rows that would exceed the limit.

    A batch whose whole dictionary fits takes the fast path: all values of this dictionary count, also unused ones.
    """

    def __init__(self) -> None:
        self._values: dict[tuple[str, int], pa.Array] = {}  # by column, and number of the dictionary in the column

    def add(self, batch: pa.RecordBatch) -> str | None:
        """Add the values of a batch and return None. If a column would exceed its limit, return the reason instead.

        In that case the file's values stay as they were.
        """
        values: dict[tuple[str, int], pa.Array] = {}
        for key, array in _narrow_dictionaries(batch):
            dictionary, known = _cast_to_hashable(array.dictionary), self._values.get(key)
            if known is None or known.type != dictionary.type:  # the first rows, or rows that the writer will refuse
                known = dictionary.slice(0, 0)
            if len(known) + len(dictionary) <= _num_indices(array.type):  # fast path: an upper bound fits
                values[key] = pa.concat_arrays([known, dictionary])
                continue
            used = dictionary.take(array.indices.drop_null().unique())
            both = pa.concat_arrays([known, used]).unique().drop_null()
            if len(both) > _num_indices(array.type):
                index = array.type.index_type
                return f"column {key[0]!r} has {len(both)} values, more than {index} indices tell apart"
            values[key] = both
        self._values = values
        return None

    def clear(self) -> None:
        """Start a new file."""
        self._values = {}


def _narrow_dictionaries(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, int], pa.DictionaryArray]]:
    """The narrow dictionary arrays of a batch, by column and number of the array in the column."""
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        for number, dictionary_array in enumerate(_narrow_dictionaries_in(array)):
            yield (name, number), dictionary_array


def _narrow_dictionaries_in(array: pa.Array) -> Iterator[pa.DictionaryArray]:
    """The narrow dictionary arrays in an array; their number depends only on the array's type."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    dtype = array.type
    if pa.types.is_dictionary(dtype):
        if dtype.index_type.bit_width <= _NARROW_BITS and not pa.types.is_null(dtype.value_type):
            yield array
    elif pa.types.is_struct(dtype):
        for member in range(dtype.num_fields):
            yield from _narrow_dictionaries_in(array.field(member))
    elif pa.types.is_fixed_size_list(dtype):
        yield from _narrow_dictionaries_in(
            array.values.slice(array.offset * dtype.list_size, len(array) * dtype.list_size)
        )
    elif pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_map(dtype):
        yield from _narrow_dictionaries_in(items_of(array)[0])


def _cast_to_hashable(values: pa.Array) -> pa.Array:
    """The values in a type that `unique` supports, with the same distinct values."""
    if pa.types.is_string_view(values.type):
        return values.cast(pa.large_string())
    if pa.types.is_binary_view(values.type):
        return values.cast(pa.large_binary())
    return values.view(pa.uint16()) if pa.types.is_float16(values.type) else values


def _num_indices(dtype: pa.DictionaryType) -> int:
    """Number of values that the indices of a dictionary type can address."""
    return 1 << int(dtype.index_type.bit_width - pa.types.is_signed_integer(dtype.index_type))
