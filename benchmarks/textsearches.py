"""Full-text search of `texts`, whose index pylance built: the ten best rows for other words each time.

text/match/N   any of N words: one, two or five, frequent and rare ones alike
text/and       all of two words
text/phrase    two words one after another
text/build/N   the index of all texts, of format N, on a copy of the table: processor time
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lance
import lance.query

import lance_io
import lance_io.query
from benchmarks.cases import OURS, PYLANCE, Case, build_case, in_process, open_ours, open_pylance, row_count
from benchmarks.tables import frequent_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measure import Operation
    from benchmarks.tables import BenchTable, Tables

GOALS: Final = {"match/1": 1.5, "match/2": 2.5, "match/5": 2.5, "and": 1.5, "phrase": 1.2}
FORMATS: Final[dict[int, dict[str, Any]]] = {2: {}, 3: {"block_size": 256, "with_position": True}}
BUILD_CPU_GOAL: Final = 0.71  # pylance's seconds over ours


def words_of(name: str, number: int) -> str:
    """The words of a case, others for each number."""
    num_words = int(name.rpartition("/")[2]) if name.startswith("match") else 2
    return frequent_words(number, num_words)


def search_operation(dataset: Any, name: str) -> Operation:
    """Search for words; rows with equal scores may come in any order, so that the answer is the number of rows."""
    queries = lance_io.query if isinstance(dataset, lance_io.LanceDataset) else lance.query

    def search(number: int) -> Any:
        words = words_of(name, number)
        if name == "phrase":
            query: Any = queries.PhraseQuery(words, "text")
        else:
            how = queries.FullTextOperator.AND if name == "and" else queries.FullTextOperator.OR
            query = queries.MatchQuery(words, "text", operator=how)
        return row_count(dataset.to_table(columns=["_score"], full_text_query=query, limit=10).num_rows)

    return search


def indexed(table: BenchTable) -> BenchTable:
    """The table, with its index: pylance builds it once."""
    dataset = lance.dataset(table.lance_uri)
    if not dataset.describe_indices():
        dataset.create_scalar_index("text", "INVERTED", with_position=True)
    return table


def search_case(tables: Tables, name: str) -> Case:
    """One kind of search."""

    def make() -> Any:
        table = indexed(tables("texts"))
        datasets = {OURS: open_ours(table), PYLANCE: open_pylance(table)}
        return in_process({who: search_operation(dataset, name) for who, dataset in datasets.items()})

    def ours() -> Operation:
        return search_operation(open_ours(indexed(tables("texts"))), name)

    return Case(f"text/{name}", make, goal=GOALS[name], profiled=ours)


def build_operation(tables: Tables, library: Any, version: int) -> Operation:
    """Build the index on a copy of the table."""
    copy = str(tables.new_folder() / "table.lance")
    shutil.copytree(Path(tables("texts").lance_uri), copy)

    def build(number: int) -> None:
        del number
        library.dataset(copy).create_scalar_index("text", "INVERTED", "built", memory_limit=256, **FORMATS[version])

    return build


def text_search_cases(tables: Tables) -> Iterator[Case]:
    """Every search, and every build."""
    for name in GOALS:
        yield search_case(tables, name)
    for version in FORMATS:
        operation = partial(build_operation, tables, version=version)
        yield build_case(f"text/build/{version}", operation, cpu_goal=BUILD_CPU_GOAL, rounds_max=5)
