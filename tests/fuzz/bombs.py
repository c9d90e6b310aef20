"""Small files of values that decode to much: one of every codec and layout, in each file version that has it.

    python -m tests.fuzz.bombs FILE EXTRA_MIB     read one, a line of JSON for each way

A reader process limits its own address space to what it has after a first scan and so much more, as a service in a
container has it. Whatever it reads is right rows or an error by name; the process outlives it.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lance_io
from lance_io.errors import FormatError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

MIB: Final = 1 << 20
NAMED: Final = (MemoryError, FormatError, UnsupportedError)
ALL: Final = ("2.1", "2.2")


def _texts(num_bytes: int) -> pa.Array:
    return pa.array([f"{number}" + "a" * num_bytes for number in range(3)], pa.large_string())


def _one_text(num_bytes: int) -> pa.Array:
    return pa.array(["a" * num_bytes] * 3, pa.large_string())


def _runs(num_rows: int) -> pa.Array:
    return pa.array(np.repeat(np.arange(max(num_rows // 100_000, 2)), 100_000)[:num_rows], pa.int64())


def _one_list(num_items: int) -> pa.Array:
    items = pa.array(np.zeros(num_items, np.int8))
    return pa.LargeListArray.from_arrays(pa.array([0, num_items], pa.int64()), items)


def _list_of_lists(num_items: int) -> pa.Array:
    inner = pa.LargeListArray.from_arrays(pa.array(np.arange(num_items + 1)), pa.array(np.zeros(num_items, np.int8)))
    return pa.LargeListArray.from_arrays(pa.array([0, num_items], pa.int64()), inner)


def _empty_lists(num_rows: int) -> pa.Array:
    return pa.LargeListArray.from_arrays(pa.array(np.zeros(num_rows + 1, np.int64)), pa.array([], pa.int8()))


def _words(num_rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(
        pa.array(np.arange(num_rows) % 7, pa.int32()), pa.array([f"{i}" * 200 for i in range(7)])
    ).cast(pa.large_string())


def _sentences(num_rows: int) -> pa.Array:
    words = pa.array([f"the quick brown fox number {i % 1000} jumps over the lazy dog" for i in range(10_000)])
    return words.take(pa.array(np.arange(num_rows) % 10_000)).cast(pa.large_string())


# name, what makes the values, how large it is made each day and in a campaign, metadata of the field, file versions
BOMBS: Final[dict[str, tuple[Callable[[int], pa.Array], int, int, dict[str, str], tuple[str, ...]]]] = {
    "zstd": (_texts, 20 * MIB, 400 * MIB, {"lance-encoding:compression": "zstd"}, ALL),
    "lz4": (_texts, 20 * MIB, 400 * MIB, {"lance-encoding:compression": "lz4"}, ALL),
    "one text": (_one_text, 20 * MIB, 400 * MIB, {"lance-encoding:compression": "zstd"}, ALL),
    "rle": (_runs, 1 << 20, 100 << 20, {"lance-encoding:rle-threshold": "0.9"}, ALL),
    "bit-packed": (lambda n: pa.array(np.arange(n) % 3), 1 << 20, 100 << 20, {}, ("2.0", *ALL)),
    "constant": (lambda n: pa.array(np.full(n, 7, np.int64)), 1 << 20, 100 << 20, {}, ALL),
    "null": (lambda n: pa.nulls(n, pa.int64()), 1 << 20, 100 << 20, {}, ("2.0", *ALL)),
    "dictionary": (_words, 1 << 17, 2 << 20, {}, ("2.0", *ALL)),
    "fsst": (_sentences, 1 << 17, 8 << 20, {"lance-encoding:compression": "fsst"}, ("2.0", *ALL)),
    "list": (_one_list, 4 << 20, 200 << 20, {}, ("2.0", *ALL)),
    "list of lists": (_list_of_lists, 4 << 20, 60 << 20, {}, ALL),
    "empty lists": (_empty_lists, 4 << 20, 60 << 20, {}, ALL),
}


def make_bomb(path: Path, name: str, version: str, *, is_full: bool) -> None:
    """Write one as a table of the column `c`."""
    make, small, full, metadata, _ = BOMBS[name]
    values = make(full if is_full else small)
    schema = pa.schema([pa.field("c", values.type, metadata=metadata or None)])
    table = pa.Table.from_arrays([values], schema=schema)
    lance_io.write_dataset(table, str(path), data_storage_version=version)


def _digest(values: pa.Array | pa.ChunkedArray) -> str:
    """What tells values that differ apart, without a copy of them: first, last, bytes."""
    if not len(values):
        return "none"
    ends = [values[0], values[-1]]
    lengths = [
        len(end.as_py() or "") if pa.types.is_large_string(end.type) or pa.types.is_string(end.type)
        else len(end.values) if pa.types.is_nested(end.type) else end.as_py()
        for end in ends
    ]  # fmt: skip
    return f"{lengths} {pc.sum(pc.is_null(values)).as_py()}"


def ways(path: Path) -> dict[str, Callable[[], Any]]:
    """What a service does with a table."""

    def first() -> Any:
        batch = next(iter(lance_io.dataset(str(path)).to_batches(batch_size=1)))
        return batch.num_rows, _digest(batch.column(0))

    def scan() -> Any:
        rows, ends = 0, []
        for batch in lance_io.dataset(str(path)).to_batches():
            rows += batch.num_rows
            if batch.num_rows:
                ends.append(_digest(batch.column(0).slice(batch.num_rows - 1)))
        return rows, ends[-1]

    return {
        "count": lambda: lance_io.dataset(str(path)).count_rows(),
        "take": lambda: _digest(lance_io.dataset(str(path)).take([0])["c"]),
        "first": first,
        "scan": scan,
    }


def read_bomb(path: Path, extra_bytes: int | None) -> list[dict[str, Any]]:
    """Every way: what it found, or the error by name, and its processor time."""
    if extra_bytes is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + extra_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    found = []
    for name, act in ways(path).items():
        started = time.process_time()
        try:
            answer: dict[str, Any] = {"found": act()}
        except NAMED as error:
            answer = {"error": type(error).__name__, "text": str(error)[:200]}
        found.append({"way": name, **answer, "seconds": round(time.process_time() - started, 2)})
    return found


def main() -> None:
    path, extra_mib = Path(sys.argv[1]), int(sys.argv[2])
    warm = path.parent / "warm.lance"
    if not warm.exists():
        lance_io.write_dataset(pa.table({"c": pa.array(range(1000))}), str(warm))
    lance_io.dataset(str(warm)).to_table()
    lance_io.dataset(str(warm)).take([1])
    for line in read_bomb(path, extra_mib * MIB):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
