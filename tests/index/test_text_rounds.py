"""Rounds and requests of full-text searches on a bucket, as exact numbers; a request lasts one unit of time.

The table is pylance's, and the index pylance's or ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from tests.index.test_index_rounds import Bench

if TYPE_CHECKING:
    import pathlib

    from lance_io.dataset.lance_dataset import AsyncDataset

NUM_ROWS = 16_000
WORDS = [f"word{number}" for number in range(400)]


@pytest.fixture(scope="module", params=[lance, lance_io], ids=["theirs", "ours"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("texts")
    rng = np.random.default_rng(5)
    texts = [" ".join(rng.choice(WORDS, 8)) for _ in range(NUM_ROWS)]
    rows = pa.table({"id": range(NUM_ROWS), "text": texts})
    lance.write_dataset(rows, path, max_rows_per_file=NUM_ROWS // 4)
    request.param.dataset(path).create_scalar_index("text", "INVERTED", with_position=True)
    return path


def search(words: str, **more: Any) -> Any:
    async def call(table: AsyncDataset) -> pa.Table:
        return await table.to_table(["id"], full_text_query={"query": words, "columns": ["text"]}, limit=10, **more)

    return call


def test_a_prewarmed_index_is_not_read_again(folder: pathlib.Path) -> None:
    measured = Bench(folder).run(lambda table: table.prewarm_index("text_idx"), search("word1 word2"))
    opened, searched = ([line for line in log if "_indices" in line] for _, log, _ in measured)
    assert opened
    assert searched == []


@pytest.mark.parametrize("num_words", [1, 2, 5])
def test_rounds_of_a_search(folder: pathlib.Path, num_words: int) -> None:
    first, other = " ".join(WORDS[:num_words]), " ".join(WORDS[10 : 10 + num_words])
    measured = Bench(folder).run(search(first), search(first), search(other))
    rounds = [rounds for rounds, _, _ in measured]
    assert rounds == [4, 1, 2]  # again: its posting lists are kept
    assert len(measured[0][1]) <= 32


@pytest.mark.parametrize("words", ["word1", "word1 word2 word3 word4 word5", "nothing"])
def test_explained_reads_are_those_of_the_search(folder: pathlib.Path, words: str) -> None:
    query: Any = {"query": words, "columns": ["text"]}
    ((_, _, plan),) = Bench(folder).run(
        lambda table: table.scanner(["id"], full_text_query=query, limit=10).explain_io(cold=True)
    )
    ((_, log, _),) = Bench(folder).run(search(words))
    planned = sorted(
        f"get t/{plan.short_key(key)} {start}-{end}" for each in plan.rounds for key, start, end in each.requests
    )
    assert planned == sorted(line for line in log if "_indices" in line)
    assert any("text_idx" in note for note in plan.notes)
