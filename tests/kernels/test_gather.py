"""Gathering slices of a buffer, against Python's own slices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io._kernels import gather_ranges

CONTENT = bytes(range(256)) * 2


def i64(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, dtype=np.int64)


@settings(max_examples=200, deadline=None)
@given(slices=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 112)), max_size=30))
def test_slices_of_different_lengths(slices: list[tuple[int, int]]) -> None:
    if len(slices) == 1:
        slices *= 2
    gathered = gather_ranges(CONTENT, i64(*(at for at, _ in slices)), i64(*(length for _, length in slices)))
    assert bytes(gathered) == b"".join(CONTENT[at : at + length] for at, length in slices)


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 8, 16, 100])
def test_one_length_for_all(length: int) -> None:
    offsets = np.random.default_rng(length).integers(0, 412, 2000)
    expected = b"".join(CONTENT[at : at + length] for at in offsets)
    assert bytes(gather_ranges(CONTENT, offsets, i64(length))) == expected
    assert bytes(gather_ranges(CONTENT, i64(), i64(length))) == b""


@pytest.mark.parametrize(
    ("offsets", "lengths"), [([509], [4]), ([-1], [4]), ([0, 509], [1, 4]), ([0, 1], [1, -1]), ([2**62], [2**62])]
)
def test_refuses_slices_outside_the_buffer(offsets: list[int], lengths: list[int]) -> None:
    with pytest.raises(ValueError, match="not within a buffer of 512 bytes"):
        gather_ranges(CONTENT, i64(*offsets), i64(*lengths))


def test_refuses_numbers_that_do_not_fit_together() -> None:
    with pytest.raises(ValueError, match="3 offsets but 2 lengths"):
        gather_ranges(CONTENT, i64(1, 2, 3), i64(1, 2))
