"""Tables of the shared collection, those of the versions that are read, against their recorded content."""

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


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_all_checks_pass(checker: ModuleType, version: str) -> None:
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
    assert total == 228


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
