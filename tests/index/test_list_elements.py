"""Elements of lists as documents, beside pylance: same elements, same scores, same refusals; by indices of both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import lance.query
import numpy as np
import pyarrow as pa
import pytest

import lance_io
import lance_io.query

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NUM_ROWS = 240
WORDS = ["cat", "lance", "db", "dog", *(f"w{number}" for number in range(20))]


def rows(num_rows: int, rng: np.random.Generator) -> pa.Table:
    def text() -> str | None:
        return None if rng.random() < 0.1 else " ".join(rng.choice(WORDS, rng.integers(0, 6)))

    def some() -> list[str | None]:
        return [text() for _ in range(rng.integers(0, 4))]

    lists = [None if number % 13 == 5 else some() for number in range(num_rows)]
    nested = [[some() for _ in range(rng.integers(0, 3))] for _ in range(num_rows)]
    types = {"l": pa.list_(pa.string()), "large": pa.large_list(pa.large_string())}
    columns = {name: pa.array(lists, dtype) for name, dtype in types.items()}
    return pa.table(
        {
            "id": range(num_rows),
            "t": [text() for _ in range(num_rows)],
            "n": pa.array(nested, pa.list_(pa.list_(pa.string()))),
            **columns,
        }
    )


def elements(uri: str, library: Any, make: Any, **scan: Any) -> tuple[list[str], dict[tuple[Any, ...], float]]:
    """Names of the columns, and scores by row id and place."""
    queries = lance.query if library is lance else lance_io.query
    table = library.dataset(uri).scanner(full_text_query=make(queries), with_row_id=True, **scan).to_table()
    places = (tuple(place) for place in table["_doc_index"].to_pylist())
    found = dict(zip(zip(table["_rowid"].to_pylist(), places, strict=True), table["_score"].to_pylist(), strict=True))
    assert len(found) == table.num_rows
    return table.schema.names, found


def wrong_queries(uri: str, what: str, column: str, **scan: Any) -> list[str]:
    wrong = []
    for name, make in queries_of(column).items():
        names, theirs = elements(uri, lance, make, **scan)
        our_names, ours = elements(uri, lance_io, make, **scan)
        if names != our_names or ours != pytest.approx(theirs, rel=1e-5) or not (ours or name == "phrase"):
            wrong.append(f"{what}: {name} of {column} {scan}: {len(theirs)} elements, we have {len(ours)}")
    return wrong


def queries_of(column: str) -> dict[str, Any]:
    def match(q: Any, words: str, **more: Any) -> Any:
        return q.MatchQuery(words, column, document_granularity=q.DocumentGranularity.LIST_ELEMENT, **more)

    return {
        "any": lambda q: match(q, "cat w3"),
        "all": lambda q: match(q, "lance cat", operator=q.FullTextOperator.AND),
        "phrase": lambda q: q.PhraseQuery("lance db", column, document_granularity=q.DocumentGranularity.LIST_ELEMENT),
        "boolean": lambda q: q.BooleanQuery(
            [(q.Occur.MUST, match(q, "cat")), (q.Occur.SHOULD, match(q, "dog")), (q.Occur.MUST_NOT, match(q, "w1"))]
        ),
        "boosting": lambda q: q.BoostQuery(match(q, "cat"), match(q, "dog"), negative_boost=0.3),
    }


def histories(folder: Path, library: Any, *, stable: bool) -> Iterator[tuple[str, str]]:
    rng, uri = np.random.default_rng(2), str(folder / "t.lance")
    lance.write_dataset(rows(NUM_ROWS, rng), uri, max_rows_per_file=100, enable_stable_row_ids=stable)
    yield "without an index", uri
    granularity = (lance if library is lance else lance_io).query.DocumentGranularity.LIST_ELEMENT
    for column, form in (("l", {}), ("large", {"block_size": 256})):
        library.dataset(uri).create_scalar_index(
            column, "INVERTED", document_granularity=granularity, with_position=True, stem=False, **form
        )
    yield "fresh", uri
    lance.dataset(uri).delete("id % 7 = 3")
    lance.write_dataset(rows(40, rng), uri, mode="append")
    yield "uncovered", uri
    library.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    yield "segments", uri
    library.dataset(uri).optimize.compact_files(target_rows_per_fragment=10_000)
    yield "compacted", uri


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("library", [lance, lance_io], ids=["theirs", "ours"])
def test_elements_are_those_of_the_peer(library: Any, stable: bool, tmp_path: Path) -> None:
    wrong: list[str] = []
    for what, uri in histories(tmp_path, library, stable=stable):
        wrong += wrong_queries(uri, what, "l")
        if what in ("fresh", "uncovered"):
            wrong += wrong_queries(uri, what, "large")
            wrong += wrong_queries(uri, what, "l", filter="id < 90", prefilter=True)
            wrong += wrong_queries(uri, what, "l", filter="id > 50", columns=["_score"])
        if what == "without an index":
            wrong += wrong_queries(uri, what, "n", columns=["id", "_doc_index"])
    assert not wrong, "\n".join(wrong)
    if library is lance_io:
        details = [index.details["document_granularity"] for index in lance.dataset(uri).describe_indices()]
        assert details == ["list_element"] * 2


def test_which_index_is_asked(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    granularity = lance_io.query.DocumentGranularity
    table = lance_io.write_dataset(rows(30, np.random.default_rng(1)), uri)
    for column, kind in (("l", "LIST_ELEMENT"), ("t", "ROW")):
        table.create_scalar_index(column, "INVERTED", document_granularity=granularity[kind])
    names = [index.name for index in table.describe_indices()]
    assert names == ["l_list_element_idx", "t_idx"]
    assert table.to_table(full_text_query="cat").equals(
        table.to_table(full_text_query=lance_io.query.MatchQuery("cat", "t"))
    )
    with pytest.raises(ValueError, match="more; say document_granularity"):
        table.to_table(full_text_query=lance_io.query.MatchQuery("cat", "l"))
    for column in ("l", "large"):
        table.create_scalar_index(column, "INVERTED")
    refused: list[tuple[Any, str]] = [
        (lambda q: q.MatchQuery("cat", "l"), "is ambiguous because Row and ListElement indexes coexist"),
        (lambda q: queries_of("t")["any"](q), "has no List layer|requested ListElement"),
        (lambda q: queries_of("large")["any"](q), "requested ListElement document granularity, but .*large_idx"),
        (lambda q: queries_of("l")["any"](q) & q.MatchQuery("cat", "t"), "cannot mix Row and ListElement"),
        (lambda q: queries_of("l")["any"](q) & queries_of("n")["any"](q), "must use the same final field"),
    ]
    for make, words in refused:
        for library, queries in ((lance, lance.query), (lance_io, lance_io.query)):
            with pytest.raises(ValueError, match=words):
                library.dataset(uri).to_table(full_text_query=make(queries))
    for library, queries in ((lance, lance.query), (lance_io, lance_io.query)):
        kinds = queries.DocumentGranularity
        with pytest.raises(ValueError, match="has no List layer"):
            library.dataset(uri).create_scalar_index("t", "INVERTED", "x", document_granularity=kinds.LIST_ELEMENT)
        query = queries.MatchQuery("cat", "l", document_granularity=kinds.ROW)
        assert "_doc_index" not in library.dataset(uri).to_table(full_text_query=query).schema.names


def documents(num_rows: int, rng: np.random.Generator) -> pa.Table:
    """Structs with lists of structs with texts, nulls at each level."""

    def text() -> str | None:
        return None if rng.random() < 0.1 else " ".join(rng.choice(WORDS, rng.integers(0, 6)))

    def items() -> list[dict[str, Any] | None] | None:
        some = [None if rng.random() < 0.1 else {"c": text(), "k": 1} for _ in range(rng.integers(0, 4))]
        return None if rng.random() < 0.1 else some

    structs = [None if rng.random() < 0.1 else {"docs": items(), "n": number} for number in range(num_rows)]
    member = pa.struct([("c", pa.string()), ("k", pa.int64())])
    return pa.table(
        {"id": range(num_rows), "s": pa.array(structs, pa.struct([("docs", pa.list_(member)), ("n", pa.int64())]))}
    )


@pytest.mark.parametrize("library", [lance, lance_io], ids=["theirs", "ours"])
def test_members_of_structs_in_lists_are_those_of_the_peer(library: Any, tmp_path: Path) -> None:
    rng, uri, column = np.random.default_rng(4), str(tmp_path / "t.lance"), "s.docs.c"
    lance.write_dataset(documents(60, rng), uri, max_rows_per_file=30)
    wrong = wrong_queries(uri, "without an index", column)
    granularity = (lance if library is lance else lance_io).query.DocumentGranularity
    for kind in (granularity.LIST_ELEMENT, granularity.ROW):
        library.dataset(uri).create_scalar_index(
            column, "INVERTED", document_granularity=kind, with_position=True, stem=False
        )
    theirs, ours = (each.dataset(uri).describe_indices() for each in (lance, lance_io))
    assert [(index.name, index.fields) for index in ours] == [(index.name, index.fields) for index in theirs]
    wrong += wrong_queries(uri, "fresh", column)
    lance.write_dataset(documents(20, rng), uri, mode="append")
    wrong += wrong_queries(uri, "uncovered", column)
    library.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    wrong += wrong_queries(uri, "segments", column)
    assert not wrong, "\n".join(wrong)
    answers = []
    for each in (lance, lance_io):
        query = each.query.MatchQuery("cat w3", column, document_granularity=each.query.DocumentGranularity.ROW)
        rows = each.dataset(uri).to_table(["id", "_score"], full_text_query=query)
        answers.append(dict(zip(rows["id"].to_pylist(), rows["_score"].to_pylist(), strict=True)))
    assert answers[1] == pytest.approx(answers[0], rel=1e-5)
    assert answers[1]
