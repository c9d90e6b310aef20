"""Rows of every type that files of version 0.1 hold, with the rows of a batch (spec: legacy 0.1, section 11)."""

from __future__ import annotations

import decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = 700
ROWS_PER_FILE = 400  # so that every table has several files, and batches end before them


def some_lists(make: Callable[[int], Any]) -> list[Any]:
    """Lists of up to three items, empty and null ones among them."""
    return [None if i % 7 == 0 else [make(j) for j in range(i % 4)] for i in range(ROWS)]


def _numbers() -> pa.Table:
    dice = np.random.default_rng(1)
    dtypes = [np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)] + [
        np.dtype(f"f{n}") for n in (2, 4, 8)
    ]
    return pa.table({str(dtype): pa.array(dice.integers(0, 100, ROWS).astype(dtype)) for dtype in dtypes})


def _texts(dtype: pa.DataType, *, nullable: bool) -> pa.Table:
    nothing = None if nullable else ""
    texts = [nothing if i % 7 == 0 else "" if i % 5 == 0 else f"text {i}" for i in range(ROWS)]
    return pa.table([pa.array(texts).cast(dtype)], schema=pa.schema([pa.field("s", dtype, nullable)]))


def _temporal() -> pa.Table:
    dice = np.random.default_rng(2)
    zones = {"s": None, "us": "UTC", "ns": "America/New_York", "ms": "+05:30"}
    dtypes = [pa.timestamp(unit, zone) for unit, zone in zones.items()]
    dtypes += [pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
    dtypes += [pa.duration("s"), pa.duration("ns")]
    numbers = pa.array(dice.integers(0, 80_000, ROWS))
    days = pa.array(dice.integers(0, 80_000, ROWS) * 86_400_000)
    columns = {}
    for dtype in dtypes:
        stored = numbers.cast(pa.int32()) if dtype.bit_width == 32 else days if dtype == pa.date64() else numbers
        columns[str(dtype)] = stored.view(dtype)
    return pa.table(columns)


def _lists() -> pa.Table:
    return pa.table(
        {
            "numbers": pa.array(some_lists(int), pa.list_(pa.int64())),
            "large": pa.array(some_lists(int), pa.large_list(pa.int32())),
            "texts": pa.array(some_lists(lambda j: None if j == 1 else f"text {j}"), pa.list_(pa.string())),
            "flags": pa.array(some_lists(lambda j: j % 2 == 0), pa.list_(pa.bool_())),
            "nothing": pa.array(some_lists(lambda j: None), pa.list_(pa.null())),
            "vectors": pa.array(some_lists(lambda j: [float(j)] * 2), pa.list_(pa.list_(pa.float32(), 2))),
            "lists": pa.array(some_lists(lambda j: ["word"] * j), pa.list_(pa.list_(pa.string()))),
        }
    )


def _structs() -> pa.Table:
    rows = range(ROWS)
    deep = [None if i % 9 == 0 else {"a": i, "b": f"text {i}", "c": {"d": i / 2}} for i in rows]
    items = [None if i % 5 == 0 else [{"x": f"word {j}", "y": j * 1.0} for j in range(i % 3)] for i in rows]
    inside = [{"l": [i] * (i % 3), "ll": [["w"] * (i % 2)] * (i % 4)} for i in rows]
    return pa.table({"deep": deep, "items": items, "inside": inside})


def _dictionary(keys: pa.DataType, values: pa.Array) -> pa.Table:
    some = pa.array([None if i % 11 == 0 else i % len(values) for i in range(ROWS)], keys)
    column = pa.DictionaryArray.from_arrays(some, values)
    lists = pa.ListArray.from_arrays(pa.array(np.arange(ROWS + 1), pa.int32()), column)
    return pa.table({"d": column, "s": pa.StructArray.from_arrays([column], ["d"]), "l": lists})


def _vectors() -> pa.Table:
    rows = range(ROWS)
    return pa.table(
        {
            "v": pa.array([None if i % 4 == 0 else [float(i), None, 1.0] for i in rows], pa.list_(pa.float32(), 3)),
            "flags": pa.array([[i % 2 == 0, i % 3 == 0, None] for i in rows], pa.list_(pa.bool_(), 3)),
            "deep": pa.array([[[i, i + 1], [i + 2, i + 3]] for i in rows], pa.list_(pa.list_(pa.int32(), 2), 2)),
            "fixed": pa.array([None if i % 4 == 0 else b"%05d" % i for i in rows], pa.binary(5)),
        }
    )


def _decimals() -> pa.Table:
    numbers = [decimal.Decimal(-i) / 100 for i in range(ROWS)]
    return pa.table({"d128": pa.array(numbers, pa.decimal128(10, 2)), "d256": pa.array(numbers, pa.decimal256(50, 2))})


def _nulls() -> pa.Table:
    some = pa.array([None if i % 3 == 0 else i for i in range(ROWS)], pa.int32())
    flags = pa.array([None if i % 5 == 0 else i % 2 == 0 for i in range(ROWS)])
    none = pa.nulls(ROWS)
    return pa.table({"i": some, "flags": flags, "all": none.cast(pa.int64()), "s": none.cast(pa.string()), "n": none})


CASES: dict[str, tuple[pa.Table, int]] = {
    "numbers": (_numbers(), 300),
    "flags": (pa.table({"b": np.random.default_rng(3).integers(0, 2, ROWS) == 1}), 33),
    "flags in large batches": (pa.table({"b": np.random.default_rng(3).integers(0, 2, ROWS) == 1}), 301),
    "nulls": (_nulls(), 33),
    "dictionary with a null value": (_dictionary(pa.int8(), pa.array(["a", None, "c"])), 128),
    "vectors": (_vectors(), 33),
    "decimals": (_decimals(), 128),
    "temporal": (_temporal(), 128),
    "null alone": (pa.table({"n": pa.nulls(10)}), 4),
    "lists": (_lists(), 111),
    "structs": (_structs(), 111),
    **{
        f"{dtype}{'' if nullable else ' without nulls'}": (_texts(dtype, nullable=nullable), 100)
        for dtype in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
        for nullable in (True, False)
    },
    **{
        f"dictionary {keys} of {values.type}, {values[-1]}": (_dictionary(keys, values), 128)
        for keys in (pa.int32(), pa.uint8(), pa.int16())
        for values in (
            pa.array(["a", "bb", "ccc"]),
            pa.array(["a", "bb", ""]),
            pa.array(["a", "b"], pa.large_string()),
            pa.array([7, 8, 9], pa.int64()),
        )
    },
}
