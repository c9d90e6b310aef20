"""Bits of masks, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io._kernels import set_bits


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=40), st.data())
def test_the_bits_of_any_part_of_a_mask(mask: bytes, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, 8 * len(mask)))
    count = data.draw(st.integers(0, 8 * len(mask) - first))
    flags = np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")[first : first + count]
    assert np.frombuffer(set_bits(mask, first, count), np.int64).tolist() == np.flatnonzero(flags).tolist()


@pytest.mark.parametrize("share", [0, 0.0001, 0.01, 0.5, 0.99, 1])
def test_the_bits_of_a_large_mask(share: float) -> None:
    flags = np.random.default_rng(1).random(100_003) < share
    mask = np.packbits(flags, bitorder="little")
    assert np.array_equal(np.frombuffer(set_bits(mask, 5, 99_990), np.int64), np.flatnonzero(flags[5:99_995]))


@pytest.mark.parametrize(("first", "count"), [(0, 17), (9, 8), (17, 0), (2**64 - 1, 2), (8, 2**63)])
def test_refuses_bits_outside_of_the_mask(first: int, count: int) -> None:
    with pytest.raises(ValueError, match="not within 2 bytes"):
        set_bits(b"ab", first, count)
