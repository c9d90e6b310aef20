"""The crash states of an external manifest store, as readers and the next writer meet them (spec: commit, 8.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import pytest

from lance_io.commit.external import ExternalHandler, MemoryManifestStore, Row
from lance_io.commit.put_absent import PutAbsentHandler
from lance_io.commit.steps import drive_now
from lance_io.commit.target import CommitTarget
from lance_io.errors import FormatError, NotFound
from lance_io.store.memory import MemoryStore
from lance_io.store.url import Location
from tests.commit.tables import Sample, commit_now


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
        return self.target.place.store

    def has(self, key: str) -> bool:
        try:
            self.store.head_now(key)
        except NotFound:
            return False
        return True

    def row(self, version: int = 2) -> Row | None:
        return self.rows.rows.get(("t", version))

    def latest(self) -> int:
        return drive_now(self.target.handler.find_latest(self.target.place)).version

    def plain_latest(self) -> int:
        return drive_now(PutAbsentHandler().find_latest(self.target.place)).version


@pytest.fixture
def table(sample: Sample) -> Table:
    rows = MemoryManifestStore()
    target = CommitTarget(Location(MemoryStore(), "t", "memory://t"), ExternalHandler(rows))
    sample.create_now(target)
    second = commit_now(target, sample.append(1))
    data = target.place.store.get_now(second.file.key)  # type: ignore[attr-defined]
    target.place.store.delete_now([second.file.key])  # type: ignore[attr-defined]
    del rows.rows["t", 2]
    return Table(target, rows, data, second.file.key, f"{second.file.key}-{uuid4()}")


def next_version(table: Table, sample: Sample) -> int:
    return commit_now(table.target, sample.append(1)).manifest.version


def test_rows_are_as_pylance_has_them(table: Table) -> None:
    first = table.row(1)
    assert first is not None
    assert (first.path, first.is_final) == ("t/_versions/18446744073709551614.manifest", True)
    assert first.size_bytes == table.store.head_now(first.path).size_bytes
    assert len(table.store.list_now("t/_versions/")) == 1


def test_staging_without_a_row(table: Table, sample: Sample) -> None:
    table.store.put_now(table.staging, table.data)
    assert (table.plain_latest(), table.latest(), next_version(table, sample)) == (1, 1, 2)
    assert table.has(table.staging)


@pytest.mark.parametrize("with_size", [True, False])
def test_a_row_to_staging_without_the_final_object(table: Table, sample: Sample, with_size: bool) -> None:
    table.store.put_now(table.staging, table.data)
    table.rows.rows["t", 2] = Row(2, table.staging, len(table.data) if with_size else None)
    assert table.plain_latest() == 1
    assert table.latest() == 2
    assert table.store.get_now(table.final) == table.data
    assert table.row() == Row(2, table.final, len(table.data))
    assert not table.has(table.staging)
    assert next_version(table, sample) == 3


def test_a_row_to_staging_with_both_objects(table: Table, sample: Sample) -> None:
    table.store.put_now(table.staging, table.data)
    table.store.put_now(table.final, table.data)
    table.rows.rows["t", 2] = Row(2, table.staging, len(table.data))
    assert (table.plain_latest(), table.latest(), table.row()) == (2, 2, Row(2, table.final, len(table.data)))
    assert next_version(table, sample) == 3


def test_a_row_to_staging_that_is_gone(table: Table, sample: Sample) -> None:
    table.store.put_now(table.final, table.data)
    table.rows.rows["t", 2] = Row(2, table.staging, len(table.data))
    assert (table.latest(), table.row()) == (2, Row(2, table.final, len(table.data)))
    assert next_version(table, sample) == 3


def test_a_finished_row_with_staging_left(table: Table, sample: Sample) -> None:
    table.store.put_now(table.staging, table.data)
    table.store.put_now(table.final, table.data)
    table.rows.rows["t", 2] = Row(2, table.final, len(table.data))
    assert (table.plain_latest(), table.latest(), next_version(table, sample)) == (2, 2, 3)
    assert table.has(table.staging)


@pytest.mark.parametrize("name", ["staging", "final"])
def test_a_row_without_any_object(table: Table, sample: Sample, name: str) -> None:
    table.rows.rows["t", 2] = Row(2, getattr(table, name), len(table.data))
    assert table.plain_latest() == 1
    with pytest.raises(NotFound):
        table.latest()
    with pytest.raises(NotFound):
        next_version(table, sample)


def test_a_row_of_another_size(table: Table, sample: Sample) -> None:
    table.store.put_now(table.final, table.data)
    table.rows.rows["t", 2] = Row(2, table.final, 5)
    assert table.plain_latest() == 2
    with pytest.raises(FormatError, match="Manifest size mismatch"):
        table.latest()
    with pytest.raises(FormatError):
        next_version(table, sample)


def test_an_object_without_a_row(table: Table, sample: Sample) -> None:
    table.store.put_now(table.final, table.data)
    assert (table.plain_latest(), table.latest()) == (2, 1)
    assert next_version(table, sample) == 3


def test_asking_for_a_version_without_a_row_enters_it(table: Table) -> None:
    table.store.put_now(table.final, table.data)
    found = drive_now(table.target.handler.find_version(table.target.place, 2))
    assert (found.key, table.row()) == (table.final, Row(2, table.final, len(table.data)))


@pytest.mark.parametrize(
    "path", ["elsewhere/18446744073709551613.manifest", "t/_versions/junk", "t/_versions/7.manifest"]
)
def test_a_row_that_names_something_else_is_damage(table: Table, path: str) -> None:
    table.rows.rows["t", 2] = Row(2, path)
    with pytest.raises(FormatError):
        table.latest()


def test_a_detached_version_has_no_row(table: Table, sample: Sample) -> None:
    detached = commit_now(table.target, sample.append(1), detached=True)
    assert list(table.rows.rows) == [("t", 1)]
    assert (table.latest(), table.has(detached.file.key)) == (1, True)
    found = drive_now(table.target.handler.find_version(table.target.place, detached.manifest.version))
    assert (found.key, list(table.rows.rows)) == (detached.file.key, [("t", 1)])


def test_two_writers_of_one_number(table: Table, sample: Sample) -> None:
    """The second finds the first one's staging object, finishes it, and takes the next number."""
    table.store.put_now(table.staging, table.data)
    table.rows.rows["t", 2] = Row(2, table.staging, len(table.data))
    blind = replace(table.target, handler=_Blind(table.rows))
    done = commit_now(blind, sample.append(1))
    assert (done.manifest.version, done.attempts) == (3, 2)
    assert table.row() == Row(2, table.final, len(table.data))


class _Blind(ExternalHandler):
    """Does not see the newest row the first time."""

    seen = 0

    def list_after(self, place: Location, version: int) -> Any:
        found = yield from super().list_after(place, version)
        _Blind.seen += 1
        return found[:-1] or [drive_now(self.find_version(place, 1))] if _Blind.seen == 1 else found
