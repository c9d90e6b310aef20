"""Every table of the shared collection that holds files of version 2.1 or 2.2, against its recorded content."""

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
