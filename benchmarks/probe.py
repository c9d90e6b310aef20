"""One measurement in a fresh interpreter; run by `cases` as `python -m benchmarks.probe WHAT LIBRARY [PATH]`.

    import            seconds of `import lance_io` or `import lance`
    first             seconds from before the import until the first row of the table at PATH is there
    peak-batches      bytes: highest resident size after going through all batches
    peak-table        bytes: the same after reading all into one table
    growth-batches    bytes: how much of that came with the scan, above what an open table with one row taken needs
    growth-table
    write             bytes: by how much the process grows that writes a table of vectors, given batch by batch; PATH is
                      FOLDER:BYTES

Prints the number and the processor seconds of the process as JSON.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


def open_table(library: str, path: str) -> Any:
    """The table at `path` as `library` opens it: a `pyarrow.dataset.Dataset`, or one that looks like it."""
    if library == "lance_io":
        import lance_io

        return lance_io.dataset(path)
    if library == "pylance":
        import lance

        return lance.dataset(path)
    import pyarrow.dataset

    return pyarrow.dataset.dataset(path, format="parquet")


def seconds_to_import(library: str) -> float:
    """How long the package takes to import."""
    started = time.perf_counter()
    if library == "lance_io":
        import lance_io  # noqa: F401
    elif library == "pylance":
        import lance  # noqa: F401
    else:
        import pyarrow.dataset  # noqa: F401
    return time.perf_counter() - started


def seconds_to_first_row(library: str, path: str) -> float:
    """Import, open, one row."""
    started = time.perf_counter()
    open_table(library, path).take([0])
    return time.perf_counter() - started


def resident_bytes_max() -> int:
    """The highest resident size of this process so far.

    On Linux from /proc: `ru_maxrss` survives `exec`, so it would be that of the much larger process that started us.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def bytes_of_scan(library: str, path: str, whole: bool, above_open: bool) -> float:
    """Peak memory of a scan: in batches or as a whole, in all or above that of an open table."""
    table = open_table(library, path)
    if library != "parquet":  # there a row costs a scan
        table.take([0])
    before = resident_bytes_max() if above_open else 0
    if whole:
        result = table.to_table()
        del result
    else:
        for _ in table.to_batches():
            pass
    return float(resident_bytes_max() - before)


def batches_of_vectors(num_bytes: int) -> pa.RecordBatchReader:
    """A stream of `num_bytes` of random vectors; a batch is made when it is asked for."""
    import numpy as np
    import pyarrow as pa

    width, rows = 128, 8192
    schema = pa.schema({"vector": pa.list_(pa.float32(), width)})
    random = np.random.default_rng(seed=11)

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(max(1, num_bytes // (rows * width * 4))):
            values = random.standard_normal(rows * width, dtype=np.float32)
            yield pa.record_batch([pa.FixedSizeListArray.from_arrays(values, width)], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def bytes_of_write(library: str, folder: str, num_bytes: int) -> float:
    """How much more than a small write a large one needs at most."""
    write_stream(library, f"{folder}/small", batches_of_vectors(1))
    before = resident_bytes_max()
    write_stream(library, f"{folder}/large", batches_of_vectors(num_bytes))
    grown = resident_bytes_max() - before
    shutil.rmtree(folder)
    return float(grown)


def write_stream(library: str, path: str, rows: pa.RecordBatchReader) -> None:
    """Write a stream of batches to a new table, or a Parquet file."""
    if library == "lance_io":
        import lance_io

        lance_io.write_dataset(rows, path, durability="none")
    elif library == "pylance":
        import lance

        lance.write_dataset(rows, path)
    else:
        import pyarrow.parquet as pq

        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with pq.ParquetWriter(path, rows.schema) as writer:
            for batch in rows:
                writer.write_batch(batch)


def measured(what: str, library: str, path: str) -> float:
    """The number that `what` names, of `library`."""
    if what == "import":
        return seconds_to_import(library)
    if what == "first":
        return seconds_to_first_row(library, path)
    if what == "write":
        folder, _, num_bytes = path.rpartition(":")
        return bytes_of_write(library, folder, int(num_bytes))
    part, _, form = what.partition("-")
    return bytes_of_scan(library, path, whole=form == "table", above_open=part == "growth")


if __name__ == "__main__":
    value = measured(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "")
    print(json.dumps({"value": value, "cpu_s": time.process_time()}))
