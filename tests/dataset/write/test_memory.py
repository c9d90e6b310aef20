"""What a process grows by while it streams a table to the disk: pages that are open, whatever the table's size."""

import subprocess
import sys

MIB = 1 << 20
PROGRAM = """
import sys
import numpy as np
import pyarrow as pa
import lance_io

def peak_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

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


def test_a_stream_leaves_nothing_behind(tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout)
    assert grown < 48 * MIB
    assert sum(file.stat().st_size for file in (tmp_path / "large" / "data").iterdir()) > 256 * MIB
