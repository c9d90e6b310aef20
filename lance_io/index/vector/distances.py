"""Distances of vectors from a query: exact distances, and bounds of many at once.

    l2       sum of (x - q)^2                      without the square root
    cosine   1 - x.q / (|x| |q|)                   NaN if either is all zeros
    dot      1 - x.q
    hamming  number of bits in which the bytes differ

A matrix product is several times as fast as the difference of each pair, but less exact: the error when large terms
cancel depends on their size. So it yields an interval that contains the distance, for any order of summation. The
exact distances of the few candidate rows are computed directly, in float64. They do not depend on the position of a
row, and equal vectors have equal distances.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io._kernels import scan_vectors
from lance_io.index.vector.vector_arrays import as_floats
from lance_io.limits import MIB
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_io.spans import IntArray

    FloatArray = npt.NDArray[np.floating[Any]]
    Distances = npt.NDArray[np.float32]

EXACT_BYTES: Final = MIB  # of float64 at once: fits into a processor's cache
_SLACK: Final = 8  # roundings in addition to those of a sum
_FLOAT32: Final = np.finfo(np.float32)
_FLOAT32_ROUNDING: Final = 1.2e-7  # relative error of a conversion to float32


class Metric(StrEnum):
    """A distance metric, by its name."""

    L2 = "l2"
    COSINE = "cosine"
    DOT = "dot"
    HAMMING = "hamming"


def exact(metric: Metric, vectors: npt.NDArray[Any], query: npt.NDArray[Any]) -> Distances:
    """The distance of each vector [n, dim] from a query [dim]; NaN if undefined."""
    if metric is Metric.HAMMING:
        bits: Distances = np.bitwise_count(vectors ^ query).sum(axis=1, dtype=np.uint64).astype(np.float32)
        return bits
    wide = query.astype(np.float64)
    step = max(1, EXACT_BYTES // (8 * max(1, len(query))))
    parts = [vectors[start : start + step].astype(np.float64) for start in range(0, len(vectors), step)]
    distances = [_exact_part(metric, part, wide) for part in parts]
    with np.errstate(all="ignore"):
        return np.concatenate(distances or [np.empty(0)]).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Which rows are compared with which queries. Pieces are read once for all queries that want them.

    triples    i64[n, 3]: a piece, a query, and the first row of their distances; those of a piece together
    num_rows   distances of all pairs
    threads    that may compare them, if there are many and each piece has one query
    """

    triples: IntArray
    num_rows: int
    threads: int = 1

    @classmethod
    def of_one(cls, lengths: Sequence[int]) -> Pairs:
        """All pieces with one query, one after the other. lengths: rows of each piece."""
        triples = np.zeros((len(lengths), 3), np.int64)
        triples[:, 0] = range(len(lengths))
        ends = np.cumsum(lengths)
        triples[1:, 2] = ends[:-1]
        return cls(triples, int(ends[-1]) if len(ends) else 0)


def exact_of_many(metric: Metric, pieces: Sequence[npt.NDArray[Any]], query: npt.NDArray[Any]) -> Distances:
    """`exact` of the vectors of several matrices, one after the other; sums are in another order."""
    return exact_of_pairs(metric, pieces, query[None], Pairs.of_one([len(piece) for piece in pieces]))


def exact_of_pairs(
    metric: Metric, pieces: Sequence[npt.NDArray[Any]], queries: npt.NDArray[Any], pairs: Pairs
) -> Distances:
    """Exact distances of pieces [n, dim] from the queries [m, dim] that want them."""
    out = np.empty(pairs.num_rows, np.float32)
    if metric is Metric.HAMMING:
        for at, number, start in pairs.triples.tolist():
            out[start : start + len(pieces[at])] = exact(metric, pieces[at], queries[number])
        return out
    floats = [np.ascontiguousarray(as_floats(piece)) for piece in pieces]
    wide, dim = np.ascontiguousarray(queries, np.float64), queries.shape[1]
    float_bytes = floats[0].itemsize if floats else 4
    scan_vectors(metric.value, float_bytes, dim, wide, floats, pairs.triples, out, pairs.threads)
    return out


def _exact_part(metric: Metric, vectors: npt.NDArray[np.float64], query: npt.NDArray[np.float64]) -> FloatArray:
    # the order of row sums of a matrix in C order depends on the dimension alone; BLAS's order does not
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
    """Query vectors in the form that matrix products need.

    matrix   [m, dim], float32 or float64 like the vectors that are compared
    squares  [m, 1], the squared length of each
    """

    matrix: FloatArray
    squares: FloatArray

    @classmethod
    def of(cls, vectors: npt.NDArray[Any], dtype: npt.DTypeLike) -> Queries:
        """Queries [m, dim] for vectors of type `dtype`."""
        with np.errstate(all="ignore"):
            matrix = np.ascontiguousarray(vectors, dtype)
            return cls(matrix, _squares(matrix)[:, None])


def _squares(vectors: FloatArray) -> FloatArray:
    """Squared lengths; NaN where products, or distances as float32, could overflow."""
    squares: FloatArray = np.einsum("ij,ij->i", vectors, vectors)
    squares[~(squares < _FLOAT32.max / 64)] = np.nan
    return squares


def bounds(
    metric: Metric, vectors: FloatArray, queries: Queries, *, has_high: bool
) -> tuple[FloatArray, FloatArray | None]:
    """Lower and upper bounds of the exact distances, [m, n] each.

    NaN where there is no bound.
    vectors   [n, dim], of the type of the queries
    has_high  whether to compute upper bounds, too
    """
    with np.errstate(all="ignore"):
        kind = np.finfo(vectors.dtype)
        dim = queries.matrix.shape[1]
        # twice the error bound of any order of summation; below the least normal number, errors are absolute
        relative = (dim + _SLACK) * float(kind.eps) + 2 * _FLOAT32_ROUNDING
        absolute = (dim + _SLACK) * float(_FLOAT32.tiny)
        low = np.empty((len(queries.matrix), len(vectors)), vectors.dtype)
        for query, products in zip(queries.matrix, low, strict=True):
            # a single matrix product would be a little faster, but BLAS would run it on its own threads
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
    """Inverse lengths; NaN for lengths so small that products lose digits."""
    inverse: FloatArray = 1 / np.sqrt(squares)
    inverse[~(squares > float(np.finfo(squares.dtype).tiny) * 1e8)] = np.nan
    return inverse
