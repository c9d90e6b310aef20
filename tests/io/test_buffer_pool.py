"""Memory that is used again: never while anybody holds it, never more than may be kept."""

from __future__ import annotations

import gc
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lance_io.io.buffer_pool import POOLED_BYTES_MIN, BufferPool
from lance_io.limits import MIB


def place(block: Any) -> int:
    return int(block.__array_interface__["data"][0])


def test_memory_is_used_again() -> None:
    pool = BufferPool(10 * MIB)
    first = place(pool.allocate(MIB))
    assert [place(pool.allocate(MIB - skip)) for skip in (0, 1, 1000)] == [first] * 3
    assert pool.num_bytes == MIB


@pytest.mark.parametrize(
    "hold",
    [
        lambda block: block,
        lambda block: block[5:9],
        memoryview,
        lambda block: memoryview(block)[3:4],
        lambda block: pa.py_buffer(block).slice(10, 10),
        lambda block: pa.Array.from_buffers(pa.int64(), 4, [None, pa.py_buffer(block)]).slice(1, 2),
        lambda block: np.frombuffer(block, np.int64)[:2].reshape(2, 1),
    ],
)
def test_whoever_holds_a_part_of_it_keeps_it(hold: Any) -> None:
    pool = BufferPool(10 * MIB)
    block = pool.allocate(MIB)
    before, held = place(block), hold(block)
    del block
    assert place(pool.allocate(MIB)) != before
    del held
    gc.collect()
    assert before in {place(pool.allocate(MIB)) for _ in range(3)}


def test_small_and_huge_pieces_are_not_kept() -> None:
    pool = BufferPool(MIB)
    for num_bytes in (0, 1, POOLED_BYTES_MIN - 1, MIB + 1):
        assert len(pool.allocate(num_bytes)) == num_bytes
    assert pool.num_bytes == 0


def test_as_much_is_kept_as_may_be_and_nothing_is_given_twice() -> None:
    dice, pool = random.Random(5), BufferPool(4 * MIB)
    held: list[Any] = []
    for number in range(3000):
        num_bytes = int(POOLED_BYTES_MIN * 30 ** dice.random())
        block = pool.allocate(num_bytes)
        assert len(block) == num_bytes
        block[:8] = np.frombuffer(number.to_bytes(8, "little"), np.uint8)
        held.append((number, block))
        while held and dice.random() < 0.55:
            held.pop(dice.randrange(len(held)))
        assert pool.num_bytes <= 4 * MIB
        assert all(block[:8].tobytes() == kept.to_bytes(8, "little") for kept, block in held)
    assert pool.num_bytes > 2 * MIB


def test_other_sizes_make_room() -> None:
    pool = BufferPool(4 * MIB)
    small = [pool.allocate(MIB // 2) for _ in range(8)]
    assert pool.num_bytes == 4 * MIB
    large = pool.allocate(3 * MIB)  # nothing is free: it is not kept
    assert pool.num_bytes == 4 * MIB
    del small, large
    large = pool.allocate(3 * MIB)
    before = place(large)
    del large
    assert (place(pool.allocate(3 * MIB)), pool.num_bytes) == (before, 4 * MIB)


def test_what_nobody_asks_for_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("lance_io.io.buffer_pool.time.monotonic", lambda: now_s)
    pool = BufferPool(10 * MIB)
    held, other = pool.allocate(MIB), pool.allocate(2 * MIB)
    before = place(held)
    del other
    pool.trim()  # a take may follow
    assert pool.num_bytes == 3 * MIB
    now_s += 2
    pool.trim()
    assert pool.num_bytes == MIB
    assert place(pool.allocate(MIB)) != before
    del held
    now_s += 2
    pool.trim()
    assert pool.num_bytes == 0
