"""Cleaning up through the public classes, beside pylance on a copy of the same table."""

from __future__ import annotations

import logging
import shutil
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.changes.upkeep.remove_versions import young_versions_note
from lance_io.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


def leave_orphans(uri: str) -> set[str]:
    """What writes that failed leave, named as they name it; gives the paths."""
    left = [f"_transactions/3-{uuid4()}.txn", "_deletions/0-3-77.bin", "_deletions/1-3-78.arrow"]
    left += ["data/left.lance", "data/.tmpAbc", f"_indices/{uuid4()}/page_data.lance"]
    for name in left:
        path = Path(uri, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"left")
    return set(left)


@pytest.mark.parametrize("older_than", [NOW, timedelta(days=1)], ids=str)
def test_what_failed_writes_left_goes_at_once_where_nobody_writes(tmp_path: Path, older_than: timedelta) -> None:
    """As with pylance, which looks at deletion files and transactions only if all versions that stay are younger."""
    uri = str(tmp_path / "ours")
    lance_io.write_dataset(ROWS, uri).delete("a < 10")
    left = leave_orphans(uri)
    lance_io.dataset(uri).delete("a < 20")
    theirs = str(shutil.copytree(uri, tmp_path / "theirs"))
    for library, path in ((lance, theirs), (lance_io, uri)):
        library.dataset(path).cleanup_old_versions(NOW)
        assert left <= set(files(path))
        library.dataset(path).cleanup_old_versions(older_than, delete_unverified=True)
        assert not left & set(files(path))
    assert files(uri) == files(theirs)
    left = leave_orphans(uri)  # younger than every version
    assert lance_io.dataset(uri).explain_cleanup_old_versions(older_than, delete_unverified=True).stats == (
        lance_io.dataset(uri).cleanup_old_versions(older_than, delete_unverified=True)
    )
    assert not left & set(files(uri)) and files(uri) == files(theirs)
    assert lance.dataset(uri).to_table() == lance_io.dataset(uri).to_table() == ROWS.slice(20)


def test_what_detached_versions_and_branches_name_stays(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table = lance_io.write_dataset(ROWS, uri)
    table.delete("a < 10")
    detached = lance_io.LanceDataset.commit(uri, lance_io.LanceOperation.Append([]), read_version=2, detached=True)
    side = table.create_branch("side")
    side.delete("a < 20")
    table.delete("a < 30")
    named = {Path(uri, name): Path(uri, name).read_bytes() for name in files(uri) if "18446744073709551614" not in name}
    done = table.cleanup_old_versions(NOW, delete_unverified=True)
    assert (done.old_versions, done.transaction_files_removed, done.deletion_files_removed) == (1, 1, 0)
    gone = [path for path in named if not path.exists()]
    assert [path.name[:2] for path in gone] == ["0-"]
    for reader in (lance, lance_io):
        assert reader.dataset(uri, detached.version).count_rows() == 90
        assert reader.dataset(uri).checkout_version(("side", None)).count_rows() == 80
        assert reader.dataset(uri).count_rows() == 70
    assert lance_io.dataset(uri, detached.version).read_transaction(detached.version) is not None


def test_a_table_whose_commits_take_a_lock_is_cleaned_up(copies: tuple[str, str]) -> None:
    taken: list[int] = []

    @contextmanager
    def lock(version: int) -> Iterator[None]:
        taken.append(version)
        yield

    options: dict[str, Any] = {"older_than": NOW, "error_if_tagged_old_versions": False}
    table = lance_io.dataset(copies[0], commit_lock=lock)
    assert counted(table.cleanup_old_versions(**options)) == counted(
        lance.dataset(copies[1]).cleanup_old_versions(**options)
    )
    assert (files(copies[0]), taken) == (files(copies[1]), [])
    table.delete("a < 5")
    assert taken == [table.version]
    assert lance.dataset(copies[0]).to_table()["a"].to_pylist() == list(range(5, 100))


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


def test_young_versions_stay_unless_asked_for(copies: tuple[str, str]) -> None:
    table = lance_io.dataset(copies[0])
    options: dict[str, Any] = {"error_if_tagged_old_versions": False}
    for rules in ({"older_than": timedelta(microseconds=1)}, {"retain_versions": 1}):
        explained = table.explain_cleanup_old_versions(**rules, **options)
        assert explained.warnings == [young_versions_note(3)]
        done = table.cleanup_old_versions(**rules, **options)
        assert (done.old_versions, done.young_versions_kept) == (0, 3)
    assert table.cleanup_old_versions(versions=[3], **options).old_versions == 1
    assert table.cleanup_old_versions(NOW, **options).old_versions == 2


@pytest.mark.parametrize("newer", [0, 2])
@pytest.mark.parametrize(
    "options",
    [
        {"older_than": NOW},
        {"older_than": NOW, "retain_versions": 1},
        {"older_than": NOW, "retain_versions": 4},
        {"versions": [1, 3, 4]},
    ],
    ids=str,
)
@pytest.mark.parametrize("version", [2, 4])
def test_the_asked_version_stays(copies: tuple[str, str], version: int, options: dict[str, Any], newer: int) -> None:
    ours, theirs = lance_io.dataset(copies[0], version), lance.dataset(copies[1], version)
    options = {**options, "error_if_tagged_old_versions": False}
    for uri in copies:
        for _ in range(newer):
            lance.write_dataset(ROWS, uri, mode="append")
    expected = counted(theirs.explain_cleanup_old_versions(**options).stats)
    explained = ours.explain_cleanup_old_versions(**options)
    assert counted(explained.stats) == counted(ours.cleanup_old_versions(**options)) == expected
    assert explained.read_version == theirs.explain_cleanup_old_versions(**options).read_version == version
    theirs.cleanup_old_versions(**options)
    assert versions(copies[0]) == versions(copies[1])
    assert lance.dataset(copies[0], version).to_table() == ours.to_table()


@pytest.mark.parametrize("named", [[1], [3, 4], [5], [1, 99], [0], [2], []], ids=str)
async def test_named_versions_go_however_young(copies: tuple[str, str], named: list[int]) -> None:
    theirs = refused(lambda: lance.dataset(copies[1]).cleanup_old_versions(versions=named))
    assert refused(lambda: lance_io.dataset(copies[0]).cleanup_old_versions(versions=named)) == theirs
    assert versions(copies[0]) == versions(copies[1])
    table = await lance_io.AsyncDataset.open(copies[0])
    if not theirs:
        assert (await table.cleanup_old_versions(versions=named)).old_versions == 0


def refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except OSError:
        return True
    return False


def versions(uri: str) -> list[int]:
    return [each["version"] for each in lance.dataset(uri).versions()]


def test_a_detached_version_is_no_reason_to_remove_the_newest(tmp_path: Path) -> None:
    """With pylance it is: the table is gone."""
    detached = {}
    for library in (lance_io, lance):
        uri = str(tmp_path / library.__name__)
        first = lance.write_dataset(ROWS, uri)
        operation = lance.LanceOperation.Overwrite(first.schema, [each.metadata for each in first.get_fragments()])
        lance.write_dataset(ROWS, uri, mode="append")
        detached[library] = lance.LanceDataset.commit(uri, operation, read_version=2, detached=True).version
        library.dataset(uri, detached[library]).cleanup_old_versions(NOW)
    ours = str(tmp_path / "lance_io")
    assert versions(ours) == [2]
    assert (lance.dataset(ours).count_rows(), lance.dataset(ours, detached[lance_io]).count_rows()) == (200, 100)
    with pytest.raises(ValueError, match="not found"):
        lance.dataset(uri)


@pytest.mark.parametrize("interval", [0, 1, 2, 3])
@pytest.mark.parametrize("more", [{}, {"lance.auto_cleanup.retain_versions": "3"}], ids=["zero", "retain"])
def test_a_table_may_clean_itself_up(tmp_path: Path, interval: int, more: dict[str, str]) -> None:
    options = {"interval": interval, "older_than_seconds": 0}
    for library in (lance, lance_io):
        table = library.write_dataset(ROWS, tmp_path / library.__name__, auto_cleanup_options=options)
        table.update_config(more or {"a": "b"})
        for _ in range(4):
            table.insert(ROWS.slice(0, 1))
    ours = str(tmp_path / "lance_io")
    assert versions(ours) == versions(str(tmp_path / "lance"))
    assert lance.dataset(ours).count_rows() == 104


def test_a_table_that_cleans_itself_up_keeps_young_versions(tmp_path: Path) -> None:
    table = lance_io.write_dataset(ROWS, tmp_path / "t", auto_cleanup_options={"interval": 1, "older_than_seconds": 1})
    table.update_config({"lance.auto_cleanup.older_than": "1ns"})
    for _ in range(3):
        table.insert(ROWS.slice(0, 1))
    assert len(table.versions()) == 5


@pytest.mark.parametrize(
    "options",
    [{"interval": 1, "retain_versions": 3}, {"interval": 2.5}, {"interval": -1}, {"older_than_seconds": 0.5}],
    ids=str,
)
def test_options_that_would_mean_nothing_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    """Pylance ignores them, and cleans up by its defaults."""
    with pytest.raises(UsageError, match="auto_cleanup_options: expected"):
        lance_io.write_dataset(ROWS, tmp_path / "t", auto_cleanup_options=options)


def test_a_failing_cleanup_leaves_the_commit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = lance_io.write_dataset(ROWS, tmp_path / "t", auto_cleanup_options={"interval": 1})
    table.update_config({"lance.auto_cleanup.older_than": "a while"})
    with caplog.at_level(logging.WARNING):
        table.insert(ROWS)
    assert "the cleanup after it failed: UsageError: expected a duration" in caplog.text
    assert lance.dataset(tmp_path / "t").count_rows() == 200


@pytest.mark.parametrize("name", ["retain_versions", "delete_rate_limit"])
def test_cleaning_up_by_nothing_is_refused(tmp_path: Path, name: str) -> None:
    for library in (lance, lance_io):
        table = library.write_dataset(pa.table({"a": [1]}), tmp_path / library.__name__)
        with pytest.raises((OSError, ValueError), match=f"{name} must be greater than 0, got 0"):
            table.cleanup_old_versions(**{name: 0})


def test_a_write_may_skip_the_cleanup(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance_io.write_dataset(ROWS, uri, auto_cleanup_options={"interval": 1, "older_than_seconds": 0})
    for group_commit in (False, True):
        lance_io.write_dataset(ROWS, uri, mode="append", skip_auto_cleanup=True, group_commit=group_commit)
    append = lance_io.LanceOperation.Append([])
    lance_io.LanceDataset.commit(uri, append, 3, skip_auto_cleanup=True)
    assert versions(uri) == [1, 2, 3, 4]
    table = lance_io.dataset(uri)
    table.update_config({"lance.auto_cleanup.delete_rate_limit": "1000"})
    assert versions(uri) == [4, 5]
    assert table.to_table().num_rows == 3 * ROWS.num_rows
