"""Texts to trigrams, for NGRAM (spec: indices, 3.6).

    text -> lower case -> folded to ASCII -> all windows of three letters or digits -> 37² a + 37 b + c

A character that has no ASCII form stays as it is, and ends a window as a space does. Folding may bring back capital
letters (from `ℋ`); pylance computes their codes in eight bits, below those of the digits, and so do we.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lance_io.levels.arrays import true_positions

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from lance_io.spans import IntArray

    Bytes = npt.NDArray[np.uint8]

_NULL_TOKEN: Final = 0
_BYTES_AT_ONCE: Final = 1 << 20
_LETTERS: Final = {  # without a decomposition in Unicode
    "Æ": "AE", "æ": "ae", "Ð": "D", "ð": "d", "Ø": "O", "ø": "o", "Þ": "TH", "þ": "th", "Đ": "D", "đ": "d",
    "Ħ": "H", "ħ": "h", "ı": "i", "ĸ": "k", "Ł": "L", "ł": "l", "Ŋ": "N", "ŋ": "n", "Œ": "OE", "œ": "oe",
    "Ŧ": "T", "ŧ": "t", "ß": "ss", "ẞ": "SS",
}  # fmt: skip
_NEWER: Final = {  # decompositions that Python's Unicode may lack
    "\ua7f1": "S", "\ua7f8": "H", "\ua7f9": "oe", "\U00010783": "ae", "\U00010795": "h", "\U000107a2": "o",
    **{chr(0x1CCD6 + number): chr(ord("A") + number) for number in range(26)},
    **{chr(0x1CCF0 + number): chr(ord("0") + number) for number in range(10)},
}  # fmt: skip


class _Folding(dict[int, str]):
    """The ASCII form of characters, by code point, for `str.translate`."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        folded = char if code < 0x80 else _NEWER.get(char) or _fold(char)
        self[code] = folded
        return folded


def _fold(char: str) -> str:
    parts = (_LETTERS.get(part, part) for part in unicodedata.normalize("NFKD", char))
    return "".join(part for part in parts if part.isascii()) or char


_FOLDING: Final = _Folding()


def _code_table(*, lowers: bool) -> tuple[Bytes, npt.NDArray[np.bool_]]:
    """Codes of ASCII characters, and which are letters or digits. lowers: whether capitals count as small letters."""
    codes, is_word = np.zeros(256, np.uint8), np.zeros(256, np.bool_)
    for char in map(chr, range(0x80)):
        if char.isalnum():
            is_word[ord(char)] = True
            small = char.lower() if lowers else char
            codes[ord(char)] = ord(char) - ord("0") + 1 if char.isdigit() else (ord(small) - ord("a") + 11) % 256
    return codes, is_word


_OF_TEXT: Final = _code_table(lowers=True)
_OF_FOLDED: Final = _code_table(lowers=False)


def trigrams(values: pa.Array) -> Iterator[tuple[pa.Array, IntArray]]:
    """Trigrams of texts, each with the position of its text; the token 0 stands for null."""
    if values.null_count:
        nulls = true_positions(values.is_null())
        yield pa.array(np.full(len(nulls), _NULL_TOKEN, np.uint32)), nulls
    for first, last in _pieces(values):
        piece = values.slice(first, last - first)
        data, bounds = _content(piece)
        if not len(data):
            continue
        if not (data & 0x80).any():
            yield _windows(data, bounds, _OF_TEXT, first)
            continue
        folded = [text and text.lower().translate(_FOLDING) for text in piece.to_pylist()]
        data, bounds = _content(pa.array([text and text.encode("ascii", "replace") for text in folded], pa.binary()))
        if len(data):
            yield _windows(data, bounds, _OF_FOLDED, first)


def _offsets(values: pa.Array) -> IntArray:
    is_large = pt.is_large_string(values.type)
    size = 8 if is_large else 4
    return np.frombuffer(
        values.buffers()[1], np.int64 if is_large else np.int32, len(values) + 1, values.offset * size
    ).astype(np.int64)


def _pieces(values: pa.Array) -> Iterator[tuple[int, int]]:
    """Ranges of texts of about a million bytes together."""
    if not len(values):
        return
    offsets, start = _offsets(values), 0
    while start < len(values):
        end = int(np.searchsorted(offsets, offsets[start] + _BYTES_AT_ONCE, "right")) - 1
        end = min(len(values), max(start + 1, end))
        yield start, end
        start = end


def _content(values: pa.Array) -> tuple[Bytes, IntArray]:
    """The bytes of all texts, and where each begins and ends."""
    offsets = _offsets(values)
    buffer = values.buffers()[2]
    data = np.empty(0, np.uint8) if buffer is None or not buffer.size else np.frombuffer(buffer, np.uint8)
    return data[offsets[0] : offsets[-1]], offsets - offsets[0]


def _windows(
    data: Bytes, bounds: IntArray, table: tuple[Bytes, npt.NDArray[np.bool_]], first: int
) -> tuple[pa.Array, IntArray]:
    codes, is_word = table[0][data], table[1][data]
    at = np.flatnonzero(is_word[:-2] & is_word[1:-1] & is_word[2:])
    texts = np.searchsorted(bounds, at, "right") - 1
    inside = at + 2 < bounds[texts + 1]
    at, texts = at[inside], texts[inside]
    wide = codes.astype(np.uint32)
    tokens = wide[at] * np.uint32(37 * 37) + wide[at + 1] * np.uint32(37) + wide[at + 2]
    return pa.array(tokens), texts + first
