"""Texts to tokens, by the parameters of an index: for queries, for rows without an index, and for `tokenize`."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io import _kernels
from lance_io.caller_text import utf8
from lance_io.errors import UsageError
from lance_io.index.text.text_parameters import parameters_of_arguments
from lance_io.records import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_io.index.text.text_parameters import TextParameters

TOKEN_BYTES_MAX: Final = 1 << 30
"""Of the tokens of one batch."""
ANALYZERS_KEPT: Final = 8
_WIDE: Final = (pa.large_string(), pa.large_binary())
_DEFAULT_LENGTH: Final[Any] = ...


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """The tokens of a batch of texts.

    rows       int32[texts + 1]: the first token of each text, and the end
    texts      of the tokens
    positions  int32[tokens]: position in the text, counted before tokens were dropped
    """

    rows: npt.NDArray[np.int32]
    texts: pa.StringArray
    positions: npt.NDArray[np.int32]

    def of(self, row: int) -> list[str]:
        """The tokens of one text."""
        return self.texts[self.rows[row] : self.rows[row + 1]].to_pylist()  # type: ignore[no-any-return]


@lru_cache(ANALYZERS_KEPT)
def analyzer_of(parameters: TextParameters) -> _kernels.Analyzer:
    """The tokenizer of an index; the last ones are kept. It holds the lists of its language, and words of a user."""
    words = parameters.custom_stop_words
    try:
        return _kernels.Analyzer(
            parameters.base_tokenizer,
            is_json=parameters.lance_tokenizer == "json",
            language=parameters.language,
            length_limit_bytes=parameters.max_token_length,
            lower_case=parameters.lower_case,
            stem=parameters.stem,
            stop_words=parameters.remove_stop_words,
            custom_stop_words=None if words is None else [*words],
            ascii_folding=parameters.ascii_folding,
            ngram_chars=(parameters.min_ngram_length, parameters.max_ngram_length),
            prefix_only=parameters.prefix_only,
            split_identifiers=parameters.split_identifiers,
            split_on_numerics=parameters.split_on_numerics,
            preserve_original=parameters.preserve_original,
            index_operators=parameters.index_operators,
        )
    except ValueError as error:
        raise UsageError(f"tokenizer: {error}") from error


def tokenized(analyzer: _kernels.Analyzer, texts: pa.Array, bytes_max: int = TOKEN_BYTES_MAX) -> Tokens:
    """The tokens of texts; a null has none.

    texts      strings, large strings or string views, or the storage of JSON documents as text
    bytes_max  memory of the tokens

    Raises `UsageError` for texts with more tokens.
    """
    data, offsets, is_wide, present = text_buffers(texts)
    try:
        buffers = analyzer.tokenize(len(texts), (data, offsets, is_wide), present, bytes_max)
    except ValueError as error:
        raise UsageError(f"tokenizer: {error}") from error
    rows, ends, token_bytes, positions = buffers
    count = len(positions) // 4
    array = pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(token_bytes))
    return Tokens(np.frombuffer(memoryview(rows), np.int32), array, np.frombuffer(memoryview(positions), np.int32))


def text_tokens(analyzer: _kernels.Analyzer, text: str) -> list[tuple[bytes, int]]:
    """The tokens of one text, and their positions. Raises `UsageError` as `tokenized`."""
    data = utf8(text, "the words of a query")
    ends = np.array([0, len(data)], np.int64)
    try:
        buffers = analyzer.tokenize(1, (data, ends, True), None, TOKEN_BYTES_MAX)
    except ValueError as error:
        raise UsageError(f"tokenizer: {error}") from error
    marks, whole = np.frombuffer(memoryview(buffers[1]), np.int32).tolist(), bytes(memoryview(buffers[2]))
    positions = np.frombuffer(memoryview(buffers[3]), np.int32).tolist()
    return [(whole[marks[at] : marks[at + 1]], position) for at, position in enumerate(positions)]


def text_buffers(texts: pa.Array) -> tuple[Any, Any, bool, npt.NDArray[np.bool_] | None]:
    """The bytes of texts or of stored JSON documents, and their offsets.

    Third, whether the offsets have 64 bits; fourth, which texts are not null, None for all.
    """
    if texts.type not in (pa.string(), *_WIDE):
        texts = texts.cast(pa.large_string())
    is_wide = texts.type in _WIDE
    _, offsets, data = texts.buffers()
    width = 8 if is_wide else 4
    if not len(texts):
        return b"", bytes(width), is_wide, None
    window = offsets.slice(texts.offset * width, (len(texts) + 1) * width)
    present = None
    if texts.null_count:
        present = texts.is_valid().to_numpy(zero_copy_only=False)
    return data if data is not None else b"", window, is_wide, present


@dataclass(frozen=True)
class FtsToken:
    """A token of a query.

    Args:
        text: Its text, as the tokenizer leaves it.
        position: Its position, counted from the first token of the query.
    """

    text: str
    position: int


def tokenize(
    query: str,
    *,
    analyzer: str | None = None,
    base_tokenizer: str | None = None,
    language: str | None = None,
    max_token_length: int | None = _DEFAULT_LENGTH,
    lower_case: bool | None = None,
    stem: bool | None = None,
    remove_stop_words: bool | None = None,
    custom_stop_words: list[str] | None = None,
    ascii_folding: bool | None = None,
    min_ngram_length: int | None = None,
    max_ngram_length: int | None = None,
    prefix_only: bool | None = None,
    split_identifiers: bool | None = None,
    split_on_numerics: bool | None = None,
    preserve_original: bool | None = None,
    index_operators: bool | None = None,
) -> list[FtsToken]:
    """Split a text into the tokens that a full text index would have for it.

    None means the default of the analyzer; only for `max_token_length` it means no limit.

    Args:
        query: The text.
        analyzer: "text", or "code" for source code.
        base_tokenizer: "simple", "whitespace", "raw", "ngram", "icu", "icu/split" or "code".
        language: Of the stemmer and the stop words, such as "English".
        max_token_length: Tokens of this many bytes and longer are dropped; 40 by default.
        lower_case: Whether tokens become lower case.
        stem: Whether tokens are reduced to their stem; not by default for "ngram" and "code".
        remove_stop_words: Whether frequent words of the language are dropped; as for `stem`.
        custom_stop_words: Words that are dropped in place of those of the language.
        ascii_folding: Whether letters lose their accents.
        min_ngram_length: Characters of the shortest n-gram; 3 by default.
        max_ngram_length: Characters of the longest n-gram; 3 by default.
        prefix_only: Whether n-grams are taken from the start of the text alone.
        split_identifiers: For code: whether an identifier is also split into its words.
        split_on_numerics: For code: whether digits end a word of an identifier.
        preserve_original: For code: whether a split identifier is a token, too.
        index_operators: For code: whether operators are tokens.

    Returns:
        The tokens in order.

    Raises:
        ValueError: An argument has no such value, or arguments do not fit together.
        TypeError: An argument has the wrong type.
    """
    if not isinstance(query, str):
        raise TypeError(f"query must be str, found {query!r}")
    given = {name: value for name, value in locals().items() if name not in ("query", "max_token_length")}
    given = {name: value for name, value in given.items() if value is not None}
    if max_token_length is not _DEFAULT_LENGTH:
        given["max_token_length"] = max_token_length
    tokens = tokenized(analyzer_of(parameters_of_arguments(given, for_index=False)), pa.array([query], pa.string()))
    first = int(tokens.positions[0]) if len(tokens.positions) else 0
    return [
        FtsToken(text, int(position) - first)
        for text, position in zip(tokens.texts.to_pylist(), tokens.positions, strict=True)
    ]
