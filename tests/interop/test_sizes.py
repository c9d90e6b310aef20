"""Columns take no more room than in pylance: with whatever lies under nulls, text of many kinds, very long values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader as PeerReader
from lance.file import LanceFileWriter as PeerWriter

from benchmarks.kinds import TEXTS, texts
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


def compare_sizes(parts: list[pa.Table], version: str, tmp_path: Path, slack_bytes: int = 0) -> None:
    """The files that we write of these are no larger than pylance's, and both libraries read their rows."""
    sizes = {"theirs": 0, "ours": 0}
    for rows in parts:
        with PeerWriter(str(tmp_path / "theirs"), rows.schema, version=version) as theirs:
            theirs.write_batch(rows)
        with LanceFileWriter(tmp_path / "ours", rows.schema, version=version) as ours:
            ours.write_batch(rows)
        assert LanceFileReader(tmp_path / "ours").read_all().to_table() == rows
        assert PeerReader(str(tmp_path / "ours")).read_all().to_table() == rows
        for name in sizes:
            sizes[name] += (tmp_path / name).stat().st_size
            (tmp_path / name).unlink()
    assert sizes["ours"] <= SHARE_MAX * sizes["theirs"] + slack_bytes


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("under", UNDER_NULLS)
@pytest.mark.parametrize("name", VALUES)
def test_nulls_cost_no_more_than_in_pylance(name: str, under: str, version: str, tmp_path: Path) -> None:
    rows = pa.table({"x": UNDER_NULLS[under](VALUES[name])})
    compare_sizes([rows], version, tmp_path)


# -- text -------------------------------------------------------------------------------------------------------------

TEXT_BYTES: Final = 1 << 19


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("name", TEXTS)
def test_texts_cost_no_more_than_in_pylance(name: str, version: str, tmp_path: Path) -> None:
    """Five files: a table that is trained on a sample is now better, now worse."""
    compare_sizes([texts(name, seed, TEXT_BYTES) for seed in range(5)], version, tmp_path)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize(
    "values", [[b"x" * (20 << 20), None, b"0123456789"], [b"ab" * 100_000], [b"ab" * 100_000] * 40]
)
def test_very_long_values_cost_no_more_than_in_pylance(
    values: list[bytes | None], version: str, tmp_path: Path
) -> None:
    """They come in pages of their own, which are some hundred bytes of metadata more."""
    compare_sizes([pa.table({"x": pa.array(values, pa.binary())})], version, tmp_path, slack_bytes=512)
