"""Merges beside other writers: what either library committed meanwhile is seen, and nothing is lost or doubled."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset
from lance_io.errors import CommitConflictError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LIBRARIES = [lance, lance_io]
KEY = pa.field("k", pa.string(), False, {"lance-schema:unenforced-primary-key": "true"})


def fresh(path: Path, *, stable: bool = False) -> str:
    """Three fragments of four rows."""
    rows = pa.table({"a": range(12), "v": [0] * 12, "w": [0] * 12})
    lance.write_dataset(rows, str(path), max_rows_per_file=4, enable_stable_row_ids=stable)
    return str(path)


def upsert(dataset: Any, keys: list[int], value: int, retries: int = 10, columns: str = "avw") -> dict[str, int]:
    rows = pa.table({"a": keys, "v": [value] * len(keys), "w": [value] * len(keys)}).select(list(columns))
    builder = dataset.merge_insert("a").when_matched_update_all().when_not_matched_insert_all()
    found: dict[str, int] = builder.conflict_retries(retries).execute(rows)
    return found


def values(uri: str) -> dict[int, tuple[int | None, int | None]]:
    rows = lance.dataset(uri).to_table().to_pylist()
    assert len({row["a"] for row in rows}) == len(rows), "a key is there twice"
    return {row["a"]: (row["v"], row["w"]) for row in rows}


def merge_with(dataset: Any, keys: list[int], value: int) -> dict[str, int]:
    return upsert(dataset, keys, value)


OTHERS: dict[str, tuple[Callable[[Any], Any], dict[str, int], dict[int, tuple[int | None, int | None]]]] = {
    # what another writer does; what the merge of keys 2, 9 and 20 then does; rows that differ from its own result
    "nothing of these rows": (lambda ds: ds.update({"v": "5"}, "a = 3"), {"updated": 2, "inserted": 1}, {3: (5, 0)}),
    "one of these rows": (lambda ds: ds.update({"v": "5"}, "a = 2"), {"updated": 2, "inserted": 1}, {}),
    "a row is deleted": (lambda ds: ds.delete("a = 2"), {"updated": 1, "inserted": 2}, {}),
    "its fragment is deleted": (lambda ds: ds.delete("a < 4"), {"updated": 1, "inserted": 2}, {}),
    "other rows of the fragment": (lambda ds: ds.delete("a = 3"), {"updated": 2, "inserted": 1}, {}),
    "a merge of one of them": (lambda ds: merge_with(ds, [2, 30], 5), {"updated": 2, "inserted": 1}, {30: (5, 5)}),
    "an append": (lambda ds: ds.insert(pa.table({"a": [50], "v": [1], "w": [1]})), {"updated": 2, "inserted": 1}, {}),
    "configuration": (lambda ds: ds.update_config({"k": "v"}), {"updated": 2, "inserted": 1}, {}),
    "a new column": (lambda ds: ds.add_columns({"z": "a + 1"}), {"updated": 2, "inserted": 1}, {}),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("theirs", LIBRARIES)
@pytest.mark.parametrize("columns", ["avw", "av"])
def test_a_stale_merge_sees_what_others_did(tmp_path: Path, other: str, theirs: Any, columns: str) -> None:
    change, counts, differs = OTHERS[other]
    uri = fresh(tmp_path / "t")
    stale = lance_io.dataset(uri)
    change(theirs.dataset(uri))
    done = upsert(stale, [2, 9, 20], 7, columns=columns)
    assert (done["num_updated_rows"], done["num_inserted_rows"]) == (counts["updated"], counts["inserted"])
    found = values(uri)
    assert {key: found[key][0] for key in (2, 9, 20)} == {2: 7, 9: 7, 20: 7}
    assert {key: found[key] for key in differs} == differs
    assert stale.version == lance.dataset(uri).version


@pytest.mark.parametrize("mine", LIBRARIES)
@pytest.mark.parametrize("theirs", LIBRARIES)
def test_roles_may_be_changed(tmp_path: Path, mine: Any, theirs: Any) -> None:
    """The same pair of merges by whichever library comes first."""
    uri = fresh(tmp_path / "t", stable=True)
    stale = mine.dataset(uri)
    upsert(theirs.dataset(uri), [1, 2, 40], 5)
    assert upsert(stale, [2, 3, 41], 6)["num_updated_rows"] == 2
    found = values(uri)
    assert [found[key][0] for key in (1, 2, 3, 40, 41)] == [5, 6, 6, 5, 6]
    ids = lance.dataset(uri).to_table(columns=["a", "_rowid"], filter="a in (1, 2, 3)").to_pylist()
    assert sorted((row["a"], row["_rowid"]) for row in ids) == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize("theirs", LIBRARIES)
def test_without_retries_a_conflict_is_told(tmp_path: Path, theirs: Any) -> None:
    uri = fresh(tmp_path / "t")
    stale = lance_io.dataset(uri)
    theirs.dataset(uri).update({"v": "5"}, "a = 2")
    before = set((tmp_path / "t" / "data").iterdir())
    with pytest.raises(CommitConflictError):
        upsert(stale, [2, 20], 7, retries=0)
    builder = stale.merge_insert("a").when_matched_update_all().retry_timeout(timedelta(0))
    with pytest.raises(CommitConflictError):
        builder.execute(pa.table({"a": [2], "v": [1], "w": [1]}))
    assert set((tmp_path / "t" / "data").iterdir()) == before
    assert values(uri)[2] == (5, 0)


@pytest.mark.parametrize("change", ["overwrite", "restore"])
def test_a_table_that_was_replaced_is_not_merged_into(tmp_path: Path, change: str) -> None:
    uri = fresh(tmp_path / "t")
    lance.dataset(uri).update({"v": "1"}, "a = 1")
    stale = lance_io.dataset(uri)
    if change == "overwrite":
        lance.write_dataset(pa.table({"a": [1]}), uri, mode="overwrite")
    else:
        lance.dataset(uri, 1).restore()
    with pytest.raises(CommitConflictError, match="Incompatible"):
        upsert(stale, [2], 7)


def test_a_merge_that_is_committed_late_conflicts_with_any_change_of_its_fragments(tmp_path: Path) -> None:
    uri = fresh(tmp_path / "t")
    rows = pa.table({"a": [2], "v": [7], "w": [7]})
    transaction, _ = lance_io.dataset(uri).merge_insert("a").when_matched_update_all().execute_uncommitted(rows)
    lance.dataset(uri).delete("a = 9")
    lance_io.LanceDataset.commit(uri, transaction)
    assert values(uri)[2] == (7, 7)
    transaction, _ = lance_io.dataset(uri).merge_insert("a").when_matched_update_all().execute_uncommitted(rows)
    lance.dataset(uri).delete("a = 1")
    assert values(uri)[2] == (7, 7)
    lance.dataset(uri).update({"v": "3"}, "a = 2")
    with pytest.raises(OSError, match=r"[Rr]etry"):
        lance_io.LanceDataset.commit(uri, transaction)


async def test_concurrent_merges_of_the_same_rows_are_all_there(tmp_path: Path) -> None:
    uri = fresh(tmp_path / "t")

    async def count(number: int) -> None:
        table = await AsyncDataset.open(uri)
        for turn in range(4):
            rows = pa.table({"a": [3, 4, 100 + 10 * number + turn], "v": [turn] * 3, "w": [number] * 3})
            builder = table.merge_insert("a").when_matched_update_all().when_not_matched_insert_all()
            await builder.conflict_retries(1000).execute(rows)

    await asyncio.gather(*(count(number) for number in range(4)))
    found = values(uri)
    assert len(found) == 12 + 16
    assert found[3] == found[4]


async def test_asynchronous_sources_and_plans(tmp_path: Path) -> None:
    rows = pa.table({"a": [3, 100], "v": [1, 2], "w": [3, 4]})

    async def batches() -> Any:
        for batch in rows.to_batches(max_chunksize=1):
            yield batch

    async with AsyncDataset.open(fresh(tmp_path / "t")) as table:
        builder = table.merge_insert("a").when_matched_update_all().when_not_matched_insert_all()
        assert "on=[a]" in await builder.explain_plan()
        assert "num_updated_rows=1" in await builder.analyze_plan(batches(), schema=rows.schema)
        _, done = await builder.execute_uncommitted(rows)
        assert done == {"num_inserted_rows": 1, "num_updated_rows": 1, "num_deleted_rows": 0}
        assert await builder.execute(batches(), schema=rows.schema) == done
        assert (await builder.execute(rows.to_reader()))["num_updated_rows"] == 2
        assert table.version == 3
    assert values(str(tmp_path / "t"))[100] == (2, 4)


# -- the primary key ---------------------------------------------------------------------------------------------------


def keyed(path: Path) -> str:
    """A table with a declared primary key, of one row."""
    schema = pa.schema([KEY, ("v", pa.int64())])
    lance.write_dataset(pa.table({"k": ["there"], "v": [0]}, schema=schema), str(path))
    return str(path)


def insert(dataset: Any, key: str, value: int, retries: int = 10) -> dict[str, int]:
    rows = pa.table({"k": [key], "v": [value]}, schema=pa.schema([KEY, ("v", pa.int64())]))
    builder = dataset.merge_insert().when_not_matched_insert_all().conflict_retries(retries)
    found: dict[str, int] = builder.execute(rows)
    return found


@pytest.mark.parametrize("mine", LIBRARIES)
@pytest.mark.parametrize("theirs", LIBRARIES)
def test_a_key_is_inserted_once(tmp_path: Path, mine: Any, theirs: Any) -> None:
    uri = keyed(tmp_path / "t")
    stale, again = mine.dataset(uri), mine.dataset(uri)
    assert insert(theirs.dataset(uri), "new", 1)["num_inserted_rows"] == 1
    with pytest.raises(OSError):
        insert(again, "new", 2, retries=0)
    assert insert(stale, "new", 2)["num_inserted_rows"] == 0
    rows = lance.dataset(uri).to_table().to_pylist()
    assert sorted((row["k"], row["v"]) for row in rows) == [("new", 1), ("there", 0)]


@pytest.mark.parametrize("mine", LIBRARIES)
@pytest.mark.parametrize("theirs", LIBRARIES)
def test_other_keys_do_not_conflict(tmp_path: Path, mine: Any, theirs: Any) -> None:
    uri = keyed(tmp_path / "t")
    stale = mine.dataset(uri)
    insert(theirs.dataset(uri), "one", 1)
    assert insert(stale, "two", 2, retries=0)["num_inserted_rows"] == 1


@pytest.mark.parametrize("theirs", LIBRARIES)
def test_an_append_may_have_brought_the_key(tmp_path: Path, theirs: Any) -> None:
    uri = keyed(tmp_path / "t")
    stale, again = lance_io.dataset(uri), lance_io.dataset(uri)
    theirs.dataset(uri).insert(pa.table({"k": ["new"], "v": [1]}, schema=pa.schema([KEY, ("v", pa.int64())])))
    with pytest.raises(CommitConflictError):
        insert(again, "new", 2, retries=0)
    assert insert(stale, "new", 2)["num_inserted_rows"] == 0


def test_without_a_primary_key_a_new_key_may_come_twice(tmp_path: Path) -> None:
    uri = fresh(tmp_path / "t")
    stale = lance_io.dataset(uri)
    upsert(lance_io.dataset(uri), [70], 1)
    assert upsert(stale, [70], 2)["num_inserted_rows"] == 1
    assert lance.dataset(uri).count_rows("a = 70") == 2


@pytest.mark.parametrize(("retries", "seconds"), [(0, 30), (1, 0)])
@pytest.mark.parametrize("call", ["delete", "update", "merge"])
def test_giving_up_is_told_in_the_words_of_pylance(tmp_path: Path, call: str, retries: int, seconds: int) -> None:
    told = []
    for library in LIBRARIES:
        uri = fresh(tmp_path / library.__name__)
        stale = library.dataset(uri)
        lance.dataset(uri).update({"v": "5"}, "a = 2")
        limits = {"conflict_retries": retries, "retry_timeout": timedelta(seconds=seconds)}
        with pytest.raises(OSError, match="Too many concurrent writers") as caught:
            if call == "delete":
                stale.delete("a = 2", **limits)
            elif call == "update":
                stale.update({"v": "6"}, "a = 2", **limits)
            else:
                builder = stale.merge_insert("a").when_matched_update_all().conflict_retries(retries)
                builder.retry_timeout(timedelta(seconds=seconds)).execute(pa.table({"a": [2], "v": [6], "w": [6]}))
        told.append(str(caught.value))
    theirs, ours = told
    assert ours.startswith(theirs.partition("., /")[0])
    assert "Retryable commit conflict for version 2" in ours
