"""The table that functions are computed over: texts, times and documents that are all different, short lists."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

LIST_ITEMS_MAX: Final = 8
VECTOR_WIDTH: Final = 8
TEXT_CHARS: Final = range(12, 28)
_LETTERS: Final = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz  ", np.uint8)  # with spaces: words of some ten letters
_SECONDS: Final = (1_000_000_000, 1_700_000_000)  # of the times, since 1970


def texts(num_rows: int, rng: np.random.Generator) -> pa.StringArray:
    """Small letters and spaces, between ends that are letters."""
    lengths = rng.integers(TEXT_CHARS.start, TEXT_CHARS.stop, num_rows)
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    letters = _LETTERS[rng.integers(0, len(_LETTERS), int(ends[-1]))]
    letters[ends[:-1]] = letters[ends[1:] - 1] = ord("x")
    return pa.StringArray.from_buffers(num_rows, pa.py_buffer(ends), pa.py_buffer(letters))


def lists(num_rows: int, rng: np.random.Generator, make_items: Callable[[int], pa.Array]) -> pa.ListArray:
    """Of up to `LIST_ITEMS_MAX` items."""
    lengths = rng.integers(0, LIST_ITEMS_MAX + 1, num_rows)
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), make_items(int(ends[-1])))


def documents(num_rows: int, rng: np.random.Generator) -> pa.Array:
    """JSON of some 60 bytes."""
    prices, names = rng.random(num_rows).round(3).tolist(), rng.integers(0, 16**8, num_rows).tolist()
    found = [
        {"id": row, "name": f"{name:08x}", "tags": ["a", "b"], "price": price, "ok": row % 2 == 0}
        for row, (name, price) in enumerate(zip(names, prices, strict=True))
    ]
    plain = pa.array([json.dumps(one, separators=(",", ":")) for one in found])
    return pa.ExtensionArray.from_storage(pa.json_(pa.string()), plain)


def _digits(count: int, rng: np.random.Generator) -> pa.Array:
    return pa.array(rng.integers(0, 10, count))


def function_rows(first_id: int, num_rows: int, rng: np.random.Generator) -> pa.Table:
    """Rows `first_id` and following; every column but `small`, `list` and `list2` has another value in each row."""
    ids = np.arange(first_id, first_id + num_rows)
    times = pa.array(rng.integers(*_SECONDS, num_rows) * 10**6, pa.timestamp("us"))
    nested = lists(num_rows, rng, lambda count: lists(count, rng, lambda inner: _digits(inner, rng)))
    keys = pa.array(["a", "b"]).take(pa.array(np.tile([0, 1], num_rows)))
    two_each = pa.array(np.arange(0, 2 * num_rows + 1, 2), pa.int32())
    width = VECTOR_WIDTH * num_rows
    text = texts(num_rows, rng)
    return pa.table(
        {
            "id": ids,
            "small": rng.integers(0, 10, num_rows),
            "nullable": pa.array(ids, mask=rng.random(num_rows) < 0.2),
            "float": rng.random(num_rows),
            "text": text,
            "other": texts(num_rows, rng),
            "padded": pc.binary_join_element_wise("  ", text, "  ", ""),
            "hex": pa.array([f"{one:016x}" for one in rng.integers(0, 2**63, num_rows).tolist()]),
            "time": times,
            "day": times.cast(pa.date32(), safe=False),
            "shown": pc.strftime(times.cast(pa.timestamp("s")), format="%Y-%m-%d %H:%M:%S"),
            "clock": pc.strftime(times.cast(pa.timestamp("s")), format="%H:%M:%S"),
            "list": lists(num_rows, rng, lambda count: _digits(count, rng)),
            "list2": lists(num_rows, rng, lambda count: _digits(count, rng)),
            "nested": nested,
            "vector": pa.FixedSizeListArray.from_arrays(rng.standard_normal(width, dtype=np.float32), VECTOR_WIDTH),
            "vector2": pa.FixedSizeListArray.from_arrays(rng.standard_normal(width, dtype=np.float32), VECTOR_WIDTH),
            "pairs": pa.MapArray.from_arrays(two_each, keys, pa.array(rng.integers(0, 10**9, 2 * num_rows))),
            "document": documents(num_rows, rng),
        }
    )
