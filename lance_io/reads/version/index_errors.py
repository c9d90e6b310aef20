"""Errors about the files of an index, which name both."""

from __future__ import annotations

from typing import Any, Final

from lance_io.errors import FormatError, NotFound, ResourceLimitError, UnsupportedError

INDEX_ERRORS: Final = (FormatError, UnsupportedError, NotFound, ResourceLimitError)


def in_index(error: Any, name: str, key: str, without: str = "use_scalar_index=False reads without it") -> Any:
    """An error about a file of an index, naming both.

    without  the argument that does without the index
    """
    where = f"index {name!r} ({without}; drop the index, or build it again)"
    if isinstance(error, UnsupportedError):
        return UnsupportedError(f"{where}: {error.message}", path=error.path or key)
    if isinstance(error, NotFound):
        error = FormatError(f"a file of the index is missing: {error.message}", path=error.path)
    error.path = error.path or key
    return error.within(where)
