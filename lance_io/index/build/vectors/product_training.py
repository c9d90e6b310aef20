"""Codebooks of product codes, and codes by them: k-means for each part of the vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lance_io.index.build.vectors.clustering import Clustering, Nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from lance_io.index.vector.distances import FloatArray

LAST_ROUNDS: Final = 14  # with all vectors: errors of codes fall slowly, and each round is cheap
ROWS_MAX: Final = 1 << 16  # of a sample; more change nothing that a search notices


class CodebookTraining:
    """Learns a codebook.

    vectors    [n, dim]: residuals, or vectors for dot
    num_parts  that divides dim
    bits       of a codeword's number
    """

    def __init__(self, vectors: FloatArray, num_parts: int, bits: int, rng: np.random.Generator) -> None:
        self._vectors = vectors
        self._rng = rng
        width = vectors.shape[1] // num_parts
        self.codebook: FloatArray = np.empty((num_parts, 1 << bits, width), vectors.dtype)

    def rounds(self, most: int) -> Iterator[None]:
        """Learn, in many steps."""
        num_parts, num_words, width = self.codebook.shape
        for number in range(num_parts):
            part = np.ascontiguousarray(self._vectors[:, number * width : (number + 1) * width])
            clustering = Clustering(part, num_words, self._rng, last=LAST_ROUNDS)
            for _ in clustering.rounds(most):
                yield
            self.codebook[number] = clustering.centroids


class ProductEncoder:
    """Codes vectors.

    codebook  [parts, codewords, width]
    bits      4 or 8
    """

    def __init__(self, codebook: FloatArray, bits: int) -> None:
        self._nearest = [Nearest(words) for words in codebook]
        self._width = codebook.shape[2]
        self._bits = bits

    def codes(self, vectors: FloatArray) -> npt.NDArray[np.uint8]:
        """The bytes of each vector, [n, parts * bits / 8]; two codes of 4 bits share one, the low half first."""
        codes: npt.NDArray[np.uint8] = np.empty((len(self._nearest), len(vectors)), np.uint8)
        for number, nearest in enumerate(self._nearest):
            part = np.ascontiguousarray(vectors[:, number * self._width : (number + 1) * self._width])
            codes[number] = nearest.of(part)[0]
        if self._bits == 4:
            codes = (codes[0::2] | codes[1::2] << 4).astype(np.uint8)
        return np.ascontiguousarray(codes.T)
