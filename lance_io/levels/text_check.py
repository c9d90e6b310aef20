"""Texts that are to be stored: are they UTF-8? pylance cannot read a column of strings that holds anything else.

Arrow arrays may hold any bytes where their type says text: whoever made them need not have looked. A kernel looks at
all bytes of a column at once; which value it is, in which row, is found out for the error.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io import _kernels
from lance_io.errors import SchemaError
from lance_io.levels.lists import visible_items
from lance_io.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.format.schema import Field

    Found = tuple[int, str, bytes]
    """Row, names below the column, the bytes."""

_BYTES_AT_ONCE: Final = 64 * MIB  # so that a call of the kernel ends soon
_FEW_ROWS: Final = 200
_SHOWN_BYTES: Final = 40
_TEXT_TYPES: Final = ("string", "large_string")


class InvalidText(SchemaError):
    """Text that is to be written into a column of strings is not UTF-8.

    column  names from the top-level field down
    row     of the rows that were given, counted from 0
    value   its bytes
    """

    def __init__(self, message: str = "", *, column: str = "", row: int = 0, value: bytes = b"") -> None:
        super().__init__(message)
        self.column, self.row, self.value = column, row, value


def holds_text(field: Field) -> bool:
    """Whether values of a field, or inside of them, are texts."""
    return any(_is_text(each.logical_type) for each in field.walk())


def _is_text(logical_type: str) -> bool:
    if logical_type.startswith("dict:"):
        logical_type = logical_type.split(":")[1]
    return logical_type in _TEXT_TYPES


@lru_cache(maxsize=1000)
def _type_holds_text(dtype: pa.DataType) -> bool:
    if isinstance(dtype, pa.BaseExtensionType):
        return _type_holds_text(dtype.storage_type)
    if isinstance(dtype, pa.DictionaryType):
        return _type_holds_text(dtype.value_type)
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        return True
    return any(_type_holds_text(dtype.field(at).type) for at in range(dtype.num_fields))


def check_texts(fields: Sequence[Field], arrays: Sequence[pa.Array], places: Sequence[int], first_row: int) -> None:
    """Raise `InvalidText` for text that is not UTF-8, in stored arrays.

    places     of the fields that hold text
    first_row  number of the first row, for the error
    """
    for place in places:
        array = arrays[place]
        found = None if len(array) <= _FEW_ROWS and _is_valid(array) else _find(array)
        if found is not None:
            row, below, value = found
            column = f"{fields[place].name}{below}"
            shown = f"{value[:_SHOWN_BYTES]!r}{'...' if len(value) > _SHOWN_BYTES else ''}"
            raise InvalidText(
                f"Column `{column}`, row {first_row + row}: {shown} is not UTF-8, as text of a string column must be. "
                "Decode it, or write it into a column of binary",
                column=column,
                row=first_row + row,
                value=value,
            )


def _is_valid(array: pa.Array) -> bool:
    """Whether Arrow finds nothing wrong with a flat column, which costs least for few rows."""
    if array.type.num_fields:  # of a part of lists, all items are looked at
        return False
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:  # perhaps of bytes that are no value
        return False
    return True


def _find(array: pa.Array) -> Found | None:
    """The first text, of one leaf, that is not UTF-8 and is part of a row."""
    dtype = array.type
    if not _type_holds_text(dtype):
        return None
    if isinstance(dtype, pa.BaseExtensionType):
        return _find(array.storage)
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        return _find_text(array)
    if pa.types.is_dictionary(dtype):
        return _find_entry(array)
    if pa.types.is_struct(dtype):
        return _find_member(array)
    if pa.types.is_fixed_size_list(dtype):
        items = array.flatten()
        found = _find(items)
        return None if found is None else (_parent(array, found[0]), f".{dtype.value_field.name}{found[1]}", found[2])
    if not array.null_count:
        bounds = array.offsets
        first = bounds[0].as_py() if len(bounds) else 0
        if not len(array) or _find(array.values.slice(first, bounds[-1].as_py() - first)) is None:
            return None
    items, offsets = visible_items(array)
    found = _find(items)
    if found is None:
        return None
    name = "" if pa.types.is_map(dtype) else f".{dtype.value_field.name}"
    return int(np.searchsorted(offsets, found[0], side="right")) - 1, f"{name}{found[1]}", found[2]


def _find_member(array: pa.StructArray) -> Found | None:
    members = array.flatten() if array.null_count else [array.field(at) for at in range(array.type.num_fields)]
    found = [(*one, member.name) for member, values in zip(array.type, members, strict=True) if (one := _find(values))]
    if not found:
        return None
    row, below, value, name = min(found, key=lambda one: one[0])
    return row, f".{name}{below}", value


def _find_entry(array: pa.DictionaryArray) -> Found | None:
    """Entries are stored whether a row has them or not."""
    found = _find(array.dictionary)
    if found is None:
        return None
    rows = np.flatnonzero(array.indices.fill_null(-1).to_numpy() == found[0])
    return int(rows[0]) if len(rows) else 0, found[1], found[2]


def _parent(array: pa.FixedSizeListArray, item: int) -> int:
    """The row of an item among those of the rows that are not null."""
    row: int = item // array.type.list_size
    if not array.null_count:
        return row
    return int(np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))[row])


def _find_text(array: pa.Array) -> Found | None:
    num_texts = len(array)
    if not num_texts:
        return None
    present, offset_buffer, data = array.buffers()
    is_wide = pa.types.is_large_string(array.type)
    offsets = np.frombuffer(offset_buffer, np.int64 if is_wide else np.int32)
    offsets = offsets[array.offset : array.offset + num_texts + 1]
    is_little = data is None or data.size <= _BYTES_AT_ONCE
    for start, end in [(0, num_texts)] if is_little else _portions(offsets):
        bounds = offsets[start : end + 1]
        found = _kernels.find_invalid_text(data or b"", bounds, is_wide, present, array.offset + start)
        if found is not None:
            row = start + found
            return row, "", bytes(memoryview(data)[int(offsets[row]) : int(offsets[row + 1])])
    return None


def _portions(offsets: np.ndarray[Any, Any]) -> list[tuple[int, int]]:
    """Ranges of texts of about so many bytes as are looked at in one call."""
    num_texts, first, last = len(offsets) - 1, int(offsets[0]), int(offsets[-1])
    if last - first <= _BYTES_AT_ONCE:
        return [(0, num_texts)]
    cuts = np.searchsorted(offsets, np.arange(first, last, _BYTES_AT_ONCE)[1:]).tolist()
    bounds = sorted({0, num_texts, *cuts})
    return list(pairwise(bounds))
