"""Which pieces of a scan share a job, and that what they give does not depend on it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lance_io import limits
from lance_io.file import LanceFileReader, LanceFileWriter, scan_now
from lance_io.file.pieces import goes_with
from lance_io.limits import SCAN_JOB_BYTES, SCAN_JOB_ROWS

if TYPE_CHECKING:
    from pathlib import Path

FILE, OTHER = object(), object()


def piece(start: int, end: int, num_bytes: int = 1000, *, file: object = FILE, is_whole: bool = True) -> Any:
    return SimpleNamespace(row_start=start, row_end=end, num_bytes=num_bytes, file=file, is_whole=is_whole)


@pytest.mark.parametrize(
    ("group", "following", "expected"),
    [
        ([piece(0, 100)], piece(0, 50), True),
        ([piece(0, 100)], piece(100, 200), True),
        ([piece(0, 100)], piece(100, 200, file=OTHER), False),
        ([piece(0, 100, SCAN_JOB_BYTES - 1000)], piece(100, 200), True),
        ([piece(0, 100, SCAN_JOB_BYTES - 999)], piece(100, 200), False),
        ([piece(5, 100)], piece(100, SCAN_JOB_ROWS + 5), True),
        ([piece(5, 100)], piece(100, SCAN_JOB_ROWS + 6), False),
        ([piece(5, SCAN_JOB_ROWS + 6)], piece(5, SCAN_JOB_ROWS + 6), True),
        ([piece(0, 100)], piece(100, 200, is_whole=False), False),
        ([piece(0, 100, is_whole=False)], piece(100, 200), False),
        ([piece(0, 100, is_whole=False)], piece(0, 100, is_whole=False), True),
    ],
)
def test_what_goes_into_a_job(group: list[Any], following: Any, expected: bool) -> None:
    assert goes_with(following, group) is expected


def test_small_pages_are_decoded_in_few_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"c": pa.array([[i, None] if i % 3 else None for i in range(3000)], pa.list_(pa.int32()))})
    with LanceFileWriter(tmp_path / "f.lance", rows.schema, data_cache_bytes=1) as writer:
        for start in range(0, 3000, 100):
            writer.write_batch(rows.slice(start, 100))
    reader = LanceFileReader(tmp_path / "f.lance")
    jobs: list[int] = []
    decode = scan_now._Ahead._decode

    def counted(self: Any, group: list[Any]) -> list[pa.Array]:
        jobs.append(len(group))
        return decode(self, group)

    monkeypatch.setattr(scan_now._Ahead, "_decode", counted)
    for job_rows, pages_per_job in ((limits.SCAN_JOB_ROWS, 30), (250, 2), (1, 1)):
        jobs.clear()
        monkeypatch.setattr(limits, "SCAN_JOB_ROWS", job_rows)
        assert reader.read_all().to_table().equals(rows)
        assert jobs == [pages_per_job] * (30 // pages_per_job)
