"""How much memory the build of an index takes: the peak of a fresh process above the opened table.

python -m tests.index.build_peaks make URI numbers|texts NUM_ROWS     the table, in four fragments
python -m tests.index.build_peaks KIND URI LIMIT_MIB                   one build: MiB, seconds of processor time
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

import lance_io

if TYPE_CHECKING:
    from collections.abc import Iterator

FRAGMENTS: Final = 4
BATCH_ROWS: Final = 1 << 18
STEP: Final = 0x9E3779B97F4A7C15  # odd: its multiples modulo 2**64 come in no order, and none twice
SAMPLE: Final = 20


def values(kind: str, first: int, num_rows: int) -> pa.Array:
    """Distinct values in no order, which depend on their number alone."""
    numbers = np.arange(first, first + num_rows, dtype=np.uint64) * np.uint64(STEP)
    if kind == "numbers":
        return pa.array(numbers.view(np.int64))
    return pa.array([f"user-{number:016x}" for number in numbers.tolist()], pa.string())


def make(uri: str, kind: str, num_rows: int) -> None:
    """The table."""

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, num_rows, BATCH_ROWS):
            yield pa.record_batch({"v": values(kind, first, min(BATCH_ROWS, num_rows - first))})

    schema = pa.schema([("v", values(kind, 0, 0).type)])
    size = -(-num_rows // FRAGMENTS)
    lance_io.write_dataset(batches(), uri, schema=schema, max_rows_per_file=size, durability="none")


def memory_mib(name: str) -> int:
    """The memory that this process has (`VmRSS`), or has had at most (`VmHWM`)."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) >> 10 for line in status if line.startswith(name))


def main(given: list[str]) -> None:
    """The command line."""
    if given[0] == "make":
        uri, kind, num_rows = given[1:]
        make(uri, kind, int(num_rows))
        return
    kind, uri, limit_mib = given
    ds = lance_io.dataset(uri)
    ds.take([0])
    before, began = memory_mib("VmRSS"), time.process_time()
    ds.create_scalar_index("v", kind, memory_limit=int(limit_mib))
    grown, cpu_s = memory_mib("VmHWM") - before, time.process_time() - began
    rows = range(0, ds.count_rows(), max(1, ds.count_rows() // SAMPLE))
    keys = ds.take([*rows])["v"]
    is_right = ds.get("v", keys, ["v"])["v"].to_pylist() == keys.to_pylist()
    print(json.dumps({"grown": grown, "cpu_s": round(cpu_s, 1), "is_right": is_right}))


if __name__ == "__main__":
    main(sys.argv[1:])
