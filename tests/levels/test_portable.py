"""Rows selected from slices of nested arrays are those that Python selects from their values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import lance.arrow
import pyarrow as pa
import pytest

from lance_io.levels.portable import compact, compact_batch, kept, taken

if TYPE_CHECKING:
    from collections.abc import Callable

PAIR: Final = pa.list_(pa.float32(), 2)
SQUARE: Final = pa.list_(PAIR, 2)
NUM_ROWS: Final = 24


def _square(i: int) -> list[list[float]]:
    return [[i, i + 0.5], [i + 100, i + 100.5]]


BASES: Final[dict[str, tuple[pa.DataType, Callable[[int], Any]]]] = {
    "number": (pa.int32(), lambda i: i),
    "text": (pa.string(), str),
    "pair": (PAIR, lambda i: [i, i + 0.5] if i % 5 else None),
    "square": (SQUARE, _square),
    "square or null": (SQUARE, lambda i: _square(i) if i % 5 else None),
    "cube": (pa.list_(SQUARE, 2), lambda i: [_square(i), _square(i + 50)]),
    "struct": (pa.struct([("s", SQUARE), ("k", pa.int8())]), lambda i: {"s": _square(i), "k": i}),
    "list": (pa.list_(SQUARE), lambda i: [_square(i)] * (i % 3)),
    "large list of structs": (pa.large_list(pa.struct([("s", SQUARE)])), lambda i: [{"s": _square(i)}] * (i % 3)),
    "map": (pa.map_(pa.string(), SQUARE), lambda i: [("a", _square(i))]),
    "vector of structs": (pa.list_(pa.struct([("s", SQUARE)]), 2), lambda i: [{"s": _square(i)}, None]),
}


def _list(items: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(range(0, len(items), 2), pa.int32()), items)


def _map(items: pa.Array) -> pa.Array:
    keys = pa.array([str(i) for i in range(len(items))])
    return pa.MapArray.from_arrays(pa.array(range(len(items) + 1), pa.int32()), keys, items)


WRAPS: Final[dict[str, Callable[[pa.Array], pa.Array]]] = {
    "whole": lambda array: array,
    "slice": lambda array: array[5:],
    "list of a slice": lambda array: _list(array[5:]),
    "slice of a list": lambda array: _list(array)[3:],
    "struct of a slice": lambda array: pa.StructArray.from_arrays([array[5:]], ["x"]),
    "slice of a struct": lambda array: pa.StructArray.from_arrays([array], ["x"])[5:],
    "list of structs of a slice": lambda array: _list(pa.StructArray.from_arrays([array[5:]], ["x"])),
    "struct of a list of a slice": lambda array: pa.StructArray.from_arrays([_list(array[5:])], ["x"]),
    "vector of a slice": lambda array: pa.FixedSizeListArray.from_arrays(array[4:], 2),
    "items of a list of a slice": lambda array: _list(array[5:])[2:].flatten(),
    "map of a slice": lambda array: _map(array[5:]),
}


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("base", BASES)
def test_rows_of_slices_are_selected(base: str, wrap: str) -> None:
    dtype, value = BASES[base]
    array = WRAPS[wrap](pa.array([value(i) for i in range(NUM_ROWS)], dtype))
    rows = array.to_pylist()
    places = [len(rows) - 1, None, 0, 2, 2]
    expected = [None if at is None else rows[at] for at in places]
    assert taken(array, pa.array(places)).to_pylist() == expected
    mask = pa.array([i % 3 == 1 for i in range(len(rows))])
    assert kept(array, mask).to_pylist() == rows[1::3]
    batch = pa.record_batch({"id": pa.array(range(len(rows))), "x": array})
    assert compact_batch(batch).filter(mask)["x"].to_pylist() == rows[1::3]
    assert compact_batch(batch).schema == batch.schema


def test_extensions_are_looked_into() -> None:
    class Matrix(pa.ExtensionType):
        def __init__(self) -> None:
            super().__init__(SQUARE, "test.matrix")

        def __arrow_ext_serialize__(self) -> bytes:
            return b""

        @classmethod
        def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Matrix:
            return cls()

    squares = [_square(i) for i in range(NUM_ROWS)]
    array = pa.ExtensionArray.from_storage(Matrix(), pa.array(squares, SQUARE))
    assert taken(array[5:], pa.array([3, 0])).to_pylist() == [squares[8], squares[5]]
    assert taken(_list(array[5:]), pa.array([3, 0])).to_pylist() == [squares[11:13], squares[5:7]]


def test_types_without_a_hash_are_no_hindrance() -> None:
    floats = lance.arrow.bfloat16_array([1.0, 2.0, 3.0, 4.0])
    for array in (floats, pa.StructArray.from_arrays([floats], ["x"]), pa.FixedSizeListArray.from_arrays(floats, 1)):
        assert taken(array[2:], pa.array([1])).to_pylist() == array.to_pylist()[3:]


def test_only_what_would_go_wrong_is_copied() -> None:
    for base, (dtype, value) in BASES.items():
        array = pa.array([value(i) for i in range(NUM_ROWS)], dtype)
        assert compact(array) is array
        is_plain = base in ("number", "text", "pair")
        assert (compact(part := array[1:]) is part) == is_plain
        batch = pa.record_batch({"x": array})
        assert compact_batch(batch) is batch
