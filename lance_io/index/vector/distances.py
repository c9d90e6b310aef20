"""How far vectors are from a query: exact distances, and bounds of many at once.

    l2       sum of (x - q)^2                      not its root
    cosine   1 - x.q / (|x| |q|)                   NaN where either is all zeros
    dot      1 - x.q
    hamming  bits in which the bytes differ

A matrix product is several times as fast as the difference of each pair, and less exact: what it loses when large terms
cancel depends on their size. So it gives an interval in which the distance lies, for whatever order it sums in, and the
distances of the few rows that matter are computed directly, in float64. These do not depend on where a row lies, and
equal vectors have equal distances.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io.limits import MIB
from lance_io.records import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt

    FloatArray = npt.NDArray[np.floating[Any]]
    Distances = npt.NDArray[np.float32]

EXACT_BYTES: Final = MIB  # of float64 at once: what the caches of a processor hold
_SLACK: Final = 8  # roundings beside those of a sum
_FLOAT32: Final = np.finfo(np.float32)
_FLOAT32_ROUNDING: Final = 1.2e-7  # what a distance loses when it becomes a float32


class Metric(StrEnum):
    """A way to measure distance, by its name."""

    L2 = "l2"
    COSINE = "cosine"
    DOT = "dot"
    HAMMING = "hamming"


def exact(metric: Metric, vectors: npt.NDArray[Any], query: npt.NDArray[Any]) -> Distances:
    """The distance of each vector [n, dim] from a query [dim]; NaN where there is none."""
    if metric is Metric.HAMMING:
        bits: Distances = np.bitwise_count(vectors ^ query).sum(axis=1, dtype=np.uint64).astype(np.float32)
        return bits
    wide = query.astype(np.float64)
    step = max(1, EXACT_BYTES // (8 * max(1, len(query))))
    parts = [vectors[start : start + step].astype(np.float64) for start in range(0, len(vectors), step)]
    found = [_exact_part(metric, part, wide) for part in parts]
    with np.errstate(all="ignore"):
        return np.concatenate(found or [np.empty(0)]).astype(np.float32)


def _exact_part(metric: Metric, vectors: npt.NDArray[np.float64], query: npt.NDArray[np.float64]) -> FloatArray:
    # sums along rows of a matrix in C order add up in an order that depends on the dimension alone; BLAS's does not
    with np.errstate(all="ignore"):
        if metric is Metric.L2:
            vectors -= query
            vectors *= vectors
            squared: FloatArray = vectors.sum(axis=1)
            return squared
        if metric is Metric.DOT:
            vectors *= query
            dots: FloatArray = 1.0 - vectors.sum(axis=1)
            return dots
        products = (vectors * query).sum(axis=1)
        vectors *= vectors
        sizes = np.sqrt(vectors.sum(axis=1)) * np.sqrt((query * query).sum())
        cosines: FloatArray = 1.0 - products / sizes
        return cosines


@dataclass(frozen=True, slots=True, eq=False)
class Queries:
    """Vectors to measure from, as products take them.

    matrix   [m, dim], float32 or float64 as the vectors that are measured
    squares  [m, 1], the square of the length of each
    """

    matrix: FloatArray
    squares: FloatArray

    @classmethod
    def of(cls, vectors: npt.NDArray[Any], dtype: npt.DTypeLike) -> Queries:
        """Queries [m, dim] for vectors of a type."""
        with np.errstate(all="ignore"):
            matrix = np.ascontiguousarray(vectors, dtype)
            return cls(matrix, _squares(matrix)[:, None])


def _squares(vectors: FloatArray) -> FloatArray:
    """Squares of lengths; NaN where products, or distances as float32, could overflow."""
    found: FloatArray = np.einsum("ij,ij->i", vectors, vectors)
    found[~(found < _FLOAT32.max / 64)] = np.nan
    return found


def bounds(
    metric: Metric, vectors: FloatArray, queries: Queries, *, has_high: bool
) -> tuple[FloatArray, FloatArray | None]:
    """Numbers that the exact distances are not below, and some that they are not above, [m, n] each.

    NaN where it cannot say.
    vectors   [n, dim], of the type of the queries
    has_high  whether the others are wanted, too
    """
    with np.errstate(all="ignore"):
        kind = np.finfo(vectors.dtype)
        dim = queries.matrix.shape[1]
        # twice the bound of any order of summing; below the least normal number nothing is relative any more
        relative = (dim + _SLACK) * float(kind.eps) + 2 * _FLOAT32_ROUNDING
        absolute = (dim + _SLACK) * float(_FLOAT32.tiny)
        low = np.empty((len(queries.matrix), len(vectors)), vectors.dtype)
        for query, products in zip(queries.matrix, low, strict=True):
            # one product with a matrix would be a little faster, but that BLAS gives to threads of its own
            np.dot(vectors, query, out=products)
        squares = _squares(vectors)
        if metric is Metric.L2:
            slack = 2 * relative
            low *= -2
            low += (1 - slack) * squares
            low += (1 - slack) * queries.squares - absolute
            high = low + 2 * slack * (squares + queries.squares) + 2 * absolute if has_high else None
        elif metric is Metric.DOT:
            sizes = np.sqrt(queries.squares) * np.sqrt(squares)
            np.subtract(1 - relative - absolute, low, out=low)
            low -= relative * sizes
            high = low + 2 * relative * (sizes + 1) + 2 * absolute if has_high else None
        else:
            low *= -_inverse_lengths(squares)
            low *= _inverse_lengths(queries.squares)
            low += 1 - 4 * relative
            high = low + 8 * relative if has_high else None
        return low, high


def _inverse_lengths(squares: FloatArray) -> FloatArray:
    """One over the lengths; NaN where they are so small that products lose digits."""
    found: FloatArray = 1 / np.sqrt(squares)
    found[~(squares > float(np.finfo(squares.dtype).tiny) * 1e8)] = np.nan
    return found
