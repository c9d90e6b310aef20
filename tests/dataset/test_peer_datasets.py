"""Every table of the shared collection, against its recorded content."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lance_io

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


HISTORICAL = (
    "0.15.0--v2_no_files",
    "0.15.0--v2_with_files",
    "0.16.0--wrong_data_version_can_fix",
    "0.20.0--old_btree_bitmap_indices",
    "0.27.1--pq_in_schema",
)


@pytest.mark.parametrize("name", HISTORICAL)
def test_tables_of_old_releases(checker: ModuleType, name: str) -> None:
    """Of version 2.0, some with the numbers 0 and 3 in their manifests."""
    folder, report = PEER / "historical" / name, checker.Report(0)
    expected = json.loads((folder / "expected.json").read_text())
    checker.check_dataset(lance_io, folder, expected, report, skip_filters=True)
    assert report.lines == [] and report.ok > 3


@pytest.mark.parametrize(("version", "num_checks"), [("2.0", 228), ("2.1", 228), ("2.2", 228)])
def test_all_checks_pass(checker: ModuleType, version: str, num_checks: int) -> None:
    total = 0
    for folder in sorted((PEER / "generated").glob(f"*@{version}")):
        expected = json.loads((folder / "expected.json").read_text())
        report = checker.Report(0)
        if expected.get("kind") == "file":
            checker.check_file(lance_io, folder, expected, report)
        else:
            checker.check_dataset(lance_io, folder, expected, report, skip_filters=True)
        assert report.lines == [], folder.name
        total += report.ok
    assert total == num_checks


BATCHED = {
    "deletions": 100,
    "fragments_appends": 80,
    "nested": 15,
    "primitives": 9,
    "strings": 9,
    "temporal_decimal": 7,
}
OLD = {"0.7.5--with_deletions": 12, "0.10.5--corrupt_schema": 38, "0.15.0--v1_with_files": 6}


@pytest.mark.parametrize("name", [*BATCHED, "temporal_decimal", *OLD])
def test_all_checks_of_version_0_1_pass(checker: ModuleType, name: str) -> None:
    """Tables of old releases among them, which lack or misstate numbers of rows, or have a field in two files."""
    folder = PEER / "historical" / name if name in OLD else PEER / "generated" / f"{name}@0.1"
    report = checker.Report(0)
    checker.check_dataset(lance_io, folder, json.loads((folder / "expected.json").read_text()), report)
    assert report.lines == []
    assert report.ok == (BATCHED | OLD).get(name, 7)
