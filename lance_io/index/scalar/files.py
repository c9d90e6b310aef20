"""Checks of index files that all kinds share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lance_io.errors import FormatError

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_io.index.questions import TableFile

_COUNT_MAX: Final = (1 << 31) - 1


def check_type(file: TableFile, name: str, column: str, dtype: pa.DataType | None) -> None:
    """Raise `FormatError` unless a file has a column of this type.

    name   of the file
    dtype  None if the file lacks the column
    """
    found_type = file.types.get(column)
    if found_type is None or found_type != dtype:
        raise FormatError(f"{name}: expected a column {column} of type {dtype}, there is {found_type or 'none'}")


def column(file: TableFile, name: str) -> pa.Array:
    """A column that is kept in memory and has been checked."""
    return file.columns[name]


def whole_number(file: TableFile, key: str, default: int) -> int:
    """A positive number in the metadata of a file. Raises `FormatError` for another value."""
    text = file.metadata.get(key)
    if text is None:
        return default
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 11 else 0
    if not 1 <= number <= _COUNT_MAX:
        raise FormatError(f"{key}: expected a number from 1 to {_COUNT_MAX} in the metadata, found {text[:40]!r}")
    return number
