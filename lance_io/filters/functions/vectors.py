"""Vector functions of text filters: lists of numbers as vectors, computed in 64-bit floats.

Items are added one by one in order, so that results are the same to the last bit on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lance_io.filters.elementwise import broadcast
from lance_io.filters.functions.function_registry import SqlFunctions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.filters.elementwise import Value

Flags: TypeAlias = npt.NDArray[np.bool_]
Floats: TypeAlias = npt.NDArray[np.float64]
Rows: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _Vectors:
    """A column of vectors.

    lengths, starts  of each row's items in `items`
    is_there         whether the row is not null
    is_whole         whether neither the row nor any of its items is null
    """

    lengths: Rows
    starts: Rows
    items: Floats
    is_there: Flags
    is_whole: Flags

    @classmethod
    def of(cls, lists: pa.Array) -> _Vectors:
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
        items = pc.list_flatten(lists)
        is_there = lists.is_valid().to_numpy(zero_copy_only=False)
        is_whole = is_there.copy()
        if items.null_count:
            is_whole[pc.list_parent_indices(lists).filter(items.is_null()).to_numpy()] = False
        return cls(lengths, np.cumsum(lengths) - lengths, items.to_numpy(zero_copy_only=False), is_there, is_whole)

    def matrix(self, rows: Rows, width: int) -> Floats:
        """The items of rows that have `width` each."""
        if len(self.items) == len(rows) * width:  # all rows: their items are contiguous
            return self.items.reshape(len(rows), width)
        matrix: Floats = self.items[self.starts[rows][:, None] + np.arange(width)]
        return matrix


def _by_width(vectors: _Vectors) -> Iterator[tuple[Rows, int]]:
    """The rows without nulls, grouped by length."""
    rows = np.flatnonzero(vectors.is_whole)
    for width in np.unique(vectors.lengths[rows]):
        yield rows[vectors.lengths[rows] == width], int(width)


def _total(terms: Floats, start: float = 0.0) -> Floats:
    """The sum of each row, from left to right."""
    totals = np.full(len(terms), start)
    for column in terms.T:
        totals += column
    return totals


def _pairs(left: Value, right: Value, name: str, *, nulls_first: bool) -> tuple[_Vectors, _Vectors]:
    """Two columns of vectors with equal lengths in each row. `is_whole` of the first is that of both.

    nulls_first  vectors with nulls may differ in length
    """
    first, second = (_Vectors.of(lists) for lists in broadcast(left, right))
    is_whole = first.is_whole & second.is_whole
    differs = (first.lengths != second.lengths) & (is_whole if nulls_first else first.is_there & second.is_there)
    if differs.any():
        row = int(np.flatnonzero(differs)[0])
        raise pa.ArrowInvalid(
            f"{name} requires both lists to have the same length, got {first.lengths[row]} and {second.lengths[row]}"
        )
    first.is_whole[:] = is_whole
    return first, second


def distance(left: Value, right: Value) -> pa.Array:
    """Euclidean distance, f64; null for vectors with nulls. Raises pa.ArrowInvalid for vectors of two lengths."""
    first, second = _pairs(left, right, "array_distance", nulls_first=True)
    distances = np.zeros(len(first.lengths))
    for rows, width in _by_width(first):
        distances[rows] = np.sqrt(_total((first.matrix(rows, width) - second.matrix(rows, width)) ** 2, -0.0))
    return pa.array(distances, mask=~first.is_whole)


def inner_product(left: Value, right: Value) -> pa.Array:
    """The sum of the products, f64; null for vectors with nulls. Raises pa.ArrowInvalid for two lengths."""
    first, second = _pairs(left, right, "inner_product", nulls_first=False)
    products = np.zeros(len(first.lengths))
    for rows, width in _by_width(first):
        products[rows] = _total(first.matrix(rows, width) * second.matrix(rows, width))
    return pa.array(products, mask=~first.is_whole)


def cosine_distance(left: Value, right: Value) -> pa.Array:
    """1 - cosine of the angle, f64; null for vectors of length 0 or with nulls. Raises as `inner_product`."""
    first, second = _pairs(left, right, "cosine_distance", nulls_first=False)
    distances, is_known = np.zeros(len(first.lengths)), first.is_whole
    for rows, width in _by_width(first):
        ours, theirs = first.matrix(rows, width), second.matrix(rows, width)
        norms = np.sqrt(_total(ours**2)) * np.sqrt(_total(theirs**2))
        is_known[rows] = norms != 0
        distances[rows] = 1 - np.divide(_total(ours * theirs), norms, where=norms != 0, out=np.zeros(len(rows)))
    return pa.array(distances, mask=~is_known)


def normalize(lists: Value) -> pa.Array:
    """Vectors scaled to length 1; null for vectors of length 0 and with nulls."""

    (column,) = broadcast(lists)
    vectors = _Vectors.of(column)
    items, is_known = vectors.items.copy(), vectors.is_whole
    for rows, width in _by_width(vectors):
        matrix = vectors.matrix(rows, width)
        norms = np.sqrt(_total(matrix**2))
        is_known[rows] = (norms != 0) | (width == 0)
        scaled = np.divide(matrix, norms[:, None], where=norms[:, None] != 0, out=np.zeros_like(matrix))
        if scaled.size == items.size:  # as in `matrix`
            items = scaled.reshape(-1)
        else:
            items[vectors.starts[rows][:, None] + np.arange(width)] = scaled
    ends = np.concatenate([[0], np.cumsum(vectors.lengths)])
    kind = pa.LargeListArray if pa.types.is_large_list(column.type) else pa.ListArray
    offsets = ends if kind is pa.LargeListArray else ends.astype(np.int32)
    return kind.from_arrays(pa.array(offsets), pa.array(items), mask=None if is_known.all() else pa.array(~is_known))


FUNCTIONS = SqlFunctions()
FUNCTIONS.define("array_distance list_distance", "vector vector", distance)
FUNCTIONS.define("inner_product dot_product", "vector vector", inner_product)
FUNCTIONS.define("cosine_distance", "vector vector", cosine_distance)
FUNCTIONS.define("array_normalize list_normalize", "vector", normalize)
