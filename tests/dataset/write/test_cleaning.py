"""Cleaning up through the public classes, beside pylance on a copy of the same table."""

from __future__ import annotations

import logging
import shutil
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pa.table({"a": range(100)})
NOW = timedelta(0)
COUNTERS = (
    "bytes_removed",
    "old_versions",
    "data_files_removed",
    "transaction_files_removed",
    "index_files_removed",
    "deletion_files_removed",
)


@pytest.fixture
def copies(tmp_path: Path) -> tuple[str, str]:
    """Five versions with data files, deletion files and a tag; the same twice."""
    uri = str(tmp_path / "ours")
    table = lance_io.write_dataset(ROWS, uri)
    table.delete("a < 10")
    table.insert(ROWS, mode="overwrite")
    table.delete("a = 1")
    table.delete("a = 2")
    table.tags.create("kept", 2)
    shutil.copytree(uri, tmp_path / "theirs")
    return uri, str(tmp_path / "theirs")


def counted(stats: Any) -> dict[str, int]:
    return {name: getattr(stats, name) for name in COUNTERS}


def files(path: str) -> list[str]:
    from pathlib import Path

    folder = Path(path)
    return sorted(str(one.relative_to(folder)) for one in folder.glob("**/*") if one.is_file())


@pytest.mark.parametrize(
    "options",
    [
        {"older_than": NOW, "error_if_tagged_old_versions": False},
        {"older_than": NOW, "retain_versions": 2, "error_if_tagged_old_versions": False},
        {"older_than": NOW, "versions": [1, 3], "error_if_tagged_old_versions": False},
        {"older_than": timedelta(days=1)},
        {},
    ],
    ids=str,
)
def test_what_goes_is_what_pylance_removes(copies: tuple[str, str], options: dict[str, Any]) -> None:
    ours, theirs = lance_io.dataset(copies[0]), lance.dataset(copies[1])
    explained = ours.explain_cleanup_old_versions(**options, include_files=True)
    before = files(copies[0])
    done = ours.cleanup_old_versions(**options)
    assert counted(explained.stats) == counted(done) == counted(theirs.cleanup_old_versions(**options))
    assert files(copies[0]) == files(copies[1])
    assert sorted(explained.candidate_files) == sorted(set(before) - set(files(copies[0])))
    for reader in (lance, lance_io):
        assert reader.dataset(copies[0]).to_table()["a"].to_pylist() == [0, *range(3, 100)]
        if options:
            assert reader.dataset(copies[0], "kept").count_rows() == 90


def test_tagged_versions_are_not_removed_silently(copies: tuple[str, str]) -> None:
    before = files(copies[0])
    with pytest.raises(OSError, match="have tags"):
        lance_io.dataset(copies[0]).cleanup_old_versions(NOW)
    assert files(copies[0]) == before


async def test_the_awaitable_twin(copies: tuple[str, str]) -> None:
    table = await lance_io.AsyncDataset.open(copies[0])
    options: dict[str, Any] = {"older_than": NOW, "error_if_tagged_old_versions": False}
    explained = await table.explain_cleanup_old_versions(**options)
    assert explained.candidate_files == []
    assert counted(await table.cleanup_old_versions(**options)) == counted(explained.stats)


def test_young_versions_stay_unless_now_is_meant(copies: tuple[str, str]) -> None:
    table = lance_io.dataset(copies[0])
    options: dict[str, Any] = {"error_if_tagged_old_versions": False}
    assert table.cleanup_old_versions(timedelta(microseconds=1), **options).old_versions == 0
    assert table.cleanup_old_versions(retain_versions=1, **options).old_versions == 0
    assert table.cleanup_old_versions(NOW, **options).old_versions == 3


def test_a_table_may_clean_itself_up(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    options = {"interval": 3, "older_than_seconds": 0}
    table = lance_io.write_dataset(ROWS, uri, auto_cleanup_options=options)
    for _ in range(4):
        table.insert(ROWS.slice(0, 1))
    # the versions are younger than ten minutes: the rule that protects slow writers is stronger
    assert len(table.versions()) == 5
    assert lance.dataset(uri).count_rows() == 104


def test_a_failing_cleanup_leaves_the_commit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = lance_io.write_dataset(ROWS, tmp_path / "t", auto_cleanup_options={"interval": 1})
    table.update_config({"lance.auto_cleanup.older_than": "a while"})
    with caplog.at_level(logging.WARNING):
        table.insert(ROWS)
    assert "the cleanup after it failed: expected a duration" in caplog.text
    assert lance.dataset(tmp_path / "t").count_rows() == 200


@pytest.mark.parametrize("name", ["retain_versions", "delete_rate_limit"])
def test_cleaning_up_by_nothing_is_refused(tmp_path: Path, name: str) -> None:
    for library in (lance, lance_io):
        table = library.write_dataset(pa.table({"a": [1]}), tmp_path / library.__name__)
        with pytest.raises((OSError, ValueError), match=f"{name} must be greater than 0, got 0"):
            table.cleanup_old_versions(**{name: 0})
