"""Which pieces of a scan share a job, and that what they give does not depend on it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io import limits
from lance_io.errors import FormatError
from lance_io.file import LanceFileReader, LanceFileWriter
from lance_io.file.scan import readahead as scan
from lance_io.file.scan import scan_sync as scan_sync
from lance_io.file.scan.page_slices import Piece, fits_group, fits_job
from lance_io.file.scan.readahead import Readahead
from lance_io.format.version import V2_2
from lance_io.io.stats import io_stats
from lance_io.limits import SCAN_FILES_BYTES, SCAN_GROUP_BYTES, SCAN_JOB_ROWS
from lance_io.plans.plan import drive_sync
from lance_io.reads.scan.read_spans import SpanReader
from lance_io.reads.scan.scan_options import scan_options
from lance_io.reads.scan.scan_plan import plan_scan
from lance_io.spans import Ranges

if TYPE_CHECKING:
    from pathlib import Path

    from lance_io.spans import Steps

FILE, OTHER = SimpleNamespace(version=V2_2), SimpleNamespace(version=V2_2)


def piece(
    start: int, end: int, num_bytes: int = 1000, *, file: object = FILE, is_whole: bool = True, growth: int = 1
) -> Any:
    return SimpleNamespace(
        row_start=start,
        row_end=end,
        num_bytes=num_bytes,
        expected_bytes=growth * num_bytes,
        file=file,
        is_whole=is_whole,
    )


@pytest.mark.parametrize(
    ("group", "following", "expected"),
    [
        ([piece(0, 100)], piece(0, 50), True),
        ([piece(0, 100)], piece(100, 200), True),
        ([piece(0, 100)], piece(100, 200, file=OTHER), False),
        ([piece(0, 100, SCAN_GROUP_BYTES - 1000)], piece(100, 200), True),
        ([piece(0, 100, SCAN_GROUP_BYTES - 999)], piece(100, 200), False),
        ([piece(5, 100)], piece(100, SCAN_JOB_ROWS + 5), True),
        ([piece(5, 100)], piece(100, SCAN_JOB_ROWS + 6), False),
        ([piece(5, SCAN_JOB_ROWS + 6)], piece(5, SCAN_JOB_ROWS + 6), True),
        ([piece(0, 100)], piece(100, 200, is_whole=False), False),
        ([piece(0, 100, is_whole=False)], piece(100, 200), False),
        ([piece(0, 100, is_whole=False)], piece(0, 100, is_whole=False), True),
    ],
)
def test_what_is_read_in_one_go(group: list[Any], following: Any, expected: bool) -> None:
    num_bytes = sum(one.num_bytes for one in group)
    assert fits_group(following, group[0], num_bytes, SCAN_GROUP_BYTES) is expected


@pytest.mark.parametrize(
    ("groups", "following", "expected"),
    [
        ([[piece(0, 100)]], piece(0, 100), True),
        ([[piece(0, 100), piece(0, 100, SCAN_FILES_BYTES - 3000)], [piece(0, 9)]], piece(0, 100), True),
        ([[piece(0, 100), piece(0, 100, SCAN_FILES_BYTES - 2999)], [piece(0, 9)]], piece(0, 100), False),
        ([[piece(5, 105), piece(5, 105)], [piece(0, SCAN_JOB_ROWS - 105)]], piece(7, 12), True),
        ([[piece(5, 105), piece(5, 105)], [piece(0, SCAN_JOB_ROWS - 105)]], piece(7, 13), False),
    ],
)
def test_which_files_share_a_job(groups: list[list[Any]], following: Any, expected: bool) -> None:
    job = scan_sync._Job(lambda _: [])
    for file, group in enumerate(groups):
        for one in group:
            one.file = file
            job.add((0, 0, one))
    assert job.num_rows == sum(group[-1].row_end - group[0].row_start for group in groups)
    assert fits_job(following, job.num_rows, job.num_bytes, job.expected_bytes) is expected


@pytest.mark.parametrize("num_found", [0, 79, 80, 81])
def test_a_page_of_which_nearly_all_is_wanted_has_as_many_rows_as_it_should(num_found: int) -> None:
    """Kernels count rows as well; here a page does not."""

    def scanned() -> Steps[pa.Array]:
        yield from ()
        return pa.array(range(num_found))

    page = SimpleNamespace(scan=scanned, index_ranges=lambda: Ranges(np.zeros(1, int), np.ones(1, int)))
    column = SimpleNamespace(pages=[None, page], row_starts=np.array([0, 20, 100]), where="column 3")
    one = Piece(cast("Any", SimpleNamespace(key="a.lance")), cast("Any", column), 1, 21, 99, 1000, None, False)
    with pytest.raises(StopIteration if num_found == 80 else FormatError) as caught:
        next(one.steps())
    if isinstance(caught.value, StopIteration):
        assert caught.value.value.to_pylist() == list(range(1, 79))
    else:
        text = str(caught.value)
        assert f"{num_found} rows decoded; the page has 80" in text
        assert "a.lance" in text and "column 3, page 1" in text


@pytest.mark.parametrize(("threads", "expected"), [("1", 1), ("2", 4)])
def test_without_other_threads_more_is_read_in_one_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: str, expected: int
) -> None:
    values = np.random.default_rng(2).integers(0, 1 << 62, (4, 100_000))  # 0.8 MB a column
    rows = pa.table(dict(zip("abcd", values, strict=True)))
    lance.write_dataset(rows, tmp_path / "t.lance")
    table = lance_io.dataset(tmp_path / "t.lance")
    table.take([0])  # the file's metadata and indexes are known
    monkeypatch.setenv("LANCE_CPU_THREADS", threads)
    with io_stats() as seen:
        assert table.to_table() == rows
    assert seen.num_reads == expected


def test_small_pages_are_decoded_in_few_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"c": pa.array([[i, None] if i % 3 else None for i in range(3000)], pa.list_(pa.int32()))})
    with LanceFileWriter(tmp_path / "f.lance", rows.schema, data_cache_bytes=1) as writer:
        for start in range(0, 3000, 100):
            writer.write_batch(rows.slice(start, 100))
    reader = LanceFileReader(tmp_path / "f.lance")
    jobs: list[int] = []
    decode = scan_sync._PieceQueue._decode

    def counted(self: Any, job: Any) -> list[pa.Array]:
        jobs.extend(len(group) for group in job.groups)
        return decode(self, job)

    monkeypatch.setattr(scan_sync._PieceQueue, "_decode", counted)
    for job_rows, pages_per_job in ((limits.SCAN_JOB_ROWS, 30), (250, 2), (1, 1)):
        jobs.clear()
        monkeypatch.setattr(limits, "SCAN_JOB_ROWS", job_rows)
        assert reader.read_all().to_table().equals(rows)
        assert jobs == [pages_per_job] * (30 // pages_per_job)


FILES = 50


@pytest.fixture(scope="module")
def small_files(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Fifty fragments of 20 rows in two columns; the third fragment has lost one."""
    path = str(tmp_path_factory.mktemp("small") / "table.lance")
    rows = pa.table({"a": range(20 * FILES), "b": [f"row {i}" for i in range(20 * FILES)]})
    lance.write_dataset(rows, path, max_rows_per_file=20).delete("a = 45")
    return path


@pytest.mark.parametrize(
    ("ahead", "files"),
    [
        (Readahead(2), [6, 6]),  # of 50 files as many share a job as leave four jobs for each of two places
        (Readahead(12, 50), [1] * 12),
        (Readahead(1, 50), [12]),
        (Readahead(1, 3), [4]),  # the one that the consumer is in, and three ahead of it
        (Readahead(2, 7), [6, 2]),
        (Readahead(2, 50, is_explicit=True), [1, 1]),
    ],
)
def test_small_files_share_jobs(
    small_files: str, ahead: Readahead, files: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lance_io.dataset(small_files)
    state, options = table._state, scan_options()
    reader = SpanReader(state, drive_sync(plan_scan(state, options)), options, None)
    assert reader._reader is not None
    pieces = scan_sync._PieceQueue(state.context, reader._reader.projection, reader._spans, ahead)
    assert [len(job.groups) for job in pieces._jobs] == files
    pieces.close()
    monkeypatch.setattr(scan, "readahead", lambda *_: ahead)
    expected = lance.dataset(small_files)
    assert list(table.to_batches()) == list(expected.to_batches())
    assert table.to_table() == expected.to_table()


@pytest.fixture(scope="module")
def uneven_files(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Forty fragments of 1 to 600 rows with a few columns."""
    path = str(tmp_path_factory.mktemp("uneven") / "table.lance")
    dice = np.random.default_rng(3)
    for number in range(40):
        num_rows = int(dice.integers(1, 600))
        numbers = dice.integers(0, 1 << 40, num_rows)
        rows = pa.table(
            {
                "a": numbers,
                "b": [f"{each:x}" for each in numbers.tolist()],
                "c": [{"d": each, "e": [each] * (each % 3)} for each in numbers.tolist()],
                "f": [None] * num_rows,
            },
            pa.schema(
                {"a": pa.int64(), "b": pa.string(), "c": pa.struct({"d": pa.int64(), "e": pa.list_(pa.int64())})}
                | {"f": pa.int32()}
            ),
        )
        lance_io.write_dataset(rows, path, mode="append" if number else "create")
    return path


def _spot(piece: Any) -> tuple[str, int, int, int]:
    return piece.file.key, piece.column.index, piece.row_start, piece.row_end


@pytest.mark.parametrize("piece_bytes", [limits.SCAN_PIECE_BYTES, 900])
@pytest.mark.parametrize(("file_bytes", "job_rows"), [(SCAN_FILES_BYTES, SCAN_JOB_ROWS), (9000, 900), (9000, 1 << 20)])
@pytest.mark.parametrize("group_bytes", [SCAN_GROUP_BYTES, 2500])
def test_files_that_are_added_at_once_share_the_same_jobs(
    uneven_files: str,
    piece_bytes: int,
    file_bytes: int,
    job_rows: int,
    group_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether a scan adds the pieces of a file at once, or decides one by one, each job has the same ones."""
    monkeypatch.setattr(limits, "SCAN_PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(limits, "SCAN_FILES_BYTES", file_bytes)
    monkeypatch.setattr(limits, "SCAN_JOB_ROWS", job_rows)
    monkeypatch.setattr(scan_sync, "group_bytes", lambda _: group_bytes)
    monkeypatch.setattr(limits, "SCAN_JOB_BYTES", group_bytes)
    monkeypatch.setattr("lance_io.file.scan.templates.small_files.RUN_PAGES_MIN", 1 << 20)  # none goes another way
    decode, add_file = scan_sync._PieceQueue._decode, scan_sync._Job.add_file
    jobs: list[list[list[tuple[str, int, int, int]]]] = []
    num_added: list[int] = []

    def noted(queue: Any, job: Any) -> Any:
        jobs.append([[_spot(each) for each in group] for group in job.groups])
        return decode(queue, job)

    def counted(job: Any, *whole: Any) -> None:
        num_added.append(1)
        add_file(job, *whole)

    monkeypatch.setattr(scan_sync._PieceQueue, "_decode", noted)
    monkeypatch.setattr(scan_sync._Job, "add_file", counted)
    table = lance_io.dataset(uneven_files, session=lance_io.Session())
    seen = []
    for _ in range(2):  # the first scan measures the pages
        jobs.clear()
        rows = table.to_table()
        seen.append(sorted(jobs))
    assert seen[0] == seen[1]
    assert num_added
    monkeypatch.setattr(scan_sync._PieceQueue, "_bytes_of_file", lambda _: None)
    jobs.clear()
    assert table.to_table() == rows
    assert sorted(jobs) == seen[0]
