"""Codes of rotated vectors, RaBitQ (spec: indices, 7b): a sign for each number, and up to 8 bits of its size.

A row's codes and two factors estimate its distance: an integer product with the rotated query, scaled, plus a term of
the row and one of the centroid. Each partition is stored in blocks of 32 rows, whose codes are interleaved; here it is
kept row by row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io.errors import FormatError, UnsupportedError
from lance_io.index.vector.distances import Metric
from lance_io.index.vector.storage_metadata import whole
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from lance_io.index.vector.distances import Distances, FloatArray

    Bytes = npt.NDArray[np.uint8]

BITS_MAX: Final = 9
_ROUNDS: Final = 4  # of a rotation
_BLOCK: Final = 32  # rows whose codes are interleaved
_GROUP: Final = 64  # numbers whose further bits are interleaved
_BLOCK_ROWS: Final = np.array([0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15])
_LOW_BITS: Final = {1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 6, 7: 6, 8: 8}
"""How many of the further bits are stored together; one more follows by itself."""


@dataclass(frozen=True, slots=True, eq=False)
class RotatedCodes:
    """RaBitQ of a segment.

    dim    numbers of a vector
    bits   of each, its sign included
    signs  [4, dim], 1 or -1: by which each round of the rotation multiplies
    """

    dim: int
    bits: int
    signs: npt.NDArray[np.float32]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the codes, and then of the two factors."""
        if self.bits == 1:
            return ("_rabit_codes", "__add_factors", "__scale_factors")
        return ("_rabit_codes", "__blocked_ex_codes", "__add_factors_ex", "__scale_factors_ex")

    @property
    def widths(self) -> tuple[int, ...]:
        """Bytes of a row in each column of codes."""
        further = _GROUP // 8 * -(-self.dim // _GROUP) * (self.bits - 1)
        return (self.dim // 8,) if self.bits == 1 else (self.dim // 8, further)

    @property
    def row_bytes(self) -> int:
        """Memory of a row, in bytes."""
        return 8 + (self.dim // 8 if self.bits == 1 else self.dim * (1 if self.bits <= 8 else 2))

    def rows_of(self, stored: Sequence[Bytes]) -> npt.NDArray[Any]:
        """The codes of a partition: bits [n, dim / 8] for signs alone, otherwise a number for each [n, dim]."""
        signs = _separate(stored[0])
        if self.bits == 1:
            return signs
        further = self.bits - 1
        whole_numbers = np.unpackbits(signs, axis=1, count=self.dim, bitorder="little")
        wide: npt.NDArray[Any] = whole_numbers.astype(np.uint8 if self.bits <= 8 else np.uint16)
        rest = _further_codes(stored[1], further)[:, : self.dim]
        codes: npt.NDArray[Any] = np.bitwise_or(np.left_shift(wide, further), rest)
        return codes

    def distances(
        self,
        metric: Metric,
        query: FloatArray,
        rotated: FloatArray,
        centroid: FloatArray,
        codes: npt.NDArray[Any],
        factors: FloatArray,
    ) -> Distances:
        """Distances of the rows of a partition from a query.

        query    [dim], of unit length for cosine
        rotated  the same, from `rotate`
        codes    from `rows_of`
        factors  [2, n]: the term of each row, and its scale
        """
        if self.bits == 1:
            codes = np.unpackbits(codes, axis=1, count=self.dim, bitorder="little")
        products = np.dot(codes.astype(np.float32), rotated)
        middle = np.float32(((1 << self.bits) - 1) / 2)
        estimates = (products - middle * rotated.sum(dtype=np.float32)) * factors[1]
        wide_query, wide_centroid = query.astype(np.float64), centroid.astype(np.float64)
        if metric is not Metric.DOT:
            apart = wide_query - wide_centroid
            near: Distances = (estimates + factors[0] + np.float32((apart * apart).sum())).astype(np.float32)
            return near
        product, size = (wide_query * wide_centroid).sum(), (wide_centroid * wide_centroid).sum()
        share = product / size if size else 0.0
        shifts = np.float32(share) * (factors[0] - 1) + np.float32(1 - product)
        dots: Distances = (estimates + shifts).astype(np.float32)
        return dots

    def rotate(self, vector: FloatArray) -> npt.NDArray[np.float32]:
        """A vector [dim] after the rotation, which keeps its length."""
        rotated = vector.astype(np.float32)
        power = 1 << (self.dim.bit_length() - 1)
        half = self.dim // 2
        for number, signs in enumerate(self.signs):
            rotated = rotated * signs
            first = self.dim - power if number % 2 else 0
            rotated[first : first + power] = _hadamard(rotated[first : first + power]) / np.float32(np.sqrt(power))
            if power != self.dim:
                left, right = rotated[:half].copy(), rotated[half : 2 * half].copy()
                rotated[:half], rotated[half : 2 * half] = left + right, left - right
        return rotated if power == self.dim else rotated / np.float32(_ROUNDS)


def read_rotated_codes(about: Mapping[str, Any], dim: int) -> RotatedCodes:
    """The codes that `storage_metadata` describes. Raises `FormatError` or `UnsupportedError`."""
    for key, known in (("rotation_type", "fast"), ("query_estimator", "raw_query"), ("packed", True)):
        if about.get(key) != known:
            raise UnsupportedError(f"rotated codes with {key} {str(about.get(key))[:40]}")
    bits = whole(about, "num_bits", 1, 64)
    if bits > BITS_MAX:
        raise UnsupportedError(f"rotated codes of {bits} bits")
    whole(about, "code_dim", dim, dim)
    if dim % 8 or not dim:
        raise FormatError(f"storage_metadata: rotated codes of {dim} numbers, expected a multiple of 8")
    given = about.get("fast_rotation_signs")
    size = _ROUNDS * dim // 8
    signs = _bytes_of(given)
    if signs is None or len(signs) != size:
        count = "none" if signs is None else len(signs)
        raise FormatError(f"storage_metadata: expected fast_rotation_signs of {size} bytes, found {count}")
    bits_of = np.unpackbits(np.frombuffer(signs, np.uint8).reshape(_ROUNDS, -1), axis=1, bitorder="little")
    return RotatedCodes(dim, bits, 1 - 2 * bits_of.astype(np.float32))


def _bytes_of(given: Any) -> bytes | None:
    """Bytes as a list of numbers; None for anything else."""
    if not isinstance(given, list):
        return None
    if not all(isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 256 for item in given):
        return None
    return bytes(given)


def _hadamard(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The Hadamard transform of numbers, as many as a power of two; not scaled."""
    step = 1
    while step < len(values):
        pairs = values.reshape(-1, 2, step)
        values = np.stack((pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]), axis=1).reshape(-1)
        step *= 2
    return values


def _separate(stored: Bytes) -> Bytes:
    """The signs of a partition [n, width] row by row, out of interleaved blocks; a short block is stored by column."""
    num_rows, width = stored.shape
    flat = stored.reshape(-1)
    rows = np.empty((num_rows, width), np.uint8)
    num_blocks = num_rows // _BLOCK
    whole_rows = num_blocks * _BLOCK
    blocks = flat[: whole_rows * width].reshape(num_blocks, width, 2, _BLOCK // 2)
    low, high = blocks[:, :, 0].swapaxes(1, 2), blocks[:, :, 1].swapaxes(1, 2)
    shaped = rows[:whole_rows].reshape(num_blocks, _BLOCK, width)
    shaped[:, _BLOCK_ROWS] = (low & 15) | (high << 4)
    shaped[:, _BLOCK_ROWS + _BLOCK // 2] = (low >> 4) | (high & 0xF0)
    rows[whole_rows:] = flat[whole_rows * width :].reshape(width, num_rows - whole_rows).T
    return rows


def _further_codes(stored: Bytes, bits: int) -> Bytes:
    """The further bits of each number, [n, dim rounded up to 64], out of interleaved groups of 64 numbers."""
    num_rows = len(stored)
    groups = stored.reshape(num_rows, -1, _GROUP // 8 * bits)
    low_bits = _LOW_BITS[bits]
    low, top = groups[..., : _GROUP // 8 * low_bits], groups[..., _GROUP // 8 * low_bits :]
    codes = _low_codes(low, low_bits, is_alone=low_bits == bits)
    if low_bits < bits:
        codes = np.bitwise_or(codes, _top_bits(top) << np.uint8(low_bits))
    return codes.reshape(num_rows, -1)


def _low_codes(low: Bytes, bits: int, *, is_alone: bool) -> Bytes:
    shape = low.shape[:-1]
    if bits == 8:
        return low
    if bits == 1:
        return np.unpackbits(low, axis=-1, bitorder="little")
    if bits == 2:
        return np.concatenate([(low >> shift) & 3 for shift in (0, 2, 4, 6)], axis=-1)
    if bits == 4:
        parts = low.reshape(*shape, 4, 8) if is_alone else low.reshape(*shape, 2, 16)
        return np.stack((parts & 15, parts >> 4), axis=-2).reshape(*shape, _GROUP)
    parts = low.reshape(*shape, 3, 16)
    first = (parts & 63).reshape(*shape, 48)
    rest = (parts[..., 0, :] >> 6) | ((parts[..., 1, :] >> 6) << 2) | ((parts[..., 2, :] >> 6) << 4)
    return np.concatenate((first, rest), axis=-1)


def _top_bits(top: Bytes) -> Bytes:
    """A bit for each of 64 numbers, out of 8 bytes: that of number 16 k + b is bit 2 k + b // 8 of byte b % 8."""
    quarter, within = np.divmod(np.arange(_GROUP), 16)
    bits: Bytes = (top[..., within % 8] >> (2 * quarter + within // 8).astype(np.uint8)) & np.uint8(1)
    return bits
