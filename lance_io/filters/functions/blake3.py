"""The BLAKE3 digest of a byte string, which Python's own `hashlib` lacks.

The input is cut into chunks of 1024 bytes, and those into blocks of 64. `_compress` mixes a block into a chaining value
of eight 32-bit words. The chaining values of the chunks are the leaves of a binary tree, in which the left side of each
node is the largest power of two that leaves something for the right side; the root gives the digest.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_START: Final = (
    0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19,
)  # fmt: skip
_ORDER: Final = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)  # of the words, from one round to the next
_QUARTERS: Final = (
    (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
    (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14),
)  # fmt: skip
_CHUNK_START, _CHUNK_END, _PARENT, _ROOT = 1, 2, 4, 8
_CHUNK, _BLOCK = 1024, 64
_ROUNDS: Final = 7
_MASK: Final = 0xFFFFFFFF


def blake3(data: bytes) -> bytes:
    """The digest, 32 bytes."""
    return struct.pack("<8I", *_node(data, 0, _ROOT))


def _node(data: bytes, first_chunk: int, root: int) -> Sequence[int]:
    """The chaining value of a part of the input; `root` is the flag that the whole of it gets."""
    if len(data) <= _CHUNK:
        return _leaf(data, first_chunk, root)
    chunks = (len(data) - 1) // _CHUNK
    left = 1 << (chunks.bit_length() - 1)
    cut = left * _CHUNK
    words = (*_node(data[:cut], first_chunk, 0), *_node(data[cut:], first_chunk + left, 0))
    return _compress(_START, words, 0, _BLOCK, _PARENT | root)


def _leaf(data: bytes, chunk: int, root: int) -> Sequence[int]:
    value: Sequence[int] = _START
    last = max(len(data) - 1, 0) // _BLOCK
    for i in range(last + 1):
        block = data[i * _BLOCK : (i + 1) * _BLOCK]
        flags = (_CHUNK_START if i == 0 else 0) | ((_CHUNK_END | root) if i == last else 0)
        value = _compress(value, struct.unpack("<16I", block.ljust(_BLOCK, b"\0")), chunk, len(block), flags)
    return value


def _compress(value: Sequence[int], words: Sequence[int], counter: int, length: int, flags: int) -> Sequence[int]:
    state = [*value, *_START[:4], counter & _MASK, counter >> 32, length, flags]
    for _ in range(_ROUNDS):
        for i, places in enumerate(_QUARTERS):
            _mix(state, *places, words[2 * i], words[2 * i + 1])
        words = [words[i] for i in _ORDER]
    return [state[i] ^ state[i + 8] for i in range(8)]


def _mix(state: list[int], a: int, b: int, c: int, d: int, one: int, two: int) -> None:
    for word, turn_d, turn_b in ((one, 16, 12), (two, 8, 7)):
        state[a] = (state[a] + state[b] + word) & _MASK
        state[d] = _rotate(state[d] ^ state[a], turn_d)
        state[c] = (state[c] + state[d]) & _MASK
        state[b] = _rotate(state[b] ^ state[c], turn_b)


def _rotate(word: int, bits: int) -> int:
    return (word >> bits | word << (32 - bits)) & _MASK
