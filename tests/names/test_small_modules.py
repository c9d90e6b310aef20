"""`lance_io.vector` and `lance_io.progress` beside pylance's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import lance.progress
import lance.vector
import numpy as np
import pyarrow as pa
import pytest

import lance_io
import lance_io.progress
import lance_io.vector

if TYPE_CHECKING:
    from pathlib import Path

VECTORS: list[tuple[Any, dict[str, Any]]] = [
    ({"x": [1, 2], "y": [3, 4]}, {}),
    ({1: np.array([1.0, 2]), 2: np.array([3.0, 4])}, {"names": ["i", "v"]}),
    ([[1, 2], [3, 4]], {"names": "q"}),
    ([np.ones(2), np.zeros(2)], {"names": ["q"], "ndim": 2}),
    (np.ones((2, 3), np.float32), {}),
]
REFUSED: list[tuple[Any, dict[str, Any]]] = [
    ({"x": [1, 2]}, {"names": "v"}),
    ({"x": [1, 2]}, {"names": ["a", "b", "c"]}),
    ([[1, 2]], {"names": ["q", "r"]}),
    ([[1, 2], [3]], {}),
    ([[1, 2], [3]], {"check_ndim": False}),
    ([[1, 2], [3, 4]], {"ndim": 3}),
    ([[1, 2], [3, 4]], {"ndim": 3, "check_ndim": False}),
    ([["a", "b"]], {}),
    ("x", {}),
    (pa.table({"a": [1]}), {}),
]


@pytest.mark.parametrize(("data", "options"), VECTORS)
def test_tables_of_vectors(data: Any, options: dict[str, Any]) -> None:
    found = lance_io.vector.vec_to_table(data, **options)
    assert (
        found.equals(lance.vector.vec_to_table(data, **options)) and found.schema.types[-1].value_type == pa.float32()
    )


@pytest.mark.parametrize(("data", "options"), REFUSED)
def test_what_is_no_vector(data: Any, options: dict[str, Any]) -> None:
    with pytest.raises((ValueError, NotImplementedError)) as theirs:
        lance.vector.vec_to_table(data, **options)
    with pytest.raises(type(theirs.value)) as ours:
        lance_io.vector.vec_to_table(data, **options)
    assert str(ours.value)[:24] == str(theirs.value)[:24]


def test_no_vectors() -> None:
    for data in ([], {}):
        with pytest.raises(ValueError, match="at least one vector"):
            lance_io.vector.vec_to_table(data)


def test_files_that_tell_of_a_write(tmp_path: Path) -> None:
    seen: dict[str, list[Any]] = {}
    for library in (lance_io, lance):
        place = tmp_path / library.__name__

        class Spied(library.progress.FileSystemFragmentWriteProgress):  # type: ignore[name-defined]
            def __init__(self, place: Path, notes: list[Any]) -> None:
                super().__init__(str(place), {"k": "v"})
                self.place, self.notes = place, notes

            def begin(self, fragment: Any, **options: Any) -> None:
                super().begin(fragment, **options)
                self.note()

            def complete(self, fragment: Any, **options: Any) -> None:
                super().complete(fragment, **options)
                self.note()

            def note(self) -> None:
                files = {path.name: json.loads(path.read_text()) for path in self.place.iterdir()}
                self.notes.append(
                    {name: content if "progress" in name else content["id"] for name, content in files.items()}
                )

        notes = seen.setdefault(library.__name__, [])
        place.mkdir()
        table = library.write_dataset(pa.table({"a": range(10)}), str(place) + ".t", progress=Spied(place, notes))
        assert library is lance or json.loads((place / "fragment_0.json").read_text())["physical_rows"] == 10
        assert table.count_rows() == 10
    assert (
        seen["lance_io"][0]
        == seen["lance"][0]
        == {
            "fragment_0.in_progress": {"fragment_id": 0, "metadata": {"k": "v"}},
            "fragment_0.json": 0,
        }
    )
    assert seen["lance_io"][-1] == {"fragment_0.json": 0}
