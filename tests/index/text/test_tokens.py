"""Tokens of texts, compared with pylance's."""

from __future__ import annotations

import os
import random

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.index.text.text_parameters import TextParameters, parameters_of_arguments, parameters_of_json
from lance_io.index.text.tokenizer import analyzer_of, tokenized
from tests.index.text.scripts import PARAMETERS, SCRIPTS, all_texts, random_text

TEXTS = int(os.environ.get("LANCE_IO_TOKEN_TEXTS", "0")) or 30  # random ones for each set of parameters


@pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
def test_tokens_are_those_of_pylance(parameters: dict[str, object]) -> None:
    rng = random.Random(str(parameters))
    for text in [*all_texts(), *(random_text(rng) for _ in range(TEXTS))]:
        expected = [(token.text, token.position) for token in lance.tokenize(text, **parameters)]
        tokens = [(token.text, token.position) for token in lance_io.tokenize(text, **parameters)]
        assert tokens == expected, text


@pytest.mark.parametrize(
    "parameters",
    [
        {"analyzer": "prose"},
        {"base_tokenizer": "Simple"},
        {"base_tokenizer": "jieba/default"},
        {"base_tokenizer": "lindera/ipadic"},
        {"language": "english"},
        {"analyzer": "code", "base_tokenizer": "simple"},
        {"split_identifiers": True},
        {"base_tokenizer": "ngram", "min_ngram_length": 0},
        {"base_tokenizer": "ngram", "min_ngram_length": 5},
        {"max_token_length": -1},
        {"max_token_length": "x"},
        {"stem": "x"},
        {"lower_case": 1},
    ],
    ids=str,
)
def test_arguments_that_pylance_refuses_are_refused(parameters: dict[str, object]) -> None:
    with pytest.raises(Exception) as theirs:
        lance.tokenize("a text", **parameters)
    with pytest.raises(type(theirs.value)):
        lance_io.tokenize("a text", **parameters)


def test_a_batch_has_the_tokens_of_its_texts() -> None:
    texts = [None, *all_texts(), None, "", *all_texts()]
    analyzer = analyzer_of(parameters_of_arguments({}))
    expected = [[] if text is None else [token.text for token in lance.tokenize(text)] for text in texts]
    for dtype in (pa.string(), pa.large_string(), pa.string_view()):
        array = pa.array(texts, dtype)
        tokens = tokenized(analyzer, array)
        assert [tokens.of(row) for row in range(len(texts))] == expected
        tokens = tokenized(analyzer, array.slice(3, 9))
        assert [tokens.of(row) for row in range(9)] == expected[3:12]


def test_a_batch_has_bounded_tokens() -> None:
    analyzer = analyzer_of(parameters_of_arguments({"base_tokenizer": "ngram", "max_ngram_length": 200}))
    with pytest.raises(ValueError, match="more than 1000 bytes of tokens"):
        tokenized(analyzer, pa.array(["x" * 10_000]), 1000)


def test_parameters_survive_as_metadata() -> None:
    for given in PARAMETERS:
        parameters = parameters_of_arguments(given)
        assert parameters_of_json(parameters.to_json(), "index") == parameters
    assert parameters_of_json("{}", "index") == TextParameters()


@pytest.mark.parametrize(
    "text", ["", "[]", "7", '{"stem":7}', '{"stem":null}', '{"max_token_length":-1}', "[" * 10_000]
)
def test_damaged_parameters_are_a_format_error(text: str) -> None:
    with pytest.raises(lance_io.errors.FormatError):
        parameters_of_json(text, "index")


def test_each_script_has_tokens() -> None:
    for name, texts in SCRIPTS.items():
        assert lance_io.tokenize(texts[0], base_tokenizer="icu"), name
