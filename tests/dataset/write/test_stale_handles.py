"""Handles and transactions that are older than a cleanup: what they commit fits, or is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.changes.write.write_fragments import write_fragments
from lance_io.errors import CommitConflictError

if TYPE_CHECKING:
    from pathlib import Path

SHORT = timedelta(0)


def numbers(first: int, count: int = 4, name: str = "a") -> pa.Table:
    return pa.table({name: pa.array(range(first, first + count), pa.int64())})


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "t")
    lance_io.write_dataset(numbers(0), uri)
    return uri


def content(uri: str) -> list[int]:
    """The rows, by both libraries."""
    found = lance_io.dataset(uri).to_table()
    assert lance.dataset(uri).to_table().equals(found)
    return sorted(found.column(0).to_pylist())


def append(uri: str, first: int, library: Any = lance_io) -> None:
    library.write_dataset(numbers(first), uri, mode="append")


def clean(uri: str, library: Any) -> None:
    assert library.dataset(uri).cleanup_old_versions(SHORT).old_versions > 0


@pytest.mark.parametrize("cleaner", [lance_io, lance])
@pytest.mark.parametrize("name", ["a", "b"], ids=["same schema", "another schema"])
def test_a_handle_that_missed_an_overwrite_is_told_so(uri: str, cleaner: Any, name: str) -> None:
    stale = lance_io.dataset(uri)
    for first in (10, 20):
        cleaner.write_dataset(numbers(first, name=name), uri, mode="overwrite")
    cleaner.dataset(uri).update_config({"k": "v"})
    clean(uri, cleaner)
    before = content(uri)
    with pytest.raises(CommitConflictError, match="Open the table again") as caught:
        stale.insert(numbers(90))
    assert caught.value.retryable
    assert (lance_io.dataset(uri).version, content(uri)) == (4, before)


@pytest.mark.parametrize("cleaner", [lance_io, lance])
def test_a_handle_that_missed_appends_goes_on(uri: str, cleaner: Any) -> None:
    stale, other = lance_io.dataset(uri), lance_io.dataset(uri)
    append(uri, 10)
    append(uri, 20, cleaner)
    clean(uri, cleaner)
    stale.insert(numbers(90))
    assert content(uri) == [*range(4), *range(10, 14), *range(20, 24), *range(90, 94)]
    assert other.delete("a = 1") == {"num_deleted_rows": 1}
    assert 1 not in content(uri)


def test_a_delete_of_what_others_deleted_is_made_again(uri: str) -> None:
    stale = lance_io.dataset(uri)
    lance_io.dataset(uri).delete("a = 0")
    lance_io.write_dataset(numbers(50), uri, mode="append")
    clean(uri, lance_io)
    assert stale.delete("a < 2") == {"num_deleted_rows": 1}
    assert content(uri) == [2, 3, *range(50, 54)]


@pytest.fixture
def committed(uri: str) -> Any:
    """A transaction of two files that was committed, to which others appended."""
    options = {"mode": "append", "return_transaction": True, "max_rows_per_file": 2}
    transaction = write_fragments(numbers(10), uri, **options)
    lance_io.LanceDataset.commit(uri, transaction)
    append(uri, 20)
    return transaction


@pytest.mark.parametrize("cleaner", [lance_io, lance])
def test_a_transaction_is_recognised_when_its_version_is_gone(uri: str, committed: Any, cleaner: Any) -> None:
    clean(uri, cleaner)
    before = content(uri)
    again = lance_io.LanceDataset.commit(uri, committed)
    assert again.version == lance_io.dataset(uri).version == 3
    assert content(uri) == before == [*range(4), *range(10, 14), *range(20, 24)]


@pytest.mark.parametrize("gone", ["a in (10, 11)", "a >= 10 and a < 14"], ids=["one file", "all files"])
def test_a_transaction_whose_rows_were_deleted_is_refused(uri: str, committed: Any, gone: str) -> None:
    lance_io.dataset(uri).delete(gone)
    append(uri, 30)
    clean(uri, lance_io)
    before = content(uri)
    with pytest.raises(CommitConflictError, match=r"some of its data files already|is gone"):
        lance_io.LanceDataset.commit(uri, committed)
    assert content(uri) == before


def test_a_slow_job_that_still_fits_commits(uri: str) -> None:
    """Its transaction was never committed; versions since it began are gone, but not the one it began with."""
    slow = write_fragments(numbers(70), uri, mode="append", return_transaction=True)
    append(uri, 10)
    append(uri, 20)
    append(uri, 30)
    lance_io.dataset(uri).cleanup_old_versions(versions=[2, 3])
    lance_io.LanceDataset.commit(uri, slow)
    assert content(uri) == [*range(4), *range(10, 14), *range(20, 24), *range(30, 34), *range(70, 74)]


def test_a_slow_job_of_a_version_that_is_gone_is_refused(uri: str) -> None:
    slow = write_fragments(numbers(70), uri, mode="append", return_transaction=True)
    append(uri, 10)
    append(uri, 20)
    clean(uri, lance_io)
    with pytest.raises(CommitConflictError, match="that version is gone, too"):
        lance_io.LanceDataset.commit(uri, slow)
    assert content(uri) == [*range(4), *range(10, 14), *range(20, 24)]


def test_restoring_what_is_gone_says_so(uri: str) -> None:
    stale = lance_io.dataset(uri)
    append(uri, 10)
    clean(uri, lance_io)
    with pytest.raises(ValueError, match="version 1 was not found"):
        stale.restore()
    with pytest.raises(ValueError, match="main:1 does not exist"):
        stale.tags.create("t")
    assert content(uri) == [*range(4), *range(10, 14)]


# -- an index on a field that is gone --------------------------------------------------------------------------------


@pytest.fixture
def dangling(tmp_path: Path) -> str:
    """A table with an index of pylance's on a column that was dropped meanwhile."""
    uri = str(tmp_path / "indexed")
    lance.write_dataset(pa.table({"a": range(100), "b": range(100)}), uri)
    stale = lance.dataset(uri)
    lance.dataset(uri).drop_columns(["b"])
    stale.create_scalar_index("b", "BTREE")
    with pytest.raises(Exception, match=r"[Ff]ield|index|column"):
        lance.dataset(uri).to_table(filter="a = 5")
    return uri


@pytest.mark.filterwarnings("ignore:index .b_idx. is of a column that is gone")
@pytest.mark.parametrize("change", ["append", "delete", "config"])
def test_a_commit_drops_an_index_on_a_field_that_is_gone(dangling: str, change: str) -> None:
    table = lance_io.dataset(dangling)
    if change == "append":
        lance_io.write_dataset(pa.table({"a": range(100, 110)}), dangling, mode="append")
    elif change == "delete":
        table.delete("a = 99")
    else:
        table.update_config({"k": "v"})
    assert lance.dataset(dangling).to_table(filter="a = 5")["a"].to_pylist() == [5]
    assert lance.dataset(dangling).describe_indices() == []


def test_an_index_on_a_dropped_column_is_refused(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"a": range(100), "b": range(100)}), uri).create_scalar_index("b", "BTREE")
    operation = lance_io.dataset(uri).read_transaction(2).operation
    lance.dataset(uri).drop_columns(["b"])
    with pytest.raises(CommitConflictError, match="dropped or cast"):
        lance_io.LanceDataset.commit(uri, operation, read_version=2)
    assert lance.dataset(uri).to_table(filter="a = 5")["a"].to_pylist() == [5]
