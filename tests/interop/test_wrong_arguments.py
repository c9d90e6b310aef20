"""Arguments of a wrong kind are refused by name, with the class of error that pylance has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import lance
import lance.file
import lance.fragment
import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pytest

import lance_io
import lance_io.file
import lance_io.fragment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS: Final = pa.table({"a": [3, 1]})
LIBRARIES: Final = [lance, lance_io]


@pytest.fixture(params=LIBRARIES, ids=["theirs", "ours"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> SimpleNamespace:
    """A library, a table and a file of it."""
    library = request.param
    table = library.write_dataset(ROWS, str(tmp_path / "t.lance"))
    path = str(tmp_path / "one.lance")
    with library.file.LanceFileWriter(path, ROWS.schema) as writer:
        writer.write_batch(ROWS)
        writer.add_global_buffer(b"one")
    return SimpleNamespace(library=library, table=table, uri=str(tmp_path / "t.lance"), path=path, folder=tmp_path)


CALLS: Final[dict[str, Callable[[SimpleNamespace], Any]]] = {
    "options of a table": lambda here: here.library.dataset(here.uri, storage_options="x"),
    "options of new rows": lambda here: here.library.write_dataset(ROWS, here.uri, storage_options="x"),
    "options of fragments": lambda here: here.library.fragment.write_fragments(ROWS, here.uri, storage_options="x"),
    "options of a file": lambda here: here.library.file.LanceFileReader(here.path, storage_options="x"),
    "configuration": lambda here: here.table.update_config("x"),
    "metadata of a field": lambda here: here.table.update_field_metadata({"a": "y"}),
    "number of a buffer": lambda here: here.library.file.LanceFileReader(here.path).read_global_buffer(1.0),
    "no number of a buffer": lambda here: here.library.file.LanceFileReader(here.path).read_global_buffer(None),
    "path in a session": lambda here: here.library.file.LanceFileSession(str(here.folder)).contains(None),
    "updated fragments": lambda here: here.library.LanceOperation.Update([], [1]),
    "no updated fragments": lambda here: here.library.LanceOperation.Update(None, None),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_kind_is_a_type_error(here: SimpleNamespace, call: str) -> None:
    with pytest.raises(TypeError):
        CALLS[call](here)


def test_what_only_ours_calls_a_type_error(tmp_path: Path) -> None:
    """pylance ends in an AttributeError of its own, or only at the commit."""
    table = lance_io.write_dataset(ROWS, tmp_path / "t.lance")
    for age in ("x", 5):
        with pytest.raises(TypeError, match="older_than"):
            table.cleanup_old_versions(age)
    with pytest.raises(TypeError, match="RewriteGroup"):
        lance_io.LanceOperation.Rewrite([1], [])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="DataReplacementGroup"):
        lance_io.LanceOperation.DataReplacement("x")


def test_a_fragment_has_no_schema_of_its_own(here: SimpleNamespace) -> None:
    """pyarrow would go on to a fragment of C++ that is not there, and end the process."""
    with pytest.raises(NotImplementedError):
        _ = here.table.get_fragments()[0].physical_schema
    with pytest.raises(NotImplementedError):
        pads.Scanner.from_fragment(here.table.get_fragments()[0])


@pytest.mark.parametrize(
    "data", [[1, 2], (7,), [], np.arange(3), bytearray(b"xy"), memoryview(b"z")], ids=lambda data: type(data).__name__
)
def test_global_buffers_of_numbers(here: SimpleNamespace, data: Any) -> None:
    with here.library.file.LanceFileWriter(here.path, ROWS.schema) as writer:
        writer.write_batch(ROWS)
        assert writer.add_global_buffer(data) == 1
    found = [bytes(one.file.LanceFileReader(here.path).read_global_buffer(1)) for one in LIBRARIES]
    assert found == [bytes(list(data))] * 2


@pytest.mark.parametrize("data", ["text", 5, None, [1.5]], ids=str)
def test_what_is_no_global_buffer(here: SimpleNamespace, data: Any) -> None:
    with here.library.file.LanceFileWriter(here.path, ROWS.schema) as writer:
        writer.write_batch(ROWS)
        with pytest.raises(TypeError):
            writer.add_global_buffer(data)


def test_a_session_passes_every_argument_on(here: SimpleNamespace) -> None:
    session = here.library.file.LanceFileSession(str(here.folder))
    with session.open_writer("two.lance", schema=ROWS.schema, keep_original_array=True) as writer:
        writer.write_batch(ROWS)
    assert session.open_reader("two.lance").num_rows() == 2
