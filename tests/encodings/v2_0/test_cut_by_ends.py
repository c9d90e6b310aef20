"""Where pages of strings of version 2.0 are cut, beside the bytes of each value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lance_io.encodings.v2_0.array_page import cut_by_ends
from lance_io.encodings.v2_0.buffers import StoredBuffer
from lance_io.encodings.v2_0.variable import Ends, EndsIndex

NUM_VALUES = 20_000


def lengths_of(kind: str) -> Any:
    lengths = np.full(NUM_VALUES, 10)
    if kind == "few have most":
        lengths[5000:5050] = 20_000
    if kind == "random":
        lengths = np.random.default_rng(3).integers(0, 50, NUM_VALUES)
    return lengths


@pytest.mark.parametrize("kind", ["even", "random", "few have most"])
@pytest.mark.parametrize(("start", "end"), [(0, NUM_VALUES), (1, 4), (4990, 5060), (7, 19_999)])
def test_pieces_are_about_even_whatever_the_values_are(kind: str, start: int, end: int) -> None:
    lengths, piece_bytes = lengths_of(kind), 40_000
    ends = np.cumsum(lengths)
    num_bytes, adjustment = int(ends[-1]), int(ends[-1]) + 1
    stored = ends.astype("<u8")
    stored[::7] += np.uint64(adjustment)  # nulls
    of_page = Ends(NUM_VALUES, StoredBuffer(0, 8 * NUM_VALUES, 0, 8 * NUM_VALUES), adjustment, num_bytes, wide=False)
    steps = cut_by_ends(of_page, num_bytes, start, end, piece_bytes, EndsIndex(stored.tobytes()))
    with pytest.raises(StopIteration) as done:
        next(steps)
    cuts = done.value.value
    assert (cuts.slots[0], cuts.slots[-1]) == (start, end)
    assert (np.diff(cuts.slots) > 0).all()
    sizes = np.add.reduceat(lengths, cuts.slots[:-1])
    sizes[-1] = lengths[cuts.slots[-2] : end].sum()
    assert cuts.sizes.tolist() == sizes.tolist()
    assert sizes.max() <= 2 * piece_bytes + lengths.max()
