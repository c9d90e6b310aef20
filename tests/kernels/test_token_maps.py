"""Token maps of full-text indices: a look-up ends, with a number or an error, whatever the bytes are."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from lance_io._kernels import DamagedError, find_tokens, near_tokens
from lance_io.changes.join.spilled_batches import SpilledBatches
from lance_io.index.text.text_builder import TextBuilder
from lance_io.index.text.text_parameters import parameters_of_arguments

if TYPE_CHECKING:
    from collections.abc import Iterator

WORDS = sorted([*(f"w{number}" for number in range(40)), "cart", "card", "cards", "日本", "日常", "x" * 30, "é"])
TAIL_BYTES = 20  # number of words, address of the root, checksum


def token_map_of(words: list[str]) -> bytes:
    plain = {"stem": False, "remove_stop_words": False, "ascii_folding": False, "max_token_length": None}
    builder = TextBuilder(parameters_of_arguments(plain), 2, SpilledBatches, 1 << 20, 1)
    builder.add(pa.array([" ".join(words)]), np.zeros(1, np.uint64))
    files = {file.name: pa.Table.from_batches(file.batches, file.schema) for file in builder.files()}
    builder.close()
    data = files["part_0_tokens.lance"]["_token_fst_bytes"][0].as_py()
    assert isinstance(data, bytes)
    return data


@pytest.fixture(scope="module")
def whole() -> bytes:
    return token_map_of(WORDS)


def variants(whole: bytes) -> Iterator[bytes]:
    """Each byte changed in some ways, every cut, and every address as that of the root."""
    for at in range(len(whole)):
        for value in (0, 1, 0x3F, 0x40, 0x7F, 0x80, 0xC0, 0xFF, whole[at] ^ 1, whole[at] ^ 16):
            yield whole[:at] + bytes([value]) + whole[at + 1 :]
        yield whole[:at]
    tail = len(whole) - TAIL_BYTES
    for address in range(tail):
        yield whole[: tail + 8] + struct.pack("<Q", address) + whole[tail + 16 :]


def test_each_look_up_ends(whole: bytes) -> None:
    words = [word.encode() for word in WORDS]
    assert find_tokens(whole, words) == [*range(len(words))]
    expected = [(word.encode(), number) for number, word in enumerate(WORDS) if word in ("card", "cards", "cart")]
    assert near_tokens(whole, "card", 1, 0, 50) == expected
    refused = answered = 0
    for data in variants(whole):
        for look_up in (
            lambda data=data: find_tokens(data, words),
            lambda data=data: near_tokens(data, "w1", 1, 0, 50),
        ):
            try:
                answer = look_up()
            except DamagedError:
                refused += 1
            else:
                answered += 1
                assert len(answer) <= max(len(words), 50)
    assert refused > 500
    assert answered > 500


def distance_of(word: str, other: str) -> int:
    """Letters to insert, to remove or to replace."""
    row = [*range(len(word) + 1)]
    for number, letter in enumerate(other, 1):
        last, row = row, [number]
        for at, own in enumerate(word):
            row.append(min(last[at] + (own != letter), last[at + 1] + 1, row[at] + 1))
    return row[-1]


def test_similar_tokens_are_those_of_the_plain_distance() -> None:
    dice = random.Random(3)
    words = sorted({"".join(dice.choices("abé日", k=dice.randint(1, 7))) for _ in range(150)} | {"a" * 300, "ab" * 150})
    data = token_map_of(words)
    asked = [*dice.sample(words, 8), "abbé", "b日b日", "x", "a" * 299, "a" * 320, "ba" * 150]
    for word in asked:
        distances = {other: distance_of(word, other) for other in words}
        for distance, prefix in ((0, 0), (1, 0), (2, 0), (2, 2), (3, 1), (5, 9), (400, 0), ((1 << 32) - 1, 1)):
            start = word[:prefix]
            near = [other.encode() for other in words if distances[other] <= distance and other[: len(start)] == start]
            assert [token for token, _ in near_tokens(data, word, distance, prefix, 1000)] == sorted(near)
    assert near_tokens(data, "a" * 1_000_000, 3, 0, 50) == []


def test_a_node_leads_to_no_greater_address() -> None:
    """Targets are counted backwards: a loop needs a distance that leads around the numbers of 64 bits."""
    head = struct.pack("<QQ", 3, 0)
    node = struct.pack("<Q", (1 << 64) - 11) + bytes([0x80]) + b"w" + bytes([0x80])  # a target of eight bytes
    looping = head + node + struct.pack("<QQI", 1, len(head) + len(node) - 1, 0)
    with pytest.raises(DamagedError, match="leads outside"):
        find_tokens(looping, [b"w"])
    with pytest.raises(DamagedError, match="leads outside"):
        near_tokens(looping, "w", 1, 0, 10)
