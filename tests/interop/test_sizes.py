"""Columns with nulls take no more room than in pylance, whatever lies under the nulls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter as PeerWriter

from lance_io.file import LanceFileReader, LanceFileWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NUM_ROWS: Final = 5000
SHARE_MAX: Final = 1.01
DICE: Final = np.random.default_rng(20)
IS_NULL: Final = DICE.random(NUM_ROWS) < 0.3
STEPS: Final = np.repeat(np.arange(NUM_ROWS // 50), 50)
VALUES: Final = {
    "constant double": np.full(NUM_ROWS, 2.5),
    "constant int32": np.full(NUM_ROWS, 77_777, np.int32),
    "runs of int64": STEPS + 10**9,
    "runs of float": STEPS.astype(np.float32),
    "few int64": DICE.integers(0, 5, NUM_ROWS) * 10**12,
    "random int64": DICE.integers(0, 1 << 40, NUM_ROWS),
    "ascending int64": np.sort(DICE.integers(0, 1 << 40, NUM_ROWS)),
}
UNDER_NULLS: Final[dict[str, Callable[[np.ndarray], pa.Array]]] = {
    "values": lambda values: pa.array(values, mask=IS_NULL),
    "zeros": lambda values: pa.array(np.where(IS_NULL, 0, values).astype(values.dtype), mask=IS_NULL),
}


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("under", UNDER_NULLS)
@pytest.mark.parametrize("name", VALUES)
def test_nulls_cost_no_more_than_in_pylance(name: str, under: str, version: str, tmp_path: Path) -> None:
    rows = pa.table({"x": UNDER_NULLS[under](VALUES[name])})
    with PeerWriter(str(tmp_path / "theirs"), rows.schema, version=version) as theirs:
        theirs.write_batch(rows)
    with LanceFileWriter(tmp_path / "ours", rows.schema, version=version) as ours:
        ours.write_batch(rows)
    assert LanceFileReader(tmp_path / "ours").read_all().to_table() == rows
    assert (tmp_path / "ours").stat().st_size <= SHARE_MAX * (tmp_path / "theirs").stat().st_size
