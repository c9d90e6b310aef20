"""Where vectors are searched, how many requests that makes, and how much memory it takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import lance_io
from lance_io.limits import MIB

if TYPE_CHECKING:
    from tests.servers import S3Server

CHECKOUT = Path(__file__).resolve().parents[3]
VECTORS_MIB = 160
GROWTH_MIB = 96  # pages that are read ahead, and blocks

PROGRAM = """
import sys
import lance_io


def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


ds = lance_io.dataset(sys.argv[1])
nearest = {"column": "v", "q": [[0.5] * 128, [0.1] * 128], "k": 100}
assert ds.get_fragments()[0].to_table(["a"], nearest=nearest, limit=1).num_rows == 1
before = peak()
assert ds.to_table(["a"], nearest=nearest).num_rows == 200
print(peak() - before)
"""


def table(num_rows: int, dim: int) -> pa.Table:
    values = np.random.default_rng(1).normal(size=num_rows * dim).astype("f4")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values), dim)
    return pa.table({"a": range(num_rows), "v": vectors, "long": [f"{number:04}" * 50 for number in range(num_rows)]})


def test_a_search_holds_k_rows_and_a_few_batches(tmp_path: Path) -> None:
    rows = VECTORS_MIB * MIB // 512
    values = table(8192, 128).select(["a", "v"])
    few = values.slice(0, 10)
    parts = [few, *[values] * (rows // 8192)]
    lance_io.write_dataset(few, str(tmp_path))
    batches = pa.Table.from_batches([one for part in parts[1:] for one in part.to_batches()])
    lance_io.write_dataset(batches, str(tmp_path), mode="append")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True, cwd=CHECKOUT
    )
    assert int(done.stdout) < GROWTH_MIB * MIB


def test_memory_is_searched_as_a_folder_is(tmp_path: Path) -> None:
    rows = table(300, 8)
    nearest = {"column": "v", "q": rows["v"][7], "k": 9}
    local = lance_io.write_dataset(rows, str(tmp_path), max_rows_per_file=100)
    memory = lance_io.write_dataset(rows, "memory://", max_rows_per_file=100)
    assert memory.to_table(nearest=nearest) == local.to_table(nearest=nearest)


def requests(ds: Any) -> Any:
    return ds._state.location.store.stats.snapshot()["get"]


async def test_a_bucket_is_searched_with_one_read_of_the_vectors_and_one_take(s3_uri: str, s3: S3Server) -> None:
    """Warm: one request for the vectors of each file, and one for the text of each row that was found."""
    rows = table(300, 8)
    nearest = {"column": "v", "q": rows["v"][7], "k": 3}
    options = {**s3.options(), "allow_http": "true"}
    ds = lance_io.write_dataset(rows, s3_uri, max_rows_per_file=100, storage_options=options)
    expected = lance_io.write_dataset(rows, "memory://").to_table(["long"], nearest=nearest)
    assert ds.to_table(["long"], nearest=nearest) == expected
    ds.to_table(["v"])
    before = requests(ds)
    assert ds.to_table(["_distance"], nearest=nearest).num_rows == 3
    alone = requests(ds) - before
    assert alone.requests == 3
    before = requests(ds)
    assert ds.to_table(["long"], nearest=nearest) == expected
    both = requests(ds) - before
    assert both.requests <= alone.requests + 3
    loop = await lance_io.AsyncDataset.open(s3_uri, storage_options=options)
    assert await loop.to_table(["long"], nearest=nearest) == expected
    await loop.aclose()
