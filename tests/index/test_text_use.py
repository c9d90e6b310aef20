"""Ways to ask for words: both faces, kinds of columns, options of scans, and queries that are refused."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import lance
import lance.query
import numpy as np
import pyarrow as pa
import pytest

import lance_io
import lance_io.query
from lance_io.dataset import ColumnOrdering
from lance_io.errors import UsageError
from lance_io.index.text.text_parameters import TextParameters
from lance_io.index.text.tokenizer import analyzer_of
from lance_io.index.text.word_search import word_search
from lance_io.query import BooleanQuery, MatchQuery, MultiMatchQuery, Occur, PhraseQuery
from lance_io.reads.index import text_segments
from lance_io.reads.scan.text.flat_texts import FlatTexts
from tests.index.text_peer import differences, scores

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = [
    "the cat sat",
    "cat the house",
    "dog cat dog cat",
    None,
    "",
    "a dog",
    "cat cat",
    "bird",
    "running cats",
    "cat dog",
]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of two fragments; its text, the member of a struct, and documents have indices."""
    documents = [None if text is None else json.dumps({"a": text, "b": {"n": len(text)}}) for text in TEXTS]
    rows = pa.table(
        {
            "id": range(len(TEXTS)),
            "t": TEXTS,
            "st": [{"t": text, "x": 1} for text in TEXTS],
            "j": pa.array(documents, pa.json_()),
        }
    )
    folder = str(tmp_path_factory.mktemp("use") / "t.lance")
    table = lance.write_dataset(rows, folder, max_rows_per_file=6)
    for column, more in (("t", {"with_position": True}), ("st.t", {}), ("j", {})):
        table.create_scalar_index(column, "INVERTED", **more)
    return folder


QUERIES: dict[str, Any] = {
    "stemmed": lambda q: q.MatchQuery("CATS running", "t"),
    "member": lambda q: q.MatchQuery("cat", "st.t"),
    "path of documents": lambda q: q.MatchQuery("a,str,cat dog", "j"),
    "number in documents": lambda q: q.MatchQuery("b.n,number,5", "j"),
    "no words": lambda q: q.MatchQuery("", "t"),
    "stop words": lambda q: q.MatchQuery("the a", "t"),
    "stop words in a phrase": lambda q: q.PhraseQuery("cat the house", "t"),
    "without the gap": lambda q: q.PhraseQuery("cat house", "t"),
    "ten thousand words": lambda q: q.MatchQuery("cat " + " ".join(f"w{number}" for number in range(10_000)), "t"),
    "three characters": lambda q: q.MatchQuery("cat", "t", fuzziness=3),
    "as in the docstring": lambda q: q.MatchQuery("cot", "t", fuzziness=None),
    "no expansions": lambda q: q.MatchQuery("cat", "t", fuzziness=1, max_expansions=0),
    "boost of nothing": lambda q: q.MatchQuery("cat", "t", boost=0.0),
}


def test_unusual_queries_are_answered_as_by_pylance(uri: str) -> None:
    assert not differences(uri, QUERIES)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda q: q.MatchQuery("cat", "id"), ValueError),
        (lambda q: q.MatchQuery("cat", "nothing"), ValueError),
        (lambda q: q.MatchQuery("cat", "j"), ValueError),
        (lambda q: q.PhraseQuery("cat sat", "st.t"), ValueError),
        (lambda q: q.BooleanQuery([]), ValueError),
        (lambda q: q.BooleanQuery([(q.Occur.MUST_NOT, q.MatchQuery("cat", "t"))]), ValueError),
        (lambda q: q.MatchQuery("cat", "t", boost=-1), ValueError),
        (lambda q: q.MatchQuery("cat", "t", fuzziness=-1), OverflowError),
        (lambda q: q.MatchQuery(3, "t"), TypeError),
        (lambda q: q.PhraseQuery("cat", "t", slop=-1), OverflowError),
        (lambda q: q.MultiMatchQuery("cat", []), ValueError),
        (lambda q: q.MultiMatchQuery("cat", ["t"], boosts=[1, 2]), ValueError),
        (lambda q: {"query": "cat", "columns": "t"}, TypeError),
        (lambda q: {"columns": ["t"]}, TypeError),
        (lambda q: {"query": "cat", "columns": []}, ValueError),
    ],
)
def test_what_pylance_refuses_is_refused(uri: str, make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        lance.dataset(uri).to_table(full_text_query=make(lance.query))
    with pytest.raises(error):
        lance_io.dataset(uri).to_table(full_text_query=make(lance_io.query))


def test_a_query_is_of_some_kind() -> None:
    for query in (lance.query.FullTextQuery, lance_io.query.FullTextQuery):
        with pytest.raises(TypeError, match="Can't instantiate abstract class FullTextQuery"):
            query()


def test_a_query_of_a_megabyte(uri: str) -> None:
    """The peer adds the score of the word for each of the 250,000 times, in single precision."""
    theirs = scores(lance.dataset(uri), lance.query.MatchQuery("cat " * 250_000, "t"))
    ours = scores(lance_io.dataset(uri), MatchQuery("cat " * 250_000, "t"))
    assert ours == pytest.approx(theirs, rel=0.01)


def test_what_this_release_does_not_search_is_refused(uri: str) -> None:
    table = lance_io.dataset(uri)
    with pytest.raises(TypeError, match="full_text_query"):
        table.to_table(full_text_query=5)
    with pytest.raises(UsageError, match="either nearest or full_text_query"):
        table.to_table(full_text_query="cat", nearest={"column": "t", "q": [1.0]})
    with pytest.raises(UsageError, match="deleted rows"):
        table.to_table(full_text_query="cat", include_deleted_rows=True, with_row_id=True)
    query: Any = MatchQuery("cat", "t")
    for _ in range(80):
        query = BooleanQuery([(Occur.MUST, query)])
    with pytest.raises(UsageError, match="levels"):
        table.to_table(full_text_query=query)


def test_a_table_without_an_index_needs_columns(tmp_path: Path) -> None:
    table = lance_io.write_dataset(pa.table({"t": ["cat"]}), tmp_path / "t")
    with pytest.raises(UsageError, match="INVERTED"):
        table.to_table(full_text_query="cat")
    assert table.to_table(full_text_query={"query": "cat", "columns": ["t"]}).num_rows == 1


def test_words_in_quotes_are_a_phrase(uri: str) -> None:
    peer, ours = lance.dataset(uri), lance_io.dataset(uri)
    for words in ('"dog cat"', '"', '""', '"cat', 'dog "cat"', '"cat the house"'):
        for query in ({"query": words, "columns": ["t"]}, {"query": words, "columns": ["t"]}):
            assert scores(ours, query) == pytest.approx(scores(peer, query), rel=1e-5), words
    assert len(scores(ours, {"query": '"dog cat"', "columns": ["t"]})) == 1
    for query in ('"dog cat"', {"query": '"dog cat"', "columns": ["t", "st.t"]}):
        for table in (peer, ours):
            with pytest.raises(ValueError):
                table.to_table(full_text_query=query)


def test_an_index_of_no_rows_says_how_texts_are_split(tmp_path: Path) -> None:
    folder = str(tmp_path / "t.lance")
    rows = pa.table({"t": ["Cats!", "the dog", "cat CAT"]})
    for library, trained in ((lance, True), (lance_io, True), (lance_io, False)):
        lance.write_dataset(rows[:0] if trained else rows, folder, mode="overwrite")
        library.dataset(folder).create_scalar_index("t", "INVERTED", train=trained)
        if trained:
            lance.write_dataset(rows, folder, mode="append")
        theirs = scores(lance.dataset(folder), "cat the")
        assert scores(lance_io.dataset(folder), "cat the") == pytest.approx(theirs, rel=1e-5)
        assert len(theirs) == 2
        lance_io.dataset(folder).prewarm_index("t_idx")


def test_lists_are_loaded_in_advance_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many rows have the first words, few the others."""
    texts = [" ".join(f"word{number}" for number in range(20) if row % (number + 1) == 0) for row in range(2000)]
    table = lance_io.write_dataset(pa.table({"t": texts}), tmp_path)
    table.create_scalar_index("t", "INVERTED", with_position=False, stem=False)
    load, loaded = text_segments.load_postings, list[list[int]]()

    def noted(*arguments: Any, **more: Any) -> Any:
        lists = yield from load(*arguments, **more)
        loaded.append([memoryview(each.documents()[0]).nbytes // 8 for each in lists.values()])
        return lists

    monkeypatch.setattr(text_segments, "load_postings", noted)
    monkeypatch.setattr(text_segments, "LOADED_BYTES", 8 * 1000)
    lance_io.dataset(tmp_path).prewarm_index("t_idx")
    counts = sorted(2000 // (number + 1) + (2000 % (number + 1) > 0) for number in range(20))
    assert sorted(count for group in loaded for count in group) == counts
    assert max(sum(group) for group in loaded if len(group) > 1) <= 1000 < max(map(sum, loaded))
    assert len(loaded) < 20


def test_rows_without_an_index_are_counted_by_their_words() -> None:
    """The memory is that of words that rows have, not rows times words."""
    words = [f"w{number}" for number in range(4000)]
    parameters = TextParameters(stem=False, remove_stop_words=False)
    search = word_search(MatchQuery(" ".join(words), "t"), parameters)
    texts = FlatTexts(analyzer_of(parameters), search)
    rows = np.arange(8000)
    tracemalloc.start()
    try:
        texts.add(pa.array([f"{words[row // 2]} {words[row // 2]} other" for row in rows]), rows.astype("u8"), rows)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    (part,) = texts.rows()
    assert [(its.tolist(), counts.tolist()) for its, counts in part.hits] == [
        ([2 * number, 2 * number + 1], [2, 2]) for number in range(4000)
    ]


def test_options_of_scans(uri: str) -> None:
    peer, ours = lance.dataset(uri), lance_io.dataset(uri)
    query: Any = {"query": "cat", "columns": ["t", "st.t"]}
    for scan in (
        {"columns": ["id"]},
        {"columns": ["_score", "id"]},
        {"columns": ["id"], "disable_scoring_autoprojection": True},
        {"columns": {"twice": "_score * 2", "id": "id"}},
        {"columns": ["id"], "filter": "_score > 0.3"},
        {"columns": ["id"], "with_row_address": True},
    ):
        theirs = peer.scanner(full_text_query=query, **scan).to_table()
        mine = ours.scanner(full_text_query=query, **scan).to_table()
        assert mine.schema.names == theirs.schema.names, scan
        assert mine.num_rows == theirs.num_rows, scan
    ordering = {"order_by": [ColumnOrdering("id", ascending=False)], "limit": 3}
    rows = ours.to_table(["id"], full_text_query=query, **ordering)["id"].to_pylist()
    best = ours.to_table(["id"], full_text_query=query, limit=3)["id"].to_pylist()
    assert rows == sorted(best, reverse=True)
    assert ours.to_table(["id"], full_text_query=query, offset=1, limit=2)["id"].to_pylist() == best[1:]
    assert ours.scanner(full_text_query=query).count_rows() == peer.scanner(full_text_query=query).count_rows()
    scan = ours.scanner(["id"], full_text_query=query, batch_size=2)
    assert [batch.num_rows for batch in scan.to_batches()][:2] == [2, 2]
    counts = [ours.scanner(["id"], full_text_query=query, fragments=[each]) for each in ours.get_fragments()]
    assert [each.to_table().num_rows for each in counts] == [3, 3]


async def test_both_faces_and_words_of_pairs(uri: str) -> None:
    query = MatchQuery("cat", "t") & PhraseQuery("dog cat", "t") | MultiMatchQuery("bird", ["t", "st.t"])
    async with lance_io.AsyncDataset.open(uri) as table:
        rows = await table.to_table(["id"], full_text_query=query)
        batches = [batch async for batch in table.to_batches(["id"], full_text_query=query)]
        plan = await table.scanner(["id"], full_text_query=query, limit=5).explain_plan()
    assert rows["id"].to_pylist() == lance_io.dataset(uri).to_table(["id"], full_text_query=query)["id"].to_pylist()
    assert sorted(rows["id"].to_pylist()) == [2, 7]
    assert sum(batch.num_rows for batch in batches) == 2
    for words in (
        "MatchQuery: column=t, query=[cat]",
        "PhraseQuery: column=t",
        "MultiMatchQuery",
        "t_idx",
        "BooleanQuery",
    ):
        assert words in plan


def test_explained_reads_are_those_of_a_search(uri: str) -> None:
    plan = lance_io.dataset(uri).scanner(["id"], full_text_query=MatchQuery("cat", "t")).explain_io(cold=True)
    files = {plan.short_key(key).rpartition("/")[2] for each in plan.rounds for key, _, _ in each.requests}
    assert {f"part_0_{name}.lance" for name in ("tokens", "docs", "invert")} | {"metadata.lance"} <= files
    assert any("t_idx" in note for note in plan.notes)


def test_deferred_compactions_are_followed(tmp_path: Path) -> None:
    folder = str(tmp_path / "t.lance")
    texts = [f"word{number % 7} common" for number in range(300)]
    peer = lance.write_dataset(pa.table({"id": range(300), "t": texts}), folder, max_rows_per_file=50)
    peer.create_scalar_index("t", "INVERTED", with_position=True)
    peer.delete("id % 5 = 1")
    peer.optimize.compact_files(target_rows_per_fragment=1000, defer_index_remap=True)
    table = lance_io.dataset(folder)
    plan = table.scanner(full_text_query=MatchQuery("word3", "t")).explain_plan()
    assert "index=t_idx" in plan and "Flat" not in plan
    rows = table.to_table(["id"], full_text_query=MatchQuery("word3", "t"))["id"].to_pylist()
    assert sorted(rows) == [number for number in range(300) if number % 7 == 3 and number % 5 != 1]
    assert (
        scores(lance.dataset(folder), lance.query.MatchQuery("word3", "t")).keys()
        == scores(table, MatchQuery("word3", "t")).keys()
    )


@pytest.mark.parametrize("url", ["lance.index.pb.InvertedIndexDetails", "a.server/lance.table.InvertedIndexDetails"])
def test_names_of_other_releases_are_known(tmp_path: Path, url: str) -> None:
    """The index is asked, described, and kept up."""
    uri, rows = str(tmp_path / "t"), pa.table({"t": [f"word row{number}" for number in range(30)]})
    table = lance.write_dataset(rows, uri)
    table.create_scalar_index("t", "INVERTED", name="new")
    (index,) = table.describe_indices()
    (segment,) = index.segments
    other = str(uuid4())
    shutil.copytree(tmp_path / "t" / "_indices" / segment.uuid, tmp_path / "t" / "_indices" / other)
    table.drop_index("new")
    details = (url, TextParameters().to_message(segment.index_version))
    entry = lance_io.Index(other, "old", [*index.fields], 1, {0}, segment.index_version, index_details=details)
    lance_io.LanceDataset.commit(uri, lance_io.LanceOperation.CreateIndex([entry], []), table.version)
    lance_io.write_dataset(rows, uri, mode="append").optimize.optimize_indices()
    opened = lance_io.dataset(uri)
    (index,) = opened.describe_indices()
    assert (index.index_type, index.num_rows_indexed, index.details["language"]) == ("Inverted", 60, "English")
    search: dict[str, Any] = {"full_text_query": {"query": "row7", "columns": ["t"]}, "with_row_id": True}
    assert "index=old" in opened.scanner(**search).explain_plan()
    assert "Flat" not in opened.scanner(**search).explain_plan()
    assert opened.to_table(**search)["_rowid"].to_pylist() == [7, (1 << 32) + 7]
