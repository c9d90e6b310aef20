"""Split-block Bloom filters with xxHash64, as in Parquet files (spec: indices, 2.5). Both are public formats.

A filter is a list of blocks of eight 32-bit words. The upper half of a value's hash chooses a block, the lower half one
bit of each of its words; a value may be in the filter if all eight bits are set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lance_io.errors import FormatError
from lance_io.index.scalar.key_order import is_binary
from lance_io.records import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt

BLOCK_BYTES: Final = 32
_SALT: Final = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)
_MASK: Final = (1 << 64) - 1
_PRIMES: Final = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def _rotated(number: int, count: int) -> int:
    return (number << count | number >> (64 - count)) & _MASK


def _mixed(lane: int, word: int) -> int:
    return _rotated((lane + word * _PRIMES[1]) & _MASK, 31) * _PRIMES[0] & _MASK


def xxh64(data: bytes) -> int:
    """The xxHash64 of bytes, with seed 0."""
    first, second, third, fourth, fifth = _PRIMES
    position = 0
    if len(data) >= BLOCK_BYTES:
        lanes = [(first + second) & _MASK, second, 0, -first & _MASK]
        while position + BLOCK_BYTES <= len(data):
            words = np.frombuffer(data, "<u8", 4, position).tolist()
            lanes = [_mixed(lane, word) for lane, word in zip(lanes, words, strict=True)]
            position += BLOCK_BYTES
        digest = sum(_rotated(lane, count) for lane, count in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            digest = ((digest ^ _mixed(0, lane)) * first + fourth) & _MASK
    else:
        digest = fifth
    digest = (digest + len(data)) & _MASK
    while position + 8 <= len(data):
        word = int.from_bytes(data[position : position + 8], "little")
        digest = (_rotated(digest ^ _mixed(0, word), 27) * first + fourth) & _MASK
        position += 8
    if position + 4 <= len(data):
        word = int.from_bytes(data[position : position + 4], "little")
        digest = (_rotated(digest ^ (word * first & _MASK), 23) * second + third) & _MASK
        position += 4
    for byte in data[position:]:
        digest = _rotated(digest ^ (byte * fifth & _MASK), 11) * first & _MASK
    for shift, factor in ((33, second), (29, third)):
        digest = (digest ^ digest >> shift) * factor & _MASK
    return digest ^ digest >> 32


def hashed_bytes(values: pa.Array) -> list[bytes]:
    """The bytes of each value that are hashed: fixed-width values in their own width, others as they are."""
    if is_binary(values.type):
        return [bytes(value.as_buffer()) for value in values]
    width = values.type.bit_width // 8
    data = values.buffers()[1]
    start = values.offset * width
    raw = bytes(memoryview(data)[start : start + width * len(values)])
    return [raw[at : at + width] for at in range(0, len(raw), width)]


def is_hashed(dtype: pa.DataType | None) -> bool:
    """Whether values of a type are in Bloom filters."""
    if dtype is None or pt.is_boolean(dtype) or pt.is_nested(dtype):
        return False
    return is_binary(dtype) or pt.is_primitive(dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Filters:
    """The filters of all zones.

    words   the words of each filter, u32[blocks, 8]
    dtype   of the values
    """

    words: tuple[npt.NDArray[np.uint32], ...]
    dtype: pa.DataType

    @classmethod
    def of(cls, stored: pa.Array, dtype: pa.DataType | None, name: str) -> Filters:
        """Filters as they are stored. Raises `FormatError` for filters that are no blocks.

        name  of the file
        """
        if dtype is None or not is_hashed(dtype):
            raise FormatError(f"{name}: values of type {dtype} have no Bloom filters")
        words = []
        for number, value in enumerate(stored):
            data = value.as_buffer() if value.is_valid else b""
            if not len(data) or len(data) % BLOCK_BYTES:
                raise FormatError(f"{name}: the filter of zone {number} has {len(data)} bytes, expected blocks of 32")
            words.append(np.frombuffer(data, "<u4").reshape(-1, 8))
        return cls(tuple(words), dtype)

    @property
    def nbytes(self) -> int:
        """Memory, in bytes."""
        return sum(words.nbytes + 128 for words in self.words)

    def may_have(self, values: pa.Array) -> npt.NDArray[np.bool_]:
        """Which zones may have one of these values."""
        may = np.zeros(len(self.words), np.bool_)
        for data in hashed_bytes(values):
            digest = xxh64(data)
            bits = np.uint32(1) << ((np.uint32(digest & 0xFFFFFFFF) * _SALT) >> np.uint32(27))
            may |= np.array([self._has(words, digest, bits) for words in self.words], np.bool_)
        return may

    @staticmethod
    def _has(words: npt.NDArray[np.uint32], digest: int, bits: npt.NDArray[Any]) -> bool:
        block = words[(digest >> 32) * len(words) >> 32]
        return bool((block & bits).all())
