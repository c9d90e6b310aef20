"""Random nested arrays for tests of the writing side: slices, with garbage under every kind of null."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from lance_io.format.schema_arrow import schema_from_arrow

if TYPE_CHECKING:
    from lance_io.levels.chunks import LeafChunk

LEAVES = st.sampled_from(
    [
        pa.int32(),
        pa.int64(),
        pa.bool_(),
        pa.string(),
        pa.large_binary(),
        pa.binary(3),
        pa.null(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.list_(pa.int16(), 3),
        pa.list_(pa.bool_(), 5),
        pa.list_(pa.list_(pa.uint8(), 2), 3),
    ]
)


def nested(dtype: pa.DataType, kind: str) -> pa.DataType:
    if kind == "struct":
        return pa.struct([pa.field("m", dtype)])
    if kind == "pair":
        return pa.struct([pa.field("m", dtype), pa.field("n", pa.int8())])
    if kind == "map":
        return pa.map_(pa.string(), dtype)
    return pa.large_list(dtype) if kind == "large_list" else pa.list_(dtype)


@st.composite
def types(draw: st.DrawFn, kinds: list[str]) -> pa.DataType:
    dtype = draw(LEAVES)
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=4)):
        dtype = nested(dtype, kind)
    return dtype


class Arrays:
    """Random arrays from a seed."""

    def __init__(self, seed: int, null: float, empty: float) -> None:
        self.dice = np.random.default_rng(seed)
        self.null, self.empty = null, empty

    def array(self, dtype: pa.DataType, length: int, nullable: bool = True) -> pa.Array:
        """An array that is itself a slice of a longer one, as are its members."""
        before, after = self.dice.integers(0, 3, 2)
        whole = self.whole(dtype, int(before + length + after), nullable)
        return whole.slice(before, length)

    def whole(self, dtype: pa.DataType, length: int, nullable: bool) -> pa.Array:
        bitmap, nulls = None, 0
        if nullable and self.null and self.dice.random() < 0.7:
            valid = self.dice.random(length) >= self.null
            bitmap, nulls = pa.py_buffer(np.packbits(valid, bitorder="little")), -1
        if pa.types.is_null(dtype):
            return pa.nulls(length)
        if pa.types.is_dictionary(dtype):
            entries = pa.array(["a", None, "b", "cc", "d"])[: int(self.dice.integers(1, 6))]
            indices = pa.array(self.dice.integers(0, len(entries), length), pa.int8())
            indices = pa.Array.from_buffers(pa.int8(), length, [bitmap, indices.buffers()[1]], nulls)
            return pa.DictionaryArray.from_arrays(indices, entries)
        if pa.types.is_struct(dtype):
            members = [self.array(dtype.field(i).type, length) for i in range(dtype.num_fields)]
            return pa.Array.from_buffers(dtype, length, [bitmap], nulls, children=members)
        if pa.types.is_fixed_size_list(dtype):
            items = self.array(dtype.value_type, length * dtype.list_size)
            return pa.Array.from_buffers(dtype, length, [bitmap], nulls, children=[items])
        if pa.types.is_nested(dtype):
            sizes = np.where(self.dice.random(length) < self.empty, 0, self.dice.integers(0, 4, length))
            offsets = np.concatenate([[0], np.cumsum(sizes)]) + self.dice.integers(0, 3)
            width = np.int64 if pa.types.is_large_list(dtype) else np.int32
            is_map = pa.types.is_map(dtype)
            item = pa.struct([dtype.key_field, dtype.item_field]) if is_map else dtype.value_type
            items = self.entries(item, int(offsets[-1]) + 1) if is_map else self.array(item, int(offsets[-1]) + 1)
            buffers = [bitmap, pa.py_buffer(offsets.astype(width))]
            return pa.Array.from_buffers(dtype, length, buffers, nulls, children=[items])
        return self.leaf(dtype, length, bitmap, nulls)

    def entries(self, dtype: pa.DataType, length: int) -> pa.Array:
        members = [self.array(pa.string(), length, nullable=False), self.array(dtype.field(1).type, length)]
        return pa.StructArray.from_arrays(members, fields=[dtype.field(0), dtype.field(1)])

    def leaf(self, dtype: pa.DataType, length: int, bitmap: pa.Buffer | None, nulls: int) -> pa.Array:
        if pa.types.is_boolean(dtype):
            plain = pa.array(self.dice.random(length) < 0.5)
        elif pa.types.is_fixed_size_binary(dtype):
            plain = pa.array([self.dice.bytes(dtype.byte_width) for _ in range(length)], dtype)
        elif pa.types.is_integer(dtype):
            plain = pa.array(self.dice.integers(0, 100, length), dtype)
        else:
            plain = pa.array([b"x" * n for n in self.dice.integers(0, 4, length)], pa.binary()).cast(dtype)
        return pa.Array.from_buffers(dtype, length, [bitmap, *plain.buffers()[1:]], nulls)


@st.composite
def columns(draw: st.DrawFn, kinds: list[str]) -> tuple[pa.Array, list[int]]:
    """An array and where it is cut into chunks."""
    dtype = draw(types(kinds))
    rows = draw(st.integers(0, 12) | st.sampled_from([70, 200]))
    odds = st.sampled_from([0, 0.2, 0.6, 1])
    array = Arrays(draw(st.integers(0, 1 << 30)), draw(odds), draw(odds)).array(dtype, rows)
    cuts = draw(st.lists(st.integers(0, rows), max_size=3))
    return array, [0, *sorted(cuts), rows]


def field_of(dtype: pa.DataType):
    return schema_from_arrow(pa.schema([pa.field("c", dtype)])).fields[0]


def cut(chunk: LeafChunk, cuts: list[int], own: bool) -> list[LeafChunk]:
    parts = [chunk.slice(start, end - start) for start, end in pairwise(cuts)]
    return [part.copy() for part in parts] if own else parts


def without_offsets(array: pa.Array, buffer: pa.Buffer | None) -> pa.Array:
    """The same values; lists and maps without rows have `buffer` for offsets, at all depths."""
    dtype, buffers = array.type, array.buffers()
    if isinstance(array, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(dtype, without_offsets(array.storage, buffer))
    if not dtype.num_fields:
        return array
    if pa.types.is_struct(dtype):
        children = [without_offsets(array.field(at), buffer) for at in range(dtype.num_fields)]
        return pa.Array.from_buffers(dtype, len(array), buffers[:1], array.null_count, children=children)
    own = buffers[:1] if pa.types.is_fixed_size_list(dtype) else buffers[:2] if len(array) else [None, buffer]
    return pa.Array.from_buffers(
        dtype, len(array), own, array.null_count, children=[without_offsets(array.values, buffer)]
    )
