"""Checks that texts to be stored are UTF-8. pylance cannot read a column of strings with other bytes.

Arrow arrays of text may hold any bytes, because their producers need not check them. A kernel checks all bytes of a
column at once; the value and its row are located only for the error.
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

    BadText = tuple[int, str, bytes]
    """Row, names below the column, the bytes."""

_BYTES_AT_ONCE: Final = 64 * MIB  # limits the duration of a kernel call
_FEW_ROWS: Final = 200
_SHOWN_BYTES: Final = 40
_TEXT_TYPES: Final = ("string", "large_string")


class InvalidText(SchemaError):
    """Text for a column of strings is not UTF-8.

    Attributes:
        column: Dotted names from the top-level field down.
        row: Row in the data to write, from 0 on.
        value: Bytes of the text.
    """

    def __init__(self, message: str = "", *, column: str = "", row: int = 0, value: bytes = b"") -> None:
        super().__init__(message)
        self.column, self.row, self.value = column, row, value


def holds_text(field: Field) -> bool:
    """Whether a field holds text, at any depth."""
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


def check_texts(fields: Sequence[Field], arrays: Sequence[pa.Array], columns: Sequence[int], first_row: int) -> None:
    """Raise `InvalidText` for text that is not UTF-8, in stored arrays.

    columns    indexes of the fields that hold text
    first_row  number of the first row, for the error
    """
    for index in columns:
        array = arrays[index]
        bad_text = None if len(array) <= _FEW_ROWS and _is_valid(array) else _find(array)
        if bad_text is not None:
            row, below, value = bad_text
            column = f"{fields[index].name}{below}"
            shown = f"{value[:_SHOWN_BYTES]!r}{'...' if len(value) > _SHOWN_BYTES else ''}"
            raise InvalidText(
                f"Column `{column}`, row {first_row + row}: {shown} is not UTF-8, as text of a string column must be. "
                "Decode it, or write it into a column of binary",
                column=column,
                row=first_row + row,
                value=value,
            )


def _is_valid(array: pa.Array) -> bool:
    """Whether Arrow's own check accepts a flat column: the fastest check for few rows."""
    if array.type.num_fields:  # for sliced lists, Arrow checks the items of all rows
        return False
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:  # possibly for bytes outside of the array's values
        return False
    return True


def _find(array: pa.Array) -> BadText | None:
    """The first text of a leaf that is not UTF-8 and belongs to a row."""
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
        bad = _find(items)
        return None if bad is None else (_parent(array, bad[0]), f".{dtype.value_field.name}{bad[1]}", bad[2])
    if not array.null_count:
        bounds = array.offsets
        first = bounds[0].as_py() if len(bounds) else 0
        if not len(array) or _find(array.values.slice(first, bounds[-1].as_py() - first)) is None:
            return None
    items, offsets = visible_items(array)
    bad = _find(items)
    if bad is None:
        return None
    name = "" if pa.types.is_map(dtype) else f".{dtype.value_field.name}"
    return int(np.searchsorted(offsets, bad[0], side="right")) - 1, f"{name}{bad[1]}", bad[2]


def _find_member(array: pa.StructArray) -> BadText | None:
    members = array.flatten() if array.null_count else [array.field(at) for at in range(array.type.num_fields)]
    pairs = zip(array.type, members, strict=True)
    bad_texts = [(*bad, member.name) for member, values in pairs if (bad := _find(values))]
    if not bad_texts:
        return None
    row, below, value, name = min(bad_texts, key=lambda bad: bad[0])
    return row, f".{name}{below}", value


def _find_entry(array: pa.DictionaryArray) -> BadText | None:
    """The first bad entry of a dictionary, even if no row uses it, because all entries are stored."""
    bad = _find(array.dictionary)
    if bad is None:
        return None
    rows = np.flatnonzero(array.indices.fill_null(-1).to_numpy() == bad[0])
    return int(rows[0]) if len(rows) else 0, bad[1], bad[2]


def _parent(array: pa.FixedSizeListArray, item: int) -> int:
    """The row of an item; `item` counts the items of non-null rows."""
    row: int = item // array.type.list_size
    if not array.null_count:
        return row
    return int(np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))[row])


def _find_text(array: pa.Array) -> BadText | None:
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
        at = _kernels.find_invalid_text(data or b"", bounds, is_wide, present, array.offset + start)
        if at is not None:
            row = start + at
            return row, "", bytes(memoryview(data)[int(offsets[row]) : int(offsets[row + 1])])
    return None


def _portions(offsets: np.ndarray[Any, Any]) -> list[tuple[int, int]]:
    """Ranges of texts with about `_BYTES_AT_ONCE` bytes each."""
    num_texts, first, last = len(offsets) - 1, int(offsets[0]), int(offsets[-1])
    if last - first <= _BYTES_AT_ONCE:
        return [(0, num_texts)]
    cuts = np.searchsorted(offsets, np.arange(first, last, _BYTES_AT_ONCE)[1:]).tolist()
    bounds = sorted({0, num_texts, *cuts})
    return list(pairwise(bounds))
