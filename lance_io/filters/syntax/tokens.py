"""Text cut into tokens, for the small languages inside filters: names of types, paths into JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re

END = ("end", "")


def tokens(pattern: re.Pattern[str], text: str) -> list[tuple[str, str]] | None:
    """The tokens of a text as (name of the pattern's group, text), then `END`; None if a part of it is no token.

    pattern  matches one token and the blanks before it, and has a named group for every kind
    """
    matches: list[tuple[str, str]] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        token = pattern.match(text, at)
        if token is None:
            return None
        kind = str(token.lastgroup)
        matches.append((kind, token[kind]))
        at = token.end()
    return [*matches, END]
