"""N-gram index: the rows of each sequence of three letters or digits in a text column (spec: indices, 3.6).

    ngram_postings.lance   one row for each trigram: `tokens`, kept in memory, and `posting_list`, read on demand

Texts are lower-cased and folded to ASCII before they are cut. Only needles of ASCII characters are looked up, whose
folding needs no table; others are answered by a scan. A row that has all trigrams of a needle has to be checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lance_io.errors import FormatError
from lance_io.index.questions import Blocks, Contains, FileUse
from lance_io.index.rows.row_set import Answer, RowSet
from lance_io.index.rows.tree_maps import decode_treemap64, treemap64_runs_max
from lance_io.index.scalar.files import check_type
from lance_io.levels.arrays import values_of
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from lance_io.index.details import IndexDetails, Space
    from lance_io.index.questions import Question, Search, TableFile

POSTINGS: Final = "ngram_postings.lance"
USES: Final = (FileUse(POSTINGS, ("tokens",), ("posting_list",)),)
_ALPHABET: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_RUNS_MAX: Final = 1 << 22  # of a list that narrows the rows of rarer trigrams: 64 MiB in memory


def trigrams(needle: str) -> set[int]:
    """The tokens of an ASCII text."""
    text = needle.lower()
    grams = (text[at : at + 3] for at in range(len(text) - 2))
    return {_token(gram) for gram in grams if all(character in _ALPHABET for character in gram)}


def _token(gram: str) -> int:
    token = 0
    for character in gram:
        token = 37 * token + _ALPHABET.index(character) + 1
    return token


def answers(question: Question) -> bool | None:
    """See `Segment`. A needle without a trigram restricts nothing."""
    is_known = isinstance(question, Contains) and question.needle.isascii() and trigrams(question.needle)
    return False if is_known else None


@dataclass(frozen=True, slots=True, eq=False)
class NGram:
    """A segment of an n-gram index.

    tokens  u32[n], ascending
    """

    space: Space
    tokens: npt.NDArray[np.uint32]

    @property
    def nbytes(self) -> int:
        """See `Segment`."""
        return 512 + self.tokens.nbytes

    @property
    def num_rows(self) -> int | None:
        """See `Segment`."""
        return None

    def answers(self, question: Question) -> bool | None:
        """See `Segment`."""
        return answers(question)

    def blocks(self) -> Blocks | None:
        """See `Segment`."""
        return Blocks(POSTINGS, ("posting_list",), [(row, row + 1) for row in range(len(self.tokens))])

    def search(self, question: Question, *, needs_null: bool) -> Search:
        """See `Segment`."""
        assert isinstance(question, Contains), "it answers no other question"
        wanted = np.array(sorted(trigrams(question.needle)), np.uint32)
        none = RowSet.none(self.space)
        rows = np.searchsorted(self.tokens, wanted)
        if not len(self.tokens) or (self.tokens[np.minimum(rows, len(self.tokens) - 1)] != wanted).any():
            return Answer.at_most(none)
        ranges = [(row, row + 1) for row in rows.tolist()]
        blocks = yield Blocks(POSTINGS, ("posting_list",), ranges, weigh=_runs_of, needs_all=False)
        weights = [_runs_of(block) for block in blocks]
        rarest, *others = sorted(range(len(blocks)), key=weights.__getitem__)
        matches = self._rows_of(blocks[rarest])
        for at in others:
            if weights[at] <= max(weights[rarest], _RUNS_MAX):  # rows are checked, so that no list but one is needed
                matches = matches.intersect(self._rows_of(blocks[at]))
        return Answer.at_most(matches)

    def _rows_of(self, block: list[pa.Array]) -> RowSet:
        return decode_treemap64(_list_of(block), self.space)


def _list_of(block: list[pa.Array]) -> pa.Buffer:
    """The list of a row of the file. Raises `FormatError` if there is none."""
    (postings,) = block
    if postings.null_count:
        raise FormatError(f"{POSTINGS}: a trigram has no list")
    buffer: pa.Buffer = postings[0].as_buffer()
    return buffer


def _runs_of(block: list[pa.Array]) -> int:
    """The runs that a list decodes to, at most."""
    return treemap64_runs_max(_list_of(block))


def open_ngram(files: Mapping[str, TableFile], dtype: pa.DataType | None, details: IndexDetails, space: Space) -> NGram:
    """See `OpenSegment`."""
    file = files[POSTINGS]
    check_type(file, POSTINGS, "tokens", pa.uint32())
    check_type(file, POSTINGS, "posting_list", pa.binary())
    tokens = values_of(file.columns["tokens"])
    if file.columns["tokens"].null_count or (tokens[1:] <= tokens[:-1]).any():
        raise FormatError(f"{POSTINGS}: its tokens do not ascend")
    return NGram(space, tokens)
