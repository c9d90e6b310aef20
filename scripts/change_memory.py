"""Measure the memory of a change of a table: the peak of a fresh process, less its memory after import and opening.

    python scripts/change_memory.py update rows --size-mib 1024 --limit-mib 128
    python scripts/change_memory.py merge vectors --size-mib 4096 --limit-mib 512 --library lance

    change  update (1 % of the rows), merge (10 %, of a reader, in no order), patch (the same, of two columns, as
            columns), compact (16 fragments or more, each of less than 500,000 rows); of all rows: rewrite (an update of
            the widest column), column (a new one, computed from it), take and shuffle (of it, in order or in none)
    kind    rows (100 B), vectors (4 KB), blobs (1 MB), sparse (vectors of which the table has none, but the source of a
            merge), texts (1 MB, which compress a hundredfold), zeros (the same, compressed a thousandfold by zstd)

Makes the table in `--folder`, a temporary one by default, and removes it. Prints JSON: sizes in MiB, seconds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

MIB: Final = 1 << 20
ROW_BYTES: Final = {"rows": 100, "vectors": 4096, "blobs": MIB, "sparse": 4096, "texts": MIB, "zeros": MIB}
BATCH_BYTES: Final = 4 * MIB
CHANGES: Final = ("update", "merge", "patch", "compact", "rewrite", "column", "take", "shuffle")
TAKES: Final = ("take", "shuffle")
FRAGMENTS_MIN: Final = 16
FRAGMENT_ROWS_MAX: Final = 400_000
SCATTER: Final = 1_000_003  # a prime that divides no number of rows here
DURABILITY: Final = {"durability": "none"}


class SourceNumbers:
    """The row numbers of a merge's source, made on demand: each tenth row of a table, scattered, and new ones."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows

    def __len__(self) -> int:
        return self.num_rows // 10 + self.num_rows // 100

    def __getitem__(self, part: slice) -> Any:
        import numpy as np

        indices = np.arange(*part.indices(len(self)))
        old = self.num_rows // 10
        return np.where(indices < old, indices * SCATTER % self.num_rows, indices - old + self.num_rows)


def batches(kind: str, numbers: Any, *, is_source: bool = True) -> Iterator[pa.RecordBatch]:
    """Rows of these numbers; the content depends only on the number.

    is_source  whether they are the source of a merge, not the table
    """
    import numpy as np
    import pyarrow as pa

    step = max(1, BATCH_BYTES // ROW_BYTES[kind])
    for start in range(0, len(numbers), step):
        part = numbers[start : start + step]
        random = np.random.default_rng(int(part[0]))
        columns = {"id": pa.array(part), "n": pa.array(part * 2)}
        if kind == "rows":
            for name in "abc":
                columns[name] = pa.array(random.integers(0, 1 << 62, len(part)))
            letters = random.integers(97, 123, 60 * len(part), dtype=np.uint8)
            offsets = np.arange(0, len(letters) + 1, 60, dtype=np.int32)
            columns["text"] = pa.StringArray.from_buffers(len(part), pa.py_buffer(offsets), pa.py_buffer(letters))
        elif kind == "sparse" and not is_source:
            columns["vector"] = pa.nulls(len(part), pa.list_(pa.float32(), 1024))
        elif kind in ("vectors", "sparse"):
            values = pa.array(random.random(1024 * len(part), dtype=np.float32))
            columns["vector"] = pa.FixedSizeListArray.from_arrays(values, 1024)
        elif kind in ("texts", "zeros"):
            words = [f"{number} " * (MIB // len(f"{number} ")) if kind == "texts" else "\0" * MIB for number in part]
            columns["text"] = pa.array(words)
        else:
            columns["blob"] = pa.array([random.bytes(MIB) for _ in range(len(part))], pa.large_binary())
        yield pa.RecordBatch.from_pydict(columns, schema=schema_of(kind))


def schema_of(kind: str) -> pa.Schema:
    """The schema of a kind of table."""
    import pyarrow as pa

    more = {
        "rows": [("a", pa.int64()), ("b", pa.int64()), ("c", pa.int64()), ("text", pa.string())],
        "vectors": [("vector", pa.list_(pa.float32(), 1024))],
        "sparse": [("vector", pa.list_(pa.float32(), 1024))],
        "texts": [("text", pa.string())],
        "zeros": [pa.field("text", pa.string(), metadata={"lance-encoding:compression": "zstd"})],
        "blobs": [pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})],
    }[kind]
    return pa.schema([("id", pa.int64()), ("n", pa.int64()), *more])


def reader(kind: str, numbers: Any, *, is_source: bool = True) -> pa.RecordBatchReader:
    """The rows as a stream."""
    import pyarrow as pa

    return pa.RecordBatchReader.from_batches(schema_of(kind), batches(kind, numbers, is_source=is_source))


def make_table(kind: str, num_rows: int, path: str) -> None:
    """Write the table, stream by stream."""
    import numpy as np

    import lance_io

    version = "2.1" if kind == "blobs" else None
    rows = reader(kind, np.arange(num_rows), is_source=False)
    lance_io.write_dataset(
        rows,
        path,
        data_storage_version=version,
        storage_options=DURABILITY,
        max_rows_per_file=min(FRAGMENT_ROWS_MAX, -(-num_rows // FRAGMENTS_MIN)),
    )


def resident_mib(name: str) -> float:
    """The memory of this process now (`VmRSS`), or its peak (`VmHWM`)."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name)) / 1024


def change(what: str, kind: str, path: str, num_rows: int, limit_mib: int, library: str) -> dict[str, Any]:
    """Make the change in this process, which is fresh."""
    module = __import__(library)
    options = {"storage_options": DURABILITY} if library == "lance_io" else {}
    bounds: dict[str, Any] = {"memory_limit": limit_mib * MIB} if library == "lance_io" else {}
    dataset = module.dataset(path, **options)
    dataset.take([0])
    before, started = resident_mib("VmRSS"), time.perf_counter()
    more: dict[str, Any] = {}
    if what == "update":
        done = dataset.update({"n": "n + 1"}, where="id % 100 = 7", **bounds)
        assert done["num_rows_updated"] == len(range(7, num_rows, 100))
    elif what == "compact":
        compacted = dataset.optimize.compact_files(**bounds)
        assert compacted.fragments_removed > compacted.fragments_added > 0, compacted
    elif what == "rewrite":
        done = dataset.update({"text": "concat(text, 'x')"}, **bounds)
        assert done["num_rows_updated"] == num_rows
    elif what == "column":
        dataset.add_columns({"upper": "upper(text)"}, **bounds)
    elif what in TAKES:
        order = range(num_rows) if what == "take" else [number * SCATTER % num_rows for number in range(num_rows)]
        taken = dataset.take(order, columns=["text"])
        assert taken.num_rows == num_rows
        more["gives"] = round(taken.nbytes / MIB)
    else:
        clauses = dataset.merge_insert("id").when_matched_update_all()
        source = reader(kind, SourceNumbers(num_rows))
        if what == "patch":
            clauses = clauses.write_mode("rewrite_columns")
            source = _narrowed(source)
        else:
            clauses = clauses.when_not_matched_insert_all()
        done = clauses.execute(source, **bounds)
        assert done["num_updated_rows"] == num_rows // 10
    seconds = time.perf_counter() - started
    return {
        "before": round(before),
        "grown": round(resident_mib("VmHWM") - before),
        "seconds": round(seconds, 1),
        **more,
    }


def _narrowed(source: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Two columns of a stream."""
    import pyarrow as pa

    names = ["id", "n"]
    narrow = pa.schema([source.schema.field(name) for name in names])
    return pa.RecordBatchReader.from_batches(narrow, (batch.select(names) for batch in source))


def measure(
    what: str, kind: str, size_mib: int, limit_mib: int, library: str = "lance_io", folder: str | None = None
) -> dict[str, Any]:
    """Make a table, and change it in a fresh process."""
    num_rows = size_mib * MIB // ROW_BYTES[kind]
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        path = f"{scratch}/table"
        call = [sys.executable, __file__, "--run", what, kind, str(num_rows), str(limit_mib), library, path]
        subprocess.run([*call[:2], "--make", *call[3:]], check=True)
        done = subprocess.run(call, check=True, capture_output=True, text=True)
        measured: dict[str, Any] = json.loads(done.stdout)
    return {"change": what, "kind": kind, "size": size_mib, "limit": limit_mib, "library": library, **measured}


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] in (["--make"], ["--run"]):
        what, kind, num_rows, limit_mib, library, path = given[1:]
        if given[0] == "--make":
            make_table(kind, int(num_rows), path)
        else:
            print(json.dumps(change(what, kind, path, int(num_rows), int(limit_mib), library)))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("change", choices=CHANGES)
    parser.add_argument("kind", choices=sorted(ROW_BYTES))
    parser.add_argument("--size-mib", type=int, default=1024)
    parser.add_argument("--limit-mib", type=int, default=128)
    parser.add_argument("--library", choices=["lance_io", "lance"], default="lance_io")
    parser.add_argument("--folder")
    options = parser.parse_args(given)
    print(
        json.dumps(
            measure(options.change, options.kind, options.size_mib, options.limit_mib, options.library, options.folder)
        )
    )


if __name__ == "__main__":
    main()
