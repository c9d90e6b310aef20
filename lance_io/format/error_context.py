"""Errors told where in a file they happened.

A decoder deep inside knows what is wrong, the rooms around it know the page, the column and the file. `FormatError` and
`ResourceLimitError` keep the place apart from the message; an `UnsupportedError` gets it in front of its message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from lance_io.errors import FormatError, ResourceLimitError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

Refused: TypeAlias = FormatError | UnsupportedError | ResourceLimitError
Refusal = TypeVar("Refusal", FormatError, UnsupportedError, ResourceLimitError, Refused)

REFUSALS = (FormatError, UnsupportedError, ResourceLimitError)  # what reading a file may raise about its bytes
PAGES_SHOWN_MAX: Final = 50


def place_error(error: Refusal, where: str, path: str | None = None) -> Refusal:
    """The same error, told that it happened inside `where` (outer places come first) and in which object."""
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


def at_rows(error: Refusal, first: int, last: int) -> Refusal:
    """The same error, told in which rows of the file it is, if it is about the size of one and does not say."""
    if isinstance(error, ResourceLimitError) and error.where is None:
        error.within(f"row {first}" if first == last else f"one of the rows {first} to {last}")
    return error


def at_pages(error: Refusal, pages: Sequence[tuple[str, str, int]]) -> Refusal:
    """The same error, told which pages it was made of, where none of them is wrong by itself.

    pages  (object, column, number of the page) each
    """
    if not pages:
        return error
    first = pages[0][0]
    texts = [f"{column}, page {number}{'' if key == first else f' of {key}'}" for key, column, number in pages]
    distinct = list(dict.fromkeys(texts))
    more = [f"and {len(distinct) - PAGES_SHOWN_MAX} more pages"] if len(distinct) > PAGES_SHOWN_MAX else []
    return place_error(error, "; ".join(distinct[:PAGES_SHOWN_MAX] + more), first)
