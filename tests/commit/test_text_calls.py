"""Calls that change a table beside calls that build and keep a full-text index of it.

Each is made on a handle that missed the other one. pylance makes the same calls on another copy of the table: the same
kind of error must come, if one comes. Afterwards both libraries read the same rows, and a search for a word finds
those that have it. `LANCE_IO_STALE_CALLS` is how many combinations of each call are tried.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pytest

import lance_io
from tests.commit.beside_index import COMPACTION, ROLES, SIZE, check_rows, run_pair
from tests.seeds import seed_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FORM: Final[dict[str, Any]] = {"stem": False, "remove_stop_words": False, "with_position": True}


def texts(numbers: range, mark: str) -> pa.Table:
    """Rows whose words depend on their numbers."""
    words = [f"every {mark} w{number % 5} row{number}" for number in numbers]
    return pa.table({"a": numbers, "b": [number % 3 for number in numbers], "t": words, "u": words})


def _replace_rows(dataset: Any) -> None:
    given = pa.concat_tables([texts(range(8, 12), "second"), texts(range(300, 303), "second")])
    builder = dataset.merge_insert("a").when_matched_update_all().when_not_matched_insert_all()
    builder.conflict_retries(0).execute(given)


def _replace_texts(dataset: Any) -> None:
    """Other texts where they are."""
    builder = dataset.merge_insert("a").when_matched_update_all().write_mode("rewrite_columns")
    builder.conflict_retries(0).execute(texts(range(20, 23), "third").select(["a", "t"]))


def _index(dataset: Any, column: str = "t") -> None:
    dataset.create_scalar_index(column, "INVERTED", f"{column}_idx", replace=True, **FORM)


ROW_CALLS: Final[dict[str, Callable[[Any], Any]]] = {
    "insert": lambda table: table.insert(texts(range(200, 215), "fourth")),
    "begin again": lambda table: table.insert(texts(range(30), "fifth"), mode="overwrite"),
    "remove rows": lambda table: table.delete("a in (5, 6, 75)", conflict_retries=0),
    "remove a fragment": lambda table: table.delete("a < 40", conflict_retries=0),
    "change rows": lambda table: table.update({"b": "b + 1"}, "a < 4", conflict_retries=0),
    "replace rows": _replace_rows,
    "replace texts": _replace_texts,
    "drop": lambda table: table.drop_columns(["t"]),
    "rename": lambda table: table.alter_columns({"path": "b", "name": "e"}),
    "compact": lambda table: table.optimize.compact_files(**COMPACTION),
    "compact, remap later": lambda table: table.optimize.compact_files(defer_index_remap=True, **COMPACTION),
    "restore": lambda table: table.checkout_version(1).restore(),
}
INDEX_CALLS: Final[dict[str, Callable[[Any], Any]]] = {
    "index": _index,
    "index another": lambda table: _index(table, "u"),
    "merge segments": lambda table: table.optimize.optimize_indices(num_indices_to_merge=1),
    "add a segment": lambda table: table.optimize.optimize_indices(num_indices_to_merge=0),
    "drop the index": lambda table: table.drop_index("t_idx"),
}
CALLS: Final = {**ROW_CALLS, **INDEX_CALLS}
REPEATED: Final = ("index", "index another", "merge segments", "add a segment")  # by us, on the newest version


@pytest.fixture(scope="module", params=[False, True], ids=["addresses", "stable ids"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows in two fragments with an index, and in a third one that it does not cover."""
    folder: Path = tmp_path_factory.mktemp("texts") / "base"
    first = texts(range(80), "first")
    dataset = lance.write_dataset(first, folder, max_rows_per_file=40, enable_stable_row_ids=request.param)
    _index(dataset)
    dataset.insert(texts(range(80, 100), "first"))
    return folder


def rows_with(dataset: Any, word: str) -> list[int]:
    matches = dataset.to_table(["a"], full_text_query={"query": word, "columns": ["t"]})
    numbers: list[int] = sorted(matches["a"].to_pylist())
    return numbers


def check_table(folder: Path, where: str) -> None:
    """Both libraries read the same rows and indices, and we find the rows of words."""
    ours, theirs, table, _ = check_rows(folder, where)
    if "t" not in table.column_names:
        return
    for word in ("every", "first", "second", "third", "w3", "row9", "row75"):
        pairs = zip(table["a"].to_pylist(), table["t"].to_pylist(), strict=True)
        expected = sorted(number for number, text in pairs if word in text.split())
        assert rows_with(ours, word) == expected, (where, word)
        if not theirs.has_stable_row_ids:  # pylance then finds rows by the words that they had
            assert rows_with(theirs, word) == expected, (where, word)


@pytest.mark.parametrize("mine", CALLS)
def test_calls_beside_an_index_of_texts(base: Path, mine: str) -> None:
    dice = random.Random(seed_of(f"texts {mine}"))
    is_stable = lance_io.dataset(str(base)).has_stable_row_ids
    if is_stable and mine == "compact, remap later":
        return
    others = [name for name in (CALLS if mine in INDEX_CALLS else INDEX_CALLS) if name != "compact, remap later"]
    choices = [(other, *role) for other in others for role in ROLES]
    for other, first, second in dice.sample(choices, min(SIZE, len(choices))):
        where = f"{mine} by {second} after {other} by {first}"
        if second == "pylance" and other == "drop" and mine in REPEATED:
            continue  # it commits an index of a column that is gone
        mine_was, folder = run_pair(CALLS, base, first, other, second, mine)
        check_table(folder, where)
        if second == "pylance":
            continue
        if other == "drop" and mine in REPEATED:
            assert mine_was.kind != ".", where
            continue
        theirs, _ = run_pair(CALLS, base, first, other, "pylance", mine)
        is_repeated = mine in REPEATED and theirs.kind == "R"
        assert mine_was.kind == theirs.kind or (is_repeated and mine_was.kind == "."), (where, mine_was, theirs)
