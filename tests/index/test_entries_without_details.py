"""Entries of indices without a details message: their files tell the kind, as for pylance."""

from __future__ import annotations

import warnings
from itertools import product
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pytest
from lance.dataset import Index

import lance_io
from tests.index.index_tables import append, fragmented, our, wrong_answers

if TYPE_CHECKING:
    from pathlib import Path

CASES = {
    "BTREE": ("i", ["i = 7", "i > 4900", "i IS NULL"]),
    "BITMAP": ("k", ["k = 7", "k IN (1, 2)"]),
    "LABEL_LIST": ("l", ["array_has_any(l, ['t0'])"]),
}
TEXTS = [{"query": "hello vital", "columns": ["w"]}, "ship"]


def without_details(folder: Path, kind: str, column: str, library: Any, *, stable: bool, version: int = 0) -> str:
    """The URI of a table with an index of pylance whose entry `library` commits without details."""
    uri = fragmented(folder, np.random.default_rng(5), stable=stable)
    table = lance.dataset(uri)
    table.create_scalar_index(column, kind, "the_index")
    (segment,) = table.describe_indices()[0].segments
    field_id = table.lance_schema.field(column).id()
    table.drop_index("the_index")
    fragments = {fragment.fragment_id for fragment in table.get_fragments()}
    make = Index if library is lance else lance_io.Index
    entry = make(segment.uuid, "the_index", [field_id], table.version, fragments, version)
    operation = library.LanceOperation.CreateIndex([entry], [])
    library.LanceDataset.commit(uri, operation, read_version=table.version)
    return uri


@pytest.mark.parametrize("library", [lance, lance_io], ids=["pylance", "ours"])
@pytest.mark.parametrize(("kind", "stable"), [*product(CASES, [False]), ("BITMAP", True)])
def test_filters_use_them(tmp_path: Path, kind: str, library: Any, *, stable: bool) -> None:
    column, predicates = CASES[kind]
    uri = without_details(tmp_path, kind, column, library, stable=stable)
    assert wrong_answers(uri, "the_index", predicates) == []
    assert (
        f"@the_index({our(uri).stats.index_stats('the_index')['index_type']})"
        in our(uri).scanner(filter=predicates[0]).explain_plan()
    )
    theirs = lance.dataset(uri).stats.index_stats("the_index")
    assert our(uri).stats.index_stats("the_index")["index_type"] == theirs["index_type"]
    assert our(uri).describe_indices()[0].index_type == lance.dataset(uri).describe_indices()[0].index_type == "Unknown"
    append(uri, np.random.default_rng(6))
    our(uri).optimize.optimize_indices()
    assert wrong_answers(uri, "the_index", predicates) == []
    our(uri).optimize.compact_files()
    assert wrong_answers(uri, "the_index", predicates) == []


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
@pytest.mark.parametrize("library", [lance, lance_io], ids=["pylance", "ours"])
def test_searches_use_them(tmp_path: Path, library: Any, *, stable: bool) -> None:
    uri = without_details(tmp_path, "INVERTED", "w", library, stable=stable)
    for round_number in range(2):
        for query in TEXTS:
            assert "MatchQuery" in (scanner := our(uri).scanner(["w"], full_text_query=query)).explain_plan()
            ours, theirs = (
                table.to_table(["w"], full_text_query=query, with_row_address=True).sort_by("_rowaddr")
                for table in (our(uri), lance.dataset(uri))
            )
            assert ours["_rowaddr"].equals(theirs["_rowaddr"])
            np.testing.assert_allclose(ours["_score"], theirs["_score"], rtol=1e-5)
            assert "index=the_index" in scanner.explain_plan()
        if not round_number:
            append(uri, np.random.default_rng(6))
            our(uri).optimize.optimize_indices()


def test_files_of_other_kinds_tell_nothing(tmp_path: Path) -> None:
    """pylance takes every other segment for a B-tree, whose files it does not find."""
    uri = without_details(tmp_path, "ZONEMAP", "i", lance_io, stable=False)
    with pytest.raises(Exception, match="page_lookup"):
        lance.dataset(uri).to_table(filter="i = 7")
    with pytest.warns(UserWarning, match="'the_index' of type unknown"):
        rows = our(uri).count_rows("i = 7")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rows == our(uri).count_rows("i = 7", use_scalar_index=False)


def test_later_versions_are_not_used(tmp_path: Path) -> None:
    """pylance neither: it does not know which version of which kind this is."""
    uri = without_details(tmp_path, "BITMAP", "k", lance, stable=False, version=1)
    assert "the_index" not in lance.dataset(uri).scanner(filter="k = 7").explain_plan()
    with pytest.warns(UserWarning, match="'the_index' of type unknown"):
        assert "the_index" not in our(uri).scanner(filter="k = 7").explain_plan()
