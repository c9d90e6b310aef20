"""Items of lists and maps, held against what pyarrow's own `flatten` and values say."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_io.levels.lists import items_of, validity, visible_items, with_items, with_offsets
from tests.levels.arrays import without_offsets

ITEM = pa.field("element", pa.int16())
TYPES = [pa.list_(ITEM), pa.large_list(ITEM), pa.map_(pa.int8(), pa.int16())]
ROWS = st.lists(st.none() | st.lists(st.integers(0, 99), max_size=4), max_size=30)


def array_of(dtype: pa.DataType, rows: list[list[int] | None]) -> pa.Array:
    """Rows of a type, those that are null with two hidden items each."""
    is_map = pa.types.is_map(dtype)
    shown: list[Any] = [[1, 2] if row is None else row for row in rows]
    full = pa.array([[(one % 7, one) for one in row] for row in shown] if is_map else shown, dtype)
    bits = pa.array([row is not None for row in rows], pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(
        dtype, len(rows), [bits, full.buffers()[1]], -1, children=[full.values]
    )  # as others may hand them over


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@given(rows=ROWS, start=st.integers(0, 8), stop=st.integers(0, 30))
def test_rows_are_taken_apart_and_put_together(
    dtype: pa.DataType, rows: list[list[int] | None], start: int, stop: int
) -> None:
    array = array_of(dtype, rows)[start:stop]
    items, offsets = visible_items(array)
    expected = [item for row in array.to_pylist() if row is not None for item in row]
    found = items.to_pylist()
    assert [(one["key"], one["value"]) for one in found] == expected if pa.types.is_map(dtype) else found == expected
    assert np.diff(offsets).tolist() == [len(row or ()) for row in array.to_pylist()]
    again = with_items(array, offsets, items)
    again.validate(full=True)
    assert again.type == dtype
    assert again.equals(array)
    all_items, all_offsets = items_of(array)
    assert np.diff(all_offsets).tolist() == [2 if row is None else len(row) for row in rows[start:stop]]
    assert len(all_items) == all_offsets[-1]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_an_array_without_rows_may_have_no_offsets(dtype: pa.DataType) -> None:
    """Arrow's Java library sends it so up to version 18; behind the empty buffer lies a negative number."""
    full = array_of(dtype, [[1], [2]])
    array = pa.Array.from_buffers(dtype, 0, [None, pa.allocate_buffer(0)], 0, children=[full.values])
    for take_apart in (items_of, visible_items):
        items, offsets = take_apart(array)
        assert (items.to_pylist(), offsets.tolist()) == ([], [0])
        assert items.type == full.values.type


NO_OFFSETS: Final = [pa.allocate_buffer(0), None]  # as they arrive by IPC, and by the C interface
TEXTS: Final = pa.list_(pa.string())
NESTED: Final = [
    *(TEXTS, pa.large_list(TEXTS), pa.map_(pa.string(), TEXTS), pa.list_(pa.map_(pa.string(), TEXTS))),
    *(pa.struct([("a", TEXTS), ("b", pa.large_list(pa.map_(pa.int8(), TEXTS)))]), pa.list_(pa.list_(TEXTS, 2))),
    pa.opaque(pa.list_(TEXTS), "texts", "tests"),
]


@pytest.mark.parametrize("buffer", NO_OFFSETS, ids=["empty", "none"])
@pytest.mark.parametrize("dtype", NESTED, ids=str)
@pytest.mark.parametrize("rows", [0, 2])
def test_batches_of_others_get_offsets(dtype: pa.DataType, rows: int, buffer: pa.Buffer | None) -> None:
    """Without them `nbytes` of pyarrow ends the process."""
    full = pa.nulls(rows, dtype)
    batch = pa.record_batch({"n": pa.nulls(rows, pa.int8()), "c": without_offsets(full, buffer)})
    (_, array) = with_offsets(batch).columns
    array.validate(full=True)
    assert array.nbytes <= full.nbytes
    assert array.equals(full)
    assert array.type == dtype
    assert with_offsets(with_offsets(batch)).column(1).nbytes == array.nbytes


def test_batches_with_offsets_stay_the_same() -> None:
    batch = pa.record_batch({"l": [["a"], None], "n": [1, 2], "m": pa.array([[], None], pa.map_(pa.int8(), TEXTS))})
    assert with_offsets(batch) is batch
    assert with_offsets(batch[:0]).equals(batch[:0])


def test_vectors_of_vectors_below_null_rows_are_left_out() -> None:
    squares = [[[i, i + 1], [i + 2, i + 3]] for i in range(8)]
    items = pa.array(squares, pa.list_(pa.list_(pa.int16(), 2), 2))
    mask = pa.array([False, False, True, False])
    array = pa.ListArray.from_arrays(pa.array([0, 2, 4, 6, 8], pa.int32()), items, mask=mask)
    assert visible_items(array[1:])[0].to_pylist() == [*squares[2:4], *squares[6:]]


@pytest.mark.parametrize("dtype", TYPES[:2], ids=str)
def test_items_of_another_type_keep_the_name_of_the_field(dtype: pa.DataType) -> None:
    array = array_of(dtype, [[1], None, [2, 3]])
    items, offsets = visible_items(array)
    texts = with_items(array, offsets, items.cast(pa.string()))
    assert texts.type.value_field == pa.field("element", pa.string())
    assert texts.to_pylist() == [["1"], None, ["2", "3"]]


def test_the_bitmap_of_a_slice_begins_at_its_first_row() -> None:
    array = pa.array([1, None, 3, None, 5, 6, 7, 8, None, 10])
    assert validity(array.slice(4, 4)) is None
    for start in range(len(array)):
        part = array.slice(start)
        bits = validity(part)
        rebuilt = pa.Array.from_buffers(pa.int64(), len(part), [bits, pa.py_buffer(np.arange(len(part)))])
        assert rebuilt.is_valid().equals(part.is_valid())
