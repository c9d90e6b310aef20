"""Types of `lance_io.dataset` that describe dicts: what calls take and give, with the keys of pylance's types."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from pathlib import Path


def module_of(library: Any) -> Any:
    """The module `dataset`, which a function of that name hides."""
    return sys.modules[f"{library.__name__}.dataset"]


@pytest.mark.parametrize("name", ["AlterColumn", "BulkCommitResult", "DeleteResult", "ExecuteResult", "UpdateResult"])
def test_keys_are_those_of_pylance(name: str) -> None:
    ours, theirs = (getattr(module_of(library), name) for library in (lance_io, lance))
    assert ours.__annotations__.keys() == theirs.__annotations__.keys()


def test_calls_take_and_give_them(tmp_path: Path) -> None:
    results = []
    for library in (lance_io, lance):
        module, uri = module_of(library), str(tmp_path / library.__name__)
        table = library.write_dataset(pa.table({"a": [1, 2]}), uri)
        table.alter_columns(module.AlterColumn(path="a", name="b"))
        merge = table.merge_insert("b").when_matched_update_all().when_not_matched_insert_all()
        result = merge.execute(pa.table({"b": [2, 3]}))
        assert result.keys() == module.ExecuteResult.__annotations__.keys()
        appends = [
            library.fragment.write_fragments(pa.table({"b": [number]}), table, return_transaction=True)
            for number in (8, 9)
        ]
        committed = module.LanceDataset.commit_batch(table, appends)
        assert committed.keys() == module.BulkCommitResult.__annotations__.keys()
        delta = committed["dataset"].delta(1)
        assert isinstance(delta, module.DatasetDelta)
        merged = len(committed["merged"].operation.fragments)
        results.append((result, merged, sorted(committed["dataset"].to_table()["b"].to_pylist())))
    assert results[0] == results[1]
