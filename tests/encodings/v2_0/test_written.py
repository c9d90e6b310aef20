"""Every encoding of version 2.0 that pylance writes: its tables, read by scan, by range and by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io import limits
from lance_io.file import LanceFileReader
from tests.encodings.harness import Opened, assert_same
from tests.encodings.v2_0.written_cases import LARGE, ArrayCase, written_cases

if TYPE_CHECKING:
    from pathlib import Path

CASES = written_cases()
CUT = (
    "int64", "bool", "string mixed", "large_binary mixed", "string fsst", "string zstd", "string 50 distinct",
    "vectors nulls", "list", "list of string", "list of list of list", "list of struct", "struct", "dictionary int32",
)  # fmt: skip


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> ArrayCase:
    return request.param


def test_reads_what_pylance_wrote(case: ArrayCase, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(case.table(), uri, data_storage_version="2.0", max_rows_per_file=10_000_000)
    expected = lance.dataset(uri).to_table()["c"]
    assert_same(lance_io.dataset(uri).to_table()["c"], expected)
    rows = len(expected)
    [path] = (tmp_path / "t.lance" / "data").iterdir()
    opened = Opened(path)
    dice = np.random.default_rng(rows)
    for _ in range(3 if case.name.startswith(LARGE) else 10):
        start, end = sorted(dice.integers(0, rows + 1, 2).tolist())
        assert_same(opened.scan(start, end, None)[0], expected.slice(start, end - start))
    for count in (1, 2, 17, min(rows // 2, 1000)):
        chosen = np.unique(dice.integers(0, rows, count))
        assert_same(opened.take(chosen)[0], expected.take(pa.array(chosen)))
    again = lance_io.dataset(uri)
    wanted = dice.integers(0, rows, 40).tolist()
    for _ in ("cold", "warm"):
        assert_same(again.take(wanted)["c"], expected.take(pa.array(wanted)))
    assert_same(LanceFileReader(path).read_all().to_table()["c"], expected)


@pytest.mark.parametrize("name", CUT)
def test_large_pages_are_read_in_pieces(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here they are large from 4 KiB on."""
    [case] = [one for one in CASES if one.name == name]
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(case.table(), uri, data_storage_version="2.0")
    expected = lance.dataset(uri).to_table()["c"]
    monkeypatch.setattr(limits, "SCAN_PIECE_BYTES", 2048)
    for _ in ("cold", "warm"):
        ours = lance_io.dataset(uri)
        assert_same(ours.to_table()["c"], expected)
        assert_same(pa.chunked_array([batch["c"] for batch in ours.to_batches(batch_size=77)]), expected)
        assert_same(ours.to_table(offset=13, limit=333)["c"], expected.slice(13, 333))
