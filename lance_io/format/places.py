"""Errors told where in a file they happened.

A decoder deep inside knows what is wrong, the rooms around it know the page, the column and the file. `FormatError`
keeps the place apart from the message; an `UnsupportedError` gets it in front of its message.
"""

from __future__ import annotations

from typing import TypeVar

from lance_io.errors import FormatError, UnsupportedError

E = TypeVar("E", FormatError, UnsupportedError, FormatError | UnsupportedError)

REFUSALS = (FormatError, UnsupportedError)  # what reading a file may raise about its bytes


def placed(error: E, where: str, path: str | None = None) -> E:
    """The same error, told that it happened inside `where` (outer places come first) and in which object."""
    if path is not None:
        error.path = path
    if isinstance(error, FormatError):
        error.within(where)
    else:
        error.message = (
            f"{where}, {error.message}" if error.message.startswith("page ") else f"{where}: {error.message}"
        )
        error.args = (error.message,)
    return error
