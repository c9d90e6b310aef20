"""What changed between versions, as pylance tells it: tables of either library, with and without stable row ids."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from pathlib import Path


def rows(start: int, end: int, text: str) -> pa.Table:
    """Two columns."""
    return pa.table({"a": range(start, end), "b": [text] * (end - start)})


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Nine versions: append, delete, update, compaction, append, configuration, delete."""
    path = str(tmp_path_factory.mktemp("delta") / "t")
    lance.write_dataset(rows(0, 6, "x"), path, max_rows_per_file=3, enable_stable_row_ids=True)
    lance.write_dataset(rows(10, 12, "y"), path, mode="append")
    table = lance.dataset(path)
    table.delete("a = 1")
    table.update({"b": "'z'"}, where="a in (2, 10)")
    table.optimize.compact_files()
    lance.write_dataset(rows(20, 21, "n"), path, mode="append")
    table = lance.dataset(path)
    table.update_config({"k": "v"})
    table.delete("a = 10")
    assert table.version == 9
    return path


RANGES = [(1, 9), (1, 2), (2, 4), (3, 6), (6, 7), (0, 1), (0, 9), (4, 4), (8, 9)]


def told(delta: Any) -> tuple[Any, ...]:
    """All that a delta says."""
    transactions = [(type(one.operation).__name__, one.read_version, one.uuid) for one in delta.list_transactions()]
    tables = [delta.get_inserted_rows().read_all(), delta.get_updated_rows().read_all()]
    deleted = delta.get_deleted_row_ids().read_all()
    return transactions, *(table.sort_by("_rowid").to_pydict() for table in tables), deleted, tables[0].schema


@pytest.mark.parametrize(("begin", "end"), RANGES)
def test_what_changed_is_what_pylance_says(uri: str, begin: int, end: int) -> None:
    theirs = lance.dataset(uri).delta(begin_version=begin, end_version=end)
    ours = lance_io.dataset(uri).delta(begin_version=begin, end_version=end)
    assert told(ours) == told(theirs)
    old = lance_io.dataset(uri, version=4).delta(begin_version=begin, end_version=end)
    expected = lance.dataset(uri, version=4).delta(begin_version=begin, end_version=end)
    assert old.get_updated_rows().read_all() == expected.get_updated_rows().read_all()
    if end == 9:
        assert told(lance_io.dataset(uri).delta(begin)) == told(theirs)


def test_a_reference_by_values(uri: str) -> None:
    """Rows told apart by what two versions hold, without looking at their lineage."""
    before = lance_io.dataset(uri, version=2).to_table(with_row_id=True).to_pydict()
    after = lance_io.dataset(uri).to_table(with_row_id=True).to_pydict()
    old, new = (dict(zip(one["_rowid"], one["b"], strict=True)) for one in (before, after))
    delta = lance_io.dataset(uri).delta(2)
    assert set(delta.get_inserted_rows().read_all()["_rowid"].to_pylist()) == new.keys() - old.keys()
    changed = {one for one in old.keys() & new.keys() if old[one] != new[one]}
    assert set(delta.get_updated_rows().read_all()["_rowid"].to_pylist()) == changed
    assert delta.get_deleted_row_ids().read_all()["_rowid"].to_pylist() == sorted(old.keys() - new.keys())


@pytest.mark.parametrize(
    "ask",
    [
        lambda table: table.delta(),
        lambda table: table.delta(begin_version=1),
        lambda table: table.delta(end_version=2),
        lambda table: table.delta(begin_version=-1, end_version=2),
        lambda table: table.delta(begin_version=3, end_version=2).get_deleted_row_ids(),
        lambda table: table.delta(begin_version=1, end_version=99).list_transactions(),
    ],
)
def test_what_cannot_be_is_refused_as_by_pylance(uri: str, ask: Any) -> None:
    with pytest.raises((ValueError, OverflowError)) as theirs:
        ask(lance.dataset(uri))
    with pytest.raises((ValueError, OverflowError)) as ours:
        ask(lance_io.dataset(uri))
    assert isinstance(ours.value, theirs.type)


def test_tables_without_stable_row_ids_know_of_no_changes(tmp_path: Path) -> None:
    table = lance_io.write_dataset(rows(0, 4, "x"), tmp_path / "t")
    table.insert(rows(5, 6, "y"))
    for library in (lance, lance_io):
        delta = library.dataset(table.uri).delta(1)
        assert delta.get_inserted_rows().read_all().num_rows == 0 == delta.get_updated_rows().read_all().num_rows
        with pytest.raises(ValueError, match="stable row ids"):
            delta.get_deleted_row_ids()


def test_versions_that_are_gone_are_named(tmp_path: Path) -> None:
    table = lance_io.write_dataset(rows(0, 4, "x"), tmp_path / "t", enable_stable_row_ids=True)
    table.insert(rows(5, 6, "y"))
    table.delete("a = 0")
    table.cleanup_old_versions(timedelta(0))
    delta = table.delta(1)
    assert delta.get_inserted_rows().read_all()["a"].to_pylist() == [5]
    for ask in (delta.list_transactions, delta.get_deleted_row_ids):
        with pytest.raises(ValueError, match="version"):
            ask()


def test_from_a_coroutine_on_a_branch(tmp_path: Path) -> None:
    table = lance_io.write_dataset(rows(0, 4, "x"), tmp_path / "t", enable_stable_row_ids=True)

    async def work() -> list[Any]:
        branch = await lance_io.AsyncDataset.of(table).create_branch("side")
        await branch.delete("a = 1")
        await branch.insert(rows(7, 9, "w"))
        await branch.update({"b": "'v'"}, "a = 3")
        delta = branch.delta(1)
        inserted = [row async for batch in delta.get_inserted_rows() for row in batch["a"].to_pylist()]
        updated = [row async for batch in delta.get_updated_rows() for row in batch["a"].to_pylist()]
        deleted = [row async for batch in delta.get_deleted_row_ids() for row in batch["_rowid"].to_pylist()]
        return [inserted, updated, deleted, len(await delta.list_transactions())]

    assert asyncio.run(work()) == [[7, 8], [3], [1], 3]
    theirs = lance.dataset(table.uri).checkout_version(("side", None)).delta(1)
    assert theirs.get_deleted_row_ids().read_all()["_rowid"].to_pylist() == [1]
