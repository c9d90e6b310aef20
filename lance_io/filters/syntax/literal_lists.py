"""Cuts lists of literals behind IN out of a text before parsing: the parser takes microseconds for each token.

    a in (1, 2, 3) and b > 1      ->   a in () and b > 1, and `1, 2, 3` as arrays

Only a part of the grammar is cut: integers, decimal numbers, strings, `X'..'`, `null`, and dates, timestamps and
decimals as `date '..'`, with commas, blanks and comments between them. A list with anything else stays in the text. So
do all lists of a text in which a quote or comment has no end, or comments are nested.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lance_io.filters.expressions.expression_tree import LiteralGroup
from lance_io.filters.expressions.sql_types import sql_type
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

CUT_CHARS_MIN: Final = 256  # shorter lists are parsed
_COMMENT: Final = r"--[^\r\n]*+|/\*(?:[^*/]|\*(?!/)|/(?!\*))*+\*/"
_SINGLE: Final = r"'(?:[^']|'')*+'"
_DOUBLE: Final = r'"(?:[^"]|"")*+"'
_BLANKS: Final = rf"(?:[ \t\r\n]|{_COMMENT})*+"
_TYPE: Final = r"date|(?:timestamp|datetime)(?:\([0369]\))?|decimal\([0-9]{1,2},[0-9]{1,2}\)"
_NUMBER: Final = r"-?[0-9]+(?:\.[0-9]+(?:e[+-]?[0-9]{1,3})?|e[+-]?[0-9]{1,3})"
_INTEGER: Final = r"-?[0-9]{1,20}"
_BYTES: Final = r"x'(?:[0-9a-f]{2})*+'"
_TYPED: Final = rf"(?:{_TYPE})[ \t\r\n]*{_SINGLE}"
_KINDS: Final = (_NUMBER, _INTEGER, _SINGLE, _DOUBLE, _BYTES, "null", _TYPED)
_PADDED: Final = rf"{_BLANKS}(?:{'|'.join(_KINDS)}){_BLANKS}"

_LIST: Final = re.compile(rf"\({_PADDED}(?:,{_PADDED})*+\)", re.IGNORECASE | re.ASCII)
_ITEMS: Final = re.compile(rf"{_COMMENT}|{'|'.join(f'({kind})' for kind in _KINDS)}", re.IGNORECASE | re.ASCII)
_PIECES: Final = re.compile(
    rf"{_COMMENT}|{_SINGLE}|{_DOUBLE}|`(?:[^`]|``)*+`|(?P<unknown>/\*|\{{#|['\"`])"
    r"|(?<=[ \t\r\n)\]`])in[ \t\r\n]*(?P<list>\()",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True)
class CutList:
    """The contents of a list, cut out of a text.

    start  in the whole text, behind the bracket
    text   the contents without the brackets
    """

    start: int
    text: str

    def literals(self) -> tuple[tuple[LiteralGroup, ...], bool]:
        """The literals by type, as the parser reads them, and whether null is among them."""
        matches = _ITEMS.findall(self.text)
        numbers, integers, single, double, octets, nulls, typed = (
            [groups[kind] for groups in matches if groups[kind]] for kind in range(len(_KINDS))
        )
        groups = [
            *_integers(integers),
            LiteralGroup(pa.array(map(float, numbers), pa.float64())),
            LiteralGroup(pa.array([*_unquoted(single), *_unquoted(double)], pa.string())),
            LiteralGroup(pa.array([bytes.fromhex(literal[2:-1]) for literal in octets], pa.binary())),
            *_typed(typed),
        ]
        return tuple(group for group in groups if len(group.values)), bool(nulls)


def cut_lists(text: str) -> tuple[str, list[CutList]]:
    """The text without the contents of its long lists of literals, and these lists in order."""
    if len(text) < CUT_CHARS_MIN:
        return text, []
    kept, cuts, at, copied = list[str](), list[CutList](), 0, 0
    while (piece := _PIECES.search(text, at)) is not None:
        at = piece.end()
        if piece["unknown"]:
            return text, []
        if piece["list"] is None:
            continue
        literals = _LIST.match(text, at - 1)
        if literals is not None and literals.end() - at > CUT_CHARS_MIN:
            kept.append(text[copied:at])
            copied = at = literals.end() - 1
            cuts.append(CutList(literals.start() + 1, text[literals.start() + 1 : copied]))
    return "".join([*kept, text[copied:]]), cuts


def _integers(digits: list[str]) -> Iterable[LiteralGroup]:
    numbers = [int(number) for number in digits]
    if not numbers or (min(numbers) >= -(1 << 63) and max(numbers) < 1 << 63):
        yield LiteralGroup(pa.array(numbers, pa.int64()))
        return
    yield LiteralGroup(pa.array([number for number in numbers if -(1 << 63) <= number < 1 << 63], pa.int64()))
    yield LiteralGroup(pa.array([number for number in numbers if 1 << 63 <= number < 1 << 64], pa.uint64()))
    yield LiteralGroup(
        pa.array([float(number) for number in numbers if not -(1 << 63) <= number < 1 << 64], pa.float64())
    )


def _unquoted(texts: list[str]) -> list[str]:
    return [quoted[1:-1].replace(quoted[0] * 2, quoted[0]) for quoted in texts]


def _typed(literals: list[str]) -> Iterable[LiteralGroup]:
    by_type: dict[str, list[str]] = {}
    for literal in literals:
        name, quote, text = literal.partition("'")
        by_type.setdefault(name.strip().upper(), []).append(quote + text)
    for name, texts in by_type.items():
        yield LiteralGroup(pa.array(_unquoted(texts), pa.string()), sql_type(name))
