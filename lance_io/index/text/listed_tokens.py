"""The tokens of a partition whose file has a row for each (spec: indices, 7.2, token sets of form "arrow").

They are kept in the order of their bytes. A search by similarity goes over them once, as arrays: those that begin as
the word does are a range, and the lengths of these in characters leave few whose letters are compared.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io import compute as pc
from lance_io.errors import FormatError
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from lance_io.spans import IntArray

    _Mask = npt.NDArray[np.bool_]

TOKEN_COLUMN, NUMBER_COLUMN = "_token", "_token_id"
_TOKENS_AT_ONCE: Final = 1 << 16
"""Of which lengths are compared."""
_DISTANCES_AT_ONCE: Final = 1 << 20
"""Numbers in memory while letters are compared: of a token one more than the word has letters."""
_TEXT: Final = pa.large_string()


@dataclass(frozen=True, slots=True, eq=False)
class ListedTokens:
    """Tokens and their numbers.

    texts    large_binary, UTF-8, ascending
    numbers  u32[n]
    """

    texts: pa.LargeBinaryArray
    numbers: npt.NDArray[np.uint32]

    @classmethod
    def of_columns(cls, tokens: pa.Array, numbers: pa.Array) -> ListedTokens:
        """The tokens of a file, in memory of their own. Raises `FormatError`."""
        if not (pa.types.is_string(tokens.type) or pa.types.is_large_string(tokens.type)):
            raise FormatError(f"{TOKEN_COLUMN}: expected string, found {tokens.type}")
        if numbers.type != pa.uint32():
            raise FormatError(f"{NUMBER_COLUMN}: expected uint32, found {numbers.type}")
        if tokens.null_count or numbers.null_count:
            raise FormatError(f"{TOKEN_COLUMN}: a token or its number is null")
        texts = tokens.cast(pa.large_binary())
        try:
            texts.cast(_TEXT)
        except pa.ArrowInvalid as error:
            raise FormatError(f"{TOKEN_COLUMN}: a token is no UTF-8") from error
        order = pa.array(np.arange(len(texts))) if _ascend(texts) else pc.sort_indices(texts)
        texts = texts.take(order)
        if not _ascend(texts):
            raise FormatError(f"{TOKEN_COLUMN}: a token stands twice")
        return cls(texts, numbers.take(order).to_numpy())

    @property
    def nbytes(self) -> int:
        """Memory, in bytes."""
        return int(self.texts.nbytes) + self.numbers.nbytes

    def find(self, token: bytes) -> int | None:
        """The number of a token; None without it."""
        at = self._first_from(token)
        if at == len(self.texts) or self.texts[at].as_py() != token:
            return None
        return int(self.numbers[at])

    def near(self, word: str, distance: int, prefix: int, limit: int) -> list[tuple[bytes, int]]:
        """The first `limit` tokens, by their bytes, with the first `prefix` characters of a word, and their numbers.

        At most `distance` characters differ: inserted, removed or replaced.
        """
        near: list[tuple[bytes, int]] = []
        if limit <= 0:
            return near
        for places in self._places(word, distance, word[:prefix].encode()):
            texts = self.texts.take(pa.array(places))
            kept = places[_near(texts.view(_TEXT), word, distance)][: limit - len(near)]
            near += zip(self.texts.take(pa.array(kept)).to_pylist(), self.numbers[kept].tolist(), strict=True)
            if len(near) == limit:
                break
        return near

    def _first_from(self, text: bytes) -> int:
        return bisect_left(range(len(self.texts)), text, key=lambda at: self.texts[at].as_py())

    def _places(self, word: str, distance: int, prefix: bytes) -> Iterator[IntArray]:
        """Places of the tokens with a prefix that are about as long as a word, a bounded number at a time."""
        first = self._first_from(prefix)
        until = bisect_left(
            range(len(self.texts)), True, lo=first, key=lambda at: not self.texts[at].as_py().startswith(prefix)
        )
        at_once = max(1, _DISTANCES_AT_ONCE // (len(word) + 1))
        for start in range(first, until, _TOKENS_AT_ONCE):
            texts = self.texts.slice(start, min(_TOKENS_AT_ONCE, until - start)).view(_TEXT)
            lengths = pc.utf8_length(texts).to_numpy()
            places = start + np.flatnonzero(np.abs(lengths - len(word)) <= distance)
            yield from np.split(places, range(at_once, len(places), at_once))


def _ascend(texts: pa.Array) -> bool:
    """Whether each text is greater than the one before, as in files of pylance. Sorting takes ten times as long."""
    return len(texts) < 2 or bool(pc.all(pc.less(texts[:-1], texts[1:])).as_py())


def _near(texts: pa.Array, word: str, distance: int) -> _Mask:
    """Which texts differ from a word in at most `distance` characters, and in length by no more.

    Row i of `last` are the distances of the first i letters of the word to the letters of each text so far. Only rows
    in a band around the number of these letters can be small. Texts that are far already are left out.
    """
    lengths = pc.utf8_length(texts).to_numpy()
    letters = _letters(texts)
    places, starts = np.arange(len(lengths)), np.cumsum(lengths) - lengths
    own = [ord(letter) for letter in word]
    near: _Mask = (lengths == 0) & (len(own) <= distance)
    last = np.repeat(np.arange(len(own) + 1, dtype=np.int32)[:, None], len(lengths), axis=1)
    for number in range(1, int(lengths.max(initial=0)) + 1):
        kept = _are_kept(last, number - 1, distance) & (lengths[places] >= number)
        if 2 * int(kept.sum()) <= len(places):  # otherwise a copy costs more than the letters
            places, last = places[kept], last[:, kept]
            if not len(places):
                break
        at = np.minimum(starts[places] + number - 1, len(letters) - 1)  # texts that have ended are not looked at
        last = _with_letter(last, own, letters[at], number, distance)
        ended = lengths[places] == number
        near[places[ended]] = last[-1, ended] <= distance
    return near


def _letters(texts: pa.Array) -> npt.NDArray[np.uint32]:
    """The characters of all texts, one after the other."""
    offsets = np.frombuffer(texts.buffers()[1] or bytes(8), np.int64)[texts.offset :]
    data = memoryview(texts.buffers()[2] or b"")[int(offsets[0]) : int(offsets[len(texts)])]
    return np.frombuffer(str(data, "utf-8").encode("utf-32-le"), np.uint32)


def _are_kept(last: npt.NDArray[np.int32], number: int, distance: int) -> _Mask:
    band = last[max(0, number - distance) : number + distance + 1]
    kept: _Mask = band.min(axis=0) <= distance
    return kept


def _with_letter(
    last: npt.NDArray[np.int32], own: list[int], letters: npt.NDArray[Any], number: int, distance: int
) -> npt.NDArray[np.int32]:
    """The rows after one more letter of each text, its `number`-th; those outside the band are large."""
    rows = np.full_like(last, len(own) + number)
    rows[0] = number
    for at in range(max(1, number - distance), min(len(own), number + distance) + 1):
        np.add(last[at - 1], letters != own[at - 1], out=rows[at])
        np.minimum(rows[at], last[at] + 1, out=rows[at])
        np.minimum(rows[at], rows[at - 1] + 1, out=rows[at])
    return rows
