"""The kernels belong to the process, not to the thread that happens to load them."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import threading
import pyarrow as pa
import lance_io

def work():
    lance_io.write_dataset(pa.table({"a": [1]}), "shared-memory://loading/t", mode="append")

for _ in range(20):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
assert lance_io.dataset("shared-memory://loading/t").count_rows() == 20
"""


def test_the_thread_that_loads_the_kernels_may_end() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=120)
