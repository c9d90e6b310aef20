"""Full-text searches beside pylance's, on tables that pylance wrote and changed: same rows, same scores.

Forms of the files, one history: fresh, rows deleted, fragments that no segment covers, a second segment, compacted.
With stable row ids the peer finds rows by their old texts after updates, and deleted ones after compactions: there our
rows are compared with those of a scan.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import lance
import lance.query
import numpy as np
import pyarrow as pa
import pytest

import lance_io
import lance_io.query
from tests.index.text_peer import differences, scores

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NUM_ROWS = 900
WORDS = [
    "apple",
    "apply",
    "ample",
    "maple",
    "apples",
    "cat",
    "cart",
    "card",
    "bar",
    "bare",
    *(f"w{i}" for i in range(40)),
]
SHARES = 1 / np.arange(1, len(WORDS) + 1)
FORMS: dict[str, dict[str, Any]] = {
    "1": {"format_version": 1, "with_position": True},
    "2": {},
    "2 with positions": {"with_position": True},
    "3, blocks of 256": {"format_version": 3, "block_size": 256, "with_position": True},
}


def texts(num_rows: int, rng: np.random.Generator) -> list[str | None]:
    shares = SHARES / SHARES.sum()
    rows: list[str | None] = [" ".join(rng.choice(WORDS, rng.integers(1, 20), p=shares)) for _ in range(num_rows)]
    return [None if number % 37 == 0 else "" if number % 41 == 0 else text for number, text in enumerate(rows)]


def table_of(first: int, rows: list[str | None]) -> pa.Table:
    backwards = [None if text is None else text[::-1] for text in rows]
    lists = [None if text is None else text.split(" ")[:3] for text in rows]
    return pa.table(
        {"id": range(first, first + len(rows)), "t": rows, "u": backwards, "l": pa.array(lists, pa.list_(pa.string()))}
    )


def histories(folder: Path, form: dict[str, Any], *, stable: bool) -> Iterator[tuple[str, str]]:
    """Names of changes of a table, and its URI; only those after which the peer finds the right rows."""
    rng, uri = np.random.default_rng(3), str(folder / "table.lance")
    peer = lance.write_dataset(
        table_of(0, texts(NUM_ROWS, rng)), uri, max_rows_per_file=NUM_ROWS * 2 // 5, enable_stable_row_ids=stable
    )
    for column in ("t", "u", "l"):
        peer.create_scalar_index(column, "INVERTED", stem=False, remove_stop_words=False, **form)
    yield "fresh", uri
    peer.delete("id % 7 = 2")
    if not stable:
        peer.update({"t": "'cat cat w3'"}, where="id % 50 = 4")
    yield "changed", uri
    peer = lance.write_dataset(table_of(NUM_ROWS, texts(150, rng)), uri, mode="append")
    yield "uncovered", uri
    peer.optimize.optimize_indices(num_indices_to_merge=0)
    yield "segments", uri
    if stable:
        return
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=NUM_ROWS * 3)
    yield "compacted", uri


def matches(rng: np.random.Generator) -> dict[str, Any]:
    """Random words, all of them or any."""
    queries: dict[str, Any] = {}
    for number in range(6):
        words = " ".join(rng.choice(WORDS, rng.integers(1, 5)))
        name = "AND" if number % 2 else "OR"
        queries[f"{words} {name}"] = lambda query, words=words, name=name: query.MatchQuery(
            words, "t", operator=getattr(query.FullTextOperator, name)
        )
    return queries


COMBINED: dict[str, Any] = {
    "repeated": lambda q: q.MatchQuery("cat cat bar", "t"),
    "boost": lambda q: q.MatchQuery("cat", "t", boost=2.5),
    "list": lambda q: q.MatchQuery("cat bar", "l"),
    "boolean": lambda q: q.BooleanQuery(
        [
            (q.Occur.MUST, q.MatchQuery("cat", "t")),
            (q.Occur.SHOULD, q.MatchQuery("cart", "t")),
            (q.Occur.MUST_NOT, q.MatchQuery("bar", "t")),
        ]
    ),
    "and, or": lambda q: (q.MatchQuery("cat", "t") & q.MatchQuery("tac", "u")) | q.MatchQuery("w9", "t"),
    "boosting": lambda q: q.BoostQuery(q.MatchQuery("cat", "t"), q.MatchQuery("cart", "t"), negative_boost=0.3),
    "multi": lambda q: q.MultiMatchQuery("cat tac bar", ["t", "u"], boosts=[1.5, 2]),
    "multi and": lambda q: q.MultiMatchQuery("cat bar", ["t", "l"], operator=q.FullTextOperator.AND),
}
FUZZY: dict[str, Any] = {
    f"fuzzy {words} {distance} {prefix} {most}": (
        lambda q, words=words, distance=distance, prefix=prefix, most=most: q.MatchQuery(
            words, "t", fuzziness=distance, prefix_length=prefix, max_expansions=most
        )
    )
    for words, distance, prefix, most in (
        ("apple", 1, 0, 50),
        ("apple", 2, 0, 50),
        ("cart", 1, 2, 50),
        ("cart bare", 1, 0, 3),
        ("cart", 4, 1, 50),
        ("zzz", 1, 0, 50),
    )
}
PHRASES: dict[str, Any] = {
    words: (lambda q, words=words: q.PhraseQuery(words, "t"))
    for words in ("apple", "apple cat", "cat cat", "apple apply ample", "cat nowhere")
}


@pytest.mark.parametrize(("form", "stable"), [*((form, False) for form in FORMS), ("2 with positions", True)])
def test_answers_are_those_of_the_peer(tmp_path: Path, form: str, stable: bool) -> None:
    wrong: list[str] = []
    for what, uri in histories(tmp_path, FORMS[form], stable=stable):
        queries = {**matches(np.random.default_rng(len(what))), **COMBINED}
        queries |= {} if form == "2" else PHRASES
        queries |= {} if what == "segments" else FUZZY  # the peer expands words segment by segment
        scans: list[dict[str, Any]] = [{"limit": 10}]
        scans += [{"filter": "id < 300", "prefilter": True}, {"filter": "id % 3 = 0"}, {"fast_search": True}]
        lines = differences(uri, queries)  # one after the other; the others below by handles of their own
        for number, (scan, (name, make)) in enumerate(itertools.product(scans, queries.items())):
            if number % 5 == 0:
                lines += differences(uri, {name: make}, **scan)
        wrong += [f"{what}: {line}" for line in lines]
    assert not wrong, "\n".join(wrong)


def test_rows_of_a_table_with_stable_ids_are_those_that_have_the_words(tmp_path: Path) -> None:
    rng, uri = np.random.default_rng(3), str(tmp_path / "table.lance")
    peer = lance.write_dataset(table_of(0, texts(600, rng)), uri, max_rows_per_file=250, enable_stable_row_ids=True)
    peer.create_scalar_index("t", "INVERTED", stem=False, remove_stop_words=False)

    def check() -> None:
        rows = lance.dataset(uri).to_table(["id", "t"]).to_pylist()
        expected = [row["id"] for row in rows if row["t"] and "apple" in row["t"].split()]
        table = lance_io.dataset(uri).to_table(["id"], full_text_query=lance_io.query.MatchQuery("apple", "t"))
        assert sorted(table["id"].to_pylist()) == sorted(expected)

    peer.delete("id % 7 = 2")
    peer.update({"t": "'cat cat w3'"}, where="id % 50 = 4")
    check()
    peer = lance.write_dataset(table_of(600, texts(80, rng)), uri, mode="append")
    check()
    peer.optimize.optimize_indices(num_indices_to_merge=0)
    check()
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=2000)
    check()


def test_words_without_columns_search_all_indexed_ones(tmp_path: Path) -> None:
    uri = next(histories(tmp_path, {}, stable=False))[1]
    peer, ours = lance.dataset(uri), lance_io.dataset(uri)
    for query in (
        "cat",
        {"query": "cat bar"},
        {"query": "cat", "columns": ["t", "l"]},
        {"query": "tac", "columns": ["u"]},
    ):
        theirs = scores(peer, query)
        assert theirs == pytest.approx(scores(ours, query), rel=1e-5)
        assert theirs


def test_texts_without_an_index(tmp_path: Path) -> None:
    rows = ["Cats", "cat", "the", "The Cat", "café", "cat cat dog", "dog", None, "", "dog cart", "cat a dog", "dog cat"]
    uri = str(tmp_path / "plain.lance")
    lance.write_dataset(pa.table({"id": range(len(rows)), "t": rows}), uri, max_rows_per_file=5)
    queries = {
        word: (lambda q, word=word: q.MatchQuery(word, "t")) for word in ("cat", "CAT", "the", "café", "cat dog")
    }
    queries["and"] = lambda q: q.MatchQuery("cat dog", "t", operator=q.FullTextOperator.AND)
    queries["fuzzy"] = lambda q: q.MatchQuery("cat", "t", fuzziness=1)
    queries["phrase"] = lambda q: q.PhraseQuery("cat dog", "t")
    for scan in (
        {},
        {"filter": "id > 2", "prefilter": True},
        {"filter": "id > 2"},
        {"fast_search": True},
        {"limit": 2},
    ):
        assert not differences(uri, queries, **scan)


def test_similar_words_of_texts_that_are_changed(tmp_path: Path) -> None:
    """They are compared with stems as they are; texts that no index covers are searched for the words themselves."""
    rows = ["running cat", "the cat", "run cart", "CAT cats", "card the running", "runner", None, "cot coat"] * 3
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"u": rows}), uri).create_scalar_index("u", "INVERTED")
    words = ("CAT", "running", "runing", "run run", "the cat", "cats", "card caat cart", "zzz")
    options: list[dict[str, Any]] = [
        {"fuzziness": 1},
        {"fuzziness": 2, "prefix_length": 1},
        {"fuzziness": 1, "max_expansions": 2},
        {"fuzziness": 3, "prefix_length": 2},
    ]
    queries = {
        f"{text} {more} {how}": (
            lambda q, text=text, more=more, how=how: q.MatchQuery(
                text, "u", operator=getattr(q.FullTextOperator, how), **more
            )
        )
        for text, more, how in itertools.product(words, options, ("OR", "AND"))
    }
    assert not differences(uri, queries)
    assert not differences(uri, dict([*queries.items()][::3]), limit=4)
    assert scores(lance_io.dataset(uri), queries["runing {'fuzziness': 1} OR"](lance_io.query)) == {}
    lance.write_dataset(pa.table({"u": rows[:9]}), uri, mode="append")
    assert not differences(uri, dict([*queries.items()][::2]))
