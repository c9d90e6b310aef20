"""Roaring bitmaps: our own reader and writer beside `pyroaring`, on what deletion files and row id sets hold.

    python -m benchmarks.bitmaps          needs `pyroaring`, which nothing else here does

docs/decisions/009-roaring.md has what came of it. The bytes of cases named `pylance` are deletion files that it wrote.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from array import array
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pyroaring

from lance_io.changes.edits.delete_rows import _merge_offsets
from lance_io.codecs.roaring import decode_roaring, encode_roaring
from lance_io.reads.rows.row_arithmetic import LiveRows
from lance_io.spans import distinct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MILLION = 1_000_000
LEAST_S, TRIES_MAX = 0.1, 50
BATCH_ROWS = 8192


def best(work: Callable[[], Any]) -> float:
    """The shortest of some tries, in seconds."""
    times: list[float] = []
    while len(times) < 2 or (sum(times) < LEAST_S and len(times) < TRIES_MAX):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def deletion_file(predicate: str, num_rows: int) -> bytes:
    """What pylance writes when it deletes rows of one fragment."""
    with tempfile.TemporaryDirectory() as folder:
        rows = pa.table({"a": np.arange(num_rows)})
        dataset = lance.write_dataset(rows, folder, max_rows_per_file=num_rows)
        dataset.delete(predicate)
        [file] = (Path(folder) / "_deletions").iterdir()
        return file.read_bytes()


def cases() -> Iterator[tuple[str, int, bytes]]:
    """Name, rows of the fragment, bytes of the bitmap."""
    rng = np.random.default_rng(7)
    yield "pylance: a % 10 = 3, 10 M", 10 * MILLION, deletion_file("a % 10 = 3", 10 * MILLION)
    yield "pylance: a % 2 = 0, 10 M", 10 * MILLION, deletion_file("a % 2 = 0", 10 * MILLION)
    yield "pylance: a < 4 M, 10 M", 10 * MILLION, deletion_file("a < 4000000", 10 * MILLION)
    for name, num_rows, share in (
        ("1 of 100,000, 1 M", MILLION, 1e-5),
        ("1 %, 10 M", 10 * MILLION, 0.01),
        ("50 %, 10 M", 10 * MILLION, 0.5),
        ("1 %, 100 M", 100 * MILLION, 0.01),
        ("30 %, 100 M", 100 * MILLION, 0.3),
    ):
        yield name, num_rows, encode_roaring(np.flatnonzero(rng.random(num_rows) < share).astype(np.uint32))
    runs = pyroaring.BitMap()
    for start in range(0, 100 * MILLION, 1_000_000):
        runs.add_range(start, start + 700_000)
    runs.run_optimize()
    yield "runs of 700,000, 100 M", 100 * MILLION, runs.serialize()


def contained(bitmap: pyroaring.BitMap, numbers: list[int]) -> list[bool]:
    """Which of the numbers are in a bitmap; it has no such question about many."""
    return [one in bitmap for one in numbers]


def measure(num_rows: int, data: bytes) -> Iterator[tuple[str, float, float]]:
    """What is done, and how long it takes us and `pyroaring`."""
    rng = np.random.default_rng(8)
    ours, theirs = decode_roaring(data), pyroaring.BitMap.deserialize(data)
    assert np.array_equal(ours, np.frombuffer(theirs.to_array(), dtype=np.uint32))
    wide = ours.astype(np.int64)
    live = LiveRows(num_rows, wide)
    yield "parse", best(lambda: decode_roaring(data)), best(lambda: pyroaring.BitMap.deserialize(data))
    yield (
        "parse to an array",
        best(lambda: decode_roaring(data).astype(np.int64)),
        best(lambda: np.frombuffer(pyroaring.BitMap.deserialize(data).to_array(), dtype=np.uint32).astype(np.int64)),
    )
    for count in (1, 100, 10_000):
        picks = rng.integers(0, num_rows, count)
        listed = picks.tolist()
        found = live.is_deleted(picks)
        assert found.tolist() == [one in theirs for one in listed]
        yield (
            f"{count} offsets: deleted?",
            best(partial(live.is_deleted, picks)),
            best(partial(contained, theirs, listed)),
        )
    if live.num_live:
        left = theirs.flip(0, num_rows)
        picks = rng.integers(0, live.num_live, 100)
        assert live.offsets(picks).tolist() == [left[one] for one in picks.tolist()]
        yield (
            "100 positions: offsets",
            best(lambda: live.offsets(picks)),
            best(lambda: [left[one] for one in picks.tolist()]),
        )
    starts = range(0, num_rows - BATCH_ROWS, max(BATCH_ROWS, num_rows // 100))

    def mask_theirs(start: int) -> Any:
        among = theirs & pyroaring.BitMap(range(start, start + BATCH_ROWS))
        return np.frombuffer(among.to_array(), dtype=np.uint32).astype(np.int64) - start

    assert all(np.array_equal(live.deleted_between(one, one + BATCH_ROWS), mask_theirs(one)) for one in starts)
    yield (
        "a hundred batches of a scan",
        best(lambda: [live.deleted_between(one, one + BATCH_ROWS) for one in starts]),
        best(lambda: [mask_theirs(one) for one in starts]),
    )
    few = live.offsets(distinct(rng.integers(0, live.num_live, max(1, num_rows // 1000)))).astype(np.uint32)
    few_theirs = pyroaring.BitMap(few)
    assert (theirs | few_theirs).serialize() is not None
    yield "union with 0.1 %", best(lambda: _merge_offsets(few, ours)), best(lambda: theirs | few_theirs)
    yield "serialise", best(lambda: encode_roaring(ours)), best(theirs.serialize)
    yield (
        "an array to bytes",
        best(lambda: encode_roaring(ours)),
        best(lambda: pyroaring.BitMap(array("I", ours.tobytes())).serialize()),
    )


def import_s(module: str) -> float:
    """Time of an import in a new process that has numpy."""
    program = f"import numpy, time\nbegan = time.perf_counter()\nimport {module}\nprint(time.perf_counter() - began)"
    run = [float(subprocess.check_output([sys.executable, "-c", program])) for _ in range(5)]
    return min(run)


def main() -> None:
    """Print all numbers."""
    print(f"import pyroaring {1e3 * import_s('pyroaring'):.1f} ms")
    for name, num_rows, data in cases():
        print(f"\n{name}: {len(data):,} bytes")
        for what, ours_s, theirs_s in measure(num_rows, data):
            print(f"  {what:<30} {1e3 * ours_s:>10.3f} ms {1e3 * theirs_s:>10.3f} ms   {theirs_s / ours_s:>7.2f} x")


if __name__ == "__main__":
    main()
