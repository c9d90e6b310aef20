"""The literal pieces of LIKE patterns: `\\` before a character takes it literally, `%` and `_` stand for others."""

from __future__ import annotations

from typing import NamedTuple


class LiteralPieces(NamedTuple):
    """The pieces of a pattern between its placeholders.

    first      the piece that each text begins with; empty if the pattern begins with a placeholder
    all        all pieces that are not empty
    is_whole   whether there is no placeholder, so that `first` is the whole text
    is_prefix  whether `first` is followed by one `%` and nothing else
    """

    first: str
    all: tuple[str, ...]
    is_whole: bool
    is_prefix: bool


def literal_pieces(pattern: str) -> LiteralPieces | None:
    """The pieces of a pattern; None if it ends within an escape."""
    pieces, placeholders = [""], ""
    characters = iter(pattern)
    for character in characters:
        if character in "%_":
            placeholders += character
            pieces.append("")
            continue
        if character == "\\":
            escaped = next(characters, None)
            if escaped is None:
                return None
            character = escaped
        pieces[-1] += character
    is_prefix = placeholders == "%" and not pieces[-1]
    return LiteralPieces(pieces[0], tuple(filter(None, pieces)), not placeholders, is_prefix)
