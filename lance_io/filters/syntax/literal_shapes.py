"""Texts that differ only in the values that they compare columns with: the same tree with other literals.

    id = 77                    shape `id = ?`, value 77
    t >= 10 AND s < 'b'        shape `t >= ? AND s < '?'`, values 10 and "b"

One or two comparisons of a name with an integer of at most 18 digits, which every such text has in one form, or with
plain text. Everything else in the text is part of its shape, spaces and signs included.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_CHARS_MAX: Final = 512
_NAME: Final = r"[A-Za-z_][A-Za-z_0-9]*(?:\.[A-Za-z_][A-Za-z_0-9]*)*"
_TEXT: Final = r"[^';\\\ud800-\udfff]*"
_COMPARISON: Final = rf"{_NAME}[ ]*(?:<=|>=|<|>|=)[ ]*(?:-?(0|[1-9][0-9]{{0,17}})|'({_TEXT})')"
_SHAPE: Final = re.compile(rf"[ ]*{_COMPARISON}(?:[ ]+(?:AND|and)[ ]+{_COMPARISON})?[ ]*")


class Shaped(NamedTuple):
    """A text as its shape and its values.

    shape   equal for texts whose trees differ only in the values of literals
    values  of the literals, in the order of the text
    """

    shape: str
    values: tuple[int | str, ...]


def shape_of(text: str) -> Shaped | None:
    """The shape of a text; None for a text of another form."""
    match = _SHAPE.fullmatch(text) if len(text) <= _CHARS_MAX else None
    if match is None:
        return None
    shape, end = [], 0
    values: list[int | str] = []
    for group in (1, 2, 3, 4):
        start, stop = match.span(group)
        if start < 0:
            continue
        shape.append(text[end:start])
        literal, end = text[start:stop], stop
        is_number = group % 2 == 1
        values.append((-int(literal) if text[start - 1] == "-" else int(literal)) if is_number else literal)
    return Shaped("?".join((*shape, text[end:])), tuple(values))
