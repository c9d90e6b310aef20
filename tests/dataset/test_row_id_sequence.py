"""Sequences of row ids as values: what pylance makes of the same, its bytes, and what it refuses."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import lance
import lance.fragment
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import FormatError, UnsupportedError
from lance_io.fragment import RowIdMeta, RowIdSequence

if TYPE_CHECKING:
    from pathlib import Path

GIVEN: list[Any] = [
    [],
    [7],
    [5, 1, 3],
    range(11),
    [1, 2, 9, 10, 2**40],
    [2**64 - 1, 0],
    pa.array([3, 1], pa.int8()),
    pa.chunked_array([[1], [2]]),
]
REFUSED: list[Any] = [
    [1, 2, 1],
    [-1],
    [2**64],
    ["x"],
    [1, None],
    5,
    None,
    pa.array([1, None]),
    pa.array([1.0]),
    pa.array([1, -2]),
]


@pytest.mark.parametrize("given", GIVEN, ids=str)
def test_as_in_pylance(given: Any) -> None:
    ours, theirs = RowIdSequence(given), lance.fragment.RowIdSequence(given)
    assert repr(ours) == repr(theirs)
    assert list(ours) == list(theirs)
    assert len(ours) == len(theirs)
    assert ours.to_pyarrow().equals(theirs.to_pyarrow())
    there = lance.fragment.RowIdMeta.from_json(ours.to_inline_metadata().json())
    assert list(lance.fragment.RowIdSequence.from_inline_metadata(there)) == list(theirs)
    here = RowIdMeta.from_json(theirs.to_inline_metadata().json())
    assert RowIdSequence.from_inline_metadata(here) == ours == pickle.loads(pickle.dumps(ours))
    assert ours != RowIdSequence([4])
    assert ours != list(ours)


@pytest.mark.parametrize("given", REFUSED, ids=str)
def test_what_pylance_refuses_is_refused(given: Any) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)) as refused:
        lance.fragment.RowIdSequence(given)
    with pytest.raises(refused.type) as found:
        RowIdSequence(given)
    words = str(refused.value).removeprefix("Invalid user input: ")[:20]
    assert str(found.value).startswith(words)


def test_the_ids_of_a_table(tmp_path: Path) -> None:
    for number in range(2):
        mode = "append" if number else "create"
        lance.write_dataset(pa.table({"a": range(5)}), tmp_path, mode=mode, enable_stable_row_ids=True)
    metadata = lance_io.dataset(tmp_path).get_fragments()[1].metadata
    assert metadata.row_id_meta is not None
    assert list(RowIdSequence.from_inline_metadata(metadata.row_id_meta)) == [5, 6, 7, 8, 9]


def test_metadata_without_a_sequence() -> None:
    with pytest.raises(UnsupportedError, match="outside the manifest"):
        RowIdSequence.from_inline_metadata(RowIdMeta(None))
    with pytest.raises(FormatError):
        RowIdSequence.from_inline_metadata(RowIdMeta(b"\x01\xff"))
    endless = bytes.fromhex("0a0d0a0b08001080808080808080807f")
    with pytest.raises(FormatError):
        RowIdSequence.from_inline_metadata(RowIdMeta(endless))
    with pytest.raises(TypeError):
        RowIdSequence.from_inline_metadata(5)
