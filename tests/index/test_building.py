"""Indices that we build: pylance plans with them, and finds the rows of a scan, whatever either library does next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pytest

from lance_io.indices import IndexConfig
from tests.index.index_tables import append, fragmented, our, wrong_answers

if TYPE_CHECKING:
    from pathlib import Path

ZONES = IndexConfig("zonemap", {"rows_per_zone": 1000})
BLOOM = IndexConfig("bloomfilter", {"number_of_items": 1000, "probability": 0.01})
NUMBERS = ["i = 5", "i BETWEEN 100 AND 120", "i IN (1,2,99999)", "i IS NULL", "i != 5", "NOT (i < 4000)"]
TEXTS = ["s = 'k7é'", "s LIKE 'k1%'", "s < 'k2'", "s IS NOT NULL"]
CASES: dict[str, tuple[str, str | IndexConfig, str, list[str]]] = {
    "btree of numbers": ("i", "BTREE", "BTree", NUMBERS),
    "btree with small pages": ("i", IndexConfig("btree", {"zone_size": 16}), "BTree", NUMBERS),
    "btree of texts": ("s", "BTREE", "BTree", TEXTS),
    "bitmap": ("s", "BITMAP", "Bitmap", ["s = 'k7é'", "s IN ('k1é','')", "s IS NULL", "s != 'k7é'", "s > 'k9'"]),
    "bitmap of numbers": ("k", "BITMAP", "Bitmap", ["k = 3", "k IN (1,2)", "k > 7", "NOT (k = 3)"]),
    "zones of numbers": ("i", ZONES, "ZoneMap", ["i = 5", "i > 4990", "i IS NULL", "i IS NOT NULL"]),
    "zones of texts": ("s", ZONES, "ZoneMap", ["s = 'k7é'", "s LIKE 'k1%'", "s IS NULL"]),
    "bloom of numbers": ("i", BLOOM, "BloomFilter", ["i = 5", "i IN (1,2,99999)", "i IS NULL"]),
    "bloom of texts": ("s", BLOOM, "BloomFilter", ["s = 'k7é'", "s IS NULL"]),
    "labels": (
        "l",
        "LABEL_LIST",
        "LabelList",
        [
            "array_has(l,'t1')",
            "array_has_all(l,['t1','t2'])",
            "NOT array_has(l,'t1')",
            "array_has_any(l,['t3',NULL])",
        ],
    ),
    "trigrams": ("w", "NGRAM", "NGram", ["contains(w, 'hel')", "contains(w, 'shi')", "contains(w, 'zzz')"]),
}
ADDRESSED_ZONES = ("ZoneMap", "BloomFilter")  # pylance's compaction leaves them without fragments


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable ids"])
@pytest.mark.parametrize("case", CASES)
def test_pylance_answers_from_our_index(case: str, stable: bool, tmp_path: Path) -> None:
    column, index_type, label, predicates = CASES[case]
    rng = np.random.default_rng(3)
    uri = fragmented(tmp_path, rng, stable=stable)
    mine = our(uri)
    mine.create_scalar_index(column, index_type, "x")
    table = lance.dataset(uri)
    (described,) = table.describe_indices()
    assert (described.name, described.index_type, described.field_names) == ("x", label, [column])
    assert mine.stats.index_stats("x") == table.stats.index_stats("x")
    assert table.stats.index_stats("x")["num_indexed_rows"] == table.count_rows()
    assert wrong_answers(uri, "x", predicates) == []

    append(uri, rng)
    assert wrong_answers(uri, "x", predicates) == []  # the appended rows are scanned

    lance.dataset(uri).optimize.optimize_indices()
    assert wrong_answers(uri, "x", predicates) == []
    assert lance.dataset(uri).stats.index_stats("x")["num_unindexed_rows"] == 0

    lance.dataset(uri).optimize.compact_files()
    if label not in ADDRESSED_ZONES:
        assert wrong_answers(uri, "x", predicates) == []


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable ids"])
@pytest.mark.parametrize("case", CASES)
def test_we_optimize_the_index_of_either_library(case: str, stable: bool, tmp_path: Path) -> None:
    column, index_type, _, predicates = CASES[case]
    rng = np.random.default_rng(4)
    uri = fragmented(tmp_path, rng, stable=stable, num_rows=1800)
    kind: Any = index_type
    if isinstance(index_type, IndexConfig):
        kind = lance.indices.IndexConfig(index_type.index_type, index_type.parameters)
    lance.dataset(uri).create_scalar_index(column, kind, name="x")
    append(uri, rng)
    our(uri).optimize.optimize_indices(num_indices_to_merge=0)
    assert _coverage(uri) == [{0, 1, 2}, {3}]
    assert wrong_answers(uri, "x", predicates) == []
    lance.dataset(uri).update({"k": "k + 1"}, where="i % 7 = 1")
    append(uri, rng)
    our(uri).optimize.optimize_indices()
    assert wrong_answers(uri, "x", predicates) == []
    assert lance.dataset(uri).stats.index_stats("x")["num_unindexed_rows"] == 0
    our(uri).optimize.optimize_indices(num_indices_to_merge=10)
    assert len(_coverage(uri)) == 1
    assert wrong_answers(uri, "x", predicates) == []


def _coverage(uri: str) -> list[set[int]]:
    (index,) = our(uri).describe_indices()
    return [segment.fragment_ids for segment in index.segments]
