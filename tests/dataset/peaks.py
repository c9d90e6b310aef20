"""What calls hold of values that compress well: the peak of a fresh process above the opened table.

python -m tests.dataset.peaks make URI KIND NUM_VALUES VALUE_MIB [VERSION]     the table
python -m tests.dataset.peaks CALL URI NUM_VALUES LIMIT_MIB                     one call: MiB that it gives and takes
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

import lance_io

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB: Final = 1 << 20
FRAGMENTS: Final = 4
SCATTER: Final = 7919  # a prime that divides no number of values here


def schema_of(kind: str) -> pa.Schema:
    """A key, and the values: text, or blobs of the first kind."""
    if kind == "blobs":
        return pa.schema(
            [("k", pa.int64()), pa.field("m", pa.large_binary(), metadata={"lance-encoding:blob": "true"})]
        )
    zstd = {"lance-encoding:compression": "zstd"}
    return pa.schema([("k", pa.int64()), pa.field("m", pa.large_string(), metadata=zstd)])


def rows(kind: str, num_values: int, value_bytes: int) -> Iterator[pa.RecordBatch]:
    """All rows, one at a time; the value repeats its key."""
    schema = schema_of(kind)
    for key in range(num_values):
        text = f"{key:8}" * (value_bytes // 8)
        yield pa.record_batch(
            [pa.array([key]), pa.array([text if kind == "texts" else text.encode()], schema.field("m").type)], schema
        )


def make(uri: str, kind: str, num_values: int, value_mib: int, version: str) -> None:
    """The table, in a few fragments."""
    found = rows(kind, num_values, value_mib * MIB)
    size = -(-num_values // FRAGMENTS)
    lance_io.write_dataset(
        found, uri, schema=schema_of(kind), data_storage_version=version, max_rows_per_file=size, durability="none"
    )


def memory_mib(name: str) -> int:
    """What this process has (`VmRSS`), or has had at most (`VmHWM`)."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) >> 10 for line in status if line.startswith(name))


def scan_on_a_loop(uri: str, options: dict[str, Any]) -> int:
    """Rows of a scan of the asynchronous face."""

    async def scan() -> int:
        async with lance_io.AsyncDataset.open(uri) as ds:
            return sum([batch.num_rows async for batch in ds.to_batches(**options)])

    return asyncio.run(scan())


def merge_all(ds: Any, num_values: int, limit: dict[str, int]) -> int:
    """Every row, from a stream, with values as large."""
    value_bytes = len(ds.take([0])["m"][0].as_py())
    source = pa.RecordBatchReader.from_batches(ds.schema, rows("texts", num_values, value_bytes))
    clauses = ds.merge_insert("k").when_matched_update_all().when_not_matched_insert_all()
    return int(clauses.execute(source, **limit)["num_updated_rows"])


def read_parts(uri: str) -> int:
    """Rows of the tasks of a Spark job, one after the other."""
    from lance_io.spark import LanceDataSource

    source = LanceDataSource({"path": uri, "num_partitions": "2"})
    reader = source.reader(source.schema())
    return sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))


def calls(ds: Any, uri: str, num_values: int, limit_mib: int) -> dict[str, Callable[[], Any]]:
    """What is measured; each gives the number of rows, or what it took."""
    limit = {"memory_limit": limit_mib * MIB}
    as_bytes = {"blob_handling": "all_binary"}

    def scan(**options: Any) -> int:
        return sum(batch.num_rows for batch in ds.to_batches(**options))

    return {
        "scan": scan,
        "scan of 8 rows a batch": lambda: scan(batch_size=8),
        "scan on a loop": lambda: scan_on_a_loop(uri, {}),
        "scan with a filter": lambda: scan(filter="k >= 0"),
        "scan with a filter of values": lambda: scan(filter="m is not null"),
        "count_rows with a filter": lambda: ds.count_rows("m is not null"),
        "scan of blobs as bytes": lambda: scan(**as_bytes),
        "scan of blobs on a loop": lambda: scan_on_a_loop(uri, as_bytes),
        "Spark task": lambda: read_parts(uri),
        "take": lambda: ds.take(range(num_values), columns=["m"]),
        "take in no order": lambda: ds.take([n * SCATTER % num_values for n in range(num_values)], columns=["m"]),
        "take of blobs": lambda: ds.get_fragment(0).take(range(-(-num_values // FRAGMENTS)), columns=["m"]),
        "update": lambda: ds.update({"m": "concat(m, 'x')"}, **limit)["num_rows_updated"],
        "merge": lambda: merge_all(ds, num_values, limit),
        "compaction": lambda: ds.optimize.compact_files(**limit).fragments_removed,
        "new column": lambda: ds.add_columns({"n": "upper(m)"}, **limit),
    }


def main(given: list[str]) -> None:
    """The command line."""
    if given[0] == "make":
        uri, kind, num_values, value_mib, version = given[1:]
        make(uri, kind, int(num_values), int(value_mib), version)
        return
    call, uri, num_values, limit_mib = given
    ds = lance_io.dataset(uri)
    ds.take([0])
    act = calls(ds, uri, int(num_values), int(limit_mib))[call]
    before = memory_mib("VmRSS")
    found = act()
    grown = memory_mib("VmHWM") - before
    if isinstance(found, pa.Table):
        print(json.dumps({"rows": found.num_rows, "given": found.nbytes >> 20, "grown": grown}))
    else:
        print(json.dumps({"rows": found, "given": 0, "grown": grown}))


if __name__ == "__main__":
    main(sys.argv[1:])
