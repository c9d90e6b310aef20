"""The files of a commit: what it names is there, what no version can name goes, and its outcome decides which it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lance_io.commit.commit_files import CommitFiles
from lance_io.commit.commit_loop import commit
from lance_io.commit.commit_request import CommitRequest
from lance_io.commit.first_version import create_table
from lance_io.commit.target import CommitTarget
from lance_io.errors import InternalError
from lance_io.io import trace_events
from lance_io.plans.plan import drive_sync
from lance_io.store.memory import MemoryStore
from lance_io.store.url import Location
from tests.commit.tables import Sample

if TYPE_CHECKING:
    from lance_io.plans.plan import Plan


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return Sample(tmp_path_factory.mktemp("sample") / "t")


@pytest.fixture
def target() -> CommitTarget:
    return CommitTarget(Location(MemoryStore(), "t", "memory://t"))


def keys(target: CommitTarget) -> set[str]:
    return {meta.key for meta in target.location.store.list_sync("")}  # type: ignore[attr-defined]


def losing(files: CommitFiles, key: str) -> Plan[None]:
    """A fault: a data file that the commit names is removed while others are written."""
    files.drop_data([key])
    yield from ()


@pytest.mark.parametrize("creates", [False, True])
def test_no_manifest_names_what_its_commit_has_removed(target: CommitTarget, sample: Sample, creates: bool) -> None:
    if not creates:
        sample.create_sync(target)
    transaction = sample.overwrite(0) if creates else sample.append(1)
    name = transaction.operation.fragments[0].files[0].path
    files, key, before = CommitFiles(), target.location.key("data", name), keys(target)
    files.add_data([key])
    request = CommitRequest(transaction, files=files, alongside=[losing(files, key)])
    with pytest.raises(InternalError, match=rf"data/{name}, which it has removed itself"):
        drive_sync((create_table if creates else commit)(target, request))
    assert keys(target) == before
    assert files.may_remove and files.outcome == "unsent"


def test_a_file_that_is_made_again_is_there(target: CommitTarget, sample: Sample) -> None:
    sample.create_sync(target)
    transaction = sample.append(1)
    files, key = CommitFiles(), target.location.key("data", transaction.operation.fragments[0].files[0].path)
    files.add_data([key])
    files.drop_data([key])
    files.add_data([key])
    assert drive_sync(commit(target, CommitRequest(transaction, files=files))).file.version == 2
    assert files.outcome == "committed" and not files.may_remove


def test_whoever_listens_cannot_undo_a_version(
    target: CommitTarget, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes after the deciding write may fail: the version is there, and all that it names."""
    sample.create_sync(target)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("the listener is gone")

    monkeypatch.setattr(trace_events, "listeners", [fail])
    monkeypatch.setattr(trace_events, "emit_commit", fail)
    transaction, files = sample.append(1), CommitFiles()
    with pytest.raises(OSError, match="the listener is gone"):
        drive_sync(commit(target, CommitRequest(transaction, files=files)))
    assert files.outcome == "committed"
    assert target.location.key(transaction.path) in keys(target)
    assert drive_sync(target.handler.find_latest(target.location)).version == 2


def test_a_repeated_commit_is_committed(target: CommitTarget, sample: Sample) -> None:
    sample.create_sync(target)
    transaction = sample.append(1)
    drive_sync(commit(target, CommitRequest(transaction)))
    files = CommitFiles()
    found = drive_sync(commit(target, CommitRequest(transaction, files=files, is_repeated=True)))
    assert (found.attempts, files.outcome) == (0, "committed")
