"""Split-block Bloom filters: xxHash64 of whole arrays, and the filters' bits (spec: indices, 2.5)."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

if TYPE_CHECKING:
    from lance_io.spans import IntArray

Hashes = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

_P1: Final = np.uint64(0x9E3779B185EBCA87)
_P2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_P3: Final = np.uint64(0x165667B19E3779F9)
_P4: Final = np.uint64(0x85EBCA77C2B2AE63)
_P5: Final = np.uint64(0x27D4EB2F165667C5)
_SALT: Final = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)
_STRIPE_BYTES: Final = 32
_BLOCK_BYTES: Final = 32
_BLOCK_BITS: Final = 256
_TERMS: Final = 750  # of the sum for the share of false positives
_FILTER_BYTES_MAX: Final = 1 << 27


def value_hashes(values: pa.Array) -> Hashes:
    """The hash of each value; values have no nulls. Numbers are hashed in their own width."""
    if pt.is_large_string(values.type) or pt.is_large_binary(values.type):
        return _text_hashes(values, np.int64)
    if pt.is_string(values.type) or pt.is_binary(values.type):
        return _text_hashes(values, np.int32)
    width = values.type.bit_width // 8
    if not len(values):
        return np.empty(0, np.uint64)
    data = np.frombuffer(values.buffers()[1], np.uint8, width * len(values), values.offset * width)
    return hash_bytes(data, np.arange(len(values)) * width, np.full(len(values), width))


def _text_hashes(values: pa.Array, offset_type: type[np.signedinteger[Any]]) -> Hashes:
    if not len(values):
        return np.empty(0, np.uint64)
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(
        offsets, offset_type, len(values) + 1, values.offset * np.dtype(offset_type).itemsize
    ).astype(np.int64)
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    content = content[bounds[0] : bounds[-1]]
    return hash_bytes(content, bounds[:-1] - bounds[0], np.diff(bounds))


def hash_bytes(data: Bytes, starts: IntArray, sizes: IntArray) -> Hashes:
    """xxHash64 with seed 0 of ranges of bytes."""
    padded = np.concatenate((data, np.zeros(8, np.uint8)))  # words are read beyond the last range, and then ignored
    order = np.argsort(-sizes, kind="stable")
    starts, sizes = starts[order], sizes[order]
    hashes = _stripes(padded, starts, sizes)
    hashes += sizes.astype(np.uint64)
    _rest(padded, starts, sizes, hashes)
    hashes ^= hashes >> np.uint64(33)
    hashes *= _P2
    hashes ^= hashes >> np.uint64(29)
    hashes *= _P3
    hashes ^= hashes >> np.uint64(32)
    result = np.empty_like(hashes)
    result[order] = hashes
    return result


def _words(data: Bytes, at: IntArray, dtype: str) -> Any:
    """Little-endian words at any positions."""
    words: Any = np.ndarray((len(data) - np.dtype(dtype).itemsize + 1,), dtype, data, strides=(1,))
    return words[at]


def _rotated(value: Hashes, bits: int) -> Hashes:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


def _round(lane: Hashes, word: Hashes) -> Hashes:
    return _rotated(lane + word * _P2, 31) * _P1


def _stripes(data: Bytes, starts: IntArray, sizes: IntArray) -> Hashes:
    """The state after all whole stripes. sizes: descending."""
    num_stripes = sizes // _STRIPE_BYTES
    num_long = int(np.searchsorted(-num_stripes, 0))  # those with a stripe come first
    hashes = np.full(len(sizes), _P5, np.uint64)
    if not num_long:
        return hashes
    with np.errstate(over="ignore"):
        seeds = (_P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1)
    lanes = [np.full(num_long, seed, np.uint64) for seed in seeds]
    for stripe in range(int(num_stripes[0])):
        num_active = int(np.searchsorted(-num_stripes, -stripe))
        at = starts[:num_active] + _STRIPE_BYTES * stripe
        for number, lane in enumerate(lanes):
            lane[:num_active] = _round(lane[:num_active], _words(data, at + 8 * number, "<u8"))
    state = sum((_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)), np.uint64(0))
    for lane in lanes:
        state = (state ^ _round(np.zeros_like(lane), lane)) * _P1 + _P4
    hashes[:num_long] = state
    return hashes


def _rest(data: Bytes, starts: IntArray, sizes: IntArray, hashes: Hashes) -> None:
    """Take in the bytes behind the whole stripes."""
    at = starts + sizes // _STRIPE_BYTES * _STRIPE_BYTES
    left = sizes % _STRIPE_BYTES
    while (chosen := np.flatnonzero(left >= 8)).size:
        words = _words(data, at[chosen], "<u8")
        hashes[chosen] = _rotated(hashes[chosen] ^ _round(np.zeros_like(words), words), 27) * _P1 + _P4
        at[chosen] += 8
        left[chosen] -= 8
    chosen = np.flatnonzero(left >= 4)
    words = _words(data, at[chosen], "<u4").astype(np.uint64)
    hashes[chosen] = _rotated(hashes[chosen] ^ words * _P1, 23) * _P2 + _P3
    at[chosen] += 4
    left[chosen] -= 4
    while (chosen := np.flatnonzero(left)).size:
        single = data[at[chosen]].astype(np.uint64)
        hashes[chosen] = _rotated(hashes[chosen] ^ single * _P5, 11) * _P1
        at[chosen] += 1
        left[chosen] -= 1


def filter_of(hashes: Hashes, num_bytes: int) -> bytes:
    """The filter of some values. num_bytes: its size, a multiple of 32."""
    num_blocks = num_bytes // _BLOCK_BYTES
    bits = np.zeros(num_bytes * 8, np.bool_)
    block = ((hashes >> np.uint64(32)) * np.uint64(num_blocks)) >> np.uint64(32)
    inside = (hashes.astype(np.uint32)[:, None] * _SALT) >> np.uint32(27)
    places = block.astype(np.int64)[:, None] * _BLOCK_BITS + np.arange(8) * 32 + inside
    bits[places.ravel()] = True
    return np.packbits(bits, bitorder="little").tobytes()


@cache
def filter_bytes(num_items: int, probability: float) -> int:
    """The size of a filter: the smallest power of two of bytes with at most this share of false positives."""
    num_bytes = _BLOCK_BYTES
    while _false_positives(num_items, num_bytes) > probability and num_bytes < _FILTER_BYTES_MAX:
        num_bytes *= 2
    return num_bytes


def _false_positives(num_items: int, num_bytes: int) -> float:
    """The share of false positives, from the Poisson distribution of items over blocks."""
    per_block = _BLOCK_BYTES * num_items / num_bytes
    share = total = 0.0
    for count in range(_TERMS):
        chance = math.exp(count * math.log(per_block) - per_block - math.lgamma(count + 1))
        total += chance
        share += chance * (1 - (31 / 32) ** count) ** 8
    return share + max(0.0, 1 - total)
