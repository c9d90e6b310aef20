"""k-means, and the nearest centroid of many vectors: matrix products block by block.

The first rounds see a part of the sample, the last ones all of it. A centroid without vectors moves beside one that has
many, so that these share them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io.index.vector.distances import Metric
from lance_io.limits import MIB
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from lance_io.index.vector.distances import FloatArray
    from lance_io.spans import IntArray

BLOCK_BYTES: Final = MIB  # of distances at once: fits into a processor's cache
FIRST_SHARE: Final = 32  # vectors for each centroid in the first rounds
SECOND_SHARE: Final = 96
_FIRST_ROUNDS: Final = 8
_SECOND_ROUNDS: Final = 4
LAST_ROUNDS: Final = 4  # that see all vectors, see `Clustering`
_TILE_PRODUCTS: Final = 1 << 18  # multiplications of a product that BLAS does in the calling thread
_TILE_ROWS: Final = 32
_TILE_WIDTH_MIN: Final = 16
CHOICE_SHARE: Final = 32  # vectors for each centroid, of which the first centroids are chosen
_CHOICES: Final = 24  # as many times: those of one time do not see each other
_NUDGE: Final = 1 / 1024  # of a centroid, relative
_SETTLED: Final = 1e-4  # relative change of the mean distance that ends the rounds on a part


class Nearest:
    """Finds the nearest of some centroids.

    A matrix product as a whole would run on BLAS's own threads, which wait for each other in a loop: on processors that
    others use, too, it takes ten times the processor time. Products of small tiles stay in the calling thread.

    centroids  [k, dim], float32 or float64
    """

    def __init__(self, centroids: FloatArray) -> None:
        k, dim = centroids.shape
        self._width = min(k, max(_TILE_WIDTH_MIN, _TILE_PRODUCTS // (max(1, dim) * _TILE_ROWS)))
        self._rows = max(1, _TILE_PRODUCTS // (max(1, dim) * self._width))
        num_tiles = -(-k // self._width)
        padded = np.zeros((num_tiles * self._width, dim), centroids.dtype)
        padded[:k] = centroids
        squares = np.full(num_tiles * self._width, np.inf, centroids.dtype)
        squares[:k] = np.einsum("ij,ij->i", centroids, centroids)
        tiles = padded.reshape(num_tiles, self._width, dim).transpose(0, 2, 1)
        self._tiles = np.ascontiguousarray(tiles) * centroids.dtype.type(-2)
        self._squares = squares.reshape(num_tiles, 1, self._width)
        self._step = max(1, BLOCK_BYTES // (centroids.itemsize * len(squares) * self._rows)) * self._rows

    def of(self, vectors: FloatArray) -> tuple[IntArray, FloatArray]:
        """Number of the nearest centroid of each vector [n, dim], and the squared distance, not below 0."""
        numbers = np.empty(len(vectors), np.int64)
        least = np.empty(len(vectors), vectors.dtype)
        whole = len(vectors) - len(vectors) % self._rows
        for start in range(0, whole, self._step):
            end = min(start + self._step, whole)
            self._nearest(vectors[start:end], self._rows, numbers[start:end], least[start:end])
        if whole < len(vectors):
            self._nearest(vectors[whole:], len(vectors) - whole, numbers[whole:], least[whole:])
        least += np.einsum("ij,ij->i", vectors, vectors)
        return numbers, np.maximum(least, 0, out=least)

    def _nearest(self, vectors: FloatArray, num_rows: int, numbers: IntArray, least: FloatArray) -> None:
        """The nearest of each vector, for whole tiles of `num_rows`."""
        products = np.matmul(
            vectors.reshape(-1, 1, num_rows, vectors.shape[1]), self._tiles
        )  # [.., tiles, rows, width]
        products += self._squares
        inside = products.argmin(axis=3)
        lowest = np.take_along_axis(products, inside[..., None], axis=3)[..., 0]
        tile = lowest.argmin(axis=1)[:, None]
        numbers[:] = (np.take_along_axis(inside, tile, axis=1)[:, 0] + tile[:, 0] * self._width).reshape(-1)
        least[:] = np.take_along_axis(lowest, tile, axis=1)[:, 0].reshape(-1)


class Clustering:
    """k-means over a sample.

    vectors  [n, dim], float32 or float64; for hamming bits as -1 and 1
    k        number of centroids, at most n
    is_bits  whether centroids are bits, too
    last     rounds that see all vectors, at most
    """

    def __init__(
        self, vectors: FloatArray, k: int, rng: np.random.Generator, *, is_bits: bool = False, last: int = LAST_ROUNDS
    ) -> None:
        self._last = last
        self._vectors = vectors
        self._rng = rng
        self._is_bits = is_bits
        self.centroids: FloatArray = vectors[:k].copy()
        self.distance = 0.0

    def rounds(self, most: int) -> Iterator[None]:
        """Choose centroids, then improve them, a round at each step. most: number of rounds at most."""
        num_rows, k = len(self._vectors), len(self.centroids)
        if num_rows <= k:
            return
        yield from self._choose()
        plan = [(FIRST_SHARE * k, _FIRST_ROUNDS), (SECOND_SHARE * k, _SECOND_ROUNDS), (num_rows, self._last)]
        for share, count in plan:
            before = np.inf
            for _ in range(min(count, most)):
                most -= 1
                self._round(min(share, num_rows))
                yield
                if np.isfinite(before) and before - self.distance <= _SETTLED * before:
                    break
                before = self.distance

    def _choose(self) -> Iterator[None]:
        """First centroids: vectors far from those chosen before are more likely to be chosen."""
        k = len(self.centroids)
        vectors = self._vectors[: CHOICE_SHARE * k]
        least = np.full(len(vectors), np.inf, vectors.dtype)
        bounds = np.unique(np.linspace(0, k, min(k, _CHOICES) + 1).astype(np.int64)).tolist()
        for start, end in pairwise(bounds):
            chosen = self._draw(least, end - start)
            self.centroids[start:end] = vectors[chosen]
            np.minimum(least, Nearest(self.centroids[start:end]).of(vectors)[1], out=least)
            yield

    def _draw(self, least: FloatArray, count: int) -> IntArray:
        """Rows, each once, with a probability that grows with the squared distance."""
        weights = np.where(np.isfinite(least), least, 1).astype(np.float64)
        chances = self._rng.exponential(size=len(weights))
        with np.errstate(divide="ignore"):
            return np.argpartition(chances / weights, count - 1)[:count]

    def _round(self, num_rows: int) -> None:
        """Move each centroid to the mean of the vectors that are nearest to it."""
        vectors = self._vectors
        if num_rows < len(vectors):
            first = int(self._rng.integers(0, len(vectors) - num_rows + 1))
            vectors = vectors[first : first + num_rows]
        numbers, squares = Nearest(self.centroids).of(vectors)
        self.distance = float(squares.mean(dtype=np.float64))
        sums, counts = sums_by(vectors, numbers, len(self.centroids))
        filled = counts > 0
        self.centroids[filled] = (sums[filled] / counts[filled, None]).astype(vectors.dtype)
        if not filled.all():
            self._split(counts)
        if self._is_bits:
            self.centroids = np.where(self.centroids >= 0, 1, -1).astype(vectors.dtype)

    def _split(self, counts: IntArray) -> None:
        """Move centroids without vectors beside those with many."""
        counts = counts.copy()
        for empty in np.flatnonzero(counts == 0).tolist():
            full = int(counts.argmax())
            if counts[full] < 2:
                return
            nudge = self._rng.choice([-_NUDGE, _NUDGE], self.centroids.shape[1]).astype(self.centroids.dtype)
            self.centroids[empty] = self.centroids[full] * (1 + nudge)
            self.centroids[full] *= 1 - nudge
            counts[empty] = counts[full] // 2
            counts[full] -= counts[empty]


def sums_by(vectors: FloatArray, numbers: IntArray, k: int) -> tuple[FloatArray, IntArray]:
    """The sum of the vectors of each number below k, and how many they are."""
    counts: IntArray = np.bincount(numbers, minlength=k)
    if vectors.shape[1] <= 16:
        columns = [np.bincount(numbers, weights=column, minlength=k) for column in vectors.T]
        return np.stack(columns, axis=1), counts
    order = np.argsort(as_small(numbers, k), kind="stable")
    starts = np.cumsum(counts) - counts
    sums = np.zeros((k, vectors.shape[1]), np.float64)
    filled = np.flatnonzero(counts)
    step = max(1, 4 * BLOCK_BYTES // max(1, vectors.shape[1] * vectors.itemsize))
    for first in range(0, len(order), step):
        part = order[first : first + step]
        begins = np.clip(starts[filled] - first, 0, len(part))
        ends = np.clip(starts[filled] + counts[filled] - first, 0, len(part))
        inside = ends > begins
        sums[filled[inside]] += np.add.reduceat(vectors[part], begins[inside], axis=0)
    return sums, counts


def as_small(numbers: IntArray, k: int) -> npt.NDArray[Any]:
    """Numbers below k in the smallest type, by which sorting is fast."""
    return numbers.astype(np.uint16 if k <= 1 << 16 else np.uint32)


@dataclass(frozen=True, slots=True, eq=False)
class Partitioner:
    """Assigns vectors to the partitions of an index."""

    metric: Metric
    nearest: Nearest

    @classmethod
    def of(cls, metric: Metric, centroids: npt.NDArray[Any]) -> Partitioner:
        """A partitioner. centroids: [k, dim]; bytes for hamming."""
        return cls(metric, Nearest(bits_of(centroids) if metric is Metric.HAMMING else centroids))

    def of_vectors(self, vectors: npt.NDArray[Any]) -> tuple[IntArray, FloatArray]:
        """The partition of each vector, and its squared distance from the centroid (for hamming, the bits)."""
        if self.metric is not Metric.HAMMING:
            return self.nearest.of(vectors)
        numbers: list[IntArray] = [np.empty(0, np.int64)]
        squares: list[FloatArray] = [np.empty(0, np.float32)]
        step = max(1, 4 * BLOCK_BYTES // (32 * max(1, vectors.shape[1])))
        for start in range(0, len(vectors), step):
            near, far = self.nearest.of(bits_of(vectors[start : start + step]))
            numbers.append(near)
            squares.append(far / 4)  # of bits that differ: 1 and -1
        return np.concatenate(numbers), np.concatenate(squares)


def bits_of(vectors: npt.NDArray[np.uint8]) -> FloatArray:
    """Vectors of bytes as their bits, -1 and 1."""
    bits: FloatArray = np.unpackbits(vectors, axis=1).astype(np.float32)
    bits *= 2
    bits -= 1
    return bits


def bytes_of(bits: FloatArray) -> npt.NDArray[np.uint8]:
    """The inverse of `bits_of`."""
    return np.packbits(bits > 0, axis=1)
