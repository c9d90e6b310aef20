"""The keys that a merge inserted, as a Bloom filter in its transaction: detects concurrent inserts of a key.

Only for keys that are the table's declared primary key. It is a split block Bloom filter, of the same size as
pylance's, over XXH64 of the key's bytes: strings and binary values unchanged, numbers as 8 bytes; if the key has
several columns, a zero byte follows each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io._kernels import add_to_bloom
from lance_io.changes.join.row_keys import has_key
from lance_io.changes.merge.merge_clauses import primary_key
from lance_io.levels.arrays import numbers
from lance_io.table.transaction.operations import KeyFilter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_io.format.schema import Schema

FILTER_BYTES: Final = 1 << 15
NUM_ITEMS: Final = 8192
PROBABILITY: Final = 0.00057


class InsertedKeys:
    """Collects keys. on: key columns of `schema`."""

    def __init__(self, on: Sequence[str], schema: Schema) -> None:
        by_name = {field.name: field.id for field in schema.fields}
        self._on = tuple(on)
        self._field_ids = tuple(by_name[name] for name in on)
        self._bitmap = np.zeros(FILTER_BYTES, np.uint8)

    @classmethod
    def wanted(cls, on: Sequence[str], schema: Schema) -> InsertedKeys | None:
        """A collector if the key columns are the primary key, else None."""
        return cls(on, schema) if sorted(primary_key(schema)) == sorted(on) else None

    def add(self, columns: Mapping[str, pa.Array]) -> None:
        """Add the keys of rows, given by their columns; ignores keys with a null, which match nothing."""
        arrays = [columns[name] for name in self._on]
        known = has_key(arrays)
        if known is not None:
            positions = numbers(np.flatnonzero(known))
            arrays = [array.take(positions) for array in arrays]
        parts = [_key_bytes(array) for array in arrays]
        keys = parts[0]
        if len(parts) > 1:
            zero, end = pa.scalar(b"\0", pa.large_binary()), pa.scalar(b"", pa.large_binary())
            keys = pc.binary_join_element_wise(*parts, end, zero)
        if len(keys):
            _, offsets, data = keys.buffers()
            add_to_bloom(self._bitmap, memoryview(offsets)[keys.offset * 8 :], data or b"", True, len(keys))

    def filter(self) -> KeyFilter:
        """The filter for the transaction."""
        return KeyFilter(self._field_ids, None, self._bitmap.tobytes(), 8 * FILTER_BYTES, NUM_ITEMS, PROBABILITY)


def _key_bytes(array: pa.Array) -> pa.LargeBinaryArray:
    """The bytes of a key's values in the filter: types that pylance does not support are formatted as text."""
    dtype = array.type
    if pt.is_string(dtype) or pt.is_binary(dtype) or pt.is_large_string(dtype) or pt.is_large_binary(dtype):
        return array.cast(pa.large_binary())
    if pt.is_integer(dtype):
        words = array.cast(pa.uint64() if pt.is_unsigned_integer(dtype) else pa.int64())
        offsets = pa.py_buffer(np.arange(0, 8 * len(array) + 1, 8, dtype=np.int64))
        data = words.buffers()[1].slice(8 * words.offset, 8 * len(words)) if len(words) else pa.py_buffer(b"")
        return pa.Array.from_buffers(pa.large_binary(), len(array), [None, offsets, data])
    return array.cast(pa.large_string()).cast(pa.large_binary())
