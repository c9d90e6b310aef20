"""Adds the location in a file to errors.

A decoder raises errors without a location; its callers add the page, the column and the file. `FormatError` and
`ResourceLimitError` keep the location apart from the message; for an `UnsupportedError` it precedes the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from lance_io.errors import FormatError, ResourceLimitError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

FileError: TypeAlias = FormatError | UnsupportedError | ResourceLimitError
FileErrorT = TypeVar("FileErrorT", FormatError, UnsupportedError, ResourceLimitError, FileError)

FILE_ERRORS = (FormatError, UnsupportedError, ResourceLimitError)  # raised for the bytes of a file
PAGES_SHOWN_MAX: Final = 50


def add_location(error: FileErrorT, where: str, path: str | None = None) -> FileErrorT:
    """Add the location `where` (outer locations come first) and the object's path to an error, and return it."""
    if path is not None:
        error.path = path
    if isinstance(error, (FormatError, ResourceLimitError)):
        error.within(where)
    else:
        error.message = (
            f"{where}, {error.message}" if error.message.startswith("page ") else f"{where}: {error.message}"
        )
        error.args = (error.message,)
    return error


def add_row_location(error: FileErrorT, first: int, last: int) -> FileErrorT:
    """Add a range of file rows to an error about the size of a row, unless it has a location; returns the error."""
    if isinstance(error, ResourceLimitError) and error.where is None:
        error.within(f"row {first}" if first == last else f"one of the rows {first} to {last}")
    return error


def add_page_locations(error: FileErrorT, pages: Sequence[tuple[str, str, int]]) -> FileErrorT:
    """Add the pages that were decoded together, if no single page is to blame; returns the error.

    pages  (object, column, page number) each
    """
    if not pages:
        return error
    first = pages[0][0]
    texts = [f"{column}, page {number}{'' if key == first else f' of {key}'}" for key, column, number in pages]
    distinct = list(dict.fromkeys(texts))
    more = [f"and {len(distinct) - PAGES_SHOWN_MAX} more pages"] if len(distinct) > PAGES_SHOWN_MAX else []
    return add_location(error, "; ".join(distinct[:PAGES_SHOWN_MAX] + more), first)
