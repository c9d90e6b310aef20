"""Rows with their keys as numbers, beside whatever else is known of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lance_io.changes.join.row_keys import has_key, row_keys
from lance_io.levels.arrays import numbers
from lance_io.levels.join import join_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

KEY: Final = "#key"


@dataclass(frozen=True, slots=True, eq=False)
class KeyedRows:
    """Rows that have keys.

    keys     u64[n] or u64[n, 2]
    columns  what else is known of them
    """

    keys: npt.NDArray[np.uint64]
    columns: pa.RecordBatch

    @classmethod
    def of(cls, key_arrays: Sequence[pa.Array], columns: pa.RecordBatch) -> tuple[KeyedRows, pa.RecordBatch | None]:
        """Rows, and those that have no key, None where all have one."""
        known = has_key(key_arrays)
        if known is None:
            return cls(row_keys(key_arrays), columns), None
        places = numbers(np.flatnonzero(known))
        found = cls(row_keys([array.take(places) for array in key_arrays]), columns.take(places))
        return found, columns.take(numbers(np.flatnonzero(~known)))

    @classmethod
    def joined(cls, parts: Sequence[KeyedRows]) -> KeyedRows:
        """All rows of some parts."""
        if len(parts) == 1:
            return parts[0]
        return cls(np.concatenate([part.keys for part in parts]), join_batches([part.columns for part in parts]))

    def kept(self) -> KeyedRows:
        """The same, of which nothing lies in the memory of the batch that they come from, so that it can be freed."""
        every = numbers(np.arange(self.columns.num_rows))
        return KeyedRows(self.keys.copy(), self.columns.take(every))

    def packed(self) -> pa.RecordBatch:
        """As one batch, whose first column is the key."""
        width = 8 * (1 if self.keys.ndim == 1 else 2)
        data = pa.py_buffer(np.ascontiguousarray(self.keys))
        key = pa.Array.from_buffers(pa.binary(width), len(self.keys), [None, data])
        arrays = [key, *self.columns.columns]
        return pa.RecordBatch.from_arrays(arrays, [KEY, *self.columns.schema.names])

    @classmethod
    def unpacked(cls, batch: pa.RecordBatch) -> KeyedRows:
        """What `packed` gave."""
        key = batch.column(0)
        num_words = key.type.byte_width // 8
        words = np.frombuffer(key.buffers()[1], np.uint64, num_words * len(key), num_words * key.offset * 8)
        return cls(words if num_words == 1 else words.reshape(-1, 2), batch.drop_columns([KEY]))
