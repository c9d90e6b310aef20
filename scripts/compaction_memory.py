"""Measure how much a fresh process grows while it compacts a table: at most by the memory limit and 256 MiB.

The bound holds for every size of the table.

    python scripts/compaction_memory.py FOLDER --mib 1024 --rows vectors --limit 128 [--mode force_binary_copy] [--peer]

The table has 16 fragments of rows of about 100 bytes (`narrow`), of vectors of 4 KiB (`vectors`) or of blobs of 1 MiB
(`blobs`); one in 50 rows is deleted, except if pages are copied. The script makes the table if it does not exist, and
removes it afterwards, unless `--keep`. `--peer` compacts with pylance instead.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import lance_io

if TYPE_CHECKING:
    from collections.abc import Iterator

FRAGMENTS = 16
KIB, MIB = 1 << 10, 1 << 20
ROW_BYTES = {"narrow": 100, "vectors": 4 * KIB, "blobs": MIB}
ALLOWED_MIB = 256  # beside the limit
WORK = """
import json, sys
def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) << 10
folder, options, peer = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3] == "peer"
if peer:
    import lance as library
    options.pop("memory_limit")
else:
    import lance_io as library
import pyarrow
table = library.dataset(folder)
before = status("VmRSS")
done = table.optimize.compact_files(**options)
grown_bytes, has_pandas = status("VmHWM") - before, "pandas" in sys.modules
figures = {"grown_bytes": grown_bytes, "before_bytes": before, "added": done.fragments_added, "pandas": has_pandas}
print(json.dumps(figures))
"""


def batches(rows: str, num_bytes: int) -> Iterator[pa.RecordBatch]:
    """Rows of `num_bytes` in all, a few MiB at a time."""
    numbers = np.random.default_rng(1)
    step = max(1, 4 * MIB // ROW_BYTES[rows])
    for start in range(0, max(1, num_bytes // ROW_BYTES[rows]), step):
        yield batch_of(rows, numbers, start, step)


def batch_of(rows: str, numbers: np.random.Generator, start: int, num_rows: int) -> pa.RecordBatch:
    """Rows of a kind, numbered from `start`."""
    columns: dict[str, Any] = {"id": pa.array(np.arange(start, start + num_rows))}
    if rows == "vectors":
        values = pa.array(numbers.random(num_rows * 1024, dtype=np.float32))
        columns["v"] = pa.FixedSizeListArray.from_arrays(values, 1024)
    elif rows == "blobs":
        columns["b"] = lance_io.blob_array([numbers.bytes(MIB - number % 7) for number in range(num_rows)])
    else:
        columns["x"] = pa.array(numbers.random(num_rows))
        columns["s"] = pa.array([f"{value:>64.20f}" for value in numbers.random(num_rows)])
        columns["y"] = pa.array(numbers.integers(0, 1 << 40, num_rows))
    return pa.record_batch(columns)


def make_table(folder: str, rows: str, num_bytes: int, *, deletes: bool) -> None:
    """Write a table of this kind."""
    first = batch_of(rows, np.random.default_rng(0), 0, 1)
    fields = [lance_io.blob_field("b") if field.name == "b" else field for field in first.schema]
    schema = pa.schema(fields)
    for number in range(FRAGMENTS):
        parts = (pa.record_batch(batch.columns, schema=schema) for batch in batches(rows, num_bytes // FRAGMENTS))
        reader = pa.RecordBatchReader.from_batches(schema, parts)
        lance_io.write_dataset(reader, folder, mode="append" if number else "create", durability="none")
    if deletes:
        lance_io.dataset(folder).delete("id % 50 = 7")


def measure(folder: str, limit_bytes: int, mode: str | None, *, peer: bool = False) -> dict[str, int]:
    """Compact in a fresh process and return its growth, in bytes."""
    options = {"memory_limit": limit_bytes, "compaction_mode": mode or "reencode"}
    command = [sys.executable, "-c", WORK, folder, json.dumps(options), "peer" if peer else "ours"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    sizes: dict[str, int] = json.loads(done.stdout)
    return sizes


def run(given: argparse.Namespace) -> int:
    """Make the table, compact it, and print the growth; 1 if it is above the bound."""
    folder = str(given.folder)
    if not given.folder.exists():
        make_table(folder, given.rows, given.mib * MIB, deletes=given.mode != "force_binary_copy")
    sizes = measure(folder, given.limit * MIB, given.mode, peer=given.peer)
    if not given.keep:
        shutil.rmtree(folder)
    who = "pylance" if given.peer else "lance_io"
    grown_mib = sizes["grown_bytes"] / MIB
    print(f"{who}, {given.rows}, {given.mib} MiB, limit {given.limit} MiB: grew by {grown_mib:.0f} MiB")
    return int(not given.peer and grown_mib > given.limit + ALLOWED_MIB)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mib", type=int, default=1024, help="size of the table")
    parser.add_argument("--rows", choices=list(ROW_BYTES), default="vectors")
    parser.add_argument("--limit", type=int, default=512, help="memory limit, in MiB")
    parser.add_argument("--mode", choices=["reencode", "force_binary_copy"])
    parser.add_argument("--peer", action="store_true", help="compact with pylance")
    parser.add_argument("--keep", action="store_true", help="leave the table")
    sys.exit(run(parser.parse_args()))
