"""Every table of the shared collection, against its recorded content."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import NotFound

if TYPE_CHECKING:
    from types import ModuleType

PEER = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "peer-datasets"


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    """The collection's own checker."""
    spec = importlib.util.spec_from_file_location("check_datasets", PEER / "check_datasets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CASES = [f"{part}/{folder.name}" for part in ("generated", "historical") for folder in sorted((PEER / part).iterdir())]
WITHOUT_DATA = "historical/0.5.9--dataset_with_fragments"  # manifests only: nothing to check


@pytest.mark.parametrize("case", CASES)
def test_all_checks_pass(checker: ModuleType, case: str) -> None:
    """Rows, row ids, takes, fragments, schemas, tags and filters; tables of old releases among them, which lack or
    misstate numbers of rows, or have a field in two files."""
    folder, report = PEER / case, checker.Report(0)
    expected = json.loads((folder / "expected.json").read_text())
    if expected.get("kind") == "file":
        checker.check_file(lance_io, folder, expected, report)
    else:
        checker.check_dataset(lance_io, folder, expected, report)
    assert report.lines == []
    assert report.ok == report.total
    assert report.ok or case == WITHOUT_DATA


def test_there_are_all_cases() -> None:
    assert len(CASES) == 56


@pytest.mark.parametrize("version", [1, 2, 3])
def test_manifests_without_data_files(version: int, tmp_path: Path) -> None:
    """Of release 0.5.9, which names no writer: what they say is read, and rows are missed by name, as by pylance."""
    place = tmp_path / "data.lance"
    shutil.copytree(PEER / WITHOUT_DATA / "data.lance", place)
    ours, theirs = (library.dataset(str(place), version=version) for library in (lance_io, lance))
    for look in (
        lambda table: (table.version, table.latest_version, table.schema, table.data_storage_version),
        lambda table: [[file.path for file in one.data_files()] for one in table.get_fragments()],
        lambda table: [one["version"] for one in table.versions()],
    ):
        assert look(ours) == look(theirs)
    path = ours.get_fragments()[0].data_files()[0].path
    for need in (
        lambda table: table.count_rows(),
        lambda table: table.to_table(),
        lambda table: table.take([0]),
        lambda table: table.to_table(filter="id > 1"),
    ):
        with pytest.raises((OSError, ValueError), match=r"Not found.*\.lance"):
            need(theirs)
        with pytest.raises(NotFound, match=rf"{path}: there is no such file"):
            need(ours)
    with pytest.raises(NotFound):
        lance_io.write_dataset(pa.table({"id": [1]}), str(place), mode="append")
    assert lance_io.dataset(str(place)).version == 3
