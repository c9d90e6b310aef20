"""Pickles of an earlier release load, and their objects work: `pickles/` holds one of each kind, and their table."""

from __future__ import annotations

import dataclasses
import pickle
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

import lance_io
from lance_io.dataset import distributed
from lance_io.dataset.distributed import TablePlace, TableVersion
from lance_io.dataset.fragment import AsyncFragment

STORED = Path(__file__).parent / "pickles"
NAMES = sorted(path.stem for path in STORED.glob("*.pickle"))
WRITTEN_AT = "/pickled"  # where the table was; no process of this test looks there
IDS = [0, 2, 3, 4, 5]

OPERATIONS = {
    "append": "Append",
    "data_replacement": "DataReplacement",
    "delete": "Delete",
    "merge": "Merge",
    "overwrite": "Overwrite",
    "project": "Project",
    "restore": "Restore",
    "rewrite": "Rewrite",
    "update": "Update",
    "update_config": "UpdateConfig",
}


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A copy of the table; relative paths lead to it, too."""
    shutil.copytree(STORED / "t.lance", tmp_path / "t.lance")
    monkeypatch.chdir(tmp_path)
    return str(tmp_path / "t.lance")


def load(name: str, uri: str) -> Any:
    """The object of a pickle; the place of its table is that of the copy."""

    def text(value: str) -> bytes:
        return b"X" + struct.pack("<I", len(value.encode())) + value.encode()

    stored = (STORED / f"{name}.pickle").read_bytes()
    return pickle.loads(stored.replace(text(f"{WRITTEN_AT}/t.lance"), text(uri)))


@pytest.mark.parametrize("name", NAMES)
def test_it_loads_and_can_be_pickled_again(name: str, uri: str) -> None:
    loaded = load(name, uri)
    again = pickle.loads(pickle.dumps(loaded))
    assert type(again) is type(loaded)
    if dataclasses.is_dataclass(loaded) and type(loaded).__eq__ is not object.__eq__ and name != "write_job":
        assert again == loaded


def test_datasets_and_fragments_read(uri: str) -> None:
    dataset = load("dataset", uri)
    assert isinstance(dataset, lance_io.LanceDataset) and dataset.version == 2
    assert dataset.to_table()["id"].to_pylist() == IDS
    fragment = load("fragment", uri)
    assert fragment.to_table()["id"].to_pylist() == [0, 2]
    metadata = load("fragment_metadata", uri)
    assert metadata == fragment.metadata and metadata.files[0] == load("data_file", uri)
    assert metadata.deletion_file == load("deletion_file", uri)
    assert load("lance_schema", uri) == dataset.lance_schema


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_those_of_today(name: str, uri: str) -> None:
    operation = load(name, uri)
    assert type(operation) is getattr(lance_io.LanceOperation, OPERATIONS[name])
    assert repr(operation)


def test_an_operation_commits(uri: str) -> None:
    committed = lance_io.LanceDataset.commit(uri, load("delete", uri), read_version=2)
    assert committed.to_table()["id"].to_pylist() == [0, 2]
    restored = lance_io.LanceDataset.commit(uri, load("restore", uri), read_version=3)
    assert restored.count_rows() == 6


def test_compactions_go_on(uri: str) -> None:
    dataset = lance_io.dataset(uri)
    plan, task = load("compaction_plan", uri), load("compaction_task", uri)
    assert plan.num_tasks() == 1
    lance_io.optimize.Compaction.commit(dataset, [task.execute(dataset)])
    assert lance_io.dataset(uri).to_table()["id"].to_pylist() == IDS
    assert len(lance_io.dataset(uri).get_fragments()) == 1


def test_distributed_parts_go_on(uri: str) -> None:
    place = TablePlace.of_process(uri, {})
    scan, part = load("table_scan", uri), load("scan_part", uri)
    batches = scan.read(place, part, batch_bytes=1 << 20)
    assert [row for batch in batches for row in batch["id"].to_pylist()] == [3, 4, 5]
    assert TableVersion.from_bytes(place, load("version_named", uri)).version == 2


def test_a_write_commits(uri: str) -> None:
    """Its files were written by the earlier release."""
    place = TablePlace.of_process(uri, {})
    distributed.commit_write(place, load("write_job", uri), [load("written_files", uri)])
    assert lance_io.dataset(uri).to_table()["id"].to_pylist() == [*IDS, *range(6)]


def test_an_asynchronous_fragment_of_an_earlier_release_reads(uri: str) -> None:
    """Its pickle was the attributes; one of them had another name."""
    fragment = AsyncFragment.__new__(AsyncFragment)
    fragment.__setstate__({"_state": load("dataset", uri)._state, "_place": 0})
    assert fragment.fragment_id == 0 and pickle.loads(pickle.dumps(fragment)).fragment_id == 0
