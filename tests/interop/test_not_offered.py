"""Every name of pylance's classes is there; what is not offered says what to use meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from lance.dataset import ScannerBuilder as PeerBuilder

import lance_io
from lance_io.dataset import ScannerBuilder
from lance_io.errors import UnsupportedError
from lance_io.not_offered import DatasetNotOffered, OperationsNotOffered, ScannerBuilderNotOffered

if TYPE_CHECKING:
    from pathlib import Path


CLASSES = ("LanceDataset", "LanceFragment", "LanceOperation", "LanceScanner")
THEIRS = {"ScannerBuilder": PeerBuilder, **{name: getattr(lance, name) for name in CLASSES}}
OURS = {"ScannerBuilder": ScannerBuilder, **{name: getattr(lance_io, name) for name in CLASSES}}


def public(names: Any) -> set[str]:
    return {name for name in dir(names) if not name.startswith("_")}


@pytest.fixture
def ours(tmp_path: Path) -> SimpleNamespace:
    """Objects of ours whose classes lack something."""
    table = lance_io.write_dataset(pa.table({"a": [1]}), tmp_path / "t.lance")
    other = lance_io.AsyncDataset.of(table)
    return SimpleNamespace(
        LanceDataset=[table, other],
        LanceFragment=[table.get_fragments()[0], other.get_fragments()[0]],
        LanceOperation=[lance_io.LanceOperation],
        LanceScanner=[table.scanner()],
        ScannerBuilder=[ScannerBuilder(table)],
    )


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("LanceDataset", DatasetNotOffered),
        ("LanceFragment", object),
        ("LanceOperation", OperationsNotOffered),
        ("LanceScanner", object),
        ("ScannerBuilder", ScannerBuilderNotOffered),
    ],
)
def test_every_name_of_a_class(name: str, table: type, ours: SimpleNamespace) -> None:
    theirs, known = (public(classes[name]) for classes in (THEIRS, OURS))
    assert theirs <= known
    assert public(table) <= theirs
    for one in getattr(ours, name):
        for missing in public(table):
            with pytest.raises(UnsupportedError, match=rf"{missing} is not offered by this release: \S.{{20,}}"):
                getattr(one, missing)()


def test_names_of_the_class_itself() -> None:
    """A class method is called without an object, and what documents a class sees all of its names."""
    with pytest.raises(UnsupportedError, match="list of pydantic models"):
        lance_io.LanceDataset.from_pydantic_model(None, [])
    for name in public(DatasetNotOffered):
        documented = getattr(lance_io.LanceDataset, name)
        assert documented.__doc__.startswith("Not offered: ")
        assert documented.__doc__.count(name) >= 1


def test_every_name_of_the_root() -> None:
    for name in lance.__all__:
        found = getattr(lance_io, name)
        if "Not offered: " in (found.__doc__ or ""):
            with pytest.raises(UnsupportedError, match=rf"{name} is not offered by this release: \S.{{20,}}"):
                found()
    with pytest.raises(AttributeError, match="has no attribute 'nothing_of_this_name'"):
        _ = lance_io.nothing_of_this_name
