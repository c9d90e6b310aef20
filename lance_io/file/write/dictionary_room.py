"""Limit of the rows of a file by its dictionary columns with narrow indices.

Each page has its own dictionary, but rows of several pages are read into one array with one dictionary. A file with
more distinct values than indices of 8 or 16 bits can address could only be read in parts. So a file of a table ends
before; a standalone file takes such rows, page by page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lance_io.levels.lists import items_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.format.schema import Schema

_NARROW_BITS: Final = 16  # no file has the four billion values that exceed wider indices


def has_narrow_dictionaries(schema: Schema) -> bool:
    """Whether a column, at any depth, is a dictionary with indices of 8 or 16 bits."""
    dictionaries = [field for field in schema.walk() if field.logical_type[:5] == "dict:"]
    return any(field.arrow_type.index_type.bit_width <= _NARROW_BITS for field in dictionaries)


class DictionaryRoom:
    """Counts the distinct values of the narrow dictionary columns of one file."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, int], pa.Array] = {}  # by column, and number of the dictionary in it

    def add(self, batch: pa.RecordBatch) -> str | None:
        """Add the values of a batch. If a column would exceed its limit, adds nothing and returns the reason."""
        values: dict[tuple[str, int], pa.Array] = {}
        for key, array in _narrow(batch):
            dictionary, known = _countable(array.dictionary), self._values.get(key)
            if known is None or known.type != dictionary.type:  # rows of another type are refused later
                known = dictionary.slice(0, 0)
            if len(known) + len(dictionary) <= _num_indices(array.type):  # fast path
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


def _narrow(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, int], pa.DictionaryArray]]:
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        for number, each in enumerate(_dictionaries(array)):
            yield (name, number), each


def _dictionaries(array: pa.Array) -> Iterator[pa.DictionaryArray]:
    """The narrow dictionary arrays in an array; their number depends only on the array's type."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    dtype = array.type
    if pa.types.is_dictionary(dtype):
        if dtype.index_type.bit_width <= _NARROW_BITS and not pa.types.is_null(dtype.value_type):
            yield array
    elif pa.types.is_struct(dtype):
        for member in range(dtype.num_fields):
            yield from _dictionaries(array.field(member))
    elif pa.types.is_fixed_size_list(dtype):
        yield from _dictionaries(array.values.slice(array.offset * dtype.list_size, len(array) * dtype.list_size))
    elif pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_map(dtype):
        yield from _dictionaries(items_of(array)[0])


def _countable(values: pa.Array) -> pa.Array:
    """The values, cast to a type that Arrow can hash."""
    if pa.types.is_string_view(values.type):
        return values.cast(pa.large_string())
    if pa.types.is_binary_view(values.type):
        return values.cast(pa.large_binary())
    return values.view(pa.uint16()) if pa.types.is_float16(values.type) else values


def _num_indices(dtype: pa.DictionaryType) -> int:
    return 1 << int(dtype.index_type.bit_width - pa.types.is_signed_integer(dtype.index_type))
