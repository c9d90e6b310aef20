"""Texts of callers as bytes: a `str` may hold half of a surrogate pair, which no file and no request can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.errors import UsageError

if TYPE_CHECKING:
    from lance_io.errors import LanceError


def utf8(text: str, what: str, kind: type[LanceError] = UsageError) -> bytes:
    """The bytes of a caller's text.

    what  the text, for the error
    kind  of the error

    Raises `UsageError` for half of a surrogate pair.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise kind(no_unicode(what, error)) from None


def no_unicode(what: str, error: UnicodeEncodeError) -> str:
    """The message for a caller's text with half of a surrogate pair."""
    half = f"U+{ord(error.object[error.start]):04X}"
    return (
        f"{what}: expected Unicode text, found half of a surrogate pair, {half}, at character {error.start}: leave it "
        "out, or decode bytes with errors='replace'"
    )
