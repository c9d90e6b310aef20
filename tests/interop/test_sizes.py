"""Columns take no more room than in pylance: with whatever lies under nulls, text of many kinds, very long values."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader as PeerReader
from lance.file import LanceFileWriter as PeerWriter

import lance_io
from benchmarks import kinds, textkinds
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


def peer_bytes(rows: pa.Table, version: str, path: Path) -> int:
    """The size of pylance's file."""
    with PeerWriter(str(path), rows.schema, version=version) as theirs:
        theirs.write_batch(rows)
    num_bytes = path.stat().st_size
    path.unlink()
    return num_bytes


def compare_sizes(
    parts: list[pa.Table], version: str, tmp_path: Path, slack_bytes: int = 0, peer_files: int = 1
) -> None:
    """The files that we write of these are no larger than pylance's, and both libraries read their rows.

    peer_files  of which the median counts: pylance samples texts at random, and its sizes scatter by up to 3 %
    """
    theirs_bytes = ours_bytes = 0
    for rows in parts:
        theirs_bytes += median([peer_bytes(rows, version, tmp_path / "theirs") for _ in range(peer_files)])
        with LanceFileWriter(tmp_path / "ours", rows.schema, version=version) as ours:
            ours.write_batch(rows)
        assert LanceFileReader(tmp_path / "ours").read_all().to_table() == rows
        assert PeerReader(str(tmp_path / "ours")).read_all().to_table() == rows
        ours_bytes += (tmp_path / "ours").stat().st_size
        (tmp_path / "ours").unlink()
    assert ours_bytes <= SHARE_MAX * theirs_bytes + slack_bytes


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("under", UNDER_NULLS)
@pytest.mark.parametrize("name", VALUES)
def test_nulls_cost_no_more_than_in_pylance(name: str, under: str, version: str, tmp_path: Path) -> None:
    rows = pa.table({"x": UNDER_NULLS[under](VALUES[name])})
    compare_sizes([rows], version, tmp_path)


# -- text -------------------------------------------------------------------------------------------------------------

TEXT_BYTES: Final = 1 << 19
MANY_BYTES: Final = 2 << 20


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("name", kinds.TEXTS)
def test_texts_cost_no_more_than_in_pylance(name: str, version: str, tmp_path: Path) -> None:
    """Five files: a table that is trained on a sample is now better, now worse."""
    compare_sizes([kinds.texts(name, seed, TEXT_BYTES) for seed in range(5)], version, tmp_path)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("name", textkinds.KINDS)
def test_few_and_many_texts_cost_no_more_than_in_pylance(name: str, version: str, tmp_path: Path) -> None:
    """Three files of a thousand texts, below and above what is worth a table, and one of a page that is sampled."""
    few = [pa.table({"x": textkinds.texts(name, 1000, seed)}) for seed in range(3)]
    compare_sizes(few, version, tmp_path)
    mean_bytes = few[0].nbytes // 1000
    many = pa.table({"x": textkinds.texts(name, min(20_000, MANY_BYTES // mean_bytes))})
    compare_sizes([many], version, tmp_path, peer_files=9)


@pytest.mark.parametrize("name", ["image-paths", "keys", "json-objects", "mixed-scripts"])
def test_updated_texts_cost_no_more_than_in_pylance(name: str, tmp_path: Path) -> None:
    """An update writes the texts of its rows again: one of a hundred here."""
    count = 60_000
    rows = pa.table({"x": textkinds.texts(name, count), "id": np.arange(count), "n": np.zeros(count, np.int32)})
    sizes = {}
    for library in (lance, lance_io):
        folder = tmp_path / library.__name__
        table = library.write_dataset(rows, folder)
        before = {path.name for path in folder.rglob("*.lance")}
        table.update({"n": "n + 1"}, where="id % 100 = 7")
        written = [path for path in folder.rglob("*.lance") if path.name not in before]
        sizes[library.__name__] = sum(path.stat().st_size for path in written)
        texts = lance.dataset(folder).to_table(columns=["x"], filter="n = 1")["x"].to_pylist()
        assert texts == rows["x"].take(np.arange(7, count, 100)).to_pylist()
    assert sizes["lance_io"] <= SHARE_MAX * sizes["lance"]


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize(
    "values", [[b"x" * (20 << 20), None, b"0123456789"], [b"ab" * 100_000], [b"ab" * 100_000] * 40]
)
def test_very_long_values_cost_no_more_than_in_pylance(
    values: list[bytes | None], version: str, tmp_path: Path
) -> None:
    """They come in pages of their own, which are some hundred bytes of metadata more."""
    compare_sizes([pa.table({"x": pa.array(values, pa.binary())})], version, tmp_path, slack_bytes=512)
