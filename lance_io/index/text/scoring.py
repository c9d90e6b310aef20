"""BM25 scores (spec: indices, 7.4): in single precision, and in the order of the format's other implementation.

    score(document) = sum over tokens of idf * 2.2 * f / (f + 1.2 * (0.25 + 0.75 * length / average))
    idf             = ln((N - n + 0.5) / (n + 0.5) + 1)

f is how often the document has the token, n the number of documents that have it, N that of all documents, deleted
ones included, and average their mean length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_io.records import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class CorpusStatistics:
    """Number and total length of all documents of a search."""

    num_documents: int
    num_tokens: int

    @property
    def average(self) -> float:
        """Mean length of a document, as a float32."""
        if not self.num_documents or not self.num_tokens:
            return 1.0
        return float(np.float32(self.num_tokens) / np.float32(self.num_documents))

    def factor(self, num_matches: int) -> float:
        """The inverse document frequency of a token in `num_matches` documents, as a float32."""
        unit, half = np.float32(1), np.float32(0.5)
        total, matches = np.float32(max(self.num_documents, num_matches)), np.float32(num_matches)
        return float(np.log((total - matches + half) / (matches + half) + unit))


def weights(
    frequencies: npt.NDArray[np.uint32], lengths: npt.NDArray[np.uint32], average: float
) -> npt.NDArray[np.float32]:
    """Weights of a token in documents, without its factor; kernels compute the same for posting lists."""
    f4 = np.float32
    counts = frequencies.astype(f4)
    norms = f4(1.2) * (f4(0.25) + f4(0.75) * lengths.astype(f4) / f4(average))
    return (f4(2.2) * counts / (counts + norms)).astype(f4, copy=False)
