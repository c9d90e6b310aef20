"""What a process grows by while it streams a table to the disk, or deletes rows: little, whatever the table's size."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
HEAD = """
import sys
import numpy as np
import pyarrow as pa
import lance_io

def peak_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
"""
STREAM = """
def batches(num_mib):
    numbers = np.random.default_rng(1)
    for _ in range(num_mib // 4):
        values = pa.array(numbers.random(1 << 20, dtype=np.float32))
        yield pa.record_batch({"v": pa.FixedSizeListArray.from_arrays(values, 256)})

def write(name, num_mib):
    schema = pa.schema({"v": pa.list_(pa.float32(), 256)})
    reader = pa.RecordBatchReader.from_batches(schema, batches(num_mib))
    lance_io.write_dataset(reader, sys.argv[1] + name, durability="none")

write("/small", 32)
before = peak_kib()
write("/large", 256)
print((peak_kib() - before) << 10)
"""

DELETE = """
from lance_io.runtime import use_cpus

use_cpus(1)  # each thread holds what it decodes
rows = pa.table({"a": np.arange(4_000_000)})
table = lance_io.write_dataset(rows, sys.argv[1] + "/t", durability="none")
table.delete("a < 10")
before = peak_kib()
table.delete("a % 2 = 0")
print((peak_kib() - before) << 10)
"""


def grown_by(program: str, folder: Path) -> int:
    """What a fresh process says that it grew by, in bytes."""
    command = [sys.executable, "-c", HEAD + program, str(folder)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout)


def test_a_stream_leaves_nothing_behind(tmp_path: Path) -> None:
    assert grown_by(STREAM, tmp_path) < 48 * MIB
    assert sum(file.stat().st_size for file in (tmp_path / "large" / "data").iterdir()) > 256 * MIB


def test_a_delete_keeps_the_offsets_of_its_rows(tmp_path: Path) -> None:
    assert grown_by(DELETE, tmp_path) < 20 * 2_000_000
