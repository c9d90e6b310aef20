"""Vector functions of text filters: lists of numbers as points, computed in 64-bit floats.

Items are added one by one in their order, so that results are the same to the last bit wherever they are computed.
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

    lengths, starts  of each row's items among `items`
    is_whole         neither the row nor one of its items is null
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
        if len(self.items) == len(rows) * width:  # those of all rows, one behind another
            return self.items.reshape(len(rows), width)
        found: Floats = self.items[self.starts[rows][:, None] + np.arange(width)]
        return found


def _by_width(vectors: _Vectors) -> Iterator[tuple[Rows, int]]:
    """The rows without nulls, those of one length together."""
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
    """Two columns of vectors, each row's of one length; both are null where either is.

    nulls_first  vectors with nulls may differ in length
    """
    one, other = (_Vectors.of(lists) for lists in broadcast(left, right))
    is_whole = one.is_whole & other.is_whole
    differs = (one.lengths != other.lengths) & (is_whole if nulls_first else one.is_there & other.is_there)
    if differs.any():
        row = int(np.flatnonzero(differs)[0])
        raise pa.ArrowInvalid(
            f"{name} requires both lists to have the same length, got {one.lengths[row]} and {other.lengths[row]}"
        )
    one.is_whole[:] = is_whole
    return one, other


def distance(left: Value, right: Value) -> pa.Array:
    """Euclidean distance, f64; null for vectors with nulls. Raises pa.ArrowInvalid for vectors of two lengths."""
    one, other = _pairs(left, right, "array_distance", nulls_first=True)
    found = np.zeros(len(one.lengths))
    for rows, width in _by_width(one):
        found[rows] = np.sqrt(_total((one.matrix(rows, width) - other.matrix(rows, width)) ** 2, -0.0))
    return pa.array(found, mask=~one.is_whole)


def inner_product(left: Value, right: Value) -> pa.Array:
    """The sum of the products, f64; null for vectors with nulls. Raises pa.ArrowInvalid for two lengths."""
    one, other = _pairs(left, right, "inner_product", nulls_first=False)
    found = np.zeros(len(one.lengths))
    for rows, width in _by_width(one):
        found[rows] = _total(one.matrix(rows, width) * other.matrix(rows, width))
    return pa.array(found, mask=~one.is_whole)


def cosine_distance(left: Value, right: Value) -> pa.Array:
    """1 - cosine of the angle, f64; null beside a vector of length 0 or with nulls. Raises pa.ArrowInvalid as above."""
    one, other = _pairs(left, right, "cosine_distance", nulls_first=False)
    found, is_known = np.zeros(len(one.lengths)), one.is_whole
    for rows, width in _by_width(one):
        ours, theirs = one.matrix(rows, width), other.matrix(rows, width)
        norms = np.sqrt(_total(ours**2)) * np.sqrt(_total(theirs**2))
        is_known[rows] = norms != 0
        found[rows] = 1 - np.divide(_total(ours * theirs), norms, where=norms != 0, out=np.zeros(len(rows)))
    return pa.array(found, mask=~is_known)


def normalize(lists: Value) -> pa.Array:
    """Vectors of length 1 that point the same way; null for vectors of length 0 and with nulls."""
    (column,) = broadcast(lists)
    vectors = _Vectors.of(column)
    items, is_known = vectors.items.copy(), vectors.is_whole
    for rows, width in _by_width(vectors):
        found = vectors.matrix(rows, width)
        norms = np.sqrt(_total(found**2))
        is_known[rows] = (norms != 0) | (width == 0)
        scaled = np.divide(found, norms[:, None], where=norms[:, None] != 0, out=np.zeros_like(found))
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
