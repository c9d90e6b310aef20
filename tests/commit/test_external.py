"""The crash states of an external manifest store, as readers and the next writer meet them (spec: commit, 8.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from lance_io.commit.cleanups.cleanup import plan_cleanup, run_cleanup
from lance_io.commit.external import ExternalHandler, Row
from lance_io.commit.put_absent import PutAbsentHandler
from lance_io.commit.target import CommitTarget
from lance_io.errors import AccessDenied, CommitUnknownError, FormatError, ManifestMissing, NotFound, StoreError
from lance_io.plans.plan import drive_sync
from lance_io.store.memory import MemoryStore
from lance_io.store.url import Location
from lance_io.table.transaction.garbage import CleanupPolicy
from lance_io.testing.manifest_rows import MemoryManifestStore
from tests.commit.tables import Sample, commit_sync

if TYPE_CHECKING:
    from lance_io.plans.plan import Plan


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return Sample(tmp_path_factory.mktemp("sample") / "t")


@dataclass
class Table:
    """A table of one version whose second one is in some state."""

    target: CommitTarget
    rows: MemoryManifestStore
    data: bytes
    final: str
    staging: str

    @property
    def store(self) -> Any:
        return self.target.location.store

    def has(self, key: str) -> bool:
        try:
            self.store.head_sync(key)
        except NotFound:
            return False
        return True

    def row(self, version: int = 2) -> Row | None:
        return self.rows.rows.get(("t", version))

    def latest(self) -> int:
        return drive_sync(self.target.handler.find_latest(self.target.location)).version

    def plain_latest(self) -> int:
        return drive_sync(PutAbsentHandler().find_latest(self.target.location)).version


@pytest.fixture
def table(sample: Sample) -> Table:
    rows = MemoryManifestStore()
    target = CommitTarget(Location(MemoryStore(), "t", "memory://t"), ExternalHandler(rows))
    sample.create_sync(target)
    second = commit_sync(target, sample.append(1))
    data = target.location.store.get_sync(second.file.key)  # type: ignore[attr-defined]
    target.location.store.delete_sync([second.file.key])  # type: ignore[attr-defined]
    del rows.rows["t", 2]
    return Table(target, rows, data, second.file.key, f"{second.file.key}-{uuid4()}")


def next_version(table: Table, sample: Sample) -> int:
    return commit_sync(table.target, sample.append(1)).manifest.version


def test_rows_are_as_pylance_has_them(table: Table) -> None:
    first = table.row(1)
    assert first is not None
    assert (first.path, first.is_final) == ("t/_versions/18446744073709551614.manifest", True)
    assert first.size_bytes == table.store.head_sync(first.path).size_bytes
    assert len(table.store.list_sync("t/_versions/")) == 1


def test_staging_without_a_row(table: Table, sample: Sample) -> None:
    table.store.put_sync(table.staging, table.data)
    assert (table.plain_latest(), table.latest(), next_version(table, sample)) == (1, 1, 2)
    assert table.has(table.staging)


@pytest.mark.parametrize("with_size", [True, False])
def test_a_row_to_staging_without_the_final_object(table: Table, sample: Sample, with_size: bool) -> None:
    table.store.put_sync(table.staging, table.data)
    table.rows.rows["t", 2] = Row(2, table.staging, len(table.data) if with_size else None)
    assert table.plain_latest() == 1
    assert table.latest() == 2
    assert table.store.get_sync(table.final) == table.data
    assert table.row() == Row(2, table.final, len(table.data))
    assert not table.has(table.staging)
    assert next_version(table, sample) == 3


def test_a_row_to_staging_with_both_objects(table: Table, sample: Sample) -> None:
    table.store.put_sync(table.staging, table.data)
    table.store.put_sync(table.final, table.data)
    table.rows.rows["t", 2] = Row(2, table.staging, len(table.data))
    assert (table.plain_latest(), table.latest(), table.row()) == (2, 2, Row(2, table.final, len(table.data)))
    assert next_version(table, sample) == 3


def test_a_row_to_staging_that_is_gone(table: Table, sample: Sample) -> None:
    table.store.put_sync(table.final, table.data)
    table.rows.rows["t", 2] = Row(2, table.staging, len(table.data))
    assert (table.latest(), table.row()) == (2, Row(2, table.final, len(table.data)))
    assert next_version(table, sample) == 3


def test_a_finished_row_with_staging_left(table: Table, sample: Sample) -> None:
    table.store.put_sync(table.staging, table.data)
    table.store.put_sync(table.final, table.data)
    table.rows.rows["t", 2] = Row(2, table.final, len(table.data))
    assert (table.plain_latest(), table.latest(), next_version(table, sample)) == (2, 2, 3)
    assert table.has(table.staging)


@pytest.mark.parametrize("name", ["staging", "final"])
def test_a_row_without_any_object(table: Table, sample: Sample, name: str) -> None:
    table.rows.rows["t", 2] = Row(2, getattr(table, name), len(table.data))
    assert table.plain_latest() == 1
    for call in (table.latest, lambda: next_version(table, sample), lambda: sample.create_sync(table.target)):
        with pytest.raises(ManifestMissing, match=r"version 2 .* LanceDataset\.drop .* put the object back"):
            call()
    with pytest.raises(ManifestMissing):
        drive_sync(table.target.handler.find_version(table.target.location, 2))
    assert table.row() == Row(2, getattr(table, name), len(table.data))
    table.store.put_sync(getattr(table, name), table.data)
    assert (table.latest(), next_version(table, sample)) == (2, 3)


def test_a_version_that_a_cleanup_removed_is_not_found(table: Table, sample: Sample) -> None:
    """Its row stays: no number is taken twice."""
    assert next_version(table, sample) == 2
    plan = drive_sync(plan_cleanup(table.target, CleanupPolicy(older_than_s=0.0)))
    assert drive_sync(run_cleanup(table.target, plan)).old_versions == 1
    with pytest.raises(NotFound, match="Dataset version 1 was not found"):
        drive_sync(table.target.handler.find_version(table.target.location, 1))
    assert table.row(1) is not None and table.latest() == 2


def cleaned(table: Table) -> set[str]:
    """What a cleanup of old files removes."""
    before = {one.key for one in table.store.list_sync("t/")}
    drive_sync(run_cleanup(table.target, drive_sync(plan_cleanup(table.target, CleanupPolicy()))))
    return before - {one.key for one in table.store.list_sync("t/")}


def age(table: Table, *keys: str) -> None:
    for key in keys:
        data, meta = table.store._objects[key]
        table.store._objects[key] = data, replace(meta, last_modified=meta.last_modified - timedelta(days=8))


def test_a_cleanup_removes_staging_objects_that_no_row_can_name(table: Table) -> None:
    """However young: the row of their number names another object, and rows are made once."""
    lost, late, waiting = (f"{table.final}-{uuid4()}" for _ in range(3))
    waiting = waiting.replace("613.manifest", "612.manifest")
    for key in (table.staging, lost, late, waiting):
        table.store.put_sync(key, table.data)
    assert cleaned(table) == set()  # version 2 has no row: each of them may get it
    table.rows.rows["t", 2] = Row(2, table.final, len(table.data))
    table.store.put_sync(table.final, table.data)
    assert cleaned(table) == {table.staging, lost, late}
    assert table.latest() == 2 and table.has(waiting)
    age(table, waiting)
    assert cleaned(table) == {waiting}  # nobody takes a week to make a row


def test_a_cleanup_leaves_a_staging_object_that_a_row_names(table: Table, sample: Sample) -> None:
    """Its writer did not come to say so; whoever asks for the version does."""
    first = table.row(1)
    assert first is not None and next_version(table, sample) == 2
    named, other = f"{first.path}-{uuid4()}", f"{first.path}-{uuid4()}"
    content = table.store.get_sync(first.path)
    for key in (named, other):
        table.store.put_sync(key, content)
    table.rows.rows["t", 1] = Row(1, named, len(content))
    assert cleaned(table) == {other}
    found = drive_sync(table.target.handler.find_version(table.target.location, 1))
    assert (found.key, table.has(named), table.row(1)) == (first.path, False, first)


def test_a_row_of_another_size(table: Table, sample: Sample) -> None:
    table.store.put_sync(table.final, table.data)
    table.rows.rows["t", 2] = Row(2, table.final, 5)
    assert table.plain_latest() == 2
    with pytest.raises(FormatError, match="Manifest size mismatch"):
        table.latest()
    with pytest.raises(FormatError):
        next_version(table, sample)


def test_an_object_without_a_row(table: Table, sample: Sample) -> None:
    table.store.put_sync(table.final, table.data)
    assert (table.plain_latest(), table.latest()) == (2, 1)
    assert next_version(table, sample) == 3


def test_asking_for_a_version_without_a_row_enters_it(table: Table) -> None:
    table.store.put_sync(table.final, table.data)
    found = drive_sync(table.target.handler.find_version(table.target.location, 2))
    assert (found.key, table.row()) == (table.final, Row(2, table.final, len(table.data)))


@pytest.mark.parametrize(
    "path", ["elsewhere/18446744073709551613.manifest", "t/_versions/junk", "t/_versions/7.manifest"]
)
def test_a_row_that_names_something_else_is_damage(table: Table, path: str) -> None:
    table.rows.rows["t", 2] = Row(2, path)
    with pytest.raises(FormatError):
        table.latest()


def test_a_detached_version_has_no_row(table: Table, sample: Sample) -> None:
    detached = commit_sync(table.target, sample.append(1), detached=True)
    assert list(table.rows.rows) == [("t", 1)]
    assert (table.latest(), table.has(detached.file.key)) == (1, True)
    found = drive_sync(table.target.handler.find_version(table.target.location, detached.manifest.version))
    assert (found.key, list(table.rows.rows)) == (detached.file.key, [("t", 1)])


def test_two_writers_of_one_number(table: Table, sample: Sample) -> None:
    """The second finds the first one's staging object, finishes it, and takes the next number."""
    table.store.put_sync(table.staging, table.data)
    table.rows.rows["t", 2] = Row(2, table.staging, len(table.data))
    blind = replace(table.target, handler=_Blind(table.rows))
    done = commit_sync(blind, sample.append(1))
    assert (done.manifest.version, done.attempts) == (3, 2)
    assert table.row() == Row(2, table.final, len(table.data))


class _Blind(ExternalHandler):
    """Does not see the newest row the first time."""

    seen = 0

    def list_after(self, place: Location, version: int) -> Any:
        found = yield from super().list_after(place, version)
        _Blind.seen += 1
        return found[:-1] or [drive_sync(self.find_version(place, 1))] if _Blind.seen == 1 else found


class _Failing(MemoryManifestStore):
    """A database whose next requests fail, those to create a row before or after they have been carried out.

    creating  "lost" (carried out, the answer does not come), "refused" (not carried out), "denied" (certainly not)
    reading   how many reads of a row fail then
    """

    def __init__(self, rows: dict[tuple[str, int], Row], creating: list[str], reading: int) -> None:
        super().__init__()
        self.rows, self.creating, self.reading = rows, creating, reading

    def put_if_absent(self, base: str, row: Row) -> Plan[None]:
        kind = self.creating.pop(0) if self.creating else ""
        if kind == "denied":
            raise AccessDenied("scripted")
        if kind != "refused":
            yield from super().put_if_absent(base, row)
        if kind:
            raise StoreError("scripted")

    def get(self, base: str, version: int) -> Plan[Row | None]:
        if self.reading:
            self.reading -= 1
            raise StoreError("scripted")
        return (yield from super().get(base, version))


@pytest.mark.parametrize(
    ("creating", "reading", "outcome", "num_left", "latest"),
    [
        (["lost"], 0, "done", 0, 2),
        (["refused"], 0, "done", 0, 2),
        (["refused", "refused", "lost"], 0, "done", 0, 2),
        (["lost"] * 4, 4, "unknown", 1, 2),  # whoever comes next finishes what the row stands for
        (["refused"] * 4, 4, "unknown", 1, 1),
        (["refused"] * 4, 0, "unknown", 1, 1),  # a late request may still be carried out
        (["lost", "denied"], 1, "unknown", 1, 2),
        (["refused", "denied"], 1, "unknown", 1, 1),
        (["denied"], 0, "denied", 0, 1),
    ],
)
def test_a_staging_object_stays_as_long_as_its_row_may_be_there(
    table: Table,
    sample: Sample,
    monkeypatch: pytest.MonkeyPatch,
    creating: list[str],
    reading: int,
    outcome: str,
    num_left: int,
    latest: int,
) -> None:
    monkeypatch.setattr("lance_io.commit.external.FIRST_PAUSE_S", 0.0)
    failing = _Failing(table.rows.rows, list(creating), reading)
    target = replace(table.target, handler=ExternalHandler(failing))
    if outcome == "done":
        assert commit_sync(target, sample.append(1)).manifest.version == 2
    else:
        with pytest.raises(CommitUnknownError if outcome == "unknown" else AccessDenied):
            commit_sync(target, sample.append(1))
    names = [one.key for one in table.store.list_sync("t/_versions/")]
    assert len([name for name in names if not name.endswith(".manifest")]) == num_left
    assert table.latest() == latest  # which reads and settles the manifest that a row points at
    assert table.has(table.final) is (latest == 2)
    assert next_version(table, sample) == latest + 1
