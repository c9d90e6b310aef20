"""Calls that change a table beside calls that build and keep an index of its vectors.

Each is made on a handle that missed the other one. pylance makes the same calls on another copy of the table: the same
kind of error must come, if one comes. Afterwards both libraries read the same rows, and a search of all partitions
finds each of them at its distance. The centroids are given, so that nothing is learned. `LANCE_IO_STALE_CALLS` is how
many combinations of each call are tried.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from tests.commit.beside_index import COMPACTION, ROLES, SIZE, check_rows, run_pair
from tests.seeds import seed_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DIM: Final = 4
CENTROIDS: Final = np.array([[0, 0, 0, 0], [4, 0, 4, 0], [0, 4, 0, 4]], np.float32)


def rows(first: int, end: int) -> pa.Table:
    """Rows with vectors that depend on their numbers."""
    numbers = np.arange(first, end)
    vectors = np.random.default_rng(numbers[0] if len(numbers) else 0).normal(size=(len(numbers), DIM)).astype("f4") * 3
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIM)
    return pa.table({"a": numbers, "b": numbers % 7, "v": lists})


def _merge(dataset: Any) -> None:
    given = pa.concat_tables([rows(8, 12), rows(300, 303)])
    builder = dataset.merge_insert("a").when_matched_update_all().when_not_matched_insert_all()
    builder.conflict_retries(0).execute(given)


def _patch(dataset: Any) -> None:
    """Other vectors where they are."""
    builder = dataset.merge_insert("a").when_matched_update_all().write_mode("rewrite_columns")
    builder.conflict_retries(0).execute(rows(20, 23).select(["a", "v"]))


def _build(dataset: Any) -> None:
    options = {"ivf_centroids": CENTROIDS, "num_partitions": len(CENTROIDS)}
    dataset.create_index("v", "IVF_FLAT", "v_idx", replace=True, **options)


def _build_other(dataset: Any) -> None:
    dataset.create_index("v", "IVF_FLAT", "other", ivf_centroids=CENTROIDS[:1], num_partitions=1)


TABLE_CALLS: Final[dict[str, Callable[[Any], Any]]] = {
    "append": lambda one: one.insert(rows(200, 220)),
    "overwrite": lambda one: one.insert(rows(0, 30), mode="overwrite"),
    "delete": lambda one: one.delete("a in (5, 6, 105)", conflict_retries=0),
    "delete-fragment": lambda one: one.delete("a < 60", conflict_retries=0),
    "truncate": lambda one: one.truncate_table(),
    "update": lambda one: one.update({"b": "b + 1"}, "a < 4", conflict_retries=0),
    "merge": _merge,
    "patch": _patch,
    "add": lambda one: one.add_columns({"c": "a + 1"}),
    "drop": lambda one: one.drop_columns(["v"]),
    "rename": lambda one: one.alter_columns({"path": "b", "name": "e"}),
    "compact": lambda one: one.optimize.compact_files(**COMPACTION),
    "compact-deferred": lambda one: one.optimize.compact_files(defer_index_remap=True, **COMPACTION),
    "restore": lambda one: one.checkout_version(1).restore(),
}
INDEX_CALLS: Final[dict[str, Callable[[Any], Any]]] = {
    "build": _build,
    "build-other": _build_other,
    "optimize": lambda one: one.optimize.optimize_indices(),
    "optimize-apart": lambda one: one.optimize.optimize_indices(num_indices_to_merge=0),
    "drop-index": lambda one: one.drop_index("v_idx"),
}
CALLS: Final = {**TABLE_CALLS, **INDEX_CALLS}
REPEATED: Final = ("build", "build-other", "optimize", "optimize-apart")  # by us, on the newest version


@pytest.fixture(scope="module", params=[False, True], ids=["addresses", "stable ids"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows in two fragments with an index, and in a third one that it does not cover."""
    folder: Path = tmp_path_factory.mktemp("vectors") / "base"
    dataset = lance.write_dataset(rows(0, 120), folder, max_rows_per_file=60, enable_stable_row_ids=request.param)
    _build(dataset)
    dataset.insert(rows(120, 150))
    return folder


def check_table(folder: Path, where: str) -> None:
    """Both libraries read the same rows, and find them by their vectors."""
    ours, theirs, table, names = check_rows(folder, where)
    if "v" not in table.column_names or not table.num_rows:
        return
    vectors = table["v"].combine_chunks().flatten().to_numpy().reshape(-1, DIM)
    query = np.array([1, 2, -1, 0.5], np.float32)
    expected = np.sort(((vectors.astype("f8") - query) ** 2).sum(axis=1))
    nearest = {"column": "v", "q": query, "k": table.num_rows + 50, "nprobes": len(CENTROIDS)}
    for dataset in (ours, theirs):
        distances = dataset.to_table(["_distance"], nearest=nearest)["_distance"].to_numpy()
        np.testing.assert_allclose(distances, expected, rtol=1e-5, err_msg=type(dataset).__module__)
    for name in names:
        if not name.startswith("__"):
            counts = [each.stats.index_stats(name)["num_indexed_rows"] for each in (ours, theirs)]
            assert counts[0] == counts[1]


@pytest.mark.parametrize("mine", CALLS)
def test_calls_beside_an_index_of_vectors(base: Path, mine: str) -> None:
    dice = random.Random(seed_of(f"vectors {mine}"))
    others = CALLS if mine in INDEX_CALLS else INDEX_CALLS
    is_stable = lance_io.dataset(base).has_stable_row_ids
    if is_stable and mine == "compact-deferred":
        return
    choices = [(other, *role) for other in others for role in ROLES if not (is_stable and other == "compact-deferred")]
    for other, first, second in dice.sample(choices, min(SIZE, len(choices))):
        where = f"{mine} by {second} after {other} by {first}"
        if second == "pylance" and other == "drop" and mine in INDEX_CALLS:
            continue  # see below
        made, folder = run_pair(CALLS, base, first, other, second, mine)
        check_table(folder, where)
        if second == "pylance":
            continue
        theirs, _ = run_pair(CALLS, base, first, other, "pylance", mine)
        if other == "drop" and mine in REPEATED:
            assert made.kind != ".", where  # pylance commits an index of a column that is gone
            continue
        repeated = "E" if mine == other == "build-other" else "."  # a name that is there by then
        is_repeated = mine in REPEATED and theirs.kind == "R" and made.kind == repeated
        assert made.kind == theirs.kind or is_repeated, (where, made, theirs)
