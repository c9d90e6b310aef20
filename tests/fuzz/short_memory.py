"""Tables that are written while memory is short: one of every codec and layout.

    python -m tests.fuzz.short_memory FOLDER NAME ...     write some, a line of JSON for each

A process makes a table and writes it once, which starts all threads. Then it takes what the allocators keep, limits
its address space to what it has and so much more, and writes again; after each such write it writes a few rows. The
last write has no limit, and what it wrote is read back. `ENVIRONMENT` keeps allocators from mapping memory in advance.
"""

from __future__ import annotations

import json
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

import lance_io

if TYPE_CHECKING:
    from collections.abc import Callable

MIB: Final = 1 << 20
EXTRA_BYTES: Final = tuple(int(MIB * extra) for extra in (0.5, 2, 6))
NUM_ROWS: Final = 120_000
ENVIRONMENT: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TOP_PAD_": "0",
}


def _column(values: pa.Array, metadata: dict[str, str] | None = None) -> pa.Table:
    return pa.table([values], schema=pa.schema([pa.field("c", values.type, metadata=metadata)]))


def _numbers(num_rows: int) -> pa.Array:
    return pa.array(np.random.default_rng(1).integers(0, 1 << 62, num_rows))


def _texts(num_rows: int = NUM_ROWS) -> pa.Array:
    return pa.array([f"the quick brown fox {number} jumps over the lazy dog" for number in range(num_rows)])


def _with_nulls(values: pa.Array) -> pa.Array:
    return pa.array([None if row % 7 == 0 else value for row, value in enumerate(values.to_pylist())], values.type)


def _large() -> pa.Array:
    noise = np.random.default_rng(1).bytes(40_000)
    return pa.array([noise[row * 7 : row * 7 + 20_000] for row in range(350)], pa.binary())


def _packed() -> pa.Array:
    members = [_numbers(NUM_ROWS), pa.array(np.arange(NUM_ROWS) * 0.1)]
    return pa.StructArray.from_arrays(members, ["a", "b"])


def _packed_texts() -> pa.Array:
    return pa.StructArray.from_arrays([pa.array(np.arange(60_000)), _texts(60_000)], ["a", "b"])


def _lists() -> pa.Array:
    offsets = pa.array(np.arange(NUM_ROWS // 2 + 1) * 4, pa.int32())
    return _with_nulls(pa.ListArray.from_arrays(offsets, _numbers(2 * NUM_ROWS)))


def _vectors() -> pa.Array:
    values = pa.array(np.random.default_rng(1).random(NUM_ROWS * 16, np.float32))
    return pa.FixedSizeListArray.from_arrays(values, 16)


def _few() -> pa.Array:
    return pa.DictionaryArray.from_arrays(
        pa.array(np.arange(NUM_ROWS) * 7919 % 50, pa.int32()), pa.array([f"value {i} of fifty" for i in range(50)])
    ).cast(pa.string())


def _wide() -> pa.Table:
    rows = np.arange(1000)
    columns = {f"t{n}": pa.array([f"{n} {row}" for row in rows]) for n in range(150)}
    columns |= {f"i{n}": _with_nulls(pa.array(rows * n * 0x9E3779)) for n in range(150)}
    return pa.table(columns)


# what makes the table, and the file version that it is written in
TABLES: Final[dict[str, tuple[Callable[[], pa.Table], str]]] = {
    "symbols": (lambda: _column(_texts()), "2.1"),
    "symbols, nulls": (lambda: _column(_with_nulls(_texts())), "2.2"),
    "symbols 2.0": (lambda: _column(_texts()), "2.0"),
    "symbols legacy": (lambda: _column(_texts()), "legacy"),
    "zstd": (lambda: _column(_texts(), {"lance-encoding:compression": "zstd"}), "2.2"),
    "lz4": (lambda: _column(_texts(), {"lance-encoding:compression": "lz4"}), "2.1"),
    "dictionary": (lambda: _column(_few()), "2.1"),
    "dictionary 2.0": (lambda: _column(_few()), "2.0"),
    "runs": (lambda: _column(pa.array(np.repeat(np.arange(200_000), 10))), "2.2"),
    "bit-packed": (lambda: _column(pa.array(np.arange(900_000) * 7919 % 1_000_003)), "2.1"),
    "plain": (lambda: _column(pa.array(np.random.default_rng(1).random(900_000))), "2.1"),
    "packed": (lambda: _column(_packed(), {"lance-encoding:packed": "true"}), "2.1"),
    "packed texts": (lambda: _column(_packed_texts(), {"lance-encoding:packed": "true"}), "2.2"),
    "lists": (lambda: _column(_lists()), "2.1"),
    "lists 2.0": (lambda: _column(_lists()), "2.0"),
    "vectors": (lambda: _column(_vectors()), "2.1"),
    "large": (lambda: _column(_large()), "2.1"),
    "large zstd": (lambda: _column(_large(), {"lance-encoding:compression": "zstd"}), "2.2"),
    "large lists": (lambda: _column(pa.array([[value, value] for value in _large().to_pylist()[:300]])), "2.1"),
    "small pages": (_wide, "2.2"),
}


def hoard(extra_bytes: int) -> list[bytes]:
    """Limit the address space to what there is and so much; takes all that allocators have left of what there is."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize()
    kept: list[bytes] = []
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    for size in (MIB, 64 << 10, 4 << 10):
        with suppress(MemoryError):
            while True:
                kept.append(bytes(size))
    resource.setrlimit(resource.RLIMIT_AS, (limit + extra_bytes, resource.RLIM_INFINITY))
    return kept


def write_short(name: str, folder: Path) -> dict[str, Any]:
    """The errors by name, `None` for a write without one, and whether the last write is read as it was."""
    make, version = TABLES[name]
    table = make()

    def write(target: str, what: pa.Table) -> None:
        lance_io.write_dataset(what, str(folder / target), data_storage_version=version)

    write("warm", table)
    errors = []
    for extra_bytes in EXTRA_BYTES:
        kept = hoard(extra_bytes)
        error = None
        try:
            write(f"short{extra_bytes}", table)
        except BaseException as raised:
            error = type(raised).__name__
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        kept.clear()
        write(f"next{extra_bytes}", table.slice(5, 10))
        errors.append(error)
    write("whole", table)
    read = lance_io.dataset(str(folder / "whole")).to_table()
    return {"name": name, "errors": errors, "is_same": read.cast(table.schema).equals(table)}


def main() -> None:
    folder, *names = sys.argv[1:]
    for name in names:
        print(json.dumps(write_short(name, Path(folder) / name)), flush=True)


if __name__ == "__main__":
    main()
