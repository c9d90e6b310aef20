"""Statistics of a page's values for the choice of a codec, each from one kernel pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lance_io import _kernels
from lance_io.codecs.tree import LANE_BITS, FixedShape, VariableShape
from lance_io.records import dataclass

if TYPE_CHECKING:
    from lance_io.encodings.leafvalues import LeafValues

ENTROPY_VALUES: Final = 64  # this sample distinguishes mantissas from exponents


@dataclass(frozen=True, slots=True)
class WordStatistics:
    """Values that are machine words of 8, 16, 32 or 64 bits.

    num_runs      entries of run-length encoding: runs of equal values, none longer than 255 or over 4096 values
    packed_bytes  of bit packing: groups of 1024, each with the width of its widest value
    is_constant   all values are the same
    """

    bits: int
    num_values: int
    num_runs: int
    packed_bytes: int
    is_constant: bool

    @property
    def plain_bytes(self) -> int:
        """Bytes of the values without encoding."""
        return self.num_values * self.bits // 8

    @property
    def run_bytes(self) -> int:
        """Bytes of run-length encoding: a value and a length per entry."""
        return self.num_runs * (self.bits // 8 + 1)


def word_statistics(values: LeafValues) -> WordStatistics | None:
    """The statistics of fixed-width values; None when these are not machine words."""
    if not isinstance(values.shape, FixedShape) or values.shape.bits not in LANE_BITS:
        return None
    bits = values.shape.bits
    return WordStatistics(bits, values.num_values, *_kernels.measure_words(values.data, bits, values.num_values))


def count_runs(values: LeafValues) -> int:
    """Number of runs of equal machine words of any length."""
    assert isinstance(values.shape, FixedShape), "runs are those of fixed-width values"
    words = np.frombuffer(values.data, dtype=f"<u{values.shape.bits // 8}", count=values.num_values)
    return int(np.count_nonzero(words[1:] != words[:-1])) + bool(len(words))


def byte_entropy(values: LeafValues) -> float:
    """Mean entropy of the bytes at each position of the first values, in bits (0 to 8)."""
    assert isinstance(values.shape, FixedShape), "positions are those of fixed-width values"
    width = values.shape.bits // 8
    sample = np.frombuffer(values.data, dtype=np.uint8, count=min(values.num_values, ENTROPY_VALUES) * width)
    entropies = []
    for position in range(width):
        counts = np.bincount(sample[position::width], minlength=1)
        shares = counts[counts > 0] / max(counts.sum(), 1)
        entropies.append(float(-(shares * np.log2(shares)).sum()))
    return sum(entropies) / width


def longest_value(values: LeafValues) -> int:
    """Bytes of the longest variable-width value."""
    assert isinstance(values.shape, VariableShape), "fixed-width values have a width"
    offsets = np.frombuffer(values.sources[0][0], dtype=f"<i{values.shape.offset_bits // 8}")
    return int((offsets[1:] - offsets[:-1]).max(initial=0))
