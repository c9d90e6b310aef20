"""The parameters of a full text index: as arguments, as a details message, as metadata of its files (indices, 7.1)."""

from __future__ import annotations

import json
import operator
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import FormatError, UnsupportedError, UsageError
from lance_io.format.wire import parse_message
from lance_io.proto import table_pb2
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

LANGUAGES: Final = (
    "Arabic", "Danish", "Dutch", "English", "Finnish", "French", "German", "Greek", "Hungarian", "Italian", "Norwegian",
    "Portuguese", "Romanian", "Russian", "Spanish", "Swedish", "Tamil", "Turkish",
)  # fmt: skip
"""Languages with a stemmer and stop words."""
BLOCK_SIZES: Final = (128, 256)
ROW, LIST_ELEMENT = "row", "list_element"
_U32_MAX: Final = (1 << 32) - 1
_BUILT_IN: Final = ("simple", "whitespace", "raw", "ngram", "icu", "icu/split", "code")
_WITH_MODELS: Final = ("jieba", "lindera")
_PLAIN: Final = ("ngram", "code")  # tokenizers without stemming and stop words, unless these are asked for
_CODE_FLAGS: Final = ("split_identifiers", "split_on_numerics", "preserve_original", "index_operators")


class UnknownTokenizer(UnsupportedError):
    """Parameters in files name a tokenizer that this release does not have."""


@dataclass(frozen=True, slots=True)
class TextParameters:
    """How an index makes tokens of texts, and how it stores them; the names are those of the files' metadata.

    lance_tokenizer    "text", or "json": a token is a path, a type, and a token or value
    base_tokenizer     splits a text
    language           of the stemmer and of the stop words
    with_position      whether positions are stored, for phrases
    max_token_length   tokens of this many bytes and longer are dropped; None for no limit
    custom_stop_words  in place of those of the language
    block_size         documents of a block
    """

    lance_tokenizer: str = "text"
    base_tokenizer: str = "simple"
    language: str = "English"
    with_position: bool = False
    max_token_length: int | None = 40
    lower_case: bool = True
    stem: bool = True
    remove_stop_words: bool = True
    custom_stop_words: tuple[str, ...] | None = None
    ascii_folding: bool = True
    min_ngram_length: int = 3
    max_ngram_length: int = 3
    prefix_only: bool = False
    block_size: int = 128
    split_identifiers: bool = False
    split_on_numerics: bool = False
    preserve_original: bool = False
    index_operators: bool = False

    @property
    def analysis(self) -> TextParameters:
        """What decides the tokens of a text."""
        return replace(self, with_position=False, block_size=BLOCK_SIZES[0])

    def to_json(self) -> str:
        """The `params` of a file's metadata."""
        return json.dumps({field.name: getattr(self, field.name) for field in fields(self)}, separators=(",", ":"))

    def to_message(self, format_version: int, granularity: str = ROW) -> bytes:
        """The details message."""
        message = table_pb2.InvertedIndexDetails(
            base_tokenizer=self.base_tokenizer,
            language=json.dumps(self.language),
            with_position=self.with_position,
            max_token_length=self.max_token_length,
            lower_case=self.lower_case,
            stem=self.stem,
            remove_stop_words=self.remove_stop_words,
            ascii_folding=self.ascii_folding,
            min_ngram_length=self.min_ngram_length,
            max_ngram_length=self.max_ngram_length,
            prefix_only=self.prefix_only,
            block_size=self.block_size,
            document_granularity=int(granularity == LIST_ELEMENT),
            posting_format_version=format_version,
        )
        if self.base_tokenizer == "code":
            message.code_config.SetInParent()
            for name in _CODE_FLAGS:
                setattr(message.code_config, name, getattr(self, name))
        return message.SerializeToString()


def parameters_of_arguments(given: Mapping[str, Any], *, for_index: bool = True) -> TextParameters:
    """Parameters from arguments of `create_scalar_index`, or of `tokenize`, which takes None for defaults.

    Raises `UsageError` for unknown names and values that do not fit, `TypeError` for values of a wrong type.
    """
    given = dict(given)
    base = _base_tokenizer(given.pop("analyzer", None), given.pop("base_tokenizer", None))
    is_plain, is_code = base in _PLAIN, base == "code"
    defaults = TextParameters(
        base_tokenizer=base,
        stem=not is_plain,
        remove_stop_words=not is_plain,
        split_on_numerics=is_code,
        preserve_original=is_code,
    )
    known = {field.name: getattr(defaults, field.name) for field in fields(defaults)}
    del known["lance_tokenizer"], known["base_tokenizer"]
    values = {}
    for name, value in given.items():
        if name not in known:
            raise UsageError(f"unknown FTS index parameter {name!r}")
        if value is None and name != "max_token_length" and not (for_index and isinstance(known[name], bool)):
            continue
        if name in _CODE_FLAGS and not is_code:
            raise UsageError("code analyzer flags require analyzer='code'")
        values[name] = _checked(name, value, known[name])
    parameters = replace(defaults, **values)
    check_parameters(parameters)
    return parameters


def _base_tokenizer(analyzer: Any, base: Any) -> str:
    if analyzer not in (None, "text", "code"):
        raise UsageError(f"unknown analyzer {analyzer!r}, expected 'text' or 'code'")
    if base is not None and not isinstance(base, str):
        raise TypeError(f"base_tokenizer must be str, found {base!r}")
    if analyzer == "code":
        if base not in (None, "code"):
            raise UsageError(f"analyzer='code' requires base_tokenizer='code', got {base!r}")
        return "code"
    return "simple" if base is None else base


def _checked(name: str, value: Any, default: Any) -> Any:
    """The value of an argument, with the type of its default."""
    if name == "custom_stop_words":
        words = (*value,)
        if isinstance(value, str) or not all(isinstance(word, str) for word in words):
            raise TypeError(f"custom_stop_words must be a list of str, found {value!r}")
        return words
    if name == "max_token_length" and value is None:
        return None
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be bool, found {value!r}")
        return value
    if isinstance(default, str):
        if not isinstance(value, str):
            raise TypeError(f"{name} must be str, found {value!r}")
        return value
    number = operator.index(value)
    if not 0 <= number <= _U32_MAX:
        raise OverflowError(f"{name} must be from 0 to {_U32_MAX:,}, got {number:,}")
    return number


def check_parameters(parameters: TextParameters) -> None:
    """Raise `UsageError` for parameters without a tokenizer."""
    base = parameters.base_tokenizer
    if base.partition("/")[0] in _WITH_MODELS:
        raise UsageError(
            f"base_tokenizer {base!r} needs a language model, which this release does not read; use 'icu', which "
            "splits Chinese, Japanese, Thai and other languages by dictionaries of its own, or pylance, with the model"
        )
    if base not in _BUILT_IN:
        raise UsageError(f"unknown base tokenizer {base}, expected one of {', '.join(_BUILT_IN)}")
    if parameters.language not in LANGUAGES:
        raise UsageError(
            f"can't set tokenizer language to {parameters.language}, expected one of {', '.join(LANGUAGES)}"
        )
    if parameters.block_size not in BLOCK_SIZES:
        raise UsageError(f"FTS inverted index block_size must be one of 128 or 256, got {parameters.block_size}")
    if base == "ngram":
        if not parameters.min_ngram_length:
            raise UsageError("min_gram must be greater than 0")
        if parameters.min_ngram_length > parameters.max_ngram_length:
            raise UsageError("min_gram must not be greater than max_gram")


def parameters_of_json(text: str, where: str) -> TextParameters:
    """Parameters from the `params` of a file's metadata; names that are absent have their defaults.

    Raises `FormatError` for damaged text, `UnknownTokenizer` for a tokenizer that is not there.
    """
    try:
        given = json.loads(text)
        if not isinstance(given, dict):
            raise FormatError(f"{where}: params: expected a JSON object, found {text[:80]!r}")
        values = {field.name: given[field.name] for field in fields(TextParameters) if field.name in given}
        words = values.get("custom_stop_words")
        for name, value in values.items():
            default = getattr(TextParameters(), name)
            if value is not None or not isinstance(default, (bool, str, int)):
                values[name] = _checked(name, value, default) if value is not None else None
            elif name != "max_token_length":
                raise TypeError(f"{name} is null")
        values["custom_stop_words"] = None if words is None else tuple(words)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise FormatError(f"{where}: params: {error}") from error
    return _known(TextParameters(**values), f"{where}: params")


def _known(parameters: TextParameters, where: str) -> TextParameters:
    """These parameters from a file. Raises `UnknownTokenizer`."""
    try:
        check_parameters(parameters)
    except UsageError as error:
        raise UnknownTokenizer(f"{where}: {error.message}") from error
    return parameters


def parameters_of_details(value: bytes) -> TextParameters:
    """Parameters from a details message, which has no words of a user's own. Raises as `parameters_of_json`."""
    return _known(_of_details(value), "details of a full text index")


def _of_details(value: bytes) -> TextParameters:
    message = parse_message(table_pb2.InvertedIndexDetails, value, "details of a full text index")
    try:
        language = json.loads(message.language or '"English"')
    except (ValueError, RecursionError) as error:
        raise FormatError(f"details of a full text index: language: {error}") from error
    return TextParameters(
        base_tokenizer=message.base_tokenizer or "simple",
        language=str(language),
        with_position=message.with_position,
        max_token_length=message.max_token_length if message.HasField("max_token_length") else None,
        lower_case=message.lower_case,
        stem=message.stem,
        remove_stop_words=message.remove_stop_words,
        ascii_folding=message.ascii_folding,
        min_ngram_length=message.min_ngram_length,
        max_ngram_length=message.max_ngram_length,
        prefix_only=message.prefix_only,
        block_size=message.block_size or BLOCK_SIZES[0],
        **{name: getattr(message.code_config, name) for name in _CODE_FLAGS},
    )


def text_details(value: bytes) -> dict[str, Any]:
    """The settings of a details message by name; whether the tokenizer is that of JSON is not among them."""
    parameters = _of_details(value)
    named = {field.name: getattr(parameters, field.name) for field in fields(parameters)}
    return {**named, "lance_tokenizer": None, "document_granularity": LIST_ELEMENT if is_of_elements(value) else ROW}


def is_of_elements(value: bytes) -> bool:
    """Whether a details message says that documents are elements of lists. Raises `FormatError`."""
    message = parse_message(table_pb2.InvertedIndexDetails, value, "details of a full text index")
    return bool(message.document_granularity)
