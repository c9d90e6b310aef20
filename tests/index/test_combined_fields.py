"""Words of several columns that count as one, beside pylance: same rows, same scores, same refusals."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import TYPE_CHECKING, Any

import lance
import lance.query
import numpy as np
import pyarrow as pa
import pytest

import lance_io
import lance_io.query
from lance_io.index.text.combined_fields import CombinedField, FieldRows, match_combined
from lance_io.index.text.scoring import CorpusStatistics
from lance_io.query import CombinedFieldsQuery
from tests.index.text_peer import differences, scores

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NUM_ROWS = 700
WORDS = ["john", "smith", "lives", "here", "there", *(f"w{number}" for number in range(30))]


def rows(num_rows: int, rng: np.random.Generator) -> pa.Table:
    shares = 1 / np.arange(1, len(WORDS) + 1)

    def texts(length: int) -> list[str | None]:
        words = [" ".join(rng.choice(WORDS, rng.integers(0, length), p=shares / shares.sum())) for _ in range(num_rows)]
        return [None if rng.random() < 0.1 else text for text in words]

    return pa.table({"a": texts(4), "b": texts(15), "plain": texts(6)})


def histories(folder: Path, *, stable: bool, **form: Any) -> Iterator[tuple[str, str]]:
    """Names of changes of a table, and its URI."""
    rng, uri = np.random.default_rng(9), str(folder / "t.lance")
    peer = lance.write_dataset(rows(NUM_ROWS, rng), uri, max_rows_per_file=300, enable_stable_row_ids=stable)
    for column in ("a", "b"):
        peer.create_scalar_index(column, "INVERTED", stem=False, remove_stop_words=False, **form)
    yield "fresh", uri
    peer.delete("a = 'john' or b like '%w3'")
    yield "deleted", uri
    peer = lance.write_dataset(rows(90, rng), uri, mode="append")
    yield "uncovered", uri
    peer.optimize.optimize_indices(num_indices_to_merge=0, index_names=["a_idx"])
    yield "one column covered", uri


QUERIES: dict[str, Any] = {
    "any": lambda q: q.CombinedFieldsQuery("john smith", ["a", "b"]),
    "all": lambda q: q.CombinedFieldsQuery("john smith", ["a", "b"], operator=q.FullTextOperator.AND),
    "weights": lambda q: q.CombinedFieldsQuery("john here", ["a", "b"], boosts=[2.0, 1.5]),
    "twice": lambda q: q.CombinedFieldsQuery("john john w4", ["b", "a"]),
    "one column": lambda q: q.CombinedFieldsQuery("john smith", ["b"]),
    "without an index": lambda q: q.CombinedFieldsQuery("john smith", ["a", "plain"], boosts=[3, 1]),
    "nothing": lambda q: q.CombinedFieldsQuery("absent", ["a", "b"]),
    "empty": lambda q: q.CombinedFieldsQuery("", ["a", "b"]),
    "again": lambda q: (lambda part: q.BooleanQuery([(q.Occur.MUST, part), (q.Occur.SHOULD, part)]))(
        q.CombinedFieldsQuery("john smith", ["a", "b"])
    ),
    "inside": lambda q: q.BooleanQuery(
        [
            (q.Occur.MUST, q.CombinedFieldsQuery("john smith", ["a", "b"])),
            (q.Occur.MUST_NOT, q.MatchQuery("here", "a")),
        ]
    ),
}


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("form", [{}, {"block_size": 256, "with_position": True}], ids=str)
def test_answers_are_those_of_the_peer(tmp_path: Path, form: dict[str, Any], stable: bool) -> None:
    wrong: list[str] = []
    scans: list[dict[str, Any]] = [{}, {"limit": 10}, {"filter": "length(a) > 5", "prefilter": True}]
    scans += [{"filter": "length(a) > 5"}, {"fast_search": True}]
    for what, uri in histories(tmp_path, stable=stable, **form):
        for number, (scan, (name, make)) in enumerate(itertools.product(scans, QUERIES.items())):
            if not scan or number % 4 == 0:
                wrong += [f"{what}: {line}" for line in differences(uri, {name: make}, **scan)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "make",
    [
        lambda q: q.CombinedFieldsQuery("john", ["a", "a"]),
        lambda q: q.CombinedFieldsQuery("john", ["plain"]),
        lambda q: q.CombinedFieldsQuery("john", ["a", "stemmed"]),
        lambda q: q.CombinedFieldsQuery("john", ["a", "absent"]),
        lambda q: q.CombinedFieldsQuery("john", ["a", "id"]),
        lambda q: q.CombinedFieldsQuery("john", []),
        lambda q: q.CombinedFieldsQuery("john", ["a"], boosts=[0.5]),
        lambda q: q.CombinedFieldsQuery("john", ["a", "b"], boosts=[1]),
    ],
)
def test_what_pylance_refuses_is_refused(tmp_path: Path, make: Any) -> None:
    uri = str(tmp_path / "t.lance")
    columns = ("a", "b", "plain", "stemmed")
    peer = lance.write_dataset(pa.table({"id": range(3), **{name: ["john", "x", None] for name in columns}}), uri)
    for column in ("a", "b"):
        peer.create_scalar_index(column, "INVERTED", stem=False)
    peer.create_scalar_index("stemmed", "INVERTED")
    for table, queries in ((peer, lance.query), (lance_io.dataset(uri), lance_io.query)):
        with pytest.raises(ValueError):
            table.to_table(full_text_query=make(queries))


def test_plans_name_the_columns(tmp_path: Path) -> None:
    uri = next(histories(tmp_path, stable=False))[1]
    scan = lance_io.dataset(uri).scanner(full_text_query=CombinedFieldsQuery("john", ["a", "b"]), limit=3)
    plan = scan.explain_plan()
    assert "CombinedFieldsQuery" in plan
    assert "index=a_idx" in plan
    assert "index=b_idx" in plan
    assert len(scores(lance_io.dataset(uri), CombinedFieldsQuery("john", ["a", "b"]), limit=3)) == 3


def test_long_queries_take_little_memory() -> None:
    """One word after the other: a matrix of words and rows would have 50 MB."""
    dice, num_rows, words = np.random.default_rng(5), 20_000, [b"%d" % number for number in range(1000)]
    rows = [np.sort(dice.choice(num_rows, 20, replace=False)) for _ in words]
    hits = [(its, np.full(len(its), 2, np.uint32)) for its in rows]
    numbers = np.arange(num_rows)
    part = FieldRows(numbers, numbers.astype(np.uint64), np.full(num_rows, 9, np.uint32), hits)
    fields = [CombinedField(1.5, CorpusStatistics(num_rows, 9 * num_rows), dict.fromkeys(words, 20), [part])] * 2
    tracemalloc.start()
    matches = match_combined(fields, words, needs_all=False)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20
    every, counts = np.unique(np.concatenate(rows), return_counts=True)
    assert matches.addresses.tolist() == every.tolist()
    weight = matches.scores[counts == 1][0]
    np.testing.assert_allclose(matches.scores, weight * counts, rtol=1e-5)
