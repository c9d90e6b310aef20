"""How many pages of text are decoded at once: as many as the sizes of the pages before allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import lance_io
from lance_io import limits
from lance_io.file.scan import scan_sync
from tests.file.test_encoding_ahead import LatePool

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

from lance_io.runtime import pool

NUM_FILES = 5


def test_sizes_of_pages_before_say_how_many_are_decoded_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its metadata a page of text may grow threefold; once some are decoded, each core has a job that waits."""
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", np.uint8)
    num_rows = 30_000
    for number in range(NUM_FILES):
        dice = np.random.default_rng(number)
        words = letters[dice.integers(0, len(letters), num_rows * 16)].tobytes().decode()
        texts = [words[at : at + 16] for at in range(0, len(words), 16)]
        rows = pa.table({"text": texts})
        lance_io.write_dataset(rows, str(tmp_path / "t"), mode="append" if number else "create")
    late = LatePool()
    monkeypatch.setattr(pool, "_pool", late)
    monkeypatch.setenv("LANCE_CPU_THREADS", "2")
    monkeypatch.setattr(limits, "SCAN_AHEAD_BYTES", 4_000_000)
    monkeypatch.setattr(limits, "SCAN_PART_BYTES", 1_000_000)
    ds = lance_io.dataset(str(tmp_path / "t"))
    expected: list[int] = []
    decode = scan_sync._PieceQueue._decode

    def noted(queue: Any, job: Any) -> Any:
        expected.append(job.expected_bytes)
        return decode(queue, job)

    monkeypatch.setattr(scan_sync._PieceQueue, "_decode", noted)
    at_once = []
    for batch in ds.to_batches():
        at_once.append(late.num_open)
        assert batch.num_rows
    assert len(expected) == NUM_FILES
    decoded_bytes = 16 * num_rows + 4 * num_rows
    assert expected[0] > 2 * decoded_bytes  # three times its bytes, and an offset of eight bytes for each row
    assert decoded_bytes <= expected[-1] < 1.4 * decoded_bytes
    assert max(at_once) > at_once[0]
