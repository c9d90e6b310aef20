"""Rows of side files that come with the page indexes: rounds as exact numbers, values beside those that were written.

Files are pylance's, whose page indexes lie before the pages, and in a store that plans reads as on S3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter

from lance_io.file.file_steps import FetchedSuffix, Suffix
from lance_io.file.open.file_source import ReadContext
from lance_io.file.take.rows_ahead import WINDOW_BYTES_MAX, RowsAhead
from lance_io.file.take.side_file import SideFile
from lance_io.io.cache import SearchCache
from lance_io.spans import Fetched, Ranges
from lance_io.store.memory import MemoryStore
from lance_io.store.profile import CLOUD, LOCAL

if TYPE_CHECKING:
    from pathlib import Path

    from lance_io.file.file_steps import FileSteps

NUM_ROWS = 200_000
RNG = np.random.default_rng(8)
SMALL_FIRST = np.concatenate([RNG.integers(0, 2, 190_000), RNG.integers(1 << 40, 1 << 41, 10_000)])
COLUMNS: dict[str, pa.Array] = {
    "alike": pa.array(RNG.integers(1 << 32, 1 << 33, NUM_ROWS)),
    "codes": pa.FixedSizeListArray.from_arrays(pa.array(RNG.integers(0, 256, 16 * NUM_ROWS, np.uint8)), 16),
    "small_first": pa.array(SMALL_FIRST),
    "texts": pa.array([f"text {number % 977} {number}" for number in range(NUM_ROWS)]),
    "gaps": pa.array(RNG.integers(1 << 32, 1 << 33, NUM_ROWS), mask=RNG.random(NUM_ROWS) < 0.3),
    "lists": pa.array([[number] * (number % 3) for number in range(NUM_ROWS)]),
}


class Bench:
    """A file of one column in memory, which counts rounds and bytes."""

    def __init__(self, path: Path, column: pa.Array, profile: Any = CLOUD) -> None:
        with LanceFileWriter(str(path), schema=pa.schema([("v", column.type)])) as writer:
            writer.write_batch(pa.table({"v": column}))
        self.data = path.read_bytes()
        self.column = column
        self.context = ReadContext(MemoryStore(profile=profile), SearchCache(1 << 30))
        self.file = self.run(SideFile.open(self.context, "key", len(self.data)))
        self.file._tail = None  # a file so large that its end has no page index

    def run(self, steps: FileSteps[Any]) -> Any:
        """Run a computation on the file."""
        self.rounds, self.num_bytes = 0, 0
        answer: Any = None
        try:
            while True:
                asked = steps.send(answer)
                self.rounds += 1
                if isinstance(asked, Suffix):
                    answer = FetchedSuffix(self.data[-asked.num_bytes :], len(self.data))
                    continue
                assert isinstance(asked, Ranges)
                pieces = [self.data[start:end] for start, end in zip(asked.starts, asked.ends, strict=True)]
                lengths = asked.ends - asked.starts
                self.num_bytes += int(lengths.sum())
                answer = Fetched(b"".join(pieces), np.cumsum(lengths) - lengths)
        except StopIteration as done:
            return done.value

    def check(self, rows: list[int]) -> tuple[int, int]:
        """Read rows, compare them, and return rounds and bytes."""
        (array,) = self.run(self.file.read(["v"], np.array(rows, dtype=np.int64)))
        assert array.to_pylist() == self.column.take(pa.array(rows)).to_pylist()
        return self.rounds, self.num_bytes


def bench(tmp_path: Path, name: str, profile: Any = CLOUD) -> Bench:
    return Bench(tmp_path / "file.lance", COLUMNS[name], profile)


@pytest.mark.parametrize("name", ["alike", "codes", "gaps"])
def test_rows_of_equal_chunks_come_with_the_index(tmp_path: Path, name: str) -> None:
    for rows in ([77], [0, 100_000, 199_999], [*range(50_000, 54_096)]):
        measured = bench(tmp_path, name)
        cold, cold_bytes = measured.check(rows)
        warm, warm_bytes = measured.check(rows)
        assert (cold, warm) == (1, 1)
        assert warm_bytes <= cold_bytes <= warm_bytes + len(rows[:3]) * 4 * 8192 + 8192  # the index, and chunks beside


def test_rows_outside_their_windows_cost_a_round_and_are_right(tmp_path: Path) -> None:
    measured = bench(tmp_path, "small_first")
    assert measured.check([0, 90_000, 199_999])[0] == 2  # the first and the last rows are where they should be
    assert measured.check([5, 90_001, 199_998])[0] == 1


@pytest.mark.parametrize("name", ["texts", "lists"])
def test_rows_of_other_pages_are_right(tmp_path: Path, name: str) -> None:
    measured = bench(tmp_path, name)
    assert measured.check([3, 70_000, 199_000])[0] <= 2
    assert measured.check([4, 70_001, 199_001])[0] == 1


def test_known_and_unknown_pages_are_read_in_one_round(tmp_path: Path) -> None:
    """The column has several pages; the index of one of them is known."""
    column = pa.array(RNG.integers(1 << 60, 1 << 62, 3_000_000))
    measured = Bench(tmp_path / "file.lance", column)
    assert measured.check([5])[0] == 1
    assert measured.check([6, 1_500_000, 2_999_999])[0] == 1


def test_no_window_where_requests_cost_nothing_or_many_bytes(tmp_path: Path) -> None:
    assert bench(tmp_path, "alike", LOCAL).check([77])[0] == 2
    column = pa.FixedSizeListArray.from_arrays(pa.array(RNG.integers(0, 256, 128 * NUM_ROWS, np.uint8)), 128)
    measured = Bench(tmp_path / "file.lance", column)
    rows = [*range(0, NUM_ROWS, 100)]  # each in another chunk
    assert measured.check(rows)[0] == 2
    assert measured.num_bytes > WINDOW_BYTES_MAX


def test_ranges_are_answered_from_windows_in_any_order() -> None:
    """Beside slices of the file, by random windows and ranges."""
    data = RNG.bytes(4096)
    for _ in range(300):
        borders = np.sort(RNG.choice(4096, 2 * int(RNG.integers(1, 6)), replace=False)).astype(np.int64)
        starts, ends = borders[::2].copy(), borders[1::2].copy()
        held = b"".join(data[start:end] for start, end in zip(starts, ends, strict=True))
        ahead = RowsAhead(Ranges(starts, ends), Fetched(held, np.cumsum(ends - starts) - (ends - starts)))
        first = RNG.integers(0, 4096, 8)
        wanted = Ranges(first, np.minimum(first + RNG.integers(0, 60, 8), 4096))

        def ask(wanted: Ranges = wanted) -> Any:
            fetched = yield wanted
            lengths = (wanted.ends - wanted.starts).tolist()
            return [bytes(fetched.piece(at, length)) for at, length in enumerate(lengths)]

        steps, answer = ahead.serve(ask()), None
        try:
            while True:
                asked = steps.send(answer)
                inside = [
                    any(low <= start and end <= high for low, high in zip(starts, ends, strict=True))
                    for start, end in zip(asked.starts, asked.ends, strict=True)
                ]
                assert not any(inside)
                pieces = [data[start:end] for start, end in zip(asked.starts, asked.ends, strict=True)]
                lengths = asked.ends - asked.starts
                answer = Fetched(b"".join(pieces), np.cumsum(lengths) - lengths)
        except StopIteration as done:
            expected = [data[start:end] for start, end in zip(wanted.starts, wanted.ends, strict=True)]
            assert done.value == expected
