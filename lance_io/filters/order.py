"""The order of values of any type, as keys that Arrow sorts by.

    type                          keys
    floats                        integers by IEEE total order: -NaN, -inf .. -0.0, 0.0 .. inf, NaN
    dictionaries, extensions      the values, as they are stored
    lists, structs, maps          ranks: item by item, the first difference decides, a shorter list comes first
    others                        themselves

A value that is null itself stays null; nulls inside a value are below or above everything else, as asked for.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io.filters import value_order
from lance_io.levels.arrays import scalar

BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}
"""Types of floats that `total_order` takes, and what it makes of them."""


def sortable(values: pa.ChunkedArray, *, nulls_below: bool) -> pa.ChunkedArray:
    """Keys for the values of a column (see the module's table)."""
    t = values.type
    if isinstance(t, pa.BaseExtensionType):
        stored = pa.chunked_array([chunk.storage for chunk in values.chunks], t.storage_type)
        return sortable(stored, nulls_below=nulls_below)
    if pt.is_dictionary(t):
        return sortable(values.cast(t.value_type), nulls_below=nulls_below)
    if pt.is_float16(t):
        return sortable(values.cast(pa.float32()), nulls_below=nulls_below)
    if pt.is_floating(t):
        return pa.chunked_array([total_order(chunk) for chunk in values.chunks], BITS[t])
    if pt.is_nested(t):
        return pa.chunked_array([_ranks(value_order.sort_keys(values, nulls_below=nulls_below))])
    return values


def total_order(floats: pa.Array, *, same_zero: bool = False) -> pa.Array:
    """Signed integers that sort as floats do in total order: a negative float gets its lower bits flipped.

    same_zero  give -0.0 the key of 0.0; the sum with 0.0 changes nothing else, NaN bits included
    """
    bits = (pc.add(floats, scalar(0.0, floats.type)) if same_zero else floats).view(BITS[floats.type])
    zero, magnitude = scalar(0, bits.type), scalar((1 << (bits.type.bit_width - 1)) - 1, bits.type)
    return pc.if_else(pc.less(bits, zero), pc.bit_wise_xor(bits, magnitude), bits)


def _ranks(keys: list[object]) -> pa.Array:
    """For each key how many distinct ones are smaller; null for None."""
    present = [number for number, key in enumerate(keys) if key is not None]
    ranks = np.zeros(len(keys), dtype=np.int64)
    rank, before = 0, None
    for number in sorted(present, key=lambda one: keys[one]):  # type: ignore[arg-type, return-value]
        rank += keys[number] != before
        ranks[number], before = rank, keys[number]
    return pa.array(ranks, mask=np.array([key is None for key in keys], dtype=np.bool_))
