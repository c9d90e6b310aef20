"""Random full-text queries beside pylance's: 120 here, thousands in a campaign.

Phrases with slop are compared with their definition, of which pylance's search misses some; the best rows of a boosting
query with the first of all that pylance gives without a limit, of which it may miss one with a limit.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import lance
import lance.query
import numpy as np
import pyarrow as pa
import pytest

import lance_io
import lance_io.query
from tests.index.text_peer import agree, scores
from tests.seeds import seed_of

if TYPE_CHECKING:
    from pathlib import Path

NUM_QUERIES = int(os.environ.get("LANCE_IO_TEXT_QUERIES", "120"))
NUM_ROWS = 4000
WORDS = ["apple", "apply", "ample", "maple", "cat", "cart", "card", "the", "running", *(f"w{i}" for i in range(200))]


def random_text(rng: np.random.Generator, shares: np.ndarray[Any, Any]) -> str:
    return " ".join(rng.choice(WORDS, rng.integers(1, 16), p=shares))


def random_query(rng: np.random.Generator, depth: int = 0) -> Any:
    """A function from the module of the classes to a query."""
    words = " ".join(rng.choice(WORDS, rng.integers(1, 6)))
    column = str(rng.choice(["t", "u"]))
    kind = rng.choice(["match", "and", "fuzzy", "phrase", "multi", "boolean", "boosting"][: 7 if depth < 2 else 5])
    if kind == "match":
        boost = float(rng.choice([1.0, 0.0, 2.5]))
        return lambda q: q.MatchQuery(words, column, boost=boost)
    if kind == "and":
        return lambda q: q.MatchQuery(words, column, operator=q.FullTextOperator.AND)
    if kind == "fuzzy":
        distance, prefix, most = (int(rng.integers(*bounds)) for bounds in ((1, 4), (0, 4), (0, 60)))
        how = "AND" if rng.random() < 0.3 else "OR"
        return lambda q: q.MatchQuery(
            words,
            column,
            fuzziness=distance,
            prefix_length=prefix,
            max_expansions=most,
            operator=getattr(q.FullTextOperator, how),
        )
    if kind == "phrase":
        phrase = " ".join(rng.choice(WORDS[:30], rng.integers(1, 4)))
        return lambda q: q.PhraseQuery(phrase, column)
    if kind == "multi":
        return lambda q: q.MultiMatchQuery(words, ["t", "u"], boosts=[1.0, 1.5])
    parts = [random_query(rng, depth + 1) for _ in range(rng.integers(2, 4))]
    if kind == "boosting":
        return lambda q: q.BoostQuery(parts[0](q), parts[1](q), negative_boost=0.4)
    roles = ["MUST" if rng.random() < 0.5 else "SHOULD", *rng.choice(["MUST", "SHOULD", "MUST_NOT"], len(parts) - 1)]
    return lambda q: q.BooleanQuery(
        [(getattr(q.Occur, role), part(q)) for role, part in zip(roles, parts, strict=True)]
    )


def test_random_queries(tmp_path: Path) -> None:
    rng = np.random.default_rng(random.Random(seed_of("texts")).getrandbits(64))
    shares = 1 / np.arange(1, len(WORDS) + 1)
    shares /= shares.sum()
    texts = [[random_text(rng, shares) for _ in range(NUM_ROWS)] for _ in range(2)]
    uri = str(tmp_path / "t.lance")
    peer = lance.write_dataset(pa.table({"t": texts[0], "u": texts[1]}), uri, max_rows_per_file=NUM_ROWS // 2)
    peer.create_scalar_index("t", "INVERTED", with_position=True)
    peer.create_scalar_index("u", "INVERTED", with_position=True, format_version=3, block_size=256)
    ours = lance_io.dataset(uri)
    wrong = []
    for number in range(NUM_QUERIES):
        make = random_query(rng)
        scan: dict[str, Any] = {"limit": 10} if number % 2 else {}
        query = make(lance.query)
        if scan and isinstance(query, lance.query.BoostQuery):
            theirs = dict(sorted(scores(peer, query).items(), key=lambda row: -row[1])[:10])
        else:
            theirs = scores(peer, query, **scan)
        mine = scores(ours, make(lance_io.query), **scan)
        if not agree(theirs, mine, is_cut=bool(scan)):
            wrong.append(f"{number}: {make(lance_io.query)} {scan}: {len(theirs)} rows, we have {len(mine)}")
    assert not wrong, "\n".join(wrong)


def test_phrases_with_slop_are_their_definition(tmp_path: Path) -> None:
    rng = np.random.default_rng(random.Random(seed_of("slop")).getrandbits(64))
    texts = [" ".join(rng.choice([*"abcde"], rng.integers(1, 9))) for _ in range(400)]
    uri = str(tmp_path / "t.lance")
    peer = lance.write_dataset(pa.table({"t": texts}), uri)
    options = {"with_position": True, "stem": False, "remove_stop_words": False}
    peer.create_scalar_index("t", "INVERTED", **options)
    lance.write_dataset(pa.table({"t": texts[:60]}), uri, mode="append")  # searched without the index
    texts = texts + texts[:60]
    table = lance_io.dataset(uri)
    for _ in range(40):
        words, slop = [str(word) for word in rng.choice([*"abcde"], rng.integers(2, 5))], int(rng.integers(0, 4))
        query = lance_io.query.PhraseQuery(" ".join(words), "t", slop=slop)
        rows = {row & 0xFFFFFFFF | row >> 32 << 32 for row in scores(table, query)}
        expected = {
            number if number < 400 else (1 << 32) + number - 400
            for number, text in enumerate(texts)
            if has_phrase(text.split(), words, slop)
        }
        assert rows == expected
        theirs = scores(lance.dataset(uri), lance.query.PhraseQuery(" ".join(words), "t", slop=slop))
        assert {row for row in theirs if row < 400} <= rows


def has_phrase(text: list[str], words: list[str], slop: int) -> bool:
    """Whether each next word stands at most `slop` positions later than behind the word before."""
    reached = {at for at, word in enumerate(text) if word == words[0]}
    for word in words[1:]:
        reached = {
            at
            for at, other in enumerate(text)
            if other == word and any(at - step - 1 in reached for step in range(slop + 1))
        }
    return bool(reached)


@pytest.mark.parametrize("form", [{}, {"block_size": 256}], ids=str)
def test_the_best_rows_are_the_first_of_all(tmp_path: Path, form: dict[str, Any]) -> None:
    """Without a limit nothing is left out; with one, most windows of 4,096 documents are."""
    rng = np.random.default_rng(random.Random(seed_of("best")).getrandbits(64))
    num_rows, words = 14_000, np.array([f"w{number}" for number in range(50)])
    shares = 1 / np.arange(2, len(words) + 2)
    lengths = rng.integers(1, 12, num_rows)
    drawn = np.split(rng.choice(words, lengths.sum(), p=shares / shares.sum()), np.cumsum(lengths)[:-1])
    table = lance_io.write_dataset(pa.table({"id": range(num_rows), "t": [" ".join(row) for row in drawn]}), tmp_path)
    table.create_scalar_index("t", "INVERTED", stem=False, remove_stop_words=False, **form)
    table.delete("id % 11 = 3")
    for number in range(10):
        asked = " ".join(rng.choice(words, rng.integers(1, 7)))
        how = "AND" if number % 5 == 4 else "OR"
        query = lance_io.query.MatchQuery(asked, "t", operator=getattr(lance_io.query.FullTextOperator, how))
        scan: dict[str, Any] = {"filter": "id < 9000", "prefilter": True} if number % 4 == 3 else {}
        every = scores(table, query, **scan)
        for most in (1, 10):
            best = scores(table, query, limit=most, **scan)
            expected = sorted(every.values(), reverse=True)[:most]
            assert sorted(best.values(), reverse=True) == pytest.approx(expected, rel=1e-6), (asked, how, scan, most)
            assert all(every[row] == pytest.approx(score, rel=1e-6) for row, score in best.items())
