"""The estimated bytes of rows, by which large takes are split: near the actual size for every layout of pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.file.take.take_pieces import PiecewiseTake

if TYPE_CHECKING:
    from pathlib import Path

NUM_ROWS = 40_000  # of lists: several pages of some KiB


def column(kind: str) -> pa.Array:
    rng = np.random.default_rng(7)
    items = pa.array(rng.integers(0, 1 << 40, 4 * NUM_ROWS))
    lists = pa.ListArray.from_arrays(np.arange(0, 4 * NUM_ROWS + 1, 4, dtype=np.int32), items)
    if kind == "lists":
        return lists
    if kind == "lists of lists":
        half = pa.ListArray.from_arrays(np.arange(0, 4 * NUM_ROWS + 1, 2, dtype=np.int32), items)
        return pa.ListArray.from_arrays(np.arange(0, 2 * NUM_ROWS + 1, 2, dtype=np.int32), half)
    return pa.array([f"{number:x} and {number * 7919:x}" for number in range(NUM_ROWS)])


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("kind", ["lists", "lists of lists", "texts"])
def test_estimates_are_near_the_size(tmp_path: Path, kind: str, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lance.write_dataset(pa.table({"a": column(kind)}), tmp_path / "t.lance", data_storage_version=version)
    estimates: list[float] = []
    read = PiecewiseTake.next

    def watched(self: PiecewiseTake) -> Any:
        piece = yield from read(self)
        estimates.append(self._expected_bytes())
        return piece

    monkeypatch.setattr(PiecewiseTake, "next", watched)
    rows = np.arange(0, NUM_ROWS, 3)
    taken = lance_io.dataset(tmp_path / "t.lance").take(rows)
    assert taken["a"].to_pylist() == column(kind).take(pa.array(rows)).to_pylist()
    assert len(estimates) == 1
    assert 0.5 < estimates[0] / taken.nbytes < 3  # texts are compressed, so only their usual growth is known
